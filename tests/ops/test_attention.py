"""Attention: by hand, its paths against each other, multi-head forms against PyTorch's own and against one matrix.

B batch, H heads, G key and value heads, T queries, S keys, K and V sizes of a key and a value, D width,
N tokens.
"""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.ops.attention import (
    CAUSAL,
    FULL,
    Axial,
    Block,
    Global,
    Local,
    Neighbourhood,
    Padding,
    Path,
    Pattern,
    Strided,
    attend,
    attention_weights,
    flex,
    reference,
    scores,
)
from octavo.ops.attention.dispatch import choose, simplest
from octavo.ops.attention.multi_head import Heads, concatenated, folded, from_torch, layer_matrix, maps, offset, summed
from octavo.ops.tracing import trace

B, H, K, V = 2, 4, 6, 5
EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
LENGTHS = [(1, 1), (2, 2), (63, 63), (65, 65), (1, 63), (2, 65), (13, 65), (65, 63)]
BANDS = [CAUSAL & Local(1), Local(2) & CAUSAL, CAUSAL & Local(5), CAUSAL & Local(32), CAUSAL & Local(64)]
PATTERNS = [
    FULL, CAUSAL, *BANDS, Local(3), Global(1) | Local(3), CAUSAL & (Global(2) | Local(3)), Block(4), Strided(3),
    CAUSAL & Strided(3), Axial(7, 9, globals=1), Neighbourhood(8, 8, globals=1), Padding(torch.tensor([40, 1])),
    CAUSAL & Padding(torch.tensor([2, 65])),
]  # fmt: skip
PADDED = Padding(torch.tensor([3, 0]))
BLIND = [Neighbourhood(2, 2), PADDED, CAUSAL & PADDED, Local(3) & Global(1)]


def leaf(*shape: int, seed: int, device: str = "cpu", dtype: torch.dtype = torch.float64) -> Tensor:
    drawn = torch.randn(*shape, dtype=torch.float64, generator=seeded_generator(seed))
    return drawn.to(device, dtype).requires_grad_()


def case(T: int, S: int, G: int = H, bias: bool = False, **kind: Any) -> tuple[list[Tensor], Tensor | None]:
    """Random queries, keys and values, and a bias if one is asked for."""
    inputs = [leaf(B, *shape, seed=i, **kind) for i, shape in enumerate([(H, T, K), (G, S, K), (G, S, V)])]
    return inputs, leaf(H, T, S, seed=3, **kind) if bias else None


def value_and_gradients(
    path: Path, inputs: list[Tensor], pattern: Pattern, bias_HTS: Tensor | None = None, scale: float | None = None
) -> list[Tensor]:
    """What comes out, then the gradients of all that went in."""
    y_BHTV = attend(*inputs, pattern, bias_HTS=bias_HTS, scale=scale, path=path)
    weight = torch.linspace(-1, 1, y_BHTV.numel(), dtype=y_BHTV.dtype, device=y_BHTV.device).view_as(y_BHTV)
    leaves = inputs if bias_HTS is None else [*inputs, bias_HTS]
    return [y_BHTV, *torch.autograd.grad((y_BHTV * weight).sum(), leaves)]


def assert_paths_agree(path: Path, *arguments: Any, **tolerance: float) -> None:
    plain = value_and_gradients("plain", *arguments)
    for ours, expected in zip(value_and_gradients(path, *arguments), plain, strict=True):
        assert torch.isfinite(expected).all()
        torch.testing.assert_close(ours, expected, **(tolerance or EXACT))


def test_three_tokens_by_hand() -> None:
    """Keys that score 0, log 2 and log 3 against the query get 1/6, 2/6 and 3/6 of it."""
    q, k = torch.tensor([[[[2.0]]]]), torch.tensor([0.0, math.log(2) / 2, math.log(3) / 2]).view(1, 1, 3, 1)
    v = torch.tensor([6.0, 60.0, 600.0]).view(1, 1, 3, 1)
    torch.testing.assert_close(attention_weights(q, k), torch.tensor([[[[1 / 6, 2 / 6, 3 / 6]]]]))
    for path in ("plain", "sdpa"):
        torch.testing.assert_close(attend(q, k, v, path=path), torch.tensor([[[[1.0 + 20.0 + 300.0]]]]))
    hidden = attend(q, k, v, Block(2))  # the query stands at the third position, which is in a block of its own
    torch.testing.assert_close(hidden, torch.tensor([[[[600.0]]]]))


