"""How far back a model's loss reaches: the gradient with respect to its states, found through `step` alone.

Step k reads token x_k (x_0 is begin) from the state s_k that the steps before left, and predicts x_{k+1}. Of the loss
of step T, -log p(x_{T+1}), this finds the norm of the gradient with respect to s_{T-t} for t = 0, 1, ..., that is of
the state that the last step began with, and of those before.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, map_state
from octavo.errors import UserError
from octavo.models import Attentive
from octavo.models.recurrent import Recurrent

ENDS = 32  # losses that are averaged
REACH = 40  # steps that the gradient is followed back where nobody says how many
SHORTEST = 2  # tokens: one step back from the second
SAME = 0.005  # a change a step that is too small to speak of

Norms = tuple[float, ...]


@dataclass(frozen=True)
class Flow:
    """Norms of the gradient, by how many steps back; geometric means over `ends` losses."""

    norms: Norms
    ends: int
    parts: dict[str, Norms] = field(default_factory=dict)
    """The same for parts of the state: layer by layer, the LSTM's h and c, what a memory holds besides."""

    @property
    def back(self) -> int:
        return len(self.norms) - 1


def gradient_flow(model: LanguageModel[Any], x_T: Sequence[int], back: int, ends: int = ENDS) -> Flow:
    """Follow the gradient `back` steps from up to `ends` places spread over the text, in double precision.

    Every place has `back` steps before it, so each average is over the same losses and the averages can be compared.
    """
    check_back(back, len(x_T))
    if not has_gradient(model):
        raise stateless(model)
    losses, probes = _unrolled(model, x_T)
    chosen = sorted(set(np.linspace(back, len(x_T) - 1, min(ends, len(x_T) - back)).round().astype(int).tolist()))
    found: list[list[dict[str, float]]] = []
    for T in chosen:
        if losses[T].isfinite():  # a token that is impossible has no gradient
            found.append(_norms_back(model, losses[T], [probes[T - t] for t in range(back + 1)]))
    if not found:
        raise UserError("every token of the text is impossible for the model, so that no loss has a gradient")
    means = {
        name: tuple(_geometric_mean([one[t][name] for one in found if name in one[t]]) for t in range(back + 1))
        for name in found[0][0]
    }
    return Flow(means.pop("state"), len(found), means)


def check_back(back: int, tokens: int) -> None:
    """Refuse what the text is too short for."""
    if tokens < SHORTEST:
        raise UserError(
            f"gradient flow needs a text of at least {SHORTEST} tokens: this has {tokens}; give a longer --text"
        )
    if not 1 <= back < tokens:
        raise UserError(
            f"back must be from 1 to the tokens of the text less one: back={back}, tokens={tokens}; "
            f"try --back {default_back(tokens)}"
        )


def default_back(tokens: int) -> int:
    """Half of a short text, so that there are as many losses to average over."""
    return max(1, min(REACH, tokens // 2))


@torch.no_grad()
def has_gradient(model: LanguageModel[Any]) -> bool:
    """Whether the state holds real numbers, and not only tokens or nothing at all."""
    probes: list[Tensor] = []
    _probed(model.start(1), probes)
    return bool(probes)


def stateless(model: LanguageModel[Any]) -> UserError:
    """The refusal of a model that no gradient flows through."""
    return UserError(
        f"{type(model).__name__} has no state that a gradient could flow through; "
        "the models to look at are rnn, gru, lstm and rnn-attention"
    )


def _unrolled(model: LanguageModel[Any], x_T: Sequence[int]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """The loss of each step, and the zeros that were added to the state before it: their gradient is the state's."""
    twin = copy.deepcopy(model).double().eval().requires_grad_(False)
    losses: list[Tensor] = []
    probes: list[list[Tensor]] = []
    state = twin.start(1)
    with torch.enable_grad():
        for here, after in pairwise([twin.begin, *x_T]):
            probes.append([])
            logits_1V, state = twin.step(_probed(state, probes[-1]), torch.tensor([here], device=device_of(twin)))
            losses.append(-logits_1V[0].log_softmax(-1)[after])
    return losses, probes


def _probed(state: Any, probes: list[Tensor]) -> Any:
    """The same state with a zero added to each real number in it; the zeros are noted."""

    def probe(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        probes.append(torch.zeros_like(tensor, requires_grad=True))
        return tensor + probes[-1]

    return map_state(state, probe)


def _norms_back(model: LanguageModel[Any], loss: Tensor, probes: Sequence[Sequence[Tensor]]) -> list[dict[str, float]]:
    """The norms of one loss's gradients, state by state, by the name of the part; an empty part has none."""
    wanted = [probe for one in probes for probe in one]
    flat = iter(torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True))
    return [
        {name: math.sqrt(sum(float(g.square().sum()) for g in part))
         for name, part in _parts(model, [next(flat) for _ in one]).items() if any(g.numel() for g in part)}
        for one in probes
    ]  # fmt: skip


def _parts(model: LanguageModel[Any], grads: list[Tensor]) -> dict[str, list[Tensor]]:
    """The gradient of the whole state, under that name, and of its parts."""
    if isinstance(model, Attentive):
        h_1D, memory_1MD = grads
        if memory_1MD.shape[1]:
            h_1D = h_1D + memory_1MD[:, -1]  # the newest in the memory is h itself: later steps see it on both ways
        # What else the memory holds are the states of earlier steps: each counts for the step that it comes from.
        return {"state": [h_1D], "memory": [memory_1MD[:, :-1]]}
    if not isinstance(model, Recurrent):
        return {"state": grads}
    named: dict[str, list[Tensor]] = {"state": grads}
    if model.cell == "lstm":
        named |= {"h": grads[::2], "c": grads[1::2]}
    each = 2 if model.cell == "lstm" else 1
    layers = len(grads) // each
    if layers > 1:
        named |= {f"layer {l + 1}": grads[each * l : each * (l + 1)] for l in range(layers)}
    return named


def _geometric_mean(values: Sequence[float]) -> float:
    """The mean in which a loss that is large everywhere does not outvote the others; nan of nothing."""
    if not values or min(values) <= 0:
        return 0.0 if values else math.nan
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def relative(norms: Norms) -> Norms:
    """The norms as shares of the first."""
    return tuple(norm / norms[0] if norms[0] > 0 else math.nan for norm in norms)


def rate(norms: Norms) -> float:
    """The factor a step that fits best: exp of the slope of the norms' logarithms; nan with fewer than two of them."""
    points = [(t, math.log(norm)) for t, norm in enumerate(norms) if 0 < norm < math.inf]
    if len(points) < 2:
        return math.nan
    t_K, log_K = np.array(points).T
    t_K = t_K - t_K.mean()
    return math.exp(float(t_K @ log_K / (t_K @ t_K)))


def in_words(factor: float) -> str:
    """A factor a step as a sentence has it: shrinks by 7 % a step."""
    if math.isnan(factor):
        return "does not arrive"
    change = abs(factor - 1)
    if change < SAME:
        return "keeps its size"
    if factor >= 10:
        return f"grows {factor:.3g} times a step"
    return f"{'grows' if factor > 1 else 'shrinks'} by {100 * change:.{2 if change < 0.95 else 3}g} % a step"
