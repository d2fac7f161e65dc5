"""The Write page: it writes what the library writes, and shows what it is drawn from."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import torch
from playwright.sync_api import expect
from starlette.testclient import TestClient

from octavo import generate
from octavo.core import seeded_generator
from octavo.decode import Beam, Greedy, Sample, beam_search, stream
from octavo.decode.annotated import prepare
from octavo.decode.greedy import without_begin
from octavo.inspection.inspection import tokens_of
from octavo.inspection.surprisal import read
from octavo.tasks.run import Run, load
from studio_place import client, make_runs, opened, served

PROMPT = "The cat"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "kn", "words", "gpt", "gru", "moods")


@pytest.fixture(scope="module")
def asked(runs: Path) -> Iterator[TestClient]:
    with client(runs) as found:
        yield found


def post_json(asked: TestClient, question: str, **value: Any) -> Any:
    answer = asked.post(f"/api/{question}", json=value)
    assert answer.status_code == 200, answer.text
    return answer.json()


def lines(asked: TestClient, **value: Any) -> list[Any]:
    answer = asked.post("/api/write", json=value)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def written(asked: TestClient, **value: Any) -> list[Any]:
    """The tokens at the end of the stream."""
    tokens: list[Any] = []
    for line in lines(asked, **value):
        assert "error" not in line
        tokens = line["all"] if "all" in line else [*tokens, *line["add"]]
    return tokens


# --- writing


@pytest.mark.parametrize("name", ["kn", "words", "gpt", "gru"])
@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
def test_what_is_written_is_what_decoding_gives_and_costs_what_reading_says(
    asked: TestClient, runs: Path, name: str, method: str
) -> None:
    run = load(runs / name)
    cuts = {"temperature": 0.8, "top_k": 12, "top_p": 0.95, "min_p": 0.001}
    tokens = written(asked, run=name, prompt=PROMPT, method=method, max_tokens=15, seed=3, width=3, **cuts)
    x_T = tokens_of(run, PROMPT)
    if method == "beam":
        expected = beam_search(run.model, [x_T], 15, Beam(3))[0][0].tokens.tolist()
    else:
        chosen = Greedy() if method == "greedy" else Sample(**cuts)  # type: ignore[arg-type]
        expected = [int(x_1) for x_1 in stream(run.model, [x_T], 15, chosen, seeded_generator(3))]
    assert [one["id"] for one in tokens] == expected
    bits_N = read(run.model, [*x_T, *expected]).bits_N[len(x_T) :]
    assert [one["bits"] for one in tokens] == pytest.approx(bits_N.tolist(), rel=1e-4)
    for one in tokens:
        p = [p for *_, p in one["alternatives"]]
        assert p == sorted(p, reverse=True)
        assert one["bits"] >= -math.log2(p[0]) - 1e-4


def test_the_same_seed_writes_the_same_and_another_does_not(asked: TestClient, runs: Path) -> None:
    first, again, other = (
        [one["id"] for one in written(asked, run="gpt", prompt=PROMPT, max_tokens=30, seed=seed)] for seed in (1, 1, 2)
    )
    assert first == again != other
    run = load(runs / "gpt")
    assert run.tokenizer.decode(first).decode("utf-8", "replace") == generate(run, PROMPT, max_tokens=30, seed=1)


def test_a_beam_tells_its_best_and_the_others_with_their_bits(asked: TestClient, runs: Path) -> None:
    run, last = load(runs / "kn"), lines(asked, run="kn", prompt=PROMPT, method="beam", max_tokens=12, width=3)[-1]
    best, *others = beam_search(run.model, [tokens_of(run, PROMPT)], 12, Beam(3), best=3)[0]
    assert sum(one["bits"] for one in last["all"]) == pytest.approx(-best.logp / math.log(2))
    assert [text for text, _ in last["others"]] == [
        run.tokenizer.decode(one.tokens.tolist()).decode() for one in others
    ]
    assert [cost for _, cost in last["others"]] == pytest.approx([-one.logp / math.log(2) for one in others])


@pytest.mark.parametrize(("path", "value", "status", "part"), [
    ("write", {"run": "none"}, 404, "there is no run 'none'"),
    ("write", {"run": "moods"}, 400, "does not predict the next token"),
    ("write", {"run": "kn", "max_tokens": 1001}, 422, "max_tokens"),
    ("write", {"run": "kn", "temperature": 0}, 422, "temperature"),
    ("write", {"run": "kn", "top_p": 0}, 422, "top_p"),
    ("write", {"run": "kn", "seed": -1}, 422, "seed"),
    ("write", {"run": "kn", "prompt": "a" * 8001}, 422, "prompt"),
    ("write", {"run": "kn", "method": "exact"}, 422, "method"),
    ("next", {"run": "kn", "path": [100_000]}, 400, "path must be ids of tokens that kn generates"),
    ("next", {"run": "kn", "path": [-1]}, 422, "path"),
    ("tree", {"run": "kn", "expanded": 61}, 422, "expanded"),
    ("branch", {"run": "kn", "path": [1] * 1001}, 422, "path"),
])  # fmt: skip
def test_mistakes_are_reported(asked: TestClient, path: str, value: dict[str, Any], status: int, part: str) -> None:
    answer = asked.post(f"/api/{path}", json=value)
    assert answer.status_code == status
    assert part in answer.json()["error"]


def test_an_error_on_the_way_is_the_last_line(asked: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked.app.state.studio.scheduler, "seconds", 0.05)  # type: ignore[attr-defined]
    found = lines(asked, run="gru", prompt=PROMPT, max_tokens=1000)
    assert "longer than 0.05 seconds" in found[-1]["error"]


def test_what_nobody_reads_is_not_written_on(runs: Path) -> None:
    with (
        served(runs) as address,
        httpx.stream(
            "POST", f"{address}/api/write", json={"run": "gpt", "max_tokens": 1000, "method": "beam", "width": 16}
        ) as answer,
    ):
        next(answer.iter_lines())
        answer.close()
        began = time.monotonic()
        again = httpx.post(f"{address}/api/next", json={"run": "gpt"}, timeout=20)
        assert again.status_code == 200
        assert time.monotonic() - began < 10


# --- what it is drawn from, and what may follow


@pytest.mark.parametrize("name", ["kn", "gpt"])
@pytest.mark.parametrize("cuts", [
    {}, {"temperature": 0.5}, {"temperature": 2.5, "top_k": 7}, {"top_p": 0.7}, {"min_p": 0.1},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
], ids=str)  # fmt: skip
def test_the_shown_distribution_is_the_one_that_is_drawn_from(
    asked: TestClient, runs: Path, name: str, cuts: dict[str, Any]
) -> None:
    run = load(runs / name)
    said = post_json(asked, "next", run=name, prompt=PROMPT, **cuts)
    logits_1V = prepare(run.model, tokens_of(run, PROMPT)).logits_BV
    drawn_V = Sample(**cuts).filtered(without_begin(logits_1V, run.model.begin)).softmax(-1)[0]
    own_V = logits_1V[0].double().softmax(-1)
    assert said["sampled"] == pytest.approx(drawn_V[torch.tensor(said["ids"])].tolist(), rel=1e-6)
    assert said["p"] == pytest.approx(own_V[torch.tensor(said["ids"])].tolist(), rel=1e-6)
    assert sum(said["sampled"]) + said["rest"][1] == pytest.approx(1)
    assert said["allowed"] == int((drawn_V > 0).sum())


def test_three_and_three_point_nothing_are_the_same_number(asked: TestClient) -> None:
    same = [
        post_json(asked, "next", run="kn", prompt=PROMPT, path=[path], top_k=top_k)
        for path, top_k in ((7, 3), (7.0, 3.0))
    ]
    assert same[0] == same[1]
    assert asked.post("/api/next", json={"run": "kn", "top_k": 3.5}).status_code == 422


def test_a_place_is_not_read_again_for_another_temperature(asked: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.studio.routes import write as writing

    post_json(asked, "next", run="gpt", prompt="Anew")
    monkeypatch.setattr(writing, "prepare", lambda *_: pytest.fail("it was read again"))
    post_json(asked, "next", run="gpt", prompt="Anew", temperature=0.3)


def test_a_node_opened_later_is_as_if_it_had_grown_there(asked: TestClient) -> None:
    whole = post_json(asked, "tree", run="gru", prompt=PROMPT, branches=3, expanded=9)
    inner = next(i for i in whole["parents"][1:] if i > 0)
    path, at = [], inner
    while at > 0:
        path, at = [whole["ids"][at], *path], whole["parents"][at]
    part = post_json(asked, "tree", run="gru", prompt=PROMPT, path=path, branches=3, expanded=1)
    below = [i for i, parent in enumerate(whole["parents"]) if parent == inner]
    assert part["ids"][1:] == [whole["ids"][i] for i in below]
    assert part["p"][1:] == pytest.approx([whole["p"][i] for i in below], rel=1e-4)
    summed = [whole["bits"][inner] + bits for bits in part["bits"][1:]]
    assert summed == pytest.approx([whole["bits"][i] for i in below], rel=1e-4)


def test_a_branch_is_the_prompt_and_the_tokens_as_text(asked: TestClient, runs: Path) -> None:
    run = load(runs / "kn")
    path = run.tokenizer.encode("é d".encode()).tolist()
    assert post_json(asked, "branch", run="kn", prompt="Ü", path=path) == {"text": "Üé d"}
    half = asked.post("/api/branch", json={"run": "kn", "prompt": "Ü", "path": path[:1]})
    if run.tokenizer.token_bytes(path[0]) != "é".encode():
        assert half.status_code == 400
        assert "within a character" in half.json()["error"]


# --- the page


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Any]:
    with served(runs) as address, opened(address) as page:
        page.address = address
        yield page


def go(page: Any, address: str) -> None:
    page.goto(f"{page.address}/#/runs")
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    page.goto(f"{page.address}/{address}")


def column(page: Any, name: str) -> Any:
    return page.get_by_role("region", name=name, exact=True)


def greedy_text(run: Run, prompt: str, count: int) -> str:
    return str(generate(run, prompt, max_tokens=count, method="greedy"))


@pytest.mark.browser
def test_three_ways_are_written_side_by_side_with_their_bits(page: Any, runs: Path) -> None:
    go(page, "#/write?run=kn&text=The+cat&tokens=20")
    page.get_by_role("button", name="Write", exact=True).click()
    for name in ("Greedy", "Sampling", "Beam search"):
        expect(column(page, name).locator(".walk span[role=option]")).to_have_count(20)
        expect(column(page, name).get_by_role("status")).to_have_text(
            re.compile(r"^20 tokens, [\d.]+ bits, [\d.]+ per token$")
        )
    run = load(runs / "kn")
    text = column(page, "Greedy").locator(".walk").evaluate("place => place.textContent")
    assert text.replace("⏎", "") == PROMPT + greedy_text(run, PROMPT, 20)
    best = beam_search(run.model, [tokens_of(run, PROMPT)], 20, Beam(4))[0][0]
    assert f" {-best.logp / math.log(2):.2f} bits" in column(page, "Beam search").get_by_role("status").inner_text()
    assert "go=1" in page.url
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()


@pytest.mark.browser
def test_a_shared_address_writes_the_same_and_chooses_the_same_place(page: Any, runs: Path) -> None:
    go(page, "#/write?run=gpt&text=The+cat&tokens=12&seed=5&go=1")
    expect(column(page, "Sampling").get_by_role("status")).to_have_text(re.compile("^12 tokens.*token$"))
    column(page, "Sampling").locator("span[role=option]").nth(3).click()
    expect(page).to_have_url(re.compile(r"at=sample\.3"))
    page.get_by_text("In place of").wait_for()
    text = column(page, "Sampling").locator(".walk").inner_text()
    kept = "#" + page.url.split("#")[1]
    go(page, kept)
    page.get_by_text("In place of").wait_for()
    expect(column(page, "Sampling").get_by_role("status")).to_have_text(re.compile("^12 tokens.*token$"))
    assert column(page, "Sampling").locator(".walk").inner_text() == text


@pytest.mark.browser
def test_another_token_in_its_place_becomes_the_prompt(page: Any, runs: Path) -> None:
    go(page, "#/write?run=kn&text=The+cat&tokens=10&go=1")
    greedy = column(page, "Greedy")
    expect(greedy.get_by_role("status")).to_have_text(re.compile("^10 tokens.*token$"))
    spelt = greedy_text(load(runs / "kn"), PROMPT, 10)
    greedy.locator("span[role=option]").nth(3).focus()
    page.keyboard.press("Enter")
    page.get_by_text("In place of").wait_for()
    another = page.locator("[data-after='3'] .next button").nth(1)
    now = PROMPT + spelt[:3] + another.inner_text().replace("␣", " ")
    with page.expect_response("**/api/branch"):
        another.click()
    expect(page.get_by_label("Prompt")).to_have_value(now)
    expect(greedy.get_by_role("status")).to_have_text(re.compile("^10 tokens.*token$"))
    expect(greedy.locator(".prompt")).to_have_text(now)


@pytest.mark.browser
def test_temperature_and_cut_offs_act_at_once(page: Any, runs: Path) -> None:
    go(page, "#/write?run=gpt&text=The+cat")
    said = page.get_by_role("status").filter(has_text="can be sampled")
    said.wait_for()
    page.get_by_label("Top k").fill("3")
    expect(said).to_contain_text("3 of")
    assert page.locator(".next tr.cut").count() > 3
    expect(page).to_have_url(re.compile("top_k=3"))
    page.get_by_label("Top k").fill("")
    page.get_by_label("Temperature").focus()
    page.keyboard.press("Home")
    expect(page).to_have_url(re.compile("temperature=0.05"))
    run = load(runs / "gpt")
    logits_1V = without_begin(prepare(run.model, tokens_of(run, PROMPT)).logits_BV, run.model.begin)
    most = float(Sample(0.05).filtered(logits_1V).softmax(-1).max())
    expect(page.locator(".next tbody tr").first.locator("td").last).to_have_text(
        f"{100 * most:.{0 if most > 0.0995 else 1}f} %"
    )


@pytest.mark.browser
def test_the_tree_is_walked_and_opened_by_keys(page: Any) -> None:
    go(page, "#/write?run=kn&text=The+cat")
    items = page.get_by_role("treeitem")
    items.first.wait_for()
    items.first.focus()
    page.keyboard.press("End")
    last = page.locator("[role=treeitem][tabindex='0']")
    expect(last).to_have_attribute("aria-expanded", "false")
    count = items.count()
    page.keyboard.press("ArrowRight")
    expect(items).to_have_count(count + 4)
    expect(last).to_have_attribute("aria-expanded", "true")
    expect(page).to_have_url(re.compile("tree="))
    go(page, "#" + page.url.split("#")[1])  # what is open is in the address
    expect(items).to_have_count(count + 4)
    items.first.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(last).to_have_attribute("aria-level", "1")
    page.keyboard.press("ArrowRight")
    expect(last).to_have_attribute("aria-level", "2")
    page.keyboard.press("ArrowLeft")
    expect(last).to_have_attribute("aria-level", "1")
    page.keyboard.press("ArrowLeft")
    expect(items).to_have_count(count)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Home")
    token = items.first.locator("code").first.inner_text()
    with page.expect_response("**/api/branch"):
        page.keyboard.press("Enter")
    expect(page.get_by_label("Prompt")).to_have_value(PROMPT + token.replace("␣", " "))


@pytest.mark.browser
def test_stop_stops_and_an_error_on_the_way_keeps_what_was_written(page: Any) -> None:
    go(page, "#/write?run=gru&text=The+cat&tokens=1000")
    page.get_by_role("button", name="Write", exact=True).click()
    column(page, "Greedy").locator("span[role=option]").nth(3).wait_for()
    page.get_by_role("button", name="Stop").click()
    expect(column(page, "Greedy").get_by_role("status")).to_contain_text("stopped")
    one = {"id": 1, "token": "x", "bytes": 1, "bits": 1.5, "rank": 2, "alternatives": []}
    body = json.dumps({"add": [one]}) + "\n" + json.dumps({"error": "that was too much"}) + "\n"
    page.route("**/api/write", lambda route: route.fulfill(status=200, body=body))
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text(["that was too much"] * 3)
    page.unroute("**/api/write")
    expect(column(page, "Beam search").get_by_role("status")).to_have_text("1 tokens, 1.50 bits, 1.50 per token")


@pytest.mark.browser
def test_a_phone_does_not_scroll_sideways(page: Any) -> None:
    go(page, "#/write?run=words&text=The+cat&tokens=30&go=1")
    expect(column(page, "Beam search").get_by_role("status")).to_have_text(re.compile("^30 tokens.*token$"))
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1100, "height": 900})
