"""Too little memory is one line and exit code 2, whichever library notices it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from octavo.cli import main, verbs
from octavo.cli.memory_limit import torch_bytes
from octavo.errors import is_out_of_memory

MEGABYTE = 10**6
UNIX = pytest.mark.skipif(sys.platform == "win32", reason="there are no limits on address space")


def run_limited(limit: int, *words: str) -> subprocess.CompletedProcess[str]:
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2); "
    program += "from octavo.cli import main; sys.exit(main(sys.argv[2:]))"
    command = [sys.executable, "-c", program, str(limit), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@UNIX
@pytest.mark.parametrize("megabytes", [60, 100, 300, 500])  # some of which end the process inside a library
def test_a_command_that_needs_torch_says_how_much_memory_it_lacks(megabytes: int) -> None:
    done = run_limited(megabytes * MEGABYTE, "train", "gru", "book.txt", "--out", "run")
    assert done.returncode == 2
    assert done.stderr.startswith("octavo: ")
    assert done.stderr.count("\n") == 1
    assert "memory" in done.stderr


@UNIX
def test_a_command_without_torch_works_with_little_memory() -> None:
    done = run_limited(200 * MEGABYTE, "data", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert torch_bytes() > 200 * MEGABYTE


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(), OSError(12, "Cannot allocate memory"), RuntimeError("can't start new thread"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"), RuntimeError("std::bad_alloc"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried ..."),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)  # fmt: skip
def test_what_libraries_raise_without_memory_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        try:
            raise error
        except Exception as reason:
            raise ValueError("something else went wrong then") from reason

    assert is_out_of_memory(error)
    monkeypatch.setattr(verbs, "run_verb", fail)
    assert main(["list"]) == 2
    assert capsys.readouterr().err.startswith("octavo: out of memory; try a smaller text")


def test_a_bug_is_not_taken_for_a_lack_of_memory() -> None:
    assert not is_out_of_memory(ValueError("out of memory is what the user typed"))
    assert not is_out_of_memory(KeyError("allocate memory"))


def test_a_folder_that_could_not_be_copied_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'"), ("c", "d", "[Errno 28] No space")])

    monkeypatch.setattr(verbs, "run_verb", fail)
    assert main(["list"]) == 2
    assert capsys.readouterr().err == "octavo: [Errno 28] No space left on device: 'b'\n"
