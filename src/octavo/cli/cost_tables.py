"""What octavo cost prints, as text and as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from octavo.cli.cost_time import Asked, AskedOfTask, here
from octavo.cli.output import print_json, print_table, size
from octavo.cost import Assumptions, Cost, Machine, Plan, Prediction, named_gpu, training_memory
from octavo.cost.memory import SIZE, optimizer_bytes
from octavo.models import MODELS
from octavo.training.metrics_log import matmul_rate

FLOPS = ("forward", "needed", "backward")
TRIES = 3  # at the machine's peak
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


def big(number: float) -> str:
    """1234567 as 1.23 M."""
    for prefix in PREFIXES:
        if number < 999.5 or prefix == PREFIXES[-1]:
            return f"{number:.3g} {prefix}".rstrip()
        number /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    for unit, part in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * part:
            return f"{seconds / part:.3g} {unit}"
    for unit, length in (("years", 365.25 * 86_400), ("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} s"


def cost_record(title: str, cost: Cost, found: list[Prediction], asked: Asked) -> dict[str, Any]:
    """Everything about a cost, as JSON has it."""
    memory = training_memory(cost, asked.optimizer, asked.precision)
    size, window = SIZE[asked.precision], cost.shape.window
    per_token = {what: cost.per_token(what) for what in ("forward", "needed", "backward")}
    mine = found[0] if found and asked.measure else None
    return {
        "title": title, "model": cost.model, "vocab": cost.vocab, "parameters": cost.parameters,
        "table_bytes": cost.table_bytes, "tables_at_most": cost.tables_at_most,
        "batch": cost.shape.batch, "window": window,
        "parts": [dataclasses.asdict(part) for part in cost.parts],
        "flops_per_token": per_token | {"training": cost.training_flops / cost.shape.tokens},
        "memory": dataclasses.asdict(memory) | {"total": memory.total},
        "cache": {
            "bytes_per_token": sum(c.per_token * max(size, c.least_size) for c in cost.caches),
            "constant_bytes": cost.cache_bytes(0, size), "bytes": cost.cache_bytes(window, size),
        },
        "predicted_seconds_per_step": mine and mine.predicted_seconds_per_step,
        "predicted_tokens_per_second": mine and mine.predicted_tokens_per_second,
        "predictions": [
            dataclasses.asdict(one) | {
                "bound": one.bound, "predicted_seconds_per_step": one.predicted_seconds_per_step,
                "seconds": asked.tokens / one.predicted_tokens_per_second
                if asked.tokens and one.work == "training" else None,
            }
            for one in found
        ],
        "assumed": {key: value for key, value in dataclasses.asdict(asked).items() if key != "measure"},
    }  # fmt: skip


def print_cost(record: dict[str, Any], found: list[Prediction]) -> None:
    """Parts, memory and predictions."""
    print(f"{record['title']}: {record['parameters']:,} parameters, vocabulary {record['vocab']:,}")
    if record["table_bytes"]:
        bound = "at most " if record["tables_at_most"] else ""
        print(f"look-up tables: {bound}{size(record['table_bytes'])}")
    if not record["parts"]:
        print("no products: a token costs look-ups only")
        return
    print_parts(record)
    print_memory(record)
    if found:
        print_bounds(found)
        print_times(found, record)


def print_parts(record: dict[str, Any]) -> None:
    """Each part's parameters, and its operations and bytes for a token."""
    tokens = record["batch"] * record["window"]
    wide = {"float32": 4, "bfloat16": 2}[record["assumed"]["precision"]]
    rows = [
        (part["name"], f"{part['parameters']:,}", *(big(part[what] / tokens) for what in FLOPS),
         size((wide * part["saved"] + part["saved_bytes"]) / tokens))
        for part in record["parts"]
    ]  # fmt: skip
    per_token = record["flops_per_token"]
    total = sum(wide * part["saved"] + part["saved_bytes"] for part in record["parts"]) / tokens
    rows.append(("in all", f"{record['parameters']:,}", *(big(per_token[what]) for what in FLOPS), size(total)))
    print(f"\nfor each token of {record['batch']:,} × {record['window']:,}, in FLOPs of products:\n")
    print_table(("part", "parameters", "forward", "of it needed", "backward", "saved"), rows)
    if record.get("past"):
        whole = big(per_token["training_with_past"])
        print(f"\na window that remembers {record['past']:,} tokens, as most do in training: {whole} there and back")


def print_memory(record: dict[str, Any]) -> None:
    """What training holds, and what decoding carries."""
    memory, assumed, cache = record["memory"], record["assumed"], record["cache"]
    held = ", ".join(f"{what} {size(memory[what])}" for what in ("weights", "gradients", "optimizer", "activations"))
    print(f"\ntraining holds {size(memory['total'])} ({assumed['optimizer']}, {assumed['precision']} products): {held}")
    if cache["bytes_per_token"]:
        more = f" and {size(cache['constant_bytes'])} once" if cache["constant_bytes"] else ""
        whole = f"{size(cache['bytes'])} after {record['window']:,}"
        print(f"a row carries {size(cache['bytes_per_token'])} for each token{more}: {whole}")
    elif cache["constant_bytes"]:
        print(f"a row carries {size(cache['constant_bytes'])}, however long it is")


