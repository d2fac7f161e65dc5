"""A model that translates, with its tokenizers and languages: how it is used, saved and loaded.

B sources of a batch, S tokens of the longest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.config import from_json
from octavo.core import eval_mode
from octavo.datasets.pairs import Lines
from octavo.decode import Beam, Greedy, Sample, generate
from octavo.errors import UserError
from octavo.io.progress import progress
from octavo.io.run_folder import TOKENIZER, read_json
from octavo.io.tensors import read_tensors
from octavo.models.encoder_decoder import EncoderDecoder
from octavo.models.loading import filled
from octavo.models.seq2seq import Seq2Seq, Seq2SeqConfig
from octavo.models.seq2seq_recurrent import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from octavo.scoring.metrics import Translated, score_translations
from octavo.tasks.pair_batches import Rows, encode_lines
from octavo.tasks.task import Contents, TrainedRun, record_for
from octavo.text import load_tokenizer
from octavo.text.tokenizers.base import Tokenizer

KINDS: dict[str, tuple[type[EncoderDecoder], type]] = {
    "seq2seq": (Seq2Seq, Seq2SeqConfig), "seq2seq-recurrent": (RecurrentSeq2Seq, RecurrentSeq2SeqConfig),
}  # fmt: skip
SIZES = ("source_vocab", "target_vocab", "languages")
ABOUT_THE_MODEL = ("task", "model", "config", "sizes", "languages", "format", "octavo")
BEAM = Beam(5, 1.0)  # where nothing else is asked for
BATCH_TOKENS = {"cpu": 1 << 10, "cuda": 1 << 14}  # of sources that are translated together
SPARE = 10  # tokens that a translation may be longer than twice its source

Method = Beam | Greedy | Sample


@dataclass
class Translator(TrainedRun):
    """A trained model with everything needed to use it and to say where it came from."""

    task: ClassVar[str] = "translation"
    model: EncoderDecoder
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    languages: tuple[str, ...]  # the source's, then those of the targets
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @property
    def name(self) -> str:
        """seq2seq or seq2seq-recurrent."""
        return next(name for name, (kind, _) in KINDS.items() if type(self.model) is kind)

    def translate(
        self, texts: Sequence[str], language: str = "", method: Method = BEAM, generator: torch.Generator | None = None
    ) -> list[str]:
        """Each text in a language, the first one where none is named."""
        wanted = language or self.languages[1]
        return self.into(texts, (wanted,), method, generator)[wanted]

    def into(
        self, texts: Sequence[str], languages: Sequence[str] = (), method: Method = BEAM,
        generator: torch.Generator | None = None,
    ) -> dict[str, list[str]]:  # fmt: skip
        """Each text in several languages, in all where none is named; the encoder reads every text once.

        Texts of like length are translated together; an empty one stays empty.
        """
        numbers = {one: self.number_of(one) for one in languages or self.languages[1:]}
        found = {one: [""] * len(texts) for one in numbers}
        rows = encode_lines(self.source_tokenizer, texts, self.source_tokenizer.begin)
        self._check_lengths(rows.lengths)
        with torch.no_grad(), eval_mode(self.model), progress("translating", len(texts), "texts") as advance:
            for at_B in _by_length(rows, texts, BATCH_TOKENS.get(self.model.target_VD.device.type, 1 << 10)):
                memory = self.model.encode(*self.model.together([rows.row(n) for n in at_B.tolist()]))
                most = 2 * int(rows.lengths[at_B].max()) + SPARE
                most = min(most, self.model.config.context)
                for one, number in numbers.items():
                    given, prompts = self.model.given(memory, number), [()] * len(at_B)
                    tokens = generate(given, prompts, most, method, generator, stop=(self.model.end,))
                    for n, x_T in zip(at_B.tolist(), tokens, strict=True):
                        found[one][n] = self.spelt(x_T.tolist())
                advance(len(at_B))
        return found

    def _check_lengths(self, lengths_N: NDArray[np.int64]) -> None:
        """Before any work is done, because the longest texts come last; a recurrent network reads any length."""
        context = self.model.config.context
        if self.name == "seq2seq" and len(lengths_N) and int(lengths_N.max()) > context:
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

    def summary(self) -> str:
        """One line: the model, the pairs, the result."""
        pairs = self.record.get("pairs", {}).get("name", "unknown pairs")
        figures = self.record.get("result", {}).get("languages", {})
        result = "".join(
            f", {one} BLEU {figure['bleu']:.1f}, chrF {figure['chrf']:.1f}" for one, figure in figures.items()
        )
        result = ", training not finished" if self.unfinished else result
        return f"{self.name}, {self.languages[0]} to {' and '.join(self.languages[1:])}, on {pairs}{result}"

    def __repr__(self) -> str:
        return f"<octavo translator{f' at {self.path}' if self.path else ''}: {self.summary()}>"


def contents_of(run: Translator) -> Contents:
    """What a run's folder holds."""
    sizes = dict(zip(SIZES, run.model.sizes, strict=True))
    record = {"model": run.name, "config": asdict(run.model.config), "sizes": sizes, "languages": list(run.languages)}
    shared = run.source_tokenizer is run.target_tokenizer
    tokenizers = {
        "source": run.source_tokenizer.to_json(), "target": None if shared else run.target_tokenizer.to_json(),
    }  # fmt: skip
    return Contents(record, run.model.state_dict(), {TOKENIZER: json.dumps(tokenizers)})


