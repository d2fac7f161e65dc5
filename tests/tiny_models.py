"""Small language models and a byte tokenizer, so that tests of decoding and coding need nothing else.

B batch, H hidden width, V vocabulary; begin is the last id.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel

Hidden = tuple[Tensor, Tensor]


class Markov(LanguageModel[None]):
    """The next token depends on the last one alone: row x of the table is the logits after x."""

    def __init__(self, logits_VV: Tensor) -> None:
        super().__init__()
        self.register_buffer("logits_VV", logits_VV)
        self.vocab = len(logits_VV)
        self.begin = self.vocab - 1

    def start(self, batch: int) -> None:
        return None

    def step(self, state: None, x_B: Tensor) -> tuple[Tensor, None]:
        return self.get_buffer("logits_VV")[x_B], None


class Recurrent(LanguageModel[Hidden]):
    """A random recurrent network that also counts its steps: the whole past matters, its order and length too."""

    def __init__(self, vocab: int, width: int = 8, seed: int = 0, scale: float = 2.0) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.vocab, self.begin, self.width = vocab, vocab - 1, width
        self.register_buffer("w_VH", torch.randn(vocab, width, generator=g, dtype=torch.float64))
        self.register_buffer("w_HH", torch.randn(width, width, generator=g, dtype=torch.float64))
        self.register_buffer("w_HV", scale * torch.randn(width, vocab, generator=g, dtype=torch.float64))

    def start(self, batch: int) -> Hidden:
        return torch.zeros(batch, self.width, dtype=torch.float64), torch.zeros(batch, 1, dtype=torch.float64)

    def step(self, state: Hidden, x_B: Tensor) -> tuple[Tensor, Hidden]:
        h_BH, t_B1 = state
        h_BH = torch.tanh(self.get_buffer("w_VH")[x_B] + h_BH @ self.get_buffer("w_HH") + 0.1 * t_B1)
        return h_BH @ self.get_buffer("w_HV"), (h_BH, t_B1 + 1)


class Dropped(Recurrent):
    """A network with dropout, which must be off whenever it decodes or codes."""

    def __init__(self, vocab: int, seed: int = 0) -> None:
        super().__init__(vocab, seed=seed)
        self.dropout = torch.nn.Dropout(0.5)

    def step(self, state: Hidden, x_B: Tensor) -> tuple[Tensor, Hidden]:
        logits_BV, state = super().step(state, x_B)
        return self.dropout(logits_BV), state


class Bytes:
    """Byte b is token b, and begin is 256."""

    name = "bytes"
    lossless = True
    vocab = 257
    begin = 256

    def encode(self, data: bytes) -> Any:
        return np.frombuffer(data, dtype=np.uint8).astype(np.int32)

    def decode(self, tokens: Iterable[int]) -> bytes:
        return bytes(int(x) for x in tokens if x != self.begin)


def random_markov(vocab: int, seed: int = 0, scale: float = 2.0) -> Markov:
    """A Markov model with random logits."""
    g = torch.Generator().manual_seed(seed)
    return Markov(scale * torch.randn(vocab, vocab, generator=g, dtype=torch.float64))


def every_sequence(model: LanguageModel[Any], prompt: list[int], length: int) -> tuple[Tensor, Tensor]:
    """Every continuation of that length without begin, and its log-probability, by scoring each of them."""
    tokens = [x for x in range(model.vocab) if x != model.begin]
    x_NT = torch.tensor(list(product(tokens, repeat=length)))
    prompt_NT = torch.tensor(prompt, dtype=torch.long).expand(len(x_NT), -1)
    return x_NT, model.score(torch.cat([prompt_NT, x_NT], 1))[:, len(prompt) :].sum(1)
