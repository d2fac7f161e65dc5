"""Decoding one sequence token by token: octavo against transformers, in one run, with random weights.

On a CPU, a small GPT of 4 layers, 4 heads, width 128 and context 64 (float32), against GPT2LMHeadModel.generate of the
same shape with its cache. On a GPU, the shape of GPT-2 124M (bfloat16), against generate with a static cache, for which
it compiles its forward; and the upper limit: the bandwidth of a copy on that GPU over the bytes of the weights.
Calls of the two alternate. Results are tokens per second, median (spread).

python benchmarks/bench_decoding.py --device cpu
python benchmarks/bench_decoding.py --device cuda
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

import torch

from measure import (
    copy_bandwidth,
    median_spread,
    parser,
    print_header,
    print_machine,
    print_row,
    rates,
    require_gpu,
    time_on_gpu,
    time_rounds,
)
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
    arguments = parser(__doc__)
    arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments.add_argument("--repeats", type=int, default=7)
    arguments.add_argument("--threads", type=int, default=1, help="of the CPU")
    arguments.add_argument("--no-peer", action="store_true", help="octavo alone")
    args = arguments.parse_args()
    if args.device == "cuda":
        require_gpu()
    torch.set_num_threads(args.threads)
    print_machine()
    (on_cpu if args.device == "cpu" else on_gpu)(args)


def on_cpu(args: Namespace) -> None:
    """Whole calls: from a prompt of one token to a full context of 64."""
    vocab, new = 65, 62
    print("CPU, 4 layers, width 128, context 64, float32, batch 1\n")
    model = make_model(SMALL, vocab)
    rotary = make_model(GPTConfig(width=128, layers=4, heads=4, context=64), vocab)
    prompt = torch.tensor([1])
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "octavo, greedy": (new, lambda: by_octavo(model, prompt, new, Greedy())),
        "octavo, sampling": (new, lambda: by_octavo(model, prompt, new, Sample())),
        "octavo, rotary, sampling 1,000": (1000, lambda: by_octavo(rotary, prompt, 1000, Sample())),
        "octavo, rotary, session alone": (1000, lambda: step_session(rotary, 1000)),
    }
    if not args.no_peer:
        peer = gpt2(SMALL, vocab)
        start = prompt[None]
        calls["transformers, greedy"] = new, lambda: by_transformers(peer, start, new, do_sample=False)
        calls["transformers, sampling"] = new, lambda: by_transformers(peer, start, new, do_sample=True, top_k=0)
    speeds = measure_speeds(calls, args.repeats)
    print()
    for kind in () if args.no_peer else ("greedy", "sampling"):
        ours, theirs = (median(speeds[f"{name}, {kind}"]) for name in ("octavo", "transformers"))
        print(f"{kind}: {ours / theirs:.1f} times transformers")


def on_gpu(args: Namespace) -> None:
    """900 tokens behind a prompt of 32."""
    from octavo.models.decoding.cuda_graph_session import GraphSession

    vocab, new = 50304, 900
    print("GPU, GPT-2 124M, bfloat16, batch 1\n")
    model = make_model(LARGE, vocab).to(torch.bfloat16).cuda()
    prompt = torch.randint(vocab - 1, (32,), generator=seeded_generator(2)).cuda()
    with torch.no_grad():
        state = model.absorb(model.start(1), model.prepend_begin(prompt[None]))[1]
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "octavo, greedy": (new, lambda: by_octavo(model, prompt, new, Greedy())),
    }
    for overlap in (False, True):
        session = GraphSession(model, state, overlap)
        name = f"kernels, {'' if overlap else 'not '}overlapping"
        calls[f"{name}, step"] = new, partial(step_graph, session, state, new)
        calls[f"{name}, greedy inside"] = new, partial(decode_graph, session, state, new)
    if not args.no_peer:
        peer = gpt2(LARGE, vocab).to(torch.bfloat16).cuda()
        peer.generation_config.cache_implementation = "static"
        calls["transformers, greedy"] = new, lambda: by_transformers(peer, prompt[None], new, do_sample=False)
    speeds = measure_speeds(calls, args.repeats)
    weights = 2 * sum(p.numel() for name, p in model.named_parameters() if name != "positions_CD")
    bandwidth = copy_bandwidth()
    limit = bandwidth / weights
    print(f"\nupper limit {limit:,.0f} tokens/s: {weights / 1e6:.0f} MB of weights at {bandwidth / 1e12:.2f} TB/s\n")
    print_header("", "of the limit")
    for name, values in speeds.items():
        print_row(name, f"{median(values) / limit:.2f}")
    print_kernels(GraphSession(model, state, overlap=False))


def make_model(config: GPTConfig, vocab: int) -> GPT:
    model = GPT(config, vocab)
    model.initialise(seeded_generator(0))
    return model.eval().requires_grad_(False)


def gpt2(config: GPTConfig, vocab: int) -> Any:
    """The same shape in transformers, dropout off."""
    try:
        transformers: Any = import_module("transformers")
    except ImportError:
        sys.exit("the peer is transformers: pip install transformers, or leave it out with --no-peer")
    shape = transformers.GPT2Config(
        vocab_size=vocab, n_positions=config.context, n_embd=config.width, n_layer=config.layers, n_head=config.heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=vocab - 1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(shape).eval()


def by_octavo(model: GPT, prompt_T: torch.Tensor, new: int, method: Greedy | Sample) -> list[int]:
    tokens: list[int] = torch.cat(list(stream(model, [prompt_T], new, method, seeded_generator(1)))).tolist()
    assert len(tokens) == new
    return tokens


def by_transformers(peer: Any, prompt_1T: torch.Tensor, new: int, **settings: Any) -> torch.Tensor:
    y_1T: torch.Tensor = peer.generate(
        prompt_1T, attention_mask=torch.ones_like(prompt_1T), max_new_tokens=new, min_new_tokens=new, **settings
    )
    assert y_1T.shape[1] == prompt_1T.shape[1] + new
    return y_1T.cpu()


@torch.no_grad()
def step_session(model: GPT, count: int) -> None:
    session, x_1 = model.session(model.start(1)), torch.tensor([1])
    for _ in range(count):
        session.step(x_1)


def step_graph(session: Any, state: Any, count: int) -> None:
    session.state = state
    x_1 = torch.tensor([1], device="cuda")
    for _ in range(count):
        session.step(x_1)
    torch.cuda.synchronize()


def decode_graph(session: Any, state: Any, count: int) -> list[int]:
    session.state = state
    tokens: list[int] = session.greedy(torch.tensor([1], device="cuda"), count).tolist()
    return tokens


def measure_speeds(calls: dict[str, tuple[int, Callable[[], object]]], repeats: int) -> dict[str, list[float]]:
    """Tokens per second of each call."""
    seconds = time_rounds({name: call for name, (_, call) in calls.items()}, repeats)
    speeds = {name: rates(calls[name][0], each) for name, each in seconds.items()}
    print_header("", "tokens/s")
    for name, values in speeds.items():
        print_row(name, median_spread(values, 0))
    return speeds


@torch.no_grad()
def print_kernels(session: Any) -> None:
    """Each kind of kernel by itself: all its launches of one token, captured and replayed."""
    session.greedy(torch.tensor([1], device="cuda"), 1)  # compiles them
    launches = session.rows["greedy"]
    print(f"\neach kind of kernel alone ({len(launches)} launches a token); weights below 50 MB stay in the cache\n")
    print_header("kernel", "launches", "microseconds a token")
    for name in dict.fromkeys(launch.name for launch in launches):
        same_kind = [launch for launch in launches if launch.name == name]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in same_kind:
                launch()
        seconds = time_on_gpu(lambda graph=graph: [graph.replay() for _ in range(REPLAYS)], 3, warm_up=0)  # type: ignore[misc]
        session.at_1.fill_(session.cache.end)
        session.count_1.zero_()
        print_row(name, len(same_kind), f"{median(seconds) / REPLAYS * 1e6:.1f}")


if __name__ == "__main__":
    main()
