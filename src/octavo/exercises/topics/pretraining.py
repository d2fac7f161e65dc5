"""Pretraining: what BERT-Large is made of, number by number."""

from __future__ import annotations

from dataclasses import replace

import torch

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.models.bert import Bert, BertConfig, Task
from octavo.models.cost.bert import bert_parts
from octavo.models.cost.parts import Shape, parameter_count
from octavo.pages.figures.bars import bars

VOCAB = 30_522  # of the uncased English BERT
LARGE = BertConfig(width=1024, layers=24, heads=16, context=512, tasks=())


def count(config: BertConfig, vocab: int = VOCAB) -> int:
    """The parameters of octavo's own BERT of this shape; on the meta device it takes no memory."""
    with torch.device("meta"):
        return parameter_count(Bert(config, vocab))


def large_count(tasks: tuple[Task, ...] = ()) -> Finding:
    config = replace(LARGE, tasks=tasks)
    built, added = count(config), sum(part.parameters for part in bert_parts(config, VOCAB, Shape()))
    return Finding(built, f"octavo's BERT, built without memory, has {built:,}; the sum over its parts is {added:,}")


def layer_count() -> Finding:
    points = []
    for width in (64, 256, 1024):
        one, two = (count(replace(LARGE, width=width, layers=n)) for n in (1, 2))
        points.append(IntervalAt({"D": width}, two - one, two - one))
    return Finding(points, "octavo's BERT with two layers less that with one, of three widths")


def embedding_count() -> Finding:
    without = replace(LARGE, layers=1, pooler=False)
    one_layer = count(replace(without, layers=2)) - count(without)
    return Finding(count(without) - one_layer, "octavo's BERT of one layer without its pooler, less that layer")


def heads_count() -> Finding:
    counts = {heads: count(replace(LARGE, heads=heads)) for heads in (1, 8, 16, 32)}
    return Finding(
        verdict(len(set(counts.values())) > 1),
        f"1, 8, 16 and 32 heads: {', '.join(f'{one:,}' for one in counts.values())}",
    )


def layers_share() -> Finding:
    whole, one = count(LARGE), count(replace(LARGE, layers=25)) - count(LARGE)
    return Finding(24 * one / whole, f"24 layers of {one:,}, of {whole:,}")


def large_figure() -> str:
    parts = bert_parts(replace(LARGE, tasks=("words", "next")), VOCAB, Shape())
    rows = [
        (part.name.replace("queries, keys, values", "Q, K, V"), part.parameters / 1e6)
        for part in parts
        if part.parameters
    ]
    return bars(rows, "BERT-Large's parameters in millions, those of all 24 layers together.", 3)


BERT_LARGE = Exercise(
    id="bert-large-parameters",
    title="The parameters of BERT-Large, exactly",
    question="BERT-Large: width 1024, 24 layers, 16 heads, inner width 4096, a vocabulary of 30,522, 512 places, 2 "
    "kinds of sentence; every product has a bias, every norm a scale and a shift for each entry. The pooler is one "
    "square layer above the first token.",
    answer="Embeddings `(30522 + 512 + 2)*1024`, a norm above them `2*1024`, 24 layers of `12*D^2 + 13*D` with `D = "
    "1024`, and the pooler `D^2 + D`: 335,141,888. The heads of pretraining add a square layer, a norm and a bias for "
    "each word, and two scores for the next sentence; their largest matrix is the embeddings again: 336,226,108. The "
    "“340 million” that is often said is rounded.",
    figure=large_figure,
    parts=[
        Part("encoder", "How many numbers are learnt, the pooler included, the heads of pretraining not?",
             Number(335_141_888, rel=0), "counted", large_count,
             why="`31036*1024 + 2*1024 + 24*(12*1024^2 + 13*1024) + 1024^2 + 1024`.",
             wrong={"gave the rounded figure": 340_000_000, "left out the pooler": 334_092_288,
                    "left out all biases, and the norms' shifts": 334_869_504,
                    "left out the norm above the embeddings, or the two kinds of sentence": 335_139_840,
                    "that is BERT-Base": 109_482_240}),
        Part("pretraining", "And with both heads of pretraining, masked words and next sentence, tied?",
             Number(336_226_108, rel=0), "counted", lambda: large_count(("words", "next")),
             why="The head for words adds `D^2 + D`, a norm `2*D` and 30,522 biases; that for the next sentence `2*D + "
             "2`.",
             wrong={"counted the embeddings again for the output": 367_480_636,
                    "left out the words' biases": 336_195_586, "left out the next sentence": 336_224_058}),
        Part("layer", "How many has one layer of width D, with an inner width of `4*D`?",
             Formula("12*D^2 + 13*D", {"D": "whole"}), "counted", layer_count,
             why="Queries, keys, values and the way out: `4*D^2 + 4*D`. The inner layer: `8*D^2 + 5*D`. Two norms: "
             "`4*D`.",
             wrong={"left out the biases and norms": "12*D^2", "left out the norms": "12*D^2 + 9*D",
                    "left out the way out of the heads": "11*D^2 + 12*D"}),
        Part("embeddings", "How many stand below the first layer?", Number(31_782_912, rel=0), "counted",
             embedding_count, why="Three tables with 30,522, 512 and 2 rows of 1024, and a norm.",
             wrong={"left out the norm, or the kinds of sentence": 31_780_864, "counted the words alone": 31_254_528}),
        Part("heads", "With 8 heads instead of 16, the number changes.", Truth("false"), "counted", heads_count,
             why="Heads share the width out among them: half as many are twice as wide.",
             wrong={"thought that every head adds matrices": True}),
        Part("share", "Which share of the parameters do the 24 layers hold?", Number("24*12596224/335141888", rel=1e-4),
             "counted", layers_share,
             why="Each layer has `12*1024^2 + 13*1024 = 12596224`, and there are 24; most of the rest are embeddings.",
             wrong={"used BERT-Base's": 0.7769, "counted the layers' feed-forward parts alone": 0.6011}),
    ],
)  # fmt: skip

EXERCISES = (BERT_LARGE,)
