"""Vanishing and exploding gradients over a hundred steps, and attention inside a recurrent network."""

from __future__ import annotations

import math
from graphlib import CycleError, TopologicalSorter

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal
from octavo.models.rnn_attention import RNNAttention, RNNAttentionConfig
from octavo.ops.recurrent import Weights, rnn_step
from octavo.pages.figures.charts import Series, lines

STEPS = 100
SMALL_S = 0.1  # a recurrent step for which the circular equation has solutions
SMALL, LARGE = 0.9, 1.1  # singular values


def orthogonal(size: int = 8) -> Tensor:
    """A random orthogonal matrix."""
    q_DD: Tensor = torch.linalg.qr(normal(size, size, seed=4))[0]
    return q_DD


def linear_flow(scale: float, steps: int = STEPS) -> float:
    """The norm of a unit gradient after some steps back through h = W h, if all singular values of W equal `scale`."""
    W, g = scale * orthogonal(), torch.eye(8, dtype=torch.float64)[0]
    for _ in range(steps):
        g = W.T @ g
    return float(g.norm())


def tanh_flow(scale: float, start: float, steps: int = STEPS) -> list[float]:
    """The norm of the derivative of h_t with respect to h_0 in octavo's RNN, if all entries of h_0 equal `start`."""
    zeros = torch.zeros(8, dtype=torch.float64)
    w = Weights(torch.zeros(8, 1, dtype=torch.float64), scale * orthogonal(), zeros, zeros)
    h = start * torch.ones(1, 8, dtype=torch.float64)
    derivative, norms = torch.eye(8, dtype=torch.float64), []
    for _ in range(steps):
        h = rnn_step(torch.zeros(1, 1, dtype=torch.float64), h, w)
        derivative = ((1 - h[0] ** 2)[:, None] * w.hh_GD) @ derivative
        norms.append(float(torch.linalg.matrix_norm(derivative, 2)))
    return norms


def small_vanish() -> Finding:
    norms = [tanh_flow(0.9, start)[-1] for start in (0.0, 0.1, 1.0, 10.0)]
    note = f"four starts: at most {max(norms):.3g} after 100 steps, and 0.9^100 is {0.9**STEPS:.3g}"
    return Finding(verdict(max(norms) <= 0.9**STEPS * (1 + 1e-9)), note, "at most 0.9^100, to 1e-9 relative")


def large_explode() -> Finding:
    nilpotent = np.array([[0.0, 1.1], [0.0, 0.0]])
    nilpotent_norm = float(np.linalg.norm(np.linalg.matrix_power(nilpotent, STEPS)))
    saturated, linear = tanh_flow(1.1, 1.0)[-1], linear_flow(1.1)
    note = (
        f"after 100 steps: {nilpotent_norm} for the matrix (0, 1.1; 0, 0), {saturated:.1e} with tanh from a start at "
        f"1, {linear:.0f} for a linear network whose singular values are all 1.1"
    )
    under = {"linear-all": linear > 1e3, "linear": nilpotent_norm > 1e3, "all": saturated > 1e3}
    return Finding(verdict(min(nilpotent_norm, saturated, linear) > 1e3, under), note, "above 1000")


def states_explode() -> Finding:
    W = 1.1 * orthogonal()
    h_linear = h_tanh = torch.full((8,), 0.5, dtype=torch.float64)
    for _ in range(STEPS):
        h_linear, h_tanh = W @ h_linear, (W @ h_tanh).tanh()
    largest = float(h_tanh.abs().max())
    note = f"after 100 steps: with tanh at most {largest:.2f} an entry, linear a length of {h_linear.norm():.0f}"
    h_sigmoid = torch.full((8,), 0.5, dtype=torch.float64)
    for _ in range(STEPS):
        h_sigmoid = (W @ h_sigmoid).sigmoid()
    under = {"linear": float(h_linear.norm()) > 1e3, "tanh": largest > 1, "sigmoid": float(h_sigmoid.max()) > 1}
    return Finding(verdict(largest > 1, under), note, "above 1 an entry; 1000 in length")


def bounded_gradients() -> Finding:
    largest = tanh_flow(1.1, 0.0)[-1]
    note = f"octavo's RNN at h = 0, where the slope of tanh is 1: norm {largest:.1f} after 100 steps"
    return Finding(verdict(largest < 10), note, "below 10")


def slopes_explode() -> Finding:
    """The largest product of 100 slopes of each nonlinearity, with W = I, from many starts, by autograd."""
    largest = {}
    for name, phi in (("tanh", torch.tanh), ("sigmoid", torch.sigmoid)):
        start = torch.cat([torch.zeros(1), torch.logspace(-6, 2, 400), -torch.logspace(-6, 2, 400)]).double()
        h = start.requires_grad_()
        norms = []
        for _ in range(STEPS):
            h = phi(h)
            norms.append(float(torch.autograd.grad(h.sum(), start, retain_graph=True)[0].abs().max()))
        largest[name] = max(norms)
    note = "W = I, 801 starts, 100 steps: the largest derivative with respect to the start is " + ", ".join(
        f"{one:g} with {name}" for name, one in largest.items()
    )
    return Finding(verdict(max(largest.values()) > 1), note, "above 1")


