"""The linear recurrent unit (LRU): a complex number inside the unit circle, its memory, and how large states get."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import bisect, normal, tabulate, tabulated
from octavo.models.linear_recurrent import LRUConfig
from octavo.models.parts.linear_recurrence import LRUMixer
from octavo.ops.linear_recurrence import convolve_powers, linear_recurrence
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
RADIUS = 0.99
TOKENS = 1500  # after which nothing is left of a radius of 0.97 in double precision
RADII = ((0.3,), (0.8,), (0.97,))


def unit(nu: float, theta: float) -> LRUMixer:
    """octavo's unit of one state with this ν and this angle."""
    mixer = LRUMixer(LRUConfig(width=1)).double().requires_grad_(False)
    mixer.decay_N.fill_(float(nu))
    mixer.phase_N.fill_(math.log(theta))
    return mixer


def response(radius: float, angle: float, tokens: int = TOKENS) -> Tensor:
    """octavo's states after an input of one at the first token and of zero later."""
    b_1T1 = torch.zeros(1, tokens, 1, dtype=torch.complex128)
    b_1T1[0, 0] = 1
    return linear_recurrence(torch.polar(*torch.tensor([[radius], [angle]], dtype=torch.float64)), b_1T1)[0, :, 0]


@tabulated("nu", [(-5.0,), (-1.0,), (0.0,), (1.0,)], "the radius of octavo's unit", rel=1e-12)
def radius_of(nu: float) -> float:
    return float(unit(nu, 1.0).polar[0])


def inside() -> Finding:
    """A ν so low that the radius is rounded to one."""
    nus = [-50.0, -36.0, 0.0, 3.0]
    rounded = [float(unit(nu, 1.0).polar[0]) for nu in nus]
    with mpmath.workdps(60):
        exact = [mpmath.exp(-mpmath.exp(mpmath.mpf(nu))) < 1 for nu in nus]
    single = float(unit(nus[0], 1.0).float().polar[0])
    under = {"exact": all(exact), "double": max(rounded) < 1, "single": single < 1}
    note = f"with nu = -50 the radius is {rounded[0]:.17g} in double precision; with 60 digits it is below one"
    return Finding(verdict(max(rounded) < 1, under), note, "exactly 1")


@tabulated("nu", [(-4.0,), (-1.5,), (0.0,)], "where the radius of octavo's unit, to the power t, is one half", rel=1e-9)
def half_life(nu: float) -> float:
    radius = float(unit(nu, 1.0).polar[0])
    return bisect(lambda t: radius**t <= 0.5, 0.0, 1000.0)


def half_life_of(radius: float) -> float:
    return bisect(lambda t: radius**t <= 0.5, 0.0, 1000.0)


@tabulated("r t k", [(0.9, 0.5, 3), (0.7, 2.0, 1), (0.97, 3.0, 8)], "the real part of octavo's states", rel=1e-9)
def read(r: float, t: float, k: int) -> float:
    return float(response(r, t, k + 1)[k].real)


# ---------------------------------------------------------------------- how large a state gets


def mean_square(radius: float, angle: float, inputs_TT: Tensor | None = None) -> float:
    """E |h|² after the last token, exactly: the covariance of the inputs between octavo's response to each of them."""
    response_T = response(radius, angle).flip(0)
    if inputs_TT is None:
        return float((response_T.abs() ** 2).sum())
    return float((response_T @ inputs_TT.to(response_T.dtype) @ response_T.conj()).real)


@tabulated("r", RADII, "the sum of the squares of octavo's states after one input", rel=1e-9)
def settled(r: float) -> float:
    return mean_square(r, 1.0)


def gamma() -> Finding:
    """γ as octavo draws it, with the radius that was drawn beside it; E |h|² is one with it."""
    mixer = LRUMixer(LRUConfig(width=1)).double().requires_grad_(False)
    points = []
    for seed in (1, 2, 3):
        mixer.initialise(LRUConfig(width=1, largest_radius=0.95), torch.Generator().manual_seed(seed))
        radius, found = float(mixer.polar[0]), float(mixer.scale_N.exp())
        assert abs(found**2 * mean_square(radius, float(mixer.polar[1])) - 1) < 1e-6, "the states must be one"
        points.append((radius, found))
    table = tabulate("r _", points, lambda r, found: found, rel=5e-7)
    return Finding(table, "what octavo draws for three units, in single precision; with it E |h|^2 is one to 1e-6")


