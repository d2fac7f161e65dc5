"""A page for each model, from its spec: the equation, what it is, what it costs, its settings and presets."""

from __future__ import annotations

import html
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import octavo
from command_line import asked, flag_table, plain
from octavo.costs.models import one_token
from octavo.models import MODELS
from octavo.models.spec import ModelSpec

VOCAB = 257  # bytes, and the token that begins a text
# As `octavo classify train` names them.
CLASSIFIERS = {"linear-classifier": "linear", "dan": "dan", "sequence-classifier": "sequence", "head": "head"}
FITTING = {"gradient": "trained step by step", "counts": "fitted to counts", "mixture": "made of trained models"}


def pages() -> dict[str, str]:
    """reference/models/NAME.md for every built-in model, and their index."""
    by_family: dict[str, list[ModelSpec]] = defaultdict(list)
    for spec in MODELS.values():
        by_family[spec.family].append(spec)
    lines = ["# Models", "", "Every model that octavo has, by family. `octavo compare` sets those that predict the "
             "next token side by side; [a model of your own](../../extending.md) joins them."]  # fmt: skip
    for family, specs in by_family.items():
        lines += ["", f"## {family.capitalize()}", "", "| model | what it is |", "|---|---|"]
        for spec in specs:
            lines.append(f"| [`{spec.name}`]({spec.name}.md) | {plain(spec.description)} |")
            lines += [f"| [`{name}`]({spec.name}.md#presets) | {plain(one.description)} |"
                      for name, one in spec.presets.items()]  # fmt: skip
    made = {"reference/models/index.md": "\n".join(lines) + "\n"}
    return made | {f"reference/models/{spec.name}.md": "\n".join(_model_lines(spec)) + "\n" for spec in MODELS.values()}


def _model_lines(spec: ModelSpec) -> Iterator[str]:
    yield f"# {spec.title[0].upper() + spec.title[1:]}"
    yield ""
    yield plain(spec.description[0].upper() + spec.description[1:]) + "."
    yield ""
    yield typeset(spec.equation)
    yield ""
    yield "| | |"
    yield "|---|---|"
    for what, value in _facts(spec).items():
        yield f"| {what} | {value} |"
    if spec.presets:
        yield from ("", "## Presets", "", "| name | what it is |", "|---|---|")
        for name, preset in spec.presets.items():
            yield f"| `octavo train {name}` | {plain(preset.description)} |"
    settings = [row for title, rows in flag_table(asked(*_command(spec))) if title == "The model" for row in rows]
    if settings:
        yield from ("", "## Settings", "", "| flag | what it is | default |", "|---|---|---|", *settings)
    page = {"classification": "classify", "tagging": "tag"}.get(spec.task, "train")
    anchor = "-".join(["octavo", *_command(spec)])
    yield from ("", f"All flags of the command, training included: [`octavo {' '.join(_command(spec))}`]"
                    f"(../commands/{page}.md#{anchor}).")  # fmt: skip


def _facts(spec: ModelSpec) -> dict[str, str]:
    source = Path(inspect.getfile(spec.model)).relative_to(Path(octavo.__file__).parents[2])
    facts = {"command": f"`octavo {' '.join(_command(spec))}`", "family": spec.family, "task": spec.task,
             "how it is fitted": FITTING[spec.fitting]}  # fmt: skip
    if spec.cost is not None and spec.task == "language":
        facts |= _costs(spec)
    if spec.views:
        facts["`octavo inspect` shows"] = ", ".join(view.title.lower() for view in spec.views)
    if spec.exports:
        facts["`octavo export` writes"] = ", ".join(f"`{one}`" for one in spec.exports)
    return facts | {"class, settings": f"`{spec.model.__name__}`, `{spec.config.__name__}`", "source": f"`{source}`"}


def _costs(spec: ModelSpec) -> dict[str, str]:
    """As the settings stand, of bytes."""
    assert spec.cost is not None
    config = spec.config()
    cost = spec.cost(config, VOCAB, one_token(config))
    if not cost.parameters:
        return {"cost": "no product: probabilities are looked up"}
    return {
        "parameters, of bytes": f"{cost.parameters:,}",
        "operations to read a byte": f"{cost.total('forward'):,}, the context full",
    }


def _command(spec: ModelSpec) -> tuple[str, ...]:
    if spec.task == "tagging":
        return "tag", "train", spec.name
    if spec.name in CLASSIFIERS:
        return "classify", "train", CLASSIFIERS[spec.name]
    return "train", spec.name


def typeset(equation: str) -> str:
    """Equations as HTML: letters of one or two characters in italics, what follows _ below the line."""
    lines = []
    for line in equation.splitlines():
        words = re.split(r"([ ()\[\],;:|]+)", line)
        lines.append("".join(map(_symbol, words)))
    return '<div class="equation">' + "<br>".join(lines) + "</div>"


def _symbol(word: str) -> str:
    letter, _, below = word.partition("_")
    below, braced, after = below[1:].partition("}") if below.startswith("{") else (below, "", "")
    match = re.fullmatch(r"(\w+?)([\[(].*)?", below)
    if not braced and match:
        below, after = match[1], match[2] or ""
    shown = f"<i>{letter}</i>" if re.fullmatch(r"[A-Za-zα-ωΑ-Ω]", letter) and letter != "Σ" else html.escape(letter)
    return shown + (f"<sub>{html.escape(below)}</sub>" if below else "") + html.escape(after)
