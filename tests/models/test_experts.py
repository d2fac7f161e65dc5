"""A mixture of experts in a transformer: what training, decoding, cost and views make of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import octavo
from command_line import json_output
from examples import gpt, text
from laws import tokens
from octavo.cli import main
from octavo.core import eval_mode, seeded_generator
from octavo.costs import Shape, cost_of
from octavo.inspection.inspection import has_inspection, inspect_run
from octavo.inspection.token_tables import summary_table, token_table
from octavo.inspection.views import find_view
from octavo.models.expert_views import SHOWN_EXPERTS, expert_weights, load_table
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.models.parts.experts import Experts
from octavo.ops.tracing import trace
from octavo.studio.routes.inspect import tabs_of
from octavo.tasks.run import Run
from octavo.text import Byte
from octavo.training.language_stage import NextToken
from octavo.training.optimizer import OptimizerConfig, Optimizers

X_T: list[int] = text(40)[1:].tolist()


def untrained(vocab: int = 13, **config: Any) -> GPT:
    model = GPT(GPTConfig(**{"width": 8, "layers": 2, "heads": 2, "context": 12, "experts": 4} | config), vocab)
    model.initialise(seeded_generator(1))
    return model


def excess(model: GPT) -> float:
    """How far the busiest expert of a layer is above an equal share, at most over the layers."""
    w_NLX = expert_weights(model, X_T)
    return float((w_NLX > 0).double().mean(0).max()) / model.config.experts_per_token - 1 / model.config.experts


def test_training_evens_the_loads_out_and_only_in_training_mode() -> None:
    model = untrained()
    for block in model.blocks:
        block.feed_forward.router_XD.data[0].fill_(3.0)  # one logit depends on the sum alone: all or nothing
        block.feed_forward.balance_X.data[1] = 4.0
    before = excess(model)
    optimizers = Optimizers(model, OptimizerConfig(learning_rate=0.1))
    x_BT = torch.tensor([X_T[:13], X_T[13:26], X_T[26:39]])
    for _ in range(60):
        optimizers.zero()
        NextToken(model)(model.start(3), x_BT)[0].backward()
        optimizers.step(0.5, 1.0)
    assert before > 0.2
    assert excess(model) < before / 2
    optimizers.zero()
    with eval_mode(model):
        NextToken(model)(model.start(3), x_BT)[0].backward()
    assert all(block.feed_forward.balance_X.grad is None for block in model.blocks)


def test_every_weight_has_a_gradient_also_of_experts_that_nobody_chose() -> None:
    model = untrained(experts=16, experts_per_token=1)
    NextToken(model)(model.start(1), torch.tensor([X_T[:5]]))[0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_a_block_adds_is_the_weighted_sum_over_the_experts_of_each_token() -> None:
    model = gpt(experts=5, experts_per_token=2)
    x_BT = model.prepend_begin(tokens(model, 2, 8))
    with trace() as shown:
        model(x_BT)
    for layer, block in enumerate(model.blocks):
        w_BTX, middle = shown["experts"][layer], shown["middle"][layer]
        assert bool(((w_BTX > 0).sum(-1) == 2).all())
        torch.testing.assert_close(w_BTX.sum(-1), torch.ones(2, 9).double())
        h = block.norm2(middle)
        given = torch.stack([expert(h) for expert in block.feed_forward.experts], -2)
        torch.testing.assert_close(shown["stream"][layer] - middle, (w_BTX[..., None] * given).sum(-2))


def test_parameters_in_total_and_those_of_one_token() -> None:
    dense, model = untrained(experts=0), untrained(experts=6, experts_per_token=2)
    cost, one = cost_of(model, Shape()), cost_of(dense, Shape())
    layer = sum(p.numel() for p in dense.blocks[0].feed_forward.parameters())
    router = 6 * 8 + 6
    assert cost.parameters == one.parameters + 2 * (5 * layer + router)
    assert cost.active_parameters == one.parameters + 2 * (layer + router)
    assert one.active_parameters == one.parameters
    assert cost.total("forward") == one.total("forward") + 2 * (2 * layer + 2 * 6 * 8)


def test_the_report_of_a_cost_tells_both_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--width", "16", "--layers", "1", "--heads", "2", "--feed-forward-width", "10", "--no-measure"]
    asked = ["cost", "gpt", "--experts", "4", "--experts-per-token", "1", *sizes]
    record = json_output(capsys, *asked)
    assert record["parameters"] - record["active_parameters"] == 3 * (3 * 16 * 10)
    assert main(asked) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert f"{record['parameters']:,} parameters, {record['active_parameters']:,} of them for each token" in first


@pytest.mark.parametrize("config", [{}, {"positions": "learned"}, {"attention": "latent"}])
def test_the_view_shows_the_experts_that_each_token_was_routed_to(config: dict[str, Any]) -> None:
    model = gpt(experts=5, experts_per_token=2, **config)
    w_NLX = expert_weights(model, X_T)
    assert w_NLX.shape == (len(X_T), 2, 5)
    state = model.start(1)
    for n, token in enumerate([model.begin, *X_T]):
        with trace() as shown:
            _, state = model.step(state, torch.tensor([token]))
        if n:
            expected = torch.stack([w[0, -1] for w in shown["experts"][-2:]])
            torch.testing.assert_close(w_NLX[n - 1], expected, rtol=1e-9, atol=1e-12)
    table = token_table(model, X_T, str)
    first, best = table.details[0], int(w_NLX[0, 1].argmax())
    assert first.shade == best
    assert first.rows[1][1].startswith(f"{best + 1} ({float(w_NLX[0, 1, best]):.0%}), ")
    summary = summary_table(table)
    assert summary is not None
    load = float((w_NLX[:, 0, 2] > 0).double().mean())
    assert summary.rows[2][:2] == ("3", f"{load:.1%}")


def test_of_very_many_experts_the_busiest_are_listed() -> None:
    w_NLX = torch.zeros(3, 2, SHOWN_EXPERTS + 9)
    w_NLX[:, :, -1] = 1.0
    table = load_table(w_NLX)
    assert len(table.rows) == SHOWN_EXPERTS
    assert table.rows[-1] == (str(SHOWN_EXPERTS + 9), "100.0%", "100.0%")
    assert f"the {SHOWN_EXPERTS} busiest of {SHOWN_EXPERTS + 9} experts" in table.caption


def test_only_a_mixture_of_experts_has_the_view() -> None:
    assert find_view(gpt(), "token-table") is None
    assert find_view(gpt(experts=3), "token-table", "routing") is not None
    tabs = [[tab["title"] for tab in tabs_of(Run(untrained(257, experts=X), Byte()))] for X in (0, 3)]
    assert tabs[1] == [*tabs[0], "Experts"]


def test_inspect_tells_the_load_of_each_expert() -> None:
    run = Run(untrained(257), Byte())
    assert has_inspection(run)
    found = inspect_run(run, "to be or not to be, that is")
    ((view, table),) = found.tables
    assert view.name == "routing"
    assert table.summary is not None
    assert [row[0] for row in table.summary.rows] == ["1", "2", "3", "4"]
    seen = octavo.inspect(run, "to be or not to be, that is")
    assert seen.to_json()["runs"][0]["tables"][0]["summary"]["titles"] == ["expert", "layer 1", "layer 2"]
    assert "load of each expert" in seen._repr_html_()


def test_a_gpu_neither_records_nor_compiles_what_routing_shapes() -> None:
    model, dense = gpt(experts=3), gpt()
    assert isinstance(model.blocks[0].feed_forward, Experts)
    assert (model.is_recordable, dense.is_recordable) == (False, True)
    x_BTD, full = torch.zeros(1, 2, 8), (torch.zeros(1, 2, 11, 4), torch.zeros(1, 2, 11, 4))
    assert dense.blocks[0].worth_compiling(x_BTD, full, None)
    assert not model.blocks[0].worth_compiling(x_BTD, full, None)
