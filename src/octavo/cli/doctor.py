"""octavo doctor: is my loss normal?"""

from __future__ import annotations

from typing import Any

from octavo.cli.flags import Device, RunPath
from octavo.cli.output import Output, print_table, print_wrapped
from octavo.inspection.doctor import Diagnosis, Finding, examine
from octavo.tasks.api import load
from octavo.tasks.device import EXAMINED, place

WIDTH = 100  # characters of a line


def doctor(run: RunPath, quick: bool = False, all: bool = False, device: Device = "auto") -> Output:
    """Is my loss normal? Examine a run of any task, say what is wrong, the worst first, and what to try.

    It makes the model again from its settings and seed and compares the first loss and the weights with it; looks for
    a wrong learning rate, instability, overfitting, dead units, stuck gates, a saturated softmax, vanishing or
    exploding gradients and unused context; for leaks, repetition, wrong encoding or order in the data; and compares
    the result with the bag and n-gram baselines of the same text. docs/doctor.md lists all findings.

    Example: octavo doctor runs/gru

    Args:
        quick: Leave out the bag and the n-grams, which have to be counted.
        all: Show the examinations that found nothing wrong, too.
    """
    found = examine(place(load(run), device, EXAMINED), quick)
    return Output(found.to_json, lambda: print_diagnosis(found, all))


def print_diagnosis(found: Diagnosis, everything: bool = False) -> None:
    """The verdict; every finding with its values and what to try; and in one line each what was well, or left out."""
    print(f"{found.run}: {f'{found.condition}; ' if found.condition else ''}{found.verdict}")
    for one in found.findings:
        if one.verdict in ("warning", "note"):
            _print_finding(one)
    baselines = next((one.values["baselines"] for one in found.findings if "baselines" in one.values), None)
    if everything:
        print()
        rows = [(one.name, one.verdict, one.measured, one.expected) for one in found.findings if one.verdict == "ok"]
        print_table(("examination", "verdict", "measured", "expected"), rows, left=(0, 1, 2, 3))
        if baselines:
            print()
            _print_baselines(baselines)
    well = [f"{one.name} ({one.measured})" if one.name == "context" else one.name
            for one in found.findings if one.verdict == "ok"]  # fmt: skip
    print()
    if well:
        print_wrapped(f"well: {', '.join(well)}", WIDTH, "  ")
    if baselines and not everything:
        costs = ", ".join(f"{row['name']} {row['bits_per_byte']:.3f}" for row in baselines)
        print_wrapped(f"baselines, bits per byte of the held-out text: {costs}", WIDTH, "  ")
    reasons: dict[str, list[str]] = {}
    for one in found.findings:
        if one.verdict == "not applicable":
            reasons.setdefault(one.why, []).append(one.name)
    for why, names in reasons.items() if everything else ():
        print_wrapped(f"not examined: {', '.join(names)}: {why}", WIDTH, "  ")
    if reasons and not everything:
        left = ", ".join(name for names in reasons.values() for name in names)
        print_wrapped(f"not examined (--all says why): {left}", WIDTH, "  ")


def _print_finding(one: Finding) -> None:
    print(f"\n{one.verdict}: {one.condition or one.name}")
    print_wrapped(f"  measured: {one.measured}; expected: {one.expected}", WIDTH, "    ")
    print_wrapped(f"  {one.why}", WIDTH, "  ")
    for advice in one.advice:
        print_wrapped(f"  try {advice}", WIDTH, "    ")


def _print_baselines(baselines: list[dict[str, Any]]) -> None:
    """What counting achieves on the same text, and when the curve went below it."""
    rows = [
        (row["name"], f"{row['bits_per_byte']:.4f}", "" if row["held_out"] is None else f"{row['held_out']:.4f}",
         "" if row["passed_at"] is None else f"{row['passed_at']:,}")
        for row in baselines
    ]  # fmt: skip
    print_table(("baseline", "bits/byte", "of held-out pieces", "passed at step"), rows)
