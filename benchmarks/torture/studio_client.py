"""A hostile client of the studio: seeded requests over raw sockets, and a check of every answer.

    PYTHONPATH=benchmarks python -m torture.studio_client PORT --requests 20000 --seed 1

Most requests are framed as HTTP asks and hostile in what they say, so that several are sent at once over one connection
and answered in order. The others break the frame, leave early or say nothing; each has a connection of its own. Every
answer must have a status that its request allows, come in time and, where it is an error, be one line of JSON without a
traceback or a path of this machine. Between them a normal read must work, and the server's memory must stay as it was.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torture.studio_requests import Generator, HostileRequest

CONNECTIONS, PIPELINE = 4, 8  # over which requests are sent at the same time, and how many over each
ANSWER_SECONDS = 75.0  # the studio's limit is 60, and then it answers
SILENCE_SECONDS = 0.3  # after which a broken request is left unanswered
PROBE_EVERY = 2000  # requests
MEMORY_AFTER_PROBES = 3  # when caches are filled
MAX_GROWTH_BYTES = 256 << 20  # since then
MAX_IDLE = 200  # connections that say nothing
SAMPLES = 100  # faults that are kept
PRIVATE = re.compile(
    r"Traceback|File \"|/(?:home|root|tmp|usr|var|work|dev|opt|private)/|site-packages|\.py\b|0x[0-9a-f]{8}"
)


@dataclass
class Report:
    """What was sent and what was wrong with the answers."""

    requests: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0
    slowest_seconds: float = 0.0
    probe_seconds: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def fault(self, kind: str, what: str, data: bytes) -> None:
        self.fault_count += 1
        if len(self.faults) < SAMPLES:
            self.faults.append(f"{kind}: {what}; sent {data[:300]!r}{' ...' if len(data) > 300 else ''}")


# ---------------------------------------------------------------------- answers


class Answer(NamedTuple):
    """A response: its status, its headers in lower case, its body."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """A connection from which answers are read one after the other."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self.buffer = b""

    def answer(self, is_head: bool = False) -> Answer | None:
        """The next answer; None where the server hung up before it began one."""
        while True:
            head = self._until(b"\r\n\r\n")
            if head is None:
                return None
            first, *lines = head.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if status >= 200:
                break
        if is_head or status in (204, 304):
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, self._chunks())
        return Answer(status, headers, self._take(int(headers.get("content-length", 0))))

    def _fill(self) -> bool:
        piece = self.socket.recv(1 << 16)
        self.buffer += piece
        return bool(piece)

    def _until(self, mark: bytes) -> bytes | None:
        while mark not in self.buffer:
            if not self._fill():
                if self.buffer:
                    raise ValueError(f"cut off after {self.buffer[:80]!r}")
                return None
        found, _, self.buffer = self.buffer.partition(mark)
        return found

    def _take(self, count: int) -> bytes:
        while len(self.buffer) < count:
            if not self._fill():
                raise ValueError("cut off within a body")
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def _chunks(self) -> bytes:
        found = b""
        while count := int(self._until(b"\r\n") or b"0", 16):
            found += self._take(count)
            self._take(2)
        self._take(2)
        return found


def problem_of(answer: Answer, request: HostileRequest, private: str) -> str:
    """What is wrong with an answer; empty where nothing is."""
    if answer.status not in request.allowed:
        return f"status {answer.status}: {answer.body[:200]!r}"
    if answer.status < 400:
        return ""
    text = answer.body.decode("utf-8", "replace")
    if request.is_head:
        return ""
    try:
        reply = json.loads(text)
    except ValueError:
        return f"an error {answer.status} that is not JSON: {text[:200]!r}"
    if (
        not isinstance(reply, dict)
        or list(reply) != ["error"]
        or not isinstance(reply["error"], str)
        or not reply["error"]
    ):
        return f"an error of another form: {text[:200]!r}"
    sent = request.data.decode("utf-8", "replace")
    if "\n" in reply["error"] or (private and private in text):
        return f"an error with a path or on several lines: {text[:300]!r}"
    if (match := PRIVATE.search(reply["error"])) and match[0] not in sent:
        return f"an error with internals: {text[:300]!r}"
    return ""


# ---------------------------------------------------------------------- the client


def attack(
    port: int, seed: int, requests: int, pid: int = 0, private: str = "", probe_every: int = PROBE_EVERY,
    seconds: float = float("inf"),
) -> Report:  # fmt: skip
    """Send so many hostile requests to a studio on this machine, or as many as fit into the seconds.

    pid: the server's process, whose memory is watched; 0: none. private: a name that no error may hold, such as that of
    the folder above the runs.
    """
    report, began = Report(), time.monotonic()
    openapi = json.loads(_ask(port, b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n").body)
    runs = [row["run"] for row in json.loads(_ask(port, b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n").body)]
    generator, next_probe = Generator(openapi, runs, seed), 0
    readable = _readable_run(port, runs)
    wires, idle = list[Wire](), list[Wire]()
    while report.requests < requests and time.monotonic() - began < seconds and report.fault_count < 10 * SAMPLES:
        if report.requests >= next_probe:
            _probe(port, readable, pid, report)
            next_probe += probe_every
        luck = generator.random.random()
        try:
            if luck < 0.4:
                _send_alone(port, generator.broken(), report, private)
            elif luck < 0.5:
                _abandon(port, generator.abandoned(), report)
            elif luck < 0.55:
                _idle(port, idle, report)
            else:
                wires += [Wire(port) for _ in range(CONNECTIONS - len(wires))]
                wires = _send_together(wires, generator, report, private)
        except OSError as error:
            report.fault("connection", f"{type(error).__name__}: {error}", b"")
    for one in (*idle, *wires):
        one.socket.close()
    _probe(port, readable, pid, report)
    report.seconds = time.monotonic() - began
    return report


def _send_together(wires: list[Wire], generator: Generator, report: Report, private: str) -> list[Wire]:
    """Send several requests over each connection, then check the answers; the connections that are still open."""
    batches = [[generator.framed() for _ in range(PIPELINE)] for _ in wires]
    for wire, batch in zip(wires, batches, strict=True):
        with suppress(ConnectionError):
            wire.socket.sendall(b"".join(one.data for one in batch))
    still_open = []
    for wire, batch in zip(wires, batches, strict=True):
        if _check_answers(wire, batch, report, private):
            still_open.append(wire)
        else:
            wire.socket.close()
    return still_open


def _check_answers(wire: Wire, batch: list[HostileRequest], report: Report, private: str) -> bool:
    """Check the answers to requests that were sent together; whether the connection is still open."""
    for number, one in enumerate(batch):
        start = time.monotonic()
        try:
            answer = wire.answer(one.is_head)
        except (ConnectionError, ValueError, TimeoutError) as error:
            _count(report, one, time.monotonic() - start)
            if not isinstance(error, ConnectionError):  # a server that hangs up may cut off what it had sent
                report.fault(one.kind, f"{type(error).__name__}: {error}", one.data)
            return False
        if answer is None:
            if number:  # before the first it may have been idle for too long
                report.fault(one.kind, "no answer, and the connection was closed", one.data)
            return False
        _count(report, one, time.monotonic() - start, answer)
        if problem := problem_of(answer, one, private):
            report.fault(one.kind, problem, one.data)
        if answer.headers.get("connection") == "close":
            return False
    return True


def _send_alone(port: int, request: HostileRequest, report: Report, private: str) -> None:
    start, wire = time.monotonic(), Wire(port)
    wire.socket.settimeout(SILENCE_SECONDS)
    try:
        with suppress(ConnectionError):
            wire.socket.sendall(request.data)
            wire.socket.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError, TimeoutError):  # a server may say nothing, and hang up
            answer = wire.answer()
            if answer is not None:
                report.statuses[answer.status] += 1
                if problem := problem_of(answer, request, private):
                    report.fault(request.kind, problem, request.data)
    except ValueError as error:
        report.fault(request.kind, str(error), request.data)
    finally:
        wire.socket.close()
        _count(report, request, time.monotonic() - start)


def _abandon(port: int, request: HostileRequest, report: Report) -> None:
    wire = Wire(port)
    with suppress(ConnectionError):
        wire.socket.sendall(request.data)
    wire.socket.close()
    _count(report, request, 0.0)


def _idle(port: int, idle: list[Wire], report: Report) -> None:
    """One more connection that says nothing; the server closes it, or it is closed when there are many."""
    idle.append(Wire(port))
    if len(idle) > MAX_IDLE:
        idle.pop(0).socket.close()
    report.kinds["idle"] += 1


def _count(report: Report, request: HostileRequest, seconds: float, answer: Answer | None = None) -> None:
    report.requests += 1
    report.kinds[request.kind] += 1
    report.slowest_seconds = max(report.slowest_seconds, seconds)
    if answer is not None:
        report.statuses[answer.status] += 1


def _ask(port: int, data: bytes) -> Answer:
    wire = Wire(port)
    wire.socket.sendall(data)
    answer = wire.answer()
    wire.socket.close()
    if answer is None:
        raise ConnectionError("no answer")
    return answer


def _read(port: int, run: str) -> Answer:
    body = json.dumps({"run": run, "text": "The cat sat on the mat."}).encode()
    head = "POST /api/read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return _ask(port, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _readable_run(port: int, runs: list[str]) -> str:
    for run in runs:
        if _read(port, run).status == 200:
            return run
    raise ValueError("there is no language model in this studio to read with; train one: octavo train ngram FILE")


def _probe(port: int, run: str, pid: int, report: Report) -> None:
    """A normal read must work, and memory must not have grown since the caches were filled."""
    start = time.monotonic()
    answer = _read(port, run)
    report.probe_seconds.append(time.monotonic() - start)
    if answer.status != 200 or not json.loads(answer.body)["tokens"]:
        report.fault("probe", f"a normal read had status {answer.status}: {answer.body[:200]!r}", b"")
    if pid:
        report.memory_bytes.append(resident_bytes(pid))
        settled = report.memory_bytes[MEMORY_AFTER_PROBES:]
        if settled and settled[-1] > settled[0] + MAX_GROWTH_BYTES:
            report.fault("memory", f"grew from {settled[0]:,} to {settled[-1]:,} bytes", b"")


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) * 1024 if match else 0


def summary(report: Report) -> Iterator[str]:
    """The report in a few lines."""
    rate, probes = report.requests / max(report.seconds, 1e-9), sorted(report.probe_seconds)
    yield f"{report.requests:,} requests in {report.seconds:.1f} s ({rate:,.0f}/s), {report.fault_count} faults"
    yield "kinds: " + ", ".join(f"{kind} {count:,}" for kind, count in report.kinds.most_common())
    yield "statuses: " + ", ".join(f"{status}: {count:,}" for status, count in sorted(report.statuses.items()))
    median, slowest = 1e3 * probes[len(probes) // 2], 1e3 * probes[-1]
    yield f"slowest answer {report.slowest_seconds:.2f} s; reads: median {median:.0f} ms, slowest {slowest:.0f} ms"
    if report.memory_bytes:
        yield "memory, MiB: " + ", ".join(f"{one / 2**20:.0f}" for one in report.memory_bytes)
    yield from report.faults[:20]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int, help="of a studio on 127.0.0.1")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pid", type=int, default=0, help="the studio's process, whose memory is watched")
    parser.add_argument("--private", default="", help="a name that no error may hold")
    args = parser.parse_args()
    report = attack(args.port, args.seed, args.requests, args.pid, args.private)
    print("\n".join(summary(report)))
    return 1 if report.fault_count else 0


if __name__ == "__main__":
    sys.exit(main())
