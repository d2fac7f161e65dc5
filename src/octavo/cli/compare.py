"""octavo compare: every model on one text, in one table and on one page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from octavo.cli.cells import output_of_part
from octavo.cli.flags import Corpora
from octavo.cli.output import Output, print_wrapped
from octavo.errors import UserError
from octavo.experiments.compare.adaptive import COMPRESSORS_ADAPT
from octavo.experiments.compare.advice import BEHIND, DOMINATED, TIE
from octavo.experiments.compare.config import CompareConfig
from octavo.experiments.compare.proof import describe_proof
from octavo.experiments.compare.rows import NOT_PROVED, CompareRow, Comparison
from octavo.experiments.compare.run import open_comparison
from octavo.experiments.division import Division
from octavo.experiments.execution import Execution
from octavo.experiments.table import ADAPTIVE_MARK, table_text
from octavo.io.run_folder import REPORT


def compare(
    corpus: Corpora,
    settings: CompareConfig = CompareConfig(),  # noqa: B008
    execution: Execution = Execution(),  # noqa: B008
    division: Division = Division(),  # noqa: B008
    out: str | None = None,
) -> Output:
    """Train every model on your text, each within a budget, and see which is best and what it costs.

    From a bag of bytes over n-grams, recurrent networks and transformers to their mixture, and general compressors
    beside them; all measured on the same bytes that none has seen, and the best one proved by compressing them.

    Example: octavo compare book.txt --budget 2min

    Stopped or killed, the same command resumes it; what is finished is not repeated. Exits with 1 where a model or a
    proof failed.

    Args:
        settings: What is compared.
        execution: Where the models are trained.
        division: One job for each model.
        out: The folder for the page and the runs; by default runs/compare-NAME.
    """
    if not corpus:
        raise UserError("name a text to compare models on: octavo compare book.txt, or octavo compare shakespeare")
    comparing = open_comparison(list(corpus), out=out, execution=execution, cell=division.run_cell, **vars(settings))
    if (divided := output_of_part(comparing, division)) is not None:
        return divided
    comparison, page = comparing.run(division.collect), comparing.place.folder / REPORT
    final = [comparison]

    def prove() -> Comparison:
        final[0] = comparing.prove()
        return final[0]

    return Output(
        lambda: prove().to_json() | {"page": str(page)},
        lambda: _print_result(comparison, page),
        lambda: _print_proof(prove(), comparison) if settings.prove else None,
        failed=lambda: not final[0].is_complete,
    )


compare.RENAMED = {"with": "pretrained"}  # type: ignore[attr-defined]


def _print_result(comparison: Comparison, page: Path) -> None:
    corpus = comparison.corpus
    print_wrapped(
        "Bits per byte is what one byte of unseen text costs: 8 is the text as it is, and the better a model knows "
        f"what comes next, the fewer it needs. These learnt from {corpus['train']['bytes']:,} bytes of "
        f"{corpus['name']} and were measured on {comparison.measured_part} that follow."
    )
    print()
    sys.stdout.write(table_text(comparison.rows, sys.stdout))
    print()
    marks = f"*: the {comparison.best_words}. -: dominated, that is, {DOMINATED}."
    adaptive = f" {ADAPTIVE_MARK}: adaptive, {COMPRESSORS_ADAPT}." if any(row.adaptive for row in comparison) else ""
    interval = comparison.best.interval if comparison.best else ""
    behind = f" {BEHIND}." if any(row.behind is not None for row in comparison) else ""
    tie = f" {TIE}." if any(row.tie for row in comparison) else ""
    measured = f" Measured on {comparison.measured_part}." if comparison.is_part_measured else ""
    print_wrapped(marks + adaptive + (f" 95 %: {interval}." if interval else "") + behind + tie + measured)
    for row in comparison:
        if row.error is not None:
            print_wrapped(_failure(row))
        elif row.impossible:
            print_wrapped(
                f"{row.model} gave probability zero to {row.impossible:,} tokens. One is enough to cost infinity."
            )
    print()
    for sentence in comparison.advice:
        print_wrapped(sentence)
    best = comparison.best
    if best is not None and best.run is not None and best.trained:
        run = shlex.quote(str(page.parent / best.run))
        print("\nNext, let the best one generate, and measure a text of yours:")
        print(f"  octavo generate {run} --max-tokens 300")
        print(f"  octavo eval {run} FILE --prove")
    print(f"\nThe page with figures, coloured text and samples: {page}", flush=True)  # the proof may take a while


def _failure(row: CompareRow) -> str:
    """What is wrong with a row, in words."""
    error = str(row.error)
    return f"{row.model} is {error}" if error.startswith(NOT_PROVED) else f"{row.model} failed: {error}"


def _print_proof(comparison: Comparison, before: Comparison) -> None:
    print()
    print_wrapped(f"Proof: {describe_proof(comparison.proof)}")
    out = [row for row in comparison.failed if before[row.model].error is None]
    if out:
        print()
        for row in out:
            print_wrapped(_failure(row))
        print("So the table and the page are corrected:\n")
        sys.stdout.write(table_text(comparison.rows, sys.stdout))
        print()
        for sentence in comparison.advice:
            print_wrapped(sentence)
