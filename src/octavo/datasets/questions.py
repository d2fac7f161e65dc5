"""What is told and what is asked: texts to pretrain on, and questions with answers.

N rows, T tokens of a row. A row to learn an answer from is: begin, the question, a mark, the answer, a mark. Only the
answer and the mark behind it are to be learnt; every other target is `begin`, which costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.datasets.sources import get_files
from octavo.errors import UserError
from octavo.tasks.span_corruption import MARK
from octavo.text.tokenizers.base import Tokenizer

FILES = {"text": "text.txt", "train": "train.tsv", "dev": "dev.tsv"}  # of a folder
BIRTHPLACES = {"text": "wiki.txt", "train": "birth_places_train.tsv", "dev": "birth_dev.tsv"}
TOLD, LEARNT, NEVER = GROUPS = ("seen in pretraining", "seen in finetuning", "never seen")


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
            told = TOLD if pretrained and frame.name_in(pair.question) in whole else NEVER
            found[LEARNT if pair.question in learnt else told].append(pair)
        found[LEARNT] += self.train[:: max(1, len(self.train) // most)][:most]
        return found


def open_knowledge(source: str | Path) -> Knowledge:
    """birthplaces, or a folder with text.txt, train.tsv and dev.tsv (question, tab, answer)."""
    folder = Path(source)
    if folder.is_dir():
        paths = {part: folder / name for part, name in FILES.items()}
    elif str(source) == "birthplaces":
        files = get_files("birthplaces")
        paths = {part: files[name] for part, name in BIRTHPLACES.items()}
    else:
        raise UserError(
            f"there are no facts {str(source)!r}; try birthplaces, people (or people-500, made-up ones), or a folder "
            f"with {', '.join(FILES.values())}"
        )
    text = tuple(line for raw in _lines(paths["text"]) if (line := " ".join(raw.split())))
    known = Knowledge(folder.name, text, read_pairs(paths["train"]), read_pairs(paths["dev"]))
    return checked(known)


def checked(known: Knowledge) -> Knowledge:
    """The same; what cannot be learnt from is refused."""
    for part, some in (("train", known.train), ("dev", known.dev)):
        if not some:
            raise UserError(f"there must be questions to learn from and to measure with: {known.name} has no {part}")
    if any(MARK in one for some in (known.text, *known.train, *known.dev, *known.never) for one in some):
        raise UserError(f"{MARK} marks what is hidden, so it must not stand in the texts: {known.name} has it")
    return known


def read_pairs(path: Path) -> tuple[Pair, ...]:
    """The lines of a file: a question, a tab, an answer."""
    pairs = []
    for number, line in enumerate(_lines(path), 1):
        question, _, answer = (part.strip() for part in line.partition("\t"))
        if line.strip() and not (question and answer):
            raise UserError(f"a line must be a question, a tab and an answer: line {number} of {path} is {line[:60]!r}")
        if line.strip():
            pairs.append(Pair(" ".join(question.split()), answer))
    return tuple(pairs)


def read_questions(path: Path) -> tuple[tuple[str, str], ...]:
    """The lines of a file: a question and, behind a tab, the answer where it is known."""
    rows = [line.partition("\t") for line in _lines(path) if line.strip()]
    return tuple((" ".join(question.split()), answer.strip()) for question, _, answer in rows)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode().split("\n")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the name") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be UTF-8: byte {error.start:,} is not; convert it, with iconv say") from error


# ---------------------------------------------------------------------- rows


def mark_of(tokenizer: Tokenizer) -> int:
    """The token of the mark."""
    tokens = tokenizer.encode(MARK.encode())
    if len(tokens) != 1:
        raise UserError(f"the tokenizer does not know {MARK}: this run was not trained to answer questions")
    return int(tokens[0])


def prompt_of(tokenizer: Tokenizer, question: str) -> list[int]:
    """What an answer follows: the question and a mark."""
    return [*tokenizer.encode(" ".join(question.split()).encode()).tolist(), mark_of(tokenizer)]


def question_rows(tokenizer: Tokenizer, pairs: Sequence[Pair], context: int) -> tuple[Tensor, Tensor]:
    """x_NT, and target_NT of the token behind each: the answers alone are asked for."""
    begin, mark, rows = tokenizer.begin, mark_of(tokenizer), []
    for pair in pairs:
        prompt = [begin, *prompt_of(tokenizer, pair.question)]
        rows.append((len(prompt), [*prompt, *tokenizer.encode(pair.answer.encode()).tolist(), mark]))
    T = max(len(row) for _, row in rows) - 1
    if context < T:
        at = max(range(len(rows)), key=lambda n: len(rows[n][1]))
        raise UserError(
            f"a question and its answer must fit into the context: {T} tokens, context={context}, "
            f"{pairs[at].question[:60]!r}; try --context {T}"
        )
    x_NT, target_NT = torch.full((len(rows), T), begin), torch.full((len(rows), T), begin)
    for n, (asked, row) in enumerate(rows):
        x_NT[n, : len(row) - 1] = torch.tensor(row[:-1])
        target_NT[n, asked - 1 : len(row) - 1] = torch.tensor(row[asked:])
    return x_NT, target_NT


def text_rows(tokenizer: Tokenizer, text: Sequence[str], longest: int) -> tuple[Tensor, NDArray[np.int64]]:
    """x_NC of the first `longest` tokens of each text, and how many each has."""
    parts = [tokenizer.encode(line.encode())[:longest] for line in text]
    length_N = np.array([len(part) for part in parts], np.int64)
    x_NC = torch.full((len(parts), int(length_N.max(initial=1))), tokenizer.begin)
    for n, part in enumerate(parts):
        x_NC[n, : len(part)] = torch.from_numpy(part.astype(np.int64))
    return x_NC, length_N


def shuffled(count: int, batch: int, seed: int) -> Callable[[int], NDArray[np.int64]]:
    """The numbers of the n-th batch: passes over all of them, each in an order of its own, end to end."""
    orders: dict[int, NDArray[np.int64]] = {}

    def at(step: int) -> NDArray[np.int64]:
        first = step * batch
        needed = range(first // count, (first + batch - 1) // count + 1)
        for old in orders.keys() - set(needed):
            del orders[old]
        for one in needed:
            if one not in orders:
                orders[one] = np.random.default_rng((seed, one)).permutation(count)
        place = first - needed[0] * count
        return np.concatenate([orders[one] for one in needed])[place : place + batch]

    return at
