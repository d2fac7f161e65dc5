"""Fast decoding says what the model's own step says, token by token, however long it goes on."""

from __future__ import annotations

import os
import random
from importlib.util import find_spec
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.core import MAX_REWIND_TOKENS, LanguageModel, Session, tensors_of
from octavo.decode import Greedy, stream
from octavo.errors import UserError
from octavo.models.decoding import CachedSession, session_for
from octavo.models.decoding import fused_products as products
from octavo.models.decoding import kv_cache as cache
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.ops.tracing import trace

VOCAB = 11
SMALL: dict[str, Any] = {"width": 16, "layers": 2, "heads": 4, "context": 10, "attention_window": 4}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
PARTS = list(product(("rms", "layer"), ("gelu", "gelu-exact", "relu2", "gated"), (True, False), (True, False)))
GROUPED = (0, 2, 1)


def random_model(dtype: torch.dtype = torch.float64, **settings: Any) -> GPT:
    """Every weight is drawn, norms and biases too: at their usual start many mistakes would not show."""
    model = GPT(GPTConfig(**{**SMALL, **settings}), VOCAB)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        parameter.data.copy_(drawn * parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 0.7 + 0.3 * drawn)
    return model.to(dtype).eval().requires_grad_(False)


def tokens(batch: int, count: int, seed: int = 2) -> Tensor:
    return torch.randint(VOCAB, (batch, count), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def prompted(model: GPT, batch: int, length: int = 3) -> Any:
    x_BT = tokens(batch, length, seed=3).to(model.embedding_VD.device)
    return model.absorb(model.start(batch), x_BT)[1]


@torch.no_grad()
def worst_gap(one: Session[Any], other: Session[Any], x_BT: Tensor) -> float:
    """The largest difference of logits along the way."""
    gaps = [(one.step(x_B).double() - other.step(x_B).double()).abs().max() for x_B in x_BT.unbind(1)]
    return float(torch.stack(gaps).max())


def check_cached(dtype: torch.dtype, batch: int, **settings: Any) -> None:
    model = random_model(dtype, **settings)
    state = prompted(model, batch)
    assert worst_gap(Session(model, state), CachedSession(model, state), tokens(batch, 35)) < TOLERANCE[dtype]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "alibi", "none"])
@pytest.mark.parametrize("attention", ["full", "local", "strided", "block", "global"])
def test_kept_keys_say_what_the_plain_step_says_for_every_mix_and_position(
    attention: str, positions: str, batch: int
) -> None:
    check_cached(torch.float64, batch, attention=attention, positions=positions)


@pytest.mark.parametrize("which", range(len(PARTS)))
def test_kept_keys_say_what_the_plain_step_says_for_every_part(which: int) -> None:
    settings: dict[str, Any] = dict(zip(("norm", "feed_forward", "bias", "qk_norm"), PARTS[which], strict=True))
    check_cached(torch.float64, 3, **settings, kv_heads=GROUPED[which % 3])
    check_cached(torch.float32, 1, **settings, kv_heads=GROUPED[(which + 1) % 3])


@pytest.mark.parametrize(
    "settings",
    [
        {"stride": 3},
        {"stride": 3, "attention": "local"},
        {"tied": False},
        {"attention": "strided", "positions": "alibi", "stride": 2},
        {"experts": 4, "norm": "layer", "stride": 4},
    ],
)
def test_kept_keys_survive_contexts_that_are_read_again(settings: dict[str, Any]) -> None:
    check_cached(torch.float64, 3, **settings)


@pytest.mark.parametrize("attention", ["full", "local", "strided"])
def test_keys_are_moved_to_the_front_many_times_and_nothing_changes(attention: str) -> None:
    model = random_model(attention=attention)
    state = prompted(model, 1)
    fast = CachedSession(model, state)
    assert worst_gap(Session(model, state), fast, tokens(1, 4 * fast.cache.slots)) < 1e-10
    assert fast.cache.base > 2 * fast.cache.slots


def test_kept_keys_come_close_in_half_precision() -> None:
    model = random_model(torch.bfloat16)
    state = prompted(model, 3)
    logits = float(Session(model, state).step(tokens(3, 1)[:, 0]).abs().max())
    assert worst_gap(Session(model, state), CachedSession(model, state), tokens(3, 30)) < 0.05 * logits


