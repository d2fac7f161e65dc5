"""Running students' Python files where they can neither read the answers nor do harm.

`choose_backend` finds a way that works on this machine, `call_functions` uses it.
"""

from __future__ import annotations

from typing import Literal, get_args

from octavo.errors import UserError
from octavo.exercises.framework.isolation.backends import (
    CONTAINER_IMAGE,
    Backend,
    Bubblewrap,
    Container,
    Namespaces,
    Trusted,
)
from octavo.exercises.framework.isolation.calls import CaseResult, IsolationError, call_functions, explain_failure
from octavo.exercises.framework.isolation.seccomp import is_supported

__all__ = ["CONTAINER_IMAGE", "Backend", "CaseResult", "IsolationError", "IsolationKind", "call_functions",
           "choose_backend"]  # fmt: skip

IsolationKind = Literal["auto", "bubblewrap", "namespaces", "container"]
REFUSAL = "functions are not run here: {reasons}; --isolation container uses Docker or Podman, and --trust runs \
students' files with your permissions"


def choose_backend(
    kind: IsolationKind = "auto", trust: bool = False, image: str = CONTAINER_IMAGE, megabytes: int = 1024
) -> Backend:
    """A backend that works here, tried by running a function in it; a UserError says why there is none."""
    if trust:
        return Trusted()
    if kind not in get_args(IsolationKind):
        raise UserError(f"--isolation must be one of {', '.join(get_args(IsolationKind))}: it is {kind!r}")
    if kind == "container":
        container = Container(image, megabytes)
        if reason := explain_failure(container):
            raise UserError(reason)
        return container
    if not is_supported():
        raise UserError(REFUSAL.format(reasons="there is no isolation for this system and processor"))
    backends: dict[str, Backend] = {"bubblewrap": Bubblewrap(), "namespaces": Namespaces()}
    reasons = []
    for backend in backends.values() if kind == "auto" else [backends[kind]]:
        if not (reason := explain_failure(backend)):
            return backend
        reasons.append(reason)
    raise UserError(REFUSAL.format(reasons="; ".join(reasons)))
