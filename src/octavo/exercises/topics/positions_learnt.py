"""Positions learnt: a linear map fitted to examples finds the rotation, where the examples say enough.

T positions, D width, E width of a code, M width of an output.
"""

from __future__ import annotations

import torch

from octavo.exercises import Exercise, Finding, Number, Part, Truth, verdict
from octavo.exercises.topics.positions import D, codes, shift_matrix
from octavo.ops.positions import concatenated
from octavo.pages.figures.lines import Series, lines


def fitted(T: int, k: int, steps: int, width: int = 8) -> tuple[float, list[float]]:
    """A linear map from codes to codes k on, learnt by gradient descent: its distance from the rotation, and losses."""
    p_TD, q_TD = codes(T, width), codes(T, width, first=k)
    m_DD = torch.zeros(width, width, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([m_DD], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (p_TD @ m_DD.T - q_TD).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return (m_DD.detach() - shift_matrix(k, width)).abs().max().item(), losses


def learnt_map(steps: int) -> Finding:
    """Positions far enough for the slowest pair of width 8, which turns by 0.001 a step, to make half a turn."""
    error, losses = fitted(4000, 3, steps)
    note = (
        f"4,000 positions, k = 3, {steps:,} steps from zero: the loss fell from {losses[0]:.2f} to {losses[-1]:.0e}, "
    )
    return Finding(
        verdict(error < 0.01), note + f"and the largest difference from the rotation is {error:.1e}", "to 0.01"
    )


def least_squares() -> Finding:
    """Recovered from enough positions, not from too few."""
    errors = {}
    for T in (8, 400):
        m_DD = torch.linalg.lstsq(codes(T), codes(T, first=3), driver="gelsd").solution.T
        errors[T] = (m_DD - shift_matrix(3)).abs().max().item()
    note = f"width {D}: from 8 positions the map misses the rotation by {errors[8]:.2f}, from 400 by {errors[400]:.0e}"
    return Finding(verdict(errors[8] < 1e-3, errors[400] < 1e-3), note, "to 0.001")


def positions_needed() -> Finding:
    ranks = [int(torch.linalg.matrix_rank(codes(T, 4, first=1))) for T in range(1, 9)]
    return Finding(ranks.index(4) + 1, f"the rank of the codes of 1 to 8 positions is {ranks}")


def two_maps_learnt() -> Finding:
    """Tokens and positions drawn independently; the two maps come back from the sums alone."""
    generator = torch.Generator().manual_seed(0)
    x_1TD = torch.randn(1, 500, 6, generator=generator, dtype=torch.float64)
    p_TE = codes(500, 8)
    w_MD, w_ME = (torch.randn(5, n, generator=generator, dtype=torch.float64) for n in (6, 8))
    y_TM = (x_1TD @ w_MD.T + p_TE @ w_ME.T)[0]
    w_M = torch.linalg.lstsq(concatenated(x_1TD, p_TE)[0], y_TM, driver="gelsd").solution.T
    error = max((w_M[:, :6] - w_MD).abs().max().item(), (w_M[:, 6:] - w_ME).abs().max().item())
    return Finding(
        verdict(error < 1e-8),
        f"500 examples of the sum: both maps come back from one fit, off by {error:.0e}",
        "to 1e-8",
    )


def learning_figure() -> str:
    curves = [(T, fitted(T, 3, 400)[1]) for T in (40, 4000)]
    return lines(
        [Series(f"{T:,} positions", [(step, loss) for step, loss in enumerate(losses, 1)]) for T, losses in curves],
        "Learning the shift by 3 of codes of width 8: the loss of gradient descent.", ("step", "loss"), log_y=True,
    )  # fmt: skip


LEARNT = Exercise(
    id="learn-the-shift",
    title="Learning the shift from data",
    question="Fit a linear map that takes the code of t to that of t + k, from examples alone. Does it find the "
    "rotation?",
    answer="Yes, once the codes of the examples span all D dimensions: then only one linear map fits, and both least "
    "squares and gradient descent find it. With fewer positions many maps fit. The slow pairs hardly move over a few "
    "positions, so they are learnt last. In the same way one fit finds the two maps of the last exercise.",
    figure=learning_figure,
    parts=[
        Part("recovers", "Least squares on positions 0 to T - 1 recovers the rotation.", Truth("nearly",
             "the codes of these positions span all D dimensions, for which T must be at least D"), "numeric",
             least_squares,
             why="If they span the space, a linear map is fixed by what it does to them. If not, it is free on the "
             "rest; least squares takes zero there. Slow pairs need many more than D positions for the fit to be exact "
             "to many digits.", wrong={"a loss of zero does not make the map unique": True}),
        Part("positions", "Width 4, so two frequencies. How many positions are needed, starting from 1?",
             Number(4, rel=0), "numeric", positions_needed, why="The codes must have rank 4, and four of them have.",
             wrong={"one for each frequency": 2, "counted the entries of the matrix": 16,
                    "counted the entries of the rotation's blocks": 8}),
        Part("trained", "Gradient descent from zero finds the rotation too, to 0.01 in every entry.", Truth("true"),
             "trained", lambda: learnt_map(300), full=lambda: learnt_map(3000),
             why="The loss is a bowl with one lowest point, the rotation. It is flattest in the direction of the "
             "slowest pair.", wrong={"thought that a network has to be told the frequencies": False}),
        Part("both-maps", "A linear layer on x and p side by side recovers both maps from examples of their sum.",
             Truth("true"), "numeric", two_maps_learnt,
             why="Tokens vary independently of positions, so what each contributes can be told apart.",
             wrong={"thought that a sum cannot be taken apart": False}),
    ],
)  # fmt: skip

EXERCISES = (LEARNT,)
