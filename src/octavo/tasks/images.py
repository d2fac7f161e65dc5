"""Classifying images: shuffled batches, each image shifted a little.

N images, B of a batch, C channels, H and W pixels.

    run = octavo.train("vit", "digits", out="runs/vit")
    octavo.evaluate(run).accuracy
    images.classify(run, "seven.png")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Range, check_ranges, from_json
from octavo.core import eval_mode, seeded_generator
from octavo.datasets.image_files import read_picture
from octavo.datasets.images import NAMED, Images, has_idx, open_images, shifted
from octavo.errors import UserError
from octavo.io.tensors import read_tensors
from octavo.models import find_spec
from octavo.models.parts.checks import check_numbers
from octavo.models.vit import Vit
from octavo.scoring.metrics import Classified, classified
from octavo.tasks.task import Recipe, Task
from octavo.tasks.trained_run import TrainedRun, read_model
from octavo.training.loop_config import LoopConfig
from octavo.training.stage import Objective, RowBatch, Stage

BATCH_IMAGES = 256  # that are classified together


@dataclass(frozen=True)
class Scaling:
    """What makes a mean of 0 and a deviation of 1 of pixels, channel by channel."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, x_NCHW: Tensor) -> Scaling:
        """That of the images learnt from."""
        pixels_CM = x_NCHW.transpose(0, 1).flatten(1).double()
        return cls(tuple(pixels_CM.mean(1).tolist()), tuple(pixels_CM.std(1).clamp(min=1.0).tolist()))

    def __call__(self, x_NCHW: Tensor) -> Tensor:
        mean, deviation = (
            torch.tensor(one, device=x_NCHW.device)[:, None, None] for one in (self.mean, self.deviation)
        )
        return (x_NCHW.float() - mean) / deviation


@dataclass(repr=False)
class ImageRun(TrainedRun):
    """A vision model with its classes, and how pixels are scaled for it."""

    task: ClassVar[str] = "images"
    model: Vit
    labels: tuple[str, ...]
    pixels: Scaling
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @torch.no_grad()
    def classify(self, x_NCHW: Tensor) -> Tensor:
        """p_NV, the probability of each class, of images as bytes."""
        device = self.model.classes_VD.device
        with eval_mode(self.model):
            parts = [
                self.model(self.pixels(x.to(device))).softmax(-1, dtype=torch.float32).cpu()
                for x in x_NCHW.split(BATCH_IMAGES)
            ]
        p_NV = torch.cat(parts) if parts else torch.empty(0, len(self.labels))
        return check_numbers(p_NV, "the probabilities of the classes")

    def read(self, path: str | Path) -> Tensor:
        """x_CHW of a picture file, made as the model's images are."""
        sizes = self.model.sizes
        mode = "L" if sizes["channels"] == 1 else "RGB"
        return torch.from_numpy(read_picture(path, mode, (sizes["width"], sizes["height"])))

    def description(self) -> dict[str, Any]:
        return super().description() | {"labels": list(self.labels), "pixels": dataclasses.asdict(self.pixels)}

    @classmethod
    def read_folder(cls, path: Path, record: dict[str, Any], **given: Any) -> Self:
        labels, pixels = record["labels"], from_json(Scaling, record["pixels"])
        if not isinstance(labels, list) or not labels or not all(isinstance(one, str) for one in labels):
            raise ValueError(f"labels must be a list of names: {str(labels)[:40]}")
        model: Vit = read_model(record, read_tensors(path))
        if model.sizes["classes"] != len(labels):
            raise ValueError(f"the model is for {model.sizes['classes']} classes, there are {len(labels)} labels")
        if {len(pixels.mean), len(pixels.deviation)} != {model.sizes["channels"]} or min(pixels.deviation) < 1:
            raise ValueError("the pixels' scaling must have a mean and a deviation for each channel")
        return cls(model, tuple(labels), pixels)


class ImageEvaluation(NamedTuple):
    """How good a run is on images whose classes are known."""

    scores: Classified
    wrong: tuple[tuple[int, int, float], ...]  # image, what was said, its probability: the surest first


