"""What the verbs' flags have in common."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

STYLE = (OmitArgPrefixes, FlagCreatePairsOff)
Corpora = Annotated[Positional[tuple[str, ...]], arg(metavar="CORPUS...", help_behavior_hint="(at least one)")]
Sources = Annotated[Positional[tuple[str, ...]], arg(metavar="DATA...", help_behavior_hint="(at least one)")]
Files = Annotated[Positional[tuple[str, ...]], arg(metavar="FILE...")]
InPath = Annotated[Positional[str], arg(metavar="IN")]
OutPath = Annotated[Positional[str], arg(metavar="OUT")]
RunPath = Annotated[Positional[str], arg(metavar="RUN")]
Target = Annotated[Positional[str | None], arg(metavar="[TARGET]")]


def run_command(function: Callable[..., Any], prog: str, argv: Sequence[str]) -> None:
    """Call a function with the flags that its signature and its configs ask for; renamed flags still work."""
    tyro.cli(function, prog=prog, args=with_current_flags(argv, renamed_flags(function)), config=STYLE)


def command(
    function: Callable[..., None], doc: str, defaults: Mapping[str, Any], positional: Mapping[str, Any] | None = None
) -> Callable[..., None]:
    """The function, which takes keywords, with a flag for each of the defaults and for each field of a config."""
    kinds = {**(positional or {}), **{name: type(default) for name, default in defaults.items()}}
    function.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind,
                          default=defaults.get(name, inspect.Parameter.empty))
        for name, kind in kinds.items()
    ])  # fmt: skip
    function.__annotations__, function.__doc__ = kinds, doc
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
