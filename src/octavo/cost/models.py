"""The cost of any model that octavo knows, from its settings alone: nothing is computed, and no memory taken."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from octavo.core import LanguageModel
from octavo.cost.counts import bag_bytes, bigram_parts, ngram_bytes_at_most, ngram_cache
from octavo.cost.parts import Cache, Cost, Part, Shape
from octavo.cost.recurrent import attentive_cache, attentive_parts, recurrent_cache, recurrent_parts
from octavo.cost.transformer import transformer_cache, transformer_parts
from octavo.errors import UserError
from octavo.models import CONFIGS, MODELS, Mix, NGram, name_of
from octavo.models.bag import Bag

MOST_VOCAB = 1 << 31  # tokens are 32-bit integers


def cost_of_config(name: str, config: Any, vocab: int, shape: Shape, tokens: int = 0) -> Cost:
    """The cost of a model by its name and settings. `tokens`, the length of the text, bounds an n-gram's tables."""
    if not 2 <= vocab <= MOST_VOCAB:
        raise UserError(f"vocab must be from 2 to 2**31: vocab={vocab}; try --vocab 257, which is bytes and begin")
    if name not in CONFIGS:
        raise UserError(f"there is no model {name!r}; models are {', '.join(CONFIGS)}")
    wanted, given = CONFIGS[name], type(config)
    if given is not wanted:
        raise UserError(f"settings of {name} are a {wanted.__name__}, not a {given.__name__}")
    parts: tuple[Part, ...] = ()
    cache, table_bytes = Cache(), 0
    if name == "bag":
        table_bytes = bag_bytes(vocab)
    elif name == "ngram":
        cache, table_bytes = ngram_cache(config), ngram_bytes_at_most(vocab, config, tokens)
    elif name == "bigram":
        parts = bigram_parts(config, vocab, shape)
    elif name == "rnn-attention":
        parts, cache = attentive_parts(config, vocab, shape), attentive_cache(config)
    elif name == "gpt":
        parts, cache = transformer_parts(config, vocab, shape), transformer_cache(config)
    elif name in ("rnn", "gru", "lstm"):
        cell: Any = name
        parts, cache = recurrent_parts(cell, config, vocab, shape), recurrent_cache(cell, config)
    else:
        raise UserError(f"a {name} costs what its parts do; give a trained one: octavo cost runs/{name}")
    return Cost(name, vocab, shape, parts, (cache,), table_bytes, tables_at_most=name == "ngram")


def cost_of(model: LanguageModel[Any], shape: Shape) -> Cost:
    """The cost of a model that is there, also on the meta device; of a mixture the sum of its parts'."""
    if isinstance(model, Mix):
        return mixture_cost([cost_of(part, shape) for part in model.parts], table_bytes(model, deep=False))
    cost = cost_of_config(name_of(model), model.config, model.vocab, shape)
    if isinstance(model, Bag | NGram):
        return dataclasses.replace(cost, table_bytes=table_bytes(model), tables_at_most=False)
    return cost


def mixture_cost(costs: list[Cost], own_bytes: int) -> Cost:
    """All parts read every token, and each carries a state of its own."""
    parts = tuple(
        dataclasses.replace(part, name=f"{i}. {cost.model}: {part.name}")
        for i, cost in enumerate(costs, 1)
        for part in cost.parts
    )
    caches = tuple(cache for cost in costs for cache in cost.caches)
    return Cost("mix", costs[0].vocab, costs[0].shape, parts, caches, own_bytes + sum(c.table_bytes for c in costs))


def table_bytes(model: LanguageModel[Any], deep: bool = True) -> int:
    """The bytes of the model's buffers; not `deep`, without those of its parts."""
    return sum(one.numel() * one.element_size() for one in model.buffers(recurse=deep))


def on_meta(name: str, config: Any, vocab: int) -> LanguageModel[Any]:
    """The model as shapes without values, however large."""
    with torch.device("meta"):
        return MODELS[name](config, vocab)
