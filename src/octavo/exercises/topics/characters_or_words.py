"""Tokens that are characters against tokens that are words: what each costs and covers."""

from __future__ import annotations

import re

from torch import nn

from octavo.exercises import Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import dataset, tabulated
from octavo.ops.attention import FULL

WORDS, CHARACTERS, WIDTH = 10_000, 65, 128
WC = {"W": "whole", "C": "whole"}


def unseen() -> Finding:
    text = dataset("shakespeare").read_text(encoding="utf-8")
    cut = len(text) * 9 // 10
    words = [set(re.findall(r"[A-Za-z']+", part)) for part in (text[:cut], text[cut:])]
    characters = [set(part) for part in (text[:cut], text[cut:])]
    new_words, new_characters = len(words[1] - words[0]), len(characters[1] - characters[0])
    note = f"of {len(words[1]):,} different words in the last tenth, {new_words:,} are new; new characters: "
    f"{new_characters}"
    return Finding(verdict(new_words > 0 and new_characters == 0), note)


def output_weights() -> Finding:
    counts = [sum(p.numel() for p in nn.Linear(WIDTH, size, bias=False).parameters()) for size in (WORDS, CHARACTERS)]
    return Finding(counts[0] - counts[1], f"{counts[0]:,} weights against {counts[1]:,}, counted in PyTorch's layers")


@tabulated("n W C", ((3, 5, 20), (2, 4, 12), (6, 10, 70)), "windows over texts with words of equal length, counted")
def window_span(n: int, words: int, characters: int) -> float:
    """The characters that n words of a text cover, a space after every word."""
    text = ("x" * (characters // words - 1) + " ") * words
    assert len(text) == characters
    return len("".join(re.findall(r"\S+\s", text)[:n]))


CHOICE = Exercise(
    id="characters-or-words", title="Characters or words as tokens",
    where={"width": WIDTH, "words": WORDS, "characters": CHARACTERS, "square": lambda C: FULL.pairs(C, C),
           "smaller": lambda W: FULL.pairs(W, W)},
    question="A text has C characters and W words. A language model can predict it character by character or word by "
    "word.",
    answer="Characters: a small vocabulary, a small output layer, and no unknown words: in the last tenth of Tiny "
    "Shakespeare there are words that the rest does not contain, but no such characters. Words: the text is shorter, "
    "so a window of the same number of tokens covers C/W times as much of it, and full attention has only one of "
    "`(C/W)^2`{pairs} pairs. The perplexities of the two are in different units and must not be compared.",
    parts=[
        Part("unseen",
             "In the last tenth of Tiny Shakespeare there are words that the first nine tenths do not contain, but "
             "no such characters.", Truth("true"), "counted", unseen,
             why="New words keep coming in any text; its characters are soon complete.",
             wrong={"thought that a long text contains all words": False}),
        Part("output-weights",
             f"Width {WIDTH}{{width}}, no biases: how many more weights does an output layer for {WORDS:,}{{words}} "
             f"words have than one for {CHARACTERS}{{characters}} characters?", Number(1_271_680, rel=0), "counted",
             output_weights, why="One row of the width for each token of the vocabulary.",
             wrong={"gave the output layer of the words": (1_280_000, lambda: WORDS * WIDTH),
                    "compared the vocabularies": (9935, lambda: WORDS - CHARACTERS)}),
        Part("span", "How many characters does a window of n words cover on average?",
             Formula("n*C/W",
             {"n": "whole",
             **WC}), "counted",
             window_span, why="A word has C/W characters, the space included.",
             wrong={"inverted the ratio": ("n*W/C", lambda n, W, C: n * W / C), "counted tokens": ("n", lambda n: n)}),
        Part("pairs",
             "How many times as many pairs does full attention over the characters of a text have as over its words?",
             Formula("(C/W)^2", WC), "counted",
             tabulated("W C", ((5, 20), (4, 12), (10, 70)), "pairs counted by octavo's full pattern", rel=1e-12)(
                 lambda w, c: FULL.pairs(c, c) / FULL.pairs(w, w)),
             why="`C^2`{square} pairs against `W^2`{smaller}.",
             wrong={"did not square the ratio": ("C/W", lambda C, W: C / W),
                    "inverted it": ("(W/C)^2", lambda C, W: FULL.pairs(W, W) / FULL.pairs(C, C))}),
    ])  # fmt: skip

EXERCISES = (CHOICE,)
