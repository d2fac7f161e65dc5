"""octavo cost bert: every parameter, and the published counts."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from octavo.cli.output import print_json, print_table
from octavo.cost.published import ENCODERS
from octavo.errors import UserError
from octavo.models.bert import Bert, BertConfig

PUBLISHED = {"bert-base": 110_000_000, "bert-large": 340_000_000}  # Devlin et al. 2018
BERT_GROUPS = {  # by the first of these that stands in a parameter's name
    "words.": "masked words' head", "output_VD": "output weights", "next.": "next sentence's head",
    "order.": "sentence order's head", "replaced.": "replaced words' head", "pooler.": "pooler",
    "norm": "layer norms", "attention.": "attention", "feed_forward.": "feed-forward", "embedding_VD": "embeddings",
    "positions_CD": "positions", "segments_CD": "segments",
}  # fmt: skip
BERT_ORDER = (
    "embeddings", "positions", "segments", "layer norms", "attention", "feed-forward", "pooler", "masked words' head",
    "output weights", "next sentence's head", "sentence order's head", "replaced words' head",
)  # fmt: skip


def cost_bert(
    like: str | None = None,
    config: BertConfig = BertConfig(),  # noqa: B008
    vocab: int = 30522,
    json: bool = False,
) -> None:
    """Count every parameter of a BERT, with its output weights tied to the embeddings and with weights of their own.

    Example: octavo cost bert --like bert-large

    What it costs in operations, memory and time: octavo cost --like bert-large.

    Args:
        like: bert-base or bert-large, instead of settings.
        config: The model.
        vocab: Tokens of the vocabulary.
        json: Print JSON.
    """
    if like is not None:
        if like not in PUBLISHED:
            raise UserError(f"there is no BERT to be like {like!r}; there are {', '.join(PUBLISHED)}")
        config, vocab = ENCODERS[like]
    tied = bert_parameters(dataclasses.replace(config, tied=True), vocab)
    untied = bert_parameters(dataclasses.replace(config, tied=False), vocab)
    heads = [name for name in untied if "head" in name or name == "output weights"]
    encoder = sum(count for name, count in tied.items() if name not in heads)
    record: dict[str, Any] = {"like": like, "tied": tied, "untied": untied, "encoder": encoder}
    record |= {"total": {"tied": sum(tied.values()), "untied": sum(untied.values())}}
    record |= {"published": PUBLISHED.get(like or "")}
    if json:
        print_json(record)
        return
    rows = [(name, f"{tied.get(name, 0):,}", f"{untied[name]:,}") for name in untied]
    rows += [("encoder and pooler", f"{encoder:,}", f"{encoder:,}")]
    rows += [("in all", f"{sum(tied.values()):,}", f"{sum(untied.values()):,}")]
    print_table(("part", "tied", "untied"), rows)
    if like is not None:
        print(compare_published(like, encoder, sum(tied.values()), sum(untied.values())))


def compare_published(like: str, encoder: int, tied: int, untied: int) -> str:
    """Which of the counts the published count is, to the two digits that it has."""
    said = PUBLISHED[like]
    lines = [f"published for {like}: {said / 1e6:.0f} million"]
    for what, count in (("encoder and pooler", encoder), ("with both heads, tied", tied), ("and untied", untied)):
        fits = "rounds to it" if round(count, -7) == said else "does not"
        lines.append(f"  {what}: {count / 1e6:.1f} million {fits}")
    return "\n".join(lines)


def bert_parameters(config: BertConfig, vocab: int) -> dict[str, int]:
    """The parameters of the model itself, by what they belong to; nothing is allocated."""
    with torch.device("meta"):
        model = Bert(config, vocab)
    found = dict.fromkeys(BERT_ORDER, 0)
    for name, parameter in model.named_parameters():
        found[next(group for part, group in BERT_GROUPS.items() if part in name)] += parameter.numel()
    return {name: count for name, count in found.items() if count}
