"""What octavo knows about a linear recurrent model, and what it shows of one.

N tokens of a text, T those read, begin first; H heads, K size of a key.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from octavo.core import device_of, eval_mode
from octavo.models.linear_attention.config import LinearAttentionConfig
from octavo.models.linear_attention.cost import linear_attention_cost
from octavo.models.linear_attention.model import LinearAttentionLM
from octavo.models.recurrent import layers_of
from octavo.models.spec import Candidate, ModelSpec
from octavo.models.views import GRADIENT_FLOW, LOGIT_LENS, Tap, TokenMaps, View
from octavo.ops.linear import decaying_weights
from octavo.ops.linear.reference import ratio
from octavo.ops.tracing import trace


@torch.no_grad()
def effective_attention(model: Any, x_N: list[int]) -> TokenMaps:
    """What each value counts for in what a head reads: its weight without the sign, as a share of the row's."""
    x_1T = torch.tensor([[model.begin, *x_N]], device=device_of(model))
    with eval_mode(model), trace() as shown:
        model.absorb(model.start(1), x_1T)
    given = [shown["queries"], shown["keys"], shown["log_decays"]]
    given += [shown["strengths"]] if "strengths" in shown else []
    layers = [_shares(*one) for one in zip(*given, strict=True)]
    return TokenMaps(tuple(layers), torch.arange(1, x_1T.shape[1] + 1))


def _shares(*given: Tensor) -> Tensor:
    wide = torch.promote_types(given[0].dtype, torch.float32)
    a_HTT = decaying_weights(*(one.to(wide) for one in given))[0].abs().cpu()
    return ratio(a_HTT, a_HTT.sum(-1, keepdim=True))


EFFECTIVE_ATTENTION = View("attention", "Effective attention", "token-maps", effective_attention)


def linear_attention_spec(
    name: str, title: str, description: str, model: type[LinearAttentionLM], config: type[LinearAttentionConfig], *,
    equation: str, decays: str, strengths: str = "", inputs: str = "", outputs: str = "",
    exports: tuple[str, ...] = (),
) -> ModelSpec:  # fmt: skip
    """The spec of one; what is said of its gates is what they mean, nothing of those that it has not."""
    gates = {"input": inputs, "strength": strengths, "decay": decays, "output": outputs}
    taps = tuple(Tap(gate, meaning) for gate, meaning in gates.items() if meaning)
    shown = (View("gates", "Gates", "token-rows", "tapped-values", taps),) if taps else ()
    return ModelSpec(
        name, title, description, "linear-attention", model, config,
        cost=partial(linear_attention_cost, name, model.mixer),
        views=(EFFECTIVE_ATTENTION, *shown, LOGIT_LENS, GRADIENT_FLOW),
        candidates=lambda seconds, device: [Candidate(name, title, name, only_if_named=True)],
        summarise=lambda one, tokens: f"{title} of {tokens}, {layers_of(one.config.layers)} of {one.config.width}",
        exports=exports,
        equation=f"x_t = norm(h_t)\n{equation}\nh_t ← h_t + W_o o_t; then, unless there is no feed-forward layer, "
        "h_t ← h_t + MLP(norm(h_t))\np(token_{t+1} | token_1 .. token_t) = softmax(E norm(h_t))",
    )  # fmt: skip
