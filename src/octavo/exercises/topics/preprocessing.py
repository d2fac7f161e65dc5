"""Language models: what loading and preprocessing do to perplexity, and what is left of it on the same bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import torch

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.topics.perplexity import LEARNED, PLAIN, bag_score
from octavo.models.bag import Bag, BagConfig
from octavo.pages.figures.bars import bars
from octavo.text import Chunk, Word, WordSettings
from octavo.text.preprocess import lower
from octavo.text.tokenizers.closed_vocabulary import BEGIN, END, UNKNOWN, ClosedVocabulary

NEW = "The cat sat by the fire. It did not run. I let the dog in and gave it some fish.\n"
LINES = [line for line in (PLAIN + LEARNED).splitlines() if line]


def glued(lines: Iterable[str]) -> list[str]:
    """Lines as a loader has them that forgot to split: one token each."""
    return [line.replace(" ", "_") for line in lines]


def closed(lines: Sequence[str], least: int) -> ClosedVocabulary:
    """The vocabulary of a loader that keeps tokens seen so often and calls the rest unknown."""
    counts = Counter(glued(lines))
    return ClosedVocabulary([*sorted(token for token, count in counts.items() if count >= least), END, UNKNOWN, BEGIN])


def line_tokens(tokenizer: ClosedVocabulary, lines: Sequence[str]) -> torch.Tensor:
    ids = torch.from_numpy(tokenizer.encode("\n".join(glued(lines)).encode())).long()
    return ids[ids != tokenizer.newline]


def perplexity_of(model: Bag, x_N: torch.Tensor) -> float:
    return math.exp(-float(model.logp_V[x_N].mean()))


def on_its_own_text() -> Finding:
    points = []
    for n in (3, 7, len(LINES)):
        tokenizer = closed(LINES[:n], 1)
        x_N = line_tokens(tokenizer, LINES[:n])
        found = perplexity_of(Bag.fit(x_N, BagConfig(k=0), tokenizer.vocab), x_N)
        points.append(IntervalAt({"N": n}, found * (1 - 1e-9), found * (1 + 1e-9)))
    return Finding(points, "octavo's closed vocabulary and bag on 3, 7 and all lines of the passages, to 1e-9 of it")


def all_unknown() -> Finding:
    train, test = LINES[:5], LINES[5:]
    tokenizer = closed(train, 2)
    model = Bag.fit(line_tokens(tokenizer, train), BagConfig(k=0), tokenizer.vocab)
    x_N = line_tokens(tokenizer, test)
    unknown = int((x_N == tokenizer.unknown).sum())
    return Finding(
        perplexity_of(model, x_N),
        f"{unknown} of {len(x_N)} lines of the second passage are unknown, as all lines of the first are",
    )


def read_by(space: str) -> float:
    """Bits per byte of a new text when words are held together by that, with octavo's word tokenizer."""
    train, test = (text.replace(" ", space) for text in (PLAIN, NEW))
    return bag_score(
        Word.learn([Chunk(train.encode())], WordSettings("space", min_count=1)), train, test, k=0.1
    ).bits_per_byte


def honest_bits() -> Finding:
    words, lines = read_by(" "), read_by("_")
    note = f"unknown tokens spelt out: {words:.2f} bits per byte read by words, {lines:.2f} read by lines"
    return Finding(verdict(lines < words), f"octavo's word tokenizer, {note}", "less or more")


LOADER = Exercise(
    id="perplexity-line-loader",
    title="A loader that reads each line as one token",
    question="A loader forgets to split its lines, so that every line is one token. The model is a bag of tokens "
    "fitted by maximum likelihood; all lines differ.",
    answer="On its own N lines each token has probability 1/N, so the perplexity is N, whatever the text says. On new "
    "text it is worse than nonsense: with a vocabulary of tokens seen twice or more, every line is unknown, in "
    "training and in the test, and predicting 'unknown' each time has the perplexity 1. Both look like triumphs beside "
    "a word model's hundreds. A lossless tokenizer that spells unknown tokens out, and bits per byte, show the mistake "
    "at once.",
    figure=lambda: bars([("read by words", read_by(" ")), ("read by lines", read_by("_"))],
        "Bits per byte of a new text: the mistake is seen at once.", 2),
    parts=[
        Part("train", "What is the perplexity on its own N lines?", Formula("N", {"N": "whole"}), "exact",
             on_its_own_text, why="N different tokens of probability 1/N.",
             wrong={"thought what is learnt by heart is free": "1", "counted pairs of lines": "N^2"}),
        Part("unknown", "The vocabulary keeps tokens seen at least twice, the rest is one token 'unknown'. What is the "
             "perplexity on new lines?", Number(1, rel=1e-9), "exact", all_unknown,
             why="Everything is unknown, and was so in training: probability 1.",
             wrong={"used the number of lines of training": 5, "used the number of all lines": 10}),
        Part("honest", "A lossless tokenizer, which spells unknown tokens out in bytes, makes the mistake look good "
             "too, in bits per byte.", Truth("false"), "numeric", honest_bits,
             why="Each unknown line is paid for byte by byte.",
             wrong={"thought that any loader can cheat any figure": True}),
    ],
)  # fmt: skip


