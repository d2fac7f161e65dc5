"""Mutation testing: changes the code in small ways and looks whether the tests notice.

A mutant is caught if a test fails, crashes or exceeds its time. First every test runs once and says which lines it
runs; then each mutant is given the tests of its lines, the quickest first, then the others of the same files, up to
`--test-seconds`. Each process works on its own copy of the tree and imports torch once: every mutant is a fork of it.
Finished mutants are in OUT/results.jsonl, and the same command goes on from there. benchmarks/mutants_equivalent.json
lists mutants that change nothing a test could see, with the reason; they do not count.

python benchmarks/mutants.py --sample 400 --seed 1 --jobs 2 --out runs/mutants       (make mutants SAMPLE=400 SEED=1)
python benchmarks/mutants.py --packages src/octavo/decode --tests tests/decode --sample 0 --out runs/decode   (all)
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from line_coverage import FOLDER, LINES, SITECUSTOMIZE, CoveragePlugin
from mutation_operators import Mutant, find_mutants

PACKAGES = [f"src/octavo/{package}" for package in ("ops", "models", "scoring", "decode", "training")]
TESTS = [
    f"tests/{folder}"
    for folder in ("ops", "models", "scoring", "decode", "training", "tasks", "exchange", "costs", "text", "inspection")
]
GPU_ONLY = ("kernel", "triton", "cuda")  # files with these words hold what no test runs without a GPU
TREE = (
    "src",
    "tests",
    "benchmarks",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
)
EQUIVALENT = "benchmarks/mutants_equivalent.json"
TESTS_A_CHUNK = 40
CHUNK_SECONDS = 300
CONTROLS = 6  # mutants whose tests run without the change first
MEMORY_BYTES = 24 << 30  # of address space: a mutant may ask for any amount
QUIET = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=short", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


def main() -> None:
    options = parse_options()
    root, out = Path.cwd(), Path(options.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    prepare_environment()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        base = copy_tree(root, Path(place) / "base")
        chosen = choose_mutants(base, options)
        print(f"{len(chosen):,} mutants", flush=True)
        coverage = load_or_make_map(base, out, options)
        print(f"{len(coverage['tests']):,} tests mapped in {time.monotonic() - started:.0f} s", flush=True)
        run_mutants(base, out, chosen, coverage, options, started + options.minutes * 60)
    report = make_report(root, chosen, read_results(out), options)
    (out / "report.md").write_text(report, encoding="utf-8")
    print(report)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="folders or files whose code is mutated")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders, files or node ids of the tests")
    parser.add_argument("--sample", type=int, default=400, help="how many mutants, drawn at random; 0: all of them")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--test-seconds", type=float, default=40, help="test time for one mutant, as measured unmutated"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after that, with a report of what is finished")
    parser.add_argument("--out", required=True, help="folder for map.json, results.jsonl and report.md")
    return parser.parse_args()


def prepare_environment() -> None:
    os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", HYPOTHESIS_MAX_EXAMPLES="25")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path[1:] if path and Path(path).is_dir())


def copy_tree(root: Path, place: Path) -> Path:
    """The files that tests read, with their times, so that compiled files stay valid."""
    place.mkdir(parents=True)
    for name in TREE:
        if (root / name).is_dir():
            shutil.copytree(root / name, place / name)
        elif (root / name).exists():
            shutil.copy2(root / name, place / name)
    return place


def choose_mutants(root: Path, options: argparse.Namespace) -> list[Mutant]:
    """The sample: drawn from all mutants in the order of the files, with those left out that are no Python."""
    files = sorted({file for name in options.packages for file in python_files(root / name)})
    mutants = [
        mutant
        for file in files
        if not any(word in file.name for word in GPU_ONLY)
        for mutant in find_mutants(file, root)
    ]
    random.Random(options.seed).shuffle(mutants)
    sources = {file.relative_to(root).as_posix(): file.read_bytes() for file in files}
    valid = (mutant for mutant in mutants if mutant.is_valid(sources[mutant.file]))
    return [mutant for mutant, _ in zip(valid, range(options.sample or len(mutants)), strict=False)]


def python_files(place: Path) -> list[Path]:
    if not place.exists():
        sys.exit(f"no such file or folder: {place}")
    return [place] if place.is_file() else [*place.rglob("*.py")]


# ---------------------------------------------------------------------- which tests run which lines


def enter_copy(copy: Path) -> None:
    """Work in a copy of the tree: its octavo is the one that is imported, here and in processes that tests start."""
    os.chdir(copy)
    os.environ["PYTHONPATH"] = f"{copy / 'src'}{os.pathsep}{os.environ['PYTHONPATH']}"
    sys.path[:0] = [str(copy / "src"), str(copy)]


def run_forked(work: Any, log: Path, seconds: float) -> tuple[str, Any]:
    """Run a function in a fork; ('done', its result), ('timeout', None) or ('crash', None)."""
    answer = log.with_suffix(".answer")
    answer.unlink(missing_ok=True)
    with warnings.catch_warnings():
        # Python warns of threads that a fork does not take along: those of torch and of the queue do not matter here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(output, stream)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            answer.write_text(json.dumps(work()))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "timeout", None
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what tests left behind
    return ("done", json.loads(answer.read_text())) if answer.exists() else ("crash", None)


class Collected:
    """A plugin that keeps the ids of the collected tests."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.ids = [item.nodeid for item in session.items]


