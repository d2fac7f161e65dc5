"""The shape of Llama as Hugging Face writes it: its config.json and its tensors as ours, and ours as its."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from octavo.errors import UserError
from octavo.exchange.imported import check_context, check_settings, settings_of
from octavo.exchange.tensor_names import Names
from octavo.models.parts.config import GPTConfig

SHAPE: dict[str, tuple[Any, ...]] = {  # what of our settings a Llama can have
    "positions": ("rotary",), "norm": ("rms",), "bias": (False,), "qk_norm": (False,), "attention": ("full",),
    "feed_forward": ("gated",),
}  # fmt: skip
NAMES = Names(
    owner="Llama",
    prefix="model.",
    layer="layers",
    top={"embed_tokens.weight": "embedding_VD", "norm.weight": "norm.weight_D"},
    inner={
        "input_layernorm.weight": "norm1.weight_D", "self_attn.q_proj.weight": "attention.query_DD",
        "self_attn.k_proj.weight": "attention.key_ED", "self_attn.v_proj.weight": "attention.value_ED",
        "self_attn.o_proj.weight": "attention.out_DD", "post_attention_layernorm.weight": "norm2.weight_D",
        "mlp.gate_proj.weight": "feed_forward.gate_FD", "mlp.up_proj.weight": "feed_forward.up_FD",
        "mlp.down_proj.weight": "feed_forward.down_DF",
    },
    ignored=r"layers\.[0-9]+\.self_attn\.rotary_emb\.inv_freq",  # follows from the base; old files hold it
)  # fmt: skip


@dataclass(frozen=True)
class LlamaSettings:
    """What decides the model; what config.json leaves out is as transformers has it, 0 is what others imply."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 0
    head_dim: int = 0
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False


def config_of(values: Mapping[str, Any]) -> tuple[GPTConfig, int]:
    """Our config for theirs, and the size of the vocabulary."""
    settings = settings_of(LlamaSettings, {**values, **_rotary(values)})
    check_settings(settings, {"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)})
    return config_from(settings), settings.vocab_size


def config_from(settings: LlamaSettings) -> GPTConfig:
    """Our config for settings that were read from either format."""
    width, heads = settings.hidden_size, settings.num_attention_heads
    context = check_context(settings.max_position_embeddings)
    if settings.head_dim and settings.head_dim * heads != width:
        raise UserError(
            f"octavo's heads share the width out: head_dim={settings.head_dim} × {heads} heads is not width {width}; "
            "take another model"
        )
    return GPTConfig(
        width=width, layers=settings.num_hidden_layers, heads=heads, kv_heads=settings.num_key_value_heads,
        context=context,
        stride=context // 2, rotary_base=settings.rope_theta, qk_norm=False, feed_forward="gated",
        feed_forward_width=settings.intermediate_size, norm_eps=settings.rms_norm_eps,
        tied=settings.tie_word_embeddings, init="gpt2",
    )  # fmt: skip


def settings_from(config: GPTConfig, vocab: int) -> dict[str, Any]:
    """Their config.json for our config, but for the tokens' ids."""
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab,
        "hidden_size": config.width, "intermediate_size": config.inner, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "num_key_value_heads": config.groups, "head_dim": config.head_size,
        "max_position_embeddings": config.context, "rms_norm_eps": config.norm_eps, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": config.tied,
        # transformers reads the base here from version 5 on, before it there
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base}, "rope_theta": config.rotary_base,
    }  # fmt: skip


def to_ours(theirs: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """Their tensors as ours."""
    return NAMES.to_ours(theirs, config.layers, config.tied)


def to_theirs(ours: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """Our tensors as theirs."""
    names = NAMES.to_theirs(config.layers, config.tied)
    return {called: ours[name].contiguous() for name, called in names.items()}


def _rotary(values: Mapping[str, Any]) -> dict[str, Any]:
    """The base of the rotary positions, wherever transformers has put it; every scaling of it is refused."""
    base: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        settings = values.get(name) or {}
        if not isinstance(settings, Mapping):
            raise UserError(f"{name} must be a JSON object: {settings!r}; the config is damaged")
        kind = settings.get("rope_type", settings.get("type", "default"))
        if kind != "default":
            raise UserError(f"octavo's rotary positions are not scaled: {name} says {kind!r}; take another model")
        base |= {"rope_theta": settings["rope_theta"]} if settings.get("rope_theta") is not None else {}
    for settings in (values, values.get("rope_parameters") or {}):
        if settings.get("partial_rotary_factor") not in (None, 1, 1.0):
            raise UserError(f"octavo rotates whole heads: partial_rotary_factor={settings['partial_rotary_factor']!r}")
    return base
