"""The proof of a comparison: the best run compresses the held-out text, or as much of it as the time allows."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

from octavo.core import single_thread
from octavo.experiments.cell import Cell, Json, first_part, open_texts
from octavo.experiments.compare.measure import HELD_OUT, load_pretrained, score_run
from octavo.io.progress import listening, show_left
from octavo.scoring.bits_per_byte import Score
from octavo.scoring.proof import MIN_PROVED_BYTES, provable_bytes, prove_score
from octavo.tasks.run import load

PROOF_SHARE = 0.1  # of the time that everything before it took
SHOWN_SHARE = 0.1  # from here on the header is most of it, and a percentage says nothing
SHOWN_SECONDS = 0.5  # between two lines of progress


class ProofProgress:
    """Says on standard error how much is done of compressing and of restoring, which take about the same time."""

    def __init__(self) -> None:
        self.began = self.shown = perf_counter()
        self.before, self.restoring = 0.0, False

    def __call__(self, done: float, total: float) -> None:
        self.restoring = self.restoring or done < self.before  # it begins anew
        self.before = done
        now, share = perf_counter(), (self.restoring + done / total) / 2
        if share and now - self.shown >= SHOWN_SECONDS:
            self.shown = now
            what = "restoring" if self.restoring else "compressing"
            print(f"{share:4.0%}  {what}  {show_left((now - self.began) * (1 - share) / share)}", file=sys.stderr)


def prove_best(cell: Cell, folder: Path) -> Json:
    """Compress the held-out text with the best run, and restore it; of a long text, as much as the time allows."""
    _, held_out = open_texts(cell.data)
    run = load_pretrained(cell.model)[1] if cell.options["pretrained"] else load(folder / cell.model)
    allowed = cell.options["seconds"]
    with single_thread():
        count, expected = provable_bytes(run.model, run.tokenizer, held_out.read(), allowed)
        part = first_part(held_out, count)
        if part.size < held_out.size:
            score = score_run(run, part, HELD_OUT)[0]
        else:
            score = Score(HELD_OUT, cell.options["bits"], held_out.size, cell.options["tokens"], 0.0)
        what = f"the first {part.size:,} of {held_out.size:,} bytes" if part.size < held_out.size else "all bytes"
        print(f"  proving {what}: {show_left(expected)}", file=sys.stderr)
        began = perf_counter()
        with listening(ProofProgress()):
            proof = prove_score(run.model, run.tokenizer, run.identity, score, part.read())
    proof |= {"bytes": part.size, "held_out_bytes": held_out.size, "seconds": perf_counter() - began,
              "allowed_seconds": allowed}  # fmt: skip
    verdict = "restored" if proof["restored"] else "NOT RESTORED"
    return {"proof": proof, "summary": f"{proof['archive_bytes']:,} bytes, {verdict}"}


def describe_proof(proof: Json | None, is_wanted: bool = True) -> str:
    """The proof in words."""
    if proof is None:
        if not is_wanted:
            return "The best result was not proved by compression: that was left out (--no-prove)."
        return "The best result is not proved by compression yet; the command below does it, and repeats nothing else."
    if proof.get("error") is not None:
        return f"The best result could not be proved by compression: {proof['error']}."
    verdict = "gave back every byte" if proof["restored"] else "DID NOT give the text back"
    count, of = proof.get("bytes"), proof.get("held_out_bytes")
    is_whole = count is None or count == of
    text = "the held-out text" if is_whole else f"the first {count:,} of the {of:,} bytes of the held-out text"
    bound = "" if is_whole else (
        f" The proof may take {100 * PROOF_SHARE:.0f} % of the comparison's time, here "
        f"{proof['allowed_seconds']:,.0f} s, and covers at least {MIN_PROVED_BYTES:,} bytes; octavo eval RUN --prove "
        "proves the whole text."
    )  # fmt: skip
    more = proof["archive_bytes"] - proof["claimed_bytes"]
    share = f", {proof['difference']:+.2%}" if abs(proof["difference"]) < SHOWN_SHARE else ""
    return (
        f"By its score {proof.get('model', 'the best model')} needs {proof['claimed_bytes']:,.0f} bytes for {text}. "
        f"octavo compressed it into {proof['archive_bytes']:,} bytes ({more:+,.0f}{share}, header included), "
        f"and decompressing {verdict}.{bound}"
    )
