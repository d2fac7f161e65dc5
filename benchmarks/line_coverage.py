"""Which tests run which lines: a pytest plugin for `benchmarks/mutants.py`, which starts no other test than those.

Lines that a fixture of a module or a session runs count for every test that uses the fixture, and lines of processes
that a test starts count for the test: those processes import `SITECUSTOMIZE` when they start.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

TOOL = 4  # one of the free tool numbers of sys.monitoring
LINES = "OCTAVO_MUTANTS_LINES"  # the folder where processes that a test starts leave their lines
FOLDER = "OCTAVO_MUTANTS_FOLDER"  # the folder whose files' lines are recorded
SITECUSTOMIZE = """import os
if "OCTAVO_MUTANTS_LINES" in os.environ:
    import line_coverage
    line_coverage.record_process()
"""


class LineRecorder:
    """Records the lines of files below a folder; by sys.monitoring, before Python 3.12 by sys.settrace."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines = f"{folder}/", set[tuple[str, int]]()

    def start(self) -> None:
        if sys.version_info >= (3, 12):
            events = sys.monitoring.events
            sys.monitoring.use_tool_id(TOOL, "mutants")
            sys.monitoring.register_callback(TOOL, events.LINE, self.on_line)
            sys.monitoring.set_events(TOOL, events.LINE)
        else:
            sys.settrace(self.on_call)

    def take(self) -> set[tuple[str, int]]:
        """The lines run since the last call."""
        lines, self.lines = self.lines, set()
        for file in Path(os.environ[LINES]).glob("*.json"):
            lines |= {(name, line) for name, line in json.loads(file.read_text(encoding="utf-8"))}
            file.unlink()
        if sys.version_info >= (3, 12):
            sys.monitoring.restart_events()
        else:
            sys.settrace(self.on_call)  # a test may have taken it away
        return lines

    def on_line(self, code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(self.folder):
            self.lines.add((code.co_filename[len(self.folder) :], line))
        if sys.version_info >= (3, 12):
            return sys.monitoring.DISABLE
        return None

    def on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self.on_event if frame.f_code.co_filename.startswith(self.folder) else None

    def on_event(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.lines.add((frame.f_code.co_filename[len(self.folder) :], frame.f_lineno))
        return self.on_event


def record_process() -> None:
    """Record the lines of this process, which a test started, and write them at its end."""
    recorder = LineRecorder(Path(os.environ[FOLDER]))
    recorder.start()

    def write() -> None:
        if recorder.lines:
            place = Path(os.environ[LINES]) / f"{os.getpid()}-{time.time_ns()}"
            place.write_text(json.dumps(sorted(recorder.lines)), encoding="utf-8")
            place.rename(place.with_suffix(".json"))
            recorder.lines.clear()

    atexit.register(write)
    Finalize(None, write, exitpriority=0)  # processes of multiprocessing do not come to atexit


class CoveragePlugin:
    """Fills `tests`: for each passed test its seconds, its fixtures' seconds and its lines, as file -> line numbers."""

    def __init__(self, folder: Path) -> None:
        self.recorder = LineRecorder(folder)
        self.fixtures: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
        self.fixture_seconds: dict[tuple[str, str], float] = defaultdict(float)
        self.of_test: dict[str, dict[str, float]] = {}
        self.lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.recorder.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        outside, start = self.recorder.take(), time.perf_counter()
        result = yield
        key = (fixturedef.baseid, fixturedef.argname)
        self.fixture_seconds[key] = time.perf_counter() - start
        self.fixtures[key] |= self.recorder.take()
        self.recorder.lines |= outside
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.recorder.take()
        start, earlier = time.perf_counter(), sum(self.fixture_seconds.values())
        result = yield
        in_fixtures = sum(self.fixture_seconds.values()) - earlier
        self.seconds[item.nodeid] = max(time.perf_counter() - start - in_fixtures, 0.0)
        lines, names = self.recorder.take(), set(getattr(item, "fixturenames", ()))
        used = [key for key in self.fixtures if key[1] in names and item.nodeid.startswith(key[0])]
        self.lines[item.nodeid] = lines.union(*(self.fixtures[key] for key in used))
        self.of_test[item.nodeid] = {" ".join(key): round(self.fixture_seconds[key], 3) for key in used}
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":  # skipped ones too: they notice nothing
            self.failed.add(report.nodeid)

    def tests(self) -> dict[str, dict[str, Any]]:
        found = {}
        for test, lines in self.lines.items():
            by_file: dict[str, list[int]] = defaultdict(list)
            for file, line in sorted(lines):
                by_file[file].append(line)
            if test not in self.failed:
                seconds = round(self.seconds[test], 3)
                found[test] = {"seconds": seconds, "fixtures": self.of_test[test], "lines": by_file}
        return found