def least_for_sigmoid() -> Finding:
    x = np.linspace(-20, 20, 400_001)
    s: NDArray[np.float64] = 1 / (1 + np.exp(-x))
    return Finding(1 / float((s * (1 - s)).max()), "one over the largest slope of the sigmoid on 400,001 points")


EXPLODE = Exercise(
    id="vanishing-exploding", title="Vanishing and exploding gradients over 100 steps",
    where={"units": len(orthogonal()), "steps": STEPS, "small_value": SMALL, "large_value": LARGE,
           "tanh_slope": lambda z: mpmath.diff(mpmath.tanh, z), "steepest": lambda: 1 / least_for_sigmoid().value,
           "sigmoid_slope": lambda z: mpmath.diff(lambda x: 1 / (1 + mpmath.exp(-x)), z), "inverse": lambda:
               1 / linear_flow(SMALL)},
    question="The gradient of a recurrent network `h_t = phi(W*h_old)` with 8{units} units is propagated back over "
    "100{steps} steps.",
    answer="With all singular values equal to s and no nonlinearity, the norm of a gradient is multiplied by s at "
    "each step: exactly `0.9^100 = 2.66*10^(-5)` or `1.1^100 = 13780.6` in total. In general the largest singular "
    "value is only an upper bound for the factor. Below one, gradients must vanish, since the slope of tanh is at "
    "most one; above one, they may explode but need not: the matrix may rotate the direction it stretches into one it "
    "shrinks, and the slope of tanh is small for large states. Hidden states never explode with tanh or sigmoid, for "
    "any W, as these are bounded; and their slopes, at most one and 1/4{steepest}, never make a gradient grow. Only "
    "the weights do: a sigmoid network needs a singular value above 4{sigmoid}. Bounded states do not imply bounded "
    "gradients.",
    figure=lambda: lines([Series("linear, 1.1", [(t, linear_flow(1.1, t)) for t in range(1, STEPS + 1, 3)]),
        Series("tanh, 1.1, states at 1", list(enumerate(tanh_flow(1.1, 1.0), 1))),
        Series("linear, 0.9", [(t, linear_flow(0.9, t)) for t in range(1, STEPS + 1, 3)])],
        "The norm of a gradient by the number of steps back. Here tanh prevents the explosion that the weights would "
        "cause.", ("steps back", "norm"), log_y=True),
    parts=[
        Part("vanish", "The network is linear, and all singular values of W are 0.9{small_value}: by which factor does "
             "the norm of a gradient change in 100{steps} "
             "steps?", Number("0.9^100"), "numeric", lambda: Finding(linear_flow(SMALL),
             "100 products with a random orthogonal matrix times 0.9"),
             why="W is 0.9{small_value} times an orthogonal matrix, which preserves norms, so each step multiplies by "
             "0.9{small_value}: `0.9^100`{}.",
             wrong={"multiplied by the number of steps": (90, lambda: STEPS * SMALL),
                    "multiplied by what is lost at each step": ("0.1^100", lambda: linear_flow(1 - SMALL))}),
        Part("explode", "The network is linear, and all singular values of W are 1.1{large_value}: by which factor "
             "does the norm of a gradient change?", Number("1.1^100"), "numeric", lambda: Finding(linear_flow(LARGE),
             "100 products with a random orthogonal matrix times 1.1"),
             why="Each step multiplies by 1.1{large_value}: `1.1^100`{}. It is not the inverse of `0.9^100`{vanish}, "
             "which is about 37,649{inverse}.",
             wrong={"multiplied by the number of steps": (110, lambda: STEPS * LARGE),
                    "used the exponential": ("exp(10)", lambda: math.exp(STEPS * (LARGE - 1))),
                    "inverted the first result": ("0.9^(-100)", lambda: 1 / linear_flow(SMALL))}),
        Part("small", "If the largest singular value is below one, the gradient of a tanh network vanishes.",
             Truth("true", Choice("", {
             "linear": "the network is linear",
             "orthogonal": "W is a multiple of an orthogonal matrix", "zero": "the states start at zero"})), "numeric",
                 small_vanish,
             why="Each factor is W times slopes of at most one, so its norm is at most the largest singular value.",
             wrong={"thought that tanh could compensate for small weights": False}),
        Part("large", "If the largest singular value is above one, the gradient "
             "explodes.", Truth("nearly", Choice("linear-all", {
             "linear": "the network is linear", "all": "all its singular values are above one",
             "linear-all": "the network is linear and all its singular values are above one"})), "numeric",
                 large_explode,
             why="The norm of a product is at most the product of the norms, and often far smaller.",
             wrong={"mistook an upper bound for the value": True}),
        Part("states", "With singular values of 1.1{large_value} the hidden states explode.",
             Truth("nearly", Choice("linear", {"tanh": "the nonlinearity is tanh", "linear": "the network is linear",
             "sigmoid": "the nonlinearity is the sigmoid"})), "numeric", states_explode,
             why="tanh and the sigmoid are never above one.", wrong={"considered only a linear network": True}),
        Part("bounded", "Since tanh keeps the hidden states bounded, it keeps the gradients bounded.", Truth("false"),
             "numeric", bounded_gradients,
             why="Near a state of zero the slope is one, and 100{steps} steps multiply the gradient by W as often.",
             wrong={"confused a bounded function with one of small slope": True}),
        Part("slopes", "Even if W is the identity, the nonlinearities alone, tanh or sigmoid, can make a gradient "
             "explode.",
             Truth("false"), "autograd", slopes_explode,
             why="Their slopes `1 - tanh(z)^2`{tanh_slope} and `sigma(z)*(1 - sigma(z))`{sigmoid_slope} are at most "
             "one and 1/4{steepest}, so a product of them never grows. Explosions come from W.",
             wrong={"thought that steep activations cause explosions": True}),
        Part("sigmoid", "What must the largest singular value exceed for the gradient of a sigmoid network to be able "
             "to explode?",
             Number(4), "numeric", least_for_sigmoid,
             why="The sigmoid's slope is at most 1/4{steepest}; the product must be above one.",
             wrong={"used the slope of tanh": (1, lambda: 1 / float(mpmath.diff(mpmath.tanh, 0))),
                    "gave the slope itself": (0.25, lambda: 1 / least_for_sigmoid().value),
                    "used the value of the sigmoid at zero as its slope": (2, lambda: 1 / (1 / (1 + math.exp(0))))}),
    ])  # fmt: skip


