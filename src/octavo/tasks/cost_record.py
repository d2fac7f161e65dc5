"""What a model costs, as one record: its parts, its memory, and its time on this machine and on a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from octavo.config import Range, check_ranges
from octavo.costs import Cost, Machine, Part, Prediction, on_meta, roofline, training_memory
from octavo.costs.memory import SIZE, Optimizer, Precision
from octavo.io.files import size
from octavo.pages.sections import notebook_view, paragraph, table
from octavo.tasks.device import pick_device
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.precision import has_bfloat16
from octavo.training.step_timing import Piece, StepTiming, time_steps

FLOPS = ("forward", "needed", "backward")


@dataclass(frozen=True)
class CostSettings:
    """What the time is predicted for."""

    gpu: str = "h100"
    """t4, l4, rtx-4090, a100-80, h100 or h200: by its datasheet."""
    optimizer: Optimizer = "muon"
    """muon: one number remembered for each of a matrix, two for each other; adamw: two for each."""
    measure: bool = True
    """--no-measure leaves this machine out: a few seconds, in which steps of training are timed."""
    utilisation: Annotated[float, Range(0, 1.0, above=True)] = roofline.UTILISATION
    """The share of a machine's peak and bandwidth that is reached where training is not timed: an assumption."""
    precision: Precision = "bfloat16"
    """That of products and of what is saved for the backward pass; weights are trained in float32."""
    tokens: Annotated[int, Range(0, 10**18)] = 0
    """Tokens, images or sources to train on: says how long that takes; of an n-gram, how large its tables can be."""

    def __post_init__(self) -> None:
        roofline.named_gpu(self.gpu)
        check_ranges(self)

    @property
    def trained_in(self) -> Precision:
        """The precision of products on this machine: half only where it has instructions for it, as when training."""
        return "bfloat16" if self.precision == "bfloat16" and has_bfloat16(pick_device("auto")) else "float32"

    def machines(self) -> list[Machine]:
        """This machine, if it is to be measured, and the GPU."""
        here = [roofline.measured_machine(pick_device("auto"), self.trained_in)] if self.measure else []
        return [*here, roofline.named_gpu(self.gpu)]


class Counted(NamedTuple):
    """What is reported: the costs of a training step and of a token after a full context, and what can be timed."""

    title: str
    training: Cost
    decoding: Cost | None = None
    piece: Piece | None = None
    notes: tuple[str, ...] = ()
    """Lines after the parameters."""
    extra: Mapping[str, Any] = MappingProxyType({})
    """What JSON has beside."""


def piece_of(model: str, config: Any, vocab: int, batch: int, window: int, settings: CostSettings) -> Piece:
    """What training would run; 0 rows or tokens are what suits the model."""
    loop = LoopConfig(batch_size=batch, sequence_length=window, precision=settings.trained_in)
    loop = loop.suiting(on_meta(model, config, vocab))
    return Piece(model, config, vocab, loop, OptimizerConfig(optimizer=settings.optimizer))


def predictions(counted: Counted, settings: CostSettings) -> tuple[list[Prediction], StepTiming | None]:
    """For this machine and the GPU, training first; a model without products has none. Training is timed here."""
    training, decoding, timing = counted.training, counted.decoding, None
    if not training.training_flops:
        return [], None
    machines, share, optimizer = settings.machines(), settings.utilisation, settings.optimizer
    if settings.measure and counted.piece:
        timing = time_steps(counted.piece, machines[0].flops, pick_device("auto"))
    found = [roofline.predict_training(training, one, share, optimizer, settings.precision) for one in machines]
    if timing:
        found[0] = dataclasses.replace(found[0], predicted_tokens_per_second=timing.tokens_per_second, how="timed")
    if decoding is not None:
        found += [roofline.predict_decoding(decoding, one, share, settings.precision) for one in machines]
    return found, timing


