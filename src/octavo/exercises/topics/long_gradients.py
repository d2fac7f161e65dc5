"""Recurrent networks: gradients over a hundred steps, and attention inside a recurrent network."""

from __future__ import annotations

import math
from graphlib import CycleError, TopologicalSorter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Exercise, Finding, Number, Part, Truth, verdict
from octavo.models.rnn_attention import RNNAttention, RNNAttentionConfig
from octavo.ops.recurrent import Weights, rnn_step
from octavo.pages.figures.lines import Series, lines

STEPS = 100


def orthogonal(size: int = 8) -> Tensor:
    rng = torch.Generator().manual_seed(4)
    turned: Tensor = torch.linalg.qr(torch.randn(size, size, generator=rng, dtype=torch.float64))[0]
    return turned


def linear_flow(scale: float, steps: int = STEPS) -> float:
    """How long a unit gradient is after so many steps back through h = W h, W with equal singular values."""
    W, g = scale * orthogonal(), torch.eye(8, dtype=torch.float64)[0]
    for _ in range(steps):
        g = W.T @ g
    return float(g.norm())


def tanh_flow(scale: float, spread: float, steps: int = STEPS) -> list[float]:
    """The norm of the derivative of h_t by h_0 through octavo's RNN, from a random start of that size."""
    zeros = torch.zeros(8, dtype=torch.float64)
    w = Weights(torch.zeros(8, 1, dtype=torch.float64), scale * orthogonal(), zeros, zeros)
    h = spread * torch.ones(1, 8, dtype=torch.float64)
    whole, norms = torch.eye(8, dtype=torch.float64), []
    for _ in range(steps):
        h = rnn_step(torch.zeros(1, 1, dtype=torch.float64), h, w)
        whole = ((1 - h[0] ** 2)[:, None] * w.hh_GD) @ whole
        norms.append(float(torch.linalg.matrix_norm(whole, 2)))
    return norms


def small_vanish() -> Finding:
    norms = [tanh_flow(0.9, spread)[-1] for spread in (0.0, 0.1, 1.0, 10.0)]
    return Finding(
        verdict(max(norms) <= 0.9**STEPS * (1 + 1e-9)),
        f"four starts: at most {max(norms):.3g} after 100 steps, and 0.9^100 is {0.9**STEPS:.3g}",
        "at most 0.9^100, to 1e-9 of it",
    )


def large_explode() -> Finding:
    nilpotent = np.array([[0.0, 1.1], [0.0, 0.0]])
    gone = float(np.linalg.norm(np.linalg.matrix_power(nilpotent, STEPS)))
    saturated, linear = tanh_flow(1.1, 1.0)[-1], linear_flow(1.1)
    note = (
        f"after 100 steps: {gone} for the matrix (0, 1.1; 0, 0), {saturated:.1e} through tanh from a start at 1, "
        f"{linear:.0f} for a linear network whose singular values are all 1.1"
    )
    return Finding(verdict(min(gone, saturated, linear) > 1e3, linear > 1e3), note, "above 1000")


def states_explode() -> Finding:
    W = 1.1 * orthogonal()
    h_linear = h_tanh = torch.full((8,), 0.5, dtype=torch.float64)
    for _ in range(STEPS):
        h_linear, h_tanh = W @ h_linear, (W @ h_tanh).tanh()
    largest = float(h_tanh.abs().max())
    return Finding(
        verdict(largest > 1, float(h_linear.norm()) > 1e3),
        f"after 100 steps: with tanh at most {largest:.2f} an entry, linear a length of {h_linear.norm():.0f}",
        "above 1 an entry; 1000 in length",
    )


def bounded_gradients() -> Finding:
    largest = tanh_flow(1.1, 0.0)[-1]
    return Finding(
        verdict(largest < 10),
        f"octavo's RNN at h = 0, where tanh's slope is 1: norm {largest:.1f} after 100 steps",
        "below 10",
    )


