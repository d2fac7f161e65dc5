"""A transformer's part of the lens page: its maps, its heads, and what it knows at each depth."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.inspect.attention_figure import maps_figure
from octavo.inspect.attention_maps import MOSTLY, SPREAD, Head, heads_of, in_words
from octavo.inspect.gradient_flow import relative
from octavo.inspect.inspection import Inspection
from octavo.models.views import TokenMaps
from octavo.pages.figures.axis import number
from octavo.pages.figures.bars import bars
from octavo.pages.figures.heat_table import Cell, heat_table
from octavo.pages.figures.token_rows import Strip, strips, triangle
from octavo.pages.frame import paragraph, shown, table
from octavo.text.token_display import BEGIN

DRAWN_CELLS = 4000  # of the heads' entropies token by token, in all layers
FEWEST, MOST = 24, 48  # tokens that those are drawn for
DRAWN_LOOKS = 24  # tokens of a head's close-up
READ_OUT = 40  # tokens of the table of predictions
LONGEST = 10  # letters of a predicted token

HEADS = (
    f"Entropy is how widely a head looks, in bits: 0 where one token gets everything, log2(n) where n tokens get the "
    f"same; beside it, its share of what is possible. Distance is how many tokens back it looks on average. Means over "
    f"all tokens but {BEGIN}. A head has a habit where at least {MOSTLY:.0%} of its looks go one way, and is spread "
    f"from {SPREAD:.0%} of the possible entropy on."
)
READ_AT_DEPTH = (
    "What would the model predict if it were read out after each layer? The embedding alone, where it is the output "
    "weight too, mostly names the token itself; the last layer's is the model's own prediction. The gradient is that "
    "of the loss with respect to what a depth hands on: where it is far smaller near the embedding, it vanishes with "
    "depth. Where vectors are short, as embeddings can be, the same change weighs more and the gradient is larger."
)
CONTEXT_LEFT = (
    "This model's places are counted from the beginning of a context. When one is full, its last tokens are read again "
    "as a new one, so a token sees nothing of what was left behind; rows are what each token looked at when it was new."
)


def attention_html(one: Inspection, maps: TokenMaps) -> list[str]:
    """The attention maps of every head, as HTML."""
    config = one.run.model.config
    moved = getattr(config, "absolute", False) and one.read >= config.context
    caption = "Rows are the tokens from the top down, columns from left to right the tokens that each attends to."
    several = [_grid(maps), "<h3>Entropy of attention, token by token</h3>", *_token_by_token(one, maps)]
    return [
        *([paragraph(CONTEXT_LEFT)] if moved else []), "<h3>Attention maps</h3>", maps_figure(maps, caption),
        said(maps), heads_html(maps), *(several if len(heads_of(maps)) > 1 else []), *_close_ups(one, maps),
    ]  # fmt: skip


def logit_lens_html(one: Inspection) -> list[str]:
    """What is predicted after each layer, as HTML."""
    return [
        "<h3>Logit lens: the prediction after each layer</h3>", paragraph(READ_AT_DEPTH), _depth_bars(one),
        _depth_table(one), _predictions(one),
    ]  # fmt: skip


def said(maps: TokenMaps) -> str:
    """The heads worth a look, as a list."""
    items = "".join(f"<li>{shown(line[0].upper() + line[1:])}.</li>" for line in in_words(maps))
    return f"<ul>{items}</ul>" if items else ""


def heads_table(maps: TokenMaps) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: each head of each layer, averaged over the text."""
    rows: list[tuple[str, ...]] = [
        (str(one.layer), str(one.head), f"{one.entropy:.2f}", f"{one.spread:.0%}", f"{one.distance:.1f}",
         f"{one.itself:.0%}", f"{one.previous:.0%}", f"{one.begin:.0%}", one.kind)
        for one in heads_of(maps)
    ]  # fmt: skip
    titles = ("layer", "head", "entropy", "of possible", "distance", "to itself", "to previous", "to begin", "kind")
    return titles, rows


def heads_html(maps: TokenMaps) -> str:
    titles, rows = heads_table(maps)
    html = table(titles, [tuple(map(shown, row)) for row in rows], right=range(8))
    return html + paragraph(HEADS, "quiet")


