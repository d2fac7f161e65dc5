"""The texts of a comparison's cells, as their JSON names them."""

from __future__ import annotations

from functools import lru_cache

from octavo.experiments.cell import Cell
from octavo.text import Split, open_corpus


def open_texts(cell: Cell) -> tuple[Split, Split]:
    """The training text, and the part of the held-out text that is scored."""
    data = cell.data
    return _open(tuple(data["sources"]), tuple(data["valid"]), data["field"], data["errors"], data["scored_bytes"],
                 data["train_sha256"], data["scored_sha256"])  # fmt: skip


@lru_cache(maxsize=1)  # cells of one process are mostly of one text
def _open(
    sources: tuple[str, ...], valid: tuple[str, ...], field: str, errors: str, scored_bytes: int, *_: str
) -> tuple[Split, Split]:
    corpus = open_corpus(sources, field=field, errors=errors, valid=valid or None)  # type: ignore[arg-type]
    held_out = corpus.valid
    return corpus.train, Split(held_out.text, held_out.start, held_out.start + scored_bytes)
