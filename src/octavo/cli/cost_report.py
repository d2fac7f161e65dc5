"""What octavo cost reports: parts, memory, and time on this machine and on a GPU; as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from octavo.cli.output import Output, print_table, size
from octavo.costs import Assumptions, Cost, Machine, Part, Plan, Prediction, on_meta, roofline, training_memory
from octavo.costs.memory import SIZE, Optimizer, Precision
from octavo.errors import UserError
from octavo.experiments.table import show_amount
from octavo.models import MODELS
from octavo.models.parts.checks import check_not_negative
from octavo.tasks.task import pick_device
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.precision import has_bfloat16
from octavo.training.step_timing import Piece, StepTiming, time_steps

FLOPS = ("forward", "needed", "backward")
WORK = {"training": "training", "decoding": "decoding, 1 row"}
BUSY = 2  # times the quickest step that the slowest takes


@dataclass(frozen=True)
class Asked:
    """What the time is predicted for."""

    gpu: str = "h100"
    """t4, l4, rtx-4090, a100-80, h100 or h200: by its datasheet."""
    optimizer: Optimizer = "muon"
    """muon: one number remembered for each of a matrix, two for each other; adamw: two for each."""
    measure: bool = True
    """--no-measure leaves this machine out: a few seconds, in which steps of training are timed."""
    utilisation: float = roofline.UTILISATION
    """The share of a machine's peak and bandwidth that is reached where training is not timed: an assumption."""
    precision: Precision = "bfloat16"
    """That of products and of what is saved for the backward pass; weights are trained in float32."""
    tokens: int = 0
    """Tokens, images or sources to train on: says how long that takes; of an n-gram, how large its tables can be."""

    def __post_init__(self) -> None:
        roofline.named_gpu(self.gpu)
        if not 0 < self.utilisation <= 1:
            raise UserError(f"utilisation must be above 0 and at most 1: {self.utilisation}; try --utilisation 0.4")
        check_not_negative("tokens", self.tokens, "try --tokens 1000000")

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


def piece_of(model: str, config: Any, vocab: int, batch: int, window: int, asked: Asked) -> Piece:
    """What training would run; 0 rows or tokens are what suits the model."""
    loop = LoopConfig(batch_size=batch, sequence_length=window, precision=asked.trained_in)
    loop = loop.suiting(on_meta(model, config, vocab))
    return Piece(model, config, vocab, loop, OptimizerConfig(optimizer=asked.optimizer))


def predictions(counted: Counted, asked: Asked) -> tuple[list[Prediction], StepTiming | None]:
    """For this machine and the GPU, training first; a model without products has none. Training is timed here."""
    training, decoding, timing = counted.training, counted.decoding, None
    if not training.training_flops:
        return [], None
    machines, share = asked.machines(), asked.utilisation
    if asked.measure and counted.piece:
        timing = time_steps(counted.piece, machines[0].flops, pick_device("auto"))
    found = [roofline.predict_training(training, one, share, asked.optimizer, asked.precision) for one in machines]
    if timing:
        found[0] = dataclasses.replace(found[0], predicted_tokens_per_second=timing.tokens_per_second, how="timed")
    if decoding is not None:
        found += [roofline.predict_decoding(decoding, one, share, asked.precision) for one in machines]
    return found, timing


def report_cost(counted: Counted, asked: Asked) -> Output:
    """What a model costs."""
    found, timing = predictions(counted, asked)
    record = cost_record(counted, asked, found, timing) | dict(counted.extra)
    return Output(record, lambda: print_cost(counted, record, found))


def print_cost(counted: Counted, record: dict[str, Any], found: list[Prediction]) -> None:
    """The parts, the memory and the times."""
    print(f"{record['title']}: {record['parameters']:,} parameters, {describe_unit(counted.training)}")
    print(*counted.notes, sep="\n", end="\n" if counted.notes else "")
    if record["table_bytes"]:
        bound = "at most " if record["tables_at_most"] else ""
        print(f"look-up tables: {bound}{size(record['table_bytes'])}")
    if not record["parts"]:
        print("no products: a token costs look-ups only")
        return
    print_parts(record, counted.training)
    print_memory(record)
    if found:
        print_bounds(found, record["unit"])
        print_times(found, record)


