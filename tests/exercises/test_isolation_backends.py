"""How isolation is chosen and started: backends, containers, the filter, the runtime, what a killed grader leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from octavo.cli import main
from octavo.errors import UserError
from octavo.exercises import Exercise, Finding, Function, Part
from octavo.exercises.framework import isolation
from octavo.exercises.framework.functions import FunctionRunner
from octavo.exercises.framework.isolation import backends, call_functions, choose_backend
from octavo.exercises.framework.isolation.calls import check_result
from octavo.exercises.framework.isolation.runner import MAX_RESULT_NUMBERS, plain
from octavo.exercises.framework.isolation.runtime import find_packages, find_runtime
from octavo.exercises.framework.isolation.seccomp import build_filter, system_call_numbers
from octavo.exercises.framework.limits import Limits
from octavo.exercises.framework.registry import exercises_by_topic
from octavo.exercises.framework.results import ResultFolder
from octavo.exercises.framework.submissions import grade

DOUBLE = b"def double(x):\n    return 2 * x\n"
HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
FAKE_DOCKER = """#!/bin/sh
# Runs the command of `docker run` here, without a container, and notes what it was asked.
echo "$@" >> {log}
[ "$1" = run ] || exit 0
while [ "$1" != --entrypoint=timeout ]; do shift; done
shift 2
cd {folder} && exec timeout "$@"
"""


def double(x: float) -> float:
    """Twice the number."""
    return 2 * x


EXERCISE = Exercise("e", "E", "Q.", "A.", [
    Part("f", "What?", Function("double", double, [(1.0,), (2.5,)], "double(x)"), "exact", lambda: Finding(None),
         why="So.", wrong={"no": lambda x: 0})])  # fmt: skip


def write_student(folder: Path, code: bytes = DOUBLE) -> Path:
    folder.mkdir(parents=True)
    (folder / "answers.toml").write_text('[e]\nf = "mine.py"\n', encoding="utf-8")
    (folder / "mine.py").write_bytes(code)
    return folder / "answers.toml"


def fake_docker(folder: Path, script: str) -> None:
    program = folder / "docker"
    program.write_text(script, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


# Containers


def test_a_container_has_no_network_no_rights_and_one_small_folder() -> None:
    command = backends.Container("some/image", 512).command("name")
    for option in ("--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--ipc=none",
                   "--pids-limit=64", "--memory=528m", "--memory-swap=528m", "--user=65534:65534", "--name=name",
                   "--pull=never", "--rm"):  # fmt: skip
        assert option in command
    assert not any(option.startswith(("-v", "--volume", "--mount", "--privileged")) for option in command)
    assert [option for option in command if option.startswith("--tmpfs")] == [
        f"--tmpfs=/work:rw,nosuid,nodev,size={16 << 20},mode=1777"
    ]
    image = command.index("some/image")
    assert command[image - 1 : image + 5] == ["--entrypoint=timeout", "some/image", "-s", "KILL", "3600", "python3"]


def test_a_container_is_started_asked_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_docker(tmp_path, FAKE_DOCKER.format(log=tmp_path / "log", folder=tmp_path))
    python = tmp_path / "python3"  # an image without octavo
    python.symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    [[result]] = call_functions(backends.Container("i"), {"mine.py": DOUBLE}, "mine.py", [("double", [[2]])], Limits())
    assert result.value == 4
    log = (tmp_path / "log").read_text(encoding="utf-8")
    [name] = re.findall(r"--name=(octavo-\w+)", log)
    assert log.strip().splitlines()[-1] == f"rm --force {name}"


def test_an_image_that_contains_octavo_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_docker(tmp_path, FAKE_DOCKER.format(log=tmp_path / "log", folder=tmp_path).replace("python3 -I", "python3"))
    python = tmp_path / "python3"
    source = Path(isolation.__file__).parents[4]
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={source} exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match="octavo can be read"):
        choose_backend("container")


def test_a_missing_container_program_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "CONTAINER_PROGRAMS", ("no-such-docker", "no-such-podman"))
    answers = write_student(tmp_path / "ada")
    assert main(["exercises", "grade", str(answers), "--isolation", "container"]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("--isolation container needs no-such-docker or no-such-podman, and neither is installed")
    )


def test_a_container_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_docker(tmp_path, "#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match="Cannot connect to the Docker daemon"):
        choose_backend("container")


# Choosing


def refuse_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "explain_failure", lambda backend: f"{backend.name} does not work")


def test_without_isolation_functions_are_refused_and_the_reason_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_isolation(monkeypatch)
    [student] = grade(write_student(tmp_path / "ada"), [EXERCISE])
    assert [(row.outcome, row.points) for row in student.rows] == [("refused", 0)]
    assert "bubblewrap does not work; namespaces does not work" in student.rows[0].why
    assert "--trust" in student.rows[0].why


def test_functions_that_were_refused_for_want_of_isolation_are_graded_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, results = write_student(tmp_path / "ada"), ResultFolder(tmp_path / "results")
    refuse_isolation(monkeypatch)
    [refused] = grade(answers, [EXERCISE], results=results)
    runner = FunctionRunner(Limits(), lambda: choose_backend(trust=True))
    [graded] = grade(answers, [EXERCISE], results=results, runner=runner)
    assert (refused.points, graded.points) == (0, 1)


def test_trust_runs_functions_without_isolation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_isolation(monkeypatch)
    runner = FunctionRunner(Limits(), lambda: choose_backend(trust=True))
    [student] = grade(write_student(tmp_path / "ada"), [EXERCISE], runner=runner)
    assert [(row.outcome, row.points) for row in student.rows] == [("right", 1)]


def test_an_unknown_isolation_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="must be one of auto, bubblewrap, namespaces, container, user: it is 'magic'"):
        choose_backend("magic")  # type: ignore[arg-type]


def test_without_bubblewrap_namespaces_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    try:
        assert choose_backend().name == "namespaces"
    except UserError as error:
        pytest.skip(f"needs isolation: {error}")


# Another user, without namespaces

AS_ANOTHER_USER = """
import ctypes, json, os, sys
sys.path.insert(0, {here!r})
from attack_service import CLONE_NEWNS, MS_PRIVATE_ALL, reach_python
from octavo.exercises.framework.isolation import UserError, call_functions, choose_backend
from octavo.exercises.framework.isolation.runtime import PACKAGE_FOLDER
from octavo.exercises.framework.limits import Limits
reach_python()
try:
    choose_backend("user", secrets=[{secret!r}])
