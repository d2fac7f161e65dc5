"""One token of each stream as symbols of a range coder (the package constriction), and back.

L parallel streams, V vocabulary, G groups of K consecutive ids (G * K >= V).

The range coder works with 24 bits and gives every id at least 2**-24, and its own arithmetic costs about 1.3e-4 bits
a symbol. A large vocabulary is therefore coded in two symbols, the group and then the id within it, which takes
about sqrt(V) instead of V times 2**-24 from the probabilities. The same floor makes a symbol cost at most 24 bits:
a token that the model gives less costs less in the file than it claims, so the size bounds the claim from below only
where such tokens are rare.
"""

from __future__ import annotations

import math
from typing import Any

import constriction
import numpy as np
import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.scoring.portable import choices_in, round_to_grid, round_with

MAX_ONE_SYMBOL_VOCAB = 1024  # up to this vocabulary one symbol a token is cheaper than two
PROBABILITY_BITS = 24  # of the range coder

FAMILY = constriction.stream.model.Categorical(perfect=False)


class MismatchError(Exception):
    """The archive cannot have been written with the probabilities the model computes now."""


def group_shape(vocab: int) -> tuple[int, int]:
    """G groups of K ids: one group where one symbol a token is cheaper, else about the root of each."""
    K = vocab if vocab <= MAX_ONE_SYMBOL_VOCAB else math.isqrt(vocab - 1) + 1
    return -(-vocab // K), K


def group_probabilities(p_LV: Tensor) -> Tensor:
    """p_LGK: the ids in groups, the last one filled up with what never occurs."""
    G, K = group_shape(p_LV.shape[1])
    return torch.nn.functional.pad(p_LV, (0, G * K - p_LV.shape[1])).view(len(p_LV), G, K)


def _within(p_LGK: Tensor, g_L: Tensor) -> Tensor:
    """p_LK of the ids within one group a stream."""
    if p_LGK.shape[1] == 1:
        return p_LGK[:, 0]
    p_LK = p_LGK[torch.arange(len(g_L), device=g_L.device), g_L]
    return p_LK / p_LK.sum(-1, keepdim=True)  # the coder cannot scale a group whose sum is next to nothing


def encode_column(encoder: Any, p_LGK: Tensor, x_L: Tensor, at_L: Tensor, portable: bool = False) -> None:
    """Append one token of each stream."""
    g_L, k_L = x_L // p_LGK.shape[2], x_L % p_LGK.shape[2]
    p_LK = _within(p_LGK, g_L)
    possible_L = p_LK.gather(1, k_L[:, None])[:, 0] > 0
    if not bool(possible_L.all()):
        stream = int((~possible_L).nonzero()[0])
        raise UserError(
            f"only what has a probability can be coded: the model gives probability zero to token {int(x_L[stream])} "
            f"at position {int(at_L[stream])}; smooth the model"
        )
    if p_LGK.shape[1] > 1:
        _encode_symbols(encoder, g_L, p_LGK.sum(-1), portable)
    _encode_symbols(encoder, k_L, p_LK, portable)


def _encode_symbols(encoder: Any, symbol_L: Tensor, p_LK: Tensor, portable: bool) -> None:
    """One symbol of each row; `portable`, after what its probabilities were rounded with."""
    if portable:
        p_LK, choice_L = round_to_grid(p_LK)
        encoder.encode(choice_L.int().numpy(), FAMILY, choices_in(len(p_LK)))
    encoder.encode(symbol_L.int().cpu().numpy(), FAMILY, p_LK.cpu().numpy())


def decode_column(decoder: Any, p_LGK: Tensor, portable: bool = False) -> tuple[Tensor, float]:
    """Read one token of each stream; also the bits that they took in the archive at least."""
    L, G, K = p_LGK.shape
    g_L, bits = torch.zeros(L, dtype=torch.long, device=p_LGK.device), 0.0
    try:
        if G > 1:
            g_L, bits = _decode_symbols(decoder, p_LGK.sum(-1), portable)
        k_L, more_bits = _decode_symbols(decoder, _within(p_LGK, g_L), portable)
    except (ValueError, AssertionError) as error:  # not a distribution, or what constriction calls invalid data
        raise MismatchError from error
    return g_L * K + k_L, bits + more_bits


def _decode_symbols(decoder: Any, p_LK: Tensor, portable: bool) -> tuple[Tensor, float]:
    """One symbol of each row; a symbol of probability p has at most p + 2**-23 of the coder's range."""
    if portable:
        choice_L = torch.from_numpy(decoder.decode(FAMILY, choices_in(len(p_LK))))
        p_LK = round_with(p_LK, choice_L)
    p = p_LK.cpu().numpy()
    symbol_L = decoder.decode(FAMILY, p)
    p_L = p[np.arange(len(p)), symbol_L].astype(np.float64) / p.sum(-1)  # the coder scales a row that sums to less
    share_L = p_L + 2.0 ** (1 - PROBABILITY_BITS)
    return torch.from_numpy(symbol_L).to(p_LK.device, torch.long), float(-np.log2(share_L).sum())
