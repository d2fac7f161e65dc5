"""BERT: a bidirectional encoder, and the heads of its pretraining tasks on corrupted text.

B rows, T tokens of a row, N tokens chosen from them, V vocabulary, D width, C rows of a small table: places, segments
or classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Context, Heads, Layers, Range, Share, Width, check_ranges
from octavo.errors import UserError
from octavo.models.cost.parts import Cost, Part, Shape, attention_products, linear, output, repeated
from octavo.models.cost.transformer import feed_forward_part, feed_forward_saved, norms, out_part, qkv_part
from octavo.models.parts.attention import AttentionProjections, Place
from octavo.models.parts.block import Block, in_product_precision
from octavo.models.parts.checks import check_positive
from octavo.models.parts.config import RENAMED_FEED_FORWARD, GPTConfig, shared_parts
from octavo.models.parts.feed_forward import MLP, Norm, init_inner, zero
from octavo.models.spec import ModelSpec
from octavo.models.views import View
from octavo.ops.attention import FULL, Pattern, attend
from octavo.ops.feed_forward import ACTIVATIONS
from octavo.ops.tracing import tap

Task = Literal["words", "next", "order", "replaced"]
PAIRED = ("next", "order")  # tasks about two sentences, judged by the pooler


@dataclass(frozen=True)
class BertConfig:
    """How a BERT is made."""

    RENAMED: ClassVar[dict[str, str]] = RENAMED_FEED_FORWARD

    width: Width = 128
    """The size of a token's vector."""
    layers: Layers = 4
    """Number of blocks, each of attention and a feed-forward layer."""
    heads: Heads = 4
    """Number of attention heads, each with its share of the width."""
    feed_forward_width: Annotated[int, Range(0, 1 << 20)] = 0
    """The inner width; 0: four times the width."""
    context: Context = 128
    """The longest text, in tokens; training rows are as long."""
    segments: Annotated[int, Range(1, 1 << 16)] = 2
    """Kinds of sentence: the first of a pair, the second."""
    feed_forward: Literal["gelu-exact", "gelu", "relu2"] = "gelu-exact"
    """The inner layer's activation."""
    norm_eps: Annotated[float, Range(0, 1.0, above=True)] = 1e-12
    """What is added to the variance before its root is divided by."""
    dropout: Share = 0.0
    """Dropout: of embeddings, attention weights, and of what each part adds to the residual stream."""
    tied: bool = True
    """Take the embeddings as output weights too; --no-tied gives the output weights of its own."""
    pooler: bool = True
    """A layer that makes one vector of a text from its first token; --no-pooler leaves it out."""
    tasks: tuple[Task, ...] = ("words", "next")
    """What it learns from: masked words, does the sentence follow, are they in order, which words were replaced."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if len(set(self.tasks)) < len(self.tasks):
            raise UserError(f"a task is learnt once: tasks={' '.join(self.tasks)}; name each once")
        if not self.pooler and any(task in PAIRED for task in self.tasks):
            raise UserError(f"next and order are judged by the pooler: tasks={' '.join(self.tasks)}; try --pooler")
        _ = self.parts  # which checks the rest

    @property
    def parts(self) -> GPTConfig:
        """The settings of the parts that it shares with other transformers."""
        return shared_parts(self, positions="learned", norm="layer", bias=True, qk_norm=False, init="gpt2")


class PostNormBlock(Block):
    """norm(x + attention(x)), then norm(x + feed_forward(x)): post-norm, as in the first transformers."""

    def __init__(self, parts: GPTConfig) -> None:
        super().__init__(parts)
        self.attention, self.norm1 = AttentionProjections(parts), Norm(parts)
        self.feed_forward, self.norm2 = MLP(parts), Norm(parts)

    def forward(self, x_BTD: Tensor, pattern: Pattern) -> Tensor:
        q_BHTK, k_BHTK, v_BHTK = self.attention.project(x_BTD, Place(None))
        y_BHTK = attend(q_BHTK, k_BHTK, v_BHTK, pattern, dropout=self.dropout if self.training else 0.0)
        x_BTD = self.norm1(x_BTD + self.drop(self.attention.out(y_BHTK)))
        return self.norm2(x_BTD + self.drop(self.feed_forward(x_BTD)))  # type: ignore[no-any-return]


class Dense(nn.Module):
    """W x + b, square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight_DD = nn.Parameter(torch.empty(width, width))
        self.bias_D = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_DD, self.bias_D)


