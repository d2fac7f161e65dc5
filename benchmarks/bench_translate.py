"""Multi30k, English to German and to French: BLEU on test_2016_flickr, and the training time.

On a GPU (goals: 36 BLEU en-de, 55 BLEU en-fr, each within 10 minutes of training on an H200):

    python benchmarks/bench_translate.py gpu                 # both pairs, one after the other
    python benchmarks/bench_translate.py gpu --pairs en-de --seeds 0 1 2

On a CPU, five minutes of training:

    python benchmarks/bench_translate.py cpu

FLOPs of each part, by formula and by PyTorch's counter:

    python benchmarks/bench_translate.py count

Needs OCTAVO_DATA with multi30k, and sacrebleu (pip install -e '.[translate]').
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import octavo
from measure import parser, print_header, print_machine, print_row
from octavo.models.cost.parts import Shape
from octavo.models.seq2seq import SOURCE_SIDE, Seq2Seq, Seq2SeqConfig, seq2seq_cost

GPU: dict[str, Any] = {  # 29,000 pairs are soon memorised: a small model with much dropout
    "width": 256, "layers": 4, "heads": 4, "dropout": 0.3, "vocab_size": 8000, "batch_size": 4096,
    "budget": "4000steps",
    "evaluations": 5, "keep": "bleu", "label_smoothing": 0.1, "ema": 0.995,
}  # fmt: skip
CPU: dict[str, Any] = {
    "width": 128, "layers": 2, "heads": 4, "dropout": 0.1, "vocab_size": 4000, "batch_size": 2048,
    "budget": "5min", "evaluations": 5,
}  # fmt: skip


def train(pairs: str, settings: dict[str, Any], seed: int, out: Path, device: str) -> dict[str, Any]:
    """One run: its BLEU and times."""
    began = time.perf_counter()
    run = octavo.train(
        "seq2seq", f"multi30k-{pairs}", out=out / f"{pairs}-{seed}", seed=seed, device=device, **settings
    )
    return {
        "pairs": pairs, "seed": seed, "languages": run.record["result"]["languages"],
        "train_seconds": round(run.record["train_seconds"], 1),
        "wall_seconds": round(time.perf_counter() - began, 1), "steps": run.record["training"]["steps"],
        "settings": settings,
    }  # fmt: skip


def count(batch: int = 8, source: int = 14, target: int = 15) -> None:
    """The formulas beside PyTorch's counter, for one target language and for two."""
    model = Seq2Seq(Seq2SeqConfig(dropout=0.0), 8001, 8001, 2).eval()
    model.initialise(torch.Generator().manual_seed(0))
    source_BS, before_BT = torch.randint(0, 8000, (batch, source)), torch.randint(0, 8000, (batch, target))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    mapping = {kernel: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)}
    for languages in (1, 2):
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=mapping) as encoding:
            memory = model.encode(source_BS)
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=mapping) as decoding:
            for language in range(languages):
                model.given(memory, language)(before_BT)
        cost = seq2seq_cost(model.config, model.sizes, Shape(batch, target, source=source, languages=languages))
        print(f"\n{languages} target language{'s' if languages > 1 else ''}: B={batch}, N={source}, M={target}\n")
        print_header("part", "FLOPs by formula", "counted")
        for part in filter(lambda part: part.forward, cost.parts):
            print_row(part.name, f"{part.forward:,}", "")
        for side, counter in (("encoder", encoding), ("decoder", decoding)):
            formula = sum(part.forward for part in cost.parts if (part.name in SOURCE_SIDE) == (side == "encoder"))
            print_row(f"{side}, all parts", f"{formula:,}", f"{counter.get_total_flops():,}")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("what", choices=("gpu", "cpu", "count"))
    arguments.add_argument("--pairs", nargs="+", default=None, help="en-de, en-fr, en-de-fr, ...")
    arguments.add_argument("--seeds", nargs="+", type=int, default=[0])
    arguments.add_argument("--out", type=Path, default=Path("runs/translate"))
    arguments.add_argument("--set", nargs="*", default=[], help="settings to change, such as width=512 dropout=0.2")
    args = arguments.parse_args()
    print_machine()
    if args.what == "count":
        count()
        return
    settings = dict(GPU if args.what == "gpu" else CPU)
    for setting in args.set:
        key, _, value = setting.partition("=")
        default = settings.get(key)
        settings[key] = type(default)(value) if default is not None else json.loads(value)
    device = "cuda" if args.what == "gpu" else "cpu"
    for pairs in args.pairs or (("en-de", "en-fr") if args.what == "gpu" else ("en-de",)):
        for seed in args.seeds:
            print(json.dumps(train(pairs, settings, seed, args.out, device)), flush=True)


if __name__ == "__main__":
    main()
