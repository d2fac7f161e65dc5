"""The real-gated linear recurrent unit (RG-LRU): a share to the power of a gate, and what makes room for the input."""

from __future__ import annotations

import math

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import bisect, normal, tabulated
from octavo.models.linear_recurrent import RGLRUConfig
from octavo.models.parts.linear_recurrence import DECAY, RGLRUMixer
from octavo.ops.linear_recurrence import linear_recurrence
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
OPEN = 1000.0  # a preactivation at which the sigmoid is exactly one in float64
SLOW, QUIET = 0.99, 0.125  # the share at an open gate, and the gate at a token that says little
SKEWED = ((2.0, 0.2), (-0.5, 0.8))  # an input of mean zero and variance one, and how probable each value is


def unit(share: float, gate: float = 0.0, weight: float = 0.0) -> RGLRUMixer:
    """octavo's unit that keeps this share where its recurrence gate is one; the gate has this preactivation at u = 0,
    and this weight on u. The input gate is open."""
    mixer = RGLRUMixer(RGLRUConfig(width=1)).double().requires_grad_(False)
    for parameter in mixer.parameters():
        parameter.zero_()
    mixer.decay_E.fill_(math.log(math.expm1(-math.log(share) / DECAY)))
    mixer.recurrence_bias_E.fill_(gate)
    mixer.recurrence_EE.fill_(weight)
    mixer.input_bias_E.fill_(OPEN)
    return mixer


def logit(x: float) -> float:
    return OPEN if x == 1 else math.log(x) - math.log1p(-x)


def coefficients(mixer: RGLRUMixer, u: float) -> tuple[float, float]:
    """a, and what is added to the state, for the input u."""
    a, b = mixer.coefficients(torch.tensor([[u]], dtype=torch.float64))
    return float(a), float(b)


def forgetting_at_zero() -> Finding:
    mixer = unit(0.5, OPEN)
    mixer.decay_E.zero_()
    return Finding(coefficients(mixer, 1.0)[0], "octavo's unit with Lambda = 0 and an open gate")


@tabulated("p r", [(p, r) for p in (0.3, 0.9, 0.99) for r in (0.1, 0.5, 0.9)], "octavo's unit", rel=1e-10)
def retained(p: float, r: float) -> float:
    return coefficients(unit(float(p), logit(float(r))), 1.0)[0]


def quiet_half_life() -> Finding:
    kept = retained_at_quiet()
    return Finding(bisect(lambda t: kept**t <= 0.5, 0.0, 1e5), "from the share that octavo's unit keeps a token")


def retained_at_quiet() -> float:
    return coefficients(unit(SLOW, logit(QUIET)), 1.0)[0]


@tabulated("a", [(0.1,), (0.5,), (0.9,), (0.99,)], "what octavo's unit multiplies an input by, gate open", rel=1e-10)
def room(a: float) -> float:
    return coefficients(unit(a, OPEN), 1.0)[1]


@tabulated("a", [(0.1,), (0.6,), (0.95,)], "autograd through octavo's unit: of the factor by a", rel=1e-9)
def slope(a: float) -> float:
    mixer = unit(a, OPEN)
    mixer.decay_E.requires_grad_(True)
    kept, added = mixer.coefficients(torch.ones(1, 1, dtype=torch.float64))
    (by_kept,), (by_added,) = (torch.autograd.grad(x, mixer.decay_E, retain_graph=True) for x in (kept, added))
    return float(by_added / by_kept)


def variance(mixer: RGLRUMixer, inputs: tuple[tuple[float, float], ...]) -> float:
    """After one token, of a state of mean zero and variance one that does not depend on the input: exactly."""
    found = [(*coefficients(mixer, u), probability) for u, probability in inputs]
    mean = sum(probability * b for _, b, probability in found)
    return sum(probability * (a**2 + (b - mean) ** 2) for a, b, probability in found)


