"""Positional encodings: a shift of sinusoids is a rotation, which can be learnt; sines alone are not enough.

t position, k shift, w frequency (angle per step), D width, T positions, E width of an encoding, M width of an output.
"""

from __future__ import annotations

import math

import mpmath
import sympy
import torch
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.ops.positions import frequencies, sinusoids
from octavo.pages.figures.charts import Series, lines

OF_SHIFT = {"w": "positive", "k": "real"}
D = 16
SHIFT = 4  # positions by which a sine is shifted


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
    where={}, id="sinusoid-shift", title="A shift of sinusoids is a rotation", figure=code_figure,
    question="The encoding of position t has pairs `list(sin(w*t), cos(w*t))` with different frequencies w. How is the "
    "encoding of position t + k related to that of t?",
    answer="Each pair is rotated by the angle `w*k`, with a matrix that depends on k but not on t: the first row is "
    "`list(cos(w*k), sin(w*k))`, the second `list(-sin(w*k), cos(w*k))`. So one linear layer can learn a shift by k "
    "positions, and the dot product of two encodings depends only on their distance.",
    parts=[
        Part("rotation", "For each k there is one rotation that maps the encoding of t to that of t + k, for all t.",
             Truth("true", Choice("", {
             "forward": "k is positive",
             "small": "k is smaller than D", "single": "there is a single frequency"})), "numeric", shift_rotates,
             why="The angle addition formulas: `sin(w*t + w*k) = sin(w*t)*cos(w*k) + cos(w*t)*sin(w*k)`, and likewise "
             "for cos.", wrong={"thought that the matrix depends on t": False}),
        Part("entry", "What is the coefficient of `cos(w*t)` in `sin(w*(t+k))`?", Formula("sin(w*k)", OF_SHIFT),
             "symbolic", sine_entry, why="It is the upper right entry of the rotation.",
             wrong={"gave the coefficient of sin(w t)":
                        ("cos(w*k)", lambda w, k: mpmath.sin(w * (mpmath.pi / (2 * w) + k))),
                    "rotated in the other direction": ("-sin(w*k)", lambda w, k: mpmath.sin(w * (0 - k))),
                    "used the angle instead of its sine": ("w*k", lambda w, k: w * (0 + k))}),
        Part("product", "What is the dot product of the pairs of t and t + k?", Formula("cos(w*k)", OF_SHIFT),
             "symbolic", dot_product, why="Two unit vectors with the angle `w*k` between them.",
             wrong={"used the sine": ("sin(w*k)", lambda w, k: mpmath.sin(w * k)),
                    "forgot that they are unit vectors":
                        ("2*cos(w*k)", lambda w, k: mpmath.re(mpmath.expj(w * k) + mpmath.expj(-w * k)))}),
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
    single = [torch.sin((t_T + k) / 7)[:, None] for k in (0, 3)]
    fits = [(torch.linalg.lstsq(a, b, driver="gelsd").solution, a, b) for a, b in (single, (sines(400), sines(400, 1)))]
    of_one, of_step = (float((a @ m - b).abs().max()) < 1e-9 for m, a, b in fits)
    under = {"multiples": exceptional < 1e-9, "single": of_one, "step": of_step}
    return Finding(verdict(error < 1e-9, under), note, "to 1e-9")


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
        p_T, q_T = torch.sin(w * t_T), torch.sin(w * (t_T + SHIFT))
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
    where={"shift": SHIFT},
    answer="No: at position zero all sines are zero, and a linear map maps zero to zero; but `sin(w*k)` is not zero. "
    "The exception is `w*k` a multiple of `pi` for every frequency: then each sine is multiplied by one or minus one. "
    "A sine alone is also ambiguous between rising and falling positions; its cosine is not.",
    parts=[
        Part("enough", "For sines alone, a shift by k is a linear map of the encoding, the same for all t.",
             Truth("nearly", Choice("multiples", {"single": "there is a single frequency", "step": "k is one",
             "multiples": "`w*k` is a multiple of `pi` for every frequency w"})), "numeric", sine_alone_enough,
             why="`sin(w*(t+k))` needs `cos(w*t)` unless its coefficient `sin(w*k)` is zero. Finitely many positions "
             "can be fitted if there are no more positions than frequencies, but that map does not hold for all t.",
             wrong={"forgot the cosine term of the addition formula": True}),
        Part("proof", "The proof needs only one position: at zero the encoding is zero, and that of k is not.",
             Truth("true"), "exact", at_zero,
             why="A linear map maps zero to zero. An affine map, with a bias, could fit this position, but not the "
             "next.", wrong={"thought that all positions must be tested": False}),
        Part("exception", "What is the smallest positive frequency w for which a shift by 4{shift} multiplies the "
             "sine by a number?", Number("pi/4"), "numeric", smallest_frequency,
             why="`sin(4*w) = 0` first holds at `w = pi/4`, where the sine is multiplied by minus one.",
             where={"w": lambda: smallest_frequency().value},
             wrong={"used a full turn, although half a turn is enough": ("pi/2", lambda: 2 * math.pi / SHIFT),
                    "forgot the shift": ("pi", lambda: math.acos(-1)), "halved it once too often": ("pi/8", lambda:
                        math.pi / SHIFT / 2)}),
        Part("ambiguous", "Two positions with the same sine can have different cosines.", Truth("true"), "numeric",
             ambiguous, why="`sin(x) = sin(pi - x)`, and `cos(pi - x) = -cos(x)`.",
             wrong={"thought that the sine is invertible": False}),
    ])  # fmt: skip

EXERCISES = (ROTATION, SINE)
