"""Key-value lookup: what query, key and value projections add to raw dot products, and what a synthesizer lacks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import share_error, tabulated
from octavo.ops.attention import attention_weights, synthesizer
from octavo.pages.figures.charts import bars

Array = NDArray[np.float64]
PAIRS = 8  # key-value pairs of the lookup task
TEST_QUESTIONS = 20_000


def attend_unscaled(q_TK: Array, k_SK: Array, v_SV: Array) -> Array:
    """Attention with unscaled dot products as scores, by octavo's attention weights."""
    q, k = (torch.from_numpy(np.ascontiguousarray(x))[None, None] for x in (q_TK, k_SK))
    output: Array = attention_weights(q, k, scale=1.0)[0, 0].numpy() @ v_SV
    return output


def tokens(b: float, c_times: float = 0.0, d_times: float = 0.0) -> tuple[Array, Array]:
    """u_a to u_d of norm b, and the three tokens x_1 = u_d + u_b, x_2 = u_a + ..., x_3 = u_c + u_b."""
    u = b * np.eye(4)
    return u, np.stack([u[3] + u[1], u[0] + c_times * u[2] + d_times * u[3], u[2] + u[1]])


def what_c2_is() -> Finding:
    u, x = tokens(5.0)
    c2 = attend_unscaled(x, x, x)[1]
    options = {"u_a": u[0], "u_b": u[1], "mean": x.mean(0), "x_1": x[0]}
    nearest = min(options, key=lambda name: float(np.linalg.norm(options[name] - c2)))
    note = f"norm 5: its distance from c_2 is {np.linalg.norm(options[nearest] - c2):.0e}"
    return Finding(nearest, note, "the nearest one")


@tabulated("b", [(0.5,), (1.0,), (2.0,)], "the weight of u_a in c_2, to 1e-12", abs=1e-12)
def own_weight(b: float) -> float:
    u, x = tokens(b)
    return float(attend_unscaled(x, x, x)[1] @ u[0]) / b**2


def nearest_by_adding(b: float) -> float:
    """The smallest distance of c_2 from u_b, in units of b, when a multiple of u_c or u_d is added to x_2."""
    tried = [tokens(b, **{name: times / 20}) for name in ("c_times", "d_times") for times in range(-400, 401)]
    return min(float(np.linalg.norm(attend_unscaled(x, x, x)[1] - u[1])) / b for u, x in tried)


def adding_helps() -> Finding:
    nearest = {b: nearest_by_adding(b) for b in (1.0, 2.0, 5.0, 10.0)}
    listed = "; ".join(f"norm {b:g}: at best {distance:.2f} norms away" for b, distance in nearest.items())
    note = f"multiples from -20 to 20 of u_c and of u_d; {listed}"
    return Finding(verdict(min(nearest.values()) < 0.1), note, "within a tenth of the norm")


def nearest_mean() -> Finding:
    u, x = tokens(1.0)
    shares = np.array([(i, j, 400 - i - j) for i in range(401) for j in range(401 - i)]) / 400
    return Finding(float(np.linalg.norm(shares @ x - u[1], axis=1).min()), "all weights in steps of 1/400")


def attends_to_itself() -> Finding:
    rng, holds = np.random.default_rng(1), {}
    for equal in (False, True):
        x = rng.normal(size=(500, 6, 3))
        x = x / np.linalg.norm(x, axis=-1, keepdims=True) if equal else x
        attended = (x @ x.transpose(0, 2, 1)).argmax(-1)
        holds[equal] = float((attended == np.arange(6)).mean())
    note = f"3,000 tokens: {holds[False]:.1%} attend most to themselves; with equal norms {holds[True]:.1%}"
    return Finding(verdict(holds[False] == 1, holds[True] == 1), note, "every token")


def with_projections(*u: Sequence[float], query: bool = True, value: bool = True) -> list[list[float]]:
    """c_1 and c_2 with Q = (u_d u_a' + u_c u_d')/b^2, K = I, V = (u_b u_b' - u_c u_c')/b^2, or with Q or V = I."""
    u_a, u_b, u_c, u_d = (np.array(vector) for vector in u)
    Q, V = ((np.outer(a, b) + sign * np.outer(c, d)) / (u_a @ u_a)
            for a, b, sign, c, d in ((u_d, u_a, 1, u_c, u_d), (u_b, u_b, -1, u_c, u_c)))  # fmt: skip
    x = np.stack([u_d + u_b, u_a, u_c + u_b])
    outputs: list[list[float]] = attend_unscaled(x @ Q.T if query else x, x, x @ V.T if value else x)[:2].tolist()
    return outputs


