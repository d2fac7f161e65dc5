"""The theory of vanishing and exploding gradients as a network that is measured like any other.

B batch, D hidden units, V vocabulary.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from octavo.core import LanguageModel, seeded_generator
from octavo.inspect.gradient_flow import Flow, gradient_flow

SCALES = (0.9, 1.0, 1.1)
Activation = Literal["linear", "tanh"]
WIDTH, VOCAB = 32, 8


class Orthogonal(LanguageModel[Tensor]):
    """h' = f(a Q h + W x) with an orthogonal Q, which turns vectors and keeps their length.

    Going back one step multiplies the gradient by a Qᵀ, so where f is the identity its norm after t steps is aᵗ times
    the first, exactly. The slope of a tanh is at most 1: there it is at most that, and close to it while h is small.
    """

    def __init__(self, scale: float, activation: Activation, inputs: float, generator: torch.Generator) -> None:
        super().__init__()
        self.vocab, self.begin, self.activation = VOCAB, VOCAB - 1, activation
        drawn_DD = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
        self.recurrent_DD = scale * torch.linalg.qr(drawn_DD).Q
        self.input_VD = inputs * torch.randn(VOCAB, WIDTH, generator=generator, dtype=torch.float64)
        self.output_VD = torch.randn(VOCAB, WIDTH, generator=generator, dtype=torch.float64)

    def start(self, batch: int) -> Tensor:
        return self.input_VD.new_zeros(batch, WIDTH)

    def step(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        a_BD = state @ self.recurrent_DD.T + self.input_VD[x_B]
        h_BD = a_BD.tanh() if self.activation == "tanh" else a_BD
        return h_BD @ self.output_VD.T, h_BD


def orthogonal_flow(
    scale: float, back: int, activation: Activation = "linear", inputs: float = 0.1, seed: int = 0
) -> Flow:
    """Gradient flow through such a network, reading random tokens; `inputs` is the size of W x."""
    generator = seeded_generator(seed)
    model = Orthogonal(scale, activation, inputs, generator)
    x_T = torch.randint(VOCAB - 1, (2 * back,), generator=generator).tolist()
    return gradient_flow(model, x_T, back)
