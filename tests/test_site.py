"""The documentation site is built without a warning, has a page for everything, and is read without a network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import octavo
from octavo.cli import VERBS
from octavo.models import BUILT_IN

ROOT = Path(__file__).parents[1]
TOOLS = ("mkdocs", "material", "mkdocstrings_handlers")
SMALL = {"OCTAVO_GALLERY_BUDGET": "1steps", "OCTAVO_GALLERY_BYTES": "36000", "NO_MKDOCS_2_WARNING": "1"}


class Links(HTMLParser):
    """What a page points at, what it loads, and the places in it that can be pointed at."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given.get("href", ""))
        elif tag in ("script", "img", "iframe", "source", "object", "embed"):
            self.loads.append(given.get("src") or given.get("data", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := [name for name in TOOLS if importlib.util.find_spec(name) is None]:
        pytest.skip(f"needs what builds the site: {', '.join(missing)}; pip install 'octavo[docs]'")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(build, cwd=ROOT, env={**os.environ, **SMALL, "PYTHONPATH": source}, capture_output=True,
                          text=True, timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page) for page in sorted(site.rglob("*.html"))}


def test_every_verb_model_and_public_name_has_its_place(site: Path) -> None:
    made = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert {f"reference/commands/{verb}.html" for verb in VERBS} <= made
    assert {f"reference/models/{name}.html" for name in BUILT_IN} <= made
    python = (site / "reference/python.html").read_text(encoding="utf-8")
    names = [name for name in octavo.__all__ if callable(getattr(octavo, name))]
    assert [name for name in names if f"octavo.{name}" not in python] == []


def test_the_reference_has_flags_equations_and_settings(site: Path) -> None:
    train = (site / "reference/commands/train.html").read_text(encoding="utf-8")
    assert "--muon-learning-rate X" in train
    lstm = (site / "reference/models/lstm.html").read_text(encoding="utf-8")
    assert "<i>c</i><sub>t</sub> = <i>f</i><sub>t</sub> ⊙ <i>c</i><sub>t-1</sub>" in lstm
    assert "--forget-bias X" in lstm


def test_every_built_in_model_states_its_equation() -> None:
    assert [name for name, spec in BUILT_IN.items() if "=" not in spec.equation] == []


def test_every_link_and_anchor_leads_somewhere(site: Path, pages: dict[Path, Links]) -> None:
    broken = []
    for page, found in pages.items():
        if page.name == "404.html":
            continue
        for link in [*found.links, *found.loads]:
            parts = urlsplit(link)
            if parts.scheme or not link:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places
            ):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_no_page_style_or_script_loads_anything_from_a_network(site: Path, pages: dict[Path, Links]) -> None:
    loaded = {
        f"{page.relative_to(site)}: {load}"
        for page, found in pages.items()
        for load in found.loads
        if urlsplit(load).scheme in ("http", "https") or load.startswith("//")
    }
    styles = {
        f"{style.relative_to(site)}: {url}"
        for style in site.rglob("*.css")
        for url in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^)\"']+)", style.read_text(encoding="utf-8"))
    }
    assert loaded | styles == set()


def test_the_gallery_shows_figures_and_whole_pages(site: Path) -> None:
    gallery = (site / "gallery.html").read_text(encoding="utf-8")
    assert "FIGURES-OF" not in gallery
    assert gallery.count("<figure") >= 8
    assert "<svg" in (site / "gallery/compare/report.html").read_text(encoding="utf-8")


@pytest.mark.browser
def test_search_works_when_the_site_is_opened_as_a_file(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    from conftest import chromium

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(offline=True)
        page.goto((site / "index.html").as_uri())
        page.locator(".md-search__input").click()
        page.keyboard.type("Kneser")
        page.locator(".md-search-result__item a").first.wait_for()
        assert "matching document" in page.locator(".md-search-result__meta").inner_text()
        browser.close()
