"""The candidates of a comparison: every model's own, from the simplest to the mixture of the best, and compressors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from octavo.errors import UserError
from octavo.experiments.compare.rows import COMPRESSOR, MIXTURE
from octavo.models import Candidate as SpecCandidate
from octavo.models import ModelSpec, language_models
from octavo.models.spec import SHORT_BUDGET_SECONDS

MIX = "mix"
COMPRESSORS = ("zlib", "bz2", "xz", "zstd")
SHORT_BUDGET_EVALUATIONS = 4  # instead of the usual ten, each of which takes most of a second


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


def candidates(seconds: float | None = None, device: str = "cpu") -> dict[str, Candidate]:
    """All of them by name, in the table's order; `seconds`: how long each is trained, where that is a time.

    The models' own come from their specs, those of installed packages included.
    """
    found = [_of_spec(spec, one, seconds) for spec in language_models() for one in spec.compared_as(seconds, device)]
    found.sort(key=lambda one: one.family == MIXTURE)  # it is made of the others
    found += [Candidate(name, name, COMPRESSOR, name) for name in COMPRESSORS]
    return {one.name: one for one in found}


def _of_spec(spec: ModelSpec, one: SpecCandidate, seconds: float | None) -> Candidate:
    short = spec.trained_by_gradient and seconds is not None and seconds < SHORT_BUDGET_SECONDS
    settings = ({"evaluations": SHORT_BUDGET_EVALUATIONS} if short else {}) | dict(one.settings)
    is_random = spec.trained_by_gradient or spec.uses_seed
    return Candidate(one.name, one.title, spec.family, one.model, settings, spec.trained_by_gradient, is_random)


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
