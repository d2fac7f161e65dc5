"""The lens for transformers: maps are what the layers did, however a text is read; depths end with the prediction."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from command_line import verb_caller
from examples import attentive, recurrent, text
from html_pages import HOSTILE, Page, elements
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.inspection import attention_maps as attention
from octavo.inspection.api import MAX_MAPPED_TOKENS
from octavo.inspection.attention_maps import AttentionHead, attention_over, heads_of, in_words, lay_out, layer_rows
from octavo.inspection.attention_page import MAP_CELLS, heads_table, maps_figure, notable, shrink
from octavo.inspection.gradient_flow import gradient_flow
from octavo.inspection.inspection import MAX_TOKENS, inspect_run
from octavo.inspection.page import inspect_page
from octavo.inspection.surprisal import surprises
from octavo.inspection.views import layer_predictions, logits_at, pieces
from octavo.models.gpt import GPT
from octavo.models.parts.attention import Place
from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import GRU, RecurrentConfig
from octavo.models.views import TokenMaps
from octavo.ops.tracing import trace
from octavo.pages.sections import Shaded, heat_table
from octavo.tasks.run import Run
from octavo.text import Byte
from octavo.text.token_display import BEGIN

CONTEXT, REACH = 12, 4
X_T: list[int] = text(31)[1:].tolist()  # more than twice the context
KINDS: dict[str, dict[str, Any]] = {
    **{attention: {"attention": attention} for attention in ("full", "local", "strided", "block", "global", "linear",
        "dense", "random")},
    "shared keys": {"kv_heads": 1}, "alibi": {"positions": "alibi"}, "learned": {"positions": "learned"},
    "sinusoidal, bias": {"positions": "sinusoidal", "bias": True, "norm": "layer", "feed_forward": "gelu"},
    "none, strided context": {"positions": "none", "stride": 5}, "linear, random features": {
        "attention": "linear", "features": "random"}, "linear, shared keys": {"attention": "linear", "kv_heads": 1},
    "linear, decay": {"attention": "linear", "head_decay": "fixed"},
    "latent": {"attention": "latent"}, "latent, learned": {"attention": "latent", "positions": "learned"},
    "experts": {"experts": 4},
}  # fmt: skip
MOVING = [name for name, config in KINDS.items() if GPTConfig(**config).absolute]


def gpt(vocab: int = 13, **config: Any) -> GPT:
    """A small transformer all of whose weights do something."""
    small = {"width": 8, "layers": 2, "heads": 2, "context": CONTEXT, "attention_window": REACH}
    model = GPT(GPTConfig(**small | config), vocab)
    generator = seeded_generator(2)
    model.initialise(generator)
    for weight in model.parameters():
        weight.data.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    return model.double().requires_grad_(False)


# --- maps


@pytest.mark.parametrize("name", KINDS)
def test_reading_token_by_token_gives_the_maps_of_reading_at_once(name: str) -> None:
    model = gpt(**KINDS[name])
    at_once = lay_out(partial(layer_rows, piece=len(X_T) + 1), model, X_T, nullcontext)
    for piece in (1, 7):
        again = lay_out(partial(layer_rows, piece=piece), model, X_T, nullcontext)
        torch.testing.assert_close(again.layers, at_once.layers, rtol=1e-10, atol=1e-13)
        assert torch.equal(again.visible_T, at_once.visible_T)


@pytest.mark.parametrize("name", KINDS)
def test_rows_sum_to_one_and_see_nothing_of_the_future(name: str) -> None:
    maps = attention_over(gpt(**KINDS[name]), X_T)
    assert [a_HTT.shape for a_HTT in maps.layers] == [(2, len(X_T) + 1, len(X_T) + 1)] * 2
    for a_HTT in maps.layers:
        torch.testing.assert_close(a_HTT.sum(-1), torch.ones(2, len(X_T) + 1).double())
        assert torch.equal(a_HTT, a_HTT.tril())
        assert torch.equal((a_HTT > 0).sum(-1)[0], maps.visible_T)


def seen(name: str, t: int, s: int) -> bool:
    """Whether t sees s, when the context is never full."""
    back = t - s
    return back >= 0 and {
        "full": True, "local": back < REACH, "strided": back < REACH or back % REACH == 0,
        "block": t // REACH == s // REACH, "global": back < REACH or s == 0,
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", ["full", "local", "strided", "block", "global"])
def test_what_a_pattern_forbids_is_zero(name: str) -> None:
    T = CONTEXT
    expected = torch.tensor([[seen(name, t, s) for s in range(T)] for t in range(T)])
    for a_HTT in attention_over(gpt(**KINDS[name]), X_T[: T - 1]).layers:
        assert torch.equal(a_HTT > 0, expected.expand(2, T, T))


@pytest.mark.parametrize("name", KINDS)
def test_a_map_times_the_values_is_what_the_layer_added(name: str) -> None:
    """The proof that a map is the one used, also of kernels that have none: linear attention and synthesizers."""
    model = gpt(**KINDS[name])
    x_T = [model.begin, *X_T[: CONTEXT - 1]]
    (piece,) = pieces(model, x_T)
    for layer, a_HTT in enumerate(attention_over(model, x_T[1:]).layers):
        block: Any = model.blocks[layer]
        z_TD, attention = block.norm1(piece.streams[layer]), block.attention
        if hasattr(attention, "value_EM"):
            _, z_1TZ = attention.project(z_TD[None], Place(model._angles(torch.arange(len(x_T)), z_TD.dtype)))
            v_TGK = F.linear(z_1TZ[0, :, : model.config.latent], attention.value_EM).unflatten(-1, (2, -1))
            out_DD, bias = attention.out_DE, None
        elif hasattr(attention, "value_ED"):
            v_TGK = F.linear(z_TD, attention.value_ED, attention.value_bias).unflatten(-1, (model.config.groups, -1))
            out_DD, bias = attention.out_DD, attention.out_bias
        else:
            v_TGK = F.linear(z_TD, attention.value_DD).unflatten(-1, (2, -1))
            out_DD, bias = attention.out_DD, None
        v_HTK = v_TGK.transpose(0, 1).repeat_interleave(2 // v_TGK.shape[1], 0)
        y_TD = F.linear((a_HTT @ v_HTK).transpose(0, 1).flatten(1), out_DD, bias)
        middle_TD = piece.shown["middle"][layer][0]
        torch.testing.assert_close(piece.streams[layer] + y_TD, middle_TD, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MOVING)
def test_beyond_a_context_a_row_is_that_of_the_new_context_which_the_token_was_first_read_in(name: str) -> None:
    model = gpt(**KINDS[name])
    maps, read, begins = attention_over(model, X_T), [model.begin, *X_T], 0
    for t in range(len(read)):
        if t - begins == CONTEXT:
            begins += model.config.moves
        with trace() as shown:
            model(torch.tensor([read[begins : t + 1]]))
        for a_HTT, a_1HTS in zip(maps.layers, shown["attention"], strict=True):
            torch.testing.assert_close(a_HTT[:, t, begins : t + 1], a_1HTS[0, :, -1], rtol=1e-10, atol=1e-13)
            assert not a_HTT[:, t, :begins].any()
    assert begins >= 2 * model.config.moves


def test_beyond_a_context_of_relative_places_the_oldest_token_is_forgotten() -> None:
    maps = attention_over(gpt(), X_T)
    assert maps.visible_T.tolist() == [min(t + 1, CONTEXT) for t in range(len(X_T) + 1)]
    assert not torch.cat(maps.layers).tril(-CONTEXT).any()
    assert attention_over(gpt(attention="linear"), X_T).visible_T.tolist() == list(range(1, len(X_T) + 2))


def test_attention_of_a_recurrent_network_is_the_map_of_one_head() -> None:
    model = attentive(memory=3)
    maps = attention_over(model, X_T)
    (head,) = heads_of(maps)
    state = model.start(1)
    for t, token in enumerate([model.begin, *X_T]):
        with trace() as shown:
            _, state = model.step(state, torch.tensor([token]))
        weights = shown["attention"][0][0].tolist() if "attention" in shown else []
        expected = [*[0.0] * (t - len(weights)), *weights, *[0.0] * (len(X_T) + 1 - t)]
        assert head.a_TS[t].tolist() == expected
    assert maps.visible_T.tolist()[:5] == [0, 1, 2, 3, 3]


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(UserError, match="gru has no view 'attention': it has gates, gradient-flow; models with such a"):
        attention_over(recurrent(GRU), X_T)


def test_reading_leaves_no_hook_and_the_training_mode_as_it_was() -> None:
    model = gpt(dropout=0.5).train()
    once, again = (attention_over(model, X_T).layers[0] for _ in range(2))
    assert torch.equal(once, again)
    assert layer_predictions(model, X_T)[1].bits == layer_predictions(model, X_T)[1].bits
    assert gradient_flow(model, X_T, 5) == gradient_flow(model, X_T, 5)
    assert model.training
    assert not any(part._forward_pre_hooks for part in model.modules())
    assert not any(weight.requires_grad for weight in model.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["full", "local", "linear", "dense"])
def test_a_model_on_a_gpu_shows_the_same(name: str) -> None:
    model = gpt(**KINDS[name])
    there = copy.deepcopy(model).cuda()
    torch.testing.assert_close(attention_over(there, X_T).layers, attention_over(model, X_T).layers)
    bits = [[layer.bits for layer in layer_predictions(one, X_T)] for one in (there, model)]
    assert bits[0] == pytest.approx(bits[1])
    assert gradient_flow(there, X_T, 5).norms == pytest.approx(gradient_flow(model, X_T, 5).norms)


# --- heads


def made(*maps: list[list[float]]) -> TokenMaps:
    """Maps of one layer, everything before visible."""
    a_HTT = torch.tensor(maps).double()
    return TokenMaps((a_HTT,), torch.arange(1, a_HTT.shape[1] + 1))


EVEN = [[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [1 / 4, 1 / 4, 1 / 4, 1 / 4]]
PREVIOUS = [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.75, 0.25]]
SINK = [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0.5, 0.5, 0, 0]]
ITSELF = [[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_the_figures_of_a_head_are_those_worked_out_by_hand() -> None:
    (head,) = heads_of(made(EVEN))
    assert head.entropies.tolist() == pytest.approx([0, 1, math.log2(3), 2])
    assert head.spreads.tolist() == pytest.approx([0, 1, 1, 1])
    assert head.distances.tolist() == pytest.approx([0, 0.5, 1, 1.5])
    assert (head.entropy, head.spread, head.distance) == pytest.approx(((3 + math.log2(3)) / 3, 1, 1))
    assert head.itself == head.previous == head.first == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    (head,) = heads_of(made(PREVIOUS))
    assert head.entropies.tolist() == pytest.approx([0, 0, 0, 2 - 0.75 * math.log2(3)])
    assert head.spreads[3] == pytest.approx((2 - 0.75 * math.log2(3)) / 2)
    assert head.distances.tolist() == pytest.approx([0, 1, 1, 0.75])
    assert (head.itself, head.previous, head.first) == pytest.approx((0.25 / 3, 2.75 / 3, 1 / 3))


def test_habits_have_names_and_the_notable_heads_are_reported() -> None:
    maps = made(EVEN, PREVIOUS, SINK, ITSELF)
    assert [head.kind for head in heads_of(maps)] == ["spread", "previous token", "attention sink", "itself"]
    assert in_words(maps) == [
        "the most local is layer 1 head 4: it attends 0.0 tokens back on average",
        "the most spread is layer 1 head 1: 1.5 bits, 100% of what is possible",
        "mostly to the previous token attends layer 1 head 2 (92%)",
        "the begin token is an attention sink, which takes most of the weight, of layer 1 head 3 (83%)",
    ]
    assert [head.head for head in notable(maps)] == [2, 4, 3, 1]
    assert heads_table(maps)[1][1] == ("1", "2", "0.27", "14%", "0.9", "8%", "92%", "33%", "previous token")


def test_the_greatest_entropy_counts_only_what_is_visible() -> None:
    head = AttentionHead(1, 1, torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]]), torch.tensor([1, 2, 2]))
    assert head.spreads.tolist() == [0, 1, 1]


# --- depths


@pytest.mark.parametrize("name", KINDS)
def test_the_last_depth_is_the_models_own_prediction_exactly(name: str) -> None:
    model = gpt(Byte().vocab, **KINDS[name])
    for piece in pieces(model, [model.begin, *X_T], watched=False):
        assert torch.equal(logits_at(model, piece.streams[-1]), piece.logits_TV)
    last = layer_predictions(model, X_T)[-1]
    annotated = surprises(model, Byte(), bytes(X_T))
    assert last.bits_N.tolist() == pytest.approx([one.bits for one in annotated], rel=1e-9)
    assert last.p_N.tolist() == pytest.approx([one.candidates[0][1] for one in annotated], rel=1e-9)
    assert last.right_N.tolist() == [one.rank == 1 for one in annotated]


def test_the_other_depths_are_norm_and_output_weights_alone() -> None:
    model = gpt(positions="learned", tied=False)
    x_T = X_T[: CONTEXT - 1]
    depths = layer_predictions(model, x_T)
    assert [depth.name for depth in depths] == ["embedding", "layer 1", "layer 2"]
    assert model.positions_CD is not None
    read = torch.tensor([model.begin, *x_T[:-1]])
    stream_TD = model.embedding_VD[read] + model.positions_CD[: len(read)]
    with trace() as shown:
        model(read[None])
    for depth, at_TD in zip(depths, (stream_TD, shown["stream"][0][0], shown["stream"][1][0]), strict=True):
        scaled_TD = at_TD / (at_TD.square().mean(-1, keepdim=True) + 1e-5).sqrt() * model.norm.weight_D
        p_TV = (scaled_TD @ model.output_weight.T).softmax(-1)
        torch.testing.assert_close(depth.p_N, p_TV.max(-1).values)
        assert torch.equal(depth.top_N, p_TV.argmax(-1))
        torch.testing.assert_close(depth.bits_N, -p_TV[range(len(x_T)), x_T].log2())
        assert depth.bits == pytest.approx(float(depth.bits_N.mean()))
        assert depth.right == pytest.approx(sum(depth.top_N[n] == x for n, x in enumerate(x_T)) / len(x_T))


# --- gradients


def by_token(model: GPT, x_T: list[int], T: int) -> Tensor:
    """The norm of the gradient of the loss of step T with respect to each token's row of the embeddings."""
    copied = copy.deepcopy(model)
    copied.embedding_VD.requires_grad_()
    read = [copied.begin, *x_T]
    loss = -copied(torch.tensor([read[: T + 1]]))[0, -1].log_softmax(-1)[read[T + 1]]
    (grad_VD,) = torch.autograd.grad(loss, copied.embedding_VD)
    return grad_VD[read[: T + 1]].norm(dim=-1)


