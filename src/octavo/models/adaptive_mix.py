"""A mixture that goes on learning while it reads: its parts' distributions, mixed bit by bit in the logarithmic domain.

`mixing_loops` has the equations. A part is one expert; an adaptive n-gram model is one for each length of context. The
mixture itself adds what hashed contexts and a match say (`context_tables`).

B batch, T time, V vocabulary, I experts, P numbers that are learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from octavo.config import LearningRate, Range, check_ranges
from octavo.core import LanguageModel, Session
from octavo.errors import UserError
from octavo.models import context_tables as contexts
from octavo.models import mixing_loops as loops
from octavo.models.adaptive_mix_coder import AdaptiveMixCoder
from octavo.models.adaptive_mix_session import AdaptiveMixSession, MixReader
from octavo.models.adaptive_mix_views import EXPERTS
from octavo.models.context_reader import SAVED, ContextReader, first_tables, id_kinds, loaded_tables
from octavo.models.dynamic_evaluation import AdaptiveConfig, adapted
from octavo.models.mix import check_parts, short_title
from octavo.models.ngram import AdaptiveNGram
from octavo.models.reader_pool import ReaderPool
from octavo.models.spec import Candidate, ModelSpec
from octavo.models.views import Table

Array = NDArray[Any]
State = tuple[Any, ...]  # parts' states, θ, the experts' last distributions, three numbers of each row, tokens read
LAST, BEFORE, KIND = range(3)  # the last two tokens, and the context class
MAX_READERS = 2  # of contexts, that a mixture stores beside those of the last call
CHUNK_NUMBERS = 1 << 22  # of experts' distributions that are made at once


@dataclass(frozen=True)
class AdaptiveMixConfig:
    """How an adaptive mixture is made."""

    rate: Annotated[float, Range(0, 1.0)] = 0.004
    """The step size of the experts' weights."""
    final_rate: Annotated[float, Range(0, 1.0)] = 0.0005
    """The step size of the weights by which the selectors' sums are mixed again."""
    contexts: bool = True
    """Count bits after hashed contexts (words, lines, tokens further back) and follow the longest match, beside what
    the parts say; --no-contexts leaves it to the parts."""
    networks: bool = True
    """Networks among the parts learn while they read, too (dynamic evaluation); --no-networks leaves them fixed."""
    learning_rate: LearningRate = 4e-4
    """The size of the networks' steps: larger than for a network alone, because the mixture weighs what it says."""
    segment: Annotated[int, Range(1, 1 << 16)] = 64
    """Tokens between two steps of the networks."""
    calibration_bits: Annotated[int, Range(0, 18)] = 16
    """Contexts of each calibration table: 2 to this power."""

    def __post_init__(self) -> None:
        check_ranges(self)


