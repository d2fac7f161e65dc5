"""A competition: submitted run folders, ranked by audited bits per byte on a text that the students have not seen.

A run is data (weights, JSON, no code) and is loaded, scored, compressed and restored in a process of its own, within
limits of size, time and memory. The rank is by the claim, and a claim counts only if the archive restores the text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.limits import JsonProcess, explain_stop
from octavo.io.files import size

MAX_ARCHIVE_EXCESS = 0.02  # of an archive over the claim, with MAX_HEADER_BYTES; the streams' headers and rounding
MAX_HEADER_BYTES = 256
OVERHEAD_SECONDS = 30.0  # for starting Python and loading the model, which do not count


class EntryLimits(NamedTuple):
    """What a submitted run may use."""

    megabytes: float = 100.0  # of its folder
    seconds: float = 120.0  # for scoring, compressing and restoring the text
    memory: int = 4 << 30  # bytes


class Entry(NamedTuple):
    """One submission: its bits per byte, or the problem that keeps it out of the ranking."""

    team: str
    bits_per_byte: float | None
    archive_bytes: int | None = None
    model: str = ""
    megabytes: float = 0.0
    seconds: float = 0.0
    problem: str = ""


def rank_runs(
    folder: str | Path, text: str | Path, limits: EntryLimits = EntryLimits(),  # noqa: B008
    advance: Callable[[float], None] = lambda _: None,
) -> list[Entry]:  # fmt: skip
    """Every run folder in `folder`, best first; those with a problem come last."""
    if not Path(text).is_file():
        raise UserError(f"the hidden text must be a file: {text} is none")
    runs = sorted(one for one in Path(folder).iterdir() if one.is_dir() and one.name[0] not in "._") \
        if Path(folder).is_dir() else []  # fmt: skip
    if not runs:
        raise UserError(f"submissions must be a folder with one run folder per team: {folder} has none")
    entries = []
    for run in runs:
        entries.append(measure_run(run, text, limits))
        advance(1)
    return sorted(entries, key=lambda one: (one.bits_per_byte is None, one.bits_per_byte or 0.0, one.team))


def measure_run(run: Path, text: str | Path, limits: EntryLimits = EntryLimits()) -> Entry:  # noqa: B008
    """The audited bits per byte of one run folder, measured in a process of its own."""
    if run.is_symlink() or any(one.is_symlink() for one in run.rglob("*")):
        return Entry(run.name, None, problem="the folder holds links; hand in the files themselves")
    megabytes = sum(one.stat().st_size for one in run.rglob("*") if one.is_file()) / 1e6
    if megabytes > limits.megabytes:
        problem = f"the folder has {size(megabytes * 1e6)}; at most {limits.megabytes:g} MB are allowed"
        return Entry(run.name, None, megabytes=megabytes, problem=problem)
    process = JsonProcess(__name__, environment={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    try:
        with explain_stop(limits.seconds, "it needed more than the limits allow and was stopped"):
            request = {"run": str(run.resolve()), "text": str(Path(text).resolve())}
            found = process.request(request, limits.seconds + OVERHEAD_SECONDS, limits.memory)
    except UserError as error:
        return Entry(run.name, None, megabytes=megabytes, problem=str(error))
    finally:
        process.end()
    if "problem" in found:
        return Entry(run.name, None, megabytes=megabytes, problem=found["problem"][:300])
    return Entry(run.name, megabytes=megabytes, **found)


def audit(run: str, text: str) -> dict[str, Any]:
    """Score, compress and restore the text with a run: what the process of one entry does."""
    import time

    import torch

    from octavo.scoring.bits_per_byte import score_text
    from octavo.scoring.proof import prove_score
    from octavo.tasks import api
    from octavo.tasks.run import load

    torch.set_num_threads(1)
    loaded = load(run)
    opened = api.open_for(loaded, text)
    start = time.perf_counter()
    label = api.label_of(loaded)
    score = score_text(loaded.model, loaded.tokenizer, opened, "hidden text", label)
    if label or score.impossible:
        return {
            "problem": label or f"{score.impossible:,} tokens have probability zero, so the text cannot be restored"
        }
    proof = prove_score(loaded.model, loaded.tokenizer, loaded.identity, score, opened.read())
    excess = proof["archive_bytes"] - proof["claimed_bytes"]
    if not proof["restored"] or excess > MAX_HEADER_BYTES + MAX_ARCHIVE_EXCESS * proof["claimed_bytes"]:
        return {"problem": f"the claim of {proof['claimed_bytes']:,.0f} bytes is not confirmed: the archive has "
                           f"{proof['archive_bytes']:,}, restored: {proof['restored']}"}  # fmt: skip
    return {
        "bits_per_byte": score.bits_per_byte, "archive_bytes": proof["archive_bytes"], "model": loaded.name,
        "seconds": time.perf_counter() - start,
    }  # fmt: skip


def main() -> None:
    """Answer one request from standard input."""
    request = json.loads(sys.stdin.readline())
    try:
        reply = audit(request["run"], request["text"])
    except UserError as error:
        reply = {"problem": str(error)}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