@pytest.mark.parametrize("name", KINDS)
def test_the_gradient_is_that_of_each_tokens_embedding(name: str) -> None:
    """Where no token comes twice and the output weights are others, a row of the embeddings is one token's."""
    model = gpt(40, tied=False, **KINDS[name])
    x_T, back = torch.randperm(39, generator=seeded_generator(4)).tolist()[:30], 14
    flow = gradient_flow(model, x_T, back, ends=6)
    ends = [back, 17, 20, 23, 26, 29]
    assert flow.ends == len(ends)
    mean_T = torch.stack([by_token(model, x_T, T)[T - back :].flip(0) for T in ends]).mean(0)
    assert flow.norms == pytest.approx(mean_T.tolist(), rel=1e-9, abs=1e-15)
    assert any(norm > 1e-6 for norm in flow.norms[1:])


def nudged(model: GPT, depth: int, read: list[int], after: int) -> Tensor:
    """The gradient of the last loss with respect to what could be added where a block, or the last norm, is entered."""
    copied = copy.deepcopy(model)
    added_1TD = torch.zeros(1, len(read), model.config.width).double().requires_grad_()
    entered: Any = copied.blocks[depth] if depth < len(copied.blocks) else copied.norm
    name = "absorb" if depth < len(copied.blocks) else "forward"
    as_it_was = getattr(entered, name)
    setattr(entered, name, lambda x_1TD, *others: as_it_was(x_1TD + added_1TD, *others))
    loss = -copied(torch.tensor([read]))[0, -1].log_softmax(-1)[after]
    return torch.autograd.grad(loss, added_1TD)[0]


