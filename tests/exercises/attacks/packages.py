"""Attacks that write through numpy and torch, which do not use Python's open."""

from __future__ import annotations

from typing import Any

World = dict[str, Any]
ACHIEVED = "achieved"


def save_an_array(world: World) -> str:
    """Must not write a file through numpy."""
    import numpy as np

    np.zeros(3).tofile(f"{world['folder']}/array")
    return ACHIEVED


def save_a_tensor(world: World) -> str:
    """Must not write a file through torch."""
    import torch

    torch.save(torch.zeros(3), f"{world['folder']}/tensor")
    return ACHIEVED
