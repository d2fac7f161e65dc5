"""The gates of GRU and LSTM: which common claims about them are true."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, IntervalAt, Part, Truth, verdict
from octavo.ops.recurrent import Weights, gru_step, lstm_step, rnn_step
from octavo.pages.figures.charts import Series, bars, lines

CLOSED_BIAS = -1000.0  # a gate with this bias is 0 in float64; with the opposite bias it is 1


def random_weights(gates: int, size: int = 3, seed: int = 1, **biases: float) -> Weights:
    """Random weights of a cell; a keyword g0, g1, ... adds a bias to the gate of that number."""
    rng = torch.Generator().manual_seed(seed)
    w = Weights(*(torch.randn(*shape, generator=rng, dtype=torch.float64)
                  for shape in ((gates * size, size), (gates * size, size), (gates * size,),
                                (gates * size,))))  # fmt: skip
    for name, bias in biases.items():
        gate = int(name.removeprefix("g"))
        w.bias_ih_G[gate * size : (gate + 1) * size] += bias
    return w


def random_inputs(count: int, size: int = 3, seed: int = 2) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.rand(1, size, generator=rng, dtype=torch.float64) * 2 - 1 for _ in range(count)]


def largest_derivative(step: Callable[[Tensor], Tensor], h_BD: Tensor) -> float:
    """The largest derivative of a step with respect to the state."""
    return float(torch.autograd.functional.jacobian(step, h_BD).abs().max())


def copies_state() -> Finding:
    x, h = random_inputs(2)
    change = float((gru_step(x, h, random_weights(3, g1=-CLOSED_BIAS)) - h).abs().max())
    return Finding(verdict(change == 0), f"octavo's GRU with z = 1: the state changes by {change}", "exactly 0")


def candidate_alone() -> Finding:
    x, h = random_inputs(2)
    derivative = largest_derivative(
        lambda h: gru_step(x, h, random_weights(3, g0=CLOSED_BIAS, g1=CLOSED_BIAS)), h
    )  # z = 0: the output is the candidate
    note = f"octavo's GRU with r = 0 and z = 0: the largest derivative by the state is {derivative}"
    return Finding(verdict(derivative == 0), note, "exactly 0")


def reset_forgets() -> Finding:
    x, h = random_inputs(2)
    reset, both = random_weights(3, g0=CLOSED_BIAS), random_weights(3, g0=CLOSED_BIAS, g1=CLOSED_BIAS)
    reset_only = largest_derivative(lambda h: gru_step(x, h, reset), h)
    reset_and_update = largest_derivative(lambda h: gru_step(x, h, both), h)
    note = (
        f"r = 0: the largest derivative by the old state is {reset_only:.2f}; with z = 0 too it is {reset_and_update}"
    )
    copying = random_weights(3, g0=CLOSED_BIAS, g1=-CLOSED_BIAS)
    copied = largest_derivative(lambda h: gru_step(x, h, copying), h)
    silent = largest_derivative(lambda h: gru_step(0 * x, h, reset), h)
    under = {"update-zero": reset_and_update == 0, "update-one": copied == 0, "silent": silent == 0}
    return Finding(verdict(reset_only == 0, under), note, "exactly 0")


def is_plain_rnn() -> Finding:
    x, h = random_inputs(2)
    w = random_weights(3, g0=-CLOSED_BIAS, g1=CLOSED_BIAS)
    difference = float((gru_step(x, h, w) - rnn_step(x, h, Weights(*(one[6:] for one in w)))).abs().max())
    note = f"octavo's GRU and RNN with the candidate's weights differ by {difference:.0e}"
    return Finding(verdict(difference < 1e-15), note, "to 1e-15")


def stays_in_bounds() -> Finding:
    largest = {}
    for start in (1.0, 5.0):
        h, most = torch.full((1, 3), start, dtype=torch.float64), 0.0
        for x in random_inputs(300):
            h = gru_step(10 * x, h, random_weights(3))
            most = max(most, float(h.abs().max()))
        largest[start] = most
    note = f"300 steps: at most {largest[1.0]:.3f} from a start at 1, {largest[5.0]:.3f} from a start at 5"
    h = torch.full((1, 3), 5.0, dtype=torch.float64)
    small = float(gru_step(random_inputs(1)[0], h, random_weights(3)).abs().max())
    under = {"start": largest[1.0] <= 1, "positive": largest[5.0] <= 1, "small": small <= 1}
    return Finding(verdict(largest[5.0] <= 1, under), note, "at most 1")


def one_unit_step(h: float, z: float, n: float) -> float:
    """The new state of octavo's GRU with one unit, whose biases give the update gate z and the candidate n."""
    bias = torch.tensor([0.0, math.log(z / (1 - z)), math.atanh(n)], dtype=torch.float64)
    zeros = torch.zeros(3, 1, dtype=torch.float64)
    w = Weights(zeros, zeros, bias, torch.zeros(3, dtype=torch.float64))
    return float(gru_step(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[h]], dtype=torch.float64), w))


