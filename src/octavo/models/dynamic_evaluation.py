"""Dynamic evaluation: a trained network that goes on learning while it reads (Mikolov et al. 2010; Krause et al. 2018).

B batch, T time, S tokens of a segment, V vocabulary, P weights.

Token t of segment k is predicted with the weights that all segments before it made, and with a state carried on:

    p(x_t | x_<t) = softmax(f(x_<t; w_k))
    L_k = mean over the segment of -log p(x_t | x_<t)
    w_{k+1} = optimizer(w_k, dL_k / dw), the gradient cut off at the segment's beginning

A segment is learnt from when its last token has been scored, so every token is paid for before it is learnt from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from octavo.config import LearningRate, Range, Share, check_ranges
from octavo.core import LanguageModel, Session, device_of, map_state, state_from, tensors_of
from octavo.errors import UserError
from octavo.models.parts.checks import check_choices
from octavo.models.parts.weights import Learnt, WeightCopy, over_weights
from octavo.ops.tracing import is_tracing

SCORED_TOKENS = 8192  # by one call; the first segment of each call is read twice, so few calls are better


@dataclass(frozen=True)
class AdaptiveConfig:
    """How a network learns while it reads."""

    learning_rate: LearningRate = 2e-4
    """The size of a step."""
    segment: Annotated[int, Range(1, 1 << 16)] = 64
    """Tokens between two steps, and of each gradient."""
    optimizer: Literal["rms", "adam", "sgd"] = "rms"
    """rms: the gradient over the root of its mean square; adam: with momentum; sgd: the gradient itself."""
    mean_square_decay: Share = 0.999
    """rms, adam: the decay of the gradient's mean square from step to step."""
    decay: Share = 0.0
    """The share of the way back to the trained weights that follows each step."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)


class AdaptiveState(NamedTuple):
    """What was read and what was learnt from it; every row has read equally many tokens."""

    running: Any
    """The network's own state after all tokens."""
    before: Any
    """The same before the tokens of the segment."""
    seen_BS: Tensor
    """The tokens read since then, at most a segment."""
    learnt: Learnt | None
    """Each row's weights and optimizer state; None before the first step."""


