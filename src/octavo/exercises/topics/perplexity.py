"""Language models: perplexity and bases, and why it is a number per token of one kind."""

from __future__ import annotations

import math

import numpy as np
import sympy
import torch

from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbols
from octavo.models.bag import Bag, BagConfig
from octavo.models.ngram import NGram, NGramConfig
from octavo.pages.figures.bars import bars
from octavo.pages.figures.lines import Series, lines
from octavo.scoring.bits_per_byte import Score, score_text
from octavo.text import Char, Chunk, Tokenizer, Word, WordSettings, text_in_memory

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
    """What a bag of tokens, counted on one text, pays for another."""
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
    return Finding(
        verdict(power == 1 / p and same),
        f"SymPy: b to the power -log_b(p) is {power}; a bag's "
        f"{score.perplexity:.6f} in bits "
        f"is {math.exp(nats):.6f} in nats",
    )


def mixed(power_of: float) -> Finding:
    (p,) = symbols({"P": "positive"})
    if power_of == 2:
        return Finding(2 ** sympy.log(p), "SymPy: 2 to the power of the nats, ln P")
    return Finding(sympy.exp(sympy.log(p) / sympy.log(2)), "SymPy: e to the power of the bits, ln(P)/ln(2)")


BASES = Exercise(
    id="perplexity-base",
    title="Perplexity and the base of logarithms",
    question="Perplexity is a base raised to the mean of minus log p of the tokens. P is the right one.",
    answer="If the logarithm and the power have the same base, it cancels: P is the inverse of the geometric mean of "
    "the probabilities. If they do not, the result is no perplexity: 2 to the power of nats is `P^ln(2)`, too good, "
    "and e to the power of bits is `P^(1/ln(2))`, too bad; 100 becomes 24 or 768.",
    figure=lambda: lines([Series("e to the bits", [(p, p ** (1 / math.log(2))) for p in range(1, 301, 5)]),
        Series("right", [(p, float(p)) for p in range(1, 301, 5)]),
        Series("2 to the nats", [(p, p ** math.log(2)) for p in range(1, 301, 5)])],
        "What is reported when bases are mixed.", ("perplexity", "reported"), log_y=True),
    parts=[
        Part("free", "Perplexity does not depend on the base, if the same one is used for logarithm and power.",
             Truth("true"), "symbolic", base_free, why="`b^(-log(p)/log(b)) = 1/p` for every b.",
             wrong={"thought that bits give another perplexity than nats": False}),
        Part("too-good", "The loss is in nats, and 2 is raised to it. What comes out?",
             Formula("P^ln(2)", {"P": "positive"}), "symbolic", lambda: mixed(2),
             why="The loss is `ln(P)`, and `2^ln(P) = exp(ln(2)*ln(P)) = P^ln(2)`, with an exponent below one.",
             wrong={"thought a factor comes out": "P*ln(2)", "thought nothing changes": "P",
                    "turned it round": "P^(1/ln(2))"}),
        Part("too-bad", "The loss is in bits, and e is raised to it. What comes out?",
             Formula("P^(1/ln(2))", {"P": "positive"}), "symbolic", lambda: mixed(math.e),
             why="The loss is `ln(P)/ln(2)`, and `exp(ln(P)/ln(2)) = P^(1/ln(2))`, with an exponent above one.",
             wrong={"thought a factor comes out": "P/ln(2)", "thought nothing changes": "P",
                    "turned it round": "P^ln(2)"}),
        Part("hundred", "A model of perplexity 100 is reported with 2 to the power of nats. Which number is reported?",
             Number("100^ln(2)"), "numeric", lambda: Finding(2 ** -float(np.log([0.01] * 9).mean()),
             "nine tokens of probability 0.01"), why="`2^ln(100) = 100^ln(2) = 24.3`: four times too good.",
             wrong={"reported e to the power of bits": "100^(1/ln(2))", "divided by ln 2": "100/ln(2)"}),
    ],
)  # fmt: skip


def per_character() -> Finding:
    points = []
    for p, w, c in ((100.0, 20, 110), (7.0, 5, 30), (2.0, 9, 10)):
        bits = w * math.log2(p)
        found = 2 ** (bits / c)
        points.append(IntervalAt({"P": p, "W": w, "C": c}, found * (1 - 1e-12), found * (1 + 1e-12)))
    return Finding(points, "the same bits divided by words and by characters, to 1e-12 of it")


def both_scores(text: str) -> tuple[Score, Score]:
    """A bag of words and a bag of characters, counted on both passages."""
    every = PLAIN + LEARNED
    return bag_score(words_of(every), every, text), bag_score(characters_of(every), every, text)


