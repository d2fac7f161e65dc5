"""octavo demo: a few models on one text, one table, one proof, one page."""

from __future__ import annotations

import bz2
import lzma
import math
import shlex
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from octavo import api
from octavo.cli.score import proof_of
from octavo.cli.show import note, print_json, print_table, size
from octavo.errors import UserError
from octavo.files import whole_file
from octavo.report import Entry, Peer, compare_page, opening, stored
from octavo.report.facts import bytes_on_disk, entries_of, number
from octavo.run import CONFIG, REPORT, SAMPLES
from octavo.scoring.bits import Score
from octavo.scoring.coder import one_thread
from octavo.text import Corpus
from octavo.text.read import STDIN
from octavo.training import TextConfig

PASSAGE = 320  # bytes of the held-out text that the page shows under every model


class Recipe(NamedTuple):
    """One run of the demo."""

    name: str
    model: str
    settings: dict[str, Any]


RECIPES = (
    Recipe("bag", "bag", {"k": 1.0}),
    Recipe("mle3", "ngram", {"order": 3, "estimator": "mle"}),
    Recipe("kn3", "ngram", {"order": 3}),
    Recipe("kn5", "ngram", {"order": 5}),
    Recipe("kn7", "ngram", {"order": 7}),
    Recipe("words3", "ngram", {"order": 3, "tokenizer": "word"}),
)
MIXED = ("kn7", "kn5", "bag")
SHOWPIECE = "kn7"  # what the newcomer is invited to play with


def demo(out: str = "runs/demo", corpus: str = "shakespeare", json: bool = False) -> None:
    """Train a few models on Shakespeare, compare them in bits per byte, and write a page.

    Example: octavo demo --out runs/demo

    Args:
        out: The folder for the runs and the page.
        corpus: The text to learn from; a file of your own will do.
        json: Print JSON.
    """
    folder = Path(out)
    if (folder / CONFIG).is_file():
        raise UserError(f"--out must be a folder for several runs, and {out} is itself a run; try --out runs/demo")
    if corpus == STDIN:
        raise UserError("the demo reads its text several times, and standard input can be read once; name a file")
    text = TextConfig().open(corpus)
    with one_thread():
        entries = sorted(_trained(folder, corpus), key=lambda entry: entry.bits_per_byte)
        note("measuring general compressors")
        peers = compressors(text.train.read(), text.valid.read())
        note(f"proving the best figure: compressing the held-out text with {entries[0].run.name}, and restoring it")
        proof = _proved(entries[0], text)
    title = f"{Path(corpus).name}: {len(entries)} models on one scale"
    command = shlex.join(["octavo", "demo", "--out", out, *(["--corpus", corpus] if corpus != "shakespeare" else [])])
    page = folder / REPORT
    with whole_file(page) as file:
        file.write(compare_page(title, entries, peers, opening(text.valid, PASSAGE), proof, command).encode())
    if json:
        print_json({
            "models": [_told(entry) for entry in entries], "compressors": [peer._asdict() for peer in peers],
            "proof": proof, "page": str(page),
        })  # fmt: skip
    else:
        _print_result(entries, peers, proof, text, page)


def _trained(folder: Path, corpus: str) -> list[Entry]:
    """Every recipe's run, then the mixture of some of them."""
    entries = []
    for i, recipe in enumerate(RECIPES, 1):
        note(f"training {i} of {len(RECIPES) + 1}: {recipe.name}")
        entries.append(_entry(api.train(recipe.model, corpus, out=folder / recipe.name, **recipe.settings)))
    note(f"training {len(RECIPES) + 1} of {len(RECIPES) + 1}: mix of {', '.join(MIXED)}")
    parts = [folder / name for name in MIXED]
    return [*entries, _entry(api.train("mix", corpus, out=folder / "mix", parts=parts))]


