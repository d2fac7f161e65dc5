"""The two conventions for the update gate of a GRU, and the two places of its reset gate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal
from octavo.exercises.framework.symbolic import symbols
from octavo.ops.recurrent import Weights, gru_step

SIZE = 3
NEAR = 20.0  # a gate with this bias is within 1e-8 of 1, with the opposite bias of 0
CLOSE = 1e-6

Gates = Callable[[Tensor, Tensor, Tensor], Tensor]  # z, candidate, old state -> new state


def takes_candidate(z: Tensor, n: Tensor, h: Tensor) -> Tensor:
    """z is the share of the candidate: h_new = (1 - z) h + z n."""
    return (1 - z) * h + z * n


def keeps_state(z: Tensor, n: Tensor, h: Tensor) -> Tensor:
    """z is the share of the old state: h_new = z h + (1 - z) n."""
    return z * h + (1 - z) * n


def cell(
    convention: Gates, x_D: Tensor, h_D: Tensor, z_bias: float = 0.0, r_bias: float = 0.0, sign: float = 1.0
) -> Tensor:
    """A GRU cell with random weights; `sign` multiplies everything inside the update gate."""
    W, U, (b_r, b_z, b_n) = normal(3, SIZE, SIZE, seed=1), normal(3, SIZE, SIZE, seed=2), normal(3, SIZE, seed=3)
    r = (W[0] @ x_D + U[0] @ h_D + b_r + r_bias).sigmoid()
    z = (sign * (W[1] @ x_D + U[1] @ h_D + b_z + z_bias)).sigmoid()
    return convention(z, torch.tanh(W[2] @ x_D + b_n + r * (U[2] @ h_D)), h_D)


def state_changes(convention: Gates, z_bias: float) -> tuple[float, Tensor, Tensor]:
    x, h = normal(SIZE, seed=4), normal(SIZE, seed=5).tanh()
    new = cell(convention, x, h, z_bias=z_bias)
    return float((new - h).abs().max()), new, h


def hardly_updates(convention: Gates) -> Finding:
    change, _, _ = state_changes(convention, -NEAR - 10)
    return Finding(verdict(change < CLOSE), f"z near 0: the state changes by {change:.1e}", f"to {CLOSE:g}")


def remembers(convention: Gates) -> Finding:
    x, h = normal(SIZE, seed=4), normal(SIZE, seed=5).tanh()

    def new_state(old: Tensor) -> Tensor:
        return cell(convention, x, old, z_bias=NEAR + 10, r_bias=-NEAR - 10)

    jacobian = torch.autograd.functional.jacobian(new_state, h)
    off = float((jacobian - torch.eye(SIZE, dtype=torch.float64)).abs().max())
    note = f"z near 1, r near 0: the derivative of the new state by the old one differs from the identity by {off:.1e}"
    return Finding(verdict(off < CLOSE), note, f"to {CLOSE:g}")


def other_gate() -> Finding:
    import sympy

    z, n, h = symbols({"z": "share", "n": "real", "h": "real"})
    other = sympy.Symbol("other")
    [found] = sympy.solve(sympy.Eq(other * h + (1 - other) * n, (1 - z) * h + z * n), other)
    return Finding(sympy.simplify(found), "SymPy solves for the gate of the other convention")


def negated_weights() -> Finding:
    worst = 0.0
    for seed in range(10):
        x, h = normal(SIZE, seed=10 + seed), normal(SIZE, seed=30 + seed).tanh()
        worst = max(worst, float((cell(takes_candidate, x, h) - cell(keeps_state, x, h, sign=-1)).abs().max()))
    note = f"ten random inputs and states: one convention with negated weights and the other differ by {worst:.0e}"
    return Finding(verdict(worst < 1e-14), note, "to 1e-14")


def library_convention() -> Finding:
    x, h = normal(1, SIZE, seed=4), normal(1, SIZE, seed=5).tanh()
    weights = Weights(*(normal(*shape, seed=n) for n, shape in
                        enumerate([(3 * SIZE, SIZE), (3 * SIZE, SIZE), (3 * SIZE,), (3 * SIZE,)])))  # fmt: skip
    theirs = torch.nn.GRUCell(SIZE, SIZE, dtype=torch.float64)
    with torch.no_grad():
        for own, given in zip(theirs.parameters(), weights, strict=True):
            own.copy_(given)
        same = float((theirs(x, h) - gru_step(x, h, weights)).abs().max())
        theirs.bias_ih[SIZE : 2 * SIZE] += 1000.0  # the update gate is 1
        kept = float((theirs(x, h) - h).abs().max())
    note = f"PyTorch's cell with z = 1 changes the state by {kept:g}; octavo's and PyTorch's differ by {same:.0e}"
    return Finding("state" if kept == 0 else "candidate", note, "exactly 0")


def reset_places() -> Finding:
    h, U = normal(SIZE, seed=5), normal(SIZE, SIZE, seed=2)
    r = normal(SIZE, seed=6).sigmoid()
    different = float((r * (U @ h) - U @ (r * h)).abs().max())
    equal = float((0.3 * (U @ h) - U @ (0.3 * h)).abs().max())
    note = f"random U and r: they differ by {different:.2f}; if all entries of r are equal, by {equal:.0e}"
    return Finding(verdict(different < 1e-12), note, "to 1e-12")


CONVENTIONS = Exercise(
    id="gru-conventions",
    title="Two conventions for the gates of a GRU",
    where={"first": lambda z, n, h: takes_candidate(z, n, h), "second": lambda z, n, h: keeps_state(z, n, h),
           "z": (0.25, 0.5), "n": (0.1, -0.7), "h": (0.9, 0.3)},
    question="Textbooks write the GRU in two ways. In the first convention the new state is `(1 - z)*h + "
    "z*n`{first}, in the second it is `z*h + (1 - z)*n`{second}. In both the candidate is `n = tanh(W*x + r*(U*h))`, "
    "all products with gates are elementwise, z is the update gate and r the reset gate.",
    answer="In the first convention z is the share of the candidate, in the second that of the old state. So "
    "statements about z are true in one and false in the other: an update gate near zero keeps the state in the "
    "first, and with an update gate near one and a reset gate near zero the first has forgotten it, while the second "
    "has copied it. The models are the same: `1 - sigma(x) = sigma(-x)`, so negating the weights and the bias of the "
    "update gate turns one into the other. PyTorch and octavo use the second. The place of the reset gate is a "
    "different matter: `r*(U*h)` and `U*(r*h)` are different models.",
    parts=[
        Part("closed",
             "First convention: if z is close to zero, the state is hardly updated.", Truth("true"), "numeric",
             lambda: hardly_updates(takes_candidate), why="The share of the old state is nearly one, that of the "
             "candidate nearly zero.",
             wrong={"used the second convention": False}),
        Part("other-closed", "Second convention: if z is close to zero, the state is hardly updated.", Truth("false"),
             "numeric", lambda: hardly_updates(keeps_state), why="The new state is then nearly the candidate.",
             wrong={"used the first convention": True}),
        Part("overwrites",
             "First convention: with z close to one and r close to zero, the past state is remembered well.",
             Truth("false"), "autograd", lambda: remembers(takes_candidate),
             why="z replaces the state by the candidate, and with r near zero the candidate depends on the input only.",
             wrong={"used the second convention": True}),
        Part("other-overwrites",
             "Second convention: with z close to one and r close to zero, the past state is remembered well.",
             Truth("true"), "autograd", lambda: remembers(keeps_state),
             why="z copies the state; the candidate, which r would affect, has no share.",
             wrong={"used the first convention": False}),
        Part("gate", "Which gate in the second convention does the same as z in the first?",
             Formula("1 - z",
             {"z": "share"}), "symbolic", other_gate, why="Their shares of the old state must be equal.",
             wrong={"used the same gate": ("z", lambda z: z), "inverted it": ("1/z", lambda z: 1 / z)}),
        Part("negated", "Negating the weights and the bias of the update gate turns one convention into the other.",
             Truth("true"), "numeric", negated_weights, why="`sigma(-x) = 1 - sigma(x)`.",
             wrong={"thought that they are different models": False}),
        Part("library", "In PyTorch's GRU, of what is z the share?",
             Choice("state", {"state": "the old state: second convention", "candidate":
                              "the candidate: first convention"}), "numeric", library_convention,
             why="With z at one, it returns the old state."),
        Part("reset", "`tanh(W*x + r*(U*h))` and `tanh(W*x + U*(r*h))` are the same candidate.", Truth("false"),
             "numeric", reset_places,
             why="The first scales the entries of U h, the second those of h, before U mixes them. They are the same "
             "only if all entries of r are equal, or U is diagonal.",
             wrong={"thought that an elementwise product commutes with a matrix": True}),
    ])  # fmt: skip

EXERCISES = (CONVENTIONS,)
