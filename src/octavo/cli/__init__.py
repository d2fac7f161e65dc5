"""The command line: one function a verb. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence

from octavo import __version__
from octavo.errors import Stopped, UserError

VERBS: dict[str, str] = {
    "data": "list, fetch and show the named texts",
    "compare": "train every model on a text, and see which is best and what it costs",
    "train": "train a model on a text",
    "resume": "go on with training that was stopped",
    "eval": "bits per byte, perplexity and the most surprising passages",
    "generate": "let a model write",
    "translate": "translate texts with a model trained on pairs",
    "compress": "compress a file with a model",
    "decompress": "restore a compressed file",
    "inspect": "look inside a model, token by token: surprise, gates, the gradient's way back",
    "classify": "sort texts into classes: train, measure, and explain the mistakes",
    "cost": "what a model costs before it is trained, and what a budget is best spent on",
    "answer": "answer questions with a confidence; ask and learn what is not known",
    "fill": "fill in masked words with a BERT, or see how well each word is foreseen",
    "embed": "sentences as vectors, and which are nearest",
    "doctor": "is my loss normal? what is wrong with a run, and what to try",
    "list": "the runs in a folder",
    "export": "write a model in a format others read",
    "import": "read a model that others wrote",
    "vectors": "learn word vectors from a text, and look at them",
    "scale": "how a model gets better with more text, and where it passes an n-gram",
    "domains": "compare models on two domains, and see which words cost more",
    "studio": "look inside the models of a folder, in the browser",
    "exercises": "the classic questions with checked answers; grade those of students",
}

USAGE = """octavo: every sequence model in the book, on one scale

usage: octavo VERB ...        octavo VERB --help shows flags and an example

{verbs}

first steps:
  octavo compare shakespeare --quick
  octavo train ngram shakespeare --order 7 --tokenizer byte --out runs/kn7
  octavo eval runs/kn7
  octavo generate runs/kn7 --prompt "ROMEO:" --max-tokens 200
"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 all well, 1 our bug, 2 the user's mistake, 130 interrupted."""
    argv = list(sys.argv[1:] if args is None else args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name, say, need not be UTF-8
    try:
        code = _run(argv)
        sys.stdout.flush()  # while a full disk or a closed pipe can still be told of
        return code
    except SystemExit as stop:  # tyro has shown help, or what is wrong with the flags
        return stop.code if isinstance(stop.code, int) else 0
    except UserError as error:
        _complain(str(error))
        return 2
    except Stopped as stop:
        print(f"octavo: {stop}", file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print("octavo: interrupted; nothing half-written is left behind", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        _let_go_of_output()
        return 0
    except OSError as error:
        _complain(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
        _let_go_of_output()
        return 2
    except Exception as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
            _complain("out of memory; try a smaller text, a smaller model, or, of an n-gram, --prune 0 0 1")
            return 2
        traceback.print_exc()
        print("octavo: that was a bug in octavo, not your mistake; please report the lines above", file=sys.stderr)
        return 1


def _complain(message: str) -> None:
    print("octavo: " + " ".join(message.splitlines()), file=sys.stderr)


def _let_go_of_output() -> None:
    """What could not be written is given up, or Python would try again, and complain, when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n".join(f"  {verb:<12}{what}" for verb, what in VERBS.items())), end="")
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"octavo {__version__}")
        return 0
    if argv[0] not in VERBS:
        import difflib

        near = difflib.get_close_matches(argv[0], VERBS, 1)
        raise UserError(
            f"there is no verb {argv[0]!r}; " + (f"did you mean {near[0]}?" if near else "see octavo --help")
        )
    if argv[0] == "data":
        from octavo.cli.data import run_data

        run_data(argv[1:])
        return 0
    from octavo.cli.verbs import run_verb

    run_verb(argv[0], argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
