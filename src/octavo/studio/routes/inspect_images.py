"""Attention over images: what each head attends to in a held-out image, or in one that is sent."""

from __future__ import annotations

import base64
import binascii
import io
import threading
from collections.abc import Mapping
from typing import Any

import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from octavo.config import from_json
from octavo.datasets import sources
from octavo.datasets.image_files import picture_from
from octavo.datasets.images import CSV_SIDES, NAMED, Images, open_images
from octavo.errors import UserError
from octavo.studio.server.app import RunRequest, Studio
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.image_attention import attend_to_image
from octavo.tasks.images import ImageRun, ImagesConfig

MAX_BASE64_CHARACTERS = 3_000_000  # of a picture, which are 2.2 MB
MAX_PIXELS = 1 << 24  # of a picture that is sent
MAX_CLASSES = 10  # in a response, the most probable


class ImageRequest(RunRequest):
    """A run, and a held-out image by its number or a PNG or JPEG file in base64."""

    image: int | None = Field(default=None, ge=0, le=10_000_000)
    picture: str | None = Field(default=None, max_length=MAX_BASE64_CHARACTERS)


class Pictures:
    """The held-out images of named sources. What a run's folder says is not trusted: only these names are opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[tuple[str, str], Images] = {}

    def of(self, run: ImageRun, ticket: Ticket) -> Images | None:
        """The images that the run was trained on, where they are on this machine and may be opened."""
        about, training = run.record.get("images"), run.record.get("training")
        source = about.get("source") if isinstance(about, Mapping) else None
        settings = training.get("settings") if isinstance(training, Mapping) else None
        name = source[0] if isinstance(source, list) and len(source) == 1 else source  # older records name one
        if not isinstance(name, str) or name not in NAMED:
            return None
        try:
            split = from_json(ImagesConfig, settings if isinstance(settings, dict) else {}).split
            if name in CSV_SIDES and sources.where(name) is None:  # it would be fetched
                return None
            with ticket.turn(), self._lock:
                if (name, split) not in self._opened:
                    self._opened[name, split] = open_images(name, 0, split)
                images = self._opened[name, split]
        except UserError:
            return None
        return images if images.labels == run.labels and images.sizes == run.model.sizes else None

    def count(self, run: ImageRun, ticket: Ticket) -> int:
        images = self.of(run, ticket)
        return 0 if images is None else len(images.test_N)


def image(ticket: Ticket, studio: Studio, pictures: Pictures, asked: ImageRequest) -> dict[str, Any]:
    """The classes that a vision transformer predicts for an image, and the attention of each of its heads.

    picture: the image as the model gets it, a PNG in a data address. truth: empty where it is not known. token: whether
    the class is read from a token of its own, else from the mean of the patches.
    """
    run = studio.models.get(asked.run, ticket, ImageRun)
    if (asked.image is None) == (asked.picture is None):
        raise UserError("name the number of a held-out image, or send a picture: one of the two")
    x_CHW, truth = _held_out(run, asked.image, pictures, ticket) if asked.image is not None else (None, "")
    with ticket.turn():
        x_CHW = _sent(run, asked.picture or "") if x_CHW is None else x_CHW
        attention = attend_to_image(run, x_CHW)
        best = attention.p_V.topk(min(MAX_CLASSES, len(run.labels)))
    every = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return {
        "picture": _png(x_CHW), "width": x_CHW.shape[2], "height": x_CHW.shape[1], "truth": truth,
        "classes": [{"label": run.labels[n], "p": p} for n, p in every], "layers": len(run.model.blocks),
        "heads": [{"layer": one.layer, "head": one.head, "entropy": one.entropy, "distance": one.distance,
                   "seen": one.seen_hw.tolist()} for one in attention.heads],
        "groups": [{"layer": one.layer, "group": one.group, "itself": one.itself, "map": one.a_CC.tolist()}
                   for one in attention.groups],
        "rollout": attention.rollout_hw.tolist(), "token": run.model.config.pool == "token",
    }  # fmt: skip


def _held_out(run: ImageRun, number: int, pictures: Pictures, ticket: Ticket) -> tuple[Tensor, str]:
    images = pictures.of(run, ticket)
    if images is None:
        raise UserError("its images are not opened here: they have no name that octavo knows; choose a picture file")
    if number >= len(images.test_N):
        raise UserError(f"held-out images are numbered from 0 to {len(images.test_N) - 1:,}: there is no {number}")
    return images.test_NCHW[number], images.labels[int(images.test_N[number])]


def _sent(run: ImageRun, picture: str) -> Tensor:
    """x_CHW of a picture in base64, made as the model's images are."""
    try:
        data = base64.b64decode(picture, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError("the picture is not in base64; send a PNG or JPEG file so") from error
    sizes = run.model.sizes
    mode = "L" if sizes["channels"] == 1 else "RGB"
    return torch.from_numpy(picture_from(data, mode, (sizes["width"], sizes["height"]), MAX_PIXELS))


def _png(x_CHW: Tensor) -> str:
    x_HWC = x_CHW.permute(1, 2, 0).contiguous().numpy()
    written = io.BytesIO()
    Image.fromarray(x_HWC[:, :, 0] if x_HWC.shape[2] == 1 else x_HWC).save(written, "PNG")
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()
