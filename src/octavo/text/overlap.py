"""How much of one text stands word for word in another: a model must not be measured on what it was trained on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from octavo.text.chunks import Chunk

PROBE_BYTES, MAX_PROBES = 64, 64  # nobody writes the same 64 bytes again
REPEAT_BYTES = 24  # the beginning of a line that a log has again and again, and hardly ever one of prose
MAX_OVERLAP = 0.5  # from this share on, a text counts as part of the training text


def overlap(blocks: Iterable[Chunk], data: bytes, probe_bytes: int = PROBE_BYTES) -> float:
    """The share of the data that stands word for word in a text, by probes of so many bytes; a shorter one has none."""
    last = len(data) - probe_bytes
    if last < 0:
        return 0.0
    places = np.linspace(0, last, min(MAX_PROBES, last + 1), dtype=np.int64).tolist()
    probes = {data[at : at + probe_bytes] for at in places}
    found: set[bytes] = set()
    tail = b""
    for block in blocks:
        joined = tail + block.data
        found |= {probe for probe in probes - found if probe in joined}
        tail = joined[-(probe_bytes - 1) :]
    return len(found) / len(probes)