@pytest.mark.parametrize(("G", "bias"), [(4, False), (2, True), (1, False)])
@pytest.mark.parametrize("pattern", [*PATTERNS, *BLIND], ids=str)
def test_pytorchs_kernel_equals_the_equations_in_value_and_gradient(pattern: Pattern, G: int, bias: bool) -> None:
    for T, S in LENGTHS:
        inputs, bias_HTS = case(T, S, G, bias)
        assert_paths_agree("sdpa", inputs, pattern, bias_HTS)


@pytest.mark.parametrize(("G", "bias"), [(4, True), (2, False)])
@pytest.mark.parametrize("pattern", BANDS, ids=str)
def test_the_band_equals_the_equations_in_value_and_gradient(pattern: Pattern, G: int, bias: bool) -> None:
    for T, S in LENGTHS:
        inputs, bias_HTS = case(T, S, G, bias)
        assert_paths_agree("band", inputs, pattern, bias_HTS)


@pytest.mark.parametrize(("G", "bias"), [(4, False), (2, True), (1, False)])
@pytest.mark.parametrize("pattern", [*PATTERNS, *BLIND], ids=str)
def test_products_equal_the_equations_in_value_and_gradient(pattern: Pattern, G: int, bias: bool) -> None:
    for T, S in LENGTHS:
        inputs, bias_HTS = case(T, S, G, bias)
        assert_paths_agree("products", inputs, pattern, bias_HTS)


def test_products_are_taken_to_train_in_half_precision_on_a_cpu() -> None:
    q, k = (torch.randn(2, 4, 64, 8, dtype=torch.bfloat16) for _ in range(2))
    assert choose(q, k, CAUSAL) == "sdpa"
    assert choose(q.requires_grad_(), k, CAUSAL) == "products"
    assert choose(q.float(), k.float(), CAUSAL) == "sdpa"


@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 20), st.sampled_from([1, 2, 4]), st.booleans())
@settings(deadline=None, max_examples=60)
def test_the_band_is_right_at_any_length_and_window(T: int, more: int, window: int, G: int, bias: bool) -> None:
    inputs, bias_HTS = case(T, T + more, G, bias)
    assert_paths_agree("band", inputs, CAUSAL & Local(window), bias_HTS, 0.3)


@pytest.mark.parametrize("pattern", [CAUSAL & (Global(2) | Local(3)), Axial(7, 9), BLIND[0], BLIND[2]], ids=str)
@torch.no_grad()
def test_flex_equals_the_equations_in_value(pattern: Pattern) -> None:
    inputs, bias_HTS = case(63, 65, 2, bias=True)
    expected = attend(*inputs, pattern, bias_HTS=bias_HTS, path="plain")
    torch.testing.assert_close(attend(*inputs, pattern, bias_HTS=bias_HTS, path="flex"), expected, **EXACT)


@pytest.mark.parametrize("pattern", BLIND, ids=str)
@pytest.mark.parametrize("path", ["plain", "sdpa"])
def test_a_query_with_nothing_to_look_at_gets_zeros_and_finite_gradients(path: Path, pattern: Pattern) -> None:
    inputs, _ = case(9, 9)
    y_BHTV, *gradients = value_and_gradients(path, inputs, pattern)
    blind = ~pattern.mask(9, 9).any(-1).expand(B, H, 9)
    assert blind.any()
    assert bool((y_BHTV[blind] == 0).all())
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert bool((gradients[0][blind] == 0).all())


@pytest.mark.parametrize("path", ["plain", "sdpa", "band"])
def test_a_bias_of_minus_infinity_forbids(path: Path) -> None:
    inputs, bias_HTS = case(9, 9, bias=True)
    assert bias_HTS is not None
    with torch.no_grad():
        bias_HTS[:, 3] = -torch.inf
        bias_HTS[:, 5, 4] = -torch.inf
    y_BHTV, *gradients = value_and_gradients(path, inputs, CAUSAL & Local(3), bias_HTS)
    assert bool((y_BHTV[:, :, 3] == 0).all())
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    a_BHTS = attention_weights(*inputs[:2], CAUSAL & Local(3), bias_HTS)
    assert a_BHTS[:, :, 5].count_nonzero(-1).eq(2).all()
    torch.testing.assert_close(y_BHTV, a_BHTS @ inputs[2], **EXACT)


