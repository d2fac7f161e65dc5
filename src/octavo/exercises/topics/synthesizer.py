"""Key-value lookup with a synthesizer, whose attention weights do not depend on the keys."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import permutations

import mpmath
import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, Part, Truth, verdict
from octavo.exercises.framework.evidence import share_error, tabulated
from octavo.ops.attention import attention_weights, synthesizer
from octavo.pages.figures.charts import bars

PAIRS = 8  # key-value pairs of the lookup task
TEST_QUESTIONS = 20_000


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
    under = {"no-keys": guess, "contained": built < 1, "many-heads": built < 1}
    return Finding(verdict(built < 1, under), note, "all lookups")


SYNTHESIZER = Exercise(
    where={"pairs": PAIRS}, id="synthesizer-lookup", title="Why a synthesizer cannot look up values by key",
    question="There are n key-value pairs in random order; keys and values are each a random permutation. A question "
    "names a key and asks for its value. A synthesizer computes attention weights from the querying token and the "
    "positions only: `a_t = softmax(W_2*relu(W_1*x_t))`.",
    answer="The attention weights do not depend on the keys, so their derivative with respect to any other token is "
    "exactly zero, and the position attended to does not depend on where the key is. If the values contain no "
    "information about the keys, no rule has an accuracy above `1/n`{guess}. But 'cannot look up' is too strong: let "
    "head h output only the value of key h, and let every head except that of the requested key attend to the "
    "question itself. Then one layer answers every lookup, with one head per key; attention needs one head for any "
    "number of keys.",
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
             wrong={"thought that one position can be ruled out": ("1/(n - 1)", lambda n: 1 / mpmath.mpf(len(range(1,
                 n)))),
                    "guessed both key and value": ("1/n^2", lambda n: mpmath.mpf(1) / n / n)}),
        Part("trained", "Trained on 8{pairs} pairs, such a synthesizer layer does better than guessing.",
            Truth("false"),
             "trained", beats_guessing, full=lambda: beats_guessing(2000),
             why="Whatever is learnt, the position attended to is independent of the position of the key.",
             wrong={"thought that training finds what the weights cannot express": True}),
        Part("cannot", "One synthesizer layer cannot look up values by key.", Truth("nearly", Choice("no-keys", {
             "contained": "its values contain their keys", "no-keys":
             "its values contain no information about the keys",
             "many-heads": "it has one head for every key"})), "numeric", cannot_look_up,
             why="`W_v*x_s` can combine key and value; then only the choice of the head must depend on the question, "
             "which a synthesizer can do.", wrong={"forgot that values may contain their keys": True}),
    ])  # fmt: skip

EXERCISES = (SYNTHESIZER,)
