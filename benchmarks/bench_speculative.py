"""Speculative decoding: tokens per second with and without a draft model, alternating in the same process.

Takes any two runs with one tokenizer; without a draft, a 4-gram is counted in tiny Shakespeare with the run's own, and
without a run, a GRU is trained on its bytes. A draft helps where several tokens take the model little longer than one
(a large transformer) and a guess is much cheaper than its step; the first lines say whether that is so here. Speeds are
counted from the first token on, because preparing a large model takes a second or two either way. The prompt is the
beginning of the validation text. The ratio by processor time is the one that other processes disturb less.

octavo import smollm2 --out runs/smollm2
OMP_NUM_THREADS=1 python benchmarks/bench_speculative.py --run runs/smollm2        (about ten minutes)
python benchmarks/bench_speculative.py                                             (about three)
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

import octavo
from measure import median_spread, parser, print_header, print_machine, print_row, time_rounds
from octavo.core import LanguageModel, device_of, seeded_generator
from octavo.decode import Greedy, Sample, Speculative, Tally, lucks, speculate, stream
from octavo.decode.drafting import draft_of
from octavo.models.ngram import NGram, NGramConfig
from octavo.tasks.corpus import store_tensor
from octavo.tasks.run import Run
from octavo.text import open_corpus, tokenize

WAYS = {"sample": Sample(), "temperature 0.7, top-k 40": Sample(temperature=0.7, top_k=40), "greedy": Greedy()}


def main() -> None:
    args = parse_arguments()
    print_machine()
    run = octavo.load(args.run) if args.run else octavo.train(
        "gru", "shakespeare", tokenizer="byte", budget=args.budget, device=args.device, measure=False
    )  # fmt: skip
    draft = octavo.load(args.draft) if args.draft else fit_draft(run, args.order)
    text = next(open_corpus(args.text).valid.chunks()).data[: args.prompt]
    octavo.generate(run, "", 1, draft=draft)  # which refuses runs that do not fit
    run.model.to(args.device).eval()
    draft.model.to(args.draft_device or args.device).eval()
    x_T = run.tokenizer.encode(bytes(text)).tolist()
    print(f"model: {run.summary()}\ndraft: {draft.summary()}")
    print(f"{args.device}; {len(x_T)} tokens of prompt, then {args.length} decoded")
    with torch.no_grad():
        time_calls(run.model, draft.model, x_T, args.tokens)
    for name, way in WAYS.items():
        compare(run.model, draft.model, x_T, name, way, args)


def fit_draft(run: Run, order: int) -> Run:
    """An n-gram over the run's tokens; its begin token is the last id, whatever the tokenizer's is."""
    store = tokenize(open_corpus("shakespeare").train, run.tokenizer)
    x_N = store_tensor(store).clone()
    x_N[x_N == run.tokenizer.begin] = run.tokenizer.vocab - 1
    model = NGram.fit(x_N, NGramConfig(order=order), run.tokenizer.vocab)
    return Run(model, run.tokenizer, {"corpus": {"name": "shakespeare"}})


def time_calls(model: LanguageModel[Any], draft: LanguageModel[Any], x_T: list[int], drafts: list[int]) -> None:
    """What a guess costs, and what several tokens in one call cost the model."""
    _, state = model.absorb(model.start(1), torch.tensor([[model.begin, *x_T]], device=device_of(model)))
    session = model.session(state)
    writer, (luck,) = draft_of(draft, x_T, Sample(), model.begin), lucks(Speculative(draft), seeded_generator(0), 1)

    def several(count: int) -> None:
        session.absorb(torch.tensor([x_T[:1] * count], device=device_of(model)))
        session.rewind(count if count < 16 else 16)

    def guess() -> None:
        writer.guess(4, luck)
        writer.hear(0, x_T[0])

    jobs: dict[str, Callable[[], object]] = {"four guesses": guess}
    jobs |= {f"{n} tokens in a call": lambda n=n: several(n) for n in (1, *(n + 1 for n in drafts))}  # type: ignore[misc]
    print()
    print_header("call", "milliseconds")
    for name, seconds in time_rounds(jobs, 14).items():
        print_row(name, median_spread([1e3 * each for each in seconds]))


def compare(
    model: LanguageModel[Any], draft: LanguageModel[Any], x_T: list[int], name: str, way: Any, args: Any
) -> None:
    """Plain decoding and every draft length, alternating."""
    rates: dict[int, list[float]] = {tokens: [] for tokens in (0, *args.tokens)}
    by_processor: dict[int, list[float]] = {tokens: [] for tokens in rates}
    rounds: dict[int, list[Any]] = {tokens: [] for tokens in rates}
    texts: dict[int, list[list[int]]] = {tokens: [] for tokens in rates}
    for seed in range(args.repeats):
        for tokens in rates:
            rate, processor, steps = decode(model, draft, x_T, way, tokens, seed, args.length)
            rates[tokens].append(rate)
            by_processor[tokens].append(processor)
            texts[tokens].append([x for step in steps for x in (step.tokens if tokens else step)])
            rounds[tokens] += steps if tokens else []
    print(f"\n{name}: median (spread) of {args.repeats}\n")
    print_header("", "tokens/s", "times plain", "by processor time", "accepted", "tokens a call", "same text")
    print_row("plain", median_spread(rates[0], 1), "1.00", "1.00", "", "", "")
    for tokens in args.tokens:
        tally = Tally.of(rounds[tokens])
        ratios = [f"{median(values[tokens]) / median(values[0]):.2f}" for values in (rates, by_processor)]
        same = ("yes" if texts[tokens] == texts[0] else "NO") if isinstance(way, Greedy) else ""
        print_row(f"draft of {tokens}", median_spread(rates[tokens], 1), *ratios, f"{tally.accepted_share:.0%}",
                  f"{tally.tokens_per_call:.2f}", same)  # fmt: skip


def decode(
    model: LanguageModel[Any], draft: LanguageModel[Any], x_T: list[int], way: Any, tokens: int, seed: int, length: int
) -> tuple[float, float, list[Any]]:
    """Tokens per second after the first call, by wall-clock and by processor time, and the rounds or plain tokens."""
    if tokens:
        method = Speculative(draft, tokens, way)
        (luck,) = lucks(method, seeded_generator(seed), 1)
        steps: Any = speculate(model, x_T, length, method, luck)
    else:
        steps = ([int(x_B)] for x_B in stream(model, [x_T], length, way, seeded_generator(seed)))
    results = [next(steps)]
    began, processor = time.perf_counter(), time.process_time()
    results += steps
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    count = sum(len(each.tokens if tokens else each) for each in results[1:])
    return count / seconds, count / processor, results


def parse_arguments() -> Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--run", help="the model; without it, a GRU is trained")
    arguments.add_argument("--draft", help="the draft; without it, an n-gram is counted")
    arguments.add_argument("--order", type=int, default=4, help="of that n-gram")
    arguments.add_argument("--text", default="shakespeare", help="its last tenth opens with the prompt")
    arguments.add_argument("--budget", default="60s", help="of the GRU's training")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--draft-device", default="", help="without it, the model's")
    arguments.add_argument("--tokens", type=int, nargs="+", default=[2, 4, 8])
    arguments.add_argument("--length", type=int, default=100, help="tokens to decode")
    arguments.add_argument("--prompt", type=int, default=400, help="bytes of the prompt")
    arguments.add_argument("--repeats", type=int, default=5)
    return arguments.parse_args()


if __name__ == "__main__":
    main()
