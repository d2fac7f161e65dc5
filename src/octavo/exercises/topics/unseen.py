"""A name that a model never saw: what it answers, how sure it says it is, and where the answer comes from.

The models are those of `facts.py`.
"""

from __future__ import annotations

import math

from octavo.core import seeded_generator
from octavo.datasets.questions import prompt_of
from octavo.decode.answers import log_probability
from octavo.exercises import Exercise, Finding, Part, Truth, verdict
from octavo.exercises.topics.facts import (
    ASKED,
    NOWHERE,
    PLACES,
    REAL,
    SMALL,
    SURE,
    TOLD_OF,
    Setting,
    Settings,
    each,
    examined,
    people,
    told_each,
    vocabulary,
)
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.pages.figures.bars import bars
from octavo.tasks.span_corruption import MARK
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.char import Char


def says_a_place(settings: Settings = SMALL) -> Finding:
    counts = []
    for found in each(settings, True, NOWHERE):
        said = [answer.text for answer in found.answers]
        counts.append((len(said), sum(text in PLACES for text in said), said.count("")))
    note = told_each(
        [
            f"{many} strangers: {places} answers are places that it has learnt, {empty} are empty"
            for many, places, empty in counts
        ]
    )
    return Finding(verdict(any(places < many / 2 for many, places, _ in counts)), note, "more than half of the answers")


def as_sure_as_right(settings: Settings = SMALL) -> Finding:
    some = each(settings, True, NOWHERE)
    note = told_each(
        [
            f"it says that it is {found.confidence:.0%} sure, and is right in {found.share:.0%} of cases"
            for found in some
        ]
    )
    return Finding(verdict(not all(found.doubtful for found in some)), note, f"{2 * SURE} standard errors")


def borrowing(setting: Setting) -> tuple[float, float, float]:
    """How often a stranger gets a namesake's birthplace, how often that would be by chance, and the error of it."""
    found = examined(setting, True)
    born: dict[str, set[str]] = {}
    for group in (ASKED, TOLD_OF):
        for pair in found[group].pairs:
            for word in pair.question.split()[2:4]:
                born.setdefault(word, set()).add(pair.answer)
    borrowed, chance = [], []
    for pair, answer in zip(found[NOWHERE].pairs, found[NOWHERE].answers, strict=True):
        places = set().union(*(born.get(word, set()) for word in pair.question.split()[2:4]))
        borrowed.append(answer.text in places)
        chance.append(sum(other.text in places for other in found[NOWHERE].answers) / len(found[NOWHERE].answers))
    expected = sum(chance) / len(chance)
    return sum(borrowed) / len(borrowed), expected, SURE * math.sqrt(expected * (1 - expected) / len(chance))


def namesakes(settings: Settings = SMALL) -> Finding:
    """Whether a part of the name leans the answer: strangers who share a first or last name with somebody it knows."""
    some = [borrowing(one) for one in settings]
    note = told_each(
        [
            f"in {share:.0%} of cases it names the birthplace of a namesake; by chance it would be {expected:.0%}"
            for share, expected, _ in some
        ]
    )
    leans = all(share > expected + error for share, expected, error in some)
    return Finding(verdict(leans), note, f"{SURE} standard errors")


def strangers_alike() -> Finding:
    """How far a network's log-probability of the answer Rome moves from one stranger to another."""
    names, known = ("Zyx Qwert", "Vbn Fghjk"), people(*SMALL)
    chars = Char.learn([Chunk("\n".join([MARK, *known.text]).encode())])
    moved = []
    for tokenizer in (vocabulary(known), chars):
        model = GPT(GPTConfig(width=16, layers=2, heads=2, context=64, init="gpt2"), tokenizer.vocab).double()
        model.initialise(seeded_generator(0))
        prompts = [prompt_of(tokenizer, known.frame.question(name)) for name in names]
        one, other = log_probability(model, prompts, [tokenizer.encode(b"Rome").tolist()] * 2).tolist()
        moved.append(abs(one - other))
    note = f"“{names[0]}” and “{names[1]}”: from one to the other a network over words moves by {moved[0]:g}, one over "
    return Finding(verdict(max(moved) == 0, moved[0] == 0), note + f"characters by {moved[1]:.1g}", "exactly the same")


def unseen_figure() -> str:
    found = examined(*SMALL, True)
    groups = {"known": found[TOLD_OF], "stranger": found[NOWHERE]}
    rows = [(f"{name}: {what}", 100 * share) for name, one in groups.items()
            for what, share in (("sure", one.confidence), ("right", one.share))]  # fmt: skip
    return bars(rows, "How sure the model says it is and how often it is right, in percent: people told of in the "
                "text, and strangers.", 0)  # fmt: skip


UNSEEN = Exercise(
    id="unseen-name",
    title="What a model does with a name it never saw",
    question="The pretrained and finetuned model of the exercise before is asked about people of whom neither text nor "
    "questions say anything. Their first and last names occur, but never together.",
    answer="It answers as if it knew: a well-formed place, one of those it has learnt, with a confidence that has "
    "nothing to do with how often it is right. Nothing in its training ever rewarded not knowing. The answer leans to "
    "the birthplaces of namesakes, because parts of the name are known. If its words are a closed list and the name is "
    "not on it, it cannot even tell two strangers apart.",
    figure=unseen_figure,
    parts=[
        Part("silent", "Mostly it says nothing, or something that is no place.", Truth("false"), "trained",
             says_a_place, full=lambda: says_a_place(REAL),
             why="Every question that it was taught has a place for an answer, so this one has too.",
             wrong={"thought that a model knows what it does not know": True}),
        Part("sure", "Its confidence tells how often it is right about strangers.", Truth("false"), "trained",
             as_sure_as_right, full=lambda: as_sure_as_right(REAL),
             why="It was taught certainty on people whom it knew, and has no reason to be less certain here.",
             wrong={"mistook confidence for accuracy": True}),
        Part("namesakes", "It names the birthplace of somebody with the same first or last name more often than chance "
             "would.", Truth("true"), "trained", namesakes, full=lambda: namesakes(REAL),
             why="The vectors of the known parts of the name carry what was learnt with them.",
             wrong={"mistook a name for one indivisible thing": False}),
        Part("alike", "Two strangers whose names consist of words that never occurred get the same answer with the "
             "same confidence.", Truth("nearly", "all unknown words become one and the same token"), "numeric",
             strangers_alike,
             why="Then the model reads the same tokens. A model of characters or bytes reads different ones, and may "
             "answer differently, with as little reason.", wrong={"assumed a closed list of words": True}),
    ],
)  # fmt: skip

EXERCISES = (UNSEEN,)
