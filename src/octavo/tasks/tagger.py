"""A trained sequence tagger: the model, what turns words into its inputs, and the tags; saved and loaded as a folder.

N sentences, B of a batch, T words of the longest, F features of a word, C tags.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from octavo.core import eval_mode, single_thread
from octavo.io.run_folder import TOKENIZER, read_json
from octavo.io.tensors import read_tensors
from octavo.models.parts.checks import check_numbers
from octavo.models.tagger import SequenceTagger
from octavo.scoring.tagging import forbidden_pairs, is_bio
from octavo.tasks.pair_batches import batches_by_length
from octavo.tasks.trained_run import TrainedRun, read_model
from octavo.text.word_features import WordReader, is_feature

BATCH_WORDS = 1 << 13  # that are tagged together


class TaggedSentence(NamedTuple):
    """A sentence with its tags."""

    words: tuple[str, ...]
    tags: list[str]
    p_TC: Tensor  # the probability of every tag at every word


@dataclass(repr=False)
class Tagger(TrainedRun):
    """Gives every word of a sentence a tag."""

    task: ClassVar[str] = "tagging"
    model: SequenceTagger
    reader: WordReader
    tags: list[str]
    well_formed: bool = False
    """Whether the tags mark spans and no training sentence breaks their rule: then no answer does."""
    record: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    def __post_init__(self) -> None:
        if self.well_formed:
            self.model.forbid(*forbidden_pairs(self.tags))

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[TaggedSentence]:
        """The best sequence of tags of each sentence, given as its words, and the probabilities of all tags."""
        found: dict[int, TaggedSentence] = {}
        with eval_mode(self.model), single_thread(), torch.inference_mode():
            for at_B, x_BTF, lengths_B in self._batches(sentences):
                y_BT, p_BTC = (one.cpu() for one in self.model.decode(x_BTF, lengths_B))
                check_numbers(p_BTC, "the probabilities of the tags")
                for n, y_T, p_TC in zip(at_B, y_BT.tolist(), p_BTC, strict=True):
                    size = len(sentences[n])
                    tags = [self.tags[c] for c in y_T[:size]]
                    found[n] = TaggedSentence(tuple(sentences[n]), tags, p_TC[:size].float())
        return [found[n] for n in range(len(sentences))]

    def _batches(self, sentences: Sequence[Sequence[str]]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Sentences of like length together: which they are, their features x_BTF, and their lengths."""
        lengths_N, device = np.array([len(words) for words in sentences], np.int64), self.model.features_VD.device
        for at_B in batches_by_length(lengths_N, np.arange(len(sentences)), BATCH_WORDS):
            rows = [torch.from_numpy(self.reader.read(sentences[n])) for n in at_B]
            x_BTF, lengths_B = pad_sequence(rows, batch_first=True), torch.from_numpy(lengths_N[at_B])
            yield at_B.tolist(), x_BTF.to(device), lengths_B.to(device)

    @torch.inference_mode()
    def sequence_log_probs(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> list[float]:
        """log p(tags | words) of whole sentences."""
        number, found = {name: c for c, name in enumerate(self.tags)}, dict[int, float]()
        with eval_mode(self.model), single_thread():
            for at_B, x_BTF, lengths_B in self._batches(sentences):
                rows = [torch.tensor([number[tag] for tag in tags[n]], dtype=torch.long) for n in at_B]
                loss_B = self.model.loss(x_BTF, lengths_B, pad_sequence(rows, batch_first=True).to(x_BTF.device)).cpu()
                logp_B = -check_numbers(loss_B, "the probabilities of the tags").double()
                found |= zip(at_B, logp_B.clamp(max=0).tolist(), strict=True)  # rounding may exceed certainty
        return [found[n] for n in range(len(sentences))]

    def manner(self) -> str:
        return f", {len(self.tags)} tags"

    # ------------------------------------------------------------------ its folder

    def description(self) -> dict[str, Any]:
        return super().description() | {"tags": self.tags, "well_formed": self.well_formed}

    def texts(self) -> dict[str, str]:
        return {TOKENIZER: json.dumps({"features": self.reader.features}, ensure_ascii=False)}

    @classmethod
    def load(cls, path: str | Path, record: dict[str, Any] | None = None, **given: Any) -> Self:
        """The tagger in a folder."""
        return super().load(path, record, **given).check_finished()

    @classmethod
    def read_folder(cls, path: Path, record: dict[str, Any], **given: Any) -> Self:
        tags, well_formed, known = record["tags"], record["well_formed"], read_json(path / TOKENIZER)
        if not isinstance(tags, list) or len(tags) < 2 or not all(isinstance(one, str) and one for one in tags):
            raise ValueError("tags must be two names or more")
        if len(set(tags)) < len(tags) or type(well_formed) is not bool or (well_formed and not is_bio(tags)):
            raise ValueError("tags must be all different, and well_formed ones B-, I- and O")
        features = known.get("features") if isinstance(known, dict) else None
        if not isinstance(features, list) or not all(map(is_feature, features)) or len({*features}) < len(features):
            raise ValueError("features must be a list of different features")
        model: SequenceTagger = read_model(record, read_tensors(path))
        reader = WordReader(features, model.config.affixes)
        if model.sizes != {"features": reader.rows, "tags": len(tags)}:
            raise ValueError(f"the model is for {model.sizes}: there are {reader.rows} features and {len(tags)} tags")
        return cls(model, reader, tags, well_formed)
