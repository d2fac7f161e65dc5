"""Every model by name, and how a model is described and built again."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from octavo.config import from_json
from octavo.core import LanguageModel
from octavo.errors import UserError, did_you_mean
from octavo.io.plugins import load_plugins
from octavo.models import (
    adaptive_mix,
    bag,
    baum_welch,
    bert,
    bigram_training,
    context_tree_fit,
    conv,
    dan,
    gpt,
    hidden_markov,
    linear_attention,
    linear_recurrent,
    mix,
    ngram,
    nnlm,
    recurrent,
    rnn_attention,
    seq2seq,
    seq2seq_recurrent,
    sequence_classifier,
    tagger,
    vit,
)
from octavo.models.bag import Bag
from octavo.models.dynamic_evaluation import DynamicEvaluation
from octavo.models.gpt import GPT
from octavo.models.loading import check_finite, shapes_only
from octavo.models.mix import Mix
from octavo.models.ngram import AdaptiveNGram, NGram
from octavo.models.recurrent import GRU, LSTM, RNN
from octavo.models.rnn_attention import RNNAttention
from octavo.models.spec import Candidate, ModelSpec

# And what is defined below.
__all__ = ["GPT", "GRU", "LSTM", "RNN", "Bag", "Candidate", "Mix", "ModelSpec", "NGram", "RNNAttention"]

SPECS = (
    bag.SPEC, ngram.SPEC, ngram.ADAPTIVE_SPEC, context_tree_fit.SPEC, bigram_training.SPEC, nnlm.SPEC,
    recurrent.RNN_SPEC, recurrent.GRU_SPEC, recurrent.LSTM_SPEC, rnn_attention.SPEC, linear_recurrent.MINGRU_SPEC,
    linear_recurrent.MINLSTM_SPEC, linear_recurrent.LRU_SPEC, linear_recurrent.RGLRU_SPEC, hidden_markov.SPEC,
    baum_welch.SPEC, conv.SPEC, gpt.SPEC, *linear_attention.SPECS, mix.SPEC, adaptive_mix.SPEC, vit.VIT_SPEC,
    vit.DAVIT_SPEC, seq2seq.SPEC, seq2seq_recurrent.SPEC, bert.SPEC, dan.DAN_SPEC, dan.LINEAR_SPEC, dan.HEAD_SPEC,
    sequence_classifier.SPEC, tagger.SPEC,
)  # fmt: skip
BUILT_IN: dict[str, ModelSpec] = {spec.name: spec for spec in SPECS}
COUNTED = (NGram, AdaptiveNGram)  # which know the end of a line
if TYPE_CHECKING:
    MODELS: dict[str, ModelSpec]


def __getattr__(name: str) -> Any:
    """MODELS are the built-in ones and those of installed packages, which are searched for on first use: a package
    may itself be the first to import octavo."""
    if name != "MODELS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["MODELS"] = BUILT_IN | load_models(BUILT_IN)
    return globals()["MODELS"]


def load_models(built_in: Mapping[str, ModelSpec]) -> dict[str, ModelSpec]:
    """The specs of installed packages (entry-point group `octavo.models`) by name; one that is broken, or takes a name
    that is taken, is left out."""
    taken = {*built_in, *(preset for spec in built_in.values() for preset in spec.presets)}

    def check(spec: object, name: str) -> ModelSpec:
        if not isinstance(spec, ModelSpec):
            raise TypeError(f"{name} must be a ModelSpec, not a {type(spec).__name__}")
        names = {spec.name, *spec.presets}
        if names & taken:
            raise ValueError(f"the name {', '.join(sorted(names & taken))} is taken; choose another")
        taken.update(names)
        return spec

    return {spec.name: spec for spec in load_plugins("octavo.models", "model", check).values()}


def _models() -> dict[str, ModelSpec]:
    from octavo.models import MODELS

    return MODELS


def language_models() -> Iterator[ModelSpec]:
    """The specs of models that predict the next token."""
    return (spec for spec in _models().values() if spec.task == "language")


def names() -> list[str]:
    """What `octavo train` calls language models, presets included."""
    return [name for spec in language_models() for name in (spec.name, *spec.presets)]


def find_spec(name: str) -> ModelSpec:
    """The spec of a model, by its own name or by that of one of its presets."""
    models = _models()
    if name in models:
        return models[name]
    for spec in models.values():
        if name in spec.presets:
            return spec
    advice = did_you_mean(name, [*models, *names()], f"models are {', '.join(names())}")
    raise UserError(f"there is no model {name!r}; {advice}")


def adaptive_variant(name: str) -> str:
    """The model that goes on learning while it reads, of one that counts or mixes."""
    spec = find_spec(name)
    if spec.adaptive_variant and name == spec.name:  # a preset's settings may mean nothing to the variant
        return spec.adaptive_variant
    known = [spec.name for spec in language_models() if spec.adaptive_variant]
    raise UserError(
        f"--adaptive is for {' and '.join(known)} where a model is trained; a trained network adapts while it is "
        "scored: octavo eval RUN TEXT --adaptive"
    )


def preset(name: str) -> tuple[str, Any]:
    """The language model that a name stands for, and its settings where nothing else is said."""
    spec = find_spec(name)
    if spec.task != "language":
        raise UserError(f"{name} is no language model: it belongs to the task {spec.task}; try {', '.join(names())}")
    return spec.name, spec.presets[name].config if name in spec.presets else spec.config()


def spec_of(model: nn.Module) -> ModelSpec:
    """The spec that a model's class is registered with; of a network that learns while it reads, the network's."""
    kind = type(model.base if isinstance(model, DynamicEvaluation) else model)
    for spec in _models().values():
        if kind is spec.model:
            return spec
    raise UserError(f"a model needs a ModelSpec: {type(model).__name__} has none; docs/extending.md shows how")


def name_of(model: nn.Module) -> str:
    """The name that a model's class is registered under."""
    return spec_of(model).name


