"""In what precision products are computed, whether the step is compiled, and how fast the machine is at it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import Any

import torch
from torch import nn

from octavo.core import LanguageModel
from octavo.training.watch import matmul_rate


class Precision:
    """What was asked for, as far as the machine can do it."""

    def __init__(self, precision: str, compile: str, model: LanguageModel[Any], device: torch.device) -> None:
        self.device = device
        self.low = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
        self.low = self.low and next(model.parameters()).dtype == torch.float32
        self.compile = compile
        if compile == "auto":
            self.compile = "parts" if device.type == "cuda" and model.repeated_parts else "off"

    def lowered(self) -> AbstractContextManager[Any]:
        """Within it, products are computed in the low precision."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.low else nullcontext()

    def compiled(self, objective: nn.Module, model: LanguageModel[Any]) -> nn.Module:
        """The objective, compiled if that was asked for; a machine that cannot falls back without a word."""
        if self.compile == "parts":
            for part in model.repeated_parts:  # they have one code, which is compiled once for all of them
                part.absorb = Quick(part.absorb, part.worth_compiling)
        return Compiled(objective) if self.compile == "on" else objective

    @cached_property
    def peak(self) -> float:
        """Measured floating-point operations a second."""
        return matmul_rate(self.device, torch.bfloat16 if self.low else torch.float32)


class Quick:
    """A function that is compiled when training first calls it; where that fails it runs as it is.

    `worth` says of inputs whether their shapes are worth it: each is compiled anew, and after eight the compiler would
    give up for good. It must look at the inputs alone, so that a run that is taken up again computes the same.
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


class Compiled(nn.Module):
    """A module whose forward is compiled."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.plain = plain
        self.quick = Quick(plain)

    def forward(self, *inputs: Any) -> Any:
        return self.quick(*inputs)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 numbers itself, not by way of float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    supported = (getattr(torch.cpu, f"_is_{name}_supported", bool) for name in ("avx512_bf16", "amx_tile"))
    return any(has() for has in supported)
