"""The cost of any model, from its settings alone: nothing is computed, and no memory taken."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.models import find_spec, parameter_count, spec_of
from octavo.models.cost.parts import Cost, Part, Shape, linear

MAX_VOCAB = 1 << 31  # tokens are 32-bit integers
MAX_PAST = 1 << 16  # tokens before the one that is read: a pattern's pairs may be counted one by one


def cost_of_config(name: str, config: Any, vocab: Any, shape: Any) -> Cost:
    """The cost of a model by its name and settings. Of models of other tasks, `vocab` are their sizes: of an image, of
    two vocabularies; and `shape` is what their cost function takes."""
    if isinstance(vocab, int) and not 2 <= vocab <= MAX_VOCAB:
        raise UserError(f"vocab must be from 2 to 2**31: vocab={vocab}; try --vocab 257, which is bytes and begin")
    spec = find_spec(name)
    if type(config) is not spec.config:
        raise UserError(f"settings of {name} are a {spec.config.__name__}, not a {type(config).__name__}")
    if spec.fitting == "mixture":
        raise UserError(f"the model {name} costs what its parts do; give a trained one: octavo cost runs/{name}")
    if spec.cost is None:
        return cost_from_weights(on_meta(name, config, vocab), shape)
    return spec.cost(config, vocab, shape)


def cost_of(model: LanguageModel[Any], shape: Shape) -> Cost:
    """The cost of a model that is there, also on the meta device; of a mixture the sum of its parts'."""
    spec = spec_of(model)
    if spec.fitting == "mixture":
        parts = spec.parts(model)
        own = parameter_count(model) - sum(map(parameter_count, parts))
        costs = [cost_of(part, shape) for part in parts]
        return mixture_cost(spec.name, costs, table_bytes(model, recurse=False), own)
    cost = cost_of_config(spec.name, model.config, model.vocab, shape)
    if cost.table_bytes:
        entries = parameter_count(model) - cost.total("parameters")
        return dataclasses.replace(cost, table_bytes=table_bytes(model), table_entries=entries, tables_at_most=False)
    return cost


def one_token(config: Any) -> Shape:
    """The shape of reading one token after a full context or memory."""
    past = getattr(config, "context", 1) - 1 or getattr(config, "memory", 0)
    return Shape(past=min(past, MAX_PAST))


def mixture_cost(name: str, costs: list[Cost], own_bytes: int, own_entries: int) -> Cost:
    """All parts read every token, and each carries a state of its own."""
    parts = tuple(
        dataclasses.replace(part, name=f"{i}. {cost.model}: {part.name}")
        for i, cost in enumerate(costs, 1)
        for part in cost.parts
    )
    caches = tuple(cache for cost in costs for cache in cost.caches)
    table_bytes, entries = (sum(getattr(cost, what) for cost in costs) for what in ("table_bytes", "table_entries"))
    return Cost(
        name, costs[0].vocab, costs[0].shape, parts, caches, own_bytes + table_bytes, own_entries + entries
    )  # fmt: skip


def cost_from_weights(model: LanguageModel[Any], shape: Shape) -> Cost:
    """The cost of a model that does not say it: every matrix is taken for one product with each token, nothing else."""
    parts = []
    for name, weight in model.named_parameters():
        table = weight.dim() != 2 or weight.shape[0] == model.vocab
        size = weight.numel()
        parts.append(Part(name, size, read=size) if table else linear(name, shape.tokens, [tuple(weight.shape)]))  # type: ignore[list-item]
    return Cost(spec_of(model).name, model.vocab, shape, tuple(parts))


def table_bytes(model: LanguageModel[Any], recurse: bool = True) -> int:
    """The bytes of the model's buffers; without `recurse`, not those of its parts."""
    return sum(one.numel() * one.element_size() for one in model.buffers(recurse=recurse))


def on_meta(name: str, config: Any, vocab: int) -> LanguageModel[Any]:
    """The model as shapes without values, however large."""
    with torch.device("meta"):
        return find_spec(name).model(config, vocab)  # type: ignore[return-value]
