"""The lens for recurrent models: gates are the equations', gradients are autograd's, and theory holds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from command_line import verb_caller
from examples import VOCAB, attentive, mixed, recurrent, text
from html_pages import HOSTILE, Page
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.inspection.api import MAX_MAPPED_TOKENS
from octavo.inspection.attention_maps import attention_over
from octavo.inspection.gradient_flow import (
    default_back,
    gradient_flow,
    has_gradient,
    in_words,
    orthogonal_flow,
    rate,
    relative,
)
from octavo.inspection.inspection import MAX_TOKENS, inspect_run
from octavo.inspection.page import inspect_page
from octavo.inspection.views import token_rows
from octavo.models.bag import Bag, BagConfig
from octavo.models.mix import Mix, MixConfig
from octavo.models.recurrent import GRU, LSTM, RNN, RecurrentConfig
from octavo.models.rnn_attention import RNNAttention, RNNAttentionConfig
from octavo.models.views import TokenRow
from octavo.tasks.run import Run
from octavo.text import Byte
from octavo.text.token_display import BEGIN
from tiny_models import Dropped, Recurrent, random_markov

X_T: list[int] = text(30)[1:].tolist()
WITH_STATE: dict[str, Callable[[], Any]] = {
    "rnn": lambda: recurrent(RNN), "gru": lambda: recurrent(GRU), "lstm": lambda: recurrent(LSTM),
    "attention": lambda: attentive(memory=4), "additive": lambda: attentive(score="additive", memory=0),
    "gru with attention": lambda: attentive(cell="gru", memory=3),
}  # fmt: skip


# --- gates


def test_the_gates_of_a_gru_are_its_equations() -> None:
    model = recurrent(GRU, layers=1)
    w = model.layers[0].weights
    found = {gate.name: gate.value_TD for gate in token_rows(model, X_T)}
    h_D = torch.zeros(6, dtype=torch.float64)
    for t, token in enumerate([model.begin, *X_T]):
        Wx = w.ih_GI @ model.embedding_VD[token] + w.bias_ih_G
        Uh = w.hh_GD @ h_D + w.bias_hh_G
        r, z = (Wx + Uh)[:6].sigmoid(), (Wx + Uh)[6:12].sigmoid()
        n = (Wx[12:] + r * Uh[12:]).tanh()
        h_D = (1 - z) * n + z * h_D
        for name, expected in (("reset", r), ("update", z), ("candidate", n), ("hidden", h_D)):
            torch.testing.assert_close(found[name][t], expected, rtol=1e-12, atol=1e-12)


def test_layers_are_distinguished_from_the_bottom_up() -> None:
    model = recurrent(LSTM, layers=3)
    gates = token_rows(model, X_T)
    assert [(gate.layer, gate.name) for gate in gates] == [
        (layer, name) for layer in (1, 2, 3) for name in ("input", "forget", "candidate", "output", "cell", "hidden")
    ]
    _, state = model.absorb(model.start(1), torch.tensor([[model.begin, *X_T]]))
    for layer, (h_1D, c_1D) in enumerate(state, 1):
        last = {gate.name: gate.value_TD[-1] for gate in gates if gate.layer == layer}
        torch.testing.assert_close((last["hidden"], last["cell"]), (h_1D[0], c_1D[0]), rtol=1e-12, atol=1e-12)


def test_saturation_is_counted_at_the_ends_of_each_kind_of_value() -> None:
    values = torch.tensor([[0.05, 0.5, 0.95, 0.99], [-0.95, 0.05, 0.5, 0.95]])
    door, signed, cell = (TokenRow(name, 1, values, name != "forget") for name in ("forget", "hidden", "cell"))
    assert door.low.tolist() == [0.25, 0.5]
    assert door.high.tolist() == [0.5, 0.25]
    assert signed.low.tolist() == [0, 0.25]
    assert signed.high.tolist() == [0.5, 0.25]
    assert cell.high.tolist() == [0, 0]  # tanh(0.99) is 0.76
    torch.testing.assert_close(signed.mean, values.mean(1))
    torch.testing.assert_close(signed.strength, values.abs().mean(1))
    torch.testing.assert_close(cell.strength, values.tanh().abs().mean(1))


@pytest.mark.parametrize("memory", [0, 3])
def test_attention_is_laid_out_over_the_tokens_before(memory: int) -> None:
    model = attentive(memory=memory)
    (hidden,), maps = token_rows(model, X_T), attention_over(model, X_T)
    assert hidden.name == "hidden"
    assert maps.visible_T.tolist() == [min(t, memory or t) for t in range(len(X_T) + 1)]
    attention = [row[:t] for t, row in enumerate(maps.layers[0][0].tolist())]
    for t, row in enumerate(attention[1:], 1):
        assert sum(row) == pytest.approx(1)
        assert memory == 0 or all(weight == 0 for weight in row[: max(0, t - memory)])
        assert all(weight > 0 for weight in row[max(0, t - (memory or t)) :])
    # The second step attends to two states: softmax of s·h / sqrt(D).
    _, (h0, memory1) = model.step(model.start(1), torch.tensor([model.begin]))
    _, (h1, _) = model.step((h0, memory1), torch.tensor(X_T[:1]))
    s_1D = hidden.value_TD[2]
    e_M = torch.stack([s_1D @ h0[0], s_1D @ h1[0]]) / math.sqrt(6)
    assert attention[2] == pytest.approx(e_M.softmax(0).tolist(), rel=1e-9)


def test_models_without_gates_and_mixtures_show_none() -> None:
    assert token_rows(Bag.fit(text(), BagConfig(), VOCAB), X_T) == ()
    assert token_rows(Mix(MixConfig(), [recurrent(GRU), recurrent(LSTM)]), X_T) == ()


def test_reading_leaves_training_mode_and_weights_as_they_were() -> None:
    model = recurrent(GRU, dropout=0.5).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    once, again = (token_rows(model, X_T)[0].value_TD for _ in range(2))
    assert torch.equal(once, again)
    assert gradient_flow(model, X_T, 5) == gradient_flow(model, X_T, 5)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


# --- gradients


def flat(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [tensor for part in state for tensor in flat(part)]


def rebuilt(like: Any, tensors: list[Tensor]) -> Any:
    return tensors.pop(0) if isinstance(like, Tensor) else tuple(rebuilt(part, tensors) for part in like)


def loss_from(model: Any, state: Any, x: list[int]) -> Tensor:
    """-log p of the last token, when the model goes on from a state and reads the others."""
    for token in x[:-1]:
        logits_1V, state = model.step(state, torch.tensor([token]))
    return -logits_1V[0].log_softmax(-1)[x[-1]]


def state_at(model: Any, k: int) -> Any:
    state = model.start(1)
    for token in [model.begin, *X_T][:k]:
        _, state = model.step(state, torch.tensor([token]))
    return state


def gradients_by_hand(model: Any, T: int, t: int) -> list[Tensor]:
    """Those of the loss of step T with respect to the state that step T - t begins with, cut off from its past."""
    state = state_at(model, T - t)
    leaves = [tensor.clone().requires_grad_() for tensor in flat(state)]
    loss = loss_from(model, rebuilt(state, list(leaves)), [model.begin, *X_T][T - t : T + 2])
    return list(torch.autograd.grad(loss, leaves, materialize_grads=True))


def norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


@pytest.mark.parametrize("name", [name for name in WITH_STATE if "attention" not in name and name != "additive"])
def test_the_norms_are_those_of_autograd_from_a_state_cut_off_from_its_past(name: str) -> None:
    model, back = WITH_STATE[name](), 9
    flow = gradient_flow(model, X_T[: back + 1], back)  # so short a text has but one loss, at T = back
    assert flow.ends == 1
    for t in range(back + 1):
        grads = gradients_by_hand(model, back, t)
        assert flow.norms[t] == pytest.approx(norm(grads), rel=1e-10)
        each = 2 if name == "lstm" else 1
        assert flow.parts["layer 1"][t] == pytest.approx(norm(grads[:each]), rel=1e-10)
        assert flow.parts["layer 2"][t] == pytest.approx(norm(grads[each:]), rel=1e-10)
        if name == "lstm":
            assert flow.parts["h"][t] == pytest.approx(norm(grads[::2]), rel=1e-10)
            assert flow.parts["c"][t] == pytest.approx(norm(grads[1::2]), rel=1e-10)


@pytest.mark.parametrize("name", ["attention", "additive", "gru with attention"])
def test_with_attention_a_state_counts_by_recurrence_and_through_the_memory(name: str) -> None:
    model, back = WITH_STATE[name](), 9
    flow = gradient_flow(model, X_T[: back + 1], back)
    direct_only = []
    for t in range(back):
        h_1D, memory_1MD = gradients_by_hand(model, back, t)
        assert flow.norms[t] == pytest.approx(norm([h_1D + memory_1MD[:, -1]]), rel=1e-10)
        direct_only.append(norm([h_1D]))
        if memory_1MD.shape[1] > 1:
            assert flow.parts["memory"][t] == pytest.approx(norm([memory_1MD[:, :-1]]), rel=1e-10)
    assert flow.norms[back] == pytest.approx(norm(gradients_by_hand(model, back, back)), rel=1e-10)
    assert math.isnan(flow.parts["memory"][back])  # nothing is remembered at the start
    assert flow.norms[5] != pytest.approx(direct_only[5], rel=1e-3)


@pytest.mark.parametrize("name", WITH_STATE)
def test_the_norms_are_those_of_finite_differences(name: str) -> None:
    """Nudging a state by ε in any direction changes the loss by ε times the gradient; with attention, h is nudged in
    both places where it lies."""
    model, back, t, small = WITH_STATE[name](), 7, 4, 1e-6
    flow = gradient_flow(model, X_T[: back + 1], back)
    state = state_at(model, back - t)
    read = [model.begin, *X_T][back - t : back + 2]
    tensors = flat(state)
    places = [(0, d) for d in range(tensors[0].numel())] if isinstance(model, RNNAttention) else [
        (i, d) for i, tensor in enumerate(tensors) for d in range(tensor.numel())
    ]  # fmt: skip
    total = 0.0
    for i, d in places:
        sides = []
        for sign in (1, -1):
            moved = [tensor.clone() for tensor in tensors]
            moved[i].view(-1)[d] += sign * small
            if isinstance(model, RNNAttention):
                moved[1][0, -1, d] += sign * small
            sides.append(float(loss_from(model, rebuilt(state, moved), read)))
        total += ((sides[0] - sides[1]) / (2 * small)) ** 2
    assert flow.norms[t] == pytest.approx(math.sqrt(total), rel=1e-5)


def test_several_losses_are_averaged_geometrically_and_all_have_the_whole_way_back() -> None:
    model, back, tokens = recurrent(GRU), 5, 9
    flow = gradient_flow(model, X_T[:tokens], back)
    assert flow.ends == tokens - back
    for t in range(back + 1):
        each = [norm(gradients_by_hand(model, T, t)) for T in range(back, tokens)]
        assert flow.norms[t] == pytest.approx(math.prod(each) ** (1 / len(each)), rel=1e-10)


def test_single_precision_models_are_measured_in_double_precision() -> None:
    model = recurrent(RNN)
    single = recurrent(RNN).float()
    assert gradient_flow(single, X_T, 20).norms == pytest.approx(gradient_flow(model, X_T, 20).norms, rel=1e-4)
    assert next(single.parameters()).dtype == torch.float32


def test_any_model_with_real_numbers_in_its_state_will_do() -> None:
    """Also one that octavo does not know, one with dropout, and a mixture of counts and a network."""
    for model in (Recurrent(VOCAB), Dropped(VOCAB), Mix(MixConfig(), [mixed().parts[0], recurrent(GRU)])):
        flow = gradient_flow(model, X_T, 6)
        assert len(flow.norms) == 7
        assert all(0 < value < math.inf for value in flow.norms)


@pytest.mark.parametrize("model", [Bag.fit(text(), BagConfig(), VOCAB), random_markov(VOCAB), mixed()])
def test_a_model_without_a_state_of_real_numbers_is_refused(model: Any) -> None:
    assert not has_gradient(model)
    with pytest.raises(UserError, match=f"{type(model).__name__} has no state that a gradient could flow through"):
        gradient_flow(model, X_T, 3)


@pytest.mark.parametrize(
    ("tokens", "back", "part"),
    [(0, 1, "at least 2 tokens: this has 0"), (1, 1, "at least 2 tokens: this has 1"), (5, 0, "back=0, tokens=5"),
     (5, 5, "back=5, tokens=5; try --back 2"), (5, -1, "back=-1")],
)  # fmt: skip
def test_a_text_too_short_is_refused(tokens: int, back: int, part: str) -> None:
    with pytest.raises(UserError, match=part):
        gradient_flow(recurrent(RNN), X_T[:tokens], back)


def test_the_default_way_back_always_fits() -> None:
    assert [default_back(tokens) for tokens in (2, 3, 4, 18, 80, 5000)] == [1, 1, 2, 9, 40, 40]


# --- theory


@pytest.mark.parametrize("scale", [0.9, 1.0, 1.1])
def test_in_a_linear_network_an_orthogonal_matrix_scales_the_gradient_exactly(scale: float) -> None:
    flow = orthogonal_flow(scale, 50)
    assert relative(flow.norms) == pytest.approx([scale**t for t in range(51)], rel=1e-10)
    assert rate(flow.norms) == pytest.approx(scale, rel=1e-10)


@pytest.mark.parametrize("scale", [0.9, 1.0, 1.1])
def test_a_tanh_lets_at_most_that_through_and_nearly_that_when_it_is_near_zero(scale: float) -> None:
    powers = [scale**t for t in range(31)]
    small = relative(orthogonal_flow(scale, 30, "tanh", inputs=1e-6).norms)
    assert small == pytest.approx(powers, rel=1e-6)
    large = relative(orthogonal_flow(scale, 30, "tanh", inputs=1.0).norms)
    assert all(value <= power * (1 + 1e-12) for value, power in zip(large, powers, strict=True))
    assert large[30] < 0.1 * powers[30]


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_an_rnn_with_scaled_orthogonal_weights_vanishes_or_explodes(scale: float) -> None:
    model = RNN(RecurrentConfig(width=24, layers=1, tied=False), VOCAB)
    model.initialise(seeded_generator(3))
    model.double()
    nn.init.orthogonal_(model.layers[0].weight_hh, generator=seeded_generator(4))
    with torch.no_grad():
        model.layers[0].weight_hh.mul_(scale)
        model.embedding_VD.mul_(1e-6)  # inputs so small that tanh is the identity
    shares = relative(gradient_flow(model, [3, 1, 4, 1, 5, 9, 2, 6] * 6, 24).norms)
    assert shares == pytest.approx([scale**t for t in range(25)], rel=1e-6)


def test_a_forget_gate_that_is_open_carries_the_cell_on_and_a_shut_one_does_not() -> None:
    def with_forget(bias: float) -> float:
        model = LSTM(RecurrentConfig(width=8, layers=1, forget_bias=bias), VOCAB)
        model.initialise(seeded_generator(1))
        with torch.no_grad():
            model.layers[0].weight_hh.mul_(0.01)
        return rate(gradient_flow(model, X_T, 12).parts["c"][1:])

    assert with_forget(8.0) == pytest.approx(1, abs=0.03)
    assert with_forget(-2.0) < 0.3


def test_attention_reaches_where_recurrence_does_not() -> None:
    """With weak recurrence an earlier state arrives only as long as it is remembered."""

    def flow(memory: int) -> tuple[float, ...]:
        model = RNNAttention(RNNAttentionConfig(width=8, memory=memory), VOCAB)
        model.initialise(seeded_generator(1))
        with torch.no_grad():
            model.recurrent.weight_hh.mul_(0.01)
        return relative(gradient_flow(model, X_T, 12).norms)

    assert flow(0)[12] > 1e-2
    assert flow(1)[12] > 1e-2  # the newest state remembers the one before: h = s + h
    plain = RNN(RecurrentConfig(width=8, layers=1), VOCAB)
    plain.initialise(seeded_generator(1))
    with torch.no_grad():
        plain.layers[0].weight_hh.mul_(0.01)
    assert relative(gradient_flow(plain, X_T, 12).norms)[12] < 1e-20


@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.93, "shrinks by 7 % a step"), (1.1, "grows by 10 % a step"), (1.0, "keeps its size"),
     (0.5, "shrinks by 50 % a step"), (0.004, "shrinks by 99.6 % a step"), (25.0, "grows 25 times a step"),
     (math.nan, "does not arrive")],
)  # fmt: skip
def test_a_factor_is_written_in_words(factor: float, words: str) -> None:
    assert in_words(factor) == words


def test_the_rate_is_the_slope_of_the_logarithms_and_skips_what_has_none() -> None:
    assert rate((4.0, 2.0, 1.0, 0.5)) == pytest.approx(0.5)
    assert rate((4.0, math.nan, 1.0, 0.0, 0.25, math.inf)) == pytest.approx(0.5)
    assert math.isnan(rate((1.0, 0.0, 0.0)))
    assert all(math.isnan(share) for share in relative((0.0, 0.0)))


def test_the_busiest_units_vary_most() -> None:
    values = torch.tensor([[0.0, 1.0, -0.5], [0.1, -1.0, 0.5], [0.0, 1.0, -0.5]])
    assert TokenRow("hidden", 1, values).busiest(2) == [1, 2]
    assert len(TokenRow("hidden", 1, values).busiest(9)) == 3


# --- the page and the command


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    made: dict[str, Any] = {
        "rnn": RNN(RecurrentConfig(width=8, layers=1), 257), "gru": GRU(RecurrentConfig(width=8), 257),
        "lstm": LSTM(RecurrentConfig(width=8), 257), "rnn-attention": RNNAttention(RNNAttentionConfig(width=8), 257),
    }  # fmt: skip
    for name, model in made.items():
        model.initialise(seeded_generator(1))
        Run(model, Byte(), {}).save(folder / name)
    Run(Bag.fit(torch.tensor([256, *b"a text"]), BagConfig(), 257), Byte(), {}).save(folder / "bag")
    return folder


@pytest.fixture
def octavo(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    monkeypatch.chdir(runs)
    return verb_caller("inspect", capsys)


FOUR = ("rnn", "gru", "lstm", "rnn-attention")
SAID = "To be, or not to be: naïve\n"


def test_several_runs_stand_in_one_table_with_the_theory(octavo: Callable[..., Any]) -> None:
    code, out, err = octavo(*FOUR, "--text", SAID)
    assert (code, err) == (0, "")
    table = out[out.index("t steps back") :]
    first = [line.split("  ")[0] for line in table.splitlines()]
    assert [word for word in first if word in FOUR] == list(FOUR)
    assert re.search(r"orthogonal × 0.9, linear +shrinks by 10 % a step +0.9 +0.81 +0.656", table)
    assert re.search(r"orthogonal × 1.1, linear +grows by 10 % a step +1.1 +1.21 +1.46", table)
    assert re.search(r"forget +0.\d\d +\d+% +\d+% +how much of the cell is retained", out)


def test_json_holds_the_gates_the_norms_and_the_theory(octavo: Callable[..., Any]) -> None:
    code, out, _ = octavo(*FOUR, "--text", SAID, "--back", "7", "--json")
    report = json.loads(out)
    assert code == 0
    assert [run["model"] for run in report["runs"]] == list(FOUR)
    for run in report["runs"]:
        assert run["tokens"][:3] == [BEGIN, "T", "o"]
        assert len(run["gradient_flow"]["norms"]) == 8
        assert run["gradient_flow"]["losses"] == len(SAID.encode()) - 7
        assert all(len(gate["mean"]) == len(run["tokens"]) for gate in run["gates"])
    assert {gate["gate"] for gate in report["runs"][2]["gates"]} >= {"input", "forget", "output", "cell"}
    assert set(report["runs"][2]["gradient_flow"]["parts"]) == {"h", "c", "layer 1", "layer 2"}
    (head,) = report["runs"][3]["heads"]
    assert len(head["map"]) == len(report["runs"][3]["tokens"])
    assert report["theory"][0]["norms"] == pytest.approx([0.9**t for t in range(8)])


def test_json_has_every_row_of_a_single_heads_attention(octavo: Callable[..., Any]) -> None:
    text = SAID * (1 + 2 * MAX_MAPPED_TOKENS // len(SAID))
    (run,) = json.loads(octavo("rnn-attention", "--text", text, "--back", "2", "--json")[1])["runs"]
    (head,) = run["heads"]
    assert run["mapped_tokens"] == len(run["tokens"]) > 2 * MAX_MAPPED_TOKENS
    assert [len(row) for row in head["map"]] == list(range(1, len(run["tokens"]) + 1))
    assert [sum(row) for row in head["map"][1:]] == pytest.approx([1] * (len(run["tokens"]) - 1), abs=0.01)


def test_one_run_keeps_its_token_table_and_adds_what_the_lens_sees(octavo: Callable[..., Any]) -> None:
    code, out, err = octavo("gru", "--text", "to be")
    assert (code, err) == (0, "")
    assert "bits for 5 bytes" in out
    assert "gates of gru" in out
    assert "t steps back" in out
    written = json.loads(octavo("gru", "--text", "to be", "--json")[1])
    assert [token["token"] for token in written["surprisal"]] == list("to␣be")
    assert "t steps back" not in octavo("bag", "--text", "to be")[1]
    assert octavo("gru")[0] == 0


def test_the_page_is_whole_and_closed_and_shows_every_run(octavo: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "lens.html"
    code, _, err = octavo(*FOUR, "--text", SAID, "--out", str(out))
    assert (code, err) == (0, f"the page is {out}\n")
    page = Page(out.read_text(encoding="utf-8"))
    assert page.tags.count("figure") == 1 + 2 + 3 + 3 + 5  # curves, then layers and units, and three of attention
    assert "script" not in page.tags
    assert not [value for name, value in page.attributes if name in ("src", "href")]
    assert all(f"Inside {name}" in page.text for name in FOUR)
    assert "octavo inspect rnn gru lstm rnn-attention --text" in page.verbatim[-1]


def test_a_page_of_hostile_text_is_safe(runs: Path) -> None:
    run = Run(GRU(RecurrentConfig(width=4, layers=1), 257), Byte(), {})
    run.model.initialise(seeded_generator(1))
    page = Page(inspect_page([inspect_run(run, HOSTILE)], HOSTILE, HOSTILE))
    assert not {"script", "img"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text


def test_a_long_text_is_cut_and_that_is_said(octavo: Callable[..., Any]) -> None:
    words = ("rnn", "--text", "ab" * MAX_TOKENS, "--back", "2")
    (report,) = json.loads(octavo(*words, "--json")[1])["runs"]
    assert report["truncated"]
    assert len(report["tokens"]) == MAX_TOKENS + 1
    assert octavo(*words)[2] == f"only the first {MAX_TOKENS:,} tokens were read\n"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("bag", "--text", "abc", "--back", "2"), "the model bag has no gradient flow to follow: back=2; leave it out"),
        (("rnn", "gru", "--text", ""), "the text is empty"),
        (("rnn", "gru", "--text", "a"), "at least 2 tokens: this has 1"),
        (("rnn", "--text", "abc", "--back", "3"), "back=3, tokens=3; try --back 1"),
        (("rnn", "gru"), "there must be a text with several runs"),
        (("rnn", "--out", "x.html"), "there must be a text with --out"),
        (("rnn", "nowhere", "--text", "abc"), "nowhere is not a run"),
        (("rnn", "--text", "abc", "--out", "gru"), "gru exists and is not replaced"),
        (("rnn", "--text", "abc", "--out", "gru", "--force"), "cannot write gru"),
        ((), "inspect needs at least one run"),
    ],
)
def test_mistakes_are_reported_in_one_line(octavo: Callable[..., Any], words: tuple[str, ...], part: str) -> None:
    code, out, err = octavo(*words)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert not Path("x.html").exists()


@pytest.mark.parametrize(("said", "tokens"), [("a", 1), ("", 0)])
def test_too_short_a_text_still_shows_its_tokens(octavo: Callable[..., Any], said: str, tokens: int) -> None:
    code, out, err = octavo("rnn", "--text", said)
    assert code == 0
    assert f"bits for {tokens} bytes" in out
    assert err == f"the model's views need a text of at least 2 tokens: this has {tokens}\n"
