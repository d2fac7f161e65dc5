"""The laws of a scaling experiment's points, over each variable that it covers, and where two of them meet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from octavo.config import plain_json
from octavo.errors import UserError
from octavo.experiments.scale.measure import ScalePoint
from octavo.experiments.scale.power_law import Crossing, Fit, constant, crossing, fit_law
from octavo.experiments.table import to_csv
from octavo.io.files import write_text
from octavo.pages.sections import notebook_view, paragraphs

Variable = Literal["text", "parameters", "flops"]
EXTRAPOLATED = 10.0  # the largest x measured: how far a law is extrapolated
RESULT, TABLE = "scaling.json", "points.csv"


@dataclass(frozen=True)
class ScaleCurve:
    """Points over one variable, and their law, or why there is none."""

    model: str
    variable: Variable
    points: tuple[ScalePoint, ...]
    fit: Fit | None
    why: str = ""

    @property
    def xy(self) -> list[tuple[float, float]]:
        return [(value_of(point, self.variable), point.bits) for point in self.points]

    @property
    def low(self) -> float:
        return min(x for x, _ in self.xy)

    @property
    def high(self) -> float:
        return max(x for x, _ in self.xy)


def value_of(point: ScalePoint, variable: Variable) -> float:
    """Where a point stands on a variable's axis."""
    return float({"text": point.bytes, "parameters": point.parameters, "flops": point.flops}[variable])


