"""Every sequence model in the book, on one scale.

A run is what training gives, or the path of its folder: every function takes either. Results have a short repr,
`to_json()` where the command line has --json, and HTML for notebooks.

Examples:
    >>> octavo.__version__.count(".")
    2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from octavo.deprecation import register_moved_module

__all__ = [
    "UserError", "__version__", "answer", "classify", "compare", "compress", "cost", "decompress", "doctor", "domains",
    "embed", "evaluate", "export", "fill", "generate", "import_model", "inspect", "load", "resume", "scale", "tag",
    "tokenize", "train", "translate", "vectors",
]  # fmt: skip
__version__ = "0.2.0"

if TYPE_CHECKING:
    from octavo.errors import UserError
    from octavo.experiments.compare import compare
    from octavo.experiments.domains import domains
    from octavo.experiments.scale import scale
    from octavo.inspection.api import doctor, inspect
    from octavo.inspection.word_similarity import vectors
    from octavo.tasks.api import evaluate, generate, load, resume, tokenize, train
    from octavo.tasks.compression import compress, decompress
    from octavo.tasks.model_cost import cost
    from octavo.tasks.predictions import answer, classify, embed, fill, translate
    from octavo.tasks.run_exchange import export, import_model
    from octavo.tasks.tag import tag

_MODULES = {  # where each name is defined: imported when it is first used, so that `import octavo` stays fast
    "UserError": "errors", "compare": "experiments.compare", "domains": "experiments.domains",
    "scale": "experiments.scale", "doctor": "inspection.api", "inspect": "inspection.api",
    "vectors": "inspection.word_similarity", "cost": "tasks.model_cost", "export": "tasks.run_exchange",
    "import_model": "tasks.run_exchange", "compress": "tasks.compression", "decompress": "tasks.compression",
    "tag": "tasks.tag",
    **dict.fromkeys(("answer", "classify", "embed", "fill", "translate"), "tasks.predictions"),
}  # fmt: skip

register_moved_module("octavo.cost", "octavo.costs")  # 0.2 documented it; octavo.cost is a function now


def __getattr__(name: str) -> Any:
    """The public names, imported when first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    return getattr(import_module(f"octavo.{_MODULES.get(name, 'tasks.api')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
