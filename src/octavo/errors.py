"""The one exception that means 'the user can fix this'."""


class UserError(Exception):
    """A user's mistake: its text says the rule, the values and the remedy, and the command line exits with 2."""
