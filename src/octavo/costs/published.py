"""Models that everybody knows, by name: their shapes as published."""

from __future__ import annotations

from typing import Any

from octavo.costs.models import cost_of_config
from octavo.errors import UserError, did_you_mean
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


PUBLISHED: dict[str, tuple[str, Any, int]] = {  # the model, its settings and the size of its vocabulary
    "gpt2": ("gpt", gpt2(768, 12, 12), 50257),
    "gpt2-medium": ("gpt", gpt2(1024, 24, 16), 50257),
    "gpt2-large": ("gpt", gpt2(1280, 36, 20), 50257),
    "gpt2-xl": ("gpt", gpt2(1600, 48, 25), 50257),
    "llama-7b": ("gpt", llama(4096, 32, 32, 32, 11008, 2048, False), 32000),
    "llama-13b": ("gpt", llama(5120, 40, 40, 40, 13824, 2048, False), 32000),
    "smollm2-135m": ("gpt", llama(576, 30, 9, 3, 1536, 8192, True), 49152),
    "smollm2-360m": ("gpt", llama(960, 32, 15, 5, 2560, 8192, True), 49152),
    "smollm2-1.7b": ("gpt", llama(2048, 24, 32, 32, 8192, 8192, True), 49152),
    "bert-base": ("bert", BertConfig(768, 12, 12, 3072, context=512, tasks=()), 30522),  # without heads
    "bert-large": ("bert", BertConfig(1024, 24, 16, 4096, context=512, tasks=()), 30522),
}


def find_published(name: str) -> tuple[str, Any, int]:
    """The model, its settings and the size of its vocabulary, by the name that everybody knows."""
    if name not in PUBLISHED:
        advice = did_you_mean(name, PUBLISHED, f"there are {', '.join(PUBLISHED)}")
        raise UserError(f"there is no model to be like {name!r}; {advice}")
    return PUBLISHED[name]


def cost_like(name: str, shape: Shape) -> Cost:
    """The cost of the model of that name, of an encoder without the heads of its pretraining."""
    return cost_of_config(*find_published(name), shape)
