"""GGUF files of llama.cpp, both ways: metadata, tokenizer and weights of a Llama, a Qwen3 or a GPT-2.

D width, K size of a head.

| architecture | what of ours it is | rows of queries and keys |
|---|---|---|
| qwen3 | with QK norm, as Qwen3 | as here |
| llama | without, as Llama and Mistral | the two numbers of a rotated pair beside each other |
| gpt2 | learned positions, layer norm, biases, gelu | as here |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.exchange.decoders import GPT2, LLAMA, QK_NORMS, QWEN3, fitting
from octavo.exchange.gguf_tokenizer import NO_TOKENIZER, special_ids, tokenizer_metadata, tokenizer_parts
from octavo.exchange.imported import ImportedModel, TokenIds, built, with_tokenizer
from octavo.exchange.shapes import Names, Shape
from octavo.io.gguf import Gguf, Kind, read_gguf, write_gguf
from octavo.io.gguf.writer import block_size
from octavo.models.parts.config import GPTConfig
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.bpe import Bpe

Precision = Literal["float16", "q8_0", "float32"]
KINDS: dict[str, tuple[Kind, int]] = {"float16": ("F16", 1), "q8_0": ("Q8_0", 7), "float32": ("F32", 0)}
"""How matrices are stored, and llama.cpp's number for a file of them."""
STRIDE = "octavo.stride"  # how far a full context moves, which llama.cpp has no key for
NAMES = Names(
    owner="a GGUF file of a Llama",
    prefix="",
    layer="blk",
    top={"token_embd.weight": "embedding_VD", "output_norm.weight": "norm.weight_D"},
    inner={
        "attn_norm.weight": "norm1.weight_D", "attn_q.weight": "attention.query_DD",
        "attn_k.weight": "attention.key_ED",
        "attn_v.weight": "attention.value_ED", "attn_output.weight": "attention.out_DD",
        "ffn_norm.weight": "norm2.weight_D",
        "ffn_gate.weight": "feed_forward.gate_FD", "ffn_up.weight": "feed_forward.up_FD",
        "ffn_down.weight": "feed_forward.down_DF",
    },
    output="output.weight",
)  # fmt: skip
QWEN3_NAMES = replace(
    NAMES, owner="a GGUF file of a Qwen3",
    inner={**NAMES.inner, "attn_q_norm.weight": QK_NORMS[0], "attn_k_norm.weight": QK_NORMS[1]},
)  # fmt: skip
GPT2_NAMES = Names(
    owner="a GGUF file of a GPT-2",
    prefix="",
    layer="blk",
    top={
        "token_embd.weight": "embedding_VD", "position_embd.weight": "positions_CD",
        "output_norm.weight": "norm.weight_D", "output_norm.bias": "norm.bias_D",
    },
    inner={
        "attn_norm.weight": "norm1.weight_D", "attn_norm.bias": "norm1.bias_D",
        "attn_qkv.weight": "attention.qkv", "attn_qkv.bias": "attention.qkv_bias",
        "attn_output.weight": "attention.out_DD", "attn_output.bias": "attention.out_bias",
        "ffn_norm.weight": "norm2.weight_D", "ffn_norm.bias": "norm2.bias_D",
        "ffn_up.weight": "feed_forward.up_FD", "ffn_up.bias": "feed_forward.up_bias_F",
        "ffn_down.weight": "feed_forward.down_DF", "ffn_down.bias": "feed_forward.down_bias_D",
    },
    output="output.weight",
)  # fmt: skip
LLAMA_KEYS = {  # metadata, and the setting of config.json that it is
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}  # fmt: skip
GPT2_KEYS = {
    "embedding_length": "n_embd", "feed_forward_length": "n_inner", "block_count": "n_layer",
    "attention.head_count": "n_head", "context_length": "n_positions",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}  # fmt: skip
REAL_KEYS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "rope.freq_base")  # others: whole
HEAD_SIZES = ("rope.dimension_count", "attention.key_length", "attention.value_length")


