"""The score of a model on excerpts of two domains, and which words of them make the difference.

Every byte of an excerpt belongs to one group, by its character and its word, so the groups are the same for every
tokenizer; a token's bits are shared evenly among its bytes. So the groups' bits add up to the bits of the excerpt.

N bytes of an excerpt, P pieces (words, punctuation marks, white space) of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.config import from_json, plain_json
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.scoring.bits_per_byte import NOT_COMPARABLE, score_bytes
from octavo.text import Char, Split, Tokenizer, text_in_memory
from octavo.text.chunks import rechunk
from octavo.text.preprocess import apply, check_steps
from octavo.text.tokenizers.word_splitting import WordSpans, find_words, word_boundary, word_keys
from octavo.text.tokenizers.word_table import WordTable

ALPHABET, VOCABULARY, DOMAIN, COMMON = range(4)
GROUPS = ("out of alphabet", "out of vocabulary", "domain words", "common")
MARK = b"<unk>"  # what stands in some corpora for the rare words that their makers removed
DOMAIN_RATIO = 5.0  # a known word this many times as frequent as in the training text is a word of the domain
MAX_COSTLIEST = 15

Bits = NDArray[np.float64]
C = TypeVar("C")


@dataclass(frozen=True)
class Excerpt:
    """Bytes of a text, and the same after preprocessing: the bits are of the second, divided by the first."""

    name: str
    original: bytes
    data: bytes
    steps: tuple[str, ...] = ()

    @property
    def characters(self) -> int:
        """Of the original; a byte that is not UTF-8 counts as one."""
        return len(self.original.decode("utf-8", "surrogateescape"))


def excerpt(name: str, original: bytes, steps: Iterable[str] = ()) -> Excerpt:
    """The excerpt after the steps; what is empty, before or after them, is refused."""
    steps = check_steps(steps)
    data = apply(steps, original)
    if not data:
        why = f"the steps {', '.join(steps)} leave nothing of it" if original else "it has no bytes"
        raise UserError(f"there is nothing to score in the excerpt of {name}: {why}; ask for more --bytes")
    return Excerpt(name, original, data, steps)


@dataclass(frozen=True)
class Vocabulary:
    """The characters and words of a training text, and how often each word occurs."""

    alphabet: NDArray[np.uint32]  # code points in order
    lexicon: WordTable
    counts: NDArray[np.int64]
    total: int

    @classmethod
    def learn(cls, text: Split) -> Vocabulary:
        """Count the words of a text; a word is the same with and without a space before it."""
        lexicon, counts = WordTable(), np.zeros(0, np.int64)
        for block in rechunk(text.chunks(), lambda data: word_boundary(data, "words")):
            numbers = lexicon.add(_bare(find_words(block.data, "words", block.starts)))
            counts = np.concatenate([counts, np.zeros(len(lexicon) - len(counts), np.int64)])
            counts += np.bincount(numbers, minlength=len(lexicon))
        characters = Char.learn(text.chunks()).characters
        return cls(np.array([ord(c) for c in characters], np.uint32), lexicon, counts, int(counts.sum()))


@dataclass(frozen=True)
class Group:
    """The bytes of one kind: how many there are, and what they cost together."""

    name: str
    bytes: int
    bits: float

    @property
    def bits_per_byte(self) -> float:
        return self.bits / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Costly:
    """A word, and what its occurrences cost together beyond the excerpt's average byte."""

    word: str
    group: str
    count: int
    bits: float  # of one occurrence, on average
    excess: float  # of all


