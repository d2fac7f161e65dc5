"""Where a model computes: names of devices, what `auto` stands for, and putting a run there."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from octavo.config import DEVICE_NAMES
from octavo.errors import UserError
from octavo.models import parameter_count, spec_of

VIEWS = 64  # times that a model may read a text of which everything is shown
EXAMINED = 1 << 18  # tokens that an examination of a run reads, about
ANSWERED = 64  # tokens that an answer takes, about
ONE_IMAGE = 256  # patches
MIN_GPU_FLOPS = 2e10  # that are worth a GPU: two cores need about a second for them, and CUDA as long to start

T = TypeVar("T", bound=Any)


def pick_device(name: str) -> torch.device:
    """The device of a name, which must be here; auto is the GPU where there is one (CUDA's: mps is taken by name)."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"there is no kind of device called {name!r}; try --device {DEVICE_NAMES}") from error
    if chosen.type not in ("cpu", "cuda", "mps") or (chosen.type != "cuda" and chosen.index):
        raise UserError(f"device must be {DEVICE_NAMES}: device={name}; try --device auto")
    if chosen.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (chosen.index or 0) >= count:
            those = f", cuda:0 to cuda:{count - 1}" if count > 1 else ", cuda:0" if count else ""
            remedy = "--device cpu" + (" or --device cuda" if count else "")
            raise UserError(f"device {name} needs a CUDA GPU: {count} are here{those}; try {remedy}")
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise UserError("device mps needs an Apple GPU and a PyTorch with Metal: there is none here; try --device cpu")
    return chosen


def device_for(model: nn.Module, name: str = "auto", tokens: int | None = None) -> torch.device:
    """The device of that name for a model; auto is where about so many tokens are done soonest, without a number many.

    A model that is on a GPU already stays there with auto; one that computes on the processor alone is refused
    another device.
    """
    chosen, use, here = pick_device(name), _gpu_use(model), _device_of(model)
    if chosen.type != "cpu" and use == "none":
        if name != "auto":
            raise UserError(f"a {spec_of(model).name} computes on the CPU alone: device={name}; try --device cpu")
        return torch.device("cpu")
    if name != "auto" or chosen.type == "cpu" or here.type != "cpu":
        return here if name == "auto" else chosen
    worth_it = use == "faster" and (tokens is None or 2.0 * _numbers(model) * tokens >= MIN_GPU_FLOPS)
    return chosen if worth_it else here


def place(run: T, name: str = "auto", tokens: int | None = None) -> T:
    """The run, its model put on the device of that name (see `device_for`), where it stays."""
    chosen = device_for(run.model, name, tokens)
    if chosen != _device_of(run.model):
        move(run, chosen)
    return run


def move(run: Any, device: torch.device) -> None:
    """Put a run's model on a device, and that of a run which it reads texts with."""
    if device.type != "cpu" and _gpu_use(run.model) == "none":
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # kernels and graphs are launched on the current one
    run.model.to(device)
    base = getattr(getattr(run, "reader", None), "base", None)
    if base is not None:
        move(getattr(base, "run", base), device)


def _gpu_use(model: nn.Module) -> str:
    """What the model's spec says of GPUs; a mixture is no faster there than its slowest part."""
    try:
        spec = spec_of(model)
    except UserError:  # a model of somebody's own, without a spec
        return "faster"
    uses = [spec.gpu_use, *(_gpu_use(part) for part in spec.parts(model))]
    return next((use for use in ("none", "possible") if use in uses), "faster")


def _device_of(model: nn.Module) -> torch.device:
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def _numbers(model: nn.Module) -> int:
    try:
        return parameter_count(model)
    except UserError:  # a model of somebody's own, without a spec
        return sum(one.numel() for one in model.parameters())
