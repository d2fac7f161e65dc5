"""The page of inspect: gradient flow through time, and each model's gates or attention over a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from markupsafe import Markup

from octavo.inspection.adaptation_page import adaptation_section
from octavo.inspection.attention_page import attention_parts, logit_lens_part, three_digits
from octavo.inspection.gradient_flow import SCALES, Activation, Flow, Norms, in_words, orthogonal_flow, rate, relative
from octavo.inspection.inspection import Inspection
from octavo.inspection.surprisal import Surprise
from octavo.inspection.table_page import token_table_part
from octavo.models.views import OPEN, SHUT, TokenRow
from octavo.pages.figures.charts import Series, lines
from octavo.pages.figures.token_rows import Strip, bar_strips, strips
from octavo.pages.markup import join
from octavo.pages.sections import code, paragraph, render_page, reproduce, section, table, verbatim
from octavo.tasks.run_page import title_of
from octavo.text.token_display import BEGIN

SHOWN_UNITS = 8  # that are drawn one by one, those that vary most
GATE_TOKENS = 120  # that are drawn over the gates
TABLE_TOKENS = 200  # of a table of surprisal
QUOTED_CHARACTERS = 600  # of the text, at the top of the page

WHAT_FLOWS = (
    "How much would the loss of a prediction change if the state some steps before it had been a little different? "
    "That is the norm of a gradient. Training can only learn a dependency over t steps if the gradient arrives there. "
    "Where it shrinks step by step it vanishes, and distant words teach nothing; where it grows it explodes, and "
    "training diverges."
)
THEORY = (
    "The thin lines are theory. In a linear network whose recurrent matrix is orthogonal and scaled by a, every step "
    "back multiplies the gradient by exactly a: 0.9 makes it vanish, 1.1 explode, 1 preserves it. A tanh is never "
    "steeper than 1, so that with it the gradient arrives at most as large. Gates are the remedy: an update or "
    "forget gate near 1 carries a state on unchanged. Attention is the other: it links every step with each before it "
    "directly."
)
EMBEDDINGS = (
    "A transformer carries no state from step to step: there the gradient is with respect to the embedding of the "
    "token some steps back, and below to the output of each layer."
)


def inspect_page(inspections: Sequence[Inspection], text: str, command: str) -> str:
    """The whole page; `command` reproduces it."""
    names = labels(inspections)
    title = title_of(inspections[0].run) if len(inspections) == 1 else f"Inspecting {', '.join(names)}"
    quoted = text if len(text) <= QUOTED_CHARACTERS else text[:QUOTED_CHARACTERS] + " …"
    lead = paragraph(f"{'A model reads' if len(inspections) == 1 else f'{len(inspections)} models read'} this text:")
    return render_page(title, join(lead, verbatim(quoted)), [
        gradient_flow_section(inspections) if any(one.flow for one in inspections) else Markup(),
        *(inside_section(one, name) for one, name in zip(inspections, names, strict=True)),
        reproduce([command]),
    ])  # fmt: skip


def gradient_flow_section(inspections: Sequence[Inspection]) -> Markup:
    """How much of the loss's gradient arrives some steps back, beside theory."""
    found = theory(inspections)
    embedded = any(flow.depths for _, flow in _flows(inspections))
    titles, rows = flow_table(inspections, found)
    indented = [[cell.replace("  ", "\u2003") for cell in row] for row in rows]
    return section(
        "Gradient flow", paragraph(WHAT_FLOWS), paragraph(EMBEDDINGS) if embedded else "", _curves(inspections, found),
        paragraph(THEORY), table(titles, indented, numeric=range(2, len(titles))),
        paragraph(_averaged(inspections), quiet=True),
    )  # fmt: skip


def _flows(inspections: Sequence[Inspection]) -> list[tuple[str, Flow]]:
    """The runs that have a gradient flow, by name."""
    every = zip(labels(inspections), inspections, strict=True)
    return [(name, one.flow) for name, one in every if one.flow is not None]


def labels(inspections: Sequence[Inspection]) -> list[str]:
    """The runs' names; where two are the same, their paths."""
    names = [one.run.name for one in inspections]
    return [name if names.count(name) == 1 else one.name for one, name in zip(inspections, names, strict=True)]


