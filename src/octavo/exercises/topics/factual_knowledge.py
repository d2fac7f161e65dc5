"""Factual knowledge: what a model learns in pretraining, and what it cannot answer without it.

The people are made up (`octavo.datasets.people`): half of them are described in the text and asked about in
finetuning, a quarter is only described, and the rest occurs nowhere. The small setting was tried with five seeds (0 to
4) for people and weights, and every claim held in each of them; `--full` repeats this, together with a larger setting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial

import torch

from octavo.core import seeded_generator
from octavo.datasets.people import made_up
from octavo.datasets.questions import MARK, Frame, Knowledge, Pair
from octavo.decode.answers import Answer, answer_questions
from octavo.exercises import Exercise, Finding, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import share_error
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.pages.figures.charts import bars
from octavo.tasks.facts import TASK
from octavo.tasks.facts_run import FactsRun
from octavo.tasks.training_run import train_in_memory
from octavo.text.tokenizers.closed_vocabulary import BEGIN, END, UNKNOWN, ClosedVocabulary

FIRSTS = [a + b for a in ("Al", "Be", "Da", "El", "Fe", "Jo", "Ka", "Lu", "Ma", "Ro")
          for b in ("bin", "da", "lia", "mo", "nna", "ric", "sa", "ver")]  # fmt: skip
LASTS = [a + b for a in ("Ash", "Birch", "Clay", "Dun", "Fern", "Hart", "Lin", "Mar", "Stone", "Win")
         for b in ("by", "dale", "field", "ford", "ham", "ley", "ton", "wood")]  # fmt: skip
PLACES = ("Rome", "Oslo", "Lima", "Bern", "Kyiv", "Baku", "Cairo", "Quito")  # with probability proportional to 1/rank
SENTENCES = ("{name} was born in {place} .", "{name} , born in {place} , is a writer .")
UNKNOWN_COUNT = 400
FINETUNED, DESCRIBED, UNKNOWN_PEOPLE = "asked about in finetuning", "only described", "unknown"
STANDARD_ERRORS = 2  # that a difference must exceed


@dataclass(frozen=True)
class Setting:
    """The size of the data and of the training."""

    people: int
    passes: int
    width: int
    seed: int = 0  # of the people and of the weights


SMALL = (Setting(120, 60, 48),)
# Results must not depend on one seed: the full setting is larger, and repeats the small one with other seeds.
FULL = (Setting(480, 100, 96), *(Setting(120, 60, 48, seed) for seed in range(1, 5)))
Settings = Sequence[Setting]


@dataclass(frozen=True)
class GroupAnswers:
    """A model's answers about one group of people."""

    pairs: tuple[Pair, ...]
    answers: tuple[Answer, ...]
    commonest: str  # answer in the finetuning data

    @property
    def right(self) -> list[bool]:
        return [answer.text == pair.answer for answer, pair in zip(self.answers, self.pairs, strict=True)]

    @property
    def accuracy(self) -> float:
        return sum(self.right) / len(self.pairs)

    @property
    def constant_accuracy(self) -> float:
        """The accuracy of always giving the commonest answer."""
        return sum(pair.answer == self.commonest for pair in self.pairs) / len(self.pairs)

    @property
    def confidence(self) -> float:
        return sum(answer.confidence for answer in self.answers) / len(self.answers)

    def beats_constant(self) -> bool:
        """Whether it is significantly more accurate than the constant answer, compared person by person."""
        gains = [right - (pair.answer == self.commonest) for right, pair in zip(self.right, self.pairs, strict=True)]
        mean = sum(gains) / len(gains)
        spread = math.sqrt(sum((gain - mean) ** 2 for gain in gains)) / len(gains)
        return mean > STANDARD_ERRORS * spread

    @property
    def is_miscalibrated(self) -> bool:
        """Whether its mean confidence differs significantly from its accuracy."""
        error = 2 * STANDARD_ERRORS * math.sqrt(self.accuracy * (1 - self.accuracy) / len(self.pairs))
        return abs(self.confidence - self.accuracy) > error

    def __str__(self) -> str:
        return f"accuracy {self.accuracy:.0%}, constant answer {self.constant_accuracy:.0%} ({len(self.pairs)} people)"


