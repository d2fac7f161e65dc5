"""The logit lens: what a transformer would predict if it were read out after each layer.

N the tokens of a text, T those of a piece, V vocabulary, L layers; depth 0 is the embedding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, eval_mode
from octavo.inspect.activations import pieces
from octavo.inspect.views import call_source, require_view
from octavo.io.cooperative import Turn, in_turns
from octavo.models import GPT
from octavo.models.views import LayerPrediction, View


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