def collect_tests(tests: list[str]) -> list[str]:
    if missing := [name for name in tests if not Path(name.split("::")[0]).exists()]:
        sys.exit(f"no such tests: {', '.join(missing)}")
    plugin = Collected()
    pytest.main([*QUIET, "--collect-only", "-qq", "--continue-on-collection-errors", *tests], plugins=[plugin])
    return plugin.ids


class Selection:
    """A plugin that runs the named tests alone, in the given order, those of a file together."""

    def __init__(self, tests: list[str]) -> None:
        files = {test.split("::")[0]: -place for place, test in reversed(list(enumerate(tests)))}
        self.order = {test: (-files[test.split("::")[0]], place) for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order), key=lambda item: self.order[item.nodeid]
        )


def run_tests(tests: list[str], temporary: Path, *more: str, plugins: tuple[object, ...] = ()) -> int:
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    arguments = [*QUIET, f"--basetemp={temporary}", *more, *files]
    return int(pytest.main(arguments, plugins=[Selection(tests), *plugins]))


def map_chunk(copy: Path, chunk: list[str], temporary: Path) -> dict[str, Any]:
    """Run some tests and record their lines; also the modules they import, for `preload`."""
    lines = temporary.with_suffix(".lines")
    lines.mkdir(exist_ok=True)
    (lines / "sitecustomize.py").write_text(SITECUSTOMIZE)
    os.environ.update({LINES: str(lines), FOLDER: str(copy)})
    os.environ["PYTHONPATH"] += f"{os.pathsep}{lines}{os.pathsep}{copy / 'benchmarks'}"
    plugin = CoveragePlugin(copy)
    run_tests(chunk, temporary, plugins=(plugin,))
    modules = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    foreign = [name for name, file in modules.items() if file and not file.startswith(str(copy))]
    return {"tests": plugin.tests(), "modules": foreign}


