"""The pages: whole, closed to the outside, safe with any text, and full of what was measured."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from html_pages import HOSTILE, Page, elements, sentences
from octavo.cli import main
from octavo.io.run_folder import read_record
from octavo.models import GPT, spec_of
from octavo.models.bag import Bag, BagConfig
from octavo.models.mix import MixConfig
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.parts.config import GPTConfig
from octavo.models.views import Table
from octavo.pages.markup import text as markup
from octavo.pages.surprisal import annotated_text, level
from octavo.tasks import api
from octavo.tasks.corpus import TextConfig
from octavo.tasks.language import TASK
from octavo.tasks.language_page import annotate, content_of, opening
from octavo.tasks.mixture import MixtureConfig
from octavo.tasks.run import Run, load
from octavo.tasks.run_page import loss_curve, render_run_page, stored, title_of, train_command, training_section
from octavo.tasks.training_run import train_run
from octavo.text import Byte, Split, text_in_memory
from octavo.text.loading import Text


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(sentences(400), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "bag": api.train("bag", corpus, out=folder / "bag"),
        "kn4": api.train("ngram", corpus, order=4, out=folder / "kn4"),
        "mle6": api.train("ngram", corpus, order=6, estimator="mle", out=folder / "mle6"),
        "words": api.train("ngram", corpus, order=2, tokenizer="word", out=folder / "words"),
    }
    parts = [folder / "kn4", folder / "bag"]
    return made | {"mix": api.train("mix", corpus, parts=parts, out=folder / "mix")}


def page_of(run: Run) -> str:
    assert run.path is not None
    return (run.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        ({}, "transformer of bytes, 1 layer of 8"),
        ({"attention": "local", "layers": 2}, "transformer with local attention, of bytes, 2 layers of 8"),
        ({"attention": "dense"}, "dense synthesizer of bytes, 1 layer of 8"),
    ],
)
def test_a_transformer_is_called_by_what_it_looks_at(settings: dict[str, Any], title: str) -> None:
    model = GPT(GPTConfig(**{"width": 8, "layers": 1, "heads": 2} | settings), 257)
    assert title_of(Run(model, Byte())) == title
    details = spec_of(model).details
    assert details is not None
    facts = details(model, str)
    assert isinstance(facts, Table)
    named = dict(facts.rows)
    count = f"{sum(p.numel() for p in model.parameters()):,}"
    assert stored(model) == f"{count} parameters: {count} numbers"
    assert ("window 32" in named["attention"]) == (settings.get("attention") == "local")


def small(**config: Any) -> NGram:
    x_N = torch.tensor([256, *sentences(60).encode()], dtype=torch.int32)
    return NGram.fit(x_N, NGramConfig(**config), 257)


@pytest.mark.parametrize("name", ["bag", "kn4", "mle6", "words", "mix"])
def test_a_trained_run_has_a_page_that_needs_nothing_from_outside(runs: dict[str, Run], name: str) -> None:
    page = page_of(runs[name])
    parsed = Page(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags)
    assert not {"src", "srcset", "href", "style", "data"} & {attribute for attribute, _ in parsed.attributes}
    assert not re.search(r"https?://|@import|url\(", page)
    assert len(page) < 300_000
    assert parsed.tags.count("h1") == 1
    assert parsed.text.count(title_of(runs[name])) >= 1


@pytest.mark.parametrize("name", ["bag", "kn4", "words", "mix"])
def test_the_page_shows_the_score_that_the_model_has(runs: dict[str, Run], corpus: Path, name: str) -> None:
    valid = TextConfig().open(corpus).valid.read()
    score = api.evaluate(runs[name], valid)
    text = Page(page_of(runs[name])).text
    assert f"{score.bits_per_byte:.4f}" in text
    assert f"{score.bits:,.0f} bits" in text
    assert f"{len(valid):,} bytes" in text
    assert TextConfig().open(corpus).valid.sha256 in text


def test_impossible_tokens_are_said_to_be_infinite(runs: dict[str, Run]) -> None:
    impossible = runs["mle6"].record["result"]["impossible"]
    assert impossible > 0
    parsed = Page(page_of(runs["mle6"]))
    assert "infinite" in parsed.text
    assert f"{impossible:,} of " in parsed.text
    assert not re.search(r"\b(inf|nan|None|Infinity)\b", parsed.text)


def test_every_order_is_drawn_with_its_size(runs: dict[str, Run]) -> None:
    model = runs["kn4"].model
    assert isinstance(model, NGram)
    page = page_of(runs["kn4"])
    for order, size in enumerate(model.sizes(), 1):
        assert f"{order}-grams" in page
        assert f">{size:,}</text>" in page
    count = f"{sum(model.sizes()):,}"
    assert stored(model) == f"{count} parameters: {count} n-grams"


def test_each_byte_carries_what_it_costs(runs: dict[str, Run], corpus: Path) -> None:
    run = runs["kn4"]
    held_out = opening(TextConfig().open(corpus).valid)
    x_1T = torch.tensor([list(held_out)])
    bits = (-run.model.score(x_1T)[0] / math.log(2)).tolist()
    assert Page(page_of(run)).titles()[: len(bits)] == [f"{cost:.2f} bits" for cost in bits]


def test_the_page_holds_the_sample_and_the_held_out_text(runs: dict[str, Run], corpus: Path) -> None:
    run = runs["words"]
    assert run.path is not None
    surprise, sample, _ = Page(page_of(run)).verbatim
    assert surprise == "\n" + opening(TextConfig().open(corpus).valid).decode()
    assert sample == "\n" + shown_plainly((run.path / "samples.txt").read_text(encoding="utf-8"))


def shown_plainly(text: str) -> str:
    return Page(f"<p>{markup(text)}</p>").text


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    corpus = tmp_path / "<b>bold & bad.txt"
    corpus.write_text(HOSTILE * 40, encoding="utf-8")
    run = api.train("ngram", corpus, order=5, out=tmp_path / "<i>run")
    held_out = HOSTILE.encode() * 3
    content = content_of(run, "<i>run", held_out, HOSTILE, Path(HOSTILE))
    one = render_run_page(None, run, content, (), tmp_path)
    for page in (one, page_of(run)):
        parsed = Page(page)
        assert not {"script", "img", "b", "i"} & set(parsed.tags)
        assert not [name for name, _ in parsed.attributes if name.startswith("on") or name == "src"]
        assert "\x00" not in page
        assert "\x1b" not in page
        assert "<script>alert(1)</script>" in parsed.text
    assert Page(one).verbatim[0].count("</pre></mark><img src=x onerror=alert(2)>␀␛") == 3


def test_a_character_of_several_bytes_is_one_piece_that_costs_their_sum() -> None:
    model, data = Bag.fit(torch.tensor([256, 65, 66]), BagConfig(), 257), "aé…z".encode()
    found = annotate(model, Byte(), data)
    one = -float(model.logp_V[0]) / math.log(2)
    assert [(piece.text, piece.bytes) for piece in found] == [("a", 1), ("é", 2), ("…", 3), ("z", 1)]
    assert [piece.bits for piece in found] == pytest.approx([one, 2 * one, 3 * one, one])
    assert Page(annotated_text(found)).titles()[1] == f"{2 * one:.2f} bits, 2 bytes"


@pytest.mark.parametrize("data", [b"ab\xff\xfecd", b"\xc3", b"ab\xe2\x80", b"", b"\n\n"])
def test_bytes_that_are_no_text_lose_none_of_their_cost(data: bytes) -> None:
    model = small(order=3)
    found = annotate(model, Byte(), data)
    bits = -float(model.score(torch.tensor([list(data)], dtype=torch.int64)).sum()) / math.log(2)
    assert sum(piece.bytes for piece in found) == len(data)
    assert sum(piece.bits for piece in found) == pytest.approx(bits)
    Page(annotated_text(found))


def test_the_colour_deepens_with_the_price_of_a_byte() -> None:
    assert [level(bits) for bits in (0.0, 0.49, 0.5, 1.5, 2.5, 3.5, 5, 7, 8, 90)] == [
        "s0", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s7",
    ]  # fmt: skip
    assert level(math.inf) == "never"


def test_the_opening_ends_with_a_line_or_a_word_or_a_character() -> None:
    def cut(text: str | bytes, limit: int) -> bytes:
        return opening(text_in_memory(text), limit)

    assert cut("one two\nthree four", 11) == b"one two\n"
    assert cut("one two three", 11) == b"one two "
    assert cut("ééééé", 5) == "éé".encode()
    assert cut("short", 100) == b"short"
    assert cut(b"\x80" * 50, 10) != b""


def test_the_opening_stays_in_the_first_document() -> None:
    text = text_in_memory("first second").text
    split = Split(Text(text.file, "two", text.size, np.array([0, 6])), 0, text.size)
    assert opening(split) == b"first "


def test_the_command_on_the_page_makes_the_same_run(corpus: Path, tmp_path: Path) -> None:
    config = NGramConfig(order=4, estimator="add-k", k=0.25, prune=(0, 0, 1), sentences=True)
    text = TextConfig(tokenizer="word", vocab_size=12, min_count=3, split="space")
    recipe = TASK.made_recipe("ngram", {"config": config, "settings": text}, 3, "auto")
    first = train_run(TASK, recipe, [str(corpus)], tmp_path / "first")
    command = Page(page_of(first)).verbatim[-1].strip().splitlines()[0]
    assert command == train_command(TASK, recipe, [str(corpus)], tmp_path / "first")
    words = shlex.split(command)
    words[-1] = str(tmp_path / "second")
    assert main(words[1:]) == 0
    assert load(tmp_path / "second").identity == first.identity
    again, before = ((tmp_path / name / "samples.txt").read_text() for name in ("second", "first"))
    assert again == before


def test_the_command_of_a_mixture_makes_it_again(runs: dict[str, Run], corpus: Path, tmp_path: Path) -> None:
    words = shlex.split(Page(page_of(runs["mix"])).verbatim[-1].strip().splitlines()[0])
    words[-1] = str(tmp_path / "again")
    assert main(words[1:]) == 0
    again, before = read_record(tmp_path / "again"), runs["mix"].record
    assert again["result"]["bits"] == pytest.approx(before["result"]["bits"])


def test_the_command_of_a_mixture_names_its_validation_text(runs: dict[str, Run], corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text(sentences(20, seed=9), encoding="utf-8")
    parts = tuple(str(runs[name].path) for name in ("kn4", "bag"))
    settings = {"config": MixConfig(by_class=False, rounds=7),
                "settings": MixtureConfig(parts=parts, valid=(str(tmp_path / "other.txt"),))}  # fmt: skip
    recipe = TASK.made_recipe("mix", settings, 0, "auto")
    words = shlex.split(train_command(TASK, recipe, [str(corpus)], tmp_path / "mix"))
    assert words[words.index("--valid") + 1] == str(tmp_path / "other.txt")
    assert "--no-by-class" in words
    assert words[words.index("--rounds") + 1] == "7"
    assert "--tokenizer" not in words


def test_a_run_that_is_not_measured_has_no_page(corpus: Path, tmp_path: Path) -> None:
    api.train("bag", corpus, out=tmp_path / "bag", measure=False)
    assert not (tmp_path / "bag" / "report.html").exists()


# How it learnt


def test_no_curve_of_a_bigram_that_was_trained_twice_turns_back() -> None:
    first = [{"step": step, "loss": 5 - step / 100, "held_out": 4.0} for step in range(50, 300, 50)]
    again = [{"step": step, "loss": 5 - step / 100} for step in range(50, 200, 50)]
    figure = loss_curve([*first, *again], {})
    curves = [(group.findtext("title"), group.find("path")) for group in elements(figure, "g") if len(group) > 2]
    assert [label for label, _ in curves] == ["training", "validation", "second training, on all of it"]
    for _, path in curves:
        assert path is not None
        across = [float(place.split()[0]) for place in path.attrib["d"][1:].split("L")]
        assert across == sorted(set(across))
    assert "never trained on" not in figure
    assert "second training" not in loss_curve(again, {})


def test_the_training_section_has_facts_events_and_samples() -> None:
    rows: list[dict[str, Any]] = [{"step": step, "loss": 2.0, "bits_per_byte": 3.0} for step in range(1, 101)]
    rows += [{"step": 50, "event": "skipped", "why": "the loss has <exploded>"}]
    rows += [{"step": step, "held_out_bits_per_byte": 2.5, "sample": f"wrote at {step}"} for step in (50, 100)]
    training = {"steps": 100, "steps_per_epoch": 40, "streams": 8, "sequence_length": 4, "why": "the budget is spent"}
    record = {"training": training, "result": {"bits_per_byte": 2.75}, "train_tokens": 3200, "train_seconds": 2.0}
    text = Page(section := training_section(rows, record)).text
    facts = ("100, 2.5 epochs", "8 parallel streams of 4 tokens", "1,600 tokens per second", "the budget is spent")
    for part in (*facts, "the loss has <exploded>", "wrote at 50", "wrote at 100", "never trained on", "result"):
        assert part in text, part
    assert "<exploded>" not in section
    forged = [{"step": "<b>", "event": 7}, {"step": None, "sample": "x"}, {"event": "no step"}, {"sample": "no step"}]
    assert training_section([*rows, *forged], record) == section
    assert training_section([{"name": "validation", "bits_per_byte": 2.0}], {}) == ""
