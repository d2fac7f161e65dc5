"""Looking things up: what queries, keys and values add to raw dot products, and what a synthesizer lacks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, IntervalAt, Number, Part, Truth, verdict
from octavo.ops.attention import attention_weights, synthesizer
from octavo.pages.figures.bars import bars

Array = NDArray[np.float64]
PAIRS = 8  # keys and values of the lookup task
TESTED = 20_000


def attended(q_TK: Array, k_SK: Array, v_SV: Array) -> Array:
    """Attention with plain dot products as scores, by octavo's weights."""
    q, k = (torch.from_numpy(np.ascontiguousarray(x))[None, None] for x in (q_TK, k_SK))
    found: Array = attention_weights(q, k, scale=1.0)[0, 0].numpy() @ v_SV
    return found


def tokens(b: float, c_times: float = 0.0, d_times: float = 0.0) -> tuple[Array, Array]:
    """u_a .. u_d of length b, and the three tokens x_1 = u_d + u_b, x_2 = u_a + ..., x_3 = u_c + u_b."""
    u = b * np.eye(4)
    return u, np.stack([u[3] + u[1], u[0] + c_times * u[2] + d_times * u[3], u[2] + u[1]])


def what_c2_is() -> Finding:
    u, x = tokens(5.0)
    c2 = attended(x, x, x)[1]
    options = {"u_a": u[0], "u_b": u[1], "mean": x.mean(0), "x_1": x[0]}
    nearest = min(options, key=lambda name: float(np.linalg.norm(options[name] - c2)))
    return Finding(
        nearest,
        f"length 5: the distance of c_2 to it is {np.linalg.norm(options[nearest] - c2):.0e}",
        "the nearest one",
    )


def own_weight() -> Finding:
    points = []
    for b in (0.5, 1.0, 2.0):
        u, x = tokens(b)
        found = float(attended(x, x, x)[1] @ u[0]) / b**2
        points.append(IntervalAt({"b": b}, found - 1e-12, found + 1e-12))
    return Finding(points, "the share of u_a in c_2, to 1e-12")


def nearest_by_adding(b: float) -> float:
    """How near c_2 comes to u_b, in lengths, when some multiple of u_c or u_d is added to x_2."""
    tried = [tokens(b, **{name: times / 20}) for name in ("c_times", "d_times") for times in range(-400, 401)]
    return min(float(np.linalg.norm(attended(x, x, x)[1] - u[1])) / b for u, x in tried)


def adding_helps() -> Finding:
    nearest = {b: nearest_by_adding(b) for b in (1.0, 2.0, 5.0, 10.0)}
    note = "; ".join(f"length {b:g}: at best {distance:.2f} lengths away" for b, distance in nearest.items())
    return Finding(
        verdict(min(nearest.values()) < 0.1),
        "multiples from -20 to 20 of u_c and of u_d; " + note,
        "within a tenth of the length",
    )


def nearest_mean() -> Finding:
    u, x = tokens(1.0)
    shares = np.array([(i, j, 400 - i - j) for i in range(401) for j in range(401 - i)]) / 400
    return Finding(float(np.linalg.norm(shares @ x - u[1], axis=1).min()), "all weights in steps of 1/400")


def looks_at_itself() -> Finding:
    dice, holds = np.random.default_rng(1), {}
    for equal in (False, True):
        x = dice.normal(size=(500, 6, 3))
        x = x / np.linalg.norm(x, axis=-1, keepdims=True) if equal else x
        most = (x @ x.transpose(0, 2, 1)).argmax(-1)
        holds[equal] = float((most == np.arange(6)).mean())
    note = f"3,000 tokens: {holds[False]:.1%} look most at themselves; of equally long ones {holds[True]:.1%}"
    return Finding(verdict(holds[False] == 1, holds[True] == 1), note, "every token")


def with_projections(*u: Sequence[float]) -> list[list[float]]:
    """c_1 and c_2 of attention with Q = (u_d u_a' + u_c u_d')/b^2, K = I, V = (u_b u_b' - u_c u_c')/b^2."""
    u_a, u_b, u_c, u_d = (np.array(one) for one in u)
    squared = u_a @ u_a
    Q = (np.outer(u_d, u_a) + np.outer(u_c, u_d)) / squared
    V = (np.outer(u_b, u_b) - np.outer(u_c, u_c)) / squared
    x = np.stack([u_d + u_b, u_a, u_c + u_b])
    found: list[list[float]] = attended(x @ Q.T, x, x @ V.T)[:2].tolist()
    return found


def without_projections(*u: Sequence[float]) -> list[list[float]]:
    """Raw dot products: K = Q = V = I."""
    u_a, u_b, u_c, u_d = (np.array(one) for one in u)
    x = np.stack([u_d + u_b, u_a, u_c + u_b])
    found: list[list[float]] = attended(x, x, x)[:2].tolist()
    return found


