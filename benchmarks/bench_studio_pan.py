"""How smoothly the studio's attention matrix of 1,000 tokens moves in Chromium.

python benchmarks/bench_studio_pan.py [--tokens 1000] [--seconds 3]

A transformer of 6 layers and 6 heads reads a text of that many bytes; it is hardly trained, as how fast a map is drawn
does not depend on what is in it. A pressed pointer moves the map to and fro, a step each frame, so that every frame
must be drawn anew; frames are those that the browser shows, counted by requestAnimationFrame. Once with small cells,
once with cells that have their tokens beside them. The time from opening the page to the first map is reply, too.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from measure import octavo

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
    luck = random.Random(0)
    return " ".join(luck.choices(WORDS, k=tokens))[:tokens]


def make_run(folder: Path, tokens: int) -> None:
    """A baby GPT, hardly trained."""
    (folder / "text.txt").write_text(text_of(50_000), encoding="utf-8")
    words = (
        f"train gpt {folder / 'text.txt'} --tokenizer byte --layers 6 --heads 6 --width 96 --context {tokens + 1} "
        f"--budget 1steps --batch 4 --window 64 --checks 1 --device cpu --out {folder / 'runs' / 'gpt'}"
    )
    subprocess.run(octavo(*words.split()), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def drag(page: Any, seconds: float) -> tuple[list[float], int]:
    """Milliseconds of each frame while a pointer drags the map to and fro, and how often it was drawn."""
    page.evaluate("document.querySelector('.matrix canvas').scrollIntoView({ block: 'center' })")
    box = page.locator(".matrix canvas").bounding_box()
    x, y = box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.8
    page.mouse.move(x, y)
    page.mouse.down()
    found = page.evaluate(PAN, [x, y, 1000 * seconds])
    page.mouse.up()
    return [after - before for before, after in pairwise(found["times"])], found["drawn"]


def measure(page: Any, name: str, seconds: float) -> None:
    took, drawn = drag(page, seconds)
    if not drawn:
        sys.exit("the map did not move")
    took.sort()
    rate, most = 1000 / statistics.median(took), took[int(0.95 * len(took))]
    reply = f"{len(took)} | {drawn} | {1000 * len(took) / sum(took):.0f} | {rate:.0f} | {most:.0f} | {took[-1]:.0f}"
    print(f"| {name} | {reply} |", flush=True)


def look(address: str, tokens: int, seconds: float) -> None:
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        began = time.monotonic()
        page.goto(f"{address}#/inspect?run=gpt&text={quote(text_of(tokens))}")
        page.wait_for_selector(".matrix canvas", timeout=60_000)
        while not page.evaluate(DRAWN):
            page.wait_for_timeout(10)
        print(f"first map of {tokens:,} tokens after {time.monotonic() - began:.1f} s, the page and the model included")
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, no GPU used")
        print("| cells | frames | drawn | frames a second | by the median frame | 95 % within, ms | worst frame, ms |")
        print("|---|---|---|---|---|---|---|")
        page.wait_for_selector(".heads button:nth-child(36)", timeout=60_000)  # nothing else is being computed
        for name, presses in (("small", 3), ("with tokens beside them", 6)):
            for _ in range(presses):
                page.get_by_label("Zoom in").click()
            measure(page, name, seconds)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make_run(folder, given.tokens)
        command = [*octavo("studio", str(folder / "runs"), "--no-browser", "--device", "cpu")]
        studio = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
        try:
            assert studio.stdout is not None
            line = studio.stdout.readline()
            if " at " not in line:
                sys.exit(f"the studio did not start: {line}")
            look(line.rsplit(" at ", 1)[1].strip(), given.tokens, given.seconds)
        finally:
            studio.terminate()
            studio.wait(10)


if __name__ == "__main__":
    main()