def slopes_explode() -> Finding:
    """The largest product of 100 slopes: the nonlinearities with W = I, from many starts, by autograd."""
    most = {}
    for name, phi in (("tanh", torch.tanh), ("sigmoid", torch.sigmoid)):
        start = torch.cat([torch.zeros(1), torch.logspace(-6, 2, 400), -torch.logspace(-6, 2, 400)]).double()
        h = start.requires_grad_()
        norms = []
        for _ in range(STEPS):
            h = phi(h)
            norms.append(float(torch.autograd.grad(h.sum(), start, retain_graph=True)[0].abs().max()))
        most[name] = max(norms)
    note = "W = I, 801 starts, 100 steps: the largest derivative by the start is " + ", ".join(
        f"{one:g} with {name}" for name, one in most.items()
    )
    return Finding(verdict(max(most.values()) > 1), note, "above 1")


def least_for_sigmoid() -> Finding:
    x = np.linspace(-20, 20, 400_001)
    s: NDArray[np.float64] = 1 / (1 + np.exp(-x))
    return Finding(1 / float((s * (1 - s)).max()), "one over the sigmoid's largest slope, on 400,001 points")


EXPLODE = Exercise(
    id="vanishing-exploding",
    title="Vanishing and exploding over 100 steps",
    question="A recurrent network `h_t = phi(W*h_old)` of 8 units is followed back over 100 steps.",
    answer="With all singular values equal to s and no nonlinearity, a gradient's length is multiplied by s at each "
    "step: exactly `0.9^100 = 2.66*10^(-5)` or `1.1^100 = 13781`. In general the largest singular value only bounds "
    "the factor. Below one it forces gradients to vanish, since tanh's slope is at most 1; above one it permits, not "
    "forces, an explosion: the matrix may turn what it stretched into what it shrinks, and tanh's slope falls where "
    "states are large. States never explode with tanh or sigmoid, whatever W is, as these are bounded; and their "
    "slopes, at most 1 and 1/4, never make a gradient grow. The weights do that: a sigmoid network needs a singular "
    "value above 4. Bounded states do not mean bounded gradients.",
    figure=lambda: lines([Series("linear, 1.1", [(t, linear_flow(1.1, t)) for t in range(1, STEPS + 1, 3)]),
        Series("tanh, 1.1, states at 1", list(enumerate(tanh_flow(1.1, 1.0), 1))),
        Series("linear, 0.9", [(t, linear_flow(0.9, t)) for t in range(1, STEPS + 1, 3)])],
        "The length of a gradient, by how many steps it has gone back. tanh tames what the weights would make explode, "
        "here.", ("steps back", "length"), log_y=True),
    parts=[
        Part("vanish", "Linear, all singular values 0.9: by what is a gradient multiplied in 100 steps?",
             Number("0.9^100"), "numeric", lambda: Finding(linear_flow(0.9),
             "100 products with a random orthogonal matrix times 0.9"),
             why="W is 0.9 times a matrix that keeps lengths, so each step back takes a tenth off: `0.9^100`.",
             wrong={"added": 90, "used a tenth a step": "0.1^100"}),
        Part("explode", "And with 1.1?", Number("1.1^100"), "numeric", lambda: Finding(linear_flow(1.1),
             "100 products with a random orthogonal matrix times 1.1"),
             why="Each step back adds a tenth of what is there: `1.1^100`. It is not the inverse of `0.9^100`, which "
             "is 37649.",
             wrong={"added": 110, "mistook the exponential for it": "exp(10)", "inverted 0.9^100": "0.9^(-100)"}),
        Part("small", "If the largest singular value is below 1, the gradient of a tanh network vanishes.",
             Truth("true"), "numeric", small_vanish,
             why="Each factor is W times slopes of at most 1, so its norm is at most the singular value.",
             wrong={"thought that tanh could make up for small weights": False}),
        Part("large", "If the largest singular value is above 1, the gradient explodes.", Truth("nearly",
             only_if="the network is linear and all its singular values are above 1"), "numeric", large_explode,
             why="The norm of a product is at most the product of norms, and often far less.",
             wrong={"mistook a bound for what happens": True}),
        Part("states", "With singular values of 1.1 the states explode.",
             Truth("nearly", only_if="nothing bounds them, as in a linear network"), "numeric", states_explode,
             why="tanh and the sigmoid are never above 1, whatever they are applied to.",
             wrong={"considered only a linear network": True}),
        Part("bounded", "As tanh keeps the states in bounds, it keeps the gradients in bounds.", Truth("false"),
             "numeric", bounded_gradients,
             why="Near h = 0 the slope is 1, and 100 steps multiply the gradient by W 100 times.",
             wrong={"mistook a bounded function for one with a small slope": True}),
        Part("slopes", "Even with W = I, the nonlinearities alone, tanh or sigmoid, can make a gradient explode.",
             Truth("false"), "autograd", slopes_explode,
             why="Their slopes `1 - tanh(z)^2` and `sigma(z)*(1 - sigma(z))` are at most 1 and 1/4, so a product of "
             "them never grows. What explodes comes from W.",
             wrong={"thought that steep activations drive the explosion": True}),
        Part("sigmoid", "Above which singular value can the gradient of a sigmoid network explode at all?",
             Number(4, rel=1e-6), "numeric", least_for_sigmoid,
             why="The sigmoid's slope is at most 1/4; the product must be above 1.",
             wrong={"used tanh's slope": 1, "gave the slope itself": 0.25,
                    "mistook the sigmoid's value at 0 for its slope": 2}),
    ],
)  # fmt: skip


