"""A module filled with the tensors of a file, none of whose sizes is believed before it is seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from octavo.errors import UserError

M = TypeVar("M", bound=nn.Module)


def shapes_only(make: Callable[[], M], tensors: Mapping[str, Tensor], layers: int = 0) -> M:
    """The module that `make` makes, on the meta device; a forged config must not take memory without bound."""
    if layers > len(tensors):  # before so many are made, even without memory
        raise UserError(f"a layer has tensors of its own: layers={layers:,}, the file has {len(tensors)} tensors")
    try:
        with torch.device("meta"):  # where shapes take no memory
            return make()
    except RuntimeError as error:  # a shape beyond what any tensor can have
        raise UserError(f"no tensor can be as large as the config says: {error}") from error


def check_finite(tensors: Mapping[str, Tensor], log_tables: Sequence[str] = ()) -> None:
    """Refuse weights that are NaN or infinite; tensors in `log_tables`, of log-probabilities, may be minus infinity."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or math.isfinite(float(tensor.sum())):
            continue  # one sum is much faster than looking at every number, and says so where all of them are finite
        usable = tensor.isfinite() | tensor.isneginf() if name in log_tables else tensor.isfinite()
        if wrong := int((~usable).sum()):
            raise UserError(
                f"weights must be finite numbers: {wrong:,} of {tensor.numel():,} in {name} are not; the file is "
                "damaged, or training has failed; train the model again"
            )


def filled(make: Callable[[], M], tensors: Mapping[str, Tensor], layers: int = 0, log_tables: Sequence[str] = ()) -> M:
    """The module that `make` makes, with these tensors, in evaluation mode."""
    model = shapes_only(make, tensors, layers)
    own = model.state_dict()
    if odd := sorted(own.keys() ^ tensors.keys()):
        raise UserError(f"the config and the file are of different models: only one of them has {', '.join(odd[:3])}")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape or not tensor.is_floating_point():
            raise UserError(
                f"tensor {name} must be of floating point and have the shape {tuple(own[name].shape)}: the file has "
                f"{tensor.dtype} {tuple(tensor.shape)}; it is of another model"
            )
    check_finite(tensors, log_tables)
    model.load_state_dict(dict(tensors), assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return model.eval()
