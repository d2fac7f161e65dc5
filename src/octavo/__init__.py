"""Every sequence model in the book, on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.version import VERSION as __version__  # noqa: N811

__all__ = ["UserError", "__version__", "compare", "evaluate", "generate", "load", "resume", "train"]

if TYPE_CHECKING:
    from octavo.api import evaluate, generate, load, resume, train
    from octavo.errors import UserError
    from octavo.ladder import compare


def __getattr__(name: str) -> Any:
    """The public names, imported when first asked for, so that `import octavo` stays fast."""
    if name == "UserError":
        from octavo.errors import UserError

        return UserError
    if name == "compare":
        from octavo.ladder import compare

        return compare
    if name in __all__:
        from octavo import api

        return getattr(api, name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