def needs(naive: bool) -> dict[str, set[str]]:
    """The dependency graph of three steps."""
    graph = {}
    for t in range(1, 4):
        graph[f"s{t}"] = {f"x{t}"} | ({f"h{t - 1}"} if t > 1 else set())
        memory = {f"h{i}" for i in range(1, t + (1 if naive else 0))}
        graph[f"a{t}"] = memory if naive else memory | {f"s{t}"}
        graph[f"h{t}"] = {f"s{t}", f"a{t}"}
    return graph


def computation_order(naive: bool) -> str:
    try:
        return ", ".join(one for one in TopologicalSorter(needs(naive)).static_order() if not one.startswith("x"))
    except CycleError as error:
        return "a cycle: " + " needs ".join(reversed(error.args[1]))


def naive_order() -> Finding:
    found = computation_order(naive=True)
    return Finding(verdict(not found.startswith("a cycle")), f"topological sorting of three steps finds {found}")


def solutions(s: float) -> Finding:
    h = np.linspace(-20, 20, 4_000_001)
    change = h / (1 + np.exp(np.minimum(h * h, 700))) - s
    crossings = int((np.sign(change[1:]) * np.sign(change[:-1]) < 0).sum())
    return Finding(crossings, f"sign changes of h/(1 + exp(h^2)) - {s} on 4,000,001 points from -20 to 20")


def best_state() -> float:
    """The h at which h/(1 + exp(h^2)) is largest, by ternary search with 50 digits."""
    with mpmath.workdps(50):
        low, high = mpmath.mpf(0), mpmath.mpf(2)
        for _ in range(300):
            one, two = low + (high - low) / 3, high - (high - low) / 3
            falls = one / (1 + mpmath.exp(one**2)) >= two / (1 + mpmath.exp(two**2))
            low, high = (low, two) if falls else (one, high)
        return float(low)


def largest_s() -> Finding:
    h = best_state()
    return Finding(h / (1 + math.exp(h**2)), f"the maximum of h/(1 + exp(h^2)), at h = {h:.6f}")


def state_sizes(norm: bool, steps: int = 200) -> list[float]:
    """The largest entry of each hidden state of octavo's model when all entries of s are 1."""
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
    found = computation_order(naive=False)
    model = RNNAttention(RNNAttentionConfig(width=8, memory=0), 5).double()
    model.initialise(torch.Generator().manual_seed(1))
    with torch.no_grad():
        one, two = (model(torch.tensor([[4, 1, 2, last]])) for last in (0, 3))
    change = float((one - two)[:, :3].abs().max())
    note = f"an order exists: {found}; in octavo's model changing the last token changes earlier outputs by {change}"
    return Finding(verdict(not found.startswith("a cycle") and change == 0), note, "exactly 0")


