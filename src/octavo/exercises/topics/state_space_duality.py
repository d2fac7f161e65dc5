"""Mamba-2: a step that forgets and writes, what is exact about it, and the matrix that the recurrence is."""

from __future__ import annotations

import math

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal, tabulate, tabulated
from octavo.models.linear_attention.paces import log_decay
from octavo.ops import linear
from octavo.ops.linear.decaying_reference import decay_between
from octavo.pages.figures.charts import Series, lines

TOLERANCE = 1e-10
STEPS, VALUES = (1.0, 2.0, 1.0), (4.0, 3.0, 8.0)
TOKENS, STATE = 12, 3
STEP = 0.1
CASES = [([0.5],), ([0.5, 0.25],), ([0.5, 0.25, 1.0, 0.1],)]


def decays(pace: float, steps: tuple[float, ...]) -> Tensor:
    """g_11T1, logarithms of octavo's decays for these steps."""
    dt_11T = torch.tensor([[steps]], dtype=torch.float64)
    return log_decay(dt_11T, torch.tensor([math.log(pace)], dtype=torch.float64))[..., None]


def outputs(
    pace: float, steps: tuple[float, ...], values: tuple[float, ...], writes: tuple[float, ...] | None = None
) -> Tensor:
    """What is read after each token where B and C are one; `writes` in place of the steps as factors of what is
    written."""
    ones_11T1 = torch.ones(1, 1, len(steps), 1, dtype=torch.float64)
    k_11T1, v_11T1 = (torch.tensor(x, dtype=torch.float64).view(1, 1, -1, 1) for x in (writes or steps, values))
    return linear.attend_decaying(ones_11T1, k_11T1, v_11T1, decays(pace, steps))[0][0, 0, :, 0]


def by_hand() -> Finding:
    return Finding(float(outputs(math.log(2), STEPS, VALUES)[-1]), "octavo's recurrence over the three tokens")


def _without_decay_by_step() -> float:
    y_T = linear.attend_decaying(*_ones_and_writes(), decays(math.log(2), (1.0, 1.0, 1.0)))[0]
    return float(y_T[0, 0, -1, 0])


def _ones_and_writes() -> tuple[Tensor, Tensor, Tensor]:
    k, v = (torch.tensor(x, dtype=torch.float64).view(1, 1, -1, 1) for x in (STEPS, VALUES))
    return torch.ones_like(k), k, v


@tabulated("p", [(0.9,), (0.5,), (0.2,)], "octavo's decay for a step of twice the size", rel=1e-10)
def doubled_step(p: float) -> float:
    return float(decays(-math.log(p), (2.0,)).exp())


# ---------------------------------------------------------------------- the differential equation


def held_input(a: float, h: float) -> float:
    """The state after a time h of S' = -a S + 1 from zero, by integrating numerically what is left of each moment's
    input."""
    with mpmath.workdps(30):
        return float(mpmath.quad(lambda t: mpmath.exp(-mpmath.mpf(a) * (mpmath.mpf(h) - t)), [0, h]))


def exact_input() -> Finding:
    points = [(a, h) for a in (0.5, 2.0, 5.0) for h in (0.1, 1.0, 3.0)]
    return Finding(tabulate("a h", points, held_input, rel=1e-12), "numerical integration with 30 digits")


def too_large() -> Finding:
    return Finding(STEP / held_input(1.0, STEP) - 1, "one step of octavo's factor and the integral with 30 digits")


def clears_without_writing() -> Finding:
    """The state and what is written after a token with a large step, from a state of one."""
    after = {}
    for name, (pace, step, written) in {
        "as it stands": (1.0, 50.0, 1.0), "silent": (1.0, 50.0, 0.0), "slow": (0.1, 500.0, 1.0),
        "small": (1.0, 50.0, 0.1),
    }.items():  # fmt: skip
        k_1111, one = torch.full((1, 1, 1, 1), step * written).double(), torch.ones(1, 1, 1, 1).double()
        after[name] = float(linear.attend_decaying(one, k_1111, one, decays(pace, (step,)), None, one)[1])
    note = ", ".join(f"{name} {state:.3g}" for name, state in after.items())
    under = {name: abs(state) < TOLERANCE for name, state in after.items()}
    return Finding(verdict(under.pop("as it stands"), under), f"a state of one becomes: {note}", "to 1e-10")


# ---------------------------------------------------------------------- the matrix


def random_text() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """C, Δ B, v and the logarithms of the decays of one head."""
    steps = normal(1, 1, TOKENS, seed=4).abs()
    q, k, v = (normal(1, 1, TOKENS, size, seed=seed) for size, seed in ((STATE, 1), (STATE, 2), (5, 3)))
    return q, k * steps[..., None], v, log_decay(steps, torch.zeros(1).double())[..., None]