def scalar_gru() -> Finding:
    points = []
    for seed in (1, 2, 3):
        w, (x, h) = random_weights(3, 1, seed, g0=-CLOSED_BIAS), random_inputs(2, 1, seed)
        h.requires_grad_()
        ih, hh, b, c = w
        a = ih @ x[0] + b + hh @ h[0] + c
        z, n = a[1].sigmoid().item(), a[2].tanh().item()
        found = float(torch.autograd.grad(gru_step(x, h, w), h)[0])
        at = {"z": z, "n": n, "h": h.item(), "v": hh[1].item(), "u": hh[2].item()}
        points.append(IntervalAt(at, found - 1e-12, found + 1e-12))
    return Finding(points, "autograd of octavo's GRU with one unit and r = 1, three draws, to 1e-12")


GRU = Exercise(
    id="gru-gates", title="What the two gates of a GRU do",
    where={"h": 0.4, "z": 0.3, "n": -0.2, "h_new": lambda: one_unit_step(0.4, 0.3, -0.2), "rest": lambda z: 1 - z},
    question="`h_new = (1 - z)*n + z*h` with the candidate `n = tanh(W*x + r*(U*h))`, with elementwise products, "
    "update gate z and reset gate r. (Some books swap z and `1 - z`{rest}.)",
    answer="Where z is one, the hidden state is copied. Where r is zero, the candidate does not depend on the past, "
    "but the new state does, which still contains z h; only r and z that are both zero forget. With r one and z zero "
    "it is a plain RNN. The state is a weighted mean of the old state and a tanh, so it stays between minus one and "
    "one if it starts there. The derivative with respect to the old state has three terms: the copy, the change of "
    "the gate, and the change of the candidate.",
    figure=lambda: lines([Series(f"z = {z}", [(t, z**t) for t in range(41)]) for z in (0.5, 0.9, 0.99)],
        "What a constant update gate z keeps of the initial state.", ("steps", "fraction kept")),
    parts=[
        Part("copy", "If every entry of z is one, the hidden state is copied.", Truth("true", Choice("", {
             "start": "the state starts between minus one and one",
             "reset": "r is one", "silent": "the input is zero"})), "numeric", copies_state,
             why="`(1 - 1)*n + 1*h = h`: the candidate has weight zero.", wrong={"swapped z and its complement":
                 False}),
        Part("blind", "If every entry of r is zero, the candidate n does not depend on the state.", Truth("true"),
             "autograd", candidate_alone,
             why="r multiplies all of `U*h`, and where r is saturated at zero its derivative is zero too.",
             wrong={"thought that the candidate depends on the update gate": False}),
        Part("forget", "If every entry of r is zero, the new state does not depend on the old one.",
             Truth("nearly", Choice("update-zero", {"update-one": "z is one", "update-zero": "z is zero as well",
             "silent": "the input is zero"})), "autograd", reset_forgets,
             why="`z*h` does not depend on r, and z depends on h too.",
             wrong={"confused the candidate with the new state": True}),
        Part("plain", "If every entry of r is one and every entry of z is zero, the GRU is a plain "
             "RNN.", Truth("true", Choice("", {
             "start": "the state starts between minus one and one",
             "unbiased": "there are no biases", "silent": "the input is zero"})), "numeric", is_plain_rnn,
             why="`h_new = n = tanh(W*x + U*h)` is the step of a plain RNN.", wrong={"swapped z and its complement":
                 False}),
        Part("bounds", "Every entry of the state stays between minus one and one.", Truth("nearly", Choice("start", {
             "positive": "it starts positive", "small": "the inputs are between minus one and one",
             "start": "it starts between minus one and one"})), "numeric", stays_in_bounds,
             why="It is a weighted mean of a tanh and the old state; a start outside decays only step by step.",
             wrong={"assumed a start between minus one and one": True}),
        Part("derivative", "One unit, r held at one, `z = sigma(w*x + v*h)`, `n = tanh(k*x + u*h)`. What is `d(h_new, "
             "h)`?", Formula("z + (1 - z)*(1 - n^2)*u + (h - n)*z*(1 - z)*v",
             {"z": "share", "n": "real", "h": "real", "u": "real", "v": "real"}), "autograd", scalar_gru,
             why="The product rule on both terms: z itself, n through u, and z through v.",
             wrong={"kept only the copy": ("z", lambda z: z * 1),
                    "kept the gate fixed": ("z + (1 - z)*(1 - n^2)*u", lambda z, n, u: z + (1 - z) * (u - u * n * n)),
                    "used the wrong sign for the gate": ("z + (1 - z)*(1 - n^2)*u + (n - h)*z*(1 - z)*v",
                        lambda z, n, h, u, v: z + (1 - z) * (u - u * n * n) - (h - n) * (z - z * z) * v)}),
    ])  # fmt: skip


