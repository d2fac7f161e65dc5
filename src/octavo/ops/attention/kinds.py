"""The attention kinds by name: what `--attention` chooses from in every model that attends.

A new pattern is a class in `patterns` (or a combination of those there) and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from octavo.errors import UserError
from octavo.ops.attention.patterns import CAUSAL, FULL, Axial, Block, Global, Local, Neighbourhood, Pattern, Strided

Family = Literal["softmax", "latent", "linear", "synthesizer"]
Modality = Literal["text", "image"]


class Grid(NamedTuple):
    """The patches of an image, in row order behind `tokens` tokens, and how far away a neighbour may be."""

    height: int
    width: int
    radius: int
    tokens: int


@dataclass(frozen=True)
class AttentionKind:
    """Which positions attend to which, and how."""

    description: str
    text: Callable[[int, int], Pattern] | None = None
    """The causal pattern in a text, from the context length and the attention window."""
    image: Callable[[Grid], Pattern] | None = None
    """The pattern among the patches of an image."""
    family: Family = "softmax"
    """What computes it; only softmax attention, of keys or of latents, has patterns."""
    relative: bool = True
    """Whether the pattern of a text depends on distances alone; else on the position within the context."""
    first_key: Callable[[int, int, int], int] | None = None
    """The first key that position t attends to, from t, context and window, where it attends to all from there on."""
    settings: tuple[str, ...] = ()
    """The settings that it alone reads."""

    def serves(self, modality: Modality) -> bool:
        """Whether it is for texts, or for images."""
        return self.image is not None if modality == "image" else self.text is not None or self.family != "softmax"


WINDOWED = ("attention_window",)
ATTENTION_KINDS: dict[str, AttentionKind] = {
    "full": AttentionKind(
        "all tokens of the context; all patches",
        lambda context, window: CAUSAL & Local(context),
        lambda grid: FULL,
        first_key=lambda t, context, window: t + 1 - context,
    ),
    "local": AttentionKind(
        "the last attention_window tokens; neighbouring patches",
        lambda context, window: CAUSAL & Local(min(window, context)),
        lambda grid: Neighbourhood(*grid),
        first_key=lambda t, context, window: t + 1 - min(window, context),
        settings=WINDOWED,
    ),
    "strided": AttentionKind(
        "the last attention_window tokens, and every attention_window-th before them",
        lambda context, window: CAUSAL & (Local(min(window, context)) | Strided(window)) & Local(context),
        settings=WINDOWED,
    ),
    "block": AttentionKind(
        "earlier tokens of the same block of attention_window tokens",
        lambda context, window: CAUSAL & Block(window),
        relative=False,
        first_key=lambda t, context, window: t // window * window,
        settings=WINDOWED,
    ),
    "global": AttentionKind(
        "the last attention_window tokens and the first of the context; neighbouring patches and a token that sees all",
        lambda context, window: CAUSAL & (Local(min(window, context)) | Global(1)),
        lambda grid: Neighbourhood(*grid),
        relative=False,
        settings=WINDOWED,
    ),
    "axial": AttentionKind(
        "patches of the same row and the same column",
        image=lambda grid: Axial(grid.height, grid.width, grid.tokens),
    ),
    "latent": AttentionKind(
        "all tokens of the context, whose keys and values are made from one latent vector each",
        lambda context, window: CAUSAL & Local(context),
        family="latent",
        first_key=lambda t, context, window: t + 1 - context,
        settings=("latent_width",),
    ),
    "linear": AttentionKind(
        "all earlier tokens, through a state of constant size", family="linear", settings=("features", "head_decay")
    ),
    "dense": AttentionKind(
        "dense synthesizer: attention weights from the attending token alone", family="synthesizer", relative=False
    ),
    "random": AttentionKind(
        "random synthesizer: attention weights from positions alone", family="synthesizer", relative=False
    ),
}


def kinds_for(modality: Modality) -> list[str]:
    """The names of the kinds for texts, or for images."""
    return [name for name, kind in ATTENTION_KINDS.items() if kind.serves(modality)]


def attention_kind(name: str, modality: Modality) -> AttentionKind:
    """The kind of a name; one that is not known, or not for this, is refused."""
    if name not in (known := kinds_for(modality)):
        raise UserError(f"attention must be one of {', '.join(known)}: attention={name!r}; try --attention full")
    return ATTENTION_KINDS[name]


def kinds_with(setting: str) -> list[str]:
    """The names of the kinds that read a setting."""
    return [name for name, kind in ATTENTION_KINDS.items() if setting in kind.settings]


MAX_SEARCHED_CONTEXT = 1 << 22  # tokens; longer contexts, which only a forged config has, are cached whole


@lru_cache(256)
def text_pattern(kind: AttentionKind, context: int, window: int) -> Pattern:
    """Which tokens a token of a text attends to, itself among them."""
    assert kind.text is not None, "only softmax attention has a pattern"
    return kind.text(context, window)


@lru_cache(256)
def cache_length(kind: AttentionKind, context: int, window: int) -> int:
    """How many keys and values must be cached, the newest included, where the pattern depends on distances alone."""
    if kind.text is None or not kind.relative or context > MAX_SEARCHED_CONTEXT:
        return context
    seen_S = text_pattern(kind, context, window).mask(1, context)[0]
    return context - int(seen_S.int().argmax())
