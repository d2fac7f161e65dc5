"""A transformer's part of the page of inspect: attention maps, heads, and the logit lens at each depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch.nn.functional as F
from markupsafe import Markup
from torch import Tensor

from octavo.inspection.attention_maps import MOSTLY, SPREAD, AttentionHead, heads_of, in_words
from octavo.inspection.gradient_flow import relative
from octavo.inspection.inspection import Inspection
from octavo.models.views import TokenMaps
from octavo.pages.figures.charts import bars
from octavo.pages.figures.plot import number
from octavo.pages.figures.shaded_cells import HeadMap, attention_maps
from octavo.pages.figures.svg import shorten
from octavo.pages.figures.token_rows import Strip, attention_rows, strips
from octavo.pages.markup import NOTHING, element, join
from octavo.pages.sections import Shaded, bullets, heat_table, paragraph, side_by_side, subsection, table
from octavo.text.token_display import BEGIN

MAP_CELLS = 48  # along a side of a map; of more tokens, several share a cell
ENTROPY_CELLS = 4000  # of the heads' entropies token by token, in all layers
MIN_ENTROPY_TOKENS, MAX_ENTROPY_TOKENS = 24, 48
CLOSE_UP_TOKENS = 24  # of a head that is shown token by token
PREDICTED_TOKENS = 40  # of the table of predictions
TOKEN_CHARACTERS = 10  # of a predicted token

HEADS = (
    f"Entropy is how widely a head attends, in bits: 0 where one token gets all the weight, log2(n) where n tokens get "
    f"the same; beside it, its share of the maximum. Distance is how many tokens back it attends on average. Means are "
    f"over all tokens but {BEGIN}. A head has a kind where at least {MOSTLY:.0%} of its attention goes one way, and is "
    f"spread from {SPREAD:.0%} of the maximal entropy on."
)
LOGIT_LENS = (
    "The logit lens: what would the model predict if the output layer were applied after each layer? The embedding "
    "alone, where it is the output weight too, mostly predicts the token itself; the last layer's is the model's own "
    "prediction. The gradient is that of the loss with respect to the output of a layer: where it is far smaller near "
    "the embedding, it vanishes with depth. Where vectors are short, as embeddings can be, the same change weighs more "
    "and the gradient is larger."
)
CONTEXT_LEFT = (
    "This model has absolute positions. When a context is full, its last tokens are processed again as a new one, so a "
    "token sees nothing of what was left behind; rows are the attention of each token when it was new."
)


def attention_parts(one: Inspection, maps: TokenMaps) -> list[Markup]:
    """The attention maps of every head, and what the heads do."""
    config = one.run.model.config
    moved = getattr(config, "absolute", False) and one.read >= config.context
    standing_out = bullets(f"{line[0].upper()}{line[1:]}." for line in in_words(maps))
    of_heads = join(table(*heads_table(maps), numeric=range(8)), paragraph(HEADS, quiet=True))
    parts = [
        paragraph(CONTEXT_LEFT) if moved else NOTHING,
        subsection("Attention maps", maps_figure(maps, one.tokens), standing_out, _grid(maps), of_heads),
    ]
    if len(heads_of(maps)) > 1:
        parts.append(subsection("Attention entropy by token", *_token_by_token(one, maps)))
    return [*parts, _close_ups(one, maps)]


def logit_lens_part(one: Inspection) -> Markup:
    """What would be predicted after each layer."""
    return subsection("Logit lens", paragraph(LOGIT_LENS), _depth_bars(one), _depth_table(one), _predictions(one))


def maps_figure(maps: TokenMaps, tokens: Sequence[str] = ()) -> Markup:
    """The attention maps of every head."""
    by = -(-len(maps.visible_T) // MAP_CELLS)
    caption = "Rows are the tokens from the top down, columns from left to right what each of them attends to."
    if by > 1:
        caption += f" A cell stands for {by} × {by} tokens and shows the largest weight among them."
    layers = [
        [HeadMap(shrink(head.a_TS, by).tolist(), f"head {head.head}", head.kind,
                 f"{head.entropy:.1f} bits, {head.distance:.1f} tokens back", tokens if by == 1 else ())
         for head in heads]
        for heads in by_layer(maps)
    ]  # fmt: skip
    return attention_maps(layers, caption)


def by_layer(maps: TokenMaps) -> list[list[AttentionHead]]:
    """The heads of each layer."""
    return [list(heads) for _, heads in groupby(heads_of(maps), key=lambda head: head.layer)]


def shrink(a_TT: Tensor, by: int) -> Tensor:
    """The map with the largest of each `by` × `by` weights."""
    missing = -len(a_TT) % by
    a_TT = F.pad(a_TT, (0, missing, 0, missing))
    C = len(a_TT) // by
    return a_TT.reshape(C, by, C, by).amax((1, 3))


def heads_table(maps: TokenMaps) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: each head of each layer, averaged over the text."""
    rows: list[tuple[str, ...]] = [
        (str(one.layer), str(one.head), f"{one.entropy:.2f}", f"{one.spread:.0%}", f"{one.distance:.1f}",
         f"{one.itself:.0%}", f"{one.previous:.0%}", f"{one.first:.0%}", one.kind)
        for one in heads_of(maps)
    ]  # fmt: skip
    titles = ("layer", "head", "entropy", "of possible", "distance", "to itself", "to previous", "to begin", "kind")
    return titles, rows


