"""Sections: any text stays text, pages need nothing from outside, and tables, tabs and matrices are what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from html_pages import HOSTILE, Page, elements
from octavo.pages.markup import element, text
from octavo.pages.sections import (
    MAX_CONFUSION_CLASSES,
    Shaded,
    TableColumn,
    TableRow,
    bullets,
    confusion_matrix,
    details,
    facts,
    notebook_view,
    paragraph,
    render_page,
    reproduce,
    sample_cards,
    score,
    section,
    table,
    tabs,
    verbatim,
)

ROOT = Path(__file__).parents[2]
EVERY_PART = [
    bullets([HOSTILE]), confusion_matrix([HOSTILE, "b"], [[3, 1], [0, 2]]), details(HOSTILE, HOSTILE),
    facts([(HOSTILE, HOSTILE)]), paragraph(HOSTILE, quiet=True), sample_cards([(HOSTILE, HOSTILE)], HOSTILE, 500),
    score(HOSTILE, HOSTILE),
    table((TableColumn(HOSTILE, True, HOSTILE), "b"), [(HOSTILE, Shaded(HOSTILE, 0.5, HOSTILE))]),
    tabs("view", HOSTILE, [(HOSTILE, HOSTILE), ("other", "text")]), verbatim(HOSTILE), reproduce([HOSTILE]),
]  # fmt: skip


@pytest.mark.parametrize("part", EVERY_PART)
def test_hostile_text_stays_text_in_every_part(part: Markup) -> None:
    page = Page(part)
    assert not {"script", "img"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert "\x00" not in part
    assert "\x1b" not in part
    assert "<script>alert(1)</script>" in page.text


def test_a_page_has_one_title_a_policy_and_nothing_from_outside() -> None:
    html = render_page(HOSTILE, HOSTILE, [section(HOSTILE, *EVERY_PART)])
    page = Page(html)
    assert page.tags.count("h1") == 1
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not re.search(r"https?://|@import|url\(", html)


def test_lone_surrogates_and_control_characters_can_be_written_to_a_file() -> None:
    assert text("a\ud800\x07\uffff").encode() == r"a\ud800␇".encode() + "\ufffd".encode()


def test_markup_is_kept_and_everything_else_is_escaped() -> None:
    assert element("p", Markup("<b>x</b>"), "<", 1.0, 2.346, title='"') == '<p title="&#34;"><b>x</b>&lt;12.35</p>'
    assert element("details", open=True, hidden=False, name=None) == '<details open="open"></details>'


def test_a_section_without_content_is_left_out() -> None:
    assert section("Empty", "", None, Markup()) == ""


def test_the_first_cell_can_name_a_row_and_the_last_can_take_the_rest() -> None:
    html = table(
        ("model", "bits", "seconds"), [("gru", "2.0", "9"), TableRow(("gpt", "failed"), "bad")], row_headers=True
    )
    assert [one.text for one in elements(html, "th") if one.get("scope") == "row"] == ["gru", "gpt"]
    assert [(one.text, one.get("colspan")) for one in elements(html, "td")] == [
        ("2.0", None), ("9", None), ("failed", "2"),
    ]  # fmt: skip
    assert [one.get("class") for one in elements(html, "tr")] == [None, None, "bad"]


def test_a_confusion_matrix_shades_the_mistakes_and_lists_them_where_classes_are_many() -> None:
    html = confusion_matrix(["cat", "dog"], [[5, 1], [3, 7]])
    cells = [(("".join(one.itertext())), one.get("class"), one.get("title")) for one in elements(html, "td")]
    assert cells == [
        ("5", "h0", "cat predicted as cat: 5"), ("1", "h2", "cat predicted as dog: 1"),
        ("3", "h7", "dog predicted as cat: 3"), ("7", "h0", "dog predicted as dog: 7"),
    ]  # fmt: skip
    many = [f"c{i}" for i in range(MAX_CONFUSION_CLASSES + 1)]
    counts = [[0] * len(many) for _ in many]
    counts[3][4], counts[1][0] = 9, 2
    rows: list[Any] = [
        ["".join(one.itertext()) for one in row] for row in elements(confusion_matrix(many, counts), "tr")
    ]
    assert rows[1:] == [["c3", "c4", "9"], ["c1", "c0", "2"]]


def test_a_notebook_view_is_one_element_with_its_style() -> None:
    html = notebook_view(paragraph(HOSTILE))
    assert html.startswith('<div class="octavo"><style>')
    assert html.endswith("</div>")
    assert Page(html).tags.count("style") == 1
    assert "script" not in Page(html).tags


def test_the_example_in_the_documentation_makes_a_page() -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "pages.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    page = Page(names["page"])
    assert page.tags.count("svg") == 1
    assert "<your text>" in page.text