except UserError as error:
    print(error)
libc = ctypes.CDLL(None)
libc.unshare(CLONE_NEWNS)
libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_PRIVATE_ALL), None)
for folder in (PACKAGE_FOLDER, {secret!r}):  # as if closed by chmod, for this process only
    assert libc.mount(b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(0), b"mode=700") == 0
backend = choose_backend("user", secrets=[{secret!r}])
for code in json.load(sys.stdin):
    [[result]] = call_functions(backend, {{"a.py": code.encode()}}, "a.py", [("f", [[1]])], Limits(20.0))
    print(result.problem or result.value)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run the tests as root to become another user")
def test_another_user_has_no_answers_no_sockets_no_processes_and_no_signals(tmp_path: Path) -> None:
    secret = tempfile.mkdtemp()
    try:
        os.chmod(secret, 0o755)
        script = AS_ANOTHER_USER.format(here=str(Path(__file__).parent), secret=secret)
        package = Path(isolation.__file__).resolve().parents[3]
        codes = [
            "def f(x):\n    return x + 1",
            "import octavo",
            f"open({str(package / 'errors.py')!r})",
            "import os\nos.fork()",
            "import socket\nsocket.socket()",
            f"import os\nos.kill({os.getpid()}, 9)",
            f"import os\nos.listdir({secret!r})",
            "import os\ndef f(x):\n    return os.getuid() == 0",
        ]
        done = subprocess.run([sys.executable, "-c", script], input=json.dumps(codes), capture_output=True, text=True)
    finally:
        os.rmdir(secret)
    open_package, *lines = done.stdout.splitlines()
    assert "can be read by other users; close it: chmod go-rwx" in open_package, done.stderr
    reported = ["2", "ModuleNotFoundError", "PermissionError", "PermissionError", "PermissionError", "PermissionError",
                "PermissionError", "False"]  # fmt: skip
    assert [line.split(" in line")[0] for line in lines] == reported


