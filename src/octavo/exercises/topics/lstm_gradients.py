"""The gradient of an LSTM with respect to W_g, step by step, and which factor keeps gradients from vanishing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, IntervalAt, Number, Part, Truth, verdict
from octavo.ops.recurrent import Weights, lstm_step
from octavo.pages.figures.charts import Series, bars, lines

STEPS = 100
GATE = 0.99  # a forget gate that stays near one
TOLERANCE = 1e-11


def scalar_weights(w: Sequence[float], u: Sequence[float], b: Sequence[float]) -> Weights:
    """The weights of an LSTM with one unit; the gates are i, f, g, o."""
    column_w, column_u = (torch.tensor(x, dtype=torch.float64)[:, None] for x in (w, u))
    return Weights(column_w, column_u, torch.tensor(b, dtype=torch.float64), torch.zeros(4, dtype=torch.float64))


def one_step(x: float, h: Tensor, c: Tensor, w: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """The new h and c, and the gates i, f, g, o."""
    x_BI = torch.tensor([[x]], dtype=torch.float64)
    a = (w.ih_GI * x + w.hh_GD * h)[:, 0] + w.bias_ih_G
    gates = torch.cat([a[:2].sigmoid(), a[2:3].tanh(), a[3:].sigmoid()])
    h, c = lstm_step(x_BI, (h, c), w)
    return h, c, gates


EXAMPLES = (  # w, u and b of the gates i, f, g, o, and the inputs
    ([0.5, -0.3, 0.8, 0.2], [0.4, 0.7, -0.6, 0.9], [0.1, 1.0, 0.0, -0.2], [1.0, -0.5, 0.7]),
    ([-0.2, 0.6, 1.1, 0.3], [1.2, -0.4, 0.5, 0.1], [0.3, 0.2, -0.1, 0.4], [0.3, 0.9, -1.2, 0.4, 2.0]),
)


def zero() -> Tensor:
    return torch.zeros(1, 1, dtype=torch.float64)


def first_steps(example: int, feedback: bool) -> tuple[Weights, list[tuple[Tensor, Tensor, Tensor]]]:
    """The weights, which require a gradient, and two steps of an example."""
    w, u, b, x = EXAMPLES[example]
    weights = scalar_weights(w, u if feedback else [0.0] * 4, b)
    weights.ih_GI.requires_grad_()
    h, c, steps = zero(), zero(), []
    for one in x[:2]:
        h, c, gates = one_step(one, h, c, weights)
        steps.append((h, c, gates))
    return weights, steps


def derivative_by_w_g(y: Tensor, w: Weights) -> float:
    return float(torch.autograd.grad(y, w.ih_GI, retain_graph=True)[0][2])


def partial_one() -> Finding:
    points = []
    for w, u, b, x in EXAMPLES:
        weights = scalar_weights(w, u, b)
        weights.ih_GI.requires_grad_()
        h, c = torch.full((1, 1), 0.3, dtype=torch.float64), torch.full((1, 1), -0.8, dtype=torch.float64)
        _, c_new, gates = one_step(x[0], h, c, weights)
        found = derivative_by_w_g(c_new, weights)
        at = {"i": gates[0].item(), "g": gates[2].item(), "x": x[0]}
        points.append(IntervalAt(at, found - TOLERANCE, found + TOLERANCE))
    return Finding(points, "autograd of octavo's LSTM with fixed old h and c, to 1e-11")


def total_without_feedback() -> Finding:
    points = []
    for example in range(2):
        weights, ((_, _, one), (_, c, two)) = first_steps(example, feedback=False)
        x = EXAMPLES[example][3]
        found = derivative_by_w_g(c, weights)
        at = {"i_1": one[0].item(), "g_1": one[2].item(), "x_1": x[0], "i_2": two[0].item(), "f_2": two[1].item(),
              "g_2": two[2].item(), "x_2": x[1]}  # fmt: skip
        points.append(IntervalAt(at, found - TOLERANCE, found + TOLERANCE))
    return Finding(points, "autograd through two steps of octavo's LSTM with U = 0, to 1e-11")


def total_with_feedback() -> Finding:
    points = []
    for example in range(2):
        weights, ((_, c_1, one), (_, c_2, two)) = first_steps(example, feedback=True)
        u = weights.hh_GD[:, 0]
        i, f, g = two[0], two[1], two[2]
        by_h = u[0] * i * (1 - i) * g + u[1] * f * (1 - f) * c_1 + u[2] * i * (1 - g**2)
        x = EXAMPLES[example][3]
        at = {"P_1": derivative_by_w_g(c_1, weights), "P_2": (i * (1 - g**2) * x[1]).item(), "f_2": f.item(),
              "s": by_h.item(), "o_1": one[3].item(), "t_1": c_1.tanh().item()}  # fmt: skip
        found = derivative_by_w_g(c_2, weights)
        points.append(IntervalAt(at, found - TOLERANCE, found + TOLERANCE))
    return Finding(points, "autograd through two steps of octavo's LSTM, to 1e-11")


def gradient(
    w: Sequence[float], u: Sequence[float], b: Sequence[float], xs: Sequence[float], through_h: bool = True,
    through_c: bool = True,
) -> float:  # fmt: skip
    """d h_T / d w_g, propagated forwards step by step, along all paths or without some."""
    h = c = dh = dc = 0.0
    for x in xs:
        i, f, g, o = (w[k] * x + u[k] * h + b[k] for k in range(4))
        i, f, o, g = 1 / (1 + math.exp(-i)), 1 / (1 + math.exp(-f)), 1 / (1 + math.exp(-o)), math.tanh(g)
        dh_old = dh if through_h else 0.0
        di, df, do = i * (1 - i) * u[0] * dh_old, f * (1 - f) * u[1] * dh_old, o * (1 - o) * u[3] * dh_old
        dg = (1 - g * g) * (x + u[2] * dh_old)
        dc = df * c + f * (dc if through_c else 0.0) + di * g + i * dg
        c = f * c + i * g
        dh, h = do * math.tanh(c) + o * (1 - math.tanh(c) ** 2) * dc, o * math.tanh(c)
    return dh


without_h = partial(gradient, through_h=False)
last_step_only = partial(gradient, through_h=False, through_c=False)


def by_autograd() -> Finding:
    found = []
    for w, u, b, x in EXAMPLES:
        weights = scalar_weights(w, u, b)
        weights.ih_GI.requires_grad_()
        h, c = zero(), zero()
        for one in x:
            h, c, _ = one_step(one, h, c, weights)
        found.append(derivative_by_w_g(h, weights))
    return Finding(found, "autograd through octavo's LSTM: " + ", ".join(f"{one:.6f}" for one in found))


def lstm_values() -> dict[str, float]:
    """The gates, the input and the partial derivative of the new c in one step of the first example, by autograd."""
    at, low, _ = partial_one().value[0]
    return {**at, "partial": low + TOLERANCE}


TWO = {"i_1": "share", "g_1": "real", "x_1": "real", "i_2": "share", "f_2": "share", "g_2": "real", "x_2": "real"}
FEEDBACK = {"P_1": "real", "P_2": "real", "f_2": "share", "s": "real", "o_1": "share", "t_1": "real"}
W_G = Exercise(
    id="lstm-gradient-wg", title="The gradient of an LSTM with respect to its candidate weights",
    where={"partial_t": lambda: lstm_values()["partial"], "i_t": lambda: lstm_values()["i"], "g_t": lambda:
        lstm_values()["g"],
           "x_t": lambda: lstm_values()["x"], "c": 0.9,
           "through_h": lambda s, o, c: s * mpmath.diff(lambda y: o * mpmath.tanh(y), c)},
    question="An LSTM with one unit: `c_t = f_t*c_old + i_t*g_t`, `h_t = o_t*tanh(c_t)`, `g_t = tanh(w*x_t + "
    "u_g*h_old)`, starting from zero; w is `W_g`, which is used at every step.",
    answer="There are two derivatives. The partial derivative keeps everything earlier fixed: `i_t*(1 - "
    "g_t^2)*x_t`{partial_t}. The total derivative also includes the earlier uses of w, along two paths: the cell, "
    "with the factor `f_t`, and the hidden state `h_old`, which enters all four gates, with the factor `s*o*(1 - "
    "tanh(c)^2)`{through_h}, where s is the partial derivative of the new c with respect to the old h. So the total "
    "derivative of `c_2` is `P_2 + (f_2 + s*o_1*(1 - t_1^2))*P_1`{total}, and so on, step by step. Without the second "
    "path the result is plausible but wrong.",
    figure=lambda: bars([(name, abs(function(*EXAMPLES[1])))
        for name, function in (("all paths", gradient), ("not through h", without_h), ("last step", last_step_only))],
        "The absolute value of the derivative over five steps, with all paths and with some left out.", 4),
    parts=[
        Part("partial", "What is the partial derivative of `c_t` with respect to w, with fixed old h and c?",
             Formula("i*(1 - g^2)*x", {"i": "share", "g": "real", "x": "real"}), "autograd", partial_one,
             why="w enters only through g: `i*d(g, w)`, and `d(g, w) = (1 - g^2)*x`.",
             where={"w": 0.6, "x": 1.3, "u": 0.2, "g": lambda w, x, u: mpmath.tanh(w * x + u)},
             wrong={"used the slope of the sigmoid": ("i*g*(1 - g)*x", lambda i, g, x: i * x * (g - g * g)),
                    "forgot the input gate": ("(1 - g^2)*x", lambda g, x: x - g * g * x)}),
        Part("total-cell", "The gates do not depend on h (U is zero). What is the total derivative of `c_2` with "
             "respect to w?",
             Formula("i_2*(1 - g_2^2)*x_2 + f_2*i_1*(1 - g_1^2)*x_1", TWO), "autograd", total_without_feedback,
             why="The new term, plus the old one times `f_2`.",
             wrong={"gave the partial derivative instead of the total":
                        ("i_2*(1 - g_2^2)*x_2", lambda i_2, g_2, x_2: i_2 * x_2 * (1 - g_2) * (1 + g_2)),
                    "forgot the forget gate": ("i_2*(1 - g_2^2)*x_2 + i_1*(1 - g_1^2)*x_1",
                        lambda i_1, g_1, x_1, i_2, g_2, x_2: sum(i * x * (1 - g) * (1 + g)
                            for i, g, x in ((i_1, g_1, x_1), (i_2, g_2, x_2))))}),
        Part("total", "Now the gates depend on h. `P_1`, `P_2` are the partial derivatives, s is the partial "
             "derivative of `c_2` with respect to `h_1`, and `t_1 = tanh(c_1)`. What is the total derivative of `c_2` "
             "with respect to w?",
             Formula("P_2 + (f_2 + s*o_1*(1 - t_1^2))*P_1", FEEDBACK), "autograd", total_with_feedback,
             why="`c_1` affects `c_2` directly, by `f_2`, and through `h_1 = o_1*tanh(c_1)`. `o_1` itself does not "
             "depend on w, as `h_0` is zero.",
             wrong={"forgot the path through h": ("P_2 + f_2*P_1", lambda P_1, P_2, f_2: P_2 + P_1 * f_2),
                    "forgot the slope of tanh":
                        ("P_2 + (f_2 + s*o_1)*P_1", lambda P_1, P_2, f_2, s, o_1: P_2 + P_1 * f_2 + P_1 * s * o_1),
                    "gave the partial derivative instead of the total": ("P_2", lambda P_2: P_2 + 0)}),
        Part("assembled", "Write a function that returns the derivative of the last h with respect to w, given the "
             "weights of the gates i, f, g, o.", Function("gradient", gradient, EXAMPLES,
             "gradient(w, u, b: lists of 4 numbers; xs: list of numbers) -> number", rel=1e-9, abs=1e-12), "autograd",
             by_autograd,
             why="Propagate h, c and their derivatives; the derivative of every gate is its slope times u times the "
             "derivative of the old h.",
             wrong={"left out the path through h": without_h, "differentiated the last step only": last_step_only}),
    ])  # fmt: skip


def cell_flow(bias: float, steps: int = STEPS) -> float:
    """The derivative of the last c with respect to the first in octavo's LSTM with constant gates."""
    w = scalar_weights([0.0] * 4, [0.0] * 4, [-0.5, bias, 0.3, 0.7])
    start = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    h, c = zero(), start
    for _ in range(steps):
        h, c = lstm_step(zero(), (h, c), w)
    return float(torch.autograd.grad(c, start)[0])


