"""The page of a comparison: figures at the right places, passages at the right cost, and a page for any screen."""

from __future__ import annotations

import csv
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import chromium
from html_pages import HOSTILE, Page, elements, sentences
from octavo.experiments.compare.advice import rank_rows
from octavo.experiments.compare.figures import (
    COSTS,
    FIGURES,
    draw_figures,
    learning_curves,
    read_curves,
    trade_off,
)
from octavo.experiments.compare.intervals import block_interval
from octavo.experiments.compare.measure import score_run
from octavo.experiments.compare.page import (
    comparison_html,
    comparison_page,
    comparison_table,
    footnotes,
    read_byte_costs,
    read_samples,
    write_page,
)
from octavo.experiments.compare.passages import WINDOW_BYTES, disagreements, farthest, pairs, pieces_of, same_passage
from octavo.experiments.compare.rows import CSV, CompareRow, Comparison
from octavo.experiments.table import page_columns
from octavo.pages.figures.pareto import frontier
from octavo.pages.figures.svg import COLOURS
from octavo.tasks import api
from octavo.tasks.corpus import held_out
from octavo.tasks.language_page import OPENING_BYTES
from octavo.tasks.run_page import bytes_on_disk, title_of

SVG = "{http://www.w3.org/2000/svg}"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
MODELS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("bag", "counts", "bag", {}),
    ("kn3", "counts", "ngram", {"order": 3}),
    ("gru", "recurrent", "gru", {"width": 8, "layers": 1, "budget": "3steps", "batch_size": 4, "sequence_length": 32}),
)


def row(model: str, bits: float | None, family: str = "counts", **more: Any) -> CompareRow:
    text = {"seconds": 1.0, "bytes": 1000, "score_rate": 1e4, "policy": "state carried"} | more
    return CompareRow(model, f"{model} of bytes", family, bits, **text)


def by_hand() -> Comparison:
    """bag is cheap and bad, kn5 good, gru best and expensive, rnn worse than kn5 in everything; xz from outside."""
    rows = (
        row("gru", 2.0, "recurrent", seconds=100.0, bytes=4000, score_rate=1e3, low=1.9, high=2.1, interval="seeds"),
        row("kn5", 2.5, seconds=1.0, bytes=9000, score_rate=1e5),
        row("xz", 2.8, "compressor", seconds=None, bytes=None, score_rate=None),
        row("rnn", 4.0, "recurrent", seconds=10.0, bytes=9500, score_rate=1e4),
        row("bag", 5.0, seconds=0.01, bytes=100, score_rate=1e6),
        row("mle3", math.inf, impossible=7),
        CompareRow("gpt", "GPT", "attention", error="heads must divide width: width=100, heads=8; try heads=4"),
    )  # fmt: skip
    corpus = {"name": "a.txt", "train": {"bytes": 9, "sha256": "aa"}, "valid": {"bytes": 1, "sha256": "bb"}}
    return Comparison(rank_rows(rows), corpus, advice=("gru is best.",), command="octavo compare a.txt")


def html_of(comparison: Comparison, cost: int = 0) -> str:
    """The figure of bits per byte against one cost."""
    return trade_off(comparison, COSTS[cost]).__html__()


def marks(html: str) -> dict[str, dict[str, str]]:
    """The attributes of each model's mark."""
    points = [group for group in elements(html, "g") if group.get("class") == "point"]
    return {
        group.findtext("text", ""): next(one.attrib for one in group.iter("path") if "mark" in one.attrib["class"])
        for group in points
    }


def places(html: str) -> dict[str, tuple[float, float]]:
    """Where the mark of each model lies."""
    found = {}
    for name, mark in marks(html).items():
        x, y = re.findall(r"-?[\d.]+", mark["transform"])
        found[name] = (float(x), float(y))
    return found


# ---------------------------------------------------------------- figures


def test_the_frontier_keeps_what_nothing_cheaper_beats() -> None:
    points = [(1.0, 5.0), (2.0, 3.0), (3.0, 4.0), (4.0, 3.0), (9.0, 2.0), (9.0, 2.5)]
    assert frontier(points) == [(1.0, 5.0), (2.0, 3.0), (9.0, 2.0)]


def test_where_more_is_better_the_frontier_begins_at_the_fastest() -> None:
    assert frontier([(1.0, 2.0), (5.0, 2.0), (7.0, 3.0), (6.0, 4.0)], more_is_better=True) == [(7.0, 3.0), (5.0, 2.0)]


