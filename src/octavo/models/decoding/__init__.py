"""Decoding a transformer token by token, fast: keys in place on any device, a captured graph on a GPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from octavo.core import Session
from octavo.models.decoding.cached_session import CachedSession
from octavo.models.parts.attention import Attention
from octavo.ops.tracing import is_tracing

if TYPE_CHECKING:
    from octavo.models.gpt import GPT

__all__ = ["CachedSession", "session_for"]

WORTH_RECORDING = 200  # tokens: kernels take seconds to compile, when they are first needed


def session_for(model: GPT, state: Any, tokens: int = 1 << 30, recorded: bool = True) -> Session[Any]:
    """The fastest session that serves the model where it is; linear attention's state is small as it stands.

    It reads the weights now: those of a model that is trained meanwhile, it does not see. Dropout is off. `recorded`
    allows a GPU's kernels to be recorded and played back (GraphSession).
    """
    if is_tracing() or not isinstance(model.blocks[0].attention, Attention):
        return Session(model, state)  # only the model's own step shows what is inside
    worth_it = recorded and tokens >= WORTH_RECORDING
    if worth_it and model.embedding_VD.is_cuda and len(state[0]) == 1 and find_spec("triton"):
        from octavo.models.decoding.cuda_graph_session import GraphSession, served

        if served(model):
            return GraphSession(model, state)
    return CachedSession(model, state)
