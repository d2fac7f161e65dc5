"""A laboratory sheet on recurrent networks, GRU, LSTM, attention and encoder-decoder transformers."""

from __future__ import annotations

from octavo.exercises.question_sets.question import Question, QuestionSet, UsualAnswer

SET = QuestionSet(
    id="laboratory",
    title="A laboratory sheet on RNN, GRU, LSTM, attention and encoder-decoder",
    questions=(
        Question(
            number="1a",
            asks="why gradients vanish in recurrent networks",
            parts=("vanishing-exploding.vanish", "vanishing-exploding.small"),
            usual=None,
        ),
        Question(
            number="1b",
            asks="why they explode",
            parts=("vanishing-exploding.explode", "vanishing-exploding.large"),
            usual=UsualAnswer(
                text="steep activation functions make them explode; no slope of tanh or sigmoid exceeds one",
                part="vanishing-exploding.slopes",
                given=True,
            ),
        ),
        Question(number="2a", asks="the symmetry of the sigmoid", parts=("sigmoid-symmetry.mirror",), usual=None),
        Question(
            number="2c",
            asks="an update gate near 1 and a reset gate near 0 remember the past",
            parts=("gru-gates.forget",),
            usual=None,
        ),
        Question(
            number="3a",
            asks="with a zero input the state of an LSTM stays the same",
            parts=("lstm-claims.zero-input",),
            usual=None,
        ),
        Question(
            number="3b",
            asks="with a zero forget gate no error is propagated to earlier steps",
            parts=("lstm-claims.zero-forget", "lstm-claims.where", "lstm-claims.through"),
            usual=None,
        ),
        Question(
            number="3c",
            asks="gates are never negative",
            parts=("lstm-claims.negative", "lstm-claims.positive"),
            usual=None,
        ),
        Question(number="3d", asks="gates are distributions", parts=("lstm-claims.distribution",), usual=None),
        Question(
            number="4a",
            asks="the gradient of an LSTM with respect to the weights of its candidate",
            parts=(
                "lstm-gradient-wg.partial",
                "lstm-gradient-wg.total-cell",
                "lstm-gradient-wg.total",
                "lstm-gradient-wg.assembled",
            ),
            usual=None,
        ),
        Question(
            number="4b",
            asks="the factor that keeps it from vanishing",
            parts=("lstm-gradient-alive.term", "lstm-gradient-alive.near-one", "lstm-gradient-alive.vanish"),
            usual=UsualAnswer(
                text="so it does not vanish; only with forget gates near one",
                part="lstm-gradient-alive.vanish",
                given=True,
            ),
        ),
        Question(
            number="5a",
            asks="self-attention in a recurrent network",
            parts=("attention-in-rnn.naive", "attention-in-rnn.two", "attention-in-rnn.repaired"),
            usual=UsualAnswer(
                text="the new state is the query and also depends on the result; that is circular",
                part="attention-in-rnn.naive",
                given=True,
            ),
        ),
        Question(
            number="5b",
            asks="attention of many queries in matrix form",
            parts=("matrix-form.same", "matrix-form.axis"),
            usual=None,
        ),
        Question(
            number="6a", asks="the mean of a dot product of normal vectors", parts=("score-scale.mean",), usual=None
        ),
        Question(
            number="6b",
            asks="its variance",
            parts=("score-scale.variance",),
            usual=UsualAnswer(
                text="`2*d*s^2*m + d*s^4`; m already is a sum over d entries",
                part="score-scale.variance",
                given="d*s^4 + 2*d*s^2*m",
            ),
        ),
        Question(
            number="6c",
            asks="the scaling under which the mean grows linearly in d",
            parts=("score-scale.linear-mean",),
            usual=UsualAnswer(
                text="the square root of d, as in transformers; then it grows with the square root",
                part="score-scale.linear-mean",
                given="root",
            ),
        ),
        Question(number="6d", asks="what happens without scaling", parts=("score-scale.no-scaling",), usual=None),
        Question(
            number="7.1a",
            asks="why transformers need positions",
            parts=("permutation.layer", "permutation.invariant"),
            usual=UsualAnswer(
                text="because self-attention is permutation-invariant; it is equivariant",
                part="permutation.invariant",
                given=True,
            ),
        ),
        Question(number="7.1b", asks="how positions are encoded", parts=("sinusoid-shift.rotation",), usual=None),
        Question(
            number="7.3a",
            asks="the cost of self-attention in the encoder",
            parts=("encoder-decoder-cost.encoder",),
            usual=None,
        ),
        Question(number="7.3b", asks="the cost of cross-attention", parts=("encoder-decoder-cost.cross",), usual=None),
        Question(
            number="7.4a",
            asks="whether the encoder depends on the decoder",
            parts=("encoder-decoder-cost.independent", "encoder-decoder-cost.gradient"),
            usual=None,
        ),
        Question(
            number="7.4b",
            asks="what a translation into another language adds",
            parts=("encoder-decoder-cost.second",),
            usual=None,
        ),
    ),
)
