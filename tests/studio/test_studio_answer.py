"""The page that answers questions, and what it asks."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from octavo.cli import main
from octavo.studio.routes.answer import FACTS_FOLDER
from octavo.tasks.api import load
from octavo.tasks.facts_file import open_file_of_facts
from octavo.tasks.facts_run import FactsRun, answering_run
from octavo.text.question_tokens import mark_of, prompt_of
from studio_place import client, make_runs, opened, served

ASKED = "Where was Ada Ash born?"
SURE = ("--pretrain-passes 20 --pretrain-batch 12 --passes 120 --batch 8 --width 32 --layers 1 --heads 2 --context 64 "
        "--rate 0.01 --device cpu")  # learns by heart what it is asked below  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_runs(tmp_path_factory.mktemp("runs"), "kn", "moods")
    people = root.parent / f"{root.name}-texts" / "people"
    assert main(["train", "facts", str(people), *SURE.split(), "--out", str(root / "facts")]) == 0
    return root


@pytest.fixture(scope="module")
def oracle(runs: Path) -> FactsRun:
    return answering_run(load(runs / "facts"))


@pytest.fixture
def own(runs: Path, tmp_path: Path) -> Path:
    """A folder of runs to which something can be added."""
    shutil.copytree(runs / "facts", tmp_path / "runs" / "facts")
    return tmp_path / "runs"


def ask(asks: TestClient, **more: Any) -> Any:
    return asks.post("/api/answer", json={"run": "facts", "question": ASKED, **more})


def test_only_runs_that_answer_questions_are_listed(runs: Path) -> None:
    asks = client(runs)
    assert [row["run"] for row in asks.get("/api/runs").json() if "answer" in row["pages"]] == ["facts"]
    reply = asks.get("/api/oracle", params={"run": "facts"}).json()
    assert (reply["run"], reply["before"], reply["after"]) == ("facts", "Where was ", " born?")


def test_scores_are_those_of_the_record(runs: Path, oracle: FactsRun) -> None:
    reply = client(runs).get("/api/oracle", params={"run": "facts"}).json()["measured"]
    result = oracle.record["result"]
    assert reply["curve"] == result["curve"]
    assert {name: one["ece"] for name, one in reply["groups"].items()} == {
        name: one["ece"] for name, one in result["groups"].items()
    }


def test_a_foreign_record_is_reported_as_not_measured(own: Path) -> None:
    path = own / "facts" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "result": {**config["result"], "curve": [[1, 2]]}}))
    assert client(own).get("/api/oracle", params={"run": "facts"}).json()["measured"] is None
    path.write_text(json.dumps({**config, "facts": {"stage": "done", "frame": "x"}}))
    asks = client(own)
    assert asks.get("/api/oracle", params={"run": "facts"}).status_code == 400
    assert ask(asks).status_code == 400


def test_the_answer_is_the_models_with_its_confidence_and_what_else_a_beam_finds(runs: Path, oracle: FactsRun) -> None:
    [said], [beam] = oracle.answer([ASKED]), oracle.answer([ASKED], 6)
    assert said.text == "Paris"
    for question in (ASKED, " Ada  Ash "):
        reply = ask(client(runs), question=question).json()
        assert (reply["source"], reply["asked"], reply["answer"]) == ("model", ASKED, "Paris")
        assert reply["confidence"] == pytest.approx(said.confidence, rel=1e-4)
        every = {text: p for text, p in ((beam.text, beam.confidence), *beam.others) if text and text != "Paris"}
        assert len(reply["others"]) == min(5, len(every)) > 0
        assert dict(reply["others"]).items() <= {text: pytest.approx(p) for text, p in every.items()}.items()


def chance(oracle: FactsRun, question: str, answer: str) -> float:
    """p(answer) by reading it token by token, the mark at its end included."""
    tokenizer, p = oracle.tokenizer, 1.0
    said = [*tokenizer.encode(answer.encode()).tolist(), mark_of(tokenizer)]
    row = [oracle.model.begin, *prompt_of(tokenizer, question)]
    for token in said:
        p *= float(oracle.model(torch.tensor([row]))[0, -1].detach().double().softmax(-1)[token])
        row.append(token)
    return p


def test_what_a_word_did_is_how_far_the_log_odds_fall_without_it(runs: Path, oracle: FactsRun) -> None:
    reply = ask(client(runs)).json()
    words = ASKED.split()
    assert [word for word, _ in reply["words"]] == words
    whole = chance(oracle, ASKED, "Paris")
    assert reply["confidence"] == pytest.approx(whole, rel=1e-4)
    for i, (_, did) in enumerate(reply["words"]):
        without = chance(oracle, " ".join(words[:i] + words[i + 1 :]), "Paris")
        assert did == pytest.approx(math.log(whole / (1 - whole)) - math.log(without / (1 - without)), abs=0.01)


def test_below_the_threshold_it_abstains_and_nothing_is_written(runs: Path, oracle: FactsRun) -> None:
    reply = ask(client(runs), threshold=1.0).json()
    assert (reply["answer"], reply["source"], reply["stored"]) == (None, "nobody", False)
    assert reply["guess"] == oracle.answer([ASKED])[0].text
    assert not (runs / FACTS_FOLDER).exists()


def test_a_users_answer_is_stored_below_the_runs_folder_and_answers_the_next_time(own: Path) -> None:
    asks = client(own)
    first = ask(asks, threshold=1.0, user_answer="  New \n York ").json()
    assert (first["answer"], first["source"], first["stored"]) == ("New York", "user", True)
    again = ask(asks, threshold=1.0, question="ada ash").json()
    assert (again["answer"], again["source"]) == ("New York", "facts")
    assert open_file_of_facts(own / FACTS_FOLDER / "facts.db").pairs() == [("Ada Ash", "New York")]
    assert not list((own / "facts").glob("*.db"))  # the run's own folder is left alone
    sure = ask(asks, threshold=0.0, user_answer="Rome").json()
    assert (sure["source"], sure["stored"]) == ("model", False)  # it was not asked for


def test_a_link_out_of_the_folder_is_not_followed(own: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (own / FACTS_FOLDER).symlink_to(outside)
    answer = ask(client(own), threshold=1.0, user_answer="Rome")
    assert answer.status_code == 400
    assert "leads out" in answer.json()["error"]
    assert list(outside.iterdir()) == []


def test_a_studio_of_one_run_keeps_nothing(own: Path) -> None:
    asks = client(own / "facts")
    assert ask(asks, threshold=1.0).json()["can_store"] is False
    assert ask(asks, threshold=1.0, user_answer="Rome").status_code == 400
    assert not (own / "facts" / FACTS_FOLDER).exists()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"run": "kn"}, 400),
        ({"run": "moods"}, 400),
        ({"run": "nowhere"}, 404),
        ({"run": "../facts"}, 404),
        ({"question": ""}, 400),
        ({"question": "x" * 401}, 422),
        ({"question": "x" * 400}, 400),  # leaves no room for an answer
        ({"threshold": 1.1}, 422),
        ({"threshold": "high"}, 422),
        ({"user_answer": "x" * 201}, 422),
        ({"facts": "/etc/passwd"}, 422),
    ],
)
def test_what_is_asked_is_checked(runs: Path, asked: dict[str, Any], status: int) -> None:
    answer = ask(client(runs), **asked)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_half_a_surrogate_pair_is_refused(runs: Path) -> None:
    body = b'{"run": "facts", "question": "\\ud800"}'
    answer = client(runs).post("/api/answer", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    own = tmp_path_factory.mktemp("own")
    shutil.copytree(runs / "facts", own / "facts")
    with served(own) as address, opened(address) as page:
        page.address = address
        yield page


@pytest.mark.browser
def test_asking_abstaining_and_keeping(page: Any, oracle: FactsRun) -> None:
    [said] = oracle.answer([ASKED])
    page.goto(f"{page.address}/#/answer?threshold=0")
    page.get_by_label("A question, or a name").fill("Ada Ash")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_selector(".verdict")
    assert page.inner_text(".verdict") == f"Paris, confidence {100 * said.confidence:.0f} %"
    assert page.locator(".bars dt").first.inner_text() == "Paris"
    slider = page.get_by_label("Least confidence")
    slider.focus()
    slider.press("End")
    page.wait_for_selector("text=No answer.")
    assert "At a confidence of 100 % or more it answers none" in page.inner_text(".operating-point")
    page.get_by_label("Do you know?").fill("<b>Rome</b>")
    page.get_by_role("button", name="Store this answer").click()
    page.wait_for_selector("text=from you, stored for the next time")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_selector("text=from the stored answers")
    assert page.inner_text(".verdict b") == "<b>Rome</b>"
    assert "question=Ada+Ash" in page.url
    assert "threshold=1" in page.url


@pytest.mark.browser
def test_the_address_gives_the_same_view_again(page: Any) -> None:
    page.goto("about:blank")
    page.goto(f"{page.address}/#/answer?run=facts&question=Kim+Sap&threshold=0.9")
    page.wait_for_selector("text=No answer.")
    assert page.get_by_label("A question, or a name").input_value() == "Kim Sap"
    assert "below 90 %" in page.inner_text(".verdict")
