"""An assignment on neural bigrams, character models, perplexity, averaging networks and attention."""

from __future__ import annotations

from octavo.exercises.question_sets.question import Question, QuestionSet, UsualAnswer

SET = QuestionSet(
    id="language-models",
    title="An assignment on bigram and character models, perplexity and attention",
    questions=(
        Question(
            number="1a",
            asks="the gradient of cross-entropy after a softmax",
            parts=("cross-entropy-gradient.formula", "cross-entropy-gradient.function"),
            usual=None,
        ),
        Question(
            number="1b",
            asks="the gradient of a network with one hidden layer with respect to its input",
            parts=("hidden-layer-gradients.input",),
            usual=None,
        ),
        Question(
            number="1c", asks="forward and backward pass in code", parts=("hidden-layer-gradients.all",), usual=None
        ),
        Question(
            number="3a",
            asks="perplexity does not depend on the base of the logarithm",
            parts=("perplexity-base.free", "perplexity-base.too-good", "perplexity-base.too-bad"),
            usual=None,
        ),
        Question(
            number="3b",
            asks="perplexities of both models on two passages",
            parts=("perplexity-line-loader.unknown",),
            usual=None,
        ),
        Question(
            number="3c",
            asks="why the passages differ",
            parts=("perplexity-words-characters.lower", "perplexity-words-characters.easier"),
            usual=None,
        ),
        Question(
            number="3d",
            asks="preprocessing that improves the results",
            parts=("preprocessing-same-bytes.looks", "preprocessing-same-bytes.gain", "preprocessing-same-bytes.rule"),
            usual=None,
        ),
        Question(
            number="4e",
            asks="why a deep averaging network misclassifies a text",
            parts=(
                "deep-averaging-order.last-word",
                "deep-averaging-order.neighbour",
                "deep-averaging-order.drowned",
                "deep-averaging-order.repeated",
            ),
            usual=UsualAnswer(
                text="it weighted the beginning more than the end; it does not know the order of the words",
                part="deep-averaging-order.last-word",
                given=True,
            ),
        ),
        Question(
            number="5.1a",
            asks="attention weights are a categorical distribution",
            parts=("softmax-range.sums-to-one", "softmax-range.positive"),
            usual=None,
        ),
        Question(
            number="5.1b",
            asks="when almost all weight is on one key",
            parts=("copy-one-value.weight", "copy-one-value.margin"),
            usual=None,
        ),
        Question(
            number="5.1c",
            asks="the output is then close to that value",
            parts=("copy-one-value.bound", "copy-one-value.exactly-one"),
            usual=None,
        ),
        Question(
            number="5.1d",
            asks="what that means",
            parts=("copy-one-value.ten", "copy-one-value.most-keys"),
            usual=UsualAnswer(
                text="a key much closer to the query gets almost all weight; many far keys can outweigh it",
                part="copy-one-value.ten",
                given=True,
            ),
        ),
        Question(
            number="5.2a",
            asks="a matrix that recovers one of two summed vectors from orthogonal subspaces",
            parts=("projector-from-sum.projector", "projector-from-sum.exists"),
            usual=None,
        ),
        Question(
            number="5.2b",
            asks="a query that averages two values",
            parts=("average-two-values.weight", "average-two-values.length"),
            usual=UsualAnswer(
                text="both weights are exactly 1/2; the other keys have a share, too",
                part="average-two-values.weight",
                given="1/2",
            ),
        ),
        Question(
            number="5.3b",
            asks="what the output looks like when one key varies in length",
            parts=("average-one-head-noise.variance", "average-one-head-noise.steadier"),
            usual=None,
        ),
        Question(
            number="5.4b",
            asks="what their output looks like when one key varies in length",
            parts=("average-two-heads-noise.variance", "average-two-heads-noise.settles"),
            usual=UsualAnswer(
                text="always the average, with no variance; not when the key points backwards",
                part="average-two-heads-noise.variance",
                given=0,
            ),
        ),
    ),
)
