"""A Spark cluster on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

SECONDS = 120.0  # until a process of the cluster is there
PACKAGE = "org.apache.spark.deploy"


def missing() -> str:
    """What there is not that Spark needs; nothing where it can run."""
    if find_spec("pyspark") is None:
        return "needs pyspark: make test-spark"
    return "" if shutil.which("java") else "needs Java 17: apt-get install openjdk-17-jre-headless"


SPARK_MARKS = [
    pytest.mark.spark,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.filterwarnings("ignore"),  # of pyspark's own code
]


class Cluster:
    """The processes of a running cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workers, self.processes = folder, list[subprocess.Popen[bytes]](), 0
        self.master = self._start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = self._wait_for(self.master, r"Starting Spark master at (spark://\S+)")

    def add_worker(self, memory: str, cores: int = 1) -> None:
        """Start a worker, and wait until the master knows it."""
        work = self.folder / f"work{len(self.workers)}"
        words = ("--host", "127.0.0.1", "--cores", str(cores), "--memory", memory, "--webui-port", "0",
                 "--work-dir", str(work), self.url)  # fmt: skip
        self.workers.append(worker := self._start("worker.Worker", *words))
        self._wait_for(worker, "Successfully registered with master")

    def kill_worker(self, number: int) -> None:
        """Kill a worker and the executors that it has started, as a machine that fails does."""
        worker = self.workers[number]
        for child in _children(worker.pid):
            os.kill(child, 9)
        worker.kill()
        worker.wait()

    def close(self) -> None:
        for process in (*self.workers, self.master):
            for child in _children(process.pid):
                os.kill(child, 9)
            process.kill()
            process.wait()

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable,
                       "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(map(str, sys.path))}  # fmt: skip
        self.processes += 1
        with open(self.folder / f"{self.processes}.log", "wb") as log:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"{PACKAGE}.{name}", *words], stdout=log, stderr=log, env=environment
            )
        process.log = self.folder / f"{self.processes}.log"  # type: ignore[attr-defined]
        return process

    def _wait_for(self, process: subprocess.Popen[bytes], pattern: str) -> str:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            text = process.log.read_text(errors="replace")  # type: ignore[attr-defined]
            if found := re.search(pattern, text):
                return found[found.re.groups]
            if process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"a process of the cluster did not start:\n{text[-2000:]}")


def _children(pid: int) -> list[int]:
    """The processes below one, the lowest first."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    below: dict[int, list[int]] = {}
    for line in listed.splitlines():
        child, parent = map(int, line.split())
        below.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:
        found += below.get(one, [])
    return found[:0:-1]


@contextmanager
def running_cluster(folder: Path, workers: int, memory: str = "1g") -> Iterator[Cluster]:
    """A master and so many workers of one core."""
    cluster = Cluster(folder)
    try:
        for _ in range(workers):
            cluster.add_worker(memory)
        yield cluster
    finally:
        cluster.close()