def print_bounds(found: list[Prediction]) -> None:
    """What each machine would have to do and hold, and what it waits for."""
    print()
    rows = [
        (one.machine, WORK[one.work], big(one.flops_per_token), size(one.bytes_per_token), f"{one.intensity:,.1f}",
         f"{one.balance:,.1f}", one.bound, size(one.held) if one.fits else f"{size(one.held)}: too much")
        for one in found
    ]  # fmt: skip
    titles = ("machine", "work", "FLOPs/token", "bytes/token", "FLOPs/byte", "balance", "bound by", "held")
    print_table(titles, rows, left=(0, 1, 6))


BUSY = 2  # times the quickest step that the slowest takes
WORK = {"training": "training", "decoding": "decoding, 1 row"}


def print_times(found: list[Prediction], record: dict[str, Any]) -> None:
    """How fast each machine can be at best, how fast it is expected to be, and how that is known."""
    print()
    assumed, timing = record["assumed"], record["timing"]
    tokens, share = assumed["tokens"], f"{assumed['utilisation']:.0%} of that"
    rows = [
        (one.machine, WORK[one.work], f"{one.tokens_per_second_at_best:,.0f}",
         f"{one.predicted_tokens_per_second:,.0f}", duration(one.predicted_seconds_per_step),
         *([duration(tokens / one.predicted_tokens_per_second) if one.work == "training" else ""] if tokens else []),
         share + ", assumed" if one.how == "assumed" else "training timed")
        for one in found
    ]  # fmt: skip
    some = [f"{big(tokens)} tokens"] if tokens else []
    titles = ("machine", "work", "tokens/s at best", "predicted", "a step", *some, "because")
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
    print(f"{big(plan.flops)}FLOPs are best spent on {big(plan.parameters)} parameters and {big(plan.tokens)} tokens")
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


def print_task_cost(title: str, task: str, cost: Cost, asked: AskedOfTask, json: bool) -> None:
    """Print the cost of a model for images or translation."""
    unit = "image" if task == "images" else "source"
    record = task_record(title, cost, unit, asked)
    if json:
        print_json(record)
        return
    batch = record["batch"]
    tokens = record[f"tokens_per_{unit}"]
    of_one = f"an image is {tokens:,} tokens" if unit == "image" else f"{tokens:,} tokens are written for each source"
    print(f"{title}: {cost.parameters:,} parameters; {of_one}")
    print(f"\nfor each {unit}, in FLOPs of products:\n")
    rows = [
        (part["name"], f"{part['parameters']:,}", *(big(part[what] / batch) for what in FLOPS))
        for part in record["parts"]
    ]
    rows.append(("in all", f"{cost.parameters:,}", *(big(record[f"flops_per_{unit}"][what]) for what in FLOPS)))
    print_table(("part", "parameters", "forward", "of it needed", "backward"), rows)
    held = record["memory"]
    print(f"\ntraining holds {size(sum(held.values()))} ({asked.optimizer}): "
          + ", ".join(f"{what} {size(bytes_)}" for what, bytes_ in held.items())
          + "; what is saved for the backward pass comes on top and is not counted")  # fmt: skip
    print()
    cells = [(one["machine"], f"{one['at_most']:,.0f}", duration(batch / one["at_most"])) for one in record["at_best"]]
    print_table(("machine", f"{unit}s/s at most, training", f"a step of {batch:,}"), cells)
    print("\nat most: products alone at the machine's peak, measured just now (float32), or a GPU's by its datasheet "
          "(half precision); small models stay far below it")  # fmt: skip


def task_record(title: str, cost: Cost, unit: str, asked: AskedOfTask) -> dict[str, Any]:
    """Everything about a cost, as JSON has it; operations of the parts are of the whole batch."""
    batch = cost.shape.batch
    per_one = {what: cost.total(what) / batch for what in FLOPS} | {"training": cost.training_flops / batch}
    machines = {asked.gpu: named_gpu(asked.gpu).flops}
    if asked.measure:
        device = here()
        peak = max(matmul_rate(device, torch.float32) for _ in range(TRIES))
        machines = {f"this machine ({device.type})": peak} | machines
    return {
        "title": title, "model": cost.model, "parameters": cost.parameters, "batch": batch,
        f"tokens_per_{unit}": cost.shape.window,
        "parts": [dataclasses.asdict(part) for part in cost.parts if part.parameters or part.forward],
        f"flops_per_{unit}": per_one,
        "memory": {"weights": 4 * cost.parameters, "gradients": 4 * cost.parameters,
                   "optimizer": optimizer_bytes(cost, asked.optimizer)},
        "at_best": [{"machine": one, "at_most": peak / per_one["training"]} for one, peak in machines.items()],
        "assumed": dataclasses.asdict(asked),
    }  # fmt: skip
