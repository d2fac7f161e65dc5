"""Deep averaging: a network that reads the mean of a text's word vectors, and what it therefore cannot know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.core import seeded_generator
from octavo.exercises import Exercise, Finding, Number, Part, Truth, verdict
from octavo.models.dan import Dan, DanConfig
from octavo.pages.figures.lines import Series, lines
from octavo.text.bag_of_ngrams import KnownReader

SAME = 1e-12  # what rounding may add when the same numbers are added in another order
TEXT = "the plot is weak but the actors are not bad"
NEGATED = {"good": 1, "bad": 0, "not good": 0, "not bad": 1}
BITTEN = {"the dog bit the man": 0, "the man bit the dog": 1}
FURTHER = "it was a long film about some boats and a lake "  # words that training never calls good or bad


def network(texts: Sequence[str], ngrams: int = 1, layers: int = 2, seed: int = 0) -> tuple[Dan, KnownReader]:
    """A deep averaging network in float64 that knows the words of these texts."""
    config = DanConfig(width=16, hidden=16, layers=layers, dropout=0.0, word_dropout=0.0, ngrams=ngrams, buckets=64,
                       min_count=1)  # fmt: skip
    reader = KnownReader.learn(texts, 1, ngrams, config.buckets)
    model = Dan(config, reader.rows, config.width, 2).double()
    model.initialise(seeded_generator(seed))
    return model.eval(), reader


@torch.no_grad()
def said(model: Dan, reader: KnownReader, texts: Sequence[str]) -> Tensor:
    """The probability of the second class for each text."""
    share_B: Tensor = model(reader.read(texts)).softmax(-1)[:, 1]
    return share_B


def taught(labelled: dict[str, int], layers: int = 2, extra: str = "") -> tuple[Dan, KnownReader]:
    """A network that has learnt these texts as far as it can; `extra` words stay as they were drawn."""
    model, reader = network([*labelled, extra], layers=layers)
    bags, label_B = reader.read(list(labelled)), torch.tensor(list(labelled.values()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        F.cross_entropy(model(bags), label_B).backward()
        optimizer.step()
    return model, reader


def right_share(model: Dan, reader: KnownReader, labelled: dict[str, int]) -> float:
    answers = (said(model, reader, list(labelled)) > 0.5).long()
    return (answers == torch.tensor(list(labelled.values()))).double().mean().item()


def shuffling() -> Finding:
    rng, words, moved = torch.Generator().manual_seed(1), TEXT.split(), {}
    orders = [" ".join(words[i] for i in torch.randperm(len(words), generator=rng)) for _ in range(200)]
    for ngrams in (1, 2):
        model, reader = network([TEXT], ngrams)
        answers = said(model, reader, [TEXT, *orders])
        moved[ngrams] = (answers - answers[0]).abs().max().item()
    note = f"200 orders of ten words move the answer by at most {moved[1]:.1g}; if pairs of neighbours have vectors "
    return Finding(verdict(max(moved.values()) < SAME, moved[1] < SAME), note + f"too, by {moved[2]:.1g}", f"{SAME:g}")


def changed_by(one: str, other: str) -> float:
    """How far the answer of networks drawn from several seeds moves, at most, when one text becomes the other."""
    moved = []
    for seed in range(5):
        model, reader = network([one, other], seed=seed)
        answers = said(model, reader, [one, other])
        moved.append((answers[0] - answers[1]).abs().item())
    return max(moved)


def explains(one: str, other: str, what: str) -> Finding:
    """Whether a difference between two texts, and nothing else, can change the answer."""
    moved = changed_by(one, other)
    return Finding(verdict(moved > SAME), f"{what}: the answers of 5 networks move by up to {moved:.1g}", f"{SAME:g}")


@cache
def among_others() -> dict[str, list[tuple[int, float]]]:
    """The probability of “positive” for one telling word and n others that training has never seen."""
    model, reader = taught({"good": 1, "bad": 0, "a good one": 1, "a bad one": 0}, extra=FURTHER)
    times = range(0, 41, 2)
    shares = {word: said(model, reader, [f"{word} {FURTHER * n}" for n in times]).tolist() for word in ("good", "bad")}
    return {word: [(n * len(FURTHER.split()), share) for n, share in zip(times, some, strict=True)]
            for word, some in shares.items()}  # fmt: skip


def drowned() -> Finding:
    good, bad = among_others().values()
    alone, many = good[0][1] - bad[0][1], good[-1][1] - bad[-1][1]
    note = (
        f"a trained network tells “good” from “bad” by {alone:.2f} where they stand alone, by {many:.2f} among "
        f"{good[-1][0]} other words"
    )
    return Finding(verdict(many < alone / 2), note, "less than half")


def counted_twice() -> Finding:
    return explains("a bad good film", "a bad good good film", "one word said twice")


def unknown_word() -> Finding:
    model, reader = network(["a good film"])
    moved = (said(model, reader, ["a good film"]) - said(model, reader, ["a dreadful good film"])).abs().item()
    known = changed_by("a good film", "a dreadful good film")
    note = f"a word without a vector moves the answer by {moved:g}; if it had one, it would, by up to {known:.1g}"
    return Finding(verdict(moved == 0 and known > SAME), note, f"{SAME:g}")


def whole_twice() -> Finding:
    moved = changed_by(TEXT, f"{TEXT} {TEXT}")
    return Finding(verdict(moved < SAME), f"5 networks, each text once and twice: at most {moved:.1g}", f"{SAME:g}")


def negation() -> Finding:
    right = {layers: right_share(*taught(NEGATED, layers), NEGATED) for layers in (0, 2)}
    note = f"four texts, 300 steps: right are {right[2]:.0%} with two layers above the mean, {right[0]:.0%} with none"
    return Finding(verdict(right[2] < 1 and right[0] < 1, right[0] < 1), note, "all four or not")


def bitten() -> Finding:
    model, reader = taught(BITTEN)
    gap = float(said(model, reader, list(BITTEN)).diff().abs())
    orders = {" ".join(one) for one in permutations("the dog bit the man".split())}
    spread = said(model, reader, sorted(orders))
    note = (
        f"trained on the pair for 300 steps: its two answers differ by {gap:.1g}, and {len(orders)} orders of the "
        f"words are all given {spread.min():.3f}"
    )
    one_answer = gap < SAME  # so exactly one of two opposite labels is met
    return Finding(0.5 if one_answer else right_share(model, reader, BITTEN), note)


def drowning_figure() -> str:
    return lines(
        [Series(f"“{word}” among others", points) for word, points in among_others().items()],
        "A telling word is drowned by others that tell nothing: that explanation of an error is possible.",
        ("how many other words", "probability of “positive”"),
    )


AVERAGING = Exercise(
    id="deep-averaging-order",
    title="What a deep averaging network cannot see",
    question="A deep averaging network takes the mean of a text's word vectors, puts layers above it, and says whether "
    "the text is positive. Somebody looks at its errors and explains them. Which explanations can be true?",
    answer="The mean of vectors is the same in every order, so nothing about order can explain an answer: not what "
    "came last, not what stood beside what. To test an explanation, change only what it speaks of; if the answer "
    "cannot move, it is no explanation. What can move it is which words there are, how often each is said as a share "
    "of the text, how many others dilute it, and which words have no vector. And it is not true that it can do nothing "
    "with “not”: layers above the mean can learn what a set of words means together, though not to which word “not” "
    "belongs.",
    figure=drowning_figure,
    parts=[
        Part("shuffle", "Shuffling a text's words leaves the answer unchanged.", Truth("nearly",
             "only single words have vectors, not pairs or longer groups of neighbours"), "numeric", shuffling,
             why="A sum does not depend on the order of its terms (but for rounding). A pair of neighbours with a "
             "vector of its own is a different thing in another order.", wrong={"assumed single words": True}),
        Part("last-word", "“It erred because the friendly word came last”: this can be the explanation.",
             Truth("false"), "numeric", lambda: explains("bad start , good end", "good start , bad end",
             "what comes first and last, swapped"),
             why="With the friendly word first, the answer would have been the same.",
             wrong={"explained the error as a person would have made it": True}),
        Part("neighbour", "“It took 'not' to belong to the wrong word”: this can be the explanation.", Truth("false"),
             "numeric", lambda: explains("not bad , good", "bad , not good", "“not” in front of another word"),
             why="It takes “not” to belong to no word at all: it knows only that it is there.",
             wrong={"explained the error as a person would have made it": True}),
        Part("drowned", "“The one telling word was drowned by many others”: this can be the explanation.",
             Truth("true"), "numeric", drowned,
             why="Each of n words has the weight 1/n in the mean, so more words leave less of it.",
             wrong={"thought that a telling word counts in full": False}),
        Part("repeated", "“A word was said twice and outweighed the others”: this can be the explanation.",
             Truth("true"), "numeric", counted_twice, why="Its share of the mean doubles, nearly.",
             wrong={"assumed a mean to count each word once": False}),
        Part("unknown", "“The telling word has no vector, so it was not there for the network”: this can be the "
             "explanation.", Truth("true"), "numeric", unknown_word,
             why="Words that training has not seen are left out of the mean.",
             wrong={"thought that every word has a vector": False}),
        Part("twice", "A text and the same text said twice get the same answer.", Truth("true"), "numeric", whole_twice,
             why="All shares stay: twice the sum over twice the number. A sum instead of a mean would tell them apart.",
             wrong={"mistook the mean for a sum": False}),
        Part("negation", "The network cannot learn that “good” and “not bad” are positive, and “bad” and “not good” "
             "negative.", Truth("nearly", "there is no layer between the mean and the classes"), "trained", negation,
             why="Linear scores would need `n + g < n + b` for “not good” against “not bad”, so `g < b`, but also `g > "
             "b` for the words alone. A hidden layer can do what a sum cannot, and order plays no part in it.",
             wrong={"mistook not seeing order for not seeing combinations": True}),
        Part("bitten", "“The dog bit the man” and “the man bit the dog” have opposite labels. Which share of such "
             "pairs' texts can any deep averaging network of single words get right?", Number("1/2"), "trained", bitten,
             why="Both texts get one answer, so one of the two is right, whatever was learnt.",
             wrong={"thought that training finds a way": 1, "thought that it gets both wrong": 0}),
    ],
)  # fmt: skip

EXERCISES = (AVERAGING,)
