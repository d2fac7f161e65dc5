"""Verdicts on statements and choices among options: answers that are one of a few words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.bound_text import Text
from octavo.exercises.framework.mathml import prose_as_text

Verdict = Literal["true", "nearly", "false"]
VERDICTS: dict[bool, Verdict] = {True: "true", False: "false"}
VERDICT_MEANINGS = {  # as students read them
    "true": "it holds as stated, without exception",
    "false": "it does not always hold",
    "nearly": "it does not always hold, but it does under a condition, which you name",
}
ONLY_IF = "only if"
TRUE_WORDS, FALSE_WORDS = ("true", "t", "yes", "y", "right", "correct"), ("false", "f", "no", "n", "wrong", "incorrect")
NEARLY_WORDS = ("nearly", "nearly true", "under a condition", "true under a condition")
WORDS = re.compile(r"[^\W_]+|[^\w\s:;.,\"'-]")  # words and the signs of mathematics, but no punctuation


class Judgement(NamedTuple):
    """What evidence found of a statement: the verdict, and what holds under which condition."""

    verdict: Verdict
    under: Any  # whether it holds, by condition; or the number or formula that the condition contains

    def __str__(self) -> str:
        return f"{self.verdict}, {self.under}"


@dataclass(frozen=True)
class Choice:
    """One of several named options."""

    right: str
    options: Mapping[str, str]  # name -> meaning

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", {name: Text(meaning) for name, meaning in self.options.items()})

    @property
    def template(self) -> str:
        return "one of " + ", ".join(f'"{name}"' for name in self.options)

    def compare(self, given: Any, found: Any = None) -> str | None:
        """The right option, if the given one differs."""
        option, right = self.read(given), found if found is not None else self.right
        if option == right:
            return None
        return f"{option} is wrong; {right} is right: {self.options[right]}" if right else f"{option} is wrong"

    def read(self, given: Any) -> str:
        """The option that an answer names, in any case, by its name, its meaning or both: "name: meaning"."""
        text = _words(str(given) if isinstance(given, bool) else text_of(given).replace("`", ""))
        for name, meaning in self.options.items():
            if text in (_words(name), _words(prose_as_text(meaning)), _words(f"{name} {prose_as_text(meaning)}")):
                return name
        aliases = {"true": TRUE_WORDS, "yes": TRUE_WORDS, "false": FALSE_WORDS, "no": FALSE_WORDS}
        for name in self.options:
            if text in aliases.get(name.lower(), ()):
                return name
        raise UserError(f"the answer must be one of {', '.join(self.options)}: it is {shorten(given)}")

    def tolerance(self) -> str:
        """Options are equal or not."""
        return "same option"


@dataclass(frozen=True)
class Truth:
    """Whether a statement is true, false, or nearly true: false as stated, but true under a condition.

    The condition is graded too. It is a `Choice` of conditions, of which the evidence must confirm exactly the right
    one; or a `Number` or `Formula`, whose place in `phrase` is marked by an ellipsis: "there are at most … keys".
    A true or a false statement may have a choice of conditions too, with `Choice("", ...)`: then none of them is right,
    and students cannot tell from the question that a condition is needed.
    """

    right: Verdict
    condition: Any = None  # a Choice, a Number or a Formula
    phrase: str = ""
    template = "true, false or nearly"

    def __post_init__(self) -> None:
        object.__setattr__(self, "phrase", Text(self.phrase))

    @property
    def only_if(self) -> str:
        """The condition under which a nearly true statement holds, as prose."""
        if self.right != "nearly" or self.condition is None:
            return ""
        if isinstance(self.condition, Choice):
            return self.condition.options[self.condition.right]
        return self.phrase.replace("…", f"`{self.condition.right}`")

    def compare(self, given: Any, found: Any = None) -> str | None:
        """The right verdict, if the given one differs; `found` is a verdict or a `Judgement`."""
        verdict, right = self.verdict(given), found if found is not None else self.right
        if isinstance(right, Judgement):
            right = right.verdict
        if verdict == right:
            return None
        return {
            "true": "it is true", "false": "it is false",
            "nearly": f"it is true only if {self.only_if}" if self.only_if else "it is true only under a condition",
        }[right]  # fmt: skip

    def compare_condition(self, found: Judgement) -> str | None:
        """How the condition differs from what the evidence found."""
        if self.condition is None or self.right == "true":  # what always holds, holds under any condition
            return None
        if not isinstance(self.condition, Choice):
            return self.condition.compare(self.condition.right, found.under) if self.right == "nearly" else None
        under = found.under if isinstance(found.under, Mapping) else {}
        if unknown := set(self.condition.options) ^ set(under):
            return f"the evidence must say of every condition whether the statement holds under it: {sorted(unknown)}"
        holding = sorted(name for name, holds in under.items() if holds)
        expected = [self.condition.right] if self.right == "nearly" else []
        return None if holding == expected else f"it holds under the conditions {holding}"

    def verdict(self, given: Any) -> Verdict:
        """The verdict that an answer gives."""
        return self.read(given)[0]

    def read(self, given: Any) -> tuple[Verdict, str]:
        """The verdict that an answer gives, and the condition if it names one: "only if ..."."""
        if isinstance(given, bool):
            return VERDICTS[given], ""
        if isinstance(given, int | float) and given in (0, 1):
            return VERDICTS[bool(given)], ""
        text = " ".join(text_of(given).split()).strip(" .!\"'")
        before, found, _ = text.lower().partition(ONLY_IF)
        if found and before.strip(" :;,.") in ("", *NEARLY_WORDS, "true", "yes"):
            return "nearly", text[len(before) + len(found) :].strip(" :")
        for verdict, words in (("true", TRUE_WORDS), ("false", FALSE_WORDS), ("nearly", NEARLY_WORDS)):
            if text.lower() in words:
                return verdict, ""  # type: ignore[return-value]
        raise UserError(f"the answer must be true, false or nearly: it is {shorten(given)}")

    def read_condition(self, given: Any) -> Any:
        """The number or formula of a condition that is written out: "there are at most 223 keys"."""
        before, found, after = prose_as_text(self.phrase).strip().partition("…")
        if not found or not isinstance(given, str):
            return given
        text = " ".join(given.split())
        has_phrase = text.lower().startswith(before.lower()) and text.lower().endswith(after.lower())
        return text[len(before) : len(text) - len(after)] if has_phrase else text

    def tolerance(self) -> str:
        """Verdicts are equal or not."""
        return "same verdict and condition" if self.condition else "same verdict"


def verdict(as_stated: bool, under: Any = None) -> Judgement:
    """The verdict on a statement: whether it holds as stated, and what holds under which condition.

    `under` says of every condition that is offered whether the statement holds under it, or is what the condition's
    number or formula should be, computed without looking at the answer.
    """
    holds = any(under.values()) if isinstance(under, Mapping) else under is not None and under is not False
    return Judgement("true" if as_stated else "nearly" if holds else "false", under)


def text_of(given: Any) -> str:
    """An answer as text; lists, tables and true or false are refused."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise UserError(f"the answer must be text in quotes: it is {shorten(given)}")
    return str(given)


def shorten(value: Any) -> str:
    """A value as one short line."""
    text = f"{value:.8g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _words(text: str) -> str:
    """The words of a text without case and punctuation, so that two ways of writing them are equal."""
    return " ".join(WORDS.findall(text.lower()))
