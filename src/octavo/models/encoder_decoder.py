"""What encoder-decoders share: a source is encoded once, and given it, the decoder is an ordinary language model.

B rows, S tokens of a source, T tokens of a target, D width, V vocabulary of the targets.

The targets' vocabulary is that of their tokenizer, whose begin, which spells nothing, ends a target here; behind it
comes a token for each target language. A target begins with its language's token, so one encoder, and its work on one
source, serves all of them. Languages are never predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.core import LanguageModel, map_state, tensors_of
from octavo.errors import UserError
from octavo.models.cost.parts import Part
from octavo.models.parts.checks import check_positive
from octavo.ops.attention import FULL, Padding, Pattern

Source = Tensor | Sequence[int]


@dataclass(frozen=True)
class Memory:
    """What the encoder made of some sources, ready for cross-attention; every tensor has a row a source."""

    lengths_B: Tensor | None  # of the sources; None where none is filled up
    parts: tuple[Any, ...]

    def __len__(self) -> int:
        return len(tensors_of(self.parts)[0])

    def of(self, source_B: Tensor) -> Memory:
        """The memory of a batch whose row b is about source source_B[b]."""
        if len(self) == 1:
            return Memory(self.lengths_B, map_state(self.parts, lambda x: x.expand(len(source_B), *x.shape[1:])))
        lengths_B = None if self.lengths_B is None else self.lengths_B[source_B]
        return Memory(lengths_B, map_state(self.parts, lambda x: x.index_select(0, source_B)))

    @property
    def pattern(self) -> Pattern:
        """Which positions of the source are attended to: all but the padding."""
        return FULL if self.lengths_B is None else Padding(self.lengths_B)


class Sizes(NamedTuple):
    """The whole numbers beside the config that an encoder-decoder is made from."""

    source_vocab: int
    target_vocab: int
    """The tokenizer's, whose begin is the end of a target."""
    languages: int = 1
    """Of the targets."""

    def check(self, tied: str) -> None:
        check_positive("source_vocab", self.source_vocab, 8192)
        check_positive("target_vocab", self.target_vocab, 8192)
        check_positive("languages", self.languages, 1)
        if tied == "all" and self.source_vocab != self.target_vocab:
            raise UserError(
                f"one table of embeddings needs one vocabulary: {self.source_vocab} tokens in sources, "
                f"{self.target_vocab} in targets; try --tied target"
            )


def embeddings_part(config: Any, sizes: Sizes, positions: int = 0) -> Part:
    """Tables of vectors and of learned positions; an output of its own is counted with the output."""
    rows = sizes.target_vocab + sizes.languages + (0 if config.tied == "all" else sizes.source_vocab)
    return Part("embeddings", (rows + positions) * config.width)


