"""Duplicates by brute force, in plain Python, and the engines' program beside it."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet

from octavo.engines.engine import Engine
from octavo.engines.stages import Stages
from octavo.text.corpus import open_text
from octavo.text.duplicates import DuplicatesConfig
from octavo.text.duplicates.relational import REMOVED, Program
from octavo.text.duplicates.units import UnitFile, write_units

Row = tuple[int, int, int, int, int]  # line, kept, closest, millionths, near


def shingle_set(text: bytes, k: int, unit: str) -> set[tuple[str, ...]]:
    """The shingles themselves."""
    words = text.decode().lower().split()
    elements = words if unit == "word" else list(" ".join(words))
    return {tuple(elements[i : i + k]) for i in range(max(1, len(elements) - k + 1))}


def jaccard(a: set[tuple[str, ...]], b: set[tuple[str, ...]]) -> Fraction:
    return Fraction(len(a & b), len(a | b))


def brute_force(texts: Sequence[bytes], config: DuplicatesConfig) -> list[Row]:
    """What is removed: every pair is compared, and a component is searched from its first line."""
    first: dict[bytes, int] = {}
    exact = {i: first[text] for i, text in enumerate(texts) if text.strip() and first.setdefault(text, i) != i}
    kept = {i: i for i in first.values()}
    near: list[Row] = []
    if config.near:
        sets = {i: shingle_set(texts[i], config.shingle, config.shingle_unit) for i in kept}
        least = Fraction(str(config.similarity))
        links = {i: {j: s for j in sets if j != i and (s := jaccard(sets[i], sets[j])) >= least} for i in sets}
        reached: set[int] = set()
        for i in sorted(sets):
            waiting = [] if i in reached else [i]
            while waiting:
                j = waiting.pop()
                if j not in reached:
                    reached.add(j)
                    kept[j] = i
                    waiting += links[j]
        for i in sorted(sets):
            if kept[i] != i:
                millionths, closest = max((int(s * 1_000_000), -j) for j, s in links[i].items())
                near.append((i, kept[i], -closest, millionths, 1))
    return sorted([*near, *((i, kept[j], j, 1_000_000, 0) for i, j in exact.items())])


def engine_rows(engine: Engine, text: Path, config: DuplicatesConfig) -> list[Row]:
    """What the program says is removed."""
    with tempfile.TemporaryDirectory(dir=text.parent) as folder:
        stages = Stages(Path(folder, "stages"), {})
        opened = open_text(text)
        stages.run("text", lambda place: write_units(opened, config.unit, place))
        file = UnitFile(str(stages.rows("text")), config.unit)
        Program(engine, stages, file, config, lambda amount: None).run()
        parts = [pyarrow.parquet.read_table(path) for path in sorted(stages.rows(REMOVED).glob("*.parquet"))]
        return [tuple(row.values()) for part in parts for row in part.to_pylist()]  # type: ignore[misc]


def made_up_lines(count: int, seed: int = 0, words: int = 12) -> list[bytes]:
    """Lines of random words; some repeat an earlier one, as it is or with a change; some are blank."""
    generator, lines = random.Random(seed), list[bytes]()
    letters = "abcdefghijklmnopqrstuvwxyzäé"
    for _ in range(count):
        kind = generator.random()
        if lines and kind < 0.15:
            line = generator.choice(lines)
        elif lines and kind < 0.4:
            old = list(generator.choice(lines).decode())
            for _ in range(generator.randint(1, 4)):
                old.insert(generator.randint(0, len(old)), generator.choice(letters + " A"))
            line = "".join(old).encode()
        elif kind < 0.45:
            line = b" " * generator.randint(0, 2)
        else:
            chosen = ("".join(generator.choices(letters, k=generator.randint(1, 7))) for _ in range(words))
            line = " ".join(chosen).encode()
        lines.append(line)
    return lines


def write_documents(path: Path, documents: Sequence[bytes]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps({"text": one.decode()}) + "\n" for one in documents), encoding="utf-8")