def cost_record(
    counted: Counted, settings: CostSettings, found: list[Prediction], timing: StepTiming | None
) -> dict[str, Any]:
    """Everything about a cost, as JSON has it; operations of the parts are of the whole batch."""
    cost, unit, width = counted.training, counted.training.unit, SIZE[settings.precision]
    memory = dataclasses.asdict(training_memory(cost, settings.optimizer, settings.precision))
    if unit != "token":
        del memory["activations"]  # which are not counted
    per_unit = {what: cost.total(what) / cost.units for what in FLOPS} | {"training": cost.training_flops / cost.units}
    carried = counted.piece and counted.piece.cost()
    if carried:
        per_unit["training_with_past"] = carried.training_flops / carried.shape.tokens
    mine = found[0] if found and settings.measure else None
    return {
        "title": counted.title, "model": cost.model, "vocab": cost.vocab,
        "parameters": cost.parameters + cost.table_entries,
        "active_parameters": cost.active_parameters + cost.table_entries,
        "table_bytes": cost.table_bytes, "tables_at_most": cost.tables_at_most,
        "batch": cost.shape.batch, "window": cost.shape.window, "unit": unit,
        **({"past": carried.shape.past} if carried else {}),
        **({} if unit == "token" else {f"tokens_per_{unit}": cost.shape.tokens // cost.units}),
        "parts": [dataclasses.asdict(part) for part in cost.parts if part != Part(part.name)],
        f"flops_per_{unit}": per_unit,
        "memory": memory | {"total": sum(memory.values())},
        "cache": {
            "bytes_per_token": sum(c.per_token * max(width, c.least_size) for c in cost.caches),
            "constant_bytes": cost.cache_bytes(0, width), "bytes": cost.cache_bytes(cost.shape.window, width),
        },
        "predicted_seconds_per_step": mine and mine.predicted_seconds_per_step,
        f"predicted_{unit}s_per_second": mine and mine.predicted_tokens_per_second,
        "predictions": [
            {key.replace("token", unit): value for key, value in dataclasses.asdict(one).items()} | {
                "bound": one.bound, "predicted_seconds_per_step": one.predicted_seconds_per_step,
                "seconds": settings.tokens / one.predicted_tokens_per_second
                if settings.tokens and one.work == "training" else None,
            }
            for one in found
        ],
        "timing": timing and dataclasses.asdict(timing),
        "assumed": {key: value for key, value in dataclasses.asdict(settings).items() if key != "measure"},
    }  # fmt: skip


@dataclass(frozen=True, repr=False)
class CostReport:
    """What a model costs; the parts' operations are of the whole batch."""

    counted: Counted
    predictions: tuple[Prediction, ...]
    record: dict[str, Any]

    @property
    def parameters(self) -> int:
        """How many weights it has."""
        return int(self.record["parameters"])

    @property
    def training_flops(self) -> float:
        """Floating-point operations of training for each token, image or source: forward and backward."""
        return float(self.record[f"flops_per_{self.record['unit']}"]["training"])

    @property
    def memory(self) -> int:
        """Bytes that training holds."""
        return int(self.record["memory"]["total"])

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON values."""
        return dict(self.record)

    def __repr__(self) -> str:
        title, unit = self.record["title"], self.record["unit"]
        if not self.record["parts"]:
            bound = "at most " if self.record["tables_at_most"] else ""
            return f"<octavo cost of {title}: look-up tables of {bound}{size(self.record['table_bytes'])}, no products>"
        work = f"{self.training_flops:,.0f} FLOPs of training for each {unit}"
        return f"<octavo cost of {title}: {self.parameters:,} parameters, {work}, {size(self.memory)} held>"

    def _repr_html_(self) -> str:
        cost = self.counted.training
        rows = [
            (part.name, f"{part.parameters:,}", *(f"{getattr(part, what) / cost.units:,.0f}" for what in FLOPS))
            for part in cost.parts if part != Part(part.name)
        ]  # fmt: skip
        titles = ("part", "parameters", *(f"{what} FLOPs/{cost.unit}" for what in FLOPS))
        return notebook_view(paragraph(repr(self)[1:-1]), table(titles, rows, numeric=range(1, 5)))


def report_cost(counted: Counted, settings: CostSettings) -> CostReport:
    """What a model costs that was counted."""
    found, timing = predictions(counted, settings)
    record = cost_record(counted, settings, found, timing) | dict(counted.extra)
    return CostReport(counted, tuple(found), record)
