"""A run that answers questions, and how good its answers are by where a name was seen.

The folder is that of any GPT, so octavo generate, eval and inspect work on it too; what it was taught stands in its
record under `facts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from octavo.datasets.questions import Frame, Knowledge, Pair
from octavo.decode.answers import Answer, answer_questions
from octavo.errors import UserError
from octavo.models.gpt import GPT
from octavo.scoring.metrics import answered, exact_match
from octavo.tasks.run import Run
from octavo.text.question_tokens import mark_of

MAX_REPEATED_QUESTIONS = 500  # of those learnt in finetuning
MAX_MISTAKES = 10  # that are kept, the surest first


@dataclass(repr=False)
class FactsRun(Run):
    """A language model that was taught to answer questions."""

    task: ClassVar[str] = "facts"
    model: GPT

    @cached_property
    def frame(self) -> Frame:
        """How questions are framed."""
        facts = self.record.get("facts")
        frame = facts.get("frame") if isinstance(facts, Mapping) else None
        if not isinstance(frame, list) or len(frame) != 2 or not all(isinstance(part, str) for part in frame):
            where = self.path or self.name
            raise UserError(f"{where} is damaged: facts.frame must be two strings; train the run again")
        return Frame(*frame)

    def answer(self, questions: Sequence[str], beam: int = 1) -> list[Answer]:
        """The model's own answers, each with its confidence."""
        return answer_questions(self.model, self.tokenizer, questions, beam, self.model.config.context)

    def right_share(self, pairs: Sequence[Pair]) -> float:
        """The share of the questions that are answered exactly."""
        said = zip(self.answer([pair.question for pair in pairs]), pairs, strict=True)
        return sum(exact_match(one.text, pair.answer) for one, pair in said) / len(pairs)


def answering_run(run: Run) -> FactsRun:
    """The run as one that answers questions; any other, and an unfinished one, is refused."""
    if not isinstance(run, FactsRun):
        raise UserError(
            f"{run.path or run.name} was not trained to answer questions; train one with octavo train facts birthplaces"
        )
    if run.unfinished:
        raise UserError(f"{run.path or run.name} is not trained to its end; go on with: octavo resume {run.path}")
    assert run.frame
    mark_of(run.tokenizer)
    return run


# ---------------------------------------------------------------------- measuring


def measure(run: FactsRun, known: Knowledge, pretrained: bool, beam: int = 1) -> dict[str, Any]:
    """Exact match on the questions kept back, always the commonest answer beside it, and all of it by group."""
    groups = known.groups(pretrained, MAX_REPEATED_QUESTIONS)
    asked = list(dict.fromkeys([*known.dev, *(pair for some in groups.values() for pair in some)]))
    said = dict(zip(asked, run.answer([pair.question for pair in asked], beam), strict=True))
    dev, common = known.dev, known.commonest
    wrong = sorted((pair for pair in dev if not exact_match(said[pair].text, pair.answer)),
                   key=lambda pair: -said[pair].confidence)  # fmt: skip
    share = sum(exact_match(common, pair.answer) for pair in dev) / max(1, len(dev))
    return {
        **_judged(dev, said),
        "commonest": {"answer": common, "exact_match": share},
        "groups": {name: _judged(some, said) for name, some in groups.items() if some},
        "surest_mistakes": [[pair.question, pair.answer, said[pair].text, said[pair].confidence]
                            for pair in wrong[:MAX_MISTAKES]],
    }  # fmt: skip


def _judged(pairs: Sequence[Pair], said: Mapping[Pair, Answer]) -> dict[str, Any]:
    right_N = [exact_match(said[pair].text, pair.answer) for pair in pairs]
    return answered([said[pair].confidence for pair in pairs], right_N).to_json()
