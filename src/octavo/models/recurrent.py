"""Recurrent language models: the past is a vector that each token changes.

B batch, T time, V vocabulary, D hidden units, I inputs of a layer, G = gates × D.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Layers, Range, Share, Width, check_ranges
from octavo.core import LanguageModel, single_thread
from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear, output, repeated
from octavo.models.parts.checks import check_choices
from octavo.models.spec import SHORT_BUDGET_SECONDS, Candidate, ModelSpec, ScalingLaw, Sizes
from octavo.models.views import GRADIENT_FLOW, Tap, View
from octavo.ops.recurrent import GATES, Cell, Weights, layer, step

State = tuple[Any, ...]  # for each layer h_BD, or (h_BD, c_BD) of an LSTM
Init = Literal["orthogonal", "xavier", "he"]
SCORED_TOKENS = 4096  # by one call; more would only take memory


@dataclass(frozen=True)
class RecurrentConfig:
    """How a recurrent network is made."""

    width: Width = 256
    """Hidden units of each layer, and the size of a token's embedding."""
    layers: Layers = 2
    """How many layers, each reading the one below."""
    dropout: Share = 0.0
    """Dropout: of embeddings, between layers and before the output."""
    tied: bool = True
    """Take the embeddings as output weights too; --no-tied gives the output weights of its own."""
    init: Init = "orthogonal"
    """How recurrent matrices are drawn, gate by gate; the others are he with he, otherwise xavier."""
    forget_bias: Annotated[float, Range(-1000, 1000.0)] = 1.0
    """lstm: the bias the forget gate starts with, so that the cell at first remembers."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)


class Layer(nn.Module):
    """The weights of one layer, named and ordered as in `torch.nn.RNN`, `GRU` and `LSTM`."""

    def __init__(self, cell: Cell, inputs: int, width: int) -> None:
        super().__init__()
        self.cell = cell
        G = GATES[cell] * width
        self.weight_ih = nn.Parameter(torch.empty(G, inputs))
        self.weight_hh = nn.Parameter(torch.empty(G, width))
        self.bias_ih = nn.Parameter(torch.empty(G))
        self.bias_hh = nn.Parameter(torch.empty(G))

    @property
    def weights(self) -> Weights:
        return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def initialise(self, init: Init, forget_bias: float, generator: torch.Generator) -> None:
        """Draw each gate's matrices on their own: a gate is a layer, and its neighbours are not its outputs."""
        for weight, how in ((self.weight_ih, "xavier" if init == "orthogonal" else init), (self.weight_hh, init)):
            for gate in weight.data.chunk(GATES[self.cell]):
                init_matrix(gate, how, generator)
        self.bias_ih.data.zero_()
        self.bias_hh.data.zero_()
        if self.cell == "lstm":
            _, forget, _, _ = self.bias_ih.data.chunk(4)
            forget.fill_(forget_bias)


def init_matrix(weight: Tensor | None, how: str, generator: torch.Generator) -> None:
    """Fill the matrix, where there is one, on the CPU, where the generator is: every device starts from the same."""
    if weight is None:
        return
    drawn = torch.empty(weight.shape)
    if how == "orthogonal":
        nn.init.orthogonal_(drawn, generator=generator)
    elif how == "xavier":
        nn.init.xavier_uniform_(drawn, generator=generator)
    elif how == "he":
        nn.init.kaiming_uniform_(drawn, nonlinearity="relu", generator=generator)
    else:
        nn.init.normal_(drawn, std=weight.shape[-1] ** -0.5, generator=generator)
    weight.data.copy_(drawn)


