"""What the mixers share: queries, keys and values, the short convolution, the norm of what is read, the way out.

B batch, T tokens, H heads, K size of a key or value, D width, E channels of the convolution, C its tokens, P = C - 1.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.cost.recurrence import Recurrence
from octavo.models.linear_attention.config import LinearAttentionConfig
from octavo.models.parts.attention import join_heads, split_heads
from octavo.models.parts.feed_forward import init_inner, init_residual
from octavo.ops import linear
from octavo.ops.norm import rms_norm
from octavo.ops.short_convolution import short_convolution
from octavo.ops.tracing import tap


class Inputs(NamedTuple):
    """What the recurrence S_t = A_t S_{t-1} + k_t v_tᵀ reads: g is the logarithm of a decay, β what the delta rule
    writes."""

    q_BHTK: Tensor
    k_BHTK: Tensor
    v_BHTV: Tensor
    g_BHTJ: Tensor
    beta_BHT: Tensor | None = None


class Sizes(NamedTuple):
    """What a mixer's cost is made of."""

    shapes_OI: list[tuple[int, int]]
    """Its matrices but the last, which leads out of it."""
    vectors: int
    """Its other weights, those of the convolution included."""
    out_OI: tuple[int, int]
    heads: int
    key: int
    value: int
    """The columns of a head's state."""
    channels: int
    """Of the convolution."""
    decays: int = 1
    """Of each head."""
    fixed_decay: bool = False
    """Whether no weight changes the decay."""
    delta: bool = False
    kept: int = 0
    """Further numbers of the state that are kept in single precision."""

    @property
    def recurrence(self) -> Recurrence:
        return Recurrence(self.heads, self.key, self.value, self.decays, self.fixed_decay, self.delta)


