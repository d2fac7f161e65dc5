"""A model that translates, with its tokenizers and languages: how it is used, saved and loaded.

B sources of a batch, S tokens of the longest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import eval_mode
from octavo.datasets.pairs import Lines
from octavo.decode import Beam, Greedy, Sample, generate
from octavo.errors import UserError
from octavo.io.cooperative import Turn
from octavo.io.progress import progress
from octavo.io.run_folder import TOKENIZER, read_json
from octavo.io.tensors import read_tensors
from octavo.models.encoder_decoder import EncoderDecoder, Given
from octavo.scoring.metrics import Translated, score_translations
from octavo.tasks.pair_batches import batches_by_length, encode_lines
from octavo.tasks.trained_run import TrainedRun, read_model
from octavo.text import load_tokenizer
from octavo.text.tokenizers.base import Tokenizer

BEAM = Beam(5, 1.0)  # where nothing else is asked for
BATCH_TOKENS = {"cpu": 1 << 10, "cuda": 1 << 14}  # of sources that are translated together
SPARE = 10  # tokens that a translation may be longer than twice its source

Method = Beam | Greedy | Sample


@dataclass(repr=False)
class Translator(TrainedRun):
    """A model that translates, with its tokenizers and languages."""

    task: ClassVar[str] = "translation"
    model: EncoderDecoder
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    languages: tuple[str, ...]  # the source's, then those of the targets
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    def translate(
        self, texts: Sequence[str], language: str = "", method: Method = BEAM, generator: torch.Generator | None = None
    ) -> list[str]:
        """Each text in a language, the first one where none is named."""
        wanted = language or self.languages[1]
        return self.into(texts, (wanted,), method, generator)[wanted]

    def into(
        self, texts: Sequence[str], languages: Sequence[str] = (), method: Method = BEAM,
        generator: torch.Generator | None = None, turn: Turn = nullcontext,
    ) -> dict[str, list[str]]:  # fmt: skip
        """Each text in several languages, in all where none is named; the encoder reads every text once.

        Texts of like length are translated together; an empty one stays empty. A `turn` is taken for each step.
        """
        numbers = {one: self.number_of(one) for one in languages or self.languages[1:]}
        found = {one: [""] * len(texts) for one in numbers}
        rows = encode_lines(self.source_tokenizer, texts, self.source_tokenizer.begin)
        self._check_lengths(rows.lengths)
        most_tokens = BATCH_TOKENS.get(self.model.target_VD.device.type, 1 << 10)
        given_N = np.array([n for n, text in enumerate(texts) if text.strip()], np.int64)
        with torch.no_grad(), eval_mode(self.model), progress("translating", len(texts), "texts") as advance:
            for at_B in batches_by_length(rows.lengths, given_N, most_tokens):
                with turn():
                    memory = self.model.encode(*self.model.together([rows.row(n) for n in at_B.tolist()]))
                most = 2 * int(rows.lengths[at_B].max()) + SPARE
                most = min(most, self.model.config.context)
                for one, number in numbers.items():
                    given, prompts = _InTurns(self.model, memory, number), [()] * len(at_B)
                    given.turn = turn
                    tokens = generate(given, prompts, most, method, generator, stop=(self.model.end,))
                    for n, x_T in zip(at_B.tolist(), tokens, strict=True):
                        found[one][n] = self.spelt(x_T.tolist())
                advance(len(at_B))
        return found

    def _check_lengths(self, lengths_N: NDArray[np.int64]) -> None:
        """Before any work is done, because the longest texts come last; a recurrent network reads any length."""
        context = self.model.config.context
        if self.model_name == "seq2seq" and len(lengths_N) and int(lengths_N.max()) > context:
            n = int(lengths_N.argmax())
            raise UserError(
                f"a source must fit into the context: text {n + 1:,} has {int(lengths_N[n]):,} tokens, "
                f"context={context}; cut it, or train with a larger --context"
            )

    def spelt(self, tokens: Sequence[int]) -> str:
        """The text of a target's tokens."""
        known = [token for token in tokens if token < self.model.end]
        return self.target_tokenizer.decode(known).decode("utf-8", "replace")

    def number_of(self, language: str) -> int:
        """Which of the target languages that is."""
        if language not in self.languages[1:]:
            raise UserError(
                f"it translates into {', '.join(self.languages[1:])}: language={language!r}; name one of these"
            )
        return self.languages[1:].index(language)

    def measure(self, lines: Lines, method: Method = BEAM) -> dict[str, Translated]:
        """How good it is at these pairs, by language."""
        scores = {}
        sources = list(lines.references(0))
        for language, outputs in self.into(sources, self.languages[1:], method).items():
            known = lines.references(self.number_of(language))
            scores[language] = score_translations(outputs, [known[source] for source in sources])
        return scores

    def manner(self) -> str:
        return f", {self.languages[0]} to {' and '.join(self.languages[1:])}"

    def result_in_words(self) -> str:
        scores = self.record.get("result", {}).get("languages", {})
        return "".join(f", {one} BLEU {score['bleu']:.1f}, chrF {score['chrf']:.1f}" for one, score in scores.items())

    # ------------------------------------------------------------------ its folder

    @property
    def sizes(self) -> dict[str, int]:
        return self.model.sizes._asdict()

    def description(self) -> dict[str, Any]:
        return super().description() | {"languages": list(self.languages)}

    def texts(self) -> dict[str, str]:
        shared = self.source_tokenizer is self.target_tokenizer
        target = None if shared else self.target_tokenizer.to_json()
        return {TOKENIZER: json.dumps({"source": self.source_tokenizer.to_json(), "target": target})}

    @classmethod
    def read_folder(cls, path: Path, record: dict[str, Any], **given: Any) -> Self:
        languages, saved = record["languages"], read_json(path / TOKENIZER)
        if not isinstance(languages, list) or not all(isinstance(one, str) for one in languages):
            raise ValueError(f"languages must be names: {str(languages)[:40]}")
        if not isinstance(saved, dict) or not isinstance(saved.get("source"), dict):
            raise ValueError(f"{TOKENIZER} must hold the source's tokenizer and the target's")
        source = load_tokenizer(saved["source"])
        target = source if saved.get("target") is None else load_tokenizer(saved["target"])
        model: EncoderDecoder = read_model(record, read_tensors(path))
        known = (ids_of(source), ids_of(target), len(languages) - 1)
        if tuple(model.sizes) != known:
            raise ValueError(f"the model is of sizes {tuple(model.sizes)}, its tokenizers and languages of {known}")
        return cls(model, source, target, tuple(languages))


class _InTurns(Given):
    """Decoding that takes a turn for each of its steps."""

    turn: Turn = nullcontext

    def absorb(self, state: tuple[Tensor, Any], x_BT: Tensor) -> tuple[Tensor, tuple[Tensor, Any]]:
        with self.turn():
            return super().absorb(state, x_BT)


def ids_of(tokenizer: Tokenizer) -> int:
    """The ids of a side: the last one ends a text, and is one more where the tokenizer's begin is not the last."""
    return tokenizer.vocab + (tokenizer.begin != tokenizer.vocab - 1)
