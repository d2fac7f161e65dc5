"""Speculative decoding: tokens a second with and without a draft, in the same process, in turn.

Takes any two runs with one tokenizer; without a draft, a 4-gram is counted in tiny Shakespeare with the run's own, and
without a run, a GRU is trained on its bytes. A draft pays where several tokens take the model little longer than one (a
large transformer) and a guess is much cheaper than its step; the first lines say whether that is so here. Rates are
counted from the first token on, because getting a large model ready takes a second or two either way. The prompt is
the beginning of the held-out text. In brackets is the ratio by the processor's time, which other jobs disturb less.

octavo import smollm2 --out runs/smollm2
OMP_NUM_THREADS=1 python benchmarks/bench_speculative.py --run runs/smollm2        (about ten minutes)
python benchmarks/bench_speculative.py                                             (about three)
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import octavo
from octavo.core import LanguageModel, device_of, seeded_generator
from octavo.decode import Greedy, Sample, Speculative, Tally, lucks, speculate, stream
from octavo.decode.drafting import draft_of
from octavo.models.ngram import NGram, NGramConfig
from octavo.tasks.corpus import store_tensor
from octavo.tasks.run import Run
from octavo.text import open_corpus, tokenize

WAYS = {"sample": Sample(), "temperature 0.7, top-k 40": Sample(temperature=0.7, top_k=40), "greedy": Greedy()}


def main() -> None:
    args = parse()
    run = octavo.load(args.run) if args.run else octavo.train(
        "gru", "shakespeare", tokenizer="byte", budget=args.budget, device=args.device, measure=False
    )  # fmt: skip
    draft = octavo.load(args.draft) if args.draft else counted(run, args.order)
    text = next(open_corpus(args.text).valid.chunks()).data[: args.prompt]
    octavo.generate(run, "", 1, draft=draft)  # which refuses runs that do not fit
    run.model.to(args.device).eval()
    draft.model.to(args.draft_device or args.device).eval()
    x_T = run.tokenizer.encode(bytes(text)).tolist()
    print(f"model: {run.summary()}\ndraft: {draft.summary()}")
    print(f"{args.device}, {torch.get_num_threads()} threads; {len(x_T)} tokens of prompt, then {args.length} written")
    with torch.no_grad():
        calls(run.model, draft.model, x_T, args.tokens)
    for name, way in WAYS.items():
        compare(run.model, draft.model, x_T, name, way, args)


def counted(run: Run, order: int) -> Run:
    """An n-gram of the run's tokens, whose begin is the last token whatever the tokenizer's is."""
    store = tokenize(open_corpus("shakespeare").train, run.tokenizer)
    x_N = store_tensor(store).clone()
    x_N[x_N == run.tokenizer.begin] = run.tokenizer.vocab - 1
    model = NGram.fit(x_N, NGramConfig(order=order), run.tokenizer.vocab)
    return Run(model, run.tokenizer, {"corpus": {"name": "shakespeare"}})


def calls(model: LanguageModel[Any], draft: LanguageModel[Any], x_T: list[int], drafts: list[int]) -> None:
    """What a guess costs, and what several tokens in one call cost the model: medians, in turn."""
    _, state = model.absorb(model.start(1), torch.tensor([[model.begin, *x_T]], device=device_of(model)))
    session = model.session(state)
    writer, (luck,) = draft_of(draft, x_T, Sample(), model.begin), lucks(Speculative(draft), seeded_generator(0), 1)

    def several(count: int) -> None:
        session.absorb(torch.tensor([x_T[:1] * count], device=device_of(model)))
        session.rewind(count if count < 16 else 16)

    def guess() -> None:
        made = writer.guess(4, luck)
        writer.hear(0, x_T[0])
        guessed.append(len(made))

    guessed: list[int] = []
    jobs: dict[str, Callable[[], object]] = {"four guesses": guess}
    jobs |= {f"{n} tokens in a call": lambda n=n: several(n) for n in (1, *(n + 1 for n in drafts))}  # type: ignore[misc]
    took = timed(jobs, 15)
    print(", ".join(f"{what} {1e3 * seconds:,.2f} ms" for what, seconds in took.items()))


def timed(jobs: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Seconds of each job, the median of several, each waited for; all take turns."""
    took: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(times):
        for name, work in jobs.items():
            began = time.perf_counter()
            work()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            took[name].append(time.perf_counter() - began)
    return {name: statistics.median(seconds[1:]) for name, seconds in took.items()}


def compare(
    model: LanguageModel[Any], draft: LanguageModel[Any], x_T: list[int], name: str, way: Any, args: Any
) -> None:
    """Plain decoding and every length of draft in turn, so that the machine's moods fall on all of them."""
    rates: dict[int, list[float]] = {tokens: [] for tokens in (0, *args.tokens)}
    by_processor: dict[int, list[float]] = {tokens: [] for tokens in rates}
    rounds: dict[int, list[Any]] = {tokens: [] for tokens in rates}
    texts: dict[int, list[list[int]]] = {tokens: [] for tokens in rates}
    for seed in range(args.repeats):
        for tokens in rates:
            rate, processor, made = written(model, draft, x_T, way, tokens, seed, args.length)
            rates[tokens].append(rate)
            by_processor[tokens].append(processor)
            texts[tokens].append([x for one in made for x in (one.tokens if tokens else one)])
            rounds[tokens] += made if tokens else []
    base, base_processor = statistics.median(rates[0]), statistics.median(by_processor[0])
    print(f"\n{name}: median (spread) of {args.repeats}\n  {'plain':<12}{spread(rates[0])}")
    for tokens in args.tokens:
        tally, ratio = Tally.of(rounds[tokens]), statistics.median(rates[tokens]) / base
        quiet = statistics.median(by_processor[tokens]) / base_processor
        good = f"{tally.accepted_share:.0%} accepted, {tally.tokens_per_call:.2f} tokens a call"
        same = ""
        if isinstance(way, Greedy):
            same = ", the same text" if texts[tokens] == texts[0] else ", ANOTHER TEXT"
        print(
            f"  {f'draft of {tokens}':<12}{spread(rates[tokens])}   {ratio:4.2f} of plain ({quiet:.2f}), {good}{same}",
            flush=True,
        )


def written(
    model: LanguageModel[Any], draft: LanguageModel[Any], x_T: list[int], way: Any, tokens: int, seed: int, length: int
) -> tuple[float, float, list[Any]]:
    """Tokens a second after the first call, by the clock and by the processor's, and the rounds or plain tokens."""
    if tokens:
        method = Speculative(draft, tokens, way)
        (luck,) = lucks(method, seeded_generator(seed), 1)
        steps: Any = speculate(model, x_T, length, method, luck)
    else:
        steps = ([int(x_B)] for x_B in stream(model, [x_T], length, way, seeded_generator(seed)))
    made = [next(steps)]
    began, processor = time.perf_counter(), time.process_time()
    made += steps
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    count = sum(len(one.tokens if tokens else one) for one in made[1:])
    return count / seconds, count / processor, made


def spread(values: list[float]) -> str:
    return f"{f'{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f}) tokens/s':>40}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", help="the model; without it, a GRU is trained")
    parser.add_argument("--draft", help="the draft; without it, an n-gram is counted")
    parser.add_argument("--order", type=int, default=4, help="of that n-gram")
    parser.add_argument("--text", default="shakespeare", help="its last tenth opens with the prompt")
    parser.add_argument("--budget", default="60s", help="of the GRU's training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draft-device", default="", help="without it, the model's")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--length", type=int, default=100, help="tokens that are written")
    parser.add_argument("--prompt", type=int, default=400, help="bytes of the prompt")
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