def alive_term() -> Finding:
    w = scalar_weights([0.0] * 4, [0.0] * 4, [-0.5, 1.5, 0.3, 0.7])
    h, c = zero(), torch.ones(1, 1, dtype=torch.float64)
    products = dict.fromkeys(("forget", "input", "output", "tanh"), 1.0)
    for _ in range(10):
        h, c, gates = one_step(0.0, h, c, w)
        factors = {"input": gates[0], "forget": gates[1], "output": gates[3], "tanh": 1 - c.tanh() ** 2}
        products = {name: products[name] * float(factors[name]) for name in products}
    measured = cell_flow(1.5, 10)
    same = [name for name, product in products.items() if math.isclose(product, measured, rel_tol=1e-9)]
    listed = ", ".join(f"{name} {product:.2e}" for name, product in products.items())
    note = f"10 steps: the derivative is {measured:.4e}; the products are {listed}"
    return Finding(" ".join(same), note, "to 1e-9 relative")


def cannot_vanish() -> Finding:
    flows = {bias: cell_flow(bias) for bias in (0.0, 1.0, 4.6, 12.0)}
    listed = "; ".join(f"f = {1 / (1 + math.exp(-bias)):.5f}: {flow:.2g}" for bias, flow in flows.items())
    under = {"near-one": flows[12.0] > 0.99, "half": flows[0.0] > 0.1, "fresh": flows[1.0] > 0.1}
    holds = verdict(min(flows.values()) > 0.1, under)
    return Finding(holds, f"after 100 steps, {listed}", "above 0.1; above 0.99 with gates near one")


