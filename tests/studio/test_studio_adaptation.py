"""Models that learn while they read, in the studio: both readings, the switch for networks, and a mixture's experts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from starlette.testclient import TestClient

import octavo
from octavo.inspection.adaptation import read_adaptation
from octavo.inspection.inspection import tokens_of
from octavo.models.dynamic_evaluation import adapted
from octavo.tasks.run import load
from studio_place import client, make_runs, opened, served

TEXT = "The cat sang all day long. The cat sang all day long.\nA dög!"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "kn", "counting", "gru", "gpt", "weighing", "bag", "mixed")


@pytest.fixture(scope="module")
def asked(runs: Path) -> Iterator[TestClient]:
    with client(runs) as found:
        yield found


def post_json(asked: TestClient, path: str, **value: Any) -> Any:
    answer = asked.post(f"/api/{path}", json=value)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(("name", "adaptive", "fixed"), [
    ("counting", False, ["fixed: as trained"]), ("counting", True, ["fixed: as trained"]),
    ("gru", True, ["fixed: as trained"]), ("gpt", True, ["fixed: as trained"]),
    ("weighing", False, ["fixed: 4-gram", "fixed: gru"]),
])  # fmt: skip
def test_both_readings_are_those_of_the_library(
    asked: TestClient, runs: Path, name: str, adaptive: bool, fixed: list[str]
) -> None:
    shown, run = post_json(asked, "read/adaptation", run=name, text=TEXT, adaptive=adaptive), load(runs / name)
    found = read_adaptation(
        adapted(run.model), tokens_of(run, TEXT), lambda token: len(run.tokenizer.token_bytes(token))
    )
    assert [one["name"] for one in shown["readings"]] == ["learns while it reads", *fixed]
    assert [one["learns"] for one in shown["readings"]] == [True, *(False for _ in fixed)]
    for one, wanted in zip(shown["readings"], found.every, strict=True):
        assert one["first"] == pytest.approx(wanted.first_N.tolist(), abs=1e-4)
        assert one["second"] == pytest.approx(wanted.second_N.tolist(), abs=1e-4)
        assert one["curve"][-1] == one["bits_per_byte"][0]
    reading = post_json(asked, "read", run=name, text=TEXT, adaptive=adaptive)
    assert reading["adaptive"]
    assert reading["score"]["bits_per_byte"] == octavo.evaluate(run, TEXT, adaptive=True).bits_per_byte
    assert shown["readings"][0]["bits_per_byte"][0] == pytest.approx(reading["score"]["bits_per_byte"], rel=1e-5)
    assert sum(shown["bytes"]) == shown["curve_bytes"][-1] == len(TEXT.encode())


@pytest.mark.parametrize(("name", "can"), [
    ("gru", True), ("gpt", True), ("kn", False), ("counting", False), ("weighing", False), ("bag", False),
    ("mixed", False),
])  # fmt: skip
def test_only_networks_have_the_switch(asked: TestClient, name: str, can: bool) -> None:
    assert post_json(asked, "read", run=name, text="The")["can_adapt"] is can
    if can:  # and still have it when it is on
        assert post_json(asked, "read", run=name, text="The", adaptive=True)["can_adapt"]


@pytest.mark.parametrize("text", ["", "T"])
def test_short_texts_are_read_twice_too(asked: TestClient, text: str) -> None:
    for name in ("counting", "weighing", "gru"):
        found = post_json(asked, "read/adaptation", run=name, text=text, adaptive=True)
        assert [len(one["second"]) for one in found["readings"]] == [len(text)] * len(found["readings"])
        assert len(found["curve_bytes"]) == len(text)


def test_a_network_that_learns_is_compared_with_itself_as_it_was_trained(asked: TestClient) -> None:
    found = post_json(asked, "read/compare", run="gru", other="gru", text=TEXT * 3, adaptive=True)
    assert (found["first"]["adaptive"], found["second"]["adaptive"]) == (True, False)
    assert found["first"]["bits"][:64] == pytest.approx(found["second"]["bits"][:64], abs=1e-5)
    assert found["first"]["bits"][-1] != found["second"]["bits"][-1]  # two steps later


@pytest.mark.parametrize(("path", "value", "part"), [
    ("read", {"run": "kn", "adaptive": True}, "ngram was fitted; train it with --adaptive"),
    ("read", {"run": "mixed", "adaptive": True}, "a trained mixture does not learn while it reads"),
    ("read/adaptation", {"run": "gru"}, "learns nothing while it reads"),
])  # fmt: skip
def test_what_cannot_learn_is_refused(asked: TestClient, path: str, value: dict[str, Any], part: str) -> None:
    answer = asked.post(f"/api/{path}", json={"text": "The cat", **value})
    assert answer.status_code == 400
    assert part in answer.json()["error"]


def test_a_mixtures_table_says_how_its_parts_did(asked: TestClient) -> None:
    found = post_json(asked, "inspect/table", run="weighing", text=TEXT)
    names = [f"{k}-gram" for k in range(1, 5)]
    assert found["parts"] == [*names, "gru"]
    assert [row[0] for row in found["summary"]["rows"]] == [*names, "gru", "mixture"]
    assert sum(float(row[1].rstrip("%")) for row in found["summary"]["rows"][:-1]) == pytest.approx(100, abs=0.5)
    votes = post_json(asked, "inspect/table", run="mixed", text=TEXT)["summary"]["rows"]
    assert [row[0] for row in votes] == ["5-gram", "bag", "mixture"]
    assert post_json(asked, "inspect/table", run="kn", text=TEXT)["summary"] is None


# --- the pages


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Any]:
    with served(runs) as address, opened(address, reduced_motion="reduce") as page:
        page.address = address
        yield page


def go(page: Any, address: str) -> None:
    page.goto(f"{page.address}/#/runs")
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    page.goto(f"{page.address}/{address}")


@pytest.mark.browser
def test_the_switch_makes_a_network_learn_and_the_address_keeps_it(page: Any) -> None:
    go(page, "#/read?run=gru&text=The+cat+sat")
    switch = page.get_by_label("Learn while reading")
    expect(switch).to_be_visible()
    expect(page.get_by_role("heading", name="Learning while it reads")).to_have_count(0)
    switch.check()
    page.get_by_role("heading", name="The second reading").wait_for()
    expect(page).to_have_url(re.compile("adaptive=1"))
    assert "gru, adaptive" in page.locator(".totals").inner_text()
    expect(page.locator(".walk").nth(1)).to_have_text("The cat sat")
    page.get_by_label("Run", exact=True).select_option("kn")
    expect(switch).to_be_hidden()
    expect(page.locator(".walk")).to_have_count(1)
    assert page.get_by_role("alert").count() == 0


@pytest.mark.browser
@pytest.mark.parametrize("width", [1100, 390])
def test_a_token_shows_its_cost_at_both_readings(page: Any, runs: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    go(page, "#/read?run=weighing&text=The+cat+sat+on+the+mat.")
    page.get_by_role("heading", name="The second reading").wait_for()
    run = load(runs / "weighing")
    found = read_adaptation(run.model, tokens_of(run, "The cat sat on the mat."), lambda token: 1)
    bits = [f"{cost:.2f}" for one in found.every for cost in (one.first_N[5], one.second_N[5])]
    for place in (0, 1):
        page.locator(".walk").nth(place).locator("span").nth(5).click()
        expect(page.locator(".about").nth(place).locator(".twice tbody td")).to_have_text(bits)
    assert page.locator(".chart-key li").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1100, "height": 900})


@pytest.mark.browser
def test_an_error_of_the_second_reading_leaves_the_first(page: Any) -> None:
    page.route("**/api/read/adaptation", lambda route: route.fulfill(status=200, body="half an answ"))
    go(page, "#/read?run=counting&text=The+cat+sat")
    page.get_by_role("alert").wait_for()
    expect(page.locator(".walk span")).to_have_count(11)
    page.unroute("**/api/read/adaptation")


@pytest.mark.browser
def test_the_experts_of_a_mixture_have_a_view(page: Any) -> None:
    go(page, "#/inspect?run=weighing&text=The+cat+sat")
    page.get_by_role("heading", name="Over the whole text").wait_for()
    assert page.locator(".total").count() == 1
    page.locator(".tokens span").nth(4).click()
    expect(page.locator("h2").first).to_contain_text("gave it most")
