"""The machine and the versions that results were measured with."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from octavo import __version__
from octavo.tasks.task import pick_device


def describe_machine(device: str) -> dict[str, Any]:
    """System, processor, cores, threads, device and memory."""
    chosen = pick_device(device)
    record: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}", "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(), "device": str(chosen),
    }  # fmt: skip
    if chosen.type == "cuda":
        record["gpu"] = torch.cuda.get_device_name(chosen)
    if hasattr(os, "sysconf"):
        record["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return record


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def versions() -> dict[str, str]:
    """Of octavo and what it is built on."""
    return {
        "octavo": __version__, "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip
