"""Attacks over the network, all on loopback: hostile requests to a studio, hostile downloads from a mirror."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from torture.campaign import Attack, Outcome, Result

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90.0  # that a studio may take to answer for the first time
BATCH_REQUESTS = 1000  # of one trial
SCHEMA_EXAMPLES = 20  # requests that schemathesis makes up for each address and way of asking in one trial
DOWNLOAD_SECONDS = 90.0  # after which a download hangs
OTHER_TOOLS = {"RUSTUP_HOME": str(Path.home() / ".rustup")}  # pip asks for rustc's version, which writes into HOME
RUNS = {  # what the studio shows: one run of each task, in a second or two each
    "kn": "train ngram {t}/text.txt --order 3 --tokenizer char",
    "gru": "train gru {t}/text.txt --width 8 --layers 1 --budget 4steps --tokenizer char --device cpu",
    "gpt": "train gpt {t}/text.txt --width 16 --layers 2 --heads 2 --context 32 --budget 4steps --tokenizer char "
           "--device cpu",
    "moods": "classify train linear {t}/moods.tsv --bits 8",
    "reverse": "train seq2seq {t}/pairs.tsv --width 16 --layers 1 --heads 2 --vocab-size 280 --budget 4steps "
               "--device cpu",
    "masked": "train bert {t}/text.txt --width 16 --layers 1 --heads 2 --context 32 --budget 4steps --vocab-size 120 "
              "--device cpu",
}  # fmt: skip


def missing(*modules: str) -> str:
    """Which of the modules are not installed here, in one line; "" where all are."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"it needs {', '.join(lacking)}, which is not installed here" if lacking else ""


