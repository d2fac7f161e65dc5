"""Attack octavo: kill it at every file-system change, fill its disk, damage its files, send it hostile requests.

Every class of attack prints what it counted; what was found is kept with the smallest reproduction in OUT/findings.
OUT/report.html and OUT/torture.json hold counts, goals, machine and versions. Exits with 1 if anything was found.

.venv/bin/python benchmarks/torture                                     (make torture: ten minutes)
.venv/bin/python benchmarks/torture --hours 8 --jobs 2 --seed 7         (make torture HOURS=8 JOBS=2 SEED=7)
.venv/bin/python benchmarks/torture --classes kill,clock --minutes 3
.venv/bin/python benchmarks/torture --replay CLASS POINT                (one finding again, as its report says)
"""

from __future__ import annotations

import argparse
import encodings
import importlib
import json
import os
import pkgutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torture.campaign import Attack

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)  # the folder above the package, whose modules are torture.NAME
sys.path.insert(1, str(HERE.parents[1] / "src"))  # the octavo of this tree is attacked, installed or not
DEFAULT_MINUTES = 10.0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/torture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, help=f"for all classes together (default: {DEFAULT_MINUTES:g})")
    parser.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--trials", type=int, help="of each class, at most (default: all that the time allows)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--classes", default="", help="names or their beginnings, with commas between (default: all)")
    parser.add_argument("--out", help="a new folder for the page and the findings (default: runs/torture-DATE)")
    parser.add_argument("--list", action="store_true", help="name the classes, and say which cannot run here")
    parser.add_argument("--json", action="store_true", help="print torture.json")
    parser.add_argument("--replay", nargs=2, metavar=("CLASS", "POINT"), help="run one trial; its folder stays")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    if options.out and Path(options.out).exists() and any(Path(options.out).iterdir()):
        parser.error(f"--out {options.out} holds something; name a new folder")
    return options


def main() -> int:
    options = parse_options()
    os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    from torture.faults import preload_library, remove_library

    preload_library()
    from torture.registry import ATTACKS, choose

    try:
        attacks = choose(options.replay[0] if options.replay else options.classes)
    except ValueError as error:
        print(f"torture: {error}", file=sys.stderr)
        return 2
    if options.list:
        for attack in ATTACKS.values():
            print(f"{attack.name:18} {attack.title}" + (f"; {why}" if (why := attack.unavailable()) else ""))
        remove_library()
        return 0
    import_octavo()
    try:
        return replay_point(options) if options.replay else run_campaign(options, attacks)
    finally:
        remove_library()


def import_octavo() -> None:
    """Import all of octavo once, so that every trial is a fork that has it."""
    import torch

    import octavo

    torch.set_num_threads(1)  # before any operation, so that forks find no threads that they do not have
    for module in pkgutil.iter_modules(encodings.__path__, "encodings."):  # a trial may lose its rights to read them
        with suppress(ImportError):
            importlib.import_module(module.name)
    for module in pkgutil.walk_packages(octavo.__path__, "octavo."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # of what an optional part needs
                importlib.import_module(module.name)


def replay_point(options: argparse.Namespace) -> int:
    from torture.campaign import Outcome, replay, temporary_parent
    from torture.registry import ATTACKS

    folder = Path(tempfile.mkdtemp(prefix="torture-replay-", dir=temporary_parent()))
    results = replay(ATTACKS[options.replay[0]], json.loads(options.replay[1]), folder)
    for result in results:
        print("\n".join(filter(None, (f"{result.outcome}: {result.what}".rstrip(": "), result.command))))
    print(f"its files: {folder}", file=sys.stderr)
    return int(any(result.outcome != Outcome.OK for result in results))


def run_campaign(options: argparse.Namespace, attacks: list[Attack]) -> int:
    from torture.campaign import Campaign
    from torture.record import Progress, class_line, summarise, write_record

    minutes = DEFAULT_MINUTES if options.minutes is None and options.hours is None else options.minutes or 0.0
    out = Path(options.out or time.strftime("runs/torture-%Y%m%d-%H%M%S"))
    out.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(attacks, minutes * 60 + (options.hours or 0.0) * 3600, options.seed, options.jobs, out)
    if options.trials is not None:
        campaign.max_trials = options.trials
    try:
        campaign.run(Progress())
    except KeyboardInterrupt:
        campaign.stopped = True
    record = summarise(campaign, time.monotonic() - campaign.started)
    write_record(record, out)
    if options.json:
        print(json.dumps(record, indent=1, ensure_ascii=False))
    else:
        print("\n".join(map(class_line, campaign.tallies)))
        print("; ".join(f"{unit} {row['reached']:,} of {row['goal']:,}" for unit, row in record["goals"].items()))
        print(f"{record['found']:,} found; {out / 'report.html'}")
    return 1 if record["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