def people(setting: Setting) -> Knowledge:
    """People with a short text about them, and additional unknown people for smaller standard errors."""
    known, others = (
        made_up(FIRSTS, LASTS, PLACES, size, 2 * setting.seed + seed)
        for size, seed in ((setting.people, 2), (2 * UNKNOWN_COUNT, 3))
    )
    train, dev, strangers = (
        tuple(Pair(one.question.replace("?", " ?"), one.answer) for one in some)
        for some in (known.train, known.dev, (*others.train, *others.dev, *others.never))
    )
    frame, met = Frame.of([pair.question for pair in train]), {pair.question for pair in (*train, *dev)}
    text = tuple(
        way.format(name=frame.name_in(one.question), place=one.answer) for one in (*train, *dev) for way in SENTENCES
    )
    never = tuple(one for one in strangers if one.question not in met)[:UNKNOWN_COUNT]
    return replace(known, text=text, train=train, dev=dev, never=never)


def vocabulary(known: Knowledge) -> ClosedVocabulary:
    """A vocabulary of whole words; unknown people have the same first and last names in other combinations."""
    lines = [*known.text, *FIRSTS, *LASTS, *(part for pair in known.train for part in pair)]
    return ClosedVocabulary([MARK, *sorted({word for line in lines for word in line.split()}), END, UNKNOWN, BEGIN])


@cache
def train_and_ask(setting: Setting, pretraining: bool) -> dict[str, GroupAnswers]:
    """Train with or without pretraining, and ask about everybody."""
    known, cpu = people(setting), torch.device("cpu")
    tokenizer = vocabulary(known)
    model = GPT(GPTConfig(width=setting.width, layers=2, heads=4, context=32), tokenizer.vocab)
    model.initialise(seeded_generator(setting.seed))
    recipe = TASK.recipe("facts", {
        "pretraining": pretraining, "pretrain_epochs": setting.passes, "pretrain_batch_size": 32,
        "epochs": 20 if pretraining else 75, "learning_rate": 0.002, "batch_size": 64, "precision": "float32",
    }, setting.seed)  # fmt: skip
    taught = train_in_memory(TASK, recipe, FactsRun(model, tokenizer), known, cpu).model
    groups = {FINETUNED: known.train, DESCRIBED: known.dev, UNKNOWN_PEOPLE: known.never}
    return {
        name: GroupAnswers(pairs, tuple(answer_questions(taught, tokenizer, [one.question for one in pairs])),
                       known.commonest)
        for name, pairs in groups.items()
    }  # fmt: skip


def constant_share() -> Finding:
    drawn = made_up(FIRSTS, LASTS, PLACES, 3000, seed=5)
    answers = [pair.answer for pair in (*drawn.train, *drawn.dev, *drawn.never)]
    share = answers.count(drawn.commonest) / len(answers)
    error = share_error(share, len(answers), 4)
    note = f"{len(answers):,} made-up people; “{drawn.commonest}” for all of them, 4 standard errors"
    exact = Fraction(1) / sum((Fraction(1, rank) for rank in range(1, len(PLACES) + 1)), Fraction(0))
    assert abs(share - exact) <= error, "made-up people must be born as described"
    return Finding(exact, f"the probabilities in exact fractions; {share:.3f} ± {error:.3f} of {note}")


def drawn_share() -> Finding:
    """The exact probability that two independent draws are equal."""
    chance = [Fraction(1, rank) for rank in range(1, len(PLACES) + 1)]
    chance = [one / sum(chance) for one in chance]
    return Finding(sum((one * one for one in chance), Fraction(0)), "the probability that two draws are the same place")


def group_results(settings: Settings, pretraining: bool, group: str) -> list[GroupAnswers]:
    return [train_and_ask(one, pretraining)[group] for one in settings]


def list_results(some: Sequence[object]) -> str:
    first, *others = map(str, some)
    return f"{first}; with other seeds: {'; '.join(others)}" if others else first


def compare_with_constant(
    pretraining: bool, group: str, denied: bool, every: bool, settings: Settings = SMALL
) -> Finding:
    """Whether the model beats the constant answer on a group, in every setting or in any; a claim may deny it."""
    results = group_results(settings, pretraining, group)
    beats = (all if every else any)(one.beats_constant() for one in results)
    note = f"{'pretrained and finetuned' if pretraining else 'finetuned only'}: {list_results(results)}"
    return Finding(verdict(beats != denied), note, f"{STANDARD_ERRORS} standard errors")


