"""Adding a page to the studio, as docs/studio.md describes it; and charts that look like the figures of reports."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from octavo.pages.figures.plot import Axis, number
from octavo.studio import ModelCache, Studio, make_app
from octavo.studio.routes import ROUTES
from octavo.studio.server.app import WEB
from studio_place import make_runs, opened, served

DOCS = Path(__file__).parents[2] / "docs" / "studio.md"
RANGES = [(0.0, 1.0), (1.83, 5.41), (-3.0, 8.0), (12.0, 12.0), (0.0, 20_000.0), (3e-4, 7e-4), (100.0, 3.2e6)]
LOG_RANGES = [(1.0, 12.0), (1.0, 40_000.0), (2e-9, 1.0), (0.3, 0.9), (5.0, 5.0), (1e3, 2e8)]


def code_of(section: str) -> dict[str, str]:
    """The code of a section of the page, by language."""
    text = DOCS.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The studio's files with the page of the documentation added: one route file, one page file, one list entry."""
    code, folder = code_of("Adding a page"), tmp_path_factory.mktemp("more")
    shutil.copytree(WEB, folder / "web")
    (folder / "web" / "pages" / "longest.js").write_text(code["js"])
    pages = folder / "web" / "pages.js"
    pages.write_text(
        pages.read_text().replace('exercises: "Exercises",', 'exercises: "Exercises", longest: "Longest",')
    )
    (folder / "longest.py").write_text(code["python"])
    spec = importlib.util.spec_from_file_location("longest", folder / "longest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"web": folder / "web", "routes": (*ROUTES, module.router)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "words")


def test_a_page_is_one_route_and_one_file(runs: Path, pieces: dict[str, Any]) -> None:
    client = TestClient(make_app(Studio(ModelCache(runs, device="cpu")), **pieces), base_url="http://localhost")
    answer = client.post("/api/longest", json={"run": "words", "text": "A dog sat"})
    assert answer.json() == {"token": "␣dog", "bytes": 4}
    assert client.post("/api/longest", json={"run": "nobody", "text": ""}).status_code == 404
    assert "/api/longest" in client.get("/api/openapi.json").json()["paths"]


@pytest.fixture(scope="module")
def page(runs: Path, pieces: dict[str, Any]) -> Iterator[Any]:
    with served(runs, **pieces) as address, opened(address) as page:
        page.address = address
        yield page


@pytest.mark.browser
def test_the_added_page_is_in_the_navigation_and_works(page: Any) -> None:
    page.get_by_role("link", name="Longest", exact=True).click()
    page.get_by_label("Text").fill("The bird")
    page.wait_for_selector("text=Longest token: ␣bird, 5 bytes")


@pytest.mark.browser
@pytest.mark.parametrize(("log", "ranges"), [(False, RANGES), (True, LOG_RANGES)])
@pytest.mark.parametrize("tight", [False, True])
def test_axes_have_the_ticks_of_the_reports_figures(
    page: Any, log: bool, ranges: list[tuple[float, float]], tight: bool
) -> None:
    script = """async ([values, log, tight]) => {
        const { makeAxis, tickLabel } = await import("/web/parts/axis.js");
        const { low, high, ticks } = makeAxis(values, { log, tight });
        return { low, high, ticks, labels: ticks.map(tickLabel) };
    }"""
    for values in ranges:
        axis = Axis.around(values, log, tight)
        drawn = page.evaluate(script, [list(values), log, tight])
        assert (drawn["low"], drawn["high"]) == pytest.approx((axis.low, axis.high))
        assert drawn["ticks"] == pytest.approx([tick for tick, _ in axis.ticks], abs=1e-12)
        assert drawn["labels"] == [number(tick) for tick, _ in axis.ticks], values
