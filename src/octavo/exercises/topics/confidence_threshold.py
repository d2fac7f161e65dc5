"""Selective answering with a confidence threshold: coverage, accuracy and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise, permutations, product

import mpmath
import numpy as np
import sympy

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.symbolic import symbol
from octavo.pages.figures.charts import Series, lines
from octavo.scoring.metrics import coverage_curve, threshold_for

Row = Sequence[float]
BY_HAND: tuple[list[float], list[bool]] = ([0.9, 0.8, 0.6, 0.5, 0.2], [True, False, True, True, False])
CASES = (BY_HAND, ([0.7, 0.3, 0.7, 0.3], [False, True, True, True]), ([0.4, 0.9, 0.1], [True, False, True]))
SHARE = {"t": "share"}
THRESHOLD, TARGET = 0.6, 0.7  # of the example: a threshold, and an accuracy


def curve(confidence: Row, right: Sequence[bool]) -> list[list[float]]:
    """[threshold, coverage, accuracy] for each confidence that occurs, highest first."""
    points = []
    for threshold in sorted(set(confidence), reverse=True):
        given = [hit for one, hit in zip(confidence, right, strict=True) if one >= threshold]
        points.append([threshold, len(given) / len(right), sum(given) / len(given)])
    return points


def _ties_one_by_one(confidence: Row, right: Sequence[bool]) -> list[list[float]]:
    ranked = sorted(zip(confidence, right, strict=True), key=lambda one: -one[0])
    hits = [hit for _, hit in ranked]
    return [[t, (n + 1) / len(hits), sum(hits[: n + 1]) / (n + 1)] for n, (t, _) in enumerate(ranked)]


def by_definition() -> Finding:
    results = []
    for confidence, right in CASES:
        ranked = sorted(zip(confidence, right, strict=True), reverse=True)
        hits = list(accumulate(hit for _, hit in ranked))
        last = {t: n for n, (t, _) in enumerate(ranked)}  # the last answer at each confidence
        results.append(
            [[t, float(Fraction(n + 1, len(right))), float(Fraction(hits[n], n + 1))] for t, n in last.items()]
        )
    octavo = all([list(map(float, one)) for one in coverage_curve(*case)] == result
                 for case, result in zip(CASES, results, strict=True))  # fmt: skip
    note = f"running counts of ranked answers, in exact fractions; octavo's own curve is the same: {octavo}"
    return Finding(results, note)


def accuracy_at(t: float) -> Fraction:
    given = [hit for one, hit in zip(*BY_HAND, strict=True) if one >= t]
    return Fraction(sum(given), len(given))


def lowest_threshold() -> Finding:
    accuracies = {t: accuracy_at(t) for t in BY_HAND[0]}
    lowest = min(t for t, accuracy in accuracies.items() if accuracy >= Fraction(7, 10))
    found = threshold_for(coverage_curve(*BY_HAND), 0.7)
    assert found is not None
    listed = ", ".join(f"{t:g} gives {accuracy}" for t, accuracy in accuracies.items())
    return Finding(lowest, f"all five thresholds: {listed}; octavo's search finds {found.threshold:g}")


def coverage_falls() -> Finding:
    tried = falls = 0
    for confidence in product((0.2, 0.5, 0.8), repeat=5):
        points = coverage_curve(confidence, [True] * 5)  # highest threshold first
        tried, falls = tried + 1, falls + all(a.coverage < b.coverage for a, b in pairwise(points))
    note = f"all {tried} assignments of 3 confidences to 5 answers: coverage falls in {falls}"
    return Finding(verdict(falls == tried), note)


def accuracy_rises() -> Finding:
    """Every outcome of 6 answers, and the expected accuracy of calibrated answers."""
    confidence = [Fraction(n, 10) for n in (9, 8, 6, 5, 3, 1)]
    outcomes = list(product((False, True), repeat=6))
    always = sum(
        all(a.accuracy >= b.accuracy for a, b in pairwise(coverage_curve(list(map(float, confidence)), right)))
        for right in outcomes
    )
    rng, expected = np.random.default_rng(0), True
    for _ in range(200):
        drawn = sorted((Fraction(int(one), 1000) for one in rng.integers(0, 1001, 20)), reverse=True)
        means = [
            sum(drawn[:n], Fraction(0)) / n for n in range(1, 21)
        ]  # of answers that are right as often as they say
        expected &= all(a >= b for a, b in pairwise(means))
    note = (
        f"of the {len(outcomes)} outcomes of 6 answers, accuracy never falls in {always}; the "
        "expected accuracy of calibrated answers never falls in 200 random lists, in exact fractions"
    )
    good = [right for right in outcomes if sum(right) >= 3]
    of_good = all(a.accuracy >= b.accuracy for right in good
                  for a, b in pairwise(coverage_curve(list(map(float, confidence)), right)))  # fmt: skip
    under = {"calibrated": expected, "distinct": always == len(outcomes), "good": of_good}
    return Finding(verdict(always == len(outcomes), under), note)


def uniform_accuracy() -> Finding:
    t, c = symbol("t", "share"), sympy.Symbol("c", positive=True)
    found = sympy.simplify(sympy.integrate(c, (c, t, 1)) / sympy.integrate(1, (c, t, 1)))
    return Finding(found, "SymPy: the mean of c from t to 1")


def rescaled_confidence() -> Finding:
    """Whether halving every confidence, or taking its square root, changes the pairs of coverage and accuracy."""
    rng = np.random.default_rng(1)
    confidence = rng.random(500)
    right = (rng.random(500) < confidence).tolist()
    curves = [[point[1:] for point in coverage_curve(one.tolist(), right)]
              for one in (confidence, confidence / 2, np.sqrt(confidence))]  # fmt: skip
    note = f"500 answers: {len(curves[0])} points of the curve, with confidences unchanged, halved, and square-rooted"
    return Finding(verdict(any(one != curves[0] for one in curves)), note, "exactly equal")


def random_confidence() -> Finding:
    """Random confidence: the exact expected accuracy over every order of the answers."""
    right, orders = (True, True, False, False, False), list(permutations(range(5)))
    accuracies: dict[int, list[Fraction]] = {n: [] for n in range(1, 6)}
    for order in orders:
        for n in accuracies:
            accuracies[n].append(Fraction(sum(right[i] for i in order[:n]), n))
    means = {n: sum(some, Fraction(0)) / len(some) for n, some in accuracies.items()}
    rises = means[1] > means[5]
    note = (
        f"all {len(orders)} orders of 5 answers, 2 of them right: {means[1]} at the highest "
        f"threshold, {means[5]} at the lowest"
    )
    return Finding(verdict(rises), note)


def coverage_figure() -> str:
    rng = np.random.default_rng(2)
    confidence = rng.random(2000)
    right = (rng.random(2000) < confidence).tolist()
    series = []
    for label, ranked in (("calibrated", confidence), ("random", rng.random(2000))):
        points = [(point.coverage, point.accuracy) for point in coverage_curve(ranked.tolist(), right)]
        series.append(Series(label, points[50::10]))
    exact = [(1 - t / 50, (1 + t / 50) / 2) for t in range(49)]
    return lines(
        [*series, Series("expected", exact, quiet=True)],
        "2,000 answers with confidences uniform on [0, 1]. From right to left the threshold rises: coverage falls, and "
        "if the confidence is informative, accuracy rises.",
        ("coverage", "accuracy"),
    )


COVERAGE = Exercise(
    id="confidence-threshold", title="Answering only when confident: coverage and accuracy", figure=coverage_figure,
    question="Each answer comes with a confidence c, and only answers with `c >= t` are given. Coverage is the "
    "fraction of questions that are answered, accuracy the fraction of given answers that are right. Confidence is "
    "calibrated if a fraction c of the answers with confidence c is right. Example with five answers: 0.9{c_1} right, "
    "0.8{c_2} wrong, 0.6{c_3} right, 0.5{c_4} right, 0.2{c_5} wrong.",
    where={"c": np.array(BY_HAND[0]), "target": TARGET, "threshold": THRESHOLD, "hits": 3, "given": 4},
    answer="A higher threshold can only remove answers, so coverage falls. Accuracy rises only if confidence ranks "
    "right answers above wrong ones: if it is calibrated, the expected accuracy above t is the mean of the confidences "
    "above t, which rises with t. On a few answers it can still fall. The curve depends only on the ranking; whether "
    "it means what it says is a separate question.",
    parts=[
        Part("curve", "Write a function that returns [threshold, coverage, accuracy] for each confidence that occurs, "
             "the highest first.", Function("curve", curve, CASES,
             "curve(confidence: list, right: list of truth values) -> list of [threshold, coverage, accuracy]"),
             "exact", by_definition, why="Answers of equal confidence are given together: no threshold separates them.",
             wrong={"divided by all questions instead of those answered":
                    lambda *case: [[t, coverage, coverage * accuracy] for t, coverage, accuracy in curve(*case)],
                    "separated answers of equal confidence": _ties_one_by_one,
                    "started with the lowest": lambda *case: curve(*case)[::-1]}),
        Part("accuracy", "What is the accuracy of the five at a threshold of 0.6{threshold}?", Number("2/3"), "exact",
             lambda: Finding(accuracy_at(THRESHOLD), "the three answers with confidence 0.6 or more are counted"),
             why="Three are given, and two of them are right.",
             wrong={"divided by all five": ("2/5", lambda: sum(hit for c, hit in zip(*BY_HAND,
                 strict=True) if c >= THRESHOLD) / 5),
                    "left out the answer at the threshold": ("1/2", lambda: float(accuracy_at(THRESHOLD + 0.1))),
                    "gave the coverage": ("3/5", lambda: sum(c >= THRESHOLD for c in BY_HAND[0]) / 5)}),
        Part("lowest", "What is the lowest of the five confidences that gives an accuracy of at least 0.7{target} as a "
             "threshold?", Number(0.5, rel=0), "exact", lowest_threshold,
             why="0.5{} gives 3{hits} of 4{given}. That 0.8{c_2} and 0.6{c_3} give less does not matter: accuracy "
             "need not be monotonic.", where={"hits": sum(BY_HAND[1][:4]), "given": sum(c >= 0.5 for c in BY_HAND[0])},
             wrong={"stopped at the first threshold that fails": (0.9, lambda: next(a for a, b in pairwise(BY_HAND[0])
                        if accuracy_at(b) < TARGET)),
                    "gave the accuracy instead of the threshold": (0.7, lambda: TARGET),
                    "accepted two thirds": (0.6, lambda: next(c for c in BY_HAND[0] if accuracy_at(c) == Fraction(2,
                        3)))}),
        Part("coverage", "Among the confidences that occur, each higher threshold has a smaller coverage.",
             Truth("true", Choice("", {
             "calibrated": "confidence is calibrated",
             "good": "at least half of the answers are right", "few": "there are at most ten answers"})), "exact",
                 coverage_falls, why="At least the answers at the old threshold are removed.",
             wrong={"thought that a higher threshold may remove no answer": False}),
        Part("rises", "A higher threshold never has a lower accuracy.", Truth("nearly", Choice("calibrated", {
             "distinct": "no two confidences are equal", "good": "at least half of the answers are right",
             "calibrated": "confidence is calibrated, and accuracy means the expected one, not that of a few"})),
             "exact", accuracy_rises,
             why="Removing the least confident answers raises the mean confidence of the rest, which is their expected "
             "accuracy. With a confident wrong answer and a hesitant right one it falls from one half to zero.",
             wrong={"confused expected accuracy with observed accuracy": True}),
        Part("uniform", "Confidences are uniform between zero and one, and calibrated. What is the expected accuracy "
             "at threshold t?", Formula("(1 + t)/2", SHARE), "symbolic", uniform_accuracy,
             why="Above t, the confidences are uniform from t to one; calibrated answers are right that often, so the "
             "expected accuracy is the midpoint.",
             wrong={"gave the threshold, which is the accuracy of the least confident answer": ("t", lambda t: t * 1),
                    "divided by all questions": ("(1 - t^2)/2", lambda t: mpmath.quad(lambda c: c, [t, 1])),
                    "gave the coverage": ("1 - t", lambda t: mpmath.quad(lambda c: 1, [t, 1]))}),
        Part("boasting", "Doubling all confidences of a model changes its curve of accuracy over coverage.",
             Truth("false"), "numeric", rescaled_confidence,
             why="The same answers are given in the same order; only the thresholds change. Calibration is lost, but "
             "this curve does not show it.", wrong={"thought that the values matter, not their order": True}),
        Part("useless", "If confidence is random, a higher threshold still has a higher expected accuracy.",
             Truth("false"), "exact", random_confidence,
             why="Every answer is equally likely to be given; the curve is flat at the overall accuracy.",
             wrong={"thought that a higher threshold always means better answers": True}),
    ])  # fmt: skip

EXERCISES = (COVERAGE,)
