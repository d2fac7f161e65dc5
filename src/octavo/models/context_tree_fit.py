"""Fitting a context tree: the counts of every decision after every context, and the weighted probabilities P_w.

N tokens, V vocabulary, J bits, M k-grams of one length, C contexts, E pairs of a context and a decision. The n-grams
are counted as an n-gram model's are; a k-gram is a context of k - 1 tokens and the token that came.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.io.progress import progress
from octavo.models.context_tree import (
    DTYPES,
    ContextTree,
    ContextTreeConfig,
    decisions_of,
)
from octavo.models.cost.parts import Cache, Cost, Shape
from octavo.models.ngram.counting import Level, Vocabulary, Workspace, count_ngrams
from octavo.models.ngram.model import order_ranges
from octavo.models.spec import Candidate, FitContext, Fitted, ModelSpec
from octavo.models.views import Bars, TokenDetail, TokenTable, View
from octavo.text.tokenizers.base import Tokenizer

MOST_ENTRIES = (1 << 31) - 2  # entries are 32-bit integers
LOG_HALF = math.log(0.5)
MAX_SHOWN_BITS = 12.0  # of a token: the darkest shade


@dataclass
class Counts:
    """Of the contexts of one length: each decision that was taken there, in the order of context and decision."""

    key_E: Tensor  # context 2^J + decision
    zeros_E: Tensor
    ones_E: Tensor

    @property
    def log_kt_E(self) -> Tensor:  # noqa: N802
        """log P_e = log Γ(n₀ + ½) Γ(n₁ + ½) / (π Γ(n₀ + n₁ + 1))."""
        n0_E, n1_E = self.zeros_E.double(), self.ones_E.double()
        return torch.lgamma(n0_E + 0.5) + torch.lgamma(n1_E + 0.5) - torch.lgamma(n0_E + n1_E + 1) - math.log(math.pi)


def count_decisions(level: Level, vocab: int, bits: int) -> Counts:
    """The decisions that lead to the tokens after each context."""
    seen = level.count_M > 0
    context_M, word_M, count_M = level.context_M[seen].long(), level.word_M[seen].long(), level.count_M[seen].long()
    keys, sums = [], []
    for decision_M, bit_M, is_free_M in decisions_of(word_M, vocab, bits):
        key_E, entry_M = torch.unique_consecutive(
            ((context_M << bits) + decision_M)[is_free_M], return_inverse=True
        )  # in order, because the k-grams are
        bit_count_E2 = torch.zeros(len(key_E) * 2, dtype=torch.long, device=key_E.device)
        bit_count_E2.index_add_(0, entry_M * 2 + bit_M[is_free_M], count_M[is_free_M])
        keys.append(key_E)
        sums.append(bit_count_E2.view(-1, 2))
    key_E, order_E = torch.cat(keys).sort()
    n_E2 = torch.cat(sums)[order_E]
    return Counts(key_E, n_E2[:, 0], n_E2[:, 1])


def suffixes(levels: Sequence[Level], vocab: int) -> list[Tensor]:
    """Of every k-gram of each length, its rank without its first word among those one word shorter."""
    found = [torch.zeros_like(levels[0].word_M, dtype=torch.long)]
    for below, level in pairwise(levels):
        key_below_M = below.context_M.long() * vocab + below.word_M
        shorter_context_M = found[-1][level.context_M]
        found.append(torch.searchsorted(key_below_M, shorter_context_M * vocab + level.word_M))
    return found


def weigh(levels: Sequence[Level], counts: Sequence[Counts], vocab: int, bits: int) -> tuple[float, list[Tensor]]:
    """log of the product of all P_w of the empty context, and β of every entry of each length of context.

    A context that starts with begin has no longer one: P_w is P_e there, and β is one.
    """
    begins = [levels[0].word_M == vocab - 1]
    for level in levels[1:-1]:
        begins.append(begins[-1][level.context_M])
    shorter = suffixes(levels[:-1], vocab)
    logw_E = counts[-1].log_kt_E
    stops = [torch.ones_like(logw_E)]
    for k in range(len(levels) - 2, -1, -1):  # contexts of k tokens, and those of k + 1 above them
        above, here = counts[k + 1], counts[k]
        context_E, decision_E = above.key_E >> bits, above.key_E & (1 << bits) - 1
        parent_E = torch.searchsorted(here.key_E, (shorter[k][context_E] << bits) + decision_E)
        product_E = torch.zeros_like(here.key_E, dtype=torch.float64).index_add_(0, parent_E, logw_E)
        log_kt_E = here.log_kt_E
        weighted_E = torch.logaddexp(LOG_HALF + log_kt_E, LOG_HALF + product_E)
        ends_E = begins[k - 1][here.key_E >> bits] if k else torch.zeros_like(weighted_E, dtype=torch.bool)
        logw_E = torch.where(ends_E, log_kt_E, weighted_E)
        stops.append(torch.where(ends_E, 1.0, (LOG_HALF + log_kt_E - weighted_E).exp()))
    return float(logw_E.sum()), stops[::-1]


def fit_context_tree(
    x_N: Tensor, config: ContextTreeConfig, vocab: int, workspace: Workspace = Workspace(),  # noqa: B008  it is frozen
    report: Callable[[float], None] = lambda tokens: None,
) -> ContextTree:  # fmt: skip
    """Count x_N, in which the begin token opens every sequence, and weigh."""
    model = ContextTree(config, vocab)
    bits = model.bits
    levels = list(count_ngrams(x_N, config.depth + 1, Vocabulary(vocab, model.begin), workspace, report))
    counts = [count_decisions(level, vocab, bits) for level in levels]
    _, stops = weigh(levels, counts, vocab, bits)
    if sum(len(one.key_E) for one in counts) > MOST_ENTRIES:
        raise UserError(f"at most {MOST_ENTRIES:,} decisions fit: give less text, or try --depth {config.depth - 1}")
    sizes, decisions, ones = [], [], []
    for level, one in zip(levels, counts, strict=True):
        sizes.append(torch.bincount(one.key_E >> bits, minlength=level.contexts))
        decisions.append(one.key_E & (1 << bits) - 1)
        ones.append((one.ones_E + 0.5) / (one.zeros_E + one.ones_E + 1).double())
    fanouts = [torch.bincount(level.context_M, minlength=level.contexts) for level in levels[:-1]]
    zero = torch.zeros_like(fanouts[0][:1])
    tables = {
        "first_C": torch.cat([zero + 1, *fanouts]).cumsum(0),
        "word_M": torch.cat([zero, *(level.word_M for level in levels[:-1])]),
        "entry_M": torch.cat([zero, *sizes]).cumsum(0), "decision_E": torch.cat(decisions),
        "one_E": torch.cat(ones), "stop_E": torch.cat(stops),
    }  # fmt: skip
    model.load_tensors({name: tables[name].to(dtype) for name, dtype in DTYPES.items()})
    return model


def _fit(x_N: Tensor, config: ContextTreeConfig, tokenizer: Tokenizer, context: FitContext) -> Fitted:
    with progress(f"counting {config.depth + 1}-grams", len(x_N) * (config.depth + 1), "look-ups") as advance:
        return Fitted(fit_context_tree(x_N, config, tokenizer.vocab, Workspace(folder=context.folder), advance))


def _cost(config: ContextTreeConfig, V: int, shape: Shape) -> Cost:
    """Tables at most as large as the text allows, if no n-gram came twice; the state is a node a length of context."""
    model = ContextTree(config, V)
    words = min(V, shape.text) if shape.text else V
    grams = [V, *(min(words**n, shape.text) for n in range(2, config.depth + 2))]  # of each length
    contexts, nodes = 1 + sum(grams[:-2]), 1 + sum(grams[:-1])
    entries = model.bits * sum(grams)
    numbers = {"first_C": contexts + 1, "word_M": nodes, "entry_M": nodes + 1}
    tables = sum(numbers.get(name, entries) * dtype.itemsize for name, dtype in DTYPES.items())
    return Cost("ctw", V, shape, (), (Cache(constant=config.depth + 1),), tables, entries, tables_at_most=True)


def length_weights(model: ContextTree, x_N: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The bits that each token costs, and of each length of context the share it had in predicting it: how probable it
    is that the tree ends there, on average over the token's decisions. The last share is that of contexts which are
    longer than any that was seen."""
    x_1N = torch.tensor([list(x_N)], dtype=torch.long, device=model.word_M.device)
    opened = model.prepend_begin(x_1N)
    state_NK = model.states(model.start(1), opened[:, :-1])[0]
    share_NK = torch.zeros(len(x_N), state_NK.shape[1] + 1, dtype=torch.float64, device=state_NK.device)
    decisions = torch.zeros_like(share_NK[:, 0])
    for decision_N, _, is_free_N in decisions_of(x_1N[0], model.vocab, model.bits):
        left_N = is_free_N.double()
        decisions += is_free_N
        for k in range(state_NK.shape[1]):
            entry_N, found_N = model.find(state_NK[:, k], decision_N)
            stop_N = torch.where(found_N, model.stop_E[entry_N], 0.0)
            share_NK[:, k] += left_N * stop_N
            left_N = left_N * (1 - stop_N)
        share_NK[:, -1] += left_N
    bits_N = model.score(x_1N)[0] / -math.log(2)
    return bits_N, share_NK / decisions[:, None].clamp(min=1)