def cost_record(counted: Counted, asked: Asked, found: list[Prediction], timing: StepTiming | None) -> dict[str, Any]:
    """Everything about a cost, as JSON has it; operations of the parts are of the whole batch."""
    cost, unit, width = counted.training, counted.training.unit, SIZE[asked.precision]
    memory = dataclasses.asdict(training_memory(cost, asked.optimizer, asked.precision))
    if unit != "token":
        del memory["activations"]  # which are not counted
    per_unit = {what: cost.total(what) / cost.units for what in FLOPS} | {"training": cost.training_flops / cost.units}
    carried = counted.piece and counted.piece.cost()
    if carried:
        per_unit["training_with_past"] = carried.training_flops / carried.shape.tokens
    mine = found[0] if found and asked.measure else None
    return {
        "title": counted.title, "model": cost.model, "vocab": cost.vocab, "parameters": cost.parameters,
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
                "seconds": asked.tokens / one.predicted_tokens_per_second
                if asked.tokens and one.work == "training" else None,
            }
            for one in found
        ],
        "timing": timing and dataclasses.asdict(timing),
        "assumed": {key: value for key, value in dataclasses.asdict(asked).items() if key != "measure"},
    }  # fmt: skip


# ---------------------------------------------------------------------- as text


def describe_unit(cost: Cost) -> str:
    """What a token, an image or a source is."""
    count = cost.shape.tokens // cost.units
    return {
        "token": f"vocabulary {cost.vocab:,}", "image": f"an image is {count:,} tokens",
        "source": f"{count:,} tokens are written for each source",
    }[cost.unit]  # fmt: skip


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    for unit, part in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * part:
            return f"{seconds / part:.3g} {unit}"
    for unit, length in (("years", 365.25 * 86_400), ("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} s"


def print_parts(record: dict[str, Any], cost: Cost) -> None:
    """Each part's parameters, and its operations and bytes for a token, an image or a source."""
    width, total = SIZE[record["assumed"]["precision"]], sum(cost.parts, Part("in all"))
    rows = [
        (part.name, f"{part.parameters:,}", *(show_amount(getattr(part, what) / cost.units) for what in FLOPS),
         size((width * part.saved + part.saved_bytes) / cost.units))
        for part in (*cost.parts, total) if part != Part(part.name)
    ]  # fmt: skip
    titles = ("part", "parameters", "forward", "of it needed", "backward", "saved")
    columns = len(titles) if cost.unit == "token" else len(titles) - 1  # what is saved is not counted of other models
    some = f" of {cost.shape.batch:,} × {cost.shape.window:,}" if cost.unit == "token" else ""
    print(f"\nfor each {cost.unit}{some}, in FLOPs of products:\n")
    print_table(titles[:columns], [row[:columns] for row in rows])
    if record.get("past"):
        carried = show_amount(record["flops_per_token"]["training_with_past"])
        print(f"\na window that remembers {record['past']:,} tokens, as most do in training: {carried} there and back")


def print_memory(record: dict[str, Any]) -> None:
    """What training holds, and what decoding carries."""
    memory, assumed, cache = record["memory"], record["assumed"], record["cache"]
    held = ", ".join(f"{what} {size(count)}" for what, count in memory.items() if what != "total")
    print(f"\ntraining holds {size(memory['total'])} ({assumed['optimizer']}, {assumed['precision']} products): {held}"
          + ("" if "activations" in memory else
             "; what is saved for the backward pass comes on top and is not counted"))  # fmt: skip
    if cache["bytes_per_token"]:
        more = f" and {size(cache['constant_bytes'])} once" if cache["constant_bytes"] else ""
        whole = f"{size(cache['bytes'])} after {record['window']:,}"
        print(f"a row carries {size(cache['bytes_per_token'])} for each token{more}: {whole}")
    elif cache["constant_bytes"]:
        print(f"a row carries {size(cache['constant_bytes'])}, however long it is")


def print_bounds(found: list[Prediction], unit: str) -> None:
    """What each machine would have to do and hold, and what it waits for."""
    print()
    rows = [
        (one.machine, WORK[one.work], show_amount(one.flops_per_token), size(one.bytes_per_token),
         f"{one.intensity:,.1f}", f"{one.balance:,.1f}", one.bound, size(one.held) + ("" if one.fits else ": too much"))
        for one in found
    ]  # fmt: skip
    titles = ("machine", "work", f"FLOPs/{unit}", f"bytes/{unit}", "FLOPs/byte", "balance", "bound by", "held")
    print_table(titles, rows, left=(0, 1, 6))


def print_times(found: list[Prediction], record: dict[str, Any]) -> None:
    """How fast each machine can be at best, how fast it is expected to be, and how that is known."""
    print()
    assumed, timing, unit = record["assumed"], record["timing"], record["unit"]
    tokens, share = assumed["tokens"], f"{assumed['utilisation']:.0%} of that"
    rows = [
        (one.machine, WORK[one.work], f"{one.tokens_per_second_at_best:,.0f}",
         f"{one.predicted_tokens_per_second:,.0f}", duration(one.predicted_seconds_per_step),
         *([duration(tokens / one.predicted_tokens_per_second) if one.work == "training" else ""] if tokens else []),
         share + ", assumed" if one.how == "assumed" else "training timed")
        for one in found
    ]  # fmt: skip
    some = [f"{show_amount(tokens)} {unit}s"] if tokens else []
    titles = ("machine", "work", f"{unit}s/s at best", "predicted", "a step", *some, "because")
    print_table(titles, rows, left=(0, 1, len(titles) - 1))
    print("\nat best: peak and bandwidth, of this machine as measured just now, of a GPU by its datasheet")
    if timing:
        print(timing_line(timing))
    elif found[0].machine.startswith("this machine"):
        spec = MODELS[record["model"]]
        timed = spec.trained_by_gradient and spec.task == "language"
        why = "too large to be tried in a few seconds" if timed else "no language model that is trained step by step"
        print(f"training is not timed here: the model is {why}")


def timing_line(timing: dict[str, Any]) -> str:
    """How the timing was made."""
    timed = timing["timed"]
    cut = []
    for what, whole in (("layers", "layers"), ("rows", "batch"), ("window", "window")):
        sizes = sorted({one[what] for one in timed})
        if sizes != [timing[whole]]:
            name = "tokens of a row" if what == "window" else what
            cut.append(f"{' and '.join(map(str, sizes))} of {timing[whole]} {name}")
    extended = f", with {', '.join(cut)}, extended in straight lines" if cut else ""
    steps = sum(one["steps"] for one in timed)
    quickest, slowest = max(((one["quickest"], one["slowest"]) for one in timed), key=lambda pair: pair[1] / pair[0])
    busy = f"\nthe machine is busy: the same step took {duration(quickest)} and {duration(slowest)}"
    return (
        f"timed: {steps} real steps on random tokens, {timing['precision']} products{extended}; "
        f"took {timing['took']:.1f} s; checks and saving are not in it" + (busy if slowest > BUSY * quickest else "")
    )


def print_plan(plan: Plan, machine: Machine, assumed: Assumptions) -> None:
    """The best size, the shape nearest to it, and fleets."""
    config, cost = plan.config, plan.cost
    flops, parameters, tokens = map(show_amount, (plan.flops, plan.parameters, plan.tokens))
    print(f"{flops}FLOPs are best spent on {parameters} parameters and {tokens} tokens")
    print(f"assumed: {assumed.operations:g} FLOPs for each parameter and token, ", end="")
    print(f"{assumed.tokens_per_parameter:g} tokens for each parameter")
    print(
        f"nearest shape: octavo train gpt --width {config.width} --layers {config.layers} --heads {config.heads} "
        f"--context {config.context}\n  {cost.parameters:,} parameters at a vocabulary of {cost.vocab:,}; "
        f"{cost.training_flops / cost.shape.tokens / cost.parameters:.2f} FLOPs for each parameter and token, counted\n"
    )
    rows = [
        (f"{fleet.gpus:,} × {machine.name}", size(fleet.bytes_per_gpu), duration(fleet.seconds), f"{fleet.usd:,.0f}")
        for fleet in plan.fleets
    ]
    print_table(("fewest that fit, and more", "held by each", "time", "US dollars"), rows)
    print(
        f"\nassumed: {assumed.utilisation:.0%} of peak is reached, and waiting for each other is part of that; "
        f"{assumed.price:g} US dollars for a GPU and hour; each works on {assumed.rows:g} × {config.context:,} tokens "
        f"at once with {assumed.optimizer}, fills {assumed.headroom:.0%} of its memory, and puts weights together "
        f"{'block by block' if assumed.gather == 'block' else 'whole'}"
        f"{', computing blocks twice' if assumed.recompute else ''}"
    )
