"""Every model by name, and how a model is described and built again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from octavo.config import from_json
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.models.bag import Bag, BagConfig
from octavo.models.bert import Bert, BertConfig
from octavo.models.bigram import Bigram, BigramConfig
from octavo.models.classifier_head import Head, HeadConfig
from octavo.models.dan import Dan, DanConfig, Linear, LinearConfig
from octavo.models.gpt import GPT
from octavo.models.mix import Mix, MixConfig
from octavo.models.ngram import NGram, NGramConfig
from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import GRU, LSTM, RNN, RecurrentConfig
from octavo.models.rnn_attention import RNNAttention, RNNAttentionConfig
from octavo.models.seq2seq import Seq2Seq, Seq2SeqConfig
from octavo.models.seq2seq_recurrent import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from octavo.models.vit import DaVit, DaVitConfig, Vit, VitConfig

__all__ = [
    "CONFIGS",
    "COUNTED",
    "ENCODERS",
    "ENCODER_CONFIGS",
    "GPT",
    "GRU",
    "LSTM",
    "MODELS",
    "NEURAL",
    "PRESETS",
    "RNN",
    "Bag",
    "Bert",
    "Bigram",
    "Mix",
    "NGram",
    "RNNAttention",
    "build",
    "describe",
    "name_of",
    "preset",
]  # fmt: skip

MODELS: dict[str, type[LanguageModel[Any]]] = {
    "bag": Bag, "ngram": NGram, "bigram": Bigram, "rnn": RNN, "gru": GRU, "lstm": LSTM, "rnn-attention": RNNAttention,
    "gpt": GPT, "mix": Mix,
}  # fmt: skip
CONFIGS: dict[str, type] = {
    "bag": BagConfig, "ngram": NGramConfig, "bigram": BigramConfig, "rnn": RecurrentConfig, "gru": RecurrentConfig,
    "lstm": RecurrentConfig, "rnn-attention": RNNAttentionConfig, "gpt": GPTConfig, "mix": MixConfig,
}  # fmt: skip
ENCODERS: dict[str, type[nn.Module]] = {  # models that predict no next token by themselves
    "linear": Linear, "dan": Dan, "head": Head, "bert": Bert, "seq2seq": Seq2Seq, "seq2seq-recurrent": RecurrentSeq2Seq,
    "vit": Vit, "davit": DaVit,
}  # fmt: skip
ENCODER_CONFIGS: dict[str, type] = {
    "linear": LinearConfig, "dan": DanConfig, "head": HeadConfig, "bert": BertConfig, "seq2seq": Seq2SeqConfig,
    "seq2seq-recurrent": RecurrentSeq2SeqConfig, "vit": VitConfig, "davit": DaVitConfig,
}  # fmt: skip
COUNTED = ("bag", "ngram", "bigram")  # learn from counts of the text, at once
NEURAL = ("rnn", "gru", "lstm", "rnn-attention", "gpt")  # learn window by window
PRESETS: dict[str, tuple[str, Any]] = {  # names for settings of a model
    "local": ("gpt", GPTConfig(attention="local")),
    "linear": ("gpt", GPTConfig(attention="linear")),
    "synthesizer": ("gpt", GPTConfig(attention="dense")),
}


def preset(name: str) -> tuple[str, Any]:
    """The model that a name stands for, and its settings where nothing else is said."""
    if name in PRESETS:
        return PRESETS[name]
    if name in CONFIGS:
        return name, CONFIGS[name]()
    near = get_close_matches(name, [*CONFIGS, *PRESETS], 1)
    advice = f"did you mean {near[0]}?" if near else f"models are {', '.join([*CONFIGS, *PRESETS])}"
    raise UserError(f"there is no model {name!r}; {advice}")


def name_of(model: LanguageModel[Any]) -> str:
    """The name a model's class is registered under."""
    return next(name for name, cls in MODELS.items() if type(model) is cls)


def describe(model: LanguageModel[Any]) -> dict[str, Any]:
    """What `build` needs to make the model again, but for its tensors."""
    description: dict[str, Any] = {"model": name_of(model), "config": dataclasses.asdict(model.config)}
    if isinstance(model, Mix):
        return description | {"parts": [describe(part) for part in model.parts]}
    return description | {"vocab": model.vocab} | ({"newline": model.newline} if isinstance(model, NGram) else {})


def build(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> LanguageModel[Any]:
    """The model of a description with the tensors of its `state_dict`."""
    try:
        name = description["model"]
        config: Any = from_json(CONFIGS[name], description["config"])
        if name == "mix":
            parts = [build(part, _below(tensors, f"parts.{i}.")) for i, part in enumerate(description["parts"])]
            model: LanguageModel[Any] = Mix(config, parts)
        elif name == "ngram":
            model = NGram(config, description["vocab"], description["newline"])
        else:
            model = _empty(name, config, description["vocab"], tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"this is not the description of a model that octavo {list(MODELS)} knows: {error!r}"
        ) from error
    model.load_tensors({key: value for key, value in tensors.items() if not key.startswith("parts.")})
    return model


def _empty(name: str, config: Any, vocab: int, tensors: Mapping[str, Tensor]) -> LanguageModel[Any]:
    """A model without values, of the size that its file has: a forged config must not take memory without bound."""
    if getattr(config, "layers", 1) > len(tensors):
        raise UserError(f"a layer has tensors of its own: layers={config.layers}, the file has {len(tensors)} tensors")
    try:
        with torch.device("meta"):  # where shapes take no memory
            model = MODELS[name](config, vocab)
    except RuntimeError as error:  # a shape beyond what any tensor can have
        raise UserError(f"no tensor can be as large as the config says: {dataclasses.asdict(config)}") from error
    own = model.own_tensors()
    for key in own:
        if key in tensors and own[key].shape != tensors[key].shape:
            shapes = f"{tuple(own[key].shape)}, the file has {tuple(tensors[key].shape)}"
            raise UserError(f"tensor {key} must have the shape {shapes}; it is of another model")
    return model.to_empty(device="cpu") if own.keys() == tensors.keys() else model  # which load_tensors refuses


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
