# ruff: noqa: E501
"""CS224N, assignment 5: attention exploration, synthesizers and pretrained knowledge."""

from __future__ import annotations

from octavo.exercises.question_sets.question import Question, QuestionSet, UsualAnswer

SET = QuestionSet(
    id="cs224n",
    title="CS224N, assignment 5: attention and pretraining",
    questions=(
        Question(
            number="0a",
            asks="notes: the axis of the softmax for a batch of sequences",
            parts=("matrix-form.axis",),
            usual=None,
        ),
        Question(
            number="0b",
            asks="notes: why scores are divided by the square root of d",
            parts=(
                "scaling-or-clipping.scaled",
                "scaling-or-clipping.clipped",
                "scaling-or-clipping.order",
                "scaling-or-clipping.clipped-gradient",
                "scaling-or-clipping.odds",
                "score-scale.no-scaling",
            ),
            usual=UsualAnswer(
                text="to clip the scores, so that gradients do not explode; but scaling is not clipping, and unscaled scores make the gradients vanish",
                part="scaling-or-clipping.explodes",
                given=True,
            ),
        ),
        Question(
            number="0c",
            asks="notes: one large projection for all heads",
            parts=("heads-as-sum.sum", "qkv-counts.weights", "head-costs.queries"),
            usual=None,
        ),
        Question(
            number="0d",
            asks="notes: the causal mask",
            parts=("masked-new-token.changes", "permutation.causal"),
            usual=None,
        ),
        Question(
            number="1a",
            asks="when attention copies one value",
            parts=("copy-one-value.weight", "copy-one-value.bound", "copy-one-value.margin"),
            usual=UsualAnswer(
                text="all other keys must be opposite to the query; a margin is enough, whatever the signs",
                part="copy-one-value.bound",
                given=False,
            ),
        ),
        Question(
            number="1b",
            asks="a query that averages two values",
            parts=("average-two-values.weight", "average-two-values.length", "average-two-values.equal"),
            usual=None,
        ),
        Question(
            number="1ci", asks="that query for keys with little noise", parts=("average-two-values.weight",), usual=None
        ),
        Question(
            number="1cii",
            asks="what the output looks like when one key varies in length",
            parts=("average-one-head-noise.variance", "average-one-head-noise.limit"),
            usual=None,
        ),
        Question(
            number="1dii",
            asks="what their output looks like when one key varies in length",
            parts=(
                "average-two-heads-noise.finds",
                "average-two-heads-noise.variance",
                "average-two-heads-noise.settles",
            ),
            usual=UsualAnswer(
                text="always close to the average; not in the draws in which the key points backwards",
                part="average-two-heads-noise.settles",
                given=True,
            ),
        ),
        Question(
            number="1ei",
            asks="what self-attention without projections computes, and whether a sum can be added to help",
            parts=("raw-dot-products.c2", "raw-dot-products.share", "raw-dot-products.adding", "raw-dot-products.mean"),
            usual=None,
        ),
        Question(
            number="1eii",
            asks="projections that extract what was asked for",
            parts=("raw-dot-products.projections",),
            usual=None,
        ),
        Question(
            number="2",
            asks="what a synthesizer cannot do in one layer",
            parts=("synthesizer-lookup.changes", "synthesizer-lookup.guess", "synthesizer-lookup.cannot"),
            usual=None,
        ),
        Question(
            number="3a",
            asks="why pretraining makes the difference",
            parts=(
                "pretraining-or-not.without",
                "pretraining-or-not.with",
                "pretraining-or-not.memory",
                "pretraining-or-not.constant",
            ),
            usual=UsualAnswer(
                text="without pretraining the model cannot learn; it learns its answers, but nothing about others",
                part="pretraining-or-not.memory",
                given=True,
            ),
        ),
        Question(
            number="3b",
            asks="why it matters that retrieved and made-up answers look alike",
            parts=("unseen-name.silent", "unseen-name.sure", "confidence-threshold.boasting"),
            usual=None,
        ),
        Question(
            number="3c",
            asks="what a model answers about a name it never saw, and why that is a concern",
            parts=(
                "unseen-name.namesakes",
                "unseen-name.alike",
                "pretraining-or-not.strangers",
                "confidence-threshold.useless",
            ),
            usual=UsualAnswer(
                text="a threshold on its confidence finds these cases; on unknown names confidence tells nothing",
                part="unseen-name.sure",
                given=True,
            ),
        ),
    ),
)
