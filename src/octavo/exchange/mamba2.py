"""Mamba-2 as Hugging Face writes it, both ways: its settings and its tensors beside ours.

Their B are keys, their C queries; their input projection is five of our matrices, one below the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.exchange.shapes import Names, Settings
from octavo.models.linear_attention.config import Mamba2Config

SETTINGS = Settings(
    {"vocab_size": ("vocab", 32768), "hidden_size": ("width", 4096), "num_hidden_layers": ("layers", 64),
     "num_heads": ("heads", 128), "head_dim": ("head_size", 64), "state_size": ("state_size", 128),
     "expand": ("expand", 2), "conv_kernel": ("convolution", 4), "layer_norm_epsilon": ("norm_eps", 1e-5),
     "tie_word_embeddings": ("tied", False), "n_groups": ("groups", 8)},
    {"use_bias": (False,), "use_conv_bias": (True,), "hidden_act": ("silu", "swish")},
)  # fmt: skip
INPUTS = ("gate_ID", "value_ID", "key_ND", "query_ND", "step_HD")  # of mixer.in_proj, from the top
NAMES = Names(
    owner="Mamba-2", prefix="backbone.", layer="layers",
    top={"embeddings.weight": "embedding_VD", "norm_f.weight": "norm.weight_D"},
    inner={
        "norm.weight": "norm1.weight_D", "mixer.in_proj.weight": "mixer.inputs",
        "mixer.conv1d.weight": "mixer.convolution_CE", "mixer.conv1d.bias": "mixer.convolution_bias_E",
        "mixer.dt_bias": "mixer.step_bias_H", "mixer.A_log": "mixer.log_pace_H", "mixer.D": "mixer.skip_H",
        "mixer.norm.weight": "mixer.norm_I", "mixer.out_proj.weight": "mixer.out_DI",
    },
)  # fmt: skip


class Mamba2Shape:
    """What `Shape` is for transformers."""

    model: ClassVar[str] = "mamba2"

    def config_of(self, values: Mapping[str, Any]) -> tuple[Mamba2Config, int]:
        """Our config for theirs, and the size of the vocabulary."""
        ours = SETTINGS.read(values)
        vocab, size, groups = (ours.pop(name) for name in ("vocab", "head_size", "groups"))
        if groups != 1:
            raise UserError(f"octavo's heads share one B and one C: n_groups={groups}, only 1; take another model")
        if size * ours["heads"] != ours["expand"] * ours["width"]:
            raise UserError(
                f"heads must share the inner width: head_dim={size} × {ours['heads']} heads is not expand="
                f"{ours['expand']} × hidden_size={ours['width']}; config.json is damaged"
            )
        limit = values.get("time_step_limit")
        if limit is not None and not _is_unlimited(limit):
            raise UserError(f"octavo's steps have no limit: time_step_limit={limit}; take another model")
        if ours["convolution"] < 1:
            raise UserError(f"conv_kernel must be at least 1: {ours['convolution']}; config.json is damaged")
        return Mamba2Config(**ours), vocab

    def settings_from(self, config: Mamba2Config, vocab: int) -> dict[str, Any]:
        """Their config.json for our config, but for its kind and the tokens' ids."""
        if config.feed_forward != "none" or not config.convolution:
            raise UserError(
                "Hugging Face's Mamba-2 has a convolution and no feed-forward layers: this has feed_forward="
                f"{config.feed_forward}, convolution={config.convolution}; train with --feed-forward none "
                "--convolution 4"
            )
        own = {"vocab": vocab, "head_size": config.head_size, "groups": 1}
        theirs = {name: own.get(ours, getattr(config, ours, None)) for name, (ours, _) in SETTINGS.ours.items()}
        known = {name: values[0] for name, values in SETTINGS.known.items()}
        return {"architectures": ["Mamba2ForCausalLM"]} | theirs | known

    def to_ours(self, theirs: Mapping[str, Tensor], config: Mamba2Config) -> dict[str, Tensor]:
        """Their tensors as ours."""
        ours: dict[str, Tensor] = {}
        rows = [config.inner, config.inner, config.state_size, config.state_size, config.heads]
        for name, tensor in NAMES.to_ours(theirs, config.layers, config.tied).items():
            if name.endswith("mixer.inputs"):
                if tensor.dim() != 2 or len(tensor) != sum(rows):
                    raise UserError(f"mixer.in_proj must have {sum(rows):,} rows: its shape is {tuple(tensor.shape)}")
                above = name.removesuffix("inputs")
                ours |= {above + one: part for one, part in zip(INPUTS, tensor.split(rows), strict=True)}
            elif name.endswith("convolution_CE"):
                if tensor.dim() != 3 or tensor.shape[1] != 1:
                    raise UserError(f"mixer.conv1d must be (channels, 1, tokens): its shape is {tuple(tensor.shape)}")
                ours[name] = tensor[:, 0].T.contiguous()
            else:
                ours[name] = tensor
        return ours

    def to_theirs(self, ours: Mapping[str, Tensor], config: Mamba2Config) -> dict[str, Tensor]:
        """Our tensors as theirs."""
        theirs: dict[str, Tensor] = {}
        for name, called in NAMES.to_theirs(config.layers, config.tied).items():
            if name.endswith("mixer.inputs"):
                above = name.removesuffix("inputs")
                theirs[called] = torch.cat([ours[above + one] for one in INPUTS])
            elif name.endswith("convolution_CE"):
                theirs[called] = ours[name].T[:, None].contiguous()
            else:
                theirs[called] = ours[name].contiguous()
        return theirs


def _is_unlimited(limit: Any) -> bool:
    """Whether steps may be from nothing to infinity, which JSON has several ways to write."""
    if not isinstance(limit, list) or len(limit) != 2:
        return False
    low, high = (end.get("__float__") if isinstance(end, Mapping) else end for end in limit)
    return low == 0 and str(high).lower() in ("inf", "infinity")
