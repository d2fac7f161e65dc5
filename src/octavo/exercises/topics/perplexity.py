"""Perplexity: the base of the logarithm, and why perplexities of words and characters cannot be compared."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import sympy
import torch

from octavo.exercises import Choice, Exercise, Finding, Formula, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import tabulated
from octavo.exercises.framework.symbolic import symbols
from octavo.models.bag import Bag, BagConfig
from octavo.models.ngram import NGram, NGramConfig
from octavo.pages.figures.charts import Series, bars, lines
from octavo.scoring.bits_per_byte import Score, score_text
from octavo.text import Char, Chunk, Tokenizer, Word, WordSettings, text_in_memory

GIVEN, RATIO = 100.0, 5.5  # a perplexity, and characters per word
PLAIN = """The cat sat by the door and did not go in. It was a cold day, and the wind was up. I saw it as I came home.
I let the cat in and gave it some fish. Then it sat by the fire with me for the rest of the day.
We do not ask how old it is. It has been here as long as I can say. It goes out at dawn and is back by noon.
The dog next door is new. It ran at the cat, but the cat did not run. It sat and let the dog go by.
At the end of the day I lock up. The cat is on my bed by then, and I let it be. So it goes on.
"""
LEARNED = """Contemporary meteorological observatories continuously accumulate considerable quantities of measurements.
Statistical interpretation of atmospheric measurements requires sophisticated mathematical instruments.
Consequently, international institutions coordinate computational infrastructure and standardise documentation.
Meteorological predictions nevertheless deteriorate exponentially: atmospheric circulation amplifies uncertainties.
Professional meteorologists therefore communicate probabilities, acknowledging fundamental uncertainties.
"""


def bag_score(tokenizer: Tokenizer, train: str, text: str, k: float = 0.0) -> Score:
    """The score of a text under a bag of tokens that was fitted to another text."""
    model = Bag.fit(torch.from_numpy(tokenizer.encode(train.encode())).long(), BagConfig(k=k), tokenizer.vocab)
    return score_text(model, tokenizer, text_in_memory(text), "passage")


def words_of(text: str) -> Word:
    return Word.learn([Chunk(text.encode())], WordSettings(min_count=1))


def characters_of(text: str) -> Char:
    return Char.learn([Chunk(text.encode())])


def base_free() -> Finding:
    b, p = sympy.symbols("b p", positive=True)
    power = sympy.simplify(b ** (-sympy.log(p) / sympy.log(b)))
    score = bag_score(words_of(PLAIN), PLAIN, PLAIN)
    nats = score.bits * math.log(2) / score.tokens
    same = math.isclose(score.perplexity, math.exp(nats), rel_tol=1e-12)
    note = (
        f"SymPy: b to the power -log_b(p) is {power}; the perplexity of a bag is {score.perplexity:.6f} from bits and "
        f"{math.exp(nats):.6f} from nats"
    )
    return Finding(verdict(power == 1 / p and same), note)


def mixed_bases(power_of: float) -> Finding:
    (p,) = symbols({"P": "positive"})
    if power_of == 2:
        return Finding(2 ** sympy.log(p), "SymPy: 2 to the power of the nats, ln P")
    return Finding(sympy.exp(sympy.log(p) / sympy.log(2)), "SymPy: e to the power of the bits, ln(P)/ln(2)")


BASES = Exercise(
    id="perplexity-base", title="Perplexity and the base of logarithms",
    question="Perplexity is a base raised to the mean negative log-probability of the tokens. P is the correct "
    "perplexity.",
    where={"given": GIVEN, "low": GIVEN ** math.log(2), "high": GIVEN ** (1 / math.log(2)), "bits": lambda P:
        mpmath.log(P, 2)},
    answer="If the logarithm and the power have the same base, it cancels: P is the inverse of the geometric mean of "
    "the probabilities. Otherwise the result is not a perplexity: two to the power of nats is `P^ln(2)`{too-good}, "
    "too low, and e to the power of bits is `P^(1/ln(2))`{too-bad}, too high; 100{given} becomes 24{low} or 768{high}.",
    figure=lambda: lines([Series("e to the bits", [(p, p ** (1 / math.log(2))) for p in range(1, 301, 5)]),
        Series("right", [(p, float(p)) for p in range(1, 301, 5)]),
        Series("2 to the nats", [(p, p ** math.log(2)) for p in range(1, 301, 5)])],
        "The reported perplexity when bases are mixed.", ("perplexity", "reported"), log_y=True),
    parts=[
        Part("free", "Perplexity does not depend on the base if logarithm and power use the same one.", Truth("true",
            Choice("", {
             "bits": "the base is two",
             "large": "the base is above one and below ten", "tokens": "all tokens have the same probability"})),
             "symbolic", base_free, why="`b^(-log(p)/log(b)) = 1/p` for every b.",
             wrong={"thought that bits and nats give different perplexities": False}),
        Part("too-good", "The loss is in nats, and two is raised to it. What is the result?",
             Formula("P^ln(2)", {"P": "positive"}), "symbolic", lambda: mixed_bases(2),
             why="The loss is `ln(P)`, and `2^ln(P) = exp(ln(2)*ln(P)) = P^ln(2)`, with an exponent below one.",
             wrong={"thought that it changes by a factor": ("P*ln(2)", lambda P: P * mpmath.log(2)),
                    "thought that nothing changes": ("P", lambda P: mpmath.exp(mpmath.log(P))),
                    "mixed up the two cases": ("P^(1/ln(2))", lambda P: mpmath.exp(mpmath.log(P, 2)))}),
        Part("too-bad", "The loss is in bits, and e is raised to it. What is the result?",
             Formula("P^(1/ln(2))", {"P": "positive"}), "symbolic", lambda: mixed_bases(math.e),
             why="The loss is `ln(P)/ln(2)`{bits}, and `exp(ln(P)/ln(2)) = P^(1/ln(2))`, with an exponent above one.",
             wrong={"thought that it changes by a factor": ("P/ln(2)", lambda P: P / mpmath.log(2)),
                    "thought that nothing changes": ("P", lambda P: 2 ** mpmath.log(P, 2)),
                    "mixed up the two cases": ("P^ln(2)", lambda P: 2 ** mpmath.log(P))}),
        Part("hundred", "The perplexity of a model is 100{given}, but it is reported as two to the power of nats. "
             "Which number is reported?", Number("100^ln(2)"), "numeric", lambda:
                 Finding(2 ** -float(np.log([1 / GIVEN] * 9).mean()),
             "nine tokens of probability 0.01"), why="`2^ln(100) = 100^ln(2) = 24.3`: four times too low.",
             wrong={"reported e to the power of bits": ("100^(1/ln(2))", lambda: math.exp(math.log2(GIVEN))),
                    "divided by the logarithm of two": ("100/ln(2)", lambda: GIVEN / math.log(2))}),
    ])  # fmt: skip


def both_scores(text: str) -> tuple[Score, Score]:
    """Scores of a bag of words and of a bag of characters, both fitted to both passages."""
    every = PLAIN + LEARNED
    return bag_score(words_of(every), every, text), bag_score(characters_of(every), every, text)


def lower_is_better() -> Finding:
    words, characters = both_scores(PLAIN)
    tokenizer = characters_of(PLAIN)
    ids = torch.from_numpy(np.append(tokenizer.begin, tokenizer.encode(PLAIN.encode())).astype(np.int32))
    bigrams = NGram.fit(ids, NGramConfig(order=2, estimator="mle"), tokenizer.vocab)
    bigram = score_text(bigrams, tokenizer, text_in_memory(PLAIN), "passage")
    as_stated = (words.perplexity < characters.perplexity) == (words.bits < characters.bits)
    same_tokens = (bigram.perplexity < characters.perplexity) == (bigram.bits < characters.bits)
    note = (
        f"first passage: words {words.perplexity:.1f} and {words.bits:.0f} bits, characters "
        f"{characters.perplexity:.1f} and {characters.bits:.0f} bits, character bigrams {bigram.perplexity:.1f} and "
        f"{bigram.bits:.0f} bits"
    )
    under = {"tokens": same_tokens, "text": as_stated, "likelihood": as_stated}  # both bags are fitted to the same text
    return Finding(verdict(as_stated, under), note, "order of the numbers")


def one_factor() -> Finding:
    ratios = []
    for text in (PLAIN, LEARNED):
        words, characters = both_scores(text)
        ratios.append(words.tokens / characters.tokens)
    same = abs(ratios[0] / ratios[1] - 1) < 0.05
    note = f"words per character, which is the exponent: {ratios[0]:.3f} and {ratios[1]:.3f} in the two passages"
    return Finding(verdict(same), note)


def easier_passage() -> Finding:
    (one, _), (two, _) = both_scores(PLAIN), both_scores(LEARNED)
    by_word = one.perplexity < two.perplexity
    by_character = one.bits / len(PLAIN) < two.bits / len(LEARNED)
    note = (
        f"bag of words: perplexity {one.perplexity:.0f} and {two.perplexity:.0f} per word, that is "
        f"{2 ** (one.bits / len(PLAIN)):.2f} and {2 ** (two.bits / len(LEARNED)):.2f} per character"
    )
    return Finding(verdict(by_word == by_character), note, "order of the numbers")


def passages_figure() -> str:
    rows = []
    for name, text in (("plain", PLAIN), ("learned", LEARNED)):
        words, characters = both_scores(text)
        rows += [(f"{name}, words", words.bits_per_byte), (f"{name}, characters", characters.bits_per_byte)]
    return bars(
        rows, "Bits per byte of both passages under a bag of words and a bag of characters: one scale for both.", 2
    )


COMPARE = Exercise(
    id="perplexity-words-characters",
    title="Perplexity of a word model and of a character model",
    question="A text has W words and C characters. There are two example passages: one with short plain words, one "
    "with long scholarly words.",
    where={"given": GIVEN, "ratio": RATIO, "converted": GIVEN ** (1 / RATIO)},
    answer="Perplexity is per token, and the tokens differ. If a text costs the same number of bits either way, `P_c "
    "= P_w^(W/C)`: a word perplexity of 100{given} is 2.3{converted} per character at 5.5{ratio} characters per word. "
    "So a low perplexity of a character model means nothing by itself; and there is no single exponent for "
    "conversion, since W/C depends on the passage. Even for the same model, the passage with the lower perplexity per "
    "word may have the higher perplexity per character. Bits per byte of the same text is a common scale.",
    figure=passages_figure,
    parts=[
        Part("exponent", "A word model has perplexity P on a text of W words and C characters. What is its perplexity "
             "per character?", Formula("P^(W/C)", {"P": "positive", "W": "whole", "C": "whole"}, ("C", "W")), "numeric",
             tabulated("P W C", ((100.0, 20, 110), (7.0, 5, 30), (2.0, 9, 10)),
                 "the same bits divided by words and by characters, to 1e-12 relative",
                 rel=1e-12)(lambda p, w, c: 2 ** (w * math.log2(p) / c)),
             why="`W*log(P)` is the cost of the text; divided by C it is the cost per character.",
             wrong={"divided the perplexity": ("P*W/C", lambda P, W, C: P * W / C),
                    "inverted the ratio": ("P^(C/W)", lambda P, W, C: mpmath.exp(mpmath.log(P) * C / W)),
                    "thought that it stays the same": ("P", lambda P: P * 1)}),
        Part("lower", "On the same passage, the model with the lower perplexity needs fewer bits.",
             Truth("nearly", Choice("tokens", {"text": "both models are fitted to the same text",
             "likelihood": "both models are fitted by maximum likelihood",
             "tokens": "both models predict the same tokens"})), "numeric", lower_is_better,
             why="Bits are the number of tokens times the log of the perplexity, and a passage has several times as "
             "many characters as words.", wrong={"compared words with characters": True}),
        Part("factor", "One exponent converts word perplexity to character perplexity for all texts.", Truth("false"),
             "counted", one_factor, why="It is the ratio of words to characters of the passage.",
             wrong={"assumed that words have the same length everywhere": True}),
        Part("easier", "Of two passages, the one with the lower word perplexity under a model also has the lower "
             "perplexity per character under that model.", Truth("false"), "numeric", easier_passage,
             why="Long words spread their bits over more characters.",
             wrong={"assumed that the ranking per word and per character is the same": True}),
    ])  # fmt: skip

EXERCISES = (BASES, COMPARE)
