"""Models that everybody knows, by name: their shapes as published."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from octavo.cost.models import cost_of_config
from octavo.errors import UserError
from octavo.models.bert import BertConfig
from octavo.models.cost.parts import Cost, Shape
from octavo.models.parts.config import GPTConfig


def gpt2(width: int, layers: int, heads: int) -> GPTConfig:
    """As GPT-2: learned positions, layer norms, biases, embeddings that are the output weights too."""
    return GPTConfig(
        width=width, layers=layers, heads=heads, context=1024, positions="learned", qk_norm=False, feed_forward="gelu",
        norm="layer", bias=True, init="gpt2",
    )  # fmt: skip


def llama(
    width: int, layers: int, heads: int, kv_heads: int, feed_forward_width: int, context: int, tied: bool
) -> GPTConfig:
    """As Llama: rotary positions, RMS norms, gated feed-forward layers, no biases."""
    return GPTConfig(
        width=width, layers=layers, heads=heads, kv_heads=kv_heads, context=context, stride=context // 2,
        qk_norm=False, feed_forward="gated", feed_forward_width=feed_forward_width, tied=tied, init="gpt2",
    )  # fmt: skip


DECODERS: dict[str, tuple[GPTConfig, int]] = {  # and the size of the vocabulary
    "gpt2": (gpt2(768, 12, 12), 50257),
    "gpt2-medium": (gpt2(1024, 24, 16), 50257),
    "gpt2-large": (gpt2(1280, 36, 20), 50257),
    "gpt2-xl": (gpt2(1600, 48, 25), 50257),
    "llama-7b": (llama(4096, 32, 32, 32, 11008, 2048, False), 32000),
    "llama-13b": (llama(5120, 40, 40, 40, 13824, 2048, False), 32000),
    "smollm2-135m": (llama(576, 30, 9, 3, 1536, 8192, True), 49152),
    "smollm2-360m": (llama(960, 32, 15, 5, 2560, 8192, True), 49152),
    "smollm2-1.7b": (llama(2048, 24, 32, 32, 8192, 8192, True), 49152),
}
ENCODERS: dict[str, tuple[BertConfig, int]] = {
    "bert-base": (BertConfig(768, 12, 12, 3072, context=512), 30522),
    "bert-large": (BertConfig(1024, 24, 16, 4096, context=512), 30522),
}
NAMES = (*DECODERS, *ENCODERS)


def context_of(name: str) -> int:
    """How many tokens the model of that name sees."""
    return int(_published(name)[0].context)


def cost_like(name: str, shape: Shape) -> Cost:
    """The cost of the model of that name, of an encoder without the heads of its pretraining."""
    config, vocab = _published(name)
    if name in DECODERS:
        return cost_of_config("gpt", config, vocab, shape)
    return cost_of_config("bert", replace(config, tasks=()), vocab, shape)


def _published(name: str) -> tuple[Any, int]:
    """The settings of the model of that name, and the size of its vocabulary."""
    if name not in NAMES:
        near = get_close_matches(name, NAMES, 1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
        raise UserError(f"there is no model to be like {name!r}; {advice}")
    return DECODERS[name] if name in DECODERS else ENCODERS[name]