@pytest.mark.parametrize("name", ["full", "local", "linear", "alibi", "shared keys"])
def test_the_gradient_at_each_depth_is_that_of_the_blocks_above(name: str) -> None:
    model, back = gpt(layers=3, **KINDS[name]), 8
    flow = gradient_flow(model, X_T[: back + 1], back)
    assert flow.ends == 1
    for depth in range(4):
        grad_1TD = nudged(model, depth, [model.begin, *X_T[:back]], X_T[back])
        assert flow.depths[depth] == pytest.approx(float(grad_1TD.norm()), rel=1e-9)
        by_distance = {0: flow.norms, 1: flow.parts["after layer 1"], 2: flow.parts["after layer 2"]}
        if depth in by_distance:
            expected = grad_1TD[0].norm(dim=-1).flip(0).tolist()
            assert by_distance[depth] == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert set(flow.parts) == {"after layer 1", "after layer 2"}


def test_a_local_model_of_two_layers_reaches_twice_as_far_as_one() -> None:
    flow = gradient_flow(gpt(attention="local"), X_T, 10)
    assert all(norm > 0 for norm in flow.norms[: 2 * (REACH - 1) + 1])
    assert not any(flow.norms[2 * (REACH - 1) + 1 :])
    assert not any(flow.parts["after layer 1"][REACH:])


