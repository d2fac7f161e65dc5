"""GGUF files of llama.cpp in: the metadata, the tokenizer and the weights of a Llama become a transformer.

D width, K size of a head.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.exchange.gguf_tokenizer import special_ids, tokenizer_parts
from octavo.exchange.imported import ImportedModel, built, with_tokenizer
from octavo.exchange.llama import LlamaSettings, config_from
from octavo.exchange.tensor_names import Names
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


def read_llamacpp(path: str | Path, tokenizer: Tokenizer | None = None) -> ImportedModel:
    """The model and the tokenizer of a GGUF file, its weights in single precision."""
    gguf = read_gguf(path)
    try:
        settings = _settings(gguf)
        config = config_from(settings)
        names = NAMES.to_ours({name: name for name in gguf.tensors}, config.layers, config.tied)
        tensors = {ours: torch.from_numpy(gguf.tensor(name)) for ours, name in names.items()}
        for name, tensor in tensors.items():
            heads = {"query_DD": config.heads, "key_ED": config.groups}.get(name.rpartition(".")[2])
            if heads is not None and tensor.shape[0] == heads * config.head_size:  # others are refused by their shape
                tensors[name] = _in_halves(tensor, heads)
        ids = special_ids(gguf)
        if not ids.keys() & {"bos", "eos"}:
            raise UserError("a special token must open every sequence: the file names none; take another model")
        own = Bpe(tokenizer_parts(gguf), ids.get("bos", ids.get("eos")), settings.vocab_size)
        model = built(config, settings.vocab_size, own.begin, tensors)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    kinds = sorted({tensor.kind for tensor in gguf.tensors.values()})
    source = {"file": str(path), "format": "gguf", "stored": ", ".join(kinds)}
    imported = ImportedModel(model, own, {"corpus": {"name": Path(path).name}, "imported": source})
    return with_tokenizer(imported, tokenizer)


def _settings(gguf: Gguf) -> LlamaSettings:
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
    return LlamaSettings(
        vocab_size=gguf.tensors["token_embd.weight"].shape[0], hidden_size=width,
        intermediate_size=gguf.get("llama.feed_forward_length", int),
        num_hidden_layers=gguf.get("llama.block_count", int), num_attention_heads=heads,
        num_key_value_heads=gguf.get("llama.attention.head_count_kv", int, heads), head_dim=sizes.pop(),
        max_position_embeddings=gguf.get("llama.context_length", int),
        rms_norm_eps=_rounded(gguf.get("llama.attention.layer_norm_rms_epsilon", float)),
        rope_theta=gguf.get("llama.rope.freq_base", float, 10000.0),
        tie_word_embeddings=NAMES.output not in gguf.tensors,
    )  # fmt: skip


def _rounded(value: float) -> float:
    """The shortest decimal that is the same number in single precision: 1e-05, not 9.999999747378752e-06."""
    return float(f"{value:.7g}")


def _in_halves(weight_ED: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's order of a head's rows: it puts the two numbers of a turned pair beside each other, while here,
    as in the published weights, number i of the first half is turned with number i of the second.
    """
    D = weight_ED.shape[1]
    return weight_ED.view(heads, -1, 2, D).transpose(1, 2).reshape(-1, D)
