"""What a model costs besides bits: FLOPs of its training, memory, how fast it generates, and on which machine."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from octavo import __version__
from octavo.core import seeded_generator
from octavo.costs import Shape, cost_of
from octavo.decode import Sample, decoding_threads, stream
from octavo.io.memory import give_back
from octavo.models import spec_of
from octavo.tasks.corpus import SAMPLE_TOKENS
from octavo.tasks.device import pick_device
from octavo.tasks.run import Run
from octavo.text import Split

MIN_GENERATION_SECONDS = 0.25  # that a rate is measured over
MAX_GENERATION_SECONDS = 5.0
MAX_COUNTED_BYTES = 1 << 23  # of text that the number of different tokens is counted in
HIGH, NOW = "VmHWM", "VmRSS"


@dataclass
class Peak:
    """Bytes at the peak, beyond what was held before; None where the system does not say."""

    bytes: int | None = None


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measure the memory that is taken within, on the GPU if that is where the work is."""
    peak = Peak()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
        return
    give_back()
    held = _status(NOW) if _reset_peak() else None
    yield peak
    high = _status(HIGH)
    peak.bytes = max(0, high - held) if high is not None and held is not None else None


def _reset_peak() -> bool:
    """Let the process's peak be what it holds now (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _status(name: str) -> int | None:
    return next((int(value.split()[0]) * 1024 for value in _system_values("/proc/self/status", name)), None)


def _system_values(path: str, name: str) -> list[str]:
    """The values of a name in one of Linux's files about the system; none elsewhere."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line.split(":", 1)[1].strip() for line in lines if line.startswith(name)]


def generate_sample(run: Run, seed: int) -> tuple[str, float | None]:
    """A sample of what the run generates from nothing, and how many tokens it generates a second."""
    tokens: list[int] = []
    began = first = time.perf_counter()
    now = began
    with decoding_threads(run.model):
        for x_1 in stream(run.model, [[]], 1 << 30, Sample(), seeded_generator(seed)):
            tokens.append(int(x_1))
            now = time.perf_counter()
            first = now if len(tokens) == 1 else first  # what is prepared before the first token does not count
            if now - began > MAX_GENERATION_SECONDS or (
                len(tokens) > SAMPLE_TOKENS and now - first >= MIN_GENERATION_SECONDS
            ):
                break
    text = run.tokenizer.decode(tokens[:SAMPLE_TOKENS]).decode("utf-8", "replace")
    return text, (len(tokens) - 1) / (now - first) if len(tokens) > 1 and now > first else None


def training_flops(run: Run, metrics: Sequence[Mapping[str, Any]], train: Split) -> float:
    """FLOPs of the matrix products of training, forward and backward, for every token; counting takes none."""
    model, spec = run.model, spec_of(run.model)
    if spec.fitting == "mixture":  # one pass over the tokens that the weights are learnt on; parts are counted apart
        return float(cost_of(model, Shape()).per_token("forward") * run.record["train_tokens"])
    if said := [float(row["flops"]) for row in metrics if "flops" in row]:  # of rounds that are no steps of a batch
        return sum(said)
    if spec.fitting == "counts":
        # A neural bigram's: while some pairs were held out, and again on all of them.
        logged = [(int(row["step"]), "held_out" in row) for row in metrics if "step" in row]
        steps = sum(max((step for step, held in logged if held == first), default=0) for first in (True, False))
        contexts = min(model.config.batch, _different_tokens(run, train)) if steps else 1
        return float(steps * cost_of(model, Shape(batch=contexts)).training_flops) if steps else 0.0
    training = run.record["training"]
    shape = Shape(training["streams"], training["sequence_length"], getattr(model.config, "memory", 0))
    return float(cost_of(model, shape).training_flops) / shape.tokens * float(run.record["train_tokens"])


def _different_tokens(run: Run, train: Split) -> int:
    part = train.first(MAX_COUNTED_BYTES)
    found = [np.unique(block) for block in run.tokenizer.encode_chunks(part.chunks())]
    return len(np.unique(np.concatenate(found)))


def describe_machine(device: str) -> dict[str, Any]:
    """System, processor, cores, threads, device and memory."""
    chosen = pick_device(device)
    processor = next(iter(_system_values("/proc/cpuinfo", "model name")), platform.processor() or platform.machine())
    record: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}", "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(), "device": str(chosen),
    }  # fmt: skip
    if chosen.type == "cuda":
        record["gpu"] = torch.cuda.get_device_name(chosen)
    if hasattr(os, "sysconf"):
        record["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return record


def versions() -> dict[str, str]:
    """Of octavo and what it is built on."""
    return {
        "octavo": __version__, "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip
