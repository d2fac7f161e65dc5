"""The parameters of BERT-Large, counted exactly."""

from __future__ import annotations

from dataclasses import replace

import torch

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.models import parameter_count
from octavo.models.bert import Bert, BertConfig, Task, bert_cost
from octavo.models.cost.parts import Shape
from octavo.pages.figures.charts import bars

VOCAB = 30_522  # of the uncased English BERT
LARGE = BertConfig(width=1024, layers=24, heads=16, context=512, tasks=())
BASE = BertConfig(width=768, layers=12, heads=12, context=512, tasks=())
CLAIMED = 340_000_000  # parameters, as they are usually given


def count(config: BertConfig, vocab: int = VOCAB) -> int:
    """The number of parameters of octavo's BERT; on the meta device it takes no memory."""
    with torch.device("meta"):
        return parameter_count(Bert(config, vocab))


def large_count(tasks: tuple[Task, ...] = ()) -> Finding:
    config = replace(LARGE, tasks=tasks)
    built, added = count(config), bert_cost(config, VOCAB, Shape()).parameters
    return Finding(built, f"octavo's BERT, built without memory, has {built:,}; the sum over its parts is {added:,}")


def layer_parameters(width: int) -> int:
    """The parameters of one layer of octavo's BERT."""
    return count(replace(LARGE, width=width, layers=2)) - count(replace(LARGE, width=width, layers=1))


layer_count = tabulated("D", [(64,), (256,), (1024,)],
    "octavo's BERT with two layers minus that with one, for three widths")(layer_parameters)  # fmt: skip


def without_biases() -> int:
    """The matrices of BERT-Large and the scales of its layer norms, two in each layer and one below."""
    with torch.device("meta"):
        model = Bert(LARGE, VOCAB)
    return sum(p.numel() for p in model.parameters() if p.dim() > 1) + (2 * LARGE.layers + 1) * LARGE.width


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
    where={"D": LARGE.width, "L": LARGE.layers, "H": LARGE.heads, "F": 4 * LARGE.width, "V": VOCAB, "C": LARGE.context,
        "S": 2,
           "tables": lambda: embedding_count().value - 2 * LARGE.width, "norm": lambda D:
               torch.nn.LayerNorm(D).weight.numel() * 2,
           "pooler": lambda: count(LARGE) - count(replace(LARGE, pooler=False)), "claimed": CLAIMED // 10**6, "fewer":
               8,
           "next": lambda: count(replace(LARGE, tasks=("words", "next"))) - count(replace(LARGE, tasks=("words",))),
           "attention": lambda: in_one_layer("attention", True), "feed": lambda: in_one_layer("feed_forward", True),
           "norms": lambda attention, feed: layer_parameters(LARGE.width) - attention - feed},
    question="BERT-Large: width 1024{D}, 24{L} layers, 16{H} heads, feed-forward width 4096{F}, a vocabulary of "
    "30,522{V}, 512{C} positions, 2{S} segment embeddings; every linear layer has a bias, every layer norm a scale "
    "and a shift per entry. The pooler is one square linear layer on the output of the first token.",
    answer="Embeddings `(30522 + 512 + 2)*1024`{tables}, their layer norm `2*1024`{norm}, 24{L} layers of `12*D^2 + "
    "13*D`{layer} with `D = 1024`, and the pooler `D^2 + D`{pooler}: 335,141,888{encoder}. The pretraining heads add "
    "a square linear layer, a layer norm and a bias per vocabulary entry, and two logits for the next sentence; the "
    "output matrix is tied to the embeddings: 336,226,108{pretraining}. The usual “340{claimed} million” is rounded.",
    parts=[
        Part("encoder", "How many parameters are there, including the pooler, without the pretraining heads?",
             Number(335_141_888, rel=0), "counted", large_count,
             why="`31036*1024 + 2*1024 + 24*(12*1024^2 + 13*1024) + 1024^2 + 1024`{}.",
             wrong={"gave the rounded number": (340_000_000, lambda: CLAIMED),
                    "left out the pooler": (334_092_288, lambda: count(replace(LARGE, pooler=False))),
                    "left out all biases and the shifts of the layer norms": (334_869_504, without_biases),
                    "left out the layer norm of the embeddings, or the segment embeddings":
                        (335_139_840, lambda: count(LARGE) - 2 * LARGE.width),
                    "gave BERT-Base": (109_482_240, lambda: count(BASE))}),
        Part("pretraining", "How many are there with both pretraining heads, masked words and next sentence, and with "
             "tied embeddings?",
             Number(336_226_108, rel=0), "counted", lambda: large_count(("words", "next")),
             why="The head for masked words adds `D^2 + D`{pooler}, a layer norm `2*D`{norm} and 30,522{V} biases; the "
             "head for the next sentence `2*D + 2`{next}.",
             wrong={"counted the tied embeddings twice":
                        (367_480_636, lambda: large_count(("words", "next")).value + VOCAB * LARGE.width),
                    "left out the biases of the words": (336_195_586, lambda: large_count(("words",
                        "next")).value - VOCAB),
                    "left out the next sentence": (336_224_058, lambda: large_count(("words",)).value)}),
        Part("layer", "How many parameters does one layer of width D have, with a feed-forward width of `4*D`{F}?",
             Formula("12*D^2 + 13*D", {"D": "whole"}), "counted", layer_count,
             why="Queries, keys, values and output: `4*D^2 + 4*D`{attention}. Feed-forward: `8*D^2 + 5*D`{feed}. Two "
             "layer norms: `4*D`{norms}.",
             wrong={"left out the biases and layer norms": ("12*D^2", lambda D: 4 * D * D + 2 * (D * 4 * D)),
                    "left out the layer norms": ("12*D^2 + 9*D", lambda D:
                        4 * (D * D + D) + 2 * (D * 4 * D) + 4 * D + D),
                    "left out the output projection":
                        ("11*D^2 + 12*D", lambda D: 3 * (D * D + D) + 2 * (D * 4 * D) + 4 * D + D + 4 * D)}),
        Part("embeddings", "How many parameters are there before the first "
             "layer?", Number(31_782_912, rel=0), "counted",
             embedding_count, why="Three embedding tables with 30,522{V}, 512{C} and 2{S} rows of 1024{D}, and a layer "
                  "norm.",
             wrong={"left out the layer norm, or the segment embeddings":
                        (31_780_864, lambda: embedding_count().value - 2 * LARGE.width),
                    "counted only the word embeddings": (31_254_528, lambda: VOCAB * LARGE.width)}),
        Part("heads", "With 8{fewer} heads instead of 16{H}, the number of parameters "
             "changes.", Truth("false"), "counted",
             heads_count, why="The heads share the width: half as many heads are twice as wide.",
             wrong={"thought that every head adds matrices": True}),
        Part("share", "What fraction of the parameters is in the 24{L} layers?", Number("24*12596224/335141888"),
             "counted", layers_share,
             why="Each layer has `12*1024^2 + 13*1024 = 12596224`, and there are 24{L} layers; most of the rest are "
             "embeddings.",
             wrong={"gave that of BERT-Base": ("12*7087872/109482240", lambda:
                 12 * layer_parameters(768) / count(BASE)),
                    "counted only the feed-forward networks":
                        ("24*8393728/335141888", lambda: 24 * in_one_layer("feed_forward", True) / count(LARGE))}),
    ])  # fmt: skip

USUAL_VOCAB = 30_000  # as textbooks round it


def in_one_layer(part: str, biases: bool) -> int:
    """The parameters of "attention" or "feed_forward" in one layer of octavo's BERT, with or without biases."""
    with torch.device("meta"):
        model = Bert(replace(LARGE, layers=1, pooler=False), USUAL_VOCAB)
    return sum(p.numel() for name, p in model.named_parameters() if f".{part}." in name and (biases or p.dim() == 2))


def weights_count() -> Finding:
    layer = in_one_layer("attention", False) + in_one_layer("feed_forward", False)
    total = USUAL_VOCAB * LARGE.width + LARGE.layers * layer
    return Finding(total, f"24 layers of {layer:,} weights and the word embeddings")


def usual_reaches() -> Finding:
    built = count(replace(LARGE, tasks=("words", "next")), USUAL_VOCAB)
    untied = built + USUAL_VOCAB * LARGE.width
    note = f"octavo's BERT with both heads has {built:,}; with an output matrix of its own it would have {untied:,}"
    return Finding(verdict(built >= CLAIMED), note)


