"""The residual stream and the attention of a transformer's layers, while it reads a text piece by piece.

T the tokens of a piece, V vocabulary, L layers. Depth 0 is the embedding, depth l what layer l hands on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from octavo.core import device_of
from octavo.models.gpt import GPT
from octavo.models.parts.block import TransformerBlock
from octavo.ops.tracing import trace

PIECE = 128  # tokens read at once: no more than that many rows of maps or of logits are in work


@dataclass(frozen=True)
class Piece:
    """Tokens that were read at once; the text's first has position 0."""

    start: int
    end: int
    logits_TV: Tensor
    passes: list[list[Tensor]]
    """The stream at each depth, of each pass through the layers. The last pass is that of the new tokens; where a full
    context was left, the one before read its last tokens again, those that end where the piece starts."""
    shown: dict[str, list[Tensor]]  # what each layer showed of the new tokens
    state: Any  # after them

    @property
    def streams(self) -> list[Tensor]:
        """The new tokens' stream at each depth."""
        return [stream_1TD[0] for stream_1TD in self.passes[-1]]


def pieces(model: GPT, x_T: Sequence[int], longest: int = PIECE, state: Any = None, watched: bool = True,
           ) -> Iterator[Piece]:  # fmt: skip
    """Read the tokens, from a state or from the start. `watched` asks for what the layers show: attention is then
    worked out by its plain equation, whose maps take room."""
    state = model.start(1) if state is None else state
    layers, start = model.config.layers, 0
    while start < len(x_T):
        room = model.config.context - state[1].shape[1] if model.config.absolute else longest
        end = min(start + min(longest, room or model.config.moves), len(x_T))
        x_1T = torch.tensor([x_T[start:end]], device=device_of(model))
        watching: AbstractContextManager[dict[str, list[Tensor]]] = trace() if watched else nullcontext({})
        with _streams(model) as found, watching as shown:
            logits_1TV, state = model.absorb(state, x_1T)
        passes = [found[i : i + layers + 1] for i in range(0, len(found), layers + 1)]
        yield Piece(
            start, end, logits_1TV[0], passes, {name: values[-layers:] for name, values in shown.items()}, state
        )
        start = end


@contextmanager
def _streams(model: GPT) -> Iterator[list[Tensor]]:
    """What the first norm of each block and the last norm of all are given, in the order in which it comes."""
    found: list[Tensor] = []

    def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        found.append(given[0])

    norms = [*(cast(TransformerBlock, block).norm1 for block in model.blocks), model.norm]
    hooks = [norm.register_forward_pre_hook(note) for norm in norms]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
