"""Gradient flow: the gradient of the loss with respect to a model's earlier states, computed through `step` alone.

Step k reads token x_k (x_0 is begin) from the state s_k that the steps before left, and predicts x_{k+1}. Of the loss
of step T, -log p(x_{T+1}), this finds the norm of the gradient with respect to s_{T-t} for t = 0, 1, ..., that is of
the state that the last step began with, and of those before.

A transformer's state is a list of its past, so there the gradient is taken with respect to the embedding of x_{T-t},
and to what each layer made of that token.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import linear_regression
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, map_state, seeded_generator
from octavo.errors import UserError
from octavo.inspection.views import find_view, pieces
from octavo.io.cooperative import Turn, in_turns
from octavo.models import GPT, MODELS
from octavo.models.views import GRADIENT_FLOW, View

ENDS = 32  # losses that are averaged
STEPS = 32  # of a turn
REACH = 40  # steps that the gradient is followed back where nobody says how many
SHORTEST = 2  # tokens: one step back from the second
SAME = 0.005  # a change a step that is too small to speak of

Norms = tuple[float, ...]


@dataclass(frozen=True)
class Flow:
    """Norms of the gradient, by how many steps back; geometric means over `ends` losses (a transformer's: plain)."""

    norms: Norms
    ends: int
    parts: dict[str, Norms] = field(default_factory=dict)
    """The same for parts of the state: layer by layer, the LSTM's h and c, what a memory holds besides."""
    depths: Norms = ()
    """Of a transformer: the norms with respect to the stream of all tokens followed, from the embedding to the last
    layer's."""

    @property
    def back(self) -> int:
        return len(self.norms) - 1


def gradient_flow(
    model: LanguageModel[Any], x_T: Sequence[int], back: int, ends: int = ENDS, turn: Turn = nullcontext,
    view: View | None = None,
) -> Flow:  # fmt: skip
    """Follow the gradient `back` steps from up to `ends` places spread over the text, in double precision.

    Every place has `back` steps before it, so each average is over the same losses and the averages can be compared.
    """
    check_back(back, len(x_T))
    if not has_gradient(model):
        others = ", ".join(spec.name for spec in MODELS.values() if any(view.kind == "curve" for view in spec.views))
        raise UserError(
            f"{type(model).__name__} has no state that a gradient could flow through; models that have are {others}"
        )
    if view is None:
        view = find_view(model, "curve") or GRADIENT_FLOW
    if callable(view.source):
        with turn():
            return cast(Flow, view.source(model, x_T, back))
    chosen = sorted(set(np.linspace(back, len(x_T) - 1, min(ends, len(x_T) - back)).round().astype(int).tolist()))
    if view.source == "layer-gradients":
        return _through_layers(cast(GPT, model), x_T, back, chosen, turn)
    losses, probes = _unrolled(model, x_T, turn)
    found: list[list[dict[str, float]]] = []
    for T in chosen:
        if losses[T].isfinite():  # a token that is impossible has no gradient
            with turn():
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
    """Whether the state holds real numbers that a loss can be differentiated by; what an adaptive model has learnt, it
    has learnt step by step, and no gradient flows through that."""
    if model.adaptive:
        return False
    probes: list[Tensor] = []
    _probed(model.start(1), probes)
    return bool(probes)


def _unrolled(model: LanguageModel[Any], x_T: Sequence[int], turn: Turn) -> tuple[list[Tensor], list[list[Tensor]]]:
    """The loss of each step, and the zeros that were added to the state before it: their gradient is the state's."""
    copied = copy.deepcopy(model).double().eval().requires_grad_(False)
    losses: list[Tensor] = []
    probes: list[list[Tensor]] = []
    state, read = copied.start(1), list(pairwise([copied.begin, *x_T]))
    for first in range(0, len(read), STEPS):
        with turn(), torch.enable_grad():
            for here, after in read[first : first + STEPS]:
                probes.append([])
                logits_1V, state = copied.step(
                    _probed(state, probes[-1]), torch.tensor([here], device=device_of(copied))
                )
                losses.append(-logits_1V[0].log_softmax(-1)[after])
    return losses, probes


def _probed(state: Any, probes: list[Tensor]) -> Any:
    """The same state with a zero added to each real number in it; the zeros are collected."""

    def probe(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        probes.append(torch.zeros_like(tensor, requires_grad=True))
        return tensor + probes[-1]

    return map_state(state, probe)


def _norms_back(model: LanguageModel[Any], loss: Tensor, probes: Sequence[Sequence[Tensor]]) -> list[dict[str, float]]:
    """The norms of one loss's gradients, state by state: of the whole one, under that name, and of the parts that the
    model names; an empty part has none."""
    name_parts = getattr(model, "name_state_parts", lambda grads: {"state": grads})
    wanted = [probe for one in probes for probe in one]
    flat = iter(torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True))
    return [
        {name: math.sqrt(sum(float(g.square().sum()) for g in part))
         for name, part in name_parts([next(flat) for _ in one]).items() if any(g.numel() for g in part)}
        for one in probes
    ]  # fmt: skip


def _through_layers(model: GPT, x_T: Sequence[int], back: int, chosen: Sequence[int], turn: Turn) -> Flow:
    """The same for a transformer, by depth. What a token more than `back` tokens ago holds does not depend on those
    that are followed, so each loss starts from the state before them, and only they are read for it."""
    copied = copy.deepcopy(model).double().eval().requires_grad_(False)
    read, state, at = [copied.begin, *x_T], None, 0
    found = []
    for T in chosen:
        with torch.no_grad():
            for one in in_turns(pieces(copied, read[at : T - back], state=state, watched=False), turn):
                state = one.state
        at = T - back
        with turn():
            found.append(_norms_by_depth(copied, read[at : T + 2], state))
    norms_ELT = torch.stack(found)
    # Plain means: a pattern may keep some losses from a token altogether, and one zero makes a geometric mean zero.
    by_depth: list[Norms] = [tuple(norms_T) for norms_T in norms_ELT.mean(0).tolist()]
    total_L = norms_ELT.square().sum(-1).sqrt().mean(0)
    inner = {f"after layer {depth}": norms for depth, norms in enumerate(by_depth) if 0 < depth < len(by_depth) - 1}
    return Flow(by_depth[0], len(found), inner, tuple(total_L.tolist()))


def _norms_by_depth(copied: GPT, x_T: Sequence[int], state: Any) -> Tensor:
    """norms_LT of the gradient of the last token's loss with respect to the stream of the others, the nearest first.

    A token that is read again in a new context stands in two places; its gradients are added up.
    """
    copied.embedding_VD.requires_grad_()  # so that streams have a history; its own gradient is not asked for
    with torch.enable_grad():
        read = list(pieces(copied, x_T[:-1], len(x_T), state, watched=False))
        loss = -read[-1].logits_TV[-1].log_softmax(-1)[x_T[-1]]
    copied.embedding_VD.requires_grad_(False)
    # Each pass with the position that it ends at: tokens read again end where the new ones start.
    streams = [(one.end if n == len(one.passes) else one.start, stream)
               for one in read for n, stream in enumerate(one.passes, 1)]  # fmt: skip
    flat = iter(torch.autograd.grad(loss, [one for _, stream in streams for one in stream], materialize_grads=True))
    total_LTD = loss.new_zeros(copied.config.layers + 1, len(x_T) - 1, copied.config.width)
    for end, stream in streams:
        for depth in range(len(stream)):
            grad_TD = next(flat)[0, -end:] if end else next(flat)[0, :0]  # of what lies before, nothing is asked
            total_LTD[depth, end - len(grad_TD) : end] += grad_TD
    norms_LT: Tensor = torch.linalg.vector_norm(total_LTD, dim=-1)
    return norms_LT.flip(-1)


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
    return math.exp(linear_regression(*zip(*points, strict=True)).slope)


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


SCALES = (0.9, 1.0, 1.1)
Activation = Literal["linear", "tanh"]
WIDTH, VOCAB = 32, 8


class Orthogonal(LanguageModel[Tensor]):
    """h' = f(a Q h + W x) with an orthogonal Q, which turns vectors and keeps their length.

    Going back one step multiplies the gradient by a Qᵀ, so where f is the identity its norm after t steps is aᵗ times
    the first, exactly. The slope of a tanh is at most 1: there it is at most that, and close to it while h is small.
    """

    def __init__(self, scale: float, activation: Activation, inputs: float, generator: torch.Generator) -> None:
        super().__init__()
        self.vocab, self.begin, self.activation = VOCAB, VOCAB - 1, activation
        drawn_DD = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
        self.recurrent_DD = scale * torch.linalg.qr(drawn_DD).Q
        self.input_VD = inputs * torch.randn(VOCAB, WIDTH, generator=generator, dtype=torch.float64)
        self.output_VD = torch.randn(VOCAB, WIDTH, generator=generator, dtype=torch.float64)

    def start(self, batch: int) -> Tensor:
        return self.input_VD.new_zeros(batch, WIDTH)

    def step(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        a_BD = state @ self.recurrent_DD.T + self.input_VD[x_B]
        h_BD = a_BD.tanh() if self.activation == "tanh" else a_BD
        return h_BD @ self.output_VD.T, h_BD


def orthogonal_flow(
    scale: float, back: int, activation: Activation = "linear", inputs: float = 0.1, seed: int = 0
) -> Flow:
    """Gradient flow through such a network, reading random tokens; `inputs` is the size of W x."""
    generator = seeded_generator(seed)
    model = Orthogonal(scale, activation, inputs, generator)
    x_T = torch.randint(VOCAB - 1, (2 * back,), generator=generator).tolist()
    return gradient_flow(model, x_T, back)
