"""The studio: lists and reads in folders of up to 5,000 runs, texts annotated for one reader and for 50 at once.

    python benchmarks/bench_studio.py                     (about 15 minutes; the whole machine should be idle)
    python benchmarks/bench_studio.py --seconds 5 --run-counts 50 200           (a quick try)
    python benchmarks/bench_studio.py --runs FOLDER       (store the models there, for the next time)
    python benchmarks/bench_studio.py --json              (the rows as JSON)

The server is a process of its own, started as a user starts it. Small models annotate texts: a 7-gram over characters
with Kneser-Ney smoothing, a GRU and a GPT of the default sizes; the baby GPT (width 384, 6 layers, 6 heads, context
256) is read by one reader alone. All are trained on tiny Shakespeare; the networks only for a moment, which changes no
time. Every reader sends 500 characters of the last tenth of the text, from a random position, and takes the whole
response. 50 readers send the next text at once, or after a pause, as people do who look at what they got. Folders of
many runs are made of hard links to the small models' files; each has a record of its own.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from measure import octavo_command, parser, print_header, print_machine, print_row, run_command, run_studio
from octavo.datasets.sources import where

CHARACTERS = 500
REPEATS, WARM_UP = 40, 5
CLIENTS, PAUSE_SECONDS = 50, 2.0
RUN_COUNTS = (200, 600, 5000)
SETTLED_SECONDS = 3  # after which the index trusts what it has seen of new files
LIST_GOAL, LOOK_UP_GOAL, LOAD_GOAL = 300.0, 100.0, 400.0  # milliseconds
ALONE_GOALS = {"baby": 150.0, "kn7": 30.0}  # milliseconds, on two idle cores
SHORT = "--budget 3steps --evaluations 1 --device cpu"
SMALL = {
    "kn7": "train ngram shakespeare --order 7 --tokenizer char",
    "gru": f"train gru shakespeare --tokenizer char {SHORT}",
    "gpt": f"train gpt shakespeare --tokenizer char {SHORT}",
}
MODELS = SMALL | {
    "baby": "train gpt shakespeare --width 384 --layers 6 --heads 6 --context 256 --tokenizer char --batch-size 4 "
    f"--sequence-length 64 {SHORT}",
}
JSON_HEADERS = {"content-type": "application/json"}


class Row(NamedTuple):
    """One line of the table; times in milliseconds."""

    what: str
    requests: int
    median: float
    p95: float
    p99: float
    goal: float | None = None
    errors: int = 0
    megabytes: tuple[float, float, float] | None = None  # resident: before, after, second half's maximum less the first
    processor: float | None = None  # of the server a request, which says more than the rest where others compute too


class Table:
    """Prints rows as they come, or all of them as JSON at the end."""

    def __init__(self, as_json: bool) -> None:
        self.as_json, self.rows = as_json, list[Row]()
        if not as_json:
            print_machine()
            print_header("", "requests", "median, ms", "p95, ms", "p99, ms", "goal, ms", "errors", "resident, MB",
                         "processor, ms")  # fmt: skip

    def add(self, what: str, times: Sequence[float], goal: float | None = None, **more: Any) -> Row:
        cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else [*times, 0.0] * 99
        row = Row(what, len(times), statistics.median(times) if times else 0.0, cuts[94], cuts[98], goal, **more)
        self.rows.append(row)
        if not self.as_json:
            memory = "{:.0f} to {:.0f}, {:+.0f} late".format(*row.megabytes) if row.megabytes else ""
            print_row(what, row.requests, *(f"{value:.1f}" for value in row[2:5]), goal or "", row.errors, memory,
                      "" if row.processor is None else f"{row.processor:.1f}")  # fmt: skip
        return row

    def close(self) -> None:
        if self.as_json:
            print(json.dumps([row._asdict() for row in self.rows], indent=1))
        if any(row.errors for row in self.rows):
            sys.exit(1)


class Server(NamedTuple):
    """A running studio."""

    process: subprocess.Popen[str]
    port: int


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=600, help="duration of the longest load test")
    arguments.add_argument("--clients", type=int, default=CLIENTS)
    arguments.add_argument("--run-counts", type=int, nargs="*", default=RUN_COUNTS, help="runs in a folder")
    arguments.add_argument("--runs", type=Path, help="where the models are stored")
    arguments.add_argument("--json", action="store_true", help="print the rows as JSON")
    args = arguments.parse_args()
    text = validation_text()
    with tempfile.TemporaryDirectory(dir=args.runs.parent if args.runs else None) as folder:
        runs = args.runs or Path(folder) / "runs"
        make_models(runs)
        table = Table(args.json)
        with served(runs) as server:
            own = {name: measure_alone(table, server, name, text) for name in MODELS}
        for count in args.run_counts:
            many = Path(folder) / f"{count}"
            make_folder(many, runs, count)
            with served(many) as server:
                measure_folder(table, server, count, text, own["kn7"])
            shutil.rmtree(many)
        with served(runs) as server:
            for name in SMALL:
                measure_load(table, server, text, [name], args.clients, args.seconds / 20)
            measure_load(table, server, text, list(SMALL), args.clients, args.seconds / 20)
            measure_load(table, server, text, list(SMALL), args.clients, args.seconds, PAUSE_SECONDS)
        table.close()


def make_models(runs: Path) -> None:
    """Train the models that do not exist yet."""
    for name, words in MODELS.items():
        if not (runs / name / "config.json").exists():
            run_command(octavo_command(*words.split(), "--out", runs / name))


def make_folder(many: Path, runs: Path, count: int) -> None:
    """A folder of so many runs, which share the files of the small models but for their records."""
    for number in range(count):
        name = list(SMALL)[number % len(SMALL)]
        for source in sorted((runs / name).rglob("*")):
            target = many / f"{name}-{number:05}" / source.relative_to(runs / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file():
                shutil.copy(source, target) if source.name == "config.json" else os.link(source, target)
    time.sleep(SETTLED_SECONDS)


def validation_text() -> str:
    path = where("shakespeare")
    if path is None:
        sys.exit("this benchmark reads tiny Shakespeare, which is not installed: octavo data get shakespeare")
    text = Path(path).read_text(encoding="utf-8")
    return text[len(text) * 9 // 10 :]


@contextmanager
def served(runs: Path) -> Iterator[Server]:
    """Start the studio and load its first page."""
    with run_studio(runs) as (process, address):
        port = urlsplit(address).port
        assert port is not None
        server = Server(process, port)
        client = Client(server, "", 0)
        for path in ("/", "/web/style.css", "/web/main.js", "/web/pages/runs.js"):
            client.get(path)
        yield server


class Client:
    """Sends one request after the other over one connection."""

    def __init__(self, server: Server, text: str, seed: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        self.text, self.random = text, random.Random(seed)

    def get(self, path: str) -> float:
        """Milliseconds from the request to the last byte of the response."""
        return self._time("GET", path)[0]

    def annotate(self, name: str) -> float:
        """Milliseconds of a request that has a text annotated."""
        start = self.random.randrange(len(self.text) - CHARACTERS)
        body = json.dumps({"run": name, "text": self.text[start : start + CHARACTERS]})
        milliseconds, content = self._time("POST", "/api/read", body)
        if f'"tokens":{CHARACTERS}'.encode() not in content[:40]:
            raise RuntimeError(f"some tokens are missing: {content[:80]!r}")
        return milliseconds

    def _time(self, method: str, path: str, body: str | None = None) -> tuple[float, bytes]:
        began = time.perf_counter()
        self.connection.request(method, path, body, JSON_HEADERS if body else {})
        response = self.connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: status {response.status}: {content[:200]!r}")
        return 1e3 * (time.perf_counter() - began), content


def repeat(ask: Callable[[], float], repeats: int = REPEATS) -> list[float]:
    for _ in range(WARM_UP):
        ask()
    return [ask() for _ in range(repeats)]


def measure_alone(table: Table, server: Server, name: str, text: str) -> float:
    """One reader alone; the first request, which loads the model, is a row of its own."""
    client = Client(server, text, 0)
    table.add(f"{name}: first request, which loads it", [client.annotate(name)])
    return table.add(f"{name}: one reader", repeat(lambda: client.annotate(name)), ALONE_GOALS.get(name)).median


def measure_folder(table: Table, server: Server, count: int, text: str, own: float) -> None:
    """The list of a folder's runs, and requests about one or two of them."""
    client, runs = Client(server, text, 0), f"{count:,} runs"
    table.add(f"{runs}: first list, which reads every record", [client.get("/api/runs")])
    table.add(f"{runs}: list", repeat(lambda: client.get("/api/runs"), REPEATS // 2), LIST_GOAL)
    table.add(f"{runs}: read by the 7-gram", repeat(lambda: client.annotate("kn7-00000")), round(own + LOOK_UP_GOAL))
    table.add(f"{runs}: curve of one", repeat(lambda: client.get("/api/curve?run=gru-00001")), LOOK_UP_GOAL)
    table.add(f"{runs}: two compared", repeat(lambda: client.get("/api/compare?run=gru-00001&run=kn7-00000")),
              LOOK_UP_GOAL)  # fmt: skip


def measure_load(
    table: Table, server: Server, text: str, names: Sequence[str], clients: int, seconds: float, pause: float = 0.0
) -> None:
    """Many readers, each with one of the models; each sends its next text some time after it has its response."""
    times: dict[str, list[float]] = {name: [] for name in names}
    errors: list[str] = []
    for name in names:
        Client(server, text, 0).annotate(name)  # which loads it
    memory, before, ends = [resident(server)], processor_seconds(server), time.perf_counter() + seconds

    def send_requests(number: int) -> None:
        client, name = Client(server, text, number), names[number % len(names)]
        while time.perf_counter() < ends:
            try:
                times[name].append(client.annotate(name))
            except Exception as error:  # each is counted, whatever it is
                errors.append(f"{type(error).__name__}: {error}")
                client = Client(server, text, number)
            time.sleep(pause * client.random.uniform(0.5, 1.5))

    threads = [threading.Thread(target=send_requests, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1.0, seconds / 10))
        memory.append(resident(server))
    half = len(memory) // 2
    every = [value for values in times.values() for value in values]
    about: dict[str, Any] = {
        "errors": len(errors), "processor": 1e3 * (processor_seconds(server) - before) / max(1, len(every)),
        "megabytes": (memory[0], memory[-1], max(memory[half:]) - max(memory[:half])),
    }  # fmt: skip
    who = f"{clients} readers, " + (f"pauses of {pause:g} s" if pause else "no pauses") + f", {seconds:g} s"
    if len(names) > 1:
        for name in names:
            table.add(f"{who}: {name} of {', '.join(names)}", times[name])
    table.add(f"{who}: {', '.join(names)}", every, LOAD_GOAL, **about)
    for error in sorted(set(errors))[:5]:
        print(f"  {error}", file=sys.stderr)


def processor_seconds(server: Server) -> float:
    """Processor time that the server's process has taken; 0 where the system does not say."""
    stat = Path(f"/proc/{server.process.pid}/stat")
    if not stat.exists():
        return 0.0
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def resident(server: Server) -> float:
    """Resident memory of the server's process, in megabytes."""
    statm = Path(f"/proc/{server.process.pid}/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    command = ["ps", "-o", "rss=", "-p", str(server.process.pid)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024 / 1e6


if __name__ == "__main__":
    main()
