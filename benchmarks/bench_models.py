"""Every language model on one text: bits per byte, speed and the size of the state; and decoding at any length.

Each model is trained by `octavo compare` with its defaults, networks for the same time and with several seeds, and
measured on the same held-out bytes. Rows are printed as they come. Finished cells stay in the folder, so the same
command goes on where it was stopped, and --only adds models one by one; a stopped training is resumed.

python benchmarks/bench_models.py shakespeare --out every --budget 3min --threads 2     (four hours)
python benchmarks/bench_models.py shakespeare --out every --budget 3min --threads 2 --only gru mamba2
python benchmarks/bench_models.py shakespeare --out steps --budget 3min --threads 2 --in-steps

With --in-steps each network's step is timed first, on an idle machine (a few minutes), and its trainings then take as
many steps as the budget has room for, evaluations included, however busy the machine is meanwhile: the same command
in two shells, each with some models, trains two at a time.

python benchmarks/bench_models.py --decoding                      (tokens a second, 1k to 64k tokens into a sequence)
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import octavo
from measure import median_spread, parser, print_header, print_machine, print_row, rates, time_rounds
from octavo.core import LanguageModel, seeded_generator, tensors_of
from octavo.experiments.compare.config import Candidate, candidates
from octavo.experiments.compare.measure import score_run
from octavo.experiments.compare.outcomes import key_of
from octavo.experiments.compare.rows import COMPRESSOR, MIXTURE, CompareRow
from octavo.experiments.runner import CELLS
from octavo.models import find_spec, preset
from octavo.tasks.corpus import held_out
from octavo.text import tokenize
from octavo.training.schedule import Budget

STATE_BYTES = 4096  # of the held-out text, after which a state is measured
TIMED_STEPS, WARM_UP = 16, 3
EVALUATED = 0.055  # of the budget goes into evaluations on validation chunks
COLUMNS = ("bits/byte", "parameters", "training, tokens/s", "reading, tokens/s", "writing, tokens/s", "state, bytes")
DECODED = ("gpt", "gru", "mingru", "lru", "rglru", "linear", "retention", "gla", "mamba2", "mlstm", "deltanet",
           "gated-deltanet")  # fmt: skip
CONTEXTS = (1 << 10, 1 << 12, 1 << 14, 1 << 16)
BYTE_VOCABULARY = 257
READ_TOKENS = 512  # by one call
DECODED_TOKENS, ROUNDS = 16, 5  # of each round, so that a context of 1,024 tokens grows by less than a tenth


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("text", nargs="?", help="a file, or a text that octavo data knows")
    arguments.add_argument("--out", type=Path, default=Path("runs/every-model"), help="the comparison's folder")
    arguments.add_argument("--budget", default="3min", help="of each network and seed")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--in-steps", action="store_true", help="train the steps that the budget has room for")
    arguments.add_argument("--only", nargs="+", metavar="MODEL", help="names as octavo compare takes them")
    arguments.add_argument("--decoding", action="store_true", help="speed with random weights, after 1k to 64k tokens")
    arguments.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS, help="tokens, with --decoding")
    args = arguments.parse_args()
    torch.set_num_threads(args.threads)
    print_machine()
    if args.decoding:
        decode(args.only or DECODED, sorted(args.contexts))
    elif args.text is None:
        arguments.error("name a text, or give --decoding")
    elif args.in_steps:
        compare_in_steps(args)
    else:
        compare_models(args)


# ---------------------------------------------------------------------- a table of trained models


def compare_models(args: argparse.Namespace) -> None:
    """A row for each model, as soon as its seeds are done; mixtures last, because they are made of the others."""
    budget = Budget.parse(args.budget)
    chosen = chosen_candidates(args, budget)
    print(f"{args.text}, {args.budget} for each network, {args.seeds} seeds: median (spread)\n")
    print_header("model", *COLUMNS)
    single = [one.name for one in chosen if one.family != MIXTURE]
    for one in chosen:
        models = [*single, one.name] if one.family == MIXTURE else [one.name]
        found = octavo.compare(args.text, models=models, out=args.out, budget=args.budget, seeds=args.seeds,
                               prove=False)  # fmt: skip
        print_model(args, one, found[one.name])


def chosen_candidates(args: argparse.Namespace, budget: Budget) -> list[Candidate]:
    """Those that were named, or all but compressors and other tokenizers."""
    every = candidates(budget.amount if budget.kind == "seconds" else None)
    chosen = [
        one for one in every.values()
        if (one.name in args.only if args.only else one.family != COMPRESSOR and not one.variant_of)
    ]  # fmt: skip
    if unknown := sorted({*(args.only or ())} - {one.name for one in chosen}):
        raise SystemExit(f"there is no model {', '.join(unknown)}; names are {', '.join(every)}")
    return chosen


def compare_in_steps(args: argparse.Namespace) -> None:
    """A row for each network, trained for the steps that it would do in the budget on an idle machine."""
    chosen = [one for one in chosen_candidates(args, Budget.parse(args.budget)) if one.by_gradient]
    steps = {one.name: steps_within(args, one) for one in chosen}  # all of them timed before anything is trained
    print(f"{args.text}, the steps that {args.budget} have room for, {args.seeds} seeds: median (spread)\n")
    print_header("model", "steps", *COLUMNS[:2], "training, tokens/s", "state, bytes")
    for one in chosen:
        runs = [trained(args, one, steps[one.name]["steps"], seed) for seed in range(args.seeds)]
        bits = [score_run(run, held_out(run)[1], "held out")[0].bits_per_byte for run in runs]
        parameters = sum(weight.numel() for weight in runs[0].model.parameters())
        print_row(one.name, f"{steps[one.name]['steps']:,}", median_spread(bits, 4), f"{parameters:,}",
                  f"{steps[one.name]['tokens_per_second']:,.0f}", f"{state_bytes(runs[0]):,}")  # fmt: skip


def steps_within(args: argparse.Namespace, candidate: Candidate) -> dict[str, float]:
    """How many steps the budget has room for, as it was timed when the folder was begun."""
    path = args.out / f"{candidate.name}-steps.json"
    if path.is_file():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        octavo.train(candidate.model, args.text, budget=f"{TIMED_STEPS}steps", out=out, measure=False,
                     **{**candidate.settings, "evaluations": 1})  # fmt: skip
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if "loss" in row][WARM_UP:]
    seconds = statistics.median(after["seconds"] - before["seconds"] for before, after in itertools.pairwise(rows))
    timed = {
        "steps": int(Budget.parse(args.budget).amount * (1 - EVALUATED) / seconds),
        "tokens_per_second": (rows[1]["tokens"] - rows[0]["tokens"]) / seconds,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(timed), encoding="utf-8")
    return timed


def trained(args: argparse.Namespace, candidate: Candidate, steps: float, seed: int) -> Any:
    """One seed's run, trained now or by an earlier command."""
    out = args.out / f"{candidate.name}-{seed}"
    if (out / "model.safetensors").is_file():
        run = octavo.load(out)
        return run if run.record["training"]["finished"] else octavo.resume(out, measure=False)
    return octavo.train(candidate.model, args.text, budget=f"{steps:.0f}steps", out=out, seed=seed, measure=False,
                        **candidate.settings)  # fmt: skip


