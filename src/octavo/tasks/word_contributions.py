"""Why a classifier answers as it does: what each word contributes, what order changes, which examples are alike.

L words of a text, N training examples, C classes, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.datasets.labels import Labelled
from octavo.io.cooperative import Turn
from octavo.models.parts.checks import check_numbers
from octavo.pages.sections import notebook_view
from octavo.tasks.classifier import Classifier
from octavo.text.bag_of_ngrams import Bags, words_of

SHUFFLES = 5
SAME = 1e-4  # probabilities no further apart than this are the same: sums in another order round otherwise
NEAREST = 3
PIECE = 32  # texts that are answered at once


@dataclass(frozen=True)
class Near:
    """A training example that is similar to the model."""

    text: str
    label: str
    likeness: float  # the cosine


@dataclass(frozen=True)
class Explained:
    """One answer, taken apart."""

    text: str
    answer: str
    confidence: float
    truth: str | None
    words: list[str]
    contributions: list[float]
    """Of each word: how much the answer's log-odds, ln p / (1 - p), fall when it is left out; below 0, they rise."""
    shuffled: list[float]
    """p(answer) with the words in other orders."""
    nearest: list[Near]

    @property
    def order_blind(self) -> bool:
        """Whether shuffling left the answer's probability as it was."""
        return all(abs(p - self.confidence) <= SAME for p in self.shuffled)

    def verdict(self) -> str:
        """What follows from shuffling, in words."""
        if len(self.words) < 2:
            return ""
        if self.order_blind:
            return "Shuffled, it gets the same answer: word order, and so what a “not” belongs to, is not seen."
        low, high = min(self.shuffled), max(self.shuffled)
        return f"Shuffled, p({self.answer}) is {low:.2f} to {high:.2f} instead of {self.confidence:.2f}: order counts."

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "order_blind": self.order_blind}

    def __repr__(self) -> str:
        return f"<{self.answer}, {self.confidence:.1%} confident, by {len(self.words)} words>"

    def _repr_html_(self) -> str:
        from octavo.tasks.classification_page import contributions, contributions_legend  # which need this class

        return notebook_view(contributions(self), contributions_legend())


def explain(
    made: Classifier, texts: Sequence[str], truths: Sequence[str | None], learnt: Labelled | None = None,
    seed: int = 0, turn: Turn = nullcontext,
) -> list[Explained]:  # fmt: skip
    """Take the answers to some texts apart; with the training examples, find those that are alike too."""
    alike = nearest(made, texts, learnt) if learnt is not None else [[] for _ in texts]
    return [
        _explain(made, text, truth, near, seed, turn) for text, truth, near in zip(texts, truths, alike, strict=True)
    ]


def logits_in_turns(made: Classifier, texts: Sequence[str], turn: Turn) -> Tensor:
    """logits_NC of the texts, a piece at a time."""
    found = []
    for start in range(0, len(texts), PIECE):
        with turn():
            found.append(made.logits(texts[start : start + PIECE]))
    return torch.cat(found)


def _explain(made: Classifier, text: str, truth: str | None, near: list[Near], seed: int, turn: Turn) -> Explained:
    (words,) = words_of([text]).spelt()
    random = np.random.default_rng(seed)
    orders = [random.permutation(len(words)) for _ in range(SHUFFLES)] if len(words) > 1 else []
    shuffled = [" ".join(words[i] for i in order) for order in orders]
    logits = logits_in_turns(made, [text, *left_out(words), *shuffled], turn).double()
    answer = int(logits[0].argmax())
    others = torch.cat([logits[:, :answer], logits[:, answer + 1 :]], 1)
    odds = logits[:, answer] - others.logsumexp(1)  # unlike log p, it does not level off where the answer is sure
    p = odds.sigmoid().tolist()
    return Explained(
        text, made.classes[answer], p[0], truth, words, (odds[0] - odds[1 : 1 + len(words)]).tolist(),
        p[1 + len(words) :], near,
    )  # fmt: skip


def left_out(words: Sequence[str]) -> list[str]:
    """The text without each of its words. What a model then answers is exact, not an approximation by a gradient."""
    return [" ".join([*words[:i], *words[i + 1 :]]) for i in range(len(words))]


def surest_errors(made: Classifier, data: Labelled, count: int) -> list[int]:
    """The rows of the examples that it got wrong with most confidence, surest first."""
    p_NC = made.probabilities(data.texts)
    confidence_N, answer_N = p_NC.max(1)
    wrong_N = answer_N != torch.from_numpy(data.y_N)
    order = torch.where(wrong_N, confidence_N, -1.0).argsort(descending=True, stable=True)
    return order[: min(count, int(wrong_N.sum()))].tolist()


def nearest(made: Classifier, texts: Sequence[str], learnt: Labelled, count: int = NEAREST) -> list[list[Near]]:
    """For each text, the training examples that are most alike to the model."""
    cosine_QN = check_numbers(likeness(made, texts, learnt.texts), "the likenesses of texts")
    best = cosine_QN.topk(min(count, len(learnt)), dim=1)
    return [
        [
            Near(learnt.texts[n], learnt.classes[int(learnt.y_N[n])], value)
            for n, value in zip(rows, values, strict=True)
        ]
        for rows, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@torch.inference_mode()
def likeness(made: Classifier, texts: Sequence[str], others: Sequence[str]) -> Tensor:
    """cosine_QN between the texts and the others, of what the model makes of them before it decides.

    That is the average or pooled vector, the base's vector, or, of a linear model, the bag with each n-gram as long as
    its weight.
    """
    queries, those = made.reader.read(texts), made.reader.read(others)
    model: Any = made.model.eval()
    if hasattr(model, "strengths"):
        return _set_cosines(queries, those, model.strengths().cpu())
    if hasattr(model, "text_vectors"):
        device = next(model.parameters()).device
        queries, those = (model.text_vectors(bags.to(device)).cpu() for bags in (queries, those))
    return F.normalize(queries, dim=1) @ F.normalize(those, dim=1).T


def _set_cosines(queries: Bags, those: Bags, strength_V: Tensor) -> Tensor:
    """cosine_QN of weighted sets of n-grams, without writing any of them out."""
    text_N, row_N = _sets(those, len(strength_V))
    square_V = strength_V.square()
    length_N = torch.zeros(len(those)).index_add_(0, text_N, square_V[row_N]).sqrt()
    found = []
    for q in range(len(queries)):
        wanted_V = torch.zeros_like(square_V)
        wanted_V[queries.take(torch.tensor([q])).ids_N] = 1
        dot_N = torch.zeros(len(those)).index_add_(0, text_N, (wanted_V * square_V)[row_N])
        found.append(dot_N / (length_N * (wanted_V @ square_V).sqrt()).clamp(min=1e-9))
    return torch.stack(found) if found else torch.zeros(0, len(those))


def _sets(bags: Bags, rows: int) -> tuple[Tensor, Tensor]:
    """Text and row of every n-gram, once for each text that has it."""
    text_N = torch.arange(len(bags)).repeat_interleave(bags.sizes)
    once = (text_N * rows + bags.ids_N).unique()
    return once // rows, once % rows
