"""What a foreign config says that decides the model: checked in type, and in what our transformer can be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from octavo.config import from_json
from octavo.errors import UserError

C = TypeVar("C")
LONGEST_CONTEXT = 1 << 24  # tokens; no model has more, and a forged one could take memory without bound


def settings_of(cls: type[C], values: Mapping[str, Any]) -> C:
    """The settings that the dataclass names, null where they are left out as well as missing ones by its defaults."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return from_json(cls, {name: values[name] for name in names if values.get(name) is not None})


def check_settings(settings: Any, able: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuse, by name, the variants that our transformer does not have."""
    for name, known in able.items():
        if (value := getattr(settings, name)) not in known:
            able_to = " or ".join(map(str, known))
            raise UserError(f"octavo's transformer has no {name}={value}, only {able_to}; take another model")


def check_context(context: int) -> int:
    """Refuse a context that no model has."""
    if not 2 <= context <= LONGEST_CONTEXT:
        raise UserError(f"a context must have from 2 to {LONGEST_CONTEXT:,} tokens: it says {context:,}")
    return context
