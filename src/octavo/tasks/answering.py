"""Who answers: the model where it is sure, else the file of facts, else the user, else nobody.

What the user says is stored in the file, from which the model learns it later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.datasets.questions import Knowledge, Pair
from octavo.decode.answers import Answer, log_probability
from octavo.errors import UserError
from octavo.io.lock import locked
from octavo.io.run_folder import REPORT, STATE, check_out
from octavo.tasks.device import pick_device
from octavo.tasks.facts import TASK, AnswerLoss, Questions, joined, optimizer_of
from octavo.tasks.facts_file import Facts
from octavo.tasks.facts_run import FactsRun
from octavo.tasks.training_run import train_alone
from octavo.tasks.word_contributions import left_out
from octavo.text.question_tokens import mark_of, prompt_of
from octavo.training.stage import RowBatch, Stage

Source = Literal["model", "facts", "user", "nobody"]
SUREST = 1e-12  # what is left for all other answers, at least: odds stay finite
Ask = Callable[[str], str]  # a question to the user, who may say nothing


@dataclass(frozen=True)
class Rules:
    """When the model's word counts, and who is asked where it does not."""

    threshold: float = 0.5
    facts: Facts | None = None
    ask: Ask | None = None
    beam: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise UserError(
                f"threshold is a probability, from 0 to 1: threshold={self.threshold}; 0 believes every answer"
            )


@dataclass(frozen=True)
class Reply:
    """An answer, who gave it, and what the model would have said."""

    question: str
    answer: str | None
    source: Source
    guess: str
    confidence: float
    others: tuple[tuple[str, float], ...] = ()
    stored: bool = False

    def to_json(self) -> dict[str, Any]:
        reply = {"question": self.question, "answer": self.answer, "from": self.source, "guess": self.guess,
                 "confidence": self.confidence, "stored": self.stored}  # fmt: skip
        return reply | ({"others": [list(one) for one in self.others]} if self.others else {})

    def __repr__(self) -> str:
        guess = f"the model's {self.guess!r} has {self.confidence:.1%}"
        return f"<not known: {guess}>" if self.answer is None else f"<{self.answer!r} from {self.source}: {guess}>"


def replies_to(run: FactsRun, questions: Sequence[str], rules: Rules) -> list[Reply]:
    """Answer questions by the rules; a name alone is asked about as all questions are."""
    names = [run.frame.name_in(question) for question in questions]
    if not all(names):
        raise UserError(f"there is no question; try {run.frame.question('Ada Lovelace')!r}")
    said = run.answer([run.frame.question(name) for name in names], rules.beam)
    return [_reply(*one, rules) for one in zip(questions, names, said, strict=True)]


def _reply(question: str, name: str, said: Answer, rules: Rules) -> Reply:
    about: dict[str, Any] = {"guess": said.text, "confidence": said.confidence, "others": said.others}
    if said.confidence >= rules.threshold and said.text:
        return Reply(question, said.text, "model", **about)
    if rules.facts is not None and (known := rules.facts.find(name)) is not None:
        return Reply(question, known, "facts", **about)
    answer = " ".join(rules.ask(question).split()) if rules.ask is not None else ""
    if not answer:
        return Reply(question, None, "nobody", **about)
    if rules.facts is not None:
        rules.facts.store(name, answer)
    return Reply(question, answer, "user", **about, stored=rules.facts is not None)


def other_answers(run: FactsRun, reply: Reply, most: int) -> list[tuple[str, float]]:
    """What else a beam finds to answer, with the probability of each."""
    question = run.frame.question(run.frame.name_in(reply.question))
    [found] = run.answer([question], most + 1)
    every = {text: p for text, p in ((found.text, found.confidence), *found.others) if text and text != reply.guess}
    return list(every.items())[:most]


def what_words_did(run: FactsRun, reply: Reply) -> list[tuple[str, float]]:
    """The words of the question as it was asked, and how much the log-odds of the model's answer fall without each."""
    question = run.frame.question(run.frame.name_in(reply.question))
    words, tokenizer = question.split(), run.tokenizer
    if not reply.guess:
        return []
    prompts = [prompt_of(tokenizer, one) for one in (question, *left_out(words))]
    answer = [*tokenizer.encode(reply.guess.encode()).tolist(), mark_of(tokenizer)]
    logp_B = log_probability(run.model, prompts, [answer] * len(prompts))
    odds_B = logp_B - (-logp_B.expm1()).clamp_min(SUREST).log()
    return list(zip(words, (odds_B[0] - odds_B[1:]).tolist(), strict=True))


def pairs_in(run: FactsRun, facts: Facts) -> list[Pair]:
    """The stored pairs as questions with answers."""
    return [Pair(run.frame.question(name), answer) for name, answer in facts.pairs()]


# ---------------------------------------------------------------------- learning later


def learn(
    run: FactsRun, pairs: Sequence[Pair], steps: int = 100, seed: int = 0, device: str = "auto",
    out: str | Path | None = None, quiet: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Finetune on new pairs, half of every batch being those of the run's own finetuning, so that these are not
    forgotten, and save; the share of each that is right, before and after.
    """
    if not pairs or steps < 1:
        raise UserError(f"there must be pairs to learn, and steps: {len(pairs)} pairs, steps={steps}; store some first")
    with locked(out, "learns facts"):
        if out is not None:
            check_out(out)
        return _learn(run, pairs, steps, seed, device, out, quiet)


def _learn(
    run: FactsRun, pairs: Sequence[Pair], steps: int, seed: int, device: str, out: str | Path | None, quiet: bool
) -> dict[str, Any]:
    recipe, known = TASK.recipe_of({**run.record, **run.description()}).replace(seed=seed), run.data("train it anew")
    chosen = pick_device(device)
    model = run.model.to(chosen)
    before = _answered(run, pairs, known)
    half = max(1, (recipe.loop.batch_size or TASK.loop.batch_size) // 2)
    new, old = (Questions(some, run.tokenizer, model.config.context, min(half, len(some)), seed, chosen)
                for some in (pairs, known.train))  # fmt: skip

    def batch(step: int) -> RowBatch:
        return joined([new(step), old(step)], model.begin)

    stage = Stage(model, AnswerLoss(model), batch, optimizer_of(recipe), f"{steps}steps", fixed_shapes=True)
    loop = train_alone(stage, recipe, chosen, quiet)
    run.model = loop.trained_model().to(chosen).eval()  # type: ignore[assignment]
    after = _answered(run, pairs, known)
    run.model.cpu()
    learnt: dict[str, Any] = {"pairs": len(pairs), "steps": loop.position.step, "before": before, "after": after}
    run.record["facts"]["later"] = learnt
    if out is not None:
        run.save(out, keep=(REPORT, STATE))
    return learnt | {"seconds": loop.position.seconds}


def _answered(run: FactsRun, pairs: Sequence[Pair], known: Knowledge) -> dict[str, float]:
    """The share of the new pairs, and of the questions held out, that are answered rightly."""
    return {"new": run.right_share(pairs), "dev": run.right_share(known.dev)}
