"""Facts: what a model knows from pretraining, what it cannot know without, and what it says of a stranger.

The people are made up (`data/people.py`): half of them are told of in the text and asked about in finetuning, a
quarter is told of only, and those who are left stand nowhere. The small setting was tried with five draws of people and
weights (seeds 0 to 4), and every claim held in each of them; `--full` does so again, beside a larger setting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import torch

from octavo.core import seeded_generator
from octavo.datasets.people import made_up
from octavo.datasets.questions import Frame, Knowledge, Pair
from octavo.decode.answers import Answer, answer_questions
from octavo.exercises import Exercise, Finding, Interval, Number, Part, Truth, verdict
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.pages.figures.bars import bars
from octavo.tasks.facts_training import FactsConfig, finetune, pretrain
from octavo.tasks.span_corruption import MARK
from octavo.text.tokenizers.closed_vocabulary import BEGIN, END, UNKNOWN, ClosedVocabulary

FIRSTS = [a + b for a in ("Al", "Be", "Da", "El", "Fe", "Jo", "Ka", "Lu", "Ma", "Ro")
          for b in ("bin", "da", "lia", "mo", "nna", "ric", "sa", "ver")]  # fmt: skip
LASTS = [a + b for a in ("Ash", "Birch", "Clay", "Dun", "Fern", "Hart", "Lin", "Mar", "Stone", "Win")
         for b in ("by", "dale", "field", "ford", "ham", "ley", "ton", "wood")]  # fmt: skip
PLACES = ("Rome", "Oslo", "Lima", "Bern", "Kyiv", "Baku", "Cairo", "Quito")  # the first is the commonest: 1/rank
TOLD = ("{name} was born in {place} .", "{name} , born in {place} , is a writer .")
STRANGERS = 400
ASKED, TOLD_OF, NOWHERE = "asked about", "told of only", "nowhere"
SURE = 2  # standard errors that a difference must exceed


@dataclass(frozen=True)
class Setting:
    """How much is told, and how long it is learnt."""

    people: int
    passes: int
    width: int
    seed: int = 0  # of the people and of the weights


SMALL = (Setting(120, 60, 48),)
# What the small setting says must not hang on one draw: the real one is larger, and repeats the small one with others.
REAL = (Setting(480, 100, 96), *(Setting(120, 60, 48, seed) for seed in range(1, 5)))
Settings = Sequence[Setting]


@dataclass(frozen=True)
class Examined:
    """A model's answers about one group of people."""

    pairs: tuple[Pair, ...]
    answers: tuple[Answer, ...]
    commonest: str  # of the answers that finetuning has seen

    @property
    def right(self) -> list[bool]:
        return [answer.text == pair.answer for answer, pair in zip(self.answers, self.pairs, strict=True)]

    @property
    def share(self) -> float:
        return sum(self.right) / len(self.pairs)

    @property
    def constant(self) -> float:
        """How often the commonest answer, always given, is right."""
        return sum(pair.answer == self.commonest for pair in self.pairs) / len(self.pairs)

    @property
    def confidence(self) -> float:
        return sum(answer.confidence for answer in self.answers) / len(self.answers)

    def beats_constant(self) -> bool:
        """Whether it is right more often than the constant answer, person by person, by more than chance would do."""
        gains = [right - (pair.answer == self.commonest) for right, pair in zip(self.right, self.pairs, strict=True)]
        mean = sum(gains) / len(gains)
        spread = math.sqrt(sum((gain - mean) ** 2 for gain in gains)) / len(gains)
        return mean > SURE * spread

    @property
    def doubtful(self) -> bool:
        """Whether it is wrong to take its confidence for how often it is right."""
        error = 2 * SURE * math.sqrt(self.share * (1 - self.share) / len(self.pairs))
        return abs(self.confidence - self.share) > error

    def __str__(self) -> str:
        return f"{self.share:.0%} right, the constant answer {self.constant:.0%} ({len(self.pairs)} people)"


