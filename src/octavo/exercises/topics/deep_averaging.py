"""Deep averaging networks: they read the mean of the word vectors of a text, and therefore ignore word order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.core import seeded_generator
from octavo.exercises import Choice, Exercise, Finding, Number, Part, Truth, verdict
from octavo.models.dan import Dan, DanConfig
from octavo.pages.figures.charts import Series, lines
from octavo.text.bag_of_ngrams import KnownReader

TOLERANCE = 1e-12  # for sums of the same numbers in another order
TEXT = "the plot is weak but the actors are not bad"
NEGATED = {"good": 1, "bad": 0, "not good": 0, "not bad": 1}
DOG_AND_MAN = {"the dog bit the man": 0, "the man bit the dog": 1}
NEUTRAL = "it was a long film about some boats and a lake "  # words that do not occur in training


def network(texts: Sequence[str], ngrams: int = 1, layers: int = 2, seed: int = 0) -> tuple[Dan, KnownReader]:
    """An untrained deep averaging network in float64 whose vocabulary is that of these texts."""
    config = DanConfig(width=16, hidden=16, layers=layers, dropout=0.0, word_dropout=0.0, ngrams=ngrams, buckets=64,
                       min_count=1)  # fmt: skip
    reader = KnownReader.learn(texts, 1, ngrams, config.buckets)
    model = Dan(config, reader.rows, config.width, 2).double()
    model.initialise(seeded_generator(seed))
    return model.eval(), reader


@torch.no_grad()
def positive_probability(model: Dan, reader: KnownReader, texts: Sequence[str]) -> Tensor:
    """The probability of the second class for each text."""
    share_B: Tensor = model(reader.read(texts)).softmax(-1)[:, 1]
    return share_B


def train(labelled: dict[str, int], layers: int = 2, extra: str = "") -> tuple[Dan, KnownReader]:
    """A network trained on labelled texts; the vectors of `extra` words keep their initial values."""
    model, reader = network([*labelled, extra], layers=layers)
    bags, label_B = reader.read(list(labelled)), torch.tensor(list(labelled.values()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        F.cross_entropy(model(bags), label_B).backward()
        optimizer.step()
    return model, reader


def accuracy(model: Dan, reader: KnownReader, labelled: dict[str, int]) -> float:
    answers = (positive_probability(model, reader, list(labelled)) > 0.5).long()
    return (answers == torch.tensor(list(labelled.values()))).double().mean().item()


def shuffling() -> Finding:
    rng, words, change = torch.Generator().manual_seed(1), TEXT.split(), {}
    orders = [" ".join(words[i] for i in torch.randperm(len(words), generator=rng)) for _ in range(200)]
    for ngrams in (1, 2):
        model, reader = network([TEXT], ngrams)
        answers = positive_probability(model, reader, [TEXT, *orders])
        change[ngrams] = (answers - answers[0]).abs().max().item()
    note = f"200 orders of ten words change the output by at most {change[1]:.1g}; with bigram vectors "
    bigrams = change[2] < TOLERANCE  # the text has ten words, and all of them are known
    under = {"unigrams": change[1] < TOLERANCE, "short": bigrams, "known": bigrams}
    return Finding(verdict(max(change.values()) < TOLERANCE, under), note + f"by {change[2]:.1g}", f"{TOLERANCE:g}")


def largest_change(one: str, other: str) -> float:
    """The largest difference between the outputs for two texts, over five random networks."""
    changes = []
    for seed in range(5):
        model, reader = network([one, other], seed=seed)
        answers = positive_probability(model, reader, [one, other])
        changes.append((answers[0] - answers[1]).abs().item())
    return max(changes)


def can_explain(one: str, other: str, what: str) -> Finding:
    """Whether the difference between two texts can change the output."""
    change = largest_change(one, other)
    note = f"{what}: the outputs of 5 networks change by up to {change:.1g}"
    return Finding(verdict(change > TOLERANCE), note, f"{TOLERANCE:g}")


@cache
def dilution_curves() -> dict[str, list[tuple[int, float]]]:
    """The probability of “positive” for one sentiment word among n words that do not occur in training."""
    model, reader = train({"good": 1, "bad": 0, "a good one": 1, "a bad one": 0}, extra=NEUTRAL)
    times = range(0, 41, 2)
    shares = {
        word: positive_probability(model, reader, [f"{word} {NEUTRAL * n}" for n in times]).tolist()
        for word in ("good", "bad")
    }
    return {word: [(n * len(NEUTRAL.split()), share) for n, share in zip(times, some, strict=True)]
            for word, some in shares.items()}  # fmt: skip


def diluted() -> Finding:
    good, bad = dilution_curves().values()
    alone, many = good[0][1] - bad[0][1], good[-1][1] - bad[-1][1]
    note = (
        f"a trained network separates “good” from “bad” by {alone:.2f} if they are alone, by {many:.2f} among "
        f"{good[-1][0]} other words"
    )
    return Finding(verdict(many < alone / 2), note, "less than half")


def unknown_word() -> Finding:
    model, reader = network(["a good film"])
    plain, extended = (positive_probability(model, reader, [text]) for text in ("a good film", "a dreadful good film"))
    change = (plain - extended).abs().item()
    known = largest_change("a good film", "a dreadful good film")
    note = f"a word without a vector changes the output by {change:g}; with a vector it would by up to {known:.1g}"
    return Finding(verdict(change == 0 and known > TOLERANCE), note, f"{TOLERANCE:g}")


def whole_twice() -> Finding:
    change = largest_change(TEXT, f"{TEXT} {TEXT}")
    note = f"5 networks, the text once and twice: the outputs differ by at most {change:.1g}"
    return Finding(verdict(change < TOLERANCE), note, f"{TOLERANCE:g}")


def negation() -> Finding:
    right = {layers: accuracy(*train(NEGATED, layers), NEGATED) for layers in (0, 2)}
    note = f"four texts, 300 steps: accuracy {right[2]:.0%} with two layers above the mean, {right[0]:.0%} with none"
    under = {
        "no-layer": right[0] < 1,
        "layers": right[2] < 1,
        "order": right[2] < 1,
    }  # every such network ignores order
    return Finding(verdict(right[2] < 1 and right[0] < 1, under), note, "all four right")


def dog_and_man() -> Finding:
    model, reader = train(DOG_AND_MAN)
    gap = float(positive_probability(model, reader, list(DOG_AND_MAN)).diff().abs())
    orders = {" ".join(one) for one in permutations("the dog bit the man".split())}
    spread = positive_probability(model, reader, sorted(orders))
    note = (
        f"trained on the pair for 300 steps: the two outputs differ by {gap:.1g}, and all {len(orders)} orders of the "
        f"words have the output {spread.min():.3f}"
    )
    equal_outputs = gap < TOLERANCE  # so exactly one of two opposite labels is right
    return Finding(0.5 if equal_outputs else accuracy(model, reader, DOG_AND_MAN), note)


def dilution_figure() -> str:
    return lines(
        [Series(f"“{word}” among others", points) for word, points in dilution_curves().items()],
        "A sentiment word is diluted by neutral words: this explanation of an error is possible.",
        ("number of other words", "probability of “positive”"),
    )


AVERAGING = Exercise(
    where={"weight": lambda n: 1 / n}, id="deep-averaging-order", title="What a deep averaging network ignores",
        figure=dilution_figure,
    question="A deep averaging network computes the mean of the word vectors of a text, applies feed-forward layers, "
    "and predicts whether the text is positive. Somebody explains its errors. Which explanations can be true?",
    answer="The mean of vectors is the same in every order, so word order cannot explain an output: neither which word "
    "came last nor which words were neighbours. To test an explanation, change only what it refers to; if the output "
    "cannot change, it is not an explanation. The output depends on which words occur, on their relative frequencies, "
    "on how many other words dilute them, and on which words have no vector. It can also learn something about “not”: "
    "layers above the mean can learn what a set of words means together, though not to which word “not” belongs.",
    parts=[
        Part("shuffle", "Shuffling the words of a text does not change the output.", Truth("nearly", Choice("unigrams",
            {
             "short": "the text has at most ten words", "known": "every word of the text has a vector",
             "unigrams": "only single words have vectors, not bigrams or longer n-grams"})), "numeric", shuffling,
             why="A sum does not depend on the order of its terms (except for rounding). Bigrams with their own "
             "vectors change with the order.", wrong={"assumed vectors of single words only": True}),
        Part("last-word", "“It was wrong because the positive word came last”: this can be the explanation.",
             Truth("false"), "numeric", lambda: can_explain("bad start , good end", "good start , bad end",
             "first and last word swapped"), why="With the positive word first, the output would have been the same.",
             wrong={"explained the error as if a person had made it": True}),
        Part("neighbour", "“It applied 'not' to the wrong word”: this can be the explanation.", Truth("false"),
             "numeric", lambda: can_explain("not bad , good", "bad , not good", "“not” in front of another word"),
             why="It does not apply “not” to any word: it only knows that “not” occurs.",
             wrong={"explained the error as if a person had made it": True}),
        Part("drowned", "“The one sentiment word was diluted by many others”: this can be the explanation.",
             Truth("true"), "numeric", diluted,
             why="Each of n words has weight `1/n`{weight} in the mean, so more words reduce its influence.",
             wrong={"thought that a sentiment word always has full weight": False}),
        Part("repeated", "“A word was repeated and outweighed the others”: this can be the explanation.", Truth("true"),
             "numeric", lambda: can_explain("a bad good film", "a bad good good film", "one word repeated"),
             why="Its weight in the mean nearly doubles.",
             wrong={"thought that the mean counts each word once": False}),
        Part("unknown", "“The sentiment word has no vector, so the network ignored it”: this can be the explanation.",
             Truth("true"), "numeric", unknown_word,
             why="Words that do not occur in training are left out of the mean.",
             wrong={"thought that every word has a vector": False}),
        Part("twice", "A text and the same text written twice in a row have the same output.", Truth("true"), "numeric",
             whole_twice,
             why="All weights stay the same: twice the sum over twice the number. A sum instead of a mean would "
             "distinguish them.", wrong={"used a sum instead of the mean": False}),
        Part("negation", "The network cannot learn that “good” and “not bad” are positive, and “bad” and “not good” "
             "negative.", Truth("nearly", Choice("no-layer", {"layers":
             "there are two layers between the mean and the classes",
             "no-layer": "there is no layer between the mean and the classes",
             "order": "the network ignores the order of words"})), "trained", negation,
             why="Linear scores would need `n + g < n + b` for “not good” against “not bad”, so `g < b`, but also `g > "
             "b` for the words alone. A hidden layer can learn this interaction, and it does not need word order.",
             wrong={"confused ignoring order with ignoring combinations": True}),
        Part("bitten", "“The dog bit the man” and “the man bit the dog” have opposite labels. What is the best "
             "possible accuracy of a deep averaging network of single words on such pairs?", Number("1/2"), "trained",
             dog_and_man,
             why="Both texts have the same output, so exactly one of the two is right, whatever was learnt.",
             wrong={"thought that training finds a way": (1, lambda: accuracy(*train(NEGATED), NEGATED)),
                    "thought that both are wrong": (0, lambda: 1 - accuracy(*train(NEGATED), NEGATED))}),
    ])  # fmt: skip

EXERCISES = (AVERAGING,)