def needs(naive: bool) -> dict[str, set[str]]:
    """What must be known before what, for three steps."""
    graph = {}
    for t in range(1, 4):
        graph[f"s{t}"] = {f"x{t}"} | ({f"h{t - 1}"} if t > 1 else set())
        memory = {f"h{i}" for i in range(1, t + (1 if naive else 0))}
        graph[f"a{t}"] = memory if naive else memory | {f"s{t}"}
        graph[f"h{t}"] = {f"s{t}", f"a{t}"}
    return graph


def in_order(naive: bool) -> str:
    try:
        return ", ".join(one for one in TopologicalSorter(needs(naive)).static_order() if not one.startswith("x"))
    except CycleError as error:
        return "a circle: " + " needs ".join(reversed(error.args[1]))


def naive_order() -> Finding:
    found = in_order(naive=True)
    return Finding(verdict(not found.startswith("a circle")), f"sorting three steps by what needs what finds {found}")


def solutions(s: float) -> Finding:
    h = np.linspace(-20, 20, 4_000_001)
    change = h / (1 + np.exp(np.minimum(h * h, 700))) - s
    crossings = int((np.sign(change[1:]) * np.sign(change[:-1]) < 0).sum())
    return Finding(crossings, f"sign changes of h/(1 + exp(h^2)) - {s} on 4,000,001 points from -20 to 20")


def largest_s() -> Finding:
    low, high = 0.0, 2.0  # the height of one hump, by thirds
    for _ in range(200):
        one, two = low + (high - low) / 3, high - (high - low) / 3
        low, high = (one, high) if one / (1 + math.exp(one**2)) < two / (1 + math.exp(two**2)) else (low, two)
    return Finding(low / (1 + math.exp(low**2)), f"the highest point of h/(1 + exp(h^2)), at h = {low:.6f}")


def attentive(norm: bool, steps: int = 200) -> list[float]:
    """The largest entry of octavo's states when every new s is 1 in all entries."""
    model = RNNAttention(RNNAttentionConfig(width=4, score="dot", memory=0, norm=norm), 3).double()
    model.initialise(torch.Generator().manual_seed(1))
    with torch.no_grad():
        model.recurrent.weights.bias_ih_G.fill_(50)
        state, sizes = model.start(1), []
        for _ in range(steps):
            _, state = model.step(state, torch.zeros(1, dtype=torch.long))
            sizes.append(float(state[0].abs().max()))
    return sizes


def repaired_order() -> Finding:
    found = in_order(naive=False)
    model = RNNAttention(RNNAttentionConfig(width=8, memory=0), 5).double()
    model.initialise(torch.Generator().manual_seed(1))
    with torch.no_grad():
        one, two = (model(torch.tensor([[4, 1, 2, last]])) for last in (0, 3))
    change = float((one - two)[:, :3].abs().max())
    return Finding(
        verdict(not found.startswith("a circle") and change == 0),
        f"an order exists: {found}; in octavo's model another last token changes earlier results by {change}",
        "exactly 0",
    )


