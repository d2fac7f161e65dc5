"""What one who visits the pages finds on all: keys, addresses, waiting, and words for what is amiss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import chromium
from studio_place import FLAGS, client, make_runs, served

pytestmark = pytest.mark.browser
LONG = "The cat sat. " * 1_600  # 20,800 characters
CONTRAST = """() => {
  const light = (colour) => { // of the scheme's rgb(...) and of a mix's color(srgb ...)
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((one) => one / (colour.startsWith("color(") ? 1 : 255));
    const [r, g, b] = parts.map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return [...document.querySelectorAll(".pickable span, .legend li")].map((one) => {
    const { color, backgroundColor } = getComputedStyle(one);
    const [a, b] = [light(color), light(backgroundColor)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  });
}"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "kn", "bag", "moods")


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with served(runs) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page in which nothing may go wrong, but what a test takes out of `page.wrong`."""
    visit = browser.new_context(viewport={"width": 1000, "height": 800}, base_url=address,
                                permissions=["clipboard-read", "clipboard-write"])  # fmt: skip
    found = visit.new_page()
    found.set_default_timeout(15_000)
    wrong: list[str] = []
    found.wrong = wrong
    found.on("console", lambda reply: wrong.append(reply.text) if reply.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: wrong.append(str(error)))
    yield found
    visit.close()
    assert not wrong


def address_has(page: Any, part: str) -> None:
    page.wait_for_url(lambda url: part in url)


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.textContent"))


def test_skipping_to_the_page_stays_on_it(page: Any) -> None:
    page.goto("/#/read?run=kn&text=The+cat")
    page.wait_for_selector(".walk span")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the page"
    page.keyboard.press("Enter")
    assert focused(page) == "main"
    assert "#/read?run=kn&text=The+cat" in page.url
    assert page.inner_text("h1") == "Read"


def test_the_focus_stays_on_the_link_that_was_followed_or_goes_to_the_page(page: Any) -> None:
    page.goto("/#/runs")
    page.get_by_role("link", name="Read kn").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text('Read')")
    page.wait_for_selector("main:focus")  # the link is gone with its page
    page.get_by_role("link", name="Inspect", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text('Inspect')")
    page.wait_for_selector("[role=tab]")
    assert focused(page) == "Inspect"


@pytest.mark.parametrize(
    "view", ["read?run=gone", "read?run=kn&other=gone", "inspect?run=gone", "write?run=gone", "classify?run=gone",
             "runs?a=kn&b=gone"],
)  # fmt: skip
def test_a_run_that_is_missing_is_reported(page: Any, view: str) -> None:
    page.goto(f"/#/{view}")
    page.wait_for_selector("[role=alert]:text('There is no run “gone” in this folder')")


def test_a_run_that_is_there_but_has_another_task_is_no_mistake(page: Any) -> None:
    page.goto("/#/classify?run=kn&text=fine")
    page.wait_for_selector(".verdict")
    assert page.locator("[role=alert]").count() == 0


@pytest.mark.parametrize(
    ("view", "fit"), [("read?run=kn", 20_000), ("inspect?run=kn", 20_000), ("write?run=kn", 8_000)]
)
def test_what_is_pasted_and_does_not_fit_is_reported(page: Any, view: str, fit: int) -> None:
    page.goto(f"/#/{view}")
    page.wait_for_selector("[aria-busy=true]", state="detached")
    page.evaluate("text => navigator.clipboard.writeText(text)", LONG)
    page.locator("textarea").first.focus()
    page.keyboard.press("Control+A")
    page.keyboard.press("Control+V")
    page.wait_for_selector(f".cut:text('{fit:,} characters fit in here, and these are 20,800')")
    assert len(page.locator("textarea").first.input_value()) == fit
    page.wait_for_selector("[aria-busy=true]", state="detached")
    page.locator("textarea").first.press("Backspace")
    page.wait_for_selector(".cut", state="detached")


def test_an_address_with_too_long_a_text_is_explained_in_words(runs: Path) -> None:
    reply = client(runs).post("/api/read", json={"run": "kn", "text": "x" * 20_001})
    assert reply.status_code == 422
    assert reply.json()["error"] == "text: at most 20,000 characters are read, and these are 20,001; shorten it"


def test_a_slider_that_is_moved_fast_leaves_its_last_value_in_the_address(page: Any) -> None:
    page.goto("/#/classify?run=moods&text=fine")
    page.wait_for_selector(".verdict")
    page.evaluate("""() => {
      const slider = document.querySelector("input[type=range]");
      for (let n = 1; n <= 400; n += 1) {  // browsers take 200 addresses in 10 seconds, and warn of more
        slider.value = n / 500;
        slider.dispatchEvent(new Event("input"));
      }
    }""")
    address_has(page, "threshold=0.8")


def test_the_token_that_is_described_is_in_the_address(page: Any) -> None:
    page.goto("/#/read?run=kn&text=The+cat+sat")
    page.locator(".walk span").nth(4).click()
    page.keyboard.press("ArrowRight")
    address_has(page, "at=5")
    reply = page.inner_text(".about")
    page.goto("about:blank")
    page.goto("/#/read?run=kn&text=The+cat+sat&at=5")
    page.wait_for_selector(".about table")
    assert page.inner_text(".about") == reply
    page.goto("/#/read?run=kn&other=bag&text=The+cat+sat&at=b3")
    page.wait_for_selector(".about table")
    assert page.inner_text(".about").startswith("bag")
    page.locator("textarea").fill("A dog")
    page.wait_for_url(lambda url: "at=" not in url)


def test_a_page_that_was_left_does_not_change_the_address(page: Any) -> None:
    page.clock.install()
    page.goto("/#/read?run=kn&text=The+cat")
    page.wait_for_selector(".walk span")
    page.locator("textarea").fill("The dog")  # which is read when typing has paused
    page.get_by_role("link", name="Exercises").click()
    page.wait_for_selector("h1:text('Exercises')")
    page.clock.run_for(1_000)
    assert "#/exercises" in page.url


def test_reading_that_takes_long_can_be_stopped_and_started_again(page: Any) -> None:
    held: list[Any] = []
    page.route("**/api/read", lambda route: held.append(route))
    page.goto("/#/read?run=kn&text=The+cat")
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector("text=Stopped.")
    assert focused(page) == "Start again"
    page.unroute("**/api/read")
    page.keyboard.press("Enter")
    page.wait_for_selector(".walk span")
    page.get_by_role("button", name="Stop").wait_for(state="detached")
    assert len(held) == 1


def test_a_studio_that_is_gone_is_reported_in_words(page: Any) -> None:
    page.goto("/#/read?run=kn&text=The+cat")
    page.wait_for_selector(".walk span")
    page.route("**/*", lambda route: route.abort())
    page.locator("textarea").fill("The dog")
    page.wait_for_selector("[role=alert]:text('the studio does not answer; is it still running?')")
    page.get_by_role("link", name="Exercises").click()
    page.wait_for_selector("main > [role=alert]:text('Reload this page when it is.')")
    page.wrong.clear()  # the browser's own words on what did not come


def test_the_form_names_a_run_that_is_not_there_yet(page: Any) -> None:
    page.goto("/#/runs?train=bag")
    page.wait_for_selector("form.train")
    assert page.locator("[name=run]").input_value() == "bag-2"


def test_settings_that_one_of_two_runs_has_alone_are_folded_away(page: Any) -> None:
    page.goto("/#/runs?a=kn&b=bag")
    folded = page.locator("details", has=page.locator("summary:text('only one of them has')"))
    folded.wait_for()
    assert "order" in (folded.text_content() or "")
    page.wait_for_selector("th:text-is('model')")
    assert not page.get_by_role("rowheader", name="order", exact=True).is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_the_deepest_colour_can_be_read(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto("/#/inspect?run=kn&text=The+cat+sat+on+the+mat.")
    page.wait_for_selector(".pickable span")
    found = page.evaluate(CONTRAST)
    assert len(found) > 20
    assert min(found) >= 4.5


def test_other_settings_write_anew_so_that_the_address_gives_what_is_seen(page: Any) -> None:
    page.goto("/#/write?run=kn&text=The+&tokens=30&go=1")
    sampled = page.get_by_role("region", name="Sampling")
    sampled.get_by_text(re.compile("^30 tokens.*per token$")).wait_for()
    before = sampled.inner_text()
    page.get_by_label("Seed").fill("7")
    sampled.get_by_text("with seed 7").wait_for()
    sampled.get_by_text(re.compile("^30 tokens.*per token$")).wait_for()
    after = sampled.inner_text()
    assert after != before
    address_has(page, "seed=7")
    page.reload()
    sampled.get_by_text(re.compile("^30 tokens.*per token$")).wait_for()
    assert sampled.inner_text() == after