# --- figures


def test_long_maps_are_drawn_by_their_largest_weights() -> None:
    a_TT = torch.zeros(7, 7)
    a_TT[6, 5], a_TT[2, 2], a_TT[3, 2] = 0.9, 0.3, 0.4
    small = shrink(a_TT, 3)
    assert small.shape == (3, 3)
    assert small[2, 1] == pytest.approx(0.9)
    assert small[0, 0] == pytest.approx(0.3)
    assert small[1, 0] == pytest.approx(0.4)
    assert float(small.sum()) == pytest.approx(1.6)
    assert torch.equal(shrink(a_TT, 1), a_TT)


def test_a_short_map_has_a_cell_for_each_token() -> None:
    figure = maps_figure(made(SINK))
    assert [one.attrib["d"] for one in elements(figure, "path")] == [
        "M0 3h2v1h-2z", "M0 0h1v1h-1zM0 1h1v1h-1zM0 2h1v1h-1z"]  # fmt: skip
    assert "A cell stands for" not in figure


def test_many_long_maps_stay_small() -> None:
    T, H = 1001, 16
    a_HTT = torch.rand(H, T, T, generator=seeded_generator(1)).tril()
    maps = TokenMaps((a_HTT / a_HTT.sum(-1, keepdim=True),) * 2, torch.arange(1, T + 1))
    figure = maps_figure(maps)
    assert len(figure) < 32 * 12_000
    assert (
        f"A cell stands for {-(-T // MAP_CELLS)} × {-(-T // MAP_CELLS)} tokens and shows the largest weight" in figure
    )
    assert Page(figure).tags.count("svg") == 2 * H + 1  # and the scale


