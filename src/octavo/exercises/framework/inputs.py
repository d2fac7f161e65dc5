"""The inputs of an interactive exercise: a number, one of a few options, or a small table; each validates its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from octavo.errors import UserError

Rows = list[list[float]]


@dataclass(frozen=True)
class Parameter:
    """A number from `low` to `high`; a `step` of one means integers, `log` a logarithmic slider."""

    kind: ClassVar[str] = "number"
    name: str
    label: str
    low: float
    high: float
    step: float
    value: float
    log: bool = False

    def validate(self, given: Any) -> float:
        """The number; a UserError if it is not valid."""
        if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
            raise UserError(f"{self.name} must be a number: it is {str(given)[:40]!r}; try {self.value:g}")
        if not self.low <= given <= self.high:
            raise UserError(f"{self.name} must be from {self.low:g} to {self.high:g}: it is {given:g}")
        if self.step >= 1 and given != round(given):
            raise UserError(f"{self.name} must be a whole number: it is {given:g}; try {round(given)}")
        return int(given) if self.step >= 1 else float(given)


@dataclass(frozen=True)
class Option:
    """One of a few named options."""

    kind: ClassVar[str] = "option"
    name: str
    label: str
    options: Mapping[str, str]  # name -> meaning
    value: str

    def validate(self, given: Any) -> str:
        """The name; a UserError if there is no such option."""
        if not isinstance(given, str) or given not in self.options:
            raise UserError(f"{self.name} must be one of {', '.join(self.options)}: it is {str(given)[:40]!r}")
        return given


@dataclass(frozen=True)
class Table:
    """Rows of equal length with non-negative numbers."""

    kind: ClassVar[str] = "table"
    name: str
    label: str
    min_size: int  # rows, and numbers in a row
    max_size: int
    value: Rows

    def validate(self, given: Any) -> Rows:
        """The rows, scaled so that they sum to one; a UserError if they are not valid."""
        rows = given if isinstance(given, list | tuple) else ()
        sizes = {len(row) if isinstance(row, list | tuple) else 0 for row in rows}
        if len(sizes) != 1 or not all(self.min_size <= size <= self.max_size for size in (len(rows), *sizes)):
            raise UserError(f"{self.name} must be {self.min_size} to {self.max_size} rows of equally many numbers, "
                            f"{self.min_size} to {self.max_size}; try {self.value}")  # fmt: skip
        for x in (x for row in rows for x in row):
            if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x) or x < 0:
                raise UserError(f"{self.name} holds numbers that are not negative: one is {str(x)[:40]!r}; write 0")
        total = sum(x for row in rows for x in row)
        if not 0 < total < math.inf:
            raise UserError(f"the numbers of {self.name} must add up to more than 0: they add up to {total:g}")
        return [[x / total for x in row] for row in rows]


Input = Parameter | Option | Table


@dataclass(frozen=True)
class InteractiveExercise:
    """An interactive exercise: its inputs, and `function`, which validates their values and computes the curves."""

    title: str
    exercise_id: str
    parameters: Sequence[Input]
    compute: Callable[..., dict[str, Any]] = field(repr=False)

    def function(self, /, **values: Any) -> dict[str, Any]:
        """Curves, axes and a summary, ready for JSON; inputs that are not given have their default value."""
        known = {one.name: one for one in self.parameters}
        if unknown := sorted(set(values) - set(known)):
            raise UserError(f"there is no input {unknown[0]!r}; the inputs are {', '.join(known)}")
        return self.compute(**{name: one.validate(values.get(name, one.value)) for name, one in known.items()})

    def describe(self) -> dict[str, Any]:
        """The inputs, for a page that draws the controls."""
        controls = [{"kind": one.kind, **{name: getattr(one, name) for name in one.__dataclass_fields__}}
                    for one in self.parameters]  # fmt: skip
        return {"title": self.title, "exercise_id": self.exercise_id, "parameters": controls}
