"""The page of inspect: gradient flow through time, and each model's gates or attention over a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from markupsafe import Markup

from octavo.inspect.attention_page import heads_part, transformer_parts
from octavo.inspect.gates import OPEN, SHUT, Gate
from octavo.inspect.gradient_flow import Norms, in_words, rate, relative
from octavo.inspect.gradient_theory import SCALES, Activation, orthogonal_flow
from octavo.inspect.summary import Look
from octavo.pages.figures.axis import number
from octavo.pages.figures.lines import Series, lines
from octavo.pages.figures.token_rows import Strip, attention_rows, bar_strips, strips
from octavo.pages.markup import join
from octavo.pages.sections import paragraph, render_page, reproduce, section, subsection, table, verbatim
from octavo.tasks.run_facts import title_of
from octavo.text.token_display import BEGIN

SHOWN_UNITS = 8  # that are drawn one by one, those that vary most
GATE_TOKENS = 120  # that are drawn over the gates
ATTENTION_TOKENS = 32  # whose attention is drawn
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
MEANINGS = {
    "reset": "how much of the past the candidate sees", "update": "how much of the old state is retained",
    "input": "how much of the candidate is let in", "forget": "how much of the cell is retained",
    "output": "how much of the cell is shown", "candidate": "what could be stored",
    "cell": "what is stored", "hidden": "the output of the layer",
}  # fmt: skip


def lens_page(looks: Sequence[Look], text: str, command: str) -> str:
    """The whole page; `command` reproduces it."""
    names = labels(looks)
    title = title_of(looks[0].run) if len(looks) == 1 else f"Inspecting {', '.join(names)}"
    quoted = text if len(text) <= QUOTED_CHARACTERS else text[:QUOTED_CHARACTERS] + " …"
    lead = paragraph(f"{'A model reads' if len(looks) == 1 else f'{len(looks)} models read'} this text:")
    found = theory(looks)
    return render_page(title, join(lead, verbatim(quoted)), [
        section("Gradient flow", paragraph(WHAT_FLOWS),
                paragraph(EMBEDDINGS) if any(one.depths for one in looks) else "",
                _curves(looks, found), paragraph(THEORY),
                _flow_table(looks, found), paragraph(_averaged(looks), quiet=True)),
        *(inside_section(one, name) for one, name in zip(looks, names, strict=True)),
        reproduce([command]),
    ])  # fmt: skip


def labels(looks: Sequence[Look]) -> list[str]:
    """The runs' names; where two are the same, their paths."""
    names = [one.run.name for one in looks]
    return [name if names.count(name) == 1 else one.name for one, name in zip(looks, names, strict=True)]


def theory(looks: Sequence[Look]) -> list[tuple[float, Activation, Norms]]:
    """Each scale and activation with the gradient's norms, as far back as the farthest of the runs."""
    back = max(one.flow.back for one in looks)
    activations: tuple[Activation, ...] = ("linear", "tanh")
    return [(scale, activation, relative(orthogonal_flow(scale, back, activation).norms))
            for activation in activations for scale in SCALES]  # fmt: skip


