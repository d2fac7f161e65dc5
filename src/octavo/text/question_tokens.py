"""Questions and answers as rows of tokens.

N rows, T tokens of a row. A row to learn an answer from is: begin, the question, a mark, the answer, a mark. Only the
answer and the mark behind it are to be learnt; every other target is `begin`, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.datasets.questions import MARK, Pair
from octavo.errors import UserError
from octavo.text.tokenizers.base import Tokenizer


def mark_of(tokenizer: Tokenizer) -> int:
    """The token of the mark."""
    tokens = tokenizer.encode(MARK.encode())
    if len(tokens) != 1:
        raise UserError(f"the tokenizer does not know {MARK}: this run was not trained to answer questions")
    return int(tokens[0])


def prompt_of(tokenizer: Tokenizer, question: str) -> list[int]:
    """What an answer follows: the question and a mark."""
    return [*tokenizer.encode(" ".join(question.split()).encode()).tolist(), mark_of(tokenizer)]


def question_rows(tokenizer: Tokenizer, pairs: Sequence[Pair], context: int) -> tuple[Tensor, Tensor]:
    """x_NT, and target_NT of the token behind each: the answers alone are asked for."""
    begin, mark, rows = tokenizer.begin, mark_of(tokenizer), []
    for pair in pairs:
        prompt = [begin, *prompt_of(tokenizer, pair.question)]
        rows.append((len(prompt), [*prompt, *tokenizer.encode(pair.answer.encode()).tolist(), mark]))
    T = max(len(row) for _, row in rows) - 1
    if context < T:
        at = max(range(len(rows)), key=lambda n: len(rows[n][1]))
        raise UserError(
            f"a question and its answer must fit into the context: {T} tokens, context={context}, "
            f"{pairs[at].question[:60]!r}; try --context {T}"
        )
    x_NT, target_NT = torch.full((len(rows), T), begin), torch.full((len(rows), T), begin)
    for n, (asked, row) in enumerate(rows):
        x_NT[n, : len(row) - 1] = torch.tensor(row[:-1])
        target_NT[n, asked - 1 : len(row) - 1] = torch.tensor(row[asked:])
    return x_NT, target_NT


def text_rows(tokenizer: Tokenizer, text: Sequence[str], longest: int) -> tuple[Tensor, NDArray[np.int64]]:
    """x_NC of the first `longest` tokens of each text, and how many each has."""
    parts = [tokenizer.encode(line.encode())[:longest] for line in text]
    length_N = np.array([len(part) for part in parts], np.int64)
    x_NC = torch.full((len(parts), int(length_N.max(initial=1))), tokenizer.begin)
    for n, part in enumerate(parts):
        x_NC[n, : len(part)] = torch.from_numpy(part.astype(np.int64))
    return x_NC, length_N


def shuffled(count: int, batch: int, seed: int) -> Callable[[int], NDArray[np.int64]]:
    """The numbers of the n-th batch: passes over all of them, each in an order of its own, end to end."""
    orders: dict[int, NDArray[np.int64]] = {}

    def at(step: int) -> NDArray[np.int64]:
        first = step * batch
        needed = range(first // count, (first + batch - 1) // count + 1)
        for old in orders.keys() - set(needed):
            del orders[old]
        for one in needed:
            if one not in orders:
                orders[one] = np.random.default_rng((seed, one)).permutation(count)
        place = first - needed[0] * count
        return np.concatenate([orders[one] for one in needed])[place : place + batch]

    return at
