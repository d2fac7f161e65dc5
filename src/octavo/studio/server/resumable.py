"""Which runs the page may resume: those whose checkpoint and data are at hand. A record is not trusted to name others'
files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from octavo.datasets import sources
from octavo.io.run_folder import STATE
from octavo.io.run_index import links_out
from octavo.tasks.run_rows import value_at
from octavo.tasks.task import TASKS, find_task
from octavo.training.checkpoint import FILE


class ResumeNeeds(NamedTuple):
    """What resuming a run would read, by its record."""

    task: str
    sources: tuple[str, ...]
    settings: tuple[str, ...]  # those that may name files


def needs_of(record: Mapping[str, Any]) -> ResumeNeeds:
    """What a record names."""
    task = str(record.get("task"))
    data = value_at(record, f"{find_task(task).data_key}.source") if task in TASKS else None
    settings = [*_strings(value_at(record, "training.settings")), *_strings(record.get("config"))]
    return ResumeNeeds(task, tuple(_strings(data)), tuple(dict.fromkeys(settings)))


def why_not_by_files(path: Path, root: Path) -> str:
    """Why a run's folder does not allow it; empty where it does."""
    if path == root:
        return "the studio's folder is the run itself"
    if not (path / STATE / FILE).is_file():
        return "it has no checkpoint, which only models that are trained step by step have"
    if not _is_below(path / STATE, root) or links_out(path, root) or links_out(path / STATE, root):
        return "a link in it leads out of this folder"
    return ""


def why_not_by_needs(needs: ResumeNeeds, root: Path) -> str:
    """Why what it would read does not allow it; empty where it does."""
    if needs.task not in TASKS:
        return "its task is not known"
    named = find_task(needs.task).named_data()
    if not needs.sources or not all(source in named or _may_read(source, root) for source in needs.sources):
        return "its data are neither a named source on this machine nor below this folder"
    if not all(_may_read(name, root) for name in needs.settings if _may_be_file(name)):
        return "its settings name a file that is not below this folder"
    return ""


def _may_read(source: str, root: Path) -> bool:
    if source in sources.SOURCES:
        return sources.where(source) is not None
    return Path(source).is_absolute() and _is_below(Path(source), root)


def _is_below(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _may_be_file(name: str) -> bool:
    """Whether a setting may name a file: choices such as "bpe" are no paths. A relative one lies in no known folder."""
    return os.sep in name or os.path.lexists(name)


def _strings(value: Any) -> list[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _strings(part)]
