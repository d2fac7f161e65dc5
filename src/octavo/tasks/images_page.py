"""The pages of an image classifier: accuracy, the confusion matrix, its mistakes, and attention maps over images.

C channels, H and W pixels, h and w patches.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch.nn.functional as F
from markupsafe import Markup
from torch import Tensor

from octavo.datasets.images import Images
from octavo.io.files import thousands
from octavo.models import parameter_count
from octavo.ops.attention.kinds import ATTENTION_KINDS
from octavo.pages.figures.shaded_cells import Thumbnail, image_symbol, thumbnails
from octavo.pages.markup import NOTHING, element, join
from octavo.pages.sections import facts, paragraph, render_page, section, table
from octavo.tasks.classification_page import classification_result
from octavo.tasks.image_attention import ImageAttention, attend_to_image
from octavo.tasks.images import ImageEvaluation, ImageRun
from octavo.tasks.run_page import PageContent

SHOWN_MISTAKES = 24
SHOWN_IMAGES = 3  # with their attention maps
CHANNEL_SHADES = 16  # that a channel is drawn with
MAX_PIXELS = 56  # along a side that are drawn; of a larger image several share a square

EXPLAINED = (
    "Orange are the attention weights of {who}: the patch with the largest in full colour, the one with the smallest "
    "in none; below a map, the entropy and the mean distance of the attention. Attention rollout multiplies the "
    "attention of all layers, averaged over the heads, with half of each layer passed on by the residual connection. "
    "Attention shows which patches are read, not why the answer is what it is."
)


def page_content(run: ImageRun, images: Images, measured: ImageEvaluation, out: Path) -> PageContent:
    """What the page shows."""
    name = images.name
    first = dict(reversed([(y, n) for n, y in enumerate(images.test_N.tolist())]))  # the first image of each class
    shown = sorted(first.items())[:SHOWN_IMAGES]
    maps = [attention_part(run, f"image {n}", images.test_NCHW[n], y) for y, n in shown]
    data = [("training images", f"{len(images.train_N):,}"), ("held out", images.split)]
    commands = [["octavo", "eval", str(out)], ["octavo", "inspect", str(out), "--image", "0"]]
    lead = f"A {run.model_name} that classifies {name} into {len(run.labels)} classes."
    return PageContent(f"{run.model_name} on {name}", lead, [
        classification_result(run.record["result"]), _mistakes(run, images, measured),
        section("Attention maps", *maps, _explained(run)),
    ], [_model(run), section("Images", facts(data))], commands)  # fmt: skip


def lens_page(run: ImageRun, name: str, x_CHW: Tensor, truth: int | None) -> str:
    """One image, and the attention maps of every head."""
    maps = attention_part(run, "", x_CHW, truth, every_layer=True)
    return render_page(f"Attention of {run.model_name}", f"{run.summary()}.", [section(name, maps, _explained(run))])


def attention_part(
    run: ImageRun, name: str, x_CHW: Tensor, truth: int | None, every_layer: bool = False
) -> Markup:  # fmt: skip
    """An image and its attention maps: with `every_layer` of all of them, else of the first and the last."""
    attention = attend_to_image(run, x_CHW)
    identity = "i" + hashlib.sha256(name.encode() + x_CHW.contiguous().numpy().tobytes()).hexdigest()[:12]
    answer = f"predicted {run.labels[attention.answer]}, {float(attention.p_V[attention.answer]):.0%}"
    image = Thumbnail(identity, x_CHW.shape[1], x_CHW.shape[2], "image" if truth is None else run.labels[truth], answer)
    rollout = image._replace(title="rollout", words="all layers", weights=attention.rollout_hw.tolist())
    parts = [_symbol(identity, x_CHW), element("h3", name) if name else "", thumbnails([image, rollout])]
    layers = sorted({head.layer for head in attention.heads})
    for layer in layers if every_layer else sorted({layers[0], layers[-1]}):
        parts += [paragraph(f"Layer {layer} of {len(run.model.blocks)}", quiet=True), thumbnails([
            image._replace(title=f"head {head.head}", weights=head.seen_hw.tolist(),
                           words=f"{head.entropy:.1f} bits, {head.distance:.1f} patches away")
            for head in attention.heads if head.layer == layer
        ])]  # fmt: skip
    return join(*parts, _channels(attention) if every_layer else "")


def _symbol(name: str, x_CHW: Tensor) -> Markup:
    """The image in few colours, and of a large one several pixels in a square."""
    by = -(-max(x_CHW.shape[1:]) // MAX_PIXELS)
    small_CHW = F.avg_pool2d(x_CHW.float()[None], by, ceil_mode=True)[0] if by > 1 else x_CHW.float()
    steps = CHANNEL_SHADES - 1
    shades_HWC = ((small_CHW * steps / 255).round() * 255 / steps).round().long().movedim(0, -1)
    pixels = [
        ["#" + "".join(f"{shade:02x}" for shade in (colour * 3 if len(colour) == 1 else colour)) for colour in row]
        for row in shades_HWC.tolist()
    ]
    return image_symbol(name, pixels)


def _channels(attention: ImageAttention) -> Markup:
    """Channel attention has no place in the image; how much the channels mix is a number."""
    if not attention.groups:
        return NOTHING
    rows = [(str(one.layer), str(one.group), f"{one.itself:.1%}") for one in attention.groups]
    explained = "Layers in between attend to channels, over all of the image; the weight of a channel on itself:"
    return join(paragraph(explained), table(("layer", "group", "on itself"), rows, numeric=range(3)))


def _explained(run: ImageRun) -> Markup:
    who = "the class token" if run.model.config.pool == "token" else "an average patch"
    return paragraph(EXPLAINED.format(who=who), quiet=True)


def _mistakes(run: ImageRun, images: Images, measured: ImageEvaluation) -> Markup:
    if not measured.wrong:
        return section("Mistakes", paragraph("None on the held-out images."))
    symbols, drawn = [], []
    for n, answer, p in measured.wrong[:SHOWN_MISTAKES]:
        x_CHW, truth = images.test_NCHW[n], run.labels[int(images.test_N[n])]
        symbols.append(_symbol(f"w{n}", x_CHW))
        words = f"predicted {run.labels[answer]}, {p:.0%}"
        drawn.append(Thumbnail(f"w{n}", x_CHW.shape[1], x_CHW.shape[2], truth, words))
    count = f"{len(measured.wrong):,}" + (f", {len(drawn)} shown" if len(measured.wrong) > len(drawn) else "")
    return section("Mistakes", paragraph(f"The most confident first ({count})."), *symbols, thumbnails(drawn))


def _model(run: ImageRun) -> Markup:
    model, config = run.model, run.model.config
    P = model.patch_DCPP.shape[-1]
    return section("Model", facts([
        ("parameters", thousands(parameter_count(model))),
        ("image", " x ".join(str(model.sizes[key]) for key in ("height", "width", "channels"))),
        ("patches", f"{model.rows} x {model.columns}, of {P} x {P} pixels"),
        ("blocks", f"{config.layers}, of width {config.width}, {config.heads} heads"),
        ("a patch attends to", ATTENTION_KINDS[config.attention].description), ("position embedding", config.positions),
        ("class read from", config.pool),
    ]))  # fmt: skip
