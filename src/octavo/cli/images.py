"""What eval and inspect do with a run that classifies images, and the report on one that was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.flags import RunPath
from octavo.cli.output import print_json, print_table, write_page
from octavo.errors import UserError
from octavo.models.cost.parts import parameter_count
from octavo.tasks.image_attention import ImageAttention, attend_to_image
from octavo.tasks.image_run import ImageEvaluation, ImageRun
from octavo.tasks.images import evaluate_images, picture_of
from octavo.tasks.images_page import lens_page

ImageSource = Annotated[Positional[str], arg(metavar="IMAGES")]
MOST_CLASSES = 20  # that a table of confusions is printed of


def report(run: ImageRun, json: bool) -> None:
    """How it was trained and what it scores."""
    result, about = run.record.get("result", {}), run.record["images"]
    if json:
        short = {key: result[key] for key in result if key in ("accuracy", "standard_error", "examples", "log_loss")}
        print_json({"run": str(run.path), "train_seconds": run.record["train_seconds"], **short, "images": about})
        return
    training = run.record["training"]
    print(run.summary())
    print(f"held out: {about['split']}; learnt from {about['train']:,} images")
    print(f"trained in {run.record['train_seconds']:.1f} s, {training['steps']:,} steps: {training['why']}")
    print(f"the run is in {run.path}, with {Path(str(run.path), 'report.html')}; next:")
    print(f"  octavo eval {run.path}\n  octavo inspect {run.path} --image 0 --out look.html")


def eval_(run: RunPath, images: ImageSource = "", json: bool = False) -> None:
    """How often a run puts images into the right class; without images, those held out of its own.

    Example: octavo eval runs/vit

    Args:
        run: A run folder.
        images: A name or a folder, as for octavo train; its held-out part is measured.
        json: Print JSON.
    """
    measured = evaluate_images(ImageRun.load(run).check_finished(), images or None)
    if json:
        print_json(measured.scores.to_json() | {"wrong": [list(one) for one in measured.wrong]})
    else:
        _print_scores(measured)


def _print_scores(measured: ImageEvaluation) -> None:
    scores = measured.scores
    right = round(scores.accuracy * scores.examples)
    print(f"{scores.accuracy:.2%} right ({right:,} of {scores.examples:,}, standard error {scores.spread:.2%})")
    print(f"log loss {scores.log_loss:.4f} nats, macro F1 {scores.macro_f1:.4f}\n")
    if len(scores.classes) <= MOST_CLASSES:
        counted = zip(scores.classes, scores.confusion_CC, strict=True)
        print_table(("truth", *scores.classes), [(name, *(str(n or "") for n in row)) for name, row in counted])
        print("columns are the answers")
    else:
        worst = sorted(scores.per_class, key=lambda one: one["recall"])[:MOST_CLASSES]
        cells = [
            (one["class"], f"{one['recall']:.1%}", f"{one['precision']:.1%}", f"{one['examples']}") for one in worst
        ]
        print_table(("class", "found", "right when said", "images"), cells)


def inspect(run: RunPath, image: str | None = None, out: str | None = None, json: bool = False) -> None:
    """What a run is; with --image, what it makes of one image and where its heads look.

    Example: octavo inspect runs/vit --image 0 --out look.html

    Args:
        run: A run folder.
        image: The number of a held-out image, from 0, or a picture file.
        out: Where to write a page with the maps drawn over the image, such as look.html.
        json: Print JSON.
    """
    loaded = ImageRun.load(run).check_finished()
    if image is None:
        if out is not None:
            raise UserError("there must be an image to draw with --out; add --image 0, or a picture file")
        _print_run(loaded, json)
        return
    name, x_CHW, truth = picture_of(loaded, image)
    attention = attend_to_image(loaded, x_CHW)
    if json:
        print_json(_as_json(loaded, attention, truth))
    else:
        _print_attention(loaded, name, attention, truth)
    if out is not None:
        write_page(out, lens_page(loaded, name, x_CHW, truth))


def _print_run(run: ImageRun, json: bool) -> None:
    record = {
        "run": str(run.path), "model": run.model_name, "parameters": parameter_count(run.model),
        "sizes": run.model.sizes, "labels": list(run.labels), **run.record,
    }  # fmt: skip
    if json:
        print_json(record)
        return
    print(run.summary())
    about = run.record.get("images", {})
    print(f"  parameters     {record['parameters']:,}")
    print(f"  image          {' x '.join(str(run.model.sizes[key]) for key in ('height', 'width', 'channels'))}")
    print(f"  patches        {run.model.rows} x {run.model.columns}")
    print(f"  classes        {', '.join(run.labels)}")
    print(f"  learnt from    {about.get('train', '?')} images of {about.get('source', '?')}")
    print(f"  held out       {about.get('split', '?')}")


def _print_attention(run: ImageRun, name: str, attention: ImageAttention, truth: int | None) -> None:
    best = attention.p_V.topk(min(3, len(run.labels)))
    chances = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    print(f"{name}" + ("" if truth is None else f", a {run.labels[truth]}"))
    print("  " + "   ".join(f"{run.labels[v]} {p:.1%}" for v, p in chances) + "\n")
    rows = [
        (str(one.layer), str(one.head), f"{one.entropy:.2f}", f"{one.distance:.2f}", _strongest(one.seen_hw))
        for one in attention.heads
    ]
    print_table(("layer", "head", "entropy, bits", "patches away", "looks most at (row, column)"), rows, left=(4,))
    for one in attention.groups:
        print(f"layer {one.layer}, channel group {one.group}: {one.itself:.1%} of a channel is taken from itself")


def _strongest(seen_hw: Any) -> str:
    n = int(seen_hw.argmax())
    row, column = divmod(n, seen_hw.shape[1])
    return f"{row}, {column}: {float(seen_hw.max()):.1%}"


def _as_json(run: ImageRun, attention: ImageAttention, truth: int | None) -> dict[str, Any]:
    return {
        "answer": run.labels[attention.answer], "truth": None if truth is None else run.labels[truth],
        "probability": {label: round(p, 6) for label, p in zip(run.labels, attention.p_V.tolist(), strict=True)},
        "rollout": _rounded(attention.rollout_hw),
        "heads": [{"layer": one.layer, "head": one.head, "entropy": round(one.entropy, 4),
                   "distance": round(one.distance, 4), "seen": _rounded(one.seen_hw)} for one in attention.heads],
        "channels": [{"layer": one.layer, "group": one.group, "itself": round(one.itself, 4)}
                     for one in attention.groups],
    }  # fmt: skip


def _rounded(map_hw: Any) -> list[list[float]]:
    return [[round(value, 5) for value in row] for row in map_hw.tolist()]
