"""Vision transformers: an image is cut into patches, and patches attend to patches (vit), or in every second
layer channels to channels (davit).

B batch, C channels, N patches in row order, T = N or N + 1 tokens: a token of the class may stand in front. D width,
V classes, P side of a patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.config import Heads, Layers, Range, Share, Width, check_ranges
from octavo.errors import UserError
from octavo.models.cost.parts import Cost, Part, Shape, attention_products, linear, repeated
from octavo.models.cost.transformer import feed_forward_part, norms, out_part, qkv_part
from octavo.models.parts.attention import AttentionProjections, Place
from octavo.models.parts.block import TransformerBlock
from octavo.models.parts.checks import check_choices, check_positive
from octavo.models.parts.config import RENAMED_FEED_FORWARD, GPTConfig, shared_parts
from octavo.models.parts.feed_forward import Norm
from octavo.models.recurrent import init_matrix
from octavo.models.spec import ModelSpec
from octavo.models.views import View
from octavo.ops import channel_attention as channel
from octavo.ops.attention import Axial, Neighbourhood, Pattern
from octavo.ops.attention import image_patterns as grid
from octavo.ops.attention.kinds import Grid, attention_kind
from octavo.ops.patches import check_quarters, embed, rotary_2d, sinusoids_2d

LARGEST = 1 << 14  # pixels along a side, and classes
PATCHES = 7  # along the longer side, about, where nothing else is asked for


@dataclass(frozen=True)
class VitConfig:
    """How a vision transformer is made."""

    RENAMED: ClassVar[dict[str, str]] = {"pattern": "attention"} | RENAMED_FEED_FORWARD

    width: Width = 64
    """The size of a patch's vector."""
    layers: Layers = 4
    """Number of blocks, each of attention and a feed-forward layer."""
    heads: Heads = 4
    """Number of attention heads, each with its share of the width."""
    patch: Annotated[int, Range(0, 1 << 10)] = 0
    """The side of a patch in pixels; 0: about a seventh of the image's."""
    attention: str = "full"
    """Attention kind: full (all patches), local (neighbours), global (neighbours and a token that sees all), axial
    (the row and the column)."""
    radius: Annotated[int, Range(0, 1 << 10)] = 1
    """local, global: how many rows and columns away a neighbour may be; 1: 3 x 3 patches."""
    positions: Literal["learned", "sinusoidal", "rotary", "none"] = "learned"
    """Position encoding of rows and columns."""
    pool: Literal["mean", "token"] = "mean"
    """What the class is read from: the mean of the patches, or a token in front of them."""
    feed_forward: Literal["gelu", "gelu-exact", "relu2", "gated"] = "gelu"
    """The feed-forward layer's activation; gated: SwiGLU."""
    norm: Literal["rms", "layer"] = "rms"
    """The norm before each part."""
    qk_norm: bool = True
    """Bring queries and keys to a mean square of one; --no-qk-norm leaves them as they are."""
    bias: bool = False
    """Biases in products and norms, as the first vision transformers have them."""
    dropout: Share = 0.0
    """Dropout: of embeddings, and of what each part adds to the residual stream."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choices(self)
        attention_kind(self.attention, "image")
        if self.attention == "local" and self.pool == "token":
            raise UserError(
                "a token that sees all patches makes the attention global: pool=token; try --attention global"
            )
        _ = self.block
        if self.positions in ("sinusoidal", "rotary"):
            check_quarters(*((self.width, "width") if self.positions == "sinusoidal" else
                             (self.width // self.heads, "width / heads")))  # fmt: skip

    @property
    def block(self) -> GPTConfig:
        """The settings of its blocks, which are those of every transformer here."""
        return shared_parts(self, positions="none")

    @property
    def tokens(self) -> int:
        """How many stand in front of the patches: one that sees all, where the class or the pattern wants it."""
        return int(self.pool == "token" or self.attention == "global")


@dataclass(frozen=True)
class DaVitConfig(VitConfig):
    """How a dual attention vision transformer is made: layers are patch and channel attention in turn."""

    attention: str = "local"
    """Attention kind of the layers of patch attention; those of channel attention cover the whole image."""


class Patches(AttentionProjections):
    """Patches attend to patches."""

    def __init__(self, config: VitConfig, pattern: Pattern) -> None:
        super().__init__(config.block)
        self.pattern = pattern

    def absorb(self, x_BTD: Tensor, state: Any, place: Place) -> tuple[Tensor, Any]:
        q_BHTK, k_BHTK, v_BHTK = self.project(x_BTD, place)
        return self.out(grid.attend_patches(q_BHTK, k_BHTK, v_BHTK, self.pattern)), state


class Channels(AttentionProjections):
    """Channels attend to channels, in as many groups as patches have heads."""

    def absorb(self, x_BTD: Tensor, state: Any, place: Place) -> tuple[Tensor, Any]:
        q_BGTC, k_BGTC, v_BGTC = self.project(x_BTD, Place(None))  # a channel has no row and no column
        return self.out(channel.attend_channels(q_BGTC, k_BGTC, v_BGTC)), state


class VisionBlock(TransformerBlock):
    """A transformer block over an image: there is no past, so no state."""

    def forward(self, x_BTD: Tensor, angles_TK: Tensor | None = None) -> Tensor:
        return self.absorb(x_BTD, (), Place(angles_TK))[0]


class Vit(nn.Module):
    """A vision transformer: logits of the classes of images of one size."""

    def __init__(self, config: VitConfig, height: int, width: int, channels: int, classes: int) -> None:
        super().__init__()
        self.config = config
        self.sizes = {"height": height, "width": width, "channels": channels, "classes": classes}
        for name, value in self.sizes.items():
            check_positive(name, value, 8)
            if value > LARGEST:
                raise UserError(f"{name} must be at most {LARGEST:,}: {name}={value}; make the images smaller")
        P, D = side_of_patch(config.patch, height, width), config.width
        self.rows, self.columns = height // P, width // P
        self.patch_DCPP = nn.Parameter(torch.empty(D, channels, P, P))
        self.patch_bias_D = nn.Parameter(torch.empty(D))
        learned = config.positions == "learned"
        self.positions_CD = nn.Parameter(torch.empty(self.rows * self.columns, D)) if learned else None
        self.token_D = nn.Parameter(torch.empty(D)) if config.tokens else None
        self.blocks = nn.ModuleList(
            VisionBlock(config.block, self.make_attention(layer)) for layer in range(config.layers)
        )
        self.norm = Norm(config.block)
        self.classes_VD = nn.Parameter(torch.empty(classes, D))
        self.classes_bias_V = nn.Parameter(torch.empty(classes))

    def make_attention(self, layer: int) -> AttentionProjections:
        """The attention of a layer."""
        return Patches(self.config, self.pattern)

    @property
    def pattern(self) -> Pattern:
        """Which patch attends to which."""
        pattern = attention_kind(self.config.attention, "image").image
        assert pattern is not None
        return pattern(Grid(self.rows, self.columns, self.config.radius, self.config.tokens))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights that training starts from."""
        init_matrix(self.patch_DCPP.data.flatten(1), "xavier", generator)
        for table in (self.positions_CD, self.token_D):
            init_matrix(table, "normal", generator)
        for block in self.blocks:
            block.initialise(self.config.block, generator)  # type: ignore[operator]
        self.norm.initialise(self.config.block, generator)
        for nothing in (self.patch_bias_D, self.classes_VD, self.classes_bias_V):
            nothing.data.zero_()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """logits_BV of images whose pixels have a mean of about 0 and a deviation of about 1."""
        h_BD = self.encode(x_BCHW)
        return F.linear(h_BD, self.classes_VD.to(h_BD.dtype), self.classes_bias_V.to(h_BD.dtype))

    def encode(self, x_BCHW: Tensor) -> Tensor:
        """h_BD, what is known of each image when its class is read."""
        h_BTD: Tensor = self.norm(self.read(x_BCHW))
        return h_BTD[:, 0] if self.config.pool == "token" else h_BTD[:, self.config.tokens :].mean(1)

    def read(self, x_BCHW: Tensor) -> Tensor:
        """The stream after the last block, x_BTD."""
        self.check_images(x_BCHW)
        x_BTD = self._embed(x_BCHW)
        angles_TK = self._angles(x_BTD)
        for block in self.blocks:
            x_BTD = block(x_BTD, angles_TK)
        return x_BTD

    def check_images(self, x_BCHW: Tensor) -> None:
        """Refuse images of another size."""
        sizes = self.sizes
        wanted = (sizes["channels"], sizes["height"], sizes["width"])
        if x_BCHW.dim() != 4 or tuple(x_BCHW.shape[1:]) != wanted:
            raise UserError(f"images must be (batch, channels, height, width) = (B, *{wanted}): {tuple(x_BCHW.shape)}")

    def _embed(self, x_BCHW: Tensor) -> Tensor:
        config = self.config
        x_BND = embed(x_BCHW, self.patch_DCPP, self.patch_bias_D)
        if self.positions_CD is not None:
            x_BND = x_BND + self.positions_CD.to(x_BND.dtype)
        elif config.positions == "sinusoidal":
            x_BND = x_BND + sinusoids_2d(self.rows, self.columns, config.width, x_BND.dtype, x_BND.device)
        if self.token_D is not None:
            x_BND = torch.cat([self.token_D.to(x_BND.dtype).expand(len(x_BND), 1, -1), x_BND], 1)
        return F.dropout(x_BND, config.dropout) if self.training and config.dropout else x_BND

    def _angles(self, x_BTD: Tensor) -> Tensor | None:
        """How far a patch's queries and keys are turned; a token in front stands where nothing is turned."""
        config = self.config
        if config.positions != "rotary":
            return None
        size = config.width // config.heads
        angles_NK = rotary_2d(self.rows, self.columns, size, dtype=x_BTD.dtype, device=x_BTD.device)
        unturned_K = torch.cat([angles_NK.new_ones(size // 2), angles_NK.new_zeros(size // 2)])
        return torch.cat([unturned_K.expand(config.tokens, -1), angles_NK])


class DaVit(Vit):
    """Patch attention and channel attention in turn: what is near, then what is anywhere."""

    def make_attention(self, layer: int) -> AttentionProjections:
        return Channels(self.config.block) if layer % 2 else super().make_attention(layer)


def side_of_patch(asked: int, height: int, width: int) -> int:
    """P as asked for, or the one above a pixel that cuts the longer side into about seven; it must divide both."""
    both = [P for P in range(1, min(height, width) + 1) if height % P == width % P == 0]
    if not asked:
        return min(both[1:] or both, key=lambda P: abs(max(height, width) / P - PATCHES))
    if asked not in both:
        raise UserError(
            f"patches must cut the image without a rest: patch={asked}, image {height} x {width} pixels; "
            f"try {' or '.join(f'--patch {P}' for P in both[-3:])}"
        )
    return asked


def vision_cost(name: str, kind: type[Vit], config: VitConfig, sizes: Mapping[str, int], shape: Shape) -> Cost:
    """The cost of vit or davit for a batch of images of the sizes height, width, channels and classes: every part,
    those of all layers together. What is saved for the backward pass is left out.
    """
    with torch.device("meta"):  # where shapes take no memory
        model = kind(config, **sizes)
    block, B, D, L = config.block, shape.batch, config.width, config.layers
    N, V, C, P = model.rows * model.columns, sizes["classes"], sizes["channels"], model.patch_DCPP.shape[-1]
    T = N + config.tokens
    channel_layers = L // 2 if name == "davit" else 0  # every second one
    patches = linear("patches", B * N, [(D, C * P * P)], bias=D, muon=False)
    between = B * channel.channel_operations(T, D, config.heads)
    parts = (
        replace(patches, backward=patches.forward),  # the image has no gradient: one product is left
        Part("positions and token", (N * D if config.positions == "learned" else 0) + config.tokens * D),
        norms(block, 2 * L + 1),
        repeated(qkv_part(block, B * T), L),
        repeated(patch_attention(model.pattern, T, 4 * B * D), L - channel_layers),
        repeated(Part("channel attention", forward=between, needed=between, backward=2 * between), channel_layers),
        repeated(out_part(block, B * T), L),
        repeated(feed_forward_part(block, B * T), L),
        linear("classes", B, [(V, D)], bias=V, muon=False),
    )
    return Cost(name, V, replace(shape, window=T), parts, unit="image")


def patch_attention(pattern: Pattern, T: int, each: int) -> Part:
    """One layer's attention, `each` operations for a pair: a score and a sum. Where the keys are cut up, only the
    scores of the tokens in front are computed again in the backward pass.
    """
    if not isinstance(pattern, Axial | Neighbourhood):
        return attention_products("attention", each * T * T, each * T * T, "fused")
    needed = each * grid.pairs(pattern)
    if not grid.is_faster(pattern):
        return attention_products("attention", each * T * T, needed, "fused")
    forward = each * grid.computed(pattern)
    return Part("attention", forward=forward, needed=needed, backward=2 * forward + each * T * pattern.globals // 2)


IMAGE_ATTENTION = View("image", "Image", "image", "image-attention")
VIT_EQUATION = """x_n = W patch_n + b + position_n
x_n ← x_n + O attention(norm(x_n)); y_n = Σ_m softmax_m(q_n · k_m / √K) v_m, over the patches m that n attends to
x_n ← x_n + MLP(norm(x_n))
p(class | image) = softmax(W mean_n(norm(x_n)) + b)"""
VIT_SPEC = ModelSpec(
    "vit", "vision transformer", "a vision transformer: classifies images, such as digits or a folder of pictures",
    "vision", Vit, VitConfig, task="images", cost=partial(vision_cost, "vit", Vit), views=(IMAGE_ATTENTION,),
    equation=VIT_EQUATION,
)  # fmt: skip
DAVIT_SPEC = ModelSpec(
    "davit", "vision transformer with channel attention",
    "a vision transformer with attention between patches and between channels in turn", "vision", DaVit, DaVitConfig,
    task="images", cost=partial(vision_cost, "davit", DaVit), views=(IMAGE_ATTENTION,),
    equation=f"{VIT_EQUATION}\nevery second layer: y_c = Σ_d softmax_d(q_c · k_d / √N) v_d, over channels d of a group",
)  # fmt: skip
