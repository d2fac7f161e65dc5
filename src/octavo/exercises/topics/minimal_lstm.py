"""The minLSTM: what dividing both gates by their sum does, its sister the minGRU, and what is lost against an LSTM."""

from __future__ import annotations

import math

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal, tabulate, tabulated
from octavo.models.linear_recurrent import MinGRUConfig, MinLSTMConfig
from octavo.models.parts.linear_recurrence import MinGRUMixer, MinLSTMMixer
from octavo.ops.linear_recurrence import linear_recurrence
from octavo.ops.recurrent import Weights, lstm_step
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
FORGET, INPUT = 0.99, 0.5
GATES = ((0.9, 0.3), (0.5, 0.5), (0.2, 0.7))


def unit(p: float, s: float, n: float) -> MinLSTMMixer:
    """octavo's minLSTM of one unit whose gates are the sigmoids of p and s and whose candidate is n, at any token."""
    mixer = MinLSTMMixer(MinLSTMConfig(width=1, convolution=1)).double()
    for weight in mixer.parameters():
        weight.data.zero_()
    mixer.forget_bias_E.data.fill_(p)
    mixer.input_bias_E.data.fill_(s)
    mixer.candidate_bias_E.data.fill_(n)
    return mixer.requires_grad_(False)


def logit(x: float) -> float:
    return math.log(x) - math.log1p(-x)


def after(f: float, i: float, n: float, tokens: int) -> float:
    """Its state after so many tokens, from zero, by doubling."""
    mixer = unit(logit(float(f)), logit(float(i)), float(n))
    a_1T1, b_1T1 = mixer.coefficients(torch.zeros(1, tokens, 1, dtype=torch.float64))
    return float(linear_recurrence(a_1T1, b_1T1, path="doubling")[0, -1])


def undivided(f: float, i: float, n: float, tokens: int, before: float = 0.0) -> Tensor:
    """All states of h_new = f h + i n."""
    b_1T1 = torch.full((1, tokens, 1), i * n, dtype=torch.float64)
    return linear_recurrence(torch.full_like(b_1T1, f), b_1T1, torch.full((1, 1), before, dtype=torch.float64))


@tabulated("p s", [(0.0, 0.0), (1.0, 0.0), (2.0, -1.0), (-3.0, 0.5)], "octavo's minLSTM of one unit", rel=1e-12)
def retained(p: float, s: float) -> float:
    return unit(p, s, 0.0).coefficients(torch.zeros(1, 1, dtype=torch.float64))[0].item()


def constant_gates() -> Finding:
    points = [(f, i, n, tokens) for f, i in GATES for n in (1.5, -2.0) for tokens in (1, 4)]
    return Finding(tabulate("f i n t", points, after, rel=1e-12), "states of octavo's minLSTM of one unit, by doubling")


def without_division() -> Finding:
    state = float(undivided(FORGET, INPUT, 1.0, 5000)[0, -1])
    return Finding(state, "the recurrence with both gates as they are, after 5000 tokens")


def normalised_bounds() -> Finding:
    """Random gates, candidates and starts between minus one and one."""
    a_BTE, b_BTE, n_BTE = random_text()
    start_BE = normal(20, 6, seed=9).clamp(-1, 1)
    largest = float(linear_recurrence(a_BTE, b_BTE, start_BE).abs().max())
    note = f"20 texts of 60 tokens with random gates: no state is larger than {largest:.3f}"
    assert float(n_BTE.abs().max()) == 1, "some candidates must reach the bound"
    return Finding(verdict(largest <= 1), note, "at most 1")


def random_text(scale: float = 3.0) -> tuple[Tensor, Tensor, Tensor]:
    """Factors, inputs and candidates of octavo's minLSTM whose gates have random preactivations."""
    mixer = MinLSTMMixer(MinLSTMConfig(width=6, convolution=1)).double().requires_grad_(False)
    for seed, weight in enumerate(mixer.parameters()):
        weight.data.copy_(scale * normal(*weight.shape, seed=seed))
    a_BTE, _ = mixer.coefficients(normal(20, 60, 6, seed=8))
    n_BTE = normal(20, 60, 6, seed=7).clamp(-1, 1)
    return a_BTE, (1 - a_BTE) * n_BTE, n_BTE


