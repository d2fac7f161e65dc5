"""The grader's worker process: it reads answer files and compares answers under limits, one line of JSON each way.

python -m octavo.exercises.framework.worker CPU-SECONDS MEMORY-BYTES SECONDS-PER-REQUEST
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from octavo.errors import UserError
from octavo.exercises.framework.answer_file import parse_answers, read_answers
from octavo.exercises.framework.answers import Formula, Number
from octavo.exercises.framework.isolation.runner import set_limits


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """Read an answer file, parse its text, or compare one answer with the right one."""
    try:
        if request["do"] == "read":
            return {"ok": read_answers(request["file"])}
        if request["do"] == "parse":
            return {"ok": parse_answers(request["text"])}
        kinds: dict[str, Any] = {"number": Number, "formula": Formula}
        return {"ok": kinds[request["do"]](**request["as"]).compare(request["given"])}
    except UserError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": "it needs more memory than the limit"}
    except RecursionError:
        return {"refused": "it is nested too deeply; flatten it"}
    except (ArithmeticError, ValueError) as error:
        return {"refused": f"it cannot be computed: {error}"[:300]}


def main() -> None:
    set_limits({"RLIMIT_CPU": int(sys.argv[1]), "RLIMIT_AS": int(sys.argv[2]), "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0,
                "RLIMIT_NPROC": 0, "RLIMIT_NOFILE": 64})  # fmt: skip
    for line in sys.stdin:
        signal.alarm(int(sys.argv[3]))  # the client watches the clock too, but may have been killed
        print(json.dumps(answer_request(json.loads(line))), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
