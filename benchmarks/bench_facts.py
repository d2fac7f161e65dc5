"""Does pretraining teach facts? Exact match on new questions: pretrained, not pretrained, a synthesizer, always London.

python benchmarks/bench_facts.py                    birthplaces with the default settings, for a GPU
python benchmarks/bench_facts.py --small            synthetic people, with settings for 2 cores
python benchmarks/bench_facts.py --set mixed=0.25   other settings of the training or the model
"""

from __future__ import annotations

import json
from typing import Any

import octavo
from measure import median_spread, parser, print_header, print_machine, print_row

SMALL: dict[str, Any] = {
    "width": 64, "layers": 2, "heads": 4, "context": 96, "pretrain_epochs": 60, "pretrain_batch_size": 32, "epochs": 40,
    "batch_size": 16,
}  # fmt: skip
SYSTEMS: dict[str, dict[str, Any]] = {  # what differs
    "pretrained": {}, "no pretraining": {"pretraining": False, "epochs": 75}, "synthesizer": {"attention": "dense"},
}  # fmt: skip


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--small", action="store_true", help="settings for 2 cores")
    arguments.add_argument("--source", help="birthplaces, people-N or a folder")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    arguments.add_argument("--device", default="auto")
    arguments.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings, for all systems")
    arguments.add_argument("--json", action="store_true")
    args = arguments.parse_args()
    print_machine()
    settings = (SMALL if args.small else {}) | {
        name: parse_value(value) for name, value in (setting.split("=", 1) for setting in args.set)
    }
    source = args.source or ("people-160" if args.small else "birthplaces")
    rows = []
    for name in args.systems:
        for seed in args.seeds:
            run = octavo.train("facts", source, seed=seed, device=args.device, **(settings | SYSTEMS[name]))
            rows.append({"system": name, "seed": seed, "seconds": run.record["train_seconds"], **run.record["result"]})
            print_result(rows[-1])
    print(f"\nmedians (spread) of {len(args.seeds)} seeds\n")
    print_header("system", "exact match, %", "seconds")
    for name in args.systems:
        results = [row for row in rows if row["system"] == name]
        exact = median_spread([100 * row["exact_match"] for row in results], 1)
        print_row(name, exact, median_spread([row["seconds"] for row in results], 0))
    common = [row["commonest"] for row in rows]
    print_row(f"always {common[0]['answer']!r}", median_spread([100 * each["exact_match"] for each in common], 1), "")
    if args.json:
        print(json.dumps(rows))


def parse_value(word: str) -> Any:
    """A number, true or false as JSON has them, or the word itself."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def print_result(row: dict[str, Any]) -> None:
    groups = ", ".join(f"{name} {group['exact_match']:.1%}" for name, group in row["groups"].items())
    print(f"{row['system']}, seed {row['seed']}: {row['exact_match']:.1%} exact match, calibration error "
          f"{row['ece']:.1%}, {row['seconds']:.0f} s ({groups})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
