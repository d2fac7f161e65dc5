"""octavo doctor on made runs: sick ones, each with the name it must be given, and healthy ones of every task.

    python benchmarks/bench_doctor.py              (all of them: some two minutes)
    python benchmarks/bench_doctor.py --only gru   (those whose name has the word in it)

A run counts as named right where the worst finding, the first that the doctor shows, is the one that was made; a
healthy one where there is no warning.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from measure import parser, print_header, print_row
from octavo.inspection.doctor import examine
from sick_runs import PATIENTS, write_texts  # type: ignore[import-not-found]


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--only", default="", help="a word in the names of the runs to examine")
    only = flags.parse_args().only
    print_header("run", "made", "found", "training s", "doctor s")
    right = {True: [0, 0], False: [0, 0]}
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts"
        texts.mkdir()
        write_texts(texts)
        for number, patient in enumerate(one for one in PATIENTS if only in one.name):
            began = time.process_time()
            run = patient.make(texts, Path(folder) / str(number) / "run")
            trained = time.process_time()
            found = examine(run).condition
            times = f"{trained - began:.1f}", f"{time.process_time() - trained:.1f}"
            print_row(patient.name, patient.condition or "healthy", found or "nothing", *times)
            counts = right[bool(patient.condition)]
            counts[0] += found == patient.condition
            counts[1] += 1
    print(f"\nsick runs named right: {right[True][0]} of {right[True][1]}")
    print(f"healthy runs without a warning: {right[False][0]} of {right[False][1]}")


if __name__ == "__main__":
    main()
