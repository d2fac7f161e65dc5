"""How a model learns to classify images: shuffled batches, each image shifted a little, until the budget is spent.

N images, B of a batch, C channels, H and W pixels.
"""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.config import from_json
from octavo.core import seeded_generator
from octavo.datasets.images import Images, open_images, shifted
from octavo.errors import UserError
from octavo.io.run_folder import METRICS, REPORT, STATE, check_out, read_record
from octavo.models.vit import VitConfig
from octavo.tasks.count_training import pick_device
from octavo.tasks.image_run import VISION, ImageRun, Measured, Scaling, load_images, measure, save_images
from octavo.training.batch_loop import Fit, fit
from octavo.training.checkpoint import FILE
from octavo.training.optimizer import OptimizerConfig
from octavo.training.schedule import Budget

Page = Callable[[ImageRun, Images, Measured, list[dict[str, Any]]], str]


@dataclass(frozen=True)
class ImageLoopConfig:
    """How long, and with what batches, a model of images is trained."""

    budget: str = "2000steps"
    """How long to train: 2000steps, 90s or 3min."""
    batch: int = 64
    """Images between two changes of the weights."""
    shift: int = -1
    """By how many pixels, at most, each image is moved while learning, in either direction; -1: a fourteenth."""
    flip: bool = False
    """Mirror half of the images, left and right: for things, not for letters."""
    side: int = 0
    """A folder of pictures: their width and height in pixels; 0: their own, or 32 where they differ."""
    split: Literal["shuffled", "last"] = "shuffled"
    """Where images have no test part, a fifth of each class is held out: drawn once and for all, or the last ones."""
    checks: int = 10
    """How often the held-out images are looked at on the way; that chooses nothing."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: products in bfloat16 where the machine has instructions for them."""

    def __post_init__(self) -> None:
        if Budget.parse(self.budget).kind == "tokens":
            raise UserError(f"images are no tokens: budget={self.budget!r}; try 2000steps or 90s")
        for name in ("batch", "checks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1: {name}={getattr(self, name)}; leave it out")
        for name, least in (("shift", -1), ("side", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}: {name}={getattr(self, name)}; leave it out")


@dataclass(frozen=True)
class ImageRecipe:
    """All that a trained model depends on but the images."""

    model: str
    config: VitConfig
    loop: ImageLoopConfig
    optim: OptimizerConfig
    seed: int = 0
    device: str = "auto"

    def to_json(self) -> dict[str, Any]:
        return {"loop": dataclasses.asdict(self.loop), "optim": dataclasses.asdict(self.optim), "device": self.device}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ImageRecipe:
        """That of a saved run."""
        try:
            training = told["training"]
            return cls(
                told["model"], from_json(VISION[told["model"]][1], told["config"]),
                from_json(ImageLoopConfig, training["loop"]), from_json(OptimizerConfig, training["optim"]),
                int(told["seed"]), str(training["device"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the run does not say how it was trained: {error!r}; train it anew") from error


def train_images(
    recipe: ImageRecipe,
    source: str | Path,
    out: str | Path | None = None,
    page: Page | None = None,
    quiet: bool = False,
) -> ImageRun:
    """Train on the images of a source and measure on those held out; with `out`, the run is saved as it goes."""
    if out is not None:
        check_out(out)
    images = open_images(source, recipe.loop.side, recipe.loop.split)
    kind = VISION[recipe.model][0]
    model = kind(recipe.config, **images.sizes)
    model.initialise(seeded_generator(recipe.seed))
    run = ImageRun(model, images.labels, Scaling.of(images.train_NCHW), _record(recipe, source, images))
    if out is not None:  # so that it can be taken up again, whenever it is killed
        save_images(run, out)
    return _go_on(run, recipe, images, page, quiet)


def resume_images(
    path: str | Path, budget: str | None = None, page: Page | None = None, quiet: bool = False
) -> ImageRun:
    """Go on with training that was stopped, as if it had not been; or, with a larger budget, with a finished run."""
    told = read_record(path)
    recipe = ImageRecipe.of(told)
    recipe = dataclasses.replace(recipe, loop=dataclasses.replace(recipe.loop, budget=budget or recipe.loop.budget))
    run = load_images(path)
    if not Path(path, STATE, FILE).is_file():
        raise UserError(f"{path} has no {STATE}/{FILE}, so it cannot be taken up again; train it anew")
    about = told.get("images")
    if not isinstance(about, dict) or not isinstance(about.get("source"), str):
        raise UserError(f"{path} does not say on which images it was trained; train it anew")
    images = open_images(about["source"], recipe.loop.side, recipe.loop.split)
    if images.identity != about.get("sha256"):
        raise UserError(f"the images of {about['source']} are not those {path} was trained on; train it anew")
    run.record["training"] = {**recipe.to_json(), "finished": False}
    return _go_on(run, recipe, images, page, quiet)


def held_out_images(run: ImageRun) -> Images:
    """The images that a run was trained and measured on, as they are now."""
    about = run.record.get("images")
    if not isinstance(about, dict) or not isinstance(about.get("source"), str):
        raise UserError("the run does not say on which images it was trained; name some")
    loop = from_json(ImageLoopConfig, run.record.get("training", {}).get("loop", {}))
    images = open_images(about["source"], loop.side, loop.split)
    if images.labels != run.labels or images.sizes != run.model.sizes:
        raise UserError(f"the images of {about['source']} are no longer those the run was trained on; name others")
    return images


def _go_on(run: ImageRun, recipe: ImageRecipe, images: Images, page: Page | None, quiet: bool) -> ImageRun:
    """Train from wherever the run's folder says it is, measure, save."""
    device, smoothing = pick_device(recipe.device), recipe.optim.label_smoothing

    def objective(batch: tuple[Tensor, Tensor]) -> Tensor:
        x_BCHW, y_B = batch
        return F.cross_entropy(run.model(run.pixels(x_BCHW)).float(), y_B, label_smoothing=smoothing)

    def check() -> dict[str, float]:
        return {"accuracy": measure(run, images.test_NCHW, images.test_N).scores.accuracy}

    run.model.train()
    told = fit(
        run.model, objective, Batches(images, recipe.loop, recipe.seed, device), budget=recipe.loop.budget,
        optim=recipe.optim, seed=recipe.seed, device=device, precision=recipe.loop.precision, check=check,
        checks=recipe.loop.checks, folder=run.path, quiet=quiet,
    )  # fmt: skip
    run.model.eval()
    return _finished(run, recipe, images, told, page)


def _finished(run: ImageRun, recipe: ImageRecipe, images: Images, told: Fit, page: Page | None) -> ImageRun:
    measured = measure(run, images.test_NCHW, images.test_N)
    run.record |= {
        "train_seconds": told.seconds, "result": measured.scores.to_json(),
        "training": {**recipe.to_json(), "finished": True, "steps": told.steps, "why": told.why,
                     "steps_per_epoch": -(-len(images.train_N) // recipe.loop.batch)},
    }  # fmt: skip
    if run.path is not None:
        rows = "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in told.history)
        texts = {METRICS: rows} | ({REPORT: page(run, images, measured, told.history)} if page else {})
        save_images(run, run.path, texts, keep=[STATE])
    return run


def _record(recipe: ImageRecipe, source: str | Path, images: Images) -> dict[str, Any]:
    return {
        "seed": recipe.seed,
        "images": {"name": images.name, "source": str(source), "split": images.split, "sha256": images.identity,
                   "train": len(images.train_N), "test": len(images.test_N)},
        "training": {**recipe.to_json(), "finished": False},
        "made_with": {"python": platform.python_version(), "torch": torch.__version__},
    }  # fmt: skip


class Batches:
    """The n-th batch, which depends on n alone: every epoch has an order of its own, and every image a shift."""

    def __init__(self, images: Images, loop: ImageLoopConfig, seed: int, device: torch.device) -> None:
        self.x_NCHW, self.y_N = images.train_NCHW.to(device), images.train_N.to(device)
        self.seed, self.device, self.flip = seed, device, loop.flip
        self.batch = min(loop.batch, len(self.y_N))
        side = min(self.x_NCHW.shape[2:])
        self.shift = min(round(side / 14) if loop.shift < 0 else loop.shift, side - 1)

    @property
    def steps(self) -> int:
        """Batches of an epoch; what is left over waits for the next."""
        return len(self.y_N) // self.batch

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        epoch, place = divmod(step, self.steps)
        order_N = np.random.default_rng((self.seed, epoch)).permutation(len(self.y_N))
        at_B = torch.from_numpy(order_N[place * self.batch : (place + 1) * self.batch]).to(self.device)
        x_BCHW, y_B = self.x_NCHW[at_B], self.y_N[at_B]
        chance = np.random.default_rng((self.seed, epoch, place))
        if self.shift:
            moves_2B = torch.from_numpy(chance.integers(-self.shift, self.shift + 1, (2, len(at_B)))).to(self.device)
            x_BCHW = shifted(x_BCHW, *moves_2B)
        if self.flip:
            turned_B = torch.from_numpy(chance.random(len(at_B)) < 0.5).to(self.device)
            x_BCHW = torch.where(turned_B[:, None, None, None], x_BCHW.flip(3), x_BCHW)
        return x_BCHW, y_B