def test_a_fork_and_its_origin_go_their_own_ways() -> None:
    model = random_model()
    one = CachedSession(model, prompted(model, 1))
    one.step(tokens(1, 1)[0])
    check_fork(one, gap=1e-10)


def check_fork(one: Any, gap: float) -> None:
    device = one.model.embedding_VD.device
    plain, other_plain = Session(one.model, one.state), Session(one.model, one.state)
    other = one.fork()
    for ours, theirs in zip(tokens(1, 6, seed=4)[0].to(device), tokens(1, 6, seed=5)[0].to(device), strict=True):
        logits_1V, other_1V = one.step(ours[None]).clone(), other.step(theirs[None])
        torch.testing.assert_close(logits_1V, plain.step(ours[None]), rtol=0, atol=gap)
        torch.testing.assert_close(other_1V, other_plain.step(theirs[None]), rtol=0, atol=gap)


@pytest.mark.parametrize("settings", [{}, {"positions": "learned"}, {"attention": "local"}])
@pytest.mark.parametrize("steps", [2, 30, 200])
def test_the_state_can_be_taken_out_at_any_time(settings: dict[str, Any], steps: int) -> None:
    model = random_model(**settings)
    state = prompted(model, 3)
    plain, fast = Session(model, state), CachedSession(model, state)
    worst_gap(plain, fast, tokens(3, steps))
    with torch.no_grad():
        for ours, theirs in zip(tensors_of(fast.state), tensors_of(plain.state), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
        fast.state = state
        assert worst_gap(Session(model, state), fast, tokens(3, 5)) < 1e-10


@pytest.mark.parametrize("settings", [{}, {"positions": "learned"}, {"attention": "local"}])
def test_tokens_that_are_taken_back_leave_no_trace(settings: dict[str, Any]) -> None:
    model = random_model(**settings)
    check_rewind(CachedSession(model, prompted(model, 1)), range(1, 70), gap=1e-10)


def check_rewind(fast: Any, steps: range, gap: float) -> None:
    """After every step: three more, which are taken back."""
    model, device = fast.model, fast.model.embedding_VD.device
    plain = Session(model, fast.state)
    for n in steps:
        x_1T = tokens(1, 4, seed=n).to(device)
        for x_1 in x_1T.unbind(1):
            fast.step(x_1)
        fast.rewind(3)  # also where the context was read again in between
        with torch.no_grad():
            plain.step(x_1T[:, 0])
        x_1 = tokens(1, 1, seed=1000 + n)[0].to(device)
        with torch.no_grad():
            torch.testing.assert_close(fast.step(x_1), plain.step(x_1), rtol=0, atol=gap)


def test_more_than_was_absorbed_cannot_be_taken_back() -> None:
    model = random_model()
    fast = CachedSession(model, prompted(model, 1))
    fast.step(tokens(1, 1)[0])
    with pytest.raises(UserError, match="only the last 1 tokens can be taken back: count=2"):
        fast.rewind(2)


@torch.no_grad()
def check_absorb_and_rewind(one: Session[Any], other: Session[Any], batch: int, rounds: int, gap: float) -> None:
    """Both absorb one to seven tokens at a time and take some of them back, or step: the logits must agree."""
    draw, held = random.Random(5), 0
    for n in range(rounds):
        x_BT = tokens(batch, draw.randint(1, 7), seed=n).to(one.model.embedding_VD.device)
        torch.testing.assert_close(one.absorb(x_BT), other.absorb(x_BT), rtol=0, atol=gap, check_dtype=False)
        held = min(MAX_REWIND_TOKENS, held + x_BT.shape[1])
        count = draw.randint(0, held)
        one.rewind(count)
        other.rewind(count)
        held -= count
        if draw.random() < 0.3:
            x_B = tokens(batch, 1, seed=-n)[:, 0].to(x_BT.device)
            torch.testing.assert_close(one.step(x_B), other.step(x_B), rtol=0, atol=gap, check_dtype=False)
            held = min(MAX_REWIND_TOKENS, held + 1)


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "alibi", "none"])
@pytest.mark.parametrize("attention", ["full", "local", "strided", "block", "global"])
def test_several_tokens_at_once_and_taken_back_say_what_the_plain_session_says(attention: str, positions: str) -> None:
    model = random_model(attention=attention, positions=positions, kv_heads=2)
    state = prompted(model, 2)
    fast = CachedSession(model, state)
    check_absorb_and_rewind(Session(model, state), fast, 2, 25, gap=1e-10)
    assert fast.cache.base + fast.cache.end > 10 or fast.cache.left  # more than a context


