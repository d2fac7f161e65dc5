"""What counts as a duplicate, and how many MinHash values find the pairs that are worth comparing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

from octavo.errors import UserError

Unit = Literal["line", "document"]
ShingleUnit = Literal["character", "word"]
SIMILARITY, SHINGLE = 0.8, 5
MIN_SIMILARITY, MOST_SHINGLE = 0.2, 100
MOST_HASHES = 128  # MinHash values of a line: what is gained beyond is not worth their time
FOUND = 0.99  # the least probability that a pair at the threshold is compared


class Bands(NamedTuple):
    """Two texts are compared where all MinHash values of one band agree."""

    bands: int
    rows: int

    def probability(self, similarity: float) -> float:
        """That a pair of this Jaccard similarity is compared: 1 - (1 - s^r)^b."""
        return float(1.0 - (1.0 - similarity**self.rows) ** self.bands)


def choose_bands(similarity: float) -> Bands:
    """The steepest curve that compares a pair at the threshold with probability FOUND, within MOST_HASHES values."""
    for rows in range(MOST_HASHES, 0, -1):
        for bands in range(1, MOST_HASHES // rows + 1):
            if (chosen := Bands(bands, rows)).probability(similarity) >= FOUND:
                return chosen
    raise AssertionError(f"no bands for similarity={similarity}")


@dataclass(frozen=True)
class DuplicatesConfig:
    """Which texts repeat others."""

    unit: Unit = "line"
    near: bool = False
    similarity: float = SIMILARITY
    shingle: int = SHINGLE
    shingle_unit: ShingleUnit = "character"

    def __post_init__(self) -> None:
        for name, kind in (("unit", Unit), ("shingle_unit", ShingleUnit)):
            if (value := getattr(self, name)) not in get_args(kind):
                raise UserError(f"{name} must be one of {', '.join(get_args(kind))}: got {value!r}")
        if not MIN_SIMILARITY <= self.similarity <= 1:
            raise UserError(
                f"similarity must be at least {MIN_SIMILARITY} and at most 1: similarity={self.similarity}; "
                f"try {SIMILARITY}"
            )
        if not 1 <= self.shingle <= MOST_SHINGLE:
            raise UserError(f"shingle must be 1 to {MOST_SHINGLE}: shingle={self.shingle}; try {SHINGLE}")
        given = (self.similarity, self.shingle, self.shingle_unit)
        if not self.near and given != (SIMILARITY, SHINGLE, "character"):
            raise UserError(
                f"only near duplicates have a similarity and shingles: similarity={self.similarity}, "
                f"shingle={self.shingle}, shingle_unit={self.shingle_unit}; add --near"
            )

    @property
    def threshold(self) -> Fraction:
        """The similarity as it is written: 0.8 is 4/5, and integers are compared with it."""
        return Fraction(str(self.similarity))

    @property
    def bands(self) -> Bands:
        """The bands of MinHash values; none where only exact duplicates are removed."""
        return choose_bands(self.similarity) if self.near else Bands(0, 0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
