"""The KV cache: keys and values of every layer, with free slots behind them.

L layers, B batch, G heads of keys and values, S slots, T of them filled, K size of a head, D width.

Keys stand in the order of their tokens. When the room is used up, a model with relative positions moves the keys it
still sees to the front, which costs a copy once in many steps; a ring would not need it, but would mix up distances.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from octavo.core import MAX_REWIND_TOKENS, Session
from octavo.errors import UserError
from octavo.io.limits import check_memory
from octavo.ops.positions import rotary_angles, sinusoids

if TYPE_CHECKING:
    from octavo.models.gpt import GPT

LARGE_CACHE_BYTES = 1 << 28  # from which on memory is asked for
MIN_FREE_SLOTS = 64  # behind the keys after they were moved to the front


class KVCache:
    """The KV cache of all layers: `end` slots are filled, and slot s holds the token at `base` + s."""

    def __init__(self, model: GPT, state: Any, order_K: Tensor | None = None) -> None:
        """With `order_K`, a key's numbers stand in that order here; scores do not mind if queries' stand so too."""
        self.model, config = model, model.config
        self.order_K, self.inverse_order_K = order_K, None if order_K is None else order_K.argsort()
        self.absolute, self.seen = config.absolute, config.cached
        self.slots = config.context if self.absolute else self.seen + MAX_REWIND_TOKENS + max(self.seen, MIN_FREE_SLOTS)
        batch, like = len(state[0]), model.embedding_VD.detach()
        size = config.layers * 2 * batch * config.groups * self.slots * config.head_size * like.element_size()
        if size > LARGE_CACHE_BYTES and like.device.type == "cpu":
            check_memory(size, f"the KV cache of {self.slots:,} tokens", "use a model with a shorter context")
        # The first of the two are keys, the second values: one copy writes both.
        self.kv_L2BGSK = like.new_zeros(config.layers, 2, batch, config.groups, self.slots, config.head_size)
        # Tokens are needed only where a full context is read again.
        self.tokens_BS = torch.zeros(batch, self.slots, dtype=torch.long, device=like.device)
        self.take(state)

    def take(self, state: Any) -> None:
        """Go on from a pure state."""
        position_B, tokens_BT, layers = state
        self.end = layers[0][0].shape[2]
        self.base = int(position_B[0]) - self.end
        self.back = 0  # tokens that can be taken back: those absorbed here, as far as their past is still here
        self.left: list[tuple[Tensor, int]] = []  # contexts that were left, and how much of each could be taken back
        for kv_2BGSK, (k_BGTK, v_BGTK) in zip(self.kv_L2BGSK, layers, strict=True):
            kv_2BGSK[0, ..., : self.end, :] = k_BGTK if self.order_K is None else k_BGTK[..., self.order_K]
            kv_2BGSK[1, ..., : self.end, :] = v_BGTK
        if self.absolute:
            self.tokens_BS[:, : self.end] = tokens_BT

    def state(self) -> Any:
        """The pure state at this place; it shares nothing with the cache."""
        first = 0 if self.absolute else max(0, self.end - self.seen)
        layers = tuple(
            (k_BGTK.clone() if self.inverse_order_K is None else k_BGTK[..., self.inverse_order_K], v_BGTK.clone())
            for k_BGTK, v_BGTK in self.kv_L2BGSK[..., first : self.end, :]
        )
        tokens_BS = self.tokens_BS[:, : self.end if self.absolute else 0].clone()
        position_B = torch.full((len(tokens_BS),), self.base + self.end, device=tokens_BS.device)
        return position_B, tokens_BS, layers

    def make_room(self) -> bool:
        """See to it that a slot is free; whether slots now stand for other places than before."""
        if self.end < self.slots:
            return False
        if self.absolute:
            left = [*self.left, (self.tokens_BS.clone(), self.back)]
            while sum(back for _, back in left[1:]) >= MAX_REWIND_TOKENS:
                left.pop(0)
            self.take(self.model._move(self.state()))
            self.left = left
            return True
        cached = self.seen + MAX_REWIND_TOKENS
        self.kv_L2BGSK[..., :cached, :] = self.kv_L2BGSK[..., self.end - cached :, :].clone()
        self.base += self.end - cached
        self.end, self.back = cached, min(self.back, MAX_REWIND_TOKENS)
        return True

    def added(self, count: int = 1) -> None:
        """Tokens were written into the first free slots."""
        self.end += count
        self.back += count

    def take_back(self, count: int) -> None:
        """Forget the last `count` tokens, as if they had never come."""
        held = self.back + sum(back for _, back in self.left)
        if not 0 <= count <= held:
            raise UserError(f"only the last {held} tokens can be taken back: count={count}; fork before instead")
        if count > self.back:
            self._return(count - self.back)
        else:
            self.end -= count
            self.back -= count

    def _return(self, count: int) -> None:
        """Go back to the last context that was left, without its last `count` tokens: it is read again."""
        *left, (tokens_BS, back) = self.left
        while count > back:
            count -= back
            *left, (tokens_BS, back) = left
        state = self.model.start(len(tokens_BS))
        if count < self.slots:
            with torch.no_grad():
                state = self.model._read(state, tokens_BS[:, : self.slots - count])[1]
        self.take(state)
        self.left, self.back = left, back - count

    def copied(self) -> KVCache:
        """Another one with the same content."""
        other = copy(self)
        other.kv_L2BGSK, other.tokens_BS, other.left = self.kv_L2BGSK.clone(), self.tokens_BS.clone(), [*self.left]
        return other


class KVSession(Session[Any]):
    """What the sessions with a KV cache share: they differ in how a step is computed."""

    cache: KVCache

    def __init__(self, model: GPT) -> None:
        self.model = self.gpt = model

    def _open(self, cache: KVCache) -> None:
        """Go on from the cache's place; what a step writes to is this session's own."""
        self.cache = cache
        self._place()

    def _place(self) -> None:
        """Find what depends on where the slots are, such as their positions."""
        raise NotImplementedError

    def _make_room(self) -> None:
        if self.cache.make_room():
            self._place()

    def fork(self) -> Self:
        """Another one at the same place; weights are shared, keys and values copied."""
        other = copy(self)
        other._open(self.cache.copied())
        return other

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens; refused where what they displaced is gone."""
        self.cache.take_back(count)

    @property
    def state(self) -> Any:
        """The pure state at this place, as the model's own step would have it."""
        return self.cache.state()

    @state.setter
    def state(self, state: Any) -> None:
        self.cache.take(state)
        self._place()


def added_positions(model: GPT) -> Tensor | None:
    """What is added to a token's vector at each place of the context, where something is."""
    like = model.embedding_VD
    if model.positions_CD is not None:
        return model.positions_CD.detach()
    if model.config.positions == "sinusoidal":
        places_C = torch.arange(model.config.context, device=like.device)
        return sinusoids(places_C, model.config.width, dtype=like.dtype)
    return None


def rotary_factors(model: GPT, first: int, count: int) -> tuple[Tensor, Tensor] | None:
    """cos_SK and sin_SK of `count` positions, such that x cos + (x, its halves exchanged) sin is x turned."""
    config, like = model.config, model.embedding_VD
    if config.positions != "rotary":
        return None
    places_S = torch.arange(first, first + count, device=like.device)
    cos, sin = rotary_angles(places_S, config.head_size, config.rotary_base, like.dtype).chunk(2, -1)
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