@pytest.mark.parametrize(
    "settings",
    [
        {"stride": 3},
        {"stride": 9, "attention": "local", "positions": "learned", "context": 12},
        {"feed_forward": "gated", "norm": "layer", "bias": True, "kv_heads": 1},
        {"qk_norm": False, "tied": False, "feed_forward": "gelu"},
    ],
)
def test_several_tokens_at_once_agree_for_other_parts_and_around_full_contexts(settings: dict[str, Any]) -> None:
    model = random_model(**settings)
    state = prompted(model, 3)
    check_absorb_and_rewind(Session(model, state), CachedSession(model, state), 3, 60, gap=1e-10)


@pytest.mark.parametrize("attention", ["full", "strided", "block"])
def test_a_long_text_is_absorbed_in_one_call(attention: str) -> None:
    model = random_model(attention=attention, context=20)
    state, x_BT = prompted(model, 2), tokens(2, 400)
    fast = CachedSession(model, state)
    with torch.no_grad():
        torch.testing.assert_close(fast.absorb(x_BT), model.absorb(state, x_BT)[0], rtol=0, atol=1e-10)
        assert fast.absorb(x_BT[:, :0]).shape == (2, 0, VOCAB)
        assert Session(model, state).absorb(x_BT[:, :0]).shape == (2, 0, VOCAB)
    assert worst_gap(Session(model, model.absorb(state, x_BT)[1]), fast, tokens(2, 5)) < 1e-10


@pytest.mark.parametrize("attention", ["full", "linear", "dense"])
def test_the_plain_session_takes_back_as_if_nothing_had_come(attention: str) -> None:
    """Against the model's own answer to the tokens that were left, from the beginning."""
    model, draw = random_model(attention=attention), random.Random(1)
    state = prompted(model, 2)
    session, kept_BT = Session(model, state), tokens(2, 0)
    with torch.no_grad():
        for n in range(40):
            x_BT = tokens(2, draw.randint(1, 6), seed=n)
            logits_BTV = session.absorb(x_BT) if n % 3 else session.step(x_BT[:, 0])[:, None]
            kept_BT = torch.cat([kept_BT, x_BT[:, : logits_BTV.shape[1]]], 1)
            expected_BTV = model.absorb(state, kept_BT)[0][:, -logits_BTV.shape[1] :]
            torch.testing.assert_close(logits_BTV, expected_BTV, rtol=0, atol=1e-10)
            count = draw.randint(0, min(MAX_REWIND_TOKENS, kept_BT.shape[1]))
            session.rewind(count)
            kept_BT = kept_BT[:, : kept_BT.shape[1] - count]
        ours, theirs = (tensors_of(one) for one in (session.fork().state, model.absorb(state, kept_BT)[1]))
        for our, their in zip(ours, theirs, strict=True):
            torch.testing.assert_close(our, their, rtol=0, atol=1e-10)


def test_tokens_that_stay_are_absorbed_with_the_next_ones_until_they_are_many() -> None:
    model = random_model()
    session, x_1T = Session(model, prompted(model, 1)), tokens(1, 30)
    seen: list[int] = []
    absorb = model.absorb
    model.absorb = lambda state, x_BT: (seen.append(x_BT.shape[1]), absorb(state, x_BT))[1]  # type: ignore[method-assign]
    with torch.no_grad():
        for start, count in ((0, 6), (6, 5), (11, 3)):
            session.absorb(x_1T[:, start : start + count])
            session.rewind(1)
    assert seen == [6, 5 + 5, 9, 3]  # nine are too many to go along
    assert session.calls == len(seen)


