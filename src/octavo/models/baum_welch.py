"""Baum-Welch: a hidden Markov model fitted by expectation maximisation instead of gradients.

Each iteration counts how often hidden states are expected to start, to follow each other and to emit tokens, and takes
the relative frequencies; the likelihood of the training sequences never falls (Baum et al. 1970).

N tokens, P sequences of at most T tokens, S hidden states, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import torch
from torch import Tensor

from octavo.config import Amount, Length, Range, check_ranges
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.io.progress import progress
from octavo.models.hidden_markov import EQUATION, HMM, LOGIT_SCALE, VIEWS, States, hidden_markov_cost, likely_tokens
from octavo.models.spec import Candidate, FitContext, Fitted, ModelSpec
from octavo.ops.hidden_markov import Expectations, HiddenMarkov, expected_counts
from octavo.text.tokenizers.base import Tokenizer

PRODUCTS = 3  # with A or of its shape at every token: α A, A β, and the pairs of states
MAX_BELIEFS = 1 << 22  # numbers of one kind held at once: 32 MB


@dataclass(frozen=True)
class BaumWelchConfig:
    """How a hidden Markov model is fitted by expectation maximisation."""

    states: States = 32
    """Hidden states."""
    iterations: Annotated[int, Range(1, 100_000)] = 50
    """At most so many rounds of expectation and maximisation."""
    tolerance: Amount = 1e-4
    """Stop when a round gains less than so many nats a token; 0 makes all rounds."""
    k: Annotated[float, Range(0, 1e9, above=True)] = 0.01
    """Added to every expected count, so that nothing has probability zero."""
    sequence_length: Length = 256
    """The text is read as sequences of so many tokens, each of which begins with the start probabilities."""

    def __post_init__(self) -> None:
        check_ranges(self)


class BaumWelchHMM(HMM):
    """A hidden Markov model that was fitted by Baum-Welch; it computes what every HMM does."""


def sequences(x_N: Tensor, begin: int, length: int) -> tuple[Tensor, Tensor]:
    """The text cut at begin tokens and after every `length` tokens, x_PT, padded with 0; and where its tokens are."""
    pieces: list[Tensor] = []
    at = [-1, *(x_N == begin).nonzero()[:, 0].tolist(), len(x_N)]
    for start, end in pairwise(at):
        pieces += [piece for piece in x_N[start + 1 : end].split(length) if len(piece)]
    if not pieces:
        raise UserError(f"Baum-Welch needs tokens to count: the text has {len(x_N)}; give a longer one")
    size_P = torch.tensor([len(piece) for piece in pieces], device=x_N.device)
    x_PT = torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True)
    return x_PT.long(), torch.arange(x_PT.shape[1], device=x_N.device) < size_P[:, None]


def expectation(m: HiddenMarkov, x_PT: Tensor, is_token_PT: Tensor) -> Expectations:
    """The expected counts of all sequences, some at a time."""
    rows = max(1, MAX_BELIEFS // (x_PT.shape[1] * len(m.start_S)))
    parts = [expected_counts(m, *part) for part in zip(x_PT.split(rows), is_token_PT.split(rows), strict=True)]
    total = parts[0]
    for part in parts[1:]:
        start_S, transition_SS, emission_VS = (one + more for one, more in zip(total[:3], part[:3], strict=True))
        logp = total.log_likelihood + part.log_likelihood
        total = Expectations(start_S, transition_SS, emission_VS, logp)
    return total


def maximisation(counts: Expectations, k: float, begin: int) -> HiddenMarkov:
    """Relative frequencies of the expected counts, k added to each."""
    start_S, transition_SS, emission_VS = (n + k for n in counts[:3])
    return HiddenMarkov(
        start_S / start_S.sum(), transition_SS / transition_SS.sum(1, keepdim=True), emission_VS / emission_VS.sum(0),
        begin,
    )  # fmt: skip


def fit_hidden_markov(
    x_N: Tensor, config: BaumWelchConfig, vocab: int, generator: torch.Generator,
    report: Callable[[dict[str, Any]], None] = lambda row: None,
) -> BaumWelchHMM:  # fmt: skip
    """Fit to x_N, in which the begin token opens every document, in double precision; start from random counts.

    The first emissions are the tokens' frequencies, disturbed: states that were all alike would stay so.
    """
    model = BaumWelchHMM(config, vocab)
    model.initialise(generator)
    x_PT, is_token_PT = sequences(x_N, model.begin, config.sequence_length)
    n_V = torch.bincount(x_PT[is_token_PT], minlength=vocab).double() + config.k
    with torch.no_grad():
        model.emission_VS.add_(n_V.log().to(model.emission_VS)[:, None] / LOGIT_SCALE)
        m = model.to(x_N.device, torch.float64).probabilities()
    tokens, before = int(is_token_PT.sum()), -float("inf")
    with progress("expectation maximisation", config.iterations, "rounds") as advance:
        for step in range(1, config.iterations + 1):
            counts = expectation(m, x_PT, is_token_PT)
            m = maximisation(counts, config.k, model.begin)
            mean = counts.log_likelihood / tokens
            report({"step": step, "loss": -mean, "flops": PRODUCTS * 2 * is_token_PT.numel() * config.states**2})
            advance(1)
            if mean - before < config.tolerance:
                break
            before = mean
    with torch.no_grad():
        for weight, p in zip(model.parameters(), m[:3], strict=True):
            weight.copy_(p.log() / LOGIT_SCALE)
    return model.float()


def _fit(x_N: Tensor, config: BaumWelchConfig, tokenizer: Tokenizer, context: FitContext) -> Fitted:
    history: list[dict[str, Any]] = []
    generator = seeded_generator(context.seed)
    return Fitted(fit_hidden_markov(x_N, config, tokenizer.vocab, generator, history.append), history)


SPEC = ModelSpec(
    "hmm-em", "hidden Markov model, Baum-Welch", "a hidden Markov model, fitted by expectation maximisation",
    "hidden-markov", BaumWelchHMM, BaumWelchConfig, fitting="counts", fit=_fit, uses_seed=True,
    cost=lambda config, V, shape: hidden_markov_cost("hmm-em", config, V, shape), views=VIEWS, details=likely_tokens,
    candidates=lambda seconds, device: [
        Candidate("hmm-em", "hidden Markov model, Baum-Welch", "hmm-em", only_if_named=True)
    ],
    summarise=lambda model, tokens: f"hidden Markov model of {tokens}, {model.config.states} states, Baum-Welch",
    equation=EQUATION + """
E step: n(s), n(s s′), n(s x): how often a state starts, follows another, emits a token, expected given the text
M step: π(s) = n(s) + k, A(s′ | s) = n(s s′) + k, E(x | s) = n(s x) + k, each divided by its sum""",
)  # fmt: skip
