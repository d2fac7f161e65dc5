"""Greedy decoding against the most probable text, for tables of two tokens that can be solved exactly."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import sympy
import torch
from numpy.typing import NDArray

from octavo.decode import Exact, Greedy, exact_search, generate
from octavo.exercises import Exercise, Finding, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import share_error
from octavo.models.ngram import NGram, NGramConfig
from octavo.pages.figures.charts import Series, lines

DRAWS = 2_000_000


def table_model(rows: dict[str, int]) -> NGram:
    """octavo's bigram model of two-token texts over 0 and 1 with these counts."""
    texts = [[2, int(text[0]), int(text[1])] for text, count in rows.items() for _ in range(count)]
    return NGram.fit(torch.tensor(texts, dtype=torch.int32).flatten(), NGramConfig(order=2, estimator="mle"), 3)


GREEDY_FAILS, GREEDY_SUCCEEDS = {"00": 3, "01": 2, "11": 4}, {"00": 5, "01": 1, "10": 1, "11": 2}


def decode_both(rows: dict[str, int]) -> tuple[str, str]:
    """The texts of greedy decoding and of exact search."""
    model = table_model(rows)
    greedy = generate(model, [torch.tensor([], dtype=torch.long)], 2, Greedy())[0].tolist()
    best = exact_search(model, [], 2, Exact()).tokens.tolist()
    return "".join(map(str, greedy)), "".join(map(str, best))


def letters(text: str) -> str:
    """A text of the tokens 0 and 1, which the exercise calls a and b."""
    return text.translate(str.maketrans("01", "ab"))


def probability_of(which: int) -> Finding:
    texts = decode_both(GREEDY_FAILS)
    note = "octavo's decoders: greedy {}, exact search {}".format(*map(letters, texts))
    return Finding(float(Fraction(GREEDY_FAILS[texts[which]], 9)), note)


def finds_best() -> Finding:
    greedy, best = decode_both(GREEDY_SUCCEEDS)
    note = f"octavo's decoders: greedy {letters(greedy)}, exact search {letters(best)}"
    return Finding(verdict(greedy == best), note)


def safe_first() -> Finding:
    """The largest probability of the first token at which greedy decoding fails for some table."""
    a = np.linspace(0.5, 1, 501)
    failing = [p for p in np.linspace(0.5, 1, 3001) if ((1 - p) * a[None] > p * a[:, None] + 1e-12).any()]
    return Finding(max(failing) + (0.5 / 3000), "3,001 values of p with 501 x 501 tables each; half a step is added")


def failing_integral(joint: bool) -> float:
    """The probability that greedy fails, integrated over the larger second probabilities x, y, then over p > 1/2."""
    half = sympy.Rational(1, 2)
    p, r, x, y = sympy.symbols("p r x y", positive=True)
    below = sympy.integrate(sympy.Integer(1), (x, half, r * y))  # x < r y, r = (1 - p)/p
    given = 4 * sympy.integrate(below, (y, 1 / (2 * r), 1)).subs(r, (1 - p) / p)
    density = 6 * p * (1 - p) if joint else sympy.Integer(1)  # by symmetry the half above 1/2 counts twice
    return float(sympy.integrate(sympy.expand(sympy.simplify(2 * density * given)), (p, half, sympy.Rational(2, 3))))


def random_tables(joint: bool) -> NDArray[np.float64]:
    """The joint probabilities p(x, y) of DRAWS random tables."""
    rng = np.random.default_rng(3)
    if joint:
        return rng.dirichlet(np.ones(4), DRAWS).reshape(-1, 2, 2)
    p, a, b = rng.random((3, DRAWS))
    return np.stack([np.stack([p * a, p * (1 - a)], 1), np.stack([(1 - p) * b, (1 - p) * (1 - b)], 1)], 1)


def failure_rate(joint: bool) -> Finding:
    exact, cells = failing_integral(joint), random_tables(joint)
    greedy = cells.max(2)[np.arange(DRAWS), cells.sum(2).argmax(1)]
    share = float((greedy < cells.max((1, 2))).mean())
    error = share_error(share, DRAWS, 4)
    note = f"the integral is {exact:.7f}; {DRAWS:,} random tables give {share:.5f} ± {error:.5f} (4 standard errors)"
    return Finding(exact if abs(exact - share) <= error else share, note)


