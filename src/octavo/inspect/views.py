"""A model's views, as its spec declares them: which it has and what computes them; and gates and states over a text.

T the tokens read, begin first; D units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.errors import UserError
from octavo.io.cooperative import Turn
from octavo.models import MODELS, spec_of
from octavo.models.views import Kind, TokenRow, View
from octavo.ops.tracing import trace


def find_view(model: nn.Module, kind: Kind, name: str = "") -> View | None:
    """The model's view of a kind: the one of that name, or the first."""
    spec = next((spec for spec in MODELS.values() if type(model) is spec.model), None)
    views = spec.views if spec is not None else ()  # a model without a spec has none
    return next((view for view in views if view.kind == kind and name in ("", view.name)), None)


def require_view(model: nn.Module, kind: Kind, name: str = "") -> View:
    """The same; a model that has none is refused."""
    view = find_view(model, kind, name)
    if view is None:
        spec = spec_of(model)
        own = ", ".join(one.name for one in spec.views) or "none at all"
        others = ", ".join(one.name for one in MODELS.values() if any(view.kind == kind for view in one.views))
        what = name or KINDS[kind]
        raise UserError(f"{spec.name} has no view {what!r}: it has {own}; models with such a view are {others}")
    return view


KINDS: dict[Kind, str] = {
    "token-rows": "gates", "token-maps": "attention", "token-table": "table", "layers": "logit lens",
    "curve": "gradient flow", "masked": "masked words", "image": "image",
}  # fmt: skip


def call_source(
    view: View, known: Mapping[str, Callable[..., Any]], model: nn.Module, x_N: Sequence[int], turn: Turn
) -> Any:
    """What the view shows of a text: by one of the known implementations, or by the model's own function."""
    if callable(view.source):
        with turn():
            return view.source(model, x_N)
    if view.source not in known:
        raise UserError(f"a view of kind {view.kind} is computed by {', '.join(known)}, or by a function of its own: "
                        f"source={view.source!r}")  # fmt: skip
    return known[view.source](model, x_N, turn, view)


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