ALIVE = Exercise(
    id="lstm-gradient-alive", title="Which factor keeps gradients from vanishing",
    where={"steps": STEPS, "gate": GATE, "fresh_gate": lambda: float(torch.tensor(1.0, dtype=torch.float64).sigmoid())},
    question="Consider the derivative of `c_T` with respect to `c_0` along the cell: `c_t = f_t*c_old + i_t*g_t`.",
    answer="Along the cell the derivative is the product of the forget gates, without a matrix or a tanh in between. "
    "It does not vanish as long as the gates stay near one: 0.366{near-one} after 100{steps} steps at f = 0.99{gate}, "
    "but `2.5*10^(-14)`{fresh} at f = 0.731{fresh_gate}, the gate of an untrained LSTM with a forget bias of one. The "
    "LSTM does not abolish vanishing gradients; it can learn where they vanish.",
    figure=lambda: lines([Series(f"f = {f}", [(t, f**t) for t in range(0, STEPS + 1, 4)]) for f in (0.99, 0.9, 0.731)],
        "The gradient along the cell.", ("steps back", "derivative"), log_y=True),
    parts=[
        Part("term", "By which factor is the derivative multiplied at each step?", Choice("forget", {"forget": "the "
             "forget gate",
             "input": "the input gate", "output": "the output gate", "tanh": "the slope of tanh"}), "autograd",
             alive_term, why="`d(c_t, c_old) = f_t`; the other term does not contain c."),
        Part("near-one", "f = 0.99{gate} at each of 100{steps} steps. What is the "
             "derivative?", Number("0.99^100"), "autograd",
             lambda: Finding(cell_flow(math.log(GATE / (1 - GATE))), "autograd through 100 steps of octavo's LSTM"),
             why="Each step multiplies by f, so `0.99^100`{}, not far from one over e.",
             wrong={"subtracted the same amount at every step": (0, lambda: 1 - STEPS * (1 - GATE)),
                    "gave one step": (0.99, lambda: cell_flow(math.log(GATE / (1 - GATE)), 1)),
                    "thought that nothing is lost": (1, lambda: cell_flow(100.0))}),
        Part("fresh", "What is the derivative after as many steps if the forget gate has a bias of one, and all its "
             "weights are zero?", Number("(1/(1 + "
             "exp(-1)))^100"), "autograd",
             lambda: Finding(cell_flow(1.0), "autograd through 100 steps of octavo's LSTM"),
             why="The gate is `sigma(1) = 0.7311` at every step: `sigma(1)^100`{}.",
             wrong={"used the bias as the gate": (1, lambda: 1.0**STEPS), "forgot the bias": ("2^(-100)", lambda:
                 cell_flow(0.0))}),
        Part("vanish", "Along the cell of an LSTM the gradient does not vanish.",
             Truth("nearly", Choice("near-one", {"fresh": "the forget bias is one", "half":
                  "the forget gates are at least one half",
             "near-one": "the forget gates stay close to one"})), "autograd", cannot_vanish,
             why="A product of numbers below one vanishes too, but at a learnt rate.",
             wrong={"assumed forget gates near one": True}),
    ])  # fmt: skip

EXERCISES = (W_G, ALIVE)
