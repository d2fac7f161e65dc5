# ruff: noqa: E501
"""Bishop and Bishop, Deep Learning: Foundations and Concepts (2024), chapter 12."""

from __future__ import annotations

from octavo.exercises.question_sets.question import Question, QuestionSet, UsualAnswer

SET = QuestionSet(
    id="bishop",
    title="Bishop and Bishop, Deep Learning: Foundations and Concepts, chapter 12",
    questions=(
        Question(
            number="12.1",
            asks="coefficients that are not negative and sum to one are at most one; with a Lagrange multiplier",
            parts=("softmax-range.at-most-one",),
            usual=None,
        ),
        Question(
            number="12.2a",
            asks="the attention weights of a softmax are not negative",
            parts=("softmax-range.positive",),
            usual=None,
        ),
        Question(
            number="12.2b",
            asks="the attention weights of a softmax sum to one",
            parts=("softmax-range.sums-to-one",),
            usual=None,
        ),
        Question(
            number="12.3",
            asks="orthogonal inputs are returned unchanged by self-attention without projections",
            parts=("orthogonal-inputs.equal", "orthogonal-inputs.own-weight", "orthogonal-inputs.error"),
            usual=UsualAnswer(
                text="the outputs equal the inputs; but a score of zero is not a weight of zero",
                part="orthogonal-inputs.equal",
                given=True,
            ),
        ),
        Question(
            number="12.4",
            asks="the mean square of the dot product of two standard normal vectors",
            parts=("score-square.mean",),
            usual=None,
        ),
        Question(
            number="12.5",
            asks="multi-head attention as a sum over heads with one matrix each",
            parts=("heads-as-sum.sum", "heads-as-sum.rank"),
            usual=None,
        ),
        Question(
            number="12.6a",
            asks="self-attention as one matrix from all inputs to all outputs",
            parts=("one-matrix.block",),
            usual=None,
        ),
        Question(
            number="12.6b",
            asks="that matrix is sparse, and its parameters are shared",
            parts=("one-matrix.entries", "one-matrix.different", "one-matrix.values"),
            usual=UsualAnswer(
                text="the matrix of attention with values is sparse; only its two factors are",
                part="one-matrix.values",
                given=True,
            ),
        ),
        Question(number="12.6c", asks="a sketch of its structure", parts=("one-matrix.block",), usual=None),
        Question(
            number="12.7",
            asks="multi-head attention without positions is permutation-equivariant",
            parts=("permutation.layer", "permutation.multi-head", "permutation.positions"),
            usual=None,
        ),
        Question(
            number="12.8",
            asks="random unit vectors in high dimensions are nearly orthogonal",
            parts=("random-cosine.mean", "random-cosine.small", "random-cosine.square", "random-cosine.absolute"),
            usual=UsualAnswer(
                text="symmetry about the origin is enough; it gives the mean zero, not small cosines",
                part="random-cosine.small",
                given=True,
            ),
        ),
        Question(
            number="12.9",
            asks="a linear layer on a token concatenated with its position is a sum of two linear maps",
            parts=("concatenate-or-add.two-maps", "concatenate-or-add.adding"),
            usual=UsualAnswer(
                text="so concatenating and adding are the same; only if both maps are equal",
                part="concatenate-or-add.adding",
                given=True,
            ),
        ),
        Question(
            number="12.10a",
            asks="a shift of sines and cosines is a linear map that does not depend on the position",
            parts=("sinusoid-shift.rotation", "sinusoid-shift.entry"),
            usual=None,
        ),
        Question(
            number="12.10b",
            asks="with sines alone it is not",
            parts=("sine-alone.enough", "sine-alone.proof", "sine-alone.exception"),
            usual=UsualAnswer(
                text="it never is; but a shift by a multiple of half a period only multiplies the sine",
                part="sine-alone.enough",
                given=False,
            ),
        ),
        Question(
            number="12.11",
            asks="the maximum-likelihood bag of words has the relative frequencies",
            parts=("bag-maximum-likelihood.share", "bag-maximum-likelihood.maximum"),
            usual=None,
        ),
        Question(
            number="12.12",
            asks="the tables of a general autoregressive model grow exponentially",
            parts=("ngram-table-sizes.entries", "ngram-table-sizes.free"),
            usual=None,
        ),
        Question(
            number="12.13b",
            asks="the final token must be left out of the (L - 1)-gram counts",
            parts=("ngram-last-token.naive", "ngram-last-token.sum", "ngram-last-token.lacks"),
            usual=UsualAnswer(
                text="this only means that the context does not contain the predicted token; but it is the count of the last context of every sequence that is too high",
                part="ngram-last-token.sum",
                given=True,
            ),
        ),
        Question(
            number="12.15b",
            asks="the probability of the sequence that greedy decoding finds",
            parts=("greedy-or-best.greedy",),
            usual=None,
        ),
        Question(
            number="12.16",
            asks="the parameters of BERT-Large with a vocabulary of 30,000",
            parts=("bert-large-parameters.encoder",),
            usual=None,
        ),
    ),
)