def _curves(looks: Sequence[Look], found: Sequence[tuple[float, Activation, Norms]]) -> Markup:
    series = [
        Series(name, list(enumerate(relative(one.flow.norms)))) for one, name in zip(looks, labels(looks), strict=True)
    ]
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
    looks: Sequence[Look], found: Sequence[tuple[float, Activation, Norms]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: each run, the parts of its state, and the theory."""
    farthest = max(one.flow.back for one in looks)
    steps = [*takewhile(lambda t: t < farthest, (2**i for i in range(farthest))), farthest]
    rows = []
    for one, name in zip(looks, labels(looks), strict=True):
        first = 1 if one.depths else 0  # the token itself goes straight up, which says nothing of the gradient flow
        rows.append(_flow_row(name, one.flow.norms, steps, first))
        rows += [_flow_row(f"  {part}", norms, steps, first) for part, norms in one.flow.parts.items()]
    rows += [_flow_row(f"orthogonal × {scale:g}, {activation}", norms, steps) for scale, activation, norms in found]
    return ("state of", "the gradient", *(f"t = {t}" for t in steps)), rows


def _flow_row(name: str, norms: Norms, steps: Sequence[int], first: int = 0) -> tuple[str, ...]:
    shares = relative(norms)
    cells = (number(shares[t]) if t < len(shares) and not math.isnan(shares[t]) else "–" for t in steps)
    late = first and len(norms) > first + 1
    return (name, in_words(rate(norms[first:])) + " from t = 1" if late else in_words(rate(norms)), *map(_three, cells))


def _three(cell: str) -> str:
    """Three digits are enough for a share."""
    try:
        return f"{float(cell):.3g}" if float(cell) < 1000 else cell
    except ValueError:
        return cell


def _flow_table(looks: Sequence[Look], found: Sequence[tuple[float, Activation, Norms]]) -> Markup:
    titles, rows = flow_table(looks, found)
    indented = [[cell.replace("  ", "\u2003") for cell in row] for row in rows]
    return table(titles, indented, numeric=range(2, len(titles)))


def _averaged(looks: Sequence[Look]) -> str:
    """Over what the numbers are averages, and what they leave out."""
    ends = sorted({one.flow.ends for one in looks})
    words = (
        f"A step is a token. Geometric means over {' to '.join(map(str, sorted({ends[0], ends[-1]})))} predictions, "
    )
    words += "each with the whole distance before it; the parts of a state are shares of their own first norm."
    if any(one.depths for one in looks):
        words += " Of a transformer they are plain means: its pattern may keep a prediction from a token altogether."
    if any("memory" in one.flow.parts for one in looks):
        words += (
            " A memory counts what else than the newest state it holds; the curve is of that newest state, by "
            "recurrence and by attention."
        )
    if shortest := fewest(looks):
        words += f" Only the first {shortest:,} tokens were read."
    return words


def fewest(looks: Sequence[Look]) -> int:
    """How many tokens were read of a text that was too long; 0 where none was."""
    return min((one.read for one in looks if one.cut), default=0)


def inside_section(one: Look, name: str) -> Markup:
    """The gates of one run over the text, or its attention."""
    if one.depths:
        return section(f"Inside {name}", *transformer_parts(one))
    gates = one.gates.gates
    if not gates:
        return section(f"Inside {name}", paragraph("This model shows no gates."))
    parts = [paragraph(
        f"{title_of(one.run)}. Each column is a token as it is read; {BEGIN} opens the text. A square is the mean over "
        "the units of a layer; of values with a sign, |…|, the mean of their size (an LSTM's cell after its tanh). "
        "Point at one to read it."
    )]  # fmt: skip
    for layer in range(1, one.gates.layers + 1):
        rows = [_strip(gate, one.tokens) for gate in gates if gate.layer == layer]
        parts.append(strips(one.tokens[:GATE_TOKENS], rows, f"Layer {layer} of {one.gates.layers}."))
    parts.append(_units(one))
    if len(one.tokens) > GATE_TOKENS:
        parts.append(paragraph(f"Drawn are the first {GATE_TOKENS} of {len(one.tokens):,} tokens.", quiet=True))
    if one.gates.attention:
        parts.append(_attention(one))
    titles, table_rows = gate_table(one)
    parts.append(table(titles, table_rows, numeric=(0, 2, 3, 4)))
    parts.append(paragraph(SATURATED, quiet=True))
    return section(f"Inside {name}", *parts)


SATURATED = (
    f"low and high: the share of units below {SHUT} and above {OPEN}, where a gate is shut or open and hardly learns; "
    f"for hidden, candidate and cell (after tanh), below -{OPEN} and above {OPEN}."
)


def _strip(gate: Gate, tokens: Sequence[str]) -> Strip:
    label = f"|{gate.name}|" if gate.signed else gate.name
    every = zip(tokens, gate.mean.tolist(), gate.low.tolist(), gate.high.tolist(), strict=True)
    meanings = [
        f"{token} {gate.name}: mean {mean:.2f}, {low:.0%} low, {high:.0%} high" for token, mean, low, high in every
    ]
    return Strip(label, gate.strength.tolist()[:GATE_TOKENS], meanings[:GATE_TOKENS])


def _units(one: Look) -> Markup:
    """The units of the top layer's state that vary most, one by one."""
    states = [gate for gate in one.gates.gates if gate.name in ("hidden", "cell") and gate.layer == one.gates.layers]
    if not states:
        return Markup()
    gate = states[0]  # of an LSTM the cell, which comes first
    rows = []
    for unit in gate.busiest(SHOWN_UNITS):
        values = gate.bounded()[:GATE_TOKENS, unit].tolist()
        meanings = [f"{token} unit {unit}: {value:.2f}" for token, value in zip(one.tokens, values, strict=False)]
        rows.append(Strip(f"unit {unit}", values, meanings))
    caption = (
        f"The units of layer {gate.layer} that vary most, {gate.name}{' after tanh' if gate.name == 'cell' else ''}: "
        "bars above the line are positive, below it negative."
    )
    return bar_strips(one.tokens[:GATE_TOKENS], rows, caption)


def _attention(one: Look) -> Markup:
    tokens = one.tokens[:ATTENTION_TOKENS]
    caption = "What each token attends to: its row are the attention weights over the tokens before it, which sum to 1."
    if len(one.tokens) > ATTENTION_TOKENS:
        caption += f" The first {ATTENTION_TOKENS} tokens."
    figure = attention_rows(tokens, one.gates.attention[:ATTENTION_TOKENS], caption)
    return subsection("Attention", figure, heads_part(one.maps) if one.maps is not None else "")


def gate_table(one: Look) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows, as plain text: each gate of each layer, averaged over the text."""
    rows: list[tuple[str, ...]] = [
        (str(gate.layer), gate.name, f"{float(gate.mean.mean()):.2f}", f"{float(gate.low.mean()):.0%}",
         f"{float(gate.high.mean()):.0%}", MEANINGS.get(gate.name, ""))
        for gate in one.gates.gates
    ]  # fmt: skip
    return ("layer", "gate", "mean", "low", "high", "meaning"), rows
