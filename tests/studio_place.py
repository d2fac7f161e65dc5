"""A folder with a tiny run of every family, a studio that serves it, and a browser that looks at it.

    @pytest.fixture(scope="module")
    def runs(tmp_path_factory): return make_runs(tmp_path_factory.mktemp("runs"), "kn", "gru")

Each name is made by one command line; a test module asks for those that it needs.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.testclient import TestClient

from conftest import chromium
from octavo.cli import main
from octavo.studio import ModelCache, Studio, make_app

TEXT = "The cat sat on the mat. A dog lay by the door! Did the bird sing? It sang all day long.\n" * 60
STEPS = "--tokenizer char --budget 12steps --batch 8 --window 32 --checks 1 --device cpu --seed 1"
SMALL = f"{STEPS} --width 16"
SIGHT = "--width 16 --layers 2 --heads 2 --patch 4 --budget 6steps --checks 1 --device cpu"
GPT = f"{SMALL} --layers 2 --heads 2 --context 64"
FLAGS = ["--no-sandbox", "--disable-gpu"]  # of Chromium, where there is no user of its own
PEOPLE = "Ada Ash,Bob Elm,Cleo Fir,Dan Oak,Eve Yew,Finn Bay,Gus Fig,Hal Ivy,Ida Nut,Jon Rye,Kim Sap,Leo Tea".split(",")
PLACES = ("Paris", "Rome", "Oslo")
MADE: dict[str, str] = {  # {t}: where the texts lie
    "kn": "train ngram {t}/text.txt --order 5 --tokenizer char",
    "words": "train ngram {t}/text.txt --order 3 --tokenizer word",
    "bag": "train bag {t}/text.txt --tokenizer char",
    "bigram": "train bigram {t}/text.txt --tokenizer char --steps 5",
    "rnn": f"train rnn {{t}}/text.txt {SMALL}",
    "gru": f"train gru {{t}}/text.txt {SMALL} --layers 2",
    "lstm": f"train lstm {{t}}/text.txt {SMALL}",
    "looking": f"train rnn-attention {{t}}/text.txt {SMALL}",
    "gpt": f"train gpt {{t}}/text.txt {GPT}",
    "linear": f"train linear {{t}}/text.txt {GPT}",
    "dense": f"train synthesizer {{t}}/text.txt {GPT}",
    "mixed": "train mix {t}/text.txt --parts {r}/kn {r}/bag",
    "counting": "train ngram {t}/text.txt --adaptive --order 4 --tokenizer char",
    "weighing": "train mix {t}/text.txt --adaptive --parts {r}/counting {r}/gru",
    "moods": "classify train linear {t}/moods.tsv",
    "averaged": "classify train dan {t}/moods.tsv --epochs 2",
    "tags": "tag train tagger {t}/tags.tsv --width 8 --epochs 2 --device cpu",
    "single": "tag train tagger {t}/tags.tsv --width 8 --epochs 2 --no-crf --device cpu",
    "stripes": f"train vit {{t}}/stripes {SIGHT}",
    "stripes2": f"train davit {{t}}/stripes {SIGHT}",
    "reverse": "train seq2seq {t}/words.tsv --width 16 --layers 1 --heads 2 --size 300 --budget 20steps --checks 1 "
               "--device cpu",
    "masked": "train bert {t}/text.txt --width 16 --layers 2 --heads 2 --feed-forward-width 32 --context 32 "
              "--budget 6steps --batch 4 --size 120 --checks 1 --device cpu",
    "facts": "train facts {t}/people --pretrain-passes 4 --pretrain-batch 12 --passes 4 --batch 8 --width 16 "
             "--layers 2 --heads 2 --context 96 --device cpu",
}  # fmt: skip


def make_runs(root: Path, *names: str) -> Path:
    """Runs of these names below `root`; the texts they learn from lie beside it."""
    texts = root.parent / f"{root.name}-texts"
    write_texts(texts)
    for name in names:
        words = MADE[name].format(t=texts, r=root).split()
        assert main([*words, "--out", str(root / name)]) == 0, name
    return root


def write_texts(folder: Path) -> None:
    """What the runs learn from."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    luck = random.Random(0)
    moods = {"good": "fine warm bright sweet happy".split(), "bad": "cold dull sour grim sad".split()}
    plain = "the film was a day with some dog and cat not very".split()
    rows = [(mood, " ".join([*luck.choices(plain, k=4), luck.choice(moods[mood]), *luck.choices(plain, k=2)]))
            for mood in ("good", "bad") for _ in range(60)]  # fmt: skip
    luck.shuffle(rows)
    (folder / "moods.tsv").write_text("".join(f"{mood}\t{text}\n" for mood, text in rows), encoding="utf-8")
    nouns, verbs = "dog cat day film".split(), "sees hears likes".split()
    tagged = [[("the", "DET"), (luck.choice(nouns), "NOUN"), (luck.choice(verbs), "VERB"), ("a", "DET"),
               (luck.choice(nouns), "NOUN")] for _ in range(60)]  # fmt: skip
    lines = ["".join(f"{word}\t{tag}\n" for word, tag in one) for one in tagged]
    (folder / "tags.tsv").write_text("\n".join(lines), encoding="utf-8")
    words = sorted({"".join(luck.choices("abcdefgh", k=luck.randint(2, 5))) for _ in range(300)})
    (folder / "words.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words), encoding="utf-8")
    _write_pictures(folder / "stripes")
    _write_people(folder / "people")


def _write_pictures(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    luck = random.Random(1)
    for n in range(40):
        kind, line = ("lying", "standing")[n % 2], luck.randrange(8)
        x_HW = np.zeros((8, 8), np.uint8)
        x_HW[line if n % 2 == 0 else slice(None), slice(None) if n % 2 == 0 else line] = 255
        path = folder / kind / f"{n:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x_HW).save(path)


def _write_people(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    born = [(name, PLACES[n % 3]) for n, name in enumerate(PEOPLE)]
    (folder / "text.txt").write_text("\n".join(f"{name} was born in {place} ." for name, place in born))
    asked = [f"Where was {name} born?\t{place}" for name, place in born]
    (folder / "train.tsv").write_text("\n".join(asked[:8]))
    (folder / "dev.tsv").write_text("\n".join(asked[8:]))


class Reader(Request):
    """A request of somebody who leaves when `left` is set."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        super().__init__({"type": "http", "client": (address, 1)}, self._wait)
        self.left = asyncio.Event()

    async def _wait(self) -> dict[str, str]:
        await self.left.wait()
        return {"type": "http.disconnect"}


async def ask_and_leave(app: Any, path: str, body: bytes = b"", left: asyncio.Event | None = None, **about: Any) -> Any:
    """The first message of the answer to a client that leaves when `left` is set, or at once; None where none came."""
    messages, sent = [{"type": "http.request", "body": body, "more_body": False}], list[Any]()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await (asyncio.sleep(0.05) if left is None else left.wait())
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), *about.pop("headers", [])]
    await app(
        {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http",
         "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "state": {},
         "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 1), "headers": headers, **about}, receive, send,
    )  # fmt: skip
    return sent[0] if sent else None


def client(root: Path, **settings: Any) -> TestClient:
    """Asks a studio without a network; its address is localhost."""
    return TestClient(make_app(Studio(ModelCache(root, device="cpu")), **settings), base_url="http://localhost")


@contextmanager
def served(root: Path, **settings: Any) -> Iterator[str]:
    """The address of a studio that serves the folder."""
    studio = Studio(ModelCache(root, device="cpu"))
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    server = uvicorn.Server(uvicorn.Config(make_app(studio, **settings), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        studio.close()


@contextmanager
def opened(address: str, **settings: Any) -> Iterator[Any]:
    """A page of a browser; where it ends, nothing may have gone wrong in it and nothing may have left the host."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(**{"viewport": {"width": 1100, "height": 900}} | settings)
        page.set_default_timeout(15_000)
        wrong: list[str] = []
        page.on("console", lambda reply: wrong.append(reply.text) if reply.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: wrong.append(f"left the host: {asked.url}")
                if not asked.url.startswith((address, "data:", "blob:")) else None)  # fmt: skip
        page.goto(address)
        yield page
        browser.close()
        assert not wrong


def go(page: Any, view: str) -> None:
    """Open a page of the studio anew, whatever was open."""
    page.goto("about:blank")
    page.goto(f"{page.address}/#/{view}")
