"""How loading and preprocessing change perplexity, and what remains in bits of the same bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import mpmath
import numpy as np
import torch

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.exercises.topics.perplexity import LEARNED, PLAIN, bag_score
from octavo.models.bag import Bag, BagConfig
from octavo.pages.figures.charts import bars
from octavo.text import Chunk, Word, WordSettings
from octavo.text.preprocess import PREPROCESS
from octavo.text.tokenizers.closed_vocabulary import BEGIN, END, UNKNOWN, ClosedVocabulary

NEW = "The cat sat by the fire. It did not run. I let the dog in and gave it some fish.\n"
LINES = [line for line in (PLAIN + LEARNED).splitlines() if line]


def join_words(lines: Iterable[str]) -> list[str]:
    """Lines as read by a loader that does not split them: one token each."""
    return [line.replace(" ", "_") for line in lines]


def closed_vocabulary(lines: Sequence[str], min_count: int) -> ClosedVocabulary:
    """A vocabulary of tokens with a minimal count; all others become one unknown token."""
    counts = Counter(join_words(lines))
    return ClosedVocabulary(
        [*sorted(token for token, count in counts.items() if count >= min_count), END, UNKNOWN, BEGIN]
    )


def line_tokens(tokenizer: ClosedVocabulary, lines: Sequence[str]) -> torch.Tensor:
    ids = torch.from_numpy(tokenizer.encode("\n".join(join_words(lines)).encode())).long()
    return ids[ids != tokenizer.newline]


def perplexity_of(model: Bag, x_N: torch.Tensor) -> float:
    return math.exp(-float(model.logp_V[x_N].mean()))


@tabulated("N", [(3,), (7,), (len(LINES),)],
    "octavo's closed vocabulary and bag on 3, 7 and all lines of the passages, to 1e-9 relative",
    rel=1e-9)  # fmt: skip
def on_training_lines(n: int) -> float:
    tokenizer = closed_vocabulary(LINES[:n], 1)
    x_N = line_tokens(tokenizer, LINES[:n])
    return perplexity_of(Bag.fit(x_N, BagConfig(k=0), tokenizer.vocab), x_N)


def all_unknown() -> Finding:
    train, test = LINES[:5], LINES[5:]
    tokenizer = closed_vocabulary(train, 2)
    model = Bag.fit(line_tokens(tokenizer, train), BagConfig(k=0), tokenizer.vocab)
    x_N = line_tokens(tokenizer, test)
    unknown = int((x_N == tokenizer.unknown).sum())
    note = f"{unknown} of {len(x_N)} lines of the second passage are unknown, as all lines of the first are"
    return Finding(perplexity_of(model, x_N), note)


def bits_per_byte(space: str) -> float:
    """Bits per byte of a new text with octavo's word tokenizer, if words are separated by this character."""
    train, test = (text.replace(" ", space) for text in (PLAIN, NEW))
    return bag_score(
        Word.learn([Chunk(train.encode())], WordSettings("space", min_count=1)), train, test, k=0.1
    ).bits_per_byte


def honest_bits() -> Finding:
    words, lines = bits_per_byte(" "), bits_per_byte("_")
    note = f"unknown tokens as bytes: {words:.2f} bits per byte with words, {lines:.2f} with lines as tokens"
    return Finding(verdict(lines < words), f"octavo's word tokenizer, {note}", "order of the numbers")


LOADER = Exercise(
    where={"share": lambda N: 1 / mpmath.mpf(N)}, id="perplexity-line-loader", title="A data loader that reads each "
         "line as one token",
    question="A data loader does not split its lines, so that every line is one token. The model is a bag of tokens "
    "fitted by maximum likelihood; all lines are different.",
    answer="On the N training lines each token has probability `1/N`{share}, so the perplexity is N, whatever the "
    "text is. On new text the result is meaningless: with a vocabulary of tokens that occur at least twice, every "
    "line is unknown, in training and in test, and always predicting 'unknown' has perplexity one. Both seem "
    "excellent next to the hundreds of a word model. A lossless tokenizer that encodes unknown tokens as bytes, and "
    "bits per byte, reveal the mistake.",
    figure=lambda: bars([("words", bits_per_byte(" ")), ("lines", bits_per_byte("_"))],
        "Bits per byte of a new text, with words or lines as tokens: the mistake is obvious.", 2),
    parts=[
        Part("train", "What is the perplexity on the N training lines?", Formula("N", {"N": "whole"}), "exact",
             on_training_lines, why="There are N different tokens, each with probability `1/N`{share}.",
             wrong={"thought that memorized text costs nothing": ("1", lambda: math.exp(0)),
                    "counted pairs of lines": ("N^2", lambda N: sum(N for _ in range(N)))}),
        Part("unknown", "The vocabulary has the tokens that occur at least twice; all others become one token "
             "'unknown'. What is the perplexity on new lines?", Number(1), "exact", all_unknown,
             why="Every token is 'unknown', in training and in test: probability one.",
             wrong={"gave the number of training lines": (5, lambda: len(LINES[:5])),
                    "gave the number of all lines": (10, lambda: len(LINES))}),
        Part("honest", "With a lossless tokenizer, which encodes unknown tokens as bytes, the mistake also improves "
             "bits per byte.", Truth("false"), "numeric", honest_bits,
             why="Each unknown line is encoded byte by byte, at full cost.",
             wrong={"thought that a loader can improve any metric": True}),
    ])  # fmt: skip


