"""What eval and inspect do with a run that classifies images, and the report on one that was trained."""

from __future__ import annotations

from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.classify import print_result as print_result
from octavo.cli.flags import Device, MaybeNewPath, RunPath
from octavo.cli.inspect import show_description
from octavo.cli.output import Output, print_table, write_page
from octavo.config import rounded
from octavo.errors import UserError
from octavo.inspection.api import describe_run
from octavo.tasks.device import ONE_IMAGE, place
from octavo.tasks.image_attention import ImageAttention, attend_to_image
from octavo.tasks.images import ImageRun, evaluate_images, picture_of
from octavo.tasks.images_page import lens_page

DIGITS = 6  # of the weights in JSON
ImageSource = Annotated[Positional[str], arg(metavar="IMAGES")]


def eval_(run: RunPath, images: ImageSource = "", device: Device = "auto") -> Output:
    """How often a run puts images into the right class; without images, those held out of its own.

    Example: octavo eval runs/vit

    Args:
        images: A name or a folder, as for octavo train; its held-out part is measured.
    """
    measured = evaluate_images(place(ImageRun.load(run).check_finished(), device), images or None)
    result = measured.scores.to_json()
    return Output(result | {"wrong": [list(one) for one in measured.wrong]}, lambda: print_result(result))


def inspect(
    run: RunPath, image: str | None = None, out: MaybeNewPath = None, device: Device = "auto"
) -> Output:  # fmt: skip
    """What a run is; with --image, what it makes of one image and where its heads look.

    Example: octavo inspect runs/vit --image 0 --out look.html

    Args:
        image: The number of a held-out image, from 0, or a picture file.
        out: Where to write a page with the maps drawn over the image, such as look.html.
    """
    loaded = ImageRun.load(run).check_finished()
    if image is None:
        if out is not None:
            raise UserError("there must be an image to draw with --out; add --image 0, or a picture file")
        return show_description(describe_run(loaded))
    place(loaded, device, ONE_IMAGE)
    name, x_CHW, truth = picture_of(loaded, image)
    attention = attend_to_image(loaded, x_CHW)
    if out is not None:
        write_page(out, lens_page(loaded, name, x_CHW, truth))
    return Output(lambda: _as_json(loaded, attention, truth), lambda: _print_attention(loaded, name, attention, truth))


def _print_attention(run: ImageRun, name: str, attention: ImageAttention, truth: int | None) -> None:
    best = attention.p_V.topk(min(3, len(run.labels)))
    chances = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    print(f"{name}" + ("" if truth is None else f", a {run.labels[truth]}"))
    print("  " + "   ".join(f"{run.labels[v]} {p:.1%}" for v, p in chances) + "\n")
    rows = [
        (str(one.layer), str(one.head), f"{one.entropy:.2f}", f"{one.distance:.2f}", _strongest(one.seen_hw))
        for one in attention.heads
    ]
    print_table(("layer", "head", "entropy, bits", "patches away", "attends most to (row, column)"), rows, left=(4,))
    for one in attention.groups:
        print(f"layer {one.layer}, channel group {one.group}: {one.itself:.1%} of a channel is taken from itself")


def _strongest(seen_hw: Any) -> str:
    n = int(seen_hw.argmax())
    row, column = divmod(n, seen_hw.shape[1])
    return f"{row}, {column}: {float(seen_hw.max()):.1%}"


def _as_json(run: ImageRun, attention: ImageAttention, truth: int | None) -> dict[str, Any]:
    found = {
        "answer": run.labels[attention.answer], "truth": None if truth is None else run.labels[truth],
        "probability": dict(zip(run.labels, attention.p_V.tolist(), strict=True)),
        "rollout": attention.rollout_hw.tolist(),
        "heads": [{"layer": one.layer, "head": one.head, "entropy": one.entropy, "distance": one.distance,
                   "seen": one.seen_hw.tolist()} for one in attention.heads],
        "channels": [{"layer": one.layer, "group": one.group, "itself": one.itself} for one in attention.groups],
    }  # fmt: skip
    return dict(rounded(found, DIGITS))
