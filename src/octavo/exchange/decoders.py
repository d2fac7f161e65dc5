"""The decoders of Hugging Face that our transformer can be, and which of them a transformer is.

| decoder | positions | norm | feed-forward | QK norm | attention | others |
|---|---|---|---|---|---|---|
| GPT-2 | learned | layer | gelu, gelu-exact, relu2 | no | full | biases, as many heads of keys as of queries |
| Llama | rotary | rms | gated | no | full, in windows that move by `stride` | no biases |
| Mistral | rotary | rms | gated | no | full or local, the state carried | no biases |
| Qwen3 | rotary | rms | gated | yes | full or local | no biases |

Where the state is carried, a token attends to the last `context` (or `attention_window`) tokens of a text of any
length, which is what Mistral and Qwen3 call a sliding window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from octavo.errors import UserError
from octavo.exchange.shapes import THEIR_ACTIVATIONS, Names, Settings, Shape
from octavo.models.parts.config import GPTConfig


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
            share = settings["partial_rotary_factor"]
            raise UserError(f"octavo rotates whole heads: partial_rotary_factor={share!r}; take another model")
    return {**values, **base}


GPT2 = Shape(
    "GPT2LMHeadModel",
    Settings(
        {"vocab_size": ("vocab", 50257), "n_positions": ("context", 1024), "n_embd": ("width", 768),
         "n_layer": ("layers", 12), "n_head": ("heads", 12), "n_inner": ("feed_forward_width", 0),
         "activation_function": ("feed_forward", "gelu_new"), "layer_norm_epsilon": ("norm_eps", 1e-5),
         "tie_word_embeddings": ("tied", True)},
        {"scale_attn_weights": (True,), "add_cross_attention": (False,), "scale_attn_by_inverse_layer_idx": (False,),
         "reorder_and_upcast_attn": (False,)},
    ),
    able={"positions": ("learned",), "norm": ("layer",), "bias": (True,), "qk_norm": (False,), "attention": ("full",),
          "feed_forward": tuple(THEIR_ACTIVATIONS), "kv_heads": (0,), "experts": (0,)},
    names=Names(
        owner="GPT-2", prefix="transformer.", layer="h",
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
    ),
    further=lambda config: {"embd_pdrop": config.dropout, "resid_pdrop": config.dropout, "attn_pdrop": 0.0},
    transposed=("attention.qkv", "attention.out_DD", "feed_forward.up_FD", "feed_forward.down_DF"),
    fused={
        "attention.qkv": ("attention.query_DD", "attention.key_ED", "attention.value_ED"),
        "attention.qkv_bias": ("attention.query_bias", "attention.key_bias", "attention.value_bias"),
    },
)  # fmt: skip
LLAMA_SETTINGS: dict[str, tuple[str, Any]] = {
    "vocab_size": ("vocab", 32000), "hidden_size": ("width", 4096), "num_hidden_layers": ("layers", 32),
    "intermediate_size": ("feed_forward_width", 11008), "num_attention_heads": ("heads", 32),
    "num_key_value_heads": ("kv_heads", 0), "head_dim": ("head_size", 0),
    "max_position_embeddings": ("context", 2048), "rms_norm_eps": ("norm_eps", 1e-6),
    "rope_theta": ("rotary_base", 10000.0), "tie_word_embeddings": ("tied", False),
}  # fmt: skip
LLAMA_ABLE: dict[str, tuple[Any, ...]] = {
    "positions": ("rotary",), "norm": ("rms",), "bias": (False,), "qk_norm": (False,), "attention": ("full",),
    "feed_forward": ("gated",), "experts": (0,),
}  # fmt: skip
LLAMA_NAMES = Names(
    owner="Llama", prefix="model.", layer="layers",
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
QK_NORMS = ("attention.query_norm_K", "attention.key_norm_K")
QWEN3_NAMES = dataclasses.replace(
    LLAMA_NAMES, owner="Qwen3",
    inner={**LLAMA_NAMES.inner, "self_attn.q_norm.weight": QK_NORMS[0], "self_attn.k_norm.weight": QK_NORMS[1]},
)  # fmt: skip


def _base(config: GPTConfig) -> dict[str, Any]:
    """The base of the rotary positions, where transformers reads it from version 5 on; before, as the table has it."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base}}


def sliding_window(config: GPTConfig) -> int | None:
    """The tokens that every layer attends to in a text of any length; None: the whole of a context that is moved."""
    if config.attention == "local":
        return min(config.attention_window, config.context)
    return None if config.absolute else config.context


