"""What an examination finds: a verdict, the values, what they mean; and advice that fits the run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from octavo.config import plain_json
from octavo.core import LanguageModel
from octavo.models import ModelSpec, spec_of
from octavo.pages.sections import notebook_view, paragraph, table
from octavo.training.diagnosis.curve import Training

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
    condition: str = ""
    """What a warning or a note found, by its name in docs/doctor.md: overfitting, data leak."""


JUDGING = {"progress", "baselines"}  # examinations without which nobody can say that a result is normal
VERDICTS: tuple[Verdict, ...] = ("warning", "note", "ok", "not applicable")  # the worst first


@dataclass(frozen=True)
class Diagnosis:
    """All findings of one run, the worst first; among warnings, causes before what follows from them."""

    run: str
    findings: tuple[Finding, ...]

    def count(self, verdict: Verdict) -> int:
        """How many findings have it."""
        return sum(one.verdict == verdict for one in self.findings)

    @property
    def verdict(self) -> str:
        """normal, or how many warnings and notes; with a reserve where neither the curve nor the result was judged."""
        warnings, notes = self.count("warning"), self.count("note")
        words = [f"{n} {word}{'s' * (n > 1)}" for n, word in ((warnings, "warning"), (notes, "note")) if n]
        if not warnings and self.count("not applicable") == len(self.findings):
            return "nothing could be examined"
        unjudged = {one.name for one in self.findings if one.verdict == "not applicable"}
        normal = "normal as far as examined" if unjudged >= JUDGING else "normal"
        return ", ".join(words if warnings else [normal, *words])

    def __repr__(self) -> str:
        return f"<octavo diagnosis of {self.run}: {self.verdict}>"

    def _repr_html_(self) -> str:
        rows = [(one.name, one.verdict, one.measured, one.expected) for one in self.findings]
        unusual = [
            paragraph(f"{one.condition}: {one.why} " + "".join(f"Try {advice}. " for advice in one.advice))
            for one in self.findings if one.verdict in ("warning", "note")
        ]  # fmt: skip
        found = table(("examination", "verdict", "measured", "expected"), rows)
        return notebook_view(paragraph(f"{self.run}: {self.verdict}"), *unusual, found)

    @property
    def condition(self) -> str:
        """The name of the worst finding; empty where nothing deserves a warning."""
        return next((one.condition for one in self.findings if one.verdict == "warning"), "")

    def to_json(self) -> dict[str, Any]:
        counts = {"warnings": self.count("warning"), "notes": self.count("note")}
        about = {"run": self.run, "verdict": self.verdict, "condition": self.condition}
        return {**about, **counts, "findings": plain_json(self.findings)}

    @classmethod
    def of(cls, run: str, findings: Sequence[Finding]) -> Diagnosis:
        """The findings sorted; within a verdict they stay in the order given, causes first."""
        return cls(run, tuple(sorted(findings, key=lambda one: VERDICTS.index(one.verdict))))


def not_applicable(name: str, why: str) -> Finding:
    """The line for what cannot be examined, and why."""
    return Finding(name, "not applicable", "", "", why)


def percent(share: float, digits: int = 1, sign: bool = False) -> str:
    """0.1234 as 12.3 %; with a sign, +12.3 %."""
    return f"{100 * share:{'+' * sign}.{digits}f} %"


FLAG = re.compile(r"--([a-z][a-z-]*)(?: ([\w.+-]+))?")
GATES = ("a gru or lstm instead of an rnn: their gates keep the way open", "gates in the cell: --cell gru")
MORE_ATTENTION = (
    "a longer --attention-window",
    "attention to every token: --attention full",
)  # the remedies of a transformer


def settings(model: LanguageModel[Any], training: Training | None) -> dict[str, Any]:
    """Every setting that a flag can change for this model, with the run's own value."""
    found = asdict(model.config)
    if training is not None:
        found |= asdict(training.optim) | asdict(training.loop) | dict(training.task_settings)
    for name in spec_of(model).unused_settings(model.config):
        del found[name]
    return found


def fitting(advice: Sequence[str], model: LanguageModel[Any], own: Mapping[str, Any]) -> tuple[str, ...]:
    """What of the advice makes sense for a model with its `settings`; each string is one thing to try."""
    spec = spec_of(model)
    return tuple(
        one
        for one in advice
        if ("gru or lstm" not in one or _multiplies_states(spec, own))
        and ("greater --width" not in one or spec.family != "attention")  # whose output grows with it
        and all(
            _is_new(one, name.replace("-", "_"), value, own) and _is_choice(model, name, value)
            for name, value in FLAG.findall(one)
        )
    )


def _multiplies_states(spec: ModelSpec, own: Mapping[str, Any]) -> bool:
    """Whether each state is the one before times a matrix, which `init` draws, and no gate keeps the way open."""
    return spec.family == "recurrent" and not spec.has_gates and "init" in own


def _is_choice(model: LanguageModel[Any], name: str, value: str) -> bool:
    """Whether a setting of the model that is one of a few words can be this one."""
    known = get_args(get_type_hints(type(model.config)).get(name))
    return not (value and known) or value in known


def _is_new(advice: str, name: str, value: str, own: Mapping[str, Any]) -> bool:
    """Whether the run has the setting, and not yet in the direction that the advice goes."""
    if name.startswith("no_"):
        return bool(own.get(name.removeprefix("no_")))
    if name not in own:
        return False
    if advice.startswith("fewer "):
        return bool(own[name] > 1)
    try:
        number = float(value)
    except ValueError:
        return bool(own[name] != value)
    if name == "patience":  # with any but 0, training stops in time already
        return bool(own[name] == 0)
    return bool(own[name] < number if advice.startswith("more ") else own[name] != number)
