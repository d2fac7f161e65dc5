"""Grading a class in isolation: 100 students who answer every exercise, functions with numpy and torch included.

    python benchmarks/bench_grading.py                    (about three minutes; the whole machine should be idle)
    python benchmarks/bench_grading.py --students 10      (a quick try)

Every student hands in all answers; the n-th makes the n-th common mistake in every seventh part, and all functions are
in one file that imports numpy and torch. `octavo exercises grade` is run as a teacher runs it, once with each isolation
and once without (--trust). The last rows are the time to start one isolated program, and to import torch in it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import octavo_command, parser, print_header, print_machine, print_row, run_command
from octavo.exercises import Exercise, Function, Part, Truth
from octavo.exercises.framework.grading import CONDITION
from octavo.exercises.framework.isolation import call_functions, choose_backend
from octavo.exercises.framework.limits import Limits
from octavo.exercises.framework.registry import exercises_by_topic

GOAL_SECONDS = 180.0  # for 100 students on two idle cores
MISTAKE_EVERY = 7  # parts
REPEATS = 20
WAYS = {"bubblewrap": ["--isolation", "bubblewrap"], "namespaces": ["--isolation", "namespaces"], "none": ["--trust"]}
FUNCTION = """
def {name}(*arguments):
    return TABLE[{name!r}][json.dumps(arguments)]
"""


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--students", type=int, default=100)
    arguments.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    args = arguments.parse_args()
    print_machine()
    exercises = [one for exercises in exercises_by_topic().values() for one in exercises]
    parts = sum(len(one.parts) for one in exercises)
    print(f"{args.students} students, {parts} parts each", flush=True)
    print_header("isolation", "seconds", "seconds a student", "goal")
    with tempfile.TemporaryDirectory() as folder:
        for n in range(args.students):
            write_student(Path(folder, "class", f"student{n:03}"), exercises, n)
        for way in args.ways:
            cost = run_command(octavo_command("exercises", "grade", f"{folder}/class", "--json", *WAYS[way]))
            check(json.loads(cost.output), args.students)
            goal = f"{GOAL_SECONDS * args.students / 100:.0f}"
            print_row(way, f"{cost.seconds:.1f}", f"{cost.seconds / args.students:.2f}", goal)
    print_starts()


def write_student(folder: Path, exercises: list[Exercise], n: int) -> None:
    """A student who makes the n-th named mistake in every MISTAKE_EVERY-th part."""
    folder.mkdir(parents=True)
    lines, table, counter = [], {}, n
    for exercise in exercises:
        lines.append(f"[{exercise.id}]")
        for part in exercise.parts:
            counter += 1
            if isinstance(part.answer, Function):
                given: Any = "functions.py"
                results = {json.dumps(case): part.answer.right(*case) for case in part.answer.cases}
                table[part.answer.name] = results
            else:
                mistakes = [*part.wrong.values()] if counter % MISTAKE_EVERY == 0 else []
                given = mistakes[n % len(mistakes)] if mistakes else part.answer.right
            lines += answer_lines(part, given)
    code = ["import json", "import numpy", "import torch", f"TABLE = json.loads({json.dumps(table)!r})"]
    functions = [FUNCTION.format(name=name) for name in table]
    (folder / "answers.toml").write_text("\n".join(lines), encoding="utf-8")
    (folder / "functions.py").write_text("\n".join([*code, *functions]), encoding="utf-8")


def answer_lines(part: Part, given: Any) -> list[str]:
    plain = given if isinstance(given, bool | int | float) else str(given)
    lines = [f"{part.id} = {json.dumps(plain)}"]
    if isinstance(part.answer, Truth) and given == "nearly":
        lines.append(f"{part.id}{CONDITION} = {json.dumps(str(part.answer.condition.right))}")
    return lines


def check(report: list[dict[str, Any]], students: int) -> None:
    """The class must have been graded: everybody, nothing refused, all functions right."""
    rows = [row for student in report for row in student["parts"]]
    refused = [row for row in rows if row["outcome"] in ("refused", "missing", "partly")]
    if len(report) != students or refused:
        sys.exit(f"{len(report)} of {students} students were graded, and {len(refused)} answers refused: {refused[:3]}")


def print_starts() -> None:
    """The time of one program alone."""
    backend = choose_backend()
    for label, code in (
        ("start one program", ""),
        ("import numpy", "import numpy\n"),
        ("import torch", "import torch\n"),
    ):
        times = []
        for _ in range(REPEATS if not code else 3):
            began = time.perf_counter()
            source = f"{code}def f(x):\n    return x\n".encode()
            call_functions(backend, {"a.py": source}, "a.py", [("f", [[1]])], Limits(60.0))
            times.append(time.perf_counter() - began)
        print_row(f"{backend.name}: {label}", f"{statistics.median(times):.3f}", "", "")


if __name__ == "__main__":
    main()
