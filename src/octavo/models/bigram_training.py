"""Training the neural bigram on the table of pair counts: what follows what, and how often.

The gradient depends on the text only through the counts, so a step costs the same for a text of any length. A step
takes some contexts with all that was counted after them. Context i is taken with probability q_i, higher for frequent
ones, and weighed by 1 / q_i, so the step's gradient is that of the whole table on average.

V vocabulary, Y tokens that can come next, C contexts in a step, P pairs, N tokens.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.io.progress import progress
from octavo.models.bigram import SPREAD, Bigram, BigramConfig, Pairs, loss_and_gradient, pair_logp
from octavo.models.cost.parts import Cache, Cost, Part, Shape, linear
from octavo.models.spec import FitContext, Fitted, ModelSpec
from octavo.models.views import Tap, View
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.validation_chunks import hold_out
from octavo.text.word_vectors import match_vectors, read_origin

EVERY = 50  # steps between measurements on the validation chunks
COUNTED = 1 << 24  # tokens counted at once
SHARPNESS = 0.75  # q_i grows with n_i to this power: measured best between 0.5 and 1
MOMENTUM, MEMORY, LEAST = 0.9, 0.99, 1e-8  # Adam's averages of the gradient and of its square

Report = Callable[[dict[str, Any]], None]


class PairCounts:
    """The pairs of a text by context: those of context i are from starts[i] to starts[i + 1]."""

    def __init__(self, x_N: Tensor, vocab: int) -> None:
        key_P, n_P = count_pairs(x_N, vocab)
        self.vocab = vocab
        self.context_P, self.next_P, self.n_P = key_P // vocab, key_P % vocab, n_P.float()
        self.starts = torch.searchsorted(self.context_P, torch.arange(vocab + 1, device=x_N.device))
        self.n_V = torch.zeros(vocab, device=x_N.device).index_add_(0, self.context_P, self.n_P)
        self.total = float(n_P.sum())

    def of(self, context_C: Tensor, weight_C: Tensor) -> Pairs:
        """The pairs of some contexts, each context's counts multiplied by its weight."""
        first_C = self.starts[context_C]
        size_C = self.starts[context_C + 1] - first_C
        row_P = torch.repeat_interleave(torch.arange(len(context_C), device=context_C.device), size_C)
        place_P = torch.arange(len(row_P), device=row_P.device) + (first_C - size_C.cumsum(0) + size_C)[row_P]
        return Pairs(row_P, self.next_P[place_P], self.n_P[place_P] * weight_C[row_P])