def entropy_bits(symbols_seen: Sequence[Hashable]) -> float:
    """What a bag of these symbols pays for them, fitted to them by maximum likelihood."""
    counts = np.array(list(Counter(symbols_seen).values()), dtype=np.float64)
    return float(-(counts * np.log2(counts / counts.sum())).sum())


def lowered_bits(text: str) -> tuple[float, float, float]:
    """Bits of the characters, of the lower-cased ones, and of the capitals given the lower-cased ones."""
    small = lower(text.encode()).decode()
    capitals = math.fsum(
        entropy_bits([now for now, low in zip(text, small, strict=True) if low == letter]) for letter in set(small)
    )
    return entropy_bits(text), entropy_bits(small), capitals


def lower_looks() -> Finding:
    before, after, _ = lowered_bits(PLAIN + LEARNED)
    size = len(PLAIN + LEARNED)
    return Finding(
        verdict(after < before),
        f"perplexity a character {2 ** (before / size):.3f} before, {2 ** (after / size):.3f} after",
        "less or more",
    )


def lower_gains() -> Finding:
    before, after, capitals = lowered_bits(PLAIN + LEARNED)
    note = f"{before:.2f} bits for the text; {after:.2f} lower-cased and {capitals:.2f} for the capitals"
    return Finding(before - after - capitals, note)


def held_out(train: Sequence[tuple[Hashable, str]], test: Sequence[tuple[Hashable, str]], choices: int) -> float:
    """Bits of symbols, each after its context, with add-one counts of another text."""
    pairs, contexts = Counter(train), Counter(context for context, _ in train)
    return math.fsum(-math.log2((pairs[one] + 1) / (contexts[one[0]] + choices)) for one in test)


def with_rule(text: str, use_rule: bool) -> tuple[list[tuple[Hashable, str]], list[tuple[Hashable, str]]]:
    """Lower-cased characters, and whether each letter is a capital; the rule tells whether a sentence begins there."""
    small = lower(text.encode()).decode()
    begins = [i == 0 or text[i - 1] == "\n" or text[max(0, i - 2) : i] == ". " for i in range(len(text))]
    capitals: list[tuple[Hashable, str]] = [
        (begin if use_rule else None, "capital" if now != low else "small")
        for now, low, begin in zip(text, small, begins, strict=True)
        if low.isalpha()
    ]
    return [(None, low) for low in small], capitals


def rule_helps() -> Finding:
    alphabet = len(set(PLAIN + LEARNED))
    small_alphabet = len(set((PLAIN + LEARNED).lower()))
    plain = held_out([(None, c) for c in PLAIN], [(None, c) for c in LEARNED], alphabet)
    found = {}
    for use_rule in (False, True):
        (letters, capitals), (test_letters, test_capitals) = with_rule(PLAIN, use_rule), with_rule(LEARNED, use_rule)
        found[use_rule] = held_out(letters, test_letters, small_alphabet) + held_out(capitals, test_capitals, 2)
    note = (
        f"counted on the first passage, paid for the second, {len(LEARNED)} bytes that can be restored: "
        f"{plain:.1f} bits as it is, "
        f"{found[True]:.1f} lower-cased with the capitals given by the rule, {found[False]:.1f} without the "
        "rule"
    )
    return Finding(verdict(found[True] < plain and found[True] < found[False]), note, "less or more")


PREPROCESSING = Exercise(
    id="preprocessing-same-bytes",
    title="Preprocessing that improves perplexity, on the same bytes",
    question="A text is lower-cased before a bag of characters is fitted to it by maximum likelihood.",
    answer="Perplexity falls, as fewer characters are left. But what was thrown away must be paid for if the same "
    "bytes are to come back. By the chain rule the bits of the text are exactly those of the lower-cased text and of "
    "the capitals given the letters: the gain is zero. Preprocessing helps on the same bytes only where it brings "
    "knowledge: told where sentences begin, the model pays less for the capitals, and less in all.",
    figure=lambda: bars([("as it is", lowered_bits(PLAIN + LEARNED)[0]),
        ("lower-cased", lowered_bits(PLAIN + LEARNED)[1]), ("and capitals", sum(lowered_bits(PLAIN + LEARNED)[1:]))],
        "Bits of both passages under a bag of characters. Lower-casing only hides what the capitals cost."),
    parts=[
        Part("looks", "Lower-casing lowers the perplexity.", Truth("true"), "numeric", lower_looks,
             why="Merging symbols never raises the entropy, and the number of tokens stays.",
             wrong={"looked at the bytes, not at the figure that is reported": False}),
        Part("gain", "The capitals are paid for, letter by letter. How many bits does lower-casing save on the same "
             "bytes?", Number(0, abs=1e-6), "numeric", lower_gains,
             why="The chain rule: the entropy of the text is that of the letters and that of the capitals given the "
             "letters.",
             wrong={"forgot to pay for the capitals": 116.83, "thought paying for capitals must cost more": -10}),
        Part("rule", "With a rule for the beginnings of sentences, lower-casing saves bits on the same bytes, measured "
             "on a passage that was not counted.", Truth("true"), "numeric", rule_helps,
             why="The rule knows what the bag cannot: that capitals stand at beginnings.",
             wrong={"assumed the zero of the chain rule to hold with new knowledge too": False}),
    ],
)  # fmt: skip

EXERCISES = (LOADER, PREPROCESSING)
