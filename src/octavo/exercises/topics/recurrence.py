"""Recurrent networks: what is true of the gates of GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, IntervalAt, Part, Truth, verdict
from octavo.ops.recurrent import Weights, gru_step, lstm_step, rnn_step
from octavo.pages.figures.bars import bars
from octavo.pages.figures.lines import Series, lines

SHUT = -1000.0  # a gate with this bias is 0 in float64, with the opposite one it is 1


def drawn(gates: int, size: int = 3, seed: int = 1, **biases: float) -> Weights:
    """Random weights of a cell with so many gates; a bias fixes the gate of that number (g0, g1, ...) by hand."""
    rng = torch.Generator().manual_seed(seed)
    w = Weights(*(torch.randn(*shape, generator=rng, dtype=torch.float64)
                  for shape in ((gates * size, size), (gates * size, size), (gates * size,),
                                (gates * size,))))  # fmt: skip
    for name, bias in biases.items():
        gate = int(name.removeprefix("g"))
        w.bias_ih_G[gate * size : (gate + 1) * size] += bias
    return w


def inputs(count: int, size: int = 3, seed: int = 2) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.rand(1, size, generator=rng, dtype=torch.float64) * 2 - 1 for _ in range(count)]


def jacobian_size(step: Callable[[Tensor], Tensor], h_BD: Tensor) -> float:
    """The largest entry of a step's derivative by the state."""
    return float(torch.autograd.functional.jacobian(step, h_BD).abs().max())


def copies() -> Finding:
    x, h = inputs(2)
    change = float((gru_step(x, h, drawn(3, g1=-SHUT)) - h).abs().max())
    return Finding(verdict(change == 0), f"octavo's GRU with z = 1: the state changes by {change}", "exactly 0")


def candidate_alone() -> Finding:
    x, h = inputs(2)
    reach = jacobian_size(lambda h: gru_step(x, h, drawn(3, g0=SHUT, g1=SHUT)), h)  # z = 0 shows the candidate itself
    return Finding(
        verdict(reach == 0),
        f"octavo's GRU with r = 0 and z = 0: the largest derivative by the state is {reach}",
        "exactly 0",
    )


def reset_forgets() -> Finding:
    x, h = inputs(2)
    reset, both = drawn(3, g0=SHUT), drawn(3, g0=SHUT, g1=SHUT)
    some = jacobian_size(lambda h: gru_step(x, h, reset), h)
    none = jacobian_size(lambda h: gru_step(x, h, both), h)
    return Finding(
        verdict(some == 0, none == 0),
        f"r = 0: the largest derivative by the old state is {some:.2f}; with z = 0, {none}",
        "exactly 0",
    )


def is_plain() -> Finding:
    x, h = inputs(2)
    w = drawn(3, g0=-SHUT, g1=SHUT)
    difference = float((gru_step(x, h, w) - rnn_step(x, h, Weights(*(one[6:] for one in w)))).abs().max())
    return Finding(
        verdict(difference < 1e-15),
        f"octavo's GRU and RNN with the candidate's weights differ by {difference:.0e}",
        "to 1e-15",
    )


def stays_in_bounds() -> Finding:
    largest = {}
    for start in (1.0, 5.0):
        h, most = torch.full((1, 3), start, dtype=torch.float64), 0.0
        for x in inputs(300):
            h = gru_step(10 * x, h, drawn(3))
            most = max(most, float(h.abs().max()))
        largest[start] = most
    return Finding(
        verdict(largest[5.0] <= 1, largest[1.0] <= 1),
        f"300 steps: at most {largest[1.0]:.3f} from a start at 1, {largest[5.0]:.3f} from a start at 5",
        "at most 1",
    )


def scalar_gru() -> Finding:
    points = []
    for seed in (1, 2, 3):
        w, (x, h) = drawn(3, 1, seed, g0=-SHUT), inputs(2, 1, seed)
        h.requires_grad_()
        ih, hh, b, c = w
        a = ih @ x[0] + b + hh @ h[0] + c
        z, n = a[1].sigmoid().item(), a[2].tanh().item()
        found = float(torch.autograd.grad(gru_step(x, h, w), h)[0])
        at = {"z": z, "n": n, "h": h.item(), "v": hh[1].item(), "u": hh[2].item()}
        points.append(IntervalAt(at, found - 1e-12, found + 1e-12))
    return Finding(points, "autograd of octavo's GRU with one unit and r = 1, three draws, to 1e-12")


