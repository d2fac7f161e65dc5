"""The checkpoint: all that training resumes from, in one file that is either whole or absent.

The format is safetensors, so nothing in it can run. A tensor's key is `kind:name`, where kind is weights, optimizer,
average (EMA), best (weights of the best evaluation) or state (the carried state); the `Position` is JSON in the header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

import safetensors
import torch
from torch import Tensor

from octavo.config import from_json
from octavo.errors import UserError
from octavo.io.files import whole_file
from octavo.io.integrity import hash_tensors, run_start
from octavo.io.run_folder import CONFIG, STATE, TENSORS, read_record
from octavo.io.tensors import current_tensor_name, stream_tensors

FILE = "training.safetensors"
FORMAT = "octavo training 1"


@dataclass
class Position:
    """Where training stands: with the weights and the optimizers, all that the next step depends on."""

    stage: int = 0
    step: int = 0
    examples: int = 0  # tokens, of a language model
    seconds: float = 0.0
    evaluations: int = 0  # made so far
    stale: int = 0  # evaluations since the best one
    evaluation_seconds: float = 0.0  # that they took
    validation_part: float = 0.0  # of the validation data that they are made on; 0: not chosen yet
    best_value: float | None = None  # of the measure by which the best weights are chosen
    final_value: float | None = None  # of the best weights on all validation data, where they were chosen on a part
    loss_average: float | None = None  # a running average
    skipped: int = 0  # bad steps in a row
    rate_factor: float = 1.0  # of the learning rate, halved each time that good weights had to be restored
    restored: int = 0  # times that they had to
    log_bytes: int = 0  # the length of metrics.jsonl
    ended: str = ""  # why, where it was not for the budget

    RENAMED: ClassVar[dict[str, str]] = {
        "tokens": "examples", "checked": "evaluations", "best_bits": "best_value", "smooth": "loss_average",
        "lowered": "rate_factor",
    }  # fmt: skip


@dataclass
class Checkpoint:
    """Tensors by kind and name, and the position."""

    position: Position
    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write it in place of the last one, which stays if this one cannot be written."""
        flat = {f"{kind}:{name}": t for kind, group in self.tensors.items() for name, t in group.items()}
        about = _run_of(folder) | {"format": FORMAT, "position": json.dumps(asdict(self.position), allow_nan=False)}
        with whole_file(folder / STATE / FILE) as file:
            stream_tensors(flat, file, about)

    @classmethod
    def load(cls, folder: Path) -> Checkpoint:
        """The last one that was written whole."""
        path = folder / STATE / FILE
        if not path.is_file():
            raise UserError(f"{folder} has no {STATE}/{FILE}, so it cannot be resumed; train it anew")
        try:
            _check_whole(path, folder)
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
        if (value := grouped.pop("figure", {}).get("best")) is not None:  # where version 0.1 kept it
            position.best_value = float(value)
        return cls(position, grouped)


def _check_whole(path: Path, folder: Path) -> None:
    """Refuse a checkpoint whose bytes have changed, or that belongs to another run."""
    found, own, run = hash_tensors(path)
    known = _run_of(folder).get("run", "")
    if own != found and (own or known):  # only checkpoints of old runs have no hash
        raise UserError(
            f"{path} is damaged: its bytes do not match the hash in it; copy the run again, or train it anew"
        )
    if known and run != known:
        raise UserError(f"{path} is the checkpoint of another run; copy the whole folder again, or train the run anew")


def _position(saved: str) -> Position:
    try:
        position: Position = from_json(Position, json.loads(saved))
    except UserError as error:
        raise ValueError(str(error)) from error
    signed = ("best_value", "final_value", "loss_average")
    numbers = [value for key, value in vars(position).items() if isinstance(value, int | float) and key not in signed]
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
    if any_not_finite(found.values()):
        raise UserError(f"the saved {what} must be numbers, and some are not: it is damaged; train the run anew")


def carried_state(found: Mapping[str, Tensor], wanted: Sequence[Tensor], batch: int) -> list[Tensor]:
    """The saved state's tensors in order; one of another model is refused, though what it remembers may be longer."""
    tensors = [found[str(i)] for i in range(len(found)) if str(i) in found]
    shapes = [(batch, t.dim(), t.shape[1:][-1:]) for t in wanted]
    if len(tensors) != len(found) or [(len(t), t.dim(), t.shape[1:][-1:]) for t in tensors if t.dim()] != shapes:
        saved = {name: tuple(t.shape) for name, t in found.items()}
        raise UserError(f"the saved state is of another model or batch: {saved}; train the run anew")
    return tensors


def write_weights(weights: Mapping[str, Tensor], folder: Path) -> None:
    """The best weights so far as the run's own, so that a run can be used while it trains."""
    with whole_file(folder / TENSORS) as file:
        stream_tensors(weights, file, _run_of(folder))


def _run_of(folder: Path) -> dict[str, str]:
    """What the header of a file of tensors says of its run: the hash of the weights that training began with."""
    start = run_start(read_record(folder)) if (folder / CONFIG).is_file() else ""
    return {"run": start} if start else {}


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are now, on the CPU, untouched by what comes."""
    return {name: t.detach().to("cpu", copy=True) for name, t in tensors.items()}


def any_not_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether a nan or an infinity has got into them."""
    return any(not bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())
