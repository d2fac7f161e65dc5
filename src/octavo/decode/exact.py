"""Exact search: the most probable continuation, proven so, by best-first branch and bound.

N nodes expanded together, T time, V vocabulary. A node is the beginning of a continuation. Its log-probability
bounds that of everything that follows from it, because every further token adds log p <= 0; so once no open node is
better than the best whole continuation, that one is the best of all. The work grows exponentially with the length
in the worst case: this is for small models and short texts, to show where greedy and beam search fail.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from octavo.core import LanguageModel, eval_mode, select
from octavo.decode.greedy import Group, Prompt, absorb_prompts, without_begin
from octavo.errors import UserError


@dataclass(frozen=True)
class Exact:
    """The most probable of all continuations; gives up after expanding `limit` nodes, `together` at a time."""

    limit: int = 10_000
    together: int = 64

    def __post_init__(self) -> None:
        if self.limit < 1 or self.together < 1:
            raise UserError(f"limit and together must be at least 1: limit={self.limit}, together={self.together}")


class Found(NamedTuple):
    """The most probable continuation, its log-probability and the work it took to prove it."""

    tokens: Tensor
    logp: float
    expanded: int


Node = tuple[float, tuple[int, ...]]  # minus the log-probability so far, and the tokens


@torch.no_grad()
def exact_search(
    model: LanguageModel[Any], prompt: Prompt, max_tokens: int, method: Exact, stop: Sequence[int] = ()
) -> Found:
    """The most probable continuation that ends with a stop token or has max_tokens tokens."""
    with eval_mode(model):
        (group,) = absorb_prompts(model, [prompt])
        best: Node = (torch.inf, ()) if max_tokens else (0.0, ())
        open_nodes: list[Node] = [(0.0, ())]
        expanded = 0
        while open_nodes and open_nodes[0][0] < best[0]:
            nodes: list[Node] = []
            while (
                open_nodes and open_nodes[0][0] < best[0] and len(nodes) < min(method.together, method.limit - expanded)
            ):
                nodes.append(heapq.heappop(open_nodes))
            if not nodes:
                raise UserError(
                    f"exact search may expand at most limit={method.limit:,} nodes, which does not prove the best "
                    f"{max_tokens} tokens; ask for fewer tokens, raise the limit or use beam search"
                )
            expanded += len(nodes)
            for node in _children(model, group, nodes, best[0]):
                if len(node[1]) == max_tokens or node[1][-1] in stop:
                    best = min(best, node)
                else:
                    heapq.heappush(open_nodes, node)
    if best[0] == torch.inf:
        raise UserError("a continuation needs a probability above zero: the prompt has none; smooth the model")
    return Found(torch.tensor(best[1], dtype=torch.long, device=group.rows_B.device), -best[0], expanded)


def _children(model: LanguageModel[Any], group: Group, nodes: list[Node], bound: float) -> Iterator[Node]:
    """Every node followed by every token, as far as that stays below the bound."""
    for length in sorted({len(x) for _, x in nodes}):
        parents = [node for node in nodes if len(node[1]) == length]
        before_N = torch.tensor([cost for cost, _ in parents], dtype=torch.float64, device=group.rows_B.device)
        cost_NV = before_N[:, None] - _logp_after(model, group, [x for _, x in parents])
        at = (cost_NV < bound).nonzero(as_tuple=True)
        for cost, n, token in zip(cost_NV[at].tolist(), at[0].tolist(), at[1].tolist(), strict=True):
            yield cost, (*parents[n][1], token)


def _logp_after(model: LanguageModel[Any], group: Group, x_NT: list[tuple[int, ...]]) -> Tensor:
    """log p of the token after the prompt and each of these equally long beginnings, which are read from the start.

    Keeping a state for every open node would save that work and cost memory without bound.
    """
    logits_NV = group.logits_BV.expand(len(x_NT), -1)
    if x_NT[0]:
        device = group.rows_B.device
        state = select(group.state, torch.zeros(len(x_NT), dtype=torch.long, device=device))
        logits_NV = model.absorb(state, torch.tensor(x_NT, device=device))[0][:, -1]
    return without_begin(logits_NV.double().log_softmax(-1), model.begin)
