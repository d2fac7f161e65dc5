"""Why BERT was pretrained with two tasks: what a masked word and the next sentence can teach, in exact bits."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from octavo.exercises import Exercise, Finding, Number, Part, Truth, verdict

TOPICS, SYNONYMS = 4, 2  # each topic has two words, equally frequent


class SentencePair(NamedTuple):
    """A pair of sentences of two words each, and whether the second really follows the first."""

    first: tuple[str, str]
    second: tuple[str, str]
    follows: bool


def sentences(topic: int) -> Iterator[tuple[str, str]]:
    """All sentences of a topic, equally probable."""
    words = [f"{'abcd'[topic]}{n}" for n in range(SYNONYMS)]
    yield from product(words, words)


def pairs() -> Iterator[tuple[SentencePair, Fraction]]:
    """All pairs with their probabilities: half follow each other in one document, half come from two documents."""
    each = Fraction(1, SYNONYMS**4)
    for one, other in product(range(TOPICS), range(TOPICS)):
        for first, second in product(sentences(one), sentences(other)):
            if one == other:
                yield SentencePair(first, second, True), Fraction(1, 2) * Fraction(1, TOPICS) * each
            yield SentencePair(first, second, False), Fraction(1, 2) * Fraction(1, TOPICS**2) * each


def information(
    x: Callable[[SentencePair], Hashable],
    y: Callable[[SentencePair], Hashable],
    given: Callable[[SentencePair], Hashable],
) -> float:
    """The conditional mutual information of x and y in bits, over all pairs."""

    def entropy(*of: Callable[[SentencePair], Hashable]) -> float:
        total: dict[Hashable, Fraction] = defaultdict(Fraction)
        for pair, p in pairs():
            total[tuple(one(pair) for one in of)] += p
        return -sum(float(p) * math.log2(p) for p in total.values() if p)

    return entropy(x, given) + entropy(y, given) - entropy(x, y, given) - entropy(given)


def label_probability(follows: bool) -> float:
    """The probability that a pair has equal topics and this label."""
    return float(sum(p for pair, p in pairs() if pair.follows == follows and pair.first[0][0] == pair.second[0][0]))


def nothing(pair: SentencePair) -> Hashable:
    return 0


def one_sentence() -> Finding:
    bits = information(lambda p: p.follows, lambda p: p.first, nothing)
    return Finding(round(bits, 12), "mutual information over all pairs of a small language, exact probabilities")


def both_sentences() -> Finding:
    bits = information(lambda p: p.follows, lambda p: (p.first, p.second), nothing)
    return Finding(bits, "mutual information over all pairs of a small language, exact probabilities")


def other_sentence(given_own: bool) -> Finding:
    """What the second sentence says of the first word, given the rest of the first sentence or nothing."""
    own = (lambda p: p.first[1]) if given_own else nothing
    bits = information(lambda p: p.first[0], lambda p: p.second, own)
    return Finding(round(bits, 12), "conditional mutual information over all pairs, exact probabilities")


def label_says_of_words() -> Finding:
    bits = information(lambda p: p.first[0], lambda p: p.follows, nothing)
    return Finding(round(bits, 12), "mutual information of the label and a word, exact probabilities")


def inference_from_text() -> Finding:
    """Two worlds with different implications, and the texts that both can produce."""
    statements = ("Mia lit the stove.", "The kitchen is warm.")
    worlds = {"the stove is in the kitchen": True, "the stove is in the garden": False}
    texts = {world: {(one, other) for one in statements for other in statements} for world in worlds}
    same_text = len({frozenset(text) for text in texts.values()}) == 1
    labels = set(worlds.values())
    note = f"two worlds with the same texts ({same_text}) and different labels ({len(labels)})"
    return Finding(verdict(not (same_text and len(labels) > 1)), note)


TASKS = Exercise(
    id="two-pretraining-tasks", title="Why two pretraining tasks",
    where={"topics": TOPICS, "same": lambda: label_probability(True), "by_chance": lambda: label_probability(False),
           "given_same": lambda same, by_chance: same / (same + by_chance)},
    question="A small language has 4{topics} topics with two words each. A document has one topic, a sentence is two "
    "words of it, drawn independently. Half of the sentence pairs are neighbours in a document, half come from two "
    "documents drawn at random. One task predicts a masked word, the other whether the second sentence follows the "
    "first.",
    answer="Each task asks for something that the other does not need. The rest of its own sentence already tells "
    "the topic of a masked word, so the other sentence adds nothing, and the model need not look at it. Whether two "
    "sentences belong together cannot be decided from either alone, only from both. In return, that label says nothing "
    "about which of two words occurs. So the first task teaches words in their sentence, the second relations "
    "between sentences. (With such easy negatives the second one mostly teaches topics, which is why later models "
    "replaced it.)",
    parts=[
        Part("one-sentence",
             "How many bits about the label of a pair are in its first sentence alone?", Number(0, abs=1e-9),
             "exact", one_sentence, why="Either label occurs equally often after any first sentence.",
             wrong={"gave the information of both sentences":
                    ("1 + (1/2*ln(4/5) + 1/8*ln(1/5))/ln(2)", lambda: both_sentences().value),
                    "gave all of it": (1, lambda: math.log2(2))}),
        Part("both-sentences", "How many bits about the label of a pair are in both sentences together?",
             Number("1 + (1/2*ln(4/5) + 1/8*ln(1/5))/ln(2)"), "exact", both_sentences,
             why="Different topics: certainly not neighbours. Equal topics occur with probability 1/2{same} in "
             "neighbours and 1/8{by_chance} in others, so they are neighbours with probability 4/5{given_same}. The "
             "uncertainty that remains is subtracted from one bit.",
             wrong={"thought that the topics decide it": (1, lambda: math.log2(2)),
                    "gave the information of one sentence": (0, lambda: one_sentence().value)}),
        Part("words-in-pair",
             "Given the other word of its own sentence, how many bits does the second sentence add about a masked "
             "word of the first?", Number(0, abs=1e-9), "exact", lambda: other_sentence(True),
             why="The other word tells the topic, and within a topic the words are independent.",
             wrong={"forgot that its own sentence tells the topic":
                    ("5/8*ln(5/2)/ln(2) - 3/8", lambda: other_sentence(False).value),
                    "gave the uncertainty about the word": (3, lambda: math.log2(TOPICS * SYNONYMS))}),
        Part("label-word", "How many bits does the label of the pair contain about one of its words?",
             Number(0, abs=1e-9), "exact", label_says_of_words,
             why="Any word is equally probable in pairs of either kind.",
             wrong={"thought that the label tells the topic": (2, lambda: math.log2(TOPICS)),
                    "gave one bit for the label": (1, lambda: math.log2(2))}),
        Part("inference",
             "Whether a sentence follows logically from another is a label that can be computed from the text alone, "
             "as the two tasks require.", Truth("false"), "exact", inference_from_text,
             why="The same text is true in worlds in which the inference holds and in worlds in which it does not. "
             "Self-supervised labels come from what was done to the text: masked, swapped, replaced.",
             wrong={"took a labelled task for a self-supervised one": True}),
    ])  # fmt: skip

EXERCISES = (TASKS,)