def test_a_shaded_table_escapes_its_texts_and_bounds_its_shades() -> None:
    figure = heat_table(
        (HOSTILE, "b"), [(HOSTILE, [Shaded("x", 7.0, HOSTILE)]), ("r", [Shaded("y", -1.0, "")])], HOSTILE
    )
    page = Page(figure)
    assert not {"script", "img"} & set(page.tags)
    assert re.findall(r'<td class="h(\d)"', figure) == ["7", "0"]


# --- the page and the command


SAID = "To be, or not to be: naïve\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, config in (("gpt", {}), ("linear", {"attention": "linear"}), ("learned", {"positions": "learned"})):
        Run(gpt(Byte().vocab, **config).float(), Byte(), {}).save(folder / name)
    network = GRU(RecurrentConfig(width=8), Byte().vocab)
    network.initialise(seeded_generator(1))
    Run(network, Byte(), {}).save(folder / "gru")
    return folder


@pytest.fixture
def octavo(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    monkeypatch.chdir(runs)
    return verb_caller("inspect", capsys)


def test_a_transformer_shows_its_heads_its_depths_and_its_gradient(octavo: Callable[..., Any]) -> None:
    code, out, err = octavo("gpt", "--text", SAID)
    assert (code, err) == (0, "")
    assert f"bits for {len(SAID.encode())} bytes" in out
    assert re.search(r"layer +head +entropy +of possible +distance +to itself +to previous +to begin +kind", out)
    assert len(re.findall(r"^ +[12] +[12] +\d\.\d\d +\d+% +\d", out, re.M)) == 4
    assert re.search(r"embedding +\d+\.\d{3} +\d+%", out)
    bits = float(re.search(r"layer 2 +(\d+\.\d{3})", out)[1])  # type: ignore[index]
    whole = float(re.search(r"([\d.]+) bits for", out)[1])  # type: ignore[index]
    assert bits == pytest.approx(whole / len(SAID.encode()), abs=0.003)
    assert re.search(r"gpt +(shrinks|grows|keeps)[^\n]* from t = 1", out)
    assert "after layer 1" in out


def test_transformers_and_recurrent_networks_stand_side_by_side(octavo: Callable[..., Any]) -> None:
    code, out, err = octavo("gpt", "gru", "linear", "learned", "--text", SAID)
    assert (code, err) == (0, "")
    assert "heads of gpt" in out
    assert "heads of linear" in out
    assert "gates of gru" in out
    assert "heads of gru" not in out
    first = [line.split("  ")[0] for line in out[out.index("t steps back") :].splitlines()]
    assert [word for word in first if word in ("gpt", "gru", "linear", "learned")] == [
        "gpt",
        "gru",
        "linear",
        "learned",
    ]


def test_json_holds_maps_heads_depths_and_gradients(octavo: Callable[..., Any]) -> None:
    code, out, _ = octavo("learned", "--text", "ab" * 40, "--json")
    report = json.loads(out)
    assert code == 0
    assert [one["token"] for one in report["surprisal"][:3]] == ["a", "b", "a"]
    (run,) = report["runs"]
    assert run["mapped_tokens"] == MAX_MAPPED_TOKENS
    assert [(head["layer"], head["head"]) for head in run["heads"]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for head in run["heads"]:
        assert [len(row) for row in head["map"]] == list(range(1, MAX_MAPPED_TOKENS + 1))
        assert all(sum(row) == pytest.approx(1, abs=0.002) for row in head["map"])
        assert len(head["entropies"]) == len(head["distances"]) == 81
    assert [depth["name"] for depth in run["logit_lens"]] == ["embedding", "layer 1", "layer 2"]
    bits = [one["bits"] for one in report["surprisal"]]
    assert run["logit_lens"][-1]["bits"] == pytest.approx(bits, abs=1e-3)
    assert len(run["gradient_flow"]["layers"]) == 3
    several = json.loads(octavo("gpt", "gru", "--text", SAID, "--back", "3", "--json")[1])["runs"]
    assert "heads" in several[0]
    assert "heads" not in several[1]
    assert len(several[0]["gradient_flow"]["norms"]) == 4


def test_the_page_shows_maps_and_depths_and_is_closed(octavo: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "lens.html"
    code, _, err = octavo("gpt", "gru", "learned", "--text", SAID, "--out", str(out))
    assert (code, err) == (0, f"the page is {out}\n")
    page = Page(out.read_text(encoding="utf-8"))
    assert not {"script", "img", "canvas"} & set(page.tags)
    assert not [value for name, value in page.attributes if name in ("src", "href")]
    assert page.text.count("Attention maps") == 2
    assert page.text.count("a full context") == 0
    assert page.text.count("its last tokens are processed again") == 1  # only where places are counted from a beginning
    assert page.text.count("Logit lens") == 2
    assert "Inside gru" in page.text


def test_a_page_of_hostile_text_is_safe() -> None:
    run = Run(gpt(Byte().vocab).float(), Byte(), {})
    page = Page(inspect_page([inspect_run(run, HOSTILE)], HOSTILE, HOSTILE))
    assert not {"script", "img"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text


def test_a_thousand_tokens_make_a_small_page_and_the_rest_is_cut() -> None:
    run = Run(gpt(Byte().vocab, width=16, heads=4).float(), Byte(), {})
    one = inspect_run(run, "to be or not " * 100)
    assert one.truncated
    assert one.read == MAX_TOKENS
    assert one.tokens[0] == BEGIN
    html = inspect_page([one], "", "")
    assert len(html) < 700_000
    assert "Only the first 1,000 tokens were read" in html


def test_maps_of_many_heads_are_bounded_by_looking_at_fewer_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "MAX_MAP_WEIGHTS", 4 * 10 * 10)
    one = inspect_run(Run(gpt(Byte().vocab).float(), Byte(), {}), SAID)
    assert one.truncated
    assert one.read == 10


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("gpt", "gru", "--text", ""), "the text is empty"),
        (("gpt", "gru", "--text", "a"), "at least 2 tokens: this has 1"),
        (("gpt", "--text", "abc", "--back", "3"), "back=3, tokens=3; try --back 1"),
    ],
)
def test_mistakes_are_reported_in_one_line(octavo: Callable[..., Any], words: tuple[str, ...], part: str) -> None:
    code, out, err = octavo(*words)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1


def test_one_token_is_shown_without_a_logit_lens(octavo: Callable[..., Any]) -> None:
    code, out, err = octavo("gpt", "--text", "a")
    assert code == 0
    assert "bits for 1 bytes" in out
    assert "at least 2 tokens" in err
    assert [one["token"] for one in json.loads(octavo("gpt", "--text", "a", "--json")[1])["surprisal"]] == ["a"]
