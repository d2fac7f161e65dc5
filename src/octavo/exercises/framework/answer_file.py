"""Reading an answer file: TOML, or what is nearly TOML, so that one bad line costs one answer and not the file."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from octavo.errors import UserError

MAX_FILE_BYTES = 1 << 18
MAX_DEPTH = 8  # tables within tables
MAX_DIGITS = 300  # of a whole number; a longer one is left as text, which is refused with its part
TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
LINE = re.compile(r"\s*([\w-]+|\"[^\"]*\"|'[^']*')\s*[=:]\s*(.*)")
COMMENT = re.compile(r"\s+#.*$")
QUOTES = "\"'“”‘’`"


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
    """The text of an answer file as plain values: a table of answers for each exercise."""
    try:
        answers = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a whole number with thousands of digits, lists within lists
        answers = _parse_lines(text)
        if not answers:
            raise UserError(f"it is not valid TOML: {error}"[:300]) from error
    return {_key(key): _plain(value) for key, value in answers.items()}


def _parse_lines(text: str) -> dict[str, Any]:
    """Tables and answers line by line; what is not TOML is taken as text."""
    answers: dict[str, Any] = {}
    table = answers
    for line in text.splitlines():
        if header := TABLE.fullmatch(line):
            table = answers.setdefault(header[1].strip(QUOTES), {})
        elif not line.lstrip().startswith("#") and (found := LINE.fullmatch(line)) and isinstance(table, dict):
            table.setdefault(found[1].strip(QUOTES), _value(found[2]))
    return {key: value for key, value in answers.items() if isinstance(value, dict) and value}


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return COMMENT.sub("", text).strip().strip(QUOTES)


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise UserError(f"tables and lists may be nested {MAX_DEPTH} deep; flatten them")
    if isinstance(value, dict):
        return {_key(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**MAX_DIGITS:
        return f"a whole number of more than {MAX_DIGITS} digits"
    return value if isinstance(value, bool | int | float | str) else str(value)  # dates


def _key(name: str) -> str:
    """The name of an exercise or a part, whose case and separators do not matter."""
    return re.sub(r"[\s_]+", "-", name.strip().lower())
