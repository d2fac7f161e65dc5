"""The decoders of Hugging Face that our transformer can be, as tables that are read in both directions: their settings
and tensors, each beside ours.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from octavo.config import from_json
from octavo.errors import UserError
from octavo.models.parts.config import GPTConfig

T = TypeVar("T")
SHOWN = 3  # names that a message shows
LONGEST_CONTEXT = 1 << 24  # tokens; no model has more, and a forged one could take memory without bound
ACTIVATIONS = {  # theirs and ours; of several for one of ours, the first is written
    "gelu_new": "gelu", "gelu": "gelu-exact", "relu2": "relu2", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu",
}  # fmt: skip
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


@dataclass(frozen=True)
class Settings:
    """What of a config.json decides the model."""

    ours: Mapping[str, tuple[str, Any]]
    """Their settings, each with ours and with what transformers takes where config.json leaves it out; 0: implied."""
    known: Mapping[str, tuple[Any, ...]]
    """Their settings that we have no counterpart of, each with the values that we can read, the usual one first."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Our settings for theirs; a variant that our transformer does not have is refused by name."""
        usual = {name: default for name, (_, default) in self.ours.items()}
        usual |= {name: values[0] for name, values in self.known.items()}
        fields = [(name, type(default), field(default=default)) for name, default in usual.items()]
        typed = dataclasses.make_dataclass("Settings", fields, frozen=True)
        given: Any = from_json(typed, {name: values[name] for name in usual if values.get(name) is not None})
        known = dict(self.known) | {
            name: tuple(ACTIVATIONS) for name, (ours, _) in self.ours.items() if ours == "feed_forward"
        }
        for name, readable in known.items():
            if (value := getattr(given, name)) not in readable:
                able_to = " or ".join(map(str, readable))
                raise UserError(f"octavo's transformer has no {name}={value}, only {able_to}; take another model")
        found = {ours: getattr(given, name) for name, (ours, _) in self.ours.items()}
        if not 2 <= found["context"] <= LONGEST_CONTEXT:
            raise UserError(f"a context must have from 2 to {LONGEST_CONTEXT:,} tokens: it says {found['context']:,}")
        if "feed_forward" in found:
            found["feed_forward"] = ACTIVATIONS[found["feed_forward"]]
        return found

    def write(self, config: Any, parts: GPTConfig, vocab: int) -> dict[str, Any]:
        """Their settings for our config; `parts` says what it implies."""
        implied = {"feed_forward_width": parts.inner, "kv_heads": parts.groups, "head_size": parts.head_size}
        activation = THEIR_ACTIVATIONS.get(parts.feed_forward, "")
        ours = dataclasses.asdict(config) | implied | {"vocab": vocab, "feed_forward": activation}
        theirs = {name: ours[own] for name, (own, _) in self.ours.items()}
        return theirs | {name: values[0] for name, values in self.known.items()}


@dataclass(frozen=True)
class Names:
    """A format's names, each beside ours; those of a layer stand after its number."""

    owner: str  # what the format calls such a model
    prefix: str  # may stand before all names but the output's
    layer: str  # stands before a layer's number
    top: Mapping[str, str]
    inner: Mapping[str, str]
    output: str = "lm_head.weight"
    ignored: str = r"(?!)"  # tensors that hold nothing learnt

    def to_ours(self, theirs: Mapping[str, T], layers: int, tied: bool) -> dict[str, T]:
        """The tensors under our names; the output weights are `output_VD`, where they are there."""
        found: dict[str, T] = {}
        foreign = []
        for name, tensor in theirs.items():
            short = name.removeprefix(self.prefix)
            ours = self._ours(short, layers)
            if ours is not None and ours not in found:
                found[ours] = tensor
            elif not re.fullmatch(self.ignored, short):
                foreign.append(name)
        if foreign:
            raise UserError(f"{self.owner} has no tensors {_some(foreign)}; it is of another model")
        if layers > len(theirs):  # before names are made for that many
            raise UserError(f"a layer has tensors of its own: {layers:,} layers, the file has {len(theirs)} tensors")
        wanted = self.to_theirs(layers, tied)
        if missing := [theirs for ours, theirs in wanted.items() if ours not in found]:
            raise UserError(
                f"{self.owner} of {layers} layers must have the tensors {_some(missing)}; the file lacks them"
            )
        return found

    def to_theirs(self, layers: int, tied: bool) -> dict[str, str]:
        """Their name for each of ours."""
        top = {ours: self.prefix + theirs for theirs, ours in self.top.items()}
        inner = {
            f"blocks.{i}.{ours}": f"{self.prefix}{self.layer}.{i}.{theirs}"
            for i in range(layers) for theirs, ours in self.inner.items()
        }  # fmt: skip
        return top | inner | ({} if tied else {"output_VD": self.output})

    def _ours(self, name: str, layers: int) -> str | None:
        if name == self.output:
            return "output_VD"
        if name in self.top:
            return self.top[name]
        inside = re.fullmatch(rf"{self.layer}\.(0|[1-9][0-9]{{0,8}})\.(.+)", name)
        if inside is None or int(inside[1]) >= layers or inside[2] not in self.inner:
            return None
        return f"blocks.{inside[1]}.{self.inner[inside[2]]}"


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


