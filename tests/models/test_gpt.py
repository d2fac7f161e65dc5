"""Transformers: parts by value, the state and the step, and PyTorch's own layers as the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from examples import VOCAB, gpt
from laws import tokens
from octavo.core import seeded_generator
from octavo.costs import cost_of, one_token
from octavo.errors import UserError
from octavo.models import MODELS, preset
from octavo.models.gpt import GPT
from octavo.models.parts import attention as mixes
from octavo.models.parts.config import GPTConfig
from octavo.ops.tracing import trace
from octavo.training.optimizer import parameter_groups

EXACT = {"rtol": 1e-10, "atol": 1e-10}


class Seen:
    """How many queries met how many keys, in each call of attention."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs: list[tuple[int, int]] = []
        plain = mixes.attend

        def counting(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> Tensor:
            self.pairs.append((q.shape[2], k.shape[2]))
            return plain(q, k, v, *rest, **options)

        monkeypatch.setattr(mixes, "attend", counting)


def test_one_token_more_is_one_query_against_all_keys_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = gpt(), Seen(monkeypatch)
    x_BT = model.prepend_begin(tokens(model, 1, 7))
    state = model.start(1)
    for n, x_B in enumerate(x_BT.unbind(1)):
        seen.pairs.clear()
        _, state = model.step(state, x_B)
        assert seen.pairs == [(1, n + 1)] * model.config.layers


def test_a_local_layer_keeps_no_more_keys_than_it_can_see(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = gpt(attention="local", attention_window=4), Seen(monkeypatch)
    _, state = model.absorb(model.start(1), model.prepend_begin(tokens(model, 1, 30)))
    assert {k.shape[2] for k, _ in state[2]} == {4}
    seen.pairs.clear()
    model.step(state, torch.tensor([0]))
    assert seen.pairs == [(1, 5)] * 2  # the oldest key is there, but not attended to


def test_linear_attention_has_a_state_of_one_size() -> None:
    model = gpt(attention="linear")
    sizes = [
        [tuple(t.shape) for layer in model.absorb(model.start(2), tokens(model, 2, n))[1][2] for t in layer]
        for n in (1, 50)
    ]
    assert sizes[0] == sizes[1] == [(2, 2, 4, 4), (2, 2, 4)] * 2


def test_a_token_more_leaves_earlier_outputs_untouched() -> None:
    model = gpt()
    x_BT = model.prepend_begin(tokens(model, 2, 9))
    before, state = model.absorb(model.start(2), x_BT)
    before_copy, cached = before.clone(), [t.clone() for layer in state[2] for t in layer]
    model.step(state, x_BT[:, 0])
    assert torch.equal(before, before_copy)
    assert all(torch.equal(a, b) for a, b in zip(cached, (t for layer in state[2] for t in layer), strict=True))


def test_a_full_context_with_learned_positions_is_read_again_from_its_middle() -> None:
    model = gpt(positions="learned", context=6, stride=2)
    x_T = tokens(model, 1, 9)
    whole, state = model.absorb(model.start(1), x_T)
    # Six fit; then the last four are read again, with room for two: tokens 2..7, and then 4..8.
    torch.testing.assert_close(whole[:, :6], model(x_T[:, :6]), **EXACT)
    torch.testing.assert_close(whole[:, 6:8], model(x_T[:, 2:8])[:, 4:], **EXACT)
    torch.testing.assert_close(whole[:, 8:], model(x_T[:, 4:9])[:, 4:], **EXACT)
    assert state[1].tolist() == x_T[:, 4:].tolist()


@pytest.mark.parametrize("positions", ["rotary", "alibi", "none"])
def test_relative_positions_see_the_last_tokens_only(positions: str) -> None:
    model = gpt(positions=positions, layers=1, context=5)
    x_BT = tokens(model, 1, 12)
    y_BT = x_BT.clone()
    y_BT[:, 6] = (y_BT[:, 6] + 1) % VOCAB
    a, b = model(x_BT), model(y_BT)
    assert not torch.equal(a[:, 10], b[:, 10])  # five tokens back, itself included: 6 to 10
    torch.testing.assert_close(a[:, 11], b[:, 11], **EXACT)


@pytest.mark.parametrize("norm_bias", [True, False])
def test_a_block_equals_pytorchs_encoder_layer(norm_bias: bool) -> None:
    theirs = nn.TransformerEncoderLayer(
        8, 2, 32, dropout=0.0, activation="gelu", norm_first=True, batch_first=True, dtype=torch.float64, bias=norm_bias
    )
    config = {"norm": "layer", "bias": norm_bias, "feed_forward": "gelu-exact", "qk_norm": False, "positions": "none"}
    model = gpt(layers=1, **config).requires_grad_(True)
    (block,) = model.blocks
    weights = dict(theirs.named_parameters())
    ours = {
        "norm1.weight_D": "norm1.weight", "norm2.weight_D": "norm2.weight", "feed_forward.up_FD": "linear1.weight",
        "feed_forward.down_DF": "linear2.weight", "attention.out_DD": "self_attn.out_proj.weight",
        **({"norm1.bias_D": "norm1.bias", "norm2.bias_D": "norm2.bias", "feed_forward.up_bias_F": "linear1.bias",
            "feed_forward.down_bias_D": "linear2.bias",
            "attention.out_bias": "self_attn.out_proj.bias"} if norm_bias else {}),
    }  # fmt: skip
    for mine, name in ours.items():
        block.get_parameter(mine).data.copy_(weights[name].data)
    parts = ("query", "key", "value")
    for part, values in zip(parts, weights["self_attn.in_proj_weight"].chunk(3), strict=True):
        block.get_parameter(f"attention.{part}_DD" if part == "query" else f"attention.{part}_ED").data.copy_(
            values.data
        )
    if norm_bias:
        for part, values in zip(parts, weights["self_attn.in_proj_bias"].chunk(3), strict=True):
            block.get_parameter(f"attention.{part}_bias").data.copy_(values.data)
    x_BTD = torch.randn(2, 7, 8, dtype=torch.float64, generator=seeded_generator(5)).requires_grad_()
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    expected = theirs(x_BTD, src_mask=mask, is_causal=True)
    found, _ = block.absorb(x_BTD, block.attention.start(2), mixes.Place(None))
    torch.testing.assert_close(found, expected, **EXACT)
    (their_dx,) = torch.autograd.grad(expected.square().sum(), x_BTD, retain_graph=True)
    (our_dx,) = torch.autograd.grad(found.square().sum(), x_BTD, retain_graph=True)
    torch.testing.assert_close(our_dx, their_dx, **EXACT)
    for mine, name in ours.items():
        (a,) = torch.autograd.grad(found.square().sum(), block.get_parameter(mine), retain_graph=True)
        (b,) = torch.autograd.grad(expected.square().sum(), weights[name], retain_graph=True)
        torch.testing.assert_close(a, b, **EXACT)


def test_nothing_is_added_at_first_when_the_outputs_start_at_zero() -> None:
    model = GPT(GPTConfig(width=8, layers=2, heads=2), VOCAB)
    model.initialise(seeded_generator(0))
    x_BT = tokens(model, 1, 5)
    with trace() as shown:
        model(x_BT)
    first, last = shown["stream"][0], shown["stream"][-1]
    assert torch.equal(first, last)
    assert torch.equal(last, model.embedding_VD[x_BT])


def test_presets_are_settings_of_one_model() -> None:
    assert {preset(name)[0] for name in MODELS["gpt"].presets} == {"gpt"}
    assert [preset(name)[1].attention for name in ("gpt", "local", "linear", "synthesizer")] == [
        "full", "local", "linear", "dense",
    ]  # fmt: skip
    assert not set(MODELS["gpt"].presets) & set(MODELS)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"width": 100, "heads": 8}, "heads must divide width: width=100, heads=8; try --heads"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads must divide heads: heads=4, kv_heads=3"),
        ({"width": 12, "heads": 4}, "rotary positions turn pairs"),
        ({"stride": 64}, "stride must be below context: stride=64, context=64"),
        ({"attention": "linear", "positions": "alibi"}, "alibi belongs to scores"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"feed_forward": "swish"}, "feed_forward must be one of gelu, gelu-exact, relu2, gated: feed_forward='swish'"),
        ({"feed_forward_width": -1}, "feed_forward_width must be at least 0"),
        ({"norm_eps": 0.0}, "norm_eps must be above 0"),
        ({"positions": "sinusoidal", "width": 7, "heads": 1}, "sinusoidal positions are pairs"),
        ({"attention": "latent", "kv_heads": 2}, "from one latent: kv_heads=2; leave it out, and try --latent-width"),
        ({"experts": 2, "experts_per_token": 3}, "must be at most experts: experts=2, experts_per_token=3; try"),
        ({"experts": -1}, "experts must be at least 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        GPTConfig(**settings)
    assert said in str(refused.value)


def test_a_begin_that_is_no_token_is_refused() -> None:
    with pytest.raises(UserError, match=f"begin must be one of the vocabulary's {VOCAB} tokens: begin={VOCAB}"):
        gpt(begin=VOCAB)


def test_linear_attention_in_low_precision_keeps_its_sums_in_single() -> None:
    model = gpt(attention="linear", positions="none", layers=1).bfloat16()
    state = model.start(1)
    for _ in range(300):
        _, state = model.step(state, torch.tensor([0]))
    z_HK, once_HK = (one[2][0][1][0] for one in (state, model.step(model.start(1), torch.tensor([0]))[1]))
    assert bool((z_HK > 280 * once_HK).all())  # further than bfloat16 itself counts
    assert {t.dtype for layer in state[2] for t in layer} == {torch.float32}


def test_random_features_are_saved_but_not_learnt() -> None:
    model = GPT(GPTConfig(width=8, layers=1, heads=2, attention="linear", features="random"), VOCAB)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["blocks.0.attention.features_MK"]
    assert not any(p is model.blocks[0].attention.features_MK for group in parameter_groups(model) for p in group)


def test_flops_count_the_products_of_a_full_context() -> None:
    model = GPT(GPTConfig(width=8, layers=2, heads=2, context=16, feed_forward="relu2"), VOCAB)
    weights = 2 * (4 * 8 * 8 + 2 * 8 * 32) + VOCAB * 8
    attending = 2 * (2 * 8 * 16)  # each layer: scores and sums, 16 keys of width 8
    assert cost_of(model, one_token(model.config)).total("forward") == 2 * (weights + attending)
