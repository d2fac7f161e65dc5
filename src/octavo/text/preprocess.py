"""Named steps that simplify a text and lose information; results on such a text are not comparable with others.

Every step works line by line and wants whole lines: a line feed is never removed, and nothing in one line changes
another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from octavo.errors import UserError, did_you_mean
from octavo.text.tokenizers.token_bytes import as_bytes, as_text

DIGIT = re.compile(r"\d")
# An end of sentence is closing punctuation, perhaps closing quotes or brackets, then spaces and what can open one.
SENTENCE_END = re.compile(r"([.!?…]+[\"'”’)\]]*)[ \t]+(?=[\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ])")
ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'“‘])(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Capt|Rev|No|vs|etc|cf|e\.g|i\.e)\.$"
)

PTB_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(^|[\s(\[{<])[\"“]", r"\1`` "),  # opening quotes
        (r"[\"”]", " '' "),
        (r"(\.\.\.|…)", " ... "),
        (r"(--|—|–)", " -- "),
        (r"([;:@#$%&!?])", r" \1 "),
        (r",(?!\d)", " , "),  # 1,000 stays whole
        (r"([^.\s])\.([\"')\]}\s]*)$", r"\1 .\2"),  # only the line's last full stop ends a sentence
        (r"\(", " -LRB- "),
        (r"\)", " -RRB- "),
        (r"\[", " -LSB- "),
        (r"\]", " -RSB- "),
        (r"\{", " -LCB- "),
        (r"\}", " -RCB- "),
        (r"(?i)(\w)n['’]t\b", r"\1 n't"),
        (r"(?i)(\w)['’](s|m|d|ll|re|ve)\b", r"\1 '\2"),
        (r"(\w)['’](\s|$)", r"\1 '\2"),  # a plural's possessive
        (r"(?i)\b(can)(not)\b", r"\1 \2"),
    )
)


def _each_line(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    return lambda data: as_bytes("\n".join(change(line) for line in as_text(data).split("\n")))


def _ptb_line(line: str) -> str:
    for pattern, replacement in PTB_RULES:
        line = pattern.sub(replacement, line)
    return " ".join(line.split())


def _sentence_lines(line: str) -> str:
    sentences, start = [], 0
    for end in SENTENCE_END.finditer(line):
        if end[1] == "." and ABBREVIATION.search(line, start, end.end(1)):
            continue
        sentences.append(line[start : end.end(1)])
        start = end.end()
    return "\n".join([*sentences, line[start:]])


PREPROCESS: dict[str, Callable[[bytes], bytes]] = {
    "lower": lambda data: as_bytes(as_text(data).lower()),
    "digits": lambda data: as_bytes(DIGIT.sub("0", as_text(data))),  # every digit becomes 0
    "ptb": _each_line(_ptb_line),  # the Penn Treebank's tokens: `` quotes '', do n't, -LRB- brackets -RRB-
    "sentences": _each_line(_sentence_lines),  # one a line; a line's end always ends a sentence too
}


def apply(names: Iterable[str], data: bytes) -> bytes:
    """The data, made of whole lines, after the named steps in their order."""
    for name in check_steps(names):
        data = PREPROCESS[name](data)
    return data


def check_steps(names: Iterable[str]) -> tuple[str, ...]:
    """The names of steps, every one of them known."""
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name not in PREPROCESS:
            advice = did_you_mean(name, PREPROCESS, f"known are {', '.join(PREPROCESS)}")
            raise UserError(f"there is no preprocessing step named {name!r}; {advice}")
    return names