def print_model(args: argparse.Namespace, candidate: Candidate, row: CompareRow) -> None:
    """The results of a model's seeds; speeds are of the first, those of reading and writing the means."""
    if row.error is not None or row.run is None:
        print_row(row.model, row.error or "not trained", *[""] * (len(COLUMNS) - 1))
        return
    bits = [seed_bits(args.out, key_of(row.model, seed)) for seed in range(args.seeds if candidate.is_random else 1)]
    run = octavo.load(args.out / row.run)
    trained = run.record["train_tokens"] / run.record["train_seconds"] if candidate.by_gradient else None
    shown = [f"{rate:,.0f}" if rate else "" for rate in (trained, row.score_rate, row.generation_rate)]
    print_row(row.model, median_spread(bits, 4), f"{row.parameters:,}", *shown, f"{state_bytes(run):,}")


def seed_bits(folder: Path, key: str) -> float:
    """Bits per byte of one cell of the comparison."""
    record = json.loads((folder / CELLS / f"{key}.json").read_text(encoding="utf-8"))
    return float(record["value"]["row"]["bits_per_byte"] or "inf")


@torch.no_grad()
def state_bytes(run: Any) -> int:
    """What a model carries from token to token, after the beginning of its held-out text."""
    model: LanguageModel[Any] = run.model
    tokens = tokenize(held_out(run)[1].first(STATE_BYTES), run.tokenizer).tokens
    return bytes_of(model.absorb(model.start(1), torch.from_numpy(tokens.astype("int64"))[None])[1])


def bytes_of(state: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(state))


# ---------------------------------------------------------------------- decoding


def decode(names: Sequence[str], contexts: Sequence[int]) -> None:
    """Tokens a second of a sequence that is so long already, and the bytes of its state."""
    print(f"decoding one sequence with random weights, default sizes, float32: median (spread) of {ROUNDS} rounds\n")
    print_header("model", *itertools.chain(*((f"{n:,} tokens: tokens/s", "state, bytes") for n in contexts)))
    for name in names:
        model, jobs, sizes = untrained(name, contexts[-1]), {}, {}
        state, x_1N = (
            model.start(1),
            torch.randint(BYTE_VOCABULARY - 1, (1, contexts[-1]), generator=seeded_generator(1)),
        )
        for before, context in itertools.pairwise((0, *contexts)):
            state = read(model, state, x_1N[:, before:context])
            jobs[str(context)] = decoder(model, state)
            sizes[str(context)] = bytes_of(state)
        seconds = time_rounds(jobs, ROUNDS)
        cells = ((median_spread(rates(DECODED_TOKENS, seconds[one]), 0), f"{sizes[one]:,}") for one in jobs)
        print_row(name, *itertools.chain(*cells))


def untrained(name: str, context: int) -> LanguageModel[Any]:
    """The model with its default settings; of a transformer the context is as long as it will be read."""
    model, config = preset(name)
    if hasattr(config, "context"):
        config = type(config)(**{**vars(config), "context": context + DECODED_TOKENS * (ROUNDS + 1)})
    made: Any = find_spec(model).model(config, BYTE_VOCABULARY)
    made.initialise(seeded_generator(0))
    made.eval().requires_grad_(False)
    return made  # type: ignore[no-any-return]


@torch.no_grad()
def read(model: LanguageModel[Any], state: Any, x_1N: torch.Tensor) -> Any:
    for start in range(0, x_1N.shape[1], READ_TOKENS):
        _, state = model.absorb(state, x_1N[:, start : start + READ_TOKENS])
    return state


def decoder(model: LanguageModel[Any], state: Any) -> Callable[[], None]:
    """Continues the sequence by some tokens at each call."""
    session = model.session(state)
    return partial(step, session)


@torch.no_grad()
def step(session: Any) -> None:
    x_1 = torch.tensor([1])
    for _ in range(DECODED_TOKENS):
        session.step(x_1)


if __name__ == "__main__":
    main()
