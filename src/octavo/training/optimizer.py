"""Optimizers: Muon for the matrices inside a model and AdamW for the rest, or AdamW for all.

M matrices of one shape (R rows, C columns).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from octavo.config import Amount, LearningRate, Range, Share, check_ranges
from octavo.errors import UserError
from octavo.training.distributed import is_sharded, placed_like, whole
from octavo.training.schedule import learning_rate_factor


class StackedMuon(Muon):
    """PyTorch's Muon (the reference implementation) with matrices of the same shape stacked: a tenth of the calls,
    which is what small models spend their time on. Matrices that are divided among processes are left to PyTorch.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            with_grad = [parameter for parameter in group["params"] if parameter.grad is not None]
            if any(is_sharded(parameter) for parameter in with_grad):
                super().step(closure)  # type: ignore[no-untyped-call]
                return
            shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in with_grad:
                shapes[parameter.shape].append(parameter)
            for alike in shapes.values():
                self._step(alike, group)

    def _step(self, alike: list[nn.Parameter], group: dict[str, Any]) -> None:
        for parameter in alike:
            if not self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        grads: list[Any] = [parameter.grad for parameter in alike]
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in alike]
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        ahead = torch._foreach_lerp(grads, buffers, group["momentum"]) if group["nesterov"] else buffers
        updates_MRC = orthogonal(torch.stack(list(ahead)), group["ns_coefficients"], group["ns_steps"], group["eps"])
        R, C = alike[0].shape
        weights: list[Any] = list(alike)
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        rate = group["lr"] * math.sqrt(max(1.0, R / C))
        torch._foreach_add_(weights, list(updates_MRC.to(alike[0].dtype).unbind(0)), alpha=-rate)


