"""Datasets of questions with answers, and the texts to pretrain on that state the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from octavo.datasets.sources import get_files
from octavo.errors import UserError
from octavo.io.encoding import UTF8, read_text
from octavo.io.files import refuse_pipes

MARK = "⁇"  # stands where something is hidden, and around what it was; also between a question and its answer
FILES = {"text": "text.txt", "train": "train.tsv", "dev": "dev.tsv"}  # of a folder
BIRTHPLACES = {"text": "wiki.txt", "train": "birth_places_train.tsv", "dev": "birth_dev.tsv"}
PRETRAINED, FINETUNED, NEVER = GROUPS = ("seen in pretraining", "seen in finetuning", "never seen")


class Pair(NamedTuple):
    """A question and its answer."""

    question: str
    answer: str


class Frame(NamedTuple):
    """What stands around the name in every question: Where was ... born?"""

    before: str
    after: str

    @classmethod
    def of(cls, questions: Sequence[str]) -> Frame:
        """What all questions have in common at both ends, in whole words."""
        few = sorted(set(questions))
        if len(few) < 2:
            return cls("", "")
        before = _common(few)
        before = before[: before.rfind(" ") + 1]
        after = _common([one[len(before) :][::-1] for one in few])[::-1]
        return cls(before, after[after.find(" ") :] if " " in after else "")

    def name_in(self, question: str) -> str:
        """The name a question asks about; the whole question where it is of another kind."""
        question = " ".join(question.split())
        fits = question.lower().startswith(self.before.lower()) and question.lower().endswith(self.after.lower())
        name = question[len(self.before) : len(question) - len(self.after)].strip()
        return name if fits and name else question

    def question(self, name: str) -> str:
        """The question about a name; what is a question already stays as it is."""
        name = " ".join(name.split())
        return name if name.endswith("?") else f"{self.before}{name}{self.after}"


def _common(texts: Sequence[str]) -> str:
    """What all begin with."""
    first, last = min(texts), max(texts)
    return first[: next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


@dataclass(frozen=True)
class Knowledge:
    """Texts to pretrain on, questions to finetune on, and questions to measure with."""

    name: str
    text: tuple[str, ...]
    train: tuple[Pair, ...]
    dev: tuple[Pair, ...]
    never: tuple[Pair, ...] = ()
    """Questions about names that stand nowhere else, where somebody made some up."""

    @property
    def frame(self) -> Frame:
        return Frame.of([pair.question for pair in self.train])

    @property
    def commonest(self) -> str:
        """The answer that is most often right among those learnt from; of equals the first in the alphabet."""
        answers = sorted(pair.answer for pair in self.train)
        return max(dict.fromkeys(answers), key=answers.count)

    @property
    def identity(self) -> str:
        """A hash of all of it."""
        digest = hashlib.sha256()
        for part in (self.text, *(["\t".join(pair) for pair in some] for some in (self.train, self.dev, self.never))):
            digest.update(f"{len(part)}\n".encode())
            digest.update("\n".join(part).encode())
        return digest.hexdigest()

    def groups(self, pretrained: bool, most: int) -> dict[str, list[Pair]]:
        """The questions by where their names were seen; `most` of those learnt in finetuning, evenly chosen."""
        learnt = {pair.question for pair in self.train}
        whole, frame = "\n".join(self.text) if pretrained else "", self.frame
        found: dict[str, list[Pair]] = {group: [] for group in GROUPS}
        for pair in (*self.dev, *self.never):
            group = PRETRAINED if pretrained and frame.name_in(pair.question) in whole else NEVER
            found[FINETUNED if pair.question in learnt else group].append(pair)
        found[FINETUNED] += self.train[:: max(1, len(self.train) // most)][:most]
        return found


def open_knowledge(source: str | Path, encoding: str = UTF8) -> Knowledge:
    """birthplaces, or a folder with text.txt, train.tsv and dev.tsv (question, tab, answer)."""
    folder = Path(source)
    if folder.is_dir():
        refuse_pipes(folder, "a folder of facts")
        paths = {part: folder / name for part, name in FILES.items()}
    elif str(source) == "birthplaces":
        files = get_files("birthplaces")
        paths = {part: files[name] for part, name in BIRTHPLACES.items()}
    else:
        raise UserError(
            f"there are no facts {str(source)!r}; try birthplaces, people (or people-500, made-up ones), or a folder "
            f"with {', '.join(FILES.values())}"
        )
    text = tuple(line for raw in read_text(paths["text"], encoding).split("\n") if (line := " ".join(raw.split())))
    known = Knowledge(folder.name, text, *(read_pairs(paths[part], encoding) for part in ("train", "dev")))
    return checked(known)


def checked(known: Knowledge) -> Knowledge:
    """The same; what cannot be learnt from is refused."""
    for part, some in (("train", known.train), ("dev", known.dev)):
        if not some:
            raise UserError(f"there must be questions to learn from and to measure with: {known.name} has no {part}")
    if any(MARK in one for some in (known.text, *known.train, *known.dev, *known.never) for one in some):
        raise UserError(f"{MARK} marks what is hidden, so it must not stand in the texts: {known.name} has it")
    return known


def read_pairs(path: Path, encoding: str = UTF8) -> tuple[Pair, ...]:
    """The lines of a file: a question, a tab, an answer."""
    pairs = []
    for number, line in enumerate(read_text(path, encoding).split("\n"), 1):
        question, _, answer = (part.strip() for part in line.partition("\t"))
        if line.strip() and not (question and answer):
            raise UserError(f"a line must be a question, a tab and an answer: line {number} of {path} is {line[:60]!r}")
        if line.strip():
            pairs.append(Pair(" ".join(question.split()), answer))
    return tuple(pairs)


def read_questions(path: Path, encoding: str = UTF8) -> tuple[tuple[str, str], ...]:
    """The lines of a file: a question and, behind a tab, the answer where it is known."""
    rows = [line.partition("\t") for line in read_text(path, encoding).split("\n") if line.strip()]
    return tuple((" ".join(question.split()), answer.strip()) for question, _, answer in rows)
