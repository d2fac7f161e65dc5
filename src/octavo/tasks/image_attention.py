"""What a vision transformer attends to: each head's attention over the image, and all layers' together (rollout).

H heads, T tokens, N patches in h rows and w columns, C channels of a group, V classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.core import eval_mode
from octavo.models.parts.checks import check_numbers
from octavo.models.vit import Channels
from octavo.ops.patches import rows_and_columns
from octavo.ops.tracing import trace
from octavo.tasks.images import ImageRun


@dataclass(frozen=True)
class PatchHead:
    """One head that attends to patches."""

    layer: int
    head: int
    seen_hw: Tensor  # the weight on each patch, of the class token or of a patch on average
    entropy: float  # bits: how widely it attends
    distance: float  # patches between query and key, on average


@dataclass(frozen=True)
class ChannelGroup:
    """One group of channels that attend to each other."""

    layer: int
    group: int
    a_CC: Tensor
    itself: float  # the weight of a channel on itself, on average


@dataclass(frozen=True)
class ImageAttention:
    """One image through the model."""

    p_V: Tensor
    heads: tuple[PatchHead, ...]
    groups: tuple[ChannelGroup, ...]
    rollout_hw: Tensor

    @property
    def answer(self) -> int:
        """The likeliest class."""
        return int(self.p_V.argmax())


@torch.no_grad()
def attend_to_image(run: ImageRun, x_CHW: Tensor) -> ImageAttention:
    """Classify one image, bytes as they are, and keep the attention of every layer."""
    model = run.model
    x_1CHW = run.pixels(x_CHW[None].to(model.classes_VD.device))
    with trace() as found, eval_mode(model):
        p_V = model(x_1CHW).softmax(-1, dtype=torch.float32)[0].cpu()
    check_numbers(p_V, "the probabilities of the classes")
    channel = [layer for layer, block in enumerate(model.blocks, 1) if isinstance(block.attention, Channels)]
    patch = [layer for layer in range(1, len(model.blocks) + 1) if layer not in channel]
    maps = [a_1HTT[0].float().cpu() for a_1HTT in found.get("attention", ())]
    heads = [
        _head(run, layer, head, a_TT)
        for layer, a_HTT in zip(patch, maps, strict=True)
        for head, a_TT in enumerate(a_HTT, 1)
    ]
    groups = [
        ChannelGroup(layer, g, a_CC, float(a_CC.diagonal().mean()))
        for layer, a_1GCC in zip(channel, found.get("channels", ()), strict=True)
        for g, a_CC in enumerate(a_1GCC[0].float().cpu(), 1)
    ]
    return ImageAttention(p_V, tuple(heads), tuple(groups), _over_the_image(run, rollout(maps)))


def rollout(maps_HTT: list[Tensor]) -> Tensor:
    """r_TT: what each token is made of when every layer halves what it had and adds the mean of its heads' attention
    (Abnar and Zuidema 2020). Layers that attend to channels leave every patch in its place, so they change nothing.
    """
    r_TT = torch.eye(maps_HTT[0].shape[-1])
    for a_HTT in maps_HTT:
        r_TT = (a_HTT.mean(0) + torch.eye(len(r_TT))) / 2 @ r_TT
    return r_TT


def _head(run: ImageRun, layer: int, head: int, a_TT: Tensor) -> PatchHead:
    model = run.model
    tokens, size = model.config.tokens, (model.rows, model.columns)
    row_N, column_N = (one.float() for one in rows_and_columns(*size))
    apart_NN = torch.hypot(row_N[:, None] - row_N, column_N[:, None] - column_N)
    between_NN = a_TT[tokens:, tokens:]
    share_N = between_NN.sum(1).clamp(min=1e-12)
    distance = float(((between_NN * apart_NN).sum(1) / share_N).mean())
    reading = a_TT[:1] if model.config.pool == "token" else a_TT[tokens:]
    entropy = float(torch.special.entr(reading).sum(1).mean()) / math.log(2)
    return PatchHead(layer, head, _over_the_image(run, a_TT), entropy, distance)


def _over_the_image(run: ImageRun, a_TT: Tensor) -> Tensor:
    """The weights over the patches of what the class is read from: its token, or the mean of all patches."""
    model = run.model
    tokens = model.config.tokens
    from_N = a_TT[0, tokens:] if model.config.pool == "token" else a_TT[tokens:, tokens:].mean(0)
    map_hw: Tensor = from_N.unflatten(0, (model.rows, model.columns))
    return map_hw