class StudioServer:
    """A studio in a process of its own, which the worker that started it keeps for all its trials."""

    def __init__(self, runs: Path, log: Path) -> None:
        self.runs = runs
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = ["studio", str(runs), "--port", str(self.port), "--no-browser", "--device", "cpu"]
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OCTAVO_DATA": str(runs.parent / "no-data"), "XDG_CACHE_HOME": str(runs.parent / "no-data"),
        }  # fmt: skip
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "octavo.cli", *words], env=environment, stdout=output, stderr=output
            )
        until = time.monotonic() + START_SECONDS
        while not self.is_open():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the studio does not start: {log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.1)

    def is_open(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@cache
def server_of(runs: Path, process: int) -> StudioServer:
    """The studio of this worker."""
    return StudioServer(runs, runs.parent / f"studio-{process}.log")


class StudioAttack(Attack):
    """Trials against a studio: each worker has one of its own."""

    unit = "requests"
    limit_s = 300.0
    cores = 1  # server and client wait for each other most of the time

    def setup_points(self) -> Sequence[Any]:
        return ["the runs of the studio"]

    def setup(self, place: Path, point: Any) -> None:
        from octavo.cli import main
        from torture.seeds import write_texts

        texts = place / "texts"
        texts.mkdir()
        (place / "no-data").mkdir()
        write_texts(texts)
        for name, words in RUNS.items():
            argv = [word.format(t=texts) for word in words.split()]
            if code := main([*argv, "--out", str(place / "runs" / name), "--quiet"]):
                raise RuntimeError(f"octavo {' '.join(argv)} ended with {code}")

    def server(self, place: Path) -> StudioServer:
        server = server_of(place / "runs", os.getpid())
        if server.process.poll() is not None:
            server_of.cache_clear()
            raise RuntimeError(f"the studio has ended with {server.process.returncode}")
        return server

    def log(self, place: Path) -> str:
        """What the studio printed of its own mistakes."""
        text = (place / f"studio-{os.getpid()}.log").read_text(errors="replace")
        at = text.find("Traceback (most recent call last)")
        return text[at : at + 3000] if at >= 0 else ""


class HostileRequests(StudioAttack):
    """Batches of hostile requests over raw sockets."""

    name, share = "studio-requests", 14.0
    title = "hostile requests to the studio: values, paths, headers, broken frames, clients that leave"

    def unavailable(self) -> str:
        return missing("fastapi", "uvicorn", "torture.studio_client")

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        for number in itertools.count(rng.randrange(1 << 40)):
            yield {"seed": number, "requests": BATCH_REQUESTS}

    def run(self, place: Path, point: Any, work: Path) -> Iterable[Result]:
        client = importlib.import_module("torture.studio_client")
        server = self.server(place)
        report = client.attack(server.port, point["seed"], point["requests"], server.process.pid, str(place))
        yield Result(count=max(0, report.requests - report.fault_count))
        for fault in report.faults:
            what, _, sent = fault.partition("; sent ")
            yield Result(
                Outcome.HANG if "TimeoutError" in fault else Outcome.OTHER, what[:1000], f"sent: {sent[:1000]}"
            )
        if printed := self.log(place):
            yield Result(Outcome.TRACEBACK, printed)


class SchemaRequests(StudioAttack):
    """Requests that schemathesis makes up from the studio's own description of its API."""

    name, share = "studio-schema", 1.0
    title = "requests that schemathesis makes up from the studio's OpenAPI description"

    def unavailable(self) -> str:
        return missing("fastapi", "uvicorn", "schemathesis", "hypothesis")

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        for number in itertools.count(rng.randrange(1 << 30)):
            yield {"seed": number}

    def run(self, place: Path, point: Any, work: Path) -> Iterable[Result]:
        import schemathesis
        from hypothesis import HealthCheck, given, seed, settings

        server = self.server(place)
        address = f"http://127.0.0.1:{server.port}"
        schema = schemathesis.openapi.from_url(f"{address}/api/openapi.json")
        operations: list[Any] = [found.ok() for found in schema.get_all_operations() if hasattr(found, "ok")]
        operation = operations[point["seed"] % len(operations)]
        takes = operation.body or operation.query or operation.path_parameters
        asked = 0
        for mode in schemathesis.GenerationMode if takes else [schemathesis.GenerationMode.POSITIVE]:

            @seed(point["seed"])
            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(max_examples=SCHEMA_EXAMPLES, deadline=None, database=None,
                      suppress_health_check=list(HealthCheck))  # fmt: skip
            def ask(case: Any) -> None:
                nonlocal asked
                asked += 1
                case.call_and_validate(base_url=address)

            try:
                ask()
            except Exception as error:
                yield Result(Outcome.OTHER, f"{operation.label}: {error}"[:1500])
        yield Result(count=asked)
        if printed := self.log(place):
            yield Result(Outcome.TRACEBACK, printed)


@cache
def malicious_mirror() -> Any:
    """The mirror of the tests."""
    sys.path.append(str(ROOT / "tests"))
    return importlib.import_module("malicious_mirror")


class MirrorAttack(Attack):
    """Downloads from a mirror that lies, never ends, or sends bombs."""

    name, title, limit_s, share = "mirror", "a malicious package index and file server for data get", 150.0, 1.0

    def unavailable(self) -> str:
        if not (ROOT / "tests" / "malicious_mirror.py").is_file():
            return "it needs tests/malicious_mirror.py, which an installed octavo does not have"
        return missing("pip")

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        found = [list(pair) for pair in malicious_mirror().attacks()]
        rng.shuffle(found)
        yield from found

    def run(self, place: Path, point: Any, work: Path) -> Iterable[Result]:
        attack, way = point
        cache, home = work / "cache", work / "home"
        home.mkdir()
        with malicious_mirror().MaliciousMirror() as mirror:
            words, environment = mirror.command(attack, way, cache)
            environment |= {"TMPDIR": str(home), "HOME": str(home), **OTHER_TOOLS}
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
        lines = done.stderr.splitlines()
        said = f"{attack} by {way}: "
        if "Traceback" in done.stderr:
            return [Result(Outcome.TRACEBACK, said + done.stderr[-1500:])]
        if done.returncode == 0:
            return [Result(Outcome.ACCEPTED, said + done.stdout[-300:])]
        if done.returncode != 2 or not lines or not lines[-1].startswith("octavo: "):
            return [Result(Outcome.OTHER, f"{said}exit code {done.returncode}: {done.stderr[-500:]}")]
        found = [path for folder in (cache, home) for path in folder.rglob("*") if path.is_file()]
        left = [
            str(path.relative_to(work)) for path in found if ".rustup" not in path.parts
        ]  # pip asks rustc's version
        return [Result(Outcome.LEFTOVER, said + ", ".join(left[:5]))] if left else [Result()]


ATTACKS: list[Attack] = [HostileRequests(), SchemaRequests(), MirrorAttack()]
