"""Encoders of whole sentences: recurrent ones in one direction or both, and a transformer.

B sentences, T tokens of the longest, D width, E = 2 D, what both directions say of a token. An encoder makes h_BTE of
x_BTD; what it makes of a sentence does not depend on its padding, so not on the other sentences of a batch either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from octavo.models.linear_recurrent import (
    LRUConfig,
    MinGRUConfig,
    MinLSTMConfig,
    RecurrentBlock,
    RGLRUConfig,
)
from octavo.models.parts.attention import Place
from octavo.models.parts.block import in_product_precision
from octavo.models.parts.config import GPTConfig
from octavo.models.parts.feed_forward import Norm
from octavo.models.parts.linear_recurrence import MIXERS
from octavo.models.recurrent import Layer
from octavo.models.seq2seq import EncoderBlock
from octavo.ops.attention import CAUSAL, Padding
from octavo.ops.bidirectional import both_directions
from octavo.ops.positions import rotary_angles
from octavo.ops.recurrent import Cell, layer

EncoderName = Literal["gru", "lstm", "rnn", "mingru", "minlstm", "lru", "rglru", "transformer", "none"]
LINEAR_CONFIGS: dict[str, type] = {
    "mingru": MinGRUConfig, "minlstm": MinLSTMConfig, "lru": LRUConfig, "rglru": RGLRUConfig,
}  # fmt: skip


class NoEncoder(nn.Module):
    """Every token by itself."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.width = config.width

    def initialise(self, generator: torch.Generator) -> None:
        """There is nothing to draw."""

    def forward(self, x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        return x_BTD


class RecurrentEncoder(nn.Module):
    """Layers of an RNN, GRU or LSTM; of two directions, the upper layer reads both."""

    def __init__(self, cell: Cell, config: Any) -> None:
        super().__init__()
        self.cell, self.config = cell, config
        self.width = config.width * (2 if config.bidirectional else 1)
        inputs = [config.width, *[self.width] * (config.layers - 1)]
        self.forwards: Any = nn.ModuleList(Layer(cell, size, config.width) for size in inputs)
        self.backwards: Any = nn.ModuleList(
            Layer(cell, size, config.width) for size in (inputs if config.bidirectional else ())
        )

    def initialise(self, generator: torch.Generator) -> None:
        for one in (*self.forwards, *self.backwards):
            one.initialise("orthogonal", 1.0, generator)

    def forward(self, x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        y_TBE = x_BTD.transpose(0, 1)
        for n, there in enumerate(self.forwards):
            y_TBE = dropped(self, y_TBE) if n else y_TBE
            if self.config.bidirectional:
                read = partial(self._read, there), partial(self._read, self.backwards[n])
                y_TBE = torch.cat(both_directions(*read, y_TBE, lengths_B), -1)
            else:
                y_TBE = self._read(there, y_TBE)
        return y_TBE.transpose(0, 1)

    def _read(self, one: Layer, x_TBI: Tensor) -> Tensor:
        h_BD = x_TBI.new_zeros(x_TBI.shape[1], self.config.width)
        return layer(self.cell, x_TBI, (h_BD, h_BD) if self.cell == "lstm" else h_BD, one.weights)[0]


class LinearRecurrentEncoder(nn.Module):
    """Blocks of a linear recurrence and an MLP; of two directions, a block adds what both make of a token."""

    def __init__(self, kind: str, config: Any) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.own = LINEAR_CONFIGS[kind](width=config.width, layers=config.layers, dropout=config.dropout)
        self.blocks: Any = nn.ModuleList(RecurrentBlock(kind, self.own) for _ in range(config.layers))
        self.backwards: Any = nn.ModuleList(
            MIXERS[kind](self.own) for _ in range(config.layers if config.bidirectional else 0)
        )
        self.norm = Norm(self.own.parts)

    def initialise(self, generator: torch.Generator) -> None:
        for block in self.blocks:
            block.initialise(self.own, generator)
        for mixer in self.backwards:
            mixer.initialise(self.own, generator)
        self.norm.initialise(self.own.parts, generator)

    def forward(self, x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        x_BTD = in_product_precision(x_BTD)
        for n, block in enumerate(self.blocks):
            back = self.backwards[n] if self.config.bidirectional else None
            mix = partial(self._mix, block.mixer, back, lengths_B)
            x_BTD, _ = block.apply_parts(mix, x_BTD, None)
        return self.norm(x_BTD)  # type: ignore[no-any-return]

    def _mix(self, there: Any, back: Any, lengths_B: Tensor, x_BTD: Tensor, state: None) -> tuple[Tensor, None]:
        if back is None:
            return there.absorb(x_BTD, there.start(len(x_BTD)))[0], state

        def read(mixer: Any, x_TBD: Tensor) -> Tensor:
            y_BTD: Tensor = mixer.absorb(x_TBD.transpose(0, 1), mixer.start(len(x_BTD)))[0]
            return y_BTD.transpose(0, 1)

        to_TBD, fro_TBD = both_directions(partial(read, there), partial(read, back), x_BTD.transpose(0, 1), lengths_B)
        return (to_TBD + fro_TBD).transpose(0, 1), state


class TransformerEncoder(nn.Module):
    """Blocks of attention and an MLP; in one direction, a token attends to itself and to those before it."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.parts = GPTConfig(
            width=config.width, layers=config.layers, heads=config.heads, dropout=config.dropout, init="zero"
        )  # fmt: skip
        self.blocks: Any = nn.ModuleList(EncoderBlock(self.parts) for _ in range(config.layers))
        self.norm = Norm(self.parts)

    def initialise(self, generator: torch.Generator) -> None:
        for block in self.blocks:
            block.initialise(self.parts, generator)
        self.norm.initialise(self.parts, generator)

    def forward(self, x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        x_BTD, place_T = in_product_precision(x_BTD), torch.arange(x_BTD.shape[1], device=x_BTD.device)
        place = Place(rotary_angles(place_T, self.config.width // self.config.heads, dtype=x_BTD.dtype))
        pattern = Padding(lengths_B) if self.config.bidirectional else CAUSAL
        for block in self.blocks:
            x_BTD = block(x_BTD, pattern, place)
        return self.norm(x_BTD)  # type: ignore[no-any-return]


def dropped(module: Any, h: Tensor) -> Tensor:
    """In training, without a share of the numbers."""
    share = module.config.dropout
    return nn.functional.dropout(h, share) if module.training and share else h


ENCODERS: dict[str, Callable[[Any], nn.Module]] = {
    "gru": partial(RecurrentEncoder, "gru"), "lstm": partial(RecurrentEncoder, "lstm"),
    "rnn": partial(RecurrentEncoder, "rnn"),
    **{kind: partial(LinearRecurrentEncoder, kind) for kind in LINEAR_CONFIGS},
    "transformer": TransformerEncoder, "none": NoEncoder,
}  # fmt: skip
