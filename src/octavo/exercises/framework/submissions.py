"""Grading one answer file, or a class: a folder with one folder per student."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from octavo.errors import UserError
from octavo.exercises.framework.exercise import Exercise
from octavo.exercises.framework.functions import FunctionRunner
from octavo.exercises.framework.grading import (
    MAX_NAME_CHARACTERS,
    GradedPart,
    Student,
    grade_student,
    refuse_part,
    shorten,
)
from octavo.exercises.framework.limits import Limits, Worker
from octavo.exercises.framework.results import ResultFolder
from octavo.exercises.framework.variants import student_variant

ANSWER_FILE = "answers.toml"
MAX_WORKERS = 8  # students who are graded at the same time, at most


def grade(
    answers: str | Path, exercises: Sequence[Exercise], only: Sequence[str] = (), limits: Limits = Limits(),  # noqa: B008
    finished: Callable[[Student], None] = lambda _: None, runner: FunctionRunner | None = None,
    results: ResultFolder | None = None, seed: int | None = None,
) -> list[Student]:  # fmt: skip
    """Grade a file or a folder of students on the exercises `only` names or, without it, those anybody answered.

    Several students are graded at the same time, each student's functions in processes of their own. `finished` is
    called for each student who is graded. `results` stores them one by one; those stored are not graded again.
    With a seed, every student has numbers of their own, drawn from the seed and the student's name.
    """
    runner = runner or FunctionRunner(limits)
    graded: dict[int, Student] = {}
    with GradingPool(limits) as pool:
        submissions = pool.read(answers)
        answered = {key for one in submissions for key, value in one.given.items() if isinstance(value, dict)}
        assigned = [exercise for exercise in exercises if exercise.id in (only or answered)]

        def own(submission: Submission) -> Sequence[Exercise]:
            return assigned if seed is None else [student_variant(one, submission.name, seed) for one in assigned]

        def grade_one(submission: Submission, worker: Worker) -> Student:
            asked = own(submission)
            if submission.problem:
                rows = [refuse_part(one, part, "refused", submission.problem) for one in asked for part in one.parts]
            else:
                rows = grade_student(submission.file, submission.given, asked, exercises, worker, runner)
            return Student(submission.name, tuple(rows), submission.problem)

        missing = {}
        for i, submission in enumerate(submissions):
            stored = results.load(submission.file, own(submission), limits) if results is not None else None
            if stored is None:
                missing[i] = submission
            else:
                graded[i] = Student(submission.name, tuple(GradedPart(*row) for row in stored), submission.problem)
                finished(graded[i])
        for i, student in pool.map(grade_one, missing):
            graded[i] = student
            if results is not None and not runner.refusal:  # functions that were refused can be run another time
                results.save(submissions[i].file, own(submissions[i]), limits, student.rows)
            finished(student)
    return [graded[i] for i in sorted(graded)]


class Submission(NamedTuple):
    """A student's answers, or the problem that made them unreadable."""

    name: str
    file: Path
    given: dict[str, Any]
    problem: str


class GradingPool:
    """Threads that grade students at the same time, each with a worker of its own."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def __enter__(self) -> GradingPool:
        self._stack = ExitStack()
        count = min(MAX_WORKERS, os.cpu_count() or 1)
        self._workers: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(count):
            self._workers.put(self._stack.enter_context(Worker(self.limits)))
        self._threads = ThreadPoolExecutor(count)
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._stack.close()

    def read(self, answers: str | Path) -> list[Submission]:
        """All students' answers."""
        path = Path(answers)
        is_class = path.is_dir() and not (path / ANSWER_FILE).is_file()
        worker = self._workers.get()
        try:
            return [Submission(shorten(name, MAX_NAME_CHARACTERS), file, *_read_answers(worker, file, is_class))
                    for name, file in find_answers(answers)]  # fmt: skip
        finally:
            self._workers.put(worker)

    def map(
        self, function: Callable[[Submission, Worker], Student], submissions: dict[int, Submission]
    ) -> Iterator[tuple[int, Student]]:
        """The number and the result of each submission, in the order in which they are finished."""

        def with_worker(submission: Submission) -> Student:
            worker = self._workers.get()
            try:
                return function(submission, worker)
            finally:
                self._workers.put(worker)

        futures: dict[Future[Student], int] = {
            self._threads.submit(with_worker, submission): i for i, submission in submissions.items()
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


def find_answers(answers: str | Path) -> list[tuple[str, Path]]:
    """Each student's name and file: for a file, a folder with answers.toml in it, or a folder of such folders."""
    path = Path(answers)
    if path.is_file():
        return [(path.parent.name if path.name == ANSWER_FILE and path.parent.name else path.stem, path)]
    if (path / ANSWER_FILE).is_file():
        return [(path.resolve().name, path / ANSWER_FILE)]
    folders = sorted(path.iterdir()) if path.is_dir() else []
    files = [(one.name, one / ANSWER_FILE) for one in folders if one.is_dir() and one.name[0] not in "._"]
    if not any(file.is_file() for _, file in files):
        raise UserError(f"answers must be a TOML file, or a folder with one folder per student and {ANSWER_FILE} in "
                        f"each: {answers} is neither; octavo exercises template writes an empty file")  # fmt: skip
    return files


def _read_answers(worker: Worker, file: Path, is_class: bool) -> tuple[dict[str, Any], str]:
    """A student's answers, or why they cannot be read; in a class a link could lead to another student's file."""
    if is_class and (file.is_symlink() or file.parent.is_symlink()):
        return {}, f"{ANSWER_FILE} or its folder is a link; hand in the file itself"
    if not file.is_file():
        return {}, f"there is no file {ANSWER_FILE} in the folder"
    try:
        given: dict[str, Any] = worker.ask({"do": "read", "file": str(file)})
        return given, ""
    except UserError as error:
        return {}, str(error)
