"""Context tree weighting: every suffix of the past gets a vote on each bit of the next token (Willems et al. 1995).

A token's id is a path of binary decisions, its highest bit first. Each decision u has a tree of contexts, the last
0 to D tokens: a node counts how often the decision was 0 and 1 there, n₀ and n₁. With P_e the probability that the
estimator of Krichevsky and Trofimov (KT) gives its bits,

    P_w = P_e at depth D        P_w = ½ P_e + ½ Π P_w of the contexts one token longer, above

weighs all 2^.. ways to cut the tree off. What the weighted mixture predicts next is a recursion along the context,
from the longest one up, with the share β = ½ P_e / P_w of a node that ends there:

    p(1) = β (n₁ + ½) / (n₀ + n₁ + 1) + (1 - β) p(1 | one token longer)

B batch, T time, V vocabulary, K contexts of 0 to D tokens, J bits, U decisions 1 to 2^J - 1, M nodes of the tree of
contexts, E pairs of a context and a decision that was taken there, R rows, Q queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from octavo.config import Range, check_ranges
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.models.ngram.model import check_tree
from octavo.models.ngram.trie import Index

MAX_DISTRIBUTIONS = 1 << 22  # probabilities of decisions made at once: 32 MB
SCORED_TOKENS = 1 << 16  # by one call; more would only take memory
DTYPES = {"first_C": torch.int32, "word_M": torch.int32, "entry_M": torch.int32, "decision_E": torch.int32,
          "one_E": torch.float64, "stop_E": torch.float64}  # fmt: skip
DAMAGED = "the context tree's tables are no probabilities or point outside themselves: the file is damaged; train again"


@dataclass(frozen=True)
class ContextTreeConfig:
    """How a context tree is made."""

    depth: Annotated[int, Range(1, 63)] = 5
    """Tokens in the longest context."""

    def __post_init__(self) -> None:
        check_ranges(self)


class ContextTree(LanguageModel[Tensor]):
    """The mixture over all context trees, as it stands after the training text; the state is the last D tokens, as the
    nodes of the contexts that they end.
    """

    config: ContextTreeConfig
    first_C: Tensor  # where each context's continuations begin in the tree of contexts, and where the last one's end
    word_M: Tensor  # the last token of each context
    entry_M: Tensor  # where each context's decisions begin, and where the last one's end
    decision_E: Tensor
    one_E: Tensor  # KT: the probability of a 1
    stop_E: Tensor  # β: how probable it is that the tree ends here

    begin_resets = True
    max_scored_tokens = SCORED_TOKENS

    def __init__(self, config: ContextTreeConfig, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        self.bits = bits_of(vocab)
        for name, dtype in DTYPES.items():
            self.register_buffer(name, torch.empty(0, dtype=dtype))
        self._contexts: Index | None = None
        self._key_E: Tensor | None = None

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the tables; look-ups trust them, so tables that point outside themselves are refused."""
        if {name: tensor.dtype for name, tensor in tensors.items()} != DTYPES:
            raise UserError(f"a context tree has tensors {DTYPES}; the file is of another model")
        first_C, word_M, entry_M, decision_E, one_E, stop_E = (tensors[name] for name in DTYPES)
        check_tree(first_C, word_M, self.vocab)
        whole = (
            len(entry_M) == len(word_M) + 1
            and len(decision_E) == len(one_E) == len(stop_E) == int(entry_M[-1])
            and int(entry_M[0]) == 0
            and bool((entry_M.diff() >= 0).all())
            and (not len(decision_E) or 1 <= int(decision_E.min()) <= int(decision_E.max()) < 1 << self.bits)
            and all(bool(((p_E >= 0) & (p_E <= 1)).all()) for p_E in (one_E, stop_E))
        )
        if not whole:
            raise UserError(DAMAGED)
        for name, tensor in tensors.items():
            setattr(self, name, tensor)
        self._contexts = self._key_E = None

    @property
    def contexts(self) -> Index:
        """The look-up of a context one token longer, made when it is first needed."""
        if self._contexts is None or self._contexts.table_S.device != self.word_M.device:
            self._contexts = Index.build(self.first_C[:-1], self.word_M, self.vocab)
        return self._contexts

    @property
    def key_E(self) -> Tensor:  # noqa: N802
        """node 2^J + decision of every entry, in rising order."""
        if self._key_E is None or self._key_E.device != self.word_M.device:
            node_M = torch.arange(len(self.word_M), device=self.word_M.device)
            node_E = torch.repeat_interleave(node_M, self.entry_M.diff().long(), output_size=len(self.decision_E))
            self._key_E = (node_E << self.bits) + self.decision_E
        return self._key_E

    def find(self, node: Tensor, decision: Tensor) -> tuple[Tensor, Tensor]:
        """The entry of each decision in each context, and whether there is one."""
        key = (node << self.bits) + decision
        entry = torch.searchsorted(self.key_E, key).clamp_(max=len(self.key_E) - 1)
        return entry, self.key_E[entry] == key

    @property
    def none(self) -> int:
        """The node that stands for a context that is not there."""
        return len(self.word_M)

    @property
    def receptive_field(self) -> int:
        return self.config.depth

    def start(self, batch: int) -> Tensor:
        """No token was read: no context but the empty one, node 0, applies."""
        state_BK = torch.full((batch, self.config.depth + 1), self.none, device=self.word_M.device)
        state_BK[:, 0] = 0
        return state_BK

    def step(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        p_BV, state = self.predict(state, x_B)
        return p_BV.log(), state

    def predict(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        state_B1K = self.states(state, x_B[:, None])
        return self.distribution(state_B1K[:, 0]), state_B1K[:, 0]

    def absorb(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of the batch must be worth their room."""
        if not x_BT.shape[1]:
            return self.one_E.new_zeros(len(x_BT), 0, self.vocab), state
        state_BTK = self.states(state, x_BT)
        rows = max(1, MAX_DISTRIBUTIONS >> self.bits)
        p_RV = torch.cat([self.distribution(some_RK) for some_RK in state_BTK.flatten(0, 1).split(rows)])
        return p_RV.log_().view(*x_BT.shape, -1), state_BTK[:, -1]

    def states(self, state_BK: Tensor, x_BT: Tensor) -> Tensor:
        """The state after each token, state_BTK: one look-up a token and length of context. None reaches across begin,
        which is never the last token of a longer context."""
        after = [torch.zeros_like(x_BT, dtype=torch.long)]
        for k in range(self.config.depth):
            shorter_BT = torch.cat([state_BK[:, k : k + 1], after[-1][:, :-1]], 1)
            after.append(self.contexts.child(shorter_BT, x_BT.long()))
        return torch.stack(after, -1)

    def distribution(self, state_RK: Tensor) -> Tensor:
        """p_RV of the next token: of every decision p(1), from the longest context up; then products down the bits."""
        p_RU = torch.full((len(state_RK), 1 << self.bits), 0.5, dtype=torch.float64, device=state_RK.device)
        sizes_M = self.entry_M.diff()
        for context_R in reversed(state_RK.unbind(1)):
            known_R = context_R != self.none
            context_R = context_R.where(known_R, 0)
            size_R = sizes_M.index_select(0, context_R).long() * known_R
            row_E = torch.repeat_interleave(size_R)
            first_R = self.entry_M.index_select(0, context_R) - (size_R.cumsum(0) - size_R)
            entry_E = first_R.index_select(0, row_E) + torch.arange(len(row_E), device=row_E.device)
            cell_E = (row_E << self.bits) + self.decision_E.index_select(0, entry_E)
            p_E = self._mixed(entry_E, p_RU.view(-1).index_select(0, cell_E))
            p_RU.view(-1).index_copy_(0, cell_E, p_E)
        return token_probabilities(p_RU, self.vocab, self.bits)

    def _mixed(self, entry: Tensor, longer: Tensor) -> Tensor:
        """p(1) at entries, from what the contexts one token longer say."""
        one, stop = self.one_E[entry], self.stop_E[entry]
        return stop * one + (1 - stop) * longer

    def token_log_probs(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        """log p of every token but the first by look-ups of its own decisions; no distribution is made."""
        if x_BT.shape[1] < 2:
            return self.one_E.new_zeros(len(x_BT), 0), state
        state_BtK, x_Bt = self.states(state, x_BT[:, :-1]), x_BT[:, 1:].long()
        logp_Bt = torch.zeros(x_Bt.shape, dtype=torch.float64, device=x_Bt.device)
        for decision_Bt, bit_Bt, is_free_Bt in decisions_of(x_Bt, self.vocab, self.bits):
            p_Bt = torch.full_like(logp_Bt, 0.5)
            for context_Bt in reversed(state_BtK.unbind(-1)):
                entry_Bt, found_Bt = self.find(context_Bt, decision_Bt)
                p_Bt = torch.where(found_Bt, self._mixed(entry_Bt, p_Bt), p_Bt)
            logp_Bt += torch.where(is_free_Bt, torch.where(bit_Bt == 1, p_Bt, 1 - p_Bt).log(), 0.0)
        return logp_Bt.masked_fill_(x_Bt == self.begin, -torch.inf), state_BtK[:, -1]


def bits_of(vocab: int) -> int:
    """Bits of the largest id that is predicted; at least one."""
    return max(1, (vocab - 2).bit_length())


def decisions_of(x: Tensor, vocab: int, bits: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each bit, the highest first: the decision (a 1, then the bits before), the bit, and whether it is free: where
    a 1 would lead to no token, there is no decision to take."""
    path = x | 1 << bits
    steps = []
    for left in range(bits - 1, -1, -1):
        decision = path >> left + 1
        steps.append((decision, path >> left & 1, first_after_one(decision, bits, left) < vocab - 1))
    return steps


def first_after_one(decision: Tensor, bits: int, left: int) -> Tensor:
    """The smallest id that begins with a decision's bits and a 1, `left` bits being left after it."""
    return ((decision << 1 | 1) << left) - (1 << bits)


def token_probabilities(p_RU: Tensor, vocab: int, bits: int) -> Tensor:
    """p_RV from p(1) of every decision: the product of the decisions on the way to each token; begin never comes."""
    p_R = p_RU.new_ones(len(p_RU), 1)
    for level in range(bits):
        u = torch.arange(1 << level, 2 << level, device=p_RU.device)
        one_RU = p_RU[:, 1 << level : 2 << level] * (first_after_one(u, bits, bits - 1 - level) < vocab - 1)
        p_R = (p_R[:, :, None] * torch.stack([1 - one_RU, one_RU], -1)).flatten(1)
    return torch.nn.functional.pad(p_R[:, : vocab - 1], (0, 1))
