"""octavo compress: the whole command, and what its parts take, with a 7-gram, a transformer, a GRU and their mixture.

Text of tiny Shakespeare's held-out tenth. `command`: wall-clock seconds of a new process, start-up included. The others
are seconds of one core, which on an idle machine are the same thing. `start-up`: the command with an empty file, that
is, Python, imports and loading. `coding`: choosing the number of streams and coding them, in this process. `session`:
the floor, the steps of the model's session alone, without the range coder. `portable`: coding with --portable, and what
that costs; `digits`: to how many the probabilities of two machines would agree, the text being read to its end. Every
archive is restored and compared.

python benchmarks/bench_compress.py              # trains the four models, a few seconds each, into a temporary folder
python benchmarks/bench_compress.py --runs runs  # measures runs/kn7, runs/gpt, runs/gru and runs/mix, where they exist
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import octavo
from measure import parser, print_header, print_machine, print_row
from octavo.core import eval_mode
from octavo.scoring.archive import read_header
from octavo.scoring.portable import portable_model
from octavo.scoring.range_coder import choose_streams, compress_bytes, decompress_bytes
from octavo.tasks.corpus import held_out

MODELS = ("kn7", "gpt", "gru", "mix")
SIZES = (5_000, 100_000)
COLUMNS = (
    "model", "bytes", "streams", "command s", "start-up s", "coding s", "session s", "kB/s", "bits/byte",
    "portable s", "bits/byte", "digits",
)  # fmt: skip
ANOTHER_MACHINE = 1e-15  # the share by which weights are changed, for a machine that rounds otherwise


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", help="folder of runs called kn7, gpt, gru and mix")
    arguments.add_argument("--seconds", type=float, default=20.0, help="of training, for a network")
    arguments.add_argument("--data", default="shakespeare")
    arguments.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    print_machine()
    with TemporaryDirectory() as folder:
        runs = Path(args.runs) if args.runs else train(Path(folder), args.data, args.seconds)
        print_header(*COLUMNS)
        for name in (name for name in MODELS if (runs / name).is_dir()):
            for size in args.sizes:
                measure(runs / name, size, Path(folder))


def train(folder: Path, data: str, seconds: float) -> Path:
    octavo.train("ngram", data, order=7, out=folder / "kn7", measure=False)
    for name in ("gpt", "gru"):
        octavo.train(name, data, budget=f"{seconds}s", out=folder / name, measure=False)
    parts = [str(folder / name) for name in ("kn7", "gru", "gpt")]
    octavo.train("mix", data, parts=parts, out=folder / "mix", measure=False)
    return folder


def measure(path: Path, size: int, folder: Path) -> None:
    run = octavo.load(path)
    data = held_out(run)[1].read()[:size]
    (folder / "text").write_bytes(data)
    (folder / "empty").write_bytes(b"")
    (_, start_up), (command, _) = (time_command(path, folder / name, folder / "out") for name in ("empty", "text"))
    began = time.process_time()
    archive = compress_bytes(run.model, run.tokenizer, data, run.identity)
    coding = time.process_time() - began
    assert decompress_bytes(run.model, run.tokenizer, archive, run.identity) == data
    began = time.process_time()
    portable = compress_bytes(run.model, run.tokenizer, data, run.identity, portable=True)
    portable_coding = time.process_time() - began
    assert decompress_bytes(run.model, run.tokenizer, portable, run.identity) == data
    streams = read_header(archive)[0].streams
    tokens = torch.from_numpy(np.asarray(run.tokenizer.encode(data), dtype=np.int64))
    assert streams == choose_streams(run.model, tokens)
    print_row(
        path.name, f"{size:,}", streams, f"{command:.2f}", f"{start_up:.2f}", f"{coding:.2f}",
        f"{session_seconds(run.model, tokens, streams):.2f}", f"{size / 1000 / coding:.1f}",
        f"{8 * len(archive) / size:.4f}", f"{portable_coding:.2f}", f"{8 * len(portable) / size:.4f}",
        f"{agreeing_digits(run, tokens):.1f}",
    )  # fmt: skip


def agreeing_digits(run: Any, tokens: torch.Tensor) -> float:
    """To how many digits the worst probability of a token agrees with that of a machine that rounds otherwise, the text
    being read to its end without a fresh start: weights in double precision, and others that differ by 1e-15.
    """
    here = portable_model(run.model)
    there, generator = portable_model(run.model), torch.Generator().manual_seed(0)
    for weight in there.parameters():
        weight.data *= 1 + ANOTHER_MACHINE * torch.randn(weight.shape, dtype=weight.dtype, generator=generator)
    with torch.no_grad(), eval_mode(here), eval_mode(there):
        difference = max(
            float((a - b).abs().max()) for a, b in zip(*map(log_probs, (here, there), (tokens, tokens)), strict=True)
        )
    return -math.log10(max(difference, 1e-17))


def log_probs(model: Any, tokens: torch.Tensor) -> list[torch.Tensor]:
    """log p of the tokens, a part of the text after the other, the state carried."""
    x_1T, state, found = model.prepend_begin(tokens[None]), model.start(1), []
    for at in range(0, x_1T.shape[1] - 1, 4096):
        logp_1W, state = model.token_log_probs(state, x_1T[:, at : at + 4097])
        found.append(logp_1W)
    return found


@torch.no_grad()
def session_seconds(model: Any, tokens: torch.Tensor, streams: int) -> float:
    """The steps of the session with the tokens of all streams, and nothing else."""
    steps = len(tokens) // streams
    x_TL = tokens[: steps * streams].view(streams, steps).t().contiguous()
    with eval_mode(model):
        session = model.session(model.start(streams), steps)
        began = time.process_time()
        for x_L in x_TL:
            session.predict(x_L)
        return time.process_time() - began


def time_command(run: Path, source: Path, target: Path) -> tuple[float, float]:
    """Seconds by the clock and of one core."""
    words = [sys.executable, "-m", "octavo.cli", "compress", str(run), str(source), str(target), "--force"]
    began, before = time.perf_counter(), os.times()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = os.times()
    used = after.children_user - before.children_user + after.children_system - before.children_system
    return time.perf_counter() - began, used


if __name__ == "__main__":
    main()
