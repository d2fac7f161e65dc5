"""In what precision products are computed, whether the step is compiled, and how fast the machine is at it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from octavo.core import state_from, tensors_of
from octavo.costs.roofline import matmul_rate
from octavo.training.loop_config import LoopConfig


class Precision:
    """What was asked for, as far as the machine can do it. `fixed_shapes`: all batches have the same, so that compiling
    pays. `recordable`: one process trains, in small steps, for which compiling would take longer than it saves.
    """

    def __init__(
        self, config: LoopConfig, model: nn.Module, device: torch.device, fixed_shapes: bool, recordable: bool = False
    ) -> None:
        self.device = device
        self.low = config.precision == "bfloat16" or (config.precision == "auto" and has_bfloat16(device))
        self.low = self.low and next(model.parameters()).dtype == torch.float32
        self.compile: str = config.compile
        if self.compile == "auto":
            quick = "graph" if recordable else "parts"
            pays = device.type == "cuda" and fixed_shapes and bool(getattr(model, "repeated_blocks", ()))
            self.compile = quick if pays else "off"
        elif self.compile == "graph" and not recordable:
            self.compile = "off"

    def lowered(self) -> AbstractContextManager[Any]:
        """Within it, products are computed in the low precision."""
        if not self.low:
            return nullcontext()
        # A copy of a weight that is kept for the next product would not be made again when a recording is played.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=self.compile != "graph")

    def compiled(self, objective: nn.Module, model: nn.Module) -> nn.Module:
        """The objective, compiled if that was asked for; a machine that cannot falls back without a word."""
        if self.compile == "parts":
            for part in getattr(model, "repeated_blocks", ()):  # of one code, which is compiled once for all of them
                if hasattr(part, "absorb"):
                    part.absorb = Quick(part.absorb, part.worth_compiling)
                else:
                    part.forward = Quick(part.forward)
        if self.compile == "graph":
            return Recorded(objective)
        if self.compile == "on":
            objective.forward = Quick(objective.forward)
        return objective

    @cached_property
    def peak(self) -> float:
        """Measured floating-point operations a second."""
        return matmul_rate(self.device, torch.bfloat16 if self.low else torch.float32)


class Quick:
    """A function that is compiled when training first calls it; where that fails it runs as it is.

    `worth` says of inputs whether their shapes are worth it: each is compiled anew, and after eight the compiler would
    give up for good. It must look at the inputs alone, so that a run that is resumed computes the same.
    """

    def __init__(self, plain: Callable[..., Any], worth: Callable[..., bool] = lambda *inputs: True) -> None:
        self.plain, self.worth = plain, worth
        self.fast: Callable[..., Any] | None = None
        with suppress(RuntimeError):  # a Python or a system that it does not know
            self.fast = torch.compile(plain, dynamic=False)

    def __call__(self, *inputs: Any) -> Any:
        if self.fast is None or not torch.is_grad_enabled() or not self.worth(*inputs):  # measuring has other shapes
            return self.plain(*inputs)
        from torch._dynamo.exc import TorchDynamoException  # here, because it takes a second

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch's about its own compiler: nobody here can act on them
                return self.fast(*inputs)
        except TorchDynamoException:  # no compiler, say
            self.fast = None
            return self.plain(*inputs)


class Recorded(nn.Module):
    """A module whose kernels are recorded once for each shape of its inputs and then played back, there and back:
    nothing is compiled, and the GPU does not wait for Python to start them one by one.
    """

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.plain = plain
        self.by_shape: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def forward(self, state: Any, x_BT: Tensor) -> Any:
        if not (torch.is_grad_enabled() and x_BT.is_cuda):
            return self.plain(state, x_BT)
        tensors, weights = (*tensors_of(state), x_BT), tuple(self.plain.parameters())
        shapes = tuple((tuple(t.shape), t.dtype) for t in tensors)
        if shapes not in self.by_shape:
            samples = (*(t.detach().clone() for t in tensors), *shared_leaves(weights))
            flat = as_function(self.plain, state)
            self.by_shape[shapes] = torch.cuda.make_graphed_callables(flat, samples, allow_unused_input=True)
        nats, *after = self.by_shape[shapes](*tensors, *weights)
        # Copies, because the next one overwrites what a recording gives.
        return nats.clone(), state_from(state, [t.detach().clone() for t in after])


def as_function(plain: nn.Module, like: Any) -> Callable[..., tuple[Tensor, ...]]:
    """An objective as a function of the state's tensors, the batch and the weights: all that a recording knows."""
    names = [name for name, _ in plain.named_parameters()]

    def flat(*inputs: Tensor) -> tuple[Tensor, ...]:
        count = len(inputs) - len(names)
        state, x_BT = state_from(like, inputs[: count - 1]), inputs[count - 1]
        weights = dict(zip(names, inputs[count:], strict=True))
        nats, after = functional_call(plain, weights, (state, x_BT))
        return nats, *tensors_of(after)

    return flat


def shared_leaves(weights: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Leaves of their own in the weights' memory, to record with.

    A recording keeps its graph, whose leaves accumulate gradients on the stream of the recording. Were they the weights
    themselves, every later backward pass would have to wait for that stream, and PyTorch warns of it.
    """
    return tuple(weight.detach().requires_grad_(weight.requires_grad) for weight in weights)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 numbers itself, not by way of float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    supported = (getattr(torch.cpu, f"_is_{name}_supported", bool) for name in ("avx512_bf16", "amx_tile"))
    return any(has() for has in supported)