def count_pairs(x_N: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """context * vocab + next of every pair that occurs, in order, and how often; a begin token follows nothing."""
    key_P = torch.zeros(0, dtype=torch.int64, device=x_N.device)
    n_P = torch.zeros(0, dtype=torch.int64, device=x_N.device)
    for start in range(0, len(x_N) - 1, COUNTED):
        part_N = x_N[start : start + COUNTED + 1].long()
        new_P, times_P = torch.unique((part_N[:-1] * vocab + part_N[1:])[part_N[1:] != vocab - 1], return_counts=True)
        if not len(key_P):
            key_P, n_P = new_P, times_P
            continue
        key_P, at_P = torch.unique(torch.cat([key_P, new_P]), return_inverse=True)
        n_P = torch.zeros_like(key_P).index_add_(0, at_P, torch.cat([n_P, times_P]))
    return key_P, n_P


def chances(n_V: Tensor, batch: int) -> Tensor:
    """q_V: how likely a step takes each context; they sum to `batch`, and the most frequent are always taken."""
    size_V = n_V**SHARPNESS
    q_V = torch.zeros_like(n_V)
    free_V = n_V > 0
    while bool(free_V.any()):
        room = max(0.0, batch - float((q_V == 1).sum()))
        q_V = torch.where(free_V, room * size_V / size_V[free_V].sum(), q_V)
        over_V = free_V & (q_V >= 1)
        if not bool(over_V.any()):
            break
        q_V = q_V.masked_fill(over_V, 1.0)
        free_V = free_V & ~over_V
    return q_V


def fit_bigram(
    x_N: Tensor,
    config: BigramConfig,
    vocab: int,
    generator: torch.Generator,
    vectors_VD: Tensor | None = None,
    known_V: Tensor | None = None,
    report: Report | None = None,
) -> Bigram:
    """Train on x_N, in which the begin token opens every document, on the device where x_N lies.

    With patience, validation chunks spread over the text are first held out, to find after how many steps nothing
    better comes; then all of the text is trained on for as many. Without, it is trained on for all steps. Without
    `known_V`, all of `vectors_VD` is known. `report` gets a row every 50 steps.
    """
    everything = PairCounts(x_N, vocab)
    if not everything.total:
        raise UserError(f"a bigram learns from pairs of tokens: the text has {len(x_N)} tokens; give a longer one")
    model = Bigram(config, vocab)
    model.initialise(generator)
    with torch.no_grad():
        if vectors_VD is not None:
            model.x_VD.copy_(_completed(vectors_VD, known_V, config, generator))
        model.to(x_N.device)
        steps = config.steps
        if config.patience:
            held = hold_out(x_N.cpu().numpy(), model.begin)
            train_N, chunks_PL = (torch.from_numpy(tokens).to(x_N) for tokens in (held.train_N, held.pieces_PL))
            rest, chunks = PairCounts(train_N, vocab), PairCounts(model.prepend_begin(chunks_PL).flatten(), vocab)
            if rest.total and chunks.total:
                steps = _descend(copy.deepcopy(model), rest, steps, generator, report, chunks)
        _descend(model, everything, steps, generator, report)
    return model


def _completed(vectors_VD: Tensor, known_V: Tensor | None, config: BigramConfig, generator: torch.Generator) -> Tensor:
    """The vectors, those that are not known drawn like the known: with their mean and spread in each dimension.

    Drawn, not all the mean: tokens that start alike would share one hidden state until training parts them.
    """
    vocab, dim = vectors_VD.shape
    if dim != config.dim:
        raise UserError(f"dim must be that of the vectors: dim={config.dim}, they have {dim}; try --dim {dim}")
    known_V = torch.ones(vocab, dtype=torch.bool) if known_V is None else known_V
    known_KD = vectors_VD[known_V]
    if len(known_KD) < 2:
        raise UserError(f"{len(known_KD)} tokens have a vector; use a word tokenizer (--tokenizer word), or no vectors")
    drawn_VD = known_KD.mean(0) + known_KD.std(0) * torch.randn(vocab, dim, generator=generator)
    return torch.where(known_V[:, None], vectors_VD, drawn_VD)


def _descend(
    model: Bigram,
    counts: PairCounts,
    steps: int,
    generator: torch.Generator,
    report: Report | None,
    held: PairCounts | None = None,
) -> int:
    """Train for so many steps, or until pairs held out get no better; returns after which step it was best."""
    config = model.config
    n_Y = torch.zeros_like(model.b2_Y).index_add_(0, counts.next_P, counts.n_P)
    model.b2_Y.copy_(((n_Y + 1) / (n_Y + 1).sum()).log())  # the bag of words, add-one, because W2 is zero
    mean_D, spread_D = _standardise(model)
    descent = _Descent(model, counts, generator)
    best, best_step, loss = math.inf, 0, 0.0
    with progress("training" if held is None else "finding when to stop", steps, "steps") as advance:
        for step in range(1, steps + 1):
            loss += descent.step(config.rate * (1 - (step - 1) / config.steps))
            advance(1)
            if step % EVERY and step != steps:
                continue
            row = {"step": step, "loss": loss / ((step - 1) % EVERY + 1)}
            loss = 0.0
            if held is not None:
                row["held_out"] = held_out_loss(model, held)
                best, best_step = min((best, best_step), (row["held_out"], step))
            if report is not None:
                report(row)
            if held is not None and step - best_step >= config.patience * EVERY:
                break
    _put_back(model, mean_D, spread_D)
    return best_step if held is not None else steps


class _Descent:
    """Adam on the hand-written gradient of a step's contexts; torch's own takes a second to import."""

    def __init__(self, model: Bigram, counts: PairCounts, generator: torch.Generator) -> None:
        self.model, self.counts, self.generator = model, counts, generator
        q_V = chances(counts.n_V, model.config.batch)
        self.weight_V = 1 / (q_V * counts.total)  # of contexts that never came: infinite, and never taken
        self.chance_V = q_V.cpu()  # so that the same seed takes the same contexts on every device
        self.mean, self.square = ([torch.zeros_like(w) for w in model.weights()] for _ in range(2))
        self.steps = 0

    def step(self, rate: float) -> float:
        """One step; the loss before it, in nats a token, as far as the step's contexts tell."""
        drawn_V = torch.rand(len(self.chance_V), generator=self.generator) < self.chance_V
        context_C = drawn_V.nonzero()[:, 0].to(self.weight_V.device)
        if not len(context_C):
            return 0.0
        pairs = self.counts.of(context_C, self.weight_V[context_C])
        loss, gradient = loss_and_gradient(self.model.weights(context_C), pairs)
        dx_VD = torch.zeros_like(self.model.x_VD).index_copy_(0, context_C, gradient.x_CD)
        self.steps += 1
        moved = zip(self.model.weights(), gradient._replace(x_CD=dx_VD), self.mean, self.square, strict=True)
        for w, g, m, v in moved:
            m.lerp_(g, 1 - MOMENTUM)
            v.mul_(MEMORY).addcmul_(g, g, value=1 - MEMORY)
            spread = (v / (1 - MEMORY**self.steps)).sqrt_().add_(LEAST)
            w.addcdiv_(m, spread, value=-rate / (1 - MOMENTUM**self.steps))
        return float(loss)


def _standardise(model: Bigram) -> tuple[Tensor, Tensor]:
    """Give every dimension of the vectors the mean 0 and the same spread, which descent finds easier than GloVe's."""
    mean_D, spread_D = model.x_VD.mean(0), model.x_VD.std(0).clamp(min=1e-6) / SPREAD
    model.x_VD.sub_(mean_D).div_(spread_D)
    return mean_D, spread_D


def _put_back(model: Bigram, mean_D: Tensor, spread_D: Tensor) -> None:
    """The vectors as they were measured before `_standardise`, and the first layer such that it answers the same."""
    model.x_VD.mul_(spread_D).add_(mean_D)
    model.W1_DH.div_(spread_D[:, None])
    model.b1_H.sub_(mean_D @ model.W1_DH)


def held_out_loss(model: Bigram, held: PairCounts) -> float:
    """Nats a token of pairs that were not learnt from."""
    context_C, row_P = torch.unique_consecutive(held.context_P, return_inverse=True)
    logp_P = pair_logp(model.weights(context_C), row_P, held.next_P)
    return -float((held.n_P * logp_P).sum()) / held.total


def _fit(x_N: Tensor, config: BigramConfig, tokenizer: Tokenizer, context: FitContext) -> Fitted:
    """From the config's word vectors, where it names some."""
    history: list[dict[str, Any]] = []
    start: tuple[Any, Any] = (None, None)
    generator, notes, origins = seeded_generator(context.seed), [], []
    if config.vectors:
        origins = [read_origin(config.vectors)]
        counts_V = torch.bincount(x_N, minlength=tokenizer.vocab).cpu().numpy()
        match = match_vectors(config.vectors, tokenizer, counts_V)
        start, notes = (torch.from_numpy(match.vectors_VD), torch.from_numpy(match.known_V)), match.notes
    model = fit_bigram(x_N, config, tokenizer.vocab, generator, *start, history.append)
    return Fitted(model, history, notes, origins)


def _cost(config: BigramConfig, V: int, shape: Shape) -> Cost:
    """A look-up, a hidden layer and the output; begin is never predicted. What is saved is what autograd would save."""
    N, D, H = shape.tokens, config.dim, config.hidden
    output = linear("output", N, [(V - 1, H)], bias=V - 1, muon=False)
    parts = (
        Part("embeddings", V * D, saved=N * D, saved_bytes=8 * N),
        linear("hidden", N, [(H, D)], bias=H, saved=N * H, muon=False),  # training has an Adam of its own
        replace(output, saved_bytes=N * (4 * V + 8) + 4),
    )
    return Cost("bigram", V, shape, parts, (Cache(),))


SPEC = ModelSpec(
    "bigram", "neural bigram", "a small network that sees the last token", "counts", Bigram, BigramConfig,
    fitting="counts", fit=_fit, uses_seed=True, cost=_cost,
    views=(View("gates", "Hidden units", "token-rows", "tapped-values",
                (Tap("hidden", "the output of the layer", signed=True),)),),
    summarise=lambda model, tokens: f"neural bigram of {tokens}, {model.config.hidden} hidden units",
    equation="h = σ(x_t W_1 + b_1)\np(x_{t+1} | x_t) = softmax(h W_2 + b_2)",
)  # fmt: skip
