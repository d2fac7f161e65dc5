"""The attention layers: softmax attention with any pattern, linear attention, synthesizers.

B batch, T new tokens, S tokens seen, H heads, G heads of keys and values, K size of a head, D width, E = G × K,
C context, M features.

Each is a state and a function of new tokens: `absorb(x_BTD, state, place)` gives y_BTD and the new state.
`settled(state)` says whether training meets states of this size again and again: one that still grows is met once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.parts.config import GPTConfig
from octavo.models.parts.feed_forward import init_inner, init_residual, zero
from octavo.models.parts.latent_attention import LatentAttention
from octavo.ops import linear
from octavo.ops.attention import attend
from octavo.ops.attention.kinds import Family
from octavo.ops.attention.synthesizer import dense_logits, synthesize
from octavo.ops.norm import rms_norm
from octavo.ops.positions import alibi_bias, rotate
from octavo.ops.tracing import tap


class Place(NamedTuple):
    """Where the new tokens stand: how far each pair of a rotary head is turned, where positions are rotary."""

    angles_TK: Tensor | None


def split_heads(x_BTE: Tensor, heads: int) -> Tensor:
    """(B, T, H K) as (B, H, T, K), nothing copied."""
    x_BHTK: Tensor = x_BTE.unflatten(-1, (heads, -1)).transpose(1, 2)
    return x_BHTK


def join_heads(y_BHTK: Tensor) -> Tensor:
    return y_BHTK.transpose(1, 2).flatten(2)


class AttentionProjections(nn.Module):
    """The weights of queries, keys, values and the output projection; the first three are one product."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        D, E = config.width, config.groups * config.head_size
        self.config = config
        self.query_DD = nn.Parameter(torch.empty(D, D))
        self.key_ED = nn.Parameter(torch.empty(E, D))
        self.value_ED = nn.Parameter(torch.empty(E, D))
        self.out_DD = nn.Parameter(torch.empty(D, D))
        self.query_bias = nn.Parameter(torch.empty(D)) if config.bias else None
        self.key_bias = nn.Parameter(torch.empty(E)) if config.bias else None
        self.value_bias = nn.Parameter(torch.empty(E)) if config.bias else None
        self.out_bias = nn.Parameter(torch.empty(D)) if config.bias else None

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        for weight in (self.query_DD, self.key_ED, self.value_ED):
            init_inner(weight, config, generator)
        init_residual(self.out_DD, config, generator)
        zero(self.query_bias, self.key_bias, self.value_bias, self.out_bias)

    def project(self, x_BTD: Tensor, place: Place) -> tuple[Tensor, Tensor, Tensor]:
        """q_BHTK, k_BGTK, v_BGTK; queries and keys scaled and turned as the config says."""
        config = self.config
        qkv = split_heads(F.linear(x_BTD, *self.joined()), config.heads + 2 * config.groups)
        qk, v = qkv.split([config.heads + config.groups, config.groups], 1)
        if config.qk_norm:
            qk = rms_norm(qk, eps=config.norm_eps)
        if place.angles_TK is not None:
            qk = rotate(qk, place.angles_TK)
        q, k = qk.split([config.heads, config.groups], 1)
        return q, k, v

    def joined(self, first: int = 0) -> tuple[Tensor, Tensor | None]:
        """The weights and biases of queries, keys and values as those of one product; from `first` on, of three."""
        weights: list[Tensor] = [self.query_DD, self.key_ED, self.value_ED]
        biases: list[Tensor] = [one for one in (self.query_bias, self.key_bias, self.value_bias) if one is not None]
        return torch.cat(weights[first:]), torch.cat(biases[first:]) if biases else None

    def out(self, y_BHTK: Tensor) -> Tensor:
        return F.linear(join_heads(y_BHTK), self.out_DD, self.out_bias)