@dataclass(frozen=True)
class Scaling:
    """The points of a scaling experiment and everything that follows from them."""

    model: str
    against: str | None
    corpus: str
    text_bytes: int
    held_out_bytes: int
    budget: str
    points: tuple[ScalePoint, ...]
    command: str = ""
    seed: int = 0
    notes: tuple[str, ...] = field(default=())
    failed: tuple[ScalePoint, ...] = ()  # trainings that failed, each with its error

    @cached_property
    def rows(self) -> list[ScalePoint]:
        """The table: every point, those that the laws over text go through marked, and what failed."""
        taken = {point for curve in self.text.values() for point in curve.points}
        return [*(replace(point, chosen=point in taken) for point in self.points), *self.failed]

    @cached_property
    def text(self) -> dict[str, ScaleCurve]:
        """Over bytes of text, for each model: of each length the size that was best on validation chunks."""
        models = [self.model, *([self.against] if self.against else [])]
        return {model: self._curve(model, "text", chosen(self._of(model))) for model in models}

    @cached_property
    def parameters(self) -> ScaleCurve | None:
        """Over parameters, on the whole text; None for fewer than three sizes."""
        return self._covered("parameters", [p for p in self._of(self.model) if p.bytes == self.text_bytes])

    @cached_property
    def training(self) -> ScaleCurve | None:
        """Over FLOPs of training, the whole model on the whole text; None for fewer than three budgets."""
        whole = [p for p in self.points if p.model == self.model and p.size == 1 and p.bytes == self.text_bytes]
        return self._covered("flops", whole)

    @cached_property
    def joint(self) -> Fit | None:
        """Over parameters and text at once: floor + A / parameters^alpha + B / text^beta."""
        points = self._of(self.model)
        try:
            rows = [(value_of(p, "parameters"), value_of(p, "text")) for p in points]
            return fit_law(rows, [p.bits for p in points], seed=self.seed)
        except UserError:
            return None

    @property
    def curves(self) -> list[ScaleCurve]:
        """Every law of one variable."""
        return [*self.text.values(), *(one for one in (self.parameters, self.training) if one is not None)]

    @cached_property
    def crossing(self) -> Crossing | None:
        """Where the two models meet on the axis of text; None where one of them has no law."""
        if self.against is None:
            return None
        first, second = self.text[self.model], self.text[self.against]
        if first.fit is None or second.fit is None:
            return None
        return crossing(first.fit, second.fit, min(first.low, second.low), max(first.high, second.high))

    @cached_property
    def crossing_by_training(self) -> Crossing | None:
        """Where the model, trained for longer on the whole text, meets what the other makes of the whole text."""
        if self.against is None or self.training is None or self.training.fit is None:
            return None
        level = [p.bits for p in self.text[self.against].points if p.bytes == self.text_bytes]
        if not level or max(level) == float("inf"):
            return None
        found = self.training
        return crossing(self.training.fit, constant(sum(level) / len(level)), found.low, found.high)

    def _of(self, model: str) -> list[ScalePoint]:
        """Those with the whole budget."""
        return [point for point in self.points if point.model == model and point.budget == 1]

    def _covered(self, variable: Variable, points: Sequence[ScalePoint]) -> ScaleCurve | None:
        neural = [point for point in points if point.flops]
        # Seeds differ by a little in what they did in a time; those are no different budgets.
        asked = {point.size if variable == "parameters" else point.budget for point in neural}
        if len({value_of(point, variable) for point in neural}) < 3 or len(asked) < 3:
            return None
        return self._curve(self.model, variable, neural)

    def _curve(self, model: str, variable: Variable, points: Sequence[ScalePoint]) -> ScaleCurve:
        fit, why = None, ""
        if worst := max((point.impossible for point in points), default=0):
            why = f"it gives probability zero to up to {worst:,} held-out tokens, so its bits are infinite; smooth it"
        else:
            try:
                fit = fit_law([[value_of(p, variable)] for p in points], [p.bits for p in points], seed=self.seed)
            except UserError as error:
                why = str(error)
        return ScaleCurve(model, variable, tuple(points), fit, why)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what is not finite becomes null."""
        about = ("model", "against", "corpus", "text_bytes", "held_out_bytes", "budget", "seed", "command", "notes")
        crossings = {"text": self.crossing, "flops": self.crossing_by_training}
        values: dict[str, Any] = plain_json({
            **{key: getattr(self, key) for key in about}, "points": self.rows,
            "laws": [_law_json(curve) for curve in self.curves],
            "joint_law": _joint_json(self.joint) if self.joint else None,
            "crossings": {
                key: {"kind": one.kind, "at": one.at, "interval": one.interval, "overtakes": one.overtakes,
                      "measured": one.measured, "share_of_refits": one.share}
                for key, one in crossings.items() if one is not None
            },
        })  # fmt: skip
        return values

    def to_csv(self) -> str:
        """The points, one a line."""
        return to_csv(ScalePoint, self.rows)

    def save(self, out: Path) -> None:
        """scaling.json, points.csv and report.html in a folder."""
        from octavo.experiments.scale.page import scaling_page

        result = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        for name, text in ((RESULT, result), (TABLE, self.to_csv()), ("report.html", scaling_page(self))):
            write_text(out / name, text)

    def __repr__(self) -> str:
        against = f" against {self.against}" if self.against else ""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<octavo scaling of {self.model}{against} on {self.corpus}: {len(self.points)} points{failed}>"

    def _repr_html_(self) -> str:
        from octavo.experiments.scale.page import summary

        return notebook_view(paragraphs(summary(self)))


def chosen(points: Sequence[ScalePoint]) -> list[ScalePoint]:
    """Of each length and seed the point whose model did best on validation chunks of its training text."""

    def order(point: ScalePoint) -> tuple[float, float]:
        """The less the better; the larger model where nothing was held out."""
        bits = point.validation_bits_per_byte
        return (bits if bits is not None else float("inf"), -point.size)

    ordered = sorted(points, key=lambda p: (p.bytes, p.seed))
    return [min(group, key=order) for _, group in groupby(ordered, key=lambda p: (p.bytes, p.seed))]


def _law_json(curve: ScaleCurve) -> dict[str, Any]:
    about: dict[str, Any] = {"model": curve.model, "variable": curve.variable, "error": curve.why or None}
    if curve.fit is None:
        return about
    fit, further = curve.fit, EXTRAPOLATED * curve.high
    return about | {
        "floor": fit.law.floor, "excess": fit.law.excess[0], "exponent": fit.law.exponent[0], "unit": fit.law.unit[0],
        "floor_interval": fit.floor if fit.with_floor else None, "exponent_interval": fit.exponent(),
        "falls": fit.falls, "points": fit.points, "typical_error": fit.error,
        "extrapolated": {"at": further, "bits_per_byte": fit.law(further), "interval": fit.interval(further)},
    }  # fmt: skip


def _joint_json(fit: Fit) -> dict[str, Any]:
    names = ("parameters", "text")
    return {"floor": fit.law.floor, "floor_interval": fit.floor, "points": fit.points,
            "typical_error": fit.error} | {
        name: {"excess": fit.law.excess[i], "exponent": fit.law.exponent[i], "unit": fit.law.unit[i],
               "exponent_interval": fit.exponent(i)}
        for i, name in enumerate(names)
    }  # fmt: skip