def undivided_bounds() -> Finding:
    """The largest state for gates at the edge of what each condition allows, all candidates one."""
    allowed = {
        "sum": [(0.9, 0.1), (0.5, 0.5), (0.05, 0.95)], "input": [(0.999, 0.5), (0.8, 0.5)],
        "forget": [(0.9, 0.9), (0.5, 0.9)], "smaller": [(0.9, 0.8), (0.6, 0.5)],
    }  # fmt: skip
    largest = {
        name: max(float(undivided(f, i, 1.0, 200, before).abs().max()) for f, i in gates for before in (-1.0, 0.0, 1.0))
        for name, gates in allowed.items()
    }
    note = ", ".join(f"{name}: {x:.2f}" for name, x in largest.items())
    under = {name: x <= 1 + TOLERANCE for name, x in largest.items()}
    return Finding(verdict(all(under.values()), under), f"the largest states under each condition: {note}", "to 1e-10")


def is_mingru() -> Finding:
    one = MinLSTMMixer(MinLSTMConfig(width=4, convolution=1)).double().requires_grad_(False)
    other = MinGRUMixer(MinGRUConfig(width=4, convolution=1)).double().requires_grad_(False)
    names = (("input", "update"), ("candidate", "candidate"))
    for seed, (name, theirs) in enumerate(names):
        for kind in ("ED", "bias_E"):
            drawn = normal(*getattr(one, f"{name}_{kind}").shape, seed=seed)
            getattr(one, f"{name}_{kind}").data.copy_(drawn)
            getattr(other, f"{theirs}_{kind}").data.copy_(drawn)
    one.forget_ED.data.copy_(-one.input_ED)  # the sigmoid of -x is one less the sigmoid of x
    one.forget_bias_E.data.copy_(-one.input_bias_E)
    u = normal(3, 11, 4, seed=5)
    off = max(float((a - b).abs().max()) for a, b in zip(one.coefficients(u), other.coefficients(u), strict=True))
    note = f"factors and inputs of octavo's minLSTM and minGRU, 33 tokens: they differ by {off:.0e}"
    return Finding(verdict(off < TOLERANCE), note, "to 1e-10")


def order_is_kept() -> Finding:
    a_BTE, b_BTE, _ = random_text(0.5)
    low, high = (linear_recurrence(a_BTE, b_BTE, torch.full((20, 6), x, dtype=torch.float64)) for x in (0.0, 1.0))
    gap = float((high - low)[:, :10].min())
    note = f"20 texts with random gates: after the first ten tokens the gap is still at least {gap:.0e}"
    return Finding(verdict(gap > 0), note, "exactly 0")


def lstm_order() -> Finding:
    """An LSTM of one unit that looks at its output: where that is large, it closes the input and the forget gate."""
    hh, bias = torch.tensor([[-20.0], [-20.0], [0.0], [0.0]]).double(), torch.tensor([5.0, 5.0, 1.0, 5.0]).double()
    w = Weights(torch.zeros(4, 1).double(), hh, bias, torch.zeros(4).double())
    cells = []
    for before in (0.0, 1.0):
        c = torch.full((1, 1), before, dtype=torch.float64)
        cells.append(float(lstm_step(torch.zeros(1, 1).double(), (c.tanh(), c), w)[1]))
    note = f"octavo's LSTM of one unit takes the cells 0 and 1 to {cells[0]:.2f} and {cells[1]:.2f}"
    return Finding(verdict(cells[0] < cells[1]), note, "exactly 0")


