"""Running students' Python files where they can neither read the answers nor do harm.

`choose_backend` finds a way that works on this machine, `call_functions` uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from octavo.errors import UserError
from octavo.exercises.framework.isolation.backends import (
    CONTAINER_IMAGE,
    Backend,
    Bubblewrap,
    Container,
    Namespaces,
    OtherUser,
    Trusted,
)
from octavo.exercises.framework.isolation.calls import CaseResult, IsolationError, call_functions, explain_failure
from octavo.exercises.framework.isolation.seccomp import is_supported

__all__ = ["CONTAINER_IMAGE", "Backend", "CaseResult", "IsolationError", "IsolationKind", "call_functions",
           "choose_backend"]  # fmt: skip

IsolationKind = Literal["auto", "bubblewrap", "namespaces", "container", "user"]
AUTOMATIC = ("bubblewrap", "namespaces")  # those that guarantee everything, without being asked for
REFUSAL = "functions are not run here: {reasons}; --isolation container uses Docker or Podman, and --trust runs \
students' files with your permissions"


def choose_backend(
    kind: IsolationKind = "auto", trust: bool = False, image: str = CONTAINER_IMAGE, megabytes: int = 1024,
    secrets: Sequence[str | Path] = (),
) -> Backend:  # fmt: skip
    """A backend that works here, tried by running a function in it; a UserError says why there is none.

    `secrets` are what the isolation `user` must not be able to read; the others show no such files at all.
    """
    if trust:
        return Trusted()
    if kind not in get_args(IsolationKind):
        raise UserError(f"--isolation must be one of {', '.join(get_args(IsolationKind))}: it is {kind!r}")
    named: dict[str, Backend] = {"container": Container(image, megabytes)}
    if is_supported():
        named |= {"bubblewrap": Bubblewrap(), "namespaces": Namespaces(), "user": OtherUser(secrets)}
    if kind in named:
        if reason := explain_failure(named[kind]):
            raise UserError(reason)
        return named[kind]
    reasons = []
    for backend in (named[name] for name in AUTOMATIC if name in named):
        if not (reason := explain_failure(backend)):
            return backend
        reasons.append(reason)
    raise UserError(REFUSAL.format(reasons="; ".join(reasons) or "there is no isolation for this system and processor"))