USUAL = Exercise(
    id="bert-large-usual", title="The parameters of BERT-Large as textbooks ask for them",
    where={"D": LARGE.width, "L": LARGE.layers, "H": LARGE.heads, "K": LARGE.width // LARGE.heads, "F": 4 * LARGE.width,
           "C": LARGE.context, "V": USUAL_VOCAB, "real": VOCAB, "claimed": CLAIMED // 10**6, "S": 2,
           "heads": lambda: (count(replace(LARGE, tasks=("words",
           "next")), USUAL_VOCAB) - count(LARGE, USUAL_VOCAB)) / 1e6},
    question="BERT-Large as it is usually set: width 1024{D}, 24{L} layers, 16{H} heads with queries, keys and "
    "values of size 64{K}, feed-forward networks with 4096{F} hidden units, sequences of 512{C} tokens and a "
    "vocabulary of 30,000{V}. Show that it has about 340{claimed} million parameters.",
    answer="Word embeddings `30000*1024 = 30720000`; per layer `4*1024^2 = 4194304` weights for attention and "
    "`8*1024^2 = 8388608` for the feed-forward network: 332,709,888{weights} weights. Positions, segments, biases, "
    "layer norms and the pooler make it 334,607,360{all}. Rounded up generously that is 340{claimed} million, but "
    "nothing that was left out closes the gap. The real vocabulary has 30,522{real} entries, half a million "
    "parameters more.",
    parts=[
        Part("embeddings", "How many weights do the word embeddings have?", Number(30_720_000, rel=0), "counted",
             lambda: Finding(USUAL_VOCAB * (count(LARGE, VOCAB) - count(LARGE, VOCAB - 1)),
                 "30,000 times what one more word adds to octavo's BERT"),
             why="A row of 1024{D} for each of the 30,000{V} words.",
             wrong={"used the real vocabulary": (31_254_528, lambda: VOCAB * LARGE.width),
                    "counted words and positions": (31_244_288, lambda: (USUAL_VOCAB + LARGE.context) * LARGE.width)}),
        Part("attention", "How many weights does the attention of one layer have, without biases?",
             Number(4_194_304, rel=0), "counted",
             lambda: Finding(in_one_layer("attention", False), "the matrices of one layer of octavo's BERT, counted"),
             why="16{H} heads with three projections each, and an output projection: `3*H*D*K + D^2 = 4*D^2`.",
             wrong={"left out the output projection": (3_145_728, lambda: in_one_layer("attention", False) * 3 // 4),
                    "counted one head": (196_608, lambda: in_one_layer("attention", False) * 3 // 4 // LARGE.heads)}),
        Part("feed-forward", "How many parameters does the feed-forward network of one layer have, with biases?",
             Number(8_393_728, rel=0), "counted",
             lambda: Finding(in_one_layer("feed_forward", True), "counted in one layer of octavo's BERT"),
             why="Two matrices and two biases: `2*1024*4096 + 4096 + 1024`{}.",
             wrong={"left out the biases": (8_388_608, lambda: in_one_layer("feed_forward", False)),
                    "counted one of its two layers": (4_198_400, lambda: LARGE.width * 4096 + 4096)}),
        Part("weights", "How many weights are there in the 24{L} layers and the word embeddings, without biases?",
             Number(332_709_888, rel=0), "counted", weights_count, why="`24*12*1024^2 + 30000*1024`{}.",
             wrong={"left out the embeddings": (301_989_888, lambda: 24 * 12 * LARGE.width**2),
                    "left out the output projections":
                    (307_544_064, lambda: 24 * 11 * LARGE.width**2 + USUAL_VOCAB * LARGE.width)}),
        Part("all", "How many parameters are there with positions, two segments, all biases and layer norms, and the "
             "pooler?",
             Number(334_607_360, rel=0), "counted",
             lambda: Finding(count(LARGE, USUAL_VOCAB), "octavo's BERT with this vocabulary, built without memory"),
             why="`30514*1024 + 2*1024 + 24*(12*1024^2 + 13*1024) + 1024^2 + 1024`{}.",
             wrong={"gave the usual number": (340_000_000, lambda: CLAIMED),
                    "left out the pooler": (333_557_760, lambda: count(replace(LARGE, pooler=False), USUAL_VOCAB)),
                    "used the real vocabulary": (335_141_888, lambda: count(LARGE))}),
        Part("reaches",
             "Counting everything, both pretraining heads included, there are at least 340{claimed} million.",
             Truth("false"), "counted", usual_reaches,
             why="The heads add 1.1{heads} million. Only an untied output projection would make up the difference, "
             "and far more; BERT ties it to the embeddings.",
             wrong={"attributed the gap to biases and layer norms": True}),
    ])  # fmt: skip

EXERCISES = (BERT_LARGE, USUAL)
