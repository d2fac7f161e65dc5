"""An adaptive mixture of tiny Shakespeare whose network was trained on a GPU: bits per byte, and where the time goes.

python benchmarks/bench_adaptive_gpu.py choose                        (networks side by side, on held-out chunks)
python benchmarks/bench_adaptive_gpu.py measure --width 512           (the last tenth, several seeds, with the proof)

choose: each network is trained for the budget, on the device alone; the bits per byte are of chunks held out of the
training part, of the network as it was trained. The last tenth of the text chooses nothing. measure: training on the
device; the n-gram model, the mixture, scoring and the proof on the processor, where an adaptive model reads in order,
token after token. The whole time of a seed is printed; the goal is 1.72 bits per byte within two minutes.
--text FILE reads another text, --device cpu tries the script where there is no GPU.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import octavo
from bench_adaptive_texts import archived
from measure import median_spread, parser, print_header, print_machine, print_row
from octavo.tasks.corpus import held_out

NETWORKS: tuple[dict[str, Any], ...] = (
    {"width": 256, "layers": 2}, {"width": 384, "layers": 2}, {"width": 512, "layers": 2},
    {"width": 512, "layers": 2, "dropout": 0.2}, {"width": 768, "layers": 2, "dropout": 0.3},
)  # fmt: skip


PROVED_BYTES = 20_000


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("verb", choices=("choose", "measure"))
    arguments.add_argument("--text", default="shakespeare")
    arguments.add_argument("--budget", default="60s", help="of the network's training")
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--width", type=int, default=512)
    arguments.add_argument("--layers", type=int, default=2)
    arguments.add_argument("--dropout", type=float, default=0.2)
    arguments.add_argument("--learning-rate", type=float, default=4e-4, help="of the network while it reads")
    arguments.add_argument("--out", type=Path, default=Path("runs/adaptive-gpu"))
    args = arguments.parse_args()
    print_machine()
    choose(args) if args.verb == "choose" else measure(args)


def trained(args: argparse.Namespace, seed: int, out: Path, network: dict[str, Any]) -> Any:
    return octavo.train(
        "gru", args.text, out=out, budget=args.budget, device=args.device, seed=seed, measure=False, force=True,
        **network,
    )  # fmt: skip


def choose(args: argparse.Namespace) -> None:
    print_header("network", "held-out chunks, bits per byte", "tokens read", "seconds")
    for network in NETWORKS:
        shown = ", ".join(f"{key} {value}" for key, value in network.items())
        seconds, run = timed(trained, args, 0, args.out / "choose", network)
        best, tokens = run.record["training"]["held_out_bits_per_byte"], run.record["train_tokens"]
        print_row(shown, f"{best:.4f}", f"{tokens:,}", f"{seconds:.1f}")


def measure(args: argparse.Namespace) -> None:
    network = {"width": args.width, "layers": args.layers, "dropout": args.dropout}
    columns = ("network, fixed", "adaptive mixture", "n-gram s", "network s", "mixture s", "scoring s", "all s")
    print_header("seed", *columns)
    mixed: list[float] = []
    proofs = []
    for seed in range(args.seeds):
        folder = args.out / f"seed-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        counting, _ = timed(octavo.train, "ngram", args.text, adaptive=True, out=folder / "counts", measure=False)
        training, _ = timed(trained, args, seed, folder / "network", network)
        mixing, _ = timed(
            octavo.train, "mix", args.text, adaptive=True, parts=[folder / "counts", folder / "network"],
            out=folder / "mixture", learning_rate=args.learning_rate, measure=False,
        )  # fmt: skip
        scoring, score = timed(octavo.evaluate, folder / "mixture")
        fixed = octavo.evaluate(folder / "network").bits_per_byte
        spent = (counting, training, mixing, scoring)
        shown = [f"{one:.1f}" for one in (*spent, sum(spent))]
        print_row(str(seed), f"{fixed:.4f}", f"{score.bits_per_byte:.4f}", *shown)
        mixed.append(score.bits_per_byte)
        text = held_out(octavo.load(folder / "mixture"))[1].read()
        proofs.append(archived(folder / "mixture", text[:PROVED_BYTES], f"seed {seed}"))
    print(f"adaptive mixture: {median_spread(mixed, 4)} bits per byte")
    print("\n".join(proofs))


def timed(work: Callable[..., Any], *arguments: Any, **settings: Any) -> tuple[float, Any]:
    """The seconds that a call took, and what it returned."""
    began = time.perf_counter()
    result = work(*arguments, **settings)
    return time.perf_counter() - began, result


if __name__ == "__main__":
    main()