def test_marks_lie_in_the_order_of_their_numbers_and_equal_ratios_are_equal_distances() -> None:
    at = places(html_of(by_hand()))
    assert [name for name, _ in sorted(at.items(), key=lambda one: one[1][0])] == ["bag", "kn5", "rnn", "gru"]
    assert [name for name, _ in sorted(at.items(), key=lambda one: -one[1][1])] == ["gru", "kn5", "rnn", "bag"]
    assert at["gru"][0] - at["kn5"][0] == pytest.approx(at["kn5"][0] - at["bag"][0], abs=0.2)  # 1 to 100, 0.01 to 1
    heights = [at[name][1] for name in ("bag", "rnn", "kn5", "gru")]
    assert (heights[3] - heights[2]) / (heights[1] - heights[0]) == pytest.approx(
        math.log(2.5 / 2) / math.log(5 / 4), rel=0.02
    )


def test_each_figure_draws_its_own_line_of_the_best_and_hollow_is_who_is_dominated() -> None:
    comparison = by_hand()
    best = {
        cost.column: {line[0] for line in trade_off(comparison, cost).data if line[-1]} for cost in COSTS
    }  # fmt: skip
    assert best == {"seconds": {"bag", "kn5", "gru"}, "bytes": {"bag", "gru"}, "score_rate": {"bag", "kn5", "gru"}}
    for cost in range(len(COSTS)):
        drawn = marks(html_of(comparison, cost))
        assert {name for name, mark in drawn.items() if mark["fill"] == COLOURS["paper"]} == {"rnn"}


def test_what_cannot_be_drawn_is_named_in_the_caption() -> None:
    comparison = by_hand()
    comparison = replace(comparison, rows=(*comparison.rows, row("smollm2", 1.0, "pretrained", seconds=None)))
    drawn = html_of(comparison)
    assert "Infinite, and so not drawn: mle3." in drawn
    assert "Not drawn, because unknown: smollm2." in drawn
    assert "smollm2" in places(html_of(comparison, 1))


def test_compressors_are_lines_with_their_names() -> None:
    drawn = html_of(by_hand())
    [line] = [one for one in elements(drawn, "line") if "stroke-dasharray" in one.attrib]
    assert line.attrib["y1"] == line.attrib["y2"]
    assert "xz" in [text.text for text in elements(drawn, "text")]


def test_a_compressor_that_needs_no_bits_at_all_is_left_out_of_the_figure() -> None:
    rows = (row("kn3", 0.2), row("bz2", 0.0, "compressor", seconds=None), row("xz", 0.1, "compressor", seconds=None))
    figure = trade_off(Comparison(rank_rows(rows), {"name": "a.txt"}), COSTS[0])
    assert [line[0] for line in figure.data] == ["kn3", "xz"]


def test_without_models_there_is_no_figure_and_the_page_still_stands(tmp_path: Path) -> None:
    comparison = Comparison((CompareRow("gpt", "GPT", "attention", error="no memory"),), {"name": "x"})
    assert draw_figures(comparison, {}, tmp_path) == []
    page = Page(comparison_page(comparison, b"", {}, [], {}))
    assert "failed: no memory" in page.text


def test_a_figure_is_a_file_of_its_own_with_nothing_to_look_up() -> None:
    drawing = trade_off(by_hand(), COSTS[0]).drawing
    assert drawing is not None
    svg = drawing.file("a title")
    root = ET.fromstring(svg.split("?>", 1)[1])
    assert root.tag == SVG + "svg"
    assert not re.search(r"var\(|<style", svg)
    for one in root.iter():  # a class is for the page's colours; the file's own stand beside it
        for paint in ("fill", "stroke"):
            names = [kind for kind in one.get("class", "").split() if kind.startswith(f"{paint}-")]
            assert [COLOURS[name.removeprefix(f"{paint}-")] for name in names] in ([], [one.get(paint)])
    labels = [text for text in root.iter(SVG + "text") if text.get("display") != "none"]
    assert [text.text for text in labels].count("gru") == 1
    assert not any("bits per byte," in (text.text or "") for text in labels)  # tips are for a page
    assert root.findtext(SVG + "title") == "a title"


def test_names_from_a_hostile_text_stay_text_in_every_file(tmp_path: Path) -> None:
    evil = replace(by_hand(), rows=(replace(by_hand().rows[0], model=HOSTILE + "\uffff", title=HOSTILE),))
    drawn = draw_figures(evil, {HOSTILE: [(1.0, 2.0), (2.0, 1.5)]}, tmp_path)
    for file in (tmp_path / FIGURES).glob("*.svg"):
        root = ET.parse(file).getroot()
        assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
            "svg", "g", "path", "line", "rect", "text", "title", "desc", "circle",
        }  # fmt: skip
    for html in (
        comparison_page(evil, HOSTILE.encode(), {evil.rows[0].model: np.ones(len(HOSTILE))}, drawn, {}),
        comparison_html(evil),
    ):
        page = Page(html)
        assert "script" not in page.tags
        assert "img" not in page.tags
        assert [name for name, _ in page.attributes if name.startswith("on")] == []


