"""The state of training in one file, so that it is either whole or not there: weights, optimizers, place in the text.

The file is safetensors; numbers and words are JSON in its header. Nothing in it can run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from octavo.config import from_json
from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.io.run_folder import current_tensor_name
from octavo.tasks.run import STATE, TENSORS, stream_tensors

FILE = "training.safetensors"
FORMAT = "octavo training 1"


@dataclass
class Position:
    """Where training stands: with the weights and the optimizers, all that the next step depends on."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    checked: int = 0  # checks made
    stale: int = 0  # checks since the best one
    best_bits: float | None = None  # per byte, on the pieces held out
    smooth: float | None = None  # a running average of the loss, in nats a token
    skipped: int = 0  # bad steps in a row
    lowered: float = 1.0  # the rate's factor, halved each time that training had to go back
    restored: int = 0  # times that it had to
    log_bytes: int = 0  # the length of metrics.jsonl
    ended: str = ""  # why, where it was not for the budget


@dataclass
class Checkpoint:
    """Tensors by kind and name, and the position."""

    position: Position
    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write it in place of the last one, which stays if this one cannot be written."""
        flat = {f"{kind}:{name}": t for kind, group in self.tensors.items() for name, t in group.items()}
        about = {"format": FORMAT, "position": json.dumps(asdict(self.position), allow_nan=False)}
        with whole_file(folder / STATE / FILE) as file:
            stream_tensors(flat, file, about)

    @classmethod
    def load(cls, folder: Path) -> Checkpoint:
        """The last one that was written whole."""
        path = folder / STATE / FILE
        if not path.is_file():
            raise UserError(f"{folder} has no {STATE}/{FILE}, so it cannot be taken up again; train it anew")
        try:
            with safetensors.safe_open(path, "pt") as opened:
                about = opened.metadata() or {}
                if about.get("format") != FORMAT:
                    raise UserError(f"{path} is of format {about.get('format')!r}, not {FORMAT!r}; train the run anew")
                position = _position(about["position"])
                grouped: dict[str, dict[str, Tensor]] = {}
                for key in opened.keys():  # noqa: SIM118
                    kind, _, name = current_tensor_name(key).partition(":")
                    grouped.setdefault(kind, {})[name] = opened.get_tensor(key).clone()
        except (OSError, ValueError, KeyError, RecursionError, safetensors.SafetensorError) as error:
            raise UserError(f"{path} is damaged or foreign: {error}; train the run anew") from error
        return cls(position, grouped)


def _position(told: str) -> Position:
    try:
        position: Position = from_json(Position, json.loads(told))
    except UserError as error:
        raise ValueError(str(error)) from error
    numbers = [value for value in vars(position).values() if isinstance(value, int | float)]
    if not all(number >= 0 for number in numbers):
        raise ValueError("its position is not one that training can be in")
    return position


def check_shapes(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str) -> None:
    """Refuse tensors that are not this model's."""
    ours = {name: tuple(t.shape) for name, t in wanted.items()}
    theirs = {name: tuple(t.shape) for name, t in found.items()}
    if ours != theirs:
        wrong = sorted(set(ours.items()) ^ set(theirs.items()))[:3]
        raise UserError(f"the saved {what} are of another model: {wrong}; train the run anew")


def carried_state(found: Mapping[str, Tensor], wanted: Sequence[Tensor], batch: int) -> list[Tensor]:
    """The saved state's tensors in order; one of another model is refused, though what it remembers may be longer."""
    tensors = [found[str(i)] for i in range(len(found)) if str(i) in found]
    shapes = [(batch, t.dim(), t.shape[1:][-1:]) for t in wanted]
    if len(tensors) != len(found) or [(len(t), t.dim(), t.shape[1:][-1:]) for t in tensors if t.dim()] != shapes:
        told = {name: tuple(t.shape) for name, t in found.items()}
        raise UserError(f"the saved state is of another model or batch: {told}; train the run anew")
    return tensors


def write_weights(weights: Mapping[str, Tensor], folder: Path) -> None:
    """The best weights so far as the run's own, so that a run can be used while it trains."""
    with whole_file(folder / TENSORS) as file:
        stream_tensors(weights, file)


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are now, on the CPU, untouched by what comes."""
    return {name: t.detach().to("cpu", copy=True) for name, t in tensors.items()}


def any_not_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether a nan or an infinity has got into them."""
    return any(not bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())
