"""What a recurrence S_t = A_t S_{t-1} + k_t v_tᵀ costs, and what autograd saves of a layer that is run without numbers.

B rows, T tokens of a row, K size of a key, V columns of a head's state, C tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from octavo.models.cost.parts import Part, Shape
from octavo.ops.linear.decaying import chunk_of


class Recurrence(NamedTuple):
    """The sizes of a layer's states."""

    heads: int
    key: int
    value: int
    """The columns of a head's state."""
    decays: int = 1
    """Of each head."""
    fixed_decay: bool = False
    """Whether no weight changes the decay."""
    delta: bool = False


def recurrence_part(name: str, one: Recurrence, shape: Shape) -> Part:
    """The products of S_t = A_t S_{t-1} + k_t v_tᵀ and y_t = q_t S_t: of a step those with the state, of a chunk those
    of all pairs besides.

    The state before the first token has no gradient, nor is that after the last one used. Systems of equations, which
    the delta rule solves in each chunk, are no products: C² (K + V) multiplications and additions, not counted.
    """
    rows, T, K, V = shape.batch * one.heads, shape.window, one.key, one.value
    state = 2 * K * V  # a vector times the state
    needed = rows * T * state * (3 if one.delta else 2)
    if T == 1:
        forward = state * (2 if one.delta else 1)
        erased = state * (1 if one.fixed_decay else 2) if one.delta else 0
        backward = 2 * state + erased
    else:
        C = min(chunk_of(one.decays), T)
        chunks = -(-T // C)
        pairs = 2 * C * C
        inside = pairs * (K + V)  # the map of all pairs, and its product with the values
        forward = chunks * (inside + 2 * C * state)
        backward = chunks * (2 * inside + C * state) + (chunks - 1) * 3 * C * state
        if one.delta:  # L, and W S
            forward += chunks * (pairs * K + C * state)
            backward += chunks * (2 * pairs * K + pairs * (K + V) + C * state) + (chunks - 1) * C * state
    return Part(name, forward=rows * forward, needed=needed, backward=rows * backward)


Run = tuple[Sequence[Tensor], Callable[[], object]]  # tensors that are not counted, and the run itself


def saved_for_backward(prepare: Callable[[torch.dtype], Run]) -> tuple[int, int]:
    """What a layer saves for the backward pass: numbers in the precision of products, and bytes whatever that is.

    The many small steps of a recurrence have no formula that could be trusted, so the layer is run without numbers (on
    PyTorch's meta device) and what autograd saves is counted: in single precision, and, for what stays single, in half.
    """
    wide = sum(size for number, size in _saved(prepare, torch.bfloat16) if number > 2)
    every = sum(size for _, size in _saved(prepare, torch.float32))
    saved_bytes = min(wide, every)
    return (every - saved_bytes) // 4, saved_bytes + (every - saved_bytes) % 4


def _saved(prepare: Callable[[torch.dtype], Run], dtype: torch.dtype) -> list[tuple[int, int]]:
    """The size of a number, and that of the whole, of every storage that autograd saves."""
    sizes: dict[int, tuple[int, int]] = {}
    held: list[Tensor] = []
    with torch.device("meta"), torch.inference_mode(False), torch.enable_grad():
        known, run = prepare(dtype)
        own = {_storage(one) for one in known}

        def pack(tensor: Tensor) -> Tensor:
            held.append(tensor)  # so that no storage is freed and its place taken by another
            if _storage(tensor) not in own:
                sizes[_storage(tensor)] = (tensor.element_size(), tensor.untyped_storage().nbytes())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            run()
    return list(sizes.values())


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
