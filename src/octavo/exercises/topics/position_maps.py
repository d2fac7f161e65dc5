"""Linear maps of positions: concatenating or adding them, and learning a shift from data.

T positions, D width, E width of an encoding, M width of an output, k shift.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.exercises.topics.positions import D, encodings, shift_matrix
from octavo.ops.positions import added, concatenated, frequencies
from octavo.pages.figures.charts import Series, lines

PRECISION = 0.01  # of every entry of a learnt rotation


def _random_integers(*shape: int, seed: int) -> Tensor:
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).double()


def sum_of_two_maps() -> Finding:
    """With integers, so that nothing is rounded."""
    x_1TD, p_TE = _random_integers(1, 7, 5, seed=0), _random_integers(7, 4, seed=1)
    w_MD, w_ME = _random_integers(6, 5, seed=2), _random_integers(6, 4, seed=3)
    joint = concatenated(x_1TD, p_TE) @ torch.cat([w_MD, w_ME], 1).T
    same = torch.equal(joint, x_1TD @ w_MD.T + p_TE @ w_ME.T)
    note = "octavo's concatenation of integers through one matrix, and two maps added: exactly equal"
    return Finding(verdict(same), note)


def adding_is_a_case() -> Finding:
    x_1TD, p_TD = _random_integers(1, 7, 5, seed=0), _random_integers(7, 5, seed=1)
    w_MD, other_MD = _random_integers(6, 5, seed=2), _random_integers(6, 5, seed=3)
    summed = added(x_1TD, p_TD) @ w_MD.T
    tied = torch.equal(concatenated(x_1TD, p_TD) @ torch.cat([w_MD, w_MD], 1).T, summed)
    free = torch.equal(concatenated(x_1TD, p_TD) @ torch.cat([w_MD, other_MD], 1).T, summed)
    note = f"integers: equal with the same map for both: {tied}; with two different maps: {free}"
    plain = torch.eye(5, dtype=torch.float64)
    identity = torch.equal(concatenated(x_1TD, p_TD) @ torch.cat([plain, other_MD[:5]], 1).T, added(x_1TD, p_TD))
    square = torch.equal(concatenated(x_1TD, p_TD) @ torch.cat([w_MD[:5], other_MD[:5]], 1).T, summed[..., :5])
    return Finding(verdict(free, {"tied": tied, "identity": identity, "square": square}), note)


@tabulated("D E M", ((8, 4, 8), (16, 16, 5), (3, 2, 7)),
    "the weights of PyTorch's linear layer on octavo's concatenation, three shapes")  # fmt: skip
def weights_of_concatenation(width: int, extra: int, out: int) -> int:
    joined = concatenated(torch.zeros(1, 2, width), torch.zeros(2, extra))
    return torch.nn.Linear(joined.shape[-1], out, bias=False).weight.numel()


CONCATENATED = Exercise(
    where={}, id="concatenate-or-add", title="Concatenating positions is a sum of two maps",
    question="A token x of width D and an encoding p of width E are concatenated and go through one linear layer W "
    "without a bias. Compare that with adding them.",
    answer="`list(x, p)*W = x*W_x + p*W_p`, where `W_x` are the first D rows of W and `W_p` the last E. So "
    "concatenating is the same as adding after each has its own linear map. Adding x and p first is the case `W_x = "
    "W_p`.",
    parts=[
        Part("two-maps", "A linear layer on the concatenation of x and p is the sum of a linear map of x and one of p.",
             Truth("true", Choice("", {
             "equal": "x and p have the same width",
             "square": "the output is as wide as x", "tied": "`W_x = W_p`"})), "exact", sum_of_two_maps,
             why="Every output is a sum over the entries of x plus a sum over those of p.",
             wrong={"thought that concatenation lets them interact": False}),
        Part("adding", "With D = E, it is the same as adding x and p first and applying one linear map to the sum.",
             Truth("nearly", Choice("tied", {"identity": "`W_x` is the identity", "tied":
                  "both have the same map, `W_x = W_p`",
             "square": "the output is as wide as x"})), "exact", adding_is_a_case,
             why="`(x + p)*W = x*W + p*W`: one map for both. Concatenation has two.",
             wrong={"forgot that the two maps may differ": True}),
        Part("weights", "How many weights does the layer have if its output has width M?",
             Formula("M*(D+E)", {"D": "whole", "E": "whole", "M": "whole"}), "counted", weights_of_concatenation,
             why="`M*D` for the map of x and `M*E` for that of p.",
             wrong={"gave the number for adding": ("M*D", lambda M, D: sum(D for _ in range(M))),
                    "multiplied the widths": ("M*D*E", lambda M, D, E: sum(D * E for _ in range(M)))}),
    ])  # fmt: skip


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
    note = f"4,000 positions, k = 3, {steps:,} steps from zero: the loss falls from {losses[0]:.2f} to {losses[-1]:.0e}"
    note += f", and the largest difference from the rotation is {error:.1e}"
    return Finding(verdict(error < PRECISION), note, f"to {PRECISION}")


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
    norms = encodings(8).norm(dim=1)
    equal = bool(torch.allclose(norms, norms[:1].expand(8)))
    under = {"span": errors[400] < 1e-3, "half": errors[8] < 1e-3, "norms": equal and errors[8] < 1e-3}
    return Finding(verdict(errors[8] < 1e-3, under), note, "to 0.001")


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
    where={"width": 4, "precision": PRECISION}, id="learn-the-shift", title="Learning the shift from data",
        figure=learning_figure,
    question="A linear map from the encoding of t to that of t + k is fitted to examples. Does it find the rotation?",
    answer="Yes, if the encodings of the examples span all D dimensions: then only one linear map fits, and both least "
    "squares and gradient descent find it. With fewer positions many maps fit. Low frequencies hardly change over a "
    "few positions, so they are learnt last. In the same way one fit finds the two maps of a linear layer on the "
    "concatenation of token and position.",
    parts=[
        Part("recovers", "Least squares on the first T positions recovers the rotation.", Truth("nearly",
            Choice("span", {
             "half": "T is at least half of D", "span": "the encodings of these positions span all D dimensions",
             "norms": "all encodings have the same norm"})), "numeric", least_squares,
             why="If they span the space, a linear map is determined by its values on them. If not, it is free "
             "elsewhere; least squares chooses zero there. Low frequencies need many more than D positions for the fit "
             "to be exact to many digits.", wrong={"forgot that a loss of zero does not make the map unique": True}),
        Part("positions", "With width 4{width}, so two frequencies, how many positions, starting at one, are needed?",
             Number(4, rel=0), "numeric", positions_needed, why="The encodings must have rank 4{width}, and four of "
                  "them do.",
             wrong={"counted one for each frequency": (2, lambda: len(frequencies(4))),
                    "counted the entries of the matrix": (16, lambda: shift_matrix(1, 4).numel()),
                    "counted the entries of the blocks of the rotation": (8, lambda: int(shift_matrix(1,
                        4).count_nonzero()))}),
        Part("trained", "Gradient descent from zero finds the rotation too, to 0.01{precision} in every entry.",
            Truth("true"),
             "trained", lambda: learnt_map(300), full=lambda: learnt_map(3000),
             why="The loss is convex with one minimum, the rotation. It is flattest in the direction of the lowest "
             "frequency.", wrong={"thought that the frequencies must be given": False}),
        Part("both-maps", "A linear layer on the concatenation of x and p recovers both maps from examples of their "
             "sum.", Truth("true"), "numeric", two_maps_learnt,
             why="Tokens vary independently of positions, so the two contributions can be separated.",
             wrong={"thought that a sum cannot be separated": False}),
    ])  # fmt: skip

EXERCISES = (CONCATENATED, LEARNT)
