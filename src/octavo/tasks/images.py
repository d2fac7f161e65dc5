"""Images from Python: train, load, evaluate and look into models that classify them.

from octavo import images
run = images.train("vit", "digits", out="runs/vit")
images.evaluate(run).accuracy
images.classify(run, "seven.png")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from octavo.config import configs_from
from octavo.datasets.idx import has_idx
from octavo.datasets.images import NAMED, open_images
from octavo.errors import UserError
from octavo.io.run_folder import read_record
from octavo.scoring.classification import Classified
from octavo.tasks.image_attention import Sight, look
from octavo.tasks.image_run import VISION, ImageRun, Measured, load_images, measure
from octavo.tasks.image_training import ImageLoopConfig, ImageRecipe, held_out_images, resume_images, train_images
from octavo.tasks.images_page import image_page_maker
from octavo.training.optimizer import OptimizerConfig

__all__ = ["ImageRun", "Sight", "classify", "evaluate", "load", "look", "open_images", "resume", "train"]


def train(
    model: str, source: str | Path, *, out: str | Path | None = None, seed: int = 0, device: str = "auto",
    **settings: Any,
) -> ImageRun:  # fmt: skip
    """Train vit or davit on digits, mnist5k, fashion or a folder; settings are the model's, the loop's and the
    optimizers': width=128, attention="axial", budget="60s", shift=1, rate=0.002, ...
    """
    if model not in VISION:
        raise UserError(f"models for images are {', '.join(VISION)}: there is no {model!r}")
    usual = VISION[model][1](), ImageLoopConfig(), OptimizerConfig()
    config, loop, optim = configs_from(model, usual, settings, ("out", "seed", "device"))
    return train_with_page(ImageRecipe(model, config, loop, optim, seed, device), source, out)


def train_with_page(recipe: ImageRecipe, source: str | Path, out: str | Path | None) -> ImageRun:
    """Train from made configs; a run that is saved gets its report.html."""
    page = image_page_maker(recipe, source, out) if out is not None else None
    return train_images(recipe, source, out, page)


def resume(path: str | Path, *, budget: str | None = None) -> ImageRun:
    """Go on with the training of a run that was stopped; or, with a larger budget, of any."""
    told = read_record(path)
    recipe = ImageRecipe.of(told)
    recipe = dataclasses.replace(recipe, loop=dataclasses.replace(recipe.loop, budget=budget or recipe.loop.budget))
    about = told.get("images")
    source = about.get("source", "") if isinstance(about, dict) else ""
    return resume_images(path, budget, image_page_maker(recipe, str(source), path))


def load(path: str | Path) -> ImageRun:
    """The run in a folder; reading it runs no code of the folder's."""
    run = load_images(path)
    if run.unfinished:
        raise UserError(f"{path}: its training is not finished; go on with: octavo resume {path}")
    return run


def evaluate(run: ImageRun, source: str | Path | None = None) -> Classified:
    """How good the run is on the held-out images of a source; without one, of its own."""
    return evaluate_images(run, source).scores


def evaluate_images(run: ImageRun, source: str | Path | None = None) -> Measured:
    """The same, with the images that it got wrong."""
    images = held_out_images(run) if source is None else open_images(source, _side(run, source))
    if images.labels != run.labels or images.sizes != run.model.sizes:
        raise UserError(
            f"the images must be like those the run was trained on: {_told(run.model.sizes, run.labels)}; "
            f"{source} has {_told(images.sizes, images.labels)}"
        )
    return measure(run, images.test_NCHW, images.test_N)


def _told(sizes: Mapping[str, int], labels: Sequence[str]) -> str:
    return f"{sizes['height']} x {sizes['width']} x {sizes['channels']} pixels, classes {', '.join(labels)}"


def classify(run: ImageRun, image: str | Path | Tensor) -> dict[str, float]:
    """The probability of each class: of a picture file, or of bytes x_CHW of the model's own size."""
    x_CHW = image if isinstance(image, Tensor) else run.read(image)
    return dict(zip(run.labels, run.classify(x_CHW[None])[0].tolist(), strict=True))


def picture_of(run: ImageRun, image: str) -> tuple[str, Tensor, int | None]:
    """What to call it, x_CHW and, where it is known, the class: of a held-out image by number, or of a file."""
    if not image.isdecimal():
        return image, run.read(image), None
    images, n = held_out_images(run), int(image)
    if n >= len(images.test_N):
        raise UserError(f"held-out images are numbered from 0 to {len(images.test_N) - 1:,}: image={n}; try --image 0")
    return f"held-out image {n}", images.test_NCHW[n], int(images.test_N[n])


def _side(run: ImageRun, source: str | Path) -> int:
    """Pictures of a folder are brought to the model's size, where that is square; other images have one already."""
    pictures = str(source) not in NAMED and not has_idx(Path(source))
    return run.model.sizes["width"] if pictures and run.model.sizes["width"] == run.model.sizes["height"] else 0