SIGMOID = {"p": "real", "s": "real"}
MINLSTM = Exercise(
    id="minlstm", title="The minLSTM: two gates divided by their sum",
    question="The gates of a minLSTM, `f = sigma(p)` and `i = sigma(s)`, and its candidate n come from the token "
    "alone: p, s and n are linear maps of it. Then `h_new = F*h + I*n`, elementwise, with `F = f/(f + i)` and "
    "`I = i/(f + i)`. A minGRU has one gate z, and its new state is `(1 - z)*h + z*n`{mingru_step}.",
    where={"f": 0.9, "i": 0.3, "F": lambda f, i: f / (f + i), "I": lambda f, i: i / (f + i),
           "open": FORGET, "in": INPUT, "most": 0.9,
           "mingru_step": lambda z, h, n: h + z * (n - h)},
    answer="The gates are divided by their sum so that the new state is a weighted mean of the old one and of the "
    "candidate: it stays within what it has seen, however long the text. Without the division a forget gate of "
    "0.99{open} lets the state grow to 50{unbounded} times the candidate. Where f is one less i, the minLSTM is a "
    "minGRU. What is lost is that a gate cannot look at the state: two starts keep their order for ever, while an LSTM "
    "can treat a full cell differently from an empty one.",
    figure=lambda: lines([
        Series("divided by their sum", [(t, after(FORGET, INPUT, 1.0, t)) for t in range(1, 61)]),
        Series("as they are", [(t + 1, float(x)) for t, x in enumerate(undivided(FORGET, INPUT, 1.0, 60)[0, :, 0])])],
        "States with f = 0.99 and i = 0.5, from zero; all candidates are one.", ("tokens", "state"), log_y=True),
    parts=[
        Part("retained", "What is the share F of the old state that remains, in p and s?",
             Formula("(1 + exp(-s))/(2 + exp(-p) + exp(-s))", SIGMOID), "numeric", retained,
             why="`1/f = 1 + exp(-p)` and `1/i = 1 + exp(-s)`, and `f/(f + i) = (1/i)/(1/i + 1/f)`.",
             where={"f": lambda p: 1 / (1 + mpmath.exp(-p)), "i": lambda s: 1 / (1 + mpmath.exp(-s)),
                    "p": (0.5, -1.0), "s": (1.5, -0.5)},
             wrong={"did not divide": ("1/(1 + exp(-p))", lambda p: 1 / (1 + mpmath.exp(-p))),
                    "divided exponentials instead of sigmoids":
                        ("1/(1 + exp(s - p))", lambda p, s: mpmath.exp(p) / (mpmath.exp(p) + mpmath.exp(s)))}),
        Part("constant", "For t tokens f, i and n are the same numbers. What is the state after them, if it was zero "
             "before?", Formula("n*(1 - (f/(f + i))^t)", {"f": "share", "i": "share", "n": "real", "t": "whole"}),
             "numeric", constant_gates,
             why="The distance to n is multiplied by F at each token: `n - h_new = F*(n - h)`.",
             where={"n": 1.5, "h": 0.4, "h_new": lambda F, I, h, n: F * h + I * n},
             wrong={"did not divide": ("i*n*(1 - f^t)/(1 - f)", lambda f, i, n, t: i * n * sum(f**k for k in range(t))),
                    "gave what is left of the start": ("n*(f/(f + i))^t", lambda f, i, n, t: n * (1 - i / (f + i)) ** t)
                    }),
        Part("bounds", "Start and candidates lie between minus one and one. Then every state does, whatever the gates.",
             Truth("true", Choice("", {"sum": "f + i is at most one", "input": "i is at most one half",
                                       "forget": "f is above one half"})), "numeric", normalised_bounds,
             why="`F + I = 1` and neither is negative: a weighted mean is not outside of what it is a mean of.",
             wrong={"overlooked the division": False}),
        Part("unbounded", "The gates are not divided: `h_new = f*h + i*n`. At all tokens f is 0.99{open}, i is "
             "0.5{in} and n is one. Which state is approached?", Number(50), "numeric", without_division,
             why="Where the state does not change, `h = f*h + i`, so it is `0.5/(1 - 0.99) = 50`.",
             wrong={"divided by the sum": (1, lambda: after(FORGET, INPUT, 1.0, 5000)),
                    "forgot the input gate": (100, lambda: float(undivided(FORGET, 1.0, 1.0, 5000)[0, -1])),
                    "stopped after one token": (0.5, lambda: float(undivided(FORGET, INPUT, 1.0, 1)[0, -1]))}),
        Part("bounds-undivided", "With `h_new = f*h + i*n`, start and candidates between minus one and one, every "
             "state is between minus one and one.",
             Truth("nearly", Choice("sum", {"sum": "f + i is at most one", "input": "i is at most one half",
                                            "forget": "f is at most 0.9{most}", "smaller": "i is below f"})), "numeric",
             undivided_bounds, where={"h_new": lambda f, i, h, n: f * h + i * n},
             why="`abs(h_new) <= f*abs(h) + i*abs(n)`, which is at most `f + i`. With a larger sum, candidates of one "
             "lead a state of one beyond one.", wrong={"thought that gates below one are enough": True}),
        Part("mingru", "If `f = 1 - i` at every token, the minLSTM is a minGRU with `z = i`.", Truth("true"), "numeric",
             is_mingru, why="Then the sum is one, and dividing by it changes nothing: `F = f` and `I = i`.",
             where={"f": lambda i: 1 - i}, wrong={"thought that two gates always do more than one": False}),
        Part("order", "A minLSTM of one unit reads the same text from a small start and from a large one. In "
             "exact arithmetic, after every token the state from the large start is the larger one.", Truth("true"),
             "numeric", order_is_kept,
             why="The difference of both states is multiplied by F, which is positive; nothing else depends on the "
             "state.", wrong={"thought that a candidate can overtake": False}),
        Part("order-lstm", "The same is true of the cell of an LSTM of one unit, where h is the output gate times "
             "tanh of the cell.", Truth("false"), "numeric", lstm_order,
             why="Its gates see h: a full cell may close both gates and forget, while an empty one is "
             "filled. That is what a minLSTM's single layer cannot do.",
             wrong={"thought that gates differ in their inputs alone": True}),
    ])  # fmt: skip

EXERCISES = (MINLSTM,)
