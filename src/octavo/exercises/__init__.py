"""Exercises: every claim is a program that can fail, and students' answers can be graded.

An `Exercise` has an id, a title, a question, a summary of the answer, `Part`s and maybe a figure. A part is one claim:

- `ask` is the question and `why` the derivation: prose, with formulas between backticks (see below);
- `answer` is the right answer, of one of five kinds: `Number`, `Formula`, `Truth`, `Choice`, `Function`;
- `evidence` is a function without arguments that computes the truth in another way than the answer does and returns
  `Finding(value, note, tolerance)`; `kind` says what kind of evidence it is. It must not read the answer: it computes,
  and the framework compares. `tolerance` is for verdicts and choices that rest on numbers ("to 1e-12"). The type of
  `value` depends on the answer:

      Number     a number, or Interval(low, high) for Monte Carlo (state the confidence in the note)
      Formula    a SymPy expression (make its symbols with `framework.symbolic.symbols`), another formula as text, or a
                 list of IntervalAt({"d": 4}, low, high): values measured for some values of the symbols
      Truth      "true", "nearly" or "false"; `verdict(as_stated, on_condition)` makes it from what was computed
      Choice     the name of the option
      Function   the list of results for `answer.cases`, computed without `answer.right`

- `wrong` maps the name of a common mistake to the answer it leads to; the grader tells that name to whoever gives that
  answer. `only_if` maps a condition to an answer that is right only under it (half the points). Other verdicts of a
  `Truth` and other options of a `Choice` count as wrong by themselves; all kinds but choices need one named mistake.
- `full` is the evidence at full size, for `--full`, where `evidence` trains a small model or draws few samples.

To add an exercise, write one file in `topics/` that ends with `EXERCISES = (ONE, ANOTHER)` and add its name to a topic
of `framework.registry.TOPICS`: one file and one entry. A teacher's own exercise is the same file in any folder
(`--folder`), without an entry. `framework.evidence` has helpers for computing evidence.

tests/exercises/test_exercises.py checks every registered part: its evidence must agree with its answer, every wrong
answer must be refuted by the evidence and by the grader, and its formulas must be readable. So a part needs no test of
its own. An exercise may take 20 s on one core, all of them together 3 minutes on two; most take far less than a second.
Draw random numbers from a seeded generator, use float64, and state tolerances.

`framework.playground.PLAYGROUND` holds five interactive exercises, for a page with sliders and curves.

Formulas between backticks are only displayed: names (`mu`, `W_v`, `y_n`), numbers, + - * / ^, brackets, = != < <= > >=
~ ->, commas, and calls of any name; sqrt, abs, norm, T (transpose), inv, dot(a, b), sum(i, x_i), d(y, x) (derivative),
hat(y) and list(1, 2) are drawn as mathematics. Formulas in answers may use only their symbols, pi, E and the functions
of `framework.formula.FUNCTIONS`.

A small example:

    from octavo.exercises import Exercise, Finding, Formula, IntervalAt, Part

    def squared_score() -> Finding:
        d, mean_square, standard_error = ...  # computed, not copied from the answer
        low, high = mean_square - 4 * standard_error, mean_square + 4 * standard_error
        return Finding([IntervalAt({"d": d}, low, high)], "200,000 draws, 4 standard errors")

    SCORE = Exercise(
        id="score-size",
        title="How large is a dot-product score?",
        question="The d entries of a and b are independent, with mean 0 and variance 1.",
        answer="Only the d squares survive, each with mean 1: `E(dot(a, b)^2) = d`.",
        parts=[
            Part("mean-square", "What is `E(dot(a, b)^2)`?", Formula("d", {"d": "whole"}), "monte carlo", squared_score,
                 why="The d^2 products have mean zero unless both factors are the same entries.",
                 wrong={"counted all d^2 products": "d^2", "gave the standard deviation": "sqrt(d)"}),
        ],
    )
    EXERCISES = (SCORE,)
"""

from octavo.exercises.framework.answers import Choice, Formula, Function, Interval, IntervalAt, Number, Truth, verdict
from octavo.exercises.framework.exercise import Evidence, Exercise, Finding, Part

__all__ = [
    "Choice", "Evidence", "Exercise", "Finding", "Formula", "Function", "Interval", "IntervalAt", "Number", "Part",
    "Truth", "verdict",
]  # fmt: skip
