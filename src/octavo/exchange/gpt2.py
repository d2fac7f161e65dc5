"""The shape of GPT-2 as Hugging Face writes it: its config.json and its tensors as ours, and ours as its.

Its matrices are (in, out), and those of queries, keys and values are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.exchange.imported import check_settings, settings_of
from octavo.exchange.tensor_names import Names
from octavo.models.parts.config import GPTConfig

OUR_ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu": "gelu-exact",
    "relu2": "relu2",
}
ACTIVATIONS = {"gelu": "gelu_new", "gelu-exact": "gelu", "relu2": "relu2"}
SHAPE: dict[str, tuple[Any, ...]] = {  # what of our settings GPT-2 can have
    "positions": ("learned",), "norm": ("layer",), "bias": (True,), "qk_norm": (False,), "attention": ("full",),
    "feed_forward": tuple(ACTIVATIONS), "kv_heads": (0,),
}  # fmt: skip
NAMES = Names(
    owner="GPT-2",
    prefix="transformer.",
    layer="h",
    top={
        "wte.weight": "embedding_VD", "wpe.weight": "positions_CD", "ln_f.weight": "norm.weight_D",
        "ln_f.bias": "norm.bias_D",
    },
    inner={
        "ln_1.weight": "norm1.weight_D", "ln_1.bias": "norm1.bias_D",
        "attn.c_attn.weight": "attention.qkv", "attn.c_attn.bias": "attention.qkv_bias",
        "attn.c_proj.weight": "attention.out_DD", "attn.c_proj.bias": "attention.out_bias",
        "ln_2.weight": "norm2.weight_D", "ln_2.bias": "norm2.bias_D",
        "mlp.c_fc.weight": "feed_forward.up_FD", "mlp.c_fc.bias": "feed_forward.up_bias_F",
        "mlp.c_proj.weight": "feed_forward.down_DF", "mlp.c_proj.bias": "feed_forward.down_bias_D",
    },
    ignored=r"h\.[0-9]+\.attn\.(bias|masked_bias)",  # the causal mask, which old files hold
)  # fmt: skip
TURNED = ("attention.qkv", "attention.out_DD", "feed_forward.up_FD", "feed_forward.down_DF")
FUSED = {
    "attention.qkv": ("query_DD", "key_ED", "value_ED"),
    "attention.qkv_bias": ("query_bias", "key_bias", "value_bias"),
}


@dataclass(frozen=True)
class Gpt2Settings:
    """What of config.json decides the model; what is left out is as transformers has it."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int = 0
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    reorder_and_upcast_attn: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True


def config_of(values: Mapping[str, Any]) -> tuple[GPTConfig, int]:
    """Our config for theirs, and the size of the vocabulary."""
    settings = settings_of(Gpt2Settings, values)
    check_settings(settings, {
        "activation_function": tuple(OUR_ACTIVATIONS), "scale_attn_weights": (True,), "add_cross_attention": (False,),
        "scale_attn_by_inverse_layer_idx": (False,), "reorder_and_upcast_attn": (False,),
    })  # fmt: skip
    config = GPTConfig(
        width=settings.n_embd, layers=settings.n_layer, heads=settings.n_head, context=settings.n_positions,
        stride=settings.n_positions // 2, positions="learned", norm="layer", norm_eps=settings.layer_norm_epsilon,
        bias=True, qk_norm=False, feed_forward=OUR_ACTIVATIONS[settings.activation_function],  # type: ignore[arg-type]
        feed_forward_width=settings.n_inner, tied=settings.tie_word_embeddings, init="gpt2",
    )  # fmt: skip
    return config, settings.vocab_size


def settings_from(config: GPTConfig, vocab: int) -> dict[str, Any]:
    """Their config.json for our config, but for the tokens' ids."""
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": vocab,
        "n_positions": config.context, "n_embd": config.width, "n_layer": config.layers, "n_head": config.heads,
        "n_inner": config.inner, "activation_function": ACTIVATIONS[config.feed_forward],
        "layer_norm_epsilon": config.norm_eps, "tie_word_embeddings": config.tied, "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout, "attn_pdrop": 0.0,
    }  # fmt: skip


def to_ours(theirs: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """Their tensors as ours."""
    ours: dict[str, Tensor] = {}
    for name, tensor in NAMES.to_ours(theirs, config.layers, config.tied).items():
        block, part = _parted(name)
        tensor = _turned(tensor, name) if part in TURNED else tensor
        if part not in FUSED:
            ours[name] = tensor
            continue
        if not tensor.dim() or len(tensor) % 3:
            raise UserError(f"queries, keys and values must be of one size: {name} has shape {tuple(tensor.shape)}")
        ours |= {f"{block}.attention.{one}": piece for one, piece in zip(FUSED[part], tensor.chunk(3), strict=True)}
    return ours


def to_theirs(ours: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """Our tensors as theirs."""
    theirs: dict[str, Tensor] = {}
    for name, called in NAMES.to_theirs(config.layers, config.tied).items():
        block, part = _parted(name)
        pieces = [ours[f"{block}.attention.{one}"] for one in FUSED[part]] if part in FUSED else [ours[name]]
        tensor = torch.cat(pieces)
        theirs[called] = (tensor.T if part in TURNED else tensor).contiguous()
    return theirs


def _parted(name: str) -> tuple[str, str]:
    """blocks.0.attention.qkv as blocks.0 and attention.qkv."""
    if not name.startswith("blocks."):
        return "", name
    word, number, part = name.split(".", 2)
    return f"{word}.{number}", part


def _turned(tensor: Tensor, name: str) -> Tensor:
    if tensor.dim() != 2:
        raise UserError(f"{name} must be a matrix: the file has shape {tuple(tensor.shape)}; it is of another model")
    return tensor.T.contiguous()