def values_left_alone(*u: Sequence[float]) -> list[list[float]]:
    """The right queries, but V = I."""
    u_a, u_b, u_c, u_d = (np.array(one) for one in u)
    x = np.stack([u_d + u_b, u_a, u_c + u_b])
    Q = (np.outer(u_d, u_a) + np.outer(u_c, u_d)) / (u_a @ u_a)
    found: list[list[float]] = attended(x @ Q.T, x, x)[:2].tolist()
    return found


CASES: list[tuple[Any, ...]] = [tuple((6 * np.eye(4)).tolist()), tuple((8 * np.linalg.qr(
    np.array([[1.0, 2, 0, 1], [0, 1, 3, 1], [2, 0, 1, 1], [1, 1, 1, 4]]))[0].T).tolist())]  # fmt: skip


def wanted_outputs() -> Finding:
    wanted = [[(np.array(b) - np.array(c)).tolist(), list(b)] for _, b, c, _ in CASES]
    return Finding(wanted, "u_b - u_c and u_b themselves; attention must come within 1e-6")


def raw_figure() -> str:
    b, u = 6.0, 6 * np.eye(4)
    raw, with_them = (float(np.linalg.norm(np.array(make(*u.tolist())[1]) - u[1])) / b
                      for make in (without_projections, with_projections))  # fmt: skip
    return bars(
        [("raw", raw), ("and adding", nearest_by_adding(b)), ("any mean", nearest_mean().value),
         ("Q, K, V", with_them)],
        "How far c_2 stays from u_b, in lengths b = 6: raw dot products, with the best multiple added to x_2, the best "
        "of all means of the tokens, and with the three matrices.", 2,
    )  # fmt: skip


RAW = Exercise(
    id="raw-dot-products",
    title="What raw dot products cannot do",
    question="`u_a, u_b, u_c, u_d` are orthogonal, each of length b, a few units. The tokens are `x_1 = u_d + u_b`, "
    "`x_2 = u_a`, `x_3 = u_c + u_b`. First take queries, keys and values to be the tokens themselves, with plain dot "
    "products as scores; `c_i` is the result for token i.",
    answer="Token 2 matches only itself, so `c_2` is nearly `u_a`. Adding some of `u_d` or `u_c` to it makes it match "
    "another token, but itself still more: `1 + s^2 > s` for every s. And without a V of its own the result is a mean "
    "of tokens, of which none is `u_b` alone. Three matrices do it: `Q*u_a = u_d` and `Q*u_d = u_c` say whom to ask "
    "for, `K = I`, and V keeps `u_b` and turns `u_c` round, `V = (u_b*T(u_b) - u_c*T(u_c))/b^2`; then `c_2 = u_b` and "
    "`c_1 = u_b - u_c`, up to a share of order `exp(-b^2)`.",
    figure=raw_figure,
    parts=[
        Part("c2", "What is `c_2` close to?", Choice("u_a", {"u_a": "token 2 copies itself",
             "u_b": "what the two others have in common", "mean": "the mean of the tokens", "x_1": "the first token"}),
             "numeric", what_c2_is,
             why="Its scores are 0, `b^2` and 0, so nearly all weight is on itself, and its value is `u_a`."),
        Part("share", "Which weight has token 2 in `c_2`?", Formula("1/(1 + 2*exp(-b^2))", {"b": "positive"}),
             "numeric", own_weight, why="Two other scores are 0: `exp(b^2)/(exp(b^2) + 2)`.",
             wrong={"took b for the score": "1/(1 + 2*exp(-b))",
                    "forgot one of the other tokens": "1/(1 + exp(-b^2))"}),
        Part("adding", "Adding a suitable multiple of `u_c` or `u_d` to `x_2` brings `c_2` close to `u_b`.",
             Truth("false"), "numeric", adding_helps,
             why="With `x_2 = u_a + s*u_d` the scores are `s*b^2`, `(1 + s^2)*b^2` and 0. The second is the largest by "
             "at least `3*b^2/4`, whatever s is.",
             wrong={"saw that it matches another token more, not that it matches itself more still": True}),
        Part("mean", "Take any attention weights at all. How near to `u_b`, in units of b, can a mean of the tokens "
             "come?", Number("sqrt(2/5)"), "numeric", nearest_mean,
             why="With weights w, `1 - 2*w` and w the squared distance is `2*(1 - 2*w)^2 + 2*w^2` in units of `b^2`: "
             "least at w = 2/5, where a fifth of token 2 shortens what is left of `u_c` and `u_d`.",
             wrong={"gave token 2 no weight": "1/sqrt(2)", "thought the other vectors cancel": 0,
                    "looked at one token only": 1}),
        Part("itself", "With raw dot products every token looks most at itself.",
             Truth("nearly", only_if="all tokens are equally long"), "numeric", looks_at_itself,
             why="`dot(x, y) <= norm(x)*norm(y)` is at most `norm(x)^2` when y is no longer than x; a longer y can "
             "win.", wrong={"forgot that a longer token has a larger product": True}),
        Part("projections", "Write a function that builds Q, K and V from the four vectors and returns attention's "
             "`c_1` and `c_2`, close to `u_b - u_c` and `u_b`.", Function("outputs", with_projections, CASES,
             "outputs(u_a, u_b, u_c, u_d: lists of 4 numbers) -> list of 2 lists of 4 numbers", rel=0, abs=1e-6),
             "numeric", wanted_outputs,
             why="`Q*x_2 = u_d` matches `x_1` alone, and V makes it `u_b`; `Q*x_1 = u_c` matches `x_3` alone, and V "
             "makes it `u_b - u_c`.", wrong={"raw dot products": without_projections, "left V out": values_left_alone}),
    ],
)  # fmt: skip