@pytest.mark.parametrize("shape", [(1, 7, 7), (H, 1, 7), (B, H, 7, 7), (B, 1, 1, 7)])
@pytest.mark.parametrize("path", ["sdpa", "band"])
def test_a_bias_may_be_the_same_for_heads_or_queries_or_differ_by_row(path: Path, shape: tuple[int, ...]) -> None:
    for G, window in ((4, 2), (2, 5)):
        inputs, _ = case(7, 7, G)
        assert_paths_agree(path, inputs, CAUSAL & Local(window), leaf(*shape, seed=3))


@pytest.mark.parametrize("path", ["auto", "plain", "sdpa", "band", "flex"])
@torch.no_grad()
def test_nothing_to_ask_and_nothing_to_see_are_served(path: Path) -> None:
    for T, S in ((0, 0), (0, 3), (2, 0)):
        inputs, _ = case(T, S, 2)
        y_BHTV = attend(*inputs, CAUSAL & Local(2), path=path)
        assert y_BHTV.shape == (B, H, T, V)
        assert bool((y_BHTV == 0).all())


def test_old_keys_beyond_the_band_are_never_touched() -> None:
    (q, k, v), _ = case(4, 40)
    with torch.no_grad():
        k[:, :, :30], v[:, :, :30] = torch.nan, torch.nan
    assert bool(torch.isfinite(attend(q, k, v, CAUSAL & Local(5), path="band")).all())


def test_the_path_follows_the_inputs() -> None:
    q, k = torch.zeros(1, 2, 64, 8), torch.zeros(1, 2, 64, 8)
    assert choose(q, k, FULL) == choose(q, k, CAUSAL) == choose(q, k, Global(1) | Local(8)) == "sdpa"
    assert choose(q, k, CAUSAL & Local(8)) == choose(q, k, Local(8) & CAUSAL) == "band"
    assert choose(q, k, CAUSAL & Local(40)) == "sdpa"
    with trace():
        assert choose(q, k, CAUSAL) == "plain"


def test_rules_that_forbid_nothing_are_left_out() -> None:
    assert simplest(CAUSAL, 1, 9) == FULL
    assert simplest(CAUSAL, 2, 9) == CAUSAL
    assert simplest(CAUSAL & Local(9), 9, 9) == CAUSAL
    assert simplest(CAUSAL & Local(9), 1, 9) == FULL
    assert simplest(CAUSAL & Local(8), 1, 9) == CAUSAL & Local(8)


@pytest.mark.parametrize(("pattern", "T"), [(FULL, 9), (CAUSAL, 9), (CAUSAL, 1), (CAUSAL & Local(9), 1)])
def test_no_mask_is_made_where_none_is_needed(pattern: Pattern, T: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pattern, "mask", lambda *_: pytest.fail("a mask was made"))
    inputs, _ = case(T, 9, 2)
    attend(*inputs, pattern)


@pytest.mark.parametrize("path", ["auto", "plain", "sdpa"])
def test_inside_trace_the_weights_that_a_kernel_hides_are_shown(path: Path) -> None:
    inputs, bias_HTS = case(5, 7, 2, bias=True)
    with trace() as found:
        y_BHTV = attend(*inputs, CAUSAL, bias_HTS=bias_HTS, scale=0.3, path=path)
    [a_BHTS] = found["attention"]
    torch.testing.assert_close(a_BHTS, attention_weights(*inputs[:2], CAUSAL, bias_HTS, 0.3), **EXACT)
    torch.testing.assert_close(a_BHTS.sum(-1), torch.ones(B, H, 5, dtype=a_BHTS.dtype), **EXACT)
    torch.testing.assert_close(y_BHTV, a_BHTS @ reference.for_each_head(inputs[2], H), **EXACT)


def test_outside_trace_no_weights_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "attention_weights", lambda *_: pytest.fail("weights were computed"))
    attend(*case(5, 7)[0], CAUSAL)