class Embedded(LanguageModel[State]):
    """Tokens become vectors on the way in, and vectors logits on the way out, by the same table if it is tied."""

    def __init__(self, config: Any, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        self.embedding_VD = nn.Parameter(torch.empty(vocab, config.width))
        self.output_VD = None if config.tied else nn.Parameter(torch.empty(vocab, config.width))
        self.output_bias_V = nn.Parameter(torch.empty(vocab))

    def initialise(self, generator: torch.Generator) -> None:
        init_matrix(self.embedding_VD, "normal", generator)
        init_matrix(self.output_VD, "xavier", generator)
        self.output_bias_V.data.zero_()

    @property
    def max_scored_tokens(self) -> int:
        return min(SCORED_TOKENS, super().max_scored_tokens)

    def embed(self, x: Tensor) -> Tensor:
        return self.drop(F.embedding(x, self.embedding_VD))

    def logits(self, h: Tensor) -> Tensor:
        return F.linear(h, self.embedding_VD if self.output_VD is None else self.output_VD, self.output_bias_V)

    def drop(self, h: Tensor) -> Tensor:
        return F.dropout(h, self.config.dropout) if self.training and self.config.dropout else h


class Recurrent(Embedded):
    """What the three networks share: a stack of layers, each a step over the one below."""

    cell: ClassVar[Cell]
    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig, vocab: int) -> None:
        super().__init__(config, vocab)
        self.layers: Any = nn.ModuleList(Layer(self.cell, config.width, config.width) for _ in range(config.layers))

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        for one in self.layers:
            one.initialise(self.config.init, self.config.forget_bias, generator)

    def start(self, batch: int) -> State:
        h_BD = self.embedding_VD.new_zeros(batch, self.config.width)
        return tuple((h_BD, h_BD) if self.cell == "lstm" else h_BD for _ in self.layers)

    def step(self, state: State, x_B: Tensor) -> tuple[Tensor, State]:
        y_BD, after = self.embed(x_B), []
        for one, before in zip(self.layers, state, strict=True):
            after.append(step(self.cell, y_BD, before, one.weights))
            y_BD = self.drop(after[-1][0] if self.cell == "lstm" else after[-1])
        return self.logits(y_BD), tuple(after)

    def absorb(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        y_TBD, after = self.embed(x_BT.t()), []
        one_by_one = len(x_BT) == 1 and x_BT.device.type == "cpu" and not torch.is_grad_enabled()
        with single_thread() if one_by_one else nullcontext():  # each token waits for the one before
            for one, before in zip(self.layers, state, strict=True):
                y_TBD, last = layer(self.cell, y_TBD, before, one.weights)
                y_TBD = self.drop(y_TBD)
                after.append(last)
        return self.logits(y_TBD.transpose(0, 1)), tuple(after)

    def name_state_parts(self, parts: list[Tensor]) -> dict[str, list[Tensor]]:
        """A state's tensors, or gradients with respect to them, by name: all, an LSTM's h and c, layer by layer."""
        each = 2 if self.cell == "lstm" else 1
        named = {"state": parts} | ({"h": parts[::2], "c": parts[1::2]} if self.cell == "lstm" else {})
        layers = len(parts) // each
        if layers > 1:
            named |= {f"layer {l + 1}": parts[each * l : each * (l + 1)] for l in range(layers)}
        return named


class RNN(Recurrent):
    """h' = tanh(W x + U h)."""

    cell = "rnn"


class GRU(Recurrent):
    """h' = (1 - z) n + z h: the update gate z says how much of the old state stays."""

    cell = "gru"
    muon_learning_rate = 0.08  # better than 0.05 on four texts, by 0.009 bits per byte after 60 s and 0.026 after 180 s


class LSTM(Recurrent):
    """c' = f c + i g and h' = o tanh(c'): what the cell c holds is only ever forgotten, not overwritten."""

    cell = "lstm"


HIDDEN = Tap("hidden", "the output of the layer", signed=True)
CANDIDATE = Tap("candidate", "what could be stored", signed=True)
TAPS: dict[Cell, tuple[Tap, ...]] = {
    "rnn": (HIDDEN,),
    "gru": (
        Tap("reset", "how much of the past the candidate sees"), Tap("update", "how much of the old state is retained"),
        CANDIDATE, HIDDEN,
    ),
    "lstm": (
        Tap("input", "how much of the candidate is let in"), Tap("forget", "how much of the cell is retained"),
        CANDIDATE, Tap("output", "how much of the cell is shown"), Tap("cell", "what is stored", signed=True),
        HIDDEN,
    ),
}  # fmt: skip
SMALL_BATCH = 32  # rows; 550,000 tokens of Shakespeare make a GRU of 2.37 bits per byte, 750,000 in the usual 128 2.51
SMALL_BATCH_RATE = 0.05  # of Muon: 2.209 bits per byte of held-out text after 900,000 tokens, at 0.08 2.223
SIZES = Sizes(
    tuple({"width": D, "batch_size": 128, "sequence_length": 64} for D in (512, 1024)),
    law=ScalingLaw(a=20.5, alpha=0.34, b=64.7, beta=0.28),
)
NARROW_GRU = 192  # units: 2.16 bits per byte of held-out text after 20 s, 2.20 with the usual 256 after 25 s


def gates_view(*taps: Tap) -> View:
    """Gates and states over the tokens, as `step` shows them."""
    return View("gates", "Gates and state", "token-rows", "tapped-values", taps)


def short_budget(seconds: float | None, **settings: Any) -> dict[str, Any]:
    """Settings that suit a recurrent network where its training time is short: smaller steps, more of them."""
    return {"batch_size": SMALL_BATCH, **settings} if seconds is not None and seconds < SHORT_BUDGET_SECONDS else {}


def layers_of(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def recurrent_cost(cell: Cell, config: RecurrentConfig, V: int, shape: Shape) -> Cost:
    """W x and U h in every layer; in backpropagation through time each of them twice."""
    N, B, D = shape.tokens, shape.batch, config.width
    dropped = N * D if config.dropout else 0
    G = GATES[cell] * D
    # Saved are the states, with one before the first, and the gates.
    saved = {"rnn": N * D + B * D, "gru": 5 * N * D + B * D, "lstm": 7 * N * D + 2 * B * D}[cell]
    parts = (
        Part("embeddings", V * D, saved=N * D + dropped),
        repeated(linear("layers", N, [(G, D), (G, D)], bias=2 * G, saved=saved + dropped), config.layers),
        vocabulary_part(N, V, D, config.tied),
    )
    state = Cache(constant=config.layers * D * (2 if cell == "lstm" else 1))
    return Cost(cell, V, shape, parts, (state,))


def vocabulary_part(N: int, V: int, D: int, tied: bool) -> Part:
    """Logits with a bias, and the loss: its input laid out anew, log-probabilities in single precision, targets."""
    return replace(output(N, V, D, tied, bias=V), saved=N * D, saved_bytes=N * (4 * V + 8) + 4)


EQUATIONS: dict[Cell, str] = {
    "rnn": "h_t = tanh(W x_t + U h_{t-1} + b)",
    "gru": """r_t = σ(W_r x_t + U_r h_{t-1} + b_r)
z_t = σ(W_z x_t + U_z h_{t-1} + b_z)
n_t = tanh(W_n x_t + b_n + r_t ⊙ (U_n h_{t-1} + c_n))
h_t = (1 - z_t) ⊙ n_t + z_t ⊙ h_{t-1}""",
    "lstm": """i_t = σ(W_i x_t + U_i h_{t-1} + b_i)
f_t = σ(W_f x_t + U_f h_{t-1} + b_f)
g_t = tanh(W_g x_t + U_g h_{t-1} + b_g)
o_t = σ(W_o x_t + U_o h_{t-1} + b_o)
c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t
h_t = o_t ⊙ tanh(c_t)""",
}


def _spec(
    model: type[Recurrent], title: str, description: str, tokenizers: tuple[str, ...] = (), sizes: Sizes | None = None,
    **short: Any,
) -> ModelSpec:  # fmt: skip
    cell = model.cell
    return ModelSpec(
        cell, title, description, "recurrent", model, RecurrentConfig, cost=partial(recurrent_cost, cell),
        views=(gates_view(*TAPS[cell]), GRADIENT_FLOW),
        candidates=lambda seconds, device: [
            Candidate(cell, title, cell, short_budget(seconds, **short), tokenizers, sizes=sizes)
        ],
        summarise=lambda model, tokens:
            f"{cell.upper()} of {tokens}, {layers_of(model.config.layers)} of {model.config.width}",
        equation=f"{EQUATIONS[cell]}\np(x_{{t+1}} | x_1 .. x_t) = softmax(E h_t + b)",
    )  # fmt: skip


RNN_SPEC = _spec(RNN, "plain recurrent network", "a plain recurrent network")
GRU_SPEC = _spec(
    GRU, "GRU", "a recurrent network with two gates", ("char", "bpe"), SIZES, width=NARROW_GRU,
    muon_learning_rate=SMALL_BATCH_RATE,
)  # fmt: skip
LSTM_SPEC = _spec(LSTM, "LSTM", "a recurrent network with gates and a cell", sizes=SIZES)
