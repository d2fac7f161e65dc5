"""The folder of a model that classifies images: weights, the classes' names, how pixels are scaled, the result.

N images, C channels, H and W pixels, V classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from octavo.config import from_json
from octavo.core import eval_mode
from octavo.datasets.image_files import read_picture
from octavo.errors import UserError
from octavo.io.tensors import read_tensors
from octavo.models.loading import filled
from octavo.models.vit import DaVit, DaVitConfig, Vit, VitConfig
from octavo.scoring.metrics import Classified, classified
from octavo.tasks.task import Contents, TrainedRun, record_for

VISION: dict[str, tuple[type[Vit], type[VitConfig]]] = {"vit": (Vit, VitConfig), "davit": (DaVit, DaVitConfig)}
SIZES = ("height", "width", "channels", "classes")
BATCH_IMAGES = 256  # that are classified together
ABOUT_THE_MODEL = ("task", "model", "config", "sizes", "labels", "pixels", "format", "octavo")


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


@dataclass
class ImageRun(TrainedRun):
    """A trained model with everything needed to use it and to say where it came from."""

    task: ClassVar[str] = "images"
    model: Vit
    labels: tuple[str, ...]
    pixels: Scaling
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @property
    def name(self) -> str:
        """vit or davit."""
        return next(name for name, (kind, _) in VISION.items() if type(self.model) is kind)

    @torch.no_grad()
    def classify(self, x_NCHW: Tensor) -> Tensor:
        """p_NV, the probability of each class, of images as bytes."""
        device = self.model.classes_VD.device
        with eval_mode(self.model):
            parts = [
                self.model(self.pixels(x.to(device))).softmax(-1, dtype=torch.float32).cpu()
                for x in x_NCHW.split(BATCH_IMAGES)
            ]
        return torch.cat(parts) if parts else torch.empty(0, len(self.labels))

    def read(self, path: str | Path) -> Tensor:
        """x_CHW of a picture file, made as the model's images are."""
        sizes = self.model.sizes
        mode = "L" if sizes["channels"] == 1 else "RGB"
        return torch.from_numpy(read_picture(path, mode, (sizes["width"], sizes["height"])))

    def summary(self) -> str:
        """One line: the model, the images, the result."""
        plain = {one.name: one.default for one in dataclasses.fields(self.model.config)}
        settings = dataclasses.asdict(self.model.config).items()
        shape = ", ".join(f"{key} {value}" for key, value in settings if value != plain[key])
        result = self.record.get("result", {})
        figure = f", {result['accuracy']:.2%} right" if "accuracy" in result and not self.unfinished else ""
        figure = ", training not finished" if self.unfinished else figure
        images = self.record.get("images", {}).get("name", "unknown images")
        return f"{self.name}{f' ({shape})' if shape else ''}, on {images}{figure}"

    def __repr__(self) -> str:
        return f"<octavo image classifier{f' at {self.path}' if self.path else ''}: {self.summary()}>"


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


def contents_of(run: ImageRun) -> Contents:
    """What a run's folder holds."""
    record = {
        "model": run.name, "config": dataclasses.asdict(run.model.config), "sizes": run.model.sizes,
        "labels": list(run.labels), "pixels": dataclasses.asdict(run.pixels),
    }  # fmt: skip
    return Contents(record, run.model.state_dict(), {})


def load_images(path: str | Path, record: dict[str, Any] | None = None) -> ImageRun:
    """The run in a folder. Reading it runs no code of the folder's; what is damaged or foreign is refused."""
    path = Path(path)
    record = record_for(path, ImageRun.task, record)
    try:
        labels, pixels = _labels(record), from_json(Scaling, record["pixels"])
        model = _built(record, labels, read_tensors(path))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged or foreign: {error!r}; train the run again") from error
    except UserError as error:
        raise UserError(f"{path} is damaged or foreign: {error}") from error
    if {len(pixels.mean), len(pixels.deviation)} != {model.sizes["channels"]} or min(pixels.deviation) < 1:
        raise UserError(f"{path} is damaged: the pixels' scaling must have a mean and a deviation for each channel")
    about = {key: value for key, value in record.items() if key not in ABOUT_THE_MODEL}
    return ImageRun(model, labels, pixels, about, path)


def _labels(record: Mapping[str, Any]) -> tuple[str, ...]:
    labels = record["labels"]
    if not isinstance(labels, list) or not labels or not all(isinstance(one, str) for one in labels):
        raise UserError(f"labels must be a list of names: {str(labels)[:40]}; train the run again")
    return tuple(labels)


def _built(record: Mapping[str, Any], labels: Sequence[str], tensors: Mapping[str, Tensor]) -> Vit:
    """The model, made without memory first: a forged config must not take any without bound."""
    kind, config_class = VISION[record["model"]]
    config, sizes = from_json(config_class, record["config"]), record["sizes"]
    if not isinstance(sizes, dict) or set(sizes) != set(SIZES) or any(type(one) is not int for one in sizes.values()):
        raise UserError(f"sizes must be whole numbers {', '.join(SIZES)}: {str(sizes)[:80]}; train the run again")
    if sizes["classes"] != len(labels) or config.layers > len(tensors):
        raise UserError(f"the model is for {sizes['classes']} classes in {config.layers} layers, which the file is not")
    return filled(lambda: kind(config, **sizes), tensors, config.layers)
