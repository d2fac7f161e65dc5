"""The grader's worker process: it reads answer files and compares answers under limits, one line of JSON each way.

python -m octavo.exercises.framework.worker CPU-SECONDS MEMORY-BYTES SECONDS-PER-REQUEST
"""

from __future__ import annotations

import json
import signal
import sys
import tomllib
from typing import Any

from octavo.errors import UserError
from octavo.exercises.framework.answers import Formula, Number
from octavo.exercises.framework.isolation.runner import set_limits

MAX_FILE_BYTES = 1 << 18
MAX_DEPTH = 8  # tables within tables


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


def read_answers(file: str) -> dict[str, Any]:
    """An answer file as plain values."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(f"it cannot be opened: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise UserError(f"an answer file may have {MAX_FILE_BYTES:,} bytes; shorten it")
    try:
        return parse_answers(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"it is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def parse_answers(text: str) -> dict[str, Any]:
    """TOML text as plain values."""
    try:
        return {key: _plain(value) for key, value in tomllib.loads(text).items()}
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"it is not valid TOML: {error}"[:300]) from error


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise UserError(f"tables and lists may be nested {MAX_DEPTH} deep; flatten them")
    if isinstance(value, dict):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    return value if isinstance(value, bool | int | float | str) else str(value)  # dates


def main() -> None:
    set_limits({"RLIMIT_CPU": int(sys.argv[1]), "RLIMIT_AS": int(sys.argv[2]), "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0,
                "RLIMIT_NPROC": 0, "RLIMIT_NOFILE": 64})  # fmt: skip
    for line in sys.stdin:
        signal.alarm(int(sys.argv[3]))  # the client watches the clock too, but may have been killed
        print(json.dumps(answer_request(json.loads(line))), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
