"""A model's views, as its spec declares them: which it has, and what computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from octavo.errors import UserError
from octavo.io.cooperative import Turn
from octavo.models import MODELS, spec_of
from octavo.models.views import Kind, View


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
