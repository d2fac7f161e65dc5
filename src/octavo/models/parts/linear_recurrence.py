"""What mixes the tokens in a block of a linear recurrence: h_t = a_t ⊙ h_{t-1} + b_t, with a and b from the tokens.

B batch, T tokens, D width, E units of the state, N complex ones, K taps of the short convolution, P = K - 1 tokens
before, C = K rows of its kernel. Matrices are (out, in).

The state never enters a_t and b_t, which is what distinguishes these from a GRU or LSTM: all tokens can be processed
at the same time. A step has a constant state.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.models.parts.feed_forward import zero
from octavo.models.recurrent import init_matrix
from octavo.ops.convolution import depthwise_convolution
from octavo.ops.linear_recurrence import convolve_powers, linear_recurrence, wide_enough
from octavo.ops.tracing import tap

State = tuple[Tensor, Tensor]  # h_BE, and the vectors that the short convolution still needs, past_BPD
DECAY = 8.0  # c of the RG-LRU: the state keeps a share of σ(Λ)^(c r)
SMALLEST_SQUARE = 1e-6  # of an input's factor: the root's slope is infinite at zero


def wide(x: Tensor) -> Tensor:
    """In single precision at least: in half, a share of 0.999 would be 1."""
    return x.to(wide_enough(x))


class ShortConvolution(nn.Module):
    """Every unit's own weighted sum over its last K values; with K = 1, a scale."""

    def __init__(self, K: int, width: int) -> None:
        super().__init__()
        self.kernel_CD = nn.Parameter(torch.empty(K, width))  # a row a place, as in a table of positions
        self.bias_D = nn.Parameter(torch.empty(width))

    def initialise(self, generator: torch.Generator) -> None:
        """The token itself at first, and a little of those before."""
        K, width = self.kernel_CD.shape
        self.kernel_CD.data.copy_(torch.empty(K, width).uniform_(-(K**-0.5), K**-0.5, generator=generator) / 2)
        self.kernel_CD.data[-1] += 1
        zero(self.bias_D)

    def start(self, batch: int) -> Tensor:
        return self.kernel_CD.new_zeros(batch, len(self.kernel_CD) - 1, self.kernel_CD.shape[1])

    def absorb(self, x_BTD: Tensor, past_BPD: Tensor) -> tuple[Tensor, Tensor]:
        inputs_BSD = torch.cat([past_BPD.to(x_BTD.dtype), x_BTD], 1)
        kernel_CD, bias_D = self.kernel_CD.to(x_BTD.dtype), self.bias_D.to(x_BTD.dtype)
        y_BTD = depthwise_convolution(inputs_BSD, kernel_CD, bias_D)
        return y_BTD, inputs_BSD[:, x_BTD.shape[1] :].to(past_BPD.dtype)

    def step(self, x_BD: Tensor, past_BPD: Tensor) -> tuple[Tensor, Tensor]:
        y_B1D, past_BPD = self.absorb(x_BD[:, None], past_BPD)
        return y_B1D[:, 0], past_BPD


