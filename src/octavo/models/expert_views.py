"""What a mixture of experts shows: which experts process each token, and how much each has to do.

N tokens of a text, L layers, X experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from octavo.core import device_of, eval_mode
from octavo.models.views import Table, TokenDetail, TokenTable, View
from octavo.ops.tracing import trace

TINTS = 18  # that the studio tells apart
SHOWN_EXPERTS = 64  # rows of the table of loads


@torch.no_grad()
def expert_weights(model: Any, x_N: Sequence[int]) -> Tensor:
    """w_NLX: the weight of every expert of every layer for each token, read one by one; 0 for those not chosen."""
    rows, L, state = [], model.config.layers, model.start(1)
    with eval_mode(model):
        for token in (model.begin, *x_N):
            with trace() as shown:
                _, state = model.step(state, torch.tensor([token], device=device_of(model)))
            # Where a full context is left, its last tokens are read again before the new one.
            rows.append(torch.stack([w_11X[-1, -1] for w_11X in shown["experts"][-L:]]).double().cpu())
    return torch.stack(rows[1:]) if x_N else torch.zeros(0, L, model.config.experts)


def routing_table(model: Any, x_N: Sequence[int]) -> TokenTable:
    """A view: the experts of each layer that process each token, and the load of each expert over the text."""
    w_NLX = expert_weights(model, x_N)
    X = w_NLX.shape[-1]
    tints = min(X, TINTS)
    names = tuple(", ".join(str(e + 1) for e in range(tint, X, TINTS)) for tint in range(tints))
    return TokenTable(
        "Colour: the expert of the last layer with the greatest weight for the token.",
        ("layer", "experts and their weights"), tuple(_detail(w_LX) for w_LX in w_NLX),
        parts=tuple(f"expert {name}" for name in names), summary=load_table(w_NLX),
    )  # fmt: skip


def _detail(w_LX: Tensor) -> TokenDetail:
    """The chosen experts of each layer, the one with the greatest weight first."""
    order_LX = w_LX.argsort(-1, descending=True)
    rows = []
    for layer, (w_X, order_X) in enumerate(zip(w_LX, order_LX, strict=True), 1):
        chosen = [f"{e + 1} ({w_X[e]:.0%})" for e in order_X.tolist() if w_X[e] > 0]
        rows.append((str(layer), ", ".join(chosen)))
    best = int(order_LX[-1, 0])
    title = f"expert {best + 1} of the last layer with {float(w_LX[-1, best]):.0%}"
    return TokenDetail(best % TINTS, title, tuple(rows), tuple(w_LX.max(-1).values.tolist()))


def load_table(w_NLX: Tensor) -> Table:
    """Of each expert the share of tokens that are routed to it, in every layer."""
    load_LX = (w_NLX > 0).double().mean(0) if len(w_NLX) else w_NLX.new_zeros(w_NLX.shape[1:])
    L, X = load_LX.shape
    shown = load_LX.sum(0).argsort(descending=True)[:SHOWN_EXPERTS].sort().values.tolist()
    rows = tuple((str(e + 1), *(f"{share:.1%}" for share in load_LX[:, e].tolist())) for e in shown)
    which = f"the {SHOWN_EXPERTS} busiest of {X} experts" if X > SHOWN_EXPERTS else "each expert"
    caption = f"The load of {which}: the share of the text's tokens that are routed to it."
    return Table(caption, ("expert", *(f"layer {layer}" for layer in range(1, L + 1))), rows)


ROUTING = View("routing", "Experts", "token-table", routing_table, applies=lambda model: model.config.experts > 0)
