"""The pages of a model that classifies images: how often it is right, what it takes for what, where it looks."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from octavo.datasets.images import Images
from octavo.ops.attention.kinds import ATTENTION_KINDS
from octavo.pages.figures.heat_table import Cell, heat_table
from octavo.pages.figures.images import STYLE, symbol, thumb, thumbs
from octavo.pages.figures.lines import Series, lines
from octavo.pages.frame import definitions, document, paragraph, section, shown, table, verbatim
from octavo.scoring.classification import Classified
from octavo.tasks.image_attention import Sight, look
from octavo.tasks.image_run import ImageRun, Measured
from octavo.tasks.image_training import ImageRecipe, Page
from octavo.tasks.reproduce import flags_of

MISTAKES = 24  # drawn
LOOKED_AT = 3  # images
MOST_CLASSES = 24  # that a table of confusions has room for

MAPS = (
    "Orange is where a head looks: the patch that {who} takes most of in full colour, the one it takes least of in "
    "none; below it, the entropy of its looks and how far away they are. Rollout follows all "
    "layers: each keeps half of what it had and adds what its heads see on average. "
    "Attention shows what is looked at, not why the answer is what it is."
)


def image_page_maker(recipe: ImageRecipe, source: str | Path, out: str | Path) -> Page:
    """What training calls with the run, the images, what was measured and the metrics to get the page."""
    words = ["octavo", "train", recipe.model, str(source)]
    words += [flag for one in (recipe.config, recipe.loop, recipe.optim) for flag in flags_of(one)]
    words += [*(["--seed", str(recipe.seed)] if recipe.seed else []), "--out", str(out)]
    commands = [words, ["octavo", "eval", str(out)], ["octavo", "inspect", str(out), "--image", "0"]]
    lines = [shlex.join(one) for one in commands]
    return lambda run, images, measured, rows: run_page(run, images, measured, rows, lines)


def run_page(
    run: ImageRun, images: Images, measured: Measured, rows: Sequence[Mapping[str, Any]], commands: Sequence[str]
) -> str:
    """The whole page."""
    scores, about = measured.scores, run.record.get("images", {})
    lead = paragraph(f"A {run.name} that tells the {len(run.labels)} classes of {about.get('name', 'images')} apart.")
    looked = [(f"image {n}", images.test_NCHW[n], images.test_N[n]) for n in _one_of_each(images.test_N)]
    return document(
        f"{run.name} on {about.get('name', 'images')}", lead,
        [
            _result(scores, about), confusion(scores), _mistakes(run, images, measured),
            section("Where it looks", *[part for name, x, y in looked for part in sight_parts(run, name, x, int(y))],
                    paragraph(_explained(run), "quiet")),
            _learning(rows, run.record), _inside(run),
            section("Make it again", verbatim("\n".join(commands)),
                    definitions([(k, str(v)) for k, v in run.record.get("made_with", {}).items()])),
        ],
        STYLE,
    )  # fmt: skip


def lens_page(run: ImageRun, name: str, x_CHW: Tensor, truth: int | None) -> str:
    """One image, and where every head looks."""
    lead = paragraph(f"{run.summary()}.")
    return document(f"Where {run.name} looks", lead, [
        section(name, *sight_parts(run, "", x_CHW, truth, every=True), paragraph(_explained(run), "quiet")),
    ], STYLE)  # fmt: skip


def sight_parts(run: ImageRun, name: str, x_CHW: Tensor, truth: int | None, every: bool = False) -> list[str]:
    """An image and its maps below its name, if any: of all layers with `every`, else of the first and the last."""
    sight = look(run, x_CHW)
    identity = "i" + hashlib.sha256(name.encode() + x_CHW.contiguous().numpy().tobytes()).hexdigest()[:12]
    said = f"{run.labels[sight.answer]}, {float(sight.p_V[sight.answer]):.0%}"
    title = "the image" if truth is None else f"a {run.labels[truth]}"
    drawn = [
        thumb(identity, x_CHW, title, f"said: {said}"),
        thumb(identity, x_CHW, "rollout", "all layers", sight.rollout_hw),
    ]
    layers = sorted({head.layer for head in sight.heads})
    shown_layers = layers if every else sorted({layers[0], layers[-1]})
    parts = [symbol(identity, x_CHW), f"<h3>{shown(name)}</h3>" if name else "", thumbs(drawn)]
    for layer in shown_layers:
        heads = [head for head in sight.heads if head.layer == layer]
        parts.append(paragraph(f"Layer {layer} of {len(run.model.blocks)}", "quiet"))
        parts.append(thumbs([
            thumb(identity, x_CHW, f"head {head.head}", f"{head.entropy:.1f} bits, {head.distance:.1f} patches away",
                  head.seen_hw) for head in heads
        ]))  # fmt: skip
    return [*parts, *(_channels(sight) if every else [])]


def _channels(sight: Sight) -> list[str]:
    """The layers that look at channels have no place in the image; how much they mix is a number."""
    if not sight.groups:
        return []
    rows = [(str(one.layer), str(one.group), f"{one.itself:.1%}") for one in sight.groups]
    told = "Layers in between look at channels, over all of the image; a channel takes so much of itself:"
    return [paragraph(told), table(("layer", "group", "of itself"), rows, right=range(3))]


def _explained(run: ImageRun) -> str:
    return MAPS.format(who="the class's token" if run.model.config.pool == "token" else "an average patch")


def _one_of_each(y_N: Tensor) -> list[int]:
    """The first images of a few classes."""
    found: dict[int, int] = {}
    for n, y in enumerate(y_N.tolist()):
        found.setdefault(y, n)
    return [found[y] for y in sorted(found)][:LOOKED_AT]


def _result(scores: Classified, about: Mapping[str, Any]) -> str:
    right = round(scores.accuracy * scores.examples)
    told = [
        ("right", f"{right:,} of {scores.examples:,}"), ("standard error", f"{scores.spread:.2%}"),
        ("held out", str(about.get("split", ""))), ("learnt from", f"{about.get('train', 0):,} images"),
        ("log loss", f"{scores.log_loss:.4f} nats"), ("confidence", f"off by {scores.ece:.1%} on average"),
    ]  # fmt: skip
    number = f'<p class="number">{scores.accuracy:.2%} <small>of the held-out images in the right class</small></p>'
    quiet = paragraph("The held-out images have chosen nothing: the weights are those of the last step.", "quiet")
    return section("Accuracy", number, definitions(told), quiet)


def confusion(scores: Classified) -> str:
    """Rows are the true classes, columns the answers; where there are many classes, the most common mistakes."""
    names, C = scores.classes, range(len(scores.classes))
    mixed = sorted(((scores.confusion_CC[i][j], i, j) for i in C for j in C if i != j), reverse=True)
    if len(names) <= MOST_CLASSES:
        most = max([n for n, _, _ in mixed], default=0) or 1
        rows = [
            (name, [Cell(str(n or ""), 0.0 if i == j else n / most, f"{name} taken for {names[j]}: {n}")
                    for j, n in enumerate(scores.confusion_CC[i])]) for i, name in enumerate(names)
        ]  # fmt: skip
        return section(
            "What it takes for what", heat_table(("", *names), rows, "Rows: the truth. Columns: the answer.")
        )
    cells = [(shown(names[i]), shown(names[j]), str(n)) for n, i, j in mixed[:MISTAKES]]
    return section("What it takes for what", table(("truth", "answer", "images"), cells, right=(2,)))


def _mistakes(run: ImageRun, images: Images, measured: Measured) -> str:
    if not measured.wrong:
        return section("Its mistakes", paragraph("None on the held-out images."))
    parts = []
    for n, said, p in measured.wrong[:MISTAKES]:
        truth, x_CHW = run.labels[int(images.test_N[n])], images.test_NCHW[n]
        words = f"said: {run.labels[said]}, {p:.0%}"
        parts += [symbol(f"w{n}", x_CHW), thumb(f"w{n}", x_CHW, truth, words)]
    symbols, drawn = parts[::2], parts[1::2]
    count = f"{len(measured.wrong):,}" + (f", {MISTAKES} drawn" if len(measured.wrong) > MISTAKES else "")
    return section("Its mistakes", paragraph(f"The surest first ({count})."), *symbols, thumbs(drawn))


def _learning(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    points = [(float(row["step"]), 100 * float(row["accuracy"])) for row in rows if "accuracy" in row]
    training = record.get("training", {})
    figure = lines([Series("held-out images", points)], "Right, in per cent, over the steps.", ("step", "%"))
    steps, epoch = training.get("steps", 0), max(1, training.get("steps_per_epoch", 1))
    told = [
        ("steps", f"{steps:,}, {steps / epoch:.1f} times through the images"),
        ("seconds", f"{record.get('train_seconds', 0):.0f}"),
        ("it ended", str(training.get("why", ""))),
    ]
    return section("How it learnt", figure, definitions(told))


def _inside(run: ImageRun) -> str:
    model, config = run.model, run.model.config
    P = model.patch_DCPP.shape[-1]
    told = [
        ("parameters", f"{sum(p.numel() for p in model.parameters()):,}"),
        ("image", " x ".join(str(model.sizes[key]) for key in ("height", "width", "channels"))),
        ("patches", f"{model.rows} x {model.columns}, of {P} x {P} pixels"),
        ("blocks", f"{config.layers}, of width {config.width}, {config.heads} heads"),
        ("attention", f"{config.attention}: {ATTENTION_KINDS[config.attention].description}"),
        ("positions", config.positions), ("class read from", config.pool),
    ]  # fmt: skip
    return section("Inside", definitions(told))
