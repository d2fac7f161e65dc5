"""Several processes that train one model, as torchrun starts them: each takes its rows of every batch.

B rows of the whole batch, R processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from octavo.core import state_from, tensors_of
from octavo.errors import UserError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class Team:
    """The processes that work together; alone, there is one."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes, and whose clock counts."""
        return self.rank == 0

    def rows(self, batch: int) -> slice:
        """Which rows of a batch are this process's."""
        if batch % self.size:
            raise UserError(
                f"the processes must divide the batch: batch_size={batch}, processes={self.size}; "
                f"try --batch-size {max(1, batch // self.size) * self.size}"
            )
        share = batch // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def share(self, rows: int) -> tuple[int, int]:
        """The first and the last row, exclusive, that are this process's; shares may differ by one row."""
        return self.rank * rows // self.size, (self.rank + 1) * rows // self.size

    def step_seed(self, seed: int, step: int) -> int:
        """What this process's dropout draws from in a step: other numbers in every step and in every process."""
        return ((seed * 1_000_003 + step) * 1009 + self.rank) % (1 << 63)

    def agree(self, *values: float) -> list[float]:
        """The leader's values, for all."""
        if self.size == 1 or not values:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return shared.tolist()

    def total(self, value: Tensor) -> Tensor:
        """The sum over the processes."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def all_rows(self, tensor: Tensor) -> Tensor:
        """The rows of every process, in order."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def wrap(self, objective: nn.Module, model: nn.Module, shard: bool) -> nn.Module:
        """The objective, its gradients averaged over the processes. Sharded (FSDP2), each process holds its part of the
        weights, and those of one block at a time are gathered.
        """
        if self.size == 1:
            return objective
        if shard:
            mesh = dist.device_mesh.init_device_mesh(self.device.type, (self.size,))
            from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method  # takes a second, few need it

            for block in getattr(model, "repeated_blocks", ()):
                fully_shard(block, mesh=mesh)
                if hasattr(block, "absorb"):  # what is called of a language model's block
                    register_fsdp_forward_method(block, "absorb")
            fully_shard(objective, mesh=mesh)
            return objective
        return DistributedDataParallel(objective)

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def team(device: torch.device) -> Iterator[Team]:
    """Join the processes that torchrun started; without torchrun, be one's own team."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        if device.type == "cuda":
            torch.cuda.set_device(device)  # kernels and graphs are launched on the current one
        yield Team(0, 1, device)
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    mine = torch.device("cuda", local) if device.type == "cuda" else device
    if mine.type == "cuda":
        torch.cuda.set_device(mine)
    joined = not dist.is_initialized()
    if joined:
        on_gpu = mine.type == "cuda"
        dist.init_process_group("nccl" if on_gpu else "gloo", device_id=mine if on_gpu else None)
    try:
        joint = Team(dist.get_rank(), size, mine)
        yield joint
        joint.wait()  # the leader may still write what the others would read
    finally:
        if joined:
            dist.destroy_process_group()


@contextmanager
def unsharded(objective: Any) -> Iterator[None]:
    """Within it, the weights of a sharded module are whole; every process must enter at once."""
    sharded = [part for part in objective.modules() if hasattr(part, "unshard")]  # what fully_shard was called on
    for part in sharded:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in sharded:
            part.set_reshard_after_forward(part is not objective, recurse=False)  # as fully_shard has it
            part.reshard()


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether it is a part of a tensor; no tensor is before torch's module for that is imported."""
    shards = sys.modules.get("torch.distributed.tensor")
    return shards is not None and isinstance(tensor, shards.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor put together; every process must ask for it at once."""
    if is_sharded(tensor):
        together: Tensor = tensor.full_tensor()
        return together
    return torch.as_tensor(tensor)


def placed_like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy of a whole tensor where the parameter is: on its device, and sharded as it is."""
    here = tensor.to(parameter.device, copy=True)
    if is_sharded(parameter) and tensor.shape == parameter.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(here, parameter.device_mesh, parameter.placements)
    return here


def joined(states: list[Any]) -> Any:
    """The states of the pieces of a batch as one."""
    columns = zip(*(tensors_of(state) for state in states), strict=True)
    return state_from(states[0], [torch.cat(column) for column in columns])


@contextmanager
def swapped(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Within it the tensors hold other values, where there are any."""

    def swap() -> None:
        for name, value in values.items():  # in place, because sharded weights are gathered from where they lie
            kept = value.clone()
            value.copy_(tensors[name])
            tensors[name].copy_(kept)

    swap()
    try:
        yield
    finally:
        swap()