without_projections = partial(with_projections, query=False, value=False)
without_values = partial(with_projections, value=False)
CASES: list[tuple[Any, ...]] = [tuple((6 * np.eye(4)).tolist()), tuple((8 * np.linalg.qr(
    np.array([[1.0, 2, 0, 1], [0, 1, 3, 1], [2, 0, 1, 1], [1, 1, 1, 4]]))[0].T).tolist())]  # fmt: skip


def raw_figure() -> str:
    b, u = 6.0, 6 * np.eye(4)
    raw, projected = (float(np.linalg.norm(np.array(make(*u.tolist())[1]) - u[1])) / b
                      for make in (without_projections, with_projections))  # fmt: skip
    return bars(
        [("raw", raw), ("and adding", nearest_by_adding(b)), ("any mean", nearest_mean().value),
         ("Q, K, V", projected)],
        "The distance of c_2 from u_b in units of b = 6: raw dot products, with the best multiple added to x_2, the "
        "best weighted mean of the tokens, and with the three matrices.", 2,
    )  # fmt: skip


RAW = Exercise(
    id="raw-dot-products", title="What raw dot products cannot do", figure=raw_figure,
    question="`u_a, u_b, u_c, u_d` are orthogonal, each of norm b, which is a few units. The tokens are `x_1 = u_d + "
    "u_b`, `x_2 = u_a`, `x_3 = u_c + u_b`. First, queries, keys and values are the tokens themselves, with unscaled "
    "dot products as scores; `c_i` is the output for token i.",
    answer="Token 2 attends only to itself, so `c_2` is nearly `u_a`. Adding a multiple s of `u_d` or `u_c` to it "
    "raises its score with another token, but its score with itself even more: `1 + s^2 > s` for every s. And without "
    "a value matrix the output is a weighted mean of tokens, none of which is `u_b` alone. Projections solve it: "
    "`Q*u_a = u_d` and `Q*u_d = u_c` select the token to attend to, `K = I`, and V keeps `u_b` and negates `u_c`, `V = "
    "(u_b*T(u_b) - u_c*T(u_c))/b^2`; then `c_2 = u_b` and `c_1 = u_b - u_c`, up to a weight of order `exp(-b^2)`.",
    parts=[
        Part("c2", "What is `c_2` close to?", Choice("u_a", {"u_a": "token 2 copies itself",
             "u_b": "the common part of the two others", "mean": "the mean of the tokens", "x_1": "the first token"}),
             "numeric", what_c2_is,
             why="Its scores are 0, `b^2` and 0, so nearly all weight is on itself, and its value is `u_a`."),
        Part("share", "What is the weight of token 2 in `c_2`?", Formula("1/(1 + 2*exp(-b^2))", {"b": "positive"}),
             "numeric", own_weight, why="Two other scores are 0: `exp(b^2)/(exp(b^2) + 2)`.",
             wrong={"used b as the score": "1/(1 + 2*exp(-b))", "forgot one of the other tokens": "1/(1 + exp(-b^2))"}),
        Part("adding", "Adding a suitable multiple of `u_c` or `u_d` to `x_2` brings `c_2` close to `u_b`.",
             Truth("false"), "numeric", adding_helps,
             why="With `x_2 = u_a + s*u_d` the scores are `s*b^2`, `(1 + s^2)*b^2` and 0. The second is the largest by "
             "at least `3*b^2/4`, whatever s is.", wrong={"forgot that its score with itself grows even more": True}),
        Part("mean", "With arbitrary attention weights, how close to `u_b`, in units of b, can a weighted mean of the "
             "tokens be?", Number("sqrt(2/5)"), "numeric", nearest_mean,
             why="With weights w, `1 - 2*w` and w the squared distance is `2*(1 - 2*w)^2 + 2*w^2` in units of `b^2`: "
             "smallest at w = 2/5, where a weight of 1/5 on token 2 reduces the parts along `u_c` and `u_d`.",
             wrong={"gave token 2 no weight": "1/sqrt(2)", "thought that the other vectors cancel": 0,
                    "used one token only": 1}),
        Part("itself", "With raw dot products every token attends most to itself.",
             Truth("nearly", only_if="all tokens have the same norm"), "numeric", attends_to_itself,
             why="`dot(x, y) <= norm(x)*norm(y)` is at most `norm(x)^2` if the norm of y does not exceed that of x; a "
             "longer y can have a larger score.", wrong={"forgot that a longer token has larger dot products": True}),
        Part("projections", "Write a function that builds Q, K and V from the four vectors and returns attention's "
             "`c_1` and `c_2`, close to `u_b - u_c` and `u_b`.", Function("outputs", with_projections, CASES,
             "outputs(u_a, u_b, u_c, u_d: lists of 4 numbers) -> list of 2 lists of 4 numbers", rel=0, abs=1e-6),
             "numeric", lambda: Finding([[(np.array(b) - np.array(c)).tolist(), list(b)] for _, b, c, _ in CASES],
                 "u_b - u_c and u_b themselves; attention must come within 1e-6"),
             why="`Q*x_2 = u_d` matches `x_1` alone, and V makes it `u_b`; `Q*x_1 = u_c` matches `x_3` alone, and V "
             "makes it `u_b - u_c`.",
             wrong={"used raw dot products": without_projections, "left V out": without_values}),
    ])  # fmt: skip