GRU = Exercise(
    id="gru-gates",
    title="What the GRU's two gates do",
    question="`h_new = (1 - z)*n + z*h` with the candidate `n = tanh(W*x + r*(U*h))`, products entry by entry, z the "
    "update gate and r the reset gate. (Some books exchange z and 1 - z.)",
    answer="z = 1 copies the state. r = 0 makes the candidate blind to the past, but not the new state: z h still "
    "carries it; only r = 0 and z = 0 together forget. r = 1 and z = 0 is a plain RNN. The state is a mean of old "
    "state and tanh, so it stays between -1 and 1 if it begins there. The derivative by the old state has three terms: "
    "the copy, the gate's own change, and the candidate's.",
    figure=lambda: lines([Series(f"z = {z}", [(t, z**t) for t in range(41)]) for z in (0.5, 0.9, 0.99)],
        "What a copying gate keeps of a state that is not renewed.", ("steps", "share kept")),
    parts=[
        Part("copy", "If every entry of z is 1, the state is copied.", Truth("true"), "numeric", copies,
             why="`(1 - 1)*n + 1*h = h`: the candidate has no weight left.", wrong={"exchanged z and 1 - z": False}),
        Part("blind", "If every entry of r is 0, the candidate n does not depend on the state.", Truth("true"),
             "autograd", candidate_alone,
             why="r multiplies all of `U*h`, and where r is 0 by saturation its derivative is 0 too.",
             wrong={"thought that the candidate sees the state through the update gate": False}),
        Part("forget", "If every entry of r is 0, the new state does not depend on the old one.",
             Truth("nearly", only_if="z is 0 as well"), "autograd", reset_forgets,
             why="`z*h` is not touched by r, and z depends on h too.",
             wrong={"mistook the candidate for the new state": True}),
        Part("plain", "With r = 1 and z = 0 the GRU is a plain RNN.", Truth("true"), "numeric", is_plain,
             why="`h_new = n = tanh(W*x + U*h)`, which is the step of a plain RNN.",
             wrong={"exchanged z and 1 - z": False}),
        Part("bounds", "Every entry of the state stays between -1 and 1.", Truth("nearly", only_if="it begins there"),
             "numeric", stays_in_bounds,
             why="It is a weighted mean of tanh and the old state; a start outside is only forgotten step by step.",
             wrong={"assumed a start between -1 and 1": True}),
        Part("derivative", "One unit, r held at 1, `z = sigma(w*x + v*h)`, `n = tanh(k*x + u*h)`. What is `d(h_new, "
             "h)`?", Formula("z + (1 - z)*(1 - n^2)*u + (h - n)*z*(1 - z)*v",
             {"z": "share", "n": "real", "h": "real", "u": "real", "v": "real"}), "autograd", scalar_gru,
             why="The product rule on both terms: z itself, n through u, and z through v.",
             wrong={"used only the copy": "z", "held the gate fixed": "z + (1 - z)*(1 - n^2)*u",
                    "turned the gate's sign": "z + (1 - z)*(1 - n^2)*u + (n - h)*z*(1 - z)*v"}),
    ],
)  # fmt: skip


def zero_input() -> Finding:
    h, c = inputs(2)
    x = torch.zeros(1, 3, dtype=torch.float64)
    change = float((lstm_step(x, (h, c), drawn(4))[0] - h).abs().max())
    return Finding(
        verdict(change < 1e-9), f"octavo's LSTM with random weights: the state changes by up to {change:.2f}", "to 1e-9"
    )


def flow_without_forget() -> tuple[float, float]:
    """With f = 0: the largest derivative of the new c by the old c, and by the old h."""
    x, h, c = inputs(3)
    w = drawn(4, g1=SHUT)
    by_c = jacobian_size(lambda c: lstm_step(x, (h, c), w)[1], c)
    return by_c, jacobian_size(lambda h: lstm_step(x, (h, c), w)[1], h)


def stops_errors() -> Finding:
    by_c, by_h = flow_without_forget()
    return Finding(
        verdict(by_c == by_h == 0),
        f"octavo's LSTM with f = 0: by the old c {by_c}, by the old h {by_h:.2f}",
        "exactly 0",
    )


def where_it_flows() -> Finding:
    by_c, by_h = flow_without_forget()
    found = "nowhere" if by_c == by_h == 0 else "state" if by_c == 0 else "cell"
    return Finding(
        found, f"the largest derivative of c by the old c is {by_c}, by the old h {by_h:.2f}", "exactly 0 or not"
    )


def scalar_lstm() -> Finding:
    points = []
    for seed in (1, 2, 3):
        w, (x, h, c) = drawn(4, 1, seed, g1=SHUT), inputs(3, 1, seed)
        h.requires_grad_()
        a = w.ih_GI @ x[0] + w.bias_ih_G + w.hh_GD @ h[0] + w.bias_hh_G
        found = float(torch.autograd.grad(lstm_step(x, (h, c), w)[1], h)[0])
        at = {"i": a[0].sigmoid().item(), "g": a[2].tanh().item(), "u": w.hh_GD[0].item(), "v": w.hh_GD[2].item()}
        points.append(IntervalAt(at, found - 1e-12, found + 1e-12))
    return Finding(points, "autograd of octavo's LSTM with one unit and f = 0, three draws, to 1e-12")


