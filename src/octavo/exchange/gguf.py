"""GGUF files of llama.cpp in: the metadata, the tokenizer and the weights of a Llama become a transformer.

D width, K size of a head.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.exchange.decoders import LLAMA
from octavo.exchange.imported import ADDED, BYTE_LEVEL, ImportedModel, built, with_tokenizer
from octavo.exchange.shapes import Names
from octavo.io.gguf import Gguf, read_gguf
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.bpe import Bpe

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

MODEL = "gpt2"  # what llama.cpp calls byte-level pairs, whoever the model is by
NORMAL, CONTROL, USER = 1, 3, 4  # types of tokens: control tokens are special, a user's are found in texts
IDS = ("bos", "eos", "unknown", "padding")

# How texts are split before pairs are joined, by the name that llama.cpp has for it. "default" says that whoever
# made the file did not know; GPT-2's is then the likeliest, and another would only cost a few more tokens.
SPLITS: dict[str, dict[str, Any]] = {
    "gpt-2": BYTE_LEVEL,
    "default": BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
}


def read_llamacpp(path: str | Path, tokenizer: Tokenizer | None = None) -> ImportedModel:
    """The model and the tokenizer of a GGUF file, its weights in single precision."""
    gguf = read_gguf(path)
    try:
        config, vocab = LLAMA.config_of(_settings(gguf))
        names = NAMES.to_ours({name: name for name in gguf.tensors}, config.layers, config.tied)
        tensors = {ours: torch.from_numpy(gguf.tensor(name)) for ours, name in names.items()}
        for name, tensor in tensors.items():
            heads = {"query_DD": config.heads, "key_ED": config.groups}.get(name.rpartition(".")[2])
            if heads is not None and tensor.shape[0] == heads * config.head_size:  # others are refused by their shape
                tensors[name] = _in_halves(tensor, heads)
        ids = special_ids(gguf)
        if not ids.keys() & {"bos", "eos"}:
            raise UserError("a special token must open every sequence: the file names none; take another model")
        own = Bpe(tokenizer_parts(gguf), ids.get("bos", ids.get("eos")), vocab)
        model = built(config, vocab, own.begin, tensors)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    kinds = sorted({tensor.kind for tensor in gguf.tensors.values()})
    source = {"file": str(path), "format": "gguf", "stored": ", ".join(kinds)}
    imported = ImportedModel(model, own, {"corpus": {"name": Path(path).name}, "imported": source})
    return with_tokenizer(imported, tokenizer)


def _settings(gguf: Gguf) -> dict[str, Any]:
    """The metadata as what Hugging Face would write."""
    kind = gguf.get("general.architecture", str)
    if kind != "llama":
        raise UserError(f"GGUF files of the llama architecture can be read: this one is of {kind!r}")
    scaling = gguf.get("llama.rope.scaling.type", str, "none")
    if scaling != "none" or "rope_freqs.weight" in gguf.tensors:
        raise UserError(f"octavo's rotary positions are not scaled: this file's are ({scaling}); take another model")
    if gguf.get("llama.expert_count", int, 0):
        raise UserError("octavo's transformer has no experts, this model has; take another model")
    if "token_embd.weight" not in gguf.tensors:
        raise UserError("there is no tensor token_embd.weight; it is not a file of a whole model")
    width, heads = gguf.get("llama.embedding_length", int), gguf.get("llama.attention.head_count", int)
    sizes = {
        gguf.get(f"llama.{key}", int, width // max(1, heads))
        for key in ("rope.dimension_count", "attention.key_length", "attention.value_length")
    }
    if len(sizes) > 1:
        raise UserError(f"octavo's heads are of one size and turned whole: this file has sizes {sorted(sizes)}")
    return {
        "vocab_size": gguf.tensors["token_embd.weight"].shape[0], "hidden_size": width,
        "intermediate_size": gguf.get("llama.feed_forward_length", int),
        "num_hidden_layers": gguf.get("llama.block_count", int), "num_attention_heads": heads,
        "num_key_value_heads": gguf.get("llama.attention.head_count_kv", int, heads), "head_dim": sizes.pop(),
        "max_position_embeddings": gguf.get("llama.context_length", int),
        # The shortest decimal that is the same number in single precision: 1e-05, not 9.999999747378752e-06.
        "rms_norm_eps": float(f"{gguf.get('llama.attention.layer_norm_rms_epsilon', float):.7g}"),
        "rope_theta": gguf.get("llama.rope.freq_base", float, 10000.0),
        "tie_word_embeddings": NAMES.output not in gguf.tensors,
    }  # fmt: skip


def _in_halves(weight_ED: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's order of a head's rows: it puts the two numbers of a turned pair beside each other, while here,
    as in the published weights, number i of the first half is turned with number i of the second.
    """
    D = weight_ED.shape[1]
    return weight_ED.view(heads, -1, 2, D).transpose(1, 2).reshape(-1, D)


# ---------------------------------------------------------------------- the tokenizer


def tokenizer_parts(gguf: Gguf) -> dict[str, Any]:
    """What a `tokenizer.json` would hold, for `Bpe(parts, begin, size)`."""
    model, pre = gguf.get("tokenizer.ggml.model", str), gguf.get("tokenizer.ggml.pre", str, "default")
    if model != MODEL or pre not in SPLITS:
        raise UserError(
            f"the tokenizer of {gguf.path} is {model!r} split by {pre!r}; read are {MODEL!r} split by "
            f"{', '.join(map(repr, SPLITS))}: get another model, or give its tokenizer.json"
        )
    if gguf.get("tokenizer.ggml.add_space_prefix", bool, False):
        raise UserError(f"the tokenizer of {gguf.path} puts a space before every text, which is not read")
    tokens = _strings(gguf, "tokenizer.ggml.tokens")
    if len(set(tokens)) < len(tokens):
        raise UserError(f"the tokens in {gguf.path} must be all different: some stand there twice; get it again")
    types = gguf.get("tokenizer.ggml.token_type", np.ndarray, np.full(len(tokens), NORMAL))
    if len(types) != len(tokens):
        raise UserError(f"every token in {gguf.path} must have a type: {len(tokens):,} tokens, {len(types):,} types")
    pairs = [merge.split(" ") for merge in _strings(gguf, "tokenizer.ggml.merges")]
    if wrong := next((pair for pair in pairs if len(pair) != 2), None):
        raise UserError(f"every merge in {gguf.path} must be of two tokens: {' '.join(wrong)!r} is not; get it again")
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": tokens[number], **ADDED, "special": bool(types[number] == CONTROL)}
            for number in np.flatnonzero(np.isin(types, (CONTROL, USER))).tolist()
        ],
        "normalizer": None,
        "pre_tokenizer": SPLITS[pre],
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": pairs},
    }


def special_ids(gguf: Gguf) -> dict[str, int]:
    """The ids of bos, eos, unknown and padding, those that the file has."""
    count = len(_strings(gguf, "tokenizer.ggml.tokens"))
    found = {name: f"tokenizer.ggml.{name}_token_id" for name in IDS}
    ids = {name: int(gguf.get(key, int)) for name, key in found.items() if key in gguf.metadata}
    for name, number in ids.items():
        if not 0 <= number < count:
            raise UserError(f"{name} in {gguf.path} must be a token from 0 to {count - 1:,}: it is {number:,}")
    return ids


def _strings(gguf: Gguf, key: str) -> list[str]:
    values: list[str] = gguf.get(key, list)
    if not all(isinstance(value, str) for value in values):
        raise UserError(f"{key} in {gguf.path} must be strings; the file is damaged")
    return values
