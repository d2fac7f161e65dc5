"""What somebody may set in an interactive exercise: a number, one of a few options, a small table; each is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from octavo.errors import UserError

Rows = list[list[float]]


@dataclass(frozen=True)
class Parameter:
    """A number from `low` to `high`; a `step` of one means whole numbers, `log` that a slider goes by factors."""

    kind: ClassVar[str] = "number"
    name: str
    label: str
    low: float
    high: float
    step: float
    value: float
    log: bool = False

    def checked(self, given: Any) -> float:
        """The number, or a UserError."""
        if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
            raise UserError(f"{self.name} must be a number: it is {str(given)[:40]!r}; try {self.value:g}")
        if not self.low <= given <= self.high:
            raise UserError(f"{self.name} must be from {self.low:g} to {self.high:g}: it is {given:g}")
        if self.step >= 1 and given != round(given):
            raise UserError(f"{self.name} must be a whole number: it is {given:g}; try {round(given)}")
        return int(given) if self.step >= 1 else float(given)


@dataclass(frozen=True)
class Option:
    """One of a few named things."""

    kind: ClassVar[str] = "option"
    name: str
    label: str
    options: Mapping[str, str]  # name -> what it says
    value: str

    def checked(self, given: Any) -> str:
        """The name, or a UserError."""
        if not isinstance(given, str) or given not in self.options:
            raise UserError(f"{self.name} must be one of {', '.join(self.options)}: it is {str(given)[:40]!r}")
        return given


@dataclass(frozen=True)
class Table:
    """Rows of equally many numbers that are not negative."""

    kind: ClassVar[str] = "table"
    name: str
    label: str
    fewest: int  # rows, and numbers in a row
    most: int
    value: Rows

    def checked(self, given: Any) -> Rows:
        """The rows, or a UserError."""
        rows = given if isinstance(given, list | tuple) else ()
        sizes = {len(row) if isinstance(row, list | tuple) else 0 for row in rows}
        if len(sizes) != 1 or not all(self.fewest <= size <= self.most for size in (len(rows), *sizes)):
            raise UserError(f"{self.name} must be {self.fewest} to {self.most} rows of equally many numbers, "
                            f"{self.fewest} to {self.most}; try {self.value}")  # fmt: skip
        for one in (one for row in rows for one in row):
            if isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one) or one < 0:
                raise UserError(f"{self.name} holds numbers that are not negative: one is {str(one)[:40]!r}; write 0")
        total = sum(one for row in rows for one in row)
        if not 0 < total < math.inf:
            raise UserError(f"the numbers of {self.name} must add up to more than 0: they add up to {total:g}")
        return [[one / total for one in row] for row in rows]


Input = Parameter | Option | Table


@dataclass(frozen=True)
class Play:
    """An interactive exercise: what can be set, and `function`, which checks that and says what is seen."""

    title: str
    exercise_id: str
    parameters: Sequence[Input]
    compute: Callable[..., dict[str, Any]] = field(repr=False)

    def function(self, /, **values: Any) -> dict[str, Any]:
        """Series, axes, and a sentence, all of which JSON can hold; what is not given has its first value."""
        known = {one.name: one for one in self.parameters}
        if strange := sorted(set(values) - set(known)):
            raise UserError(f"there is no {strange[0]!r} to set; there are {', '.join(known)}")
        return self.compute(**{name: one.checked(values.get(name, one.value)) for name, one in known.items()})

    def told(self) -> dict[str, Any]:
        """What can be set, for a page that draws the controls."""
        controls = [{"kind": one.kind, **{name: getattr(one, name) for name in one.__dataclass_fields__}}
                    for one in self.parameters]  # fmt: skip
        return {"title": self.title, "exercise_id": self.exercise_id, "parameters": controls}