def gate_values() -> Tensor:
    """i, f and o of random weights, inputs up to 1,000 times as large."""
    w = drawn(4)
    a = torch.cat([x * scale for x in inputs(20) for scale in (1, 30, 1000)]) @ w.ih_GI.T + w.bias_ih_G
    return torch.cat([a[:, :6], a[:, 9:]], 1).sigmoid()


def not_negative() -> Finding:
    least = float(gate_values().min())
    return Finding(verdict(least >= 0), f"the least of {gate_values().numel()} gate values is {least}", "at least 0")


def above_zero() -> Finding:
    least = float(gate_values().min())
    exact = mpmath.mpf(1) / (1 + mpmath.exp(1000))
    note = f"float64 gives {least} at the least; sigma(-1000) exactly is {mpmath.nstr(exact, 3)}"
    return Finding(verdict(least > 0, exact > 0), note, "exactly 0 or not")


def sums_to_one() -> Finding:
    sums = [float(row.sum()) for row in gate_values()[:, :3]]
    return Finding(
        verdict(all(abs(one - 1) < 1e-9 for one in sums)),
        f"3 units: the sums of i lie from {min(sums):.2f} to {max(sums):.2f}",
        "to 1e-9",
    )


LSTM = Exercise(
    id="lstm-claims",
    title="Four claims about the LSTM",
    question="i, f and o are sigmoids and g is a tanh, each of its own `W*x + U*h + b`; then `c_new = f*c + i*g` and "
    "`h_new = o*tanh(c_new)`, entry by entry.",
    answer="A zero input leaves U h and the biases, so the state goes on changing; only a state that is a fixed point "
    "stays, such as zero with zero biases. f = 0 cuts one path, from c to c; errors still reach the past through h, "
    "which feeds the input gate, the candidate and the output gate. Gates are sigmoids: positive on paper, never "
    "negative, but zero when floats underflow. Each entry is a probability of its own at best; together they are no "
    "distribution, for nothing makes them sum to one.",
    figure=lambda: bars([("old c", flow_without_forget()[0]), ("old h", flow_without_forget()[1])],
        "With f = 0: the largest derivative of the new c by the old c, and by the old h.", 2),
    parts=[
        Part("zero-input", "If the input x is zero, the state h does not change.", Truth("false"), "numeric",
             zero_input, why="The gates still see h and their biases.",
             wrong={"thought that without input nothing happens": True}),
        Part("zero-forget", "If the forget gate is zero, no error flows back to earlier steps.", Truth("false"),
             "autograd", stops_errors,
             why="`d(c_new, h)` is not zero: i and g are made from h, and so is o, for the new h.",
             wrong={"considered only the path from cell to cell alone": True}),
        Part("where", "Through what does it flow while f = 0?", Choice("state", {"state":
             "the old h, into the gates and the candidate", "cell": "the old c, into the new c",
             "nowhere": "not at all"}), "autograd", where_it_flows, why="f multiplies c only; h enters through U."),
        Part("through", "One unit, f = 0, `i = sigma(k*x + u*h)`, `g = tanh(m*x + v*h)`. What is `d(c_new, h)`?",
             Formula("i*(1 - i)*u*g + i*(1 - g^2)*v", {"i": "share", "g": "real", "u": "real", "v": "real"}),
             "autograd", scalar_lstm,
             why="The product rule on `i*g`: i changes by `i*(1 - i)*u` while g stays, and g by `(1 - g^2)*v` while i "
             "stays.",
             wrong={"held the input gate fixed": "i*(1 - g^2)*v",
                    "mistook the sigmoid's slope for tanh's": "i*(1 - i)*u*g + i*g*(1 - g)*v",
                    "thought nothing flows": "0"}),
        Part("negative", "The entries of i, f and o are never negative.", Truth("true"), "numeric", not_negative,
             why="`1/(1 + exp(-a))` is a quotient of positive numbers.",
             wrong={"mistook gates for tanh, as the candidate is": False}),
        Part("positive", "The entries of i, f and o are always above zero.",
             Truth("nearly", only_if="they are computed exactly"), "numeric", above_zero,
             why="In float64 the sigmoid of -1000 is 0: `exp(1000)` overflows. A gate can be shut for good.",
             wrong={"assumed that what holds in exact arithmetic holds in floats": True}),
        Part("distribution", "i, f and o are probability distributions over the units.", Truth("false"), "numeric",
             sums_to_one,
             why="Each entry lies between 0 and 1 by itself; a softmax would make them sum to one, a sigmoid does not.",
             wrong={"mistook numbers between 0 and 1 for a distribution": True}),
    ],
)  # fmt: skip

EXERCISES = (GRU, LSTM)
