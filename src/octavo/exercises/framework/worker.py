"""A process of its own that reads and compares what strangers wrote: one line of JSON in, one out, under limits.

python -m octavo.exercises.framework.worker SECONDS BYTES SECONDS-OF-ONE-THING
"""

from __future__ import annotations

import json
import signal
import sys
import tomllib
from typing import Any

from octavo.errors import UserError
from octavo.exercises.framework.answers import Formula, Number
from octavo.exercises.framework.function_runner import limit

LARGEST_FILE = 1 << 18  # bytes of an answer file
DEEPEST = 8  # tables within tables


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Do one thing: read a file of answers, or hold one answer against another."""
    try:
        if asked["do"] == "read":
            return {"ok": read(asked["file"])}
        if asked["do"] == "parse":
            return {"ok": parse(asked["text"])}
        kinds: dict[str, Any] = {"number": Number, "formula": Formula}
        return {"ok": kinds[asked["do"]](**asked["as"]).compare(asked["given"])}
    except UserError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": "it needs more memory than the limit"}
    except RecursionError:
        return {"refused": "it is nested too deeply; write it flatter"}
    except (ArithmeticError, ValueError) as error:
        return {"refused": f"it cannot be computed: {error}"[:300]}


def read(file: str) -> dict[str, Any]:
    """A TOML file as plain values."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise UserError(f"it cannot be opened: {error.strerror}") from error
    if len(data) > LARGEST_FILE:
        raise UserError(f"a file of answers may have {LARGEST_FILE:,} bytes; write less")
    try:
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"it is no text in UTF-8 (byte {error.start}); save it as UTF-8") from error


def parse(text: str) -> dict[str, Any]:
    """TOML as plain values."""
    try:
        return {key: _plain(value) for key, value in tomllib.loads(text).items()}
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"it is no TOML: {error}"[:300]) from error


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > DEEPEST:
        raise UserError("tables and lists may be nested 8 deep; write it flatter")
    if isinstance(value, dict):
        return {key: _plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in value]
    return value if isinstance(value, bool | int | float | str) else str(value)  # dates


def main() -> None:
    limit(int(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        signal.alarm(int(sys.argv[3]))  # who asked watches the clock, but may have been killed
        print(json.dumps(answer(json.loads(line))), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
