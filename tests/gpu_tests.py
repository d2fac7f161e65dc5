"""Run exactly the tests marked gpu, with warnings as errors, and say how many ran: make test-gpu.

It exits with 2, in one line, where there is no CUDA device, and with 1 where no test ran or one was left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
NO_GPU = "make test-gpu needs a CUDA device, and PyTorch finds none here; make test runs all other tests"


class Outcomes:
    """Counts tests by what became of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":  # of the others, what went wrong before or after
            self.counts["error" if report.when != "call" and report.failed else report.outcome] += 1


def main(arguments: Sequence[str] = ()) -> int:
    """The exit code."""
    if not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 2
    seen = Outcomes()
    code = pytest.main(
        ["-c", str(ROOT / "pyproject.toml"), "-m", "gpu", "-W", "error", *(arguments or [str(ROOT / "tests")])], [seen]
    )
    ran = seen.counts["passed"] + seen.counts["failed"]
    others = "".join(f", {n} {what}" for what, n in seen.counts.items() if what not in ("passed", "failed"))
    print(
        f"{ran} GPU tests ran on {torch.cuda.get_device_name()}, torch {torch.__version__}: "
        f"{seen.counts['passed']} passed, {seen.counts['failed']} failed{others}"
    )
    return int(code) or int(not ran or bool(seen.counts["skipped"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
