"""One run inspected on a text: every view that tables and pages can show, and attention maps as bytes for the studio.

L layers, H heads, T queries, S keys. A byte b stands for a weight of (b / 255) squared: small weights, of which a long
text has most, keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.core import eval_mode
from octavo.errors import UserError
from octavo.inspection.adaptation import MAX_TOKENS as ADAPTATION_TOKENS
from octavo.inspection.adaptation import Adaptation, read_adaptation
from octavo.inspection.attention_maps import Reads, attention_over, head_count, heads_of, in_words, most_tokens
from octavo.inspection.gradient_flow import SHORTEST, Flow, default_back, gradient_flow
from octavo.inspection.token_tables import token_table
from octavo.inspection.views import find_view, layer_predictions, token_rows
from octavo.io.cooperative import Turn, in_turns
from octavo.io.progress import progress
from octavo.models import spec_of
from octavo.models.views import LayerPrediction, TokenMaps, TokenRow, TokenTable, View
from octavo.ops.tracing import trace
from octavo.tasks.encoder import Encoder
from octavo.tasks.run import Run
from octavo.tasks.translation_alignment import align
from octavo.tasks.translator import Translator
from octavo.text.preprocess import apply
from octavo.text.token_display import BEGIN, display_token

MAX_TOKENS = 1000  # of a text that are read
SHOWN_KINDS = ("token-rows", "token-maps", "token-table", "layers", "curve")  # in tables and pages


@dataclass(frozen=True)
class Inspection:
    """What a run shows of itself; the tokens are those read, begin first."""

    run: Run
    tokens: tuple[str, ...]
    truncated: bool  # whether the text was longer
    rows: tuple[TokenRow, ...] = ()  # gates and states
    maps: TokenMaps | None = None  # attention
    layers: tuple[LayerPrediction, ...] = ()  # the logit lens
    flow: Flow | None = None  # gradient flow
    adaptation: Adaptation | None = None  # of a model that learns while it reads: the text read twice
    experts: TokenTable | None = None  # of such a mixture: what each expert gives each token
    tables: tuple[tuple[View, TokenTable], ...] = ()  # back-off path, Viterbi path, lengths of context, ...

    @property
    def name(self) -> str:
        return str(self.run.path or self.run.name)

    def spell(self, token: int) -> str:
        """A token as it is shown."""
        return BEGIN if token == self.run.model.begin else display_token(self.run.tokenizer, token)

    @property
    def read(self) -> int:
        """How many tokens of the text were read."""
        return len(self.tokens) - 1


def tokens_of(run: Run, text: str) -> list[int]:
    """A text as the run's model would have met it in training."""
    data = apply(run.record.get("preprocess", ()), text.encode("utf-8", "surrogateescape"))
    x_T: list[int] = run.tokenizer.encode(data).tolist()
    return x_T


def has_inspection(run: Run) -> bool:
    """Whether the model has something that tables and pages can show."""
    return run.model.adaptive or any(view.kind in SHOWN_KINDS for view in spec_of(run.model).views_of(run.model))


def inspect_run(run: Run, text: str, back: int | None = None) -> Inspection:
    """Read the beginning of a text; `back` is how many steps the gradient is followed, by default half of it."""
    whole, model = tokens_of(run, text), run.model
    if not whole:
        raise UserError("there is nothing to read: the text is empty; give a sentence or two as --text")
    if model.adaptive:
        return _inspect_adaptive(run, whole, back)
    if not has_inspection(run):
        raise UserError(f"{run.path or run.name}: the model {spec_of(model).name} declares no views; leave it out")
    if back is not None and not find_view(model, "curve"):
        raise UserError(f"the model {spec_of(model).name} has no gradient flow to follow: back={back}; leave it out")
    x_T = whole[: min(MAX_TOKENS, most_tokens(model))]
    tokens = (BEGIN, *(display_token(run.tokenizer, token) for token in x_T))
    flow = None
    if find_view(model, "curve"):
        back = default_back(len(x_T)) if back is None else back
        flow = gradient_flow(model, x_T, back)
    return Inspection(
        run, tokens, len(whole) > len(x_T), token_rows(model, x_T),
        attention_over(model, x_T) if find_view(model, "token-maps") else None,
        layer_predictions(model, x_T) if find_view(model, "layers") else (), flow,
        tables=_token_tables(run, x_T),
    )  # fmt: skip


def _token_tables(run: Run, x_T: list[int]) -> tuple[tuple[View, TokenTable], ...]:
    """Every view of the model that has a table for each token."""

    def spell(token: int) -> str:
        return BEGIN if token == run.model.begin else display_token(run.tokenizer, token)

    views = [view for view in spec_of(run.model).views_of(run.model) if view.kind == "token-table"]
    return tuple((view, token_table(run.model, x_T, spell, view=view)) for view in views)


def shortest_text(model: Any) -> int:
    """How many tokens a text needs for all views of a model: a gradient flows from one token to another."""
    return SHORTEST if not model.adaptive and find_view(model, "curve") else 1


def _inspect_adaptive(run: Run, whole: list[int], back: int | None) -> Inspection:
    """A model that learns while it reads: its weights or counts change, so what is shown is what learning does."""
    if back is not None:
        raise UserError(f"a gradient is followed back through fixed weights, and {run.name} learns while it reads: "
                        f"back={back}; leave it out, or leave --adaptive out")  # fmt: skip
    sizes = run.tokenizer.token_bytes
    with progress(f"{run.name} reads twice", 2 * min(len(whole), ADAPTATION_TOKENS), "tokens") as advance:
        found = read_adaptation(run.model, whole, lambda token: len(sizes(token)), advance=advance)
    tokens = (BEGIN, *(display_token(run.tokenizer, token) for token in found.x_N))
    tables = _token_tables(run, list(found.x_N)) if spec_of(run.model).parts(run.model) else ()
    experts = tables[0][1] if tables else None
    return Inspection(run, tokens, found.truncated, adaptation=found, experts=experts)