def test_a_compiler_gets_through_in_one_piece() -> None:
    def run(*inputs: Tensor) -> Tensor:
        return attend(*inputs, CAUSAL & Local(3)) + attend(*inputs, Block(3)) + attend(*inputs, CAUSAL, path="plain")

    inputs, _ = case(9, 9, 2)
    compiled = torch.compile(run, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*inputs), run(*inputs), **EXACT)


@pytest.mark.parametrize("path", ["plain", "sdpa", "band"])
def test_dropout_drops_weights_and_scales_the_rest(path: Path) -> None:
    q, k = torch.zeros(1, 1, 300, 2), torch.zeros(1, 1, 300, 2)
    torch.manual_seed(1)
    y = attend(q, k, torch.ones(1, 1, 300, 1), CAUSAL & Local(100), path=path, dropout=0.25)[0, 0, 100:]
    assert float(y.std()) > 0.01
    assert abs(float(y.mean()) - 1) < 0.03


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"path": "band", "pattern": Block(2)}, r"the band path cannot serve this: .*CAUSAL & Local.*Block\(size=2\)"),
        ({"path": "flex", "dropout": 0.1}, "the flex path cannot serve this: .*dropout=0.1"),
        ({"path": "flex"}, "the flex path cannot serve this: .*no gradient on the device cpu"),
        ({"path": "fastest"}, "the fastest path cannot serve this: the paths are auto, plain, sdpa, band, flex"),
    ],
)
def test_a_path_that_cannot_serve_says_why(options: Any, complaint: str) -> None:
    inputs, _ = case(4, 4)
    with pytest.raises(UserError, match=complaint):
        attend(*inputs, **options)


def test_heads_keys_and_lengths_that_do_not_fit_are_refused() -> None:
    q, k, v = torch.zeros(1, 4, 2, 2), torch.zeros(1, 3, 2, 2), torch.zeros(1, 3, 2, 2)
    with pytest.raises(UserError, match="heads=4, kv_heads=3"):
        attend(q, k, v)
    with pytest.raises(UserError, match="each key has one value"):
        attend(q, k[:, :2], v[:, :2, :1])
    with pytest.raises(UserError, match="rows=1, lengths=2"):
        attend(q, k[:, :2], v[:, :2], CAUSAL & PADDED)


def test_models_are_imported_without_the_compiler() -> None:
    program = "import sys, octavo.models; print('torch._dynamo' in sys.modules)"  # it takes a second
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_where_flex_cannot_be_compiled_attention_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: str) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(flex, "is_fastest", lambda *_: True)
    monkeypatch.setattr(flex, "kernel", broken)
    monkeypatch.setattr(flex, "unsupported_reason", lambda *_: None)
    flex.compiles.cache_clear()
    inputs, _ = case(9, 9)
    try:
        torch.testing.assert_close(attend(*inputs, Block(4)), attend(*inputs, Block(4), path="plain"), **EXACT)
    finally:
        flex.compiles.cache_clear()


# Scores


def test_scores_of_many_queries_are_those_of_one_at_a_time() -> None:
    q, k, v = leaf(B, 3, 4, seed=1), leaf(B, 5, 4, seed=2), leaf(4, seed=4)
    for t in range(3):
        for score in (scores.dots, scores.scaled_dots, lambda q, k: scores.additives(q, k, v)):
            torch.testing.assert_close(score(q, k)[:, t], score(q[:, t, None], k)[:, 0], **EXACT)


def test_scores_by_hand() -> None:
    q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, -1.0]])
    assert scores.dots(q, k).tolist() == [[11.0, -2.0]]
    torch.testing.assert_close(scores.scaled_dots(q, k), torch.tensor([[11.0, -2.0]]) / math.sqrt(2))
    expected = [[math.tanh(4) + 10 * math.tanh(6), math.tanh(1) + 10 * math.tanh(1)]]
    torch.testing.assert_close(scores.additives(q, k, torch.tensor([1.0, 10.0])), torch.tensor(expected))


# Multi-head forms

D, N = 8, 7