def lower_is_better() -> Finding:
    words, characters = both_scores(PLAIN)
    tokenizer = characters_of(PLAIN)
    ids = torch.from_numpy(np.append(tokenizer.begin, tokenizer.encode(PLAIN.encode())).astype(np.int32))
    pairs = NGram.fit(ids, NGramConfig(order=2, estimator="mle"), tokenizer.vocab)
    context = score_text(pairs, tokenizer, text_in_memory(PLAIN), "passage")
    as_stated = (words.perplexity < characters.perplexity) == (words.bits < characters.bits)
    alike = (context.perplexity < characters.perplexity) == (context.bits < characters.bits)
    note = (
        f"first passage: words {words.perplexity:.1f} and {words.bits:.0f} bits, characters "
        f"{characters.perplexity:.1f} and "
        f"{characters.bits:.0f} bits, pairs of characters {context.perplexity:.1f} and {context.bits:.0f} "
        "bits"
    )
    return Finding(verdict(as_stated, alike), note, "less or more")


def one_factor() -> Finding:
    shares = []
    for text in (PLAIN, LEARNED):
        words, characters = both_scores(text)
        shares.append(words.tokens / characters.tokens)
    same = abs(shares[0] / shares[1] - 1) < 0.05
    return Finding(
        verdict(same),
        f"words a character, which is the exponent: {shares[0]:.3f} and {shares[1]:.3f} in the two passages",
    )


def easier_passage() -> Finding:
    (one, _), (two, _) = both_scores(PLAIN), both_scores(LEARNED)
    by_word = one.perplexity < two.perplexity
    by_character = one.bits / len(PLAIN) < two.bits / len(LEARNED)
    note = (
        f"the bag of words pays {one.perplexity:.0f} and {two.perplexity:.0f} a word, that is "
        f"{2 ** (one.bits / len(PLAIN)):.2f} and "
        f"{2 ** (two.bits / len(LEARNED)):.2f} a character"
    )
    return Finding(verdict(by_word == by_character), note, "less or more")


def passages_figure() -> str:
    rows = []
    for name, text in (("plain", PLAIN), ("learned", LEARNED)):
        words, characters = both_scores(text)
        rows += [(f"{name}, words", words.bits_per_byte), (f"{name}, letters", characters.bits_per_byte)]
    return bars(
        rows, "Bits per byte of both passages under a bag of words and a bag of characters: one scale for both.", 2
    )


COMPARE = Exercise(
    id="perplexity-words-characters",
    title="A word model's and a character model's perplexity",
    question="The same text is W words or C characters long. Two passages are at hand: one in short plain words, one "
    "in long learned ones.",
    answer="Perplexity is per token, and the tokens differ. A text that costs as many bits either way has `P_c = "
    "P_w^(W/C)`: a word perplexity of 100 is 2.3 a character at 5.5 characters a word. So a character model's low "
    "figure says nothing by itself; and no one exponent converts, since W/C is a property of the passage. Even for one "
    "and the same model, the passage that is easier by the word may be harder by the character. Bits per byte of the "
    "same text is the scale that all share.",
    figure=passages_figure,
    parts=[
        Part("exponent", "A word model has the perplexity P on W words, C characters. What is it a character?",
             Formula("P^(W/C)", {"P": "positive", "W": "whole", "C": "whole"}), "numeric", per_character,
             why="`W*log(P)` is the cost of the text; divided by C it is the cost of a character.",
             wrong={"divided the perplexity": "P*W/C", "turned the ratio round": "P^(C/W)", "thought it stays": "P"}),
        Part("lower", "On the same passage, the model with the lower perplexity needs fewer bits.",
             Truth("nearly", only_if="both predict the same kind of tokens"), "numeric", lower_is_better,
             why="Bits are tokens times log of perplexity, and a passage has several times as many characters as "
             "words.", wrong={"compared words with characters": True}),
        Part("factor", "One exponent turns word into character perplexity for all texts.", Truth("false"), "counted",
             one_factor, why="It is words by characters of the passage at hand.",
             wrong={"assumed the length of a word to be the same everywhere": True}),
        Part("easier", "Of two passages, the one with the lower word perplexity under a model also has the lower "
             "perplexity a character under that model.", Truth("false"), "numeric", easier_passage,
             why="Long words spread their bits over more characters.",
             wrong={"mistook easy by the word for easy by the character": True}),
    ],
)  # fmt: skip

EXERCISES = (BASES, COMPARE)