@pytest.mark.parametrize("session", [Session, CachedSession])
def test_what_was_not_absorbed_here_cannot_be_taken_back(session: type) -> None:
    model = random_model()
    one = session(model, prompted(model, 1))
    with torch.no_grad():
        one.absorb(tokens(1, 3))
    one.rewind(1)
    with pytest.raises(UserError, match="only the last 2 tokens can be taken back: count=3; fork before instead"):
        one.rewind(3)


@pytest.mark.parametrize("feed_forward", ["gated", "relu2"])
def test_packed_matrices_say_the_same(feed_forward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(torch.float32, feed_forward=feed_forward, bias=feed_forward == "relu2", width=64)
    state = prompted(model, 2)
    plain = CachedSession(model, state)
    monkeypatch.setattr(products, "PACKED", 0)
    packed = CachedSession(model, state)
    assert not plain.logits.args[0].is_mkldnn
    assert packed.logits.args[0].is_mkldnn == torch.backends.mkldnn.is_available()
    check_absorb_and_rewind(plain, packed, 2, 30, gap=1e-4)
    assert worst_gap(plain, packed, tokens(2, 20)) < 1e-4


@pytest.mark.parametrize(("attention", "kind"), [("full", CachedSession), ("linear", Session), ("dense", Session)])
def test_a_model_gives_the_session_that_serves_it(attention: str, kind: type) -> None:
    model = random_model(attention=attention)
    assert type(model.session(prompted(model, 1))) is kind
    assert type(session_for(model, prompted(model, 2))) is kind


def test_whoever_looks_inside_gets_the_models_own_steps() -> None:
    model = random_model()
    with trace() as seen, torch.no_grad():
        model.session(prompted(model, 1)).step(tokens(1, 1)[0])
    assert seen["attention"][-1].shape == (1, 4, 1, 4)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [{}, {"attention": "strided", "positions": "alibi"}, {"positions": "learned"}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keys_are_kept_on_a_gpu_too(settings: dict[str, Any], dtype: torch.dtype) -> None:
    model = random_model(dtype, **settings).to("cuda")
    state = prompted(model, 3)
    gap = worst_gap(Session(model, state), CachedSession(model, state), tokens(3, 200).to("cuda"))
    assert gap < (1e-4 if dtype is torch.float32 else 1e-10)


def test_what_is_written_does_not_depend_on_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    written = [torch.stack(list(stream(model, [[1, 2], [3], [4, 5]], 40, Greedy())))]
    monkeypatch.setattr(GPT, "session", LanguageModel.session)
    written.append(torch.stack(list(stream(model, [[1, 2], [3], [4, 5]], 40, Greedy()))))
    assert torch.equal(*written)


# ---------------------------------------------------------------------- the kernels

SERVED: list[dict[str, Any]] = [
    {},
    {"positions": "learned", "norm": "layer", "bias": True, "feed_forward": "gelu", "qk_norm": False},
    {"attention": "local", "kv_heads": 2, "feed_forward": "gated", "tied": False},
    {"positions": "none", "feed_forward": "gelu-exact", "kv_heads": 1, "norm": "layer"},
    {"positions": "sinusoidal", "width": 24, "qk_norm": False, "bias": True},
    {"stride": 3, "attention": "local"},
]


@pytest.fixture
def kernel_device(monkeypatch: pytest.MonkeyPatch) -> str:
    """A GPU, or the CPU with Triton's interpreter: that one is slow, so there the room for keys is made small."""
    if torch.cuda.is_available() and find_spec("triton"):
        return "cuda"
    if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or triton and TRITON_INTERPRET=1: the kernels cannot run here")
    monkeypatch.setattr(cache, "MIN_FREE_SLOTS", 2)
    monkeypatch.setattr(cache, "MAX_REWIND_TOKENS", 1)
    return "cpu"


def graph_session(device: str, overlap: bool | None = None, **settings: Any) -> Any:
    from octavo.models.decoding.cuda_graph_session import PROGRAMS, GraphSession

    small = {} if device == "cuda" else {"layers": 1, "context": 4, "attention_window": 3}
    model = random_model(torch.float32, **{**small, **settings}).to(device)
    return GraphSession(model, prompted(model, 1), overlap, PROGRAMS if device == "cuda" else 1)


@pytest.mark.parametrize("settings", SERVED)
def test_the_kernels_say_what_the_plain_step_says(kernel_device: str, settings: dict[str, Any]) -> None:
    fast = graph_session(kernel_device, overlap=False, **settings)
    x_1T = tokens(1, 300 if kernel_device == "cuda" else 2 * fast.cache.slots - 3).to(kernel_device)
    assert worst_gap(Session(fast.model, fast.state), fast, x_1T) < 1e-4


@pytest.mark.parametrize("heads", [2, 3])  # of 6 numbers, which fill no power of two, and of 4
@pytest.mark.parametrize("length", [1, 6, 15])
def test_keys_in_many_small_parts_add_up(
    kernel_device: str, length: int, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.models.decoding import cuda_graph_session as graph

    monkeypatch.setattr(graph, "KEYS", 2)
    model = random_model(torch.float32, layers=1, context=16, width=12, heads=heads).to(kernel_device)
    state = prompted(model, 1, length)
    fast = graph.GraphSession(model, state, programs=1)
    assert fast.parts == 4
    assert worst_gap(Session(model, state), fast, tokens(1, 3).to(kernel_device)) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("settings", SERVED)
def test_kernels_that_overlap_say_the_same(kernel_device: str, settings: dict[str, Any]) -> None:
    fast = graph_session("cuda", overlap=True, layers=6, **settings)
    assert worst_gap(Session(fast.model, fast.state), fast, tokens(1, 300).to("cuda")) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("context", [700, 5000])
def test_keys_that_are_split_into_parts_add_up(kernel_device: str, context: int, overlap: bool) -> None:
    from octavo.models.decoding.cuda_graph_session import GraphSession

    model = random_model(torch.float32, width=128, context=context).to("cuda")
    for length in (1, 130, context - 5):
        state = prompted(model, 1, length)
        fast = GraphSession(model, state, overlap)
        assert fast.parts > 1
        assert worst_gap(Session(model, state), fast, tokens(1, 10).to("cuda")) < 1e-4


@pytest.mark.gpu
def test_the_kernels_come_close_in_half_precision(kernel_device: str) -> None:
    model = random_model(torch.float32, width=128, layers=4).to("cuda")
    half = random_model(torch.bfloat16, width=128, layers=4).to("cuda")
    fast, plain = half.session(prompted(half, 1)), Session(model, prompted(model, 1))
    with torch.no_grad():
        largest = float(plain.fork().step(tokens(1, 1)[0].cuda()).abs().max())
    assert worst_gap(plain, fast, tokens(1, 50).to("cuda")) < 0.1 * largest


def test_the_kernels_choose_the_most_probable_token_by_themselves(kernel_device: str) -> None:
    fast = graph_session(kernel_device)
    plain, count = Session(fast.model, fast.state), 100 if kernel_device == "cuda" else 5
    x_1 = tokens(1, 1)[0].to(kernel_device)
    chosen_N = fast.greedy(x_1, count)
    with torch.no_grad():
        for token in chosen_N:
            logits_1V = plain.step(x_1)
            logits_1V[:, fast.model.begin] = -torch.inf
            x_1 = logits_1V.argmax(-1)
            assert int(x_1) == int(token)
        torch.testing.assert_close(fast.step(x_1), plain.step(x_1), rtol=0, atol=1e-4)


def test_a_fork_of_the_kernels_session_goes_its_own_way(kernel_device: str) -> None:
    check_fork(graph_session(kernel_device), gap=1e-4)


def test_tokens_that_the_kernels_take_back_leave_no_trace(kernel_device: str) -> None:
    last = 120 if kernel_device == "cuda" else 3
    check_rewind(graph_session(kernel_device, positions="none"), range(1, last), gap=1e-4)


@pytest.mark.gpu
def test_a_model_on_a_gpu_gives_the_kernels_session_for_one_sequence(kernel_device: str) -> None:
    from octavo.models.decoding.cuda_graph_session import GraphSession

    model = random_model(torch.float32).to("cuda")
    assert type(session_for(model, prompted(model, 1), recorded=True)) is GraphSession
    assert type(session_for(model, prompted(model, 1), tokens=10, recorded=True)) is CachedSession
    assert type(session_for(model, prompted(model, 2), recorded=True)) is CachedSession