def zero_input() -> Finding:
    h, c = random_inputs(2)
    x = torch.zeros(1, 3, dtype=torch.float64)
    change = float((lstm_step(x, (h, c), random_weights(4))[0] - h).abs().max())
    note = f"octavo's LSTM with random weights: h changes by up to {change:.2f}"
    return Finding(verdict(change < 1e-9), note, "to 1e-9")


def flow_without_forget() -> tuple[float, float]:
    """With f = 0: the largest derivative of the new c with respect to the old c, and to the old h."""
    x, h, c = random_inputs(3)
    w = random_weights(4, g1=CLOSED_BIAS)
    by_c = largest_derivative(lambda c: lstm_step(x, (h, c), w)[1], c)
    return by_c, largest_derivative(lambda h: lstm_step(x, (h, c), w)[1], h)


def stops_errors() -> Finding:
    by_c, by_h = flow_without_forget()
    note = f"octavo's LSTM with f = 0: by the old c {by_c}, by the old h {by_h:.2f}"
    return Finding(verdict(by_c == by_h == 0), note, "exactly 0")


def where_it_flows() -> Finding:
    by_c, by_h = flow_without_forget()
    found = "nowhere" if by_c == by_h == 0 else "state" if by_c == 0 else "cell"
    return Finding(found, f"the largest derivative of c by the old c is {by_c}, by the old h {by_h:.2f}", "exactly 0")


def scalar_lstm() -> Finding:
    points = []
    for seed in (1, 2, 3):
        w, (x, h, c) = random_weights(4, 1, seed, g1=CLOSED_BIAS), random_inputs(3, 1, seed)
        h.requires_grad_()
        a = w.ih_GI @ x[0] + w.bias_ih_G + w.hh_GD @ h[0] + w.bias_hh_G
        found = float(torch.autograd.grad(lstm_step(x, (h, c), w)[1], h)[0])
        at = {"i": a[0].sigmoid().item(), "g": a[2].tanh().item(), "u": w.hh_GD[0].item(), "v": w.hh_GD[2].item()}
        points.append(IntervalAt(at, found - 1e-12, found + 1e-12))
    return Finding(points, "autograd of octavo's LSTM with one unit and f = 0, three draws, to 1e-12")


def gate_values() -> Tensor:
    """i, f and o for random weights and inputs scaled by up to 1,000."""
    w = random_weights(4)
    a = torch.cat([x * scale for x in random_inputs(20) for scale in (1, 30, 1000)]) @ w.ih_GI.T + w.bias_ih_G
    return torch.cat([a[:, :6], a[:, 9:]], 1).sigmoid()


def not_negative() -> Finding:
    smallest = float(gate_values().min())
    note = f"the smallest of {gate_values().numel()} gate values is {smallest}"
    return Finding(verdict(smallest >= 0), note, "at least 0")


def above_zero() -> Finding:
    smallest = float(gate_values().min())
    exact = mpmath.mpf(1) / (1 + mpmath.exp(1000))
    note = f"the smallest value in float64 is {smallest}; the exact sigma(-1000) is {mpmath.nstr(exact, 3)}"
    w = random_weights(4)
    unbiased = float((1000 * random_inputs(1)[0] @ w.ih_GI.T).sigmoid().min())
    under = {"exact": exact > 0, "unbiased": unbiased > 0, "double": smallest > 0}
    return Finding(verdict(smallest > 0, under), note, "exactly 0")


def sums_to_one() -> Finding:
    sums = [float(row.sum()) for row in gate_values()[:, :3]]
    note = f"3 units: the sums of i range from {min(sums):.2f} to {max(sums):.2f}"
    return Finding(verdict(all(abs(one - 1) < 1e-9 for one in sums)), note, "to 1e-9")


