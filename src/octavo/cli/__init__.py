"""The command line: one function a verb. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

from octavo.errors import UserError
from octavo.version import VERSION

Verb = Callable[[list[str]], None]

VERBS: dict[str, str] = {
    "data": "list, fetch and show the named texts",
    "train": "train a model on a text",
    "eval": "bits per byte, perplexity and the most surprising passages",
    "generate": "let a model write",
    "compress": "compress a file with a model",
    "decompress": "restore a compressed file",
    "inspect": "look inside a model, token by token",
    "list": "the runs in a folder",
    "export": "write a model in a format others read",
    "import": "read a model that others wrote",
    "demo": "train a few models on Shakespeare and compare them",
}

USAGE = """octavo: every sequence model in the book, on one scale

usage: octavo VERB ...        octavo VERB --help shows flags and an example

{verbs}

first steps:
  octavo train ngram shakespeare --order 7 --tokenizer byte --out runs/kn7
  octavo eval runs/kn7
  octavo generate runs/kn7 --prompt "ROMEO:" --max-tokens 200
"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 all well, 1 our bug, 2 the user's mistake, 130 interrupted."""
    argv = list(sys.argv[1:] if args is None else args)
    try:
        return _run(argv)
    except UserError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("octavo: interrupted; nothing half-written is left behind", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        sys.stderr.close()
        return 0
    except MemoryError:
        print("octavo: out of memory; try a smaller text, a lower --order, or --prune 0 0 1", file=sys.stderr)
        return 2
    except Exception:
        traceback.print_exc()
        print("octavo: that was a bug in octavo, not your mistake; please report the lines above", file=sys.stderr)
        return 1


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n".join(f"  {verb:<12}{what}" for verb, what in VERBS.items())), end="")
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"octavo {VERSION}")
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
