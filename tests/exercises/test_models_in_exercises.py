"""The models of the book have exercises: each is named in the question of at least one."""

from __future__ import annotations

import pytest

from octavo.exercises.framework.registry import exercises_by_topic
from octavo.models import MODELS

BOOK = (
    "ngram", "ctw", "bigram", "nnlm", "hmm", "conv", "gru", "lstm", "mingru", "minlstm", "lru", "rglru",
    "retention", "gla", "mamba2", "deltanet", "gated-deltanet", "mlstm",
)  # fmt: skip


@pytest.mark.parametrize("name", BOOK)
def test_a_model_of_the_book_is_named_in_the_question_of_an_exercise(name: str) -> None:
    title = MODELS[name].title.lower()
    exercises = [one for topic in exercises_by_topic().values() for one in topic]
    questions = {one.id: " ".join((one.title, one.question, *(part.ask for part in one.parts))) for one in exercises}
    assert [id for id, question in questions.items() if title in question.lower()]
