"""The mLSTM: an exponential input gate, the stabiliser that no result depends on, and what is read is divided by."""

from __future__ import annotations

import math

import mpmath
import torch
from torch import Tensor

from octavo.core import tensors_of
from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal, tabulate
from octavo.models.linear_attention.config import LinearAttentionConfig
from octavo.models.linear_attention.mixer import Inputs
from octavo.models.linear_attention.mlstm import MLSTM, MatrixLSTMMixer
from octavo.ops import linear
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
LOG_I, LOG_F = (2.0, 5.0, 1.0), (-1.0, -2.0, -1.0)
CASES: list[tuple[list[float], list[float]]] = [
    ([0.5], [-1.0]), ([2.0, 5.0, 1.0], [-1.0, -2.0, -1.0]), ([800.0, 799.0, -900.0], [0.0, -0.5, -3.0]),
    ([-2.0, -3.0], [-0.1, -0.2]),
]  # fmt: skip


def library_m(i: list[float], f: list[float]) -> list[float]:
    """octavo's m after each token, from zero, of the logarithms of both gates."""
    i_11T, f_11T = (torch.tensor(x, dtype=torch.float64).view(1, 1, -1) for x in (i, f))
    m: list[float] = linear.stabilised(i_11T, f_11T, torch.zeros(1, 1, dtype=torch.float64))[2][0, 0].tolist()
    return m


def stabilisers(y: list[float], log_f: list[float]) -> list[float]:
    """m after each token: the larger of log f plus the m before, and y."""
    m, all_m = 0.0, []
    for y_t, log_f_t in zip(y, log_f, strict=True):
        m = max(log_f_t + m, y_t)
        all_m.append(m)
    return all_m


def never_fading(i: list[float], f: list[float]) -> list[float]:
    return [max([0.0, *i[: t + 1]]) for t in range(len(i))]


def own_gates(i: list[float], f: list[float]) -> list[float]:
    return [max(log_i, log_f) for log_i, log_f in zip(i, f, strict=True)]


def last_m() -> Finding:
    return Finding(library_m([*LOG_I], [*LOG_F])[-1], "octavo's stabiliser of the three tokens")


# ---------------------------------------------------------------------- what is read


def by_octavo(q: Tensor, k: Tensor, v: Tensor, log_i: Tensor, log_f: Tensor) -> Tensor:
    """What octavo's mLSTM reads, one head: stabilised gates, the recurrence, and the division."""
    log_i, log_f, m_11T = linear.stabilised(log_i, log_f, torch.zeros(1, 1, dtype=torch.float64))
    values_11TW = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    given = Inputs(q, k * log_i.exp()[..., None], values_11TW, log_f[..., None])
    y_11TW, _ = linear.attend_decaying(*given)
    mixer = MatrixLSTMMixer(LinearAttentionConfig(width=2, heads=1))
    return mixer.read(y_11TW, given, [torch.cat([torch.zeros(1, 1, 1, dtype=torch.float64), m_11T], -1)])


def by_definition(q: Tensor, k: Tensor, v: Tensor, log_i: Tensor, log_f: Tensor, *, one: float = 1.0) -> Tensor:
    """q S / max(|q n|, 1), step by step and without a stabiliser; `one` may stand for the one."""
    S_KV, n_K = torch.zeros(k.shape[-1], v.shape[-1]).double(), torch.zeros(k.shape[-1]).double()
    y = []
    for t in range(q.shape[2]):
        i, f = float(log_i[0, 0, t].exp()), float(log_f[0, 0, t].exp())
        S_KV = f * S_KV + i * k[0, 0, t][:, None] * v[0, 0, t]
        n_K = f * n_K + i * k[0, 0, t]
        y.append(q[0, 0, t] @ S_KV / max(abs(float(q[0, 0, t] @ n_K)), one))
    return torch.stack(y)[None, None]


def random_text(small: float = 1.0) -> tuple[Tensor, ...]:
    """Queries, keys, values and the logarithms of both gates of 20 tokens; small input gates let the one win."""
    q, k, v = (normal(1, 1, 20, 4, seed=seed) for seed in (1, 2, 3))
    return q, k, v, normal(1, 1, 20, seed=4) + math.log(small), -normal(1, 1, 20, seed=5).abs()


