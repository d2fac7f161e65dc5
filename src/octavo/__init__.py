"""Every sequence model in the book, on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["UserError", "__version__", "compare", "evaluate", "generate", "load", "resume", "train"]
__version__ = "0.2.0"

if TYPE_CHECKING:
    from octavo.errors import UserError
    from octavo.experiments.compare import compare
    from octavo.tasks.api import evaluate, generate, load, resume, train


def __getattr__(name: str) -> Any:
    """The public names, imported when first asked for, so that `import octavo` stays fast."""
    if name == "UserError":
        from octavo.errors import UserError

        return UserError
    if name == "compare":
        from octavo.experiments.compare import compare

        return compare
    if name in __all__:
        from octavo.tasks import api

        return getattr(api, name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