def _by_length(rows: Rows, texts: Sequence[str], places: int) -> Iterator[NDArray[np.int64]]:
    """The texts that are not empty, in batches of like length."""
    at_N = np.array([n for n, text in enumerate(texts) if text.strip()], np.int64)
    order = at_N[np.argsort(rows.lengths[at_N], kind="stable")].tolist()
    batch: list[int] = []
    for n in order:
        if batch and (len(batch) + 1) * int(rows.lengths[n]) > places:
            yield np.array(batch)
            batch = []
        batch.append(n)
    if batch:
        yield np.array(batch)


def ids_of(tokenizer: Tokenizer) -> int:
    """The ids of a side: the last one ends a text, and is one more where the tokenizer's begin is not the last."""
    return tokenizer.vocab + (tokenizer.begin != tokenizer.vocab - 1)


def load_translator(path: str | Path, record: dict[str, Any] | None = None) -> Translator:
    """The translator in a folder; what is damaged or foreign is refused, and no code of it is run."""
    path = Path(path)
    record = record_for(path, Translator.task, record)
    try:
        languages = record["languages"]
        if not isinstance(languages, list) or not all(isinstance(one, str) for one in languages):
            raise ValueError(f"languages must be names: {str(languages)[:40]}")
        source, target = _tokenizers(path)
        model = _built(record, read_tensors(path))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged or foreign: {error!r}; train the run again") from error
    except UserError as error:
        raise UserError(f"{path} is damaged or foreign: {error}") from error
    known = (ids_of(source), ids_of(target), len(languages) - 1)
    if tuple(model.sizes) != known:
        raise UserError(
            f"{path} is damaged: its model is of sizes {tuple(model.sizes)}, its tokenizers and languages of {known}"
        )
    about = {key: value for key, value in record.items() if key not in ABOUT_THE_MODEL}
    return Translator(model, source, target, tuple(languages), about, path)


def _tokenizers(path: Path) -> tuple[Tokenizer, Tokenizer]:
    saved = read_json(path / TOKENIZER)
    if not isinstance(saved, dict) or not isinstance(saved.get("source"), dict):
        raise ValueError(f"{TOKENIZER} must hold the source's tokenizer and the target's")
    source = load_tokenizer(saved["source"])
    return source, source if saved.get("target") is None else load_tokenizer(saved["target"])


def _built(record: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> EncoderDecoder:
    """The model, made without memory first: a forged config must not take any without bound."""
    kind, config_class = KINDS[record["model"]]
    config: Any = from_json(config_class, record["config"])
    sizes = record["sizes"]
    if not isinstance(sizes, dict) or set(sizes) != set(SIZES) or any(type(one) is not int for one in sizes.values()):
        raise ValueError(f"sizes must be whole numbers {', '.join(SIZES)}: {str(sizes)[:80]}")
    layers = max(config.layers, getattr(config, "decoder_layers", 0))
    return filled(lambda: kind(config, **sizes), tensors, layers)
