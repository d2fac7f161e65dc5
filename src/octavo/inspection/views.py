"""A model's views, as its spec declares them, and what computes them: gates and states, and inside a transformer.

N the tokens of a text, T those of a piece or the tokens read, begin first; D units, V vocabulary, L layers. Depth 0 is
the embedding, depth l what layer l hands on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.errors import UserError
from octavo.io.cooperative import Turn, in_turns
from octavo.models import MODELS, spec_of
from octavo.models.gpt import GPT
from octavo.models.parts.block import TransformerBlock
from octavo.models.parts.checks import check_numbers
from octavo.models.views import Kind, LayerPrediction, TokenRow, View
from octavo.ops.tracing import trace


def find_view(model: nn.Module, kind: Kind, name: str = "") -> View | None:
    """The model's view of a kind: the one of that name, or the first."""
    spec = next((spec for spec in MODELS.values() if type(model) is spec.model), None)
    views = spec.views_of(model) if spec is not None else ()  # a model without a spec has none
    return next((view for view in views if view.kind == kind and name in ("", view.name)), None)


def require_view(model: nn.Module, kind: Kind, name: str = "") -> View:
    """The same; a model that has none is refused."""
    view = find_view(model, kind, name)
    if view is None:
        spec = spec_of(model)
        own = ", ".join(one.name for one in spec.views_of(model)) or "none at all"
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
        TokenRow(
            name,
            layer,
            check_numbers(torch.stack(value_D), f"the values of {name}"),
            taps[name].signed,
            taps[name].meaning,
            taps[name].unbounded,
        )
        for (name, layer), value_D in values.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.layer, order[row.name])))


PIECE = 128  # tokens read at once: no more than that many rows of maps or of logits are in work


@dataclass(frozen=True)
class Piece:
    """Tokens that were read at once; the text's first has position 0."""

    start: int
    end: int
    logits_TV: Tensor
    passes: list[list[Tensor]]
    """The stream at each depth, of each pass through the layers. The last pass is that of the new tokens; where a full
    context was left, the one before read its last tokens again, those that end where the piece starts."""
    shown: dict[str, list[Tensor]]  # what each layer showed of the new tokens
    state: Any  # after them

    @property
    def streams(self) -> list[Tensor]:
        """The new tokens' stream at each depth."""
        return [stream_1TD[0] for stream_1TD in self.passes[-1]]


def pieces(model: GPT, x_T: Sequence[int], longest: int = PIECE, state: Any = None, watched: bool = True,
           ) -> Iterator[Piece]:  # fmt: skip
    """Read the tokens, from a state or from the start. `watched` asks for what the layers show: attention is then
    worked out by its plain equation, whose maps take room."""
    state = model.start(1) if state is None else state
    layers, start = model.config.layers, 0
    while start < len(x_T):
        room = model.config.context - state[1].shape[1] if model.config.absolute else longest
        end = min(start + min(longest, room or model.config.moves), len(x_T))
        x_1T = torch.tensor([x_T[start:end]], device=device_of(model))
        watching: AbstractContextManager[dict[str, list[Tensor]]] = trace() if watched else nullcontext({})
        with _streams(model) as found, watching as shown:
            logits_1TV, state = model.absorb(state, x_1T)
        passes = [found[i : i + layers + 1] for i in range(0, len(found), layers + 1)]
        yield Piece(
            start, end, logits_1TV[0], passes, {name: values[-layers:] for name, values in shown.items()}, state
        )
        start = end


@contextmanager
def _streams(model: GPT) -> Iterator[list[Tensor]]:
    """What the first norm of each block and the last norm of all are given, in the order in which it comes."""
    found: list[Tensor] = []

    def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        found.append(given[0])

    norms = [*(cast(TransformerBlock, block).norm1 for block in model.blocks), model.norm]
    hooks = [norm.register_forward_pre_hook(note) for norm in norms]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def layer_predictions(
    model: LanguageModel[Any], x_N: Sequence[int], turn: Turn = nullcontext, view: View | None = None
) -> tuple[LayerPrediction, ...]:
    """The model's view of kind layers (its first, if none is named) over the tokens."""
    view = view or require_view(model, "layers")
    return call_source(view, {"logit-lens": logit_lens}, model, x_N, turn)  # type: ignore[no-any-return]


@torch.no_grad()
def logit_lens(
    model: GPT, x_N: Sequence[int], turn: Turn = nullcontext, view: View | None = None
) -> tuple[LayerPrediction, ...]:
    """Read begin and the tokens; at each depth, what comes next according to norm and output weights alone.

    At the last depth that is the model's own prediction.
    """
    found = []
    with eval_mode(model):
        for one in in_turns(pieces(model, [model.begin, *x_N[:-1]], watched=False), turn):
            after_T, read = torch.tensor(x_N[one.start : one.end]), enumerate(one.streams)
            found.append(list(in_turns((_read_out(model, depth, h_TD, after_T) for depth, h_TD in read), turn)))
    return tuple(map(_joined, zip(*found, strict=True)))


def logits_at(model: GPT, stream_TD: Tensor) -> Tensor:
    """The prediction if the stream were read out here, worked out as the model does it at the end."""
    return model.logits(model.norm(stream_TD[None]))[0]


def _read_out(model: GPT, depth: int, stream_TD: Tensor, after_T: Tensor) -> LayerPrediction:
    logp_TV = logits_at(model, stream_TD).double().log_softmax(-1).cpu()
    best = logp_TV.max(-1)
    bits_T = -logp_TV.gather(1, after_T[:, None])[:, 0] / math.log(2)
    return LayerPrediction(depth, best.indices, best.values.exp(), bits_T, best.indices == after_T)


def _joined(parts: Sequence[LayerPrediction]) -> LayerPrediction:
    """One depth of a whole text from those of its pieces."""
    every = zip(*((one.top_N, one.p_N, one.bits_N, one.right_N) for one in parts), strict=True)
    return LayerPrediction(parts[0].depth, *map(torch.cat, every))
