"""Learning the shift of positional encodings: a fitted linear map finds the rotation if it has enough examples.

T positions, D width, E width of an encoding, M width of an output.
"""

from __future__ import annotations

import torch

from octavo.exercises import Exercise, Finding, Number, Part, Truth, verdict
from octavo.exercises.topics.positions import D, encodings, shift_matrix
from octavo.ops.positions import concatenated
from octavo.pages.figures.lines import Series, lines


def fitted(T: int, k: int, steps: int, width: int = 8) -> tuple[float, list[float]]:
    """Learn the map from encodings to those k positions later: its distance from the rotation, and the losses."""
    p_TD, q_TD = encodings(T, width), encodings(T, width, first=k)
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
    """Enough positions for the lowest frequency of width 8, 0.001 per step, to make half a turn."""
    error, losses = fitted(4000, 3, steps)
    note = (
        f"4,000 positions, k = 3, {steps:,} steps from zero: the loss falls from {losses[0]:.2f} to {losses[-1]:.0e}, "
    )
    return Finding(
        verdict(error < 0.01), note + f"and the largest difference from the rotation is {error:.1e}", "to 0.01"
    )


def least_squares() -> Finding:
    """Least squares recovers the rotation from enough positions, not from too few."""
    errors = {}
    for T in (8, 400):
        m_DD = torch.linalg.lstsq(encodings(T), encodings(T, first=3), driver="gelsd").solution.T
        errors[T] = (m_DD - shift_matrix(3)).abs().max().item()
    note = (
        f"width {D}: with 8 positions the map differs from the rotation by {errors[8]:.2f}, with 400 by "
        f"{errors[400]:.0e}"
    )
    return Finding(verdict(errors[8] < 1e-3, errors[400] < 1e-3), note, "to 0.001")


def positions_needed() -> Finding:
    ranks = [int(torch.linalg.matrix_rank(encodings(T, 4, first=1))) for T in range(1, 9)]
    return Finding(ranks.index(4) + 1, f"the ranks of the encodings of 1 to 8 positions are {ranks}")


def two_maps_learnt() -> Finding:
    """With independent tokens and positions, both maps are recovered from their sum."""
    generator = torch.Generator().manual_seed(0)
    x_1TD = torch.randn(1, 500, 6, generator=generator, dtype=torch.float64)
    p_TE = encodings(500, 8)
    w_MD, w_ME = (torch.randn(5, n, generator=generator, dtype=torch.float64) for n in (6, 8))
    y_TM = (x_1TD @ w_MD.T + p_TE @ w_ME.T)[0]
    w_M = torch.linalg.lstsq(concatenated(x_1TD, p_TE)[0], y_TM, driver="gelsd").solution.T
    error = max((w_M[:, :6] - w_MD).abs().max().item(), (w_M[:, 6:] - w_ME).abs().max().item())
    note = f"500 examples of the sum: one fit recovers both maps, off by {error:.0e}"
    return Finding(verdict(error < 1e-8), note, "to 1e-8")


def learning_figure() -> str:
    curves = [(T, fitted(T, 3, 400)[1]) for T in (40, 4000)]
    return lines(
        [Series(f"{T:,} positions", [(step, loss) for step, loss in enumerate(losses, 1)]) for T, losses in curves],
        "Learning the shift by 3 of encodings of width 8: the loss of gradient descent.", ("step", "loss"), log_y=True,
    )  # fmt: skip


LEARNT = Exercise(
    id="learn-the-shift", title="Learning the shift from data", figure=learning_figure,
    question="A linear map from the encoding of t to that of t + k is fitted to examples. Does it find the rotation?",
    answer="Yes, if the encodings of the examples span all D dimensions: then only one linear map fits, and both least "
    "squares and gradient descent find it. With fewer positions many maps fit. Low frequencies hardly change over a "
    "few positions, so they are learnt last. In the same way one fit finds the two maps of the previous exercise.",
    parts=[
        Part("recovers", "Least squares on positions 0 to T - 1 recovers the rotation.", Truth("nearly",
             "the encodings of these positions span all D dimensions, for which T must be at least D"), "numeric",
             least_squares,
             why="If they span the space, a linear map is determined by its values on them. If not, it is free "
             "elsewhere; least squares chooses zero there. Low frequencies need many more than D positions for the fit "
             "to be exact to many digits.", wrong={"forgot that a loss of zero does not make the map unique": True}),
        Part("positions", "Width 4, so two frequencies. How many positions, starting at 1, are needed?",
             Number(4, rel=0), "numeric", positions_needed, why="The encodings must have rank 4, and four of them do.",
             wrong={"counted one for each frequency": 2, "counted the entries of the matrix": 16,
                    "counted the entries of the blocks of the rotation": 8}),
        Part("trained", "Gradient descent from zero finds the rotation too, to 0.01 in every entry.", Truth("true"),
             "trained", lambda: learnt_map(300), full=lambda: learnt_map(3000),
             why="The loss is convex with one minimum, the rotation. It is flattest in the direction of the lowest "
             "frequency.", wrong={"thought that the frequencies must be given": False}),
        Part("both-maps", "A linear layer on the concatenation of x and p recovers both maps from examples of their "
             "sum.", Truth("true"), "numeric", two_maps_learnt,
             why="Tokens vary independently of positions, so the two contributions can be separated.",
             wrong={"thought that a sum cannot be separated": False}),
    ])  # fmt: skip

EXERCISES = (LEARNT,)
