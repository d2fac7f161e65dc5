"""What learning from a text does to a model that learns while it reads: the text read once, and at once again.

The model reads begin and the tokens x_1 .. x_N, and then begin and the same tokens again, with its state carried on:

    first_n  = -log2 p(x_n | begin x_1 .. x_{n-1})                             learnt: the text before the token
    second_n = -log2 p(x_n | begin x_1 .. x_N begin x_1 .. x_{n-1})            learnt: that, and the whole text once

Nothing but `start` and `token_log_probs`, which follow from `step`, is asked of a model, so any adaptive one can be
read. Beside it stand fixed models, which learn nothing from the text: the network as it was trained, counts of the
training text alone, or each part of a mixture. They read the text twice, too, because a running state or a context
window that holds the first reading can help as well.

N tokens of a text, M = 2 N + 1 of both readings with the begin token between, W of a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode, single_thread
from octavo.io.cooperative import Turn
from octavo.io.progress import Advance
from octavo.models import spec_of
from octavo.models.adaptive_mix_views import unique
from octavo.models.dynamic_evaluation import as_trained, segment_of
from octavo.models.mix import short_title
from octavo.scoring.token_costs import checked_bits, token_bits

MAX_TOKENS = 20_000  # of a text that are read twice
WINDOW, FIXED_WINDOW = 512, 4096  # tokens of a turn: of a model that learns, and of one that does not
CURVE_POINTS = 60
LEARNING = "learns while it reads"
Bits = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TwoReadings:
    """The cost of each token when a model reads a text, and when it then reads the same text again."""

    name: str
    first_N: Bits
    second_N: Bits

    @property
    def bits(self) -> tuple[float, float]:
        """The cost of the whole text, the first time and the second."""
        return math.fsum(self.first_N.tolist()), math.fsum(self.second_N.tolist())


@dataclass(frozen=True, eq=False)
class Adaptation:
    """What a text costs a model that learns while it reads, and what it costs models that do not."""

    x_N: tuple[int, ...]
    sizes_N: tuple[int, ...]
    """The bytes of each token."""
    learning: TwoReadings
    fixed: tuple[TwoReadings, ...]
    """The model as it was trained; of a mixture each part; none where it has no such form."""
    truncated: bool
    """Whether the text was longer."""
    policy: str
    """How the model learns."""
    segment: int = 1
    """Tokens that it reads before it learns from them."""

    @property
    def too_short(self) -> str:
        """Said of a text that ends before the first segment does, so that its first reading teaches nothing."""
        if len(self.x_N) >= self.segment:
            return ""
        return (
            f"The text has {len(self.x_N):,} tokens, fewer than the {self.segment:,} of a segment, so nothing was "
            "learnt from the first reading; give a longer text, or a shorter segment with --adaptive-segment."
        )

    @property
    def bytes(self) -> int:
        return sum(self.sizes_N)

    @property
    def best_fixed(self) -> TwoReadings | None:
        """The fixed model that the first reading costs least."""
        return min(self.fixed, key=lambda one: one.bits[0], default=None)

    @property
    def every(self) -> tuple[TwoReadings, ...]:
        return self.learning, *self.fixed

    def per_byte(self, bits: float) -> float:
        """Bits of the whole text as bits per byte."""
        return bits / max(1, self.bytes)

    @property
    def places(self) -> tuple[int, ...]:
        """The numbers of tokens after which the curve has a point: evenly spaced, the last one at the end."""
        N = len(self.x_N)
        return tuple(sorted({-(-N * point // CURVE_POINTS) for point in range(1, CURVE_POINTS + 1)} - {0}))

    @property
    def bytes_read(self) -> tuple[int, ...]:
        """The bytes of the text up to each point of the curve."""
        total = list(accumulate(self.sizes_N))
        return tuple(total[place - 1] for place in self.places)

    def curve(self, bits_N: Bits) -> tuple[float, ...]:
        """Bits per byte of the text so far, at each point: the last is that of the whole text."""
        total_N = np.cumsum(bits_N)
        return tuple(
            float(total_N[place - 1]) / max(1, size) for place, size in zip(self.places, self.bytes_read, strict=True)
        )


@torch.no_grad()
def read_twice(
    model: LanguageModel[Any], x_N: Tensor, turn: Turn = nullcontext, advance: Advance = lambda tokens: None
) -> TwoReadings:
    """A text read by an adaptive model after begin, and once more by the same model, its state carried on."""
    x_M = twice(x_N, model.begin)
    return _split(LEARNING, x_M, _read_on(model, x_M, min(WINDOW, model.max_scored_tokens), turn, advance), model.begin)


def _read_on(model: LanguageModel[Any], x_M: Tensor, width: int, turn: Turn, advance: Advance) -> Bits:
    """The cost of each token, in windows between which the state is carried on; begin tokens are read as any other."""
    opened_1M, state, parts = model.prepend_begin(x_M[None]), model.start(1), [np.zeros(0)]
    for start in range(0, len(x_M), width):
        window_1W = opened_1M[:, start : start + width + 1]
        with turn(), eval_mode(model), single_thread() if model.adaptive else nullcontext():
            logp_1W, state = model.token_log_probs(state, window_1W)
        parts.append(token_bits(logp_1W)[0])
        advance(window_1W.shape[1] - 1)
    return np.concatenate(parts)


@torch.no_grad()
def fixed_readings(model: LanguageModel[Any], x_N: Tensor, turn: Turn = nullcontext) -> tuple[TwoReadings, ...]:
    """The same by models that learn nothing from the text: of a mixture its parts, else the model as it was trained."""
    parts = spec_of(model).parts(model)
    names = unique([f"fixed: {short_title(part)}" for part in parts]) if parts else ("fixed: as trained",)
    x_M, found = twice(x_N, model.begin), []
    for name, part in zip(names, map(as_trained, parts or (model,)), strict=True):
        if not part.adaptive:
            bits_M = _read_on(part, x_M, min(FIXED_WINDOW, part.max_scored_tokens), turn, lambda tokens: None)
        else:
            with turn(), eval_mode(part):
                logp_M = part.fixed_log_probs(x_M)
            if logp_M is None:
                continue
            bits_M = token_bits(logp_M)
        found.append(_split(name, x_M, bits_M, part.begin))
    return tuple(found)


def twice(x_N: Tensor, begin: int) -> Tensor:
    """Both readings in one: begin stands between them, and so in front of each."""
    return torch.cat([x_N, x_N.new_tensor([begin]), x_N])


def _split(name: str, x_M: Tensor, bits_M: Bits, begin: int) -> TwoReadings:
    """The costs of both readings; a begin token in the text costs nothing, as where a text is scored."""
    bits_M[x_M.cpu().numpy() == begin] = 0.0
    N = len(bits_M) // 2
    return TwoReadings(name, *(checked_bits(bits_N) for bits_N in (bits_M[:N], bits_M[N + 1 :])))


def read_adaptation(
    model: LanguageModel[Any], x_N: Sequence[int], size_of: Callable[[int], int], turn: Turn = nullcontext,
    advance: Advance = lambda tokens: None,
) -> Adaptation:  # fmt: skip
    """Read the beginning of a text twice, learning and fixed; `size_of` gives a token's bytes."""
    some = list(x_N[:MAX_TOKENS])
    sizes = {token: size_of(token) for token in set(some)}
    x = torch.tensor(some, dtype=torch.long, device=device_of(model))
    learning = read_twice(model, x, turn, advance)
    return Adaptation(
        tuple(some), tuple(sizes[token] for token in some), learning, fixed_readings(model, x, turn),
        len(x_N) > len(x), model.context_policy, segment_of(model),
    )  # fmt: skip


def adaptation_json(found: Adaptation) -> dict[str, Any]:
    """Of each model the cost of every token at both readings, the bits per byte of the whole text, and the curves."""
    return {
        "truncated": found.truncated, "policy": found.policy, "segment": found.segment, "bytes": list(found.sizes_N),
        "readings": [
            {"name": one.name, "learns": one is found.learning, "first": one.first_N.tolist(),
             "second": one.second_N.tolist(), "bits_per_byte": [found.per_byte(bits) for bits in one.bits],
             "curve": list(found.curve(one.first_N)), "second_curve": list(found.curve(one.second_N))}
            for one in found.every
        ],
        "curve_bytes": list(found.bytes_read),
    }  # fmt: skip
