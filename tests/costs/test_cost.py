"""What a model costs, against hand sums, published sizes, PyTorch's counter and what autograd really keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import examples
from command_line import json_output
from flop_counter import flop_counter
from lstm_by_hand import show_products
from octavo.cli import main
from octavo.core import LanguageModel, seeded_generator, tensors_of
from octavo.costs import (
    GPUS,
    Assumptions,
    Cost,
    Machine,
    Shape,
    cost_like,
    cost_of,
    cost_of_config,
    named_gpu,
    on_meta,
    parse_budget,
    plan_for,
    predict_decoding,
    predict_training,
    training_memory,
)
from octavo.costs.memory import activation_bytes, optimizer_bytes
from octavo.costs.planning import bytes_per_gpu, fewest_gpus
from octavo.costs.published import find_published
from octavo.costs.roofline import copy_rate
from octavo.errors import UserError
from octavo.models import MODELS, names, preset
from octavo.models.bert import BertConfig
from octavo.models.cost.transformer import pairs_of
from octavo.models.linear_attention import SPECS as LINEAR_ATTENTION
from octavo.models.ngram import NGramConfig
from octavo.models.parts.config import GPTConfig
from octavo.ops.attention import CAUSAL, Local
from octavo.ops.attention import dispatch as fast
from octavo.ops.tracing import trace
from octavo.tasks import api
from octavo.training.language_stage import NextToken
from octavo.training.optimizer import OptimizerConfig, Optimizers

B, V = 3, 29
TINY: dict[str, Any] = {"width": 16, "layers": 2, "heads": 4, "context": 128, "feed_forward_width": 40}
REACH = {"attention_window": 6}
GPTS: dict[str, dict[str, Any]] = {
    "full": {},
    "as GPT-2": {"positions": "learned", "norm": "layer", "bias": True, "feed_forward": "gelu", "qk_norm": False},
    "as Llama": {"feed_forward": "gated", "kv_heads": 2, "qk_norm": False, "tied": False},
    "dropout": {"dropout": 0.1},
    "no positions, shared keys": {"positions": "none", "kv_heads": 1, "qk_norm": False},
    "sinusoidal": {"positions": "sinusoidal", "feed_forward": "gelu-exact"},
    "alibi": {"positions": "alibi"},
    "alibi, shared keys": {"positions": "alibi", "kv_heads": 2},
    "short context": {"context": 20},
    **{attention: {"attention": attention} | REACH for attention in ("local", "strided", "block", "global")},
    **{attention: {"attention": attention} for attention in ("dense", "random")},
    "local, alibi": {"attention": "local", "positions": "alibi"} | REACH,
    "local, shared keys": {"attention": "local", "kv_heads": 2} | REACH,
    "strided, shared keys": {"attention": "strided", "kv_heads": 2} | REACH,
    "dense, dropout": {"attention": "dense", "dropout": 0.1},
    **{f"linear, {phi}": {"attention": "linear", "features": phi} for phi in ("elu", "relu", "random")},
    "linear, decay": {"attention": "linear", "head_decay": "fixed"},
    "linear, decay, random, shared keys": {
        "attention": "linear",
        "head_decay": "fixed",
        "features": "random",
        "kv_heads": 2,
        "positions": "none",
        "qk_norm": False,
        "bias": True,
        "dropout": 0.1,
    },
    "linear, shared keys": {"attention": "linear", "kv_heads": 2},
    "latent": {"attention": "latent"},
    "latent, narrow": {"attention": "latent", "latent_width": 3, "qk_norm": False, "dropout": 0.1},
    "latent, no positions": {"attention": "latent", "positions": "none"},
    "latent, no norm": {"attention": "latent", "positions": "none", "qk_norm": False},
    "latent, short context, no positions": {"attention": "latent", "positions": "none", "context": 20},
    "latent, learned": {"attention": "latent", "positions": "learned", "latent_width": 6},
    "latent, alibi": {"attention": "latent", "positions": "alibi"},
    "latent, short context": {"attention": "latent", "context": 20},
    "experts": {"experts": 5},
    "experts, one a token": {
        "experts": 3,
        "experts_per_token": 1,
        "feed_forward": "gelu",
        "bias": True,
        "dropout": 0.1,
    },
    "latent, experts": {"attention": "latent", "experts": 8, "experts_per_token": 3, "feed_forward": "relu2"},
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {"width": 16, "layers": 2}) for name in ("rnn", "gru", "lstm")},
    **{f"{name}, untied": (name, {"width": 16, "layers": 1, "tied": False, "dropout": 0.1}) for name in ("rnn", "gru")},
    "rnn-attention": ("rnn-attention", {"width": 16, "memory": 64}),
    "rnn-attention, additive": ("rnn-attention", {"width": 16, "score": "additive", "memory": 9, "tied": False}),
    "rnn-attention, gru": ("rnn-attention", {"width": 16, "cell": "gru", "score": "dot", "memory": 0, "norm": False}),
    **{name: (name, {"width": 16, "layers": 2, "state_width": 24}) for name in ("mingru", "minlstm", "lru", "rglru")},
    **{f"{name}, dropout": (name, {"width": 16, "layers": 1, "tied": False, "dropout": 0.1})
       for name in ("mingru", "minlstm", "lru", "rglru")},
    **{f"{name}, no convolution": (name, {"width": 16, "layers": 1, "convolution": 1}) for name in ("mingru", "rglru")},
    "bigram": ("bigram", {"dim": 16, "hidden": 24}),
    "nnlm": ("nnlm", {"width": 16, "hidden": 24, "order": 5}),
    "nnlm, direct, dropout": ("nnlm", {"width": 16, "hidden": 24, "order": 2, "direct": True, "dropout": 0.1}),
    "conv": ("conv", {"width": 16, "layers": 3}),
    "conv, linear": ("conv", {"width": 16, "layers": 3, "kernel": 2, "cycle": 2, "gate": "linear", "tied": False,
                              "dropout": 0.1}),
    "hmm": ("hmm", {"states": 16}),
    **{spec.name: (spec.name, {"width": 16, "layers": 2} | ({"state_size": 6} if spec.name == "mamba2" else {}))
       for spec in LINEAR_ATTENTION},
    "retention, no convolution": ("retention", {"width": 16, "layers": 1, "convolution": 0, "feed_forward": "gelu"}),
    "mamba2, gated": ("mamba2", {"width": 16, "layers": 1, "feed_forward": "gated", "tied": False, "dropout": 0.1}),
    "gla, no feed-forward": ("gla", {"width": 16, "layers": 2, "feed_forward": "none"}),
    "deltanet, no convolution": ("deltanet", {"width": 16, "layers": 1, "convolution": 0}),
}  # fmt: skip
ALL = {**{f"gpt, {name}": ("gpt", TINY | config) for name, config in GPTS.items()}, **OTHERS}
SOFTMAX = [name for name, config in GPTS.items() if config.get("attention") not in ("linear", "dense", "random")]


def built(variant: str) -> LanguageModel[Any]:
    name, config = ALL[variant]
    model = MODELS[name].model(MODELS[name].config(**config), V)
    model.initialise(seeded_generator(1))
    return model


def tokens(T: int, batch: int = B) -> Tensor:
    return torch.randint(0, V - 1, (batch, T), generator=seeded_generator(2))


def counted(model: LanguageModel[Any], T: int) -> tuple[int, int]:
    """Operations there and back, as PyTorch counts them while they are computed."""
    with flop_counter() as there:
        logits = model(tokens(T))
    with flop_counter() as back:
        logits.sum().backward()
    return there.get_total_flops(), back.get_total_flops()


@pytest.fixture
def lstm_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The LSTM's kernel is not PyTorch's own and shows nothing of itself; our reference implementation does."""
    show_products(monkeypatch)


