"""The candidates of a comparison: every model's own, from the simplest to the mixture of the best, and compressors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from octavo.errors import UserError
from octavo.experiments.compare.rows import COMPRESSOR, MIXTURE
from octavo.models import NEURAL as BY_GRADIENT
from octavo.models import preset

MIX = "mix"
SHORT_BUDGET_SECONDS = 60.0  # in less, networks get further with fewer evaluations, recurrent ones with small steps
EVALUATIONS = 4  # instead of the usual ten, each of which takes most of a second
SMALL_BATCH = 32  # rows; 550,000 tokens of Shakespeare make a GRU of 2.37 bits per byte, 750,000 in the usual 128 2.51
NARROW = 192  # of a GRU: 2.16 bits per byte of validation chunks after 20 s, 2.20 with the usual 256 after 25 s


@dataclass(frozen=True)
class Candidate:
    """A model with its settings, under the name of its row."""

    name: str
    title: str
    family: str
    model: str
    """As octavo train knows it; of a compressor, its own name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_gradient: bool = False
    """Whether it is trained for as long as it may."""
    is_random: bool = False
    """Whether it begins with random weights, so that another seed gives another result."""


ALL: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("bag", "bag: how often each token occurs", "counts", "bag", {}),
    ("kn3", "3-gram, Kneser-Ney", "counts", "ngram", {"order": 3}),
    ("kn5", "5-gram, Kneser-Ney", "counts", "ngram", {"order": 5}),
    ("kn7", "7-gram, Kneser-Ney", "counts", "ngram", {"order": 7}),
    ("words3", "3-gram of words, Kneser-Ney", "counts", "ngram", {"order": 3, "tokenizer": "word"}),
    ("bigram", "neural bigram", "counts", "bigram", {}),
    ("rnn", "plain recurrent network", "recurrent", "rnn", {}),
    ("gru", "GRU", "recurrent", "gru", {}),
    ("lstm", "LSTM", "recurrent", "lstm", {}),
    ("rnn-attention", "recurrent network with attention", "recurrent", "rnn-attention", {}),
    ("gpt", "transformer, full attention", "attention", "gpt", {}),
    ("local", "transformer, local attention", "attention", "local", {}),
    ("linear", "transformer, linear attention", "attention", "linear", {}),
    ("synthesizer", "transformer, synthesizer", "attention", "synthesizer", {}),
)


def candidates(seconds: float | None = None, device: str = "cpu") -> dict[str, Candidate]:
    """All of them by name, in the table's order; `seconds`: how long each is trained, where that is a time."""
    found = [_of_model(*one, seconds=seconds) for one in ALL]
    found.append(Candidate(MIX, "mixture", MIXTURE, MIX))
    found += [Candidate(name, name, COMPRESSOR, name) for name in ("zlib", "bz2", "xz", "zstd")]
    return {one.name: one for one in found}


def _of_model(
    name: str, title: str, family: str, model: str, settings: Mapping[str, Any], seconds: float | None
) -> Candidate:
    by_gradient = preset(model)[0] in BY_GRADIENT
    own = dict(settings)
    if by_gradient and seconds is not None and seconds < SHORT_BUDGET_SECONDS:
        own |= {"evaluations": EVALUATIONS}
        own |= {"batch_size": SMALL_BATCH} if family == "recurrent" else {}
        own |= {"width": NARROW} if model == "gru" else {}
    return Candidate(name, title, family, model, own, by_gradient, by_gradient or model == "bigram")


def choose(names: Sequence[str], known: Mapping[str, Candidate]) -> tuple[Candidate, ...]:
    """The candidates of that name, family or pattern (kn*), in the table's order; all of them where none is named."""
    asked = [name for words in names for name in words.split(",") if name]
    if not asked:
        if names:
            raise UserError(f"models must name at least one: {','.join(names)!r}; leave it out for all of them")
        return tuple(known.values())
    families = list(dict.fromkeys(one.family for one in known.values()))
    for name in asked:
        if not any(_matches(name, one) for one in known.values()):
            near = difflib.get_close_matches(name, [*known, *families], 1)
            all_names = f"names are {', '.join(known)}; families are {', '.join(families)}"
            remedy = f"did you mean {near[0]}?" if near else all_names
            raise UserError(f"there is no model {name!r} to compare; {remedy}")
    return tuple(one for one in known.values() if any(_matches(name, one) for name in asked))


def _matches(name: str, candidate: Candidate) -> bool:
    return fnmatch(candidate.name, name) or candidate.family == name


def parts_of_mixture(
    among: Sequence[Candidate], tokenizers: Mapping[str, str], validation: Mapping[str, float]
) -> list[str]:
    """The n-gram of the highest order and the two best networks, of one tokenizer: a third adds next to nothing.

    `tokenizers` are the fingerprints of the runs that are there, `validation` the bits per byte of validation chunks of
    the training text, where a run has them: the text that is reported chooses nothing. The n-gram needs no such result,
    because Kneser-Ney of a higher order interpolates with the lower ones where it has seen little.
    """
    there = [one for one in among if one.name in tokenizers]
    neural = [one for one in there if one.by_gradient and one.name in validation]
    shared = [tokenizers[one.name] for one in (neural or there) if not one.settings.get("tokenizer")][:1]
    ngrams = [one for one in there if one.model == "ngram" and [tokenizers[one.name]] == shared]
    parts = [max(ngrams, key=lambda one: one.settings["order"]).name] if ngrams else []
    kin = [one.name for one in neural if [tokenizers[one.name]] == shared]
    return parts + sorted(kin, key=lambda name: validation[name])[:2]
