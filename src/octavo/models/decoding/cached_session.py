"""Decoding with keys and values in place: the same sums as the model's own step, in as few calls as they need.

B batch, H heads, G heads of keys and values, X = B × G, R = H / G heads that share one, S slots, T attended keys,
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

from octavo.models.decoding import fused_products as products
from octavo.models.decoding.kv_cache import KVCache, KVSession, added_positions, rotary_factors
from octavo.models.parts.attention import Attention
from octavo.models.parts.config import GPTConfig
from octavo.ops.positions import alibi_slopes

if TYPE_CHECKING:
    from octavo.models.gpt import GPT
    from octavo.models.parts.feed_forward import Norm

MAX_TOKENS_PER_CALL = 64  # their attention scores are held
Apply = Callable[[Tensor], Tensor]


class Layer(NamedTuple):
    """One block: each product starts with its norm and ends with what it is added to."""

    norm1: Apply
    qkv: Callable[[Tensor, Tensor], Tensor]  # into its first argument
    out: Callable[[Tensor, Tensor], Tensor]
    norm2: Apply
    up: Apply
    down: Callable[[Tensor, Tensor], Tensor]


class New(NamedTuple):
    """The queries, keys and values of new tokens in one layer: views of the one place that all layers use.

    N = B × T rows, one a token.
    """

    qkv_NE: Tensor
    qk_NJK: Tensor  # J = H + G
    q_BGRTK: Tensor
    kv_2BGTK: Tensor
    pairs_NJP: Tensor | None  # neighbours of qk_NJK as complex numbers, P = K / 2

    @classmethod
    def of(cls, like: Tensor, config: GPTConfig, batch: int, tokens: int, paired: bool) -> New:
        H, G, K = config.heads, config.groups, config.head_size
        qkv_NE = like.new_empty(batch * tokens, (H + 2 * G) * K)
        qkv_BTJK = qkv_NE.view(batch, tokens, H + 2 * G, K)
        q_BGRTK = qkv_BTJK[:, :, :H].unflatten(2, (G, -1)).permute(0, 2, 3, 1, 4)
        kv_2BGTK = qkv_BTJK[:, :, H:].unflatten(2, (2, G)).permute(2, 0, 3, 1, 4)
        qk_NJK = qkv_NE.view(batch * tokens, H + 2 * G, K)[:, : H + G]
        pairs_NJP = torch.view_as_complex(qk_NJK.unflatten(-1, (-1, 2))) if paired else None
        return cls(qkv_NE, qk_NJK, q_BGRTK, kv_2BGTK, pairs_NJP)


class CachedSession(KVSession):
    """A session of a transformer with softmax attention, on any device and for any batch.

    The place of a new token is used only within a step, so forks share it.
    """

    def __init__(self, model: GPT, state: Any) -> None:
        super().__init__(model)
        config, like = model.config, model.embedding_VD
        # Only there is a norm by hand shorter than torch's, and exact enough.
        self.by_hand = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)
        self.heads, self.groups, self.size = config.heads, config.groups, config.head_size
        self.batch = len(state[0])
        self.shape_XRK = self.batch * self.groups, self.heads // self.groups, self.size
        with torch.no_grad():
            # To turn a pair is one product of complex numbers, if the two stand side by side.
            self.paired = self.by_hand and config.positions == "rotary"
            self.order_K = torch.arange(self.size).view(2, -1).t().flatten() if self.paired else None
            self.new = New.of(like, config, self.batch, 1, self.paired)
            self.layers = [self._layer(block) for block in model.blocks]
            self.last, weight = self._norm(model.norm, model.output_weight)
            self.logits = partial(products.product, self._ready(weight), None)
            self.positions_CD = added_positions(model)
            self._open(KVCache(model, state, self.order_K))
            self.slopes = alibi_slopes(self.heads).to(like.device).view(self.groups, -1, 1).repeat(self.batch, 1, 1)
            self.bias = self._distances() if config.positions == "alibi" else None
            # A norm by hand leaves out the root of the size; for queries, the scores' scale cancels it.
            self.scale_J1 = like.new_ones(config.heads + config.groups, 1)
            self.scale_J1[config.heads :] = self.size**-0.5
            self.head_eps = like.new_tensor((self.size * config.norm_eps) ** 0.5)

    # ------------------------------------------------------------------ what a session can do

    @torch.inference_mode()
    def step(self, x_B: Tensor) -> Tensor:
        """Absorb one token a row: logits_BV of the token after it."""
        self._make_room()
        cache = self.cache
        x_BD = self.gpt.embedding_VD.index_select(0, x_B)
        if self.positions_CD is not None:
            x_BD = x_BD + self.positions_CD[cache.end]
        first, T, bias = self._attended()
        x_BD = self._through(x_BD, self.new, first, T, bias, [one[cache.end] for one in self.rotations])
        if cache.absolute:
            cache.tokens_BS[:, cache.end] = x_B
        cache.added()
        logits_BV: Tensor = self.logits(self.last(x_BD))
        return logits_BV

    @torch.inference_mode()
    def absorb(self, x_BT: Tensor) -> Tensor:
        """Absorb several tokens a row: logits_BTV after each of them; as many as there is room for go together."""
        self.calls += 1
        logits, left_BT = [self.scale_J1.new_empty(self.batch, 0, self.gpt.vocab)], x_BT
        while left_BT.shape[1]:
            self._make_room()
            count = min(self.cache.slots - self.cache.end, MAX_TOKENS_PER_CALL)
            logits.append(self._together(left_BT[:, :count]))
            left_BT = left_BT[:, count:]
        return logits[1] if len(logits) == 2 else torch.cat(logits, 1)

    # ------------------------------------------------------------------ parts of a step

    def _through(self, x_ND: Tensor, new: New, first: int, S: int, bias: Tensor | None, turned: list[Tensor]) -> Tensor:
        """All layers: the new tokens' keys and values go into the cache, of which S slots from `first` on are seen."""
        tokens = new.kv_2BGTK.shape[3]
        places = self.cache.kv_L2BGSK.narrow(4, self.cache.end, tokens).unbind(0)
        keys, values = self.keys_LXKS.narrow(3, first, S).unbind(0), self.values_LXSK.narrow(2, first, S).unbind(0)
        X, R, K = self.shape_XRK
        for layer, kv_2BGTK, k_XKS, v_XSK in zip(self.layers, places, keys, values, strict=True):
            layer.qkv(new.qkv_NE, layer.norm1(x_ND))
            self._turn(new, turned)
            kv_2BGTK.copy_(new.kv_2BGTK)
            y_XMK = self._attend(new.q_BGRTK.reshape(X, R * tokens, K), k_XKS, v_XSK, bias)
            if tokens > 1:  # one token's heads stand side by side already
                y_XMK = y_XMK.view(self.batch, -1, tokens, K).transpose(1, 2)
            x_ND = layer.out(x_ND, y_XMK.reshape(x_ND.shape))
            x_ND = layer.down(x_ND, layer.up(layer.norm2(x_ND)))
        return x_ND

    def _together(self, x_BT: Tensor) -> Tensor:
        """Tokens for which there is room, in one go: logits_BTV."""
        (batch, T), cache = x_BT.shape, self.cache
        places = slice(cache.end, cache.end + T)
        x_ND = self.gpt.embedding_VD.index_select(0, x_BT.flatten())
        if self.positions_CD is not None:
            x_ND = x_ND + self.positions_CD[places].repeat(batch, 1)
        new = New.of(x_ND, self.gpt.config, batch, T, self.paired)
        turned = [one[places].repeat(batch, 1)[:, None] for one in self.rotations]
        x_ND = self._through(x_ND, new, *self._attended_by(T), turned)
        if cache.absolute:
            cache.tokens_BS[:, places] = x_BT
        cache.added(T)
        logits_BTV: Tensor = self.logits(self.last(x_ND)).view(batch, T, -1)
        return logits_BTV

    def _turn(self, new: New, turned: list[Tensor]) -> None:
        """Bring the new tokens' queries and keys to their length and turn them to their place."""
        qk_NJK, K, config = new.qk_NJK, self.size, self.gpt.config
        if config.qk_norm and not self.by_hand:
            qk_NJK.copy_(torch.rms_norm(qk_NJK, [K], None, config.norm_eps))
        if new.pairs_NJP is not None:
            new.pairs_NJP.mul_(turned[0])
        elif turned:
            halves_NJK = qk_NJK.roll(K // 2, -1)
            qk_NJK.mul_(turned[0]).addcmul_(halves_NJK, turned[1])
        if config.qk_norm and self.by_hand:  # turning does not change the length, so it may come first
            length_NJ1 = torch.linalg.vector_norm(qk_NJK, 2, -1, True)
            qk_NJK.div_(length_NJ1.hypot_(self.head_eps).mul_(self.scale_J1))

    def _attend(self, q_XMK: Tensor, k_XKS: Tensor, v_XSK: Tensor, bias_XMS: Tensor | None) -> Tensor:
        """Attention of the new tokens' queries, M = R × T; by hand, they are scaled already."""
        if not self.by_hand:
            return F.scaled_dot_product_attention(q_XMK, k_XKS.mT, v_XSK, bias_XMS)
        e_XMS = torch.bmm(q_XMK, k_XKS) if bias_XMS is None else torch.baddbmm(bias_XMS, q_XMK, k_XKS)
        return torch.bmm(e_XMS.softmax(-1), v_XSK)

    def _first_seen(self) -> int:
        """The first slot that the next token sees."""
        config, end = self.gpt.config, self.cache.end
        if config.kind.first_key is not None:
            return max(0, config.kind.first_key(end, config.context, config.attention_window))
        return max(0, end + 1 - self.cache.seen) if config.kind.relative else 0

    def _attended_by(self, tokens: int) -> tuple[int, int, Tensor]:
        """`_attended` of several new tokens: what each may not see is forbidden by what is added to its scores."""
        first, stop, device = self._first_seen(), self.cache.end + tokens, self.scale_J1.device
        (X, R, _), S = self.shape_XRK, stop - first
        t_T1, s_S = torch.arange(self.cache.end, stop, device=device)[:, None], torch.arange(first, stop, device=device)
        mask_TS = self.scale_J1.new_zeros(tokens, S).masked_fill_(~self.pattern.allows(t_T1, s_S), -torch.inf)
        if self.bias is None:
            return first, S, mask_TS.repeat(R, 1).expand(X, R * tokens, S)
        bias_XRTS = (-self.slopes[..., None] * (t_T1 - s_S)).to(mask_TS.dtype)
        return first, S, (bias_XRTS + mask_TS).flatten(1, 2)

    def _attended(self) -> tuple[int, int, Tensor | None]:
        """The first slot that the new token sees, how many it sees from there on, and what is added to the scores."""
        config, first = self.gpt.config, self._first_seen()
        T = self.cache.end + 1 - first
        bias_XRT = None if self.bias is None else self.bias.narrow(-1, self.bias.shape[-1] - T, T)
        if config.kind.first_key is not None:
            return first, T, bias_XRT
        forbidden_T = ~self.pattern.allows(self.places_S[T - 1], self.places_S[:T])
        mask_T = torch.zeros(T, dtype=self.scale_J1.dtype, device=forbidden_T.device)
        mask_T.masked_fill_(forbidden_T, -torch.inf)
        return first, T, (mask_T if bias_XRT is None else mask_T + bias_XRT).expand(*self.shape_XRK[:2], T)

    def _place(self) -> None:
        """What depends on where the slots are: their positions, and where each layer's keys begin."""
        cache = self.cache
        found, half = rotary_factors(self.gpt, cache.base, cache.slots), self.size // 2
        self.rotations: tuple[Tensor, ...] = found or ()
        if found is not None and self.order_K is not None:
            self.rotations = (torch.complex(found[0][:, :half], found[1][:, half:]),)
        self.keys_LXKS, self.values_LXSK = cache.kv_L2BGSK[:, 0].flatten(1, 2).mT, cache.kv_L2BGSK[:, 1].flatten(1, 2)

    def _distances(self) -> Tensor:
        """ALiBi's bias of a query behind all slots; the last T of them are that of a query of T keys."""
        distance_S = torch.arange(self.cache.slots - 1, -1, -1, device=self.slopes.device)
        return (-self.slopes * distance_S).to(self.gpt.embedding_VD.dtype)

    # ------------------------------------------------------------------ weights

    def _layer(self, block: Any) -> Layer:
        """The weights of a block as its products need them."""
        attention, config = block.attention, self.gpt.config
        assert isinstance(attention, Attention), "only softmax attention has keys to keep"
        self.pattern = attention.pattern
        self.places_S = torch.arange(config.context, device=self.gpt.embedding_VD.device)
        qkv_ED, bias_E = attention.joined()
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
        return Layer(
            norm1, partial(products.written, self._ready(qkv_ED), bias_E),
            partial(products.added, self._ready(attention.out_DD), attention.out_bias), *self._feed_forward(block),
        )  # fmt: skip

    def _feed_forward(self, block: Any) -> tuple[Apply, Apply, Callable[[Tensor, Tensor], Tensor]]:
        """The norm, the products up and down; a mixture of experts gives its result whole, which is then added."""
        mlp, config = block.feed_forward, self.gpt.config
        if config.experts:
            return block.norm2, mlp, torch.add
        if config.feed_forward == "gated":
            norm2, up_FD = self._norm(block.norm2, torch.cat([mlp.gate_FD, mlp.up_FD]))
            up, down_bias = partial(products.gated, self._ready(up_FD)), None
        else:
            norm2, up_FD = self._norm(block.norm2, mlp.up_FD)
            activation = products.ACTIVATIONS_IN_PLACE[config.feed_forward]
            up, down_bias = partial(products.activated, activation, self._ready(up_FD), mlp.up_bias_F), mlp.down_bias_D
        return norm2, up, partial(products.added, self._ready(mlp.down_DF), down_bias)

    def _ready(self, weight_ED: Tensor) -> Tensor:
        return products.made_ready(weight_ED, self.by_hand)

    def _norm(self, norm: Norm, weight_ED: Tensor) -> tuple[Apply, Tensor]:
        """A norm, and the matrix behind it, which a norm by hand leaves its weights to."""
        D = weight_ED.shape[1]
        if norm.kind == "layer":
            layer_norm = partial(
                F.layer_norm, normalized_shape=[D], weight=norm.weight_D, bias=norm.bias_D, eps=norm.eps
            )
            return layer_norm, weight_ED
        if not self.by_hand:
            return partial(F.rms_norm, normalized_shape=[D], weight=norm.weight_D, eps=norm.eps), weight_ED
        return partial(products.unit, weight_ED.new_tensor((D * norm.eps) ** 0.5)), weight_ED * (norm.weight_D * D**0.5)
