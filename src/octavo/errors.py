"""The one exception that means 'the user can fix this'."""


class UserError(Exception):
    """A user's mistake: its text says the rule, the values and the remedy, and the command line exits with 2."""


class Stopped(KeyboardInterrupt):
    """Training was asked to stop by a signal, and has saved what it had."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.code = 128 + signal  # what a shell expects of a process that a signal ended
