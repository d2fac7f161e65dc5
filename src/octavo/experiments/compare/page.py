"""The page of a comparison: what to use, the results and their proof, figures, surprisal and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from octavo.experiments.compare.adaptive import COMPRESSORS_ADAPT
from octavo.experiments.compare.advice import DOMINATED
from octavo.experiments.compare.compressors import describe_ways
from octavo.experiments.compare.figures import COSTS, Figure, draw_figures, figures_section, read_curves, trade_off
from octavo.experiments.compare.passages import ByteCosts, disagreements, same_passage
from octavo.experiments.compare.proof import describe_proof
from octavo.experiments.compare.rows import COMPRESSOR, CSV, NOT_PROVED, CompareRow, Comparison
from octavo.experiments.compare.settings import settings_section
from octavo.experiments.table import cells_of, page_columns
from octavo.io.files import size, write_text
from octavo.io.run_folder import REPORT, SAMPLES
from octavo.pages import sections
from octavo.pages.figures.charts import bars
from octavo.pages.markup import NOTHING, element
from octavo.pages.sections import bullets, facts, paragraph, paragraphs, section, subsection

SAMPLE_CHARACTERS = 420  # shown of each model's sample


def write_page(comparison: Comparison, held_out: bytes) -> None:
    """Write the page, its figures as files and the table as CSV into the comparison's folder, from what lies there.

    `held_out` is the held-out text, or as much of its beginning as is to be searched.
    """
    folder = comparison.folder
    assert folder is not None, "a comparison without a folder has no page"
    drawn = draw_figures(comparison, read_curves(comparison), folder)
    write_text(folder / CSV, comparison.to_csv())
    page = comparison_page(comparison, held_out, read_byte_costs(comparison), drawn, read_samples(comparison))
    write_text(folder / REPORT, page)


def read_byte_costs(comparison: Comparison) -> ByteCosts:
    """The bits that each byte cost, for the models whose file is there; mapped, so that a long text costs nothing."""
    files = {row.model: comparison.file(row.byte_costs) for row in comparison if not row.error}
    size = comparison.corpus.get("scored", {}).get("bytes")
    found = {model: _mapped(path, size) for model, path in files.items() if path}
    return {model: bits_N for model, bits_N in found.items() if bits_N is not None}


def _mapped(path: Path, size: int | None) -> NDArray[np.float16] | None:
    """The numbers of a file, so many where that is known; None where it is damaged."""
    try:
        bits_N: NDArray[np.float16] = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    is_whole = bits_N.ndim == 1 and bits_N.dtype == np.float16 and size in (None, bits_N.size)
    return bits_N if is_whole else None


def read_samples(comparison: Comparison) -> dict[str, str]:
    """What each run wrote when it was trained."""
    files = {row.model: comparison.file(row.run and f"{row.run}/{SAMPLES}") for row in comparison if not row.error}
    return {model: path.read_text("utf-8", "replace") for model, path in files.items() if path}


def comparison_page(
    comparison: Comparison, held_out: bytes, byte_costs: ByteCosts, drawn: Sequence[Figure], samples: Mapping[str, str]
) -> str:  # fmt: skip
    """The whole page."""
    models = [row for row in comparison if row.family != COMPRESSOR and row.error is None]
    name = Path(str(comparison.corpus.get("name", "a text"))).name
    return sections.render_page(f"{name}: {len(models)} models compared", _lead(comparison, len(models)), [
        section("Recommendation", element("div", paragraphs(comparison.advice), class_="advice"))
        if comparison.advice else NOTHING,
        section("Results", comparison_table(comparison), bullets(footnotes(comparison), "notes")),
        section("Proof", paragraph(describe_proof(comparison.proof, comparison.settings.get("prove", True)))),
        figures_section(drawn),
        settings_section(comparison),
        same_passage(comparison, held_out, byte_costs),
        disagreements(comparison, held_out, byte_costs),
        _samples([row for row in comparison if samples.get(row.model)], samples),
        _reproduce(comparison),
        _stages(comparison.seconds),
    ])  # fmt: skip


def comparison_html(comparison: Comparison) -> str:
    """What a notebook shows: the advice, the table, and bits per byte against training time."""
    return sections.notebook_view(
        paragraphs(comparison.advice), comparison_table(comparison, links=False),
        bullets(footnotes(comparison), "notes"), trade_off(comparison, COSTS[0]),
    )  # fmt: skip


def _lead(comparison: Comparison, models: int) -> str:
    corpus, budget = comparison.corpus, comparison.settings.get("budget")
    trained = corpus.get("train", {}).get("bytes", 0)
    neural = any(row.is_neural for row in comparison)
    within = f", the neural ones for {budget} each," if budget and neural else ""
    return (
        f"{models} models were trained on the same {trained:,} bytes{within} and measured on "
        f"{comparison.measured_part} that were held out, which none had seen. Bits per byte is the cost of a byte of "
        "that text: uncompressed it has 8, and the better a model predicts it, the fewer it needs."
    )


def _samples(rows: Sequence[CompareRow], samples: Mapping[str, str]) -> Markup:
    if not rows:
        return NOTHING
    cards = sections.sample_cards([(row.model, samples[row.model]) for row in rows], "Samples", SAMPLE_CHARACTERS)
    explained = "Each generated without a prompt, with the same seed. Scroll sideways for more."
    return section("Samples", paragraph(explained), cards)


def _reproduce(comparison: Comparison) -> Markup:
    corpus = comparison.corpus
    text = [("name", str(corpus.get("name", "unknown")))]
    for part, name in (("train", "training text"), ("valid", "held-out text")):
        if part in corpus:
            text.append((name, f"{corpus[part]['bytes']:,} bytes, sha256 {corpus[part]['sha256']}"))
    settings = {
        name: value for name, value in comparison.settings.items()
        if (value or name == "seed") and name not in comparison.versions
    }  # fmt: skip
    settings["context"] = "; ".join(policies(comparison))
    groups = {"Settings": settings, "Machine": comparison.machine, "Versions": comparison.versions}
    lists = [
        subsection(title, facts(
            (name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else size(value)
             if name == "memory" and isinstance(value, int) else str(value))
            for name, value in pairs.items() if value != ""
        ))
        for title, pairs in groups.items()
    ]  # fmt: skip
    return sections.reproduce([comparison.command], subsection("Text", facts(text)), *lists)


def _stages(seconds: Mapping[str, float]) -> Markup:
    if not seconds:
        return NOTHING
    training = seconds.get("training", 0.0)
    rest = sum(seconds.values()) - training
    share = f", {rest / training:.0%} of the training" if training else ""
    caption = f"Seconds. All but the training took {rest:,.1f}{share}."
    return section("Time", bars(list(seconds.items()), caption, digits=1))


def comparison_table(comparison: Comparison, links: bool = True) -> Markup:
    """The table, in a box that scrolls by itself; with `links`, a name leads to the page of its run."""
    files = {row.model: row.run and f"{row.run}/{REPORT}" for row in comparison}
    rows = [_row(row, quote(str(files[row.model])) if links and comparison.file(files[row.model]) else "",
                 comparison) for row in comparison]  # fmt: skip
    return sections.table(
        page_columns(CompareRow, comparison.rows), rows, kind="comparison", label="Results", row_headers=True
    )


def _row(row: CompareRow, address: str, comparison: Comparison) -> sections.TableRow:
    name = sections.link(address, row.model) if address else row.model
    badges = [element("span", comparison.best_words, class_="badge")] if row.best else []
    badges += [element("span", "adaptive", class_="adaptive")] if row.adaptive else []
    first = Markup("{} {} {}").format(name, Markup(" ").join(badges), element("small", row.title))
    if row.error is not None:
        reason = row.error if row.error.startswith(NOT_PROVED) else f"failed: {row.error}"
        return sections.TableRow((first, reason), "failed")
    kind = "best" if row.best else "dominated" if row.dominated else "compressor" if row.family == COMPRESSOR else ""
    return sections.TableRow((first, *cells_of(row, comparison.rows)[1:]), kind)


def footnotes(comparison: Comparison) -> list[str]:
    """What the table's numbers mean, sentence by sentence: only what it needs."""
    intervals = list(dict.fromkeys(row.interval for row in comparison if row.interval and row.low is not None))
    notes = [f"Measured on {comparison.measured_part} held out."] if comparison.is_part_measured else []
    if any(row.dominated for row in comparison):
        notes.append(f"Grey: dominated, that is, {DOMINATED}.")
    if any(row.family == COMPRESSOR for row in comparison):
        names = [row.model for row in comparison if row.family == COMPRESSOR]
        notes.append(f"Italic: general compressors. {describe_ways(names)}")
    if any(row.adaptive for row in comparison):
        notes.append(f"Adaptive: {COMPRESSORS_ADAPT}.")
    if intervals:
        notes.append(f"95 %: the confidence interval of the bits per byte, {' or '.join(intervals)}.")
    if any(row.behind is not None for row in comparison):
        seeds = "" if comparison.settings.get("seeds", 1) > 1 else (
            " Networks were trained with one seed; another may change an order this close (--seeds 3)."
        )  # fmt: skip
        notes.append(
            "Behind: bits per byte more than the row above, by a paired test on the same blocks of the text; a tie is "
            f"a difference whose 95 % confidence interval holds zero.{seeds}"
        )
    notes += [
        f"{row.model} gave probability zero to {row.impossible:,} held-out tokens; one is enough to make the sum "
        "infinite."
        for row in comparison
        if row.impossible and row.error is None
    ]
    return [*notes, *(f"Context while scoring, {policy}." for policy in policies(comparison))]


def policies(comparison: Comparison) -> list[str]:
    """The context of each model while it scored; a mixture does as its parts do."""
    models: dict[str, list[str]] = {}
    for row in comparison:
        if row.policy and row.error is None and row.family not in ("compressor", "mixture"):
            models.setdefault(row.policy, []).append(row.model)
    most = max(models, key=lambda policy: len(models[policy]), default="")
    first = [f"{'all' if len(models) == 1 else 'most models'}: {most}"] if models else []
    return first + [f"{', '.join(names)}: {policy}" for policy, names in models.items() if policy != most]
