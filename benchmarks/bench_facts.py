"""Does pretraining teach facts? Exact match on new questions: pretrained, not pretrained, a synthesizer, always London.

python benchmarks/bench_facts.py                    birthplaces in the usual setting, for a GPU
python benchmarks/bench_facts.py --small            made-up people in a setting for 2 cores
python benchmarks/bench_facts.py --set mixed=0.25   the same with another setting, of the training or the model
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from typing import Any

import octavo

SMALL: dict[str, Any] = {
    "width": 64, "layers": 2, "heads": 4, "context": 96, "pretrain_epochs": 60, "pretrain_batch_size": 32, "epochs": 40,
    "batch_size": 16,
}  # fmt: skip
SYSTEMS: dict[str, dict[str, Any]] = {  # what differs
    "pretrained": {}, "no pretraining": {"pretraining": False, "epochs": 75}, "synthesizer": {"attention": "dense"},
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the setting for 2 cores")
    parser.add_argument("--source", help="birthplaces, people-N or a folder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings, for all systems")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    settings = (SMALL if args.small else {}) | {
        name: value_of(word) for name, word in (w.split("=", 1) for w in args.set)
    }
    source = args.source or ("people-160" if args.small else "birthplaces")
    rows = []
    for name in args.systems:
        for seed in args.seeds:
            run = octavo.train("facts", source, seed=seed, device=args.device, **(settings | SYSTEMS[name]))
            rows.append({"system": name, "seed": seed, "seconds": run.record["train_seconds"], **run.record["result"]})
            tell(rows[-1])
    for name in args.systems:
        mine = [row for row in rows if row["system"] == name]
        print(f"{name}: median {median(row['exact_match'] for row in mine):.1%} right of {len(mine)} seeds, "
              f"{median(row['seconds'] for row in mine):.0f} s")  # fmt: skip
    common = [row["commonest"] for row in rows]
    print(f"always {common[0]['answer']!r}: {median(one['exact_match'] for one in common):.1%}")
    if args.json:
        print(json.dumps(rows))


def value_of(word: str) -> Any:
    """A number, true or false as JSON has them, or the word itself."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def tell(row: dict[str, Any]) -> None:
    groups = ", ".join(f"{name} {one['exact_match']:.1%}" for name, one in row["groups"].items())
    print(f"{row['system']}, seed {row['seed']}: {row['exact_match']:.1%} right, calibration error {row['ece']:.1%}, "
          f"{row['seconds']:.0f} s ({groups})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