class AdaptiveMix(LanguageModel[State]):
    """The state has the parts' states, and what the mixture has learnt since `start`."""

    theta_P: Tensor

    adaptive = True

    def __init__(self, config: AdaptiveMixConfig, parts: Sequence[LanguageModel[Any]]) -> None:
        super().__init__()
        check_parts(parts, least=1 if config.contexts else 2)
        self.config, self.vocab, self.begin = config, parts[0].vocab, parts[0].begin
        self.parts: Sequence[LanguageModel[Any]] = nn.ModuleList(parts)  # type: ignore[assignment]
        self.gate = next((i for i, part in enumerate(parts) if part.context_classes > 1), 0)
        leaves = self.vocab - 1 if self.begin == self.vocab - 1 else self.vocab
        self.shape = loops.Shape(
            sum(map(expert_count, parts)), contexts.INPUTS if config.contexts else 0, parts[self.gate].context_classes,
            leaves, max(1, (leaves - 1).bit_length()), 1 << config.calibration_bits, config.rate, config.final_rate,
        )  # fmt: skip
        self._experts: tuple[LanguageModel[Any], ...] | None = None
        share_I = np.concatenate([np.full(n, 1 / n / len(parts)) for n in map(expert_count, parts)])
        self.register_buffer("theta_P", torch.from_numpy(loops.first_theta(self.shape, share_I)))
        kind_V = id_kinds(lambda v: bytes([v]) if v < 256 else b"", self.vocab)
        self._set_context(ContextReader(first_tables(self.shape.bits, kind_V, 0), self.shape.bits, self.begin))

    def _set_context(self, reader: ContextReader) -> None:
        """Begin with what a reader knows of a text; its tables are buffers, so that they are saved."""
        self.context = ContextReader(reader.copy().tables, self.shape.bits, self.begin)
        self.pool = ReaderPool(self.context.copy, MAX_READERS)
        for name, tensor in self.context.saved().items() if self.shape.contexts else ():
            self.register_buffer(name, tensor)

    @property
    def experts(self) -> tuple[LanguageModel[Any], ...]:
        """The parts as they read: networks learn on the way. No module of this one, so nothing of it is saved."""
        if self._experts is None:
            steps = AdaptiveConfig(learning_rate=self.config.learning_rate, segment=self.config.segment)
            self._experts = tuple(
                adapted(part, steps) if self.config.networks and not part.adaptive and is_network(part) else part
                for part in self.parts
            )
        return self._experts

    def own_tensors(self) -> dict[str, Tensor]:
        return dict(self.named_buffers(recurse=False))  # the parts have taken theirs

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        if self.shape.contexts and set(SAVED) <= set(tensors):
            tables = loaded_tables(tensors, self.shape.bits, self.vocab)
            self._set_context(ContextReader(tables, self.shape.bits, self.begin))
        super().load_tensors(tensors)
        tables_P = self.theta_P[loops.theta_size(self.shape) - 2 * self.shape.calibration * loops.BINS :]
        if not bool(((tables_P >= 0) & (tables_P <= 1)).all()):
            raise UserError("calibration tables must hold probabilities: the file is damaged; train the mixture again")

    @property
    def context_policy(self) -> str:
        policies = dict.fromkeys(part.context_policy for part in self.experts)
        return "; ".join([*policies, "weights are learnt while it reads"])

    @property
    def max_scored_tokens(self) -> int:
        return min(part.max_scored_tokens for part in self.experts)

    @property
    def context_classes(self) -> int:
        return self.shape.classes

    def context_class(self, state: State) -> Tensor:
        classes: Tensor = state[3][:, KIND]
        return classes

    def start(self, batch: int) -> State:
        theta_BP = self.theta_P.repeat(batch, 1)
        p_BIV = torch.zeros(batch, self.shape.experts, self.vocab, dtype=torch.float64)
        recent_B3 = torch.tensor([[self.begin, self.begin, 0]]).repeat(batch, 1)
        read_BT = torch.zeros(batch, 0, dtype=torch.int32)
        return tuple(part.start(batch) for part in self.experts), theta_BP, p_BIV, recent_B3, read_BT

    def step(self, state: State, x_B: Tensor) -> tuple[Tensor, State]:
        logits_B1V, state = self.absorb(state, x_B[:, None])
        return logits_B1V[:, 0], state

    def predict(self, state: State, x_B: Tensor) -> tuple[Tensor, State]:
        logits_BV, state = self.step(state, x_B)
        return logits_BV.exp(), state

    def absorb(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        """Each token is first learnt from, by what the experts said of it; then they say what comes next."""
        states, *own = state
        readers = self.readers(*own)
        logp_BTV = np.empty((len(x_BT), x_BT.shape[1], self.vocab))
        for start in range(0, x_BT.shape[1], self._chunk(len(x_BT))):
            x_Bt = x_BT[:, start : start + self._chunk(len(x_BT))]
            p_BtIV, kind_Bt, states = expert_distributions(self.experts, self.gate, states, x_Bt)
            for b, reader in enumerate(readers):
                for t in range(x_Bt.shape[1]):
                    logp_BTV[b, start + t] = reader.read(int(x_Bt[b, t]), p_BtIV[b, t], int(kind_Bt[b, t]))
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(logp_BTV)), (states, *self.left_by(readers))

    def token_log_probs(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        """By the bits on each token's path alone."""
        states, *own = state
        readers = self.readers(*own)
        logp_BT = np.zeros((len(x_BT), max(0, x_BT.shape[1] - 1)))
        for start in range(0, x_BT.shape[1] - 1, self._chunk(len(x_BT))):
            x_Bt = x_BT[:, start : start + self._chunk(len(x_BT)) + 1]
            p_BtIV, kind_Bt, states = expert_distributions(self.experts, self.gate, states, x_Bt[:, :-1])
            for b, reader in enumerate(readers):
                scored_T = logp_BT[b, start : start + x_Bt.shape[1] - 1]
                reader.score(x_Bt[b].numpy(), p_BtIV[b], kind_Bt[b], scored_T)
        return torch.from_numpy(logp_BT), (states, *self.left_by(readers))

    def readers(self, theta_BP: Tensor, p_BIV: Tensor, recent_B3: Tensor, read_BT: Tensor) -> list[MixReader]:
        """What each row knows, to be read on from; the tensors stay as they are."""
        shared = [self.context] * len(read_BT)
        contexts_B = self.pool.readers_at(read_BT.numpy()) if self.shape.contexts else shared
        rows = zip(theta_BP.numpy(), p_BIV.numpy(), recent_B3.numpy(), contexts_B, strict=True)
        return [MixReader(self, *row) for row in rows]

    def joined(self, readers: Sequence[MixReader]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the rows' readers know, as the tensors of a state."""
        theta_BP = np.stack([reader.theta_P for reader in readers])
        p_BIV = np.stack([reader.p_IV for reader in readers])
        recent = [[reader.last, reader.before, reader.kind] for reader in readers]
        read_BT = np.stack([reader.context.history_T.copy() for reader in readers])
        return torch.from_numpy(theta_BP), torch.from_numpy(p_BIV), torch.tensor(recent), torch.from_numpy(read_BT)

    def left_by(self, readers: Sequence[MixReader]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What readers know that are not needed any more."""
        own = self.joined(readers)
        if self.shape.contexts:
            self.pool.release([reader.context for reader in readers])
        return own

    def _chunk(self, batch: int) -> int:
        return max(16, CHUNK_NUMBERS // max(1, batch * self.shape.experts * self.vocab))

    def learn_contexts(self, x_N: Tensor, kind_V: Array) -> None:
        """Count the contexts of a training text, in front of everything that is read later."""
        if self.shape.contexts:
            reader = ContextReader(first_tables(self.shape.bits, kind_V, len(x_N)), self.shape.bits, self.begin)
            reader.read(x_N.numpy())
            self._set_context(reader)

    def learn_text(self, x_T: Tensor) -> None:
        """Learn the weights on a text that no part has learnt from, and go on from there."""
        states, _, *own = self.start(1)
        opened_1T = self.prepend_begin(x_T[None])
        before = (states, self.theta_P[None].clone(), *own)
        _, theta_1P, *_, read_1T = self.token_log_probs(before, opened_1T)[1]
        self.theta_P = theta_1P[0]
        if self.shape.contexts:
            [context] = self.pool.readers_at(torch.cat([read_1T, opened_1T[:, -1:].int()], 1).numpy())
            self._set_context(context)

    def learn_pieces(self, pieces_PL: Tensor) -> int:
        """Learn the weights on pieces of text that no part has learnt from, one after the other."""
        for piece_L in pieces_PL:
            self.learn_text(piece_L)
        return int((pieces_PL != self.begin).sum())

    def take_weights(self, learner: AdaptiveMix) -> None:
        """Take what a mixture of the same shape has learnt."""
        self.theta_P = learner.theta_P
        self._set_context(learner.context)

    def text_coder(self) -> AdaptiveMixCoder:
        return AdaptiveMixCoder(self)

    def session(self, state: State, tokens: int = 1 << 30) -> Session[State]:
        return AdaptiveMixSession(self, state, tokens)


def is_network(part: LanguageModel[Any]) -> bool:
    """Whether a part has weights that were trained step by step; others that were fitted stay as they are."""
    from octavo.models import spec_of

    return next(part.parameters(), None) is not None and spec_of(part).trained_by_gradient


def expert_count(part: LanguageModel[Any]) -> int:
    """How many distributions a part offers."""
    return int(part.config.order) if isinstance(part, AdaptiveNGram) else 1


def expert_distributions(
    parts: Sequence[LanguageModel[Any]], gate: int, states: State, x_BT: Tensor
) -> tuple[Array, Array, State]:
    """p_BTIV of all experts after each token, the context class there, and the parts' states."""
    found, after, kind_BT = [], [], np.zeros(x_BT.shape, np.int64)
    for i, (part, state) in enumerate(zip(parts, states, strict=True)):
        if isinstance(part, AdaptiveNGram):
            p_BTIV, class_BT, state = part.order_distributions(state, x_BT)
            if i == gate:
                kind_BT = class_BT
        else:
            if i == gate and part.context_classes > 1:
                ahead_BT = torch.cat([x_BT, x_BT[:, :1]], 1)  # the class after the last token is asked for, too
                kind_BT = part.token_context_classes(state, ahead_BT).numpy()
            logits_BTV, state = part.absorb(state, x_BT)
            p_BTIV = logits_BTV.detach().softmax(-1, dtype=torch.float64)[:, :, None].numpy()
        found.append(p_BTIV)
        after.append(state)
    return np.concatenate(found, 2), kind_BT, tuple(after)


def _weights(model: AdaptiveMix, spell: Callable[[int], str]) -> Table:
    """How much each expert's logit counts, on average over the places of the tree, by matched length."""
    shape, width = model.shape, loops.input_count(model.shape)
    w_CLI = model.theta_P[: shape.classes * shape.bits * width].view(shape.classes, shape.bits, width)
    names = [name for part in model.parts for name in expert_names(part)]
    rows = tuple((str(c), *(f"{w:.2f}" for w in row[: shape.experts])) for c, row in enumerate(w_CLI.mean(1).tolist()))
    caption = "The weights of the experts' logits after training, by how much of the context was seen before."
    return Table(caption, ("tokens seen before", *names), rows)


def expert_names(part: LanguageModel[Any]) -> list[str]:
    """A word for each distribution that a part offers."""
    if isinstance(part, AdaptiveNGram):
        return [f"{k}-gram" for k in range(1, expert_count(part) + 1)]
    return [short_title(part)]


SPEC = ModelSpec(
    "adaptive-mix", "adaptive mixture", "a mixture of trained runs whose weights are learnt while it reads", "mixture",
    AdaptiveMix, AdaptiveMixConfig, fitting="mixture", gpu="none", details=_weights, views=(EXPERTS,),
    candidates=lambda seconds, device: [
        Candidate("cm-adaptive", "context mixing", "adaptive-mix", part_families=("counts",)),
        Candidate("mix-adaptive", "adaptive mixture", "adaptive-mix"),
    ],
    summarise=lambda model, tokens: f"adaptive mix of {', '.join(map(short_title, model.parts))} of {tokens}",
    parts=lambda model: model.parts,
    equation="""at each bit of a token: p = σ(Σ_s v_s y_s), y_s = Σ_i w_{s,i} x_i, x_i = ln(q_i / (1 - q_i))
q_i: what expert i gives the bit 1; s: sets of weights, chosen by matched length, last token and place
after the bit b: w_{s,i} += η (b - σ(y_s)) x_i, v_s += η′ (b - p) y_s
calibrated: p′ = (p + a₁(p) + a₂(p)) / 3, tables by the last token and the last two""",
)  # fmt: skip