# ---------------------------------------------------------------------- parameters


@pytest.mark.parametrize("variant", ALL)
def test_parameters_are_those_of_the_model(variant: str) -> None:
    name, config = ALL[variant]
    real = on_meta(name, MODELS[name].config(**config), V)
    assert cost_of(real, Shape(2, 3)).parameters == sum(p.numel() for p in real.parameters())


def test_every_registered_model_has_a_cost() -> None:
    for name, variants in examples.examples().items():
        for model in variants.values():
            cost = cost_of(model, Shape(2, 3))
            assert cost.parameters == sum(p.numel() for p in model.parameters())
            held = sum(b.numel() * b.element_size() for b in model.buffers())
            assert cost.table_bytes == held
            assert (held > 0) == (name in ("bag", "ngram", "adaptive-ngram", "ctw", "mix", "adaptive-mix"))
    for name, config in map(preset, MODELS["gpt"].presets):
        assert cost_of_config(name, config, V, Shape()).parameters > 0


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080), ("gpt2-xl", 1_557_611_200),
        ("llama-7b", 6_738_415_616), ("llama-13b", 13_015_864_320), ("smollm2-135m", 134_515_008),
        ("bert-base", 109_482_240), ("bert-large", 335_141_888),
    ],
)  # fmt: skip
def test_well_known_models_have_their_published_sizes(name: str, published: int) -> None:
    cost = cost_like(name, Shape(1, 8))
    assert cost.parameters == published
    assert sum(p.numel() for p in on_meta(*find_published(name)).parameters()) == published


