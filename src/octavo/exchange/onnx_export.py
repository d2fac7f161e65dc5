"""Any network as an ONNX file: one step, with its state as inputs and outputs.

B batch, V vocabulary.

A state is a tree of tensors (`octavo.core`), and nothing else is asked of a model: `step` is traced by torch.export, so
models of installed packages go out like our own. Some states grow with every token, such as a KV cache, up to a limit,
beyond which a step does something else: it drops the oldest token, or reads the last ones again. Such a model is traced
once while it grows and once when it is full, and the file chooses by the size of the state that it is given.
"""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from octavo import __version__
from octavo.core import LanguageModel, eval_mode, state_from, tensors_of
from octavo.errors import UserError
from octavo.exchange.huggingface_export import tokenizer_json
from octavo.exchange.onnx_graph import Branch, check_steps, joined
from octavo.io.files import whole_file
from octavo.models import name_of
from octavo.text.tokenizers.base import Tokenizer

NEEDED = ("onnx", "onnxscript", "onnxruntime")
MAX_BYTES = (1 << 31) - (1 << 24)  # of a file, by its format, with some room for the graph
SEEN_STEPS = 6  # a state whose sizes repeat within so many steps is traced for each of them
MAX_GROWTH = 1 << 14  # tokens; a state that still grows here is taken to grow for ever
ROWS = 3  # of the batch that is traced
TOLERANCE = 1e-4  # of logits and states, to what size they are


class Growth(NamedTuple):
    """How a state's sizes change: the tensor and the axis that tell, and the size at which it is full (0: never)."""

    tensor: int
    axis: int
    limit: int


def write_onnx(model: LanguageModel[Any], tokenizer: Tokenizer, path: str | Path) -> list[str]:
    """Write the file, after comparing it with the model in onnxruntime; returns what the user should know."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UserError(f"ONNX files need {', '.join(missing)}: pip install 'octavo[onnx]'")
    if (stored := sum(tensor.nbytes for tensor in model.parameters())) > MAX_BYTES:
        raise UserError(f"an ONNX file holds at most 2 GB: the weights have {stored:,} bytes; export another format")
    about = description(model, tokenizer)
    with torch.no_grad(), eval_mode(model):
        built = build_checked(model, about)
    with whole_file(path) as file:
        file.write(built.SerializeToString())
    has_text = "tokenizer.json" in about
    return [] if has_text else [f"the {tokenizer.name} tokenizer has no tokenizer.json: text needs octavo"]


def build_checked(model: LanguageModel[Any], about: dict[str, str]) -> Any:
    """The ONNX model of a step with its metadata, compared with the model in onnxruntime."""
    states, growth = find_growth(model)
    every = list(zip(*map(tensors_of, states), strict=True))
    kept = [i for i, tensors in enumerate(every) if any(tensor.numel() for tensor in tensors)]
    branches = [
        Branch(size, traced(model, state, kept, growth if size is None else None))
        for size, state in _phases(model, states, growth)
    ]
    place = None if growth is None else (kept.index(growth.tensor), growth.axis)
    start = tensors_of(model.start(1))
    about = about | {"start": json.dumps([_start(start[i]) for i in kept])}
    built = joined(branches, place, about)
    check_steps(built, model, kept, _checked_lengths(growth), TOLERANCE)
    return built


# ---------------------------------------------------------------------- how a state grows


def find_growth(model: LanguageModel[Any]) -> tuple[list[Any], Growth | None]:
    """The states after 0, 1, 2, ... tokens, one of each shape, and how their sizes go on; None: they are all here."""
    states = [model.start(ROWS)]
    while (following := _following(model, states[-1])) is not None and len(states) <= SEEN_STEPS:
        states.append(following)
        if any(_shapes(following) == _shapes(state) for state in states[:-1]):
            return states[:-1], _axis(states[:-1], 0)
    growth = _axis(states[-2:], 0)
    assert growth is not None  # else it would have been seen before
    small, large = states[-1], 0
    if model.window_stride and model.receptive_field:  # which may not be overstepped
        return states, growth._replace(limit=model.receptive_field)
    size = low = _size(small, growth)
    while not large and size <= MAX_GROWTH:
        low, size = size, 2 * size
        if not _grows(model, stretched(states, size), growth):
            large = size
    while large - low > 1:
        middle = (low + large) // 2
        low, large = (middle, large) if _grows(model, stretched(states, middle), growth) else (low, middle)
    return states, growth._replace(limit=large)


def _following(model: LanguageModel[Any], state: Any) -> Any:
    return model.step(state, torch.full((ROWS,), model.begin))[1]


def _shapes(state: Any) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors_of(state)]


def _axis(states: list[Any], limit: int) -> Growth | None:
    """The first axis that has another size in each of the states; None: every size is the same in all."""
    for tensor, shapes in enumerate(zip(*map(_shapes, states), strict=True)):
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            if len(sizes) > 1 and len(set(sizes)) == len(sizes):
                return Growth(tensor, axis, limit)
    if len(states) == 1:
        return None
    raise UserError(
        "ONNX cannot hold this model: the sizes of its state do not tell how many tokens it has seen; export it in "
        "another format"
    )


def _size(state: Any, growth: Growth) -> int:
    return tensors_of(state)[growth.tensor].shape[growth.axis]


def _grows(model: LanguageModel[Any], state: Any, growth: Growth) -> bool:
    return _size(_following(model, state), growth) == _size(state, growth) + 1


def stretched(states: list[Any], size: int) -> Any:
    """A state as large as one after so many tokens: its numbers are of no importance, so they are repeated."""
    before, last = map(tensors_of, states[-2:])
    tensors = []
    for old, new in zip(before, last, strict=True):
        for axis in range(new.dim()):
            if old.shape[axis] != new.shape[axis]:
                more = size - (len(states) - 1) + new.shape[axis]
                new = new.repeat_interleave(-(-more // new.shape[axis]), axis).narrow(axis, 0, more)
        tensors.append(new)
    return state_from(states[-1], tensors)


def _phases(
    model: LanguageModel[Any], states: list[Any], growth: Growth | None
) -> Iterator[tuple[int | None, Any]]:  # fmt: skip
    """The states that are traced, each with the size that it is for; the last one, with None, is for all others."""
    if growth is None:
        yield None, states[0]
    elif _closed(model, states):
        yield from ((_size(state, growth), state) for state in states)
    else:
        if growth.limit:
            yield growth.limit, stretched(states, growth.limit)
        yield None, stretched(states, max(_size(states[-1], growth), (growth.limit or 4 * SEEN_STEPS) // 2))


def _closed(model: LanguageModel[Any], states: list[Any]) -> bool:
    """Whether every state is followed by one that is here."""
    return _shapes(_following(model, states[-1])) in list(map(_shapes, states))


def _checked_lengths(growth: Growth | None) -> list[int]:
    """After how many tokens steps are compared: at the beginning, half way, and when a state is full."""
    limit = growth.limit if growth else 0
    return [0, max(0, limit // 2 - 1), max(0, limit - 3)]


# ---------------------------------------------------------------------- tracing


class Step(nn.Module):
    """A model's step with the tensors of its state one by one; those that are always empty are left out."""

    def __init__(self, model: LanguageModel[Any], state: Any, kept: list[int]) -> None:
        super().__init__()
        self.model, self.kept = model, kept
        self.like = state

    def forward(self, x_B: Tensor, state: list[Tensor]) -> tuple[Tensor, ...]:
        given = dict(zip(self.kept, state, strict=True))
        tensors = [
            given[i] if i in given else tensor.new_zeros((x_B.shape[0], *tensor.shape[1:]))
            for i, tensor in enumerate(tensors_of(self.like))
        ]
        logits_BV, new = self.model.step(state_from(self.like, tensors), x_B)
        after = tensors_of(new)
        return logits_BV, *(after[i] for i in self.kept)


