"""A mixture of models: p = sum of w_i p_i, with weights chosen by how much a part knows about the context.

B batch, T time, V vocabulary, I parts, G context classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from octavo.config import Range, check_ranges
from octavo.core import MAX_REWIND_TOKENS, LanguageModel, Session, scan
from octavo.errors import UserError
from octavo.models.parts.checks import check_distribution
from octavo.models.spec import Candidate, ModelSpec
from octavo.models.views import Table, View
from octavo.ops.tracing import is_tracing

State = tuple[Any, ...]


@dataclass(frozen=True)
class MixConfig:
    """How a mixture is made."""

    by_class: bool = True
    """Weights for each context class (as each length of the longest matched n-gram); --no-by-class: one for all."""
    rounds: Annotated[int, Range(0, 1_000_000)] = 100
    """At most so many rounds of expectation-maximisation."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Mix(LanguageModel[State]):
    """The state is the tuple of the parts' states; the first part with context classes chooses the weights."""

    logw_GI: Tensor

    def __init__(self, config: MixConfig, parts: Sequence[LanguageModel[Any]]) -> None:
        super().__init__()
        check_parts(parts)
        if any(part.adaptive for part in parts):
            raise UserError(
                "a mixture with fixed weights takes fixed parts, and one of these goes on learning while it reads; "
                "train the mixture with --adaptive, or leave that part out"
            )
        self.config, self.vocab, self.begin = config, parts[0].vocab, parts[0].begin
        self.parts: Sequence[LanguageModel[Any]] = nn.ModuleList(parts)  # type: ignore[assignment]
        self.gate = next((i for i, part in enumerate(parts) if part.context_classes > 1), 0)
        classes = parts[self.gate].context_classes if config.by_class else 1
        even = torch.full((classes, len(parts)), 1 / len(parts), dtype=torch.float64)
        self.register_buffer("logw_GI", even.log())

    def own_tensors(self) -> dict[str, Tensor]:
        return {"logw_GI": self.logw_GI}  # the parts have taken theirs already

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        super().load_tensors(tensors)
        check_distribution(self.logw_GI, "the mixture's weights")

    @property
    def begin_resets(self) -> bool:
        return all(part.begin_resets for part in self.parts)

    @property
    def context_policy(self) -> str:
        return "; ".join(dict.fromkeys(part.context_policy for part in self.parts))

    def learn(self, logp_IN: Tensor, class_N: Tensor) -> None:
        """Choose the weights that make held-out tokens most probable: expectation-maximisation, class by class.

        One token shared evenly among the parts stands in each class beforehand, so that no weight is ever zero.
        """
        w_GI = self.logw_GI.exp()
        p_IN = (logp_IN - logp_IN.amax(0).clamp(min=-700)).exp()
        for _ in range(self.config.rounds):
            share_IN = w_GI[class_N].T * p_IN
            share_IN = share_IN / share_IN.sum(0)
            total_GI = torch.full_like(w_GI, 1 / len(w_GI[0])).index_add_(0, class_N, share_IN.T)
            w_new_GI = total_GI / total_GI.sum(1, keepdim=True)
            moved = (w_new_GI - w_GI).abs().max()
            w_GI = w_new_GI
            if moved < 1e-5:
                break
        self.logw_GI = w_GI.log()

    @torch.no_grad()
    def learn_pieces(self, pieces_PL: Tensor) -> int:
        """Learn the weights on pieces of text that no part has learnt from; returns how many tokens served."""
        x_PL = self.prepend_begin(pieces_PL)
        state, logps, classes, width = self.start(len(x_PL)), [], [], max(1, self.max_scored_tokens // len(x_PL))
        for start in range(0, x_PL.shape[1] - 1, width):
            x_PW = x_PL[:, start : start + width + 1]
            class_PW = self.token_context_classes(state, x_PW)
            logp_IPW, state = self.part_log_probs(state, x_PW)
            possible_PW = (logp_IPW > -torch.inf).any(0) & (x_PW[:, 1:] != self.begin)
            classes.append(class_PW[possible_PW])
            logps.append(logp_IPW[:, possible_PW])
        class_N = torch.cat(classes)
        self.learn(torch.cat(logps, 1), class_N)
        return len(class_N)

    def take_weights(self, learner: Mix) -> None:
        """Take the weights that a mixture of as many parts has learnt."""
        self.logw_GI = learner.logw_GI

    @property
    def max_scored_tokens(self) -> int:
        return min(part.max_scored_tokens for part in self.parts)

    @property
    def receptive_field(self) -> int | None:
        fields = [None if part.window_stride else part.receptive_field for part in self.parts]
        return None if None in fields else max(field for field in fields if field is not None)

    def start(self, batch: int) -> State:
        return tuple(part.start(batch) for part in self.parts)

    def step(self, state: State, x_B: Tensor) -> tuple[Tensor, State]:
        logits, states = zip(*(part.step(s, x_B) for part, s in zip(self.parts, state, strict=True)), strict=True)
        logp_IBV = torch.stack([logits_BV.double().log_softmax(-1) for logits_BV in logits])
        logw_IB1 = self._logw(states, len(x_B)).T[:, :, None]
        return (logw_IB1 + logp_IBV).logsumexp(0), states

    def token_log_probs(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        class_BT = self.token_context_classes(state, x_BT)
        logp_IBT, states = self.part_log_probs(state, x_BT)
        return (self.logw_GI[class_BT].permute(2, 0, 1) + logp_IBT).logsumexp(0), states

    def part_log_probs(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        """The log-probabilities of each part on its own, logp_IBT, and the states."""
        logps, states = zip(
            *(part.token_log_probs(s, x_BT) for part, s in zip(self.parts, state, strict=True)), strict=True
        )
        return torch.stack([logp_BT.double() for logp_BT in logps]), states

    def token_context_classes(self, state: State, x_BT: Tensor) -> Tensor:
        """The context class in front of each token that `token_log_probs` scores."""
        if len(self.logw_GI) == 1:
            return torch.zeros_like(x_BT[:, 1:])
        return self.parts[self.gate].token_context_classes(state[self.gate], x_BT)

    def _logw(self, states: State, batch: int) -> Tensor:
        """logw_BI for these states."""
        if len(self.logw_GI) == 1:
            return self.logw_GI.expand(batch, -1)
        return self.logw_GI[self.parts[self.gate].context_class(states[self.gate])]

    def session(self, state: State, tokens: int = 1 << 30) -> Session[State]:
        """The parts' own sessions side by side."""
        return Session(self, state) if is_tracing() else MixSession(self, state, tokens)


def check_parts(parts: Sequence[LanguageModel[Any]], least: int = 2) -> None:
    """Refuse parts that do not predict the same tokens, or too few."""
    vocabs = [part.vocab for part in parts]
    if len(parts) < least or len(set(vocabs)) > 1:
        wanted = "two or more parts" if least == 2 else "a part, or more of them"
        raise UserError(f"a mixture needs {wanted} with one tokenizer: vocabularies {vocabs}")


class MixSession(Session[State]):
    """A session of each part; only the votes are added here."""

    def __init__(self, model: Mix, state: State, tokens: int = 1 << 30) -> None:
        self.model = self.mix = model
        self.sessions = [part.session(s, tokens) for part, s in zip(model.parts, state, strict=True)]
        self.back = 0  # tokens that every part can take back

    @property
    def state(self) -> State:
        return tuple(session.state for session in self.sessions)

    @state.setter
    def state(self, state: State) -> None:
        self.back = 0
        for session, part in zip(self.sessions, state, strict=True):
            session.state = part

    def step(self, x_B: Tensor) -> Tensor:
        logp_IBV = torch.stack([session.step(x_B).double().log_softmax(-1) for session in self.sessions])
        self.back = min(MAX_REWIND_TOKENS, self.back + 1)
        return (self._logw(len(x_B)).T[:, :, None] + logp_IBV).logsumexp(0)

    def predict(self, x_B: Tensor) -> Tensor:
        p_IBV = torch.stack([session.predict(x_B) for session in self.sessions])
        self.back = min(MAX_REWIND_TOKENS, self.back + 1)
        return (self._logw(len(x_B)).exp().T[:, :, None] * p_IBV).sum(0)

    def absorb(self, x_BT: Tensor) -> Tensor:
        self.calls += 1
        logits = [self.step(x_B) for x_B in x_BT.unbind(1)]
        return torch.stack(logits, 1) if logits else scan(self.mix, self.state, x_BT)[0]

    def rewind(self, count: int) -> None:
        if not 0 <= count <= self.back:
            raise UserError(f"only the last {self.back} tokens can be taken back: count={count}; fork before instead")
        self.back -= count
        for session in self.sessions:
            session.rewind(count)

    def fork(self) -> MixSession:
        other = copy(self)
        other.sessions = [session.fork() for session in self.sessions]
        other.back = 0  # a fork need not be able to take back what came before it
        return other

    def _logw(self, batch: int) -> Tensor:
        """logw_BI at this place."""
        logw_GI = self.mix.logw_GI
        return logw_GI.expand(batch, -1) if len(logw_GI) == 1 else logw_GI[self.sessions[self.mix.gate].context_class()]


def _weights(model: Mix, spell: Callable[[int], str]) -> Table:
    """The weight of each part, for each class of contexts."""
    rows = ((str(g), *(f"{w:.1%}" for w in row)) for g, row in enumerate(model.logw_GI.exp().tolist()))
    caption = "How much each part's vote counts, by how much of the context was seen in training."
    return Table(caption, ("tokens seen before", *map(short_title, model.parts)), tuple(rows))


def short_title(model: LanguageModel[Any]) -> str:
    """A part of a mixture in a word: 7-gram, gru."""
    from octavo.models import name_of

    order = getattr(model.config, "order", None)
    return f"{order}-gram" if order is not None else name_of(model)


SPEC = ModelSpec(
    "mix", "mixture", "a vote of trained runs", "mixture", Mix, MixConfig, fitting="mixture",
    adaptive_variant="adaptive-mix",
    views=(View("votes", "Votes", "token-table", "votes"),),
    candidates=lambda seconds, device: [Candidate("mix", "mixture", "mix")],
    summarise=lambda model, tokens: f"mix of {', '.join(map(short_title, model.parts))} of {tokens}",
    details=_weights, log_tables=("logw_GI",), parts=lambda model: model.parts,
    equation="p(w | c) = Σ_i w_{i,g(c)} p_i(w | c), where g(c) is the class of the context c",
)  # fmt: skip
