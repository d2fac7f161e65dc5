"""The one exception that means 'the user can fix this', and what means 'there is too little memory'."""

import errno
from collections.abc import Iterable

NO_MEMORY = (  # what libraries say, whatever the kind of their exceptions
    "out of memory", "allocate memory", "bad_alloc", "failed to map segment", "cannot map", "start new thread",
    "thread creation failed", "MemoryError", "bad allocation", "could not create a primitive",
    "could not create a memory",
)  # fmt: skip
MAX_MESSAGE_CHARACTERS = 900


class UserError(Exception):
    """A user's mistake: its text says the rule, the values and the remedy, and the command line exits with 2.

    Examples:
        >>> octavo.train("ngrm", "book.txt")
        Traceback (most recent call last):
        octavo.errors.UserError: there is no model 'ngrm'; did you mean ngram?
    """


class EncodingError(UserError):
    """A text is not in the encoding that it was read in; `guess` is the one that it seems to have, or empty."""

    def __init__(self, problem: str, guess: str) -> None:
        self.problem = problem + (f"; it looks like {guess}" if guess else "")
        self.guess = guess
        name = guess or "NAME"
        super().__init__(
            f"{self.problem}; read it with encoding={name!r}, or with errors='replace' to put U+FFFD there, or "
            "errors='raw' to keep any bytes"
        )


class NotNumbersError(UserError):
    """A model computes NaN or infinities: its weights are damaged, or its training has failed."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception, or what caused it, is a lack of memory, of address space or of threads."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        words = str(error).lower()
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if isinstance(error, ImportError | RuntimeError | OSError) and any(one.lower() in words for one in NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def one_line(message: str) -> str:
    """A message for the terminal: one line, not too long, and nothing that moves the cursor or hides text.

    A message may quote what stands in a file that others made.
    """
    line = "".join(_visible(character) for character in " ".join(message.splitlines()))
    if len(line) <= MAX_MESSAGE_CHARACTERS:
        return line
    return f"{line[: MAX_MESSAGE_CHARACTERS * 2 // 3]} ... {line[-MAX_MESSAGE_CHARACTERS // 3 :]}"  # the remedy is last


def _visible(character: str) -> str:
    if character.isprintable() or character in "\t\u00a0":
        return character
    return character.encode("unicode_escape").decode("ascii")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like another one; empty where none is."""
    import difflib  # here, because only mistakes need it

    return next(iter(difflib.get_close_matches(name, list(known), 1)), "")


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The remedy for a name that is not known: the nearest one that is, or something else to do."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else otherwise


class Stopped(KeyboardInterrupt):
    """Training was asked to stop by a signal, and has saved what it had."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.code = 128 + signal  # what a shell expects of a process that a signal ended