def synthesizer_ignores() -> Finding:
    torch.manual_seed(0)
    x_TD, W1, W2 = (torch.randn(*size, dtype=torch.float64) for size in ((6, 4), (4, 4), (6, 4)))
    keyed, synthetic = [], []
    for s in range(5):  # token s, as the last query sees it

        def last_row(x_D: Tensor, s: int = s) -> tuple[Tensor, Tensor]:
            x = torch.cat([x_TD[:s], x_D[None], x_TD[s + 1 :]])
            logits = synthesizer.dense_logits((x @ W1)[None, None], W2[None])
            return attention_weights(x[None, None], x[None, None])[0, 0, -1], synthesizer.synthesizer_weights(logits)[
                0, 0, -1
            ]

        by_keys, by_places = torch.autograd.functional.jacobian(last_row, x_TD[s])
        keyed.append(float(by_keys.abs().max()))
        synthetic.append(float(by_places.abs().max()))
    note = f"largest derivative by another token: {max(synthetic)} in the synthesizer, {max(keyed):.2f} with keys"
    return Finding(verdict(max(synthetic) > 0), note, "exactly 0")


def best_guess() -> Finding:
    points = []
    for n in (2, 3, 4):
        seen: dict[tuple[int, ...], Counter[int]] = {}
        for values in permutations(range(n)):  # value of key 0, which is asked for, at every place
            for place in range(n):
                seen.setdefault(values, Counter())[values[place]] += 1
        right = sum(max(counter.values()) for counter in seen.values())
        exact = Fraction(right, sum(sum(counter.values()) for counter in seen.values()))
        points.append(IntervalAt({"n": n}, float(exact), float(exact)))
    return Finding(points, "every arrangement of 2, 3 and 4 pairs, and for each list of values the best answer to it")