def test_bert_large_is_what_is_called_340_million() -> None:
    D, F = 1024, 4096
    norm = 2 * D
    layer = 4 * (D * D + D) + (F * D + F) + (D * F + D) + 2 * norm
    body = (30522 + 512 + 2) * D + norm + 24 * layer
    pooler, mlm, nsp = D * D + D, D * D + D + norm + 30522, 2 * D + 2

    def size(*tasks: Any, **settings: Any) -> int:
        config = BertConfig(1024, 24, 16, 4096, context=512, tasks=tasks, **settings)
        return cost_of_config("bert", config, 30522, Shape(1, 8)).parameters

    assert size(pooler=False) == body == 334_092_288
    assert size() == body + pooler == 335_141_888
    assert size("words", "next") == body + pooler + mlm + nsp == 336_226_108
    assert size("words", "next", tied=False) == body + pooler + mlm + nsp + 30522 * D
    assert {round(n, -7) for n in (size(), size("words", "next"))} == {340_000_000}


def test_bert_layers_cost_what_pytorch_counts_of_its_own() -> None:
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 40, dropout=0.0, batch_first=True), 2)
    with flop_counter() as there:
        y = layers(torch.randn(B, 7, 16, requires_grad=True))
    with flop_counter() as back:
        y.sum().backward()
    config = BertConfig(16, 2, 4, 40, context=9, pooler=False, tasks=())
    cost = cost_of_config("bert", config, V, Shape(B, 7))
    assert (cost.total("forward"), cost.total("backward")) == (there.get_total_flops(), back.get_total_flops())
    tables = (V + 9 + 2) * 16 + 2 * 16
    assert cost.parameters == tables + sum(p.numel() for p in layers.parameters())


# ---------------------------------------------------------------------- operations


@pytest.mark.parametrize(
    ("variant", "T"),
    [
        *((variant, T) for variant in ALL for T in (7, 70)),
        *((f"gpt, {attention}", 1) for attention in ("full", "random", "dense")),
    ],
)
def test_operations_are_those_that_pytorch_counts(variant: str, T: int, lstm_by_hand: None) -> None:
    model = built(variant)
    cost = cost_of(model, Shape(B, T))
    assert (cost.total("forward"), cost.total("backward")) == counted(model, T)


@pytest.mark.parametrize("variant", SOFTMAX)
def test_operations_of_attention_as_its_equations_stand(variant: str) -> None:
    model = built(f"gpt, {variant}")
    cost = cost_of(model, Shape(B, 33, kernel="plain"))
    with trace():
        assert (cost.total("forward"), cost.total("backward")) == counted(model, 33)