def test_files_hold_what_the_figures_show(tmp_path: Path) -> None:
    comparison = by_hand()
    curves = {"gru": [(1.0, 4.0), (10.0, 3.0)]}
    drawn = draw_figures(comparison, curves, tmp_path)
    paths = list((tmp_path / FIGURES).iterdir())
    assert {path.suffix for path in paths} == {".svg", ".csv"}
    assert len(paths) == 2 * 4
    for figure in drawn:
        with open(tmp_path / FIGURES / f"{figure.name}.csv", newline="", encoding="utf-8") as file:
            read = list(csv.reader(file))
        assert tuple(read[0]) == figure.columns
        assert read[1:] == [["" if cell is None else str(cell) for cell in line] for line in figure.data]
        root = ET.parse(tmp_path / FIGURES / f"{figure.name}.svg").getroot()
        assert {one.get("stroke") for one in root.iter(SVG + "path")} & set(COLOURS.values())
    assert learning_curves(curves, {}).data == [("gru", 1.0, 4.0), ("gru", 10.0, 3.0)]


# ---------------------------------------------------------------- passages


def test_bytes_that_cost_the_same_were_one_token_and_characters_stay_whole() -> None:
    bits = np.array([1.5, 1.5, 1.5, 0.5, 2, 2, 3, 1], np.float16)
    found = pieces_of("the ö\nx".encode(), bits)
    assert [(piece.text, piece.bytes, piece.bits) for piece in found] == [
        ("the", 3, 4.5), (" ", 1, 0.5), ("ö", 2, 4.0), ("\n", 1, 3.0), ("x", 1, 1.0),
    ]  # fmt: skip


def test_broken_text_keeps_its_cost() -> None:
    data = b"a\xff\xe4\xb8b\xe4"
    found = pieces_of(data, np.arange(1, 7, dtype=np.float16))
    assert sum(piece.bits for piece in found) == 21
    assert sum(piece.bytes for piece in found) == len(data)
    assert "".join(piece.text for piece in found) == data.decode("utf-8", "replace")


def test_the_farthest_window_is_the_one_that_trying_all_finds() -> None:
    generator = np.random.default_rng(1)
    text = bytes(generator.choice(list(b"abcdefgh"), 500).tolist())  # no spaces: places stay as they are
    one, other = generator.random(500), 2 * generator.random(500)
    found = farthest(one, other, text)
    gains = [float((other - one)[i : i + WINDOW_BYTES].sum()) for i in range(500 - WINDOW_BYTES + 1)]
    assert found[0].start == int(np.argmax(gains))
    assert found[0].difference == pytest.approx(max(gains))
    assert abs(found[1].start - found[0].start) >= WINDOW_BYTES


def test_places_begin_and_end_with_words_and_none_is_found_where_nobody_gains() -> None:
    text = b"every word of this text is quite short indeed " * 4
    one, other = np.zeros(len(text)), np.zeros(len(text))
    other[50:60] = 9.0
    [place, *_] = farthest(one, other, text)
    assert text[place.start - 1 : place.start] in (b" ", b"")
    assert text[place.end : place.end + 1] in (b" ", b"")
    assert farthest(other, other, text) == []


def test_an_impossible_byte_does_not_stop_the_search() -> None:
    one, other = np.zeros(200), np.zeros(200)
    one[20] = other[20] = other[120] = np.inf
    [place, *_] = farthest(one, other, b"x" * 200)
    assert place.start <= 120 < place.end


def test_disagreements_are_between_the_best_of_families() -> None:
    comparison = by_hand()
    byte_costs = {name: np.ones(100) for name in ("gru", "kn5", "rnn", "bag", "mle3")}
    assert [(one.model, other.model) for one, other in pairs(comparison, byte_costs)] == [("gru", "kn5")]
    counts_only = {name: np.ones(100) for name in ("kn5", "bag")}
    assert [(one.model, other.model) for one, other in pairs(comparison, counts_only)] == [("kn5", "bag")]
    assert disagreements(comparison, b"x" * 100, byte_costs) == ""


