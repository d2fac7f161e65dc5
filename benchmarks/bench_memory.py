"""What every language model can remember: associative recall and copying, trained on 64 tokens, tested on up to 4,096.

Networks of two layers and about 100,000 parameters learn the answers of made-up sequences of 64 tokens with 1 to 16
items (memory_tasks.py); the same number of steps for all. Models that count are fitted to the same sequences. Then the
most probable token at each answer of new sequences is compared with the answer: 8 items in longer and longer sequences
(mostly noise), and more and more items with 16 tokens of noise. Finished cells stay in the folder; the same command
goes on.

python benchmarks/bench_memory.py --out memory                       (two hours of one thread)
python benchmarks/bench_memory.py --out memory --only gru gated-deltanet --tasks recall --seeds 1
python benchmarks/bench_memory.py --out memory --report              (the tables and the figures of what is there)
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from measure import median_spread, parser, print_header, print_machine, print_row
from memory_tasks import CHANCE, VOCAB, Sequences, evaluation_sequences, length_of, training_sequences
from octavo.core import LanguageModel, seeded_generator
from octavo.costs import cost_of
from octavo.io.files import write_text
from octavo.models import find_spec, parameter_count, preset
from octavo.models.cost.parts import Shape
from octavo.pages.figures.heat_map import HeatBlock, HeatRow, draw_heat_map
from octavo.tasks.corpus import fit_counts
from octavo.text.tokenizers.byte import Byte
from octavo.training.distributed import Team
from octavo.training.loop import Loop
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig
from octavo.training.stage import Objective, RowBatch, Stage

TRAIN_LENGTH, TRAIN_ITEMS, TRAIN_ROWS = 64, 16, 64
STEPS = {"recall": 400, "copying": 600}  # of training: in so many a transformer learns the task
WEIGHT_DECAY = 0.01  # no sequence is seen twice
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
ITEMS, GAP = (2, 4, 8, 16, 32), 16
ITEMS_ALONG_LENGTHS = 8
TEST_ROWS, LONG_ROWS, LONG = 32, 16, 2048  # sequences of each length, and of those from LONG tokens on
TEST_SEED = 1_000_003
WINDOW = 256  # tokens read at once in tests, with the state carried
COUNTED_SEQUENCES = 4096  # that models which count are fitted to
CPU = torch.device("cpu")


class Entry(NamedTuple):
    """A row: a model as octavo train knows it, with settings that make all of about the same size."""

    family: str
    model: str
    settings: Mapping[str, Any] = {}
    sequences: int = COUNTED_SEQUENCES


TRANSFORMER: dict[str, Any] = {"width": 64, "layers": 2, "heads": 2, "context": LENGTHS[-1]}
MATRIX: dict[str, Any] = {"width": 64, "layers": 2, "heads": 2}
MODELS: dict[str, Entry] = {
    "7-gram": Entry("counts", "ngram", {"order": 7}),
    "ppm": Entry("counts", "ppm"),
    "ctw": Entry("counts", "ctw"),
    "adaptive n-gram": Entry("counts", "adaptive-ngram", {}, 1),
    "hmm": Entry("hidden states", "hmm", {"states": 256}),
    "nnlm": Entry("windows", "nnlm", {"order": 16, "hidden": 96}),
    "conv": Entry("windows", "conv", {"width": 48, "layers": 6}),
    "rnn": Entry("recurrent", "rnn", {"width": 152}),
    "gru": Entry("recurrent", "gru", {"width": 88}),
    "lstm": Entry("recurrent", "lstm", {"width": 76}),
    "rnn-attention": Entry("recurrent", "rnn-attention", {"width": 208, "memory": 0}),
    "mingru": Entry("linear recurrences", "mingru", {"width": 68, "layers": 2}),
    "minlstm": Entry("linear recurrences", "minlstm", {"width": 64, "layers": 2}),
    "lru": Entry("linear recurrences", "lru", {"width": 64, "layers": 2}),
    "rglru": Entry("linear recurrences", "rglru", {"width": 60, "layers": 2}),
    "linear": Entry("matrix states", "linear", {**TRANSFORMER}),
    "retention": Entry("matrix states", "retention", MATRIX),
    "gla": Entry("matrix states", "gla", MATRIX),
    "mamba2": Entry("matrix states", "mamba2", {**MATRIX, "layers": 4}),
    "mlstm": Entry("matrix states", "mlstm", MATRIX),
    "deltanet": Entry("matrix states", "deltanet", MATRIX),
    "gated-deltanet": Entry("matrix states", "gated-deltanet", MATRIX),
    "gpt, local": Entry("attention", "local", TRANSFORMER),
    "gpt": Entry("attention", "gpt", TRANSFORMER),
}
AXES = {"length": tuple(map(str, LENGTHS)), "items": tuple(map(str, ITEMS))}
HEAT_BLOCKS = (
    HeatBlock(
        f"{ITEMS_ALONG_LENGTHS} items, by length", tuple(f"{n // 1024}k" if n >= 1024 else str(n) for n in LENGTHS)
    ),
    HeatBlock("by items", tuple(map(str, ITEMS))),
)
TASKS = {"recall": "Associative recall", "copying": "Copying"}


class AnswerLoss(Objective):
    """Cross-entropy of the answers alone, in nats and summed."""

    def forward(self, state: Any, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        x_BT, answer_BT = part
        logits_BTV, _ = self.model.absorb(state, x_BT[:, :-1])
        return F.cross_entropy(logits_BTV[answer_BT], x_BT[:, 1:][answer_BT], reduction="sum"), ()


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--out", type=Path, required=True, help="the folder of the finished cells and the figures")
    arguments.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    arguments.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--steps", type=int, help="of training, for networks, instead of those of the results")
    arguments.add_argument("--report", action="store_true", help="train nothing")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    print_machine()
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(0 if args.report else args.seeds):
        for task in args.tasks:
            for name in args.only:
                run_cell(args, task, name, seed)
    for task in args.tasks:
        report(args, task)


# ---------------------------------------------------------------------- cells


def cell_file(args: argparse.Namespace, task: str, name: str, seed: int) -> Path:
    folder: Path = args.out
    return folder / f"{task}-{name.replace(', ', '-').replace(' ', '-')}-{steps_of(args, task)}-{seed}.json"


def steps_of(args: argparse.Namespace, task: str) -> int:
    return args.steps or STEPS[task]


def run_cell(args: argparse.Namespace, task: str, name: str, seed: int) -> None:
    """Train and test one model on one task, unless that was done before."""
    path = cell_file(args, task, name, seed)
    if path.exists():
        return
    began, entry = time.process_time(), MODELS[name]
    model, loss = trained_model(entry, task, steps_of(args, task), seed)
    training = time.process_time() - began
    record: dict[str, Any] = {
        "task": task, "model": name, "seed": seed, "steps": steps_of(args, task), "loss": loss,
        "parameters": parameter_count(model), "state": [state_numbers(model, length) for length in (64, LENGTHS[-1])],
        "training_seconds": training, **measure(model, task),
    }  # fmt: skip
    record["seconds"] = time.process_time() - began
    write_text(path, json.dumps(record, indent=1) + "\n")
    shown = "; ".join(" ".join(f"{100 * share:.0f}" for share in record[axis].values()) for axis in ("length", "items"))
    print(f"{task}, {name}, seed {seed}: {shown} ({training:.0f} + {record['seconds'] - training:.0f} s)", flush=True)


def trained_model(entry: Entry, task: str, steps: int, seed: int) -> tuple[LanguageModel[Any], float | None]:
    """The model after training, and the mean loss of its last steps."""
    name, config = preset(entry.model)
    config, spec = replace(config, **entry.settings), find_spec(name)
    if not spec.trained_by_gradient:
        return counted_model(name, config, task, entry.sequences, seed), None
    model: Any = spec.model(config, VOCAB)
    model.initialise(seeded_generator(seed))
    optimizer = OptimizerConfig(weight_decay=WEIGHT_DECAY).suiting(model)
    settings = LoopConfig(budget=f"{steps}steps", evaluations=1, precision="float32", compile="off")
    stage = Stage(model, AnswerLoss(model), batches(task, seed), optimizer, settings.budget, start=model.start,
                  examples_per_step=TRAIN_ROWS)  # fmt: skip
    loop = Loop(stage, settings, Team(0, 1, CPU), seed, quiet=True)
    loop.train()
    trained: Any = loop.trained_model()
    return trained.eval(), statistics.mean(loop.recent)


def counted_model(name: str, config: Any, task: str, sequences: int, seed: int) -> LanguageModel[Any]:
    """Fitted to so many sequences, each opened anew. Tokens are taken for bytes."""
    tokenizer = Byte()
    drawn = training_sequences(task, sequences, TRAIN_LENGTH, TRAIN_ITEMS, seed, 0)
    x_BT, _ = opened(drawn, tokenizer.begin)
    return fit_counts(name, x_BT.flatten().int(), config, tokenizer, seed).model.eval()


def batches(task: str, seed: int) -> Callable[[int], RowBatch]:
    """The n-th batch: tokens behind the one that opens a sequence, and which of them are answers."""

    def batch(step: int) -> RowBatch:
        x_BT, answer_BT = opened(training_sequences(task, TRAIN_ROWS, TRAIN_LENGTH, TRAIN_ITEMS, seed, step), VOCAB - 1)
        return RowBatch((x_BT, answer_BT), float(answer_BT.sum()))

    return batch


def opened(sequences: Sequences, begin: int) -> tuple[Tensor, Tensor]:
    """Tokens with the one in front that opens a sequence; which of the others are answers."""
    x_BL = torch.from_numpy(sequences.x_BL)
    return F.pad(x_BL, (1, 0), value=begin), torch.from_numpy(sequences.answer_BL)


def state_numbers(model: LanguageModel[Any], past: int) -> int:
    """Numbers that the model carries after so many tokens."""
    return cost_of(model, Shape(past=past)).cache_bytes(past, 4) // 4


# ---------------------------------------------------------------------- tests


def measure(model: LanguageModel[Any], task: str) -> dict[str, dict[str, float]]:
    """The share of right answers by the length of the sequence, and by the number of items."""
    few = length_of(task, ITEMS_ALONG_LENGTHS, 0)
    by_length = {
        str(length): accuracy(
            model, task, ITEMS_ALONG_LENGTHS, length - few, LONG_ROWS if length >= LONG else TEST_ROWS
        )
        for length in LENGTHS
    }
    by_items = {str(items): accuracy(model, task, items, GAP, TEST_ROWS * max(1, 8 // items)) for items in ITEMS}
    return {"length": by_length, "items": by_items}


@torch.no_grad()
def accuracy(model: LanguageModel[Any], task: str, items: int, gap: int, rows: int) -> float:
    """The share of answers that are the most probable token; the same sequences for every model and seed."""
    x_BT, answer_BT = opened(evaluation_sequences(task, rows, items, gap, TEST_SEED), model.begin)
    state, right = model.start(rows), 0
    for start in range(0, answer_BT.shape[1], WINDOW):
        window_BT, asked_BT = x_BT[:, start : start + WINDOW + 1], answer_BT[:, start : start + WINDOW]
        logits_BTV, state = model.absorb(state, window_BT[:, :-1])
        right += int((logits_BTV.argmax(-1) == window_BT[:, 1:])[asked_BT].sum())
    return right / int(answer_BT.sum())


# ---------------------------------------------------------------------- results


def report(args: argparse.Namespace, task: str) -> None:
    """The table of a task, and its heat map: means over the seeds that are there."""
    records: dict[str, list[dict[str, Any]]] = {}
    for name in MODELS:
        paths = [cell_file(args, task, name, seed) for seed in range(args.seeds)]
        found = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
        records |= {name: found} if found else {}
    if not records:
        return
    print(f"\n{TASKS[task]}: right answers in percent; chance {100 * CHANCE[task]:.0f}; median (spread) of seeds\n")
    print_header("model", "parameters", "state, numbers", *(f"{n:,} tokens" for n in LENGTHS),
                 *(f"{n} items" for n in ITEMS), "seeds")  # fmt: skip
    for name, found in records.items():
        print_row(name, f"{found[0]['parameters']:,}", state_in_words(name, found[0]), *shown_shares(found), len(found))
    path = args.out / f"{task}.svg"
    title = f"{TASKS[task]}: right answers in percent, trained on {TRAIN_LENGTH} tokens"
    write_text(path, draw_heat_map(heat_rows(records), HEAT_BLOCKS).file(title))
    print(f"\n{path}")


def heat_rows(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[HeatRow]:
    """Means over seeds, the models of a family under its name."""
    rows = []
    for family in dict.fromkeys(entry.family for entry in MODELS.values()):
        mine = [name for name in records if MODELS[name].family == family]
        rows += [HeatRow(family)] if mine else []
        for name in mine:
            along, alone = ([statistics.mean(one[axis][column] for one in records[name]) for column in columns]
                            for axis, columns in AXES.items())  # fmt: skip
            rows.append(HeatRow(name, (along, alone)))
    return rows


def shown_shares(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        median_spread([100 * one[axis][column] for one in found], 0)
        for axis, columns in AXES.items() for column in columns
    ]  # fmt: skip


def state_in_words(name: str, record: Mapping[str, Any]) -> str:
    """How many numbers a network carries after 64 tokens, and after the longest test where that is more."""
    if not find_spec(preset(MODELS[name].model)[0]).trained_by_gradient:
        return "counts" if MODELS[name].model == "adaptive-ngram" else "last tokens"
    short, long = record["state"]
    return f"{short:,}" if short == long else f"{short:,} to {long:,}"


if __name__ == "__main__":
    main()
