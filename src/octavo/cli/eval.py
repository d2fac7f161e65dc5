"""octavo eval, compress and decompress: the number and its proof."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from tyro.conf import Positional, arg

from octavo.cli.flags import WRITTEN, Device, Encoding, Field, Files, RunPath, read_file
from octavo.cli.output import Output, note, print_table
from octavo.config import DEVICE_NAMES
from octavo.core import device_of
from octavo.errors import UserError
from octavo.io.encoding import UTF8
from octavo.io.files import thousands, whole_file
from octavo.io.progress import show_left
from octavo.models import parameter_count
from octavo.models.dynamic_evaluation import AdaptiveConfig
from octavo.scoring.bits_per_byte import NOT_COMPARABLE, Score, score_text, total
from octavo.scoring.proof import failure_in_words, is_proved, proof_seconds, prove_score
from octavo.tasks import api
from octavo.tasks.adaptive import adaptive_run
from octavo.tasks.compression import compress as compress_data
from octavo.tasks.compression import decompress as decompress_data
from octavo.tasks.corpus import held_out
from octavo.tasks.device import place
from octavo.tasks.run import Run, load
from octavo.text import Split

InPath = Annotated[Positional[str], arg(metavar="IN")]
OutPath = Annotated[Positional[str], arg(metavar="OUT"), WRITTEN]
Adaptive = Annotated[bool, arg(help="Let a network go on learning while it reads; it is scored before it learns.")]
AdaptiveLearningRate = Annotated[
    float | None, arg(help=f"--adaptive: the learning rate; without it, {AdaptiveConfig.learning_rate:g}.")
]
AdaptiveSegment = Annotated[
    int | None, arg(help=f"--adaptive: tokens read between two steps; without it, {AdaptiveConfig.segment}.")
]
WhereCompressed = Annotated[
    str, arg(help=f"Where the model computes: {DEVICE_NAMES}. auto: the kind of device that it was compressed on.")
]
LONG_PROOF_BYTES = 50_000  # of a text whose proof may take so long that its time is estimated first


def eval_(
    run: RunPath,
    files: Files = (),
    prove: bool = False,
    field: Field = "text",
    errors: Literal["strict", "replace", "raw"] = "strict",
    encoding: Encoding = UTF8,
    adaptive: Adaptive = False,
    adaptive_learning_rate: AdaptiveLearningRate = None,
    adaptive_segment: AdaptiveSegment = None,
    device: Device = "auto",
) -> Output:
    """Bits per byte of files under a model; without files, of the part held out of the run's own corpus.

    Example: octavo eval runs/kn7 chapter.txt --prove

    Args:
        files: Files, folders or named sources; each becomes a row.
        prove: Compress, restore and compare, and show both sizes.
        errors: What is not UTF-8: refuse it, replace it, or keep the bytes.
    """
    loaded = adaptive_run(load(run), adaptive, adaptive_learning_rate, adaptive_segment)
    if loaded.unfinished:
        note(f"{run}: its training is not finished; these are its best weights so far")
    if files:
        texts = [(name, api.open_for(loaded, name, field, errors, encoding)) for name in files]
        label = api.label_of(loaded, errors)
        note(*(line for _, split in texts for line in split.text.notes))
    else:
        texts = [held_out(loaded)]
        label = api.label_of(loaded, loaded.record["corpus"].get("errors", "strict"))
    place(loaded, device, sum(text.size for _, text in texts))
    rows = [score_text(loaded.model, loaded.tokenizer, text, name, label) for name, text in texts]
    score = total("all" if len(rows) > 1 else rows[0].name, rows, label)
    if prove and score.impossible:
        raise UserError(
            f"only what has a probability can be coded: the model gives probability zero to {score.impossible:,} "
            "tokens; smooth the model, or leave --prove out"
        )
    proofs = Proofs(loaded, [(row, text) for row, (_, text) in zip(rows, texts, strict=True) if prove])
    parameters = parameter_count(loaded.model)
    about = {"parameters": parameters, "device": str(device_of(loaded.model))}
    return Output(
        lambda: score.to_json() | about | ({"proof": list(proofs)} if prove else {}),
        lambda: _print_score(score, parameters),
        lambda: _print_proofs(proofs),
        failed=lambda: not proofs.hold,
    )


class Proofs:
    """The proofs of some scores, each made when it is asked for; afterwards, whether all of them hold."""

    def __init__(self, run: Run, claims: Sequence[tuple[Score, Split]]) -> None:
        self.run, self.claims, self.hold = run, claims, True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for score, text in self.claims:
            proof = _prove(self.run, score, text.read())
            self.hold = self.hold and is_proved(proof)
            yield proof


def _prove(run: Run, score: Score, data: bytes) -> dict[str, Any]:
    """The proof of a score; before a long one, how long it takes."""
    if len(data) >= LONG_PROOF_BYTES:
        tokens = torch.from_numpy(np.asarray(run.tokenizer.encode(data), dtype=np.int64))
        note(f"proving {score.name}: {show_left(proof_seconds(run.model, tokens))}")
    return prove_score(run.model, run.tokenizer, run.identity, score, data)


def print_result(result: Mapping[str, Any]) -> None:
    """What a trained run scores, where that is not in its summary."""
    if result["bits_per_byte"] is None:
        impossible, tokens = result["impossible"], result["tokens"]
        print(f"{impossible:,} of {tokens:,} held-out tokens have probability zero; smooth the model")


def _print_score(score: Score, parameters: int) -> None:
    titles = ("text", "bits/byte", "bits/token", "perplexity", "tokens", "bytes", "seconds")
    rows = [
        (s.name, s.shown, f"{s.bits_per_token:.4f}", f"{s.perplexity:.4g}", f"{s.tokens:,}",
         f"{s.bytes:,}", f"{s.seconds:.2f}")
        for s in (*score.rows, score)
    ]  # fmt: skip
    print_table(titles, rows)
    print(f"model: {thousands(parameters)} parameters")
    lost = ": information was lost before scoring" if NOT_COMPARABLE in score.label else ""
    print(f"policy: {score.policy}" + (f"; {score.label}{lost}" if score.label else ""))
    if score.unknown_rate is not None:
        print(f"words that the vocabulary lacks: {score.unknown_rate:.2%}")
    if score.impossible:
        print(f"{score.impossible:,} tokens have probability zero, so the bits are infinite; smooth the model")
    if score.passages:
        print("\nmost surprising (bits per byte, at byte, text):")
        for passage in score.passages:
            name = f"  in {passage.name}" if score.rows else ""
            print(f"  {passage.bits_per_byte:6.2f}  {passage.offset:>9,}  {passage.text!r}{name}")


def _print_proofs(proofs: Iterable[dict[str, Any]]) -> None:
    sys.stdout.flush()  # a proof takes its time, and the score is there already
    for proof in proofs:
        verdict = "restored to the byte" if proof["restored"] else "NOT RESTORED"
        print(
            f"proof: {proof['name']}: claimed {proof['claimed_bytes']:,.0f} bytes, compressed to "
            f"{proof['archive_bytes']:,} ({proof['archive_bytes'] - proof['claimed_bytes']:+,.0f}, "
            f"{proof['difference']:+.3%}, "
            f"{proof['archive_bits_per_byte']:.4f} bits/byte), {verdict}"
        )
        if not is_proved(proof):
            note(f"{proof['name']} is {failure_in_words(proof)}")


def compress(
    run: RunPath,
    source: InPath,
    target: OutPath,
    streams: int | None = None,
    adaptive: Adaptive = False,
    adaptive_learning_rate: AdaptiveLearningRate = None,
    adaptive_segment: AdaptiveSegment = None,
    portable: bool = False,
    device: Device = "auto",
) -> Output:
    """Compress any file with a model. The archive opens only with the same model, and on the same kind of device.

    Example: octavo compress runs/kn7 play.txt play.oct

    Args:
        source: The file to compress.
        target: The archive to write.
        streams: Parallel streams of the range coder: more are faster and cost a few bytes each.
        portable: Write an archive that any machine restores: the model computes on the CPU in double precision.
    """
    how = _adaptive_settings(adaptive, adaptive_learning_rate, adaptive_segment)
    data, archive = _rewrite(
        run, source, target, partial(compress_data, streams=streams, portable=portable, device=device, **how)
    )
    summary = {"bytes": len(data), "archive_bytes": len(archive), "bits_per_byte": 8 * len(archive) / max(1, len(data))}
    words = f"{len(data):,} bytes to {len(archive):,}: {summary['bits_per_byte']:.4f} bits per byte, in {target}"
    return Output(summary, words)


compress.RENAMED = {"lanes": "streams"}  # type: ignore[attr-defined]


def decompress(
    run: RunPath,
    source: InPath,
    target: OutPath,
    adaptive: Adaptive = False,
    adaptive_learning_rate: AdaptiveLearningRate = None,
    adaptive_segment: AdaptiveSegment = None,
    device: Annotated[
        str, arg(help=f"Where the model computes: {DEVICE_NAMES}. auto: where it was compressed.")
    ] = "auto",
) -> Output:
    """Restore a file that octavo compress wrote, with the same model and the same --adaptive settings.

    Example: octavo decompress runs/kn7 play.oct play.txt

    Args:
        run: The run folder it was compressed with.
        source: The archive.
        target: The file to write.
    """
    how = _adaptive_settings(adaptive, adaptive_learning_rate, adaptive_segment)
    archive, data = _rewrite(run, source, target, partial(decompress_data, device=device, **how))
    summary = {"bytes": len(data), "archive_bytes": len(archive)}
    return Output(summary, f"{len(data):,} bytes restored to {target}")


def _adaptive_settings(adaptive: bool, learning_rate: float | None, segment: int | None) -> dict[str, Any]:
    """As the Python functions call them."""
    return {"adaptive": adaptive, "adaptive_learning_rate": learning_rate, "adaptive_segment": segment}


def _rewrite(run: str, source: str, target: str, convert: Callable[..., bytes]) -> tuple[bytes, bytes]:
    """The bytes of a file, and those written to another; a mistyped folder is refused before the work, not made."""
    if not Path(target).absolute().parent.is_dir():
        raise UserError(f"cannot write {target}: there is no folder {Path(target).parent}; make it first")
    data = read_file(source)
    converted = convert(load(run), data)
    with whole_file(target) as file:
        file.write(converted)
    return data, converted
