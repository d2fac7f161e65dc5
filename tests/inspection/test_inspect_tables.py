"""Views with a table for each token: inspect shows what the studio's function gives, in the terminal, JSON and page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import octavo
from command_line import verb_caller
from html_pages import Page
from octavo.core import seeded_generator
from octavo.inspection.inspection import MAX_TOKENS, tokens_of
from octavo.inspection.token_tables import token_table
from octavo.models import Bag, Mix, NGram
from octavo.models.bag import BagConfig
from octavo.models.context_tree import ContextTreeConfig
from octavo.models.context_tree_fit import fit_context_tree, length_weights
from octavo.models.hidden_markov import HMM, HMMConfig
from octavo.models.mix import MixConfig
from octavo.models.ngram import NGramConfig
from octavo.models.views import TokenTable
from octavo.ops.hidden_markov import viterbi
from octavo.tasks.run import Run, load
from octavo.text import Byte
from octavo.text.token_display import BEGIN, display_token

LEARNT = b"abracadabra, abracadabra: the cat sat on the mat\n" * 8
SAID = "abra the cat, <b>&"
VIEWS = {"hmm": "Viterbi path", "ctw": "Lengths of context", "ppm": "Back-off path", "mix": "Votes", "bag": "Unigram"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    x_N = torch.tensor([Byte().begin, *LEARNT], dtype=torch.int32)
    ppm = NGram.fit(x_N, NGramConfig(order=4, estimator="ppm"), 257, Byte().newline)
    bag = Bag.fit(x_N.long(), BagConfig(), 257)
    hmm = HMM(HMMConfig(states=5), 257)
    hmm.initialise(seeded_generator(3))
    made: dict[str, Any] = {
        "hmm": hmm, "ctw": fit_context_tree(x_N, ContextTreeConfig(depth=3), 257), "ppm": ppm, "bag": bag,
        "mix": Mix(MixConfig(), [bag, ppm]),
    }  # fmt: skip
    for name, model in made.items():
        Run(model, Byte(), {}).save(folder / name)
    return folder


@pytest.fixture
def inspect(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    monkeypatch.chdir(runs)
    return verb_caller("inspect", capsys)


def table_of(run: Run, text: str = SAID) -> TokenTable:
    def spell(token: int) -> str:
        return BEGIN if token == run.model.begin else display_token(run.tokenizer, token)

    return token_table(run.model, tokens_of(run, text), spell)


@pytest.mark.parametrize("name", VIEWS)
def test_json_holds_the_whole_table_of_every_token(inspect: Callable[..., Any], name: str) -> None:
    code, out, _ = inspect(name, "--text", SAID, "--json")
    assert code == 0
    (table,) = json.loads(out)["runs"][0]["tables"]
    wanted = table_of(load(name))
    assert table["title"] == VIEWS[name]
    assert tuple(table["columns"]) == wanted.columns
    for found, detail in zip(table["details"], wanted.details, strict=True):
        assert found["title"] == detail.title
        assert tuple(map(tuple, found["rows"])) == detail.rows
        assert found["shares"] == pytest.approx(detail.shares, abs=1e-3)
    assert (table["summary"] is not None) == (name in ("mix", "hmm"))


@pytest.mark.parametrize("name", VIEWS)
def test_the_terminal_has_a_line_for_every_token(inspect: Callable[..., Any], name: str) -> None:
    code, out, err = inspect(name, "--text", SAID)
    lines = out[out.index(f"{VIEWS[name]} of {name}") :].splitlines()[3:]
    for token, detail, line in zip(SAID.replace(" ", "␣"), table_of(load(name)).details, lines, strict=False):
        assert line.split() == f"{token} {detail.title}".split()
    assert code == 0
    assert err == ("" if name == "bag" else "the table of each token is in --json, and on the page that --out writes\n")


@pytest.mark.parametrize("name", VIEWS)
def test_the_page_shows_the_text_in_colours_and_every_tables_rows(
    inspect: Callable[..., Any], name: str, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    assert inspect(name, "--text", SAID, "--out", str(out))[0] == 0
    page, wanted = Page(out.read_text()), table_of(load(name))
    assert "script" not in page.tags
    assert VIEWS[name] in page.text
    titles = [value for key, value in page.attributes if key == "title"]
    assert [detail.title for detail in wanted.details] == titles
    for detail in wanted.details:
        assert all(cell in page.text for row in detail.rows for cell in row)


def test_the_path_and_the_shares_are_those_of_the_models(inspect: Callable[..., Any]) -> None:
    hmm, ctw = (json.loads(inspect(name, "--text", SAID, "--json")[1])["runs"][0]["tables"][0] for name in
                ("hmm", "ctw"))  # fmt: skip
    x_N = tokens_of(load("hmm"), SAID)
    model: Any = load("hmm").model
    with torch.no_grad():
        path_T, _ = viterbi(model.probabilities().double(), torch.tensor(x_N))
    assert [int(one["title"].split()[2].rstrip(",")) for one in hmm["details"]] == path_T.tolist()
    tree: Any = load("ctw").model
    _, share_NK = length_weights(tree, x_N)
    assert torch.tensor([one["shares"] for one in ctw["details"]]).double() == pytest.approx(share_NK, abs=1e-3)


def test_one_token_is_enough_for_a_table_and_none_is_not(inspect: Callable[..., Any]) -> None:
    assert "Back-off path of ppm" in inspect("ppm", "--text", "a")[1]
    code, out, err = inspect("ppm", "--text", "")
    assert (code, "Back-off" in out) == (0, False)
    assert err == "the model's views need a text of at least 1 token: this has 0\n"


def test_python_shows_the_same_in_a_notebook(runs: Path) -> None:
    seen = octavo.inspect(runs / "ppm", SAID)
    assert seen.to_json()["runs"][0]["tables"][0]["title"] == "Back-off path"
    assert "Back-off path" in seen._repr_html_()


def test_a_long_text_is_cut(inspect: Callable[..., Any]) -> None:
    (run,) = json.loads(inspect("bag", "--text", "ab" * MAX_TOKENS, "--json")[1])["runs"]
    assert run["truncated"]
    assert len(run["tables"][0]["details"]) == MAX_TOKENS
