"""Attention: `patterns` say which pairs are allowed, `reference` holds the equations, `dispatch` picks a kernel."""

from octavo.ops.attention.dispatch import Path, attend
from octavo.ops.attention.patterns import (
    CAUSAL,
    FULL,
    Axial,
    Block,
    Global,
    Local,
    Neighbourhood,
    Padding,
    Pattern,
    Strided,
)
from octavo.ops.attention.reference import attention_weights

__all__ = [
    "CAUSAL", "FULL", "Axial", "Block", "Global", "Local", "Neighbourhood", "Padding", "Path", "Pattern", "Strided",
    "attend", "attention_weights",
]  # fmt: skip