def depth_table(one: Inspection) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: bits, right guesses and the gradient at each depth."""
    norms = one.flow.depths if one.flow is not None else ()
    shares = relative(norms[::-1])[::-1]
    rows: list[tuple[str, ...]] = [
        (layer.name, f"{layer.bits:.3f}", f"{layer.right:.0%}",
         *((_three(norms[n]), _three(shares[n])) if norms else ()))
        for n, layer in enumerate(one.layers)
    ]  # fmt: skip
    return ("read out after", "bits per token", "right", *(("gradient", "of the last") if norms else ())), rows


def _three(value: float) -> str:
    return f"{value:.3g}" if 1e-4 <= value < 1000 else number(value)


def _depth_table(one: Inspection) -> str:
    titles, rows = depth_table(one)
    note = "right: how often the likeliest token was the one that came."
    if one.flow is not None and one.flow.depths:
        note += (
            f" gradient: the mean over {one.flow.ends} losses of the norm with respect to the residual stream of the "
            f"last {one.flow.back + 1} tokens."
        )
    cells = [tuple(map(shown, row)) for row in rows]
    return table(titles, cells, right=range(1, len(titles))) + paragraph(note, "quiet")


def _depth_bars(one: Inspection) -> str:
    bits = [(depth.name, depth.bits) for depth in one.layers]
    drawn = bars(bits, "Bits that a token costs when the residual stream is read out there.", digits=2)
    if one.flow is None or not one.flow.depths:
        return drawn
    norms = [(layer.name, norm) for layer, norm in zip(one.layers, one.flow.depths, strict=True)]
    digits = 2 if min(one.flow.depths) >= 0.1 else 4
    return _pairs([drawn, bars(norms, "The norm of the gradient there.", digits=digits)])


def _grid(maps: TokenMaps) -> str:
    """The entropy of every head, layers down and heads across."""
    rows = [
        (f"layer {layer}", [
            Cell(f"{head.entropy:.1f}", head.spread, f"{head.name}: {head.entropy:.2f} bits, {head.spread:.0%} of "
                 f"what is possible") for head in heads_of(maps) if head.layer == layer])
        for layer in range(1, len(maps.layers) + 1)
    ]  # fmt: skip
    titles = ("", *(f"head {head}" for head in range(1, len(maps.layers[0]) + 1)))
    return heat_table(titles, rows, "Entropy in bits; the shade is its share of what is possible.")


def _token_by_token(one: Inspection, maps: TokenMaps) -> list[str]:
    """Rows of cells, one for each head: the entropy's share of what is possible, token by token."""
    drawn = max(FEWEST, min(MOST, DRAWN_CELLS // len(heads_of(maps))))
    drawn_layers = [
        strips(one.tokens[:drawn], [_strip(head, one.tokens[:drawn]) for head in heads_of(maps) if head.layer == layer],
               f"Layer {layer} of {len(maps.layers)}: the entropy of each token's look, from one token to all alike.")
        for layer in range(1, len(maps.layers) + 1)
    ]  # fmt: skip
    parts = [_pairs(drawn_layers)]
    if len(one.tokens) > drawn:
        parts.append(paragraph(f"Drawn are the first {drawn} of {len(one.tokens):,} tokens.", "quiet"))
    return parts


def _pairs(figures: Sequence[str]) -> str:
    """Figures in two columns, or in one where the page is narrow."""
    wide = "grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 0 2rem"
    return f'<div class="side" style="{wide}">\n' + "\n".join(figures) + "\n</div>"


def _strip(head: Head, tokens: Sequence[str]) -> Strip:
    every = zip(tokens, head.entropies.tolist(), head.distances.tolist(), strict=False)
    told = [f"{token} head {head.head}: {bits:.2f} bits, {back:.1f} tokens back" for token, bits, back in every]
    return Strip(f"head {head.head}", head.spreads[: len(tokens)].tolist(), told)


def _close_ups(one: Inspection, maps: TokenMaps) -> list[str]:
    """A few heads with the tokens they look at."""
    heads = notable(maps)
    parts = []
    for head in heads:
        rows = [row[: t + 1] for t, row in enumerate(head.a_TT[:DRAWN_LOOKS, :DRAWN_LOOKS].tolist())]
        caption = f"{head.name.capitalize()}{f', {head.kind}' if head.kind else ''}: what each token looks at."
        if len(one.tokens) > DRAWN_LOOKS:
            caption += f" The first {DRAWN_LOOKS} tokens."
        parts.append(triangle(one.tokens[:DRAWN_LOOKS], rows, caption))
    return [f"<h3>{'One head' if len(heads) == 1 else f'{len(heads)} heads'} from near</h3>", _pairs(parts)]


def notable(maps: TokenMaps) -> list[Head]:
    """The heads with the strongest habits, the most local and the most spread; each once."""
    heads = heads_of(maps)
    wanted = [
        max(heads, key=lambda one: one.previous), min(heads, key=lambda one: one.distance),
        max(heads, key=lambda one: one.begin), max(heads, key=lambda one: one.spread),
    ]  # fmt: skip
    return list(dict.fromkeys(wanted))


def _predictions(one: Inspection) -> str:
    """Tokens down, depths across; in each cell the likeliest token, shaded by its probability."""
    rows = []
    for n, token in enumerate(one.tokens[1 : READ_OUT + 1]):
        cells = []
        for depth in one.layers:
            guess, p, bits = one.spell(int(depth.top_N[n])), float(depth.p_N[n]), float(depth.bits_N[n])
            right = ' class="sure"' if bool(depth.right_N[n]) else ""
            html = f"<span{right}>{shown(_short(guess))}</span> <small>{p:.0%}</small>"
            cells.append(Cell(html, p, f"{depth.name}: {guess} {p:.1%}; {token} costs {bits:.2f} bits"))
        rows.append((_short(token), cells))
    caption = (
        "Each row is a token of the text, and in it what each depth expected in its place, shaded by its probability; "
        "underlined where that is the token that came. Point at a cell for the bits that it cost."
    )
    if one.read > READ_OUT:
        caption += f" The first {READ_OUT} of {one.read:,} tokens."
    return heat_table(("token", *(depth.name for depth in one.layers)), rows, caption)


def _short(token: str) -> str:
    return token if len(token) <= LONGEST else token[: LONGEST - 1] + "…"
