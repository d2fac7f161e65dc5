"""How many threads a model that writes token by token is worth."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from octavo.core import LanguageModel, device_of, single_thread

MAX_ONE_THREAD_PARAMETERS = 1 << 24
"""Weights times rows, up to which one thread decodes. A token's products are done before a second thread has woken, and
where threads do not have a core each, every product waits for one that does not run (docs/log.md)."""


def decoding_threads(model: LanguageModel[Any], rows: int = 1) -> AbstractContextManager[None]:
    """Within it, a small model on a CPU computes with one thread; tables have no weights."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    is_small = device_of(model).type == "cpu" and rows * weights <= MAX_ONE_THREAD_PARAMETERS
    return single_thread() if is_small else nullcontext()