def people(setting: Setting) -> Knowledge:
    """People with a short text about them; more strangers than were made up with them, for surer figures."""
    known, others = (
        made_up(FIRSTS, LASTS, PLACES, size, 2 * setting.seed + seed)
        for size, seed in ((setting.people, 2), (2 * STRANGERS, 3))
    )
    train, dev, strangers = (
        tuple(Pair(one.question.replace("?", " ?"), one.answer) for one in some)
        for some in (known.train, known.dev, (*others.train, *others.dev, *others.never))
    )
    frame, met = Frame.of([pair.question for pair in train]), {pair.question for pair in (*train, *dev)}
    text = tuple(
        way.format(name=frame.name_in(one.question), place=one.answer) for one in (*train, *dev) for way in TOLD
    )
    never = tuple(one for one in strangers if one.question not in met)[:STRANGERS]
    return replace(known, text=text, train=train, dev=dev, never=never)


def vocabulary(known: Knowledge) -> ClosedVocabulary:
    """Whole words as tokens; the strangers' names are made of the same words, in other pairs."""
    lines = [*known.text, *FIRSTS, *LASTS, *(part for pair in known.train for part in pair)]
    return ClosedVocabulary([MARK, *sorted({word for line in lines for word in line.split()}), END, UNKNOWN, BEGIN])


@cache
def examined(setting: Setting, pretraining: bool) -> dict[str, Examined]:
    """Train, with pretraining or without, and ask about everybody."""
    known, cpu = people(setting), torch.device("cpu")
    tokenizer = vocabulary(known)
    model = GPT(GPTConfig(width=setting.width, layers=2, heads=4, context=32), tokenizer.vocab)
    model.initialise(seeded_generator(setting.seed))
    how = FactsConfig(
        pretraining, pretrain_passes=setting.passes, pretrain_batch=32, rate=0.002, batch=64, precision="float32",
        passes=20 if pretraining else 75,
    )  # fmt: skip
    if pretraining:
        pretrain(model, tokenizer, known, how, setting.seed, cpu, quiet=True)
    finetune(model, tokenizer, known, how, setting.seed, cpu, quiet=True)
    groups = {ASKED: known.train, TOLD_OF: known.dev, NOWHERE: known.never}
    return {
        name: Examined(pairs, tuple(answer_questions(model, tokenizer, [one.question for one in pairs])),
                       known.commonest)
        for name, pairs in groups.items()
    }  # fmt: skip


def constant_share() -> Finding:
    drawn = made_up(FIRSTS, LASTS, PLACES, 3000, seed=5)
    answers = [pair.answer for pair in (*drawn.train, *drawn.dev, *drawn.never)]
    share = answers.count(drawn.commonest) / len(answers)
    error = 4 * math.sqrt(share * (1 - share) / len(answers))
    return Finding(
        Interval(share - error, share + error),
        f"{len(answers):,} made-up people; “{drawn.commonest}” for all of them, 4 standard errors",
    )


def drawn_share() -> Finding:
    """Every place with every answer, exactly."""
    chance = [Fraction(1, rank) for rank in range(1, len(PLACES) + 1)]
    chance = [one / sum(chance) for one in chance]
    return Finding(
        sum((one * one for one in chance), Fraction(0)), "the chance that two draws are the same place, added"
    )


def each(settings: Settings, pretraining: bool, group: str) -> list[Examined]:
    return [examined(one, pretraining)[group] for one in settings]


def told_each(some: Sequence[object]) -> str:
    first, *others = map(str, some)
    return f"{first}; with other people and weights: {'; '.join(others)}" if others else first


def without(settings: Settings = SMALL) -> Finding:
    found = each(settings, False, TOLD_OF)
    beats = any(one.beats_constant() for one in found)
    return Finding(verdict(beats), f"finetuned only: {told_each(found)}", f"{SURE} standard errors")


def memorised(settings: Settings = SMALL) -> Finding:
    found = each(settings, False, ASKED)
    beats = all(one.beats_constant() for one in found)
    return Finding(verdict(not beats), f"finetuned only: {told_each(found)}", f"{SURE} standard errors")


