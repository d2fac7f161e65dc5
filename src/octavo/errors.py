"""The one exception that means 'the user can fix this'."""

from collections.abc import Iterable


class UserError(Exception):
    """A user's mistake: its text says the rule, the values and the remedy, and the command line exits with 2.

    Example:
        >>> octavo.train("ngrm", "book.txt")
        Traceback (most recent call last):
        octavo.errors.UserError: there is no model 'ngrm'; did you mean ngram?
    """


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The remedy for a name that is not known: the nearest one that is, or something else to do."""
    import difflib  # here, because only mistakes need it

    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]}?" if near else otherwise


class Stopped(KeyboardInterrupt):
    """Training was asked to stop by a signal, and has saved what it had."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.code = 128 + signal  # what a shell expects of a process that a signal ended
