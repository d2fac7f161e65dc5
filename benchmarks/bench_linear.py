"""The chunked forms of linear attention beside SDPA and flash-linear-attention, and whole models beside GPT.

    python benchmarks/bench_linear.py --forms       (12 heads of 64, 4,096 and 16,384 tokens, forward and backward)
    python benchmarks/bench_linear.py --training    (tokens a second of models of 100 million parameters)
    python benchmarks/bench_linear.py --decoding    (the same models, 1k to 64k tokens into a sequence)
    python benchmarks/bench_linear.py --quick       (all of it in tiny sizes, on a CPU too: only to see that it runs)

Times are medians (least to greatest) of at least five rounds, in bfloat16. The floor is the longer of two times: each
input, output and gradient moved once at the rate of a copy, and the operations of the chunked form at the rate of a
large product; both rates are measured in the same run. flash-linear-attention is compared with where it can be imported
(pip install flash-linear-attention). Training is the loop's own step, with its defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from measure import median_spread, parser, print_header, print_machine, print_row, rates, time_on_gpu, time_rounds
from octavo.core import LanguageModel, seeded_generator
from octavo.costs.roofline import copy_rate, matmul_rate
from octavo.models import find_spec, preset
from octavo.ops import linear
from octavo.ops.linear.decaying import HEAD_CHUNK
from octavo.training.loop_config import LoopConfig
from octavo.training.step_timing import Piece, time_steps

LOW = torch.bfloat16
VOCABULARY = 32_768
STEP_SECONDS = 60.0  # a step is never cut: a model of 100 million parameters is timed whole
READ_TOKENS, DECODED_TOKENS = 512, 32  # by one call, and by one timed round


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What is measured."""

    lengths: Sequence[int] = (4096, 16_384)
    batch: int = 2
    heads: int = 12
    head: int = 64
    rounds: int = 20
    width: int = 768
    layers: int = 12
    vocabulary: int = VOCABULARY
    training: tuple[int, int] = (16, 2048)  # rows, tokens of a row
    contexts: Sequence[int] = (1 << 10, 1 << 12, 1 << 14, 1 << 16)


QUICK = Sizes((128,), 1, 2, 16, 5, 64, 1, 512, (2, 64), (32, 64))


class Form(NamedTuple):
    """A form of linear attention: ours by path, and the peer's function with what it is given besides q, k and v."""

    attend: Callable[..., Tensor]
    peer: tuple[str, str]
    gates: Callable[[int, int, int, int], list[Tensor]]
    """Log-decays and writing strengths, for B, H, T and K."""
    peer_gates: tuple[str, ...] = ()
    extra: dict[str, Any] = {}  # noqa: RUF012
    softmax: bool = False
    delta: bool = False


def main() -> None:
    arguments = parser(__doc__)
    for flag in ("--forms", "--training", "--decoding", "--quick"):
        arguments.add_argument(flag, action="store_true")
    args: argparse.Namespace = arguments.parse_args()
    parts = {"forms": measure_forms, "training": measure_training, "decoding": measure_decoding}
    chosen = [name for name in parts if getattr(args, name)] or (list(parts) if args.quick else [])
    if not chosen:
        arguments.error("say what to measure: --forms, --training, --decoding or --quick")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.quick:
        arguments.error("this needs a CUDA GPU, and there is none here; try --quick")
    print_machine()
    for name in chosen:
        parts[name](QUICK if args.quick else Sizes(), device)


def measured(work: Callable[[], object], rounds: int, device: torch.device) -> list[float]:
    """Seconds of each call: between two events on a GPU."""
    if device.type == "cuda":
        return time_on_gpu(work, rounds)
    return time_rounds({"": work}, rounds)[""]


# ---------------------------------------------------------------------- the forms


def decays(B: int, H: int, T: int, J: int) -> Tensor:
    return F.logsigmoid(torch.randn(B, H, T, J, generator=seeded_generator(4)) + 3)


def strengths(B: int, H: int, T: int) -> Tensor:
    return torch.randn(B, H, T, generator=seeded_generator(5)).sigmoid()


def by_decay(q: Tensor, k: Tensor, v: Tensor, g: Tensor, *beta: Tensor, path: Any = "auto") -> Tensor:
    return linear.attend_decaying(q, k, v, g, *beta, path=path)[0]


def by_plain(q: Tensor, k: Tensor, v: Tensor, path: Any = "auto") -> Tensor:
    return linear.attend_linear(q, k, v, path=path)[0]


def by_sums(q: Tensor, k: Tensor, v: Tensor, g: Tensor, path: Any = "auto") -> Tensor:
    B, H, _, K = q.shape
    S_BHKW = torch.zeros(B, H, K, v.shape[-1] + 1, device=q.device)
    num, den, _ = linear.attend_with_sums(q, k, v, g, S_BHKW, path=path)
    return num / (den + 1)


