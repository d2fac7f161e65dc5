"""Configs are frozen dataclasses; this reads them from JSON and refuses unknown keys and wrong types."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from octavo.errors import UserError

C = TypeVar("C")


def from_json(cls: type[C], values: Mapping[str, Any]) -> C:
    """Make the config; every key must be a field, and every value of the field's type."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            remedy = f"did you mean {near[0]}?" if near else f"it has {', '.join(fields)}"
            raise UserError(f"{cls.__name__} has no setting {key!r}; {remedy}")
    return cls(**{key: _as(fields[key], value, key) for key, value in values.items()})


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
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    wanted = f"one of {', '.join(map(str, inside))}" if origin is typing.Literal else getattr(hint, "__name__", hint)
    raise UserError(f"{key} must be {wanted}: {key}={value!r}")