def bounded_states() -> Finding:
    free, scaled = state_sizes(norm=False), state_sizes(norm=True)
    note = f"200 steps of octavo's model with s = 1: up to {max(free):.0f} without scaling, {max(scaled):.2f} with"
    under = {"normalized": max(scaled) < 10, "tanh": max(free) < 10, "query": max(free) < 10}
    return Finding(verdict(max(free) < 10, under), note, "below 10")


CIRCULAR = Exercise(
    id="attention-in-rnn", title="Attention inside a recurrent network",
    where={"top": lambda: largest_s().value, "h": lambda: best_state(), "u": lambda h: mpmath.mpf(h) ** 2,
           "curve": lambda h: h / (1 + mpmath.exp(h * h)), "own": lambda h: 1 / (1 + mpmath.exp(-h * h))},
    question="A recurrent network should attend to its own hidden states. First attempt: `h_t = s_t + a_t`, where "
    "`s_t` is the recurrent step from `x_t` and the previous state, and `a_t` is attention with the query `h_t` over "
    "`h_1` to `h_t`. Second attempt: the query is `s_t`, and attention is over the earlier states only.",
    answer="The first attempt is circular: `h_t` needs `a_t`, which needs `h_t` as its query and among its values. As "
    "an equation it may have no solution, or several. With one-dimensional states, a previous state of zero and "
    "dot-product scores s must be `h/(1 + exp(h^2))`{curve}: two solutions for small s, none above 0.2779{largest}. "
    "In the second attempt, `h_1 = s_1` and `a_t` is over `h_1` to the "
    "state before `h_t`: every state follows from earlier ones. But the sum of a bounded s and "
    "a mean of earlier states can grow by one per step, so states must be normalized.",
    figure=lambda: lines([Series("h/(1 + exp(h²))",
        [(h / 20, h / 20 / (1 + math.exp((h / 20) ** 2))) for h in range(71)])],
        "Where the curve has the value s, h solves the circular equation: twice for 0.1, never for 0.35.", ("h", "s"),
        references=[("s = 0.1", 0.1), ("s = 0.35", 0.35)]),
    parts=[
        Part("naive", "The first attempt can be computed step by step.", Truth("false"), "exact", naive_order,
             why="`h_t` is computed from `a_t`, and `a_t` from `h_t`, its query: neither can be first.",
             wrong={"overlooked the circular dependency": True}),
        Part("two", "States are one-dimensional, the previous state is zero, scores are dot products, s = "
             "0.1{small_s}. How many values of `h_t` satisfy the equation?",
             Number(2, rel=0), "numeric", lambda: solutions(SMALL_S),
             why="The weight of `h_t` itself is `exp(h^2)/(1 + exp(h^2))`{own}, so s is `h/(1 + exp(h^2))`{curve}, "
             "which first rises and then falls.", where={"small_s": SMALL_S},
             wrong={"thought that there is always one solution": (1, lambda: len([best_state()])),
                    "thought that there is none": (0, lambda: solutions(1.0).value)}),
        Part("none", "With the same states and scores, but s equal to one: how many values of `h_t` satisfy the "
             "equation?", Number(0, rel=0), "numeric", lambda: solutions(1.0),
             why="The right side never exceeds 0.2779{largest}: a large state attends only to itself, and no h is one "
             "plus h.", wrong={"thought that there is always one solution": (1, lambda: len([best_state()])),
                          "gave the number for the small s": (2, lambda: solutions(SMALL_S).value)}),
        Part("largest", "What is the largest s for which there is a solution?", Number(0.2778588845), "numeric",
             largest_s,
             why="The slope of `h/(1 + exp(h^2))`{curve} is zero where `1 + exp(u) = 2*u*exp(u)` with `u = h^2 = "
             "0.7388`.",
             wrong={"gave h itself": (0.859555136, best_state),
                    "used the value where h is one": (0.2689414214, lambda: 1 / (1 + math.exp(1)))}),
        Part("repaired", "The states of the second attempt can be computed in order, and no later token changes "
             "them.", Truth("true"), "numeric", repaired_order,
             why="`s_t` needs the previous state, `a_t` needs `s_t` and earlier states, `h_t` needs both.",
             wrong={"thought that attending to earlier states is circular": False}),
        Part("grows", "With tanh in the recurrent step, the states of the second attempt stay bounded.",
             Truth("nearly", Choice("normalized", {"query": "the recurrent step is the query",
             "normalized": "each state is normalized, for example to a mean square of one",
             "tanh": "every entry of the recurrent step is below one"})), "numeric",
             bounded_states,
             why="If `a_t` is the previous state and `s_t` is one, then `h_t` grows by one each time: t after t steps.",
             wrong={"considered the step, not the sum": True}),
    ])  # fmt: skip

EXERCISES = (EXPLODE, CIRCULAR)
