"""A BERT with its tokenizer: sentences as vectors, masked words filled in, and how well a text is predicted.

N texts, T tokens, D width, K masked places.

A pseudo-log-likelihood hides each token in turn and adds up what the model gives it, the others being seen. It ranks
texts; it is no probability, so it is no bits per byte either.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from octavo.core import eval_mode
from octavo.datasets.sources import get_files
from octavo.errors import UserError
from octavo.exchange.bert import is_bert, read_bert
from octavo.io.run_folder import TOKENIZER, read_json, read_record
from octavo.io.tensors import read_tensors
from octavo.models.bert import Bert
from octavo.models.parts.checks import check_numbers
from octavo.ops.attention import Padding
from octavo.tasks.device import place
from octavo.tasks.pair_batches import batches_by_length
from octavo.tasks.run import weights_digest
from octavo.tasks.trained_run import TrainedRun, read_model
from octavo.text.tokenizers.wordpiece import MASK, WordPiece

NAMED = ("minilm",)  # sources of pretrained encoders
BATCH_TOKENS = 1 << 14  # that are encoded together
PSEUDO = "pseudo-log-likelihood: each token given all others; no probability of the text, no bits per byte"


class Guess(NamedTuple):
    """A word for a masked place."""

    token: str
    probability: float


class Foreseen(NamedTuple):
    """The tokens of a text, and log p of each given all others, in nats."""

    tokens: list[str]
    nats: list[float]

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood."""
        return sum(self.nats)