@pytest.mark.parametrize("past", [5, 70])
@pytest.mark.parametrize("variant", ALL)
def test_operations_of_one_token_after_others(variant: str, past: int, lstm_by_hand: None) -> None:
    model = built(variant)
    state = model.absorb(model.start(B), tokens(past))[1]
    with flop_counter() as step:
        model.step(state, tokens(1)[:, 0])
    assert cost_of(model, Shape(B, 1, past)).total("forward") == step.get_total_flops()


CARRYING = [name for name, (model, _) in ALL.items() if model != "bigram" and built(name).carries_state]


@pytest.mark.parametrize("past", [1, 5, 70])
@pytest.mark.parametrize("variant", CARRYING)
def test_operations_of_a_window_after_others(variant: str, past: int, lstm_by_hand: None) -> None:
    model = built(variant)
    with torch.no_grad():  # as in training, where the backward pass ends at the window's beginning
        state = model.absorb(model.start(B), tokens(past))[1]
    with flop_counter() as there:
        logits = model.absorb(state, tokens(7))[0]
    with flop_counter() as back:
        logits.sum().backward()
    cost = cost_of(model, Shape(B, 7, past))
    assert (cost.total("forward"), cost.total("backward")) == (there.get_total_flops(), back.get_total_flops())


def test_half_of_what_full_attention_computes_is_needed() -> None:
    cost = cost_of_config("gpt", GPTConfig(width=64, layers=3, heads=4, context=100), V, Shape(B, 100))
    part = next(part for part in cost.parts if part.name == "attention")
    assert part.needed == 3 * B * 4 * 64 * (100 * 101 // 2)
    assert part.forward == 3 * B * 4 * 64 * 100 * 100


@pytest.mark.parametrize("pattern", [CAUSAL, *(CAUSAL & Local(w) for w in (1, 3, 8, 20))])
def test_pairs_in_closed_form_are_those_of_the_mask(pattern: Any) -> None:
    for S in (1, 2, 7, 13):
        for T in range(1, S + 1):
            assert pairs_of(pattern, T, S) == int(pattern.mask(T, S).sum())


def test_six_operations_a_weight_and_token() -> None:
    cost = cost_like("gpt2-xl", Shape(1, 1024))
    products = cost.training_flops - sum(p.forward + p.backward for p in cost.parts if p.name == "attention")
    tables = 1024 * 1600 + 48 * 13 * 1600 + (2 * 48 + 1) * 2 * 1600 - 48 * 4 * 1600  # positions, biases, norms
    assert products / 1024 == pytest.approx(6 * cost.parameters, rel=2e-3)
    assert 0 < 6 * cost.parameters - products / 1024 < 12 * tables


# ---------------------------------------------------------------------- memory


def really_saved(model: LanguageModel[Any], T: int, lowered: AbstractContextManager[Any] | None = None) -> int:
    """Bytes of all that autograd saves of a training step, each storage once, the weights and the text left out."""
    x_BT = tokens(T + 1)
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), x_BT)}
    sizes: dict[int, int] = {}
    held = []

    def pack(tensor: Tensor) -> Tensor:
        held.append(tensor)  # so that no storage is freed and its place taken by another
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), lowered or nullcontext():
        NextToken(model)(model.start(B), x_BT)
    return sum(sizes.values())


@pytest.mark.parametrize("T", [7, 70])
@pytest.mark.parametrize("variant", ALL)
def test_activations_are_what_autograd_keeps(variant: str, T: int, lstm_by_hand: None) -> None:
    model = built(variant)
    assert activation_bytes(cost_of(model, Shape(B, T)), "float32") == really_saved(model, T)


def test_many_logits_are_not_saved() -> None:
    config, vocab, T = GPTConfig(**TINY), 70_000, 100
    model = MODELS["gpt"].model(config, vocab)
    model.initialise(seeded_generator(1))
    cost = cost_of_config("gpt", config, vocab, Shape(B, T))
    assert activation_bytes(cost, "float32") == really_saved(model, T) < 4 * B * T * vocab