def _mistral_window(values: Mapping[str, Any]) -> int:
    """Mistral's sliding window: 4096 where config.json says nothing, none where it says null."""
    return _whole("sliding_window", values.get("sliding_window", 4096))


def _qwen3_window(values: Mapping[str, Any]) -> int:
    """Qwen3's sliding window, which must be that of every layer or of none."""
    if not values.get("use_sliding_window"):
        return 0
    kinds = values.get("layer_types")
    kinds = set(map(str, kinds)) if isinstance(kinds, list) else set()
    if not kinds and not _whole("max_window_layers", values.get("max_window_layers", 28)):
        kinds = {"sliding_attention"}
    if kinds not in ({"sliding_attention"}, {"full_attention"}):
        raise UserError("octavo's layers have one window: these have different ones; take another model")
    return 0 if kinds == {"full_attention"} else _whole("sliding_window", values.get("sliding_window", 4096))


def _whole(name: str, value: Any) -> int:
    if value is not None and (type(value) is not int or value < 0):
        raise UserError(f"{name} must be a whole number: {value!r}; the config is damaged")
    return value or 0


def _qwen3_further(config: GPTConfig) -> dict[str, Any]:
    window = sliding_window(config)
    kind = "full_attention" if window is None else "sliding_attention"
    return _base(config) | {
        "use_sliding_window": window is not None, "sliding_window": window, "max_window_layers": 0,
        "layer_types": [kind] * config.layers,
    }  # fmt: skip


LLAMA = Shape(
    "LlamaForCausalLM",
    Settings(LLAMA_SETTINGS, {"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)}),
    able=LLAMA_ABLE, names=LLAMA_NAMES, prepare=_rotary, further=_base,
)  # fmt: skip
MISTRAL = Shape(
    "MistralForCausalLM",
    Settings(LLAMA_SETTINGS | {"num_key_value_heads": ("kv_heads", 8), "max_position_embeddings": ("context", 131072),
                               "intermediate_size": ("feed_forward_width", 14336)}, {"hidden_act": ("silu",)}),
    able=LLAMA_ABLE | {"attention": ("full", "local")}, names=dataclasses.replace(LLAMA_NAMES, owner="Mistral"),
    prepare=_rotary, window=_mistral_window,
    further=lambda config: _base(config) | {"sliding_window": sliding_window(config)},
)  # fmt: skip
QWEN3 = Shape(
    "Qwen3ForCausalLM",
    Settings(LLAMA_SETTINGS | {"vocab_size": ("vocab", 151936), "intermediate_size": ("feed_forward_width", 22016),
                               "num_key_value_heads": ("kv_heads", 32), "head_dim": ("head_size", 128),
                               "max_position_embeddings": ("context", 32768)},
             {"hidden_act": ("silu",), "attention_bias": (False,)}),
    able=LLAMA_ABLE | {"attention": ("full", "local"), "qk_norm": (True,)}, names=QWEN3_NAMES,
    prepare=_rotary, window=_qwen3_window, further=_qwen3_further, ones=QK_NORMS,
)  # fmt: skip
SHAPES = {"gpt2": GPT2, "llama": LLAMA, "mistral": MISTRAL, "qwen3": QWEN3}  # by config.json's model_type


def differences(shape: Shape, config: GPTConfig) -> dict[str, Any]:
    """The settings that the shape cannot have as they are, each with what it can have."""
    if config.kv_heads == config.heads:  # which 0 says too
        config = dataclasses.replace(config, kv_heads=0)
    return {name: known[0] for name, known in shape.able.items() if getattr(config, name) not in known}


def nearest(shapes: Mapping[str, Shape], config: GPTConfig) -> str:
    """The shape that the config is, or that it is least different from; of equals the one with its kind of context."""
    carried = not config.absolute
    return min(shapes, key=lambda one: (len(differences(shapes[one], config)), bool(shapes[one].window) != carried))


def fitting(shapes: Mapping[str, Shape], config: GPTConfig, format: str) -> str:
    """The name of the shape that the config is; refused with what would have to be different for the nearest."""
    kind = nearest(shapes, config)
    if wrong := differences(shapes[kind], config):
        wanted = ", ".join(f"{name} is {getattr(config, name)}" for name in wrong)
        flags = " ".join(_flag(*one) for one in wrong.items())
        raise UserError(f"{format} has no decoder of this shape: {wanted}; the nearest is {kind}: train with {flags}")
    return kind


def _flag(name: str, value: Any) -> str:
    """The setting as it is given to octavo train."""
    flag = name.replace("_", "-")
    return f"--{flag} {value}" if not isinstance(value, bool) else f"--{flag}" if value else f"--no-{flag}"
