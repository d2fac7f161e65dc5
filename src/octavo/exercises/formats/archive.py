"""Zip files that are the same to the byte for the same content."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Mapping

EPOCH = (2000, 1, 1, 0, 0, 0)
PROGRAM, FILE = 0o755, 0o644


def zip_bytes(files: Mapping[str, str | bytes], programs: Collection[str] = ()) -> bytes:
    """A zip file with these files by path; those in `programs` can be executed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = (PROGRAM if path in programs else FILE) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return out.getvalue()