def same_as_definition() -> Finding:
    off = [float((by_octavo(*text) - by_definition(*text)).abs().max()) for text in map(random_text, (1.0, 0.01, 50.0))]
    note = f"octavo's mLSTM and the definition without a stabiliser, three texts: they differ by {max(off):.0e}"
    return Finding(verdict(max(off) > TOLERANCE), note, "to 1e-10")


def divided_state() -> Finding:
    """S and n divided by exp(m), which is the input gate's logarithm less m; the one left as it is, or divided too."""

    def off(text: tuple[Tensor, ...], divided: bool) -> float:
        q, k, v, log_i, log_f = text
        *_, m_11T = linear.stabilised(log_i, log_f, torch.zeros(1, 1, dtype=torch.float64))
        right_11TV, last = by_definition(*text), []
        for t in range(q.shape[2]):  # the state after t + 1 tokens, divided by its own exp(m)
            m = float(m_11T[0, 0, t])
            upto = tuple(x[:, :, : t + 1] for x in (q, k, v, log_i - m, log_f))
            last.append(by_definition(*upto, one=math.exp(-m) if divided else 1.0)[0, 0, -1])
        return float((torch.stack(last) - right_11TV[0, 0]).abs().max())

    texts = {"as it stands": random_text(), "small": random_text(0.01), "large": random_text(50.0)}
    errors = {name: off(text, False) for name, text in texts.items()}
    q, k, *rest = random_text(0.01)
    errors |= {
        "positive": off((q.abs(), k.abs(), *rest), False),
        "one": max(off(text, True) for text in texts.values()),
    }
    note = ", ".join(f"{name} {error:.0e}" for name, error in errors.items())
    holds = {name: error < TOLERANCE for name, error in errors.items()}
    return Finding(verdict(holds.pop("as it stands"), holds), f"20 tokens, largest difference: {note}", "to 1e-10")


def one_token(i: float, c: float) -> float:
    """What a value is multiplied by that is read at once, with the input gate i and q k = c."""
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    return float(by_octavo(one * c, one, one, math.log(i) * one[..., 0], 0 * one[..., 0]))


def first_read() -> Finding:
    points = [(i, c) for i in (0.1, 1.0, 20.0) for c in (0.5, 3.0)]
    return Finding(tabulate("i c", points, one_token, rel=1e-10), "octavo's mLSTM after one token")


def last_share(n: int, x: float) -> float:
    """Of a token with log i = x after n tokens with i = 1, nothing forgotten; all queries and keys one."""
    ones = torch.ones(1, 1, n + 1, 1, dtype=torch.float64)
    v, log_i = torch.zeros_like(ones), torch.zeros(1, 1, n + 1, dtype=torch.float64)
    v[0, 0, -1], log_i[0, 0, -1] = 1.0, x
    return float(by_octavo(ones, ones, v, log_i, torch.zeros_like(log_i))[0, 0, -1])


def last_shares() -> Finding:
    points = [(1, 0.5), (9, 2.0), (99, 4.0), (99, -1.0)]
    return Finding(tabulate("n x", points, last_share, rel=1e-10), "octavo's mLSTM: the share of the last value")


def sigmoid_share(n: int) -> float:
    """The largest share that it can have if i is a sigmoid, which was one half at the tokens before: an open gate."""
    return last_share(int(n), -math.log(0.5))


def largest_sigmoid_share() -> Finding:
    table = tabulate("n", [(1,), (9,), (99,)], sigmoid_share, rel=1e-10)
    return Finding(table, "octavo's mLSTM with an input gate twice as large as those before")


def doubled_gates() -> Finding:
    """Twice the input gates, for states whose normaliser is above one and below."""

    def off(text: tuple[Tensor, ...]) -> float:
        q, k, v, log_i, log_f = text
        return float((by_octavo(*text) - by_octavo(q, k, v, log_i + math.log(2), log_f)).abs().max())

    q, k, v, log_i, log_f = random_text()
    positive = (q.abs() + 0.1, k.abs() + 0.1)
    errors = {
        "as it stands": off((q, k, v, log_i, log_f)), "positive": off((*positive, v, log_i - 5, log_f)),
        "kept": off((q, k, v, log_i, 0 * log_f)), "large": off((*positive, v, log_i.abs() + 4, log_f)),
    }  # fmt: skip
    holds = {name: error < TOLERANCE for name, error in errors.items()}
    note = ", ".join(f"{name} {error:.0e}" for name, error in errors.items())
    return Finding(verdict(holds.pop("as it stands"), holds), f"largest difference: {note}", "to 1e-10")


