"""Attention patterns: which position attends to which. They are values, combine with & and |, and count their pairs.

B batch, T queries, S keys. The queries are the last T of the S positions: query i stands at position S - T + i.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.errors import UserError

MAX_MASK_ENTRIES = 1 << 22  # held while pairs are counted
MAY_BE_ZERO = ("radius", "globals")


class Pattern:
    """A rule for pairs of positions: does t attend to s? Patterns are dataclasses, and what they count is positive."""

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            least = 0 if name in MAY_BE_ZERO else 1
            if isinstance(size, int) and size < least:
                rule = "be at least 1" if least else "not be negative"
                raise UserError(f"{name} of a pattern must {rule}: {name}={size}; try {name}={least}")

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        """Whether t attends to s, for positions that broadcast; a rule that differs by row puts (B, 1) in front."""
        raise NotImplementedError

    @property
    def rows(self) -> int | None:
        """The rows of a batch, where the rule differs by row; None when it is the same for all."""
        return None

    def row(self, b: Tensor) -> Pattern:
        """The pattern as row b of the batch has it."""
        return self

    def on(self, device: torch.device | str) -> Pattern:
        """The pattern with what it holds on this device."""
        return self

    def __and__(self, other: Pattern) -> Pattern:
        """What both allow."""
        return Both(self, other)

    def __or__(self, other: Pattern) -> Pattern:
        """What either allows."""
        return Either(self, other)

    def mask(self, T: int, S: int, device: torch.device | str = "cpu") -> Tensor:
        """mask_TS of the last T of S positions; mask_B1TS of a pattern that differs by row."""
        return self._rows(S - T, S, S, device)

    def pairs(self, T: int, S: int) -> int:
        """How many pairs of a query and a key are allowed, in all rows; never holds more than a band of the mask."""
        rows = max(1, MAX_MASK_ENTRIES // max(1, S))
        starts = range(S - T, S, rows)
        return sum(int(self._rows(first, min(first + rows, S), S, "cpu").sum()) for first in starts)

    def _rows(self, first: int, last: int, S: int, device: torch.device | str) -> Tensor:
        """The mask of the queries from position `first` up to `last`, which is not one of them."""
        t_T1 = torch.arange(first, last, device=device)[:, None]
        s_S = torch.arange(S, device=device)
        allowed = self.on(device).allows(t_T1, s_S)
        return allowed.expand(*allowed.shape[:-2], len(t_T1), S)


@dataclass(frozen=True)
class Full(Pattern):
    """Every position attends to every position."""

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (t == t) & (s == s)


@dataclass(frozen=True)
class Causal(Pattern):
    """A token attends to itself and to what came before."""

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return s <= t


@dataclass(frozen=True)
class Local(Pattern):
    """Tokens less than `window` apart attend to each other; CAUSAL & Local(w): to the last w, itself included."""

    window: int

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (t - s < self.window) & (s - t < self.window)


@dataclass(frozen=True)
class Global(Pattern):
    """The first `tokens` positions attend to all and are attended to by all; there are no other pairs."""

    tokens: int = 1

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (t < self.tokens) | (s < self.tokens)


@dataclass(frozen=True)
class Block(Pattern):
    """The text is cut every `size` tokens, and the tokens of one block attend to each other."""

    size: int

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return t // self.size == s // self.size


@dataclass(frozen=True)
class Strided(Pattern):
    """Tokens whose distance is a multiple of `stride` attend to each other."""

    stride: int

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return (t - s) % self.stride == 0


@dataclass(frozen=True)
class Axial(Pattern):
    """A patch of an image, patches in row order behind `globals` tokens, attends to its row and its column.

    The tokens in front attend to all and are attended to by all.
    """

    height: int
    width: int
    globals: int = 0

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        rows, columns, patches = _apart(t - self.globals, s - self.globals, self.height, self.width)
        return (patches & ((rows == 0) | (columns == 0))) | (t < self.globals) | (s < self.globals)


@dataclass(frozen=True)
class Neighbourhood(Pattern):
    """A patch of an image, as in Axial, attends to those at most `radius` rows and columns away: 3 × 3 for 1."""

    height: int
    width: int
    radius: int = 1
    globals: int = 0

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        rows, columns, patches = _apart(t - self.globals, s - self.globals, self.height, self.width)
        near = (rows.abs() <= self.radius) & (columns.abs() <= self.radius)
        return (patches & near) | (t < self.globals) | (s < self.globals)


@dataclass(frozen=True, eq=False)
class ByRow(Pattern):
    """A rule that differs by row: `given` says of each row what it depends on."""

    given: Tensor

    @property
    def rows(self) -> int | None:
        return len(self.given)

    def row(self, b: Tensor) -> Pattern:
        return type(self)(self.given[b])

    def on(self, device: torch.device | str) -> Pattern:
        return type(self)(self.given.to(device))


class Padding(ByRow):
    """Only the first `given`_B[b] keys of row b are there; what stands behind them fills the batch up."""

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        lengths = self.given[:, None, None, None] if self.given.dim() else self.given
        return (s < lengths) & (t == t)


class Texts(ByRow):
    """Tokens of one text attend to each other: several texts share a row. `given`_BT is the text that each is of."""

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        text = self.given[:, None] if self.given.dim() > 1 else self.given
        s = s.reshape((1,) * (t.dim() - s.dim()) + s.shape)  # its places then come last, whatever stands in front
        return text[..., t] == text[..., s]


@dataclass(frozen=True)
class Pair(Pattern):
    """Two patterns made one."""

    one: Pattern
    other: Pattern

    @property
    def rows(self) -> int | None:
        return self.other.rows if self.one.rows is None else self.one.rows

    def row(self, b: Tensor) -> Pattern:
        return type(self)(self.one.row(b), self.other.row(b))

    def on(self, device: torch.device | str) -> Pattern:
        return type(self)(self.one.on(device), self.other.on(device))


@dataclass(frozen=True)
class Both(Pair):
    """What both patterns allow."""

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return self.one.allows(t, s) & self.other.allows(t, s)


@dataclass(frozen=True)
class Either(Pair):
    """What either pattern allows."""

    def allows(self, t: Tensor, s: Tensor) -> Tensor:
        return self.one.allows(t, s) | self.other.allows(t, s)


FULL = Full()
CAUSAL = Causal()


def _apart(t: Tensor, s: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """How many rows and columns lie between two patches, and whether both are patches of the image."""
    size = height * width
    patches = (t >= 0) & (t < size) & (s >= 0) & (s < size)
    return t // width - s // width, t % width - s % width, patches
