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
      Truth      `verdict(as_stated)`, or `verdict(as_stated, under)` for a statement with a condition (see below)
      Choice     the name of the option
      Function   the list of results for `answer.cases`, computed without `answer.right`

- `wrong` maps the name of a common mistake to (the answer it leads to, a function that makes the mistake): the function
  must give that answer. For a Number it has no arguments; for a Formula its arguments are symbols of the formula, and
  it is called at several points. `only_if` maps a condition to an answer that is right only under it (half the points),
  with such a function or with values of symbols, {"m": 0}, at which the right formula becomes this one. Other verdicts
  of a `Truth` and other options of a `Choice` count as wrong by themselves; all kinds but choices need one mistake.
- `full` is the evidence at full size, for `--full`, where `evidence` trains a small model or draws few samples.

A nearly true statement is false as stated and true under a condition, which students must name:

    Truth("nearly", Choice("one-head", {"one-head": "there is one head", "long": "N is larger than D"}))
    Truth("nearly", Number(223, rel=0), "there are at most … keys")

Its evidence says of every option whether the statement holds under it, `verdict(False, {"one-head": True, "long":
False})`, or what the number or formula should be, `verdict(False, 223)`. Exactly the right option may hold. True and
false statements may offer conditions too, `Truth("true", Choice("", {...}))`, so that a list of them betrays nothing.

Numbers are right to three digits, `Number(right, digits=6)` to six, `Number(right, rel=0)` exactly. Evidence must be as
precise as what is asked of students: a Monte Carlo interval that is wider fails the check.

Every number in a text must be confirmed: in questions, derivations, summaries, options and names of mistakes. A name in
braces after a number or a formula, which is not displayed, binds it to something computed; equations are evaluated
(`framework.facts` has the rules). The names stand in `where` of the exercise or of the part; without `where`, the texts
of an exercise are not checked (a teacher's own may be so, ours may not). Write zero and one in words where they are not
mathematics.

    Part("weights", "How many weights do `H = 3` heads of width `D = 12` have?", Number(1728, rel=0), "counted", ...,
         why="Each head has four D × D matrices: `4*H*D^2 = 1728`{}. With one head it would be 576{one_head}.",
         wrong={"forgot the output matrices": (1296, lambda: 3 * 3 * 12 * 12)},
         where={"H": 3, "D": 12, "one_head": lambda D: count_parameters(layer(D, 1))})

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
        id="score-size", where={},
        title="How large is a dot-product score?",
        question="The d entries of a and b are independent, with mean 0 and variance 1.",
        answer="Only the d squares survive, each with mean one, so the mean square is `d`.",
        parts=[
            Part("mean-square", "What is `E(dot(a, b)^2)`?", Formula("d", {"d": "whole"}), "monte carlo", squared_score,
                 why="The products have mean zero unless both factors are the same entries.",
                 wrong={"counted all products": ("d^2", lambda d: sum(1 for i in range(d) for j in range(d))),
                        "gave the standard deviation": ("sqrt(d)", lambda d: d ** 0.5)}),
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