def layer(G: int = H, bias: bool = True) -> Heads:
    E = G * D // H
    matrices = [leaf(*shape, seed=i) for i, shape in enumerate([(D, D), (E, D), (E, D), (D, D)])]
    biases = [leaf(size, seed=9 + i) for i, size in enumerate([D, E, E, D])] if bias else []
    return Heads(H, *matrices, *biases)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("G", [4, 2, 1])
@pytest.mark.parametrize("pattern", [FULL, CAUSAL, BLIND[0]], ids=str)
def test_heads_summed_are_heads_concatenated(pattern: Pattern, G: int, bias: bool) -> None:
    w, x_BND = layer(G, bias), leaf(B, N, D, seed=20)
    leaves = [x_BND, *(part for part in w[1:] if isinstance(part, Tensor))]
    found = []
    for form in (concatenated, summed):
        y_BND = form(x_BND, w, pattern)
        found.append([y_BND, *torch.autograd.grad(y_BND.sin().sum(), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_shared_keys_are_keys_that_happen_to_be_equal() -> None:
    w = layer(2)
    assert w.key_bias_E is not None
    assert w.value_bias_E is not None
    repeated = [part.unflatten(0, (2, 2)).repeat_interleave(2, 0).flatten(0, 1) for part in w[2:4] + w[6:8]]
    key_DD, value_DD, key_bias_D, value_bias_D = repeated
    whole = w._replace(key_ED=key_DD, value_ED=value_DD, key_bias_E=key_bias_D, value_bias_E=value_bias_D)
    x_BND = leaf(B, N, D, seed=20)
    torch.testing.assert_close(concatenated(x_BND, w, CAUSAL), concatenated(x_BND, whole, CAUSAL), **EXACT)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("G", [4, 2])
def test_the_layer_is_one_matrix_of_kronecker_products(G: int, bias: bool) -> None:
    w, x_BND = layer(G, bias), leaf(B, N, D, seed=20)
    a_BHNN, y_BND = maps(x_BND, w, CAUSAL), concatenated(x_BND, w, CAUSAL)
    for a_HNN, x_ND, y_ND in zip(a_BHNN, x_BND, y_BND, strict=True):
        matrix = layer_matrix(a_HNN, w)
        assert matrix.shape == (N * D, N * D)
        torch.testing.assert_close((matrix @ x_ND.flatten()).view(N, D) + offset(a_HNN, w), y_ND, **EXACT)
        products = [torch.kron(*factors) for factors in zip(a_HNN, folded(w), strict=True)]
        torch.testing.assert_close(matrix, torch.stack(products).sum(0), **EXACT)


def test_a_folded_head_has_the_rank_of_its_values() -> None:
    assert torch.linalg.matrix_rank(folded(layer())).tolist() == [D // H] * H


def masks(kind: str) -> tuple[Pattern, Tensor | None, dict[str, Tensor]]:
    """The same rule in our words and in PyTorch's."""
    future = ~CAUSAL.mask(N, N)
    if kind == "causal":
        return CAUSAL, None, {"attn_mask": future}
    if kind == "padding":
        lengths_B = torch.tensor([N, 3])
        return Padding(lengths_B), None, {"key_padding_mask": torch.arange(N) >= lengths_B[:, None]}
    if kind == "boolean":
        return Global(1) | Local(2), None, {"attn_mask": ~(Global(1) | Local(2)).mask(N, N)}
    if kind == "float":
        bias_TS = torch.randn(N, N, dtype=torch.float64, generator=seeded_generator(4)).masked_fill(future, -torch.inf)
        return FULL, bias_TS[None], {"attn_mask": bias_TS}
    return FULL, None, {}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["none", "causal", "padding", "boolean", "float"])
def test_a_layer_equals_pytorchs_module_in_value_and_every_gradient(kind: str, bias: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(D, H, dropout=0.0, bias=bias, batch_first=batch_first, dtype=torch.float64).train()
    for parameter in module.parameters():  # its biases start as zeros, which would hide a mistake
        nn.init.normal_(parameter, std=0.5)
    pattern, bias_HTS, theirs = masks(kind)
    x_BND = leaf(B, N, D, seed=20)
    x = x_BND if batch_first else x_BND.transpose(0, 1)
    y = module(x, x, x, need_weights=False, **theirs)[0]
    expected_BND = y if batch_first else y.transpose(0, 1)
    w = from_torch(dict(module.named_parameters()), H)
    leaves = [x_BND, *module.parameters()]
    expected = [expected_BND, *torch.autograd.grad(expected_BND.sin().sum(), leaves)]
    for path in ("plain", "sdpa"):
        ours_BND = concatenated(x_BND, w, pattern, bias_HTS=bias_HTS, path=path)
        ours = [ours_BND, *torch.autograd.grad(ours_BND.sin().sum(), leaves)]
        for one, other in zip(ours, expected, strict=True):
            torch.testing.assert_close(one, other, **EXACT)


def test_the_maps_are_those_that_pytorchs_module_returns() -> None:
    module = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64)
    x_BND = leaf(B, N, D, seed=20)
    theirs_BHNN = module(x_BND, x_BND, x_BND, average_attn_weights=False, attn_mask=~CAUSAL.mask(N, N))[1]
    torch.testing.assert_close(maps(x_BND, from_torch(module.state_dict(), H), CAUSAL), theirs_BHNN, **EXACT)


def test_keys_of_another_width_are_refused() -> None:
    with pytest.raises(UserError, match="leave kdim out"):
        from_torch(nn.MultiheadAttention(D, H, kdim=3).state_dict(), H)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UserError, match="width=8, heads=3"):
        summed(leaf(B, N, D, seed=20), layer()._replace(heads=3))


# On a GPU

compiling = pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")  # of PyTorch's compiler


@pytest.mark.gpu
@pytest.mark.parametrize("path", ["sdpa", "band", "auto"])
@pytest.mark.parametrize("G", [4, 2])
def test_paths_agree_on_a_gpu_in_double_precision(path: Path, G: int) -> None:
    for pattern in BANDS if path == "band" else [*PATTERNS, *BLIND]:
        for T, S in LENGTHS:
            for bias in (False, True):
                inputs, bias_HTS = case(T, S, G, bias, device="cuda")
                assert_paths_agree(path, inputs, pattern, bias_HTS)


@pytest.mark.gpu
@compiling
@pytest.mark.parametrize("pattern", [*PATTERNS, *BLIND], ids=str)
def test_flex_equals_the_equations_in_value_and_gradient_on_a_gpu(pattern: Pattern) -> None:
    for (T, S), G, bias in (((65, 65), H, False), ((130, 257), 2, True), ((1, 63), 2, False)):
        drawn = [leaf(B, *shape, seed=i, device="cuda", dtype=torch.float32) for i, shape in enumerate(
            [(H, T, 32), (G, S, 32), (G, S, 32)])]  # fmt: skip
        bias_HTS = leaf(H, T, S, seed=3, device="cuda", dtype=torch.float32) if bias else None
        assert_paths_agree("flex", drawn, pattern, bias_HTS, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@compiling
def test_long_patterns_take_flex_on_a_gpu_and_agree() -> None:
    pattern = Neighbourhood(64, 64, globals=1)
    inputs = [leaf(1, 2, 4097, 64, seed=i, device="cuda", dtype=torch.bfloat16) for i in range(3)]
    assert choose(*inputs[:2], pattern) == "flex"
    assert_paths_agree("auto", inputs, pattern, rtol=3e-2, atol=3e-2)
    assert choose(*(x.float() for x in inputs[:2]), pattern) == "sdpa"


@pytest.mark.gpu
@compiling
def test_many_patterns_in_one_process_all_get_a_fused_kernel() -> None:
    q, k, v = (torch.randn(1, 2, 4096, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    kinds = [Block(64), Strided(64), Local(64), Global(64), Axial(64, 64), Neighbourhood(64, 64)]
    for pattern in [*kinds, *(CAUSAL & kind for kind in kinds)]:
        attend(q, k, v, pattern, path="flex")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attend(q, k, v, pattern, path="flex")
        assert torch.cuda.max_memory_allocated() - before < 1 << 24  # all the scores are 1 << 27 bytes


@pytest.mark.gpu
def test_a_long_band_on_a_gpu_needs_memory_of_its_window_alone() -> None:
    q, k, v = (torch.randn(1, 4, 65536, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attend(q, k, v, CAUSAL & Local(128))
    assert torch.cuda.max_memory_allocated() - before < 1 << 30  # a mask of all pairs alone has 1 << 32