def test_both_models_bits_stand_beside_a_disagreement() -> None:
    byte_costs = {"gru": np.full(300, 0.5), "kn5": np.full(300, 0.5)}
    byte_costs["kn5"][100:160] = 2.0
    text = Page(disagreements(by_hand(), b"abcde" * 60, byte_costs)).text
    assert "gru predicts better than kn5" in text
    assert "kn5 predicts better than gru" not in text
    assert "gru: 30 bits" in text
    assert "kn5: 120 bits" in text


def test_every_model_has_its_view_of_the_passage_and_one_is_chosen() -> None:
    held = sentences(40).encode()
    drawn = same_passage(by_hand(), held, {name: np.ones(len(held)) for name in ("gru", "kn5", "bag")})
    assert [(one.get("for"), one.text) for one in elements(drawn.replace(" checked", ""), "label")] == [
        ("model0", "gru"), ("model1", "kn5"), ("model2", "bag"),
    ]  # fmt: skip
    assert drawn.count(" checked") == 1
    assert drawn.count("<article") == 3
    assert max(map(len, Page(drawn).verbatim)) < OPENING_BYTES


# ---------------------------------------------------------------- the table


def test_the_table_marks_the_best_greys_the_dominated_and_shows_what_failed() -> None:
    table = comparison_table(by_hand())
    by_model = {name: kind for kind, name in re.findall(r'<tr(?: class="(\w+)")?><th scope="row">(\w+)', table)}
    assert by_model == {
        "gru": "best", "kn5": "", "xz": "compressor", "rnn": "dominated", "bag": "", "mle3": "", "gpt": "failed",
    }  # fmt: skip
    assert f'<td colspan="{len(page_columns(CompareRow, by_hand().rows)) - 1}">failed: heads must divide width' in table
    assert "1.900–2.100" in table
    text = " ".join(footnotes(by_hand()))
    assert "dominated" in text
    assert "95 %: the confidence interval of the bits per byte, seeds." in text
    assert "mle3 gave probability zero to 7 held-out tokens" in text
    assert "Context while scoring, all: state carried." in text


def test_adaptive_rows_are_marked_in_table_notebook_and_figures_and_explained_only_where_there_are_some() -> None:
    fixed = by_hand()
    assert 'class="adaptive"' not in comparison_html(fixed)
    assert all("daptive" not in one for one in footnotes(fixed))
    marked = [replace(one, adaptive=one.model in ("xz", "kn5")) for one in fixed]
    comparison = replace(fixed, rows=tuple(marked))
    for html in (comparison_table(comparison), comparison_html(comparison)):
        assert re.findall(r'row">(\w+)\s+<span class="adaptive">adaptive</span>', html) == ["kn5", "xz"]
    (note,) = [one for one in footnotes(comparison) if one.startswith("Adaptive: ")]
    assert "goes on learning from the held-out text while it scores it" in note
    drawn = html_of(comparison)
    assert {"xz †", "kn5 †", "gru"} <= {text.text for text in elements(drawn, "text")}
    assert "†: adaptive." in drawn
    assert "kn5, adaptive: 2.5000 bits per byte" in drawn
    figure = trade_off(comparison, COSTS[0])
    at = figure.columns.index("adaptive")
    assert {line[0] for line in figure.data if line[at]} == {"xz", "kn5"}


def test_the_badge_of_a_fixed_model_that_an_adaptive_row_beats_says_so() -> None:
    rows = (*by_hand().rows, row("ppmd", 1.9, "compressor", adaptive=True))
    assert "best fixed model</span>" in comparison_table(replace(by_hand(), rows=rank_rows(rows)))
    assert "best model</span>" in comparison_table(by_hand())


def test_a_notebook_gets_the_table_and_one_figure_in_few_bytes() -> None:
    shown = comparison_html(by_hand())
    assert len(shown) < 200_000
    page = Page(shown)
    assert page.tags.count("svg") == 1
    assert page.tags.count("tr") == 1 + len(by_hand())
    assert not {"script", "link", "img"} & set(page.tags)
    assert "gru is best." in page.text