def keeps_variance() -> Finding:
    even = ((1.0, 0.5), (-1.0, 0.5))
    found = {
        "independent": [variance(unit(p, logit(r)), SKEWED) for p in (0.3, 0.9) for r in (0.2, 0.8)],
        "slow": [variance(unit(0.9, 0.0, 1.0), SKEWED)],
        "open": [variance(unit(0.5, 2.0, 0.5), SKEWED)],
        "any": [variance(unit(0.5, 0.0, 1.0), one) for one in (SKEWED, even)],
    }
    holds = {name: all(abs(x - 1) < TOLERANCE for x in values) for name, values in found.items()}
    shown = ", ".join(f"{name} {values[0]:.4f}" for name, values in found.items())
    return Finding(verdict(holds.pop("any"), holds), f"exact variances after one token: {shown}", "to 1e-10")


def random_unit() -> RGLRUMixer:
    mixer = RGLRUMixer(RGLRUConfig(width=4)).double().requires_grad_(False)
    for seed, parameter in enumerate(mixer.parameters()):
        parameter.copy_(normal(*parameter.shape, seed=seed))
    return mixer


def sees_state() -> Finding:
    """A step is a h + b only if it takes the middle of two states to the middle of their images."""
    mixer, u, one, other = random_unit(), normal(1, 4, seed=20), normal(1, 4, seed=21), normal(1, 4, seed=22)

    def after(h: Tensor) -> Tensor:
        a, b = mixer.coefficients(u + h)  # gates that see input and state
        return a * h + b

    off = float((after((one + other) / 2) - (after(one) + after(other)) / 2).abs().max())
    note = f"octavo's gates given u + h: the middle of two states goes {off:.2f} away from the middle of their images"
    return Finding(verdict(off < TOLERANCE), note, "to 1e-10")


def is_convolution() -> Finding:
    """A convolution is linear in its inputs: the states of a sum are the sum of the states."""
    mixer, (one, other) = random_unit(), normal(2, 1, 9, 4, seed=23)
    states = [linear_recurrence(*mixer.coefficients(u)) for u in (one, other, one + other)]
    off = float((states[0] + states[1] - states[2]).abs().max())
    return Finding(verdict(off < TOLERANCE), f"states of a sum and the sum of states differ by {off:.2f}", "to 1e-10")