@dataclass(frozen=True)
class Reading:
    """The score of an excerpt. All denominators are of the original bytes, whatever was done to them."""

    text: str
    steps: tuple[str, ...]
    bytes: int
    scored_bytes: int  # after preprocessing
    characters: int
    tokens: int
    bits: float
    impossible: int
    unknown_rate: float | None  # words that the tokenizer had to spell; None where it has no words
    label: str
    groups: tuple[Group, ...]
    costliest: tuple[Costly, ...]
    unk_marks: int  # literal <unk> in what was scored
    unk_mark_bits: float  # and what they cost together
    adaptive: bool = False  # whether the model went on learning while it was scored

    @classmethod
    def of(cls, record: dict[str, Any]) -> Reading:
        """The reading of what `plain_json` made of it, where null stands for infinity."""

        def read_as(kind: type[C], values: Any) -> C:
            infinite = [key for key in ("bits", "excess", "unk_mark_bits") if values.get(key, 0) is None]
            found: Any = from_json(kind, values | dict.fromkeys(infinite, 0.0))
            whole: C = replace(found, **dict.fromkeys(infinite, math.inf))
            return whole

        groups = tuple(read_as(Group, one) for one in record["groups"])
        costliest = tuple(read_as(Costly, one) for one in record["costliest"])
        return replace(read_as(cls, record | {"groups": [], "costliest": []}), groups=groups, costliest=costliest)

    @property
    def bits_per_byte(self) -> float:
        return self.bits / self.bytes

    @property
    def token_perplexity(self) -> float:
        return _two_to(self.bits / self.tokens)

    @property
    def character_perplexity(self) -> float:
        return _two_to(self.bits / self.characters)

    def share(self, group: Group) -> float:
        """The part of the scored bytes that belongs to the group."""
        return group.bytes / self.scored_bytes

    def cost(self, group: Group) -> float:
        """The group's part of the bits per byte; the parts of all groups add up to it."""
        return group.bits / self.bytes

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a number that is not finite becomes null."""
        values = asdict(self)
        steps = values.pop("steps")
        derived = {key: getattr(self, key) for key in ("bits_per_byte", "token_perplexity", "character_perplexity")}
        groups = [
            {"name": g.name, "share": self.share(g), "bits_per_byte": g.bits_per_byte, "cost": self.cost(g)}
            for g in self.groups
        ]  # fmt: skip
        plain: dict[str, Any] = plain_json({**values, "preprocess": steps, **derived, "groups": groups})
        return plain


def read(model: LanguageModel[Any], tokenizer: Tokenizer, text: Excerpt, training: Vocabulary) -> Reading:
    """Score the excerpt as one document, and find which groups and words the bits belong to."""
    score, bits_N = score_bytes(model, tokenizer, text_in_memory(text.data), text.name)
    pieces = find_words(text.data, "words", np.zeros(1, np.int64))
    words = _bare(pieces)
    own_P = WordTable().add(words)
    group_N = _group_bytes(text.data, pieces, words, own_P, training)
    groups = tuple(
        Group(name, int((group_N == i).sum()), float(bits_N[group_N == i].sum())) for i, name in enumerate(GROUPS)
    )
    marked = np.array([i for m in re.finditer(MARK, text.data) for i in range(*m.span())], np.int64)
    return Reading(
        text.name, text.steps, len(text.original), len(text.data), text.characters, score.tokens, score.bits,
        score.impossible, score.unknown_rate, NOT_COMPARABLE if text.steps else "", groups,
        _costliest(bits_N, pieces, words, own_P, group_N), len(marked) // len(MARK), float(bits_N[marked].sum()),
        score.adaptive,
    )  # fmt: skip


def gap(home: Reading, away: Reading) -> dict[str, float]:
    """The difference in bits per byte, away minus home, shared among the groups.

    A byte counts with what it costs beyond the home text's average byte; so a group that is merely larger does not
    count, one that costs more does, and the shares of all groups add up to the difference.
    """
    average = home.bits_per_byte

    def beyond(reading: Reading, group: Group) -> float:
        return reading.cost(group) - average * reading.share(group)

    return {
        a.name: beyond(away, a) - beyond(home, h) if math.isfinite(home.bits + away.bits) else math.nan
        for h, a in zip(home.groups, away.groups, strict=True)
    }


def _bare(pieces: WordSpans) -> WordSpans:
    """The pieces without the space before them."""
    spaced = ((pieces.text[pieces.starts] == ord(" ")) & (pieces.lengths > 1)).astype(np.int64)
    starts, lengths = pieces.starts + spaced, pieces.lengths - spaced
    return WordSpans(pieces.text, starts, lengths, word_keys(pieces.text, starts, lengths))


def _group_bytes(
    data: bytes, pieces: WordSpans, words: WordSpans, own_P: NDArray[np.int32], training: Vocabulary
) -> NDArray[np.uint8]:
    """The group of each byte: its word's, unless its character is one that training never saw."""
    number_P = training.lexicon.find(words)
    here_P = np.bincount(own_P)[own_P] / len(own_P)
    there_P = np.append(training.counts, 0)[number_P] / max(1, training.total)  # -1, unknown, finds the last
    group_P = np.full(len(own_P), COMMON, np.uint8)
    group_P[here_P >= DOMAIN_RATIO * there_P] = DOMAIN
    group_P[number_P < 0] = VOCABULARY
    group_N = np.repeat(group_P, pieces.lengths)
    text = data.decode("utf-8", "surrogateescape")
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    sizes = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    sizes[(points >= 0xDC80) & (points <= 0xDCFF)] = 1  # a byte that is not UTF-8
    group_N[np.repeat(~np.isin(points, training.alphabet), sizes)] = ALPHABET
    return group_N


def _costliest(
    bits_N: Bits, pieces: WordSpans, words: WordSpans, own_P: NDArray[np.int32], group_N: NDArray[np.uint8]
) -> tuple[Costly, ...]:
    """The words whose occurrences cost most beyond the average byte, each with the space before it."""
    if not np.isfinite(bits_N).all():
        return ()
    bits_P: Bits = np.add.reduceat(bits_N, pieces.starts)
    group_P = np.minimum.reduceat(group_N, pieces.starts)  # one character out of the alphabet makes the word so
    count_V, bits_V = np.bincount(own_P), np.bincount(own_P, bits_P)
    excess_V = bits_V - bits_N.mean() * np.bincount(own_P, pieces.lengths)
    first_V = np.unique(own_P, return_index=True)[1]
    best = np.argsort(-excess_V, kind="stable")[:MAX_COSTLIEST]
    costliest = []
    for v in best[excess_V[best] > 0].tolist():
        first = first_V[v]
        word = words.text[words.starts[first] : words.starts[first] + words.lengths[first]].tobytes()
        costliest.append(Costly(
            word.decode("utf-8", "backslashreplace"), GROUPS[group_P[first]], int(count_V[v]),
            float(bits_V[v] / count_V[v]), float(excess_V[v]),
        ))  # fmt: skip
    return tuple(costliest)


def _two_to(bits: float) -> float:
    return math.inf if bits > 1023 else 2.0**bits
