"""An n-gram model that goes on counting while it reads: what it has read changes what it expects.

The state is the tokens read since `start`; what was learnt is a function of them (`ReaderPool`).

B batch, T time, V vocabulary, M nodes, C contexts, K contexts of 0 to n - 1 tokens, J counts of 0, 1, 2, 3 or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from octavo.config import Range, check_ranges
from octavo.core import LanguageModel, Session
from octavo.errors import UserError
from octavo.models.ngram.adaptive_coder import AdaptiveNGramCoder
from octavo.models.ngram.adaptive_nodes import CLASSES, Array
from octavo.models.ngram.adaptive_reader import AdaptiveNGramSession, Reader
from octavo.models.ngram.config import MAX_ORDER
from octavo.models.ngram.counting import Level, Vocabulary, Workspace, count_ngrams
from octavo.models.ngram.estimators import discounts
from octavo.models.ngram.model import check_tree, order_ranges, sentence_end
from octavo.models.reader_pool import ReaderPool

MAX_COPIED_NODES = 1 << 23  # whose first tables stay in memory: half a gigabyte
MAX_READERS = 4  # that a model keeps beside those of the last call
DISCOUNT_TOKENS = 1 << 17  # of the training text that discounts are learnt on: some seconds in plain Python
ADAPTIVE_POLICY = "goes on counting from the first byte of each document to its last"


@dataclass(frozen=True)
class AdaptiveNGramConfig:
    """How an n-gram model that goes on counting is made."""

    order: Annotated[int, Range(1, MAX_ORDER)] = 8
    """Tokens in the longest n-gram: predictions depend on order - 1 tokens, and on the counts so far."""
    discount_rate: Annotated[float, Range(0, 1.0)] = 0.1
    """The step size of the discounts, which are learnt while reading; 0 leaves them as the training text had them."""
    sentences: bool = False
    """Forget the context, not the counts, at the end of each line."""

    def __post_init__(self) -> None:
        check_ranges(self)


class AdaptiveNGram(LanguageModel[Tensor]):
    """Interpolated modified Kneser-Ney whose counts, extension counts and discounts go on while it reads."""

    first_C: Tensor
    word_M: Tensor
    count_M: Tensor
    discount_KCJ: Tensor
    square_KCJ: Tensor

    adaptive = True
    max_scored_tokens = 1 << 20

    def __init__(self, config: AdaptiveNGramConfig, vocab: int, newline: int | None = None) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        self.newline = sentence_end(config.sentences, newline)
        for name, dtype in DTYPES.items():
            self.register_buffer(name, torch.empty(0, dtype=dtype))
        self.pool = ReaderPool(self.fresh_reader, MAX_READERS)
        self._first_reader: Reader | None = None

    @classmethod
    def fit(
        cls, x_N: Tensor, config: AdaptiveNGramConfig, vocab: int, newline: int | None = None,
        workspace: Workspace = Workspace(),  # noqa: B008  it is frozen
        report: Callable[[float], None] = lambda tokens: None,
    ) -> AdaptiveNGram:  # fmt: skip
        """Count x_N, in which the begin token opens every sequence."""
        model = cls(config, vocab, newline)
        words = Vocabulary(vocab, model.begin, model.newline)
        model._assemble(list(count_ngrams(x_N, config.order, words, workspace, report)))
        if config.discount_rate and len(x_N):
            model._learn_discounts(x_N)
        return model

    def _assemble(self, levels: Sequence[Level]) -> None:
        """Lay the orders out one after another, below the root."""
        fanouts = [torch.bincount(level.context_M, minlength=level.contexts).int() for level in levels]
        one = torch.ones_like(fanouts[0][:1])
        self.first_C = torch.cat([one, *fanouts]).cumsum(0, dtype=torch.int32).cpu()
        self.word_M = torch.cat([0 * one, *(level.word_M for level in levels)]).cpu()
        self.count_M = torch.cat([0 * one, *(level.extension_M for level in levels)]).cpu()
        first_KJ = torch.tensor([[0.0, *discounts(level.extension_M)] for level in levels], dtype=torch.float64)
        self.discount_KCJ = first_KJ[:, None].repeat(1, CLASSES, 1)
        self.square_KCJ = torch.zeros_like(self.discount_KCJ)

    def _learn_discounts(self, x_N: Tensor) -> None:
        """Take the discounts that the beginning of the text teaches a model that knows nothing and reads it."""
        empty = AdaptiveNGram(self.config, self.vocab, self.newline)
        empty.first_C = torch.full((self.vocab + 2,), 1 + self.vocab, dtype=torch.int32)
        empty.first_C[0] = 1
        empty.word_M = torch.cat([torch.zeros(1, dtype=torch.int32), torch.arange(self.vocab, dtype=torch.int32)])
        empty.count_M = torch.zeros_like(empty.word_M)
        empty.discount_KCJ, empty.square_KCJ = self.discount_KCJ, self.square_KCJ
        reader = Reader(empty)
        reader.probabilities(x_N[:DISCOUNT_TOKENS].cpu().numpy())
        self.discount_KCJ = torch.from_numpy(reader.tables.discount_KCJ)
        self.square_KCJ = torch.from_numpy(reader.tables.square_KCJ)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the tables; look-ups trust them, so tables that point outside themselves are refused."""
        if {name: tensor.dtype for name, tensor in tensors.items()} != DTYPES:
            raise UserError(f"an adaptive n-gram model has tensors {DTYPES}; the file is of another model")
        first_C, word_M, count_M, discount_KCJ, square_KCJ = (tensors[name] for name in DTYPES)
        check_tree(first_C, word_M, self.vocab)
        shape = (self.config.order, CLASSES, 4)
        whole = (
            len(count_M) == len(word_M)
            and bool((count_M >= 0).all())
            and int(count_M.max()) < 1 << 30
            and discount_KCJ.shape == square_KCJ.shape == shape
            and bool(((discount_KCJ >= 0) & (discount_KCJ <= torch.arange(4))).all())
            and bool((square_KCJ >= 0).all())
        )
        if not whole:
            raise UserError(
                "counts must not be negative, and discounts not above them: the file is damaged; train again"
            )
        self.first_C, self.word_M, self.count_M = first_C, word_M, count_M
        self.discount_KCJ, self.square_KCJ = discount_KCJ, square_KCJ
        self.pool.waiting, self._first_reader = [], None

    @property
    def context_policy(self) -> str:
        return ADAPTIVE_POLICY

    @property
    def context_classes(self) -> int:
        return int(self.config.order)

    def sizes(self) -> list[int]:
        """How many n-grams of each order the training text has."""
        return [high - low for low, high in order_ranges(self.first_C, self.vocab, self.config.order)]

    def start(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, dtype=torch.int32)

    def step(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        p_BV, state = self.predict(state, x_B)
        return p_BV.log(), state

    def predict(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        p_B1V, state = self._distributions(state, x_B[:, None])
        return p_B1V[:, 0], state

    def absorb(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        p_BTV, state = self._distributions(state, x_BT)
        return p_BTV.log(), state

    def _distributions(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        """p_BTV of the token after each of x_BT, and the new state."""
        readers = self.pool.readers_at(state.numpy())
        p_BTV = [reader.distributions(x_T) for reader, x_T in zip(readers, x_BT.numpy(), strict=True)]
        self.pool.release(readers)
        p = np.stack(p_BTV) if p_BTV else np.zeros((0, x_BT.shape[1], self.vocab))
        return torch.from_numpy(p), torch.cat([state, x_BT.int()], 1)

    def order_distributions(self, state: Tensor, x_BT: Tensor) -> tuple[Array, Array, Tensor]:
        """p_BTKV by every length of context after each token, the context classes there, and the new state."""
        readers = self.pool.readers_at(state.numpy())
        found = [reader.order_distributions(x_T) for reader, x_T in zip(readers, x_BT.numpy(), strict=True)]
        self.pool.release(readers)
        p_BTKV, class_BT = (np.stack(part) for part in zip(*found, strict=True))
        return p_BTKV, class_BT, torch.cat([state, x_BT.int()], 1)

    def token_log_probs(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        """log p of every token but the first by look-ups: no distribution over the vocabulary is made."""
        p_BT, _, state = self._costs(state, x_BT)
        return p_BT.log(), state

    def token_context_classes(self, state: Tensor, x_BT: Tensor) -> Tensor:
        return self._costs(state, x_BT)[1]

    def _costs(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """p of every token but the first, the context class in front of each, and the state before the last one."""
        readers = self.pool.readers_at(state.numpy())
        found = [reader.probabilities(x_T) for reader, x_T in zip(readers, x_BT.numpy(), strict=True)]
        for reader in readers if x_BT.shape[1] else ():
            reader.undo(1)  # the last token is not part of the new state
        self.pool.release(readers)
        p_BT, class_BT = (np.stack(part)[:, 1:] for part in zip(*found, strict=True))
        return torch.from_numpy(p_BT), torch.from_numpy(class_BT), torch.cat([state, x_BT[:, :-1].int()], 1)

    def context_class(self, state: Tensor) -> Tensor:
        """The length of the longest context that has been continued before."""
        readers = self.pool.readers_at(state.numpy())
        classes = torch.tensor([reader.context_class for reader in readers])
        self.pool.release(readers)
        return classes

    def session(self, state: Tensor, tokens: int = 1 << 30) -> Session[Tensor]:
        return AdaptiveNGramSession(self, state)

    def fixed_log_probs(self, x_N: Tensor) -> Tensor:
        """log p of each token of a text in its context, by the counts of the training text alone."""
        opened = np.concatenate([[self.begin], x_N.numpy()])
        return torch.from_numpy(self.fresh_reader().probabilities(opened, learn=False)[0][1:]).log()

    def text_coder(self) -> AdaptiveNGramCoder:
        return AdaptiveNGramCoder(self)

    def fresh_reader(self) -> Reader:
        """A reader that has read nothing: tables are made once, and copied where they take little memory."""
        if len(self.word_M) > MAX_COPIED_NODES:
            return Reader(self)
        if self._first_reader is None:
            self._first_reader = Reader(self)
        return self._first_reader.copy()


DTYPES = {
    "first_C": torch.int32, "word_M": torch.int32, "count_M": torch.int32, "discount_KCJ": torch.float64,
    "square_KCJ": torch.float64,
}  # fmt: skip
