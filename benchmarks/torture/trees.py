"""Folders compared: what a command has written, without the clock."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TIMES = re.compile(
    r"second|_at$|^time|date|log_bytes|speed|^cost_|memory|per_s$|made_with|^ms$|machine|versions|duration|^peak$"
)
NUMBERS = re.compile(rb"[-+]?\d[\d,.]*(e[-+]?\d+)?|#[\d#]+")
HEADINGS = re.compile(rb"<h[123]\b[^>]*>([^<]*)")  # the axes of a figure depend on the speed of the machine
LEFTOVERS = re.compile(r"(^|/)\.[^/]*|\.(part|before|old|lock|tmp|bak)(/|$)")
UNSTABLE = "differs between two undisturbed runs"


def tree(folder: Path) -> dict[str, str]:
    """Names below a folder, empty folders too, and what they hold without the clock."""
    return dict(sorted(_walk(folder)))


def _walk(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield name, f"link to {path.readlink()}"
        elif path.is_dir():
            yield f"{name}/", "folder"
        else:
            yield name, fingerprint(path)


def fingerprint(path: Path) -> str:
    """A hash of a file without durations and dates."""
    data = path.read_bytes()
    try:
        if path.suffix == ".json":
            data = _plain(json.loads(data))
        elif path.suffix == ".jsonl":
            data = b"\n".join(_plain(json.loads(line)) for line in data.splitlines())
        elif path.suffix == ".safetensors":
            data = _checkpoint(data)
        elif path.suffix in (".html", ".svg"):
            whole = data.rstrip().endswith((b"</html>", b"</svg>"))
            data = NUMBERS.sub(b"#", b"\n".join(HEADINGS.findall(data))) if whole else b"not whole"
        elif path.suffix == ".csv":
            data = b"%d lines after %s" % (len(data.splitlines()), data.split(b"\n")[0])
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        data = f"damaged: {error}".encode()
    return hashlib.sha256(data).hexdigest()[:20]


def _plain(value: Any) -> bytes:
    return json.dumps(_without_times(value), sort_keys=True).encode()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not TIMES.search(key)}
        return {key: _without_times(item) for key, item in kept.items() if (key, type(item)) != ("stages", dict)}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _checkpoint(data: bytes) -> bytes:
    """The tensors, whatever their order, and what stands beside them in the header."""
    length = int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8 : 8 + length]), data[8 + length :]
    about = header.pop("__metadata__", {})
    if "position" in about:
        about["position"] = _without_times(json.loads(about["position"]))
    held = {
        name: [entry["dtype"], entry["shape"], hashlib.sha256(tensors[slice(*entry["data_offsets"])]).hexdigest()]
        for name, entry in header.items()
    }
    return _plain([about, held, len(tensors)])


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """What is missing, too many or different; what is unstable must only be there."""
    lines = [f"missing: {name}" for name in wanted if name not in found]
    lines += [f"too many: {name}" for name in found if name not in wanted]
    same = (name for name in found if name in wanted)
    return lines + [f"differs: {name}" for name in same if wanted[name] not in (found[name], UNSTABLE)]


def merge(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """What two undisturbed runs agree on; what differs is marked."""
    if set(one) != set(other):
        raise RuntimeError(f"two undisturbed runs leave different files: {sorted(set(one) ^ set(other))}")
    return {name: value if value == other[name] else UNSTABLE for name, value in one.items()}


def is_leftover(line: str) -> bool:
    """Whether a difference is a temporary name that stayed."""
    return line.startswith("too many: ") and bool(LEFTOVERS.search(line.removeprefix("too many: ")))
