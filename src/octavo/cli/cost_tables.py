"""What octavo cost prints."""

from __future__ import annotations

from typing import Any

from octavo.cli.output import print_table, size
from octavo.cost import Assumptions, Machine, Plan, Prediction
from octavo.models import MODELS

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


def print_cost(record: dict[str, Any], found: list[Prediction]) -> None:
    """Parts, memory and predictions."""
    print(f"{record['title']}: {record['parameters']:,} parameters, vocabulary {record['vocab']:,}")
    if record["table_bytes"]:
        bound = "at most " if record["tables_at_most"] else ""
        print(f"tables that are looked up: {bound}{size(record['table_bytes'])}")
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


FLOPS = ("forward", "needed", "backward")


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
