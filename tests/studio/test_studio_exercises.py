"""The page of exercises, what it asks, and the process that computes for it."""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from starlette.testclient import TestClient

from octavo.errors import UserError
from octavo.exercises.framework.answers import Function
from octavo.exercises.framework.booklet import article
from octavo.exercises.framework.checking import CheckProcess
from octavo.exercises.framework.exercise import Exercise
from octavo.exercises.framework.grading import grade_text
from octavo.exercises.framework.limits import Limits
from octavo.exercises.framework.playground import PLAYGROUND
from octavo.exercises.framework.registry import exercises_by_topic, select_exercises
from octavo.studio.routes.exercises import html_tree
from octavo.studio.server.app import WEB
from studio_place import client, go, opened, served

ONE, CLAIM = "softmax-range", "first-zero"
FIGURE = "vanishing-exploding"


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return client(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def every() -> list[Exercise]:
    return select_exercises(())


def test_every_exercise_is_listed_by_topic(asks: TestClient) -> None:
    reply = asks.get("/api/exercises").json()
    assert [(one["topic"], one["id"], one["claims"]) for one in reply] == [
        (topic, one.id, len(one.parts)) for topic, some in exercises_by_topic().items() for one in some
    ]
    assert {one["id"]: one["play"] for one in reply if one["play"]} == {
        play.exercise_id: name for name, play in PLAYGROUND.items()
    }


def test_an_exercise_is_the_booklets_without_its_figure(asks: TestClient) -> None:
    reply = asks.get(f"/api/exercises/{ONE}").json()
    [one] = select_exercises([ONE])
    assert reply["body"] == html_tree(article(one, None, ""))
    assert [part["id"] for part in reply["parts"]] == [part.id for part in one.parts]


def test_lists_hold_everything_that_the_html_holds(every: list[Exercise]) -> None:
    def text_of(node: Any) -> str:
        return node if isinstance(node, str) else "".join(map(text_of, node[2:]))

    for one in every:
        html = article(one, None, "")
        whole = "".join(ElementTree.fromstring(f"<all>{html}</all>").itertext())
        assert "".join(map(text_of, html_tree(html))).split() == whole.split()
    assert html_tree('<p class="a">1 &lt; <b>2</b>, </p>') == [["p", {"class": "a"}, "1 < ", ["b", {}, "2"], ", "]]


def test_the_page_knows_every_tag_and_attribute_of_the_booklet(every: list[Exercise]) -> None:
    script = (WEB / "parts" / "html_tree.js").read_text(encoding="utf-8")
    known = [set("".join(re.findall(r'"([^"]*)"', piece)).split()) for piece in re.findall(
        r"new Set\(\((.*?)\)\.split", script, re.DOTALL)]  # fmt: skip
    found = [one for one in every if one.figure and one.id in (FIGURE, ONE, "score-square", "sparse-patterns-grid")]
    pieces = [article(one, None, "") for one in every] + [one.figure() for one in found if one.figure]
    nodes = [node for piece in pieces for node in ElementTree.fromstring(f"<all>{piece}</all>").iter()]
    assert {node.tag for node in nodes} - {"all"} <= known[0]
    assert {name for node in nodes for name in node.attrib} - {"style", "id"} <= known[1]


def test_a_claims_evidence_is_computed(asks: TestClient) -> None:
    reply = asks.post(f"/api/exercises/{ONE}/check", json={"part": CLAIM}).json()
    evidence = select_exercises([ONE])[0].part(CLAIM).check()
    assert reply["holds"]
    assert (reply["found"], reply["tolerance"], reply["expected"]) == (
        evidence.found,
        evidence.tolerance,
        evidence.expected,
    )


def test_a_figure_is_computed_apart(asks: TestClient) -> None:
    [figure] = [node for node in asks.get(f"/api/exercises/{FIGURE}/figure").json()["figure"] if node != "\n"]
    assert figure[0] == "figure"
    [one] = select_exercises([FIGURE])
    assert one.figure is not None
    assert [figure] == html_tree(one.figure())


def test_a_check_that_nobody_wants_is_ended_and_the_next_is_done() -> None:
    apart = CheckProcess()
    asked = threading.Event()

    def leave() -> None:
        if apart.process is not None:  # it has begun
            asked.set()
            raise UserError("gone")

    with pytest.raises(UserError, match="gone"):
        apart.check("pretraining-or-not", select_exercises(["pretraining-or-not"])[0].parts[0].id, leave)
    assert asked.is_set()
    assert (apart.process, apart.is_running()) == (None, False)
    assert apart.check(ONE, CLAIM, lambda: None)["holds"]
    first = apart.process
    assert first is not None
    assert apart.check(ONE, CLAIM, lambda: None)["holds"]
    assert apart.process is first  # starting takes longer than checking, so it stays
    apart.end()
    assert first.poll() is not None


def test_a_failing_check_is_reported_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.exercises.framework import checking

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(type(select_exercises([ONE])[0].parts[0]), "check", fails)
    reply = checking.answer_request({"do": "check", "exercise": ONE, "part": CLAIM})
    assert (reply["holds"], reply["problem"]) == (False, f"{CLAIM}: ZeroDivisionError: by hand")
    assert checking.check_exercise(select_exercises([ONE])[0]).problem


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/exercises/nothing", None, 404),
        ("/api/exercises/Positions", None, 404),  # a topic is no exercise
        ("/api/exercises/..%5Cx", None, 422),
        ("/api/exercises/nothing/figure", None, 404),
        ("/api/template?name=nothing", None, 404),
        (f"/api/exercises/{ONE}/check", {"part": "nothing"}, 400),
        ("/api/exercises/nothing/check", {"part": CLAIM}, 404),
        (f"/api/exercises/{ONE}/check", {"part": CLAIM, "folder": "/tmp"}, 422),
        ("/api/playground/nothing", {"values": {}}, 404),
        ("/api/playground/greedy", {"values": {"table": [[1]]}}, 400),
        ("/api/playground/greedy", {"values": {"table": [[1, True], [0, 1]]}}, 422),
        ("/api/playground/saturation", {"values": {"scale": -1}}, 400),
        ("/api/playground/saturation", {"values": {"count": 2.5}}, 400),
        ("/api/playground/saturation", {"values": {"size": 1}}, 400),
        ("/api/playground/saturation", {"values": {str(n): 1 for n in range(21)}}, 422),
        ("/api/grade", {"answers": "x" * (1 << 17) + "x"}, 422),
    ],
)
def test_what_is_asked_is_checked(asks: TestClient, path: str, body: Any, status: int) -> None:
    answer = asks.get(path) if body is None else asks.post(path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize("name", PLAYGROUND)
def test_what_is_turned_is_what_the_playground_computes(asks: TestClient, name: str) -> None:
    reply = {one["name"]: one for one in asks.get("/api/playground").json()}[name]
    values = {one["name"]: one["value"] for one in reply["parameters"]}
    assert reply["title"] == PLAYGROUND[name].title
    seen, wanted = asks.post(f"/api/playground/{name}", json={"values": values}).json(), PLAYGROUND[name].function()
    assert seen["summary"] == wanted["summary"]
    assert [[tuple(point) for point in one["points"]] for one in seen["series"]] == [
        [tuple(point) for point in one["points"]] for one in wanted["series"]
    ]


# ---------------------------------------------------------------------- grading


def grade(asks: TestClient, answers: str) -> dict[tuple[str, str], dict[str, Any]]:
    reply = asks.post("/api/grade", json={"answers": answers}).json()
    return {(row["exercise"], row["part"]): row for row in reply["rows"]}


def test_answers_are_right_half_right_or_shown_where_they_go_wrong(asks: TestClient) -> None:
    rows = grade(asks, f"[{ONE}]\nsums-to-one = true\npositive = false\nfirst-zero = 700\n"
                       '[score-square]\nmean = "D^2"\n[nonsense]\na = 1\n')  # fmt: skip
    assert (rows[ONE, "sums-to-one"]["outcome"], rows[ONE, "sums-to-one"]["points"]) == ("right", 1)
    assert (rows[ONE, "positive"]["outcome"], rows[ONE, "positive"]["points"]) == ("only if", 0.5)
    assert rows[ONE, "positive"]["answer"] == "false"
    assert rows[ONE, "first-zero"]["outcome"] == "wrong"
    assert rows[ONE, "never-one"]["outcome"] == "missing"
    assert re.search(r"for D = .* it gives .*, and .* is right", rows["score-square", "mean"]["why"])
    assert "no such exercise" in rows["nonsense", ""]["why"]


def test_the_template_is_empty_answers_and_fits_into_what_may_be_sent(asks: TestClient, every: list[Exercise]) -> None:
    text = asks.get("/api/template").json()["text"]
    assert list(tomllib.loads(text)) == [one.id for one in every]
    reply = asks.post("/api/grade", json={"answers": text}).json()
    assert (reply["points"], {row["outcome"] for row in reply["rows"]}) == (0, {"missing"})
    assert list(tomllib.loads(asks.get("/api/template", params={"name": ONE}).json()["text"])) == [ONE]


def test_a_python_file_is_neither_run_nor_graded(asks: TestClient, every: list[Exercise], tmp_path: Path) -> None:
    one, part = next((one, part) for one in every for part in one.parts if isinstance(part.answer, Function))
    (tmp_path / "answers.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for name in ("answers.py", str(tmp_path / "answers.py")):
        row = grade(asks, f"[{one.id}]\n{part.id} = {name!r}\n")[one.id, part.id]
        assert (row["outcome"], row["of"]) == ("not run", 0)
        assert "octavo exercises grade" in row["why"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [("[a", "it is not valid TOML"), ("a = " + "[" * 100 + "]" * 100, "nested"), ("a = 1\na = 2", "not valid TOML")],
)
def test_what_is_no_file_of_answers_is_refused(asks: TestClient, text: str, why: str) -> None:
    reply = asks.post("/api/grade", json={"answers": text}).json()
    assert why in reply["problem"]
    assert reply["rows"] == []


def test_a_hostile_formula_costs_no_more_than_its_limit(every: list[Exercise]) -> None:
    text = '[score-square]\nmean = "9^9^9^9^9^9"\n'
    [row, *_] = grade_text(text, every, Limits(2.0)).rows
    assert row.outcome in ("wrong", "refused")


def test_grading_ends_where_nobody_waits_for_it(every: list[Exercise]) -> None:
    left = iter([None, None])

    def wanted() -> None:
        if next(left, "gone") == "gone":
            raise UserError("gone")

    with pytest.raises(UserError, match="gone"):
        grade_text(f"[{ONE}]\nsums-to-one = true\n", every, raise_if_cancelled=wanted)


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with served(tmp_path_factory.mktemp("runs")) as address, opened(address) as page:
        page.address = address
        yield page


@pytest.mark.browser
def test_an_answer_unfolds_with_its_figure_and_its_claims_are_checked(page: Any) -> None:
    go(page, f"exercises?id={FIGURE}")
    page.wait_for_selector("article math")
    assert page.locator(".topics a[aria-current]").inner_text() == select_exercises([FIGURE])[0].title
    page.get_by_text("Answer", exact=True).last.click()
    page.wait_for_selector(".booklet figure svg text")
    page.get_by_role("button", name=re.compile("Check its")).click()
    count = len(select_exercises([FIGURE])[0].parts)
    page.wait_for_selector(f"text={count} of {count} claims hold.")
    assert page.locator(".stack tbody tr").count() == count
    page.locator(".topics summary", has_text="Attention and softmax").click()
    page.get_by_role("link", name="Is a softmax a distribution?").click()
    page.wait_for_selector("article h3 >> text=Is a softmax a distribution?")
    assert page.url.endswith(f"#/exercises?id={ONE}")


@pytest.mark.browser
def test_a_check_can_be_stopped(page: Any) -> None:
    go(page, "exercises?id=pretraining-or-not")
    page.get_by_role("button", name=re.compile("Check its")).click()
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector("text=Stopped.")
    assert page.get_by_role("button", name="Stop").count() == 0


@pytest.mark.browser
def test_the_summary_follows_the_slider_and_the_address(page: Any) -> None:
    go(page, "exercises?view=play&name=gradient-growth&singular=1.2&steps=20")
    wanted = PLAYGROUND["gradient-growth"].function(singular=1.2, steps=20)["summary"]
    page.wait_for_selector(f"text={wanted}")
    slider = page.get_by_label("singular value", exact=True)
    slider.focus()
    slider.press("ArrowRight")
    page.wait_for_selector(f"text={PLAYGROUND['gradient-growth'].function(singular=1.21, steps=20)['summary']}")
    page.wait_for_function("() => location.hash.includes('singular=1.21')")
    page.get_by_label("steps, as a number").fill("300")
    page.get_by_label("steps, as a number").press("Enter")
    page.wait_for_selector(f"text={PLAYGROUND['gradient-growth'].function(singular=1.21, steps=300)['summary']}")


@pytest.mark.browser
def test_a_table_is_edited_and_made_larger(page: Any) -> None:
    go(page, "exercises?view=play&name=greedy")
    page.wait_for_selector("text=greedy misses it.")
    page.get_by_label("first 0, then 0").fill("9")
    page.wait_for_selector("text=greedy finds it.")
    page.get_by_role("button", name="Larger").click()
    table = [[9, 2, 1], [0, 4, 1], [1, 1, 1]]
    page.wait_for_selector(f"text={PLAYGROUND['greedy'].function(table=table)['summary']}")
    page.wait_for_function("() => decodeURIComponent(location.hash).includes('[[9,2,1],[0,4,1],[1,1,1]]')")


@pytest.mark.browser
def test_a_pasted_file_is_graded(page: Any) -> None:
    go(page, "exercises?view=grade")
    page.get_by_label("Exercise", exact=True).select_option(ONE)
    page.get_by_role("button", name="Put them below").click()
    page.wait_for_function(f"() => document.querySelector('textarea').value.includes('[{ONE}]')")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download them").click()
    assert saved.value.suggested_filename == "answers.toml"
    assert f"[{ONE}]" in Path(saved.value.path()).read_text(encoding="utf-8")
    page.get_by_label("Answers (TOML)").fill(f"[{ONE}]\nsums-to-one = true\npositive = '<img src=x>'\n")
    page.get_by_role("button", name="Grade", exact=True).click()
    page.wait_for_selector("text=1 of 6 points")
    assert "<img src=x>" in page.inner_text(".stack")


@pytest.mark.browser
def test_a_phone_shows_all_of_it_without_scrolling_sideways(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for view, there in (("exercises", "article"), ("exercises?view=play&name=pattern-cost", "svg.chart"),
                        ("exercises?view=grade", "textarea")):  # fmt: skip
        go(page, view)
        page.wait_for_selector(there)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
