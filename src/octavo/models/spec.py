"""What octavo knows about a model: one value beside its class, which everything else reads.

A model file ends with `SPEC = ModelSpec(...)`; `octavo.models.MODELS` lists the specs by name, those of installed
packages included (entry-point group `octavo.models`; docs/extending.md builds one step by step).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from octavo.core import LanguageModel
from octavo.engines.engine import Engine
from octavo.engines.stages import Stages
from octavo.models.cost.parts import Cost
from octavo.models.views import Bars, Table, View
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.word_vectors import Origin

Fitting = Literal["counts", "gradient", "mixture"]
GPUUse = Literal["", "faster", "possible", "none"]
SHORT_BUDGET_SECONDS = 60.0  # of training: in less, a model gets further with settings of its own
MULTI_BYTE = 1.5  # bytes per character, from which on other tokenizers are compared: English has 1.0, Russian 1.8,
# Chinese nearly 3


@dataclass(frozen=True)
class Preset:
    """A name of its own for a model with some settings."""

    title: str
    description: str
    config: Any


class ScalingLaw(NamedTuple):
    """Bits per byte of held-out text after a training: E + a P^-alpha + b D^-beta, with P weights and D tokens seen
    (Hoffmann and others, 2022). E, what the text itself takes, is the same for all sizes."""

    a: float
    alpha: float
    b: float
    beta: float


@dataclass(frozen=True)
class Sizes:
    """Larger sizes of a candidate, of which a comparison takes the one that gets furthest in the budget."""

    settings: tuple[Mapping[str, Any], ...]
    """What each size sets, the smallest first; the candidate as it is comes before them."""
    law: ScalingLaw


@dataclass(frozen=True)
class Candidate:
    """A row of `octavo compare`: a model, as `octavo train` knows it, with its settings."""

    name: str
    title: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokenizers: tuple[str, ...] = ()
    """That it is compared with as well, where the characters of the text have several bytes: char, bpe."""
    variant_of: str = ""
    """The name of the candidate that this is with another tokenizer."""
    part_families: tuple[str, ...] = ()
    """Of a mixture, the families that its parts are of; without any, an n-gram model and the best networks."""
    only_if_named: bool = False
    """Left out where a comparison names no models; its name, its family or a pattern brings it in."""
    sizes: Sizes | None = None
    """Larger sizes, for devices that get further with them."""

    def variants(self) -> tuple[Candidate, ...]:
        """The candidate with each of its further tokenizers."""
        return tuple(
            Candidate(f"{self.name}-{one}", f"{self.title}, {one} tokens", self.model,
                      {**self.settings, "tokenizer": one}, variant_of=self.name, only_if_named=self.only_if_named,
                      sizes=self.sizes)
            for one in self.tokenizers
        )  # fmt: skip


class FitContext(NamedTuple):
    """What fitting to counts may use besides the tokens."""

    seed: int = 0
    folder: Path | None = None  # where memory is short: large tables are mapped from files in it


class Fitted(NamedTuple):
    """A model that was fitted to counts."""

    model: LanguageModel[Any]
    history: Sequence[dict[str, Any]] = ()  # rows of metrics.jsonl; `flops` in one are the operations it took
    notes: Sequence[str] = ()  # for the user
    learnt_from: Sequence[Origin] = ()  # what it started from, beside the text it was given: pretrained vectors


FitFunction = Callable[[Tensor, Any, Tokenizer, FitContext], Fitted]
EngineFit = Callable[[Engine, Stages, Path, Any, Tokenizer], Fitted]
CandidateFunction = Callable[[float | None, str], Sequence[Candidate]]


@dataclass(frozen=True)
class ModelSpec:
    """Everything the rest of octavo needs to know about a model."""

    name: str
    """As `octavo train NAME` takes it."""
    title: str
    """A short name for tables and figures: GRU."""
    description: str
    """One line for help texts and lists."""
    family: str
    """counts, recurrent, convolution, feed-forward, attention, mixture, encoder, encoder-decoder, vision,
    classifier, tagger, or one of your own."""
    model: type[nn.Module]
    config: type
    """A frozen dataclass: its fields are the model's flags."""
    task: str = "language"
    """language, masked, translation, images, classification or tagging."""
    fitting: Fitting = "gradient"
    """gradient: trained step by step; counts: `fit` makes it from the tokens; mixture: made of trained models."""
    gpu: GPUUse = ""
    """faster: `--device auto` takes a GPU for all but small work; possible: only where one is named, because looking
    numbers up is soon done; none: it computes on the CPU alone. "": possible of a model fitted to counts, faster of any
    other."""
    fit: FitFunction | None = None
    fit_by_engine: EngineFit | None = None
    """counts: fit_by_engine(engine, stages, tokens, config, tokenizer) makes the same model from a folder of token ids
    that need not fit into memory. None: no engine can."""
    counting_job: Callable[[Any], Mapping[str, Any]] = lambda config: {}
    """Of `fit_by_engine`: the settings that the stages depend on, which a killed job goes on from."""
    uses_seed: bool = False
    """counts: whether `fit` begins with random weights, so that another seed gives another model."""
    presets: Mapping[str, Preset] = field(default_factory=dict)
    cost: Callable[[Any, Any, Any], Cost] | None = None
    """cost(config, vocab, shape) of a language model; of other tasks, sizes instead of vocab. None: counted from the
    weights' shapes (`octavo.costs.cost_from_weights`)."""
    views: tuple[View, ...] = ()
    """What `octavo inspect` and the studio can show of it."""
    candidates: CandidateFunction | None = None
    """candidates(seconds, device) in `octavo compare`; seconds is the training time of each, or None where the budget
    is no time. None: a row for the model as it is, and one for each preset."""
    summarise: Callable[[Any, str], str] | None = None
    """summarise(model, tokens): a trained model in a few words: 7-gram of bytes, Kneser-Ney."""
    details: Callable[[Any, Callable[[int], str]], Bars | Table] | None = None
    """details(model, spell): what a page shows of the model's inside without a text; `spell` shows a token."""
    entries: str = "numbers"
    """What the model stores: numbers, n-grams."""
    count_entries: Callable[[Any], int] | None = None
    """How many of them. None: every number of its tensors."""
    parts: Callable[[Any], Sequence[LanguageModel[Any]]] = lambda model: ()
    """Of a mixture, the models that it mixes."""
    adaptive_variant: str = ""
    """The model that `octavo train NAME --adaptive` trains instead: one that goes on learning while it reads."""
    unused_settings: Callable[[Any], Sequence[str]] = lambda config: ()
    """Settings that a config has and does not use: advice leaves them out."""
    exports: tuple[str, ...] = ()
    """Formats that `octavo export` can write it in, besides ONNX, which takes every network: arpa, hf, gguf."""
    log_tables: tuple[str, ...] = ()
    """Names of tensors that hold log-probabilities, and so may be minus infinity; all others are finite when loaded."""
    equation: str = ""
    """What it computes, an equation a line in the letters of the code: h_t = tanh(W x_t + U h_{t-1} + b)."""

    @property
    def trained_by_gradient(self) -> bool:
        return self.fitting == "gradient"

    @property
    def gpu_use(self) -> GPUUse:
        """What a GPU is to the model."""
        return self.gpu or ("possible" if self.fitting == "counts" else "faster")

    @property
    def is_adaptive(self) -> bool:
        """Whether the model goes on learning while it reads."""
        return bool(getattr(self.model, "adaptive", False))

    @property
    def has_gates(self) -> bool:
        """Whether its views show values between 0, shut, and 1, open."""
        return any(not tap.signed for view in self.views for tap in view.taps)

    def compared_as(
        self, seconds: float | None = None, device: str = "cpu", bytes_per_character: float = 1.0
    ) -> tuple[Candidate, ...]:
        """The model's rows in `octavo compare`, for so many seconds of training on a device; with other tokenizers
        too where the characters of the text have at least 1.5 bytes on average."""
        rows = self._candidates(seconds, device)
        return (
            rows if bytes_per_character < MULTI_BYTE else tuple(one for row in rows for one in (row, *row.variants()))
        )

    def _candidates(self, seconds: float | None, device: str) -> tuple[Candidate, ...]:
        if self.candidates is not None:
            return tuple(self.candidates(seconds, device))
        if self.task != "language" or self.fitting == "mixture":
            return ()
        return (
            Candidate(self.name, self.title, self.name),
            *(Candidate(name, preset.title, name) for name, preset in self.presets.items()),
        )

    def views_of(self, model: Any) -> tuple[View, ...]:
        """The views that a model has, with the parts that it is made of."""
        return tuple(view for view in self.views if view.applies(model))

    def view(self, name: str) -> View | None:
        """The view of that name, where the model has it."""
        return next((view for view in self.views if view.name == name), None)