def gates_at_most_one() -> Finding:
    log_i, log_f = 30 * normal(1, 1, 500, seed=1), -normal(1, 1, 500, seed=2).abs()
    gates = torch.stack([x.exp() for x in linear.stabilised(log_i, log_f, torch.zeros(1, 1).double())[:2]])
    largest = gates.amax(0)
    off = float((largest - 1).abs().max())
    note = (
        f"500 tokens with gates up to {float(log_i.max()):.0f} in the logarithm: the larger of both is one to {off:.0e}"
    )
    return Finding(verdict(off < TOLERANCE), note, "to 1e-10")


def state_numbers(H: int, K: int) -> int:
    """Of octavo's mLSTM of one layer, without a convolution."""
    model = MLSTM(LinearAttentionConfig(width=H * K, heads=H, layers=1, convolution=0), 7)
    return sum(x.numel() for x in tensors_of(model.start(1)))


def state_counts() -> Finding:
    return Finding(tabulate("H K", [(1, 4), (2, 3), (4, 8)], state_numbers), "states of octavo's mLSTM of one layer")


MLSTM_GATES = Exercise(
    id="mlstm", title="The mLSTM: exponential gates that cannot overflow",
    question="A head of an mLSTM has a matrix S and a vector n as state: `S_t = f*S_u + i*k*T(v)` and `n_t = f*n_u + "
    "i*k`, where u is the token before t, `i = exp(y)` with any number y, and f is a sigmoid. It reads `q*S_t`, "
    "divided by the larger of `abs(q*n_t)` and one. The stabiliser is `m_t = max(log(f) + m_u, y)`, and zero before "
    "the first token.",
    where={"y1": LOG_I[0], "y2": LOG_I[1], "y3": LOG_I[2], "f1": -LOG_F[0], "f2": -LOG_F[1],
           "m1": lambda: library_m([*LOG_I], [*LOG_F])[0], "m2": lambda: library_m([*LOG_I], [*LOG_F])[1],
           "small": 0.01, "big": 50, "i": (0.2, 5.0), "c": (0.5, 3.0)},
    answer="An exponential gate lets one token outweigh all that was written before, as a sigmoid cannot. So that "
    "nothing overflows, S and n are kept divided by `exp(m)`: both gates are then at most one, and one of them is one. "
    "What is read does not depend on m, if the one in the maximum is divided by `exp(m)` too. Where the normaliser is "
    "above one, what is read is a weighted mean of the values, in which only the ratios of the gates count; where it "
    "is below, little was written, and what is read is small.",
    figure=lambda: lines([
        Series("exponential", [(x / 4, last_share(99, x / 4)) for x in range(-16, 41)]),
        Series("sigmoid", [(x / 4, last_share(99, math.log(2 / (1 + math.exp(-x / 4))))) for x in range(-16, 41)])],
        "The share of a token's value after 99 others, by the preactivation of its input gate (0 at the others).",
        ("preactivation", "share")),
    parts=[
        Part("one-token", "A first token has the input gate i, and its query and key the positive product c. By what "
             "is its own value multiplied when it is read?",
             Formula("min(1, i*c)", {"i": "positive", "c": "positive"}), "numeric", first_read,
             why="`q*S` is `i*c` times the value and `q*n = i*c`; divided by the larger of that and one.",
             where={"q": lambda c: c, "n": lambda i: i},
             wrong={"always divided by the normaliser": ("1", lambda i, c: i * c / (i * c)),
                    "never divided": ("i*c", lambda i, c: i * c),
                    "took the larger": ("max(1, i*c)", lambda i, c: max(mpmath.mpf(1), i * c))}),
        Part("share", "Nothing is forgotten, all queries and keys are the number one, and n tokens had `i = 1`. The "
             "next one has `i = exp(x)`. What is the share of its value in what it reads?",
             Formula("exp(x)/(n + exp(x))", {"n": "whole", "x": "real"}), "numeric", last_shares,
             why="What is read is a mean of the values, weighted by their input gates.",
             where={"i": 1, "x": 0},
             wrong={"forgot to count itself in the sum": ("exp(x)/n", lambda n, x: mpmath.exp(x) / n),
                    "gave every value the same weight": ("1/(n + 1)", lambda n: 1 / (mpmath.mpf(n) + 1))}),
        Part("sigmoid", "The same, but i is a sigmoid, and was one half at the n tokens before. Which share can the "
             "next value approach, but not exceed, however large the preactivation?", Formula("2/(n + 2)",
             {"n": "whole"}), "numeric",
             largest_sigmoid_share, where={"half": 0.5},
             why="At most one, against one half from each: `1/(n/2 + 1)`{sigmoid}. After many tokens, no later one "
             "can be the most important any more.",
             wrong={"thought that an open gate replaces what was there": ("1", lambda n: n / mpmath.mpf(n)),
                    "gave every value the same weight": ("1/(n + 1)", lambda n: 1 / (mpmath.mpf(n) + 1))}),
        Part("m", "Three tokens have y = 2{y1}, 5{y2}, 1{y3}, and the logarithms of their forget gates are minus "
             "1{f1}, minus 2{f2} and minus 1{f1}. What is m after the last?", Number(4, rel=0), "exact", last_m,
             why="It is 2{m1} after the first and 5{m2} after the second, whose y are larger than what is left of "
             "the m before. Then what is left, `5 - 1 = 4`, is larger than y.",
             wrong={"kept the largest y": (5, lambda: max(LOG_I)),
                    "took the last token alone": (1, lambda: own_gates([*LOG_I], [*LOG_F])[-1])}),
        Part("function", "Write a function that returns m after each token, from the lists of all y and of the "
             "logarithms of the forget gates.",
             Function("stabilisers", stabilisers, CASES, "stabilisers(y: list, log_f: list) -> list of numbers"),
             "numeric", lambda: Finding([library_m(*case) for case in CASES], "octavo's stabiliser, four texts"),
             why="It is the logarithm of the largest weight in the state: an earlier y, less what has been forgotten.",
             wrong={"let the largest y never fade": never_fading, "forgot the m before": own_gates}),
        Part("gates", "With S and n kept divided by `exp(m)`, the gates become `exp(log(f) + m_u - m_t)` and `exp(y - "
             "m_t)`. The larger of the two is one at every token.", Truth("true"), "numeric", gates_at_most_one,
             why="`m_t` is the larger of both logarithms without it.",
             wrong={"thought that both only stay below one": False}),
        Part("invariance", "If S and n are kept divided by `exp(m)`, and otherwise nothing is changed, the same is "
             "read.", Truth("nearly", Choice("one", {"positive": "queries and keys are positive",
             "small": "the input gates are about 0.01{small}", "large": "the input gates are about 50{big}",
             "one": "the one in the maximum is divided by `exp(m)` as well"})), "numeric", divided_state,
             why="`q*S` and `abs(q*n)` are divided alike, so their quotient stays; but compared with one, the "
             "normaliser is not what it was.", wrong={"overlooked the one": True}),
        Part("same", "With the one divided by `exp(m)` too, what is read is only an approximation of the definition, "
             "in exact arithmetic too.", Truth("false"), "numeric", same_as_definition,
             why="Each step divides by `exp(m_t)` and multiplies what came before by `exp(m_u)`: the factors cancel.",
             wrong={"took the stabiliser for a limit that cuts gates off": True}),
        Part("doubled", "If every input gate of a text is doubled, the same is read.", Truth("nearly", Choice("large", {
             "positive": "queries and keys are positive", "kept": "nothing is forgotten",
             "large": "`abs(q*n_t)` is at least one at every token"})), "numeric", doubled_gates,
             why="S and n are doubled, and so is the quotient's divisor, unless that is the one.",
             wrong={"overlooked the one": True}),
        Part("state", "Keys and values have K numbers. How many numbers are the state of a layer of H heads, with the "
             "stabiliser?", Formula("H*(K^2 + K + 1)", {"H": "whole", "K": "whole"}), "counted", state_counts,
             why="For each head the matrix, the vector n, and m.",
             wrong={"forgot the stabiliser": ("H*(K^2 + K)", lambda H, K: H * K * (K + 1)),
                    "counted the matrix alone": ("H*K^2", lambda H, K: state_numbers(int(H), int(K)) - H * K - H)}),
    ])  # fmt: skip

EXERCISES = (MLSTM_GATES,)