LSTM = Exercise(
    id="lstm-claims", title="Four claims about the LSTM",
    question="i, f and o are sigmoids and g is a tanh, each with its own `W*x + U*h + b`; then `c_new = f*c + i*g` and "
    "`h_new = o*tanh(c_new)`, elementwise.",
    where={"g": (0.3, -0.5, 0.7), "i": (0.2, 0.6, 0.9), "u": (1.5, -0.4, 0.8), "v": (0.5, 1.2, -0.7), "a": (-1.0, 0.5,
        2.0),
           "gate_change": lambda i, u: u * mpmath.diff(lambda x: 1 / (1 + mpmath.exp(-x)), mpmath.log(i / (1 - i))),
           "candidate_change": lambda g, v: v * mpmath.diff(mpmath.tanh, mpmath.atanh(g)),
           "gate": lambda a: torch.tensor(a, dtype=torch.float64).sigmoid().item(), "huge": mpmath.exp(-CLOSED_BIAS)},
    answer="With a zero input, U h and the biases remain, so the state keeps changing; only a fixed point stays, such "
    "as zero with zero biases. A forget gate of zero cuts one path, from c to c; gradients still reach earlier steps "
    "through h, which enters the input gate, the candidate and the output gate. Gates are sigmoids: positive in exact "
    "arithmetic, never negative, but zero after underflow. Each entry can be read as a probability; together they are "
    "not a distribution, because they do not sum to one.",
    figure=lambda: bars([("old c", flow_without_forget()[0]), ("old h", flow_without_forget()[1])],
        "With f = 0: the largest derivative of the new c by the old c, and by the old h.", 2),
    parts=[
        Part("zero-input", "If the input x is zero, the state h does not change.", Truth("false"), "numeric",
             zero_input, why="The gates still depend on h and their biases.",
             wrong={"thought that without input nothing happens": True}),
        Part("zero-forget", "If the forget gate is zero, no gradient flows back to earlier steps.", Truth("false"),
             "autograd", stops_errors, why="`d(c_new, h)` is not zero: i and g depend on h, and so does o.",
             wrong={"considered only the path from cell to cell": True}),
        Part("where", "Through what does the gradient flow if f is zero?", Choice("state", {"state":
             "the old h, into the gates and the candidate", "cell": "the old c, into the new c",
             "nowhere": "not at all"}), "autograd", where_it_flows, why="f multiplies only c; h enters through U."),
        Part("through", "One unit, f zero, `i = sigma(k*x + u*h)`, `g = tanh(m*x + v*h)`. What is `d(c_new, h)`?",
             Formula("i*(1 - i)*u*g + i*(1 - g^2)*v", {"i": "share", "g": "real", "u": "real", "v": "real"}),
             "autograd", scalar_lstm,
             why="The product rule on `i*g`: i changes by `i*(1 - i)*u`{gate_change} while g stays, and g by "
             "`(1 - g^2)*v`{candidate_change} while i stays.",
             wrong={"kept the input gate fixed": ("i*(1 - g^2)*v", lambda i, g, v: i * (v - g * g * v)),
                    "used the slope of the sigmoid for tanh":
                        ("i*(1 - i)*u*g + i*g*(1 - g)*v", lambda i, g, u, v: g * u * (i - i * i) + i * v * (g - g * g)),
                    "thought that no gradient flows": ("0", lambda i: i - i)}),
        Part("negative", "The entries of i, f and o are never negative.", Truth("true", Choice("", {
             "exact": "they are computed exactly",
             "unbiased": "there are no biases", "silent": "the input is zero"})), "numeric", not_negative,
             why="`1/(1 + exp(-a))`{gate} is a quotient of positive numbers.",
             wrong={"thought that gates are tanh, like the candidate": False}),
        Part("positive", "The entries of i, f and o are always above zero.",
             Truth("nearly", Choice("exact", {"double": "they are computed in float64", "exact":
                  "they are computed exactly",
             "unbiased": "there are no biases"})), "numeric", above_zero,
             why="In float64 `exp(1000)`{huge} overflows, and the sigmoid, one over one plus it, is zero. A gate can "
             "be exactly closed.",
             wrong={"assumed that what holds in exact arithmetic holds in floats": True}),
        Part("distribution", "i, f and o are probability distributions over the units.", Truth("false"), "numeric",
             sums_to_one,
             why="Each entry is between zero and one; a softmax would make them sum to one, a sigmoid does not.",
             wrong={"mistook numbers between zero and one for a distribution": True}),
    ])  # fmt: skip

EXERCISES = (GRU, LSTM)
