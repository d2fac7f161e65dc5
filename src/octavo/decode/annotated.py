"""Decoding with every token annotated: what it cost the model, and what might have stood in its place.

V vocabulary, K alternatives. The costs are those of the model's own distribution, whatever it was drawn from: what a
text cost while it was written, it costs when it is read.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.decode.beam import Beam, Hypothesis, stream_beam
from octavo.decode.greedy import Choice, Group, absorb_prompts, check_choosable, without_begin
from octavo.decode.sample import Sample
from octavo.errors import UserError
from octavo.io.cooperative import Turn

ALTERNATIVES = 8
BRANCHES, OPENED = 5, 12  # of the tree: children of a node, and nodes that have children


class AnnotatedToken(NamedTuple):
    """A token that was written, with its cost and what might have stood in its place."""

    token: int
    bits: float
    rank: int  # 1: the model's first choice
    alternatives: tuple[tuple[int, float], ...]  # the likeliest tokens with their probabilities


def prepare(model: LanguageModel[Any], prompt: Sequence[int], turn: Turn = nullcontext) -> Group:
    """Read begin and the prompt."""
    return absorb_prompts(model, [prompt], turn)[0]


def write(
    model: LanguageModel[Any], prompt: Sequence[int], max_tokens: int, method: Choice,
    generator: torch.Generator | None = None, count: int = ALTERNATIVES, turn: Turn = nullcontext,
) -> Iterator[AnnotatedToken]:  # fmt: skip
    """The tokens of `decode.stream`, each annotated; `turn` is entered for each."""
    _, logits_1V, state = prepare(model, prompt, turn)
    with turn():
        session = model.session(state, max_tokens)
    x_1: Tensor | None = None
    for _ in range(max_tokens):
        with turn(), torch.no_grad(), eval_mode(model):
            logits_1V = logits_1V if x_1 is None else session.step(x_1)
            possible_1V = without_begin(logits_1V, model.begin)
            check_choosable(possible_1V)
            x_1 = method.choose(possible_1V, generator)
            token = annotate(model, logits_1V[0], int(x_1), count)
        yield token


def annotate(model: LanguageModel[Any], logits_V: Tensor, token: int, count: int = ALTERNATIVES) -> AnnotatedToken:
    """What the token costs after these logits, and the likeliest; begin, which is never written, is none of them."""
    logp_V = logits_V.log_softmax(-1, dtype=torch.float64)
    best = without_begin(logp_V, model.begin).topk(min(count, model.vocab - 1))
    likeliest = zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
    alternatives = tuple((i, p) for i, p in likeliest if p > 0)
    rank = 1 + int((logp_V > logp_V[token]).sum())
    return AnnotatedToken(token, -float(logp_V[token]) / math.log(2), rank, alternatives)


def search(
    model: LanguageModel[Any], prompt: Sequence[int], max_tokens: int, method: Beam, turn: Turn = nullcontext,
) -> Iterator[list[Hypothesis]]:  # fmt: skip
    """The hypotheses of `beam_search` after each token, best first; `turn` is entered for each."""
    steps = stream_beam(model, prepare(model, prompt, turn), max_tokens, method)
    while True:
        with turn(), torch.no_grad(), eval_mode(model):
            if (found := next(steps, None)) is None:
                return
        if not found:
            raise UserError("a continuation needs a probability above zero: the prompt has none; smooth the model")
        yield found


class Choices(NamedTuple):
    """What may come next, the likeliest first, and what a way of drawing makes of it."""

    token_K: Tensor
    p_K: Tensor  # the model's own
    drawn_K: Tensor  # with which it is drawn
    rest: tuple[float, float]  # both, of all other tokens
    kept: int  # tokens that can be drawn
    entropy: tuple[float, float]  # both, in bits


def choices(model: LanguageModel[Any], logits_1V: Tensor, method: Sample, count: int) -> Choices:
    """The `count` likeliest next tokens; begin, which is never written, is not among them."""
    possible_1V = without_begin(logits_1V, model.begin)
    check_choosable(possible_1V)
    p_V = without_begin(logits_1V.log_softmax(-1, dtype=torch.float64), model.begin)[0].exp()
    drawn_V = method.filtered(possible_1V).softmax(-1)[0]
    token_K = p_V.topk(min(count, model.vocab - 1)).indices
    p_K, drawn_K = p_V[token_K], drawn_V[token_K]
    entropy = [float(torch.special.entr(one_V / one_V.sum()).sum()) / math.log(2) for one_V in (p_V, drawn_V)]
    others_V = torch.ones_like(p_V).index_fill(0, token_K, 0)
    rest = float((p_V * others_V).sum()), float((drawn_V * others_V).sum())
    return Choices(token_K, p_K, drawn_K, rest, int((drawn_V > 0).sum()), (entropy[0], entropy[1]))


@dataclass(frozen=True)
class Node:
    """One token after those of the nodes above it; no children: not opened yet."""

    token: int  # -1: the root, where the prompt ends
    p: float  # given the nodes above
    logp: float  # of all from below the root to here, in nats
    children: list[Node] = field(default_factory=list)


def grow(
    model: LanguageModel[Any], prompt: Sequence[int], branches: int = BRANCHES, opened: int = OPENED,
    turn: Turn = nullcontext,
) -> Node:  # fmt: skip
    """The root of the tree of continuations, of which `opened` nodes have their `branches` likeliest children.

    It is grown best first: the most probable beginning that is still open is opened next, so a small tree holds what
    the model finds likely. `turn` is entered for each piece of the prompt and each node.
    """
    root = Node(-1, 1.0, 0.0)
    _, logits_1V, state = prepare(model, prompt, turn)
    after: dict[int, Any] = {}  # by a node, the state that its children start from
    line = [(0.0, 0, root, root)]  # by how improbable it is, then by age
    born = 1
    for _ in range(opened):
        if not line:
            break
        _, _, node, parent = heapq.heappop(line)
        with turn(), torch.no_grad(), eval_mode(model):
            if node is not root:
                x_1 = torch.tensor([node.token], device=device_of(model))
                logits_1V, state = model.step(after[id(parent)], x_1)
            after[id(node)] = state
            logp_V = without_begin(logits_1V[0].log_softmax(-1, dtype=torch.float64), model.begin)
            best = logp_V.topk(min(branches, model.vocab - 1))
            for token, logp in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                if logp > -math.inf:
                    node.children.append(Node(token, math.exp(logp), node.logp + logp))
        for child in node.children:
            heapq.heappush(line, (-child.logp, born, child, node))
            born += 1
    return root
