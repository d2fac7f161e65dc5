"""The studio under load: time to the first page, time to annotate a text, and 50 clients at the same time.

    python benchmarks/bench_studio.py                     (about two minutes; the whole machine should be idle)
    python benchmarks/bench_studio.py --seconds 5         (a quick try)
    python benchmarks/bench_studio.py --runs FOLDER       (store the two models there, for the next time)

The server is a process of its own, started as a user starts it. Two models annotate texts: a 7-gram over characters
with Kneser-Ney smoothing, and the baby GPT (width 384, 6 layers, 6 heads, context 256, characters), both trained on
tiny Shakespeare; the GPT's training is cut short, which changes no time. Every client sends 500 characters of the last
tenth of the text, from a random position, and reads the whole response.
"""

from __future__ import annotations

import http.client
import json
import math
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
from urllib.parse import urlsplit

from measure import octavo_command, parser, print_header, print_machine, print_row, run_command, run_studio
from octavo.datasets.sources import where

CHARACTERS = 500
GOALS = {"baby": 150.0, "kn7": 30.0}  # milliseconds of one client's request, on two idle cores
REPEATS, WARM_UP = 40, 5
CLIENTS = 50
MODELS = {
    "kn7": "train ngram shakespeare --order 7 --tokenizer char",
    "baby": "train gpt shakespeare --width 384 --layers 6 --heads 6 --context 256 --tokenizer char --budget 3steps "
    "--batch-size 4 --sequence-length 64 --evaluations 1 --device cpu",
}


class Server(NamedTuple):
    """A running studio."""

    process: subprocess.Popen[str]
    port: int
    up: float  # seconds from the process's start to the first page
    page: float  # seconds that the first page took, once the server was up


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=60, help="duration of the load test")
    arguments.add_argument("--clients", type=int, default=CLIENTS)
    arguments.add_argument("--runs", type=Path, help="where the models are stored")
    args = arguments.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        runs = args.runs or Path(folder)
        make_models(runs)
        text = validation_text()
        with served(runs) as server:
            print(
                f"first page {server.up:.2f} s after the process started, {1e3 * server.page:.0f} ms after it was up\n"
            )
            print_header("", "requests", "median, ms", "p95, ms", "least, ms", "goal, ms")
            for name in MODELS:
                measure_alone(server, name, text)
            measure_load(server, text, args.clients, args.seconds)


def make_models(runs: Path) -> None:
    """Train the models that do not exist yet."""
    for name, words in MODELS.items():
        if not (runs / name / "config.json").exists():
            run_command(octavo_command(*words.split(), "--out", runs / name))


def validation_text() -> str:
    path = where("shakespeare")
    if path is None:
        sys.exit("this benchmark reads tiny Shakespeare, which is not installed: octavo data fetch shakespeare")
    text = Path(path).read_text(encoding="utf-8")
    return text[len(text) * 9 // 10 :]


@contextmanager
def served(runs: Path) -> Iterator[Server]:
    """Start the studio and load its first page."""
    began = time.perf_counter()
    with run_studio(runs) as (process, address):
        up = time.perf_counter()
        port = urlsplit(address).port
        assert port is not None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for path in ("/", "/web/style.css", "/web/main.js", "/web/pages/runs.js", "/api/runs"):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                sys.exit(f"{path} was answered with status {response.status}")
        now = time.perf_counter()
        connection.close()
        yield Server(process, port, now - began, now - up)


class Client:
    """Sends one text after the other over one connection."""

    def __init__(self, server: Server, text: str, seed: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        self.text, self.random = text, random.Random(seed)

    def annotate(self, name: str) -> float:
        """Milliseconds from the request to the last byte of the response."""
        start = self.random.randrange(len(self.text) - CHARACTERS)
        body = json.dumps({"run": name, "text": self.text[start : start + CHARACTERS]})
        began = time.perf_counter()
        self.connection.request("POST", "/api/read", body, {"content-type": "application/json"})
        response = self.connection.getresponse()
        content = response.read()
        milliseconds = 1e3 * (time.perf_counter() - began)
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {content[:200]!r}")
        if len(json.loads(content)["tokens"]) != CHARACTERS:
            raise RuntimeError("some tokens are missing")
        return milliseconds


def measure_alone(server: Server, name: str, text: str) -> None:
    """One client alone; its first request, which loads the model, is a row of its own."""
    client = Client(server, text, 0)
    print_times(f"{name}, first request", [client.annotate(name)])
    for _ in range(WARM_UP):
        client.annotate(name)
    print_times(f"{name}, one client", [client.annotate(name) for _ in range(REPEATS)], f"{GOALS[name]:g}")


def measure_load(server: Server, text: str, clients: int, seconds: float) -> None:
    """Many clients, half with each model; each sends its next request when it has its response."""
    times: dict[str, list[float]] = {name: [] for name in MODELS}
    errors: list[str] = []
    memory = [resident(server)]
    ends = time.perf_counter() + seconds

    def send_requests(number: int) -> None:
        client, name = Client(server, text, number), list(MODELS)[number % len(MODELS)]
        while time.perf_counter() < ends:
            try:
                times[name].append(client.annotate(name))
            except Exception as error:  # each is counted, whatever it is
                errors.append(f"{type(error).__name__}: {error}")
                client = Client(server, text, number)

    threads = [threading.Thread(target=send_requests, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1.0, seconds / 10))
        memory.append(resident(server))
    for name, values in times.items():
        print_times(f"{name}, {clients} clients", values)
    every = [value for values in times.values() for value in values]
    print_times(f"both, {clients} clients", every)
    half = len(memory) // 2
    print(f"\n{clients} clients for {seconds:g} s: {len(every) / seconds:.1f} responses/s, {len(errors)} errors; "
          f"resident memory {memory[0]:.0f} MB before, {max(memory):.0f} MB at most, {memory[-1]:.0f} MB after; "
          f"second half's maximum less the first's {max(memory[half:]) - max(memory[:half]):+.0f} MB")  # fmt: skip
    for error in sorted(set(errors))[:5]:
        print(f"  {error}")
    if errors:
        sys.exit(1)


def print_times(title: str, times: list[float], goal: str = "") -> None:
    """Of requests; a median and the 95th percentile, as usual for latencies."""
    p95 = f"{statistics.quantiles(times, n=20)[-1]:.1f}" if len(times) > 1 else ""
    print_row(title, len(times), f"{statistics.median(times):.1f}" if times else "", p95,
              f"{min(times, default=math.nan):.1f}", goal)  # fmt: skip


def resident(server: Server) -> float:
    """Resident memory of the server's process, in megabytes."""
    statm = Path(f"/proc/{server.process.pid}/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    command = ["ps", "-o", "rss=", "-p", str(server.process.pid)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024 / 1e6


if __name__ == "__main__":
    main()
