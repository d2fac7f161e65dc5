"""Weights that belong to a reader, not to a model: a copy of a network's modules over weights of its own, and the
optimizers that change these.

P weights, B batch; one vector holds them all.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.core import LanguageModel, map_state
from octavo.errors import UserError
from octavo.ops.compiled import HAS_NUMBA
from octavo.ops.recurrent_loops import rms_step

MOMENTUM = 0.9  # of adam
EPSILON = 1e-8  # added to the root of the mean square


class Learnt(NamedTuple):
    """The weights of each row, how many steps made them, and what the optimizer remembers."""

    weights_BP: Tensor
    steps_B: Tensor
    memory: tuple[Tensor, ...]


class WeightCopy:
    """A network over weights that start as the trained ones, or as those of one row that were learnt.

    Nothing is copied before the first step; afterwards the weights are this object's own, and change in place.
    """

    def __init__(self, base: LanguageModel[Any], config: Any, learnt: Learnt | None = None) -> None:
        self.base, self.config, self.learnt = base, config, learnt
        self.own = False
        self._place()

    def branch(self) -> WeightCopy:
        """Another one over the same weights, whose next step leaves them as they are."""
        other = copy.copy(self)
        other.own = False
        return other

    def _place(self) -> None:
        """The network's modules, made again over the weights."""
        trained = learnable(self.base)
        if self.learnt is None:
            self.leaves = [weight.detach() for weight in trained]
        else:
            pieces = self.learnt.weights_BP[0].detach().split([weight.numel() for weight in trained])
            self.leaves = [piece.view(weight.shape).detach() for piece, weight in zip(pieces, trained, strict=True)]
        for leaf in self.leaves:
            leaf.requires_grad_(True)
        self.model = over_weights(self.base, trained, self.leaves)

    def read_and_learn(
        self, state: Any, x_1S: Tensor, next_1: Tensor, absorb: Callable[..., tuple[Tensor, Any]] | None = None
    ) -> tuple[Tensor, Any]:
        """Logits_1SV after each token of a segment, and the state after it; then one step on their mean cost.

        absorb: in place of the model's own, called with the model in front: one that knows what was computed before.
        """
        read = self.model.absorb if absorb is None else partial(absorb, self.model)
        with recording():
            logits_1SV, state = read(map_state(state, recordable), recordable(x_1S))
            y_S = torch.cat([x_1S[0, 1:], next_1])
            loss = F.cross_entropy(logits_1SV[0], recordable(y_S))
            if not bool(loss.isfinite()):
                raise UserError(
                    f"what the model learns while it reads must keep its costs finite: learning_rate="
                    f"{self.config.learning_rate:g} is too high; try --adaptive-learning-rate "
                    f"{self.config.learning_rate / 10:g}"
                )
            gradients = torch.autograd.grad(loss, self.leaves, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                self._learn(torch.cat([gradient.flatten() for gradient in gradients]))
        return logits_1SV.detach(), map_state(state, Tensor.detach)

    def _learn(self, gradient_P: Tensor) -> None:
        """One step of the optimizer, on weights of its own."""
        count, update = OPTIMIZERS[self.config.optimizer]
        if not self.own:
            if self.learnt is None:
                weights_1P = torch.cat([leaf.flatten() for leaf in self.leaves])[None]
                memory = tuple(torch.zeros_like(weights_1P) for _ in range(count))
                self.learnt = Learnt(weights_1P, torch.zeros(1, dtype=torch.long, device=weights_1P.device), memory)
            else:
                self.learnt = map_state(self.learnt, lambda tensor: tensor.detach().clone())
            self.own = True
            self._place()
        assert self.learnt is not None
        steps_B = self.learnt.steps_B.add_(1)
        update(
            self.config, self.learnt.weights_BP[0], gradient_P, int(steps_B), *(one[0] for one in self.learnt.memory)
        )
        if self.config.decay:
            for leaf, weight in zip(self.leaves, learnable(self.base), strict=True):
                leaf.lerp_(weight.detach(), self.config.decay)


def learnable(model: nn.Module) -> list[Tensor]:
    """The parameters that training changes: of a model that is frozen for use, all of them."""
    weights: list[Tensor] = list(model.parameters())
    return [weight for weight in weights if weight.requires_grad] or weights


def over_weights(
    base: LanguageModel[Any], trained: Sequence[Tensor] = (), weights: Sequence[Tensor] = ()
) -> LanguageModel[Any]:
    """The network's modules again, for use, with other weights in place of the trained ones; tensors are not copied."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*base.parameters(), *base.buffers())}
    shared |= {id(old): new for old, new in zip(trained, weights, strict=True)}
    return copy.deepcopy(base, shared).eval()


@contextmanager
def recording() -> Iterator[None]:
    """Within it, operations are recorded for a gradient, whatever the caller has switched off."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def recordable(tensor: Tensor) -> Tensor:
    """The tensor without its past, copied where it was made in inference mode and no gradient could use it."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def sgd(config: Any, w_P: Tensor, g_P: Tensor, step: int) -> None:
    """w ← w - η g."""
    w_P.add_(g_P, alpha=-config.learning_rate)


def rms(config: Any, w_P: Tensor, g_P: Tensor, step: int, square_P: Tensor) -> None:
    """v ← β v + (1 - β) g²; w ← w - η g / (√(v / (1 - β^k)) + ε): Adam without momentum."""
    beta = config.mean_square_decay
    unbias = math.sqrt(1 - beta**step)  # brought out of the root, where it would cost a pass over all weights
    if HAS_NUMBA and w_P.device.type == "cpu":
        w, g, square = (one_P.detach().numpy() for one_P in (w_P, g_P, square_P))
        rms_step(w, g, square, np.array([beta, 1 - beta, config.learning_rate * unbias, EPSILON * unbias], w.dtype))
        return
    square_P.mul_(beta).addcmul_(g_P, g_P, value=1 - beta)
    w_P.addcdiv_(g_P, square_P.sqrt().add_(EPSILON * unbias), value=-config.learning_rate * unbias)


def adam(config: Any, w_P: Tensor, g_P: Tensor, step: int, square_P: Tensor, mean_P: Tensor) -> None:
    """m ← γ m + (1 - γ) g; w ← w - η m / (1 - γ^k) / (√(v / (1 - β^k)) + ε)."""
    beta = config.mean_square_decay
    square_P.mul_(beta).addcmul_(g_P, g_P, value=1 - beta)
    mean_P.lerp_(g_P, 1 - MOMENTUM)
    unbias = math.sqrt(1 - beta**step)
    rate = config.learning_rate * unbias / (1 - MOMENTUM**step)
    w_P.addcdiv_(mean_P, square_P.sqrt().add_(EPSILON * unbias), value=-rate)


OPTIMIZERS: dict[str, tuple[int, Callable[..., None]]] = {"sgd": (0, sgd), "rms": (1, rms), "adam": (2, adam)}
"""How many vectors each remembers, and its step, which changes all of them in place."""