def _entry(run: api.Run) -> Entry:
    assert run.path is not None
    sample = (run.path / SAMPLES).read_text(encoding="utf-8")
    return Entry(run, sample, bytes_on_disk(run.path), f"{run.name}/{REPORT}")


def compressors(train: bytes, valid: bytes) -> list[Peer]:
    """What general compressors make of the held-out text, alone and, where their memory reaches, after the rest."""
    alone = {
        "zlib": zlib.compress(valid, 9), "bz2": bz2.compress(valid, 9), "xz": lzma.compress(valid, preset=9),
    }  # fmt: skip
    peers = [Peer(f"{name}, without the training text", 8 * len(data) / len(valid)) for name, data in alone.items()]
    more = len(lzma.compress(train + valid, preset=9)) - len(lzma.compress(train, preset=9))
    return [*peers, Peer("xz, after the training text", 8 * more / len(valid))]


def _proved(best: Entry, text: Corpus) -> dict[str, Any]:
    """Compress the held-out text with the best run and restore it."""
    result = best.run.record["result"]
    claim = Score("held-out text", result["bits"], result["bytes"], result["tokens"], result["seconds"])
    return proof_of(best.run, claim, text.valid.read())


def _told(entry: Entry) -> dict[str, Any]:
    bits = entry.bits_per_byte
    return {
        "run": str(entry.run.path), "title": entry.title, "bits_per_byte": bits if math.isfinite(bits) else None,
        "impossible": entry.run.record["result"]["impossible"], "train_seconds": entry.run.record["train_seconds"],
        "bytes": entry.bytes_on_disk, "made_of": stored(entry.run.model),
    }  # fmt: skip


def _print_result(entries: list[Entry], peers: list[Peer], proof: dict[str, Any], text: Corpus, page: Path) -> None:
    print(
        "Bits per byte is what one byte of unseen text costs. 8 is the text as it is; the\n"
        "better a model knows what comes next, the fewer bits it needs. These models\n"
        f"learnt from {text.train.size:,} bytes and were measured on the {text.valid.size:,} after them.\n"
    )
    _print_table(entries, peers)
    for entry in (entry for entry in entries if math.isinf(entry.bits_per_byte)):
        result = entry.run.record["result"]
        print(
            f"\nInfinite: {entry.title}, gave probability zero\n"
            f"to {result['impossible']:,} of {result['tokens']:,} tokens. One is enough; smoothing is the cure."
        )
    verdict = "restored every byte" if proof["restored"] else "DID NOT RESTORE IT"
    print(
        f"\nProof: the best model (*) claims {proof['claimed_bytes']:,.0f} bytes for the unseen text. It\n"
        f"compressed the text to {proof['archive_bytes']:,} bytes ({proof['difference']:+.2%}) and {verdict}."
    )
    run = shlex.quote(str(page.parent / SHOWPIECE))
    print("\nNext, let a model write, see what it expected, measure a text of yours:")
    print(f'  octavo generate {run} --prompt "ROMEO:" --max-tokens 300')
    print(f'  octavo inspect {run} --text "To be, or not to be"')
    print(f"  octavo eval {run} FILE --prove")
    print(f"\nThe page with figures, coloured text and samples: {page}")


def _print_table(entries: list[Entry], peers: list[Peer]) -> None:
    """All rows by bits per byte, at most 80 letters wide; the best model is marked."""
    rows = [
        (e.bits_per_byte, e.title, f"{e.run.record['train_seconds']:.2f}", size(e.bytes_on_disk),
         f"{sum(entries_of(e.run.model)):,}")
        for e in entries
    ]  # fmt: skip
    rows += [(peer.bits_per_byte, peer.name, "", "", "") for peer in peers]
    rows.sort(key=lambda row: row[0])
    best = entries[0].title
    cells = [
        (name, f"{bits:.4f} {'*' if name == best else ' '}" if math.isfinite(bits) else number(bits), *rest)
        for bits, name, *rest in rows
    ]
    print_table(("model", "bits/byte", "train s", "size", "entries"), cells)
