"""Tables of two tokens on which greedy decoding misses the best text, and a printed table on which it does not."""

from __future__ import annotations

import math
from fractions import Fraction

import torch

from octavo.decode import Exact, Greedy, exact_search, generate
from octavo.exercises import Choice, Exercise, Finding, Number, Part, Truth, verdict
from octavo.models.ngram import NGram, NGramConfig

Table = dict[str, int]  # text -> weight in hundredths
PROPER: Table = {"AA": 0, "AB": 40, "BA": 35, "BB": 25}
PRINTED: Table = {"AA": 0, "AB": 10, "BA": 40, "BB": 25}
UNIT = 5  # every entry is a multiple of it, in hundredths


def decode(table: Table) -> tuple[str, str]:
    """The texts of greedy decoding and of exact search in octavo's bigram model with this table as counts."""
    texts = [[2, *("AB".index(token) for token in text)] for text, weight in table.items()
             for _ in range(weight // UNIT)]  # fmt: skip
    model = NGram.fit(torch.tensor(texts, dtype=torch.int32).flatten(), NGramConfig(order=2, estimator="mle"), 3)
    greedy = generate(model, [torch.tensor([], dtype=torch.long)], 2, Greedy())[0].tolist()
    best = exact_search(model, [], 2, Exact()).tokens.tolist()
    return "".join("AB"[token] for token in greedy), "".join("AB"[token] for token in best)


def probability(table: Table, which: int) -> Finding:
    texts = decode(table)
    note = f"octavo's decoders: greedy {texts[0]}, exact search {texts[1]}"
    return Finding(Fraction(table[texts[which]], sum(table.values())), note)


def transposed(table: Table) -> Table:
    """The same numbers with rows and columns exchanged: the second token read as the first."""
    return {text: table[text[::-1]] for text in table}


def completed(table: Table, cell: str) -> Table:
    return {**table, cell: table[cell] + 100 - sum(table.values())}


def proper_misses() -> Finding:
    greedy, best = decode(PROPER)
    return Finding(verdict(greedy != best), f"octavo's decoders: greedy {greedy}, exact search {best}")


def printed_misses() -> Finding:
    readings = {"as it stands": PRINTED, "rows and columns exchanged": transposed(PRINTED)}
    decoded = {name: decode(table) for name, table in readings.items()}
    listed = "; ".join(f"{name}: greedy {one[0]}, best {one[1]}" for name, one in decoded.items())
    return Finding(verdict(any(greedy != best for greedy, best in decoded.values())), listed)


def misprinted_cell() -> Finding:
    failing = []
    for name, table in {"": PRINTED, "exchanged ": transposed(PRINTED)}.items():
        for cell in table:
            greedy, best = decode(completed(table, cell))
            failing += [name + cell] * (greedy != best)
    note = f"0.25 added to each of the four entries of both readings: greedy fails for {', '.join(failing)} only"
    [found] = failing
    return Finding(found.split()[-1], note)


def lost_bits() -> Finding:
    greedy, best = decode(PROPER)
    ratio = torch.tensor([PROPER[best] / PROPER[greedy]], dtype=torch.float64)
    return Finding(float(ratio.log2()), f"log2 of the probabilities of {best} and {greedy}")


def first_token(table: Table, token: str) -> float:
    """The probability of the first token."""
    return sum(weight for text, weight in table.items() if text[0] == token) / sum(table.values())


TABLES = Exercise(
    id="greedy-tables", title="Two tables for greedy decoding, one of them misprinted",
    where={**{f"p{text}": weight / 100 for text, weight in PROPER.items()},
           **{f"q{text}": weight / 100 for text, weight in PRINTED.items()},
           "pA": lambda: first_token(PROPER, "A"), "pB": lambda: first_token(PROPER, "B"),
           "qB": lambda: first_token(PRINTED, "B"), "qBest": lambda: max(PRINTED.values()) / sum(PRINTED.values()),
           "missing": lambda: 1 - sum(PRINTED.values()) / 100,
           **{f"with{text}": completed(transposed(PRINTED), text)[text] / 100 for text in PRINTED}},
    question="Texts of two tokens, A or B. First table: probability zero for AA, 0.4{pAB} for AB, 0.35{pBA} for BA and "
    "0.25{pBB} for BB. A second table is often printed for the same purpose: zero for AA, 0.1{qAB} for AB, "
    "0.4{qBA} for BA and 0.25{qBB} for BB.",
    answer="First table: A has probability 0.4{pA} and B has 0.6{pB}, so greedy decoding starts with B, continues "
    "with A, and finds BA with 0.35{greedy}; AB has 0.4{best}. The entries of the second table sum to 0.75{sum}, so "
    "they are not probabilities. Divided by their sum, they give BA for greedy and for exact search; with rows and "
    "columns exchanged, both give AB. It becomes the first table only if they are exchanged and the missing "
    "0.25{missing} is added to the entry of BA: 0.1{qAB} is then a misprint of 0.35{pBA}.",
    parts=[
        Part("greedy", "First table: what is the probability of the text that greedy decoding finds?", Number("0.35"),
             "exact",
             lambda: probability(PROPER, 0), why="The first token is B, and of the two texts that start with it BA "
             "is the likelier one.",
             wrong={"gave that of the best text": ("0.4", lambda: max(PROPER.values()) / 100),
                    "stopped at the first token": ("0.6", lambda: first_token(PROPER, "B"))}),
        Part("best", "First table: what is the probability of the most probable text?", Number("0.4"), "exact",
             lambda: probability(PROPER, 1), why="AB: A with 0.4{pA}, then always B.",
             wrong={"gave that of the greedy text": ("0.35", lambda: PROPER["BA"] / 100),
                    "multiplied the largest marginals": ("0.39", lambda: 0.6 * (0.4 + 0.25))}),
        Part("misses", "First table: greedy decoding misses the most probable text.", Truth("true"), "exact",
             proper_misses, why="The probability of the first token B is shared by two texts, that of A is not.",
             wrong={"thought that the likelier first token begins the likelier text": False}),
        Part("bits", "First table: how many bits does greedy decoding lose?", Number("ln(8/7)/ln(2)"), "exact",
             lost_bits, why="The difference of the costs: `ln(0.4/0.35)/ln(2)`{}.",
             wrong={"took the difference of the probabilities": ("0.05", lambda: 0.4 - 0.35),
                    "used the natural logarithm": ("ln(8/7)", lambda: math.log(0.4 / 0.35))}),
        Part("sum", "Second table: what do its entries sum to?", Number("0.75"), "exact",
             lambda: Finding(Fraction(sum(PRINTED.values()), 100), "added up"), why="`0.1 + 0.4 + 0.25 = 0.75`.",
             wrong={"assumed that it is a distribution": (1, lambda: 1.0)}),
        Part("printed",
             "Second table, as it stands or with rows and columns exchanged, divided by its sum: greedy decoding "
             "misses the most probable text.", Truth("false"), "exact", printed_misses,
             why="As it stands, B has 13/15{qB} and its best text BA has 8/15{qBest}. Exchanged, A has 8/15{qBest}, "
             "all of it on AB.", wrong={"believed that the table shows what it is printed for": True}),
        Part("normalized",
             "Second table, as it stands, divided by its sum: what is the probability of the greedy text?",
             Number("8/15"), "exact", lambda: probability(PRINTED, 0), why="`0.4/0.75 = 8/15`.",
             wrong={"did not divide by the sum": ("0.4", lambda: PRINTED["BA"] / 100),
                    "stopped at the first token": ("13/15", lambda: first_token(PRINTED, "B"))}),
        Part("misprint",
             "Rows and columns are exchanged, so AB has 0.4{qBA} and BA has 0.1{qAB}. Adding the missing "
             "0.25{missing} to one entry makes greedy decoding fail. To which?",
             Choice("BA", {"AA": "it becomes 0.25{withAA}", "AB": "it becomes 0.65{withAB}", "BA":
                           "it becomes 0.35{withBA}", "BB": "it becomes 0.5{withBB}"}), "exact", misprinted_cell,
             why="B must be the likelier first token, and its best text must stay below 0.4{pAB}."),
    ])  # fmt: skip

EXERCISES = (TABLES,)
