"""The page of a comparison: what to use, the table and its proof, what each model costs, sees and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.experiments.compare.figures import (
    COSTS,
    EXPLAINED,
    FIGURES,
    Figure,
    figures,
    read_curves,
    trade_off,
    write_figures,
)
from octavo.experiments.compare.html_table import footnotes, policies, table_html
from octavo.experiments.compare.passages import ByteCosts, chooser_style, disagreements, same_passage
from octavo.experiments.compare.rows import CSV, Comparison, Row
from octavo.io.files import size, whole_file
from octavo.pages.figures.bars import bars
from octavo.pages.frame import definitions, document, paragraph, section, shown, verbatim
from octavo.pages.svg_file import standalone
from octavo.tasks.run import REPORT, SAMPLES

SAMPLE, SAMPLE_LINES = 420, 14  # characters and lines shown of each model's writing

TABLE_STYLE = """
.ladder table { width: 100% } .ladder th[scope=row] { position: sticky; left: 0; background: var(--paper);
  white-space: normal; min-width: 7.5rem; font-weight: 400 } .ladder th small { display: block; color: var(--quiet);
  line-height: 1.25 } .ladder td small { color: var(--quiet); display: block } .ladder .best th { font-weight: 650 }
.ladder .best small { font-weight: 400 }
.ladder .dominated, .ladder .dominated a { color: var(--quiet) } .ladder .outside { font-style: italic }
.ladder .failed td { color: var(--quiet); white-space: normal; min-width: 14rem } .ladder .mark-best { color:
  var(--paper); background: var(--main); border-radius: 3px; padding: 0 .35rem; font-size: .75rem }
"""
STYLE = """
.advice { border-left: 4px solid var(--main); padding: .2rem 0 .2rem 1rem; font-size: 1.05rem }
.notes { font-size: .85rem; color: var(--quiet); padding-left: 1.1rem; max-width: 46rem }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 0 1.6rem }
.figures figure { margin: .3rem 0 } .figures article { min-width: 0 }
.seen > article { display: none } .seen > input { position: absolute; opacity: 0 } .seen > label {
  display: inline-block; padding: .15rem .7rem; margin: 0 .3rem .35rem 0; border: 1px solid var(--line);
  border-radius: 1rem; cursor: pointer }
.seen > input:checked + label { background: var(--main); border-color: var(--main); color: var(--paper) }
.seen > input:focus-visible + label { outline: 3px solid var(--main); outline-offset: 2px }
.seen { position: relative } .side article { min-width: 0 } .at { margin: .8rem 0 0 }
.cards { display: flex; gap: 1rem; overflow-x: auto; padding-bottom: .5rem; scroll-snap-type: x proximity }
.cards article { flex: 0 0 min(19rem, 82%); scroll-snap-align: start } .cards h3 { margin: .3rem 0 }
@media print { body { max-width: none } mark, .mark-best { print-color-adjust: exact } .scroll, .cards { overflow:
  visible } .cards { flex-wrap: wrap } figure, article, tr { break-inside: avoid } h2, h3 { break-after: avoid }
  .ladder table { font-size: .65rem } }
