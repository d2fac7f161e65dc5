"""The n-gram model: the state is the last n - 1 tokens, as the nodes of the contexts they end.

B batch, T time, V vocabulary, K contexts of 0 to n - 1 words, M nodes, C nodes that can be contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from octavo.core import LanguageModel, Session
from octavo.errors import UserError
from octavo.io import memory
from octavo.models.ngram import estimators as estimate
from octavo.models.ngram.config import NGramConfig
from octavo.models.ngram.counting import Level, Vocabulary, Workspace, count_ngrams
from octavo.models.ngram.estimators import Weights
from octavo.models.ngram.partial_matching import PartialMatching
from octavo.models.ngram.session import NGramSession, SessionOnCPU
from octavo.models.ngram.sorted_search import SortedSearch, check_sorted
from octavo.models.ngram.sums import check_probabilities
from octavo.models.ngram.trie import CHUNK, Index, index_bytes

MIN_RELEASED = 1 << 22  # tokens or n-grams: below, memory that is released would only be allocated again
MOST_NODES = (1 << 31) - 2  # nodes are 32-bit integers
MAX_DISTRIBUTIONS = 256  # made together: their continuations, listed one by one, take memory
SCORED_TOKENS = {"cpu": 1 << 20, "cuda": 1 << 24}  # tokens: fewer make the calls cost more than the look-ups


class NGram(LanguageModel[Tensor]):
    """p(w | c) = alpha(c w) + gamma(c) p(w | c without its first word), down to the uniform distribution."""

    first_C: Tensor  # where each context's continuations begin, and one more: where the last one's end
    word_M: Tensor
    alpha_M: Tensor
    gamma_C: Tensor

    drafts_by_lookup = True  # speculative decoding looks up what followed a context in its tables
    begin_resets = True
    max_scored_tokens = 1 << 20

    def __init__(self, config: NGramConfig, vocab: int, newline: int | None = None) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        self.newline = sentence_end(config.sentences, newline)
        for name, dtype in DTYPES.items():
            self.register_buffer(name, torch.empty(0, dtype=dtype))
        self._index: Index | SortedSearch | None = None
        self._words_V: Tensor | None = None
        self._copy: tuple[NGram, ...] = ()  # on the CPU; in a tuple, so that it is no part of the module

    @classmethod
    def fit(
        cls,
        x_N: Tensor,
        config: NGramConfig,
        vocab: int,
        newline: int | None = None,
        workspace: Workspace = Workspace(),  # noqa: B008  it is frozen
        report: Callable[[float], None] = lambda tokens: None,
    ) -> NGram:
        """Count x_N, in which the begin token opens every sequence, and estimate."""
        model = cls(config, vocab, newline)
        if len(x_N) >= MIN_RELEASED:
            memory.give_back()  # what tokenising took
        levels = count_ngrams(x_N, config.order, Vocabulary(vocab, model.begin, model.newline), workspace, report)
        model._assemble(model._estimated(levels))
        return model

    def _estimated(self, levels: Iterable[Level]) -> Iterator[tuple[Level, Weights]]:
        """The levels with their weights, pruned."""
        estimator = self.estimator()
        kept_C = torch.ones(1, dtype=torch.bool, device=self.word_M.device)
        k = 0  # not enumerate: it would hold on to the level before
        for level in levels:
            weights = estimator(level)
            if any(self.config.prune):
                kept_C = estimate.prune(level, weights, self.config.threshold(k + 1), kept_C.to(level.word_M.device))
            many = len(level) >= MIN_RELEASED
            yield level, weights
            del level, weights
            if many:
                memory.give_back()
            k += 1  # noqa: SIM113

    def estimator(self) -> estimate.Estimator:
        """What turns counts into probabilities, one order after another."""
        config, choices = self.config, self.vocab - 1
        if config.estimator == "kneser-ney":
            return estimate.kneser_ney
        if config.estimator == "mle":
            return estimate.maximum_likelihood
        if config.estimator == "add-k":
            return estimate.AddK(config.k, choices)
        if config.estimator == "stupid":
            return estimate.StupidBackoff(config.factor, choices, self.vocab)
        if config.estimator == "ppm":
            return PartialMatching(config.escape, config.exclusion, choices, self.vocab)
        raise UserError("a model of estimator 'arpa' is read from a file, not trained; try --estimator kneser-ney")

    def _assemble(self, levels: Iterable[tuple[Level, Weights]]) -> None:
        """Lay the orders out one after another, below the root; the last entry stands for what is not there."""
        fanouts, words, alphas, gammas = [], [], [], []
        for level, weights in levels:
            fanouts.append(torch.bincount(level.context_M, minlength=level.contexts).int())
            words.append(level.word_M)
            alphas.append(weights.alpha_M)
            gammas.append(weights.gamma_C)
            del level, weights  # or their counts would live on while the next order is counted
        if sum(map(len, words)) > MOST_NODES:
            raise UserError(f"at most {MOST_NODES:,} n-grams fit: {sum(map(len, words)):,} found; try --prune 0 0 1")
        one, zero = torch.ones_like(words[0][:1]), torch.zeros_like(alphas[0][:1])
        self.first_C = torch.cat([one, *fanouts, 0 * one]).cumsum(0, dtype=torch.int32)
        fanouts.clear()
        self.word_M = torch.cat([0 * one, *words])
        words.clear()
        self.alpha_M = torch.cat([zero, *alphas, zero])
        alphas.clear()
        self.gamma_C = torch.cat([*gammas, one.double()])
        self._index, self._words_V, self._copy = None, None, ()

    def set_tables(self, tensors: Mapping[str, Tensor]) -> None:
        """Take tables that were made elsewhere and are right."""
        self.first_C, self.word_M, self.alpha_M, self.gamma_C = (tensors[name] for name in DTYPES)
        self._index, self._words_V, self._copy = None, None, ()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the tables; look-ups trust them, so tables that point outside themselves are refused."""
        dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
        if dtypes not in (DTYPES, DTYPES | {"alpha_M": torch.float64}):
            raise UserError(f"an n-gram model has tensors {DTYPES}; the file is of another model")
        first_C, word_M, alpha_M, gamma_C = (tensors[name] for name in DTYPES)
        if len(alpha_M) != len(word_M) + 1 or not len(first_C) == len(gamma_C) + 1 >= 3:
            raise UserError(DAMAGED)
        check_tree(first_C, word_M, self.vocab)
        self.set_tables(tensors)
        check_probabilities(self)

    @property
    def index(self) -> Index | SortedSearch:
        """The look-up table, made when it is first needed; where it would take most of the memory, none is made."""
        if self._index is None or self._index.device != self.word_M.device:
            if self.word_M.device.type == "cpu" and memory.is_large(index_bytes(len(self.word_M))):
                check_sorted(self.first_C, self.word_M)
                self._index = SortedSearch(self.first_C, self.word_M, self.vocab)
            else:
                self._index = Index.build(self.first_C[:-1], self.word_M, self.vocab)
        return self._index

    @property
    def none(self) -> int:
        """The node that stands for an n-gram that is not there."""
        return len(self.word_M)

    @property
    def context_classes(self) -> int:
        return int(self.config.order)

    def context_class(self, state: Tensor) -> Tensor:
        """The length of the longest context that was seen in training and continued there."""
        context_BK = state.clamp(max=len(self.gamma_C) - 1)
        continued_BK = self.first_C[context_BK + 1] > self.first_C[context_BK]
        return (continued_BK * torch.arange(self.config.order, device=state.device)).amax(1)

    def sizes(self) -> list[int]:
        """How many n-grams of each order there are."""
        return [high - low for low, high in self.order_ranges()]

    def order_ranges(self) -> list[tuple[int, int]]:
        """Where the nodes of each order begin and end."""
        return order_ranges(self.first_C, self.vocab, self.config.order)

    def token_context_classes(self, state: Tensor, x_BT: Tensor) -> Tensor:
        classes = [torch.zeros_like(x_BT[:, :0])]
        for _, contexts, _ in self._walk(state, x_BT):
            classes.append(self.context_class(torch.stack(contexts, -1).flatten(0, 1)).view(len(x_BT), -1))
        return torch.cat(classes, 1)

    @property
    def receptive_field(self) -> int:
        return int(self.config.order) - 1

    def start(self, batch: int) -> Tensor:
        """No token was absorbed: no context but the empty one, node 0, applies."""
        state_BK = torch.full((batch, self.config.order), self.none, device=self.word_M.device)
        state_BK[:, 0] = 0
        return state_BK

    def step(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        p_BV, state = self.predict(state, x_B)
        return p_BV.log(), state

    def predict(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        state_BK = self._next(state, x_B)
        return self.distribution(state_BK), state_BK

    def absorb(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        """All tokens by one look-up a length; each row of the batch must be worth its logits' room."""
        if not x_BT.shape[1]:
            return super().absorb(state, x_BT)
        contexts, nodes = self.matches(state, x_BT)
        after = [contexts[0], *nodes[:-1]]
        if self.newline is not None:
            ended_BT, begun_K = x_BT == self.newline, self.begun(x_BT.device)
            after = [torch.where(ended_BT, begun, node_BT) for begun, node_BT in zip(begun_K, after, strict=True)]
        state_BTK = torch.stack(after, -1)
        p_RV = torch.cat([self.distribution(some_RK) for some_RK in state_BTK.flatten(0, 1).split(MAX_DISTRIBUTIONS)])
        return p_RV.log_().view(*x_BT.shape, -1), state_BTK[:, -1]

    def _next(self, state_BK: Tensor, x_B: Tensor) -> Tensor:
        """The state after x_B: each context, one word longer."""
        state_BK = torch.cat([state_BK[:, :1], self.index.child(state_BK[:, :-1], x_B[:, None])], 1)
        if self.newline is not None:
            state_BK = torch.where((x_B == self.newline)[:, None], self.begun(x_B.device), state_BK)
        return state_BK

    def begun(self, device: torch.device) -> Tensor:
        """The state in which the begin token alone was absorbed."""
        state_K = torch.full((self.config.order,), self.none, device=device)
        state_K[:2] = torch.tensor([0, 1 + self.begin], device=device)[: self.config.order]
        return state_K

    def session(self, state: Tensor, tokens: int = 1 << 30) -> Session[Tensor]:
        """In numpy, on the CPU."""
        if state.device.type == "cpu":
            return NGramSession(self, state, self.index) if isinstance(self.index, Index) else Session(self, state)
        if memory.is_large(index_bytes(len(self.word_M))):
            return Session(self, state)
        return SessionOnCPU(self, self.on_cpu().session(state.cpu(), tokens), state.device)

    def on_cpu(self) -> NGram:
        """The same model there."""
        if self.word_M.device.type == "cpu":
            return self
        if not self._copy:
            copy = NGram(self.config, self.vocab, self.newline)
            copy.set_tables({name: getattr(self, name).cpu() for name in DTYPES})
            self._copy = (copy,)
        return self._copy[0]

    def distribution(self, state_BK: Tensor) -> Tensor:
        """p_BV of the next token: what continues each context, times the gammas of all longer contexts."""
        batch, longer = len(state_BK), self.config.order - 1
        context_R = state_BK[:, 1:].flatten().clamp(max=len(self.gamma_C) - 1)  # all but the empty one
        gamma_BJ = self.gamma_C.index_select(0, context_R).view(batch, longer)
        down_BJ = torch.cat([gamma_BJ, gamma_BJ.new_ones(batch, 1)], 1).flip(1).cumprod(1).flip(1)
        p_BV = down_BJ[:, :1] * self.words_V  # down: what reaches below each context, and so the words; at last, 1
        end_R = self.first_C.index_select(0, context_R + 1).long()
        fanout_R = end_R - self.first_C.index_select(0, context_R)
        row_E = torch.repeat_interleave(fanout_R)
        node_E = (end_R - fanout_R.cumsum(0)).index_select(0, row_E).add_(torch.arange(len(row_E), device=row_E.device))
        cell_R = torch.arange(len(context_R), device=row_E.device) // max(1, longer) * self.vocab
        cell_E = cell_R.index_select(0, row_E).add_(self.word_M.index_select(0, node_E))
        mass_E = down_BJ[:, 1:].flatten().index_select(0, row_E).mul_(self.alpha_M.index_select(0, node_E))
        p_BV.view(-1).index_add_(0, cell_E, mass_E)
        return p_BV.clamp_(min=0)  # an ARPA file's rounding may leave a hair below zero

    @property
    def words_V(self) -> Tensor:  # noqa: N802
        """The distribution after the empty context."""
        if self._words_V is None or self._words_V.device != self.word_M.device:
            p_V = self.gamma_C[0].repeat(self.vocab) / (self.vocab - 1)
            p_V[self.begin] = 0
            self._words_V = p_V + self.alpha_M[1 : self.vocab + 1]
        return self._words_V

    def token_log_probs(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        """log p of every token but the first by n look-ups each: no distribution over the vocabulary is made."""
        logps = [torch.empty(len(x_BT), 0, dtype=self.gamma_C.dtype, device=x_BT.device)]
        for x_Bt, contexts, nodes in self._walk(state, x_BT):
            logps.append(self.probability(x_Bt, zip(contexts, nodes, strict=True)).log())
            state = torch.stack([context_Bt[:, -1] for context_Bt in contexts], 1)
        return torch.cat(logps, 1), state

    def probability(self, x_BT: Tensor, matches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
        """p of each token, from the shortest context up; a match is a context and it with the token."""
        p_BT = (x_BT != self.begin).to(self.gamma_C.dtype) / (self.vocab - 1)
        for context_BT, node_BT in matches:
            alpha_BT = self.alpha_M.index_select(0, node_BT.flatten()).view(x_BT.shape)
            context_R = context_BT.flatten().clamp(max=len(self.gamma_C) - 1)
            p_BT = alpha_BT + self.gamma_C.index_select(0, context_R).view(x_BT.shape) * p_BT
        return p_BT

    def _walk(self, state_BK: Tensor, x_BT: Tensor) -> Iterator[tuple[Tensor, list[Tensor], list[Tensor]]]:
        """Some tokens at a time, the first left out, with the n-grams that end before and with each (see `matches`)."""
        width = max(1, SCORED_TOKENS.get(x_BT.device.type, 1 << 20) // max(1, len(x_BT)))
        for t in range(0, x_BT.shape[1] - 1, width):
            state_BK = self._next(state_BK, x_BT[:, t])
            x_Bt = x_BT[:, t + 1 : t + 1 + width]
            contexts, nodes = self.matches(state_BK, x_Bt)
            yield x_Bt, contexts, nodes
            state_BK = torch.stack([context_Bt[:, -1] for context_Bt in contexts], 1)

    def matches(self, state_BK: Tensor, x_BT: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """For each length k = 0 to n - 1: the context of k tokens in front of each token, and it with the token.

        The second is the first, one longer, of the next token: so one look-up a token and length finds both.
        """
        contexts, nodes = [torch.zeros_like(x_BT)], [x_BT + 1]
        for k in range(1, self.config.order):
            before_BT = nodes[-1][:, :-1]
            if self.newline is not None:
                before_BT = torch.where(x_BT[:, :-1] == self.newline, self.begun(x_BT.device)[k], before_BT)
            contexts.append(torch.cat([state_BK[:, k : k + 1], before_BT], 1))
            nodes.append(self.index.child(contexts[-1], x_BT))
        return contexts, nodes


def sentence_end(sentences: bool, newline: int | None) -> int | None:
    """The token that ends a sentence, where sentences matter."""
    if sentences and newline is None:
        raise UserError("sentences need a token for the end of a line; choose another tokenizer or drop --sentences")
    return newline if sentences else None


def order_ranges(first_C: Tensor, vocab: int, order: int) -> list[tuple[int, int]]:
    """Where the nodes of each order begin and end."""
    ranges, low, high = [], 1, vocab + 1
    for _ in range(order):
        ranges.append((low, high))
        low, high = high, int(first_C[high]) if high < len(first_C) else high
    return ranges


def check_tree(first_C: Tensor, word_M: Tensor, vocab: int) -> None:
    """Refuse tables of nodes that point outside themselves."""
    whole = (
        len(first_C) >= 2
        and first_C[:2].tolist() == [1, 1 + vocab]
        and int(first_C[-1]) == len(word_M)
        and all(bool((first_C[i : i + CHUNK + 1].diff() >= 0).all()) for i in range(0, len(first_C), CHUNK))
        and 0 <= int(word_M.min()) <= int(word_M.max()) < vocab
    )
    if not whole:
        raise UserError(DAMAGED)


DAMAGED = "the n-gram tables point outside themselves: the file is damaged; train the model again"
DTYPES = {"first_C": torch.int32, "word_M": torch.int32, "alpha_M": torch.float32, "gamma_C": torch.float64}