def traced(model: LanguageModel[Any], state: Any, kept: list[int], growth: Growth | None) -> Any:
    """The step from states like this as an ONNX model, for any batch; with `growth`, for sizes like this one too."""
    following = tensors_of(_following(model, state))
    tensors = [tensors_of(state)[i].clone(memory_format=torch.contiguous_format) for i in kept]  # views have conditions
    any_size = torch.export.Dim.DYNAMIC
    axes: list[dict[int, Any]] = []
    for tensor, after in zip(tensors, (following[i] for i in kept), strict=True):
        growing = [a for a in range(1, tensor.dim()) if growth is not None and tensor.shape[a] != after.shape[a]]
        axes.append(dict.fromkeys((0, *growing), any_size))
    step = Step(model, state, kept)
    with _quiet():
        try:
            program = torch.export.export(
                step, (torch.full((ROWS,), model.begin), tensors), dynamic_shapes=({0: any_size}, axes), strict=False
            )
            converted = torch.onnx.export(program, dynamo=True, verbose=False)
        except Exception as error:  # whatever a model does that cannot be traced
            first = str(error).strip().partition("\n")[0]
            raise UserError(
                f"ONNX cannot hold the step of model {name_of(model)}: {first}; its step must be tensor operations on "
                "any batch (x.shape[0], not len(x))"
            ) from error
    assert converted is not None
    return converted.model_proto


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch's exporter warns of packages that it could use besides, and of its own."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


# ---------------------------------------------------------------------- what the file says about itself


def description(model: LanguageModel[Any], tokenizer: Tokenizer) -> dict[str, str]:
    """The metadata: what opens a sequence, how much of the past counts, and the tokenizer."""
    written = tokenizer_json(tokenizer)
    about = {
        "octavo": __version__, "model": name_of(model), "vocab": str(model.vocab), "begin": str(model.begin),
        "context": model.context_policy,
    }  # fmt: skip
    return about | ({} if written is None else {"tokenizer.json": json.dumps(written.parts, ensure_ascii=False)})


def _start(tensor: Tensor) -> dict[str, Any]:
    """A row of a tensor before any token: its shape, its type, and the number that fills it."""
    values = tensor[0].flatten()
    if len(values) and not bool((values == values[0]).all()):
        raise UserError(
            "ONNX holds states that start with one number: this model's starts with several; begin with zeros"
        )
    value = values[0].item() if len(values) else 0
    return {"shape": list(tensor.shape[1:]), "dtype": str(tensor.dtype).removeprefix("torch."), "value": value}
