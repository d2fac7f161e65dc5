"""The studio's views in a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conftest import chromium
from octavo.cli import main
from octavo.errors import UserError
from octavo.studio import notebook
from octavo.studio.notebook import View
from octavo.tasks.classifier import Classifier
from octavo.tasks.run import load
from studio_place import FLAGS, make_runs

HOSTILE = 'The cat </style></div><script>window.ran = 1</script><img src=x onerror="ran=1"> & "sat" <b>'
SURE = ("--pretrain-passes 4 --pretrain-batch 12 --passes 90 --batch 8 --width 32 --layers 1 --heads 2 --context 64 "
        "--rate 0.01 --device cpu")  # fmt: skip
EMPTY = {"br", "hr", "img", "input", "meta", "link"}
THEMES = {  # the notebook's element, the system's scheme, and the scheme that must be seen
    "light": ('<body data-jp-theme-light="true">', "dark", "light"),
    "dark": ('<body data-jp-theme-light="false">', "light", "dark"),
    "vscode": ('<body class="vscode-dark">', "light", "dark"),
    "none, light": ("<body>", "light", "light"),
    "none, dark": ("<body>", "dark", "dark"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_runs(tmp_path_factory.mktemp("runs"), "kn", "bag", "gru", "gpt", "counting", "moods")
    people = root.parent / f"{root.name}-texts" / "people"
    assert main(["train", "facts", str(people), *SURE.split(), "--out", str(root / "facts")]) == 0
    return root


@pytest.fixture(scope="module")
def views(runs: Path) -> dict[str, View]:
    return {
        "read": notebook.read(runs / "kn", HOSTILE),
        "two": notebook.read(load(runs / "kn"), HOSTILE, other=str(runs / "gru")),
        "kn": notebook.inside(runs / "kn", HOSTILE),
        "counting": notebook.inside(runs / "counting", HOSTILE),
        "bag": notebook.inside(runs / "bag", HOSTILE),
        "gru": notebook.inside(runs / "gru", HOSTILE[:30]),
        "gpt": notebook.inside(runs / "gpt", HOSTILE[:30]),
        "write": notebook.write(runs / "kn", HOSTILE, 30, temperature=0.5),
        "explain": notebook.explain(Classifier.load(runs / "moods"), HOSTILE),
        "answer": notebook.answer(runs / "facts", "Ada Ash", 0.2),
        "abstains": notebook.answer(runs / "facts", HOSTILE[:12], 1.0),
    }


class Whole(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_whole_without_script_and_without_anything_from_outside(views: dict[str, View]) -> None:
    for name, view in views.items():
        html, parser = view._repr_html_(), Whole()
        parser.feed(html)
        parser.close()
        assert not parser.open, name
        assert html.startswith('<div class="octavo">')
        assert html.endswith("</div>")
        assert {"script", "iframe", "link", "img", "object"}.isdisjoint(tag for tag, _ in parser.tags), name
        every = {key for _, attrs in parser.tags for key in attrs}
        assert not [key for key in every if key.startswith("on") or key in ("src", "href", "action")], name
        assert not re.search(r"url\(|@import|https?://|require", html), name


def test_text_is_shown_as_it_is(views: dict[str, View]) -> None:
    for name in ("read", "two", "write"):
        text = re.sub(r"<[^>]*>", "", str(views[name].body))
        assert "&lt;script&gt;window.ran = 1&lt;/script&gt;" in text, name


def test_a_view_shows_the_same_scores_as_the_library(views: dict[str, View], runs: Path) -> None:
    from octavo.tasks.api import evaluate

    score = evaluate(load(runs / "kn"), HOSTILE)
    assert repr(views["read"]) == f"kn: {score.bits_per_byte:.3f} bits per byte"
    assert repr(views["two"]).startswith(repr(views["read"]) + "; gru: ")
    made = Classifier.load(runs / "moods")
    assert repr(views["explain"]).startswith(made.predict([HOSTILE])[0])
    assert repr(views["answer"]).startswith("Paris, ")
    assert repr(views["abstains"]).startswith("It abstains: ")


def test_the_prompt_is_grey_and_what_follows_is_coloured(runs: Path) -> None:
    from octavo.tasks.api import generate

    run = load(runs / "kn")
    view = notebook.write(run, "The cat", 20, seed=3)
    text = generate(run, "The cat", 20, seed=3)
    assert repr(view) == f"The cat{text}"
    assert '<span class="quiet">The cat</span>' in view.body
    assert (
        re.sub(r"<[^>]*>", "", "".join(re.findall(r"<mark.*?</mark>", str(view.body).split("</pre>")[0], re.DOTALL)))
        == text
    )


def test_users_mistakes_are_refused(runs: Path) -> None:
    for asked in (
        lambda: notebook.read(runs / "kn", ""),
        lambda: notebook.inside(runs / "kn", ""),
        lambda: notebook.inside(runs / "gpt", ""),
        lambda: notebook.explain(runs / "moods", " "),
        lambda: notebook.explain(runs / "kn", "a"),
        lambda: notebook.answer(runs / "kn", "a"),
        lambda: notebook.read(3, "a"),  # type: ignore[arg-type]
        lambda: notebook.read(runs / "nowhere", "a"),
    ):
        with pytest.raises(UserError):
            asked()


def test_every_rule_of_a_view_is_nested_in_its_own_class(views: dict[str, View]) -> None:
    for view in views.values():
        [style] = re.findall(r"<style>(.*?)</style>", view._repr_html_(), re.DOTALL)
        depth, heads, start = 0, [], 0
        for place, sign in enumerate(style):
            if sign == "{" and depth == 0:
                heads.append(" ".join(style[start:place].split()))
            depth += {"{": 1, "}": -1}.get(sign, 0)
            start = place + 1 if sign == "}" and depth == 0 else start
        assert len(heads) == 3
        assert all(head.endswith(".octavo.octavo") for head in heads)


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield found
        found.close()


@pytest.mark.browser
@pytest.mark.parametrize("theme", THEMES)
def test_views_are_drawn_in_the_notebooks_own_light(browser: Any, views: dict[str, View], theme: str) -> None:
    body, system, wanted = THEMES[theme]
    page = browser.new_page(color_scheme=system, viewport={"width": 700, "height": 900})
    wrong: list[str] = []
    page.on("console", lambda reply: wrong.append(reply.text))
    page.on("request", lambda asked: wrong.append(asked.url))
    page.set_content(f"<!doctype html>{body}" + "".join(view._repr_html_() for view in views.values()))
    paper = page.evaluate("getComputedStyle(document.querySelector('.octavo')).backgroundColor")
    assert (paper == "rgb(253, 253, 251)") == (wanted == "light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"  # not ours
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.querySelectorAll('.octavo').length") == len(views)
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert not wrong
    page.close()
