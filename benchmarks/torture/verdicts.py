"""Whether what a command says of a damaged file is right: its exit code, its words, its numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torture.campaign import Outcome

LONGEST_MESSAGE = 1200  # characters
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
FRAME = re.compile(r'File "[^"]*?/octavo/([^"]+)", line \d+, in (\S+)')
SHARES = ("accuracy", "confidence", "probability", "exact_match")
NEVER_NEGATIVE = ("bits_per_byte", "bits", "perplexity", "bits_per_token", "archive_bytes")
RESULTS_OF_RECORDS = ("list", "inspect", "doctor")  # which repeat what a record says, true or not
LINES_OF_JSON = "classify"  # prints an object for each text, none where there are none
PROOF_SHARE, PROOF_BYTES = 0.001, 64  # that an archive may be longer than its claim


@dataclass(frozen=True)
class Verdict:
    """What came of a trial."""

    outcome: Outcome
    what: str = ""
    command: str = ""


OK = Verdict(Outcome.OK)


def judge(command: list[str], code: int, out: str, err: str, raised: str, noted: list[str]) -> Verdict:
    """What is wrong with an exit code and the texts that came with it."""
    verb = command[0]
    if raised or "Traceback (most recent call last)" in err:
        frames = FRAME.findall(err)
        where = ":".join(frames[-1]) if frames else ""
        last = raised or next(
            (line for line in reversed(err.splitlines()) if line and "that was a bug" not in line), ""
        )
        return Verdict(Outcome.TRACEBACK, f"{verb}: {last[:300]} at {where}")
    if code == 0:
        problem = _false_result(verb, out) if "--json" in command else ""
        if problem:
            return Verdict(Outcome.ACCEPTED, f"{verb}: {problem}")
    elif code == 2:
        if problem := _poor_message(err):
            return Verdict(Outcome.OTHER, f"{verb}: {problem}")
    elif code != 1 or verb not in ("compare", "scale", "domains") or "fail" not in out + err:
        return Verdict(Outcome.OTHER, f"{verb}: exit code {code}: {err[-300:]}")
    if noted:
        return Verdict(Outcome.OTHER, f"{verb}: a library's warning: {noted[0][:300]}")
    return OK


def _poor_message(err: str) -> str:
    """What is wrong with the words of a refusal."""
    if "For full helptext" in err:  # a run whose task cannot be told has other flags
        return ""
    lines = [line for line in err.splitlines() if line.startswith("octavo: ")]
    if not lines:
        return f"exit code 2 without a line that says why: {err[-200:]!r}"
    message = lines[-1]
    if len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message)} characters: {message[:100]}"
    if CONTROL.search(message):
        return f"control characters of the file in a message: {message[:300]!r}"
    if "out of memory" in message or "File too large" in message:
        return f"it takes what memory or disk there is: {message[:200]}"
    return ""


def _false_result(verb: str, out: str) -> str:
    """Why the JSON that is printed cannot be true."""
    if verb == LINES_OF_JSON and not out:
        return ""
    try:
        values = [json.loads(line, parse_constant=_not_a_number) for line in _json_texts(out)]
    except ValueError as error:
        return f"its --json is not JSON ({error}): {out[:100]!r}"
    for key, value in _numbers(values):
        if not math.isfinite(value):
            return f"{key} is {value}"
        if verb not in RESULTS_OF_RECORDS and key in NEVER_NEGATIVE and value < 0:
            return f"{key} is negative"
        if verb not in RESULTS_OF_RECORDS and key in SHARES and not 0 <= value <= 1 + 1e-6:
            return f"{key} is not between 0 and 1"
    for proof in _proofs(values):
        # It may be much shorter: a token takes 24 bits at most, however little the model gives it.
        longer = proof["archive_bytes"] - proof["claimed_bytes"]
        if not proof["restored"] or longer > PROOF_BYTES + PROOF_SHARE * proof["claimed_bytes"]:
            return "a proof that fails, with exit code 0"
    return ""


def _proofs(values: Any) -> Iterator[dict[str, Any]]:
    """Every proof in a result, which is an object with the bytes that were claimed and those of the archive."""
    if isinstance(values, dict) and {"archive_bytes", "claimed_bytes", "restored"} <= set(values):
        yield values
    for value in values.values() if isinstance(values, dict) else values if isinstance(values, list) else ():
        yield from _proofs(value)


def _json_texts(out: str) -> list[str]:
    """The whole, or its lines where each is a result of its own."""
    lines = out.splitlines()
    return lines if len(lines) > 1 and all(line[:1] in "{[" and line[-1:] in "}]" for line in lines) else [out]


def _not_a_number(name: str) -> float:
    return math.nan


def _numbers(values: Any, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _numbers(value, name)
    elif isinstance(values, list):
        for value in values:
            yield from _numbers(value, key)
    elif isinstance(values, float) or (
        isinstance(values, int) and not isinstance(values, bool) and abs(values) < 2**1000
    ):
        yield key, float(values)