MAX_WEIGHTS = 1 << 26  # of all maps of a text, in single precision: 256 MB
SMALL = 48  # rows and columns of a map that is one of many on a page


@dataclass(frozen=True, eq=False)
class AttentionBytes:
    """Every head's map as bytes, with the tokens along its sides."""

    queries: tuple[str, ...]  # T
    keys: tuple[str, ...]  # S
    maps_LHTS: NDArray[np.uint8]
    statistics: tuple[dict[str, Any], ...]  # of each head: see `AttentionHead.statistics`
    notes: tuple[str, ...] = ()  # sentences about heads that stand out
    truncated: bool = False  # whether the text was longer
    translation: str = ""

    def small(self) -> Iterator[NDArray[np.uint8]]:
        """The maps, layer by layer, at most SMALL rows and columns each, which are means of weights."""
        _, _, T, S = self.maps_LHTS.shape
        rows, columns = _into(T), _into(S)
        for map_TS in self.maps_LHTS.reshape(-1, T, S):
            weights_TS = np.square(map_TS.astype(np.float32) / 255)
            yield as_bytes(_means(_means(weights_TS, rows, 0), columns, 1))


def as_bytes(a: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Weights from 0 to 1 as bytes."""
    made: NDArray[np.uint8] = np.rint(255 * np.sqrt(np.clip(a, 0, 1))).astype(np.uint8)
    return made


def _into(length: int) -> NDArray[np.int64]:
    """Where each of at most SMALL nearly equal parts begins."""
    return np.arange(min(length, SMALL)) * length // min(length, SMALL)


def _means(a: NDArray[np.float32], begins: NDArray[np.int64], axis: int) -> NDArray[np.float32]:
    sizes = np.diff(np.append(begins, a.shape[axis])).astype(np.float32)
    total: NDArray[np.float32] = np.add.reduceat(a, begins, axis)
    return np.divide(total, np.expand_dims(sizes, 1 - axis), dtype=np.float32)


def max_map_tokens(heads: int) -> int:
    """How many tokens are read, begin left out, so that all maps have at most MAX_WEIGHTS weights."""
    return max(1, min(MAX_TOKENS, math.isqrt(MAX_WEIGHTS // max(1, heads)) - 1))


def attention_bytes(
    of: Run | Encoder | Translator, text: str, language: str = "", turn: Turn = nullcontext, view: View | None = None
) -> AttentionBytes:
    """What every head attends to while the text is read; of a translator, while the translation is written."""
    if isinstance(of, Run):
        return _of_a_run(of, text, turn, view)
    return _of_an_encoder(of, text, turn) if isinstance(of, Encoder) else _of_a_translator(of, text, language, turn)


def _of_a_run(run: Run, text: str, turn: Turn, view: View | None) -> AttentionBytes:
    whole = tokens_of(run, text)
    if not whole:
        raise UserError("there is nothing to read: the text is empty; write a sentence or two")
    x_N = whole[: max_map_tokens(head_count(run.model))]
    maps = attention_over(run.model, x_N, turn, view)
    tokens = (BEGIN, *(display_token(run.tokenizer, token) for token in x_N))
    with turn():
        notes = tuple(in_words(maps))
    return _made(maps, "back", tokens, tokens, turn, notes=notes, truncated=len(whole) > len(x_N))


def _of_an_encoder(of: Encoder, text: str, turn: Turn) -> AttentionBytes:
    tokenizer = of.tokenizer
    (found,) = tokenizer.encode_texts([text], typed=True)
    most = min(of.model.config.context - 2, max_map_tokens(of.model.config.layers * of.model.config.heads))
    x_T = [tokenizer.first, *found.tolist()[:most], tokenizer.end]
    with turn(), torch.no_grad(), eval_mode(of.model), trace() as traced:
        of.model.encode(torch.tensor([x_T], device=next(of.model.parameters()).device))
    maps = TokenMaps(
        tuple(a_1HTT[0].float().cpu() for a_1HTT in traced["attention"]), torch.tensor([len(x_T)] * len(x_T))
    )
    tokens = tuple(tokenizer.token(token) for token in x_T)
    return _made(maps, "both ways", tokens, tokens, turn, truncated=len(found) > most)


def _of_a_translator(of: Translator, text: str, language: str, turn: Turn) -> AttentionBytes:
    found = align(of, text, language=language, turn=turn)
    maps = TokenMaps(tuple(found.a_LHTS), torch.tensor([len(found.source)] * len(found.target)))
    return _made(maps, "other", found.target, found.source, turn, translation=found.translation)


def _made(
    maps: TokenMaps, reads: Reads, queries: tuple[str, ...], keys: tuple[str, ...], turn: Turn, **more: Any
) -> AttentionBytes:
    """The maps as bytes and the statistics of their heads, a head a turn."""
    statistics = tuple(in_turns((head.statistics() for head in heads_of(maps, reads)), turn))
    made = in_turns((as_bytes(a_TS.float().numpy()) for a_HTS in maps.layers for a_TS in a_HTS), turn)
    maps_LHTS = np.stack(list(made)).reshape(len(maps.layers), -1, len(queries), len(keys))
    return AttentionBytes(queries, keys, maps_LHTS, statistics, **more)