def lookup_batch(size: int, dice: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys and values of PAIRS pairs in random order, the key asked for, and its value."""
    keys_BS, values_BS = (torch.rand(size, PAIRS, generator=dice).argsort(-1) for _ in range(2))
    asked_B = torch.randint(PAIRS, (size,), generator=dice)
    return keys_BS, values_BS, asked_B, values_BS[keys_BS == asked_B[:, None]]


def lookup_weights(kind: str, parts: list[Tensor], keys_BS: Tensor, asked_B: Tensor) -> Tensor:
    asked_B1TK = parts[0][asked_B][:, None, None]
    if kind == "keys":
        return attention_weights(asked_B1TK, parts[1][keys_BS][:, None])[:, 0, 0]
    return synthesizer.synthesizer_weights(synthesizer.dense_logits(asked_B1TK, parts[1][None]))[:, 0, 0]


def trained_accuracy(kind: str, steps: int) -> float:
    """How often one trained layer, whose values carry the values only, finds the right one."""
    dice = torch.Generator().manual_seed(3)
    parts = [torch.randn(PAIRS, 16, generator=dice).requires_grad_() for _ in range(2)]
    optimizer = torch.optim.Adam(parts, lr=0.05)
    for _ in range(steps):
        keys_BS, values_BS, asked_B, right_B = lookup_batch(256, dice)
        y_BV = (lookup_weights(kind, parts, keys_BS, asked_B)[..., None] * F.one_hot(values_BS, PAIRS)).sum(1)
        loss = -(y_BV.gather(1, right_B[:, None]) + 1e-9).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        keys_BS, values_BS, asked_B, right_B = lookup_batch(TESTED, dice)
        chosen_B1 = lookup_weights(kind, parts, keys_BS, asked_B).argmax(-1, keepdim=True)
        return float((values_BS.gather(1, chosen_B1)[:, 0] == right_B).float().mean())


def beats_guessing(steps: int = 150) -> Finding:
    keyed, synthetic = (trained_accuracy(kind, steps) for kind in ("keys", "synthesizer"))
    error = 4 * math.sqrt(1 / PAIRS * (1 - 1 / PAIRS) / TESTED)
    note = (
        f"{steps} steps, then {TESTED:,} new questions: synthesizer {synthetic:.1%}, attention with keys "
        f"{keyed:.1%}; the best guess is {1 / PAIRS:.1%}, give or take {error:.1%} (4 standard "
        "errors)"
    )
    return Finding(verdict(synthetic > 1 / PAIRS + error or keyed < 0.95), note, "4 standard errors; 95 % with keys")


def head_for_each_key(size: int = 2000) -> float:
    """The share of lookups that a synthesizer gets right whose head h shows only key h's value, if h is asked for."""
    keys_BS, values_BS, asked_B, right_B = lookup_batch(size, torch.Generator().manual_seed(4))
    mine_BHS = keys_BS[:, None] == torch.arange(PAIRS)[:, None]
    v_BHSV = mine_BHS[..., None] * F.one_hot(values_BS, PAIRS)[:, None].double()
    v_BHSV = F.pad(v_BHSV, (0, 0, 0, 1))  # the question itself stands last and has nothing to show
    asked_BH = asked_B[:, None] == torch.arange(PAIRS)
    own = torch.where(asked_BH, -1e4, 1e4)[..., None, None].double()
    logits_BHTS = torch.cat([torch.zeros(size, PAIRS, 1, PAIRS, dtype=torch.float64), own], -1)
    y_BV = synthesizer.synthesize(logits_BHTS, v_BHSV).sum(1)[:, 0]
    return float((y_BV.argmax(-1) == right_B).double().mean())


def cannot_look_up() -> Finding:
    points = best_guess().value
    guess = all(math.isclose(at.low, 1 / at.values["n"]) for at in points)
    built = head_for_each_key()
    note = (
        f"built by hand, {PAIRS} heads for {PAIRS} keys answer {built:.1%} right; without keys in the values only 1/n"
    )
    return Finding(verdict(built < 1, guess), note, "every lookup")


SYNTHESIZER = Exercise(
    id="synthesizer-lookup",
    title="Why a synthesizer cannot look things up",
    question="n pairs of a key and a value stand in random order, keys and values each a random permutation. A "
    "question names a key; its value is wanted. A synthesizer's weights come from the asking token and the places "
    "alone: `a_t = softmax(W_2*relu(W_1*x_t))`.",
    answer="The weights do not depend on the keys, so the derivative by any other token is exactly zero, and the place "
    "that is looked at is the same wherever the key stands. If the values carry nothing of the keys, no rule does "
    "better than 1/n. The words 'cannot look up' are too strong, though: let head h show only the value of key h, and "
    "let every head but that of the key asked for look at the question itself. One layer then looks everything up, "
    "with a head for each key; attention needs one head for any number of keys.",
    figure=lambda: bars(
     [("best guess", 100 / PAIRS), ("synthesizer", 100 * trained_accuracy("synthesizer", 150)),
      ("with keys", 100 * trained_accuracy("keys", 150)), ("a head a key", 100 * head_for_each_key())],
     "Lookups answered right, in percent: 8 pairs, one layer.", 1),
    parts=[
        Part("changes", "In a synthesizer the attention weights of token t change when another token changes.",
             Truth("false"), "autograd", synthesizer_ignores,
             why="The logits of row t are a function of `x_t` only, so `d(a_t, x_s) = 0`.",
             wrong={"took a synthesizer's weights for products of queries and keys": True}),
        Part("guess", "The values carry nothing of the keys. How often is the best possible answer right?",
             Formula("1/n", {"n": "whole"}), "exact", best_guess,
             why="All n values are seen, each equally likely to be the one under the key.",
             wrong={"thought one place can be ruled out": "1/(n - 1)", "guessed both key and value": "1/n^2"}),
        Part("trained", "Trained on it with 8 pairs, such a synthesizer layer does better than the best guess.",
             Truth("false"), "trained", beats_guessing, full=lambda: beats_guessing(2000),
             why="Whatever is learnt, the place looked at is independent of where the key stands.",
             wrong={"thought that training finds what the weights cannot see": True}),
        Part("cannot", "One synthesizer layer cannot look things up.", Truth("nearly",
             only_if="its values carry nothing of the keys, or it has too few heads to give each key one"), "numeric",
             cannot_look_up,
             why="Key and value can meet in `W_v*x_s`; then only the choice of the head must depend on the question, "
             "which a synthesizer can do.", wrong={"forgot that values may carry their keys": True}),
    ],
)  # fmt: skip

EXERCISES = (RAW, SYNTHESIZER)