GREEDY = Exercise(
    id="greedy-or-best", title="Greedy decoding and the most probable text",
    where={"texts": sum(GREEDY_FAILS.values()), "first": 5 / sum(GREEDY_FAILS.values()), "second": 3 / (3 + 2),
           "last": GREEDY_FAILS["11"], "first_2": (5 + 1) / 9, "second_2": 5 / (5 + 1), "best_2": 5 / 9,
           "p": (0.52, 0.55, 0.6, 0.64), "half": lambda p: p * 0.5, "rest": lambda p: 1 - p, "r": lambda p:
               1 / mpmath.mpf(p) - 1,
           "fails": lambda r: 4 * mpmath.quad(lambda y: r * y - 0.5, [1 / (2 * r), 1]),
           "density": lambda p: p * (1 - p) / mpmath.beta(2, 2)},
    question="Texts of two tokens, each a or b. Greedy decoding picks the more probable first token, then the more "
    "probable second. First table: of 9{texts} texts, aa three times, ab twice, bb four times.",
    answer="In the first table greedy starts with a (5/9{first}) and writes aa with probability 3/9{greedy}, while bb "
    "has 4/9{best}: a probable first token may have its probability spread over many continuations. With two tokens "
    "this cannot happen if the first token has probability 2/3{safe} or more. If p(a) and both conditionals are "
    "independent and uniform, greedy fails with probability `ln(128/27) - 3/2 = 0.0562`. If instead the probabilities "
    "of the four texts are uniform on the simplex, it fails with probability 1/12{joint}.",
    figure=lambda: lines([Series("greedy fails",
        [(p / 300, max(0.0, 2 * (300 - p) / p + p / (2 * (300 - p)) - 2) if p < 200 else 0.0)
        for p in range(150, 241)])], "Tables of two tokens with uniform conditionals: the probability that greedy "
        "fails, by the probability of its first token.",
        ("probability of the likelier first token", "probability of failure")),
    parts=[
        Part("greedy", "First table: what is the probability of the greedy text?", Number("1/3"), "exact",
             lambda: probability_of(0), why="It picks a with 5/9{first}, then a with 3/5{second}: the product is "
                  "3/9{}.",
             wrong={"gave that of the best text": ("4/9", lambda: max(GREEDY_FAILS.values()) / 9),
                    "stopped at the first token": ("5/9", lambda: (GREEDY_FAILS["00"] + GREEDY_FAILS["01"]) / 9)}),
        Part("best", "First table: what is the probability of the most probable text?", Number("4/9"), "exact",
             lambda: probability_of(1), why="bb is 4{last} of the 9{texts} texts: b with 4/9{}, then always b.",
             wrong={"gave that of greedy": ("1/3", lambda: GREEDY_FAILS["00"] / 9),
                    "gave that of the likelier first token": ("5/9", lambda:
                        (GREEDY_FAILS["00"] + GREEDY_FAILS["01"]) / 9)}),
        Part("served", "Second table: aa five times, ab and ba once each, bb twice. Greedy finds the most probable "
             "text.", Truth("true"), "exact", finds_best, why="6/9{first_2} times 5/6{second_2} is 5/9{best_2}, more "
             "than any other text.",
             wrong={"thought that greedy always fails": False}),
        Part("safe", "Above which probability of its first token is greedy always right with two tokens?",
             Number("2/3"), "numeric", safe_first,
             why="Its text has probability at least `p/2`{half}, other first tokens lead to at most `1 - p`{rest}.",
             wrong={"thought that a majority is enough": (0.5, lambda:
                 next(p / 100 for p in range(100) if p >= 100 - p)),
                    "compared with a quarter of its probability":
                        (0.8, lambda: next(p / 100 for p in range(100) if p >= 4 * (100 - p)))}),
        Part("random", "p(a), p(a | a) and p(a | b) are independent and uniform. What is the probability that greedy "
             "fails?", Number("ln(128/27) - 3/2"), "monte carlo", lambda: failure_rate(False),
             why="With the larger first probability p, `r = (1 - p)/p` and X, Y uniform from one half to one it fails "
             "if `X < r*Y`: for r above one half with probability `2*r + 1/(2*r) - 2`{fails}. Integrate over p from "
             "one half to 2/3{safe} and double the result.",
             wrong={"drew the probabilities of the four texts jointly": ("1/12", lambda: failing_integral(True)),
                    "used the worst case for p": (0.5, lambda: float(4 * mpmath.quad(lambda y: y - 0.5, [0.5, 1]))),
                    "let p be uniform only where greedy can fail":
                        (0.1685801952, lambda: failing_integral(False) / (2 * (2 / 3 - 1 / 2)))}),
        Part("joint", "The probabilities of the four texts are uniform on the simplex. What is the probability that "
             "greedy fails?", Number("1/12"), "monte carlo", lambda: failure_rate(True),
             why="Now p has density `6*p*(1 - p)`{density}, and the integrand is a polynomial.",
             wrong={"drew the conditionals uniformly": (0.0561933984, lambda: failing_integral(False))}),
    ])  # fmt: skip

EXERCISES = (GREEDY,)