RGLRU = Exercise(
    id="rglru", title="The RG-LRU: how much is kept, and what makes room",
    question="A unit of the RG-LRU has the gates r and i, sigmoids of linear maps of the inputs u at this token, and a "
    "number Lambda. It keeps the share `a = sigma(-Lambda)^(8*r)` of its state: `h_new = a*h + s*i*u`, where s depends "
    "on a alone. Lambda is learnt and the same at every token.",
    where={"sigma": lambda x: 1 / (1 + mpmath.exp(-x)), "Lambda": 1.5, "r": 0.5, "slow": SLOW, "quiet": QUIET,
           "a": lambda Lambda, r: float((1 + mpmath.exp(Lambda)) ** (-DECAY * r)),
           "s": lambda a: mpmath.sqrt(1 - a * a), "p": 0.9, "kept_quiet": retained_at_quiet,
           "two": SKEWED[0][0], "seldom": SKEWED[0][1], "small": SKEWED[1][0]},
    answer="Where p is kept with an open gate, `p^r`{retained} is kept with the gate r: the gate sets the pace, from "
    "keeping everything to keeping p. With `s = sqrt(1 - a^2)` the variance of the state stays one if the gate does "
    "not depend on the input: what is forgotten makes room for what is new, and a unit that keeps everything takes in "
    "nothing. The gates do not see the state, so all states can be computed at once; as a changes from token to "
    "token, they are not a convolution as the LRU's are.",
    figure=lambda: lines([
        Series(f"p = {p:g}", [(r / 50, coefficients(unit(p, logit(r / 50)), 1.0)[0]) for r in range(1, 50)])
        for p in (0.05, 0.5, 0.9, 0.99)], "What is kept of the state, by the recurrence gate.",
        ("gate r", "share a")),
    parts=[
        Part("zero", "What is a where Lambda is zero and r is one?", Number("1/256"), "numeric", forgetting_at_zero,
             why="`sigma(0) = 1/2`, and `(1/2)^8 = 1/256`.",
             wrong={"forgot the power": ("1/2", lambda: torch.zeros(()).sigmoid().item()),
                    "multiplied by the exponent": (4, lambda: DECAY * torch.zeros(()).sigmoid().item())}),
        Part("retained", "A unit keeps the share p where r is one. What does it keep with the gate r?",
             Formula("p^r", {"p": "share", "r": "share"}), "numeric", retained,
             why="`sigma(-Lambda)^8`{open_share} is p, and a is its r-th power.",
             where={"open_share": lambda Lambda: math.exp(-DECAY * math.log1p(math.exp(Lambda)))},
             wrong={"multiplied by the gate": ("p*r", lambda p, r: p * r),
                    "took a mean of one and p, weighted by the gate": ("1 - r*(1 - p)", lambda p, r: r * p + (1 - r))
                    }),
        Part("half-life", "A unit keeps 0.99{slow} where r is one. At every token r is 0.125{quiet}. After how many "
             "tokens (a real number) is half of the state left?", Number("log(1/2)/(0.125*log(0.99))"), "numeric",
             quiet_half_life,
             why="A token leaves `0.99^0.125`{kept_quiet}, so it takes eight times as long as with an open gate.",
             wrong={"forgot the gate": ("log(1/2)/log(0.99)", lambda: math.log(0.5) / math.log(SLOW)),
                    "let the gate shorten the memory":
                        ("0.125*log(1/2)/log(0.99)", lambda: QUIET * math.log(0.5) / math.log(SLOW))}),
        Part("room", "The state and the input u have mean zero and variance one and are independent, and i is one. "
             "Which positive s gives the new state the variance one?", Formula("sqrt(1 - a^2)", {"a": "share"}),
             "numeric", room, where={"a": 0.7},
             why="Variances of independent terms add up: `a^2 + s^2 = 1`.",
             wrong={"took a weighted mean, as a GRU does": ("1 - a", lambda a: 1 - a),
                    "forgot the root": ("1 - a^2", lambda a: 1 - a * a)}),
        Part("slope", "What is the derivative of this s by a?", Formula("-a/sqrt(1 - a^2)", {"a": "share"}), "autograd",
             slope, where={"a": (0.3, 0.8), "square": lambda a: -2 * a},
             why="One half over the root, times `-2*a`{square}. It has no bound as a approaches one, so octavo does "
             "not let the square of s fall below a small number.",
             wrong={"forgot the inner derivative": ("1/(2*sqrt(1 - a^2))", lambda a: 0.5 / mpmath.sqrt(1 - a * a)),
                    "lost the sign": ("a/sqrt(1 - a^2)", lambda a: a / mpmath.sqrt(1 - a * a))}),
        Part("variance", "The state before a token has mean zero and variance one and does not depend on the token, "
             "the input u has mean zero and variance one, and i is one. With this s, the new state has variance one.",
             Truth("nearly", Choice("independent", {"open": "r is above one half",
             "independent": "r does not depend on u", "slow": "the share kept at an open gate is 0.9{p}"})), "numeric",
             keeps_variance,
             why="Where r depends on u, the factor s is not independent of what it multiplies. An input of 2{two} that "
             "comes with probability 0.2{seldom}, and otherwise `-0.5`{small}, may get more room than it leaves.",
             wrong={"took the gate for a constant": True}),
        Part("state", "If r saw the state h before the token too, a step would still be linear in h but for a "
             "constant, as an associative scan needs.", Truth("false"), "numeric", sees_state,
             why="Then a depends on h, and `a*h` is no longer linear in h: the states would have to be computed one "
             "after the other, as a GRU's are.", wrong={"thought that only the input gate matters": True}),
        Part("convolution", "The states of a text are its inputs convolved with one fixed kernel, as an LRU's are.",
             Truth("false"), "numeric", is_convolution,
             why="What an earlier token counts for is the product of the later a, which differ from text to text.",
             wrong={"took the gates for constants": True}),
    ])  # fmt: skip

EXERCISES = (RGLRU,)
