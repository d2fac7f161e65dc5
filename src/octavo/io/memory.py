"""What the operating system can be asked about memory; where it cannot, nothing happens."""

from __future__ import annotations

import ctypes
import os
import sys

from torch import Tensor

PAGE = 4096
MADV_HUGEPAGE = 14
LARGE = 1 << 26  # bytes; smaller tensors gain nothing


def available() -> int:
    """Bytes that can be had without pushing anything out; half of all memory where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 1 << 32


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
