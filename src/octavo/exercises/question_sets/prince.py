# ruff: noqa: E501
"""Prince, Understanding Deep Learning (2023), chapter 12."""

from __future__ import annotations

from octavo.exercises.question_sets.question import Question, QuestionSet, UsualAnswer

SET = QuestionSet(
    id="prince",
    title="Prince, Understanding Deep Learning, chapter 12",
    questions=(
        Question(
            number="12.1a",
            asks="how many weights compute queries, keys and values",
            parts=("qkv-counts.weights",),
            usual=None,
        ),
        Question(
            number="12.1b",
            asks="how many biases compute queries, keys and values",
            parts=("qkv-counts.biases",),
            usual=UsualAnswer(
                text="3: one for each of the three projections; each of them has D", part="qkv-counts.biases", given="3"
            ),
        ),
        Question(
            number="12.1c",
            asks="how many attention weights there are",
            parts=("qkv-counts.map", "layer-counts.map"),
            usual=None,
        ),
        Question(
            number="12.1d",
            asks="how many weights a fully connected layer on all inputs has",
            parts=("qkv-counts.connected", "layer-counts.connected"),
            usual=None,
        ),
        Question(
            number="12.1e",
            asks="how many biases that layer has",
            parts=("qkv-counts.connected-biases",),
            usual=UsualAnswer(
                text="`N^2`; but every one of its `N*D` outputs has one",
                part="qkv-counts.connected-biases",
                given="N^2",
            ),
        ),
        Question(
            number="12.2",
            asks="why input and output of self-attention have the same size",
            parts=("same-size.width", "same-size.residual", "same-size.rows"),
            usual=None,
        ),
        Question(
            number="12.3",
            asks="self-attention is equivariant under permutations of its inputs",
            parts=(
                "permutation.projections",
                "permutation.scores",
                "permutation.softmax",
                "permutation.values",
                "permutation-columns.scores",
                "permutation-columns.layer",
            ),
            usual=UsualAnswer(
                text="the permutations inside the softmax cancel, `T(P)*P = I`; but they stand outside of the scores, `T(P)*S*P`, and do not meet",
                part="permutation-columns.scores",
                given="unchanged",
            ),
        ),
        Question(
            number="12.4a",
            asks="the 25 derivatives of a softmax with one dominant score",
            parts=("softmax-derivatives.all", "softmax-derivatives.largest", "softmax-derivatives.smallest"),
            usual=None,
        ),
        Question(
            number="12.4b",
            asks="what follows from them",
            parts=("softmax-derivatives.sensitive", "softmax-derivatives.sums"),
            usual=UsualAnswer(
                text="a saturated softmax is very sensitive to its inputs; it hardly reacts to them",
                part="softmax-derivatives.sensitive",
                given=True,
            ),
        ),
        Question(
            number="12.5",
            asks="why heads of width D/H are efficient",
            parts=(
                "head-width.weights",
                "head-width.operations",
                "head-width.free",
                "head-costs.queries",
                "head-costs.one-head",
                "head-costs.scores",
            ),
            usual=UsualAnswer(
                text="H heads have `H*(D/H)^2` weights; but a head reads all D inputs, so they have `D^2`",
                part="head-costs.queries",
                given="D^2/H",
            ),
        ),
        Question(
            number="12.6a",
            asks="is predicting masked words generative or contrastive?",
            parts=("labels-from-text.words",),
            usual=None,
        ),
        Question(
            number="12.6b",
            asks="is recognizing adjacent sentences generative or contrastive?",
            parts=("labels-from-text.next",),
            usual=None,
        ),
        Question(
            number="12.6d",
            asks="two more contrastive tasks",
            parts=(
                "labels-from-text.order",
                "labels-from-text.replaced",
                "labels-from-text.make-order",
                "labels-from-text.make-replaced",
            ),
            usual=None,
        ),
        Question(
            number="12.7",
            asks="what a new token costs in masked self-attention",
            parts=(
                "new-token-projections.projections",
                "new-token-projections.products",
                "new-token-projections.outputs",
                "masked-new-token.which",
                "masked-new-token.pairs",
                "masked-new-token.operations",
            ),
            usual=UsualAnswer(
                text="its key meets the queries of all other tokens, and all outputs are computed again; but its query meets the keys, and only its own output is new",
                part="masked-new-token.which",
                given="new-column",
            ),
        ),
        Question(
            number="12.8a",
            asks="local attention reduces the cost for image patches",
            parts=("sparse-patterns-grid.neighbourhood", "sparse-patterns-grid.radius", "sparse-patterns-grid.layers"),
            usual=None,
        ),
        Question(
            number="12.8b",
            asks="global tokens, or rows and columns, reduce it",
            parts=("sparse-patterns-grid.global", "sparse-patterns-grid.axial", "sparse-patterns-grid.block"),
            usual=None,
        ),
        Question(
            number="12.9a",
            asks="multiplications of attention between 256 patches of 512 channels",
            parts=("channel-scores.patches", "patch-or-channel.patches"),
            usual=None,
        ),
        Question(
            number="12.9b",
            asks="multiplications of attention between the channels",
            parts=("channel-scores.channels", "patch-or-channel.channels"),
            usual=None,
        ),
        Question(
            number="12.9c",
            asks="their comparison",
            parts=("channel-scores.ratio", "patch-or-channel.ratio", "patch-or-channel.cheaper"),
            usual=UsualAnswer(
                text="twice as expensive; only without the projections, which both need",
                part="patch-or-channel.ratio",
                given=2,
            ),
        ),
        Question(
            number="12.10",
            asks="why products of features make attention cheaper",
            parts=(
                "feature-weights.normalizers",
                "feature-weights.all-weights",
                "feature-weights.linear",
                "linear-attention.linear",
                "linear-attention.crossover",
            ),
            usual=UsualAnswer(
                text="the attention weights take `O(N*D)` instead of `O(N^2*D)`; all `N^2` of them still take `N^2*F`, and only the outputs are linear in N, with `N*D*F`",
                part="feature-weights.linear",
                given=True,
            ),
        ),
    ),
)