def keeps_size() -> Finding:
    """The mean square with inputs whose neighbours are alike, under each condition."""
    distance_TT = (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs().double()
    alike_TT, same_TT = 0.9**distance_TT, torch.ones(TOKENS, TOKENS).double()
    gamma_squared = 1 - 0.9**2
    sizes = {
        "uncorrelated": [mean_square(0.9, angle) for angle in (0.0, 1.0, 3.0)],
        "normal": [mean_square(0.9, 0.0, alike_TT)],  # whatever the distribution, it depends on covariances alone
        "real": [mean_square(0.9, 0.0, same_TT)],
        "turning": [mean_square(0.9, 1.0, alike_TT)],
    }
    under = {name: all(abs(gamma_squared * x - 1) < TOLERANCE for x in found) for name, found in sizes.items()}
    shown = ", ".join(f"{name} {gamma_squared * found[0]:.3f}" for name, found in sizes.items())
    return Finding(verdict(all(under.values()), under), f"E |h|^2 for a radius of 0.9: {shown}", "to 1e-10")


def as_convolution() -> Finding:
    a_D = torch.polar(normal(6, seed=1).sigmoid(), normal(6, seed=2))
    b_BTD, before_BD = (torch.complex(normal(*size, seed=3), normal(*size, seed=4)) for size in ((2, 50, 6), (2, 6)))
    one, other = (recur(a_D, b_BTD, before_BD) for recur in (linear_recurrence, convolve_powers))
    off = float((one - other).abs().max())
    note = f"octavo's two ways to compute 100 states of six units differ by {off:.0e}"
    return Finding(verdict(off < TOLERANCE), note, "to 1e-10")


def constant_input(radius: float) -> float:
    """The state that a constant input of one leads to, with a real λ."""
    return float(response(radius, 0.0).real.sum())


def _power(x: Any, n: int) -> Any:
    return math.prod([x] * int(n))


LRU = Exercise(
    id="lru", title="The linear recurrent unit: complex numbers that shrink and turn",
    question="A linear recurrent unit (LRU) has a complex state: `h_new = lambda*h + gamma*u`, where u is the token's "
    "input. `lambda` is the same at every token; its absolute value is r, with `r = exp(-exp(nu))`, and its angle is "
    "t. The state is zero before the first token.",
    where={"r": lambda nu: mpmath.exp(-mpmath.exp(nu)), "radius": RADIUS, "slow": lambda: -math.log(RADIUS),
           "nine": 0.9, "larger": lambda: constant_input(0.9) ** 2 / mean_square(0.9, 0.0)},
    answer="The exponential of minus an exponential is between zero and one whatever `nu` is, so training cannot make "
    "the states grow. Half of a state is left after `log(2)*exp(-nu)`{half-life} tokens. With inputs that are "
    "uncorrelated and of variance one, the state's mean square approaches `1/(1 - r^2)`{settled} times `gamma` "
    "squared, so `sqrt(1 - r^2)`{gamma} keeps it at one; where neighbouring inputs are alike, it does not. Since "
    "`lambda` is the same at every token, the recurrence is a convolution with its powers.",
    figure=lambda: lines([
        Series(f"angle {angle:g}", [(k, float(x.real)) for k, x in enumerate(response(0.9, angle, 40))])
        for angle in (0.1, 0.5, 3.0)], "What is read of an input of one, so many tokens later: r = 0.9.",
        ("tokens", "real part of the state")),
    parts=[
        Part("inside", "Whatever number `nu` is, r is less than one.", Truth("nearly", Choice("exact", {
             "double": "it is computed in double precision", "single": "it is computed in single precision",
             "exact": "it is computed exactly"})), "numeric", inside,
             why="`exp(nu)` is positive, so r is less than one. Where `nu` is below about minus 37{edge}, r is so "
             "close to one that double precision rounds it to one: such a unit never forgets.",
             where={"edge": lambda: bisect(lambda x: math.exp(-math.exp(-x)) == 1, 0.0, 100.0)},
             wrong={"assumed that what holds in exact arithmetic holds in floats": True}),
        Part("half-life", "After how many tokens (a real number) is half left of the absolute value of what was put "
             "into the state?", Formula("log(2)*exp(-nu)", {"nu": "real"}), "numeric", half_life,
             why="`r^n = exp(-n*exp(nu))`, which is one half where `n*exp(nu) = log(2)`.",
             where={"n": lambda nu: mpmath.log(2) / mpmath.exp(nu), "nu": (-2.0, -0.5)},
             wrong={"forgot one of the exponentials": ("log(2)/nu", lambda nu: mpmath.log(2) / nu),
                    "took the time until a share of one over e":
                        ("exp(-nu)", lambda nu: 1 / mpmath.exp(nu))}),
        Part("tokens", "How many are that for a radius of 0.99{radius}?",
             Number("log(1/2)/log(0.99)"), "numeric",
             lambda: Finding(half_life_of(RADIUS), "where the radius to the power t is one half, by bisection"),
             why="`log(1/2)/log(0.99) = 68.97`.",
             wrong={"let one hundredth of the start vanish at each token": (50, lambda: 0.5 / (1 - RADIUS)),
                    "took the sum of all that is left": (100, lambda: 1 / (1 - RADIUS))}),
        Part("read", "The input is one at one token and zero later; `gamma` is one. What is the real part of the state "
             "k tokens later, in r, k and the angle t?",
             Formula("r^k*cos(k*t)", {"r": "share", "t": "real", "k": "whole"}), "numeric", read,
             why="The k-th power of `lambda` has the absolute value `r^k` and the angle `k*t`: a damped wave.",
             wrong={"took the absolute value": ("r^k", lambda r, k: _power(r, k)),
                    "turned once": ("r^k*cos(t)", lambda r, k, t: _power(r, k) * mpmath.cos(t))}),
        Part("settled", "The inputs have mean zero and variance one and are uncorrelated, and `gamma` is one. Which "
             "mean of the square of the state's absolute value is approached?", Formula("1/(1 - r^2)", {"r": "share"}),
             "numeric", settled,
             why="Variances of uncorrelated inputs add up, and an input of k tokens ago has the variance "
             "`r^(2*k)`{share}: a geometric series.", where={"k": 3, "share": lambda r, k: (r**k) ** 2}, wrong={
                 "added absolute values instead of squares": ("1/(1 - r)", lambda r: 1 / (1 - r)),
                 "added the squares of sums": ("1/(1 - r)^2", lambda r: (1 / (1 - r)) ** 2)}),
        Part("gamma", "Which positive `gamma` makes that mean square one?", Formula("sqrt(1 - r^2)", {"r": "share"}),
             "numeric", gamma,
             why="Gamma multiplies the state, and its square the mean square: `gamma^2/(1 - r^2) = 1`.",
             where={"gamma": lambda r: mpmath.sqrt(1 - r * r)},
             wrong={"took what keeps a constant input as it is": ("1 - r", lambda r: 1 - r),
                    "forgot the root": ("1 - r^2", lambda r: 1 - r * r)}),
        Part("size", "With this `gamma` the mean square approaches one for all inputs of mean zero and variance one, "
             "whatever the angle.", Truth("nearly", Choice("uncorrelated", {
             "normal": "the inputs are normally distributed", "real": "`lambda` is a real number",
             "uncorrelated": "inputs at different tokens are uncorrelated",
             "turning": "`lambda` is not a real number"})), "numeric", keeps_size,
             why="Inputs that are alike add up: the same input at every token makes a real state's square 19{larger} "
             "times as large at a radius of 0.9{nine}, and small where `lambda` turns quickly.",
             wrong={"took tokens for independent": True}),
        Part("convolution", "The states of a text are the inputs convolved with the powers of `lambda`.", Truth("true"),
             "numeric", as_convolution,
             why="What was put in k tokens ago has been multiplied by `lambda` k times, at whatever token that was.",
             wrong={"thought that complex states cannot be convolved": False}),
    ])  # fmt: skip

EXERCISES = (LRU,)
