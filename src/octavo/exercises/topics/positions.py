"""Positions: a shift of sinusoids is a rotation, sines alone are not enough, concatenating is adding two maps.

t position, k shift, w frequency (the angle of one step), D width, T positions.
"""

from __future__ import annotations

import math

import sympy
import torch
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.ops.positions import added, concatenated, frequencies, sinusoids
from octavo.pages.figures.lines import Series, lines

OF_SHIFT = {"w": "positive", "k": "real"}
D = 16


def codes(T: int, width: int = D, first: int = 0) -> Tensor:
    """p_TD of octavo, in float64."""
    return sinusoids(torch.arange(first, first + T), width, dtype=torch.float64)


def shift_matrix(k: int, width: int = D) -> Tensor:
    """The rotation that moves a code by k positions: one turn for each pair of sine and cosine."""
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
        moved = (codes(200, first=k) - codes(200) @ r_DD.T).abs().max().item()
        turned = (r_DD @ r_DD.T - torch.eye(D, dtype=torch.float64)).abs().max().item()
        worst = max(worst, moved, turned, abs(torch.linalg.det(r_DD).item() - 1))
    note = f"octavo's codes of 200 positions, shifts -7, 1, 5, 100: one rotation for each, off by {worst:.0e} at most"
    return Finding(verdict(worst < 1e-12), note, "to 1e-12")


def sine_entry() -> Finding:
    """sin(w (t + k)) taken apart by SymPy: the factor of cos(w t)."""
    w, k = symbols(OF_SHIFT)
    t = sympy.Symbol("t", real=True)
    apart = sympy.expand(sympy.expand_trig(sympy.sin(sympy.expand(w * (t + k)))))
    return Finding(
        apart.coeff(sympy.cos(t * w)), "SymPy expands sin(w t + w k) and reads off what stands before cos(w t)"
    )


def product_of_codes() -> Finding:
    w, k = symbols(OF_SHIFT)
    t = sympy.Symbol("t", real=True)
    product = sympy.sin(w * t) * sympy.sin(w * (t + k)) + sympy.cos(w * t) * sympy.cos(w * (t + k))
    return Finding(sympy.simplify(product), "SymPy simplifies sin sin + cos cos; the position t drops out")


def one_matrix_for_all() -> Finding:
    """The best single matrix for the shift by 3, from half of the positions, tried on the other half; then by 4."""
    p_TD, q_TD = codes(400), codes(400, first=3)
    m_DD = torch.linalg.lstsq(p_TD[:200], q_TD[:200], driver="gelsd").solution
    same_shift = (p_TD[200:] @ m_DD - q_TD[200:]).abs().max().item()
    other_shift = (p_TD[200:] @ m_DD - codes(200, first=204)).abs().max().item()
    note = (
        f"fitted on positions 0 to 199 for k = 3, on 200 to 399 it misses by {same_shift:.0e}; for k = 4 by "
        f"{other_shift:.2f}"
    )
    return Finding(verdict(same_shift < 1e-6 and other_shift > 0.1), note, "to 1e-6 for the same shift")


def code_figure() -> str:
    steps = range(0, 51)
    series = []
    for pair in (0, 2, 4):
        p_TD = codes(51)
        series.append(Series(f"pair {pair + 1}", [(t, p_TD[t, 2 * pair].item()) for t in steps]))
    return lines(series, f"Sines of three of the {D // 2} pairs of octavo's codes.", ("position", "sine"))


ROTATION = Exercise(
    id="sinusoid-shift",
    title="A shift of sinusoids is a rotation",
    question="The code of position t holds pairs `list(sin(w*t), cos(w*t))` with different frequencies w. How does the "
    "code of position t + k follow from that of t?",
    answer="Each pair is turned by the angle `w*k`, with a matrix that depends on k but not on t: the first row is "
    "`list(cos(w*k), sin(w*k))`, the second `list(-sin(w*k), cos(w*k))`. So one linear layer can learn 'k places on', "
    "and the dot product of two codes depends on their distance alone.",
    figure=code_figure,
    parts=[
        Part("rotation", "For each k there is one rotation that takes the code of t to that of t + k, for all t.",
             Truth("true"), "numeric", shift_rotates,
             why="The addition theorems: `sin(w*t + w*k) = sin(w*t)*cos(w*k) + cos(w*t)*sin(w*k)`, and likewise for "
             "cos.", wrong={"thought that the matrix depends on t": False}),
        Part("entry", "By which number is `cos(w*t)` multiplied to help make `sin(w*(t+k))`?",
             Formula("sin(w*k)", OF_SHIFT), "symbolic", sine_entry, why="It is the upper right entry of the rotation.",
             wrong={"that is what sin(w t) is multiplied by": "cos(w*k)",
                    "used the other direction of turning": "-sin(w*k)", "mistook the angle for its sine": "w*k"}),
        Part("product", "What is the dot product of the pairs of t and t + k?", Formula("cos(w*k)", OF_SHIFT),
             "symbolic", product_of_codes, why="Two vectors of length one with the angle `w*k` between them.",
             wrong={"used the sine": "sin(w*k)", "forgot that they have length one": "2*cos(w*k)"}),
        Part("one-matrix", "The same matrix serves all positions, but a different shift needs a different matrix.",
             Truth("true"), "numeric", one_matrix_for_all,
             why="The rotation's angles are `w*k`: t is not in them, k is.",
             wrong={"thought that one matrix serves all shifts": False}),
    ],
)  # fmt: skip


def sines(T: int, k: int = 0, first: int = 0) -> Tensor:
    """Only the sines of the codes, of positions from first + k on."""
    return codes(T, first=first + k)[:, 0::2]


def sine_alone_enough() -> Finding:
    """The best linear map from sines to shifted sines; and the case in which there is a perfect one."""
    p_TD, q_TD = sines(400), sines(400, 3)
    best = torch.linalg.lstsq(p_TD, q_TD, driver="gelsd").solution
    missed = (p_TD @ best - q_TD).abs().max().item()
    t_T = torch.arange(400, dtype=torch.float64)
    w = math.pi / 3  # then w k is pi for k = 3
    exceptional = (torch.sin(w * (t_T + 3)) + torch.sin(w * t_T)).abs().max().item()
    note = (
        f"octavo's sines, k = 3: the best map misses by {missed:.2f}; with w = pi/3, -1 times the sine misses by "
        f"{exceptional:.0e}"
    )
    return Finding(verdict(missed < 1e-9, exceptional < 1e-9), note, "to 1e-9")


def at_zero() -> Finding:
    """A linear map takes the code of position 0, which is all zeros, to zeros; the code of k is something else."""
    start, shifted = sines(1), sines(1, 3)
    note = f"the sines of position 0 are {start.abs().max():g}, those of position 3 up to {shifted.abs().max():.2f}"
    return Finding(verdict(bool((start == 0).all()) and bool((shifted != 0).any())), note)


def smallest_frequency() -> Finding:
    """Searched over a fine grid of frequencies: the smallest for which shifted sines are a multiple of sines, k = 4."""
    t_T = torch.arange(60, dtype=torch.float64)
    found = math.inf
    for step in range(1, 2000):
        w = step * math.pi / 1000
        p_T, q_T = torch.sin(w * t_T), torch.sin(w * (t_T + 4))
        factor = (p_T @ q_T / (p_T @ p_T)).item()
        if (q_T - factor * p_T).abs().max() < 1e-9:
            found = w
            break
    return Finding(
        found, "frequencies from pi/1000 on in steps of pi/1000: the first whose sine is a multiple of its shift by 4"
    )


def ambiguous() -> Finding:
    w = 1 / 100
    rising, falling = 50.0, 100 * math.pi - 50.0
    same = abs(math.sin(w * rising) - math.sin(w * falling))
    apart = abs(math.cos(w * rising) - math.cos(w * falling))
    note = f"w = 1/100: the sines of positions 50 and 264.16 differ by {same:.0e}, their cosines by {apart:.2f}"
    return Finding(verdict(same < 1e-12 and apart > 0.1), note, "to 1e-12")


def sine_figure() -> str:
    w, places = 1 / 100, range(0, 401, 5)
    return lines(
        [Series("sine", [(t, math.sin(w * t)) for t in places]),
         Series("cosine", [(t, math.cos(w * t)) for t in places])],
        "w = 1/100. The sine is 0.48 at positions 50 and 264 alike; the cosine, 0.88 and -0.88, tells them apart.",
        ("position", "value"), references=[("0.48", math.sin(w * 50))],
    )  # fmt: skip


