"""How smoothly the studio's attention matrix of 1,000 tokens moves in Chromium.

python benchmarks/bench_studio_pan.py [--tokens 1000] [--seconds 3]

A transformer of 6 layers and 6 heads reads a text of that many bytes; it is hardly trained, as how fast a map is drawn
does not depend on what is in it. A pressed pointer drags the map back and forth, a step each frame, so that every frame
must be redrawn; frames are those that the browser shows, counted by requestAnimationFrame. Once with small cells, once
with cells that have their tokens beside them. The time from opening the page to the first map is measured too.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from measure import octavo_command, parser, print_header, print_machine, print_row, run_command, run_studio

WORDS = "the cat sat on a mat and saw how dogs lay by every door while birds sang all day long".split()
PAN = """([x, y, milliseconds]) => new Promise((done) => {
  const canvas = document.querySelector(".matrix canvas");
  const plain = CanvasRenderingContext2D.prototype.drawImage;
  const times = [];
  let drawn = 0;
  CanvasRenderingContext2D.prototype.drawImage = function (...given) {
    drawn += 1;
    return plain.apply(this, given);
  };
  const step = (now) => {
    times.push(now);
    const far = 4 * Math.abs((times.length % 160) - 80);
    const at = { pointerId: 1, clientX: x - far, clientY: y - far };
    canvas.dispatchEvent(new PointerEvent("pointermove", at));
    if (now - times[0] < milliseconds) return requestAnimationFrame(step);
    CanvasRenderingContext2D.prototype.drawImage = plain;
    done({ times, drawn });
  };
  requestAnimationFrame(step);
})"""
DRAWN = "() => { const c = document.querySelector('.matrix canvas'); return !!c && c.width > 300 }"


def text_of(tokens: int) -> str:
    generator = random.Random(0)
    return " ".join(generator.choices(WORDS, k=tokens))[:tokens]


def make_run(folder: Path, tokens: int) -> None:
    """A baby GPT, trained for one step."""
    (folder / "text.txt").write_text(text_of(50_000), encoding="utf-8")
    words = (
        f"train gpt {folder / 'text.txt'} --tokenizer byte --layers 6 --heads 6 --width 96 --context {tokens + 1} "
        f"--budget 1steps --batch-size 4 --sequence-length 64 --evaluations 1 --device cpu "
        f"--out {folder / 'runs' / 'gpt'}"
    )
    run_command(octavo_command(*words.split()))


def drag(page: Any, seconds: float) -> tuple[list[float], int]:
    """Milliseconds of each frame while a pointer drags the map back and forth, and how often it was drawn."""
    page.evaluate("document.querySelector('.matrix canvas').scrollIntoView({ block: 'center' })")
    box = page.locator(".matrix canvas").bounding_box()
    x, y = box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.8
    page.mouse.move(x, y)
    page.mouse.down()
    result = page.evaluate(PAN, [x, y, 1000 * seconds])
    page.mouse.up()
    return [after - before for before, after in pairwise(result["times"])], result["drawn"]


def measure(page: Any, name: str, seconds: float) -> None:
    frames, drawn = drag(page, seconds)
    if not drawn:
        sys.exit("the map did not move")
    frames.sort()
    rate = 1000 * len(frames) / sum(frames)
    limits = statistics.median(frames), frames[int(0.95 * len(frames))], frames[-1]
    print_row(name, len(frames), drawn, f"{rate:.0f}", *(f"{value:.0f}" for value in limits))


def measure_page(address: str, tokens: int, seconds: float) -> None:
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        began = time.monotonic()
        page.goto(f"{address}#/inspect?run=gpt&text={quote(text_of(tokens))}")
        page.wait_for_selector(".matrix canvas", timeout=60_000)
        while not page.evaluate(DRAWN):
            page.wait_for_timeout(10)
        print(f"first map of {tokens:,} tokens after {time.monotonic() - began:.1f} s, the page and the model included")
        print(f"load average {os.getloadavg()[0]:.1f}, no GPU used\n")
        print_header("cells", "frames", "drawn", "frames/s", "median frame, ms", "p95, ms", "worst frame, ms")
        page.wait_for_selector(".heads button:nth-child(36)", timeout=60_000)  # nothing else is being computed
        for name, presses in (("small", 3), ("with tokens beside them", 6)):
            for _ in range(presses):
                page.get_by_label("Zoom in").click()
            measure(page, name, seconds)
        browser.close()


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--tokens", type=int, default=1000)
    arguments.add_argument("--seconds", type=float, default=3.0)
    args = arguments.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_run(folder, args.tokens)
        with run_studio(folder / "runs") as (_, address):
            measure_page(address, args.tokens, args.seconds)


if __name__ == "__main__":
    main()
