"""What a comparison is asked to do: which text, which candidates, for how long."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

from octavo import __version__
from octavo.config import LARGEST_INT, Range, check_ranges, plain_json
from octavo.errors import UserError, did_you_mean
from octavo.experiments.cell import first_part
from octavo.experiments.compare.compressors import COMPRESSORS, why_missing
from octavo.experiments.compare.rows import COMPRESSOR, MIXTURE, PRETRAINED
from octavo.experiments.runner import Store, check_folder
from octavo.io.files import whole_file
from octavo.models import find_spec, language_models
from octavo.models.spec import MULTI_BYTE, SHORT_BUDGET_SECONDS, Sizes
from octavo.tasks.corpus import TextConfig
from octavo.tasks.device import pick_device
from octavo.tasks.run_page import flags_of
from octavo.text import Corpus, Split
from octavo.text.reading import STDIN
from octavo.training.schedule import Budget

SHORT_BUDGET_EVALUATIONS = 4  # instead of the usual ten, each of which takes most of a second


@dataclass(frozen=True)
class Candidate:
    """A model with its settings, under the name of its row."""

    name: str
    title: str
    family: str
    model: str  # as octavo train knows it; of a compressor, its own name
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_gradient: bool = False  # whether it is trained for as long as it may
    is_random: bool = False  # whether it begins with random weights, so that another seed gives another result
    variant_of: str = ""  # the candidate that it is with another tokenizer
    only_if_named: bool = False  # left out where no models are named
    part_families: tuple[str, ...] = ()  # of a mixture, those that its parts are of
    missing: str = ""  # why it cannot be used here, and what to do about it
    sizes: Sizes | None = None  # larger ones, for devices that train them far enough in the budget
    chosen: str = ""  # which of them it is, and why


def candidates(seconds: float | None = None, device: str = "cpu") -> dict[str, Candidate]:
    """All of them by name, in the table's order; `seconds`: how long each is trained, where that is a time.

    The models' own come from their specs, those of installed packages included; so do those with other tokenizers,
    which `choose` takes only where they are named, or where the text has characters of several bytes.
    """
    found = []
    for spec in language_models():
        by_gradient = spec.trained_by_gradient
        short = by_gradient and seconds is not None and seconds < SHORT_BUDGET_SECONDS
        usual = {"evaluations": SHORT_BUDGET_EVALUATIONS} if short else {}
        found += [
            Candidate(one.name, one.title, spec.family, one.model, {**usual, **one.settings}, by_gradient,
                      by_gradient or spec.uses_seed, one.variant_of, one.only_if_named,
                      one.part_families, sizes=one.sizes)
            for one in spec.compared_as(seconds, device, math.inf)
        ]  # fmt: skip
    found.sort(key=lambda one: one.family == MIXTURE)  # it is made of the others
    found += [Candidate(name, name, COMPRESSOR, name, missing=why_missing(name)) for name in COMPRESSORS]
    return {one.name: one for one in found}


def choose(
    names: Sequence[str], known: Mapping[str, Candidate], bytes_per_character: float = 1.0
) -> tuple[Candidate, ...]:
    """The candidates of that name, family or pattern (kn*), in the table's order; where none is named, all of them but
    those that are compared only if named.

    Those with other tokenizers need a text whose characters have several bytes, or to be named. One that needs a
    package or a program which is not here is refused where only such ones are asked for, else left out.
    """
    here = [one for one in known.values() if not one.missing]
    offered = [one for one in here if not one.variant_of or bytes_per_character >= MULTI_BYTE]
    asked = [name for words in names for name in words.split(",") if name]
    if not asked:
        if names:
            raise UserError(f"models must name at least one: {','.join(names)!r}; leave it out for all of them")
        return tuple(one for one in offered if not one.only_if_named)
    families = list(dict.fromkeys(one.family for one in known.values()))
    for name in asked:
        matching = [one for one in known.values() if _matches(name, one)]
        if matching and all(one.missing for one in matching):
            raise UserError(matching[0].missing)
        if not matching:
            all_names = f"names are {', '.join(known)}; families are {', '.join(families)}"
            remedy = did_you_mean(name, [*known, *families], all_names)
            raise UserError(f"there is no model {name!r} to compare; {remedy}")
    return tuple(
        one for one in here
        if one.name in asked or (one in offered and any(_matches(name, one) for name in asked))
    )  # fmt: skip


def _matches(name: str, candidate: Candidate) -> bool:
    return fnmatch(candidate.name, name) or candidate.family == name


def parts_of_mixture(
    among: Sequence[Candidate], tokenizers: Mapping[str, str], validation: Mapping[str, float], adaptive: bool = False
) -> list[str]:
    """The n-gram of the highest order and the two best networks, of one tokenizer: a third adds next to nothing.

    An adaptive mixture takes an adaptive n-gram, where there is one, and one network, which learns while it reads.

    `tokenizers` are the fingerprints of the runs that are there, `validation` the bits per byte of validation chunks of
    the training text, where a run has them: the text that is reported chooses nothing. The n-gram needs no such result,
    because Kneser-Ney of a higher order interpolates with the lower ones where it has seen little. Of several
    tokenizers it is that of the best network that has a partner.
    """
    there = [one for one in among if one.name in tokenizers]
    neural = sorted((one for one in there if one.by_gradient and one.name in validation),
                    key=lambda one: validation[one.name])  # fmt: skip
    usual = [one for one in there if not one.settings.get("tokenizer")]
    found: list[str] = []
    for tokenizer in dict.fromkeys(tokenizers[one.name] for one in neural or usual):  # that of the best network first
        same = [one for one in there if tokenizers[one.name] == tokenizer]
        counted = [one for one in same if one.model in ("ngram", "adaptive-ngram")]
        ngrams = [one for one in counted if find_spec(one.model).is_adaptive == adaptive] or (
            counted if adaptive else [])  # fmt: skip
        parts = [max(ngrams, key=lambda one: one.settings["order"]).name] if ngrams else []
        parts += [one.name for one in neural if one in same][: 1 if adaptive and parts else 2]
        if len(parts) > 1:
            return parts
        found = found or parts
    return found


def why_no_mixture(parts: Sequence[str], families: Sequence[str], unmeasured: Sequence[str]) -> str:
    """Why a mixture cannot be made of the parts that are there; some networks may be there without a result."""
    if families:
        return f"a mixture of {', '.join(families)} needs one of them; add to --models"
    if unmeasured:
        return (
            "a mixture chooses its networks by validation chunks, for which the training text is too short: "
            f"{', '.join(unmeasured)} could not be measured; give more text"
        )
    return (
        "a mixture needs an n-gram and a network, or two networks, with one tokenizer: "
        f"{', '.join(parts) or 'none'} can be had; add to --models"
    )


KIND = "comparison"
DEFAULT_BUDGET, QUICK_BUDGET = "60s", "14s"  # of training, for a neural model
MIN_SCORED_BYTES = 1 << 18  # of held-out text: all of most texts
SCORED_BYTES_PER_TRAINING_SECOND = 1 << 12  # and how many more for each second of training beyond
OWN_TEXT = "text.txt"
LONGEST_NAME = 200  # characters; a longer string is a text, not the name of one

Text = str | bytes | Path | Sequence[str | Path]


@dataclass(frozen=True)
class CompareConfig:
    """What to compare, and how long each model may take."""

    models: tuple[str, ...] = ()
    """Names (gru, kn7, kn5-char), families (counts, recurrent, attention, mixture, compressor) or patterns (kn*), with
    commas or spaces between; without any, all of them, with char and bpe tokenizers too where a character of the text
    has 1.5 bytes or more on average. The compressors brotli and ppmd need pip install 'octavo[compressors]', zpaq and
    paq8px the programs of these names; without, they are left out."""
    budget: str = ""
    """How long each neural model is trained: 60s, 5min, 2000steps or 2Mtokens; by default 60s."""
    total: str = ""
    """The same for all neural models together, in equal shares."""
    quick: bool = False
    """A budget that is done in a few minutes."""
    seeds: Annotated[int, Range(1, 10_000)] = 1
    """Train what begins with random weights so many times, and show the mean and its interval."""
    pretrained: tuple[str, ...] = ()
    """Models that are only measured: run folders, GGUF files, Hugging Face folders, or smollm2."""
    tokenizer: str = "byte"
    """byte, char, word or bpe, or a tokenizer.json."""
    valid: tuple[str, ...] = ()
    """Text to measure on; without it the last tenth of the text."""
    field: str = "text"
    """JSON lines, parquet: where the text is."""
    encoding: str = "utf-8"
    """The encoding of the text: utf-8, latin-1, utf-16, cp1252, or any other of Python's."""
    bytes: Annotated[int, Range(0, LARGEST_INT)] = 0
    """Measure on at most so many bytes; 0: all that is held out, or as much as takes little beside the training."""
    sizes: bool = True
    """Larger networks where the device trains them far enough in the budget; --no-sizes takes those of two cores."""
    prove: bool = True
    """The best model compresses the held-out text and restores it in the end; --no-prove leaves the proof out."""
    seed: Annotated[int, Range(0, LARGEST_INT)] = 0
    """For first weights, the order of the text, dropout and samples."""
    device: str = "auto"
    """Where networks are trained and measured: auto, cpu, cuda, cuda:N or mps."""

    def __post_init__(self) -> None:
        given = [f"--{name}" for name in ("budget", "total", "quick") if getattr(self, name)]
        if len(given) > 1:
            raise UserError(f"how long to train can be said in one way: {' and '.join(given)} were given; choose one")
        for budget in filter(None, (self.budget, self.total)):
            Budget.parse(budget)
        check_ranges(self)
        choose(self.models, candidates())
        pick_device(self.device)

    @property
    def picked_device(self) -> str:
        """cpu, cuda, cuda:N or mps."""
        return str(pick_device(self.device))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What is compared, with the settings for this budget and device, in the table's order."""
        return choose(self.models, candidates(self.seconds_each, self.picked_device))

    def for_text(self, bytes_per_character: float) -> CompareConfig:
        """The same with the names of the candidates that suit the text: with a tokenizer of its own choice, or where
        nearly every character is a byte, other tokenizers are not compared."""
        bytes_per_character = bytes_per_character if self.tokenizer == CompareConfig.tokenizer else 1.0
        return replace(self, models=tuple(one.name for one in choose(self.models, candidates(), bytes_per_character)))

    @property
    def pretrained_candidates(self) -> list[Candidate]:
        """The models that are only measured, each under a name unlike that of every other row."""
        named: dict[str, Candidate] = {}
        taken = candidates()
        for path in dict.fromkeys(self.pretrained):
            stem = Path(path).absolute().name.removesuffix(".gguf")
            names = (stem, *(f"{stem}-{i}" for i in range(2, len(self.pretrained) + len(taken) + 2)))
            name = next(name for name in names if name not in named and name not in taken)
            named[name] = Candidate(name, name, PRETRAINED, path)
        return list(named.values())

    @property
    def each(self) -> str:
        """The budget of one neural model."""
        if not self.total:
            return self.budget or (QUICK_BUDGET if self.quick else DEFAULT_BUDGET)
        neural = sum(one.by_gradient for one in choose(self.models, candidates()))
        total, share = Budget.parse(self.total), max(1, self.seeds * neural)
        unit = {"seconds": "s"}.get(total.kind, total.kind)
        amount = total.amount / share if total.kind == "seconds" else max(1, total.amount // share)
        return f"{amount:.9g}{unit}"

    @property
    def seconds_each(self) -> float | None:
        """The budget of one neural model, where it is a time."""
        budget = Budget.parse(self.each)
        return budget.amount if budget.kind == "seconds" else None

    @property
    def text(self) -> TextConfig:
        """How the text is read."""
        return TextConfig(tokenizer=self.tokenizer, valid=self.valid, field=self.field, encoding=self.encoding)

    @property
    def common(self) -> dict[str, Any]:
        """What all rows must have in common, so that a comparison can be resumed."""
        alike = {name: getattr(self, name) for name in ("seeds", "tokenizer", "field", "bytes", "sizes", "seed")}
        return alike | {"budget": self.each, "device": self.picked_device, "octavo": __version__}

    def scored_part(self, corpus: Corpus) -> Split:
        """The part of the held-out text that every model is measured on: its beginning, or all of it."""
        seconds = min(self.seconds_each or 0.0, 600.0)
        limit = self.bytes or MIN_SCORED_BYTES + int(SCORED_BYTES_PER_TRAINING_SECOND * seconds)
        return first_part(corpus.valid, limit)

    def to_json(self) -> dict[str, Any]:
        """The settings as the page shows them."""
        values: dict[str, Any] = plain_json(self)
        return values | self.common | {"models": [one.name for one in self.candidates]}


@dataclass(frozen=True)
class Place:
    """Where the text is, and the folder for what comes of it."""

    sources: list[str]
    folder: Path
    name: str
    own_text: bytes | None = None  # what is compared, where it is not in a file yet

    def save_text(self) -> None:
        """A text of the caller's own goes into the folder, because it is read again when the comparison is resumed."""
        if self.own_text is None:
            return
        path = self.folder / OWN_TEXT
        if path.is_file() and path.read_bytes() != self.own_text:
            raise UserError(f"{self.folder} is a comparison of another text; choose another out")
        if not path.is_file():
            check_folder(self.folder, KIND, (OWN_TEXT,))
            with whole_file(path) as file:
                file.write(self.own_text)

    def open_store(self, common: Mapping[str, Any], differs: Callable[[Mapping[str, Any]], str]) -> Store:
        """What is stored of the comparison; the folder may hold its text already."""
        return Store.open(self.folder, KIND, common, differs, (OWN_TEXT,))

    def command(self, config: CompareConfig, where: Sequence[str] = ()) -> str:
        """The words that reproduce the comparison, as a shell takes them."""
        return shlex.join(self.words(config, where))

    def words(self, config: CompareConfig, where: Sequence[str] = ()) -> list[str]:
        """The words that reproduce the comparison, or resume it; `where` says where it is executed."""
        return ["octavo", "compare", *self.sources, *flags_of(config), *where, "--out", str(self.folder)]


def place_of(text: Text, out: str | Path | None) -> Place:
    """What was named, and where the comparison goes.

    Bytes are the text itself; a Path, or a list, are files, folders and named sources. A string of one short line is
    such a name too, and a longer one the text itself.
    """
    if isinstance(text, bytes) or (isinstance(text, str) and ("\n" in text or len(text) > LONGEST_NAME)):
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        folder = Path(out) if out is not None else Path("runs") / f"compare-{hashlib.sha256(data).hexdigest()[:8]}"
        return Place([str(folder / OWN_TEXT)], folder, "text", data)
    sources = [str(text)] if isinstance(text, str | Path) else list(map(str, text))
    if STDIN in sources:
        raise UserError("a comparison reads its text several times, and standard input can be read once; name a file")
    name = "-".join(Path(source).stem for source in sources[:3])
    return Place(sources, Path(out) if out is not None else Path("runs") / f"compare-{name}", name)
