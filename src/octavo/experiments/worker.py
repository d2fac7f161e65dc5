"""A worker process: reads cells as lines of JSON, and answers each with a line of JSON.

python -m octavo.experiments.worker takes {"cell": {...}, "folder": "..."} on standard input. Everything else that is
written meanwhile goes to standard error. When its input ends, it stops at the next checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path

from octavo.experiments.cell import Cell, execute


def main() -> int:
    """Execute cells until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has started us in the background
    lines, working = queue.Queue[str](), threading.Event()
    threading.Thread(target=_read, args=(lines, working), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while line := lines.get():
            working.set()
            request = json.loads(line)
            outcome = execute(Cell(**request["cell"]), Path(request["folder"]))
            print(json.dumps(outcome.to_json(), allow_nan=False), file=answers, flush=True)
            working.clear()
    return 0


def _read(lines: queue.Queue[str], working: threading.Event) -> None:
    """Pass the lines of standard input on; at its end, ask a training that is under way to save and stop."""
    for line in sys.stdin:
        lines.put(line)
    lines.put("")
    if working.is_set():
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
