"""JSON that was not written here, or may be damaged: refused in words, whatever is wrong with it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from octavo.errors import UserError

MAX_JSON_BYTES = 1 << 28  # of a file: a tokenizer may have some megabytes, a record has far fewer
MAX_DIGITS = 40  # of a whole number
MAX_DEPTH = 100  # of lists and objects within each other: whoever walks over them calls itself as often
TOO_DEEP = f"lists and objects may be {MAX_DEPTH} deep within each other: it is nested too deeply"


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text in UTF-8, its numbers finite.

    Raises:
        ValueError: It is no JSON, not UTF-8, too deeply nested, or has a number that nothing can compute with.
    """
    try:
        value = json.loads(
            data.decode("utf-8-sig") if isinstance(data, bytes) else data,
            parse_constant=_refuse_constant, parse_int=_whole_number, parse_float=_finite_number,
        )  # fmt: skip
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    _check_depth(value)
    return value


def read_json_file(path: str | Path, remedy: str, most: int = MAX_JSON_BYTES) -> Any:
    """What a JSON file holds; one that cannot be read is refused, with what to do about it."""
    try:
        if not Path(path).is_file():  # a pipe would be waited for
            raise ValueError("there is no such file")
        with open(path, "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ValueError(f"it has more than {most:,} bytes")
        return parse_json(data)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged: {error}; {remedy}") from error


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            one
            for outer in level
            for one in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(one, dict | list)
        ]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number has {len(digits):,} digits")
    return int(digits)


def _finite_number(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
