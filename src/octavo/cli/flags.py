"""What the verbs have in common: flags from a function's signature, groups of actions, and --json."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from octavo.cli.help import HELP_FLAGS, Description, help_text
from octavo.cli.output import Output
from octavo.config import DEVICE_NAMES
from octavo.errors import UserError, did_you_mean
from octavo.io.compressed import read_whole
from octavo.io.files import check_new
from octavo.io.lock import locked

DESCRIBED: ContextVar[list[Description] | None] = ContextVar("DESCRIBED", default=None)
"""Where descriptions of commands go that help is asked for; None: help is printed."""
F = TypeVar("F", bound=Callable[..., Any])
STYLE = (OmitArgPrefixes, FlagCreatePairsOff)
TEXTS = "A named dataset (octavo data list), a file, several, a folder, or - for standard input."
Corpora = Annotated[
    Positional[tuple[str, ...]], arg(metavar="CORPUS...", help_behavior_hint="(at least one)", help=TEXTS)
]
Sources = Annotated[Positional[tuple[str, ...]], arg(metavar="DATA...", help_behavior_hint="(at least one)")]
Files = Annotated[Positional[tuple[str, ...]], arg(metavar="FILE...")]
InFile = Annotated[Positional[str], arg(metavar="FILE")]
RunPath = Annotated[Positional[str], arg(metavar="RUN", help="A run folder.")]
Target = Annotated[Positional[str | None], arg(metavar="[TARGET]")]
Device = Annotated[
    str, arg(help=f"Where the model computes: {DEVICE_NAMES}. auto: a GPU, where there is one and it is faster.")
]
Field = Annotated[str, arg(help="JSON lines, parquet: where the text is.")]
Force = Annotated[bool, arg(help="Replace what is there already.")]
Encoding = Annotated[
    str, arg(help="The encoding of the text: utf-8, latin-1, utf-16, cp1252, or any other of Python's.")
]
Json = Annotated[bool, arg(help="Print JSON.")]
WRITTEN = "a file or folder that the command writes"  # what stands there is replaced only with --force
NewPath = Annotated[str, WRITTEN]
MaybeNewPath = Annotated[str | None, WRITTEN]
Flags = Mapping[str, tuple[Any, str]]  # by name: the default, and the help text


def run_command(function: Callable[..., Any], prog: str, argv: Sequence[str]) -> None:
    """Call a function with the flags that its signature and its configs ask for; renamed flags still work.

    One that returns an Output has --json besides, and one that writes to a place that the user names has --force.
    """
    function = with_force(function) if written_paths(function) else function
    function = with_json(function) if typing.get_type_hints(function).get("return") is Output else function
    if any(word in HELP_FLAGS for word in argv):
        _show_help(function, prog)
        return
    tyro.cli(function, prog=prog, args=with_current_flags(argv, renamed_flags(function)), config=STYLE)


def _show_help(function: Callable[..., Any], prog: str) -> None:
    from octavo.cli.command_index import describe_command

    described = describe_command(function, prog, STYLE)
    if (recorded := DESCRIBED.get()) is not None:
        recorded.append(described)
    else:
        print(help_text(prog.removeprefix("octavo "), described), end="")


def written_paths(function: Callable[..., Any]) -> list[str]:
    """The arguments that name what the function writes."""
    hints = typing.get_type_hints(function, include_extras=True)
    return [name for name, hint in hints.items() if WRITTEN in getattr(hint, "__metadata__", ())]


def with_force(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a flag --force, without which it replaces nothing."""
    paths = written_paths(function)

    def guarded(*args: Any, force: bool, **flags: Any) -> Any:
        given = inspect.signature(function).bind(*args, **flags).arguments
        with ExitStack() as stack:
            for path in (given[name] for name in paths):
                if path not in (None, "-"):
                    stack.enter_context(new_path(path, force))
            return function(*args, **flags)

    return with_flag(guarded, function, "force", Force)


