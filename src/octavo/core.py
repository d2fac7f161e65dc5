"""A model is a state and a step.

B batch, T time, V vocabulary. Every tensor inside a state has the batch as its first dimension.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from octavo.errors import UserError

S = TypeVar("S")
MAX_REWIND_TOKENS = 16  # tokens that every session can take back
MIN_CATCH_UP_TOKENS = 8  # tokens left after a rewind that are processed by a call of their own, not with the next ones
STATE_CARRIED = "state carried from the first byte of each document to its last"


class LanguageModel(nn.Module, Generic[S]):
    """Predicts the next token from a state. `step` is the definition; the rest must agree with it.

    The softmax of the logits is the distribution: neural models return scores, count models
    log-probabilities. `begin` opens every sequence, so the first real token is predicted like any other.
    """

    config: Any  # a frozen dataclass
    vocab: int
    begin: int

    adaptive: bool = False
    """Whether it goes on learning while it reads; its state then holds what it has learnt since `start`."""

    @property
    def begin_resets(self) -> bool:
        """Whether processing `begin` forgets everything before it."""
        return False

    def start(self, batch: int) -> S:
        """The state before any token, `begin` included, was processed."""
        raise NotImplementedError

    def step(self, state: S, x_B: Tensor) -> tuple[Tensor, S]:
        """Process one token of each row: logits_BV of the next token, and the new state. Never changes `state`.

        A model defines this or `absorb`: each follows from the other.
        """
        if type(self).absorb is LanguageModel.absorb:
            raise NotImplementedError(f"{type(self).__name__} must define step or absorb")
        logits_B1V, state = self.absorb(state, x_B[:, None])
        return logits_B1V[:, 0], state

    def predict(self, state: S, x_B: Tensor) -> tuple[Tensor, S]:
        """`step` with the distribution itself, p_BV in double precision, instead of logits."""
        logits_BV, state = self.step(state, x_B)
        return logits_BV.softmax(-1, dtype=torch.float64), state

    def absorb(self, state: S, x_BT: Tensor) -> tuple[Tensor, S]:
        """Process many tokens: logits_BTV after each of them, and the new state."""
        return scan(self, state, x_BT)

    def forward(self, x_BT: Tensor) -> Tensor:
        """logits_BTV after each token of sequences that start with x_BT's first column."""
        return self.absorb(self.start(len(x_BT)), x_BT)[0]

    def token_log_probs(self, state: S, x_BT: Tensor) -> tuple[Tensor, S]:
        """Log-probability of every token but the first, and the state after every token but the last.

        So windows that overlap by one token score each token of a long text once, with the state carried.
        """
        logits_BTV, state = self.absorb(state, x_BT[:, :-1])
        logp_BTV = logits_BTV.log_softmax(-1)
        return logp_BTV.gather(-1, x_BT[:, 1:, None]).squeeze(-1), state

    @property
    def carries_state(self) -> bool:
        """Whether training carries the state from one sequence of a stream to the next, or starts each one afresh."""
        return True

    @property
    def default_batch_shape(self) -> tuple[int, int]:
        """The default tokens of a training step, and sequence length."""
        return 4096, 32

    @property
    def muon_learning_rate(self) -> float:
        """The default of Muon's learning rate."""
        return 0.05

    @property
    def context_policy(self) -> str:
        """How much of the past a token's probability depends on when it is scored: reported with every score."""
        return STATE_CARRIED

    @property
    def max_scored_tokens(self) -> int:
        """The tokens, of all rows together, that one call of `token_log_probs` should get: logits of at most 128 MB."""
        return max(16, (1 << 25) // self.vocab)

    def score(self, x_BT: Tensor) -> Tensor:
        """log p(x_t | x_<t) of every token, the first included."""
        return self.token_log_probs(self.start(len(x_BT)), self.prepend_begin(x_BT))[0]

    def fixed_log_probs(self, x_N: Tensor) -> Tensor | None:
        """log p of each token of a text by one that learns nothing from it; None where an adaptive model cannot say."""
        return None if self.adaptive else self.score(x_N[None])[0]

    def prepend_begin(self, x_BT: Tensor) -> Tensor:
        """The sequences with the begin token put in front."""
        return torch.cat([x_BT.new_full((len(x_BT), 1), self.begin), x_BT], 1)

    def session(self, state: S, tokens: int = 1 << 30) -> Session[S]:
        """The fast way to continue from a state token by token, for about so many tokens: few need less preparation."""
        return Session(self, state)

    def text_coder(self) -> Any:
        """A coder of its own for whole texts (`octavo.ops.range_coding.TextCoder`), or None: each token is a call."""

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the model's own buffers and parameters to what was saved; a foreign or damaged set is refused."""
        own = self.own_tensors()
        if set(tensors) != set(own):
            raise UserError(f"the model has tensors {sorted(own)}, the file {sorted(tensors)}; it is of another model")
        if any(isinstance(one, nn.Parameter) for one in own.values()):  # weights may be of any precision, all the same
            first = next(tensor for name, tensor in tensors.items() if isinstance(own[name], nn.Parameter))
            if first.is_floating_point():
                self.to(first.dtype)
                own = self.own_tensors()
        for name, tensor in tensors.items():
            if tensor.dtype != own[name].dtype or tensor.shape != own[name].shape:
                ours, theirs = (f"{t.dtype} {tuple(t.shape)}" for t in (own[name], tensor))
                raise UserError(f"tensor {name} must be {ours}, the file has {theirs}; it is of another model")
            own[name].data = tensor

    def own_tensors(self) -> dict[str, Tensor]:
        """The parameters and buffers that `load_tensors` sets, by name."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights that training starts from; a model that is fitted to counts has none to draw."""

    @property
    def repeated_blocks(self) -> Sequence[Any]:
        """Blocks of the same code, one after the other: compiling one compiles all."""
        return ()

    @property
    def receptive_field(self) -> int | None:
        """How many of the tokens before it the probability of a token can depend on; None: all of them.

        Scoring reads a long text in parallel streams where this is finite, and gives each so many tokens before it.
        """
        return None

    @property
    def window_stride(self) -> int:
        """How far a window of `receptive_field` tokens moves each time it is full, to be read from its beginning by a
        fresh state; 0: there are no such windows, and where a stream begins makes no difference.
        """
        return 0

    @property
    def context_classes(self) -> int:
        """How many values `context_class` has; one means that it says nothing."""
        return 1

    def context_class(self, state: S) -> Tensor:
        """A small integer for each row that says how much the state knows; what `mix` chooses its weights by."""
        raise NotImplementedError

    def token_context_classes(self, state: S, x_BT: Tensor) -> Tensor:
        """The context class in front of each token that `token_log_probs` scores."""
        classes = []
        for x_B in x_BT[:, :-1].unbind(1):
            _, state = self.step(state, x_B)
            classes.append(self.context_class(state))
        return torch.stack(classes, 1) if classes else torch.zeros_like(x_BT[:, 1:])


class Session(Generic[S]):
    """Sequences that are continued, and rewound a little. It owns its state and may change it in place, where `step`
    may not; to continue in two ways, fork it. This is the reference implementation of every faster session.
    """

    calls = 0  # how often `absorb` called the model

    def __init__(self, model: LanguageModel[S], state: S) -> None:
        self.model, self.state = model, state

    @property
    def state(self) -> S:
        """The pure state at this place."""
        if self._due:
            self._catch_up()
        return self._state

    @state.setter
    def state(self, state: S) -> None:
        self._state = state
        self._trail: deque[tuple[S, Tensor]] = deque()  # states before the last calls, and the tokens of these
        self._due = False  # whether the last of those tokens are still to be absorbed, from the state before them

    def step(self, x_B: Tensor) -> Tensor:
        """Process one token of each row: logits_BV of the next token, valid until the next step."""
        before = self.state
        logits_BV, self._state = self.model.step(before, x_B)
        self._record(before, x_B[:, None])
        return logits_BV

    def predict(self, x_B: Tensor) -> Tensor:
        """`step` with the distribution itself, p_BV in double precision, instead of logits."""
        if type(self).step is not Session.step:
            return self.step(x_B).softmax(-1, dtype=torch.float64)
        before = self.state
        p_BV, self._state = self.model.predict(before, x_B)
        self._record(before, x_B[:, None])
        return p_BV

    def context_class(self) -> Tensor:
        """How much is known about the context at this place: see `LanguageModel.context_class`."""
        return self.model.context_class(self.state)

    def absorb(self, x_BT: Tensor) -> Tensor:
        """Process several tokens of each row: logits_BTV after each of them."""
        self.calls += 1
        if type(self.model).absorb is LanguageModel.absorb and x_BT.shape[1]:  # a scan comes past every state
            return torch.stack([self.step(x_B) for x_B in x_BT.unbind(1)], 1)
        if self._due and self._trail[-1][1].shape[1] >= MIN_CATCH_UP_TOKENS:
            self._catch_up()
        before, due_BT = self._trail.pop() if self._due else (self._state, x_BT[:, :0])
        seen_BT = torch.cat([due_BT, x_BT], 1)
        logits_BTV, self._state = self.model.absorb(before, seen_BT)
        self._record(before, seen_BT)
        self._due = False
        return logits_BTV[:, due_BT.shape[1] :]

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens, which may be up to MAX_REWIND_TOKENS of those processed here."""
        held = sum(x_BT.shape[1] for _, x_BT in self._trail)
        if not 0 <= count <= held:
            raise UserError(f"only the last {held} tokens can be taken back: count={count}; fork before instead")
        while count:
            self._state, x_BT = self._trail.pop()
            left = max(0, x_BT.shape[1] - count)
            count -= x_BT.shape[1] - left
            self._due = left > 0  # they are processed with the next ones: one call is cheaper than two
            if left:
                self._trail.append((self._state, x_BT[:, :left]))

    def fork(self) -> Session[S]:
        """Another one at the same place; neither changes the other from now on."""
        return Session(self.model, self.state)

    def _record(self, before: S, x_BT: Tensor) -> None:
        if x_BT.shape[1]:
            self._trail.append((before, x_BT))
            if len(self._trail) > MAX_REWIND_TOKENS:
                self._trail.popleft()

    def _catch_up(self) -> None:
        self.calls += 1
        self._state = self.model.absorb(*self._trail[-1])[1]
        self._due = False


def scan(model: LanguageModel[S], state: S, x_BT: Tensor) -> tuple[Tensor, S]:
    """`step` over each column of x_BT: the reference implementation of every `absorb`."""
    logits = []
    for x_B in x_BT.unbind(1):
        logits_BV, state = model.step(state, x_B)
        logits.append(logits_BV)
    if not logits:
        reference = next(model.buffers(), None)
        dtype = torch.get_default_dtype() if reference is None else reference.dtype
        return torch.empty(len(x_BT), 0, model.vocab, dtype=dtype, device=x_BT.device), state
    return torch.stack(logits, 1), state


def map_state(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state with every tensor in it changed, in order."""
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, tuple):
        parts = [map_state(part, change) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    if state is None:
        return None
    raise TypeError(f"a state is a tensor, a tuple of states or None, not {type(state).__name__}")


def select(state: Any, rows_B: Tensor) -> Any:
    """The state of a new batch whose row b is row rows_B[b] of this one; rows may repeat or be left out."""
    return map_state(state, lambda tensor: tensor.index_select(0, rows_B))


def tensors_of(state: Any) -> list[Tensor]:
    """The tensors in a state, in order."""
    found: list[Tensor] = []
    map_state(state, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def state_from(like: Any, tensors: Iterable[Tensor]) -> Any:
    """The state of the same structure with these tensors in it."""
    left = iter(tensors)
    return map_state(like, lambda _: next(left))


@contextmanager
def single_thread() -> Iterator[None]:
    """Within it, products are computed by one thread: small ones are done before a second has woken, and on a busy
    machine waiting for it takes most of the time.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout and its like off; afterwards every part is as it was."""
    before = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def seeded_generator(seed: int) -> torch.Generator:
    """A random generator that the same seed starts in the same place."""
    if not 0 <= seed < 1 << 63:
        raise UserError(f"seed must be from 0 to 2**63 - 1: seed={seed}; try --seed 1")
    return torch.Generator().manual_seed(seed)


def device_of(model: LanguageModel[Any]) -> torch.device:
    """Where the model's weights or tables lie; a model without any is on the CPU."""
    held = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if held is None else held.device