def same_matrix() -> Finding:
    q, k, v, g = random_text()
    one, _ = linear.attend_decaying(q, k, v, g, path="recurrent")
    off = float((linear.decaying_weights(q, k, g) @ v - one).abs().max())
    return Finding(verdict(off < TOLERANCE), f"12 tokens, a state of 3 by 5: they differ by {off:.0e}", "to 1e-10")


def rank(x_TT: Tensor) -> int:
    return int(torch.linalg.matrix_rank(x_TT))


def mask_block(first: int) -> Tensor:
    """The decays between, of the tokens from the given one on (rows) for those up to it (columns)."""
    *_, g_11T1 = random_text()
    return decay_between(g_11T1[0, 0].cumsum(0))[first:, : first + 1]


def mask_ranks() -> Finding:
    ranks = [rank(mask_block(first)) for first in range(1, TOKENS - 1)]
    assert len(set(ranks)) == 1, "every block has the same rank"
    return Finding(ranks[0], f"the ranks of {len(ranks)} blocks of octavo's decays between 12 tokens")


def whole_rank() -> Finding:
    *_, g_11T1 = random_text()
    return Finding(rank(decay_between(g_11T1[0, 0].cumsum(0))), "the rank of octavo's decays between 12 tokens")


def weights_rank() -> Finding:
    q, k, _, g = random_text()
    half = TOKENS // 2
    return Finding(rank(linear.decaying_weights(q, k, g)[0, 0, half:, :half]), "the rank of that block of octavo's map")


def mask(a: list[float]) -> list[list[float]]:
    """L[t][s], the product of the decays of the tokens after s up to t; zero where s comes after t."""
    return [[math.prod(a[s + 1 : t + 1]) if s <= t else 0.0 for s in range(len(a))] for t in range(len(a))]


def with_own_decay(a: list[float]) -> list[list[float]]:
    return [[math.prod(a[s : t + 1]) if s <= t else 0.0 for s in range(len(a))] for t in range(len(a))]


def without_mask(a: list[float]) -> list[list[float]]:
    return [[math.prod(a[min(s, t) + 1 : max(s, t) + 1]) for s in range(len(a))] for t in range(len(a))]


def library_mask() -> Finding:
    rows = [decay_between(torch.tensor(a, dtype=torch.float64).log().cumsum(0)[:, None]).tolist() for (a,) in CASES]
    return Finding(rows, "octavo's decays between the tokens of three texts")


def _states() -> list[float]:
    return [float(x) for x in outputs(math.log(2), STEPS, VALUES)]