def _lengths(model: ContextTree, x_N: Sequence[int]) -> TokenTable:
    details = []
    names = [*(f"{k} token{'s' * (k != 1)}" for k in range(model.config.depth + 1)), "longer, never seen"]
    for bits, share_K in zip(*(one.tolist() for one in length_weights(model, x_N)), strict=True):
        rows = tuple((name, f"{share:.1%}") for name, share in zip(names, share_K, strict=True))
        mean = sum(min(k, model.config.depth) * share for k, share in enumerate(share_K))
        details.append(TokenDetail(mean / model.config.depth, f"{bits:.2f} bits, from {mean:.1f} tokens on average",
                                   rows, tuple(share_K)))  # fmt: skip
    return TokenTable(
        "Colour: how many tokens of context the prediction came from.", ("context", "share"),
        tuple(details), legend=tuple(str(k) for k in range(model.config.depth + 1)),
        outro="The share of a length is how probable it is, given the training text, that the context tree ends there.",
    )  # fmt: skip


def _mean_stops(model: ContextTree, spell: Any) -> Bars:
    """How often the tree ends at each length of context."""
    rows = []
    for k, (low, high) in enumerate([(0, 1), *order_ranges(model.first_C, model.vocab, model.config.depth)]):
        start, end = int(model.entry_M[low]), int(model.entry_M[high])
        rows.append((str(k), 100 * float(model.stop_E[start:end].mean()) if end > start else 0.0))
    return Bars("How probable it is that the tree ends at a context of so many tokens, in per cent.", tuple(rows), 1)