def test_only_root_can_become_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="only root"):
        choose_backend("user")


# The filter and the runtime


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_of_system_calls_are_those_of_the_system(machine: str) -> None:
    header = Path(HEADERS[machine])
    if not header.is_file():
        pytest.skip(f"needs the kernel's headers: {header} is not there")
    text = header.read_text(encoding="utf-8")
    numbers = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", text, re.M)}
    numbers.setdefault("newfstatat", numbers.get("fstatat", -1))
    assert {name: numbers[name] for name in system_call_numbers(machine)} == system_call_numbers(machine)


def test_every_jump_of_the_filter_stays_inside_and_it_ends_by_refusing() -> None:
    for machine in HEADERS:
        for starting in (False, True):
            program = build_filter(starting, machine)
            operations = [program[i : i + 8] for i in range(0, len(program), 8)]
            for i, operation in enumerate(operations):
                if operation[0] & 7 == 5:  # a jump
                    assert i + 1 + max(operation[2], operation[3]) < len(operations)
            assert operations[-1][0] == 6


def test_the_runtime_has_numpy_and_torch_and_nothing_of_octavo() -> None:
    packages = find_packages()
    assert {"numpy", "torch"} <= set(packages)
    assert not any("octavo" in f"{name} {path}" for name, path in packages.items())
    runtime = find_runtime()
    package = Path(isolation.__file__).resolve().parents[3]
    assert not any(package.is_relative_to(folder) for folder in runtime.libraries) or any(
        package.is_relative_to(folder) for folder in runtime.hidden
    )


def test_every_functions_arguments_and_results_pass_through_json() -> None:
    """So no answer needs octavo, or any type of ours, in isolation."""
    parts = [part for exercises in exercises_by_topic().values() for one in exercises for part in one.parts]
    functions = [part.answer for part in parts if isinstance(part.answer, Function)]
    assert len(functions) >= 10
    for function in functions:
        for case in function.cases:
            sent = json.loads(json.dumps(case))
            result = check_result(json.loads(json.dumps(plain(function.right(*sent), [MAX_RESULT_NUMBERS]))))
            assert result.problem == "", function.name
            assert function.first_difference(result.value, function.right(*case)) is None, function.name


def test_torch_works_in_isolation() -> None:
    code = b"import torch\ndef f(x):\n    a = torch.tensor(x, requires_grad=True)\n    (a * a).sum().backward()\n"
    code += b"    return a.grad\n"
    try:
        backend = choose_backend()
    except UserError as error:
        pytest.skip(f"needs isolation: {error}")
    [[result]] = call_functions(backend, {"mine.py": code}, "mine.py", [("f", [[[1.0, 2.0]]])], Limits(60.0))
    assert result.value == [2.0, 4.0]


# Storing and resuming


def test_grading_resumes_with_the_students_who_are_missing(tmp_path: Path) -> None:
    for name in ("ada", "bob", "cyd"):
        write_student(tmp_path / "class" / name)
    results = ResultFolder(tmp_path / "results")
    graded: list[str] = []

    def stop_after_one(student: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade(tmp_path / "class", [EXERCISE], finished=stop_after_one, results=results)
    [stored] = (tmp_path / "results").iterdir()
    done = json.loads(stored.read_text(encoding="utf-8"))["student"]
    before = stored.stat().st_mtime_ns
    students = grade(tmp_path / "class", [EXERCISE], finished=lambda one: graded.append(one.name), results=results)
    assert [(one.name, one.points) for one in students] == [("ada", 1), ("bob", 1), ("cyd", 1)]
    assert graded[0] == done
    assert stored.stat().st_mtime_ns == before
    assert len([*(tmp_path / "results").iterdir()]) == 3


def test_a_stored_result_counts_only_for_the_same_files_exercises_and_limits(tmp_path: Path) -> None:
    answers, results = write_student(tmp_path / "ada"), ResultFolder(tmp_path / "results")
    [first] = grade(answers, [EXERCISE], results=results)
    assert results.load(answers, [EXERCISE], Limits()) == [list(row) for row in first.rows]
    assert results.load(answers, [EXERCISE], Limits(1.0)) is None
    assert results.load(answers, [], Limits()) is None
    (tmp_path / "ada" / "mine.py").write_bytes(DOUBLE.replace(b"2", b"3"))
    assert results.load(answers, [EXERCISE], Limits()) is None
    [second] = grade(answers, [EXERCISE], results=results)
    assert (first.points, second.points) == (1, 0)
    for file in (tmp_path / "results").iterdir():
        file.write_text("{", encoding="utf-8")
    assert results.load(answers, [EXERCISE], Limits()) is None


def test_the_command_stores_results_and_writes_the_table_student_by_student(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, part in (("ada", "mean = 1"), ("bob", 'mean = "d*s^4"')):
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "answers.toml").write_text(f"[score-square]\n{part}\n", encoding="utf-8")
    command = ["exercises", "grade", str(tmp_path / "class"), "--results", str(tmp_path / "results"), "--csv",
               str(tmp_path / "table.csv"), "--json"]  # fmt: skip
    assert main(command) == 0
    first = capsys.readouterr().out
    stored = {file: file.stat().st_mtime_ns for file in (tmp_path / "results").iterdir()}
    assert len(stored) == 2
    assert {line.split(",")[0] for line in (tmp_path / "table.csv").read_text().splitlines()} == {
        "student",
        "ada",
        "bob",
    }
    assert main(command) == 0
    assert capsys.readouterr().out == first
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "results").iterdir()} == stored


