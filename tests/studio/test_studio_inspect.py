"""The page Inspect: what its routes tell is what the lens finds, and what the page shows can be reached by any hand."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from octavo.cli import main
from octavo.datasets.images import open_images
from octavo.inspection.gradient_flow import gradient_flow, relative
from octavo.inspection.inspection import attention_bytes, tokens_of
from octavo.inspection.token_tables import backoff
from octavo.inspection.views import layer_predictions, token_rows
from octavo.studio.server.byte_tables import HEADER, MAGIC, SIGNED, WEIGHT
from octavo.studio.server.result_cache import ResultCache
from octavo.studio.server.scheduler import FairLock, Ticket
from octavo.tasks.image_attention import attend_to_image
from octavo.tasks.images import ImageRun
from octavo.tasks.run import load
from studio_place import client, make_runs, opened, served

TEXT = "The cat sat on the mat."
NAMES = ("kn", "bag", "mixed", "bigram", "gru", "gpt", "looking", "reverse", "masked", "stripes2", "moods")


def unpack_tables(data: bytes) -> tuple[int, Any]:
    """The kind and the tables of a response, as the documented format has them."""
    magic, kind, *shape = HEADER.unpack_from(data)
    assert magic == MAGIC
    return kind, np.frombuffer(data, np.uint8, offset=HEADER.size).reshape(shape)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), *NAMES)


@pytest.fixture(scope="module")
def asking(runs: Path) -> Iterator[TestClient]:
    with client(runs) as one:
        yield one


def post_json(asking: TestClient, path: str, **asked: Any) -> dict[str, Any]:
    answer = asking.post(f"/api/inspect/{path}", json=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def refused(asking: TestClient, path: str, **asked: Any) -> tuple[int, str]:
    answer = asking.post(f"/api/inspect/{path}", json=asked)
    return answer.status_code, answer.json()["error"]


def picture(size: tuple[int, int] = (8, 8), kind: str = "PNG") -> str:
    written = io.BytesIO()
    pixels = np.arange(size[0] * size[1], dtype=np.uint32).reshape(size[1], size[0]) % 251
    Image.fromarray(pixels.astype(np.uint8)).save(written, kind)
    return base64.b64encode(written.getvalue()).decode()


# ---------------------------------------------------------------------- routes


def test_every_family_has_its_views(asking: TestClient) -> None:
    views = {name: [one["view"] for one in post_json(asking, "about", run=name)["views"]] for name in NAMES[:-1]}
    assert views == {
        "kn": ["backoff"], "mixed": ["votes"], "bag": ["unigram"], "bigram": ["gates"],
        "gru": ["gates", "gradient-flow"], "gpt": ["attention", "attention-heads", "logit-lens", "gradient-flow"],
        "looking": ["attention", "attention-heads", "gates", "gradient-flow"],
        "reverse": ["attention", "attention-heads"], "masked": ["attention", "attention-heads", "masked"],
        "stripes2": ["image"],
    }  # fmt: skip


def test_the_path_is_that_of_the_view_and_sums_to_p(asking: TestClient, runs: Path) -> None:
    found, run = post_json(asking, "table", run="kn", text=TEXT), load(runs / "kn")
    path = backoff(run.model, tokens_of(run, TEXT))  # type: ignore[arg-type]
    assert len(found["details"]) == len(found["tokens"]) == len(path.p_N)
    for n, detail in enumerate(found["details"]):
        *contexts, uniform, total = detail["rows"]
        assert [row[5] for row in contexts] == [shortened(p) for p in path.share_NK[n, : len(contexts)].tolist()[::-1]]
        assert (uniform[5], total[5]) == (shortened(float(path.uniform_N[n])), shortened(float(path.p_N[n])))
        assert sum(detail["shares"]) == pytest.approx(1, rel=1e-9)  # what the contexts give is p


def shortened(value: float) -> str:
    return "0" if value == 0 else f"{value:.4f}" if value >= 0.001 else f"{value:.1e}"


def test_the_votes_of_a_mixture_sum_to_its_probability(asking: TestClient, runs: Path) -> None:
    found, run = post_json(asking, "table", run="mixed", text=TEXT), load(runs / "mixed")
    p = run.model.score(torch.tensor([tokens_of(run, TEXT)]))[0].exp().tolist()
    assert [detail["rows"][-1][-1] for detail in found["details"]] == [shortened(one) for one in p]
    assert found["parts"] == ["5-gram", "bag"]


def test_a_head_s_map_comes_as_bytes_with_its_header(asking: TestClient, runs: Path) -> None:
    answer = asking.post("/api/inspect/map", json={"run": "gpt", "text": TEXT, "layer": 2, "head": 1})
    assert answer.headers["content-type"] == "application/octet-stream"
    kind, maps = unpack_tables(answer.content)
    wanted = attention_bytes(load(runs / "gpt"), TEXT)
    assert (kind, maps.shape[0]) == (WEIGHT, 1)
    assert np.abs(maps[0].astype(int) - wanted.maps_LHTS[1, 0]).max() <= 1  # both round, on their own, what they sum
    _, small = unpack_tables(asking.post("/api/inspect/overview", json={"run": "gpt", "text": TEXT}).content)
    assert len(small) == 4
    found = post_json(asking, "maps", run="gpt", text=TEXT)
    assert found["queries"] == list(wanted.queries)
    assert [one["kind"] for one in found["statistics"]] == [one["kind"] for one in wanted.statistics]


def test_the_alignment_comes_with_its_translation(asking: TestClient) -> None:
    found = post_json(asking, "maps", run="reverse", text="abc")
    _, maps = unpack_tables(
        asking.post("/api/inspect/map", json={"run": "reverse", "text": "abc", "layer": 1, "head": 2}).content
    )
    assert maps.shape[1:] == (len(found["queries"]), len(found["keys"]))
    assert found["queries"][-1] == found["keys"][-1] == "<end>"
    assert refused(asking, "maps", run="reverse", text="abc", language="Klingon")[0] == 400


def test_units_are_those_of_the_gates(asking: TestClient, runs: Path) -> None:
    run = load(runs / "gru")
    gates = token_rows(run.model, tokens_of(run, TEXT))
    found = post_json(asking, "rows", run="gru", text=TEXT)
    assert [(one["row"], one["layer"]) for one in found["rows"]] == [(one.name, one.layer) for one in gates]
    for shown, gate in zip(found["rows"], gates, strict=True):
        assert shown["mean"] == pytest.approx(gate.mean.tolist())
    asked = {"run": "gru", "text": TEXT, "row": "hidden", "layer": 2}
    kind, (units,) = unpack_tables(asking.post("/api/inspect/units", json=asked).content)
    hidden = next(one for one in gates if (one.name, one.layer) == ("hidden", 2))
    assert kind == SIGNED
    assert np.abs(units / 127.5 - 1 - hidden.value_TD.T.numpy()).max() <= 0.5 / 127.5 + 1e-6


def test_depths_and_gradients_are_the_lens_s(asking: TestClient, runs: Path) -> None:
    run = load(runs / "gpt")
    x_N = tokens_of(run, TEXT)
    found, depths = post_json(asking, "layers", run="gpt", text=TEXT), layer_predictions(run.model, x_N)
    assert [one["bits"] for one in found["layers"]] == pytest.approx([one.bits for one in depths], rel=1e-5)
    assert found["layers"][-1]["rights"] == depths[-1].right_N.tolist()
    flow = post_json(asking, "curve", run="gpt", text=TEXT, back=6)
    wanted = gradient_flow(run.model, x_N, 6)
    assert flow["whole"]["shares"] == pytest.approx(list(relative(wanted.norms)))
    assert flow["theory"][0]["shares"][2] == pytest.approx(0.81)


def test_masks_are_filled_in_as_the_encoder_does(asking: TestClient) -> None:
    found = post_json(asking, "masked", run="masked", text="The [MASK] sat on the [MASK].")
    assert len(found["places"]) == 2
    assert "[MASK]" not in found["filled"]
    assert refused(asking, "masked", run="masked", text=TEXT)[0] == 400


def test_a_sent_picture_is_seen_as_the_lens_sees_it(asking: TestClient, runs: Path) -> None:
    run, sent = ImageRun.load(runs / "stripes2"), picture()
    found = post_json(asking, "image", run="stripes2", picture=sent)
    x_CHW = torch.from_numpy(np.array(Image.open(io.BytesIO(base64.b64decode(sent)))))[None]
    attention = attend_to_image(run, x_CHW)
    assert found["classes"][0]["label"] == run.labels[attention.answer]
    assert found["heads"][0]["seen"] == [pytest.approx(row) for row in attention.heads[0].seen_hw.tolist()]
    assert found["groups"]
    assert found["picture"].startswith("data:image/png;base64,")


def test_only_small_pngs_and_jpegs_are_taken(asking: TestClient) -> None:
    def sent(data: str) -> tuple[int, str]:
        return refused(asking, "image", run="stripes2", picture=data)

    assert "classes" in post_json(asking, "image", run="stripes2", picture=picture(kind="JPEG"))
    drawn = base64.b64encode(b'<svg xmlns="http://www.w3.org/2000/svg"/>').decode()
    for wrong in (drawn, picture(kind="GIF"), picture(kind="BMP"), base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()):
        assert sent(wrong)[0] == 400
    assert sent("no base64 at all!") == (400, "the picture is not in base64; send a PNG or JPEG file so")
    assert "pixels" in sent(picture((4200, 4200)))[1]  # a small file that would unpack to much
    assert sent("A" * 3_000_001)[0] == 422
    assert refused(asking, "image", run="stripes2")[0] == 400


def test_images_of_a_path_in_the_run_s_folder_are_never_opened(asking: TestClient, runs: Path) -> None:
    about = json.loads((runs / "stripes2" / "config.json").read_text())["images"]
    (source,) = about["source"]
    assert Path(source).is_dir()  # it could be opened, but a run's folder may say anything
    assert post_json(asking, "about", run="stripes2")["held_out"] == 0
    status, why = refused(asking, "image", run="stripes2", image=0)
    assert status == 400
    assert "not opened" in why


@pytest.mark.parametrize(
    ("path", "asked", "status"),
    [
        ("about", {"run": "nobody"}, 404),
        ("about", {"run": "../kn"}, 404),
        ("about", {"run": "moods"}, 400),
        ("table", {"run": "gpt", "text": TEXT}, 400),
        ("table", {"run": "kn", "text": TEXT, "view": "votes"}, 400),
        ("maps", {"run": "kn", "text": TEXT}, 400),
        ("maps", {"run": "gpt", "text": ""}, 400),
        ("map", {"run": "gpt", "text": TEXT, "layer": 3, "head": 1}, 400),
        ("map", {"run": "gpt", "text": TEXT, "layer": 0, "head": 1}, 422),
        ("rows", {"run": "gpt", "text": TEXT}, 400),
        ("units", {"run": "gru", "text": TEXT, "row": "forget", "layer": 1}, 400),
        ("layers", {"run": "gru", "text": TEXT}, 400),
        ("curve", {"run": "kn", "text": TEXT}, 400),
        ("curve", {"run": "gru", "text": "a"}, 400),
        ("image", {"run": "kn", "image": 0}, 400),
        ("table", {"run": "kn", "text": "x" * 20_001}, 422),
        ("table", {"run": "kn", "text": TEXT, "more": 1}, 422),
    ],
)
def test_what_cannot_be_done_is_said(asking: TestClient, path: str, asked: dict[str, Any], status: int) -> None:
    found, why = refused(asking, path, **asked)
    assert found == status
    assert why


def test_a_look_is_worked_out_once_and_let_go_of_with_its_model() -> None:
    class Model:
        pass

    kept: ResultCache[list[int]] = ResultCache(max_bytes=10)
    model, made, ticket = Model(), [], Ticket(FairLock())

    def make(number: int) -> list[int]:
        made.append(number)
        return [number]

    def get(of: Model, number: int) -> list[int]:
        return kept.get(of, number, 0, ticket, lambda: make(number), lambda _: 4)

    assert get(model, 1) is get(model, 1)
    get(model, 2)
    get(model, 3)  # three of four bytes do not fit into ten: the first goes
    get(model, 1)
    assert made == [1, 2, 3, 1]
    get(Model(), 5)
    get(model, 6)
    get(model, 1)
    assert made == [1, 2, 3, 1, 5, 6]  # the freed model's result was removed instead of the first


@pytest.mark.data("digits")
def test_held_out_images_of_a_named_source_are_seen_by_number(tmp_path: Path) -> None:
    words = "train vit digits --width 16 --layers 1 --heads 2 --budget 2steps --checks 1 --device cpu --out"
    assert main([*words.split(), str(tmp_path / "digits")]) == 0
    with client(tmp_path) as asking:
        assert post_json(asking, "about", run="digits")["held_out"] == len(open_images("digits").test_N)
        found = post_json(asking, "image", run="digits", image=3)
        images = open_images("digits")
        assert found["truth"] == images.labels[int(images.test_N[3])]
        assert refused(asking, "image", run="digits", image=100_000)[0] == 400


# ---------------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with served(runs) as where:
        yield where


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Any]:
    with opened(address) as one:
        yield one


def go(page: Any, address: str, **settings: Any) -> None:
    page.goto("about:blank")
    page.goto(f"{address}/#/inspect?{urlencode(settings, quote_via=quote)}")
    page.wait_for_selector("[role=tabpanel]:not([aria-busy]) > *")


def until(page: Any, true: str, arg: Any = None) -> None:
    """Wait for what is true of the page; its policy forbids eval, so it is asked from outside, again and again."""
    ends = time.monotonic() + 15
    while not page.evaluate(true, arg):
        assert time.monotonic() < ends, true
        page.wait_for_timeout(20)


def settings(page: Any) -> dict[str, str]:
    found: dict[str, str] = page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1] ?? ''))")
    return found


@pytest.mark.browser
def test_the_matrix_is_read_by_keys_and_by_pointer(page: Any, address: str, asking: TestClient) -> None:
    go(page, address, run="gpt", text=TEXT)
    page.focus(".matrix canvas")
    for key in ("End", "ArrowDown", "ArrowDown", "Home", "ArrowRight"):
        page.keyboard.press(key)
    asked = {"run": "gpt", "text": TEXT, "layer": 1, "head": 1}
    _, (weights,) = unpack_tables(asking.post("/api/inspect/map", json=asked).content)
    share = round(100 * (int(weights[2, 1]) / 255) ** 2)
    page.wait_for_selector(".readout:text('attends to')")
    assert page.inner_text(".readout").startswith("“h” (2) attends to “T” (1): ")
    assert page.inner_text(".readout").endswith(f"{share} %")
    box = page.locator(".matrix canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 40)
    page.wait_for_selector(".readout:text('cannot see')")


@pytest.mark.browser
def test_a_head_and_a_place_are_in_the_address_and_come_back_from_it(page: Any, address: str) -> None:
    page.mouse.move(0, 0)
    go(page, address, run="gpt", text=TEXT * 6)
    page.click("[data-head='2.1']")
    page.focus(".matrix canvas[aria-label^='Layer 2, head 1']")  # not that of the head before, which goes
    for key in ("+", "+", "+", "Shift+ArrowRight", "Shift+ArrowDown"):
        page.keyboard.press(key)
    until(page, "location.hash.includes('at=')")
    left = settings(page)
    assert (left["layer"], left["text"]) == ("2", TEXT * 6)
    shown = page.evaluate("document.querySelector('.matrix canvas').toDataURL()")
    go(page, address, **left)
    page.wait_for_selector("[data-head='2.1'][aria-pressed=true]")
    until(page, "s => document.querySelector('.matrix canvas').toDataURL() === s", shown)


@pytest.mark.browser
def test_arcs_tell_what_a_token_looks_at(page: Any, address: str) -> None:
    go(page, address, run="gpt", text=TEXT)
    page.get_by_label("Drawn as").select_option("arcs")
    page.focus("canvas[aria-label^='Layer 1, head 1. Left']")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(".readout:text('“h” (2) attends to')")
    assert settings(page)["token"] == "2"


@pytest.mark.browser
def test_tabs_are_walked_with_the_arrow_keys_and_heads_lead_to_their_map(page: Any, address: str) -> None:
    go(page, address, run="gpt", text=TEXT)
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("text=Entropy is how widely a head attends")
    page.click("button:text('layer 2, head 2')")
    page.wait_for_selector("[data-head='2.2'][aria-pressed=true]")
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("End")
    page.wait_for_selector("text=gradient norm, relative")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("text=read out after")
    assert settings(page)["view"] == "logit-lens"


@pytest.mark.browser
def test_one_text_serves_every_run(page: Any, address: str) -> None:
    go(page, address, run="kn", text="The dog sat.")
    page.get_by_label("Run", exact=True).select_option("gru")
    page.wait_for_selector("text=how much of the old state is retained")
    page.get_by_label("Run", exact=True).select_option("mixed")
    page.wait_for_selector("td:text('5-gram')")
    page.get_by_label("Run", exact=True).select_option("bag")
    page.wait_for_selector("text=A bag has no state")
    assert page.input_value("textarea") == "The dog sat."
    page.fill("textarea", "A cat")
    until(page, "document.querySelectorAll('.pickable span').length === 5")
    assert settings(page)["text"] == "A cat"


@pytest.mark.browser
def test_the_path_of_a_chosen_token_is_shown(page: Any, address: str, asking: TestClient) -> None:
    go(page, address, run="kn", text=TEXT)
    page.click(".pickable [data-n='4']")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h2:text('“a” after')")
    assert (
        page.inner_text("tr.total").split()[-1]
        == post_json(asking, "table", run="kn", text=TEXT)["details"][5]["rows"][-1][-1]
    )
    assert settings(page)["token"] == "5"


@pytest.mark.browser
def test_a_unit_is_opened_from_its_row(page: Any, address: str) -> None:
    go(page, address, run="gru", text=TEXT)
    page.locator("label:has-text('Gate') select").first.select_option(label="hidden, layer 2")
    page.focus("canvas[aria-label^='Units of hidden, layer 2']")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("figcaption:text('from −1 to 1')")
    assert {"gate", "unit"} <= set(settings(page))


@pytest.mark.browser
def test_long_work_is_stopped_by_hand(page: Any, address: str) -> None:
    page.goto("about:blank")
    page.goto(
        f"{address}/#/inspect?{urlencode({'run': 'gru', 'view': 'gradient-flow', 'back': 400, 'text': TEXT * 43})}"
    )
    page.click("button:text('Stop')")
    page.wait_for_selector("text=Stopped.")
    page.click("[role=tab]:text('Gates')")
    page.wait_for_selector("text=how much of the old state is retained")


@pytest.mark.browser
def test_a_mask_and_a_picture_are_given_by_hand(page: Any, address: str) -> None:
    go(page, address, run="masked", view="masked", text=TEXT)
    page.click("button:text('hide the first word')")
    page.wait_for_selector("text=Filled in:")
    page.get_by_label("Run", exact=True).select_option("stripes2")
    page.wait_for_selector("text=choose a picture")
    file = {"name": "stripe.png", "mimeType": "image/png", "buffer": base64.b64decode(picture())}
    page.set_input_files("input[type=file]", file)
    page.wait_for_selector("text=rollout")
    assert page.locator("figure.sight canvas").count() > 4
    page.set_input_files("input[type=file]", {**file, "buffer": bytes(2_300_000)})
    page.wait_for_selector("[role=alert]:text('2.2 MB at most')")


@pytest.mark.browser
def test_nothing_makes_a_phone_scroll_sideways(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    try:
        for run, view in (
            ("kn", "backoff"),
            ("gpt", "heads"),
            ("gpt", "depths"),
            ("gru", "gates"),
            ("masked", "attention"),
        ):
            go(page, address, run=run, view=view, text=TEXT)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, (run, view)
    finally:
        page.set_viewport_size({"width": 1100, "height": 900})