def evaluate_run(run: ImageRun, x_NCHW: Tensor, y_N: Tensor) -> ImageEvaluation:
    """Classify images whose classes are known."""
    p_NV = run.classify(x_NCHW)
    sure_N, said_N = p_NV.max(1)
    missed = (said_N != y_N).nonzero().flatten().tolist()
    wrong = sorted(((n, int(said_N[n]), float(sure_N[n])) for n in missed), key=lambda one: -one[2])
    return ImageEvaluation(classified(p_NV, y_N, list(run.labels)), tuple(wrong))


VALIDATION_STEP = 10  # with early stopping, every so many training images are held out to choose the best weights by


@dataclass(frozen=True)
class ImagesConfig:
    """Which images, and how they are shown to the model."""

    shift: Annotated[int, Range(-1, 1 << 10)] = -1
    """By how many pixels, at most, each image is moved while learning, in either direction; -1: a fourteenth."""
    flip: bool = False
    """Mirror half of the images, left and right: for things, not for characters."""
    side: Annotated[int, Range(0, 1 << 10)] = 0
    """A folder of pictures: their width and height in pixels; 0: their own, or 32 where they differ."""
    split: Literal["shuffled", "last"] = "shuffled"
    """Where images have no test part, a fifth of each class is held out: drawn once and for all, or the last ones."""

    def __post_init__(self) -> None:
        check_ranges(self)


class ImageTask(Task[ImageRun, Images]):
    """A class for every image."""

    name, purpose, data_key, data_kind = "images", "classify images", "images", "images"
    takes_file = False
    run_class = ImageRun
    data_help = "digits, mnist5k, fashion, or a folder: with a folder of pictures for each class, or MNIST's IDX files."
    example = "digits"
    settings = ImagesConfig()
    loop = LoopConfig(budget="2000steps", batch_size=64)

    def open(self, recipe: Recipe, source: Sequence[str], folder: Path | None = None) -> Images:
        if len(source) != 1:
            raise UserError(f"images are of one source: {len(source)} given; name one")
        return open_images(source[0], recipe.settings.side, recipe.settings.split)

    def describe(self, recipe: Recipe, source: Sequence[str], data: Images) -> dict[str, Any]:
        counts = {"train": len(data.train_N), "test": len(data.test_N)}
        about = {"name": data.name, "source": list(source), "split": data.split, "sha256": data.identity, **counts}
        return {"images": about}

    def create(self, recipe: Recipe, data: Images) -> ImageRun:
        model = find_spec(recipe.model).model(recipe.config, **data.sizes)
        model.initialise(seeded_generator(recipe.seed))  # type: ignore[operator]
        return ImageRun(model, data.labels, Scaling.of(data.train_NCHW))  # type: ignore[arg-type]

    def stage(self, recipe: Recipe, run: ImageRun, data: Images, device: torch.device, number: int) -> Stage:
        n_N = torch.arange(len(data.train_N))
        held_N = n_N % VALIDATION_STEP == 0 if recipe.loop.patience else n_N < 0
        batches = ImageBatches(data.train_NCHW[~held_N], data.train_N[~held_N], recipe, device)
        checked = (data.train_NCHW[held_N], data.train_N[held_N]) if held_N.any() else (data.test_NCHW, data.test_N)

        def validate() -> Mapping[str, float]:
            return {"accuracy": evaluate_run(run, *checked).scores.accuracy}

        return Stage(
            run.model, ImageLoss(run.model, run.pixels, recipe.optimizer.label_smoothing), batches, recipe.optimizer,
            recipe.loop.budget, examples_per_step=batches.batch_size, steps_per_epoch=batches.steps, validate=validate,
            best="accuracy" if held_N.any() else "", fixed_shapes=True,
        )  # fmt: skip

    def choices(self, run: ImageRun) -> int:
        return len(run.labels)

    def measure(self, recipe: Recipe, run: ImageRun, data: Images) -> ImageEvaluation:
        measured = evaluate_run(run, data.test_NCHW, data.test_N)
        run.record["result"] = measured.scores.to_json()
        return measured

    def evaluate(self, run: ImageRun, source: Any = None, **settings: Any) -> Classified:
        return evaluate_images(run, source).scores


TASK = ImageTask()


