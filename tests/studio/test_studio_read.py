"""The Read page: what it shows is what the library says, by the API and in a browser."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from starlette.testclient import TestClient

import octavo
from octavo.inspection.attention_maps import attention_over
from octavo.inspection.inspection import tokens_of
from octavo.inspection.surprisal import surprises
from octavo.scoring.bits_per_byte import score_text
from octavo.tasks.run import Run, load
from octavo.text import text_in_memory
from octavo.text.token_display import BEGIN
from studio_place import client, make_runs, opened, served

TEXT = "The cat sang.\nA dög!"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "kn", "words", "gpt", "looking", "gru", "moods")


@pytest.fixture(scope="module")
def asked(runs: Path) -> Iterator[TestClient]:
    with client(runs) as found:
        yield found


def post_json(asked: TestClient, path: str, **value: Any) -> Any:
    answer = asked.post(f"/api/{path}", json=value)
    assert answer.status_code == 200, answer.text
    return answer.json()


def change(config: Path, **values: Any) -> None:
    config.write_text(json.dumps({**json.loads(config.read_text()), **values}))


# --- the API


@pytest.mark.parametrize("name", ["kn", "words", "gpt", "looking", "gru"])
def test_what_is_read_is_what_the_lens_says(asked: TestClient, runs: Path, name: str) -> None:
    run = load(runs / name)
    said = post_json(asked, "read", run=name, text=TEXT, candidates=3)
    every = surprises(run.model, run.tokenizer, TEXT.encode())
    assert said["tokens"] == [one.token for one in every]
    assert said["bits"] == pytest.approx([one.bits for one in every])
    assert said["ranks"] == [one.rank for one in every]
    assert said["contexts"] == (None if every[0].context is None else [one.context for one in every])
    for found, one in zip(said["candidates"], every, strict=True):
        assert [token for token, _ in found] == [token for token, _ in one.candidates]
        assert [p for _, p in found] == pytest.approx([p for _, p in one.candidates])
    assert sum(said["bytes"]) == len(TEXT.encode())
    whole = score_text(run.model, run.tokenizer, text_in_memory(TEXT), "")
    assert sum(said["bits"]) == pytest.approx(whole.bits, rel=1e-5)
    assert (said["has_attention"], said["comparable"]) == (name in ("gpt", "looking"), True)


@pytest.mark.parametrize("name", ["kn", "words", "gpt", "looking", "gru"])
def test_bits_per_byte_are_those_of_octavo_eval(asked: TestClient, runs: Path, name: str) -> None:
    score = octavo.evaluate(load(runs / name), TEXT * 40)
    said = post_json(asked, "read", run=name, text=TEXT * 40)["score"]
    for key in ("bits_per_byte", "bits", "perplexity", "tokens", "bytes"):
        assert said[key] == getattr(score, key), key


@pytest.mark.parametrize("name", ["gpt", "looking"])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_top_attention_is_the_mean_of_the_maps(asked: TestClient, runs: Path, name: str, layers: str) -> None:
    run = load(runs / name)
    said = post_json(asked, "read/attention", run=name, text=TEXT, layers=layers)
    x_N = tokens_of(run, TEXT)
    maps = attention_over(run.model, x_N).layers
    chosen = maps[-1:] if layers == "last" else maps
    assert len(said["positions"]) == len(x_N)
    for row, (places, shares) in enumerate(zip(said["positions"], said["weights"], strict=True)):
        for place, share in zip(places, shares, strict=True):
            mean = sum(float(a_HTT[:, row, place].mean()) for a_HTT in chosen) / len(chosen)
            assert share == pytest.approx(mean, abs=1e-5)
            assert place <= row
        assert shares == sorted(shares, reverse=True)


def test_two_tokenizers_are_compared_over_the_same_bytes(asked: TestClient, runs: Path) -> None:
    said = post_json(asked, "read/compare", run="kn", other="words", text=TEXT)
    assert said["first"] == post_json(asked, "read", run="kn", text=TEXT)
    assert said["second"] == post_json(asked, "read", run="words", text=TEXT)
    assert "".join(said["spans"]) == "".join(said["first"]["tokens"])
    assert sum(said["bytes"]) == len(TEXT.encode())
    for side in ("first", "second"):
        starts = [0, *said[f"{side}_ends"][:-1]]
        for start, end, paid, size in zip(
            starts, said[f"{side}_ends"], said[f"{side}_bits"], said["bytes"], strict=True
        ):
            assert paid == pytest.approx(math.fsum(said[side]["bits"][start:end]))
            assert sum(said[side]["bytes"][start:end]) == size
        assert said[f"{side}_ends"][-1] == len(said[side]["tokens"])


def test_runs_that_do_not_read_the_same_bytes_are_not_compared(asked: TestClient, runs: Path) -> None:
    record = (runs / "kn" / "config.json").read_text()
    try:
        change(runs / "kn" / "config.json", preprocess=["lower"])
        answer = asked.post("/api/read/compare", json={"run": "kn", "other": "words", "text": TEXT})
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("kn does not read the text unchanged")
        assert not post_json(asked, "read", run="kn", text=TEXT)["comparable"]
    finally:
        (runs / "kn" / "config.json").write_text(record)


def test_an_empty_text_has_no_tokens(asked: TestClient) -> None:
    for name in ("kn", "gpt"):
        assert post_json(asked, "read", run=name, text="")["tokens"] == []
    assert post_json(asked, "read/attention", run="gpt", text="") == {"positions": [], "weights": []}
    assert post_json(asked, "read/compare", run="kn", other="gpt", text="")["spans"] == []


def test_a_token_that_cannot_come_costs_null(asked: TestClient, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load(runs / "kn")
    from octavo.models import NGram

    plain = NGram.distribution
    monkeypatch.setattr(NGram, "distribution", lambda self, state: plain(self, state).index_fill(
        1, run.model.word_M.new_tensor(tokens_of(run, "T")).long(), 0.0))  # type: ignore[union-attr,operator]  # fmt: skip
    assert post_json(asked, "read", run="kn", text="Tea")["bits"][0] is None


@pytest.mark.parametrize(("path", "value", "status", "part"), [
    ("read", {"run": "none", "text": "a"}, 404, "there is no run 'none'"),
    ("read", {"run": "../kn", "text": "a"}, 404, "there is no run"),
    ("read", {"run": "moods", "text": "a"}, 400, "does not predict the next token"),
    ("read", {"run": "kn", "text": "a" * 20_001}, 422, "text"),
    ("read", {"run": "kn", "text": "a", "candidates": 0}, 422, "candidates"),
    ("read", {"run": "kn", "text": "a", "more": 1}, 422, "more"),
    ("read", {"run": "kn", "text": 3}, 422, "text"),
    ("read/attention", {"run": "kn", "text": "a"}, 400, "has no attention"),
    ("read/attention", {"run": "gpt", "text": "a", "layers": "first"}, 422, "layers"),
    ("read/compare", {"run": "kn", "text": "a"}, 422, "other"),
])  # fmt: skip
def test_mistakes_are_reported(asked: TestClient, path: str, value: dict[str, Any], status: int, part: str) -> None:
    answer = asked.post(f"/api/{path}", json=value)
    assert answer.status_code == status
    assert part in answer.json()["error"]


def test_half_a_surrogate_pair_is_refused(asked: TestClient) -> None:
    answer = asked.post(
        "/api/read", content=b'{"run": "kn", "text": "\\ud800"}', headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert "error" in answer.json()


# --- the page


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Any]:
    with served(runs) as address, opened(address, reduced_motion="reduce") as page:
        page.address = address
        yield page


def go(page: Any, address: str) -> None:
    page.goto(f"{page.address}/#/runs")
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    page.goto(f"{page.address}/{address}")


def spelt(page: Any, which: int = 0) -> str:
    """The text as its tokens show it."""
    return str(
        page.locator(".walk").nth(which).evaluate("place => [...place.children].map((e) => e.textContent).join('')")
    )


def cost(run: Run, text: str, at: int) -> str:
    return f"{surprises(run.model, run.tokenizer, text.encode())[at].bits:.2f} bits"


@pytest.mark.browser
def test_typing_reads_and_the_address_keeps_it(page: Any, runs: Path) -> None:
    go(page, "#/read?run=kn&text=A+cat")
    page.wait_for_selector(".walk span")
    page.get_by_label("Text", exact=True).fill("The cat!\nA dog")
    expect(page.locator(".walk span")).to_have_count(14)
    assert spelt(page) == "The cat!⏎\nA dog"
    run = load(runs / "kn")
    bits = sum(one.bits for one in surprises(run.model, run.tokenizer, b"The cat!\nA dog"))
    assert page.locator(".totals tbody td").all_inner_texts()[:3] == ["14", "14", f"{bits:.2f}"]
    kept = page.evaluate("location.hash")
    go(page, kept)
    expect(page.locator(".walk span")).to_have_count(14)
    assert spelt(page) == "The cat!⏎\nA dog"


@pytest.mark.browser
def test_pointing_and_the_arrow_keys_show_the_most_probable_tokens(page: Any, runs: Path) -> None:
    go(page, "#/read?run=kn&text=The+cat+sat")
    run, card = load(runs / "kn"), page.locator(".about")
    page.locator(".walk span").nth(4).hover()
    card.get_by_text(cost(run, "The cat sat", 4)).wait_for()
    assert "longest known n-gram" in card.inner_text()
    page.locator(".walk span").nth(2).click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    card.get_by_text(cost(run, "The cat sat", 3)).wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "space"
    page.keyboard.press("End")
    card.get_by_text(cost(run, "The cat sat", 10)).wait_for()
    expected = surprises(run.model, run.tokenizer, b"The cat sat")[10].candidates[0][0]
    assert card.locator("tbody th").first.inner_text().startswith(expected)


@pytest.mark.browser
def test_the_attention_of_a_transformer_follows_the_reading(page: Any, runs: Path) -> None:
    go(page, "#/read?run=gpt&text=The+cat+sat")
    page.locator(".walk span").nth(9).click()
    page.locator(".about caption:text-is('attends to')").wait_for()
    assert page.locator(".about table").nth(1).locator("tr").count() == 5
    assert page.locator(".walk span[style*=box-shadow]").count() >= 4
    page.get_by_label("Attention of").select_option("all")
    expect(page).to_have_url(re.compile("layers=all"))
    go(page, "#/read?run=gru&text=The+cat+sat")
    page.locator(".walk span").nth(9).click()
    page.locator(".about caption:text-is('most probable')").wait_for()
    expect(page.get_by_label("Attention of")).to_be_hidden()


@pytest.mark.browser
@pytest.mark.parametrize("other", ["", "&other=words"])
def test_on_a_phone_the_card_of_a_token_covers_nothing(page: Any, other: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    go(page, f"#/read?run=kn{other}&text={TEXT.replace(' ', '+') * 20}")
    page.locator(".walk span").nth(60).click()
    page.locator(".about table").first.wait_for()
    page.locator(".about").evaluate("card => card.scrollIntoView({ block: 'end' })")
    text, card = (page.locator(f".beside > {one}").bounding_box() for one in (":first-child", ".about"))
    assert text["y"] >= 0
    assert text["y"] + text["height"] <= card["y"]
    assert card["y"] + card["height"] <= 845  # both are on one screen
    page.set_viewport_size({"width": 1100, "height": 900})


@pytest.mark.browser
def test_two_models_stand_side_by_side(page: Any, runs: Path) -> None:
    go(page, "#/read?run=kn&text=The+cat+sang.")
    page.wait_for_selector(".walk span")
    page.get_by_label("Compared with").select_option("words")
    expect(page.locator(".walk")).to_have_text(["The cat sang."] * 3)
    assert "other=words" in page.evaluate("location.hash")
    assert page.locator(".totals tbody tr").count() == 3
    page.locator(".walk").first.locator("span").nth(1).click()
    said = page.locator(".about").inner_text()
    assert "kn" in said
    assert "bits less" in said or "the same" in said
    marked = [page.locator(".walk").nth(n).locator(".same").count() for n in range(3)]
    assert marked[0] == 1
    assert min(marked) >= 1
    assert page.locator(".walk").first.locator("span[class]:not([class=''])").count() > 0


@pytest.mark.browser
def test_an_example_is_read_and_nothing_is_asked_of_an_empty_text(page: Any) -> None:
    go(page, "#/read?run=kn")
    page.wait_for_selector(".walk span")
    page.get_by_label("Example").select_option("The same sentence twice")
    expect(page.locator(".walk")).to_contain_text("My neighbour")
    page.get_by_label("Text", exact=True).fill("")
    page.get_by_text("Type or paste a text above").wait_for()
    assert page.locator(".error").count() == 0


@pytest.mark.browser
def test_an_error_is_shown_in_place_of_the_reading_and_goes_with_the_next(page: Any) -> None:
    go(page, "#/read?run=kn&text=The+cat")
    page.wait_for_selector(".walk span")
    page.route("**/api/read", lambda route: route.fulfill(status=200, body="half an answ"))
    page.get_by_label("Text", exact=True).fill("A dog")
    page.get_by_role("alert").wait_for()
    page.unroute("**/api/read")
    page.get_by_label("Text", exact=True).fill("A dog!")
    expect(page.locator(".walk span")).to_have_count(6)
    assert page.get_by_role("alert").count() == 0


@pytest.mark.browser
def test_a_long_text_fills_the_page_and_a_phone_does_not_scroll_sideways(page: Any) -> None:
    long = "The cat sat on the mat. " * 250
    go(page, "#/read?run=kn&text=A")
    page.wait_for_selector(".walk span")
    page.get_by_label("Text", exact=True).fill(long)
    expect(page.locator(".walk span")).to_have_count(len(long))
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1100, "height": 900})
    assert BEGIN not in spelt(page)