class Classes(nn.Module):
    """One score a class."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.weight_CD = nn.Parameter(torch.empty(classes, width))
        self.bias_C = nn.Parameter(torch.empty(classes))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_CD, self.bias_C)


class Words(nn.Module):
    """What stands between a token's vector and the product with the vocabulary: a layer, a norm, and a bias a word."""

    def __init__(self, parts: GPTConfig, vocab: int) -> None:
        super().__init__()
        self.dense, self.norm = Dense(parts.width), Norm(parts)
        self.bias_V = nn.Parameter(torch.empty(vocab))
        self.activation = ACTIVATIONS[parts.feed_forward]

    def forward(self, h: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(h)))  # type: ignore[no-any-return]


class Replaced(nn.Module):
    """One score a token: was it replaced?"""

    def __init__(self, parts: GPTConfig) -> None:
        super().__init__()
        self.dense, self.score = Dense(parts.width), Classes(parts.width, 1)
        self.activation = ACTIVATIONS[parts.feed_forward]

    def forward(self, h: Tensor) -> Tensor:
        score: Tensor = self.score(self.activation(self.dense(h)))
        return score.squeeze(-1)


class Bert(nn.Module):
    """An encoder, its pooler, and the heads of the tasks that it learns from."""

    muon_learning_rate = 0.02  # of Muon, where nothing else is asked for

    def __init__(self, config: BertConfig, vocab: int) -> None:
        super().__init__()
        check_positive("vocab", vocab, 8192)
        self.config, self.vocab = config, vocab
        parts, D = config.parts, config.width
        self.embedding_VD = nn.Parameter(torch.empty(vocab, D))
        self.positions_CD = nn.Parameter(torch.empty(config.context, D))
        self.segments_CD = nn.Parameter(torch.empty(config.segments, D))
        self.norm = Norm(parts)
        self.blocks = nn.ModuleList(PostNormBlock(parts) for _ in range(config.layers))
        self.pooler = Dense(D) if config.pooler else None
        self.words = Words(parts, vocab) if "words" in config.tasks else None
        untied = self.words is not None and not config.tied
        self.output_VD = nn.Parameter(torch.empty(vocab, D)) if untied else None
        self.next = Classes(D, 2) if "next" in config.tasks else None
        self.order = Classes(D, 2) if "order" in config.tasks else None
        self.replaced = Replaced(parts) if "replaced" in config.tasks else None

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights that training starts from."""
        parts = self.config.parts
        for name, parameter in self.named_parameters():
            if not name.startswith("blocks."):
                init_inner(parameter, parts, generator) if parameter.dim() > 1 else zero(parameter)
        for block in self.blocks:
            block.initialise(parts, generator)  # type: ignore[operator]
        self.norm.initialise(parts, generator)
        if self.words is not None:
            self.words.norm.initialise(parts, generator)

    # ------------------------------------------------------------------ the encoder

    def encode(
        self, x_BT: Tensor, segment_BT: Tensor | None = None, place_BT: Tensor | None = None, pattern: Pattern = FULL
    ) -> Tensor:
        """h_BTD, what the last layer makes of each token; without segments or places, one text a row."""
        h_BTD = self._embed(x_BT, segment_BT, place_BT)
        for block in self.blocks:
            h_BTD = tap("stream", block(h_BTD, pattern))
        return h_BTD

    forward = encode

    def _embed(self, x_BT: Tensor, segment_BT: Tensor | None, place_BT: Tensor | None) -> Tensor:
        T, C = x_BT.shape[1], self.config.context
        if T > C and place_BT is None:
            raise UserError(f"a text must fit into the context: {T} tokens, context={C}; cut it")
        places = self.positions_CD[:T] if place_BT is None else F.embedding(place_BT, self.positions_CD)
        segments = self.segments_CD[0] if segment_BT is None else F.embedding(segment_BT, self.segments_CD)
        x_BTD = self.norm(F.embedding(x_BT, self.embedding_VD) + places + segments)
        x_BTD, dropout = in_product_precision(x_BTD), self.config.dropout
        return F.dropout(x_BTD, dropout) if self.training and dropout else x_BTD

    # ------------------------------------------------------------------ the heads

    def pool(self, first_ND: Tensor) -> Tensor:
        """One vector a text, from that of its first token."""
        if self.pooler is None:
            raise UserError("this BERT has no pooler; take the mean of its tokens' vectors")
        pooled: Tensor = self.pooler(first_ND).tanh()
        return pooled

    def word_logits(self, h_ND: Tensor) -> Tensor:
        """logits_NV of the word that stood at each of the tokens."""
        if self.words is None:
            raise UserError("this BERT has no head for masked words; train one with --tasks words, or import one")
        output_VD = self.embedding_VD if self.output_VD is None else self.output_VD
        return F.linear(self.words(h_ND), output_VD, self.words.bias_V)

    @property
    def repeated_blocks(self) -> Sequence[PostNormBlock]:
        """Parts of one code: compiled once, they are all fast."""
        return list(self.blocks)  # type: ignore[arg-type]


def bert_cost(config: BertConfig, V: int, shape: Shape) -> Cost:
    """Every part, those of all layers together; heads only of the tasks that it learns from. What is saved for the
    backward pass is by the rules of the transformer's parts; no BERT is measured against it.
    """
    N, B, D, L, T = shape.tokens, shape.batch, config.width, config.layers, shape.window
    if config.context < T:
        raise UserError(f"there are {config.context} positions: window={T}; try --window {config.context}")
    block, pairs, saved = config.parts, 4 * B * T * T * D, N * (D + config.heads)
    parts = [
        Part("embeddings", V * D),
        Part("positions", config.context * D),
        Part("segments", config.segments * D),
        norms(block, 2 * L + 1, saved=(2 * L + 1) * N * (2 * D + 2)),
        repeated(qkv_part(block, N, saved=3 * N * D), L),
        repeated(attention_products("attention", pairs, pairs, shape.kernel, saved), L),
        repeated(out_part(block, N), L),
        repeated(feed_forward_part(block, N, feed_forward_saved(block, N)), L),
    ]
    if config.pooler:
        parts.append(linear("pooler", B, [(D, D)], bias=D, saved=2 * B * D))  # of each text's first token
    words = linear("masked words", N, [(D, D)], bias=D + 2 * D + V, saved=N * (4 * D + 2))
    logits = replace(output(N, V, D, config.tied), saved_bytes=N * (4 * V + 8))
    heads = {
        "words": (words, logits),
        "next": (linear("next sentence", B, [(2, D)], bias=2),),
        "order": (linear("sentence order", B, [(2, D)], bias=2),),
        "replaced": (linear("replaced words", N, [(D, D), (1, D)], bias=D + 1, saved=3 * N * D),),
    }
    parts += [part for task in config.tasks for part in heads[task]]
    return Cost("bert", V, shape, tuple(parts))


SPEC = ModelSpec(
    "bert", "BERT", "an encoder that fills in masked words; see also fill and embed", "encoder", Bert, BertConfig,
    task="masked", cost=bert_cost,
    views=(View("attention", "Attention", "token-maps", "encoder-attention"),
           View("masked", "Masked words", "masked", "masked-words", applies=lambda model: model.words is not None)),
    exports=("hf",),
    equation="""x_t = norm(E[token_t] + position_t + segment_t)
x_t ← norm(x_t + O Σ_s softmax_s(q_t · k_s / √K) v_s), over all tokens s
x_t ← norm(x_t + MLP(x_t))
p(token_t | the text with token_t hidden) = softmax(E norm(gelu(W x_t + b)) + c)""",
)  # fmt: skip