def describe(model: LanguageModel[Any]) -> dict[str, Any]:
    """What `build` needs to make the model again, but for its tensors."""
    if isinstance(model, DynamicEvaluation):  # which no folder holds: an archive's identity has it
        return {**describe(model.base), "adaptive": dataclasses.asdict(model.adaptation)}
    spec = spec_of(model)
    description: dict[str, Any] = {"model": spec.name, "config": dataclasses.asdict(model.config)}
    if parts := spec.parts(model):
        return description | {"parts": [describe(part) for part in parts]}
    return description | {"vocab": model.vocab} | ({"newline": model.newline} if isinstance(model, COUNTED) else {})


def stored_entries(model: LanguageModel[Any]) -> dict[str, int]:
    """How many entries a model stores, by what they are: {"n-grams": 1234}; of a mixture with those of its parts."""
    spec, own = spec_of(model), model.own_tensors().values()
    count = sum(tensor.numel() for tensor in own) if spec.count_entries is None else spec.count_entries(model)
    entries = Counter({spec.entries: count})
    for part in spec.parts(model):
        entries.update(stored_entries(part))
    return dict(entries)


def parameter_count(model: nn.Module) -> int:
    """How many parameters a model has: the one count that tables, pages, verbs and records give.

    Counted is every number that training sets: weights, tied ones once, learned positions and random features that are
    drawn once among them; of a model that counts, each n-gram or token that has a probability; of a mixture, its parts
    and its own weights. What is computed from the settings, as rotary angles are, is not.
    """
    if isinstance(model, LanguageModel):
        return sum(stored_entries(model).values())
    return sum(weight.numel() for weight in model.parameters())


def build(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> LanguageModel[Any]:
    """The model of a description with the tensors of its `state_dict`."""
    try:
        name = description["model"]
        config: Any = from_json({spec.name: spec for spec in language_models()}[name].config, description["config"])
        if _models()[name].fitting == "mixture":
            mixture: Any = _models()[name].model
            parts = [build(part, _below(tensors, f"parts.{i}.")) for i, part in enumerate(description["parts"])]
            model: LanguageModel[Any] = mixture(config, parts)
        elif name in ("ngram", "adaptive-ngram"):
            counted: Any = _models()[name].model
            model = counted(config, description["vocab"], description["newline"])
        else:
            model = _empty(name, config, description["vocab"], tensors)
    except (KeyError, TypeError, ValueError) as error:
        known = [spec.name for spec in language_models()]
        raise UserError(f"this is not the description of a model that octavo {known} knows: {error!r}") from error
    own = {key: value for key, value in tensors.items() if not key.startswith("parts.")}
    check_finite(own, spec_of(model).log_tables)
    model.load_tensors(own)
    return model


def _empty(name: str, config: Any, vocab: int, tensors: Mapping[str, Tensor]) -> LanguageModel[Any]:
    """A model without values, of the size that its file has; tables that are made empty may be of any length."""
    kind: Any = _models()[name].model
    model: LanguageModel[Any] = shapes_only(lambda: kind(config, vocab), tensors, getattr(config, "layers", 1))
    own = model.own_tensors()
    for key in own:
        if key in tensors and own[key].shape not in (tensors[key].shape, (0,)):
            shapes = f"{tuple(own[key].shape)}, the file has {tuple(tensors[key].shape)}"
            raise UserError(f"tensor {key} must have the shape {shapes}; it is of another model")
    if own.keys() != tensors.keys():
        return model  # which load_tensors refuses
    # torch's to_empty does the same, but takes a second to import what it knows of symbolic shapes.
    apply: Any = model._apply
    apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
    return model


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