@pytest.mark.parametrize("variant", SOFTMAX)
def test_activations_in_half_precision_are_within_a_twentieth(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "products_are_fastest", lambda q, k: False)  # as on a GPU
    model = MODELS["gpt"].model(GPTConfig(**TINY | {"width": 64} | GPTS[variant]), V)
    model.initialise(seeded_generator(1))
    real = really_saved(model, 60, torch.autocast("cpu", torch.bfloat16))
    assert activation_bytes(cost_of(model, Shape(B, 60)), "bfloat16") == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("variant", [name for name in ALL if name != "bigram"])  # which has an Adam of its own
def test_optimizers_remember_as_much(variant: str, optimizer: Any) -> None:
    model = built(variant)
    optimizers = Optimizers(model, OptimizerConfig(optimizer=optimizer))
    NextToken(model)(model.start(B), tokens(9))[0].backward()
    optimizers.step(0.5, 1.0)
    remembered = sum(t.numel() * 4 for name, t in optimizers.tensors().items() if not name.endswith("/step"))
    cost = cost_of(model, Shape(B, 8))
    gradients = sum(4 * p.grad.numel() for p in model.parameters() if p.grad is not None)
    assert optimizer_bytes(cost, optimizer) == remembered
    assert training_memory(cost, optimizer).gradients == gradients


@pytest.mark.parametrize("past", [5, 70])
@pytest.mark.parametrize("variant", ALL)
def test_the_cache_is_as_large_as_the_state(variant: str, past: int) -> None:
    model = built(variant)
    state = model.absorb(model.start(1), tokens(past, 1))[1]
    held = sum(t.numel() * t.element_size() for t in tensors_of(state) if t.is_floating_point())
    assert cost_of(model, Shape()).cache_bytes(past, 4) == held


def test_tables_of_an_ngram_are_within_the_bound() -> None:
    text, config = examples.text(), NGramConfig(order=4)
    real = cost_of(examples.ngram(order=4), Shape())
    bound = cost_of_config("ngram", config, examples.VOCAB, Shape(text=len(text)))
    assert 0 < real.table_bytes < bound.table_bytes
    assert (real.tables_at_most, bound.tables_at_most) == (False, True)
    assert real.training_flops == 0


# ---------------------------------------------------------------------- time and plans


def test_the_slower_of_products_and_memory_decides() -> None:
    cost = cost_like("gpt2", Shape(1, 1, 99))
    weights = 2 * (124_439_808 - 1024 * 768)  # one row of the positions is read, embeddings are read as output weights
    cache = 2 * 2 * 12 * 768 * 100
    machine = Machine("made up", 1e12, 1e9, 1e9)
    slow = predict_decoding(cost, machine, utilisation=0.5)
    assert (slow.bound, slow.fits) == ("memory", True)
    assert slow.predicted_tokens_per_second == pytest.approx(0.5 * 1e9 / (weights + cache))
    assert slow.intensity == pytest.approx(cost.total("forward") / (weights + cache))
    quick = predict_training(cost_like("gpt2", Shape(8, 1024)), Machine("made up", 1e11, 1e9, 1e9), utilisation=0.5)
    assert (quick.bound, quick.fits) == ("products", False)
    assert quick.predicted_tokens_per_second == pytest.approx(0.5 * 1e11 / quick.flops_per_token)


def test_a_machine_copies() -> None:
    assert 1e8 < copy_rate(torch.device("cpu")) < 1e13


def test_compute_optimal_is_twenty_tokens_a_parameter() -> None:
    plan = plan_for(1e21, GPUS["h100"], 50257, 2048, Assumptions())
    assert 6 * plan.parameters * plan.tokens == pytest.approx(1e21)
    assert plan.tokens == pytest.approx(20 * plan.parameters)
    assert plan.cost.parameters == pytest.approx(plan.parameters, rel=0.02)
    assert 64 < plan.config.width / plan.config.layers < 256
    assert [fleet.gpus for fleet in plan.fleets] == sorted({fleet.gpus for fleet in plan.fleets})
    for fleet in plan.fleets:
        assert fleet.seconds == pytest.approx(1e21 / (fleet.gpus * 0.4 * 989e12))
        assert fleet.usd == pytest.approx(2 * fleet.seconds / 3600 * fleet.gpus)