# ---------------------------------------------------------------- a real one


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, bytes]:
    """Three small runs, measured on the same bytes, with their page."""
    folder = tmp_path_factory.mktemp("comparison")
    corpus = folder / "text.txt"
    corpus.write_text(sentences(400) + "Ünïcode – </script> \x07 ends it.\n" * 20, encoding="utf-8")
    rows = []
    for name, family, model, settings in MODELS:
        run = api.train(model, corpus, out=folder / name, **settings)
        _, text = held_out(run)
        score, bits = score_run(run, text, "held out")
        (folder / "byte_costs").mkdir(exist_ok=True)
        np.save(folder / "byte_costs" / f"{name}.npy", bits.astype(np.float16))
        interval, over = block_interval(bits)
        assert interval is not None
        low, high = interval
        rows.append(CompareRow(
            name, title_of(run), family, score.bits_per_byte, low=low, high=high, interval=over,
            seconds=run.record["train_seconds"], parameters=sum(p.numel() for p in run.model.parameters()),
            score_rate=score.tokens / score.seconds, bytes=bytes_on_disk(folder / name), run=name,
            byte_costs=f"byte_costs/{name}.npy", policy=score.policy,
        ))  # fmt: skip
    comparison = Comparison(
        rank_rows(rows), run.record["corpus"], command=f"octavo compare {corpus}", folder=folder, advice=("Take kn3.",),
        seconds={"training": 3.0, "scoring": 0.1}, settings={"seed": 0, "budget": "3 steps"},
        versions={"octavo": "1"}, machine={"cores": 2, "memory": 10**9},
    )  # fmt: skip
    write_page(comparison, text.read())
    return comparison, text.read()


def test_a_real_page_holds_every_part_in_its_order(real: tuple[Comparison, bytes]) -> None:
    comparison, _ = real
    assert comparison.folder is not None
    html = (comparison.folder / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert re.findall(r"<h2>(.*?)</h2>", html) == [
        "Recommendation", "Results", "Proof", "Cost and learning curves", "Settings",
            "Surprisal of one passage, by model",
        "Where the models disagree most", "Samples", "Reproduce", "Time",
    ]  # fmt: skip
    for said in (comparison.command, comparison.corpus["valid"]["sha256"], "1.0 GB", "3% of the training"):
        assert said in page.text
    assert len(html) < 1_000_000
    assert "gru" in read_curves(comparison)
    assert set(read_byte_costs(comparison)) == set(read_samples(comparison)) == {"bag", "kn3", "gru"}
    assert 'href="kn3/report.html"' in html
    with open(comparison.folder / CSV, newline="", encoding="utf-8") as file:
        read = [(line["model"], float(line["bits_per_byte"]), int(line["bytes"])) for line in csv.DictReader(file)]
    assert read == [(one.model, one.bits_per_byte, one.bytes) for one in comparison]


def test_the_coloured_bits_add_up_to_the_score(real: tuple[Comparison, bytes]) -> None:
    comparison, text = real
    for one in comparison:
        priced = pieces_of(text, read_byte_costs(comparison)[one.model])
        assert one.bits_per_byte is not None
        assert sum(piece.bits for piece in priced) / len(text) == pytest.approx(one.bits_per_byte, rel=1e-3)
        assert "".join(piece.text for piece in priced) == text.decode()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # here, because most of these tests do without

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield opened
        opened.close()


def visit(browser: Any, folder: Path, **settings: Any) -> tuple[Any, list[str]]:
    """The page in a browser, and what it complained of or asked the network for."""
    page, noise = browser.new_page(**settings), []
    page.on("console", lambda message: noise.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: noise.append(str(error)))
    address = (folder / "report.html").as_uri()
    page.on("request", lambda request: noise.append(request.url) if request.url != address else None)
    page.goto(address)
    return page, noise


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_opens_the_page_quietly_and_without_scrolling_sideways(
    real: tuple[Comparison, bytes], browser: Any, width: int
) -> None:
    assert real[0].folder is not None
    page, noise = visit(browser, real[0].folder, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().width > 200)")
    assert noise == []


@pytest.mark.browser
def test_the_page_is_dark_where_that_is_wished_and_buttons_need_no_mouse(
    real: tuple[Comparison, bytes], browser: Any
) -> None:
    assert real[0].folder is not None
    colours = {}
    for scheme in ("light", "dark"):
        page, noise = visit(browser, real[0].folder, viewport={"width": 360, "height": 800}, color_scheme=scheme)
        colours[scheme] = page.evaluate(
            "['body', 'svg .mark', 'svg text'].map(s => getComputedStyle(document.querySelector(s)))"
            ".map(s => [s.backgroundColor, s.color, s.fill].join())"
        )
        assert noise == []
    assert all(light != dark for light, dark in zip(colours["light"], colours["dark"], strict=True))
    views = page.locator(".tab-views > article")
    assert [views.nth(i).is_visible() for i in range(3)] == [True, False, False]
    page.locator("#model0").focus()
    page.keyboard.press("ArrowRight")
    assert [views.nth(i).is_visible() for i in range(3)] == [False, True, False]
    point = page.locator(".point").first
    assert not point.locator(".tip").is_visible()
    point.focus()
    assert point.locator(".tip").is_visible()
