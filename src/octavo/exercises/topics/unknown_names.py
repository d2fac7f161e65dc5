"""Questions about unknown names: what a model answers, how confident it is, and where the answer comes from.

The models are those of `factual_knowledge.py`.
"""

from __future__ import annotations

from octavo.core import seeded_generator
from octavo.datasets.questions import MARK
from octavo.decode.answers import log_probability
from octavo.exercises import Choice, Exercise, Finding, Part, Truth, verdict
from octavo.exercises.framework.evidence import share_error
from octavo.exercises.topics import factual_knowledge as facts
from octavo.exercises.topics.factual_knowledge import FULL, SMALL, STANDARD_ERRORS, UNKNOWN_PEOPLE, Setting, Settings
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.pages.figures.charts import bars
from octavo.text.chunks import Chunk
from octavo.text.question_tokens import prompt_of
from octavo.text.tokenizers.char import Char


def answers_with_place(settings: Settings = SMALL) -> Finding:
    counts = []
    for found in facts.group_results(settings, True, UNKNOWN_PEOPLE):
        texts = [answer.text for answer in found.answers]
        counts.append((len(texts), sum(text in facts.PLACES for text in texts), texts.count("")))
    note = facts.list_results([f"{many} unknown people: {places} answers are places from training, {empty} are empty"
                               for many, places, empty in counts])  # fmt: skip
    return Finding(verdict(any(places < many / 2 for many, places, _ in counts)), note, "half of the answers")


def confidence_matches_accuracy(settings: Settings = SMALL) -> Finding:
    some = facts.group_results(settings, True, UNKNOWN_PEOPLE)
    note = facts.list_results(
        [f"mean confidence {found.confidence:.0%}, accuracy {found.accuracy:.0%}" for found in some]
    )
    return Finding(
        verdict(not all(found.is_miscalibrated for found in some)), note, f"{2 * STANDARD_ERRORS} standard errors"
    )


def namesake_rate(setting: Setting) -> tuple[float, float, float]:
    """The rate of answers that are a namesake's birthplace, the rate expected by chance, and its error."""
    found = facts.train_and_ask(setting, True)
    birthplaces: dict[str, set[str]] = {}
    for group in (facts.FINETUNED, facts.DESCRIBED):
        for pair in found[group].pairs:
            for word in pair.question.split()[2:4]:
                birthplaces.setdefault(word, set()).add(pair.answer)
    matches, chance = [], []
    for pair, answer in zip(found[UNKNOWN_PEOPLE].pairs, found[UNKNOWN_PEOPLE].answers, strict=True):
        places = set().union(*(birthplaces.get(word, set()) for word in pair.question.split()[2:4]))
        matches.append(answer.text in places)
        chance.append(
            sum(other.text in places for other in found[UNKNOWN_PEOPLE].answers) / len(found[UNKNOWN_PEOPLE].answers)
        )
    expected = sum(chance) / len(chance)
    return sum(matches) / len(matches), expected, share_error(expected, len(chance), STANDARD_ERRORS)


def namesakes(settings: Settings = SMALL) -> Finding:
    """Whether a known first or last name influences the answer about an unknown person."""
    some = [namesake_rate(one) for one in settings]
    note = facts.list_results(
        [
            f"{share:.0%} of the answers are the birthplace of a namesake; by chance it would be {expected:.0%}"
            for share, expected, _ in some
        ]
    )
    influenced = all(share > expected + error for share, expected, error in some)
    return Finding(verdict(influenced), note, f"{STANDARD_ERRORS} standard errors")


def unknown_people_alike() -> Finding:
    """How much the log-probability of the answer Rome differs between two unknown people."""
    names, known = ("Zyx Qwert", "Vbn Fghjk"), facts.people(*SMALL)
    chars = Char.learn([Chunk("\n".join([MARK, *known.text]).encode())])
    changes = []
    for tokenizer in (facts.vocabulary(known), chars):
        model = GPT(GPTConfig(width=16, layers=2, heads=2, context=64, init="gpt2"), tokenizer.vocab).double()
        model.initialise(seeded_generator(0))
        prompts = [prompt_of(tokenizer, known.frame.question(name)) for name in names]
        one, other = log_probability(model, prompts, [tokenizer.encode(b"Rome").tolist()] * 2).tolist()
        changes.append(abs(one - other))
    note = f"“{names[0]}” and “{names[1]}”: the log-probability differs by {changes[0]:g} with word tokens, "
    under = {
        "one-token": changes[0] == 0,
        "characters": changes[1] == 0,
        "length": changes[1] == 0,
    }  # equally long names
    return Finding(verdict(max(changes) == 0, under), note + f"by {changes[1]:.1g} with characters", "exactly equal")


def unseen_figure() -> str:
    found = facts.train_and_ask(*SMALL, True)
    groups = {"described": found[facts.DESCRIBED], "unknown": found[UNKNOWN_PEOPLE]}
    rows = [(f"{name}: {what}", 100 * share) for name, one in groups.items()
            for what, share in (("confidence", one.confidence), ("accuracy", one.accuracy))]  # fmt: skip
    caption = "Confidence and accuracy in percent, for people described in the text and for unknown people."
    return bars(rows, caption, 0)


UNSEEN = Exercise(
    where={}, id="unseen-name", title="What a model answers about an unknown name", figure=unseen_figure,
    question="A small transformer is pretrained on a text that says where made-up people were born, and finetuned to "
    "answer questions about half of them. Then it is asked about people who occur neither in the text nor in the "
    "questions. Their first and last names occur, but never together.",
    answer="It answers as if it knew: a plausible place from its training data, with a confidence unrelated to its "
    "accuracy. Nothing in its training rewarded admitting ignorance. The answers favour the birthplaces of namesakes, "
    "because parts of the name are known. With a closed vocabulary that lacks the name, it cannot even distinguish two "
    "unknown people.",
    parts=[
        Part("silent", "Mostly its answer is empty or not a place.", Truth("false"), "trained", answers_with_place,
             full=lambda: answers_with_place(FULL),
             why="The answer to every question in finetuning was a place, so this one is too.",
             wrong={"thought that a model knows what it does not know": True}),
        Part("sure", "Its confidence predicts its accuracy on unknown people.", Truth("false"), "trained",
             confidence_matches_accuracy, full=lambda: confidence_matches_accuracy(FULL),
             why="It was trained to be certain about known people, and has no reason to be less certain here.",
             wrong={"mistook confidence for accuracy": True}),
        Part("namesakes", "It answers with the birthplace of somebody with the same first or last name more often than "
             "by chance.", Truth("true"), "trained", namesakes, full=lambda: namesakes(FULL),
             why="The embeddings of the known parts of the name contain what was learnt with them.",
             wrong={"treated a name as one unit": False}),
        Part("alike", "Two people whose names consist of unknown words get the same answer with the same confidence.",
             Truth("nearly", Choice("one-token", {"length": "their names are equally long", "characters":
                  "the model reads characters",
             "one-token": "all unknown words become the same token"})), "numeric", unknown_people_alike,
             why="Then the model reads the same tokens. A model of characters or bytes reads different tokens and may "
             "answer differently, with no better reason.", wrong={"assumed a closed vocabulary of words": True}),
    ])  # fmt: skip

EXERCISES = (UNSEEN,)