def by_softmax(q: Tensor, k: Tensor, v: Tensor, path: Any = "auto") -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


FORMS: dict[str, Form] = {
    "softmax attention (SDPA)": Form(by_softmax, ("", ""), lambda *_: [], softmax=True),
    "plain": Form(by_plain, ("linear_attn", "chunk_linear_attn"), lambda *_: [], extra={"normalize": True}),
    "decay of a head": Form(
        by_decay, ("simple_gla", "chunk_simple_gla"), lambda B, H, T, K: [decays(B, H, T, 1)], ("g",)
    ),
    "decay of a head, with sums": Form(by_sums, ("", ""), lambda B, H, T, K: [decays(B, H, T, 1)]),
    "decay of a channel": Form(by_decay, ("gla", "chunk_gla"), lambda B, H, T, K: [decays(B, H, T, K) / 16], ("gk",)),
    "delta rule": Form(
        by_decay, ("delta_rule", "chunk_delta_rule"),
        lambda B, H, T, K: [torch.zeros(B, H, T, 1), strengths(B, H, T)], ("", "beta"), delta=True,
    ),
    "gated delta rule": Form(
        by_decay, ("gated_delta_rule", "chunk_gated_delta_rule"),
        lambda B, H, T, K: [decays(B, H, T, 1), strengths(B, H, T)], ("g", "beta"), delta=True,
    ),
}  # fmt: skip


def measure_forms(sizes: Sizes, device: torch.device) -> None:
    """Milliseconds of each form: ours as "auto" takes it, ours by PyTorch's products, and the peer's."""
    bandwidth, flops = copy_rate(device), matmul_rate(device, LOW)
    print(f"\nmeasured here: {bandwidth / 1e9:,.1f} GB/s, {flops / 1e12:.2f} TFLOP/s in bfloat16")
    for T in sizes.lengths:
        print(f"\nforward and backward, batch {sizes.batch}, {sizes.heads} heads of {sizes.head}, {T:,} tokens; ms\n")
        print_header(
            "form", "octavo", "PyTorch's products", "flash-linear-attention", "floor", "octavo, times the floor"
        )
        for name, form in FORMS.items():
            inputs = make_inputs(form, sizes, T, device)
            ours = time_both(form.attend, inputs, sizes.rounds, device)
            chunked = (
                None if form.softmax else time_both(partial(form.attend, path="chunked"), inputs, sizes.rounds, device)
            )
            peer = time_peer(form, inputs, sizes.rounds, device)
            floor = floor_seconds(form, inputs, bandwidth, flops)
            print_row(name, ms(ours), ms(chunked) if chunked else "", peer, f"{1e3 * floor:.3f}",
                      f"{median(ours) / floor:.1f}")  # fmt: skip


def ms(seconds: Sequence[float]) -> str:
    return median_spread([1e3 * each for each in seconds], 3)


def make_inputs(form: Form, sizes: Sizes, T: int, device: torch.device) -> list[Tensor]:
    """q, k and v with the heads of a token side by side, and the gates in single precision."""
    B, H, K = sizes.batch, sizes.heads, sizes.head
    q, k, v = (torch.randn(B, T, H, K, generator=seeded_generator(i)).transpose(1, 2) for i in range(3))
    if form.delta:
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    elif form.attend is by_plain or form.attend is by_sums:
        q, k = linear.features("elu", q, k)
    return [*(x.to(device, LOW) for x in (q, k, v)), *(x.to(device) for x in form.gates(B, H, T, K))]


