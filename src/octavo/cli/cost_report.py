"""What octavo cost prints: parts, memory, and time on this machine and on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.cli.output import print_table, size
from octavo.costs import Assumptions, Cost, Machine, Part, Plan, Prediction
from octavo.costs.memory import SIZE
from octavo.experiments.table import show_amount
from octavo.io.files import thousands
from octavo.models import MODELS
from octavo.tasks.cost_record import FLOPS, CostReport

WORK = {"training": "training", "decoding": "decoding, 1 row"}
COUNTED = (
    "counted: every number that training sets, tied weights once, learned positions included; of counts, each n-gram "
    "or token with a probability; of a mixture, its parts and weights"
)
BUSY = 2  # times the quickest step that the slowest takes


def print_cost(report: CostReport) -> None:
    """The parts, the memory and the times."""
    counted, record, found = report.counted, report.record, report.predictions
    bound = "at most " if record["tables_at_most"] else ""
    parameters = f"{bound}{thousands(record['parameters'])} parameters"
    if record["active_parameters"] < record["parameters"]:
        parameters += f", {thousands(record['active_parameters'])} of them for each token"
    print(f"{record['title']}: {parameters}, {describe_unit(counted.training)}")
    print(COUNTED)
    print(*counted.notes, sep="\n", end="\n" if counted.notes else "")
    if record["table_bytes"]:
        print(f"look-up tables: {bound}{size(record['table_bytes'])}")
    if not record["parts"]:
        print("no products: a token costs look-ups only")
        return
    print_parts(record, counted.training)
    print_memory(record)
    if found:
        print_bounds(found, record["unit"])
        print_times(found, record)


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


def print_bounds(found: Sequence[Prediction], unit: str) -> None:
    """What each machine would have to do and hold, and what it waits for."""
    print()
    rows = [
        (one.machine, WORK[one.work], show_amount(one.flops_per_token), size(one.bytes_per_token),
         f"{one.intensity:,.1f}", f"{one.balance:,.1f}", one.bound, size(one.held) + ("" if one.fits else ": too much"))
        for one in found
    ]  # fmt: skip
    titles = ("machine", "work", f"FLOPs/{unit}", f"bytes/{unit}", "FLOPs/byte", "balance", "bound by", "held")
    print_table(titles, rows, left=(0, 1, 6))


def print_times(found: Sequence[Prediction], record: dict[str, Any]) -> None:
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
