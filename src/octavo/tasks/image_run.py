"""The folder of a model that classifies images: weights, the classes' names, how pixels are scaled, the result.

N images, C channels, H and W pixels, V classes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from octavo.config import from_json
from octavo.core import eval_mode
from octavo.datasets.image_files import read_picture
from octavo.io.tensors import read_tensors
from octavo.models.vit import Vit
from octavo.scoring.metrics import Classified, classified
from octavo.tasks.trained_run import TrainedRun, read_model

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
        return torch.cat(parts) if parts else torch.empty(0, len(self.labels))

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
