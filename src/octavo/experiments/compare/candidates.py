"""The ladder: every model that is compared, from the simplest to the mixture of the best."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any, get_args

from octavo.errors import UserError
from octavo.experiments.compare.rows import Family
from octavo.models import find_spec


@dataclass(frozen=True)
class Rung:
    """A model with its settings, under the name of its row."""

    name: str
    title: str
    family: Family
    model: str
    """As octavo train knows it; of a compressor, its own name."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def budgeted(self) -> bool:
        """Whether it learns for as long as it may."""
        return self.family in ("recurrent", "attention") and find_spec(self.model).trained_by_gradient

    @property
    def drawn(self) -> bool:
        """Whether it begins with random weights, so that another seed gives another result."""
        return self.budgeted or self.model == "bigram"


RUNGS: dict[str, Rung] = {
    rung.name: rung
    for rung in (
        Rung("bag", "bag: how often each token occurs", "counts", "bag"),
        Rung("kn3", "3-gram, Kneser-Ney", "counts", "ngram", {"order": 3}),
        Rung("kn5", "5-gram, Kneser-Ney", "counts", "ngram", {"order": 5}),
        Rung("kn7", "7-gram, Kneser-Ney", "counts", "ngram", {"order": 7}),
        Rung("words3", "3-gram of words, Kneser-Ney", "counts", "ngram", {"order": 3, "tokenizer": "word"}),
        Rung("bigram", "neural bigram", "counts", "bigram"),
        Rung("rnn", "plain recurrent network", "recurrent", "rnn"),
        Rung("gru", "GRU", "recurrent", "gru"),
        Rung("lstm", "LSTM", "recurrent", "lstm"),
        Rung("rnn-attention", "recurrent network with attention", "recurrent", "rnn-attention"),
        Rung("gpt", "transformer, full attention", "attention", "gpt"),
        Rung("local", "transformer, local attention", "attention", "local"),
        Rung("linear", "transformer, linear attention", "attention", "linear"),
        Rung("synthesizer", "transformer, synthesizer", "attention", "synthesizer"),
        Rung("mix", "mixture", "mixture", "mix"),
        Rung("zlib", "zlib", "compressor", "zlib"),
        Rung("bz2", "bz2", "compressor", "bz2"),
        Rung("xz", "xz", "compressor", "xz"),
        Rung("zstd", "zstd", "compressor", "zstd"),
    )
}
FAMILIES = get_args(Family)


def chosen(names: Sequence[str]) -> tuple[Rung, ...]:
    """The rungs of that name, family or pattern (kn*), in the ladder's order; all of them where none is named."""
    asked = [name for one in names for name in one.split(",") if name]
    if not asked:
        if names:
            raise UserError(f"models must name at least one: {','.join(names)!r}; leave it out for all of them")
        return tuple(RUNGS.values())
    for name in asked:
        if not any(_means(name, rung) for rung in RUNGS.values()):
            near = difflib.get_close_matches(name, [*RUNGS, *FAMILIES], 1)
            known = f"names are {', '.join(RUNGS)}; families are {', '.join(FAMILIES)}"
            raise UserError(f"there is no model {name!r} to compare; {f'did you mean {near[0]}?' if near else known}")
    return tuple(rung for rung in RUNGS.values() if any(_means(name, rung) for name in asked))


def _means(name: str, rung: Rung) -> bool:
    return fnmatch(rung.name, name) or rung.family == name


def parts_of_mixture(rungs: Sequence[Rung], tokenizers: Mapping[str, str], held_out: Mapping[str, float]) -> list[str]:
    """The n-gram of the highest order and the two best networks, of one tokenizer: a third adds next to nothing.

    `tokenizers` are the fingerprints of the runs that are there, `held_out` the bits per byte of the pieces that were
    held out of training, where a run has such a figure: the text that is reported chooses nothing. The n-gram needs no
    figure, because Kneser-Ney of a higher order holds the lower ones and leans on them where it has seen little.
    """
    there = [rung for rung in rungs if rung.name in tokenizers]
    neural = [rung for rung in there if rung.budgeted and rung.name in held_out]
    shared = [tokenizers[rung.name] for rung in (neural or there) if not rung.settings.get("tokenizer")][:1]
    ngrams = [rung for rung in there if rung.model == "ngram" and [tokenizers[rung.name]] == shared]
    parts = [max(ngrams, key=lambda rung: rung.settings["order"]).name] if ngrams else []
    kin = [rung.name for rung in neural if [tokenizers[rung.name]] == shared]
    parts += sorted(kin, key=lambda name: held_out[name])[:2]
    return parts
