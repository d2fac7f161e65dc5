"""octavo doctor: is my loss normal?"""

from __future__ import annotations

from typing import Any

from octavo.cli.flags import RunPath
from octavo.cli.output import Output, print_table
from octavo.inspection.doctor import Diagnosis, examine
from octavo.tasks.api import load

ORDER = ("warning", "note", "ok", "not applicable")  # what matters most comes first
ALWAYS_EXPLAINED = ("baselines", "context")  # their values are worth a sentence even where all is well


def doctor(run: RunPath, quick: bool = False) -> Output:
    """Is my loss normal? Examine a run, say what is unusual, and what to try.

    It compares the first loss with ln(vocabulary) and the curve with the bag and n-gram baselines on the same
    text, and looks for overfitting, a dead learning rate, a saturated softmax, vanishing or exploding gradients, and
    context that is never used. Of a run of another task (bert, seq2seq, vit, dan) it examines the history of its
    training: start, overfitting, learning rate, gradient norms and skipped steps.

    Example: octavo doctor runs/gru

    Args:
        quick: Leave out the bag and the n-grams, which have to be counted.
    """
    found = examine(load(run), quick)
    return Output(found.to_json, lambda: print_diagnosis(found))


def print_diagnosis(found: Diagnosis) -> None:
    """The verdict, a table of the examinations, the baselines, and sentences about all that is not plainly well."""
    print(f"{found.run}: {found.verdict}\n")
    rows = [
        (one.name, "-" if one.verdict == "not applicable" else one.verdict, one.measured, one.expected)
        for one in found.findings
    ]
    print_table(("examination", "verdict", "measured", "expected"), rows, left=(0, 1, 2, 3))
    for one in found.findings:
        if one.name == "baselines" and "baselines" in one.values:
            print()
            _print_baselines(one.values["baselines"])
    for one in sorted(found.findings, key=lambda one: ORDER.index(one.verdict)):
        if one.verdict == "not applicable" or (one.verdict == "ok" and one.name not in ALWAYS_EXPLAINED):
            continue
        print(f"\n{one.name}: {one.why}")
        for advice in one.advice:
            print(f"  try {advice}")
    left = [f"  {one.name}: {one.why}" for one in found.findings if one.verdict == "not applicable"]
    if left:
        print("\nnot examined:", *left, sep="\n")


def _print_baselines(baselines: list[dict[str, Any]]) -> None:
    """What counting achieves on the same text, and when the curve went below it."""
    rows = [
        (row["name"], f"{row['bits_per_byte']:.4f}", "" if row["held_out"] is None else f"{row['held_out']:.4f}",
         "" if row["passed_at"] is None else f"{row['passed_at']:,}")
        for row in baselines
    ]  # fmt: skip
    print_table(("baseline", "bits/byte", "of held-out pieces", "passed at step"), rows)