@pytest.mark.parametrize("recompute", [False, True])
def test_a_plan_for_money_costs_that_money(recompute: bool) -> None:
    assumed = Assumptions(price=3.5, recompute=recompute)
    plan = plan_for(parse_budget("1000usd", GPUS["a100-80"], assumed), GPUS["a100-80"], 50257, 1024, assumed)
    assert [fleet.usd for fleet in plan.fleets] == pytest.approx([1000.0] * len(plan.fleets))


@pytest.mark.parametrize("gather", ["block", "whole"])
def test_the_fewest_gpus_are_the_fewest_that_fit(gather: Any) -> None:
    config, assumed = GPTConfig(width=4096, layers=32, heads=32, context=2048), Assumptions(gather=gather)
    machine = Machine("made up", 1e15, 1e12, 90e9)
    cost = cost_of_config("gpt", config, 32000, Shape(1, 2048))
    fewest = fewest_gpus(cost, machine, config, assumed)
    room = 0.9 * machine.memory
    assert fewest > 1
    assert bytes_per_gpu(cost, fewest, config, assumed) <= room < bytes_per_gpu(cost, fewest - 1, config, assumed)


def test_a_share_of_a_gpu_by_hand() -> None:
    config = GPTConfig(width=128, layers=4, heads=2, context=64, feed_forward="relu2")
    cost = cost_of_config("gpt", config, 1000, Shape(1, 64))
    tables, matrices, vectors = 1000 * 128, 4 * 12 * 128 * 128, 9 * 128
    shared = 8 * (tables + matrices + vectors) + 4 * matrices + 8 * (tables + vectors)
    gathered = 4 * tables + 3 * (4 * (matrices + vectors) // 4)
    saved = 2 * (cost.total("saved") + 4 * 3 * 128 * 128) + cost.total("saved_bytes")  # and queries, keys, values again
    assert bytes_per_gpu(cost, 2, config, Assumptions()) == shared // 2 + gathered + saved
    one = bytes_per_gpu(cost, 1, config, Assumptions())
    assert one == shared + saved + 2 * (matrices - 4 * 3 * 128 * 128 + tables) == training_memory(cost).total


def test_computing_blocks_again_holds_less() -> None:
    config = GPTConfig(width=1024, layers=24, heads=16, context=1024)
    cost = cost_of_config("gpt", config, 257, Shape(8, 1024))
    saved, again = (bytes_per_gpu(cost, 8, config, Assumptions(recompute=way)) for way in (False, True))
    assert again < saved / 4
    assert again > 24 * 2 * 8 * 1024 * 1024  # what goes into each block


# ---------------------------------------------------------------------- mistakes, and the command


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(UserError, match=words):
        yield


def test_mistakes_are_reported() -> None:
    with refused("batch must be at least 1"):
        Shape(0, 3)
    with refused("holds at most context tokens"):
        cost_of_config("gpt", GPTConfig(positions="learned", context=8), V, Shape(1, 9))
    with refused("vocab must be"):
        cost_of_config("gpt", GPTConfig(), 1, Shape())
    with refused("settings of gpt are a GPTConfig"):
        cost_of_config("gpt", NGramConfig(), V, Shape())
    with refused("costs what its parts do"):
        cost_of_config("mix", MODELS["mix"].config(), V, Shape())
    with refused("did you mean h100"):
        named_gpu("h1000")
    with refused("did you mean gpt2-xl"):
        cost_like("gpt2xl", Shape())
    with refused("512 positions"):
        cost_like("bert-base", Shape(1, 513))
    with refused("flops or usd"):
        parse_budget("7 euros", GPUS["h100"], Assumptions())
    with refused("utilisation must be above 0"):
        Assumptions(utilisation=0)
    with refused("must fit on one GPU"):
        plan_for(1e24, GPUS["t4"], 50257, 2048, Assumptions())


def test_the_command_gives_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--width", "64", "--layers", "2", "--heads", "4", "--context", "32", "--vocab", "99", "--batch", "4")
    found = json_output(capsys, "cost", "gpt", *flags, "--gpu", "h200", "--tokens", "1000000")
    cost = cost_of_config("gpt", GPTConfig(width=64, layers=2, heads=4, context=32), 99, Shape(4, 32))
    assert found["parameters"] == cost.parameters == sum(part["parameters"] for part in found["parts"])
    assert found["flops_per_token"]["training"] == cost.training_flops / 128
    assert found["memory"]["total"] == training_memory(cost).total
    assert found["cache"]["bytes_per_token"] == 2 * 2 * 2 * 64
    machines = [(one["machine"].split()[0], one["work"]) for one in found["predictions"]]
    assert machines == [("this", "training"), ("H200", "training"), ("this", "decoding"), ("H200", "decoding")]
    first = found["predictions"][0]
    assert first["seconds"] == pytest.approx(1e6 / first["predicted_tokens_per_second"])
    assert math.isfinite(first["predicted_tokens_per_second"])


@pytest.mark.parametrize(
    "name", [name for name in names() if name.removeprefix("adaptive-") not in ("mix", "ngram", "ppm", "ctw")]
)
def test_the_command_serves_every_model(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["cost", name, "--no-measure", "--vocab", "99"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: ") or out.startswith(f"{preset(name)[0]}: ")
    assert ("look-ups only" in out) == (name == "bag")


def test_the_command_knows_names_plans_and_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert json_output(capsys, "cost", "--like", "gpt2-xl", "--no-measure")["parameters"] == 1_557_611_200
    assert json_output(capsys, "cost", "--like=bert-large", "--no-measure")["predictions"][0]["work"] == "training"
    assert json_output(capsys, "cost", "--gpu", "h100", "--plan", "1e21flops")["parameters"] == pytest.approx(
        2.887e9, rel=1e-3
    )
    assert main(["cost", "--plan", "1000usd"]) == 0
    assert "US dollars" in capsys.readouterr().out
    (tmp_path / "text").write_text("to be or not to be, that is the question. " * 50)
    run = api.train("ngram", [str(tmp_path / "text")], out=str(tmp_path / "run"), tokenizer="byte", order=3)
    found = json_output(capsys, "cost", str(tmp_path / "run"))
    assert found["table_bytes"] == sum(b.numel() * b.element_size() for b in run.model.buffers())
    assert not found["tables_at_most"]
    assert json_output(capsys, "cost", "ngram", "--tokens", "1000")["tables_at_most"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("gpt", "--heads", "7"), "heads must divide width"),
        (("gtp",), "did you mean gpt"),
        (("ngram",), "try --tokens"),
        (("mix",), "give a trained one"),
        (("gpt", "--utilisation", "2"), "utilisation"),
        (("--gpu", "h100"), "--like NAME or --plan BUDGET"),
        (("--plan", "lots"), "1e21flops"),
        (("gpt", "--batch", "-1"), "batch_size must be at least 0"),
        (("--like", "gpt2", "--batch", "0"), "batch must be at least 1"),
        (("--like", "gpt2", "--window", "2000"), "try --window 1024"),
        (("runs/nowhere",), "runs/nowhere"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], words: str
) -> None:
    assert main(["cost", *argv]) == 2
    complaint = capsys.readouterr().err
    assert words in complaint
    assert len(complaint.strip().splitlines()) == 1


def test_help_shows_what_can_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost"]) == 0
    assert "--like NAME" in capsys.readouterr().out


def test_a_mixture_costs_what_its_parts_do() -> None:
    mix = examples.mixed()
    parts: list[Cost] = [cost_of(part, Shape(2, 3)) for part in mix.parts]
    assert cost_of(mix, Shape(2, 3)).table_bytes == sum(c.table_bytes for c in parts) + mix.logw_GI.numel() * 8