def time_both(
    attend: Callable[..., Tensor], inputs: Sequence[Tensor], rounds: int, device: torch.device
) -> list[float]:
    """Seconds of a forward and a backward pass."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    dy = torch.randn_like(attend(*leaves))

    def work() -> None:
        torch.autograd.grad(attend(*leaves), leaves, dy)

    return measured(work, rounds, device)


def time_peer(form: Form, inputs: Sequence[Tensor], rounds: int, device: torch.device) -> str:
    """flash-linear-attention's milliseconds, in its own layout (B, T, H, K); or why there are none."""
    module, name = form.peer
    if not module:
        return ""
    try:
        function = getattr(import_module(f"fla.ops.{module}"), name)
    except (ImportError, AttributeError):
        return "not here"
    gates = {key: gate for key, gate in zip(form.peer_gates, inputs[3:], strict=True) if key}
    if "g" in gates:
        gates["g"] = gates["g"][..., 0]
    keys, given = list(gates), [*inputs[:3], *gates.values()]
    if name == "chunk_gla":
        keys = ["g"]

    def attend(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
        return function(q, k, v, **dict(zip(keys, rest, strict=True)), scale=1.0, **form.extra)[0]  # type: ignore[no-any-return]

    try:
        return ms(time_both(attend, [x.transpose(1, 2).contiguous() for x in given], rounds, device))
    except Exception as error:  # of another package: its row says so, and the others are measured
        return f"failed: {type(error).__name__}"


def floor_seconds(form: Form, inputs: Sequence[Tensor], bandwidth: float, flops: float) -> float:
    """Each input read by both passes, y and dy, and the gradients written; products forward, twice as many backward."""
    (B, H, T, K), v, C = inputs[0].shape, inputs[2], HEAD_CHUNK
    V = v.shape[-1]
    sizes = [x.numel() * x.element_size() for x in inputs]
    moved = 3 * sum(sizes) + 2 * v.numel() * v.element_size()
    if form.softmax:
        operations = 7 * B * H * T * T * K  # half of all pairs: two products forward, five backward, 2 K for a pair
    else:
        pairs, products = C * (K + V), 4 * K * V
        operations = 3 * B * H * T * (pairs + products + form.delta * (C * K + C * (K + V)))
    return max(moved / bandwidth, operations / flops)


# ---------------------------------------------------------------------- whole models


def configs(sizes: Sizes) -> dict[str, tuple[str, Any]]:
    """Models of one width, whose parameters are about as many: the name that is shown, the model and its settings."""
    heads, found = sizes.width // sizes.head, {}
    for name in ("gpt", "mamba2", "gated-deltanet"):
        model, config = preset(name)
        changes: dict[str, Any] = {"width": sizes.width, "layers": sizes.layers, "heads": heads}
        if name == "mamba2":  # mixers alone, so twice as many; heads of the inner width, and the state of its paper
            changes.update(layers=2 * sizes.layers, heads=2 * heads, state_size=min(128, 2 * sizes.head))
        if name == "gpt":
            changes.update(context=max(sizes.training[1], max(sizes.contexts) + 8 * DECODED_TOKENS))
        found[name] = model, dataclasses.replace(config, **changes)
    return found


def measure_training(sizes: Sizes, device: torch.device) -> None:
    """Tokens a second of the training loop's own steps."""
    rows, window = sizes.training
    print(f"\ntraining, {rows} rows of {window:,} tokens a step\n")
    print_header("model", "parameters", "tokens/s", "steps")
    peak = matmul_rate(device, LOW)
    for name, (model, config) in configs(sizes).items():
        spec = find_spec(model)
        if name == "gpt":
            config = dataclasses.replace(config, context=window)
        loop = LoopConfig(batch_size=rows, sequence_length=window)
        timing = time_steps(Piece(spec.name, config, sizes.vocabulary, loop), peak, device, STEP_SECONDS)
        parameters = sum(p.numel() for p in built(model, config, sizes.vocabulary, torch.device("meta")).parameters())
        if timing is None:
            print_row(name, f"{parameters:,}", "does not fit", "")
            continue
        whole = max(timing.timed, key=lambda one: (one.layers, one.rows * one.window))
        tokens = whole.rows * whole.window
        speeds = rates(tokens, (whole.seconds, whole.quickest, whole.slowest))
        print_row(name, f"{parameters:,}", median_spread(speeds, 0), whole.steps)


@torch.no_grad()
def measure_decoding(sizes: Sizes, device: torch.device) -> None:
    """Tokens a second of one sequence, through the model's session."""
    print(f"\ndecoding one sequence with random weights, {DECODED_TOKENS} tokens a round; tokens/s\n")
    contexts = sorted(sizes.contexts)
    print_header("model", *(f"after {n:,} tokens" for n in contexts))
    for name, (model, config) in configs(sizes).items():
        network = built(model, config, sizes.vocabulary, device)
        network.eval().requires_grad_(False)
        state, cells, seen = network.start(1), [], 0
        text_1N = torch.randint(sizes.vocabulary - 1, (1, contexts[-1]), generator=seeded_generator(1)).to(device)
        for context in contexts:
            for start in range(seen, context, READ_TOKENS):
                _, state = network.absorb(state, text_1N[:, start : min(start + READ_TOKENS, context)])
            seconds = time_rounds({name: decoder(network, state, device)}, 5)[name]
            cells.append(median_spread(rates(DECODED_TOKENS, seconds), 0))
            seen = context
        print_row(name, *cells)


def built(model: str, config: Any, vocabulary: int, device: torch.device) -> LanguageModel[Any]:
    """The model with random weights, on the device; without any on "meta"."""
    made: Any = find_spec(model).model
    if device.type == "meta":
        with device:
            return made(config, vocabulary)  # type: ignore[no-any-return]
    network = made(config, vocabulary)
    network.initialise(seeded_generator(0))
    return network.to(device)  # type: ignore[no-any-return]


def decoder(network: LanguageModel[Any], state: Any, device: torch.device) -> Callable[[], None]:
    """Continues the sequence by some tokens at each call."""
    session, x_1 = network.session(state), torch.tensor([1], device=device)

    @torch.no_grad()
    def work() -> None:
        for _ in range(DECODED_TOKENS):
            session.step(x_1)

    return work


if __name__ == "__main__":
    main()