without_pretraining = partial(compare_with_constant, False, DESCRIBED, False, False)
memorised = partial(compare_with_constant, False, FINETUNED, True, True)
with_pretraining = partial(compare_with_constant, True, DESCRIBED, False, True)
unknown_people = partial(compare_with_constant, True, UNKNOWN_PEOPLE, False, False)


def facts_figure() -> str:
    with_it, without_it = (train_and_ask(*SMALL, one)[DESCRIBED] for one in (True, False))
    return bars(
        [("pretrained", 100 * with_it.accuracy), ("not pretrained", 100 * without_it.accuracy),
         ("constant", 100 * with_it.constant_accuracy), ("random place", 100 / len(PLACES))],
        "Accuracy in percent on people who are described in the text but not asked about in finetuning.", 0,
    )  # fmt: skip


PRETRAINING = Exercise(
    where={"places": len(PLACES), "inverse": lambda k: 1 / k, "total": sum(1 / k for k in range(1, len(PLACES) + 1))},
    id="pretraining-or-not", title="Pretraining, no pretraining, and the constant answer", figure=facts_figure,
    question="Made-up people are born in one of 8{places} places, the k-th with probability proportional to "
    "`1/k`{inverse}. A small transformer may first be trained on a text that says where people were born "
    "(pretraining), and is then trained to answer “Where was ... born?” for half of them (finetuning). It is tested "
    "on others, who are described in the text but not asked about in finetuning.",
    answer="A model cannot know a fact that is not in its training data: without pretraining the answers for other "
    "people can only be guessed, and the best guess is always the commonest place, right in `1/(1 + 1/2 + 1/3 + 1/4 + "
    "1/5 + 1/6 + 1/7 + 1/8) = 280/761` of cases. A model may be worse than that, because it has memorized the "
    "finetuning answers and generalizes from irrelevant features. With pretraining the answers come from the text, and "
    "finetuning only teaches the format. So every such accuracy must be compared with that of the constant answer.",
    parts=[
        Part("constant", "What is the expected accuracy of the best constant answer?", Number("280/761"), "exact",
             constant_share, why="Its probability is one over the sum of `1/k`{inverse} for k from one to 8{places}, "
             "which is 761/280{total}.",
             wrong={"assumed all places to be equally frequent": ("1/8", lambda: 1 / len(PLACES)),
                    "sampled the answer instead of always giving the best one":
                        ("(1 + 1/4 + 1/9 + 1/16 + 1/25 + 1/36 + 1/49 + 1/64)*(280/761)^2", lambda:
                            float(drawn_share().value)),
                    "did not normalize the probabilities": (1, lambda: max(1 / k for k in range(1, 9)))}),
        Part("by-lot", "What is the expected accuracy if the answer is sampled with the probabilities of the places?",
             Number("(1 + 1/4 + 1/9 + 1/16 + 1/25 + 1/36 + 1/49 + 1/64)*(280/761)^2"), "exact", drawn_share,
             why="Both draws must be place k: the sum of the squared probabilities. Sampling in proportion is worse "
             "than always giving the commonest answer.",
             wrong={"thought that it is as good as the constant answer": ("280/761", lambda:
                 float(constant_share().value)),
                    "assumed all to be equally frequent": ("1/8", lambda: sum(1 / len(PLACES) ** 2 for _ in PLACES))}),
        Part("memory", "Without pretraining it cannot even learn the answers that it is finetuned on.", Truth("false"),
             "trained", memorised, full=lambda: memorised(FULL),
             why="It memorizes them, which says nothing about other people.",
             wrong={"confused not knowing others with not learning these": True}),
        Part("without", "Without pretraining, it is better than the constant answer on the others.", Truth("false"),
             "trained", without_pretraining, full=lambda: without_pretraining(FULL),
             why="Nothing in its training data depends on where the others were born.",
             wrong={"mistook memorization for generalization": True}),
        Part("with", "With pretraining, it is better than the constant answer on the others.", Truth("true"), "trained",
             with_pretraining, full=lambda: with_pretraining(FULL),
             why="Their birthplaces are in the text, and finetuning has taught the model to recall them.",
             wrong={"thought that only questions from finetuning can be answered": False}),
        Part("strangers", "With pretraining, it is also better than the constant answer on people who do not occur in "
             "the text.", Truth("false"), "trained", unknown_people, full=lambda: unknown_people(FULL),
             why="Pretraining does not improve guessing: it helps only where the text contains the answer.",
             wrong={"thought that more knowledge improves guessing": True}),
    ])  # fmt: skip

EXERCISES = (PRETRAINING,)