@dataclass(frozen=True)
class Architecture:
    """One of llama.cpp's decoders: its tensors and settings beside those of Hugging Face."""

    shape: Shape
    keys: Mapping[str, str]
    pairs: bool = False
    """Whether the rows of queries and keys have the two numbers of a rotated pair beside each other."""


FULL = {"attention": ("full",)}  # the graph of llama.cpp has no sliding windows for them
ARCHITECTURES = {
    "gpt2": Architecture(
        replace(GPT2, names=GPT2_NAMES, transposed=(), able={**GPT2.able, "feed_forward": ("gelu",)}), GPT2_KEYS
    ),
    "llama": Architecture(replace(LLAMA, names=NAMES), LLAMA_KEYS, pairs=True),
    "qwen3": Architecture(replace(QWEN3, names=QWEN3_NAMES, able={**QWEN3.able, **FULL}), LLAMA_KEYS),
}


# ---------------------------------------------------------------------- in


def read_llamacpp(path: str | Path, tokenizer: Tokenizer | None = None) -> ImportedModel:
    """The model and the tokenizer of a GGUF file, its weights in single precision."""
    gguf = read_gguf(path)
    try:
        kind = gguf.get("general.architecture", str)
        if kind not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise UserError(
                f"GGUF files of {known} can be read: this one is of the architecture {kind!r}; take another"
            )
        architecture = ARCHITECTURES[kind]
        shape = architecture.shape
        config, vocab = shape.config_of(_settings(gguf, kind))
        if STRIDE in gguf.metadata:
            config = replace(config, stride=gguf.get(STRIDE, int))
        named = shape.names.to_ours({name: name for name in gguf.tensors}, config.layers, config.tied)
        tensors = shape.to_ours({name: torch.from_numpy(gguf.tensor(name)) for name in named.values()}, config)
        if architecture.pairs:
            tensors = _reordered(tensors, config, to_halves=True)
        own = _tokenizer(gguf, vocab)
        model = built(config, vocab, own.begin, tensors)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    kinds = sorted({tensor.kind for tensor in gguf.tensors.values()})
    source = {"file": str(path), "format": "gguf", "stored": ", ".join(kinds)}
    imported = ImportedModel(model, own, {"corpus": {"name": Path(path).name}, "imported": source})
    return with_tokenizer(imported, tokenizer)


def _tokenizer(gguf: Gguf, vocab: int) -> Tokenizer:
    if gguf.get("tokenizer.ggml.model", str) == NO_TOKENIZER:
        begin = gguf.get("tokenizer.ggml.bos_token_id", int)
        if not 0 <= begin < vocab:
            raise UserError(
                f"bos_token_id must be a token from 0 to {vocab - 1:,}: it is {begin:,}; get the file again"
            )
        return TokenIds(vocab, begin, f"{gguf.path} has no tokenizer; import it with --tokenizer-of RUN")
    ids = special_ids(gguf)
    if not ids.keys() & {"bos", "eos"}:
        raise UserError("a special token must open every sequence: the file names none; take another model")
    return Bpe(tokenizer_parts(gguf), ids.get("bos", ids.get("eos")), vocab)


