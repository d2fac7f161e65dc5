"""The hidden Markov model: a token is emitted by a hidden state, and a state is chosen by the one before.

B batch, T time, N tokens, S hidden states, C the same as those that a transition comes from, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Range, check_ranges
from octavo.core import LanguageModel
from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear, output
from octavo.models.spec import Candidate, ModelSpec
from octavo.models.views import GRADIENT_FLOW, Table, Tap, TokenDetail, TokenTable, View
from octavo.ops.hidden_markov import HiddenMarkov, forward, forward_step, state_probabilities, viterbi

States = Annotated[int, Range(1, 1 << 12)]
LOGIT_SCALE = 16.0  # logits for a weight of one: the optimizer's usual steps then move probabilities fast enough
SCORED_TOKENS = 4096  # by one call; more would only take memory
SHOWN_STATES, SHOWN_TOKENS = 12, 8  # of a page's table
TINTS = 8  # of a text's hidden states


@dataclass(frozen=True)
class HMMConfig:
    """How a hidden Markov model is made."""

    states: States = 32
    """Hidden states."""

    def __post_init__(self) -> None:
        check_ranges(self)


class HMM(LanguageModel[Tensor]):
    """p(x, z) = Π_t A(z_t | z_{t-1}) E(x_t | z_t); the state is the probability of each hidden state at the next token.

    The weights are logits of the start, transition and emission probabilities, in units of LOGIT_SCALE: every value of
    them is a model. They are tables of logits, not linear maps, so AdamW trains all of them.
    """

    config: Any
    begin_resets = True

    def __init__(self, config: Any, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab, self.begin = config, vocab, vocab - 1
        self.start_S = nn.Parameter(torch.empty(config.states))
        self.transition_CS = nn.Parameter(torch.empty(config.states, config.states))
        self.emission_VS = nn.Parameter(torch.empty(vocab, config.states))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Drawn, so that no two hidden states are alike: equal ones would get equal gradients and stay equal."""
        self.start_S.zero_()
        for weight in (self.transition_CS, self.emission_VS):
            weight.copy_(torch.randn(weight.shape, generator=generator) / LOGIT_SCALE)

    @property
    def max_scored_tokens(self) -> int:
        return min(SCORED_TOKENS, super().max_scored_tokens)

    def probabilities(self) -> HiddenMarkov:
        """Start, transition and emission probabilities, from their logits."""
        start_S, transition_SS, emission_VS = (
            (LOGIT_SCALE * weight).softmax(axis)
            for weight, axis in ((self.start_S, 0), (self.transition_CS, 1), (self.emission_VS, 0))
        )
        return HiddenMarkov(start_S, transition_SS, emission_VS, self.begin)

    def start(self, batch: int) -> Tensor:
        """Nothing is known, not even that a text begins: all hidden states are equally probable."""
        return self.start_S.new_full((batch, self.config.states), 1 / self.config.states)

    def step(self, state: Tensor, x_B: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(x_B.device.type, enabled=False):  # probabilities need the digits of single precision
            m = self.probabilities()
            q_BS, _ = forward_step(m, state, x_B, F.embedding(x_B, m.emission_VS))
            return log_mixture(q_BS, m.emission_VS), q_BS

    def absorb(self, state: Tensor, x_BT: Tensor) -> tuple[Tensor, Tensor]:
        if not x_BT.shape[1]:
            return state.new_zeros(len(x_BT), 0, self.vocab), state
        with torch.autocast(x_BT.device.type, enabled=False):  # as in step
            m = self.probabilities()
            q_BTS = forward(m, state, x_BT)
            return log_mixture(q_BTS, m.emission_VS), q_BTS[:, -1]


def log_mixture(q: Tensor, emission_VS: Tensor) -> Tensor:
    """log Σ_s q_s E(x | s) of every token x."""
    return (F.linear(q, emission_VS) + torch.finfo(q.dtype).tiny).log()


def hidden_markov_cost(name: str, config: Any, V: int, shape: Shape) -> Cost:
    """q A at every token, and the mixture of the emissions. Saved are the softmaxes of the weights too; of each token
    its emissions, q e, p, b and q; and the probabilities with their logarithms.
    """
    N, S = shape.tokens, config.states
    start = Part("start", S, read=S, saved=S)
    transitions = linear("transitions", N, [(S, S)], muon=False, saved=4 * N * S + N + S * S)
    emissions = replace(output(N, V, S, tied=False), saved=N * S + N * V + V * S, saved_bytes=N * (4 * V + 9) + 4)
    return Cost(name, V, shape, (start, transitions, emissions), (Cache(constant=S),))


@torch.no_grad()
def viterbi_table(model: HMM, x_N: Sequence[int]) -> TokenTable:
    """The most probable path of hidden states, beside how probable each state is given the whole text."""
    m = model.probabilities().double()
    x_T = torch.tensor(list(x_N), dtype=torch.long, device=m.start_S.device)
    path, logp = viterbi(m, x_T)
    p_TS = state_probabilities(m, x_T)
    used = path.unique(sorted=True).tolist()
    details = []
    for state, p_S in zip(path.tolist(), p_TS, strict=True):
        best = p_S.topk(min(4, len(p_S)))
        listed = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        rows = tuple((str(s), f"{p:.1%}", "yes" if s == state else "") for s, p in listed)
        title = f"hidden state {state}, {float(p_S[state]):.1%} probable given the whole text"
        details.append(TokenDetail(used.index(state) % TINTS, title, rows, tuple(p for _, p in listed)))
    parts = tuple(
        " and ".join(f"state {s}" for s in used[tint::TINTS]) if len(used) <= 2 * TINTS
        else f"states {', '.join(map(str, used[tint::TINTS]))}"
        for tint in range(min(TINTS, len(used)))
    )  # fmt: skip
    return TokenTable(
        "Colour: the hidden state on the most probable path (Viterbi).",
        ("hidden state", "probability", "on the path"), tuple(details), parts=parts,
        summary=_path_summary(logp, float(model.score(x_T[None])[0].double().sum())),
    )  # fmt: skip


def _path_summary(log_joint: float, log_text: float) -> Table:
    """How probable the path is: with the text, and given it; and the text, over all paths."""
    given = math.exp(min(0.0, log_joint - log_text))
    rows = (
        ("the path and the text together", f"{-log_joint / math.log(2):.1f} bits"),
        ("the text, summed over all paths", f"{-log_text / math.log(2):.1f} bits"),
        ("the path, given the text", f"{given:.1%}" if given >= 0.001 else f"{given:.1e}"),
    )
    return Table("How probable the most probable path is; b bits are a probability of 2 to the power of -b.",
                 ("of", "probability"), rows)  # fmt: skip


@torch.no_grad()
def likely_tokens(model: HMM, spell: Any) -> Table:
    """What each of the hidden states that are most visited emits, and how often it follows itself."""
    m = model.probabilities()
    share_S = m.start_S
    for _ in range(100):  # far towards the stationary distribution
        share_S = share_S @ m.transition_SS
    rows = []
    for s in share_S.topk(min(SHOWN_STATES, len(share_S))).indices.tolist():
        tokens = m.emission_VS[:, s].topk(min(SHOWN_TOKENS, model.vocab)).indices.tolist()
        rows.append((
            str(s), f"{float(share_S[s]):.1%}", f"{float(m.transition_SS[s, s]):.1%}", " ".join(map(spell, tokens)),
        ))  # fmt: skip
    return Table(
        "The hidden states that are visited most, and the tokens that each emits most.",
        ("hidden state", "share of time", "follows itself", "tokens"), tuple(rows),
    )  # fmt: skip


VIEWS = (
    View("viterbi", "Viterbi path", "token-table", viterbi_table),
    View("belief", "Belief", "token-rows", "tapped-values",
         (Tap("belief", "the probability of each hidden state, given the text so far"),)),
    GRADIENT_FLOW,
)  # fmt: skip
EQUATION = """q_1 = π, q_{t+1} = b_t A
p(x_t | x_1 .. x_{t-1}) = Σ_s q_t(s) E(x_t | s)
b_t(s) = q_t(s) E(x_t | s) / p(x_t | x_1 .. x_{t-1})"""
SPEC = ModelSpec(
    "hmm", "hidden Markov model", "a hidden Markov model, trained by gradient", "hidden-markov", HMM, HMMConfig,
    cost=lambda config, V, shape: hidden_markov_cost("hmm", config, V, shape), views=VIEWS, details=likely_tokens,
    candidates=lambda seconds, device: [Candidate("hmm", "hidden Markov model", "hmm", only_if_named=True)],
    summarise=lambda model, tokens: f"hidden Markov model of {tokens}, {model.config.states} states",
    equation=EQUATION + "\nπ, A, E: softmax of the weights",
)  # fmt: skip
