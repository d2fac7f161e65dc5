"""octavo answer, and the report on a model that was taught facts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.flags import Device, Encoding, RunPath
from octavo.cli.output import note, print_json, print_table
from octavo.datasets.questions import read_questions
from octavo.errors import UserError
from octavo.io.encoding import UTF8
from octavo.scoring.metrics import answered, exact_match
from octavo.tasks.answering import Reply, Rules, pairs_in, replies_to
from octavo.tasks.answering import learn as learn_pairs
from octavo.tasks.device import ANSWERED, place
from octavo.tasks.facts_file import Facts, open_file_of_facts
from octavo.tasks.facts_run import FactsRun, answering_run
from octavo.tasks.run import load

Question = Annotated[Positional[str], arg(metavar="QUESTION")]


def print_result(result: dict[str, Any]) -> None:
    """How many new questions are answered exactly, and how far the confidence can be believed."""
    common = result["commonest"]
    print(
        f"{result['exact_match']:.1%} of {result['questions']:,} new questions answered exactly "
        f"(± {result['standard_error']:.1%}); always {common['answer']!r}: {common['exact_match']:.1%}"
    )
    rows = [
        (name, f"{one['questions']:,}", f"{one['exact_match']:.1%}", f"{one['confidence']:.1%}", f"{one['ece']:.1%}")
        for name, one in result["groups"].items()
    ]
    print_table(("name", "asked", "right", "mean confidence", "calibration error"), rows)


def answer(
    run: RunPath,
    question: Question = "",
    facts: str | None = None,
    threshold: float = 0.5,
    ask: bool = True,
    beam: int = 1,
    file: str | None = None,
    learn: bool = False,
    steps: int = 100,
    table: str = "",
    columns: tuple[str, ...] = (),
    device: Device = "auto",
    encoding: Encoding = UTF8,
    json: bool = False,
) -> None:
    """Answer a question, or say that the answer is not known: the model where it is sure, then a file of facts, then
    you. What you answer is stored in the file; --learn teaches the model what is stored.

    Example: octavo answer runs/facts "Where was Ada Lovelace born?" --facts facts.db --threshold 0.7

    Example: octavo answer runs/facts --learn --facts facts.db

    Args:
        run: A run of octavo train facts.
        question: The question, or the name alone.
        facts: Any SQLite file, or CSV, with names and answers; it is made when there is something to store.
        threshold: Believe the model's answer if it is at least so probable.
        ask: --no-ask never asks you. On a terminal you are asked what neither the model nor the file knows.
        beam: How many candidates to keep while searching for an answer; more than 1 shows the others too.
        file: Questions, one a line, in place of QUESTION; with a tab and the right answers, these are counted.
        learn: Finetune the run on the pairs that are stored in the file, beside its own questions.
        steps: --learn: changes of the weights.
        table: The SQLite table to look in; without it, facts, or the first.
        columns: The columns of the name and of the answer; without it, name and answer, or the first two.
        json: Print JSON, and ask nothing.
    """
    if sum([bool(question), file is not None, learn]) != 1:
        raise UserError("give one thing to do: a question, --file with questions, or --learn with --facts")
    oracle = answering_run(load(run))
    stored = open_file_of_facts(facts, table, columns) if facts is not None else None
    if learn:
        _learn(oracle, stored, run, steps, device, json)
        return
    rules = Rules(threshold, stored, _asked if ask and sys.stdin.isatty() and not json else None, beam)
    if file is not None:
        place(oracle, device)
        _answer_file(oracle, rules, Path(file), encoding, json)
        return
    place(oracle, device, ANSWERED)
    (reply,) = replies_to(oracle, [question], rules)
    print_json(reply.to_json()) if json else _print_reply(reply, stored, threshold)


def _asked(question: str) -> str:
    print(f"I am not sure. {question} (Enter: leave it)", file=sys.stderr)
    print("> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def _print_reply(reply: Reply, facts: Facts | None, threshold: float) -> None:
    guess = f"{reply.guess!r}, with confidence {reply.confidence:.1%}"
    print(reply.answer if reply.answer is not None else "I do not know.")
    where = f"{facts.path}" if facts is not None else ""
    sources = {
        "model": f"the model, with confidence {reply.confidence:.1%}",
        "facts": f"from {where}; the model would have said {guess}",
        "user": f"from you{f', stored in {where}' if reply.stored else '; name a file with --facts to keep it'}; "
                f"the model would have said {guess}",
        "nobody": f"the model would have said {guess}, below the threshold of {threshold:.0%}"
                  + (f"; {where} does not have it" if where else ""),
    }  # fmt: skip
    note(sources[reply.source])
    note(*(f"  or {text!r}: {confidence:.1%}" for text, confidence in reply.others))


def _answer_file(oracle: FactsRun, rules: Rules, path: Path, encoding: str, json: bool) -> None:
    """One line a question; where right answers are given, how many the model knew."""
    asked = read_questions(path, encoding)
    if not asked:
        raise UserError(f"there are no questions in {path}: each stands on a line of its own")
    replies = replies_to(oracle, [question for question, _ in asked], replace(rules, ask=None))
    known = [(reply, right) for reply, (_, right) in zip(replies, asked, strict=True) if right]
    scores: dict[str, Any] = {}
    if known:
        scores = answered([reply.confidence for reply, _ in known],
                        [exact_match(reply.guess, right) for reply, right in known]).to_json()  # fmt: skip
    if json:
        print_json({"replies": [reply.to_json() for reply in replies], "model": scores or None})
        return
    for reply in replies:
        print(f"{reply.question}\t{reply.answer if reply.answer is not None else ''}")
    given = [(reply, right) for reply, right in known if reply.answer is not None]
    if known:
        right = sum(exact_match(str(reply.answer), one) for reply, one in given)
        note(f"answered {len(given):,} of {len(known):,}, {right / max(1, len(given)):.1%} of these rightly; "
             f"the model alone, without a threshold: {scores['exact_match']:.1%}")  # fmt: skip


def _learn(oracle: FactsRun, facts: Facts | None, run: str, steps: int, device: str, json: bool) -> None:
    if facts is None:
        raise UserError("there is nothing to learn from: name the file of stored pairs with --facts")
    pairs = pairs_in(oracle, facts)
    if not pairs:
        raise UserError(f"{facts.path} has no pairs to learn; store some by answering questions, or name another")
    result = learn_pairs(oracle, pairs, steps, device=device, out=run)
    if json:
        print_json(result)
        return
    before, after = result["before"], result["after"]
    print_table(("right", "before", "after"), [
        (f"stored pairs ({result['pairs']:,})", f"{before['new']:.1%}", f"{after['new']:.1%}"),
        ("questions kept back", f"{before['dev']:.1%}", f"{after['dev']:.1%}"),
    ])  # fmt: skip
    print(f"learnt in {result['steps']:,} steps, {result['seconds']:.1f} s; {run} now has the new weights")