MAMBA2 = Exercise(
    id="mamba2", title="Mamba-2: a recurrence and a matrix",
    question="A head of Mamba-2{version} has a state S of N rows. A token with the step h, a positive number, changes "
    "it to `exp(-a*h)*S + h*B*T(v)` and reads `C*S`, where the pace a is the head's and the rest the token's.",
    where={"T": lambda x: x, "N": STATE, "tokens": TOKENS, "version": 2, "step": STEP, "one_step": STEPS[0],
           "two": STEPS[1], "v1": VALUES[0], "v2": VALUES[1], "v3": VALUES[2], "y1": lambda: _states()[0],
           "half": TOKENS // 2, "a": (0.5, 2.0), "h": (0.3, 1.5),
           "state": lambda a, h: mpmath.exp(-a * h)},
    answer="One number, the step, says both how much is forgotten and how much is written. The decay "
    "`exp(-a*h)`{state} is exact for a state that fades at the pace a for a time h; the factor h of what is written "
    "is the exact `(1 - exp(-a*h))/a`{exact-input} where `a*h` is small. Unrolled over a text, the recurrence is a "
    "matrix: C times B for every pair, times the decays between both tokens, zero for later ones. Below its diagonal "
    "such a matrix has blocks whose rank is at most N, so that it can be applied in chunks through a state: the "
    "duality.",
    figure=lambda: lines([
        Series("Mamba-2", [(h / 20, h / 20) for h in range(1, 61)]),
        Series("exact", [(h / 20, held_input(1.0, h / 20)) for h in range(1, 61)])],
        "The factor of what is written, by the step, for a = 1.", ("step h", "factor")),
    parts=[
        Part("by-hand", "The pace a is `log(2)`{a}, so that a step of one halves the state; B and C are one. Three "
             "tokens have the steps 1{one_step}, 2{two}, 1{one_step} and the values 4{v1}, 3{v2}, 8{v3}. What is "
             "read after the last?",
             Number("23/2"), "exact", by_hand,
             why="The states are 4{y1}, `4/4 + 2*3 = 7`, and `7/2 + 8 = 11.5`.",
             wrong={"left the step out of what is written":
                        (10, lambda: float(outputs(math.log(2), STEPS, VALUES, (1.0, 1.0, 1.0))[-1])),
                    "left the step out of the decay": (12, _without_decay_by_step),
                    "forgot the decay": (18, lambda: sum(h * v for h, v in zip(STEPS, VALUES, strict=True)))},
             where={"a": math.log(2)}),
        Part("double", "A step of some size leaves the share p of the state. What does a step of twice the size leave?",
             Formula("p^2", {"p": "share"}), "numeric", doubled_step,
             why="`exp(-2*a*h)`{squared} is `exp(-a*h)`{state} squared: as much as two tokens leave.",
             where={"squared": lambda state: state * state},
             wrong={"halved it": ("p/2", lambda p: p * 0.5), "forgot twice as much": ("1 - 2*(1 - p)", lambda p:
                    1 - (1 - p) - (1 - p))}),
        Part("exact-input", "S is one number that follows `d(S, t) = -a*S + x` for a time h, with x fixed. From zero "
             "it gets to x times which factor?", Formula("(1 - exp(-a*h))/a", {"a": "positive", "h": "positive"}),
             "numeric", exact_input, where={"S": 1.0, "t": 1.0, "x": 1.0},
             why="What enters at a moment has faded by `exp(-a*t)` after a time t; the integral over all t up to h.",
             wrong={"took the factor of Mamba-2{version}": ("h", lambda h: mpmath.mpf(h)),
                    "forgot to integrate": ("1 - exp(-a*h)", lambda a, h: 1 - mpmath.exp(-a * h)),
                    "gave what is left of the state": ("exp(-a*h)", lambda a, h: mpmath.exp(-a * h))}),
        Part("error", "Mamba-2{version} takes h instead. By which share of the exact factor is that too large, for a "
             "of one and a step of 0.1{step}?", Number("0.1/(1 - exp(-0.1)) - 1"), "numeric", too_large,
             why="`0.1/(1 - exp(-0.1)) - 1 = 0.0508`: about one half of `a*h`.",
             wrong={"compared with the decay": ("exp(0.1) - 1", lambda: math.expm1(STEP)),
                    "gave the share of h": ("1 - (1 - exp(-0.1))/0.1", lambda: 1 - held_input(1.0, STEP) / STEP)}),
        Part("clear", "With a step that is large enough, a token leaves a state near zero, whatever was in it.",
             Truth("nearly", Choice("silent", {"slow": "the pace a is small", "silent": "its B is zero",
                                               "small": "the entries of B are below one"})), "numeric",
             clears_without_writing,
             why="What was in the state is gone, but the same step writes `h*B*T(v)`, which is large then.",
             wrong={"considered forgetting alone": True}),
        Part("function", "L is the matrix of decays between tokens: row t, column s holds what is left at token t of "
             "what was written at token s. Write a function that returns it for the decays of a text.",
             Function("mask", mask, CASES, "mask(a: list of numbers) -> list of rows"), "numeric", library_mask,
             why="The product of the decays after s up to t, one on the diagonal; zero where s is later.",
             wrong={"let a token's own decay act on it": with_own_decay, "let later tokens count": without_mask}),
        Part("same", "The outputs of a text are the matrix of all `L_ts*dot(C_t, B_s)*h_s` times the values.",
             Truth("true"), "numeric", same_matrix,
             why="That is the recurrence unrolled: what s wrote has since been multiplied by the decays between.",
             wrong={"took attention for another model": False}),
        Part("mask-rank", "A text has 12{tokens} tokens, and N is 3{N}. What is the rank of a block of L whose rows "
             "are the tokens from some token on, and whose columns are the tokens up to it?", Number(1, rel=0),
             "numeric", mask_ranks,
             why="An entry is what is left from s to that token, times what is left from there to t: one column "
             "times one row.",
             wrong={"took the rank of all of L": (12, lambda: whole_rank().value),
                    "took the size of the state": (3, lambda: random_text()[0].shape[-1])}),
        Part("whole-rank", "And of all of L?", Number(12, rel=0), "numeric", whole_rank,
             why="It is triangular with ones on the diagonal, so it can be inverted. Semiseparable is not low rank.",
             wrong={"took its blocks for all of it": (1, lambda: mask_ranks().value)}),
        Part("weights-rank", "And of the block of the matrix of all weights whose rows are the last 6{half} tokens "
             "and whose columns are the first 6{half}, if C and B are random?",
             Number(3, rel=0), "numeric", weights_rank,
             why="All that later tokens know of the first 6{half} went through a state of 3{N} rows.",
             wrong={"took any matrix of that size": (6, lambda: rank(normal(TOKENS // 2, TOKENS // 2, seed=1))),
                    "took the rank of the decays": (1, lambda: mask_ranks().value)}),
    ])  # fmt: skip

EXERCISES = (MAMBA2,)