SPEC = ModelSpec(
    "ctw", "context tree weighting", "a weighted vote of all contexts on each bit of the next token (CTW)", "counts",
    ContextTree, ContextTreeConfig, fitting="counts", fit=_fit, cost=_cost,
    views=(View("lengths", "Lengths of context", "token-table", _lengths),), details=_mean_stops,
    candidates=lambda seconds, device: [
        Candidate("ctw", "context tree weighting, 5 tokens", "ctw", {"depth": 5}, only_if_named=True)
    ],
    summarise=lambda model, tokens: f"context tree of {tokens}, {model.config.depth} deep",
    entries="decisions", count_entries=lambda model: len(model.decision_E),
    equation="""p(x_t | c) = Π_u p_u(bit of x_t | c), over the decisions u that spell x_t
P_e(n₀, n₁) = Γ(n₀ + ½) Γ(n₁ + ½) / (π Γ(n₀ + n₁ + 1))
P_w(c) = P_e(c) at depth D; above, P_w(c) = ½ P_e(c) + ½ Π_y P_w(y c)
β(c) = ½ P_e(c) / P_w(c)
p_u(1 | c) = β(c) (n₁ + ½) / (n₀ + n₁ + 1) + (1 - β(c)) p_u(1 | y c)""",
)  # fmt: skip
