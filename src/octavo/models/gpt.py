"""The decoder-only transformer: blocks of causal attention and feed-forward layers.

B batch, T new tokens, S tokens so far, V vocabulary, D width, C context, L layers.

With relative positions, the KV cache is carried on for any number of tokens: each attends to the last `context` ones.
Where positions are absolute (learned ones, say), a full context is left, and its last tokens are read again as the
beginning of a new one. Either way `step` is a function of the state, and texts may be of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.core import LanguageModel, Session
from octavo.errors import UserError
from octavo.models.cost.parts import Shape
from octavo.models.cost.transformer import transformer_cost
from octavo.models.expert_views import ROUTING
from octavo.models.parts.attention import Place
from octavo.models.parts.block import TransformerBlock, add_positions
from octavo.models.parts.config import GPTConfig
from octavo.models.parts.feed_forward import Norm, init_tables
from octavo.models.recurrent import layers_of
from octavo.models.spec import Candidate, ModelSpec, Preset, ScalingLaw, Sizes
from octavo.models.views import ATTENTION, LAYER_GRADIENT_FLOW, LOGIT_LENS, Table
from octavo.ops.positions import rotary_angles

State = tuple[Tensor, Tensor, tuple[Any, ...]]  # position_B, the context's tokens_BS (absolute only), the layers'
SCORED_TOKENS = {"cpu": 1024, "cuda": 1 << 15}  # by one call, at least a context: more only take memory


class GPT(LanguageModel[State]):
    """A transformer that predicts the next token."""

    config: GPTConfig
    muon_learning_rate = 0.02

    def __init__(self, config: GPTConfig, vocab: int) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        self.begin = vocab - 1 if config.begin < 0 else config.begin
        if self.begin >= vocab:
            raise UserError(f"begin must be one of the vocabulary's {vocab} tokens: begin={self.begin}; leave it out")
        self.embedding_VD = nn.Parameter(torch.empty(vocab, config.width))
        self.output_VD = None if config.tied else nn.Parameter(torch.empty(vocab, config.width))
        learned = config.positions == "learned"
        self.positions_CD = nn.Parameter(torch.empty(config.context, config.width)) if learned else None
        self.blocks: Any = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.norm = Norm(config)

    def initialise(self, generator: torch.Generator) -> None:
        config = self.config
        init_tables((self.embedding_VD, self.output_VD, self.positions_CD), config, generator)
        for block in self.blocks:
            block.initialise(config, generator)
        self.norm.initialise(config, generator)

    # ------------------------------------------------------------------ a state and a step

    def start(self, batch: int) -> State:
        position_B = torch.zeros(batch, dtype=torch.long, device=self.embedding_VD.device)
        return position_B, position_B[:, None][:, :0], tuple(block.attention.start(batch) for block in self.blocks)

    def absorb(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        h_BTD, state = self.read(state, x_BT)
        return self.logits(h_BTD), state

    def read(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        """The vectors h_BTD that logits are made from, after each token, and the new state."""
        if not self.config.absolute:
            return self._read(state, x_BT)
        h, left = [], x_BT
        while True:
            room = self.config.context - state[1].shape[1]
            if not room and left.shape[1]:
                state, room = self._move(state), self.config.moves
            h_BTD, state = self._read(state, left[:, :room])
            h.append(h_BTD)
            left = left[:, room:]
            if not left.shape[1]:
                return (h[0] if len(h) == 1 else torch.cat(h, 1)), state

    def session(self, state: State, tokens: int = 1 << 30) -> Session[State]:
        from octavo.models.decoding import session_for  # here, because training has no use for it

        return session_for(self, state, tokens)

    def logits(self, h_BTD: Tensor) -> Tensor:
        return F.linear(h_BTD, self.output_weight)

    @property
    def output_weight(self) -> Tensor:
        return self.embedding_VD if self.output_VD is None else self.output_VD

    def _move(self, state: State) -> State:
        """The state of a new context that begins with the last tokens of the full one."""
        kept_BS = state[1][:, self.config.moves :]
        return self._read(self.start(kept_BS.shape[0]), kept_BS)[1]

    def _read(self, state: State, x_BT: Tensor) -> tuple[Tensor, State]:
        """Absorb tokens for which there is room."""
        position_B, tokens_BS, before = state
        place_T = position_B[0] + torch.arange(x_BT.shape[1], device=position_B.device)  # the same in every row
        x_BTD = F.embedding(x_BT, self.embedding_VD)
        x_BTD = add_positions(x_BTD, place_T, self.positions_CD, self.config.positions)
        if self.training and self.config.dropout:
            x_BTD = F.dropout(x_BTD, self.config.dropout)
        place = Place(self._angles(place_T, x_BTD.dtype))
        after = []
        for block, one in zip(self.blocks, before, strict=True):
            x_BTD, one = block.absorb(x_BTD, one, place)
            after.append(one)
        tokens_BS = torch.cat([tokens_BS, x_BT], 1) if self.config.absolute else tokens_BS
        return self.norm(x_BTD), (position_B + x_BT.shape[1], tokens_BS, tuple(after))

    def _angles(self, place_T: Tensor, dtype: torch.dtype) -> Tensor | None:
        config = self.config
        size = config.rotary_size
        return rotary_angles(place_T, size, config.rotary_base, dtype) if size else None

    # ------------------------------------------------------------------ what others want to know

    @property
    def max_scored_tokens(self) -> int:
        usual = SCORED_TOKENS["cuda" if self.embedding_VD.is_cuda else "cpu"]
        return min(max(self.config.context, usual), super().max_scored_tokens)

    @property
    def receptive_field(self) -> int | None:
        """A window, where positions are absolute; else every layer adds `cached - 1` tokens."""
        if self.config.absolute:
            return self.config.context
        return None if self.config.kind.family == "linear" else self.config.layers * (self.config.cached - 1) + 1

    @property
    def is_recordable(self) -> bool:
        """Whether the kernels of a step follow from its shapes alone: what each expert gets, routing tells."""
        return not self.config.experts

    @property
    def window_stride(self) -> int:
        return self.config.moves if self.config.absolute else 0

    @property
    def carries_state(self) -> bool:
        return not self.config.absolute

    @property
    def default_batch_shape(self) -> tuple[int, int]:
        return 2048, self.config.context if self.config.absolute else min(64, self.config.context)

    @property
    def context_policy(self) -> str:
        config = self.config
        if config.absolute:
            return f"sliding window of {config.context} tokens, moved by {config.moves} when it is full"
        if config.kind.family == "linear":
            return super().context_policy
        some = "" if config.kind.first_key else f", {config.attention} with a window of {config.attention_window}"
        return f"state carried, a layer attends to the last {config.cached} tokens{some}"

    @property
    def repeated_blocks(self) -> Sequence[TransformerBlock]:
        return list(self.blocks)


def _kind(config: GPTConfig) -> str:
    if config.kind.family == "synthesizer":
        return f"{config.attention} synthesizer"
    return "transformer" if config.attention == "full" else f"transformer with {config.attention} attention,"


def _details(model: GPT, spell: Callable[[int], str]) -> Table:
    """Which part stands in each place of the transformer."""
    config = model.config
    shared = f", {config.groups} of keys and values" if config.groups != config.heads else ""
    window = f", window {config.attention_window}" if "attention_window" in config.kind.settings else ""
    features = f", {config.features} features, {config.head_decay} decay" if config.attention == "linear" else ""
    features += f", latents of {config.latent} numbers" if config.attention == "latent" else ""
    experts = f", {config.experts_per_token} of {config.experts} experts for a token" if config.experts else ""
    reading = transformer_cost(config, model.vocab, Shape(past=config.context - 1)).total("forward")
    return Table("", (), (
        ("blocks", f"{config.layers}, of width {config.width}"),
        ("attention", f"{config.attention}{window}{features}; heads: {config.heads}{shared}"),
        ("positions", config.positions), ("context", f"{config.context} tokens"),
        ("feed-forward", f"{config.feed_forward}, {config.inner} wide{experts}"), ("norm", config.norm),
        ("cost", f"{reading:,} operations to read a token"),
    ))  # fmt: skip


TITLE = "transformer, full attention"
PRESETS = {
    "local": Preset(
        "transformer, local attention", "gpt --attention local: each layer sees the last few tokens",
        GPTConfig(attention="local"),
    ),
    "linear": Preset(
        "transformer, linear attention",
        "gpt --attention linear --head-decay fixed: attention with a state of constant size",
        GPTConfig(attention="linear", head_decay="fixed"),
    ),
    "synthesizer": Preset(
        "transformer, synthesizer", "gpt --attention dense: attention without comparing tokens",
        GPTConfig(attention="dense"),
    ),
}  # fmt: skip


NARROW_SECONDS, NARROW = 30.0, {"width": 64, "heads": 2}  # in the CPU time of 300,000 tokens at width 128, which make
# 2.64 and 2.50 bits per byte of held-out text, width 64 sees 640,000, and reaches 2.40 and 2.22 (docs/log.md)
SIZES = Sizes(  # the second is the baby GPT of nanoGPT
    (
        {"width": 256, "layers": 6, "heads": 4, "context": 128, "batch_size": 32, "sequence_length": 128},
        {"width": 384, "layers": 6, "heads": 6, "context": 256, "batch_size": 64, "sequence_length": 256},
        {"width": 512, "layers": 8, "heads": 8, "context": 256, "batch_size": 64, "sequence_length": 256},
    ),
    law=ScalingLaw(a=23.1, alpha=0.34, b=63.6, beta=0.28),
)  # fmt: skip


def _candidates(seconds: float | None, device: str) -> tuple[Candidate, ...]:
    presets = (Candidate(name, preset.title, name, sizes=SIZES) for name, preset in PRESETS.items())
    settings = NARROW if seconds is not None and seconds < NARROW_SECONDS else {}
    return (
        Candidate("gpt", TITLE, "gpt", settings, tokenizers=("bpe",), sizes=SIZES), *presets,
        Candidate("gpt-experts", "transformer, experts", "gpt", {"experts": 8}, only_if_named=True),
        Candidate("gpt-latent", "transformer, latent attention", "gpt", {"attention": "latent"}, only_if_named=True),
    )  # fmt: skip


SPEC = ModelSpec(
    "gpt", TITLE, "a transformer", "attention", GPT, GPTConfig, cost=transformer_cost, presets=PRESETS,
    candidates=_candidates,
    views=(ATTENTION, LOGIT_LENS, LAYER_GRADIENT_FLOW, ROUTING),
    summarise=lambda model, tokens:
        f"{_kind(model.config)} of {tokens}, {layers_of(model.config.layers)} of {model.config.width}",
    details=_details, exports=("hf", "gguf"),
    equation="""x_t = E[token_t]
x_t ← x_t + O attention(norm(x_t)); y_t = Σ_s a_{ts} v_s with a_{ts} = softmax_s(q_t · k_s / √K), over s ≤ t
x_t ← x_t + MLP(norm(x_t))
p(token_{t+1} | token_1 .. token_t) = softmax(E norm(x_t))
local: t - s < window
latent: k_s = [U_k c_s, k^R_s] and v_s = U_v c_s, with c_s = W_c x_s and k^R_s = rotated W_R x_s, shared by all heads
experts: x_t ← x_t + Σ_e w_e MLP_e(norm(x_t)) over the few experts e with the highest logits R norm(x_t)
linear: y_t = φ(q_t) S_t / (φ(q_t) · z_t), S_t = γ S_{t-1} + φ(k_t) v_tᵀ, z_t = γ z_{t-1} + φ(k_t)
γ = 1, or with a fixed decay 1 - 2^(-1-2h) in head h = 0, 1, ...
synthesizer: the weights a_{ts} come from token t alone""",
    unused_settings=lambda config: () if "attention_window" in config.kind.settings else ("attention_window",),
)  # fmt: skip