class Attention(AttentionProjections):
    """Softmax attention: the state is the KV cache, the keys and values of tokens that may be attended to again."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.pattern = config.pattern
        self.cache_tokens = config.cached_tokens

    def start(self, batch: int) -> Any:
        none = self.key_ED.new_zeros(batch, self.config.groups, 0, self.config.head_size)
        return none, none

    def settled(self, state: Any) -> bool:
        return self.config.absolute or state[0].shape[2] == self.cache_tokens

    def absorb(self, x_BTD: Tensor, state: Any, place: Place) -> tuple[Tensor, Any]:
        config = self.config
        q_BHTK, k_BGTK, v_BGTK = self.project(x_BTD, place)
        k_BGSK = torch.cat([state[0].to(k_BGTK.dtype), k_BGTK], 2) if state[0].shape[2] else k_BGTK
        v_BGSK = torch.cat([state[1].to(v_BGTK.dtype), v_BGTK], 2) if state[1].shape[2] else v_BGTK
        S = k_BGSK.shape[2]
        bias = None
        if config.positions == "alibi":
            bias = alibi_bias(config.heads, q_BHTK.shape[2], S, q_BHTK.dtype, x_BTD.device)
        y_BHTK = attend(q_BHTK, k_BGSK, v_BGSK, self.pattern, bias_HTS=bias)
        return self.out(y_BHTK), (k_BGSK[:, :, -self.cache_tokens :], v_BGSK[:, :, -self.cache_tokens :])


class LinearAttention(AttentionProjections):
    """Linear attention: the state is the sum of the keys' features times the values, and their sum alone; where heads
    forget, what each head keeps of them a token is fixed.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        if config.features == "random":
            directions_MK = torch.empty(config.head_size, config.head_size)
            self.features_MK = nn.Parameter(directions_MK, requires_grad=False)  # drawn and saved, but not learnt

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        super().initialise(config, generator)
        if config.features == "random":
            self.features_MK.data.copy_(linear.draw_random_features(config.head_size, config.head_size, generator))

    def start(self, batch: int) -> Any:
        H, K, wide = self.config.heads, self.config.head_size, linear.wide_enough(self.key_ED)
        return self.key_ED.new_zeros(batch, H, K, K, dtype=wide), self.key_ED.new_zeros(batch, H, K, dtype=wide)

    def settled(self, state: Any) -> bool:
        return True

    def absorb(self, x_BTD: Tensor, state: Any, place: Place) -> tuple[Tensor, Any]:
        q, k, v = self.project(x_BTD, place)
        shared = self.config.heads // self.config.groups
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        w_MK = self.features_MK if self.config.features == "random" else None
        q, k = linear.features(self.config.features, q, k, w_MK)
        q, k = tap("queries", q), tap("keys", k)
        if self.config.head_decay == "none":
            y_BHTK, state = linear.attend_linear(q, k, v, state)
        else:
            y_BHTK, state = linear.attend_fading(q, k, v, linear.fixed_decays(q.shape[1], q.device), state)
        return self.out(y_BHTK), state


class Synthesizer(nn.Module):
    """Attention weights that depend on the attending token alone (dense), or on its position alone (random)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        D, H, C = config.width, config.heads, config.context
        self.config = config
        self.value_DD = nn.Parameter(torch.empty(D, D))
        self.out_DD = nn.Parameter(torch.empty(D, D))
        if config.attention == "dense":
            self.look_DD = nn.Parameter(torch.empty(D, D))
            self.places_HCK = nn.Parameter(torch.empty(H, C, config.head_size))
        else:
            self.places_HCC = nn.Parameter(torch.empty(H, C, C))

    def initialise(self, config: GPTConfig, generator: torch.Generator) -> None:
        init_inner(self.value_DD, config, generator)
        init_residual(self.out_DD, config, generator)
        if config.attention == "dense":
            init_inner(self.look_DD, config, generator)
            for head in self.places_HCK:
                init_inner(head, config, generator)
        else:
            self.places_HCC.data.zero_()  # at first the mean of all tokens so far

    def start(self, batch: int) -> Any:
        return self.value_DD.new_zeros(batch, self.config.heads, 0, self.config.head_size)

    def settled(self, state: Any) -> bool:
        return True

    def absorb(self, x_BTD: Tensor, state: Any, place: Place) -> tuple[Tensor, Any]:
        T, H = x_BTD.shape[1], self.config.heads
        v_BHTK = split_heads(F.linear(x_BTD, self.value_DD), H)
        v_BHSK = torch.cat([state.to(v_BHTK.dtype), v_BHTK], 2)
        S = v_BHSK.shape[2]
        if self.config.attention == "dense":
            h_BHTK = split_heads(F.linear(x_BTD, self.look_DD), H)
            logits = dense_logits(h_BHTK, self.places_HCK[:, :S])
        else:
            logits = self.places_HCC[:, S - T : S, :S]
        y_BHTK = synthesize(logits, v_BHSK)
        return F.linear(join_heads(y_BHTK), self.out_DD), v_BHSK


ATTENTION_LAYERS: dict[
    Family, type[Attention] | type[LatentAttention] | type[LinearAttention] | type[Synthesizer]
] = {
    "softmax": Attention, "latent": LatentAttention, "linear": LinearAttention, "synthesizer": Synthesizer,
}  # fmt: skip
