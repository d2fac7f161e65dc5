"""Tensors in safetensors files: written one by one, read into memory of their own or mapped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.io import memory
from octavo.io.integrity import write_hashed
from octavo.io.progress import progress
from octavo.io.run_folder import TENSORS

SAFE_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
RENAMED_TENSORS = {  # parts of tensors' names, as version 0.1 wrote them
    "mix": "attention", "feed": "feed_forward", "look": "cross_attention", "readers": "encoder_blocks",
    "writers": "decoder_blocks", "read_norm": "encoder_norm", "mix_DG": "combine_DG",
}  # fmt: skip
PROGRESS_BYTES = 1 << 28  # of a model, from which reading it is worth a word


def write_tensors(tensors: Mapping[str, Tensor], path: Path, about: Mapping[str, str] | None = None) -> str:
    """A safetensors file, tensor by tensor: the library's own writer first copies all of them into memory. Returns its
    hash."""
    with open(path, "wb") as file:
        return stream_tensors(tensors, file, about)


def stream_tensors(tensors: Mapping[str, Tensor], file: IO[bytes], about: Mapping[str, str] | None = None) -> str:
    """The tensors in the safetensors format, with some text `about` them in its header; returns the file's hash."""
    header: dict[str, Any] = {"__metadata__": dict(about or {})}
    end = 0
    for key, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[key] = {"dtype": SAFE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    return write_hashed(file, header, (_bytes_of(tensor) for tensor in tensors.values()))


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a folder, each in memory of its own; where they would take most of it, mapped from their file."""
    try:
        # Copies, because a mapped file is read page by page, in the order of the look-ups, which takes far longer.
        mapped = safetensors.torch.load_file(path / TENSORS)
        large = sum(tensor.nbytes for tensor in mapped.values())
        if memory.is_large(large):
            return {current_tensor_name(key): tensor.to(_computed_dtype(tensor)) for key, tensor in mapped.items()}
        found = {}
        shown = large >= PROGRESS_BYTES
        with progress("reading the model", large, "bytes") if shown else nullcontext(lambda amount: None) as advance:
            for key, tensor in mapped.items():
                own = memory.expect_random_access(torch.empty_like(tensor, dtype=_computed_dtype(tensor)))
                found[current_tensor_name(key)] = own.copy_(tensor)
                advance(tensor.nbytes)
        return found
    except FileNotFoundError as error:
        raise UserError(f"{path} has no {TENSORS}: the run is not complete; train it again") from error
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise UserError(f"{path / TENSORS} is damaged or foreign: {error}; train the run again") from error


def _computed_dtype(tensor: Tensor) -> torch.dtype:
    """Half precision saves room on the disk, and is computed with in single."""
    return torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype


def current_tensor_name(name: str) -> str:
    """The name that a tensor saved by an earlier version has today."""
    return re.sub(r"[^./:]+", lambda part: RENAMED_TENSORS.get(part[0], part[0]), name)
