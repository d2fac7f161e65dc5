"""What can be shown of a model: a spec declares its views, and each gives data of one of a few kinds.

`octavo inspect`, its page and the studio draw by kind and know no model. N tokens of a text, T those read (begin
first), D units, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

Kind = Literal["token-rows", "token-maps", "token-table", "layers", "curve", "masked", "image"]
SHUT, OPEN = 0.1, 0.9  # below and above, a unit counts as saturated


@dataclass(frozen=True)
class Tap:
    """A value that the model shows with `octavo.core.tap` while it reads a token."""

    name: str
    meaning: str = ""
    signed: bool = False
    """Between -1 and 1; else between 0, shut, and 1, open."""
    unbounded: bool = False
    """Values may lie beyond -1 and 1: their tanh is drawn."""


@dataclass(frozen=True)
class View:
    """One thing that can be shown of a model while it reads a text."""

    name: str
    title: str
    kind: Kind
    source: str | Callable[..., Any] = ""
    """An implementation that octavo.inspection knows by name, or a function (model, x_N) that gives the kind's data:
    token-rows: TokenRow's; token-maps: TokenMaps; token-table: a TokenTable; layers: LayerPrediction's."""
    taps: tuple[Tap, ...] = ()
    """token-rows: the values shown."""
    applies: Callable[[Any], bool] = lambda model: True
    """Whether a model has it: a part that it shows may have been left out."""


ATTENTION = View("attention", "Attention", "token-maps", "layer-attention")
MEMORY_ATTENTION = View("attention", "Attention", "token-maps", "memory-attention")
LOGIT_LENS = View("logit-lens", "Logit lens", "layers", "logit-lens")
GRADIENT_FLOW = View("gradient-flow", "Gradient flow", "curve", "state-gradients")
LAYER_GRADIENT_FLOW = View("gradient-flow", "Gradient flow", "curve", "layer-gradients")


@dataclass(frozen=True)
class Bars:
    """Numbers by name."""

    caption: str
    rows: tuple[tuple[str, float], ...]
    digits: int = 0


@dataclass(frozen=True)
class Table:
    """Cells by row; where there are no titles, the first cell of a row names it."""

    caption: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class TokenRow:
    """token-rows: one gate, or a part of the state, of one layer over a text."""

    name: str
    layer: int  # from 1
    value_TD: Tensor
    signed: bool = False
    meaning: str = ""
    unbounded: bool = False

    @property
    def mean(self) -> Tensor:
        """Of each token, the mean over the units."""
        return self.value_TD.mean(1)

    @property
    def strength(self) -> Tensor:
        """The mean over the units as a number from 0 to 1, without the sign."""
        return self.bounded().abs().mean(1)

    @property
    def low(self) -> Tensor:
        """The share of units that are shut; of those with a sign, that are near -1."""
        return (self.bounded() < (-OPEN if self.signed else SHUT)).double().mean(1)

    @property
    def high(self) -> Tensor:
        """The share of units that are open, or near 1."""
        return (self.bounded() > OPEN).double().mean(1)

    @property
    def squashed(self) -> bool:
        """Whether values lie beyond -1 and 1, so that their tanh is drawn: an LSTM's cell."""
        return self.unbounded or self.name == "cell"

    def bounded(self) -> Tensor:
        """The values, none beyond -1 and 1."""
        return self.value_TD.tanh() if self.squashed else self.value_TD

    def busiest(self, count: int) -> list[int]:
        """The units whose values vary most over the text, the busiest first."""
        return self.bounded().std(0, correction=0).topk(min(count, self.value_TD.shape[1])).indices.tolist()


@dataclass(frozen=True, eq=False)
class TokenMaps:
    """token-maps: of every layer the attention weights a_HTT: lower triangular, rows sum to one; 0 is not visible."""

    layers: tuple[Tensor, ...]
    visible_T: Tensor  # how many tokens each can attend to, itself included where it can


@dataclass(frozen=True, eq=False)
class LayerPrediction:
    """layers: what would be predicted if the model were read out after one layer; depth 0 is the embedding."""

    depth: int
    top_N: Tensor  # the likeliest token in each place
    p_N: Tensor  # and its probability
    bits_N: Tensor  # cost of the token that came
    right_N: Tensor  # whether the likeliest was the one that came

    @property
    def bits(self) -> float:
        """The mean cost of a token."""
        return float(self.bits_N.mean())

    @property
    def right(self) -> float:
        """How often the likeliest token was the one that came."""
        return float(self.right_N.double().mean())

    @property
    def name(self) -> str:
        return f"layer {self.depth}" if self.depth else "embedding"


@dataclass(frozen=True)
class TokenDetail:
    """What a token-table shows of one token that is chosen."""

    shade: float
    """From 0 to 1, or with `TokenTable.parts` the number of the part that the token is tinted by."""
    title: str
    """One line: what the token cost."""
    rows: tuple[tuple[str, ...], ...] = ()
    shares: tuple[float, ...] = ()
    """The bar at the end of each row, from 0 to 1."""
    notes: tuple[str, ...] = ()
    part_bits: tuple[float, ...] = ()
    """With `TokenTable.parts`: the token's cost by each part alone, and last by the whole model."""


@dataclass(frozen=True)
class TokenTable:
    """token-table: a table for each token, such as a back-off path or the votes of a mixture."""

    intro: str
    columns: tuple[str, ...]
    details: tuple[TokenDetail, ...]
    legend: tuple[str, ...] = ()
    """Names of the shades, from 0 to 1."""
    parts: tuple[str, ...] = ()
    """Names of the tints, where tokens are tinted by part."""
    outro: str = ""
    summary: Table | None = None
    """What can be said of the whole text."""
