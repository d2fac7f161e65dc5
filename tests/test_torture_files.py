"""The half of the torture campaign that damages files: what it found stays repaired, and a sample of it finds nothing.

A failure that the campaign finds is added to FOUND as it reports it: the seed, the file in it, the command, the damage.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from torture import file_attacks, mutations  # noqa: E402
from torture.campaign import Campaign, Outcome  # noqa: E402
from torture.file_attacks import FileAttack  # noqa: E402
from torture.readers import CLASSES, COMPARE, DOMAINS  # noqa: E402

# Trials of each class in the sample; commands of the last two take half a second each.
SAMPLE = {"read-runs": 300, "read-archives": 80, "read-models": 150, "read-data": 150, "read-experiments": 12,
          "read-courses": 12}  # fmt: skip
EVAL = "eval {x} {s}/texts/short.txt --json"
FOUND: list[tuple[str, str, str, list[Any]]] = [
    ("runs/mle", "config.json", "list {x} --json", ["json", ["newline"], "nest", "5000"]),
    ("runs/stopped-vit", "config.json", "resume {x} --json", ["json", ["images", "name"], "drop", "[1, 2]"]),
    ("texts/images", "light/001.png",
     "train vit {x} --patch 4 --width 8 --layers 1 --heads 2 --budget 1steps --out {o}/run", ["fifo"]),
    ("files/compare", "comparison.csv",
     "compare {s}/texts/text.txt --models bag,kn3 --no-prove --out {x} --json", ["fifo"]),
    ("runs/stopped-dan", "state/training.safetensors", "resume {x} --json", ["tensor", 52, 979797, "nan"]),
    ("runs/kn3", "model.safetensors", "train mix {s}/texts/text.txt --parts {x} {s}/runs/bag --out {o}/run --json",
     ["tensor", 22, 695583, "scale 50"]),
    ("runs/bigram", "model.safetensors", "generate {x} --max-tokens 5 --json", ["tensor", 8, 382201, "inf"]),
    ("runs/head", "config.json", "doctor {x} --quick --json", ["json", ["data", "learnt"], "set", "2147483648"]),
    ("runs/rnn-attention", "metrics.jsonl", "doctor {x} --quick --json", ["encode", "utf-32"]),
    ("runs/facts", "config.json", EVAL, ["json", ["vocab"], "set", "long text"]),
    ("runs/seq2seq", "state/training.safetensors", "resume {x} --budget 8steps --json",
     ["header", ["weights:encoder_norm.scale_D", "dtype"], "set", '"\\u001b[31mred"']),
    ("runs/bpe", "model.safetensors", EVAL, ["fifo"]),
    ("runs/kn3", "tokenizer.json", EVAL, ["zeros"]),
    ("runs/gru", "state/training.safetensors", "resume {x} --budget 8steps --json", ["fifo"]),
    ("runs/dan", "config.json", "resume {x} --budget 8steps --json", ["json", ["made_with"], "set", "0"]),
    ("texts/knowledge", "dev.tsv", "train facts {x} --no-pretraining --width 8 --heads 2 --budget 1steps --out {o}/run",
     ["insert", 171, "5b", 100000]),
    ("files/compare", "cells/bag.json", COMPARE, ["json", ["value"], "set", "-1"]),
    ("files/compare", "byte_costs/bag.npy", COMPARE, ["line", 932368, "empty"]),
    ("files/domains", "cells/run2-kn2.json", DOMAINS, ["json", ["value", "name"], "set", "[{}]"]),
    ("files/domains", "cells/run2-kn2.json", DOMAINS, ["fifo"]),
    ("files/text.parquet", "", "eval {s}/runs/bag {x} --json", ["integer", 198, 2, -1, "little"]),
    ("files/vectors-header.txt", "", "vectors near {x} the --json", ["number", 81613, "9999999999999999999999999"]),
]  # fmt: skip


class Sample(FileAttack):
    """What was found before, and the first trials of a class."""

    def __init__(self, name: str, kept: list[dict[str, Any]]) -> None:
        super().__init__(name, *CLASSES[name])
        self.kept = kept

    def points(self, place: Path, rng: random.Random) -> Iterator[Any]:
        first = rng.randrange(1 << 40)
        drawn = ({"draw": number} for number in itertools.count(first))
        yield from itertools.chain(self.kept, itertools.islice(drawn, SAMPLE[self.name]))


def test_failures_found_once_stay_repaired_and_a_sample_of_damaged_files_finds_nothing(tmp_path: Path) -> None:
    kept: dict[str, list[dict[str, Any]]] = {name: [] for name in CLASSES}
    for base, file, line, mutation in FOUND:
        [name] = [name for name, (_, _, cases) in CLASSES.items() if base in [case.base for case in cases]][:1]
        kept[name].append({"base": base, "file": file, "line": line, "mutations": [mutation]})
        if Path(file).name in file_attacks.HASHED:
            kept[name].append({"base": base, "file": file, "line": line, "mutations": [mutation, ["rehash"]]})
    campaign = Campaign([Sample(name, kept[name]) for name in CLASSES], 3600.0, 0, 1, tmp_path)
    campaign.run(lambda *_: None)
    found = [
        f"{tally.attack.name}: {finding.result.outcome}: {finding.result.what} {json.dumps(finding.point)[:600]}"
        for tally in campaign.tallies
        for finding in tally.findings.values()
    ]
    assert not found, "\n".join(found)
    assert {tally.attack.name: tally.total for tally in campaign.tallies} == {
        name: count + len(kept[name]) for name, count in SAMPLE.items()
    }
    assert all(set(tally.counts) == {Outcome.OK} for tally in campaign.tallies)


@pytest.mark.parametrize(("mutation", "before", "after"), [
    (["bit", 1, 0], b"abc", b"acc"),
    (["integer", 0, 4, -1, "little"], b"\0" * 5, b"\xff\xff\xff\xff\0"),
    (["number", 1, "nan"], b"a 1 2.5 b", b"a 1 nan b"),
    (["line", 1, "double"], b"a\nb\nc", b"a\nb\nb\nc"),
    (["json", ["a", 0], "set", "1e999"], b'{"a": [1, 2]}', b'{\n "a": [\n  1e999,\n  2\n ]\n}'),
    (["json", ["a"], "double", "0"], b'{"a": 1}', b'{\n "a": 1,\n "a": 0\n}'),
])  # fmt: skip
def test_a_mutation_does_what_it_says(mutation: list[Any], before: bytes, after: bytes, tmp_path: Path) -> None:
    assert mutations.mutate(before, [mutation], tmp_path) == after
