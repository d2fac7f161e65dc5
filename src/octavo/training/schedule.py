"""The training budget, and the learning-rate schedule: warm-up, then linear, cosine or no decay."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from octavo.errors import UserError

if TYPE_CHECKING:
    from octavo.training.checkpoint import Position
    from octavo.training.stage import Unit

UNITS = {
    "s": ("seconds", 1.0), "sec": ("seconds", 1.0), "seconds": ("seconds", 1.0), "m": ("seconds", 60.0),
    "min": ("seconds", 60.0), "minutes": ("seconds", 60.0), "h": ("seconds", 3600.0), "hours": ("seconds", 3600.0),
    "steps": ("steps", 1.0), "step": ("steps", 1.0), "tokens": ("tokens", 1.0), "token": ("tokens", 1.0),
    "examples": ("examples", 1.0), "images": ("examples", 1.0), "pairs": ("examples", 1.0), "texts": ("examples", 1.0),
}  # fmt: skip
THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}


@dataclass(frozen=True)
class Budget:
    """So many seconds, steps, or tokens or other examples."""

    kind: Literal["seconds", "steps", "tokens", "examples"]
    amount: float

    @classmethod
    def parse(cls, text: str) -> Budget:
        """180s, 3min, 2h, 5000steps, 20Mtokens."""
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kMGB]?)\s*([a-z]+)\s*", text)
        kind, unit = UNITS.get(match[3], ("", 0.0)) if match else ("", 0.0)
        amount = float(match[1]) * THOUSANDS[match[2]] * unit if match else 0.0
        if not match or not kind or not 0 < amount < math.inf or (kind == "steps" and amount < 1):
            raise UserError(
                f"a budget is a positive number with a unit: budget={text!r}; try 180s, 3min, 5000steps or 20Mtokens"
            )
        return cls(kind, amount)  # type: ignore[arg-type]

    def in_unit(self, unit: Unit) -> Budget:
        """The budget itself; one in another unit than the task counts in is refused."""
        if self.kind in ("tokens", "examples") and self.kind != unit:
            example = "20Mtokens" if unit == "tokens" else "20kexamples"
            raise UserError(
                f"this training counts {unit}, steps or seconds: budget={self.amount:g}{self.kind}; "
                f"try {example}, 5000steps or 180s"
            )
        return self

    def spent(self, position: Position) -> float:
        """How much of it is used up; training ends at 1."""
        used = {"seconds": position.seconds, "steps": float(position.step)}.get(self.kind, float(position.examples))
        return used / self.amount


def learning_rate_factor(spent: float, warmup: float, decay: Literal["linear", "cosine", "none"]) -> float:
    """The learning-rate schedule: a factor that rises from 0 to 1 in the warm-up, then decays to 0, or stays (none)."""
    if spent < warmup:
        return spent / warmup
    left = (1 - spent) / (1 - warmup) if warmup < 1 else 0.0
    left = min(1.0, max(0.0, left))
    return {"linear": left, "cosine": 0.5 * (1 - math.cos(math.pi * left)), "none": 1.0}[decay]
