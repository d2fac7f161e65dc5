"""The studio as a reader meets it: how soon it is there, how fast a text is read, and what 50 readers at once do to it.

    python benchmarks/bench_studio.py                     (about two minutes; the whole machine should be idle)
    python benchmarks/bench_studio.py --seconds 5         (a quick try)
    python benchmarks/bench_studio.py --runs FOLDER       (keep the two models there, and find them there again)

The server is a process of its own, started as a user starts it. Two models are read with: a 7-gram over characters
with Kneser-Ney smoothing, and the baby GPT (width 384, 6 layers, 6 heads, context 256, characters), both trained on
Tiny Shakespeare; the GPT's training is cut short, which changes no time. Every reader sends 500 characters of the last
tenth of the text, at a place of its own, and takes the whole answer; a text is never sent twice in a row.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from measure import octavo, run
from octavo.datasets.sources import where

CHARACTERS = 500
GOALS = {"baby": 150.0, "kn7": 30.0}  # milliseconds of one reader's answer, on two idle cores
REPEATS, WARM_UP = 40, 5
READERS = 50
TRAINED = {
    "kn7": "train ngram shakespeare --order 7 --tokenizer char",
    "baby": "train gpt shakespeare --width 384 --layers 6 --heads 6 --context 256 --tokenizer char --budget 3steps "
    "--batch 4 --window 64 --checks 1 --device cpu",
}


class Server(NamedTuple):
    """A studio that runs."""

    process: subprocess.Popen[str]
    port: int
    up: float  # seconds from the process's start to the first page
    page: float  # seconds that the first page took, once the server was up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long the readers read")
    parser.add_argument("--readers", type=int, default=READERS)
    parser.add_argument("--runs", type=Path, help="where the models are kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = args.runs or Path(folder)
        make_models(runs)
        text = held_out()
        with served(runs) as server:
            print(f"first page {server.up:.2f} s after the process began, {1e3 * server.page:.0f} ms of these its own")
            for name in TRAINED:
                alone(server, name, text)
            crowd(server, text, args.readers, args.seconds)


def make_models(runs: Path) -> None:
    """Train what is not there yet."""
    for name, words in TRAINED.items():
        if not (runs / name / "config.json").exists():
            run(octavo(*words.split(), "--out", runs / name))


def held_out() -> str:
    path = where("shakespeare")
    if path is None:
        sys.exit("this benchmark reads Tiny Shakespeare, which is not here: octavo data fetch shakespeare")
    text = Path(path).read_text(encoding="utf-8")
    return text[len(text) * 9 // 10 :]


@contextmanager
def served(runs: Path) -> Iterator[Server]:
    """Start the studio; its port is the one that it prints."""
    began = time.perf_counter()
    words = octavo("studio", runs, "--no-browser", "--device", "cpu")
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "http://" not in line:
            sys.exit("the studio did not start")
        port = int(line.rsplit(":", 1)[1].strip().rstrip("/"))
        asked = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for path in ("/", "/web/style.css", "/web/main.js", "/web/pages/runs.js", "/api/runs"):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                sys.exit(f"{path} was answered with status {answer.status}")
        now = time.perf_counter()
        connection.close()
        yield Server(process, port, now - began, now - asked)
    finally:
        process.terminate()
        process.wait(20)


class Reader:
    """One who reads on, over one connection."""

    def __init__(self, server: Server, text: str, seed: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        self.text, self.luck = text, random.Random(seed)

    def read(self, name: str) -> float:
        """Milliseconds from the question to the last byte of the answer."""
        start = self.luck.randrange(len(self.text) - CHARACTERS)
        body = json.dumps({"run": name, "text": self.text[start : start + CHARACTERS]})
        began = time.perf_counter()
        self.connection.request("POST", "/api/read", body, {"content-type": "application/json"})
        answer = self.connection.getresponse()
        reply = answer.read()
        took = 1e3 * (time.perf_counter() - began)
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {reply[:200]!r}")
        if len(json.loads(reply)["tokens"]) != CHARACTERS:
            raise RuntimeError("some tokens are missing")
        return took


def alone(server: Server, name: str, text: str) -> None:
    """One reader and nobody else."""
    reader = Reader(server, text, 0)
    began = time.perf_counter()
    reader.read(name)
    first = time.perf_counter() - began
    for _ in range(WARM_UP):
        reader.read(name)
    times = [reader.read(name) for _ in range(REPEATS)]
    print(f"{name}: {CHARACTERS} tokens read in {post_json(times)} (goal {GOALS[name]:g} ms); the first time, "
          f"when the model is read from disk, {first:.2f} s")  # fmt: skip


def crowd(server: Server, text: str, readers: int, seconds: float) -> None:
    """Many readers at once, half with each model; each asks again when it has its answer."""
    times: dict[str, list[float]] = {name: [] for name in TRAINED}
    errors: list[str] = []
    memory = [resident(server)]
    ends = time.perf_counter() + seconds

    def read_on(number: int) -> None:
        reader, name = Reader(server, text, number), list(TRAINED)[number % len(TRAINED)]
        while time.perf_counter() < ends:
            try:
                times[name].append(reader.read(name))
            except Exception as error:  # each is counted, whatever it is
                errors.append(f"{type(error).__name__}: {error}")
                reader = Reader(server, text, number)

    threads = [threading.Thread(target=read_on, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1.0, seconds / 10))
        memory.append(resident(server))
    every = [one for some in times.values() for one in some]
    print(f"{readers} readers for {seconds:g} s: {len(every)} answers, {len(every) / seconds:.1f} a second, "
          f"{len(errors)} errors; {post_json(every)}")  # fmt: skip
    for name, some in times.items():
        print(f"  {name}: {len(some)} answers, {post_json(some)}")
    half = len(memory) // 2
    print(f"  resident memory {memory[0]:.0f} MB before, {max(memory):.0f} MB at most, {memory[-1]:.0f} MB after; "
          f"from the first half's most to the second's {max(memory[half:]) - max(memory[:half]):+.0f} MB")  # fmt: skip
    for error in sorted(set(errors))[:5]:
        print(f"  {error}")
    if errors:
        sys.exit(1)


def post_json(times: list[float]) -> str:
    if len(times) < 2:
        return "too few answers"
    twentieths = statistics.quantiles(times, n=20)
    return f"median {statistics.median(times):.1f} ms, p95 {twentieths[-1]:.1f} ms, least {min(times):.1f} ms"


def resident(server: Server) -> float:
    """Megabytes of the server's process that are in memory."""
    statm = Path(f"/proc/{server.process.pid}/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    reply = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(server.process.pid)], capture_output=True, text=True, check=True
    )
    return int(reply.stdout) * 1024 / 1e6


if __name__ == "__main__":
    main()
