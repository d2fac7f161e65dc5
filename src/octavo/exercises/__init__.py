"""Exercises: every claim is a program that can fail, and answers can be graded.

An exercise is an `Exercise`: an id, a title, a question, an answer in plain words, `Part`s and perhaps a figure. A part
is one claim of it. It holds

- `ask`, the question, and `why`, the derivation: plain words, formulas between backticks (see below);
- `answer`, the right one, of one of five kinds (`answers.py`): `Number`, `Formula`, `Truth`, `Choice`, `Function`;
- `kind` of evidence, and `evidence`: a function without arguments that finds the truth by another way than the answer
  and returns `Found(value, note, tolerance)`. It must not look at the answer: it computes, and the frame compares. The
  tolerance is for verdicts and choices that rest on numbers ("to 1e-12"). What `value` is depends on the answer:

      Number     a number, or Interval(low, high) for Monte Carlo (say in the note how sure the interval is)
      Formula    a SymPy expression (make its symbols with `symbolic.symbols`), another formula as text, or a list of
                 At({"d": 4}, low, high): what was measured for some values of the symbols
      Truth      "true", "nearly" or "false"; `verdict(as_stated, on_condition)` makes it from what was computed
      Choice     the name of the option
      Function   the list of results for `answer.cases`, found without `answer.right`

- `wrong`: the usual mistakes, each named by what the mistake is, with the answer that it leads to; whoever gives that
  answer is told the name. `only_if`: conditions, each with the answer that is right only then (half the points).
  Other verdicts of a `Truth` and other options of a `Choice` are counted among the wrong ones by themselves; all but
  choices need at least one mistake with a name.
- `full`: the evidence at its real size, for `--full`, where `evidence` trains or draws little.

tests/test_exercises.py runs over every part that is registered: its evidence must agree with its answer, every wrong
answer must be refused by that same evidence and by the grader, its formulas must be readable. So a part needs no test
of its own. An exercise takes at most 20 s on one core, all of them together 3 minutes on two; most should take far
less than a second. Draw random numbers from a generator of your own seed, use float64, and state tolerances.

`playground.PLAYGROUND` holds those whose numbers somebody can turn, for a page that draws sliders and curves.

A topic is an entry of `registry.TOPICS`: its name and its modules, each of which ends with
`EXERCISES = (ONE, ANOTHER)`. A teacher's own exercise is a Python file in a folder (`--folder`), made the same way.

Formulas between backticks are for reading only: names (`mu`, `W_v`, `y_n`), numbers, + - * / ^, brackets, = != < <= >
>= ~ ->, commas, and calls of anything; sqrt, abs, norm, T (transposed), inv, dot(a, b), sum(i, x_i), d(y, x) (a
derivative), hat(y) and list(1, 2) are drawn as mathematics. Formulas of answers know only their symbols, pi, E and the
functions of `formula.FUNCTIONS`.

A small one:

    from octavo.exercises.framework.answers import At, Formula
    from octavo.exercises.framework.exercise import Exercise, Found, Part

    def squared_score() -> Found:
        d, mean_square = ...  # computed, not looked up
        low, high = mean_square - 4 * error, mean_square + 4 * error
        return Found([At({"d": d}, low, high)], "200,000 draws, 4 standard errors")

    SCORE = Exercise(
        id="score-size",
        title="How large is a score?",
        question="The d entries of a and b are independent, with mean 0 and variance 1.",
        answer="Only the d squares survive, each with mean 1: `E(dot(a, b)^2) = d`.",
        parts=[
            Part("mean-square", "What is `E(dot(a, b)^2)`?", Formula("d", {"d": "whole"}), "monte carlo", squared_score,
                 why="The d^2 products have mean zero unless both factors meet themselves.",
                 wrong={"counted all d^2 products": "d^2", "took the standard deviation": "sqrt(d)"}),
        ],
    )
    EXERCISES = (SCORE,)
"""
