"""Decoding with keys and values in place: the same sums as the model's own step, in as few calls as they need.

B batch, H heads, G heads of keys and values, X = B × G, R = H / G heads that share one, S slots, T keys in sight,
K size of a head, D width, E = (H + 2 G) K, F inner width. Matrices are (out, in).

For a small model on a CPU the calls themselves are the cost, not the arithmetic. So the three products of queries,
keys and values are one, constants are multiplied into weights once, and what can be done in place is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.core import Session
from octavo.models.decoding.cache import Cache, added_positions, joined_qkv, turns
from octavo.models.parts.config import GPTConfig
from octavo.models.parts.mixes import Attention
from octavo.ops.positions import alibi_slopes

if TYPE_CHECKING:
    from octavo.models.gpt import GPT
    from octavo.models.parts.simple import Norm

SLICED = ("full", "local", "block")  # what is seen are neighbours, so no mask is needed
Apply = Callable[[Tensor], Tensor]


class Layer(NamedTuple):
    """One block: each product starts with its norm and ends with what it is added to."""

    norm1: Apply
    qkv: Apply
    out: Callable[[Tensor, Tensor], Tensor]
    norm2: Apply
    up: Apply
    down: Callable[[Tensor, Tensor], Tensor]


class New(NamedTuple):
    """The queries, keys and values of the new token in one layer: views of the one place that all layers use."""

    qkv_BE: Tensor
    qk_BJK: Tensor  # J = H + G
    q_BGRK: Tensor
    kv_2BGK: Tensor
    pairs_BJP: Tensor | None  # neighbours of qk_BJK as complex numbers, P = K / 2

    @classmethod
    def of(cls, qkv_BE: Tensor, config: GPTConfig, paired: bool) -> New:
        H, G, K = config.heads, config.groups, config.head_size
        qkv_BJK = qkv_BE.view(-1, H + 2 * G, K)
        q_BGRK = qkv_BJK[:, :H].unflatten(1, (G, -1))
        kv_2BGK = qkv_BJK[:, H:].unflatten(1, (2, G)).transpose(0, 1)
        qk_BJK = qkv_BJK[:, : H + G]
        pairs_BJP = torch.view_as_complex(qk_BJK.unflatten(-1, (-1, 2))) if paired else None
        return cls(qkv_BE, qk_BJK, q_BGRK, kv_2BGK, pairs_BJP)


class CachedSession(Session[Any]):
    """A session of a transformer with softmax attention, on any device and for any batch."""

    def __init__(self, model: GPT, state: Any) -> None:
        self.model = self.gpt = model
        config, like = model.config, model.embedding_VD
        # Only there is a norm by hand shorter than torch's, and exact enough.
        self.by_hand = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)
        self.heads, self.groups, self.size = config.heads, config.groups, config.head_size
        width, batch = (self.heads + 2 * self.groups) * self.size, len(state[0])
        self.shape_XRK = batch * self.groups, self.heads // self.groups, self.size
        with torch.no_grad():
            # To turn a pair is one product of complex numbers, if the two stand side by side.
            paired = self.by_hand and config.positions == "rotary"
            self.order_K = torch.arange(self.size).view(2, -1).t().flatten() if paired else None
            self.new = New.of(like.new_empty(batch, width), config, paired)
            self.layers = [self._layer(block) for block in model._blocks()]
            self.last, weight = self._norm(model.norm, model.output_weight)
            self.logits = partial(_product, self._laid(weight), None)
            self.positions_CD = added_positions(model)
            self.cache = Cache(model, state, self.order_K)
            self.bias = self._distances() if config.positions == "alibi" else None
            # A norm by hand leaves out the root of the size; for queries, the scores' scale cancels it.
            self.scale_J1 = like.new_ones(config.heads + config.groups, 1)
            self.scale_J1[config.heads :] = self.size**-0.5
            self.head_eps = like.new_tensor((self.size * config.norm_eps) ** 0.5)
        self._place()

    # ------------------------------------------------------------------ what a session can do

    @torch.inference_mode()
    def step(self, x_B: Tensor) -> Tensor:
        """Absorb one token a row: logits_BV of the token after it."""
        cache = self.cache
        if cache.make_room():
            self._place()
        x_BD = self.gpt.embedding_VD.index_select(0, x_B)
        if self.positions_CD is not None:
            x_BD = x_BD + self.positions_CD[cache.end]
        first, T, bias = self._sight()
        keys = self.keys_LXKS.narrow(3, first, T).unbind(0)
        values = self.values_LXSK.narrow(2, first, T).unbind(0)
        turned = [one[cache.end] for one in self.turns]
        for layer, kv_2BGK, k_XKT, v_XTK in zip(
            self.layers, cache.kv_L2BGSK.select(4, cache.end).unbind(0), keys, values, strict=True
        ):
            layer.qkv(layer.norm1(x_BD))
            self._turn(turned)
            kv_2BGK.copy_(self.new.kv_2BGK)
            q_XRK = self.new.q_BGRK.reshape(self.shape_XRK)
            x_BD = layer.out(x_BD, self._look(q_XRK, k_XKT, v_XTK, bias).view(x_BD.shape))
            x_BD = layer.down(x_BD, layer.up(layer.norm2(x_BD)))
        if cache.absolute:
            cache.tokens_BS[:, cache.end] = x_B
        cache.added()
        logits_BV: Tensor = self.logits(self.last(x_BD))
        return logits_BV

    def fork(self) -> CachedSession:
        """Another one at the same place; weights are shared, keys and values copied."""
        other = object.__new__(CachedSession)
        other.__dict__.update(self.__dict__)
        other.cache = self.cache.copied()  # the place of the new token is used only within a step, so it is shared
        other._place()
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

    # ------------------------------------------------------------------ parts of a step

    def _turn(self, turned: list[Tensor]) -> None:
        """Bring the new token's queries and keys to their length and turn them to their place."""
        qk_BJK, K, config = self.new.qk_BJK, self.size, self.gpt.config
        if config.qk_norm and not self.by_hand:
            qk_BJK.copy_(torch.rms_norm(qk_BJK, [K], None, config.norm_eps))
        if self.new.pairs_BJP is not None:
            self.new.pairs_BJP.mul_(turned[0])
        elif turned:
            halves_BJK = qk_BJK.roll(K // 2, -1)
            qk_BJK.mul_(turned[0]).addcmul_(halves_BJK, turned[1])
        if config.qk_norm and self.by_hand:  # turning does not change the length, so it may come first
            length_BJ1 = torch.linalg.vector_norm(qk_BJK, 2, -1, True)
            qk_BJK.div_(length_BJ1.hypot_(self.head_eps).mul_(self.scale_J1))

    def _look(self, q_XRK: Tensor, k_XKT: Tensor, v_XTK: Tensor, bias_XRT: Tensor | None) -> Tensor:
        """Attention of one query a head; by hand, queries are scaled already."""
        if not self.by_hand:
            return F.scaled_dot_product_attention(q_XRK, k_XKT.mT, v_XTK, bias_XRT)
        e_XRT = torch.bmm(q_XRK, k_XKT) if bias_XRT is None else torch.baddbmm(bias_XRT, q_XRK, k_XKT)
        return torch.bmm(e_XRT.softmax(-1), v_XTK)

    def _sight(self) -> tuple[int, int, Tensor | None]:
        """The first slot that the new token sees, how many it sees from there on, and what is added to the scores."""
        config, end = self.gpt.config, self.cache.end
        first = 0 if config.mix == "global" else max(0, end + 1 - self.cache.seen)
        if config.mix == "block":
            first = end // config.reach * config.reach
        T = end + 1 - first
        bias_XRT = None if self.bias is None else self.bias.narrow(-1, self.bias.shape[-1] - T, T)
        if config.mix in SLICED:
            return first, T, bias_XRT
        forbidden_T = ~self.pattern.allows(self.places_S[T - 1], self.places_S[:T])
        mask_T = torch.zeros(T, dtype=self.scale_J1.dtype, device=forbidden_T.device)
        mask_T.masked_fill_(forbidden_T, -torch.inf)
        return first, T, (mask_T if bias_XRT is None else mask_T + bias_XRT).expand(*self.shape_XRK[:2], T)

    def _place(self) -> None:
        """What depends on where the slots are: their positions, and where each layer's keys begin."""
        cache = self.cache
        found, half = turns(self.gpt, cache.base, cache.slots), self.size // 2
        self.turns: tuple[Tensor, ...] = found or ()
        if found is not None and self.order_K is not None:
            self.turns = (torch.complex(found[0][:, :half], found[1][:, half:]),)
        self.keys_LXKS, self.values_LXSK = cache.kv_L2BGSK[:, 0].flatten(1, 2).mT, cache.kv_L2BGSK[:, 1].flatten(1, 2)

    def _distances(self) -> Tensor:
        """ALiBi's bias of a query behind all slots; the last T of them are that of a query with T keys in sight."""
        like, slots = self.gpt.embedding_VD, self.cache.slots
        distance_S = torch.arange(slots - 1, -1, -1, device=like.device)
        bias_HS = (-alibi_slopes(self.heads).to(like.device)[:, None] * distance_S).to(like.dtype)
        batch = self.cache.tokens_BS.shape[0]
        return bias_HS.view(self.groups, -1, slots).repeat(batch, 1, 1)

    # ------------------------------------------------------------------ weights

    def _layer(self, block: Any) -> Layer:
        """The weights of a block as its products need them."""
        mix, feed, config = block.mix, block.feed, self.gpt.config
        assert isinstance(mix, Attention), "only softmax attention has keys to keep"
        self.pattern = mix.pattern
        self.places_S = torch.arange(config.context, device=self.gpt.embedding_VD.device)
        qkv_ED, bias_E = joined_qkv(mix)
        if self.order_K is not None:
            row_JK = torch.arange(len(qkv_ED)).view(-1, self.size)
            row_JK[: -self.groups] = row_JK[: -self.groups, self.order_K]
            qkv_ED, bias_E = qkv_ED[row_JK.flatten()], None if bias_E is None else bias_E[row_JK.flatten()]
        if self.by_hand and not config.qk_norm:  # the scores' scale is multiplied into the weights
            scale_E1 = qkv_ED.new_ones(len(qkv_ED), 1)
            scale_E1[: config.width] = self.size**-0.5
            qkv_ED = qkv_ED * scale_E1
            bias_E = None if bias_E is None else bias_E * scale_E1[:, 0]
        norm1, qkv_ED = self._norm(block.norm1, qkv_ED)
        if config.feed == "gated":
            norm2, up_FD = self._norm(block.norm2, torch.cat([feed.gate_FD, feed.up_FD]))
            up, down_bias = partial(_gated, self._laid(up_FD)), None
        else:
            norm2, up_FD = self._norm(block.norm2, feed.up_FD)
            up, down_bias = partial(ACTIVATED[config.feed], self._laid(up_FD), feed.up_bias_F), feed.down_bias_D
        return Layer(
            norm1, partial(_written, self._laid(qkv_ED), bias_E, self.new.qkv_BE),
            partial(_added, self._laid(mix.out_DD), mix.out_bias),
            norm2, up, partial(_added, self._laid(feed.down_DF), down_bias),
        )  # fmt: skip

    def _laid(self, weight_ED: Tensor) -> Tensor:
        """The matrix as a row of x is multiplied by it; on a CPU that is a tenth faster when it lies in that order."""
        weight_DE: Tensor = weight_ED.t()
        return weight_DE.contiguous() if self.by_hand else weight_DE

    def _norm(self, norm: Norm, weight_ED: Tensor) -> tuple[Apply, Tensor]:
        """A norm, and the matrix behind it, which a norm by hand leaves its weights to."""
        D = weight_ED.shape[1]
        if norm.kind == "layer":
            return partial(_layer_norm, [D], norm.weight_D, norm.bias_D, norm.eps), weight_ED
        if not self.by_hand:
            return partial(_rms_norm, [D], norm.weight_D, norm.eps), weight_ED
        return partial(_unit, weight_ED.new_tensor((D * norm.eps) ** 0.5)), weight_ED * (norm.weight_D * D**0.5)


def _unit(eps: Tensor, x_BD: Tensor) -> Tensor:
    """x / sqrt(|x|² + eps²): the root of D and the norm's weights are in the matrix that follows."""
    length_B1: Tensor = torch.linalg.vector_norm(x_BD, 2, -1, True)
    return x_BD / length_B1.hypot_(eps)


def _rms_norm(shape: list[int], weight_D: Tensor, eps: float, x_BD: Tensor) -> Tensor:
    normed_BD: Tensor = torch.rms_norm(x_BD, shape, weight_D, eps)
    return normed_BD


def _layer_norm(shape: list[int], weight_D: Tensor, bias_D: Tensor | None, eps: float, x_BD: Tensor) -> Tensor:
    normed_BD: Tensor = torch.layer_norm(x_BD, shape, weight_D, bias_D, eps)
    return normed_BD


def _product(weight_DE: Tensor, bias_E: Tensor | None, x_BD: Tensor) -> Tensor:
    return torch.mm(x_BD, weight_DE) if bias_E is None else torch.addmm(bias_E, x_BD, weight_DE)


def _written(weight_DE: Tensor, bias_E: Tensor | None, y_BE: Tensor, x_BD: Tensor) -> Tensor:
    """The product, into y."""
    return torch.mm(x_BD, weight_DE, out=y_BE) if bias_E is None else torch.addmm(bias_E, x_BD, weight_DE, out=y_BE)


def _added(weight_FD: Tensor, bias_D: Tensor | None, x_BD: Tensor, y_BF: Tensor) -> Tensor:
    """x + W y + b; x is the stream's own, so it may be changed."""
    x_BD.addmm_(y_BF, weight_FD)
    return x_BD if bias_D is None else x_BD.add_(bias_D)


def _gated(weight_DF: Tensor, x_BD: Tensor) -> Tensor:
    gate_BF, up_BF = torch.mm(x_BD, weight_DF).chunk(2, -1)
    return F.silu(gate_BF).mul_(up_BF)


def _gelu(weight_DF: Tensor, bias_F: Tensor | None, x_BD: Tensor) -> Tensor:
    return F.gelu(_product(weight_DF, bias_F, x_BD), approximate="tanh")


def _gelu_exact(weight_DF: Tensor, bias_F: Tensor | None, x_BD: Tensor) -> Tensor:
    return F.gelu(_product(weight_DF, bias_F, x_BD))


def _squared_relu(weight_DF: Tensor, bias_F: Tensor | None, x_BD: Tensor) -> Tensor:
    y_BF = _product(weight_DF, bias_F, x_BD).relu_()
    return y_BF.mul_(y_BF)  # a third of what square_ takes


ACTIVATED: dict[str, Callable[..., Tensor]] = {
    "gelu": _gelu, "gelu-exact": _gelu_exact, "relu2": _squared_relu,
}  # fmt: skip