def _settings(gguf: Gguf, kind: str) -> dict[str, Any]:
    """The metadata as what Hugging Face would write."""
    scaling = gguf.get(f"{kind}.rope.scaling.type", str, "none")
    if scaling != "none" or "rope_freqs.weight" in gguf.tensors:
        raise UserError(f"octavo's rotary positions are not scaled: this file's are ({scaling}); take another model")
    if gguf.get(f"{kind}.expert_count", int, 0):
        raise UserError("octavo's transformer has no experts, this model has; take another model")
    if "token_embd.weight" not in gguf.tensors:
        raise UserError("there is no tensor token_embd.weight; it is not a file of a whole model")
    width, heads = gguf.get(f"{kind}.embedding_length", int), gguf.get(f"{kind}.attention.head_count", int)
    sizes = {gguf.get(f"{kind}.{key}", int, width // max(1, heads)) for key in HEAD_SIZES}
    if len(sizes) > 1:
        raise UserError(
            f"octavo's heads have one size, all of it rotated: this file has {sorted(sizes)}; take another model"
        )
    settings: dict[str, Any] = {
        "vocab_size": gguf.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": NAMES.output not in gguf.tensors,
        "head_dim": sizes.pop(),
    }
    usual: dict[str, Any] = {"attention.head_count_kv": heads, "rope.freq_base": 10000.0}
    for key, setting in ARCHITECTURES[kind].keys.items():
        value = gguf.get(f"{kind}.{key}", float if key in REAL_KEYS else int, usual.get(key))
        # The shortest decimal that is the same number in single precision: 1e-05, not 9.999999747378752e-06.
        settings[setting] = float(f"{value:.7g}") if key in REAL_KEYS else value
    return settings


def _reordered(tensors: dict[str, Tensor], config: GPTConfig, to_halves: bool) -> dict[str, Tensor]:
    """Queries and keys between llama.cpp's order of a head's rows and ours.

    llama.cpp puts the two numbers of a rotated pair beside each other, while here, as in the published weights,
    number i of the first half is rotated with number i of the second.
    """
    heads = {"query_DD": config.heads, "key_ED": config.groups}
    changed = dict(tensors)
    for name, tensor in tensors.items():
        count = heads.get(name.rpartition(".")[2])
        if count is not None and tensor.shape[0] == count * config.head_size:  # others are refused by their shape
            parts = (count, -1, 2) if to_halves else (count, 2, -1)
            changed[name] = tensor.view(*parts, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
    return changed


# ---------------------------------------------------------------------- out


def write_llamacpp(
    model: LanguageModel[Any], tokenizer: Tokenizer, path: str | Path, precision: Precision = "float16"
) -> list[str]:
    """Write the file; returns what the user should know. Norms, biases and positions stay in single precision."""
    config: GPTConfig = model.config
    kind = fitting({name: one.shape for name, one in ARCHITECTURES.items()}, config, "GGUF")
    architecture, (stored, number) = ARCHITECTURES[kind], KINDS[precision]
    ours = {name: tensor.detach().cpu().float() for name, tensor in model.state_dict().items()}
    theirs = architecture.shape.to_theirs(
        _reordered(ours, config, to_halves=False) if architecture.pairs else ours, config
    )
    found = tokenizer_metadata(tokenizer, model.vocab)
    none = {"tokenizer.ggml.model": NO_TOKENIZER, "tokenizer.ggml.bos_token_id": model.begin}
    metadata = {
        "general.architecture": kind, "general.name": Path(path).stem, "general.file_type": number,
        "general.quantization_version": 2, **_metadata(kind, config, model.vocab), **(found or none),
    }  # fmt: skip
    tensors = {name: (tensor.numpy(), _stored(name, tensor, stored)) for name, tensor in theirs.items()}
    write_gguf(path, metadata, tensors)
    notes = [f"llama.cpp attends to its whole context: with -c {config.context} it computes what octavo does"]
    if found is None:
        notes.append(f"llama.cpp has no tokenizer like {tokenizer.name}: ids are the same, but text needs octavo")
    return notes


def _metadata(kind: str, config: GPTConfig, vocab: int) -> dict[str, Any]:
    """The settings under llama.cpp's keys."""
    settings = ARCHITECTURES[kind].shape.settings_from(config, vocab)
    metadata = {f"{kind}.{key}": settings[setting] for key, setting in ARCHITECTURES[kind].keys.items()}
    sizes = dict.fromkeys(HEAD_SIZES, config.head_size) if config.positions == "rotary" else {}
    sizes |= {"vocab_size": vocab}
    return metadata | {f"{kind}.{key}": size for key, size in sizes.items()} | {STRIDE: config.stride}


def _stored(name: str, tensor: Tensor, kind: Kind) -> Kind:
    """How a tensor is stored: matrices as asked, in 16 bits where their rows are not of whole blocks."""
    if tensor.dim() < 2 or name == "position_embd.weight":
        return "F32"
    return kind if tensor.shape[-1] % block_size(kind) == 0 else "F16"
