"""What the operating system can be asked about memory; where it cannot, nothing happens."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PAGE = 4096
MADV_HUGEPAGE = 14
LARGE = 1 << 26  # bytes; smaller tensors gain nothing


def available() -> int:
    """Bytes that can be had without pushing anything out; half of all memory where the system does not say.

    A limit on this process's address space (ulimit -v) or on its control group (a container's) counts too.
    """
    return max(0, min(_of_machine(), _of_process(), _of_group()))


def is_large(size: int) -> bool:
    """Whether so many bytes are more than half of the memory at hand: such tables stay in files."""
    return size > available() / 2


def _of_machine() -> int:
    try:
        with open("/proc/meminfo", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 1 << 32


def _of_process() -> int:
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    except (ImportError, OSError, ValueError):
        return sys.maxsize
    return sys.maxsize if most == resource.RLIM_INFINITY else most - pages * resource.getpagesize()


def _of_group() -> int:
    folder = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError, StopIteration):  # not Linux, no limit ("max"), or another hierarchy
        most, used = (int((folder / name).read_text(encoding="utf-8")) for name in ("memory.max", "memory.current"))
        rows = (line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
        return most - used + next(int(row[1]) for row in rows if row[0] == "file")  # cached files make room
    return sys.maxsize


def give_back() -> None:
    """Return what was freed: glibc keeps it in case it is needed again, which counts as memory in use."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


def expect_random_access(tensor: Tensor) -> Tensor:
    """Ask for large pages below a large tensor on the CPU that will be read in random order.

    With pages of 4 kB, nearly every read of a table of a gigabyte also has to find its page.
    """
    size = tensor.numel() * tensor.element_size()
    if sys.platform == "linux" and tensor.device.type == "cpu" and size >= LARGE:
        start = -(-tensor.data_ptr() // PAGE) * PAGE
        end = (tensor.data_ptr() + size) // PAGE * PAGE
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_HUGEPAGE)
    return tensor
