"""The page that tags words, and what it asks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from octavo.studio.routes.tag import MAX_TEXT_CHARACTERS
from octavo.tasks.tagger import Tagger
from studio_place import client, go, make_runs, opened, served

TEXT = "the dog sees a film\n\nan unheard cat likes\n"
WORDS = [line.split() for line in TEXT.splitlines() if line]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_runs(tmp_path_factory.mktemp("runs"), "tags", "single", "kn")
    made, low = Tagger.load(root / "tags"), -30.0
    model: Any = made.model
    with torch.no_grad():  # p(0 0) = 0.4, p(1 1) = p(1 2) = 0.3, whatever the two words
        model.score_CE.zero_()
        model.bias_C.zero_()
        model.end_C.zero_()
        model.start_C.copy_(torch.tensor([math.log(0.4), math.log(0.6), low]))
        half = math.log(0.5)
        model.transition_CC.copy_(torch.tensor([[0, low, low], [low, half, half], [low, low, low]]))
    made.save(root / "chain")
    return root


@pytest.fixture(scope="module")
def asks(runs: Path) -> TestClient:
    return client(runs)


@pytest.mark.parametrize("name", ["tags", "single"])
def test_tags_and_probabilities_are_the_taggers_own(asks: TestClient, runs: Path, name: str) -> None:
    reply, tagger = asks.post("/api/tag", json={"run": name, "text": TEXT}).json(), Tagger.load(runs / name)
    assert reply["tags"] == tagger.tags
    assert reply["crf"] == (name == "tags")
    for found, one in zip(reply["sentences"], tagger.tag(WORDS), strict=True):
        assert [word["word"] for word in found["words"]] == list(one.words)
        assert [word["tag"] for word in found["words"]] == one.tags
        for word, p_C in zip(found["words"], one.p_TC, strict=True):
            assert word["likely"] == tagger.tags[int(p_C.argmax())] == word["alternatives"][0][0]
            assert word["p"] == pytest.approx(float(p_C[tagger.tags.index(word["tag"])]))
            assert sum(p for _, p in word["alternatives"]) == pytest.approx(1, abs=1e-5)
            assert word["known"] == tagger.reader.knows(word["word"])


@pytest.mark.parametrize("name", ["tags", "single"])
def test_the_probabilities_of_all_sequences_sum_to_one_and_none_is_above_the_best(runs: Path, name: str) -> None:
    tagger, words = Tagger.load(runs / name), ["the", "strange", "dog"]
    every = list(itertools.product(tagger.tags, repeat=len(words)))
    p = [math.exp(logp) for logp in tagger.sequence_log_probs([words] * len(every), every)]
    assert math.fsum(p) == pytest.approx(1, abs=1e-5)
    [best] = tagger.tag([words])
    assert p[every.index(tuple(best.tags))] == max(p)
    for c, tag in enumerate(tagger.tags):  # the marginal of the second word
        share = math.fsum(one for one, tags in zip(p, every, strict=True) if tags[1] == tag)
        assert share == pytest.approx(float(best.p_TC[1, c]), abs=1e-5)


def test_sentences_of_any_length_have_the_probability_that_they_have_alone(runs: Path) -> None:
    tagger = Tagger.load(runs / "tags")
    tags = [one.tags for one in tagger.tag([*WORDS, []])]
    together = tagger.sequence_log_probs([*WORDS, []], tags)
    alone = [tagger.sequence_log_probs([words], [one])[0] for words, one in zip([*WORDS, []], tags, strict=True)]
    assert together == pytest.approx(alone, abs=1e-5)
    assert together[-1] == 0


def test_the_best_sequence_may_have_another_tag_than_is_most_likely_for_a_word(asks: TestClient) -> None:
    [one] = asks.post("/api/tag", json={"run": "chain", "text": "any words"}).json()["sentences"]
    tags = ["DET", "NOUN", "VERB"]
    assert [word["tag"] for word in one["words"]] == [tags[0], tags[0]]
    assert one["words"][0]["likely"] == tags[1]
    assert one["words"][0]["p"] == pytest.approx(0.4, abs=1e-5)
    assert one["words"][0]["alternatives"][0] == [tags[1], pytest.approx(0.6, abs=1e-5)]
    assert one["words"][1]["likely"] == tags[0]
    assert one["p_best"] == pytest.approx(0.4, abs=1e-5)
    assert one["p_likely"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(("body", "status"), [
    ({"run": "tags", "text": ""}, 200), ({"run": "tags", "text": " \n "}, 200),
    ({"run": "kn", "text": "a"}, 400), ({"run": "none", "text": "a"}, 404), ({"run": "../tags", "text": "a"}, 404),
    ({"run": "tags", "text": "a" * (MAX_TEXT_CHARACTERS + 1)}, 422), ({"run": "tags"}, 422),
])  # fmt: skip
def test_what_cannot_be_tagged_is_refused_and_nothing_gives_nothing(
    asks: TestClient, body: dict[str, Any], status: int
) -> None:
    reply = asks.post("/api/tag", json=body)
    assert reply.status_code == status
    if status == 200:
        assert reply.json()["sentences"] == []


def test_the_longest_text_is_tagged(asks: TestClient) -> None:
    text = ("a " * (MAX_TEXT_CHARACTERS // 4)).strip() + "\n" + "b\n" * (MAX_TEXT_CHARACTERS // 4)
    reply = asks.post("/api/tag", json={"run": "tags", "text": text[:MAX_TEXT_CHARACTERS]})
    assert reply.status_code == 200
    assert len(reply.json()["sentences"]) == 1 + MAX_TEXT_CHARACTERS // 4


def test_a_tagger_is_listed_with_its_page(asks: TestClient) -> None:
    rows = {row["run"]: row for row in asks.get("/api/runs").json()}
    assert rows["tags"]["pages"] == ["tag"]


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Any]:
    with served(runs) as address, opened(address) as page:
        page.address = address
        yield page


@pytest.mark.browser
def test_words_carry_their_tags_and_a_chosen_one_its_alternatives(page: Any, runs: Path) -> None:
    go(page, "tag?run=tags")
    page.get_by_label("Text", exact=False).last.fill(TEXT)
    page.wait_for_selector(".tagged [data-n]")
    tagged = Tagger.load(runs / "tags").tag(WORDS)
    for row, one in enumerate(tagged):
        shown = page.locator(".tagged").nth(row)
        assert shown.locator("small").all_inner_texts() == one.tags
        assert shown.locator("span > span").all_inner_texts() == list(one.words)
    page.locator(".tagged").nth(1).locator("[data-n='2']").click()
    page.wait_for_selector(f"text=“cat”: {tagged[1].tags[2]}")
    assert page.locator(".tagged [aria-selected=true]").count() == 1
    assert "line=1" in page.url
    assert "word=2" in page.url
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("text=“unheard”")
    page.wait_for_selector("text=Training has not seen this word")
    page.wait_for_selector("text=The best sequence (Viterbi)")


@pytest.mark.browser
def test_the_address_gives_the_same_view_again_and_markup_is_text(page: Any) -> None:
    go(page, "tag?run=single&text=%3Cb%3E+dog&word=1")
    page.wait_for_selector("text=“dog”")
    assert page.locator(".tagged span > span").first.inner_text() == "<b>"
    page.wait_for_selector("text=each word is tagged by itself")
    go(page, "tag?run=single&text=dog&word=99&line=-3")
    page.wait_for_selector("text=“dog”")
    go(page, "tag?run=single")
    page.wait_for_selector("text=Type a sentence")


@pytest.mark.browser
def test_where_the_two_ways_differ_is_marked_and_listed(page: Any) -> None:
    go(page, "tag?run=chain&text=any+words")
    page.wait_for_selector("text=They differ in 1 of 2 words")
    assert page.locator(".tagged .differs").count() == 1
    assert page.locator("tbody td").all_inner_texts() == ["any", "DET", "40 %", "NOUN", "60 %"]


@pytest.mark.browser
def test_it_fits_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    go(page, f"tag?run=tags&text={'the+dog+sees+a+film+' * 8}{'x' * 60}")
    page.wait_for_selector(".tagged [data-n]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.set_viewport_size({"width": 1200, "height": 900})
