"""Decoding one sequence token by token: octavo against transformers, in one run, with random weights.

On a CPU, a small GPT of 4 layers, 4 heads, width 128 and context 64 (float32), against GPT2LMHeadModel.generate of the
same shape with its cache. On a GPU, the shape of GPT-2 124M (bfloat16), against generate with a static cache, for which
it compiles its forward; and beside it the floor: the bytes of the weights over the bandwidth of a copy on that GPU. The
two take turns, so that a busy spell of the machine meets both. Figures are tokens a second, median and spread.

python benchmarks/bench_decoding.py --device cpu
python benchmarks/bench_decoding.py --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from octavo.core import seeded_generator
from octavo.decode import Greedy, Sample, stream
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig

GPT2: dict[str, Any] = {
    "positions": "learned", "norm": "layer", "bias": True, "feed_forward": "gelu", "qk_norm": False, "init": "gpt2",
}  # fmt: skip
SMALL = GPTConfig(width=128, layers=4, heads=4, context=64, **GPT2)
LARGE = GPTConfig(width=768, layers=12, heads=12, context=1024, **GPT2)
REPLAYS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--no-peer", action="store_true", help="octavo alone")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("this part of the benchmark needs a CUDA GPU, and there is none here")
    torch.set_num_threads(args.threads)
    (on_cpu if args.device == "cpu" else on_gpu)(args)


def on_cpu(args: argparse.Namespace) -> None:
    """Whole calls: from a prompt of one token to a full context of 64."""
    vocab, new = 65, 62
    print(f"CPU, {args.threads} threads, torch {torch.__version__}: 4 layers, width 128, context 64, float32, batch 1")
    model = made(SMALL, vocab)
    longer = made(GPTConfig(width=128, layers=4, heads=4, context=64), vocab)
    prompt = torch.tensor([1])
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "octavo, greedy": (new, lambda: by_octavo(model, prompt, new, Greedy())),
        "octavo, sampling": (new, lambda: by_octavo(model, prompt, new, Sample())),
        "octavo, rotary, sampling 1,000": (1000, lambda: by_octavo(longer, prompt, 1000, Sample())),
        "octavo, rotary, session alone": (1000, lambda: steps(longer, 1000)),
    }
    if not args.no_peer:
        peer = gpt2(SMALL, vocab)
        start = prompt[None]
        ways["transformers, greedy"] = new, lambda: written(peer, start, new, do_sample=False)
        ways["transformers, sampling"] = new, lambda: written(peer, start, new, do_sample=True, top_k=0)
    speeds = take_turns(ways, args.repeats)
    for kind in () if args.no_peer else ("greedy", "sampling"):
        ours, theirs = (statistics.median(speeds[f"{who}, {kind}"]) for who in ("octavo", "transformers"))
        print(f"{kind}: {ours / theirs:.1f} times transformers")


def on_gpu(args: argparse.Namespace) -> None:
    """900 tokens behind a prompt of 32."""
    from octavo.models.decoding.cuda_graph_session import GraphSession

    vocab, new = 50304, 900
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: GPT-2 124M, bfloat16, batch 1")
    model = made(LARGE, vocab).to(torch.bfloat16).cuda()
    prompt = torch.randint(vocab - 1, (32,), generator=seeded_generator(2)).cuda()
    with torch.no_grad():
        state = model.absorb(model.start(1), model.prepend_begin(prompt[None]))[1]
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "octavo, greedy": (new, lambda: by_octavo(model, prompt, new, Greedy())),
    }
    for overlap in (False, True):
        ready = GraphSession(model, state, overlap)
        name = f"kernels, {'' if overlap else 'not '}overlapping"
        ways[f"{name}, step"] = new, lambda ready=ready: stepped(ready, state, new)
        ways[f"{name}, greedy inside"] = new, lambda ready=ready: chosen(ready, state, new)
    if not args.no_peer:
        peer = gpt2(LARGE, vocab).to(torch.bfloat16).cuda()
        peer.generation_config.cache_implementation = "static"
        ways["transformers, greedy"] = new, lambda: written(peer, prompt[None], new, do_sample=False)
    speeds = take_turns(ways, args.repeats)
    weights = 2 * sum(p.numel() for name, p in model.named_parameters() if name != "positions_CD")
    copied = bandwidth()
    floor = copied / weights
    print(f"floor {floor:,.0f} tokens/s: {weights / 1e6:.0f} MB of weights at {copied / 1e12:.2f} TB/s")
    for name, values in speeds.items():
        print(f"{name}: {statistics.median(values) / floor:.2f} of the floor")
    where_time_goes(GraphSession(model, state, overlap=False))


def made(config: GPTConfig, vocab: int) -> GPT:
    model = GPT(config, vocab)
    model.initialise(seeded_generator(0))
    return model.eval().requires_grad_(False)


def gpt2(config: GPTConfig, vocab: int) -> Any:
    """The same shape in transformers, dropout off."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        sys.exit("the peer is transformers: pip install transformers, or leave it out with --no-peer")
    shape = GPT2Config(
        vocab_size=vocab, n_positions=config.context, n_embd=config.width, n_layer=config.layers, n_head=config.heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=vocab - 1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(shape).eval()


def by_octavo(model: GPT, prompt_T: torch.Tensor, new: int, method: Greedy | Sample) -> list[int]:
    tokens: list[int] = torch.cat(list(stream(model, [prompt_T], new, method, seeded_generator(1)))).tolist()
    assert len(tokens) == new
    return tokens


def written(peer: Any, prompt_1T: torch.Tensor, new: int, **how: Any) -> torch.Tensor:
    y_1T: torch.Tensor = peer.generate(
        prompt_1T, attention_mask=torch.ones_like(prompt_1T), max_new_tokens=new, min_new_tokens=new, **how
    )
    assert y_1T.shape[1] == prompt_1T.shape[1] + new
    return y_1T.cpu()


@torch.no_grad()
def steps(model: GPT, count: int) -> None:
    session, x_1 = model.session(model.start(1)), torch.tensor([1])
    for _ in range(count):
        session.step(x_1)


def stepped(session: Any, state: Any, count: int) -> None:
    session.state = state
    x_1 = torch.tensor([1], device="cuda")
    for _ in range(count):
        session.step(x_1)
    torch.cuda.synchronize()


def chosen(session: Any, state: Any, count: int) -> list[int]:
    session.state = state
    tokens: list[int] = session.greedy(torch.tensor([1], device="cuda"), count).tolist()
    return tokens


def take_turns(ways: dict[str, tuple[int, Callable[[], object]]], repeats: int) -> dict[str, list[float]]:
    """Tokens a second of each, one after the other, `repeats` times; a first round, unmeasured, compiles."""
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, (count, way) in ways.items():
            began = time.perf_counter()
            way()
            if turn:
                speeds[name].append(count / (time.perf_counter() - began))
    for name, values in speeds.items():
        print(f"{name:36} {statistics.median(values):10,.0f} tokens/s  ({min(values):,.0f} to {max(values):,.0f})")
    return speeds


def bandwidth() -> float:
    """Bytes a second, read and written, of a copy of 2 GB."""
    one, other = (torch.ones(1 << 31, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 2 * len(one) / statistics.median(seconds(lambda: other.copy_(one)) for _ in range(10))


def seconds(work: Callable[[], object]) -> float:
    """What the GPU needs for it."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    work()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1000


@torch.no_grad()
def where_time_goes(session: Any) -> None:
    """Each kind of kernel by itself: all its launches of one token, captured and replayed."""
    session.greedy(torch.tensor([1], device="cuda"), 1)  # compiled
    row = session.rows["greedy"]
    print(
        f"microseconds a token by kernel ({len(row)} launches), each kind alone: weights below 50 MB stay in the cache"
    )
    for name in dict.fromkeys(launch.name for launch in row):
        launches = [launch for launch in row if launch.name == name]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
        took = statistics.median(
            seconds(lambda graph=graph: [graph.replay() for _ in range(REPLAYS)]) for _ in range(3)
        )
        session.at_1.fill_(session.cache.end)
        session.count_1.zero_()
        print(f"  {name:10} {len(launches):3} launches {took / REPLAYS * 1e6:8.1f}")


def replays(graph: Any) -> None:
    for _ in range(REPLAYS):
        graph.replay()


if __name__ == "__main__":
    main()
