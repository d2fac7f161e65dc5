"""Positional encodings: a shift of sinusoids is a rotation, which can be learnt; sines alone are not enough.

t position, k shift, w frequency (angle per step), D width, T positions, E width of an encoding, M width of an output.
"""

from __future__ import annotations

import math

import sympy
import torch
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.exercises.framework.symbolic import symbols
from octavo.ops.positions import added, concatenated, frequencies, sinusoids
from octavo.pages.figures.charts import Series, lines

OF_SHIFT = {"w": "positive", "k": "real"}
D = 16


def encodings(T: int, width: int = D, first: int = 0) -> Tensor:
    """octavo's sinusoidal positional encodings p_TD, in float64."""
    return sinusoids(torch.arange(first, first + T), width, dtype=torch.float64)


def shift_matrix(k: int, width: int = D) -> Tensor:
    """The rotation that shifts an encoding by k positions: one 2 × 2 block per frequency."""
    blocks = []
    for w in frequencies(width).tolist():
        c, s = math.cos(w * k), math.sin(w * k)
        blocks.append(torch.tensor([[c, s], [-s, c]], dtype=torch.float64))
    r_DD: Tensor = torch.block_diag(*blocks)
    return r_DD


def shift_rotates() -> Finding:
    worst = 0.0
    for k in (-7, 1, 5, 100):
        r_DD = shift_matrix(k)
        shifted = (encodings(200, first=k) - encodings(200) @ r_DD.T).abs().max().item()
        orthogonal = (r_DD @ r_DD.T - torch.eye(D, dtype=torch.float64)).abs().max().item()
        worst = max(worst, shifted, orthogonal, abs(torch.linalg.det(r_DD).item() - 1))
    note = (
        f"octavo's encodings of 200 positions, shifts -7, 1, 5, 100: one rotation for each, off by at most {worst:.0e}"
    )
    return Finding(verdict(worst < 1e-12), note, "to 1e-12")


def sine_entry() -> Finding:
    """The coefficient of cos(w t) in sin(w (t + k)), expanded by SymPy."""
    w, k = symbols(OF_SHIFT)
    t = sympy.Symbol("t", real=True)
    expanded = sympy.expand(sympy.expand_trig(sympy.sin(sympy.expand(w * (t + k)))))
    note = "SymPy expands sin(w t + w k) and reads off the coefficient of cos(w t)"
    return Finding(expanded.coeff(sympy.cos(t * w)), note)


def dot_product() -> Finding:
    w, k = symbols(OF_SHIFT)
    t = sympy.Symbol("t", real=True)
    product = sympy.sin(w * t) * sympy.sin(w * (t + k)) + sympy.cos(w * t) * sympy.cos(w * (t + k))
    return Finding(sympy.simplify(product), "SymPy simplifies sin sin + cos cos; the position t cancels")


def one_matrix_for_all() -> Finding:
    """The best matrix for a shift by 3, fitted on half of the positions, tested on the rest and on a shift by 4."""
    p_TD, q_TD = encodings(400), encodings(400, first=3)
    m_DD = torch.linalg.lstsq(p_TD[:200], q_TD[:200], driver="gelsd").solution
    same_shift = (p_TD[200:] @ m_DD - q_TD[200:]).abs().max().item()
    other_shift = (p_TD[200:] @ m_DD - encodings(200, first=204)).abs().max().item()
    note = (
        f"fitted on positions 0 to 199 for k = 3, its error on 200 to 399 is {same_shift:.0e}; for k = 4 it is "
        f"{other_shift:.2f}"
    )
    return Finding(verdict(same_shift < 1e-6 and other_shift > 0.1), note, "to 1e-6 for the same shift")


def code_figure() -> str:
    p_TD = encodings(51)
    series = [Series(f"pair {pair + 1}", [(t, p_TD[t, 2 * pair].item()) for t in range(51)]) for pair in (0, 2, 4)]
    return lines(series, f"Sines of three of the {D // 2} frequencies of octavo's encodings.", ("position", "sine"))


