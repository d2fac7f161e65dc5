"""Linear recurrent models: blocks of a mixer, whose state is a matrix for each head, and a feed-forward layer.

B batch, T tokens, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.models.linear_attention.config import LinearAttentionConfig
from octavo.models.linear_attention.mixer import Mixer
from octavo.models.parts.block import Block, in_product_precision
from octavo.models.parts.feed_forward import FEED_FORWARDS, Norm, init_tables
from octavo.ops.tracing import tap

State = tuple[tuple[Tensor, ...], ...]  # of each layer what its mixer carries
SCORED_TOKENS = 2048  # by one call: more only take memory


class MixerBlock(Block):
    """x + mixer(norm(x)), then x + feed_forward(norm(x)), unless there is no feed-forward layer."""

    def __init__(self, config: LinearAttentionConfig, mixer: type[Mixer]) -> None:
        super().__init__(config.parts)
        self.norm1: Any = Norm(config.parts)
        self.mixer: Any = mixer(config)
        self.has_feed_forward = config.feed_forward != "none"
        if self.has_feed_forward:
            self.norm2: Any = Norm(config.parts)
            self.feed_forward: Any = FEED_FORWARDS[config.feed_forward](config.parts)

    def absorb(self, x_BTD: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The residual stream after new tokens, and the mixer's new state."""
        y_BTD, state = self.mixer.absorb(self.norm1(x_BTD), state)
        x_BTD = tap("middle", x_BTD + self.drop(y_BTD.to(x_BTD.dtype)))
        if self.has_feed_forward:
            x_BTD = x_BTD + self.drop(self.feed_forward(self.norm2(x_BTD)))
        return tap("stream", x_BTD), state

    def worth_compiling(self, x_BTD: Tensor, state: tuple[Tensor, ...]) -> bool:
        """A state has one size, so every window of training has the same shapes."""
        return True


class LinearAttentionLM(LanguageModel[State]):
    """What the models share; each has a mixer of its own."""

    mixer: ClassVar[type[Mixer]]
    config: LinearAttentionConfig
    muon_learning_rate = 0.02

    def __init__(self, config: LinearAttentionConfig, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        self.begin = vocab - 1 if config.begin < 0 else config.begin
        if self.begin >= vocab:
            raise UserError(f"begin must be one of the vocabulary's {vocab} tokens: begin={self.begin}; leave it out")
        self.embedding_VD = nn.Parameter(torch.empty(vocab, config.width))
        self.output_VD = None if config.tied else nn.Parameter(torch.empty(vocab, config.width))
        self.blocks: Any = nn.ModuleList(MixerBlock(config, self.mixer) for _ in range(config.layers))
        self.norm = Norm(config.parts)

    def initialise(self, generator: torch.Generator) -> None:
        parts = self.config.parts
        init_tables((self.embedding_VD, self.output_VD), parts, generator)
        for block in self.blocks:
            block.initialise(parts, generator)
        self.norm.initialise(parts, generator)

    def start(self, batch: int) -> State:
        return tuple(block.mixer.start(batch) for block in self.blocks)

    def absorb(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        x_BTD, after = in_product_precision(F.embedding(x_BT, self.embedding_VD)), []
        if self.training and self.config.dropout:
            x_BTD = F.dropout(x_BTD, self.config.dropout)
        for block, before in zip(self.blocks, state, strict=True):
            x_BTD, one = block.absorb(x_BTD, before)
            after.append(one)
        return self.logits(self.norm(x_BTD)), tuple(after)

    def logits(self, h_BTD: Tensor) -> Tensor:
        return F.linear(h_BTD, self.embedding_VD if self.output_VD is None else self.output_VD)

    @property
    def default_batch_shape(self) -> tuple[int, int]:
        return 2048, 64

    @property
    def max_scored_tokens(self) -> int:
        return min(SCORED_TOKENS, super().max_scored_tokens)

    @property
    def repeated_blocks(self) -> Sequence[MixerBlock]:
        return list(self.blocks)
