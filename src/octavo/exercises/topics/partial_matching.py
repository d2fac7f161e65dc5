"""Prediction by partial matching: escapes and exclusion on a short word."""

from __future__ import annotations

from collections import Counter

import mpmath
import torch

from octavo.exercises import Exercise, Finding, Formula, Number, Part
from octavo.exercises.framework.evidence import tabulated
from octavo.models.ngram import NGram, NGramConfig
from octavo.pages.figures.charts import bars

WORD, LETTERS = "abracadabra", 256
ALPHABET = sorted(set(WORD))


def ppm(word: str = WORD, order: int = 3, exclusion: bool = True) -> NGram:
    """octavo's PPM of the word, method C; the letters that it has come first."""
    tokens = [sorted(set(word)).index(letter) for letter in word]
    x_N = torch.tensor([LETTERS, *tokens], dtype=torch.int32)
    return NGram.fit(x_N, NGramConfig(order=order, estimator="ppm", exclusion=exclusion), LETTERS + 1)


def after_ra(letter: str) -> float:
    """p of a letter after ra; one that is not in the word stands for every new one."""
    p_V = ppm()(torch.tensor([[LETTERS, ALPHABET.index("r"), ALPHABET.index("a")]]))[0, -1].exp()
    return float(p_V[ALPHABET.index(letter) if letter in ALPHABET else len(ALPHABET)])


def followers(context: str) -> Counter[str]:
    """How often each letter follows the context."""
    k = len(context)
    return Counter(WORD[i + k] for i in range(len(WORD) - k) if WORD[i : i + k] == context)


def p_of(context: str, letter: str = "", out: str = "") -> float:
    """Method C: p of a letter after the context, or without one that of the escape; `out` is excluded."""
    seen = followers(context)
    total = sum(n for one, n in seen.items() if one not in out) + len(seen)
    return (seen[letter] if letter else len(seen)) / total


@tabulated("T d", ((2, 1), (5, 3), (6, 2)), "octavo's PPM of T letters, d of them different, without context", rel=1e-9)
def escaped(t: int, d: int) -> float:
    word = "abcdefgh"[:d] + "a" * (t - d)
    p_V = ppm(word, order=1)(torch.tensor([[LETTERS]]))[0, -1].exp()
    return float(p_V[d:LETTERS].sum())


PPM = Exercise(
    id="ppm-exclusion", title="PPM: escapes and exclusion",
    question="PPM by method C has read abracadabra, with contexts of at most two letters and an alphabet of "
    "256{letters}. A letter weighs as much as the times that it was seen after the context, the escape to the next "
    "shorter context as much as the number of different letters there. The last letters were ra.",
    where={"letters": LETTERS, "rest": lambda: LETTERS - len(ALPHABET), "half": lambda: p_of("ra"),
           "three": lambda: p_of("a", out="c"), "last": lambda: p_of("", out="bcd"),
           "sixth": lambda: p_of("a", "d", "c"), "T": (5, 6, 2), "d": (3, 2, 1)},
    answer="After ra only c was seen, once, so c and the escape get `1/2`{half} each. After a there were b twice, c "
    "and d; c is excluded, the escape keeps its weight. Without exclusion a part of the probability would go to "
    "letters that would have been predicted before, and so never are.",
    figure=lambda: bars([(letter, after_ra(letter)) for letter in ALPHABET], "The next letter after abracadabra.", 4),
    parts=[
        Part("escape", "T letters were seen after a context, d of them different. What is the probability of the "
             "escape by method C?", Formula("d/(T + d)", {"T": "whole", "d": "whole"}), "exact", escaped,
             why="The letters weigh T in all, the escape d.",
             wrong={"used method A": ("1/(T + 1)", lambda T, d: mpmath.mpf(1) / (T + 1)),
                    "used method D": ("d/(2*T)", lambda T, d: mpmath.mpf(d) / (T + T))}),
        Part("seen", "What is the probability of c?", Number("1/2"), "exact",
             lambda: Finding(after_ra("c"), "octavo's PPM"), why="One c, and one for the escape.",
             wrong={"forgot the escape": (1, lambda: followers("ra")["c"] / sum(followers("ra").values())),
                    "used the context a": ("1/7", lambda: p_of("a", "c"))}),
        Part("shorter", "What is the probability of d, with exclusion?", Number("1/12"), "exact",
             lambda: Finding(after_ra("d"), "octavo's PPM"),
             why="The escape, and then d, `1/6`{sixth} of what is left after a: `1/2*1/6`{}.",
             wrong={"did not exclude c": ("1/14", lambda: p_of("ra") * p_of("a", "d")),
                    "forgot the first escape": ("1/6", lambda: p_of("a", "d", "c"))}),
        Part("new", "What is the probability of one letter that is not in abracadabra, with exclusion?",
             Number("1/2*3/6*5/12/251"), "exact", lambda: Finding(after_ra("z"), "octavo's PPM"),
             why="Three escapes: `1/2`{half}, `3/6`{three}, and `5/12`{last}, because b, c and d are excluded; then "
             "one of the 251{rest} letters that are left.",
             wrong={"excluded nothing":
                        ("1/2*3/7*5/16/256", lambda: p_of("ra") * p_of("a") * p_of("") / LETTERS),
                    "left the seen letters in the alphabet":
                        ("1/2*3/6*5/12/256", lambda: p_of("ra") * p_of("a", out="c") * p_of("", out="bcd") / LETTERS)}),
    ])  # fmt: skip

EXERCISES = (PPM,)