def test_nothing_is_left_of_a_program_when_the_grader_is_killed(tmp_path: Path) -> None:
    try:
        backend = choose_backend()
    except UserError as error:
        pytest.skip(f"needs isolation: {error}")
    for name in dict.fromkeys((backend.name, "namespaces")):
        script = f"""
from octavo.exercises.framework.isolation import call_functions, choose_backend
from octavo.exercises.framework.limits import Limits
backend = choose_backend({name!r})
print("started", flush=True)
call_functions(backend, {{"a.py": b"import time\\ntime.sleep(600)"}}, "a.py", [("f", [[1]])], Limits(600.0))
"""
        grader = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert grader.stdout is not None
        assert grader.stdout.readline() == b"started\n"
        deadline = time.monotonic() + 30
        while len(family := descendants(grader.pid)) < 3:  # the one that waits, process 1, and the program
            assert time.monotonic() < deadline
            time.sleep(0.01)
        grader.send_signal(signal.SIGKILL)
        grader.wait()
        grader.stdout.close()
        while any(is_running(pid) for pid in family):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("name", ["bubblewrap", "namespaces"])
def test_seen_from_outside_a_program_has_no_rights_and_namespaces_of_its_own(name: str) -> None:
    try:
        backend = choose_backend(name)  # type: ignore[arg-type]
    except UserError as error:
        pytest.skip(f"needs isolation: {error}")
    seen: dict[str, str] = {}
    namespaces: dict[str, str] = {}

    def look() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and "Seccomp_filters" not in seen:
            for pid in descendants(os.getpid()):
                with contextlib.suppress(OSError, ValueError):
                    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
                    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
                    if status["Name"].startswith("waiting"):
                        seen.update(status)
                        for kind in ("pid", "net", "mnt", "ipc", "uts"):
                            namespaces[kind] = os.readlink(f"/proc/{pid}/ns/{kind}")
            time.sleep(0.02)

    watcher = threading.Thread(target=look)
    watcher.start()
    code = b"import ctypes, time\nctypes.CDLL(None).prctl(15, b'waiting', 0, 0, 0)\ntime.sleep(600)\n"
    [[result]] = call_functions(backend, {"a.py": code}, "a.py", [("f", [[1]])], Limits(2.0))
    watcher.join()
    assert "was stopped" in result.problem
    assert {seen[field].strip() for field in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert seen["NoNewPrivs"] == "1"
    assert seen["Seccomp"] == "2"
    assert int(seen["Seccomp_filters"]) == (2 if name == "bubblewrap" else 1)
    assert "0" not in seen["Uid"].split()
    assert all(target != os.readlink(f"/proc/self/ns/{kind}") for kind, target in namespaces.items())
    assert len(namespaces) == 5


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text(encoding="ascii").split():
            found += [int(child), *descendants(int(child))]
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