def bounded_states() -> Finding:
    free, scaled = attentive(norm=False), attentive(norm=True)
    return Finding(
        verdict(max(free) < 10, max(scaled) < 10),
        f"200 steps of octavo's model with s = 1: up to {max(free):.0f} without scaling, {max(scaled):.2f} with",
        "below 10",
    )


CIRCULAR = Exercise(
    id="attention-in-rnn",
    title="Attention inside a recurrent network",
    question="A recurrent network is to look back at its own states. First try: `h_t = s_t + a_t`, with `s_t` the "
    "recurrent step from `x_t` and the state before, and `a_t` attention of the query `h_t` over `h_1` to `h_t`.",
    answer="The first try is circular: `h_t` needs `a_t`, which needs `h_t` as its query and among its values. Read as "
    "an equation it may have no solution, or several. With one number a state, an earlier state of 0 and dot products "
    "as scores it says `s = h/(1 + exp(h^2))`: two solutions for small s, none above 0.2779. The repair asks with "
    "`s_t` and looks only at the states before: `a_t` over `h_1` to the one before `h_t`, and `h_1 = s_1`. Then every "
    "state follows from earlier ones. But a sum of a bounded s and a mean of earlier sums can grow by one a step, so "
    "states must be scaled.",
    figure=lambda: lines([Series("h/(1 + exp(h²))",
        [(h / 20, h / 20 / (1 + math.exp((h / 20) ** 2))) for h in range(71)])],
        "Where the curve has the height s, h solves the circular equation: twice for 0.1, never for 0.35.", ("h", "s"),
        references=[("s = 0.1", 0.1), ("s = 0.35", 0.35)]),
    parts=[
        Part("naive", "The first try can be computed step by step.", Truth("false"), "exact", naive_order,
             why="`h_t` is made from `a_t`, and `a_t` is made from `h_t`, its query: neither can be first.",
             wrong={"did not ask what has to be known first": True}),
        Part("two", "One number a state, the state before is 0, scores are products, `s = 0.1`. How many values of "
             "`h_t` satisfy the equation?", Number(2, rel=0), "numeric", lambda: solutions(0.1),
             why="The weight of `h_t` itself is `exp(h^2)/(1 + exp(h^2))`, so `s = h/(1 + exp(h^2))`, which rises and "
             "falls again.", wrong={"thought an equation has one solution": 1, "thought it has none": 0}),
        Part("none", "And for s = 1?", Number(0, rel=0), "numeric", lambda: solutions(1.0),
             why="The right side never exceeds 0.2779: a large state looks at itself alone, and `h = 1 + h` has no "
             "solution.", wrong={"thought an equation has one solution": 1, "carried the two over": 2}),
        Part("largest", "What is the largest s for which there is a solution?", Number(0.2778588845), "numeric",
             largest_s,
             why="The slope of `h/(1 + exp(h^2))` is zero where `1 + exp(u) = 2*u*exp(u)` with `u = h^2 = 0.7388`.",
             wrong={"used h itself": 0.8595551, "used the value at h = 1": 0.2689414}),
        Part("repaired", "The repaired network's states follow one from another, and no later token changes them.",
             Truth("true"), "numeric", repaired_order,
             why="`s_t` needs the state before, `a_t` needs `s_t` and earlier states, `h_t` both.",
             wrong={"thought that looking back is circular by itself": False}),
        Part("grows", "With tanh in the recurrent step, the repaired network's states stay bounded.", Truth("nearly",
             only_if="each state is scaled, for example to a mean square of one"), "numeric", bounded_states,
             why="If `a_t` is the state before and `s_t = 1`, then `h_t` is one more each time: t after t steps.",
             wrong={"bounded the step, but not the sum": True}),
    ],
)  # fmt: skip

EXERCISES = (EXPLODE, CIRCULAR)