"""
NOTEBOOK_STYLE = """
.octavo { --quiet: #6b747d; --paper: transparent; --main: #1f5fa8; max-width: 62rem }
.octavo .scroll { overflow-x: auto } .octavo .r { text-align: right; white-space: nowrap }
.octavo th { text-align: left } .octavo td, .octavo th { vertical-align: top } .octavo .best td { font-weight: 650 }
.octavo .notes { color: var(--quiet) }
.octavo .ladder th[scope=row] { position: static } .octavo .ladder .mark-best { color: #fff }
.octavo svg { max-width: 30rem; width: 100%; height: auto }
"""


def write_page(comparison: Comparison, held_out: bytes) -> Path:
    """Write the page, its figures as files and the table as CSV into the comparison's folder, from what lies there.

    `held_out` is the held-out text, or as much of its beginning as is to be looked at.
    """
    folder = comparison.folder
    assert folder is not None, "a comparison without a folder has no page"
    curves = read_curves(comparison)
    drawn = figures(comparison, curves)
    write_figures(drawn, folder)
    with whole_file(folder / CSV) as file:
        file.write(comparison.to_csv().encode("utf-8", "backslashreplace"))
    page = comparison_page(comparison, held_out, read_byte_costs(comparison), drawn, read_samples(comparison))
    with whole_file(folder / REPORT) as file:
        file.write(page.encode())
    return folder / REPORT


def read_byte_costs(comparison: Comparison) -> ByteCosts:
    """The bits that each byte cost, for the models whose file is there; mapped, so that a long text costs nothing."""
    assert comparison.folder is not None
    files = {
        row.model: comparison.folder / row.byte_costs for row in comparison if row.byte_costs and row.error is None
    }
    return {model: np.load(path, mmap_mode="r") for model, path in files.items() if path.is_file()}


def read_samples(comparison: Comparison) -> dict[str, str]:
    """What each run wrote when it was trained."""
    assert comparison.folder is not None
    files = {row.model: comparison.folder / row.run / SAMPLES for row in comparison if row.run and row.error is None}
    return {model: path.read_text("utf-8", "replace") for model, path in files.items() if path.is_file()}


def comparison_page(
    comparison: Comparison, held_out: bytes, byte_costs: ByteCosts, drawn: Sequence[Figure], samples: Mapping[str, str]
) -> str:  # fmt: skip
    """The whole page."""
    models = [row for row in comparison if row.family != "compressor" and row.error is None]
    name = Path(str(comparison.corpus.get("name", "a text"))).name
    return document(f"{name}: {len(models)} models on one scale", _lead(comparison, len(models)), [
        _advice(comparison.advice),
        section("The table", table_html(comparison), _notes(footnotes(comparison))),
        _proof(comparison.proof),
        _figures(drawn),
        same_passage(comparison, held_out, byte_costs),
        disagreements(comparison, held_out, byte_costs),
        _writing([row for row in comparison if samples.get(row.model)], samples),
        _again(comparison),
        _stages(comparison.seconds),
    ], TABLE_STYLE + STYLE + chooser_style(len(byte_costs)))  # fmt: skip


def comparison_html(comparison: Comparison) -> str:
    """What a notebook shows: the advice, the table, and bits per byte against training time."""
    figure = trade_off(comparison, COSTS[0]).html
    drawing = standalone(figure).split("?>", 1)[-1] if figure else ""
    said = "".join(paragraph(sentence) for sentence in comparison.advice)
    scoped = TABLE_STYLE.replace(".ladder", ".octavo .ladder")
    return (
        f'<div class="octavo"><style>{scoped}{NOTEBOOK_STYLE}</style>{said}{table_html(comparison, links=False)}'
        f"{_notes(footnotes(comparison))}{drawing}</div>"
    )


def _lead(comparison: Comparison, models: int) -> str:
    corpus, budget = comparison.corpus, comparison.settings.get("budget")
    sizes = [corpus.get(part, {}).get("bytes", 0) for part in ("train", "valid")]
    neural = any(row.trained and row.family in ("recurrent", "attention") for row in comparison)
    within = f", the neural ones for {budget} each," if budget and neural else ""
    return paragraph(
        f"{models} models learnt from the same {sizes[0]:,} bytes{within} and were measured on the same {sizes[1]:,} "
        "bytes, which none had seen. Bits per byte is what a byte of that text costs: 8 is the text as it is, and the "
        "better a model knows what comes next, the fewer it needs."
    )


def _advice(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return section("What to use", '<div class="advice">', *map(paragraph, sentences), "</div>")


def _notes(sentences: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{shown(one)}</li>" for one in sentences)}</ul>' if sentences else ""


def _proof(proof: Mapping[str, Any] | None) -> str:
    if proof is None:
        return section("The proof", paragraph("The best figure was not proved by compression this time."))
    verdict = "gave back every byte" if proof["restored"] else "DID NOT give the text back"
    model = proof.get("model", "the best model")
    return section("The proof", paragraph(
        f"By its own figure {model} needs {proof['claimed_bytes']:,.0f} bytes for the held-out text. octavo compressed "
        f"the text with it into {proof['archive_bytes']:,} bytes ({proof['difference']:+.2%}), and decompressing "
        f"{verdict}."
    ))  # fmt: skip


def _figures(drawn: Sequence[Figure]) -> str:
    if not drawn:
        return ""
    cells = [f"<article><h3>{shown(figure.title)}</h3>\n{figure.html}</article>" for figure in drawn]
    return section(
        "What each costs, and how they learnt", paragraph(EXPLAINED), '<div class="figures">', *cells, "</div>",
        paragraph(f"The same figures as files, with their numbers as CSV, are in the folder {FIGURES}.", "quiet"),
    )  # fmt: skip


def _writing(rows: Sequence[Row], samples: Mapping[str, str]) -> str:
    if not rows:
        return ""
    cards = [f"<article><h3>{shown(row.model)}</h3>{verbatim(_cut(samples[row.model]))}</article>" for row in rows]
    return section(
        "What they write", paragraph("Each from nothing, with the same seed. Scroll sideways for more."),
        '<div class="cards" tabindex="0" role="region" aria-label="What they write">', *cards, "</div>",
    )  # fmt: skip


def _cut(sample: str) -> str:
    return "\n".join(sample[:SAMPLE].split("\n")[:SAMPLE_LINES])


def _again(comparison: Comparison) -> str:
    corpus = comparison.corpus
    text = [("name", str(corpus.get("name", "unknown")))]
    for part, name in (("train", "learnt from"), ("valid", "measured on")):
        if part in corpus:
            text.append((name, f"{corpus[part]['bytes']:,} bytes, sha256 {corpus[part]['sha256']}"))
    settings = {
        name: value for name, value in comparison.settings.items()
        if (value or name == "seed") and name not in comparison.versions
    }  # fmt: skip
    settings["context"] = "; ".join(policies(comparison))
    groups = [("The text", text), *(
        (title, [(name, _plain(name, value)) for name, value in told.items() if value != ""])
        for title, told in (("Settings", settings), ("Machine", comparison.machine), ("Versions", comparison.versions))
    )]  # fmt: skip
    lists = [f"<h3>{title}</h3>{definitions(told)}" for title, told in groups if told]
    return section("Make it again", verbatim(comparison.command), *lists)


def _plain(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return size(value) if name == "memory" and isinstance(value, int) else str(value)


def _stages(seconds: Mapping[str, float]) -> str:
    if not seconds:
        return ""
    training = seconds.get("training", 0.0)
    rest = sum(seconds.values()) - training
    share = f", {rest / training:.0%} of the training" if training else ""
    told = f"Seconds. What is not training took {rest:,.1f}{share}."
    return section("Where the time went", bars(list(seconds.items()), told, digits=1))