def with_pretraining(settings: Settings = SMALL) -> Finding:
    found = each(settings, True, TOLD_OF)
    beats = all(one.beats_constant() for one in found)
    return Finding(verdict(beats), f"pretrained and finetuned: {told_each(found)}", f"{SURE} standard errors")


def strangers(settings: Settings = SMALL) -> Finding:
    found = each(settings, True, NOWHERE)
    beats = any(one.beats_constant() for one in found)
    return Finding(verdict(beats), f"pretrained and finetuned: {told_each(found)}", f"{SURE} standard errors")


def facts_figure() -> str:
    with_it, without_it = (examined(*SMALL, one)[TOLD_OF] for one in (True, False))
    return bars(
        [("pretrained", 100 * with_it.share), ("not pretrained", 100 * without_it.share),
         ("constant", 100 * with_it.constant), ("any place", 100 / len(PLACES))],
        "Right answers in percent about people who are told of in the text but were not asked about in finetuning.", 0,
    )  # fmt: skip


PRETRAINING = Exercise(
    id="pretraining-or-not",
    title="Pretraining, no pretraining, and the constant answer",
    question="Made-up people are born in one of 8 places, the k-th with a chance in proportion to 1/k. A small "
    "transformer may first learn a text that tells where people were born (pretraining), and is then taught to answer "
    "“Where was ... born?” about half of them (finetuning). It is measured on others, who are told of in the text but "
    "were not asked about.",
    answer="A fact that a model has nowhere read it cannot know: without pretraining the questions about others can "
    "only be guessed, and the best guess is always to say the commonest place, right in `1/(1 + 1/2 + 1/3 + 1/4 + 1/5 "
    "+ 1/6 + 1/7 + 1/8) = 280/761` of cases. A model may do worse than that, because it has learnt the questions by "
    "heart and carries over what means nothing. With pretraining the text is where the answers come from, and "
    "finetuning only teaches how to say them. So the constant answer is what every such figure must be held against.",
    figure=facts_figure,
    parts=[
        Part("constant", "How often is the best constant answer right, on average?", Number("280/761"), "monte carlo",
             constant_share, why="Its chance is 1 over the sum of 1/k for k from 1 to 8, which is 761/280.",
             wrong={"assumed the 8 places to be equally frequent": "1/8",
                    "drew the answer by lot instead of always giving the best one": 0.2068,
                    "mistook 1/k for its chance without making them add up to one": 1}),
        Part("by-lot", "And if the answer is drawn with the places' own chances?",
             Number("(1 + 1/4 + 1/9 + 1/16 + 1/25 + 1/36 + 1/49 + 1/64)*(280/761)^2"), "exact", drawn_share,
             why="Both draws must be place k: the sum of the squares of the chances. Drawing in proportion looks fair, "
             "but is worse than always saying the commonest.",
             wrong={"thought it is as good as the constant answer": "280/761",
                    "assumed all to be equally frequent": "1/8"}),
        Part("memory", "Without pretraining it cannot learn even the answers that it is finetuned on.", Truth("false"),
             "trained", memorised, full=lambda: memorised(REAL),
             why="It learns them by heart, which says nothing of what it knows of others.",
             wrong={"mistook not knowing others for not learning these": True}),
        Part("without", "Without pretraining, it does better than the constant answer on the others.", Truth("false"),
             "trained", without, full=lambda: without(REAL),
             why="Nothing that it was given depends on where the others were born.",
             wrong={"mistook learning by heart for knowing": True}),
        Part("with", "With pretraining, it does better than the constant answer on the others.", Truth("true"),
             "trained", with_pretraining, full=lambda: with_pretraining(REAL),
             why="Their birthplaces stand in the text, and finetuning has taught the model to say what it has read.",
             wrong={"thought that only what was asked about can be answered": False}),
        Part("strangers", "With pretraining, it also does better than the constant answer on people of whom the text "
             "says nothing.", Truth("false"), "trained", strangers, full=lambda: strangers(REAL),
             why="Pretraining is no talent for guessing: it helps where the text holds the answer.",
             wrong={"mistook knowing more for guessing better": True}),
    ],
)  # fmt: skip

EXERCISES = (PRETRAINING,)