def synthesizer_ignores() -> Finding:
    torch.manual_seed(0)
    x_TD, W1, W2 = (torch.randn(*size, dtype=torch.float64) for size in ((6, 4), (4, 4), (6, 4)))
    keyed, synthetic = [], []
    for s in range(5):  # derivative of the last row of the weights with respect to token s

        def last_row(x_D: Tensor, s: int = s) -> tuple[Tensor, Tensor]:
            x = torch.cat([x_TD[:s], x_D[None], x_TD[s + 1 :]])
            logits = synthesizer.dense_logits((x @ W1)[None, None], W2[None])
            return attention_weights(x[None, None], x[None, None])[0, 0, -1], synthesizer.synthesizer_weights(logits)[
                0, 0, -1
            ]

        by_keys, by_positions = torch.autograd.functional.jacobian(last_row, x_TD[s])
        keyed.append(float(by_keys.abs().max()))
        synthetic.append(float(by_positions.abs().max()))
    note = (
        f"largest derivative with respect to another token: {max(synthetic)} in the synthesizer, {max(keyed):.2f} "
        "with keys"
    )
    return Finding(verdict(max(synthetic) > 0), note, "exactly 0")


@tabulated("n", [(2,), (3,), (4,)],
    "every arrangement of 2, 3 and 4 pairs, and the best answer for each list of values")  # fmt: skip
def best_guess(n: int) -> float:
    answers: dict[tuple[int, ...], Counter[int]] = {}
    for values in permutations(range(n)):  # the requested key may be at every position
        for position in range(n):
            answers.setdefault(values, Counter())[values[position]] += 1
    right = sum(max(counter.values()) for counter in answers.values())
    return float(Fraction(right, sum(counter.total() for counter in answers.values())))