def load_or_make_map(base: Path, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    file = out / "map.json"
    if file.exists():
        return dict(json.loads(file.read_text(encoding="utf-8")))
    log = base.parent / "collect.log"
    state, tests = in_copy(base, lambda: collect_tests(options.tests), log)
    if state != "done" or not tests:
        sys.exit(f"the tests could not be collected:\n{log.read_text()[-3000:]}")
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        by_file[test.split("::")[0]].append(test)
    size = TESTS_A_CHUNK
    chunks = [ids[at : at + size] for ids in by_file.values() for at in range(0, len(ids), size)]
    merged: dict[str, Any] = {"tests": {}, "modules": {}}
    for part in run_workers(map_worker, base, sorted(chunks, key=len, reverse=True), options, None, CHUNK_SECONDS * 4):
        merged["tests"].update(part["tests"])
        merged["modules"].update(dict.fromkeys(part["modules"]))
    merged["modules"] = list(merged["modules"])
    file.write_text(json.dumps(merged), encoding="utf-8")
    return merged


def in_copy(copy: Path, work: Any, log: Path) -> tuple[str, Any]:
    def entered() -> Any:
        enter_copy(copy)
        return work()

    return run_forked(entered, log, CHUNK_SECONDS)


def map_worker(copy: Path, chunk: list[str], log: Path, _: Any) -> dict[str, Any]:
    temporary = log.with_suffix(".tmp")
    state, part = in_copy(copy, lambda: map_chunk(copy, chunk, temporary), log)
    if state != "done":
        print(
            f"left out ({state}): {len(chunk)} tests of {chunk[0].split('::')[0]}\n{log.read_text()[-400:]}", flush=True
        )
    return part if state == "done" else {"tests": {}, "modules": []}


# ---------------------------------------------------------------------- mutants


@dataclass(frozen=True)
class Job:
    """A mutant and the tests that it is given."""

    mutant: Mutant
    tests: list[str]
    seconds: float


def preload(modules: list[str]) -> None:
    """Import what tests import from elsewhere, so that a fork has it already."""
    for name in modules:
        with suppress(BaseException):
            importlib.import_module(name)


def tests_by_file(coverage: dict[str, Any]) -> dict[str, dict[int, list[str]]]:
    """file -> line -> the tests that run it."""
    found: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for test, record in coverage["tests"].items():
        for file, lines in record["lines"].items():
            for line in lines:
                found[file][line].append(test)
    return found


def choose_tests(mutant: Mutant, lines: dict[int, list[str]], coverage: dict[str, Any], limit: float) -> Job:
    """The tests of the mutant's lines; if none (it runs on import), of its function or class, else of its file."""
    tests: list[str] = []
    for first, last in ((mutant.line, mutant.end_line), mutant.scope, (1, max(lines, default=0))):
        covered = {test for line in range(first, last + 1) for test in lines.get(line, ())}
        tests = sorted(covered, key=lambda test: (seconds_alone(coverage["tests"][test]), test))
        if tests:
            break
    files = {test.split("::")[0] for test in tests}
    mates = [test for test in coverage["tests"] if test.split("::")[0] in files and test not in set(tests)]
    chosen, total, fixtures = list[str](), 0.0, dict[str, float]()
    for test in [*tests, *mates]:
        record = coverage["tests"][test]
        more = record["seconds"] + sum(cost for name, cost in record["fixtures"].items() if name not in fixtures)
        if total + more > limit and chosen:
            continue
        chosen.append(test)
        total += more
        fixtures.update(record["fixtures"])
    return Job(mutant, chosen, 30 + 5 * total)


def seconds_alone(record: dict[str, Any]) -> float:
    return float(record["seconds"] + sum(record["fixtures"].values()))


def run_mutants(
    base: Path, out: Path, chosen: list[Mutant], coverage: dict[str, Any], options: argparse.Namespace, end: float
) -> None:
    finished, lines = set(read_results(out)), tests_by_file(coverage)
    open_ones = [mutant for mutant in chosen if mutant_name(mutant) not in finished]
    jobs = [choose_tests(mutant, lines[mutant.file], coverage, options.test_seconds) for mutant in open_ones]
    check_unmutated(base, jobs, options, coverage["modules"])
    with (out / "results.jsonl").open("a", encoding="utf-8") as file:
        for done, result in enumerate(
            run_workers(mutant_worker, base, jobs, options, coverage["modules"], end - time.monotonic()), 1
        ):
            file.write(json.dumps(result) + "\n")
            file.flush()
            if result["state"] == "survived" or done % 25 == 0:
                print(f"{done}/{len(jobs)} {result['state']} {result['name']}", flush=True)


def check_unmutated(base: Path, jobs: list[Job], options: argparse.Namespace, modules: list[str]) -> None:
    """The control: without a change, the chosen tests must pass in the way that they run for mutants."""
    some = [job for job in jobs[: CONTROLS * 4] if job.tests][: max(options.jobs, CONTROLS)]
    unchanged = [replace(job, mutant=replace(job.mutant, end=job.mutant.start, text="")) for job in some]
    for result in run_workers(mutant_worker, base, unchanged, options, modules, CHUNK_SECONDS):
        if result["state"] != "survived":
            sys.exit(f"tests fail without a change ({result['state']}): {result['name']}\n{result['tail']}")


def mutant_worker(copy: Path, job: Job, log: Path, _: Any) -> dict[str, Any]:
    mutant, file = job.mutant, copy / job.mutant.file
    source, times = file.read_bytes(), file.stat()
    started = time.monotonic()
    state, code = "survived", None
    if job.tests:
        try:
            file.write_bytes(mutant.apply(source))
            os.utime(file, (times.st_atime, times.st_mtime + 10))  # so that the compiled file is not taken for it
            temporary = log.with_suffix(".tmp")
            ran, code = in_limited_copy(copy, lambda: run_tests(job.tests, temporary, "-x"), log, job.seconds)
            state = "survived" if (ran, code) == ("done", 0) else "caught" if ran == "done" else ran
        finally:
            file.write_bytes(source)
            os.utime(file, (times.st_atime, times.st_mtime))
    tail = log.read_text(errors="replace")[-300:] if state not in ("survived", "timeout") else ""
    seconds = round(time.monotonic() - started, 1)
    place = {"name": mutant_name(mutant), "file": mutant.file, "line": mutant.line, "diff": mutant.diff(source)}
    return place | {"state": state, "code": code, "tests": len(job.tests), "seconds": seconds, "tail": tail}


def in_limited_copy(copy: Path, work: Any, log: Path, seconds: float) -> tuple[str, Any]:
    def entered() -> Any:
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        enter_copy(copy)
        return work()

    return run_forked(entered, log, seconds)


def mutant_name(mutant: Mutant) -> str:
    return f"{mutant.file}:{mutant.line}:{mutant.start} {mutant.operator}: {mutant.text}"


# ---------------------------------------------------------------------- processes


def run_workers(
    work: Any, base: Path, tasks: list[Any], options: argparse.Namespace, modules: list[str] | None, seconds: float
) -> Iterator[Any]:
    """Give the tasks to processes, each with its copy of the tree; yields results as they come."""
    context = multiprocessing.get_context("fork")
    queue, results = context.Queue(), context.Queue()
    for task in tasks:
        queue.put(task)
    end = time.monotonic() + seconds
    count = min(options.jobs, len(tasks))
    arguments = [(work, base, number, queue, results, modules) for number in range(count)]
    workers = [context.Process(target=work_on, args=each) for each in arguments]
    for worker in workers:
        worker.start()
    try:
        for _ in tasks:
            while True:
                try:
                    yield results.get(timeout=1)
                    break
                except Empty:
                    if time.monotonic() > end or not any(worker.is_alive() for worker in workers):
                        return
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def work_on(work: Any, base: Path, number: int, queue: Any, results: Any, modules: list[str] | None) -> None:
    # Mapping works in one place, whose compiled files the copies for the mutants take over.
    copy = base
    if modules is not None:
        copy = base.parent / f"copy{number}"
        if not copy.exists():
            shutil.copytree(base, copy)
        preload(modules)
    log = base.parent / f"log{number}.{'map' if modules is None else 'mutants'}"
    while True:
        try:
            task = queue.get(timeout=2)
        except Empty:
            return
        results.put(work(copy, task, log, modules))


# ---------------------------------------------------------------------- report


def read_results(out: Path) -> dict[str, dict[str, Any]]:
    file = out / "results.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def make_report(
    root: Path, chosen: list[Mutant], results: dict[str, dict[str, Any]], options: argparse.Namespace
) -> str:
    """A table by package, then the survivors with their diffs, then those listed as equivalent."""
    listed = root / EQUIVALENT
    reasons = {entry["diff"]: entry["reason"] for entry in json.loads(listed.read_text())} if listed.exists() else {}
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    survivors, equivalent = [], []
    for record in (results[name] for name in map(mutant_name, chosen) if name in results):
        package = record["file"].split("/")[2]
        key = change_of(record)
        if record["state"] != "survived":
            counts[package][0] += 1
        elif key in reasons:
            counts[package][2] += 1
            equivalent.append(f"{record['file']}:{record['line']}: {reasons[key]}\n{record['diff']}")
        else:
            counts[package][1] += 1
            survivors.append(f"{record['name']} ({record['tests']} tests)\n{record['diff']}")
    counts["all"] = [sum(row[place] for row in counts.values()) for place in range(3)]
    table = [
        f"| {name} | {c + s + e} | {c} | {s} | {e} | {c / max(c + s, 1):.1%} |" for name, (c, s, e) in counts.items()
    ]
    head = f"{sum(counts['all'])} of {len(chosen)} mutants, seed {options.seed}"
    rows = [
        "| package | mutants | caught | survived | equivalent | caught of those that count |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([head, "", *rows, *table, "", "Survivors:", *survivors, "", "Equivalent:", *equivalent, ""])


def change_of(record: dict[str, Any]) -> str:
    """What identifies a mutant when lines move: its file and the two lines of its diff."""
    lines = [line for line in record["diff"].splitlines() if not line.startswith("@@")]
    return "\n".join([record["file"], *lines])


if __name__ == "__main__":
    main()
