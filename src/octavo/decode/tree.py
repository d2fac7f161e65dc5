"""The tree of continuations: what may come next, what may come after each of these, and how probable all that is.

It is grown best first: the most probable beginning that is still open is opened next, so a small tree holds what the
model finds likely. Probabilities are the model's own; begin, which is never written, is left out.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.decode.annotated import Ready, prepare
from octavo.decode.greedy import without_begin

BRANCHES, OPENED = 5, 12


@dataclass(frozen=True)
class Node:
    """One token after those of the nodes above it; no children: not opened yet."""

    token: int  # -1: the root, where the prompt ends
    p: float  # given the nodes above
    logp: float  # of all from below the root to here, in nats
    children: list[Node] = field(default_factory=list)


def grow(
    model: LanguageModel[Any], prompt: Sequence[int], branches: int = BRANCHES, opened: int = OPENED,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Node:  # fmt: skip
    """The root of a tree of which `opened` nodes have their `branches` likeliest children; `turn` is entered for each
    piece of the prompt and each node."""
    root = Node(-1, 1.0, 0.0)
    ready = prepare(model, prompt, turn)
    after: dict[int, Ready] = {}  # by a node, what its children start from
    line = [(0.0, 0, root, root)]  # by how improbable it is, then by age
    born = 1
    for _ in range(opened):
        if not line:
            break
        _, _, node, parent = heapq.heappop(line)
        with turn(), torch.no_grad(), eval_mode(model):
            if node is not root:
                x_1 = torch.tensor([node.token], device=device_of(model))
                ready = Ready(*model.step(after[id(parent)].state, x_1))
            after[id(node)] = ready
            node.children.extend(_children(model, ready, node.logp, branches))
        for child in node.children:
            heapq.heappush(line, (-child.logp, born, child, node))
            born += 1
    return root


def _children(model: LanguageModel[Any], ready: Ready, logp: float, branches: int) -> list[Node]:
    logp_V = without_begin(ready.logits_1V[0].log_softmax(-1, dtype=torch.float64), model.begin)
    best = logp_V.topk(min(branches, model.vocab - 1))
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [Node(token, math.exp(one), logp + one) for token, one in found if one > -math.inf]
