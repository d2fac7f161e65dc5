"""What a loss is expected to come down to: the frequencies of the answers, and what the token before tells."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.training.diagnosis.curve import TrainingCurve

BEHIND = 0.05  # of a baseline: a training loss is one of other text, and of noise
NEAR = 0.05  # of the frequencies' cost: what has learnt them alone is so close to it


@dataclass(frozen=True)
class Expectation:
    """Costs that counting achieves, in bits per byte or, where a token has no bytes, bits an answer; None: unknown."""

    frequencies: float | None = None
    pairs: float | None = None
    what: str = "tokens"

    @property
    def is_known(self) -> bool:
        return self.frequencies is not None

    @property
    def unit(self) -> str:
        """Of the costs; those of a text have pairs."""
        return "bits" if self.pairs is None else "bits per byte"

    def reached(self, curve: TrainingCurve, loss: float) -> int:
        """0: not even the frequencies; 1: those, but not the pairs; 2: more than that, or all that is known.

        Of classes, whose pairs mean nothing, more than the frequencies is clearly less than they cost.
        """
        bits = curve.bits(loss)
        if self.frequencies is None or bits > (1 + BEHIND) * self.frequencies:
            return 0
        if self.pairs is None:
            return 2 if bits < (1 - NEAR) * self.frequencies else 1
        return 1 if bits > (1 + BEHIND) * self.pairs else 2

    def is_near_frequencies(self, curve: TrainingCurve) -> bool:
        """Whether the training loss came down to the frequencies, and no further."""
        return self.frequencies is not None and abs(curve.bits(curve.mean(0.9, 1)) / self.frequencies - 1) <= NEAR

    def goal(self, reached: int) -> tuple[str, str]:
        """What was not reached, as a sentence and as a table has it."""
        if reached == 0 and self.frequencies is not None:
            cost = f"{self.frequencies:.3f} {self.unit}"
            return f"above that of the bare frequencies of the {self.what} ({cost})", f"below {cost}"
        if self.pairs is not None:
            cost = f"{self.pairs:.3f} {self.unit}"
            return f"above that of a 2-gram ({cost})", f"below {cost}"
        if reached == 1:
            return f"that of the bare frequencies of the {self.what}", f"below {self.frequencies:.3f} {self.unit}"
        return "high", "falls, then flattens"
