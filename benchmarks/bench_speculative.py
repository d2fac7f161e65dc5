"""Speculative decoding: tokens a second with and without a draft, in the same process, round by round in turn.

Trains a byte 5-gram and a GRU on tiny Shakespeare for a minute, or takes any two runs with one tokenizer. `calls` are
the model's own; a draft pays where several tokens take the model little longer than one (a transformer, or anything
large on a GPU) and the draft's step is much cheaper than the model's. The first lines say whether that is so here.

python benchmarks/bench_speculative.py                                              (about three minutes)
python benchmarks/bench_speculative.py --run runs/gpt --draft runs/kn5 --device cuda --tokens 2 4 8
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import octavo
from octavo.core import LanguageModel, device_of, seeded
from octavo.decode import Greedy, Sample, Speculative, Tally, generate, lucks, speculate

PROMPT = "ROMEO:\n"
WAYS = {"sample": Sample(), "temperature 0.7, top-k 40": Sample(temperature=0.7, top_k=40), "greedy": Greedy()}


def main() -> None:
    args = parse()
    run = octavo.load(args.run) if args.run else octavo.train(
        "gru", "shakespeare", tokenizer="byte", budget=args.budget, device=args.device, measure=False
    )  # fmt: skip
    draft = octavo.load(args.draft) if args.draft else octavo.train(
        "ngram", "shakespeare", order=5, tokenizer="byte", measure=False
    )  # fmt: skip
    octavo.generate(run, PROMPT, 1, draft=draft)  # which refuses runs that do not fit
    for one, device in ((run, args.device), (draft, args.draft_device or args.device)):
        one.model.to(device)
    x_T = run.tokenizer.encode(PROMPT.encode()).tolist()
    print(f"model: {run.summary()}\ndraft: {draft.summary()}")
    print(f"{args.device}, {torch.get_num_threads()} threads; {args.length} tokens, median (spread) of {args.repeats}")
    calls(run.model, draft.model, x_T, max(args.tokens))
    for name, way in WAYS.items():
        compare(run.model, draft.model, x_T, name, way, args)


def calls(model: LanguageModel[Any], draft: LanguageModel[Any], x_T: list[int], most: int) -> None:
    """What a step of each costs, and what several tokens in one call cost the model."""
    told = []
    several = f"model's {most + 1} tokens at once"
    for what, one, T in (("draft's step", draft, 1), ("model's step", model, 1), (several, model, most + 1)):
        x_1T = torch.tensor([[one.begin, *x_T]], device=device_of(one))
        with torch.no_grad():
            one.eval()
            _, state = one.absorb(one.start(1), x_1T)
            more_1T = x_1T[:, -1:].expand(1, T)
            seconds = timed(lambda one=one, state=state, more_1T=more_1T: one.absorb(state, more_1T), 50)
        told.append(f"{what} {1e6 * seconds:,.0f} µs")
    print(", ".join(told))


def timed(work: Callable[[], object], times: int) -> float:
    """Seconds of one call, the median of several, each waited for."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def compare(
    model: LanguageModel[Any], draft: LanguageModel[Any], x_T: list[int], name: str, way: Any, args: Any
) -> None:
    """Plain decoding and every length of draft in turn, so that the machine's moods fall on all of them."""
    rates: dict[int, list[float]] = {tokens: [] for tokens in (0, *args.tokens)}
    rounds: dict[int, list[Any]] = {tokens: [] for tokens in rates}
    for seed in range(args.repeats + 1):
        for tokens in rates:
            began = time.perf_counter()
            if tokens:
                method = Speculative(draft, tokens, way)
                (luck,) = lucks(method, seeded(seed), 1)
                rounds[tokens] += speculate(model, x_T, args.length, method, luck)
            else:
                generate(model, [x_T], args.length, way, seeded(seed))[0].tolist()
            if seed:  # the first is for warming up
                rates[tokens].append(args.length / (time.perf_counter() - began))
    base = statistics.median(rates[0])
    print(f"\n{name}\n  {'plain':<12}{spread(rates[0])}")
    for tokens in args.tokens:
        tally, ratio = Tally.of(rounds[tokens]), statistics.median(rates[tokens]) / base
        good = f"{tally.accepted_share:.0%} accepted, {tally.tokens_per_call:.2f} tokens a call"
        print(f"  {f'draft of {tokens}':<12}{spread(rates[tokens])}   {ratio:4.2f} of plain, {good}", flush=True)


def spread(values: list[float]) -> str:
    return f"{f'{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f}) tokens/s':>36}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", help="the model; without it, a GRU is trained")
    parser.add_argument("--draft", help="the draft; without it, a byte 5-gram is trained")
    parser.add_argument("--budget", default="60s", help="of the GRU's training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draft-device", default="", help="without it, the model's")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--length", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
