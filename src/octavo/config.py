"""Configs are frozen dataclasses; this reads them from JSON and refuses unknown keys and wrong types.

A field that was renamed stays readable under its old name: the class says so in `RENAMED: ClassVar = {"old": "new"}`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from octavo.deprecation import warn_deprecated
from octavo.errors import UserError, did_you_mean

C = TypeVar("C")
DEVICE_NAMES = "auto, cpu, cuda, cuda:N or mps"  # what --device takes
LARGEST_INT = (1 << 63) - 1  # what tensors and files can count


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a setting may have, declared beside its type: `width: Annotated[int, Range(1, 65536)] = 128`."""

    least: float
    most: float
    above: bool = False
    """The least is not allowed itself."""
    below: bool = False
    """The most is not allowed itself."""

    def __contains__(self, value: float) -> bool:
        low = value > self.least if self.above else value >= self.least
        return low and (value < self.most if self.below else value <= self.most)

    def rule_for(self, value: float) -> str:
        """What a value must be that is not in it."""
        low, high = "above" if self.above else "at least", "below" if self.below else "at most"
        if type(self.most) is float:
            return f"{low} {self.least:g} and {high} {self.most:g}"
        return f"{low} {self.least:,}" if value < self.least else f"{high} {self.most:,}"


# What settings of these kinds may be: far beyond what anybody trains, and small enough to be computed with.
Width = typing.Annotated[int, Range(1, 1 << 18)]
Layers = typing.Annotated[int, Range(1, 1 << 12)]
Heads = typing.Annotated[int, Range(1, 1 << 12)]
Context = typing.Annotated[int, Range(1, 1 << 20)]
"""Tokens that a model attends to: caches are made of this length, so a file shall not ask for more."""
Length = typing.Annotated[int, Range(1, 1 << 24)]
"""Tokens of a window, rows of a batch, entries of a vocabulary."""
LengthOrZero = typing.Annotated[int, Range(0, 1 << 24)]
Count = typing.Annotated[int, Range(1, (1 << 31) - 1)]
"""Of steps, epochs, occurrences."""
CountOrZero = typing.Annotated[int, Range(0, (1 << 31) - 1)]
Share = typing.Annotated[float, Range(0, 1.0, below=True)]
LearningRate = typing.Annotated[float, Range(0, 10.0, above=True)]
Amount = typing.Annotated[float, Range(0, 1e9)]


def check_ranges(config: Any) -> None:
    """Refuse a setting that is outside the range that its field declares; None is in every range."""
    kind: Any = type(config)
    for field, within in _ranges(kind):
        value = getattr(config, field.name)
        for number in value if isinstance(value, tuple) else () if value is None else (value,):
            if number not in within:
                raise UserError(
                    f"{field.name} must be {within.rule_for(number)}: {field.name}={number}; {_usual(field)}"
                )


@functools.cache
def _ranges(cls: type) -> list[tuple[dataclasses.Field[Any], Range]]:
    """The fields that declare a range."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = [(field, declared_range(hints[field.name])) for field in dataclasses.fields(cls)]
    return [(field, within) for field, within in found if within is not None]


def declared_range(hint: Any) -> Range | None:
    """The range in an annotation, also in one of several types or of a list's members."""
    if isinstance(hint, Range):
        return hint
    inside = (*getattr(hint, "__metadata__", ()), *typing.get_args(hint))
    return next((found for one in inside if (found := declared_range(one)) is not None), None)


def _usual(field: dataclasses.Field[Any]) -> str:
    """The remedy: the field's default, where it is a number."""
    usual = field.default
    if isinstance(usual, bool) or not isinstance(usual, int | float):
        return "leave it out"
    return f"try --{field.name.replace('_', '-')} {usual:g}" if isinstance(usual, float) else (
        f"try --{field.name.replace('_', '-')} {usual}")  # fmt: skip


def from_json(cls: type[C], values: Mapping[str, Any]) -> C:
    """Make the config; every key must be a field, and every value of the field's type."""
    if not isinstance(values, Mapping):
        raise UserError(f"{cls.__name__} must be a JSON object: it is a {type(values).__name__}")
    values = with_current_names(cls, values)
    hints = typing.get_type_hints(cls)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise no_such_setting(cls.__name__, key, list(fields))
    made = cls(**{key: _as(fields[key], value, key) for key, value in values.items()})
    check_ranges(made)  # also where the class, of an installed package, say, does not do it
    return made


def plain_json(value: Any) -> Any:
    """A dataclass, list or mapping of numbers and texts as plain JSON values; what is not finite becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def rounded(value: Any, digits: int) -> Any:
    """The value with every number in it that is no integer rounded."""
    if isinstance(value, Mapping):
        return {key: rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one, digits) for one in value]
    return round(value, digits) if isinstance(value, float) else value


def with_current_names(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with renamed keys under their current names."""
    renamed: Mapping[str, str] = getattr(cls, "RENAMED", {})
    current = {renamed.get(key, key): value for key, value in values.items()}
    if len(current) < len(values):
        both = next(f"{old} and {new}" for old, new in renamed.items() if old in values and new in values)
        raise UserError(f"{cls.__name__} was given one setting under two names: {both}; leave out the first")
    return current


def configs_from(
    owner: str, usual: Sequence[Any], settings: Mapping[str, Any], others: Sequence[str] = ()
) -> list[Any]:  # fmt: skip
    """The usual configs with these settings in them; one that none of them has is refused, `others` being known too."""
    names = [[field.name for field in dataclasses.fields(one)] for one in usual]
    for one in usual:
        renamed: Mapping[str, str] = getattr(type(one), "RENAMED", {})
        for old in renamed.keys() & settings.keys():
            warn_deprecated(f"the setting {old!r} of {owner}", repr(renamed[old]))
        settings = with_current_names(type(one), settings)
    for key in settings:
        if not any(key in known for known in names):
            raise no_such_setting(owner, key, [*(name for some in names for name in some), *others])
    given = [{key: value for key, value in settings.items() if key in known} for known in names]
    return [from_json(type(one), dataclasses.asdict(one) | own) for one, own in zip(usual, given, strict=True)]


def no_such_setting(owner: str, key: str, known: Sequence[str]) -> UserError:
    """The refusal of a setting, with the nearest one that exists."""
    remedy = did_you_mean(key, known, f"it has {', '.join(known) or 'none'}")
    return UserError(f"{owner} has no setting {key!r}; {remedy}")


def _as(hint: Any, value: Any, key: str) -> Any:
    """The value as the type says; JSON's lists become tuples, whole numbers serve where a float is asked for."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal and value in inside:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inside:
            return None
        return _as(next(one for one in inside if one is not type(None)), value, key)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_as(inside[0], item, key) for item in value)
    if hint is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if hint is int and type(value) is int and abs(value) > LARGEST_INT:
        raise UserError(f"{key} must be at most 2**63 - 1: {key} has {len(str(abs(value)))} digits; leave it out")
    if hint is not float and isinstance(hint, type) and type(value) is hint:
        return value
    raise UserError(f"{key} must be {_wanted(hint)}: {key}={value!r}")


def _wanted(hint: Any) -> str:
    """The type in words."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, inside))}"
    if origin is tuple:
        return f"a list, each of it {_wanted(inside[0])}"
    return WORDS.get(hint, str(getattr(hint, "__name__", hint)))


WORDS: dict[Any, str] = {
    int: "a whole number", float: "a finite number", str: "a string", bool: "true or false",
}  # fmt: skip