@contextmanager
def new_path(path: str, force: bool) -> Iterator[None]:
    """What stands there is replaced only by `force`, and by one command at a time; a pipe can have several."""
    has_folder = os.path.isdir(os.path.dirname(os.path.abspath(path)))  # none is made only to lock something in it
    with locked(path if has_folder else None, "writes"):
        check_new(path, force)
        yield


def with_flag(wrapper: F, function: Callable[..., Any], name: str, hint: Any) -> F:
    """The wrapper of a function, with the function's arguments and one more flag that is off by default."""
    functools.update_wrapper(wrapper, function)
    del wrapper.__wrapped__  # type: ignore[attr-defined]  # or the flags would be described as the function's alone
    hints = {**typing.get_type_hints(function, include_extras=True), name: hint}
    parameters = [one.replace(annotation=hints[one.name]) for one in inspect.signature(function).parameters.values()]
    flag = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=False)
    wrapper.__signature__ = inspect.Signature([*parameters, flag])  # type: ignore[attr-defined]
    wrapper.__annotations__ = hints
    return wrapper


def with_json(function: Callable[..., Output]) -> Callable[..., None]:
    """The function with a flag --json that decides how its output is printed."""

    def printed(*args: Any, json: bool, **flags: Any) -> None:
        output = function(*args, **flags)
        if int(os.environ.get("RANK", "0")):  # of several processes, the first one prints
            return
        output.show(json)
        if output.failed:
            raise SystemExit(1)

    with_flag(printed, function, "json", Json)
    printed.__annotations__ |= {"return": None}
    return printed


def run_action(verb: str, usage: str, actions: Mapping[str, Callable[..., Any]], argv: list[str]) -> None:
    """Run the action of a verb that the first word names; without one, print the usage."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage, end="")
        return
    if argv[0] not in actions:
        advice = did_you_mean(argv[0], actions, f"the actions of octavo {verb} are {', '.join(actions)}")
        raise UserError(f"there is no action {argv[0]!r}; {advice}")
    run_command(actions[argv[0]], f"octavo {verb} {argv[0]}", argv[1:])


def command(function: F, about: str, flags: Flags, required: Flags = MappingProxyType({})) -> F:
    """The function, which takes keywords, with a flag for each default and for each field of a config.

    What is required comes first; it has a kind in place of a default.
    """
    kinds = {name: kind for name, (kind, _) in required.items()} | {
        name: type(default) for name, (default, _) in flags.items()
    }
    function.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind,
                          default=flags[name][0] if name in flags else inspect.Parameter.empty)
        for name, kind in kinds.items()
    ])  # fmt: skip
    helps = "".join(f"\n        {name}: {text}" for name, (_, text) in {**required, **flags}.items())
    returns = typing.get_type_hints(function)["return"]
    function.__annotations__, function.__doc__ = {**kinds, "return": returns}, f"{about}\n\n    Args:{helps}\n    "
    return function


def renamed_flags(function: Callable[..., Any]) -> dict[str, str]:
    """Old flag to new flag, of the configs among the function's arguments and of its own attribute RENAMED."""
    renamed: dict[str, str] = dict(getattr(function, "RENAMED", {}))
    for hint in typing.get_type_hints(function).values():
        if dataclasses.is_dataclass(hint):
            renamed |= getattr(hint, "RENAMED", {})
    return {as_flag(old): as_flag(new) for old, new in renamed.items()}


def with_current_flags(argv: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    """The words of a command with renamed flags under their current names, each of which is named once."""
    current = []
    for word in argv:
        flag, equals, value = word.partition("=")
        bare = flag.replace("--no-", "--", 1)
        if bare in renamed:
            new = flag.replace(bare.removeprefix("--"), renamed[bare].removeprefix("--"))
            print(f"octavo: {flag} is now called {new}", file=sys.stderr)
            flag = new
        current.append(flag + equals + value)
    return current


def as_flag(name: str) -> str:
    """A field's name as it is written on the command line."""
    return f"--{name.replace('_', '-')}"


def read_file(path: str) -> bytes:
    """The bytes of a file as they stand; - is standard input."""
    return read_whole(path, unpack=False)
