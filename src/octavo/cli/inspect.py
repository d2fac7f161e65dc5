"""octavo inspect: what a run is, and with a text the surprisal of its tokens and the model's views."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

from tyro.conf import Positional, arg

from octavo.cli.eval import Adaptive, AdaptiveLearningRate, AdaptiveSegment
from octavo.cli.flags import Device, MaybeNewPath
from octavo.cli.output import Output, note, print_table, write_page
from octavo.errors import UserError
from octavo.inspection.adaptation_page import BEST_EXPERT, limit_note, readings_table, token_rows
from octavo.inspection.api import (
    RunDescription,
    TextInspection,
    describe_run,
    inspect_text,
    inspections_json,
)
from octavo.inspection.attention_maps import in_words as heads_in_words
from octavo.inspection.attention_page import depth_table, heads_table
from octavo.inspection.inspection import Inspection, has_inspection, inspect_run, shortest_text
from octavo.inspection.page import SATURATED, fewest, flow_table, gate_table, inspect_page, labels, theory
from octavo.inspection.surprisal import Surprise
from octavo.inspection.table_page import token_lines
from octavo.inspection.token_tables import summary_table
from octavo.models import name_of
from octavo.tasks.adaptive import adaptive_run
from octavo.tasks.device import VIEWS, place
from octavo.tasks.run import load
from octavo.tasks.task import find_task

RunPaths = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...", help_behavior_hint="(at least one)")]


def inspect(
    runs: RunPaths, text: str | None = None, out: MaybeNewPath = None, back: int | None = None,
    adaptive: Adaptive = False, adaptive_learning_rate: AdaptiveLearningRate = None,
    adaptive_segment: AdaptiveSegment = None, device: Device = "auto",
) -> Output:  # fmt: skip
    """What a run is; with --text, the surprisal of each token, and the model's views: gates, attention, gradient flow.

    An n-gram model shows its back-off path, a mixture its votes, a hidden Markov model its Viterbi path, a context tree
    the lengths of context it weighs: a line a token, and all of it with --json or --out.

    Several runs are set side by side: their gates, or what their heads attend to and what each layer would predict (the
    logit lens); and how much of the loss's gradient arrives t steps back. --out or --back ask for the same of one run.
    With --json, attention maps are over the first 64 tokens. A model that learns while it reads, as a network does with
    --adaptive, reads the text twice: each token's cost at both readings, beside that for fixed models.

    Example: octavo inspect runs/kn7 --text "to be or not to be"

    Args:
        runs: A run folder, or several.
        text: A short text to read token by token.
        out: Where to write a page with the figures, such as lens.html.
        back: How many steps to follow the gradient back; by default half of the text, and at most 40.
    """
    if not runs:
        raise UserError("inspect needs at least one run: octavo inspect runs/kn7; octavo list shows those there are")
    if text is None and (len(runs) > 1 or out is not None or back is not None):
        asked = "several runs" if len(runs) > 1 else "--out" if out is not None else "--back"
        raise UserError(f'there must be a text with {asked}; add --text "..."')
    settings = (adaptive, adaptive_learning_rate, adaptive_segment)
    if text is None and settings != (False, None, None):
        raise UserError('there must be a text with --adaptive; add --text "..."')
    loaded = [adaptive_run(load(run), *settings) for run in runs]
    if text is None:
        return show_description(describe_run(loaded[0]))
    for one in loaded:
        place(one, device, VIEWS * len(text))
    if len(runs) == 1 and out is None and back is None:
        seen = inspect_text(loaded, text)
        return Output(seen.to_json, lambda: _print_tokens(seen))
    inspections = [inspect_run(run, text, back) for run in loaded]
    if out is not None:
        command = ["octavo", "inspect", *(one.name for one in inspections), "--text", text, "--out", out]
        command += ["--back", str(back)] if back is not None else []
        command += ["--adaptive"] if adaptive else []
        command += ["--adaptive-learning-rate", f"{adaptive_learning_rate:g}"] if adaptive_learning_rate else []
        command += ["--adaptive-segment", str(adaptive_segment)] if adaptive_segment else []
        write_page(out, inspect_page(inspections, text, shlex.join(command)))
    return Output(lambda: inspections_json(inspections, text), lambda: print_inspections(inspections))


def _print_tokens(seen: TextInspection) -> None:
    read_twice = [one for one in seen.inspections if one.adaptation is not None]
    if read_twice:
        titles, costs = token_rows(read_twice[0])
        rows = [(*row, _expected(token)) for row, token in zip(costs, seen.surprisal, strict=False)]
        words = (0, *range(len(titles) - (titles[-1] == BEST_EXPERT), len(titles) + 1))
        print_table((*titles, "expected"), rows, left=words)
    else:
        _print_surprisal(seen)
    print(f"{seen.bits:.1f} bits for {seen.bytes} bytes" + (", as the model learns" if read_twice else ""))
    run = seen.runs[0]
    if seen.inspections:
        print()
        print_inspections(seen.inspections)
    elif run.model.adaptive:
        note("there is nothing to learn from: the text is empty")
    elif has_inspection(run):
        shortest, read = shortest_text(run.model), len(seen.surprisal)
        note(f"the model's views need a text of at least {_tokens(shortest)}: this has {read}")
    else:
        note(f"the model {name_of(run.model)} declares no views")


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def _print_surprisal(seen: TextInspection) -> None:
    rows = [
        (one.token, f"{one.bits:.2f}", str(one.rank), "" if one.context is None else str(one.context), _expected(one))
        for one in seen.surprisal
    ]
    print_table(("token", "bits", "rank", "context used", "expected"), rows, left=(0, 4))


def _expected(one: Surprise) -> str:
    return "  ".join(f"{token} {p:.0%}" for token, p in one.candidates)


def show_description(description: RunDescription) -> Output:
    """What a run of any task is."""
    return Output(description.to_json, lambda: _print_run(description))


def _print_run(description: RunDescription) -> None:
    print(description.run.summary())
    for key, value in description.values().items():
        print(f"  {key:<15}{value}")
    for key, value in description.record.get(find_task(description.run.task).data_key, {}).items():
        if isinstance(value, dict) and {"bytes", "sha256"} <= set(value):
            print(f"  {key:<15}{value['bytes']:,} bytes, sha256 {value['sha256'][:16]}")
        elif key in ("source", "split") or isinstance(value, int):
            print(f"  {key:<15}{value}")
    if description.sample:
        print("\nit writes:\n" + description.sample)


def print_inspections(inspections: Sequence[Inspection]) -> None:
    """The tables: of each run its gates, its heads and its logit lens, then the gradients of all."""
    for one, name in zip(inspections, labels(inspections), strict=True):
        _print_attention(one, name)
        _print_adaptation(one, name)
        if one.rows:
            print(f"gates of {name}, over {len(one.tokens):,} tokens, the begin token included")
            print_table(*gate_table(one), left=(1, 5))
            print()
        _print_tables(one, name)
    if any(one.rows for one in inspections):
        print(SATURATED + "\n")
    if any(one.flow for one in inspections):
        print("the gradient of the loss with respect to the state t steps back, as a share of that at t = 0")
        if any(one.flow and one.flow.depths for one in inspections):
            print("of a transformer: with respect to the embedding of the token t back, and to each layer's output")
        print_table(*flow_table(inspections, theory(inspections)), left=(0, 1))
    if shortest := fewest([one for one in inspections if one.adaptation is None]):
        note(f"only the first {shortest:,} tokens were read")


def _print_tables(one: Inspection, name: str) -> None:
    """A line for each token of each view that has a table for it, and what the view says of the whole text."""
    for view, table in one.tables:
        print(f"{view.title} of {name}")
        print_table(*token_lines(one, view, table), left=(0, 1))
        print()
        summary = summary_table(table)
        if summary:
            print(summary.caption)
            print_table(summary.titles, summary.rows)
            print()
    if any(detail.rows for _, table in one.tables for detail in table.details):
        note("the table of each token is in --json, and on the page that --out writes")


def _print_adaptation(one: Inspection, name: str) -> None:
    """The two readings of a model that learns while it reads, and of a mixture how its experts did."""
    if one.adaptation is None:
        return
    print(f"{name} learns while it reads: the text read twice in a row")
    print_table(*readings_table(one.adaptation))
    print(f"policy: {one.adaptation.policy}")
    if one.adaptation.too_short:
        note(one.adaptation.too_short)
    summary = summary_table(one.experts) if one.experts else None
    if summary:
        print(f"\n{summary.caption}")
        print_table(summary.titles, summary.rows)
    print()
    if one.adaptation.truncated:
        note(limit_note(one.adaptation))


def _print_attention(one: Inspection, name: str) -> None:
    """The heads of one run, and its logit lens."""
    if one.maps is not None:
        print(f"heads of {name}: entropy in bits, its share of what is possible, distance in tokens, and attention to")
        print_table(*heads_table(one.maps), left=(8,))
        print("".join(f"{line}\n" for line in heads_in_words(one.maps)))
    if one.layers:
        print(f"logit lens of {name}: read out after each layer, and the gradient of the loss there")
        print_table(*depth_table(one))
        print()