class EncoderDecoder(nn.Module):
    """Reads a source, then writes a target token by token. Kinds differ in `encode`, `start` and `read`."""

    sizes: Sizes
    config: Any
    muon_learning_rate = 0.02  # of Muon, where nothing else is asked for

    def __init__(self, config: Any, source_vocab: int, target_vocab: int, languages: int = 1) -> None:
        super().__init__()
        self.config, self.sizes = config, Sizes(source_vocab, target_vocab, languages)
        sizes = self.sizes
        sizes.check(config.tied)
        D, V = config.width, sizes.target_vocab + sizes.languages
        self.source_VD = None if config.tied == "all" else nn.Parameter(torch.empty(sizes.source_vocab, D))
        self.target_VD = nn.Parameter(torch.empty(V, D))
        self.output_VD = nn.Parameter(torch.empty(sizes.target_vocab, D)) if config.tied == "none" else None

    def cross_attention(self, maps: Sequence[Tensor]) -> Sequence[Tensor]:
        """Of the attention maps that decoding shows, those over the source, a_BHTS each: of one head here."""
        return [a_BTS[:, None] for a_BTS in maps]

    @property
    def end(self) -> int:
        """The token that ends a target."""
        return self.sizes.target_vocab - 1

    def language(self, number: int) -> int:
        """The token that a target in this language begins with."""
        if not 0 <= number < self.sizes.languages:
            raise UserError(f"there are {self.sizes.languages} target languages: language={number}; try 0")
        return self.sizes.target_vocab + number

    @property
    def output_weight(self) -> Tensor:
        """A row for each token that can be predicted."""
        return self.target_VD[: self.sizes.target_vocab] if self.output_VD is None else self.output_VD

    def scores(self, h_BTD: Tensor) -> Tensor:
        """Logits of the tokens that can be predicted."""
        return F.linear(h_BTD, self.output_weight)

    def logits(self, h_BTD: Tensor) -> Tensor:
        """logits_BTV of the whole vocabulary, in which a language has no chance."""
        return F.pad(self.scores(h_BTD), (0, self.sizes.languages), value=-torch.inf)

    def embed_source(self, x_BS: Tensor) -> Tensor:
        return F.embedding(x_BS, self.target_VD if self.source_VD is None else self.source_VD)

    def drop(self, y: Tensor) -> Tensor:
        dropped = self.training and self.config.dropout
        return F.dropout(y, self.config.dropout) if dropped else y

    # ------------------------------------------------------------------ what each kind says for itself

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights that training starts from."""
        raise NotImplementedError

    def encode(self, x_BS: Tensor, lengths_B: Tensor | None = None) -> Memory:
        """Read sources; behind lengths_B[b] tokens, row b is filled up with anything."""
        raise NotImplementedError

    def start(self, memory: Memory) -> Any:
        """The decoder's state before it has read anything, a row for each of the memory's."""
        raise NotImplementedError

    def read(self, memory: Memory, state: Any, x_BT: Tensor) -> tuple[Tensor, Any]:
        """h_BTD that logits are made from, after each token of the targets; and the new state."""
        raise NotImplementedError

    # ------------------------------------------------------------------ and what follows

    def hidden(self, source_BS: Tensor, lengths_B: Tensor | None, before_BT: Tensor) -> Tensor:
        """h_BTD of whole targets, as training needs them."""
        memory = self.encode(source_BS, lengths_B)
        return self.read(memory, self.start(memory), before_BT)[0]

    def forward(self, source_BS: Tensor, lengths_B: Tensor | None, before_BT: Tensor) -> Tensor:
        """logits_BTV after each token of targets that begin with their language's token."""
        return self.logits(self.hidden(source_BS, lengths_B, before_BT))

    def given(self, source: Memory | Source | Sequence[Source], language: int = 0) -> Given:
        """The language model of targets, given one source or several: tokens, or what `encode` made of them."""
        return Given(self, source if isinstance(source, Memory) else self.encode(*self.together(source)), language)

    def together(self, source: Source | Sequence[Source]) -> tuple[Tensor, Tensor | None]:
        """One source or several as one table, and their lengths where these differ."""
        device = self.target_VD.device
        one = isinstance(source, Tensor) or not source or isinstance(source[0], int)
        rows: Any = [source] if one else source
        x = [torch.as_tensor(row, dtype=torch.long, device=device).flatten() for row in rows]
        lengths = [len(row) for row in x]
        if min(lengths) == 0:
            raise UserError("a source must have a token at least; end it with the tokenizer's begin")
        x_BS = nn.utils.rnn.pad_sequence(x, batch_first=True)
        if int(x_BS.max()) >= self.sizes.source_vocab or int(x_BS.min()) < 0:
            raise UserError(f"tokens of a source must be below {self.sizes.source_vocab}: {int(x_BS.max())} was given")
        return x_BS, None if len(set(lengths)) == 1 else torch.tensor(lengths, device=device)


class Given(LanguageModel[tuple[Tensor, Any]]):
    """An encoder-decoder whose sources are known. A state also says which source each row is about.

    Of one source there may be any number of rows; of several, one for each to start with.
    """

    def __init__(self, model: EncoderDecoder, memory: Memory, language: int = 0) -> None:
        super().__init__()
        self.model, self.memory = model, memory
        self.config, self.begin = model.config, model.language(language)
        self.vocab = model.sizes.target_vocab + model.sizes.languages
        self.train(model.training)
        self._last = torch.arange(len(memory), device=model.target_VD.device), memory

    def start(self, batch: int) -> tuple[Tensor, Any]:
        sources, device = len(self.memory), self.model.target_VD.device
        if sources not in (1, batch):
            raise UserError(
                f"every source is one row to start with: {sources} sources, {batch} rows; give one at a time"
            )
        source_B = torch.arange(batch, device=device) % sources
        return source_B, self.model.start(self._memory(source_B))

    def absorb(self, state: tuple[Tensor, Any], x_BT: Tensor) -> tuple[Tensor, tuple[Tensor, Any]]:
        source_B, inner = state
        h_BTD, inner = self.model.read(self._memory(source_B), inner, x_BT)
        return self.model.logits(h_BTD), (source_B, inner)

    def _memory(self, source_B: Tensor) -> Memory:
        """That of the rows; the last one is cached, because decoding asks for the same again and again."""
        known_B, memory = self._last
        if known_B.shape != source_B.shape or not torch.equal(known_B, source_B):
            memory = self.memory.of(source_B)
            self._last = source_B, memory
        return memory

    @property
    def context_policy(self) -> str:
        return "given the source, state carried from the target's first token to its last"
