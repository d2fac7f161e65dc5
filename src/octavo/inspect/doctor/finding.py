"""What an examination finds: a verdict, the values, what they mean and what to try."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["ok", "note", "warning", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """One examination: `measured` and `expected` are short enough for a table, `why` is a sentence or two."""

    name: str
    verdict: Verdict
    measured: str
    expected: str
    why: str
    advice: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a number that is not finite becomes null."""
        return {
            "name": self.name, "verdict": self.verdict, "measured": self.measured, "expected": self.expected,
            "why": self.why, "advice": list(self.advice), "values": _plain(self.values),
        }  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """All findings of one run."""

    run: str
    findings: tuple[Finding, ...]

    def count(self, verdict: Verdict) -> int:
        """How many findings have it."""
        return sum(one.verdict == verdict for one in self.findings)

    @property
    def verdict(self) -> str:
        """normal, or how many warnings and notes."""
        warnings, notes = self.count("warning"), self.count("note")
        words = [f"{n} {word}{'s' * (n > 1)}" for n, word in ((warnings, "warning"), (notes, "note")) if n]
        if not warnings and self.count("not applicable") == len(self.findings):
            return "nothing could be examined"
        return ", ".join(words if warnings else ["normal", *words])

    def to_json(self) -> dict[str, Any]:
        counts = {"warnings": self.count("warning"), "notes": self.count("note")}
        found = [one.to_json() for one in self.findings]
        return {"run": self.run, "verdict": self.verdict, **counts, "findings": found}


def not_applicable(name: str, why: str) -> Finding:
    """The line for what cannot be examined, and why."""
    return Finding(name, "not applicable", "", "", why)


def percent(share: float, digits: int = 1, sign: bool = False) -> str:
    """0.1234 as 12.3 %; with a sign, +12.3 %."""
    return f"{100 * share:{'+' * sign}.{digits}f} %"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