class Mixer(nn.Module):
    """A recurrence with real numbers: project, convolve, the coefficients of each token, the states, read out.

    What is written for x is written for one token x_BD as for many x_BTD.
    """

    matrices: ClassVar[tuple[str, ...]]  # drawn at random; what is read out of the state is nothing at first

    def __init__(self, config: Any) -> None:
        super().__init__()
        D, E = config.width, config.units
        self.convolution = ShortConvolution(config.convolution, self.convolved(D, E))
        self.out_DE = nn.Parameter(torch.empty(D, E))

    @staticmethod
    def convolved(D: int, E: int) -> int:
        """The width at which the short convolution stands."""
        return D

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        self.convolution.initialise(generator)
        for name in self.matrices:
            init_matrix(getattr(self, name), "xavier", generator)
        self.out_DE.data.zero_()

    def project(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What goes through the recurrence, and what the states are multiplied with when they are read."""
        return x, None

    def coefficients(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """a and b of each token."""
        raise NotImplementedError

    def read(self, h: Tensor, gate: Tensor | None) -> Tensor:
        h = tap("hidden", h).to(self.out_DE.dtype)
        return F.linear(h if gate is None else h * gate, self.out_DE)

    def start(self, batch: int) -> State:
        return wide(self.out_DE.new_zeros(batch, self.out_DE.shape[1])), self.convolution.start(batch)

    def absorb(self, x_BTD: Tensor, state: State) -> tuple[Tensor, State]:
        """All tokens at once."""
        h_BE, past_BPD = state
        u_BTD, gate = self.project(x_BTD)
        u_BTD, past_BPD = self.convolution.absorb(u_BTD, past_BPD)
        a_BTE, b_BTE = self.coefficients(u_BTD)
        h_BTE = linear_recurrence(a_BTE, b_BTE, h_BE)
        return self.read(h_BTE, gate), (h_BTE[:, -1] if x_BTD.shape[1] else h_BE, past_BPD)

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        """The definition."""
        h_BE, past_BPD = state
        u_BD, gate = self.project(x_BD)
        u_BD, past_BPD = self.convolution.step(u_BD, past_BPD)
        a_BE, b_BE = self.coefficients(u_BD)
        h_BE = a_BE * h_BE + b_BE
        return self.read(h_BE, gate), (h_BE, past_BPD)


class MinGRUMixer(Mixer):
    """h_t = (1 - z_t) ⊙ h_{t-1} + z_t ⊙ n_t."""

    matrices = ("update_ED", "candidate_ED")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.update_ED, self.candidate_ED = (nn.Parameter(torch.empty(config.units, config.width)) for _ in range(2))
        self.update_bias_E, self.candidate_bias_E = (nn.Parameter(torch.empty(config.units)) for _ in range(2))

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        super().initialise(config, generator)
        zero(self.update_bias_E, self.candidate_bias_E)

    def coefficients(self, u: Tensor) -> tuple[Tensor, Tensor]:
        z = tap("update", wide(F.linear(u, self.update_ED, self.update_bias_E)).sigmoid())
        n = tap("candidate", wide(F.linear(u, self.candidate_ED, self.candidate_bias_E)))
        return 1 - z, z * n


class MinLSTMMixer(Mixer):
    """h_t = f_t ⊙ h_{t-1} + i_t ⊙ n_t, where f and i are two sigmoids divided by their sum."""

    matrices = ("forget_ED", "input_ED", "candidate_ED")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        D, E = config.width, config.units
        self.forget_ED, self.input_ED, self.candidate_ED = (nn.Parameter(torch.empty(E, D)) for _ in range(3))
        self.forget_bias_E, self.input_bias_E, self.candidate_bias_E = (nn.Parameter(torch.empty(E)) for _ in range(3))

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        super().initialise(config, generator)
        zero(self.input_bias_E, self.candidate_bias_E)
        self.forget_bias_E.data.fill_(config.forget_bias)

    def coefficients(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """f / (f + i) = σ(log f - log i), without a sum that could be zero."""
        log_f = F.logsigmoid(wide(F.linear(u, self.forget_ED, self.forget_bias_E)))
        log_i = F.logsigmoid(wide(F.linear(u, self.input_ED, self.input_bias_E)))
        f = tap("forget", (log_f - log_i).sigmoid())
        i = tap("input", 1 - f)
        n = tap("candidate", wide(F.linear(u, self.candidate_ED, self.candidate_bias_E)))
        return f, i * n


class RGLRUMixer(Mixer):
    """The recurrent block of Griffin: a real-gated linear recurrent unit beside a branch that gates what it says."""

    matrices = ("branch_ED", "gate_ED", "recurrence_EE", "input_EE")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        D, E = config.width, config.units
        self.branch_ED, self.gate_ED = (nn.Parameter(torch.empty(E, D)) for _ in range(2))
        self.recurrence_EE, self.input_EE = (nn.Parameter(torch.empty(E, E)) for _ in range(2))
        self.recurrence_bias_E, self.input_bias_E = (nn.Parameter(torch.empty(E)) for _ in range(2))
        self.decay_E = nn.Parameter(torch.empty(E))  # Λ

    @staticmethod
    def convolved(D: int, E: int) -> int:
        return E

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        """At r = 1 a step leaves of the units' states shares that are spread evenly."""
        super().initialise(config, generator)
        zero(self.recurrence_bias_E, self.input_bias_E)
        left_E = torch.empty(config.units).uniform_(config.smallest_share, config.largest_share, generator=generator)
        self.decay_E.data.copy_((-left_E.log() / DECAY).expm1().log())

    def project(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        return F.linear(x, self.branch_ED), F.gelu(F.linear(x, self.gate_ED), approximate="tanh")

    def coefficients(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """a = σ(-Λ)^(c r), and b = √(1 - a²) ⊙ i ⊙ u: what is forgotten makes room for what is new."""
        r = tap("recurrence", wide(F.linear(u, self.recurrence_EE, self.recurrence_bias_E)).sigmoid())
        i = tap("input", wide(F.linear(u, self.input_EE, self.input_bias_E)).sigmoid())
        log_a = -DECAY * F.softplus(wide(self.decay_E)) * r
        a = tap("retained", log_a.exp())
        room = (-torch.expm1(2 * log_a)).clamp_min(SMALLEST_SQUARE).sqrt()
        return a, room * (i * wide(u))


class LRUMixer(nn.Module):
    """The linear recurrent unit: h_t = λ ⊙ h_{t-1} + γ ⊙ B x_t with complex h, y_t = Re(C h_t) + d ⊙ x_t.

    λ = exp(-exp(ν) + i exp(θ)) stays inside the unit circle. The rows of `in_ID` are the real and the imaginary part
    of a row of B in turn (I = 2 N), and the columns of `out_DI` those of C, the imaginary with the other sign.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        D, N = config.width, config.units
        self.decay_N, self.phase_N, self.scale_N = (nn.Parameter(torch.empty(N)) for _ in range(3))  # ν, θ, log γ
        self.in_ID = nn.Parameter(torch.empty(2 * N, D))
        self.out_DI = nn.Parameter(torch.empty(D, 2 * N))
        self.skip_D = nn.Parameter(torch.empty(D))

    def initialise(self, config: Any, generator: torch.Generator) -> None:
        """λ is uniform on a ring of the complex plane; γ makes the states as large as the inputs at first."""
        small, large = config.smallest_radius**2, config.largest_radius**2
        square_N = torch.empty(config.units).uniform_(small, large, generator=generator)
        turn_N = torch.empty(config.units).uniform_(1e-4, 1.0, generator=generator)
        self.decay_N.data.copy_((-square_N.log() / 2).log())
        self.phase_N.data.copy_((config.largest_phase * turn_N).log())
        self.scale_N.data.copy_((1 - square_N).log() / 2)
        init_matrix(self.in_ID, "xavier", generator)
        self.out_DI.data.zero_()
        zero(self.skip_D)

    @property
    def polar(self) -> tuple[Tensor, Tensor]:
        """|λ| and the angle of λ."""
        return wide(self.decay_N).exp().neg().exp(), wide(self.phase_N).exp()

    @property
    def eigenvalues(self) -> Tensor:
        """λ_N."""
        radius_N, angle_N = self.polar
        return torch.polar(radius_N, angle_N)

    def start(self, batch: int) -> State:
        h_BN = wide(self.decay_N.new_zeros(batch, len(self.decay_N)))
        return h_BN, h_BN

    def inputs(self, x: Tensor) -> Tensor:
        """γ ⊙ B x, the last dimension its real and imaginary part."""
        Bx: Tensor = wide(F.linear(x, self.in_ID)).unflatten(-1, (-1, 2))
        return Bx * wide(self.scale_N).exp()[:, None]

    def read(self, h: Tensor, x: Tensor) -> Tensor:
        h = tap("hidden", h.flatten(-2)).to(x.dtype)
        y: Tensor = F.linear(h, self.out_DI) + self.skip_D.to(x.dtype) * x
        return y

    def absorb(self, x_BTD: Tensor, state: State, path: str = "recurrence") -> tuple[Tensor, State]:
        """All tokens at once; path="convolution" by the form that S4D has, which is the same up to rounding."""
        if not x_BTD.shape[1]:
            return x_BTD, state
        before_BN, b_BTN = torch.complex(*state), torch.view_as_complex(self.inputs(x_BTD))
        recur = convolve_powers if path == "convolution" else linear_recurrence
        h_BTN = recur(self.eigenvalues, b_BTN, before_BN)
        last_BN2 = torch.view_as_real(h_BTN[:, -1])
        return self.read(torch.view_as_real(h_BTN), x_BTD), (last_BN2[..., 0], last_BN2[..., 1])

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        """The definition, in real numbers, which every format of a model knows."""
        real_BN, imaginary_BN = state
        radius_N, angle_N = self.polar
        cos_N, sin_N = radius_N * angle_N.cos(), radius_N * angle_N.sin()
        b_BN2 = self.inputs(x_BD)
        after = (cos_N * real_BN - sin_N * imaginary_BN + b_BN2[..., 0],
                 sin_N * real_BN + cos_N * imaginary_BN + b_BN2[..., 1])  # fmt: skip
        return self.read(torch.stack(after, -1), x_BD), after


MIXERS: dict[str, type[Mixer] | type[LRUMixer]] = {
    "mingru": MinGRUMixer, "minlstm": MinLSTMMixer, "lru": LRUMixer, "rglru": RGLRUMixer,
}  # fmt: skip