class DynamicEvaluation(LanguageModel[AdaptiveState]):
    """A trained network whose weights are part of the state. `step` and `learn` are the definition."""

    def __init__(self, base: LanguageModel[Any], adaptation: AdaptiveConfig) -> None:
        super().__init__()
        self.base, self.adaptation = over_weights(base), adaptation  # modules of its own, so that dropout stays off
        self.config, self.vocab, self.begin = base.config, base.vocab, base.begin

    adaptive = True

    @property
    def context_policy(self) -> str:
        one = self.adaptation
        return (
            f"{self.base.context_policy}; adaptive: a step of {one.optimizer} after every {one.segment} tokens, "
            f"learning rate {one.learning_rate:g}"
        )

    @property
    def max_scored_tokens(self) -> int:
        segment = self.adaptation.segment
        return max(1, SCORED_TOKENS // segment) * segment

    def start(self, batch: int) -> AdaptiveState:
        running = self.base.start(batch)
        none_BS = torch.zeros(batch, 0, dtype=torch.long, device=device_of(self))
        return AdaptiveState(running, running, none_BS, None)

    # ------------------------------------------------------------------ the definition

    @torch.no_grad()
    def step(self, state: AdaptiveState, x_B: Tensor) -> tuple[Tensor, AdaptiveState]:
        if state.seen_BS.shape[1] == self.adaptation.segment:
            state = self.learn(state, x_B)
        rows = [WeightCopy(self.base, self.adaptation, one.learnt).model.step(one.running, x_1)
                for one, x_1 in zip(rows_of(state), x_B.split(1), strict=True)]  # fmt: skip
        seen_BS = torch.cat([state.seen_BS, x_B[:, None]], 1)
        running = joined([one for _, one in rows])
        return torch.cat([logits_1V for logits_1V, _ in rows]), state._replace(running=running, seen_BS=seen_BS)

    def learn(self, state: AdaptiveState, x_B: Tensor) -> AdaptiveState:
        """The state after a step of the optimizer on a full segment, whose last token's successor is x_B."""
        learnt = []
        for one, x_1 in zip(rows_of(state), x_B.split(1), strict=True):
            copy = WeightCopy(self.base, self.adaptation, one.learnt)
            copy.read_and_learn(one.before, one.seen_BS, x_1)
            learnt.append(copy.learnt)
        return AdaptiveState(state.running, state.running, state.seen_BS[:, :0], joined(learnt))

    # ------------------------------------------------------------------ fast paths

    def absorb(self, state: AdaptiveState, x_BT: Tensor) -> tuple[Tensor, AdaptiveState]:
        rows = []
        for one, x_1T in zip(rows_of(state), x_BT.split(1), strict=True):
            reader = Reader(self, one)
            logits = [logits_1NV for _, logits_1NV in reader.read(x_1T)]
            rows.append((torch.cat(logits, 1) if logits else reader.no_logits(), reader.state))
        return torch.cat([logits_1TV for logits_1TV, _ in rows]), joined([one for _, one in rows])

    def token_log_probs(self, state: AdaptiveState, x_BT: Tensor) -> tuple[Tensor, AdaptiveState]:
        rows = []
        for one, x_1T in zip(rows_of(state), x_BT.split(1), strict=True):
            reader = Reader(self, one)
            parts = [reader.no_logits()[..., 0]]
            for at, logits_1NV in reader.read(x_1T[:, :-1]):
                y_1N = x_1T[:, at + 1 : at + 1 + logits_1NV.shape[1]]
                parts.append(logits_1NV.log_softmax(-1).gather(-1, y_1N[..., None]).squeeze(-1))
            rows.append((torch.cat(parts, 1), reader.state))
        return torch.cat([logp_1T for logp_1T, _ in rows]), joined([one for _, one in rows])

    def fixed_log_probs(self, x_N: Tensor) -> Tensor | None:
        """By the network as it was trained."""
        return self.base.fixed_log_probs(x_N)

    def session(self, state: AdaptiveState, tokens: int = 1 << 30) -> Session[AdaptiveState]:
        """One that reads with the network's own session between two steps; several rows go step by step."""
        if is_tracing() or len(state.seen_BS) != 1:
            return Session(self, state)
        from octavo.models.decoding.adaptive_session import AdaptiveSession  # here, because it imports this module

        return AdaptiveSession(self, state)


class Reader:
    """Reads the tokens of one row in as few calls as possible, and changes weights of its own in place."""

    def __init__(self, model: DynamicEvaluation, state: AdaptiveState) -> None:
        self.segment = model.adaptation.segment
        self.running, self.before, self.seen_1S = state.running, state.before, state.seen_BS
        self.copy = WeightCopy(model.base, model.adaptation, state.learnt)

    @property
    def state(self) -> AdaptiveState:
        return AdaptiveState(self.running, self.before, self.seen_1S, self.copy.learnt)

    def no_logits(self) -> Tensor:
        """Logits of no tokens."""
        with torch.no_grad():
            logits: Tensor = self.copy.model.absorb(self.running, self.seen_1S[:, :0])[0]
        return logits

    def read(self, x_1T: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The place of some tokens, and logits_1NV after each of them, until all are read.

        Where a segment ends before the last token, the pass that gives the logits is the one that is learnt from. One
        that was read before, or whose next token is not known yet, is read again when it is learnt from.
        """
        at, T = 0, x_1T.shape[1]
        while at < T:
            if self.seen_1S.shape[1] == self.segment:
                self.copy.read_and_learn(self.before, self.seen_1S, x_1T[:, at])
                self.before, self.seen_1S = self.running, self.seen_1S[:, :0]
            held = self.seen_1S.shape[1]
            end = min(T, at + self.segment - held)
            seen_1S = torch.cat([self.seen_1S, x_1T[:, at:end]], 1)
            if seen_1S.shape[1] == self.segment and end < T:
                logits_1SV, self.running = self.copy.read_and_learn(self.before, seen_1S, x_1T[:, end])
                logits_1NV = logits_1SV[:, held:]
                self.before, self.seen_1S = self.running, seen_1S[:, :0]
            else:
                with torch.no_grad():
                    logits_1NV, self.running = self.copy.model.absorb(self.running, x_1T[:, at:end])
                self.seen_1S = seen_1S
            yield at, logits_1NV
            at = end


def rows_of(state: Any) -> Iterator[Any]:
    """The states of the rows, each a batch of one."""
    batch = len(tensors_of(state)[0])
    return (map_state(state, lambda tensor, b=b: tensor[b : b + 1]) for b in range(batch))  # type: ignore[misc]


def joined(rows: list[Any]) -> Any:
    """The states of rows as one of a batch."""
    if len(rows) == 1:
        return rows[0]
    return state_from(rows[0], [torch.cat(one) for one in zip(*map(tensors_of, rows), strict=True)])


def as_trained(model: LanguageModel[Any]) -> LanguageModel[Any]:
    """The network that learns while it reads, as it was trained; any other model is given back."""
    return model.base if isinstance(model, DynamicEvaluation) else model


def can_adapt(model: LanguageModel[Any]) -> bool:
    """Whether this is a network that `adapted` makes learn while it reads, or has; False for any other model."""
    from octavo.models import spec_of

    model = as_trained(model)
    dtypes = {weight.dtype for weight in model.parameters()}
    return not model.adaptive and spec_of(model).trained_by_gradient and dtypes in ({torch.float32}, {torch.float64})


def segment_of(model: LanguageModel[Any]) -> int:
    """Tokens that an adaptive model reads before it learns from them: a network a segment, any other each one."""
    return model.adaptation.segment if isinstance(model, DynamicEvaluation) else 1


def adapted(model: LanguageModel[Any], adaptation: AdaptiveConfig | None = None) -> LanguageModel[Any]:
    """The model as one that learns while it reads: a network by dynamic evaluation, any other if it was trained so."""
    from octavo.models import spec_of

    spec = spec_of(model)
    if model.adaptive and adaptation is None:
        return model
    if model.adaptive:
        raise UserError(f"only a network has adaptive settings, this {spec.name} is adaptive itself; leave them out")
    if spec.fitting == "mixture":
        raise UserError("a trained mixture does not learn while it reads: adaptive is for one network; name its run")
    if not spec.trained_by_gradient:
        can_adapt = spec.adaptive_variant and getattr(model.config, "estimator", "") in ("", "kneser-ney")
        remedy = "train it with --adaptive" if can_adapt else "score it without --adaptive"
        raise UserError(f"only what was trained by gradient learns so while it reads: {spec.name} was fitted; {remedy}")
    kinds = {weight.dtype for weight in model.parameters()}
    if not kinds <= {torch.float32} and not kinds <= {torch.float64}:
        shown = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise UserError(f"weights that learn must be of single precision: these are {shown}; import them as float32")
    return DynamicEvaluation(model, adaptation or AdaptiveConfig())
