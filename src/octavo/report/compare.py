"""The page that sets several runs side by side: one table, one figure, one passage under each model, samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from octavo.report.facts import bits_per_byte, number, stored, title_of
from octavo.report.figures import Point, scatter
from octavo.report.page import document, paragraph, section, shown, table, verbatim
from octavo.report.surprise import coloured, legend, pieces
from octavo.run import Run

SAMPLE = 400  # characters shown of each model's writing
SHORTEST = 1e-3  # seconds: what trains faster is drawn here


@dataclass(frozen=True)
class Entry:
    """A run as the page shows it."""

    run: Run
    sample: str
    bytes_on_disk: int
    page: str  # the address of its own page, seen from this one

    @property
    def title(self) -> str:
        return title_of(self.run)

    @property
    def bits_per_byte(self) -> float:
        return bits_per_byte(self.run)


class Peer(NamedTuple):
    """A general compressor, and what it makes of the held-out text."""

    name: str
    bits_per_byte: float


def compare_page(
    title: str, entries: Sequence[Entry], peers: Sequence[Peer], held_out: bytes, proof: Mapping[str, Any] | None,
    command: str,
) -> str:  # fmt: skip
    """The whole page; `proof` is what compressing with the best model came to, `command` makes everything again."""
    ranked = sorted(entries, key=lambda entry: (math.isnan(entry.bits_per_byte), entry.bits_per_byte))
    corpus = ranked[0].run.record["corpus"]
    lead = paragraph(
        f"Each model learnt from {corpus['train']['bytes']:,} bytes of {corpus['name']} and was then measured on "
        f"{corpus['valid']['bytes']:,} bytes that it had not seen. Bits per byte is what a byte of that text costs: 8 "
        "is the text as it is, and the better a model knows what comes next, the fewer it needs."
    )
    return document(title, lead, [
        section("The result", _ranking(ranked, peers), _proof(proof)),
        section("What training buys", _plot(ranked, peers)),
        section("The same passage, as each model sees it", *_passages(ranked, held_out)),
        section("What they write", '<div class="side">', *(_writing(entry) for entry in ranked), "</div>"),
        section("Make it again", verbatim(command), paragraph("Each run's own page has the command that made it.")),
    ])  # fmt: skip


def _ranking(ranked: Sequence[Entry], peers: Sequence[Peer]) -> str:
    rows = [
        (e.bits_per_byte, str(place), f'<a href="{shown(e.page)}">{shown(e.title)}</a>',
         f"{e.run.record['train_seconds']:.2f}", f"{math.ceil(e.bytes_on_disk / 1e3):,}", stored(e.run.model))
        for place, e in enumerate(ranked, 1)
    ]  # fmt: skip
    rows += [(peer.bits_per_byte, "", shown(peer.name), "", "", "") for peer in peers]
    rows.sort(key=lambda row: (math.isnan(row[0]), row[0]))
    cells = [(place, name, number(bits), *rest) for bits, place, name, *rest in rows]
    best = next(i for i, row in enumerate(cells) if row[0] == "1")
    titles = ("", "model", "bits/byte", "train s", "kB", "made of")
    return table(titles, cells, right=(0, 2, 3, 4), best=best)


def _proof(proof: Mapping[str, Any] | None) -> str:
    if proof is None:
        return ""
    verdict = "gave back every byte" if proof["restored"] else "DID NOT give the text back"
    return paragraph(
        f"The proof: by its own figure the best model needs {proof['claimed_bytes']:,.0f} bytes for the held-out text. "
        f"octavo compressed it with that model into {proof['archive_bytes']:,} bytes ({proof['difference']:+.2%}), and "
        f"decompressing {verdict}."
    )


def _plot(ranked: Sequence[Entry], peers: Sequence[Peer]) -> str:
    points = [
        Point(e.title, max(SHORTEST, e.run.record["train_seconds"]), e.bits_per_byte)
        for e in ranked if math.isfinite(e.bits_per_byte)
    ]  # fmt: skip
    left_out = [e.title for e in ranked if not math.isfinite(e.bits_per_byte)]
    caption = (
        "The numbers are those of the table. Lower is better; from one upright line to the next, training takes ten "
        "times as long."
    )
    if left_out:
        caption += f" Infinite, and so not drawn: {', '.join(left_out)}."
    lines = [(peer.name, peer.bits_per_byte) for peer in peers]
    return scatter(points, lines, caption, ("seconds of training", "bits per byte"))


def _passages(ranked: Sequence[Entry], held_out: bytes) -> list[str]:
    parts = [
        paragraph("The beginning of the held-out text, coloured by bits per byte."),
        legend(),
        '<div class="side level">',
    ]
    for entry in ranked:
        priced = pieces(entry.run.model, entry.run.tokenizer, held_out)
        bits = sum(piece.bits for piece in priced)
        paid = f"{bits:,.0f} bits for {len(held_out)} bytes" if math.isfinite(bits) else "impossible"
        parts.append(
            f"<article><h3>{shown(entry.title)}</h3>\n{paragraph(paid, 'quiet')}\n{coloured(priced)}</article>"
        )
    return [*parts, "</div>"]


def _writing(entry: Entry) -> str:
    return f"<article><h3>{shown(entry.title)}</h3>\n{verbatim(entry.sample[:SAMPLE])}</article>"