def depth_table(one: Inspection) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: bits, accuracy and the gradient at each depth."""
    norms = one.flow.depths if one.flow is not None else ()
    shares = relative(norms[::-1])[::-1]
    rows: list[tuple[str, ...]] = [
        (layer.name, f"{layer.bits:.3f}", f"{layer.right:.0%}",
         *((three_digits(norms[n]), three_digits(shares[n])) if norms else ()))
        for n, layer in enumerate(one.layers)
    ]  # fmt: skip
    return ("after", "bits/token", "accuracy", *(("gradient", "of the last") if norms else ())), rows


def three_digits(value: float) -> str:
    """A norm, or a share of one, in as few characters as it takes."""
    return f"{value:.3g}" if 1e-3 <= value < 1000 else number(value)


def _depth_table(one: Inspection) -> Markup:
    titles, rows = depth_table(one)
    explained = "accuracy: how often the most probable token was the right one."
    if one.flow is not None and one.flow.depths:
        explained += (
            f" gradient: the mean over {one.flow.ends} losses of the norm with respect to the residual stream of the "
            f"last {one.flow.back + 1} tokens."
        )
    return join(table(titles, rows, numeric=range(1, len(titles))), paragraph(explained, quiet=True))


def _depth_bars(one: Inspection) -> Markup:
    bits = [(depth.name, depth.bits) for depth in one.layers]
    drawn = bars(bits, "Bits per token when the output layer is applied there.", digits=2)
    if one.flow is None or not one.flow.depths:
        return drawn
    norms = [(layer.name, norm) for layer, norm in zip(one.layers, one.flow.depths, strict=True)]
    digits = 2 if min(one.flow.depths) >= 0.1 else 4
    return side_by_side(drawn, bars(norms, "The norm of the gradient there.", digits=digits))


def _grid(maps: TokenMaps) -> Markup:
    """The entropy of every head, layers down and heads across."""
    rows = [
        (f"layer {layer}", [
            Shaded(f"{head.entropy:.1f}", head.spread, f"{head.name}: {head.entropy:.2f} bits, {head.spread:.0%} of "
                 f"the maximum") for head in heads])
        for layer, heads in enumerate(by_layer(maps), 1)
    ]  # fmt: skip
    titles = ("", *(f"head {head}" for head in range(1, len(maps.layers[0]) + 1)))
    return heat_table(titles, rows, "Entropy in bits; the shade is its share of the maximum.")


def _token_by_token(one: Inspection, maps: TokenMaps) -> list[Markup]:
    """Rows of cells, one for each head: the entropy's share of its maximum, token by token."""
    drawn = max(MIN_ENTROPY_TOKENS, min(MAX_ENTROPY_TOKENS, ENTROPY_CELLS // len(heads_of(maps))))
    drawn_layers = [
        strips(one.tokens[:drawn], [_strip(head, one.tokens[:drawn]) for head in heads],
               f"Layer {layer} of {len(maps.layers)}: the entropy of each token's attention, as a share.")
        for layer, heads in enumerate(by_layer(maps), 1)
    ]  # fmt: skip
    parts = [side_by_side(*drawn_layers)]
    if len(one.tokens) > drawn:
        parts.append(paragraph(f"Drawn are the first {drawn} of {len(one.tokens):,} tokens.", quiet=True))
    return parts


def _strip(head: AttentionHead, tokens: Sequence[str]) -> Strip:
    every = zip(tokens, head.entropies.tolist(), head.distances.tolist(), strict=False)
    meanings = [f"{token} head {head.head}: {bits:.2f} bits, {back:.1f} tokens back" for token, bits, back in every]
    return Strip(f"head {head.head}", head.spreads[: len(tokens)].tolist(), meanings)


def _close_ups(one: Inspection, maps: TokenMaps) -> Markup:
    """A few heads with the tokens they attend to."""
    heads = notable(maps)
    parts = []
    for head in heads:
        rows = [row[: t + 1] for t, row in enumerate(head.a_TS[:CLOSE_UP_TOKENS, :CLOSE_UP_TOKENS].tolist())]
        caption = f"{head.name.capitalize()}{f', {head.kind}' if head.kind else ''}: what each token attends to."
        if len(one.tokens) > CLOSE_UP_TOKENS:
            caption += f" The first {CLOSE_UP_TOKENS} tokens."
        parts.append(attention_rows(one.tokens[:CLOSE_UP_TOKENS], rows, caption))
    return subsection("Attention weights of " + ("one head" if len(heads) == 1 else f"{len(heads)} heads"),
                      side_by_side(*parts))  # fmt: skip


def notable(maps: TokenMaps) -> list[AttentionHead]:
    """The heads of the clearest kinds, the most local and the most spread; each once."""
    heads = heads_of(maps)
    wanted = [
        max(heads, key=lambda one: one.previous), min(heads, key=lambda one: one.distance),
        max(heads, key=lambda one: one.first), max(heads, key=lambda one: one.spread),
    ]  # fmt: skip
    return list(dict.fromkeys(wanted))


def _predictions(one: Inspection) -> Markup:
    """Tokens down, depths across; in each cell the most probable token, shaded by its probability."""
    rows = []
    for n, token in enumerate(one.tokens[1 : PREDICTED_TOKENS + 1]):
        cells = []
        for depth in one.layers:
            guess, p, bits = one.spell(int(depth.top_N[n])), float(depth.p_N[n]), float(depth.bits_N[n])
            right = "sure" if bool(depth.right_N[n]) else None
            words = join(element("span", shorten(guess, TOKEN_CHARACTERS), class_=right), element("small", f"{p:.0%}"))
            cells.append(Shaded(words, p, f"{depth.name}: {guess} {p:.1%}; {token} costs {bits:.2f} bits"))
        rows.append((shorten(token, TOKEN_CHARACTERS), cells))
    caption = (
        "Each row is a token of the text, and in it what each depth predicted in its place, shaded by its probability; "
        "underlined where that is right. Point at a cell for the cost in bits."
    )
    if one.read > PREDICTED_TOKENS:
        caption += f" The first {PREDICTED_TOKENS} of {one.read:,} tokens."
    return heat_table(("token", *(depth.name for depth in one.layers)), rows, caption)
