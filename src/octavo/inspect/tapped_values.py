"""Gates and states over a text: what a model shows with `tap` at each step. T the tokens read, begin first; D units."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.inspect.views import call_source, find_view
from octavo.io.cooperative import Turn
from octavo.models.views import TokenRow, View
from octavo.ops.tracing import trace

STEPS = 32  # tokens read in one turn


def token_rows(
    model: LanguageModel[Any], x_T: Sequence[int], turn: Turn = nullcontext, view: View | None = None
) -> tuple[TokenRow, ...]:
    """The model's view of kind token-rows (its first, if none is named) over begin and the tokens; none: ()."""
    view = view or find_view(model, "token-rows")
    return () if view is None else call_source(view, {"tapped-values": tapped_values}, model, x_T, turn)


@torch.no_grad()
def tapped_values(model: LanguageModel[Any], x_T: Sequence[int], turn: Turn, view: View) -> tuple[TokenRow, ...]:
    """Read begin and then the tokens, one `step` each, and collect the values that the view's taps name.

    A step passes its layers from the bottom up, so the n-th value it shows under a name is the n-th layer's.
    """
    taps = {tap.name: tap for tap in view.taps}
    values: dict[tuple[str, int], list[Tensor]] = {}
    state, tokens = model.start(1), [model.begin, *x_T]
    for first in range(0, len(tokens), STEPS):
        with turn(), eval_mode(model):
            for token in tokens[first : first + STEPS]:
                with trace() as shown:
                    _, state = model.step(state, torch.tensor([token], device=device_of(model)))
                for name in taps.keys() & shown.keys():
                    for layer, value_1D in enumerate(shown[name], 1):
                        values.setdefault((name, layer), []).append(value_1D[0].double().cpu())
    order = {name: n for n, name in enumerate(taps)}
    rows = [
        TokenRow(name, layer, torch.stack(value_D), taps[name].signed, taps[name].meaning)
        for (name, layer), value_D in values.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.layer, order[row.name])))
