"""Variants: the same exercise with other numbers for every student, drawn from a seed and the student's name.

A part that asks for a formula asks for its value at a point instead, so that the difficulty stays and the answer
cannot be copied; its common mistakes are computed at the same point. The other parts stay as they are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mpmath

from octavo.exercises.framework.answers import Formula, Interval, Number
from octavo.exercises.framework.exercise import Exercise, Finding, Part
from octavo.exercises.framework.formula import parse
from octavo.exercises.framework.formula_values import DIGITS, value

DRAWN: dict[str, tuple[float, ...]] = {  # kind of a symbol -> values that can be written down and computed with by hand
    "whole": (3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128),
    "positive": (1.5, 2, 2.5, 3, 4, 5),
    "real": (-0.8, -0.6, -0.5, -0.4, -0.2, 0.2, 0.4, 0.5, 0.6, 0.8),
    "share": (0.1, 0.2, 0.25, 0.3, 0.4, 0.6, 0.7, 0.75, 0.8, 0.9),
}  # fmt: skip
MAX_TRIES = 400
SMALLEST, LARGEST = 1e-3, 1e12  # of an answer that can be typed
MIN_DISTANCE = 0.02  # relative, of the answer from a common mistake, for the point to tell them apart
NOWHERE = Interval(math.inf, -math.inf)  # holds no number


def student_variant(exercise: Exercise, student: str, seed: int) -> Exercise:
    """The exercise with the numbers of one student; the same seed gives the same numbers everywhere."""
    parts = [at_point(part, random.Random(f"{seed}/{student}/{exercise.id}/{part.id}")) for part in exercise.parts]
    return replace(exercise, parts=parts)


def at_point(part: Part, rng: random.Random) -> Part:
    """A part that asks for its formula's value at a point; other parts, and formulas without such a point, stay."""
    formula = part.answer
    if not isinstance(formula, Formula) or not formula.symbols:
        return part
    best: tuple[int, dict[str, float], float, dict[str, float]] | None = None
    for _ in range(MAX_TRIES):
        point = _draw(formula, rng)
        right = _value(formula.right, formula, point)
        if right is None or not SMALLEST <= abs(right) <= LARGEST:
            continue
        others = {name: _value(str(given), formula, point) for name, given in {**part.wrong, **part.only_if}.items()}
        distinct = {name: x for name, x in others.items()
                      if x is not None and abs(x - right) > MIN_DISTANCE * abs(right)}  # fmt: skip
        if best is None or len(distinct) > best[0]:
            best = len(distinct), point, right, distinct
        if len(distinct) == len(others):
            break
    return part if best is None else _number_part(part, formula, *best[1:])


def _number_part(
    part: Part, formula: Formula, point: Mapping[str, float], right: float, others: Mapping[str, float]
) -> Part:
    where = ", ".join(f"`{name} = {x:g}`" for name, x in point.items())
    counted = right == int(right)

    def evidence() -> Finding:
        found = part.evidence()
        if difference := formula.compare(formula.right, found.value):
            return Finding(NOWHERE, f"{found.note}; but the formula is refuted: {difference}")
        return Finding(right, f"{found.note}; the formula at {where.replace('`', '')}")

    return replace(
        part, ask=f"{part.ask} Give its value for {where}.", evidence=evidence, full=None, makers={},
        answer=Number(int(right) if counted else right, rel=0 if counted else None),
        why=f"{part.why} In general: `{formula.right}`.",
        wrong={name: others[name] for name in part.wrong if name in others},
        only_if={name: others[name] for name in part.only_if if name in others},
    )  # fmt: skip


def _draw(formula: Formula, rng: random.Random) -> dict[str, float]:
    point = {name: rng.choice(DRAWN[kind]) for name, kind in formula.symbols.items()}
    ordered = sorted((point[name] for name in formula.descending), reverse=True)
    return point | dict(zip(formula.descending, ordered, strict=True))


def _value(text: str, formula: Formula, point: Mapping[str, Any]) -> float | None:
    with mpmath.workdps(DIGITS):
        try:
            return float(value(parse(text, formula.symbols), {name: str(x) for name, x in point.items()}))
        except (ArithmeticError, ValueError):
            return None
