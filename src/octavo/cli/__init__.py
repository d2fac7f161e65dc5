"""The command line: one function a verb. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from octavo import __version__
from octavo.cli.help import asked_for, show_help
from octavo.cli.memory_limit import watch_imports
from octavo.cli.termination import terminable
from octavo.cli.verbosity import take_max_bytes, take_verbosity, with_verbosity
from octavo.errors import EncodingError, Stopped, UserError, did_you_mean, is_out_of_memory, one_line
from octavo.io.limits import with_max_bytes

# What each verb does, and by what: a function whose signature is the flags, one called run_... that takes the words, or
# a module with ACTIONS, one of which the first word names. It is imported when its verb is called.
VERBS: dict[str, tuple[str, str]] = {
    "data": ("data", "list, download and show the named datasets; write token files"),
    "compare": ("compare.compare", "train every model on a text, and rank them by bits per byte and cost"),
    "train": ("train.run_train", "train a model"),
    "resume": ("train.resume", "resume training that was stopped, or continue with a larger budget"),
    "eval": ("eval.eval_", "evaluate a model: bits per byte, perplexity and the most surprising passages"),
    "generate": ("generate.generate", "generate text"),
    "translate": ("translate.translate", "translate texts with an encoder-decoder model"),
    "compress": ("eval.compress", "compress a file with a model"),
    "decompress": ("eval.decompress", "restore a compressed file"),
    "inspect": ("inspect.inspect", "look inside a model, token by token: surprisal, gates, attention, gradient flow"),
    "classify": ("classify.run_classify", "classify texts: train, evaluate, and explain the mistakes"),
    "tag": ("tag.run_tag", "tag the words of sentences, such as parts of speech or names: train, evaluate, predict"),
    "cost": ("cost.run_cost", "parameters, FLOPs and memory of a model before it is trained; plan a budget"),
    "answer": ("answer.answer", "answer questions with a confidence; train on new facts"),
    "fill": ("masked.fill", "fill in masked words with a BERT, or score how well each word is predicted"),
    "embed": ("masked.embed", "sentences as vectors, and the nearest ones"),
    "doctor": ("doctor.doctor", "diagnose a training run: is the loss normal, what is wrong, what to try"),
    "list": ("runs.list_", "list the runs in a folder"),
    "export": ("exchange.export", "export a model to Hugging Face, GGUF, ONNX or ARPA"),
    "import": ("exchange.import_", "import a model from ARPA, GGUF or Hugging Face"),
    "count": ("count.run_count", "count n-grams into files, within a limit of memory, and add counts"),
    "vectors": ("vectors.run_vectors", "train word vectors (GloVe), and query them"),
    "scale": ("scale.run_scale", "scaling laws: the loss as the text grows, and where a model overtakes an n-gram"),
    "domains": ("domains.domains", "compare models on two domains, and see which words cost more"),
    "studio": ("studio.studio", "open the models of a folder in the browser"),
    "completion": ("completion.completion", "write a script that completes octavo's words in bash, zsh or fish"),
    "exercises": ("exercises", "textbook exercises with checked answers; grade students' answers"),
}

USAGE_ALONE = (
    ["data"],
    ["train"],
    ["classify"],
    ["tag"],
    ["cost"],
    ["count"],
    ["scale"],
    ["exercises"],
)  # which alone show their usage
USAGE = """octavo: every sequence model in the book, on one scale

usage: octavo VERB ...        octavo help VERB (or octavo VERB --help) shows flags and an example

every verb takes --quiet, --verbose, --max-bytes and --help; those that print a result, --json

{verbs}

first steps:
  octavo compare shakespeare --quick
  octavo train ngram shakespeare --order 7 --tokenizer byte --out runs/kn7
  octavo eval runs/kn7
  octavo generate runs/kn7 --prompt "ROMEO:" --max-tokens 200
"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 all well, 1 a part failed or our bug, 2 the user's mistake, 130, 143 stopped."""
    argv = list(sys.argv[1:] if args is None else args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name, say, need not be UTF-8
    verbose = False
    try:
        argv, quiet, verbose = take_verbosity(argv)
        argv, max_bytes = take_max_bytes(argv)
        with with_verbosity(quiet, verbose), with_max_bytes(max_bytes), terminable():
            code = _run(argv)
        sys.stdout.flush()  # while a full disk or a closed pipe can still be reported
        return code
    except SystemExit as stop:  # tyro has shown help, or what is wrong with the flags
        return stop.code if isinstance(stop.code, int) else 0
    except UserError as error:
        if verbose:
            traceback.print_exc()
        _print_error(_error_message(error, argv))
        return 2
    except Stopped as stop:
        print(f"octavo: {stop}", file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print("octavo: interrupted; nothing half-written is left behind", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        _discard_output()
        return 0
    except Exception as error:
        if is_out_of_memory(error):
            _print_error("out of memory; try a smaller text, a smaller model, or, of an n-gram, --prune 0 0 1")
            return 2
        if isinstance(error, OSError):
            _print_error(_system_error(error))
            _discard_output()
            return 2
        traceback.print_exc()
        print("octavo: that was a bug in octavo, not your mistake; please report the lines above", file=sys.stderr)
        return 1


def _error_message(error: UserError, argv: list[str]) -> str:
    """What an error says, Python's arguments as flags; of a text in another encoding, the command that reads it."""
    if isinstance(error, EncodingError) and error.guess and "--encoding" not in argv:
        return f"{error.problem}; try: octavo {shlex.join([*argv, '--encoding', error.guess])}"
    return re.sub(r"\b(encoding|errors)='?([\w-]+)'?", r"--\1 \2", str(error))


def _system_error(error: OSError) -> str:
    """What the operating system says; of a folder that could not be copied, of the first file."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        first = error.args[0][0]
        return " ".join(str(first[-1] if isinstance(first, tuple) else first).splitlines())
    return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")


def _print_error(message: str) -> None:
    print("octavo: " + one_line(message), file=sys.stderr)


def _discard_output() -> None:
    """Drop what could not be written, or Python would try again, and print an error, when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_named(word: str) -> str:
    """A word of the command; a row of a comparison, which may be named where a run is, as the folder of its run."""
    if word.startswith("-") or not ("/" in word or os.sep in word):
        return word
    from octavo.io.run_folder import find_run

    found = find_run(word)
    return word if found == Path(word) else str(found)


def _run(argv: list[str]) -> int:
    words = argv if argv in USAGE_ALONE else asked_for(argv)
    if words and words[0] in VERBS:
        if show_help(words):
            return 0
        argv = [*words, "--help"]
    elif words:
        argv = words
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n".join(f"  {verb:<12}{what}" for verb, (_, what) in VERBS.items())), end="")
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"octavo {__version__}")
        return 0
    if argv[0] not in VERBS:
        raise UserError(f"there is no verb {argv[0]!r}; {did_you_mean(argv[0], VERBS, 'see octavo --help')}")
    from octavo.cli.verbs import run_verb

    watch_imports()
    words = [_run_named(word) for word in argv[1:]]
    run_verb(argv[0], words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