def lookup_batch(size: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys and values of PAIRS pairs in random order, the requested key, and its value."""
    keys_BS, values_BS = (torch.rand(size, PAIRS, generator=rng).argsort(-1) for _ in range(2))
    asked_B = torch.randint(PAIRS, (size,), generator=rng)
    return keys_BS, values_BS, asked_B, values_BS[keys_BS == asked_B[:, None]]


def lookup_weights(kind: str, parts: list[Tensor], keys_BS: Tensor, asked_B: Tensor) -> Tensor:
    asked_B1TK = parts[0][asked_B][:, None, None]
    if kind == "keys":
        return attention_weights(asked_B1TK, parts[1][keys_BS][:, None])[:, 0, 0]
    return synthesizer.synthesizer_weights(synthesizer.dense_logits(asked_B1TK, parts[1][None]))[:, 0, 0]


def trained_accuracy(kind: str, steps: int) -> float:
    """The accuracy of one trained layer whose values do not contain the keys."""
    rng = torch.Generator().manual_seed(3)
    parts = [torch.randn(PAIRS, 16, generator=rng).requires_grad_() for _ in range(2)]
    optimizer = torch.optim.Adam(parts, lr=0.05)
    for _ in range(steps):
        keys_BS, values_BS, asked_B, right_B = lookup_batch(256, rng)
        y_BV = (lookup_weights(kind, parts, keys_BS, asked_B)[..., None] * F.one_hot(values_BS, PAIRS)).sum(1)
        loss = -(y_BV.gather(1, right_B[:, None]) + 1e-9).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        keys_BS, values_BS, asked_B, right_B = lookup_batch(TEST_QUESTIONS, rng)
        chosen_B1 = lookup_weights(kind, parts, keys_BS, asked_B).argmax(-1, keepdim=True)
        return float((values_BS.gather(1, chosen_B1)[:, 0] == right_B).float().mean())


def beats_guessing(steps: int = 150) -> Finding:
    keyed, synthetic = (trained_accuracy(kind, steps) for kind in ("keys", "synthesizer"))
    error = share_error(1 / PAIRS, TEST_QUESTIONS, 4)
    note = (
        f"{steps} steps, then {TEST_QUESTIONS:,} new questions: synthesizer {synthetic:.1%}, attention with keys "
        f"{keyed:.1%}; the best guess has {1 / PAIRS:.1%} ± {error:.1%} (4 standard errors)"
    )
    return Finding(verdict(synthetic > 1 / PAIRS + error or keyed < 0.95), note, "4 standard errors; 95 % with keys")


def head_per_key_accuracy(size: int = 2000) -> float:
    """The accuracy of a synthesizer whose head h outputs only the value of key h, and only if h is requested."""
    keys_BS, values_BS, asked_B, right_B = lookup_batch(size, torch.Generator().manual_seed(4))
    own_BHS = keys_BS[:, None] == torch.arange(PAIRS)[:, None]
    v_BHSV = own_BHS[..., None] * F.one_hot(values_BS, PAIRS)[:, None].double()
    v_BHSV = F.pad(v_BHSV, (0, 0, 0, 1))  # the question itself is last, and its value is zero
    asked_BH = asked_B[:, None] == torch.arange(PAIRS)
    question = torch.where(asked_BH, -1e4, 1e4)[..., None, None].double()
    logits_BHTS = torch.cat([torch.zeros(size, PAIRS, 1, PAIRS, dtype=torch.float64), question], -1)
    y_BV = synthesizer.synthesize(logits_BHTS, v_BHSV).sum(1)[:, 0]
    return float((y_BV.argmax(-1) == right_B).double().mean())


def cannot_look_up() -> Finding:
    points = best_guess().value
    guess = all(math.isclose(at.low, 1 / at.values["n"]) for at in points)
    built = head_per_key_accuracy()
    note = (
        f"constructed by hand, {PAIRS} heads for {PAIRS} keys have {built:.1%} accuracy; without keys in the values "
        "only 1/n"
    )
    return Finding(verdict(built < 1, guess), note, "all lookups")


SYNTHESIZER = Exercise(
    id="synthesizer-lookup", title="Why a synthesizer cannot look up values by key",
    question="There are n key-value pairs in random order; keys and values are each a random permutation. A question "
    "names a key and asks for its value. A synthesizer computes attention weights from the querying token and the "
    "positions only: `a_t = softmax(W_2*relu(W_1*x_t))`.",
    answer="The attention weights do not depend on the keys, so their derivative with respect to any other token is "
    "exactly zero, and the position attended to does not depend on where the key is. If the values contain no "
    "information about the keys, no rule has an accuracy above 1/n. But 'cannot look up' is too strong: let head h "
    "output only the value of key h, and let every head except that of the requested key attend to the question "
    "itself. Then one layer answers every lookup, with one head per key; attention needs one head for any number of "
    "keys.",
    figure=lambda: bars([("best guess", 100 / PAIRS), ("synthesizer", 100 * trained_accuracy("synthesizer", 150)),
        ("with keys", 100 * trained_accuracy("keys", 150)), ("one head per key", 100 * head_per_key_accuracy())],
        "Accuracy of lookups in percent: 8 pairs, one layer.", 1),
    parts=[
        Part("changes", "In a synthesizer the attention weights of token t change when another token changes.",
             Truth("false"), "autograd", synthesizer_ignores,
             why="The logits of row t are a function of `x_t` only, so `d(a_t, x_s) = 0`.",
             wrong={"thought that a synthesizer computes dot products of queries and keys": True}),
        Part("guess", "The values contain no information about the keys. What is the best possible accuracy?",
             Formula("1/n", {"n": "whole"}), "exact", best_guess,
             why="All n values are visible, and each is equally likely to belong to the key.",
             wrong={"thought that one position can be ruled out": "1/(n - 1)", "guessed both key and value": "1/n^2"}),
        Part("trained", "Trained on 8 pairs, such a synthesizer layer does better than guessing.", Truth("false"),
             "trained", beats_guessing, full=lambda: beats_guessing(2000),
             why="Whatever is learnt, the position attended to is independent of the position of the key.",
             wrong={"thought that training finds what the weights cannot express": True}),
        Part("cannot", "One synthesizer layer cannot look up values by key.", Truth("nearly",
             only_if="its values contain no information about the keys, or it has fewer heads than keys"), "numeric",
             cannot_look_up,
             why="`W_v*x_s` can combine key and value; then only the choice of the head must depend on the question, "
             "which a synthesizer can do.", wrong={"forgot that values may contain their keys": True}),
    ])  # fmt: skip

EXERCISES = (RAW, SYNTHESIZER)
