"""Attention: `patterns` say who may look at whom, `naive` holds the equations, `fast` chooses a kernel for them."""

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
from octavo.ops.attention.reference import weights

__all__ = [
    "CAUSAL", "FULL", "Axial", "Block", "Global", "Local", "Neighbourhood", "Padding", "Path", "Pattern", "Strided",
    "attend", "weights",
]  # fmt: skip