ROTATION = Exercise(
    id="sinusoid-shift", title="A shift of sinusoids is a rotation", figure=code_figure,
    question="The encoding of position t has pairs `list(sin(w*t), cos(w*t))` with different frequencies w. How is the "
    "encoding of position t + k related to that of t?",
    answer="Each pair is rotated by the angle `w*k`, with a matrix that depends on k but not on t: the first row is "
    "`list(cos(w*k), sin(w*k))`, the second `list(-sin(w*k), cos(w*k))`. So one linear layer can learn a shift by k "
    "positions, and the dot product of two encodings depends only on their distance.",
    parts=[
        Part("rotation", "For each k there is one rotation that maps the encoding of t to that of t + k, for all t.",
             Truth("true"), "numeric", shift_rotates,
             why="The angle addition formulas: `sin(w*t + w*k) = sin(w*t)*cos(w*k) + cos(w*t)*sin(w*k)`, and likewise "
             "for cos.", wrong={"thought that the matrix depends on t": False}),
        Part("entry", "What is the coefficient of `cos(w*t)` in `sin(w*(t+k))`?", Formula("sin(w*k)", OF_SHIFT),
             "symbolic", sine_entry, why="It is the upper right entry of the rotation.",
             wrong={"gave the coefficient of sin(w t)": "cos(w*k)", "rotated in the other direction": "-sin(w*k)",
                    "used the angle instead of its sine": "w*k"}),
        Part("product", "What is the dot product of the pairs of t and t + k?", Formula("cos(w*k)", OF_SHIFT),
             "symbolic", dot_product, why="Two unit vectors with the angle `w*k` between them.",
             wrong={"used the sine": "sin(w*k)", "forgot that they are unit vectors": "2*cos(w*k)"}),
        Part("one-matrix", "The same matrix works for all positions, but a different shift needs a different matrix.",
             Truth("true"), "numeric", one_matrix_for_all,
             why="The angles of the rotation are `w*k`: they depend on k, not on t.",
             wrong={"thought that one matrix works for all shifts": False}),
    ])  # fmt: skip


def sines(T: int, k: int = 0, first: int = 0) -> Tensor:
    """Only the sines of the encodings, starting at position first + k."""
    return encodings(T, first=first + k)[:, 0::2]


def sine_alone_enough() -> Finding:
    """The best linear map from sines to shifted sines; and the case in which there is a perfect one."""
    p_TD, q_TD = sines(400), sines(400, 3)
    best = torch.linalg.lstsq(p_TD, q_TD, driver="gelsd").solution
    error = (p_TD @ best - q_TD).abs().max().item()
    t_T = torch.arange(400, dtype=torch.float64)
    w = math.pi / 3  # then w k is pi for k = 3
    exceptional = (torch.sin(w * (t_T + 3)) + torch.sin(w * t_T)).abs().max().item()
    note = (
        f"octavo's sines, k = 3: the best map has an error of {error:.2f}; with w = pi/3, -1 times the sine has "
        f"{exceptional:.0e}"
    )
    return Finding(verdict(error < 1e-9, exceptional < 1e-9), note, "to 1e-9")


def at_zero() -> Finding:
    """A linear map keeps the zero encoding of position 0 at zero, but the encoding of position k is not zero."""
    start, shifted = sines(1), sines(1, 3)
    note = f"the sines of position 0 are {start.abs().max():g}, those of position 3 up to {shifted.abs().max():.2f}"
    return Finding(verdict(bool((start == 0).all()) and bool((shifted != 0).any())), note)


def smallest_frequency() -> Finding:
    """The smallest frequency on a fine grid for which the sines shifted by 4 are a multiple of the sines."""
    t_T = torch.arange(60, dtype=torch.float64)
    found = math.inf
    for step in range(1, 2000):
        w = step * math.pi / 1000
        p_T, q_T = torch.sin(w * t_T), torch.sin(w * (t_T + 4))
        factor = (p_T @ q_T / (p_T @ p_T)).item()
        if (q_T - factor * p_T).abs().max() < 1e-9:
            found = w
            break
    note = "frequencies in steps of pi/1000: the first whose sine shifted by 4 is a multiple of the sine"
    return Finding(found, note)


def ambiguous() -> Finding:
    w = 1 / 100
    rising, falling = 50.0, 100 * math.pi - 50.0
    same = abs(math.sin(w * rising) - math.sin(w * falling))
    different = abs(math.cos(w * rising) - math.cos(w * falling))
    note = f"w = 1/100: the sines of positions 50 and 264.16 differ by {same:.0e}, their cosines by {different:.2f}"
    return Finding(verdict(same < 1e-12 and different > 0.1), note, "to 1e-12")


def sine_figure() -> str:
    w, positions = 1 / 100, range(0, 401, 5)
    return lines(
        [Series("sine", [(t, math.sin(w * t)) for t in positions]),
         Series("cosine", [(t, math.cos(w * t)) for t in positions])],
        "w = 1/100. The sine is 0.48 at positions 50 and 264 alike; the cosine, 0.88 and -0.88, distinguishes them.",
        ("position", "value"), references=[("0.48", math.sin(w * 50))],
    )  # fmt: skip