class ImageLoss(Objective):
    """Cross-entropy of images and their classes."""

    def __init__(self, model: nn.Module, pixels: Scaling, smoothing: float) -> None:
        super().__init__(model, smoothing)
        self.pixels = pixels

    def forward(self, state: Any, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        x_BCHW, y_B = part
        logits_BV = self.model(self.pixels(x_BCHW)).float()
        return F.cross_entropy(logits_BV, y_B, label_smoothing=self.smoothing, reduction="sum"), state


class ImageBatches:
    """The n-th batch, which depends on n alone: every epoch has an order of its own, and every image a shift."""

    def __init__(self, x_NCHW: Tensor, y_N: Tensor, recipe: Recipe, device: torch.device) -> None:
        self.x_NCHW, self.y_N = x_NCHW.to(device), y_N.to(device)
        self.seed, self.flip = recipe.seed, recipe.settings.flip
        self.batch_size = min(recipe.loop.batch_size or TASK.loop.batch_size, len(y_N))
        side, shift = min(x_NCHW.shape[2:]), recipe.settings.shift
        self.shift = min(round(side / 14) if shift < 0 else shift, side - 1)

    @property
    def steps(self) -> int:
        """Batches of an epoch; what is left over waits for the next."""
        return len(self.y_N) // self.batch_size

    def __call__(self, step: int) -> RowBatch:
        epoch, place = divmod(step, self.steps)
        order_N = np.random.default_rng((self.seed, epoch)).permutation(len(self.y_N))
        device = self.y_N.device
        at_B = torch.from_numpy(order_N[place * self.batch_size : (place + 1) * self.batch_size]).to(device)
        x_BCHW, y_B = self.x_NCHW[at_B], self.y_N[at_B]
        chance = np.random.default_rng((self.seed, epoch, place))
        if self.shift:
            moves_2B = torch.from_numpy(chance.integers(-self.shift, self.shift + 1, (2, len(at_B)))).to(device)
            x_BCHW = shifted(x_BCHW, *moves_2B)
        if self.flip:
            turned_B = torch.from_numpy(chance.random(len(at_B)) < 0.5).to(device)
            x_BCHW = torch.where(turned_B[:, None, None, None], x_BCHW.flip(3), x_BCHW)
        return RowBatch((x_BCHW, y_B), float(len(y_B)))


# ---------------------------------------------------------------------- using a run


def evaluate_images(run: ImageRun, source: str | Path | None = None) -> ImageEvaluation:
    """How good a run is on the held-out images of a source, or of its own, with the images that it got wrong."""
    images: Images = run.data() if source is None else open_images(source, _side(run, source))
    if images.labels != run.labels or images.sizes != run.model.sizes:
        raise UserError(
            f"the images must be like those the run was trained on: {_described(run.model.sizes, run.labels)}; "
            f"{source or 'its source'} has {_described(images.sizes, images.labels)}"
        )
    return evaluate_run(run, images.test_NCHW, images.test_N)


def _described(sizes: Mapping[str, int], labels: Sequence[str]) -> str:
    return f"{sizes['height']} x {sizes['width']} x {sizes['channels']} pixels, classes {', '.join(labels)}"


def classify(run: ImageRun, image: str | Path | Tensor) -> dict[str, float]:
    """The probability of each class: of a picture file, or of bytes x_CHW of the model's own size."""
    x_CHW = image if isinstance(image, Tensor) else run.read(image)
    return dict(zip(run.labels, run.classify(x_CHW[None])[0].tolist(), strict=True))


def picture_of(run: ImageRun, image: str) -> tuple[str, Tensor, int | None]:
    """What to call it, x_CHW and, where it is known, the class: of a held-out image by number, or of a file."""
    if not image.isdecimal():
        return image, run.read(image), None
    images, n = run.data(), int(image)
    if n >= len(images.test_N):
        raise UserError(f"held-out images are numbered from 0 to {len(images.test_N) - 1:,}: image={n}; try --image 0")
    return f"held-out image {n}", images.test_NCHW[n], int(images.test_N[n])


def _side(run: ImageRun, source: str | Path) -> int:
    """Pictures of a folder are brought to the model's size, where that is square; other images have one already."""
    pictures = str(source) not in NAMED and not has_idx(Path(source))
    return run.model.sizes["width"] if pictures and run.model.sizes["width"] == run.model.sizes["height"] else 0