SINE = Exercise(
    id="sine-alone",
    title="Sines alone are not enough",
    question="Keep only the sines, `sin(w*t)`, of a position's code. Is a shift by k still a linear map?",
    answer="No: at t = 0 all sines are zero, and a linear map keeps zero where it is; but `sin(w*k)` is not zero. The "
    "exception is `w*k` a multiple of `pi` for every frequency: then each sine is only multiplied by 1 or -1. A sine "
    "alone also cannot tell a rising from a falling place; its cosine can.",
    figure=sine_figure,
    parts=[
        Part("enough", "For sines alone, a shift by k is a linear map of the code, the same for all t.", Truth("nearly",
             "`sin(w*k) = 0` for every frequency w: `w*k` is a multiple of `pi`"), "numeric", sine_alone_enough,
             why="`sin(w*(t+k))` needs `cos(w*t)` unless its factor `sin(w*k)` is zero. A table of finitely many "
             "positions can be fitted if it has no more positions than frequencies, but that is no rule for all t.",
             wrong={"used the addition theorem without its cosine": True,
                    "forgot the case in which the cosine's factor is zero": False}),
        Part("proof", "The proof needs one position: at t = 0 the code is zero, and that of k is not.", Truth("true"),
             "exact", at_zero,
             why="A linear map takes zero to zero. An affine one, with a bias, would survive this position, but not "
             "the next.", wrong={"thought that all positions have to be tried": False}),
        Part("exception", "What is the smallest positive frequency w for which a shift by 4 multiplies the sine by a "
             "number?", Number("pi/4"), "numeric", smallest_frequency,
             why="`sin(4*w) = 0` first at `w = pi/4`, where the sine is multiplied by -1.",
             wrong={"used a full turn, but a half is enough": "pi/2", "forgot the shift": "pi",
                    "divided once too often": "pi/8"}),
        Part("ambiguous", "Two positions with the same sine can have different cosines.", Truth("true"), "numeric",
             ambiguous, why="`sin(x) = sin(pi - x)`, and `cos(pi - x) = -cos(x)`.",
             wrong={"mistook the sine for invertible": False}),
    ],
)  # fmt: skip


def _whole_numbers(*shape: int, seed: int) -> Tensor:
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).double()


def sum_of_two_maps() -> Finding:
    """Whole numbers, so that nothing is rounded."""
    x_1TD, p_TE = _whole_numbers(1, 7, 5, seed=0), _whole_numbers(7, 4, seed=1)
    w_MD, w_ME = _whole_numbers(6, 5, seed=2), _whole_numbers(6, 4, seed=3)
    beside = concatenated(x_1TD, p_TE) @ torch.cat([w_MD, w_ME], 1).T
    same = torch.equal(beside, x_1TD @ w_MD.T + p_TE @ w_ME.T)
    return Finding(
        verdict(same), "octavo's concatenation of whole numbers through one matrix, and two maps added: equal, exactly"
    )


def adding_is_a_case() -> Finding:
    x_1TD, p_TD = _whole_numbers(1, 7, 5, seed=0), _whole_numbers(7, 5, seed=1)
    w_MD, other_MD = _whole_numbers(6, 5, seed=2), _whole_numbers(6, 5, seed=3)
    summed = added(x_1TD, p_TD) @ w_MD.T
    tied = torch.equal(concatenated(x_1TD, p_TD) @ torch.cat([w_MD, w_MD], 1).T, summed)
    free = torch.equal(concatenated(x_1TD, p_TD) @ torch.cat([w_MD, other_MD], 1).T, summed)
    note = f"whole numbers: equal with the same map for both: {tied}; with two different maps: {free}"
    return Finding(verdict(free, tied), note)


def weights_of_concatenation() -> Finding:
    found = []
    for width, extra, out in ((8, 4, 8), (16, 16, 5), (3, 2, 7)):
        joined = concatenated(torch.zeros(1, 2, width), torch.zeros(2, extra))
        x = torch.nn.Linear(joined.shape[-1], out, bias=False).weight.numel()
        found.append(IntervalAt({"D": width, "E": extra, "M": out}, x, x))
    return Finding(found, "the weights of torch's linear layer on octavo's concatenation, counted for three shapes")


CONCATENATED = Exercise(
    id="concatenate-or-add",
    title="Concatenating positions is adding two maps",
    question="A token x of width D and a code p of width E are set side by side and go through one linear layer W "
    "without a bias. Compare that with adding.",
    answer="`list(x, p)*W = x*W_x + p*W_p`, where `W_x` are the first D rows of W and `W_p` the last E. So "
    "concatenating is adding, after each has had a map of its own. Adding x and p first is the case `W_x = W_p`.",
    parts=[
        Part("two-maps", "A linear layer on x and p side by side is the sum of a linear map of x and one of p.",
             Truth("true"), "exact", sum_of_two_maps,
             why="Every output is a sum over the entries of x and then over those of p.",
             wrong={"thought that concatenating lets them interact": False}),
        Part("adding", "With D = E, it is the same as adding x and p first and applying one linear map to the sum.",
             Truth("nearly", "both get the same map, `W_x = W_p`"), "exact", adding_is_a_case,
             why="`(x + p)*W = x*W + p*W`: one map for both. Concatenating has two to choose.",
             wrong={"forgot that the two maps may differ": True}),
        Part("weights", "How many weights has the layer, if its output has width M?",
             Formula("M*(D+E)", {"D": "whole", "E": "whole", "M": "whole"}), "counted", weights_of_concatenation,
             why="`M*D` for the map of x and `M*E` for that of p.",
             wrong={"that is for adding": "M*D", "multiplied the widths": "M*D*E"}),
    ],
)  # fmt: skip

EXERCISES = (ROTATION, SINE, CONCATENATED)
