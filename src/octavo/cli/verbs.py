"""The verbs that use models: which function serves each, and which serves it for runs of another task.

A function is imported when its verb is called: what every verb needs together takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from octavo.cli.flags import run_command
from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, read_record

FUNCTIONS: dict[str, str] = {  # whose signature is the verb's flags
    "compare": "compare.compare",
    "resume": "train.resume",
    "eval": "eval.eval_",
    "generate": "generate.generate",
    "translate": "translate.translate",
    "compress": "eval.compress",
    "decompress": "eval.decompress",
    "inspect": "inspect.inspect",
    "answer": "answer.answer",
    "fill": "masked.fill",
    "embed": "masked.embed",
    "list": "runs.list_",
    "studio": "studio.studio",
    "export": "exchange.export",
    "import": "exchange.import_",
    "doctor": "doctor.doctor",
    "domains": "domains.domains",
}
PARSERS: dict[str, str] = {  # which take the words and decide about flags themselves
    "train": "train.run_train",
    "classify": "classify.run_classify",
    "cost": "cost.run_cost",
    "scale": "scale.run_scale",
    "vectors": "vectors.run_vectors",
    "exercises": "exercises.run_exercises",
}
OF_TASK = {  # the modules whose functions serve these verbs for runs that are no language models
    "images": ("images", ("eval", "inspect")), "translation": ("translate", ("eval", "inspect")),
    "classification": ("classify", ("eval", "inspect")),
}  # fmt: skip


def run_verb(verb: str, argv: list[str]) -> None:
    """Parse the flags of one verb and call it."""
    if verb in PARSERS:
        verb_function(PARSERS[verb])(argv)
        return
    module, verbs = OF_TASK.get(task_of(argv), ("", ()))
    name = FUNCTIONS[verb].partition(".")[2]
    run_command(verb_function(f"{module}.{name}" if verb in verbs else FUNCTIONS[verb]), f"octavo {verb}", argv)


def verb_function(named: str) -> Callable[..., Any]:
    """The function of that module of the command line."""
    module, name = named.split(".")
    found: Callable[..., Any] = getattr(import_module(f"octavo.cli.{module}"), name)
    return found


def task_of(argv: list[str]) -> str:
    """The task of the first run among the words."""
    for word in argv:
        if not word.startswith("-") and (Path(word) / CONFIG).is_file():
            with suppress(UserError):  # what is wrong with it is said when it is read
                return str(read_record(word)["task"])
            return ""
    return ""