def orthogonal(g_MRC: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Nearly the orthogonal matrix next to each g, by Newton and Schulz's iteration: X' = a X + (b A + c A²) X, where
    A = X Xᵀ.
    """
    a, b, c = coefficients
    x = g_MRC.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT.contiguous() if tall else x
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=eps)
    for _ in range(steps):
        A = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(A, A, A, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


MUON_LEARNING_RATE = 0.02  # of a model without a default of its own


@dataclass(frozen=True)
class OptimizerConfig:
    """How the weights are changed."""

    optimizer: Literal["muon", "adamw"] = "muon"
    """muon: the matrices inside the model by Muon, everything else by AdamW. adamw: everything by AdamW."""
    learning_rate: LearningRate = 0.004
    """AdamW's learning rate at its highest."""
    muon_learning_rate: Annotated[float, Range(0, 10.0)] = 0.0
    """Muon's learning rate at its highest; 0: what suits the model."""
    weight_decay: Amount = 0.1
    """Weight decay of the matrices inside the model; embeddings, biases and norms have none."""
    warmup: Share = 0.02
    """Warm-up: the share of the budget in which the learning rate rises linearly."""
    decay: Literal["linear", "cosine", "none"] = "linear"
    """Learning-rate decay after the warm-up."""
    clip: Amount = 1.0
    """Gradient clipping: the largest norm of the gradient; 0: off."""
    label_smoothing: Share = 0.0
    """Label smoothing: the share of each target that is spread over all tokens or classes."""
    ema: Share = 0.0
    """EMA: evaluate and save an exponential moving average of the weights with this decay, such as 0.99; 0: off."""

    RENAMED: ClassVar[dict[str, str]] = {"rate": "learning_rate", "matrix_rate": "muon_learning_rate"}

    def __post_init__(self) -> None:
        check_ranges(self)

    def suiting(self, model: nn.Module) -> OptimizerConfig:
        """With the model's default Muon learning rate, where Muon is used and none was given."""
        if self.optimizer != "muon":
            return self
        usual: Any = getattr(model, "muon_learning_rate", MUON_LEARNING_RATE)
        return replace(self, muon_learning_rate=self.muon_learning_rate or float(usual))


def parameter_groups(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """The parameters as matrices (for Muon), embedding tables of tokens or positions, and vectors.

    A table is known by the shape in its name: `embedding_VD` has a row a token, `positions_CD` a row a position.
    """
    matrices, tables, vectors = [], [], []
    vocab: Any = getattr(model, "vocab", None)  # a model without one is taken at its names' word
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        has_vocab = vocab in (None, len(parameter))
        shape = name.rpartition(".")[2].rpartition("_")[2]  # as in embedding_VD; any matrix may have V rows by chance
        if parameter.dim() < 2:
            vectors.append(parameter)
        elif parameter.dim() > 2 or shape.startswith("C") or (has_vocab and shape.startswith("V")):
            tables.append(parameter)
        else:
            matrices.append(parameter)
    return matrices, tables, vectors


class Optimizers:
    """One or two optimizers that step together, at a rate that the schedule gives."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self.config = config = config.suiting(model)
        self.named = dict(model.named_parameters())
        matrices, tables, vectors = parameter_groups(model)
        plain = {"params": [*tables, *vectors], "weight_decay": 0.0}
        betas = (0.9, 0.99)  # a low beta2: a run of a few thousand steps has no time for a longer average
        self.all: list[Optimizer]
        if config.optimizer == "muon" and matrices:
            self.all = [
                StackedMuon(matrices, lr=config.muon_learning_rate, weight_decay=config.weight_decay),
                AdamW([plain], lr=config.learning_rate, betas=betas, fused=True),
            ]
        else:
            decayed = {"params": matrices, "weight_decay": config.weight_decay}
            groups = [group for group in (decayed, plain) if group["params"]]
            self.all = [AdamW(groups, lr=config.learning_rate, betas=betas, fused=True)]
        self.highest = [[group["lr"] for group in one.param_groups] for one in self.all]

    def step(self, spent: float, rate_factor: float) -> float:
        """Change the weights at the rate for this moment of the budget; returns the schedule's factor."""
        factor = rate_factor * learning_rate_factor(spent, self.config.warmup, self.config.decay)
        for one, highest in zip(self.all, self.highest, strict=True):
            for group, rate in zip(one.param_groups, highest, strict=True):
                group["lr"] = rate * factor
            one.step()
        return factor

    def zero(self) -> None:
        """Forget the gradients."""
        for one in self.all:
            one.zero_grad(set_to_none=True)

    def entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """For every parameter that has one, its name and what its optimizer remembers of it."""
        names = {id(parameter): name for name, parameter in self.named.items()}
        for one in self.all:
            for parameter, kept in one.state.items():
                yield names[id(parameter)], kept

    def tensors(self) -> dict[str, Tensor]:
        """What the optimizers remember, by the parameter's name and what it is."""
        return {f"{name}/{key}": whole(value) for name, kept in self.entries() for key, value in kept.items()}

    def take(self, tensors: dict[str, Tensor]) -> None:
        """Remember what was saved, or, where that is nothing, begin anew; what is not these optimizers' is refused."""
        names = {id(parameter): name for name, parameter in self.named.items()}
        left = dict(tensors)
        for one in self.all:
            # In this order in every process, because sharded tensors are handed out by all of them together.
            kept = ("momentum_buffer",) if isinstance(one, Muon) else ("step", "exp_avg", "exp_avg_sq")
            for parameter in (parameter for group in one.param_groups for parameter in group["params"]):
                mine = {key: left.pop(f"{names[id(parameter)]}/{key}", None) for key in kept}
                found = {key: value for key, value in mine.items() if value is not None}
                shapes = {tuple(value.shape) for key, value in found.items() if key != "step"}
                if found and (len(found) < len(kept) or shapes != {tuple(parameter.shape)}):
                    raise UserError("the saved optimizers are of another model or setting; train the run anew")
                one.state[parameter] = {key: placed_like(parameter, value) for key, value in found.items()}
        if left:
            raise UserError(f"the saved optimizers are of another model or setting: {min(left)}; train the run anew")


def gradient_norm(model: nn.Module, longest: float) -> Tensor:
    """The length of the gradient; one longer than `longest` is shortened to it (0: left as it is)."""
    return whole(nn.utils.clip_grad_norm_(model.parameters(), longest or torch.inf))
