"""The parameters of BERT-Large, counted exactly."""

from __future__ import annotations

from dataclasses import replace

import torch

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.models.bert import Bert, BertConfig, Task, bert_cost
from octavo.models.cost.parts import Shape, parameter_count
from octavo.pages.figures.charts import bars

VOCAB = 30_522  # of the uncased English BERT
LARGE = BertConfig(width=1024, layers=24, heads=16, context=512, tasks=())


def count(config: BertConfig, vocab: int = VOCAB) -> int:
    """The number of parameters of octavo's BERT; on the meta device it takes no memory."""
    with torch.device("meta"):
        return parameter_count(Bert(config, vocab))


def large_count(tasks: tuple[Task, ...] = ()) -> Finding:
    config = replace(LARGE, tasks=tasks)
    built, added = count(config), bert_cost(config, VOCAB, Shape()).parameters
    return Finding(built, f"octavo's BERT, built without memory, has {built:,}; the sum over its parts is {added:,}")


@tabulated("D", [(64,), (256,), (1024,)], "octavo's BERT with two layers minus that with one, for three widths")
def layer_count(width: int) -> int:
    return count(replace(LARGE, width=width, layers=2)) - count(replace(LARGE, width=width, layers=1))


def embedding_count() -> Finding:
    without = replace(LARGE, layers=1, pooler=False)
    one_layer = count(replace(without, layers=2)) - count(without)
    return Finding(count(without) - one_layer, "octavo's BERT with one layer and without its pooler, minus that layer")


def heads_count() -> Finding:
    counts = {heads: count(replace(LARGE, heads=heads)) for heads in (1, 8, 16, 32)}
    note = f"1, 8, 16 and 32 heads: {', '.join(f'{one:,}' for one in counts.values())}"
    return Finding(verdict(len(set(counts.values())) > 1), note)


def layers_share() -> Finding:
    total, layer = count(LARGE), count(replace(LARGE, layers=25)) - count(LARGE)
    return Finding(24 * layer / total, f"24 layers with {layer:,} each, of {total:,}")


def large_figure() -> str:
    parts = bert_cost(replace(LARGE, tasks=("words", "next")), VOCAB, Shape()).parts
    rows = [
        (part.name.replace("queries, keys, values", "Q, K, V"), part.parameters / 1e6)
        for part in parts
        if part.parameters
    ]
    return bars(rows, "The parameters of BERT-Large in millions, summed over all 24 layers.", 3)


BERT_LARGE = Exercise(
    id="bert-large-parameters", title="The parameters of BERT-Large, exactly", figure=large_figure,
    question="BERT-Large: width 1024, 24 layers, 16 heads, feed-forward width 4096, a vocabulary of 30,522, 512 "
    "positions, 2 segment embeddings; every linear layer has a bias, every layer norm a scale and a shift per entry. "
    "The pooler is one square linear layer above the first token.",
    answer="Embeddings `(30522 + 512 + 2)*1024`, their layer norm `2*1024`, 24 layers of `12*D^2 + 13*D` with `D = "
    "1024`, and the pooler `D^2 + D`: 335,141,888. The pretraining heads add a square linear layer, a layer norm and a "
    "bias per vocabulary entry, and two logits for the next sentence; the output matrix is tied to the embeddings: "
    "336,226,108. The usual “340 million” is rounded.",
    parts=[
        Part("encoder", "How many parameters are there, including the pooler, without the pretraining heads?",
             Number(335_141_888, rel=0), "counted", large_count,
             why="`31036*1024 + 2*1024 + 24*(12*1024^2 + 13*1024) + 1024^2 + 1024`.",
             wrong={"gave the rounded number": 340_000_000, "left out the pooler": 334_092_288,
                    "left out all biases and the shifts of the layer norms": 334_869_504,
                    "left out the layer norm of the embeddings, or the segment embeddings": 335_139_840,
                    "gave BERT-Base": 109_482_240}),
        Part("pretraining", "And with both pretraining heads, masked words and next sentence, with tied embeddings?",
             Number(336_226_108, rel=0), "counted", lambda: large_count(("words", "next")),
             why="The head for masked words adds `D^2 + D`, a layer norm `2*D` and 30,522 biases; the head for the "
             "next sentence `2*D + 2`.",
             wrong={"counted the tied embeddings twice": 367_480_636, "left out the biases of the words": 336_195_586,
                    "left out the next sentence": 336_224_058}),
        Part("layer", "How many parameters does one layer of width D have, with a feed-forward width of `4*D`?",
             Formula("12*D^2 + 13*D", {"D": "whole"}), "counted", layer_count,
             why="Queries, keys, values and output: `4*D^2 + 4*D`. Feed-forward: `8*D^2 + 5*D`. Two layer norms: "
             "`4*D`.",
             wrong={"left out the biases and layer norms": "12*D^2", "left out the layer norms": "12*D^2 + 9*D",
                    "left out the output projection": "11*D^2 + 12*D"}),
        Part("embeddings", "How many parameters are below the first layer?", Number(31_782_912, rel=0), "counted",
             embedding_count, why="Three embedding tables with 30,522, 512 and 2 rows of 1024, and a layer norm.",
             wrong={"left out the layer norm, or the segment embeddings": 31_780_864,
                    "counted only the word embeddings": 31_254_528}),
        Part("heads", "With 8 heads instead of 16, the number of parameters changes.", Truth("false"), "counted",
             heads_count, why="The heads share the width: half as many heads are twice as wide.",
             wrong={"thought that every head adds matrices": True}),
        Part("share", "What fraction of the parameters is in the 24 layers?", Number("24*12596224/335141888", rel=1e-4),
             "counted", layers_share,
             why="Each layer has `12*1024^2 + 13*1024 = 12596224`, and there are 24 layers; most of the rest are "
             "embeddings.", wrong={"gave that of BERT-Base": 0.7769, "counted only the feed-forward networks": 0.6011}),
    ])  # fmt: skip

EXERCISES = (BERT_LARGE,)