@dataclass(repr=False)
class Encoder(TrainedRun):
    """A BERT with everything needed to use it and to say where it came from."""

    task: ClassVar[str] = "masked"
    model: Bert
    tokenizer: WordPiece
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @property
    def width(self) -> int:
        """The size of a sentence's vector."""
        return self.model.config.width

    @cached_property
    def identity(self) -> str:
        """A hash of the weights and the tokenizer."""
        about = json.dumps([asdict(self.model.config), self.tokenizer.to_json()])
        return weights_digest(about, self.model).hexdigest()

    # ------------------------------------------------------------------ its folder

    @property
    def sizes(self) -> dict[str, int]:
        return {"vocab": self.model.vocab}

    def texts(self) -> dict[str, str]:
        return {TOKENIZER: json.dumps(self.tokenizer.to_json(), ensure_ascii=False)}

    @classmethod
    def read_folder(cls, path: Path, record: dict[str, Any], **given: Any) -> Self:
        tokenizer = WordPiece.from_json(read_json(path / TOKENIZER))
        model: Bert = read_model(record, read_tensors(path))
        if tokenizer.vocab > model.vocab:
            raise ValueError(f"every token must have an embedding: vocab={model.vocab}, tokens {tokenizer.vocab:,}")
        return cls(model, tokenizer)

    # ------------------------------------------------------------------ sentences as vectors

    def encode(self, texts: Sequence[str], device: str = "") -> Tensor:
        """vectors_ND of length one: the mean of what the last layer makes of a text's tokens, the special ones too.

        What is longer than the context is cut. Nothing is learnt through it. Without a device, where the model is.
        """
        if device:
            place(self, device)
        there = next(self.model.parameters()).device
        known, longest = self.tokenizer, self.model.config.context
        rows = [[known.first, *one.tolist()[: longest - 2], known.end] for one in known.encode_texts(texts)]
        lengths_N = np.array([len(row) for row in rows], np.int64)
        vectors_ND = torch.zeros(len(rows), self.width)
        with torch.no_grad(), eval_mode(self.model):
            for at_B in batches_by_length(lengths_N, np.arange(len(rows)), BATCH_TOKENS):
                some = [torch.tensor(rows[n]) for n in at_B]
                x_BT = pad_sequence(some, batch_first=True, padding_value=known.pad).to(there)
                lengths_B = torch.from_numpy(lengths_N[at_B]).to(there)
                h_BTD = self.model.encode(x_BT, pattern=Padding(lengths_B))
                there_BT1 = (torch.arange(x_BT.shape[1], device=there) < lengths_B[:, None])[..., None]
                mean_BD = (h_BTD.float() * there_BT1).sum(1) / lengths_B[:, None]
                vectors_ND[at_B] = F.normalize(mean_BD, dim=-1).cpu()
        return check_numbers(vectors_ND, "the texts' vectors")

    # ------------------------------------------------------------------ words

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """For each [MASK] of the text, the most probable words."""
        x_T = self._framed(text)
        places_K = np.flatnonzero(x_T == self.tokenizer.mask)
        if not len(places_K):
            raise UserError(f"there is nothing to fill in: the text has no {MASK}; put one where a word is missing")
        logp_KV = self._log_probabilities(x_T[None].repeat(1, 0), [(0, int(place)) for place in places_K])
        best = logp_KV.exp().topk(min(top, logp_KV.shape[-1]))
        return [
            [Guess(self.tokenizer.token(token), p) for token, p in zip(tokens, chances, strict=True)]
            for tokens, chances in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def filled(self, text: str) -> str:
        """The text with the most probable word at each [MASK]."""
        for guesses in self.fill(text, 1):
            text = text.replace(MASK, guesses[0].token, 1)
        return text.replace(" ##", "")

    def pseudo_log_likelihood(self, text: str) -> Foreseen:
        """log p of each token given all others, hidden one by one."""
        x_T = self._framed(text)
        places = range(1, len(x_T) - 1)
        if not places:
            raise UserError("there is no word in the text; give it some")
        nats: list[float] = []
        rows = max(1, BATCH_TOKENS // len(x_T))
        for first in range(0, len(places), rows):
            some = places[first : first + rows]
            x_KT = x_T[None].repeat(len(some), 0)
            x_KT[np.arange(len(some)), list(some)] = self.tokenizer.mask
            logp_KV = self._log_probabilities(x_KT, list(enumerate(some)))
            hidden_K = torch.from_numpy(x_T[list(some)])
            nats += logp_KV.gather(1, hidden_K[:, None]).squeeze(1).tolist()
        return Foreseen([self.tokenizer.token(int(x_T[place])) for place in places], nats)

    def _framed(self, text: str) -> Any:
        """The text's tokens with those that stand around a text; one that does not fit is refused."""
        (found,) = self.tokenizer.encode_texts([text], typed=True)
        x_T = np.array([self.tokenizer.first, *found.tolist(), self.tokenizer.end], np.int64)
        if len(x_T) > self.model.config.context:
            raise UserError(
                f"a text must fit into the context: {len(x_T)} tokens, context={self.model.config.context}; shorten it"
            )
        return x_T

    def _log_probabilities(self, x_BT: Any, places: Sequence[tuple[int, int]]) -> Tensor:
        """logp_KV at places (row, token), in double precision."""
        device = next(self.model.parameters()).device
        with torch.no_grad(), eval_mode(self.model):
            h_BTD = self.model.encode(torch.from_numpy(x_BT).to(device))
            rows, columns = map(list, zip(*places, strict=True))
            logp_KV = self.model.word_logits(h_BTD[rows, columns]).double().log_softmax(-1).cpu()
        return check_numbers(logp_KV, "the words' log-probabilities")


def load_encoder(source: str | Path) -> Encoder:
    """The encoder in a run's folder or in one of Hugging Face's, or one of a known name: minilm."""
    path = Path(source)
    if str(source) in NAMED and not path.exists():
        path = next(iter(get_files(str(source)).values())).parent
    if is_bert(path):
        return Encoder(*read_bert(path), path=path)
    record = read_record(path)
    if record.get("model") != "bert":
        raise UserError(
            f"{path} must be an encoder: it holds a model {record.get('model')!r}; give a run of octavo train bert, "
            f"a Hugging Face folder with a BERT, or {' or '.join(NAMED)}"
        )
    return Encoder.load(path, record)