def theory(inspections: Sequence[Inspection]) -> list[tuple[float, Activation, Norms]]:
    """Each scale and activation with the gradient's norms, as far back as the farthest of the runs."""
    back = max(flow.back for _, flow in _flows(inspections))
    activations: tuple[Activation, ...] = ("linear", "tanh")
    return [(scale, activation, relative(orthogonal_flow(scale, back, activation).norms))
            for activation in activations for scale in SCALES]  # fmt: skip


def _curves(inspections: Sequence[Inspection], found: Sequence[tuple[float, Activation, Norms]]) -> Markup:
    series = [Series(name, list(enumerate(relative(flow.norms)))) for name, flow in _flows(inspections)]
    series += [
        Series(f"× {scale:g}", list(enumerate(norms)), quiet=True)
        for scale, activation, norms in found if activation == "linear"
    ]  # fmt: skip
    caption = (
        "The gradient's norm as a share of its norm at 0 steps back, which is the state that the last step began with "
        "(of a transformer, the embedding of the token it read). A straight line is a constant factor a step."
    )
    return lines(series, caption, ("steps back", "share of the gradient that arrives"), log_y=True)


def flow_table(
    inspections: Sequence[Inspection], found: Sequence[tuple[float, Activation, Norms]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: each run, the parts of its state, and the theory."""
    farthest = max(flow.back for _, flow in _flows(inspections))
    steps = [*takewhile(lambda t: t < farthest, (2**i for i in range(farthest))), farthest]
    rows = []
    for name, flow in _flows(inspections):
        first = 1 if flow.depths else 0  # the token itself goes straight up, which says nothing of the gradient flow
        rows.append(_flow_row(name, flow.norms, steps, first))
        rows += [_flow_row(f"  {part}", norms, steps, first) for part, norms in flow.parts.items()]
    rows += [_flow_row(f"orthogonal × {scale:g}, {activation}", norms, steps) for scale, activation, norms in found]
    return ("state of", "the gradient", *(f"t = {t}" for t in steps)), rows


def _flow_row(name: str, norms: Norms, steps: Sequence[int], first: int = 0) -> tuple[str, ...]:
    shares = relative(norms)
    cells = (three_digits(shares[t]) if t < len(shares) and not math.isnan(shares[t]) else "–" for t in steps)
    late = first and len(norms) > first + 1
    return (name, in_words(rate(norms[first:])) + " from t = 1" if late else in_words(rate(norms)), *cells)


def _averaged(inspections: Sequence[Inspection]) -> str:
    """Over what the numbers are averages, and what they leave out."""
    flows = [flow for _, flow in _flows(inspections)]
    ends = sorted({flow.ends for flow in flows})
    words = (
        f"A step is a token. Geometric means over {' to '.join(map(str, sorted({ends[0], ends[-1]})))} predictions, "
    )
    words += "each with the whole distance before it; the parts of a state are shares of their own first norm."
    if any(flow.depths for flow in flows):
        words += " Of a transformer they are plain means: its pattern may keep a prediction from a token altogether."
    if any("memory" in flow.parts for flow in flows):
        words += (
            " A memory counts what else than the newest state it holds; the curve is of that newest state, by "
            "recurrence and by attention."
        )
    if shortest := fewest(inspections):
        words += f" Only the first {shortest:,} tokens were read."
    return words


def fewest(inspections: Sequence[Inspection]) -> int:
    """How many tokens were read of a text that was too long; 0 where none was."""
    return min((one.read for one in inspections if one.truncated), default=0)


def surprisal_section(tokens: Sequence[Surprise], title: str) -> Markup:
    """Every token of a short text with its cost, its rank and what was expected; of an n-gram, the context it knows."""
    counts = any(one.context is not None for one in tokens)
    rows = [
        (code(one.token), f"{one.bits:.2f}", str(one.rank), *([str(one.context or 0)] if counts else []),
         Markup(", ").join(Markup("{} {:.0%}").format(code(token), p) for token, p in one.candidates))
        for one in tokens[:TABLE_TOKENS]
    ]  # fmt: skip
    known = "Known context: how many tokens before it the longest n-gram has that ends with it."
    columns = ("token", "bits", "rank", *(["known context"] if counts else []), "most probable")
    drawn = table(columns, rows, numeric=(1, 2, 3) if counts else (1, 2))
    return section(title, drawn, paragraph(known, quiet=True) if counts else "")


def inside_section(one: Inspection, name: str) -> Markup:
    """The views of one run over the text: its gates, its attention, its logit lens; or what it learns from it."""
    if one.adaptation is not None:
        return adaptation_section(one, name)
    parts = [paragraph(f"{title_of(one.run)}. {one.read:,} tokens were read; {BEGIN} opens the text.")]
    if one.rows:
        parts += _gates(one)
    if one.maps is not None:
        parts += attention_parts(one, one.maps)
    if one.layers:
        parts.append(logit_lens_part(one))
    parts += [token_table_part(one, view, shown) for view, shown in one.tables]
    if len(parts) == 1:
        parts.append(paragraph("This model shows no gates, no attention and no layers."))
    return section(f"Inside {name}", *parts)


def _gates(one: Inspection) -> list[Markup]:
    """Gates and states over the tokens, layer by layer."""
    layers = max(row.layer for row in one.rows)
    parts = [paragraph(
        "Each column is a token as it is read. A square is the mean over the units of a layer; of values with a sign, "
        "|…|, the mean of their size (an LSTM's cell after its tanh). Point at one to read it."
    )]  # fmt: skip
    for layer in range(1, layers + 1):
        rows = [_strip(row, one.tokens) for row in one.rows if row.layer == layer]
        parts.append(strips(one.tokens[:GATE_TOKENS], rows, f"Layer {layer} of {layers}."))
    parts.append(_units([row for row in one.rows if row.signed and row.layer == layers], one.tokens))
    if len(one.tokens) > GATE_TOKENS:
        parts.append(paragraph(f"Drawn are the first {GATE_TOKENS} of {len(one.tokens):,} tokens.", quiet=True))
    return [*parts, table(*gate_table(one), numeric=(0, 2, 3, 4)), paragraph(SATURATED, quiet=True)]


SATURATED = (
    f"low and high: the share of units below {SHUT} and above {OPEN}, where a gate is shut or open and hardly learns; "
    f"for hidden, candidate and cell (after tanh), below -{OPEN} and above {OPEN}."
)


def _strip(row: TokenRow, tokens: Sequence[str]) -> Strip:
    label = f"|{row.name}|" if row.signed else row.name
    every = zip(tokens, row.mean.tolist(), row.low.tolist(), row.high.tolist(), strict=True)
    meanings = [
        f"{token} {row.name}: mean {mean:.2f}, {low:.0%} low, {high:.0%} high" for token, mean, low, high in every
    ]
    return Strip(label, row.strength.tolist()[:GATE_TOKENS], meanings[:GATE_TOKENS])


def _units(states: Sequence[TokenRow], tokens: Sequence[str]) -> Markup:
    """The units of the top layer's state that vary most, one by one: of an LSTM its cell, else its last value."""
    if not states:
        return Markup()
    state = next((row for row in states if row.squashed), states[-1])
    rows = []
    for unit in state.busiest(SHOWN_UNITS):
        values = state.bounded()[:GATE_TOKENS, unit].tolist()
        meanings = [f"{token} unit {unit}: {value:.2f}" for token, value in zip(tokens, values, strict=False)]
        rows.append(Strip(f"unit {unit}", values, meanings))
    caption = (
        f"The units of layer {state.layer} that vary most, {state.name}{' after tanh' if state.squashed else ''}: "
        "bars above the line are positive, below it negative."
    )
    return bar_strips(tokens[:GATE_TOKENS], rows, caption)


def gate_table(one: Inspection) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: each gate of each layer, averaged over the text."""
    rows: list[tuple[str, ...]] = [
        (str(row.layer), row.name, f"{float(row.mean.mean()):.2f}", f"{float(row.low.mean()):.0%}",
         f"{float(row.high.mean()):.0%}", row.meaning)
        for row in one.rows
    ]  # fmt: skip
    return ("layer", "gate", "mean", "low", "high", "meaning"), rows
