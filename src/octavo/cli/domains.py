"""octavo domains: models on excerpts of two domains, in the same unit, and which words make the difference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from octavo.cli.cells import output_of_part
from octavo.cli.flags import Device, Encoding
from octavo.cli.output import Output, note, print_table, print_wrapped
from octavo.experiments.division import Division
from octavo.experiments.domains import Domains
from octavo.experiments.domains.result import show_gap
from octavo.experiments.domains.run import STEPS, DomainsExperiment, DomainsRequest
from octavo.experiments.domains.scoring import GROUPS, MARK, gap
from octavo.experiments.execution import Execution
from octavo.experiments.table import adaptive_note, table_text
from octavo.io.encoding import UTF8
from octavo.io.run_folder import REPORT
from octavo.scoring.bits_per_byte import NOT_COMPARABLE

Runs = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...")]


def domains(
    runs: Runs = (),
    texts: tuple[str, ...] = ("shakespeare", "wikitext-2"),
    bytes: int = 20_000,
    preprocess: tuple[str, ...] = STEPS,
    out: str = "runs/domains",
    budget: str = "30s",
    seed: int = 0,
    device: Device = "auto",
    encoding: Encoding = UTF8,
    execution: Execution = Execution(),  # noqa: B008
    division: Division = Division(),  # noqa: B008
) -> Output:
    """Perplexity and bits per byte of models on excerpts of two texts, and which words cause the difference.

    Without runs, models are trained on the first text, each a second time with preprocessing. Stopped or killed, the
    same command resumes it.

    Example: octavo domains --out runs/domains

    Args:
        runs: Run folders to measure.
        texts: Two texts; of each, the first bytes of the part that is held out of training are scored.
        bytes: How many bytes of each text.
        preprocess: What the second of each pair does to its text: lower, digits, ptb, sentences.
        out: The folder for the page, and for the runs that are trained.
        budget: How long each neural model may train.
        seed: For the training.
        execution: Where the models are trained.
        division: One job for each model.
    """
    request = DomainsRequest(list(runs), list(texts), bytes, preprocess, Path(out), budget, seed, encoding, device)
    experiment = DomainsExperiment(request, execution, cell=division.run_cell)
    if (divided := output_of_part(experiment, division)) is not None:
        return divided
    found = experiment.run(division.collect)
    note(*(f"{name} failed: {error}" for name, error in found.failed.items()))
    result = found.to_json() | {"page": str(found.folder / REPORT)}
    return Output(result, lambda: _print_result(found), failed=bool(found.failed))


def _print_result(found: Domains) -> None:
    (home, first), (away, second) = found.excerpts
    print(f"The first {len(first):,} bytes of {home} and {len(second):,} of {away} that are held out of training.\n")
    sys.stdout.write(table_text(found.rows, sys.stdout))
    if any(one.label for one in found.models):
        print(f"\n*: {NOT_COMPARABLE}. Preprocessing threw information away before scoring; the bits\n"
              "   are divided by the bytes as they were, but they no longer give those bytes back.")  # fmt: skip
    if explained := adaptive_note(found.rows):
        print()
        print_wrapped(explained)
    print(f"\nWhat a byte of {away} costs beyond one of {home}, and which words cause it:\n")
    rows = [(one.name, *map(show_gap, (one.gap, *gap(one.home, one.away).values()))) for one in found.models]
    print_table(("model", "gap", *GROUPS), rows)
    for name, data in found.excerpts:
        if marks := data.count(MARK):
            print(f"\n{name} holds {marks} literal <unk> marks where its makers removed a rare word; they are\n"
                  "scored as the five characters they are.")  # fmt: skip
    print("\nCompare models by bits per byte, never by the perplexity of a token.")
    print(f"The page with the figure and the words: {found.folder / REPORT}")