SINE = Exercise(
    id="sine-alone", title="Sines alone are not enough", figure=sine_figure,
    question="An encoding has only the sines, `sin(w*t)`. Is a shift by k still a linear map?",
    answer="No: at t = 0 all sines are zero, and a linear map maps zero to zero; but `sin(w*k)` is not zero. The "
    "exception is `w*k` a multiple of `pi` for every frequency: then each sine is multiplied by 1 or -1. A sine alone "
    "is also ambiguous between rising and falling positions; its cosine is not.",
    parts=[
        Part("enough", "For sines alone, a shift by k is a linear map of the encoding, the same for all t.",
             Truth("nearly", "`sin(w*k) = 0` for every frequency w: `w*k` is a multiple of `pi`"), "numeric",
             sine_alone_enough,
             why="`sin(w*(t+k))` needs `cos(w*t)` unless its coefficient `sin(w*k)` is zero. Finitely many positions "
             "can be fitted if there are no more positions than frequencies, but that map does not hold for all t.",
             wrong={"forgot the cosine term of the addition formula": True,
                    "forgot the case in which the coefficient of the cosine is zero": False}),
        Part("proof", "The proof needs only one position: at t = 0 the encoding is zero, and that of k is not.",
             Truth("true"), "exact", at_zero,
             why="A linear map maps zero to zero. An affine map, with a bias, could fit this position, but not the "
             "next.", wrong={"thought that all positions must be tested": False}),
        Part("exception", "What is the smallest positive frequency w for which a shift by 4 multiplies the sine by a "
             "number?", Number("pi/4"), "numeric", smallest_frequency,
             why="`sin(4*w) = 0` first holds at `w = pi/4`, where the sine is multiplied by -1.",
             wrong={"used a full turn, although half a turn is enough": "pi/2", "forgot the shift": "pi",
                    "divided by 2 once too often": "pi/8"}),
        Part("ambiguous", "Two positions with the same sine can have different cosines.", Truth("true"), "numeric",
             ambiguous, why="`sin(x) = sin(pi - x)`, and `cos(pi - x) = -cos(x)`.",
             wrong={"thought that the sine is invertible": False}),
    ])  # fmt: skip


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
    return Finding(verdict(free, tied), note)


@tabulated("D E M", ((8, 4, 8), (16, 16, 5), (3, 2, 7)),
    "the weights of PyTorch's linear layer on octavo's concatenation, three shapes")  # fmt: skip
def weights_of_concatenation(width: int, extra: int, out: int) -> int:
    joined = concatenated(torch.zeros(1, 2, width), torch.zeros(2, extra))
    return torch.nn.Linear(joined.shape[-1], out, bias=False).weight.numel()


CONCATENATED = Exercise(
    id="concatenate-or-add", title="Concatenating positions is a sum of two maps",
    question="A token x of width D and an encoding p of width E are concatenated and go through one linear layer W "
    "without a bias. Compare that with adding them.",
    answer="`list(x, p)*W = x*W_x + p*W_p`, where `W_x` are the first D rows of W and `W_p` the last E. So "
    "concatenating is the same as adding after each has its own linear map. Adding x and p first is the case `W_x = "
    "W_p`.",
    parts=[
        Part("two-maps", "A linear layer on the concatenation of x and p is the sum of a linear map of x and one of p.",
             Truth("true"), "exact", sum_of_two_maps,
             why="Every output is a sum over the entries of x plus a sum over those of p.",
             wrong={"thought that concatenation lets them interact": False}),
        Part("adding", "With D = E, it is the same as adding x and p first and applying one linear map to the sum.",
             Truth("nearly", "both have the same map, `W_x = W_p`"), "exact", adding_is_a_case,
             why="`(x + p)*W = x*W + p*W`: one map for both. Concatenation has two.",
             wrong={"forgot that the two maps may differ": True}),
        Part("weights", "How many weights does the layer have if its output has width M?",
             Formula("M*(D+E)", {"D": "whole", "E": "whole", "M": "whole"}), "counted", weights_of_concatenation,
             why="`M*D` for the map of x and `M*E` for that of p.",
             wrong={"gave the number for adding": "M*D", "multiplied the widths": "M*D*E"}),
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
    return Finding(verdict(error < 0.01), note, "to 0.01")


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

EXERCISES = (ROTATION, SINE, CONCATENATED, LEARNT)
