"""The sinusoidal encoding as a function, and what several heads can do that one cannot."""

from __future__ import annotations

import math

import mpmath
import torch
from torch import Tensor

from octavo.exercises import Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import normal, tabulated
from octavo.ops.attention.multi_head import Heads, concatenated
from octavo.ops.positions import frequencies, sinusoids
from octavo.pages.figures.shaded_cells import shaded_matrices

BASE = 10_000


def encoding(position: int, d: int) -> list[float]:
    """Sines at even and cosines at odd entries; entries 2i and 2i + 1 share the frequency BASE^(-2i/d)."""
    angles = [position / BASE ** (2 * (j // 2) / d) for j in range(d)]
    return [math.sin(x) if j % 2 == 0 else math.cos(x) for j, x in enumerate(angles)]


def _halves(position: int, d: int) -> list[float]:
    pairs = encoding(position, d)
    return pairs[::2] + pairs[1::2]


def _own_frequencies(position: int, d: int) -> list[float]:
    return [(math.sin if j % 2 == 0 else math.cos)(position / BASE ** (2 * j / d)) for j in range(d)]


ENTRY = (3, 4)  # position and width of one question
CASES = [(0, 4), (3, 4), (17, 6), (250, 8)]


def library_encoding(position: int, d: int) -> list[float]:
    row: list[float] = sinusoids(torch.tensor([position]), d, dtype=torch.float64)[0].tolist()
    return row


def library_encodings() -> Finding:
    return Finding([library_encoding(*case) for case in CASES], "octavo's sinusoids, for four positions and widths")


@tabulated("d", [(4,), (8,), (128,)], "from the smallest of octavo's frequencies", rel=1e-9)
def wavelength(d: int) -> float:
    return float(2 * math.pi / frequencies(d, BASE).min().double())


ENCODING = Exercise(
    id="position-encoding", title="The sinusoidal encoding of positions",
    where={"base": BASE, "place": ENTRY[0], "width": ENTRY[1],
           "ratio": lambda d, base: 1 / mpmath.mpf(base) ** (mpmath.mpf(2) / d), "shortest": lambda: 2 * math.pi,
           "longest": lambda base: 2 * math.pi * base},
    question="The encoding of a position has d entries, in pairs with frequencies w: the sine of w times the position, "
    "then its cosine. The first pair has frequency one, and each further pair has `10000^(-2/d)`{ratio} times that of "
    "the one before. It is added to the embedding of the token.",
    answer="Each pair of entries is a clock hand with its own wavelength, from `2*pi`{shortest} positions for the "
    "first pair to `2*pi*10000^((d-2)/d)`{wavelength} for the last, nearly `2*pi*10000`{longest}. Without something "
    "of this kind a transformer without a mask could not tell one order of its tokens from another.",
    parts=[
        Part("function", "Write a function that returns the encoding of a position as a list of d numbers.",
             Function("encoding", encoding, CASES, "encoding(position: integer, d: even integer) -> list of d numbers"),
             "numeric", library_encodings, why="The two entries of a pair share one frequency.",
             wrong={"put all sines before all cosines": _halves, "gave every entry a frequency of its own":
                    _own_frequencies}),
        Part("entry",
             "With 4{width} entries, what is the sine of the second pair at position 3{place}?",
             Number("sin(3/100)"), "numeric",
             lambda: Finding(library_encoding(*ENTRY)[2], "octavo's sinusoids"),
             why="The frequency of the second pair is `10000^(-1/2) = 1/100`.",
             wrong={"forgot the root": ("sin(3/10000)", lambda: math.sin(ENTRY[0] / BASE)),
                    "used the cosine": ("cos(3/100)", lambda: library_encoding(*ENTRY)[3])}),
        Part("wavelength", "How long is the longest wavelength, in positions?", Formula("2*pi*10000^((d-2)/d)",
             {"d": "whole"}), "numeric",
             wavelength, why="The last pair has the exponent `(d - 2)/d`{1 - 2/d}: one pair less than d entries.",
             wrong={"counted one pair too many": ("2*pi*10000", lambda: 2 * mpmath.pi * BASE),
                    "left out the full turn":
                    ("10000^((d-2)/d)", lambda d: mpmath.mpf(BASE) ** (mpmath.mpf(d - 2) / d))}),
    ])  # fmt: skip


D = 8


def swap_effect(heads: int) -> float:
    """How much the output of token 0 changes when tokens 1 and 2, which it attends to equally, are swapped.

    With one head it attends to both with weight 1/2; with two heads the first attends to token 1, the second to 2.
    """
    value_DD, x_ND = normal(D, D, seed=7), normal(3, D, seed=8)
    weights = torch.tensor([[0.0, 0.5, 0.5]] if heads == 1 else [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)

    def output(x: Tensor) -> Tensor:
        v_HNK = (x @ value_DD.T).unflatten(-1, (heads, -1)).transpose(0, 1)
        return torch.einsum("hn,hnk->hk", weights, v_HNK).flatten()

    return float((output(x_ND) - output(x_ND[[0, 2, 1]])).abs().max())


def swap(heads: int) -> Finding:
    change = swap_effect(heads)
    return Finding(verdict(change > 1e-12), f"swapping the two tokens changes the output by {change:.2g}", "to 1e-12")


def finds_previous() -> Finding:
    positions = sinusoids(torch.arange(31), 32, dtype=torch.float64)
    scores_TS = 20 * positions[:-1] @ positions.T  # query of token t + 1: the encoding of t, a rotation of its own
    weights_TS = scores_TS.softmax(-1)
    hits = int((weights_TS.argmax(-1) == torch.arange(30)).sum())
    note = f"30 tokens, sinusoids of width 32: the largest weight is on the previous token for {hits} of them"
    return Finding(verdict(hits == 30), note, "exact")


def finds_same() -> Finding:
    embedding_VD = torch.linalg.qr(normal(16, 16))[0]
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    x_ND = 6 * embedding_VD[tokens]
    eye = torch.eye(16, dtype=torch.float64)
    layer = Heads(1, eye, eye, eye, eye)
    y_ND = concatenated(x_ND[None], layer)[0] / 6
    share = (y_ND @ embedding_VD.T).gather(1, torch.tensor(tokens)[:, None])
    note = f"ten tokens, some repeated: at least {float(share.min()):.4f} of the weight is on equal tokens"
    return Finding(verdict(bool((share > 0.99).all())), note, "above 0.99")


def pattern_figure() -> str:
    positions = sinusoids(torch.arange(9), 32, dtype=torch.float64)
    previous = (20 * positions[:-1] @ positions.T).softmax(-1)
    tokens = torch.tensor([3, 1, 4, 1, 5, 3, 2, 1, 5])
    same = (10.0 * (tokens[:, None] == tokens[None]).double()).softmax(-1)
    return shaded_matrices([("previous token", previous), ("equal tokens", same)],
        "Two attention matrices that heads can form: by position, and by content. Rows are queries.")  # fmt: skip


SEVERAL = Exercise(
    id="several-heads", title="What several heads can do that one cannot", figure=pattern_figure, where={},
    question="A token should read two other tokens at once, such as the subject and the object of its verb. One head "
    "gives both the same weight; with two heads each head attends to one of them.",
    answer="One head returns the mean of the two values, which does not say which token was which. Two heads write "
    "to different entries of the output, so that the roles remain distinct. Heads form such patterns by position "
    "(the previous token) or by content (equal tokens, a verb and its subject, a word and its translation).",
    parts=[
        Part("swap-one", "One head with equal weights: swapping the two tokens changes the output.", Truth("false"),
             "numeric", lambda: swap(1), why="A mean does not depend on the order of its terms.",
             wrong={"thought that the value matrix distinguishes them": True}),
        Part("swap-two", "Two heads, one for each token: swapping the two tokens changes the output.", Truth("true"),
             "numeric", lambda: swap(2), why="Each token now writes to other entries of the output.",
             wrong={"thought that concatenation is a mean as well": False}),
        Part("previous", "With sinusoidal positions, a head can attend to the previous token, whatever the tokens are.",
             Truth("true"), "numeric", finds_previous,
             why="A shift by one is a rotation, which the query matrix can contain; the dot product is then largest "
             "for the previous position.", wrong={"thought that a head only compares contents": False}),
        Part("same-token", "A head can attend to the tokens equal to its own.", Truth("true"), "numeric", finds_same,
             why="With queries and keys equal to the embeddings, the dot product of equal tokens is largest, if the "
             "embeddings are long enough.", wrong={"thought that a head only compares positions": False}),
    ])  # fmt: skip

EXERCISES = (ENCODING, SEVERAL)