def entropy_bits(symbols_seen: Sequence[Hashable]) -> float:
    """The cost in bits of symbols under a bag fitted to them by maximum likelihood."""
    counts = np.array(list(Counter(symbols_seen).values()), dtype=np.float64)
    return float(-(counts * np.log2(counts / counts.sum())).sum())


def lowered_bits(text: str) -> tuple[float, float, float]:
    """Bits of the characters, of the lower-cased characters, and of the case given the lower-cased characters."""
    small = PREPROCESS["lower"](text.encode()).decode()
    capitals = math.fsum(
        entropy_bits([now for now, low in zip(text, small, strict=True) if low == character])
        for character in set(small)
    )
    return entropy_bits(text), entropy_bits(small), capitals


def perplexity_falls() -> Finding:
    before, after, _ = lowered_bits(PLAIN + LEARNED)
    size = len(PLAIN + LEARNED)
    note = f"perplexity per character {2 ** (before / size):.3f} before, {2 ** (after / size):.3f} after"
    return Finding(verdict(after < before), note, "order of the numbers")


def bits_saved() -> Finding:
    before, after, capitals = lowered_bits(PLAIN + LEARNED)
    note = f"{before:.2f} bits for the text; {after:.2f} lower-cased plus {capitals:.2f} for the capitals"
    return Finding(before - after - capitals, note)


def held_out_bits(train: Sequence[tuple[Hashable, str]], test: Sequence[tuple[Hashable, str]], choices: int) -> float:
    """Bits of symbols given their contexts, with add-one smoothed counts of another text."""
    pairs, contexts = Counter(train), Counter(context for context, _ in train)
    return math.fsum(-math.log2((pairs[one] + 1) / (contexts[one[0]] + choices)) for one in test)


def lower_with_rule(text: str, use_rule: bool) -> tuple[list[tuple[Hashable, str]], list[tuple[Hashable, str]]]:
    """Lower-cased characters, and whether each is a capital; the rule's context is whether a sentence begins there."""
    small = PREPROCESS["lower"](text.encode()).decode()
    sentence_starts = [i == 0 or text[i - 1] == "\n" or text[max(0, i - 2) : i] == ". " for i in range(len(text))]
    capitals: list[tuple[Hashable, str]] = [
        (begin if use_rule else None, "capital" if now != low else "small")
        for now, low, begin in zip(text, small, sentence_starts, strict=True)
        if low.isalpha()
    ]
    return [(None, low) for low in small], capitals


def rule_helps() -> Finding:
    alphabet = len(set(PLAIN + LEARNED))
    small_alphabet = len(set((PLAIN + LEARNED).lower()))
    plain = held_out_bits([(None, c) for c in PLAIN], [(None, c) for c in LEARNED], alphabet)
    found = {}
    for use_rule in (False, True):
        (characters, capitals), (test_characters, test_capitals) = (
            lower_with_rule(PLAIN, use_rule),
            lower_with_rule(LEARNED, use_rule),
        )
        found[use_rule] = held_out_bits(characters, test_characters, small_alphabet) + held_out_bits(
            capitals, test_capitals, 2
        )
    note = (
        f"fitted to the first passage, scored on the {len(LEARNED)} bytes of the second, losslessly: {plain:.1f} bits "
        f"unchanged, {found[True]:.1f} lower-cased with the rule for capitals, {found[False]:.1f} without the rule"
    )
    return Finding(verdict(found[True] < plain and found[True] < found[False]), note, "order of the numbers")


PREPROCESSING = Exercise(
    where={}, id="preprocessing-same-bytes", title="Preprocessing that improves perplexity, on the same bytes",
    question="A text is lower-cased before a bag of characters is fitted to it by maximum likelihood.",
    answer="Perplexity falls, as fewer distinct characters remain. But the discarded information must be encoded too "
    "if the original bytes are to be restored. By the chain rule the bits of the text are exactly those of the "
    "lower-cased text plus those of the capitals given the lower-cased text: the gain is zero. Preprocessing helps on "
    "the same bytes only if it adds knowledge: if the model knows where sentences begin, the capitals cost fewer bits, "
    "and so does the whole text.",
    figure=lambda: bars([("unchanged", lowered_bits(PLAIN + LEARNED)[0]),
        ("lower-cased", lowered_bits(PLAIN + LEARNED)[1]), ("plus capitals", sum(lowered_bits(PLAIN + LEARNED)[1:]))],
        "Bits of both passages under a bag of characters. Lower-casing only hides the cost of the capitals."),
    parts=[
        Part("looks", "Lower-casing lowers the perplexity.", Truth("true"), "numeric", perplexity_falls,
             why="Merging symbols never increases the entropy, and the number of tokens stays the same.",
             wrong={"considered the bytes, not the reported perplexity": False}),
        Part("gain", "The capitals are encoded too, given each character. How many bits does lower-casing save on the "
             "same bytes?", Number(0, abs=1e-6), "numeric", bits_saved,
             why="The chain rule: the entropy of the text is that of the lower-cased text plus that of the capitals "
             "given it.",
             wrong={"forgot the cost of the capitals": (116.83143, lambda: lowered_bits(PLAIN + LEARNED)[2])}),
        Part("rule", "With a rule for the beginnings of sentences, lower-casing saves bits on the same bytes, measured "
             "on held-out text.", Truth("true"), "numeric", rule_helps,
             why="The rule knows what the bag cannot: that sentences begin with capitals.",
             wrong={"thought that the gain stays zero even with new knowledge": False}),
    ])  # fmt: skip

EXERCISES = (LOADER, PREPROCESSING)
