"""What the configs of several models check alike."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from torch import Tensor

from octavo.errors import NotNumbersError, UserError


def check_positive(name: str, value: int, example: int) -> None:
    if value < 1:
        raise UserError(f"{name} must be at least 1: {name}={value}; try --{name.replace('_', '-')} {example}")


def check_not_negative(name: str, value: int, advice: str = "leave it out") -> None:
    if value < 0:
        raise UserError(f"{name} must not be negative: {name}={value}; {advice}")


def check_dropout(share: float, name: str = "dropout", example: float = 0.1) -> None:
    if not 0 <= share < 1:
        raise UserError(
            f"{name} must be at least 0 and below 1: {name}={share}; try --{name.replace('_', '-')} {example}"
        )


def check_choices(config: Any) -> None:
    """Refuse a value that is none of its field's Literal."""
    for name, hint in get_type_hints(type(config)).items():
        if (known := get_args(hint)) and isinstance(known[0], str) and getattr(config, name) not in known:
            raise UserError(
                f"{name} must be one of {', '.join(known)}: {name}={getattr(config, name)!r}; "
                f"try --{name.replace('_', '-')} {known[0]}"
            )


def check_numbers(values: Tensor, what: str) -> Tensor:
    """The values that a model has computed; NaN and infinities, which damaged weights lead to, are refused."""
    if not bool(values.isfinite().all()):
        raise NotNumbersError(
            f"{what} must be numbers, and the model computes others: its weights are damaged, or its training has "
            "failed; train it again"
        )
    return values


def check_distribution(logp: Tensor, what: str) -> None:
    """Refuse saved log-probabilities that do not sum to one along the last dimension: they were tampered with."""
    sums = logp.logsumexp(-1)
    if not bool((sums.abs() < 1e-9).all()):
        raise UserError(f"{what} must sum to one; the file is damaged, train the model again")
