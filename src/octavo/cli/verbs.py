"""The verbs that use models: each function's signature is its flags."""

from __future__ import annotations

from collections.abc import Callable

import tyro

from octavo.cli.cost import run_cost
from octavo.cli.demo import demo
from octavo.cli.doctor import doctor
from octavo.cli.domains import domains
from octavo.cli.exchange import export, import_
from octavo.cli.flags import STYLE
from octavo.cli.look import inspect, list_
from octavo.cli.score import compress, decompress, eval_
from octavo.cli.train import resume, run_train
from octavo.cli.vectors import run_vectors
from octavo.cli.write import generate

FUNCTIONS: dict[str, Callable[..., None]] = {
    "resume": resume,
    "eval": eval_,
    "generate": generate,
    "compress": compress,
    "decompress": decompress,
    "inspect": inspect,
    "list": list_,
    "export": export,
    "import": import_,
    "doctor": doctor,
    "domains": domains,
    "demo": demo,
}


def run_verb(verb: str, argv: list[str]) -> None:
    """Parse the flags of one verb and call it."""
    if verb == "train":
        run_train(argv)
    elif verb == "cost":
        run_cost(argv)
    elif verb == "vectors":
        run_vectors(argv)
    else:
        tyro.cli(FUNCTIONS[verb], prog=f"octavo {verb}", args=argv, config=STYLE)