class Mixer(nn.Module):
    """A layer with a state: S_t = A_t S_{t-1} + k_t v_tᵀ for each head, and y_t = q_t S_t. `inputs` says what A_t is.

    Its state is (past_BPE, S_BHKV) and what `start_rest` adds.
    """

    config: Any
    convolution_CE: nn.Parameter | None

    def __init__(self, config: LinearAttentionConfig) -> None:
        super().__init__()
        self.config = config
        channels = self.sizes(config).channels
        self.convolution_CE = nn.Parameter(torch.empty(config.convolution, channels)) if config.convolution else None

    @classmethod
    def sizes(cls, config: Any) -> Sizes:
        """What its cost is made of."""
        raise NotImplementedError

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        """Draw the weights; what `config` are the settings of is the block's other parts."""
        for name, weight in self.named_parameters(recurse=False):
            if name in ("norm_D", "norm_I"):
                weight.data.fill_(1)
            elif name.startswith("out_"):
                init_residual(weight, config, generator)
            elif name.startswith("convolution_C"):
                bound = self.config.convolution**-0.5
                weight.data.copy_(torch.empty(weight.shape).uniform_(-bound, bound, generator=generator))
            elif weight.dim() == 2:
                init_inner(weight, config, generator)
            else:
                weight.data.zero_()

    # ------------------------------------------------------------------ a state and a function of new tokens

    def start(self, batch: int) -> tuple[Tensor, ...]:
        sizes, weight = self.sizes(self.config), next(self.parameters())
        past_BPE = weight.new_zeros(batch, self.config.past, sizes.channels)
        S_BHKV = weight.new_zeros(batch, sizes.heads, sizes.key, sizes.value, dtype=linear.wide_enough(weight))
        return past_BPE, S_BHKV, *self.start_rest(batch)

    def start_rest(self, batch: int) -> tuple[Tensor, ...]:
        """What else is carried."""
        return ()

    def absorb(self, x_BTD: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """y_BTD after new tokens, and the new state."""
        past_BPE, S_BHKV, *rest = state
        q, k, v, past_BPE = self.project(x_BTD, past_BPE)
        given, rest = self.inputs(x_BTD, q, k, v, rest)
        show(given)
        y_BHTV, S_BHKV = self.attend(given, S_BHKV)
        y_BHTV = self.read(y_BHTV, given, rest).to(x_BTD.dtype)
        return self.out(y_BHTV, x_BTD), (past_BPE, S_BHKV, *self.last(rest))

    def project(self, x_BTD: Tensor, past_BPE: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q_BHTK, k_BHTK and v_BHTV, and the convolution's past."""
        raise NotImplementedError

    def inputs(self, x_BTD: Tensor, q: Tensor, k: Tensor, v: Tensor, rest: list[Tensor]) -> tuple[Inputs, list[Tensor]]:
        """What the recurrence reads, and what else is carried, of every token."""
        raise NotImplementedError

    def attend(self, given: Inputs, S_BHKV: Tensor) -> tuple[Tensor, Tensor]:
        """What the heads read in the state, and the new state."""
        return linear.attend_decaying(*given, S_BHKV)

    def read(self, y_BHTV: Tensor, given: Inputs, rest: list[Tensor]) -> Tensor:
        """What the heads hand on of what they read in the state."""
        return y_BHTV

    def last(self, rest: list[Tensor]) -> list[Tensor]:
        """What else is carried, after the last token."""
        return rest

    def out(self, y_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        """What the mixer adds to the residual stream."""
        raise NotImplementedError


class HeadMixer(Mixer):
    """A mixer whose heads share the width: queries, keys and values as attention has them, and perhaps a gate."""

    gated: ClassVar[bool] = True

    def __init__(self, config: LinearAttentionConfig) -> None:
        super().__init__(config)
        D = config.width
        self.query_DD = nn.Parameter(torch.empty(D, D))
        self.key_DD = nn.Parameter(torch.empty(D, D))
        self.value_DD = nn.Parameter(torch.empty(D, D))
        self.gate_DD = nn.Parameter(torch.empty(D, D)) if self.gated else None
        self.norm_D = nn.Parameter(torch.empty(D))
        self.out_DD = nn.Parameter(torch.empty(D, D))

    @classmethod
    def sizes(cls, config: Any) -> Sizes:
        D, K = config.width, config.head_size
        return Sizes([(D, D)] * (3 + cls.gated), D + 3 * D * config.convolution, (D, D), config.heads, K, K, 3 * D)

    def project(self, x_BTD: Tensor, past_BPE: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Each made by a convolution from the last tokens, where there is one."""
        qkv_BTE = F.linear(x_BTD, torch.cat([self.query_DD, self.key_DD, self.value_DD]))
        if self.convolution_CE is not None:
            qkv_BTE, past_BPE = short_convolution(qkv_BTE, past_BPE, self.convolution_CE)
            qkv_BTE = F.silu(qkv_BTE)
        q, k, v = split_heads(qkv_BTE, 3 * self.config.heads).chunk(3, 1)
        return q, k, v, past_BPE

    def out(self, y_BHTV: Tensor, x_BTD: Tensor) -> Tensor:
        """Each head brought to a mean square of one, gated where the mixer has a gate, and the output projection."""
        y_BTD = join_heads(rms_norm(y_BHTV, eps=self.config.norm_eps)) * self.norm_D.to(y_BHTV.dtype)
        if self.gate_DD is not None:
            y_BTD = y_BTD * self.gate(F.linear(x_BTD, self.gate_DD))
        return F.linear(y_BTD, self.out_DD)

    def gate(self, x_BTD: Tensor) -> Tensor:
        return F.silu(x_BTD)


def show(given: Inputs) -> None:
    """Queries, keys, decays and writing strengths of all tokens, for attention maps."""
    tap("queries", given.q_BHTK)
    tap("keys", given.k_BHTK)
    tap("log_decays", given.g_BHTJ)
    if given.beta_BHT is not None:
        tap("strengths", given.beta_BHT)


def show_gate(name: str, value_BHTJ: Tensor) -> None:
    """The gate's values for the newest token, by channel: what `step` shows."""
    tap(name, value_BHTJ[:, :, -1:].flatten(1))


def per_head(x_BTD: Tensor, weight_HD: Tensor, bias_H: Tensor | None = None) -> Tensor:
    """A number for each head and token, in single precision at least: exponentials are taken of it."""
    x_BTH = F.linear(x_BTD, weight_HD)
    x_BHT = x_BTH.to(linear.wide_enough(x_BTH)).transpose(1, 2)
    return x_BHT if bias_H is None else x_BHT + bias_H[:, None]


def unit(x_BHTK: Tensor) -> Tensor:
    """Vectors of length one, or a little less: near zero they stay near zero."""
    return F.normalize(x_BHTK, dim=-1, eps=1e-6)
