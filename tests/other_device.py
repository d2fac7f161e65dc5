"""A second device for tests on a machine without a GPU: tensors that were put on it may not meet those of the CPU.

Within `other_device()` PyTorch seems to have an Apple GPU. What is put on "mps" stays in the CPU's memory and is
marked; so are its results. Where PyTorch would refuse a call on two devices (an operand, an index into the CPU's
tensors, a generator, numpy), the call is refused here. Only tensors without dimensions, and the CPU's indices into the
other's tensors, may cross over, as with CUDA. A tensor whose origin is not known, as the engine of autograd makes them,
is taken for one of the right device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

OTHER = torch.device("mps")
CPU = torch.device("cpu")
M = TypeVar("M", bound=nn.Module)
MAY_CROSS = (
    "copy_", "_has_compatible_shallow_copy_type", "__setitem__", "__get__", "__set__", "to", "cpu", "type_as",
)  # fmt: skip
TO_NUMPY = ("numpy", "__array__")


class WrongDeviceError(RuntimeError):
    """Tensors of two devices met."""


class _Mode(TorchFunctionMode):
    """Marks tensors with their device, and refuses calls that mix two."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return place_of(args[0]) or CPU
        inputs = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        places = [place_of(one) for one in inputs]
        if name in TO_NUMPY and OTHER in places:
            raise WrongDeviceError(f"{name}: can't convert mps tensor to numpy; use Tensor.cpu() first")
        if name == "to":
            args, kwargs, target = _without_device(args, kwargs)
            target = target or places[0] or CPU
        else:
            asked = kwargs.pop("device", None)
            inherited = OTHER if OTHER in places else CPU
            target = CPU if name == "cpu" else torch.device(asked) if asked is not None else inherited
            if name == "__getitem__" or name.startswith("new_"):
                target = torch.device(asked) if asked is not None else places[0] or inherited
            _check(name, inputs, places)
        generator = kwargs.get("generator")
        if generator is not None and target == OTHER and name not in ("to",):
            raise WrongDeviceError(f"{name}: expected a generator of the other device, found one of the CPU")
        result = func(*args, **kwargs)
        if name == "__set__":
            if len(inputs) == 2 and places[1] is not None:
                _mark(inputs[0], places[1])
            return result
        if name in ("to", "cpu") and places[0] != target:
            result = result.clone() if result is inputs[0] else result
        return tree_map_only(Tensor, lambda one: one if any(one is i for i in inputs) else _mark(one, target), result)


def _without_device(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any], torch.device | None]:
    """The arguments of Tensor.to without a device, and the device."""
    target = kwargs.pop("device", None)
    target = torch.device(target) if target is not None else None
    left = [args[0]]
    for one in args[1:]:
        if isinstance(one, torch.device | str):
            target = torch.device(one)
        elif isinstance(one, Tensor):
            target = place_of(one) or CPU
            left.append(one.dtype)
        elif isinstance(one, torch.dtype):  # and not whether to block, or to copy
            left.append(one)
    if isinstance(kwargs.get("other"), Tensor):
        other = kwargs.pop("other")
        target = place_of(other) or CPU
        kwargs["dtype"] = other.dtype
    return tuple(left), kwargs, target


def _check(name: str, inputs: list[Tensor], places: list[torch.device | None]) -> None:
    if OTHER not in places or CPU not in places or name in MAY_CROSS:
        return
    if name == "__getitem__" and places[0] == OTHER:
        return
    with torch._C.DisableTorchFunction():
        strays = [one for one, place in zip(inputs, places, strict=True) if place == CPU and one.dim()]
    if strays or (name == "__getitem__" and places[0] == CPU):
        raise WrongDeviceError(f"{name}: expected all tensors to be on one device, found mps and cpu")


def place_of(tensor: Tensor) -> torch.device | None:
    """The device that a tensor was put on; None where its origin is not known."""
    return tensor.__dict__.get("_place")


def _mark(tensor: Tensor, place: torch.device) -> Tensor:
    tensor.__dict__["_place"] = place
    return tensor


@contextmanager
def other_device() -> Iterator[None]:
    """Within it, "mps" is a device of its own."""
    original = nn.Module._apply

    def apply(self: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
        held = [*self.parameters(), *self.buffers(), torch.zeros(())]
        probe = fn(_mark(torch.zeros(()), place_of(held[0]) or CPU))
        made = original(self, fn, recurse)  # which sets the data of a parameter, out of the mode's sight
        for tensor in (*self.parameters(), *self.buffers()):
            _mark(tensor, place_of(probe) or CPU)
        return made

    with patch("torch.backends.mps.is_available", return_value=True), patch.object(nn.Module, "_apply", apply), _Mode():
        yield


def mark_all(model: M) -> M:
    """The model, all of which is on the CPU, known as such."""
    for tensor in (*model.parameters(), *model.buffers()):
        _mark(tensor, CPU)
    return model
