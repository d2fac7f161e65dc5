"""A run that answers questions, and how good its answers are by where a name was seen.

The folder is that of any GPT, so octavo generate, eval and inspect work on it too; what it was taught stands in its
record under `facts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from octavo.datasets.questions import Frame, Knowledge, Pair
from octavo.decode.answers import Answer, answer_questions
from octavo.errors import UserError
from octavo.models.gpt import GPT
from octavo.scoring.metrics import answered, exact_match
from octavo.tasks.run import Run, load
from octavo.text.question_tokens import mark_of

MAX_REPEATED_QUESTIONS = 500  # of those learnt in finetuning
MAX_MISTAKES = 10  # that are kept, the surest first


@dataclass
class Oracle:
    """A run together with what it needs to answer: how questions are framed."""

    run: Run
    model: GPT
    frame: Frame

    def answer(self, questions: Sequence[str], beam: int = 1) -> list[Answer]:
        """The model's own answers, each with its confidence."""
        return answer_questions(self.model, self.run.tokenizer, questions, beam, self.model.config.context)

    def to(self, device: torch.device) -> Oracle:
        self.model.to(device)
        return self


def oracle_of(run: Run, unfinished: bool = False) -> Oracle:
    """The run as one that answers questions; any other is refused, and, unless asked for, an unfinished one."""
    facts = run.record.get("facts")
    if not isinstance(facts, Mapping):
        raise UserError(
            f"{run.path or run.name} was not trained to answer questions; train one with octavo train facts birthplaces"
        )
    if run.unfinished and not unfinished:
        raise UserError(f"{run.path or run.name} is not trained to its end; go on with: octavo resume {run.path}")
    frame = facts.get("frame")
    if not isinstance(frame, list) or len(frame) != 2 or not all(isinstance(part, str) for part in frame):
        raise UserError(f"{run.path or run.name} is damaged: facts.frame must be two strings; train the run again")
    mark_of(run.tokenizer)
    return Oracle(run, cast(GPT, run.model), Frame(*frame))


def load_oracle(path: str | Path) -> Oracle:
    """The run in a folder, as one that answers questions."""
    return oracle_of(load(path))


# ---------------------------------------------------------------------- measuring


def measure(oracle: Oracle, known: Knowledge, pretrained: bool, beam: int = 1) -> dict[str, Any]:
    """Exact match on the questions kept back, always the commonest answer beside it, and all of it by group."""
    groups = known.groups(pretrained, MAX_REPEATED_QUESTIONS)
    asked = list(dict.fromkeys([*known.dev, *(pair for some in groups.values() for pair in some)]))
    said = dict(zip(asked, oracle.answer([pair.question for pair in asked], beam), strict=True))
    dev = known.dev
    wrong = sorted((pair for pair in dev if not exact_match(said[pair].text, pair.answer)),
                   key=lambda pair: -said[pair].confidence)  # fmt: skip
    return {
        **_judged(dev, said),
        "commonest": {"answer": known.commonest, "exact_match": _share(dev, known.commonest)},
        "groups": {name: _judged(some, said) for name, some in groups.items() if some},
        "surest_mistakes": [[pair.question, pair.answer, said[pair].text, said[pair].confidence]
                            for pair in wrong[:MAX_MISTAKES]],
    }  # fmt: skip


def _judged(pairs: Sequence[Pair], said: Mapping[Pair, Answer]) -> dict[str, Any]:
    right_N = [exact_match(said[pair].text, pair.answer) for pair in pairs]
    return answered([said[pair].confidence for pair in pairs], right_N).to_json()


def _share(pairs: Sequence[Pair], answer: str) -> float:
    return sum(exact_match(answer, pair.answer) for pair in pairs) / max(1, len(pairs))
