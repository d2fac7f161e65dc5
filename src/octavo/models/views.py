"""What can be shown of a model: a spec declares its views, and each gives data of one of a few kinds.

`octavo inspect`, its page and the studio draw by kind and know no model. N tokens of a text, T those read (begin
first), D units, H heads, K rows of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

Kind = Literal["token-rows", "token-maps", "token-table", "layers", "curve", "masked", "image"]


@dataclass(frozen=True)
class Tap:
    """A value that the model shows with `octavo.core.tap` while it reads a token."""

    name: str
    meaning: str = ""
    signed: bool = False
    """Between -1 and 1; else between 0, shut, and 1, open."""


@dataclass(frozen=True)
class View:
    """One thing that can be shown of a model while it reads a text."""

    name: str
    title: str
    kind: Kind
    source: str | Callable[..., Any] = ""
    """An implementation that octavo.inspect.views knows by name, or a function (model, x_N) -> data of the kind."""
    taps: tuple[Tap, ...] = ()
    """token-rows: the values shown, in their order."""


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


@dataclass(frozen=True)
class TokenRow:
    """One gate, or a part of the state, of one layer over a text."""

    name: str
    layer: int  # from 1
    value_TD: Tensor
    signed: bool = False
    meaning: str = ""


ATTENTION = View("attention", "Attention", "token-maps", "layer-attention")
MEMORY_ATTENTION = View("attention", "Attention", "token-maps", "memory-attention")
LOGIT_LENS = View("logit-lens", "Logit lens", "layers", "logit-lens")
GRADIENT_FLOW = View("gradient-flow", "Gradient flow", "curve", "state-gradients")
LAYER_GRADIENT_FLOW = View("gradient-flow", "Gradient flow", "curve", "layer-gradients")