@dataclass(frozen=True)
class Shape:
    """A decoder of Hugging Face."""

    architecture: str
    settings: Settings
    able: Mapping[str, tuple[Any, ...]]
    """What of our settings it can have."""
    names: Names
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    """config.json with every setting in the place where the table has it."""
    further: Callable[[GPTConfig], dict[str, Any]] = lambda config: {}
    """What else is written into config.json."""
    transposed: tuple[str, ...] = ()
    """Matrices that are (in, out) there."""
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tensors that are several of ours, one below the other."""

    def config_of(self, values: Mapping[str, Any]) -> tuple[GPTConfig, int]:
        """Our config for theirs, and the size of the vocabulary."""
        ours = self.settings.read(self.prepare(values))
        vocab, size = ours.pop("vocab"), ours.pop("head_size", 0)
        if size and size * ours["heads"] != ours["width"]:
            raise UserError(
                f"octavo's heads share the width out: head_dim={size} × {ours['heads']} heads is not width "
                f"{ours['width']}; take another model"
            )
        fixed = {name: values[0] for name, values in self.able.items() if len(values) == 1}
        return GPTConfig(**fixed | ours, stride=ours["context"] // 2, init="gpt2"), vocab

    def settings_from(self, config: GPTConfig, vocab: int) -> dict[str, Any]:
        """Their config.json for our config, but for its kind and the tokens' ids."""
        return (
            {"architectures": [self.architecture]} | self.settings.write(config, config, vocab) | self.further(config)
        )

    def to_ours(self, theirs: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
        """Their tensors as ours."""
        ours: dict[str, Tensor] = {}
        for name, tensor in self.names.to_ours(theirs, config.layers, config.tied).items():
            above, part = _parted(name)
            if part in self.transposed and tensor.dim() != 2:
                raise UserError(
                    f"{name} must be a matrix: the file has shape {tuple(tensor.shape)}; it is of another model"
                )
            tensor = tensor.T.contiguous() if part in self.transposed else tensor
            pieces = self.fused.get(part, (part,))
            if len(pieces) > 1 and (not tensor.dim() or len(tensor) % len(pieces)):
                raise UserError(f"queries, keys and values must be of one size: {name} has shape {tuple(tensor.shape)}")
            split = tensor.chunk(len(pieces)) if len(pieces) > 1 else (tensor,)
            ours |= {above + piece: values for piece, values in zip(pieces, split, strict=True)}
        return ours

    def to_theirs(self, ours: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
        """Our tensors as theirs."""
        theirs: dict[str, Tensor] = {}
        for name, called in self.names.to_theirs(config.layers, config.tied).items():
            above, part = _parted(name)
            pieces = [ours[above + piece] for piece in self.fused.get(part, (part,))]
            tensor = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
            theirs[called] = (tensor.T if part in self.transposed else tensor).contiguous()
        return theirs


def _parted(name: str) -> tuple[str, str]:
    """blocks.0.attention.qkv as blocks.0. and attention.qkv."""
    if not name.startswith("blocks."):
        return "", name
    word, number, part = name.split(".", 2)
    return f"{word}.{number}.", part


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
          "feed_forward": tuple(THEIR_ACTIVATIONS), "kv_heads": (0,)},
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
LLAMA = Shape(
    "LlamaForCausalLM",
    Settings(
        {"vocab_size": ("vocab", 32000), "hidden_size": ("width", 4096), "num_hidden_layers": ("layers", 32),
         "intermediate_size": ("feed_forward_width", 11008), "num_attention_heads": ("heads", 32),
         "num_key_value_heads": ("kv_heads", 0), "head_dim": ("head_size", 0),
         "max_position_embeddings": ("context", 2048), "rms_norm_eps": ("norm_eps", 1e-6),
         "rope_theta": ("rotary_base", 10000.0), "tie_word_embeddings": ("tied", False)},
        {"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)},
    ),
    able={"positions": ("rotary",), "norm": ("rms",), "bias": (False,), "qk_norm": (False,), "attention": ("full",),
          "feed_forward": ("gated",)},
    names=Names(
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
    ),
    prepare=_rotary,
    # transformers reads the base here from version 5 on, before it as the table has it
    further=lambda config: {"rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base}},
)  # fmt: skip
SHAPES = {"gpt2": GPT2, "llama": LLAMA}  # by config.json's model_type
