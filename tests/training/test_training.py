"""The parts of the training loop: budgets and rates, groups of weights, losses, averages, and what goes wrong.

B batch, T time, V vocabulary.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import octavo
from octavo.core import seeded_generator, tensors_of
from octavo.errors import Stopped, UserError
from octavo.models import GPT, GRU, LSTM, RNN, RNNAttention, build, describe
from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import RecurrentConfig
from octavo.models.rnn_attention import RNNAttentionConfig
from octavo.tasks.task import find_task
from octavo.text.validation_chunks import hold_out
from octavo.training.checkpoint import Checkpoint
from octavo.training.distributed import Team
from octavo.training.language_stage import HELD_OUT, NextToken, Streams, TrainingText, language_stage
from octavo.training.loop import BAD_STEPS, Loop
from octavo.training.loop_config import LoopConfig
from octavo.training.metrics_log import Log, read_rows, worth_logging
from octavo.training.optimizer import OptimizerConfig, Optimizers, StackedMuon, gradient_norm, parameter_groups
from octavo.training.precision import Recorded, as_function, shared_leaves
from octavo.training.schedule import Budget, learning_rate_factor
from octavo.training.signals import Stopping

VOCAB, BEGIN = 12, 11
CPU = torch.device("cpu")
ALONE = Team(0, 1, CPU)
TINY = RecurrentConfig(width=8, layers=1)


def text_of(length: int = 3000, batch: int = 4, window: int = 8, seed: int = 0) -> TrainingText:
    """A text that a network can learn: each token mostly says what follows it."""
    rng = np.random.default_rng(1)
    x_N = np.cumsum(rng.integers(1, 3, length)) % (VOCAB - 1)
    held = hold_out(x_N, BEGIN)
    pieces_PL = torch.from_numpy(held.pieces_PL)
    opened_PL = torch.cat([pieces_PL.new_full((len(pieces_PL), 1), BEGIN), pieces_PL], 1)
    return TrainingText(Streams.fitting(held.train_N, BEGIN, batch, window, seed), opened_PL, held.pieces_PL.size, 1.0)


def made_loop(
    model: Any = None, text: TrainingText | None = None, optim: OptimizerConfig | None = None, **settings: Any
) -> Loop:
    settings = {
        "budget": "20steps",
        "batch_size": 4,
        "sequence_length": 8,
        "precision": "float32",
        "evaluations": 4,
    } | settings
    model = GRU(TINY, VOCAB) if model is None else model
    model.initialise(seeded_generator(0))
    config = LoopConfig(**settings)
    stage = language_stage(model, text or text_of(), optim or OptimizerConfig(), config.budget)
    return Loop(stage, config, ALONE, seed=0, quiet=True)


def losses(loop: Loop) -> list[float]:
    return [row["loss"] for row in loop.log.rows if "loss" in row and "event" not in row]


def held_out(loop: Loop) -> list[float]:
    return [row["held_out_bits_per_byte"] for row in loop.log.rows if "held_out_bits_per_byte" in row]


def events(loop: Loop) -> list[str]:
    return [row["event"] for row in loop.log.rows if "event" in row]


class Spoilt(nn.Module):
    """An objective that fails as asked at some steps."""

    def __init__(self, loop: Loop, spoil: Callable[[int, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.loop, self.spoil = [loop.objective], loop, spoil

    def forward(self, state: Any, x_BT: Tensor) -> Any:
        paid, state = self.inner[0](state, x_BT)
        return self.spoil(self.loop.position.step, paid), state


# ---------------------------------------------------------------------- budgets and rates


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [("180s", "seconds", 180), ("3min", "seconds", 180), ("1.5h", "seconds", 5400), (" 2 minutes ", "seconds", 120),
     ("5000steps", "steps", 5000), ("2ksteps", "steps", 2000), ("1step", "steps", 1), ("20Mtokens", "tokens", 20e6),
     ("1.5 B tokens", "tokens", 1.5e9)],
)  # fmt: skip
def test_a_budget_is_a_number_with_a_unit(text: str, kind: str, amount: float) -> None:
    assert Budget.parse(text) == Budget(kind, amount)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "180", "s", "-3s", "0steps", "0.5steps", "3 days", "1e3s", "nan s", "3Ms s", "٣s"]
)
def test_other_budgets_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="try 180s"):
        Budget.parse(text)
    if text:  # empty, it is for the task to say
        with pytest.raises(UserError, match="try 180s"):
            LoopConfig(budget=text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"batch_size": -1}, "batch_size must be at least 0"),
     ({"batch_size": 6, "accumulate": 4}, "accumulate must divide the batch"),
     ({"patience": -1}, "patience must be at least 0"), ({"checkpoint_seconds": float("nan")}, "must be at least 0")],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LoopConfig(**settings)


def test_the_rate_rises_in_the_warm_up_and_then_falls_as_asked() -> None:
    assert [learning_rate_factor(s, 0.2, "linear") for s in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx(
        [0, 0.5, 1, 0.5, 0]
    )
    assert [learning_rate_factor(s, 0.2, "cosine") for s in (0.1, 0.2, 0.4, 0.6, 1.0)] == pytest.approx(
        [0.5, 1, 0.5 + 0.5 * math.cos(math.pi / 4), 0.5, 0]
    )
    assert [learning_rate_factor(s, 0.0, "none") for s in (0.0, 0.5, 1.0)] == [1, 1, 1]


def test_steps_are_trained_at_the_rate_of_their_middle() -> None:
    loop = made_loop(budget="5steps", optim=OptimizerConfig(warmup=0.4, decay="linear"))
    loop.run(Stopping())
    highest = loop.stage.optimizer.learning_rate
    rates = [row["learning_rate"] / highest for row in loop.log.rows if "learning_rate" in row]
    assert rates == pytest.approx([0.25, 0.75, 0.5 / 0.6, 0.3 / 0.6, 0.1 / 0.6])


def test_a_signal_during_the_last_step_is_not_lost() -> None:
    loop, stopping = made_loop(budget="3steps"), Stopping()
    learn = loop.learn

    def asked_in_the_last(window: Any) -> tuple[float, float]:
        stopping.asked = 15 if loop.position.step == 2 else 0
        return learn(window)

    loop.learn = asked_in_the_last  # type: ignore[method-assign]
    with pytest.raises(Stopped, match="stopped at step 3"):
        loop.run(stopping)


def test_every_kind_of_budget_ends_training() -> None:
    for budget, steps in (("7steps", 7), ("200tokens", 7), ("0.05s", None)):  # a step reads 4 × 8 tokens
        loop = made_loop(budget=budget)
        assert loop.run(Stopping()) == "the budget is spent"
        assert steps is None or loop.position.step == steps
        assert loop.position.examples == 32 * loop.position.step > 0


# ---------------------------------------------------------------------- optimizers


def test_weights_are_grouped_into_matrices_tables_and_vectors() -> None:
    wide = RNN(RecurrentConfig(width=VOCAB, layers=1, tied=False), VOCAB)  # its matrices have as many rows as tables
    attentive = RNNAttention(RNNAttentionConfig(width=8, score="additive"), VOCAB)
    for model, inside, with_tokens in ((wide, 2, 2), (attentive, 4, 1), (LSTM(TINY, VOCAB), 2, 1)):
        matrices, tables, vectors = parameter_groups(model)
        assert (len(matrices), len(tables)) == (inside, with_tokens)
        assert {id(p) for p in (*matrices, *tables, *vectors)} == {id(p) for p in model.parameters()}
        assert all(p.dim() == 1 for p in vectors)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_weight_decay_shrinks_the_matrices_and_nothing_else(optimizer: Any) -> None:
    model = GRU(TINY, VOCAB)
    model.initialise(seeded_generator(0))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    config = OptimizerConfig(
        optimizer=optimizer, learning_rate=0.1, muon_learning_rate=0.1, weight_decay=0.5, warmup=0, decay="none"
    )
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    Optimizers(model, config).step(0.5, rate_factor=1.0)
    for name, parameter in model.named_parameters():
        kept = 1 - 0.1 * 0.5 if "weight" in name else 1.0
        torch.testing.assert_close(parameter.detach(), kept * before[name])


def test_muon_takes_the_matrices_only_where_it_is_asked_to() -> None:
    model = GRU(TINY, VOCAB)
    assert [type(one).__name__ for one in Optimizers(model, OptimizerConfig()).all] == ["StackedMuon", "AdamW"]
    (adamw,) = Optimizers(model, OptimizerConfig(optimizer="adamw")).all
    assert sum(len(group["params"]) for group in adamw.param_groups) == len(list(model.parameters()))
    assert adamw.defaults["fused"]


def test_optimizers_refuse_what_others_remembered() -> None:
    loop = made_loop(budget="2steps")
    loop.run(Stopping())
    kept = loop.optimizers.tensors()
    name = next(key for key in kept if key.endswith("exp_avg"))
    wrong = [{**kept, name: torch.zeros(3)}, {**kept, "other/exp_avg": torch.zeros(3)}]
    wrong.append({key: value for key, value in kept.items() if key != name})
    for tensors in wrong:
        with pytest.raises(UserError, match="of another model or setting"):
            loop.optimizers.take(tensors)
    with pytest.raises(UserError, match="of another model or setting"):
        Optimizers(loop.model, OptimizerConfig(optimizer="adamw")).take(kept)


def test_memories_are_taken_up_in_one_order_that_no_hash_decides() -> None:
    # Processes that share sharded weights hand them out together: in another order they would get each other's.
    model = GRU(TINY, VOCAB)
    first, again = (Optimizers(model, OptimizerConfig()) for _ in range(2))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    first.step(0.5, 1.0)
    again.take(first.tensors())
    orders = {name: list(kept) for name, kept in again.entries()}
    assert orders["embedding_VD"] == ["step", "exp_avg", "exp_avg_sq"]
    assert orders == {name: list(kept) for name, kept in first.entries()}


def test_a_gradient_is_shortened_to_the_length_that_is_allowed() -> None:
    for clip, length in ((1.0, 1.0), (0.0, 5.0), (7.0, 5.0)):
        model = nn.Linear(2, 1, bias=False)
        model.weight.grad = torch.tensor([[3.0, 4.0]])
        assert gradient_norm(model, clip).item() == pytest.approx(5)
        assert model.weight.grad.norm().item() == pytest.approx(length, rel=1e-5)


# ---------------------------------------------------------------------- the loss and its gradient


def test_the_loss_is_torchs_with_label_smoothing_and_never_charges_begin() -> None:
    model = GRU(TINY, VOCAB).double()
    model.initialise(seeded_generator(0))
    x_BT = torch.randint(VOCAB, (3, 9), generator=seeded_generator(1))
    x_BT[1, 4] = BEGIN
    paid, _ = NextToken(model, 0.1)(model.start(3), x_BT)
    logits_NV, y_N = model(x_BT[:, :-1]).flatten(0, 1), x_BT[:, 1:].flatten()
    charged = y_N != BEGIN
    expected = F.cross_entropy(logits_NV[charged], y_N[charged], label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(paid, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cell", [GRU, LSTM])
def test_a_batch_in_pieces_has_the_loss_and_the_gradient_of_the_whole(cell: Any) -> None:
    found = []
    for pieces in (1, 2, 3, 6):
        loop = made_loop(cell(TINY, VOCAB).double(), text_of(batch=6), batch_size=6, accumulate=pieces)
        loss = [loop.learn(loop.stage.batch(step))[0] for step in (0, 1)]  # the second with the state carried
        found.append((loss, [p.grad.clone() for p in loop.model.parameters() if p.grad is not None]))
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], abs=1e-6)  # the reported loss is summed in single precision
        torch.testing.assert_close(gradients, found[0][1], rtol=1e-10, atol=1e-10)


def test_the_state_is_carried_from_window_to_window_within_an_epoch() -> None:
    loop = made_loop(text=text_of(length=400))
    x_BT = torch.cat([loop.stage.batch(0).x_BT, loop.stage.batch(1).x_BT[:, 1:]], 1)
    expected = loop.model.token_log_probs(loop.model.start(4), x_BT)[0][:, 8:].mean()
    loop.learn(loop.stage.batch(0))
    assert loop.learn(loop.stage.batch(1))[0] == pytest.approx(-expected.item(), rel=1e-5)


# ---------------------------------------------------------------------- averages, checks, early stopping


def test_the_average_of_the_weights_is_the_running_one_by_hand() -> None:
    loop = made_loop(optim=OptimizerConfig(ema=0.75), budget="1000steps")
    by_hand = {name: p.detach().clone() for name, p in loop.tensors.items()}
    for step in range(4):
        loop.step(step / 1000)
        for name, parameter in loop.tensors.items():
            by_hand[name] = 0.75 * by_hand[name] + 0.25 * parameter.detach()
    torch.testing.assert_close(loop.average, by_hand)


def test_what_is_measured_and_kept_is_the_average_and_training_goes_on_from_the_weights() -> None:
    loop = made_loop(optim=OptimizerConfig(ema=0.9))
    for _ in range(5):
        loop.step(0.5)
    weights = {name: p.detach().clone() for name, p in loop.tensors.items()}
    average = {name: t.clone() for name, t in loop.average.items()}
    bits = loop.evaluate()
    torch.testing.assert_close(loop.best, average, rtol=0, atol=0)
    torch.testing.assert_close({name: p.detach() for name, p in loop.tensors.items()}, weights, rtol=0, atol=0)
    other = made_loop()
    other.model.load_state_dict(average)
    assert other.evaluate() == bits


def test_the_held_out_figure_is_what_the_model_pays_for_the_pieces() -> None:
    loop = made_loop()
    pieces_PL = text_of().chunks_PL[:, 1:]
    with torch.no_grad():
        expected = -loop.model.score(pieces_PL).sum().item() / math.log(2) / pieces_PL.numel()
    assert loop.evaluate()[HELD_OUT] == pytest.approx(expected, rel=1e-5)


def test_the_best_weights_are_those_with_the_fewest_held_out_bits() -> None:
    loop = made_loop(optim=OptimizerConfig(learning_rate=1.0, muon_learning_rate=1.0, decay="none"), evaluations=20)
    seen: list[tuple[float, dict[str, Tensor]]] = []
    evaluate = loop.evaluate

    def noting() -> dict[str, float]:
        measured = evaluate()
        seen.append((measured[HELD_OUT], {name: p.detach().clone() for name, p in loop.tensors.items()}))
        return measured

    loop.evaluate = noting  # type: ignore[method-assign]
    loop.run(Stopping())
    bits, weights = min(seen, key=lambda one: one[0])
    assert len(seen) == 20
    assert bits < seen[-1][0]  # such a rate does not end at its best
    assert loop.position.best_value == bits
    torch.testing.assert_close(loop.best, weights, rtol=0, atol=0)


def test_training_stops_early_when_checks_get_no_better_and_gives_back_the_best() -> None:
    loop = made_loop(
        optim=OptimizerConfig(learning_rate=1.0, muon_learning_rate=1.0, decay="none"),
        budget="400steps",
        evaluations=400,
        patience=5,
    )
    assert loop.run(Stopping()) == "5 evaluations without an improvement"
    assert loop.position.step < 400
    assert held_out(loop).index(min(held_out(loop))) == len(held_out(loop)) - 6
    assert loop.position.best_value == min(held_out(loop))


def test_the_log_thins_out_so_that_long_runs_stay_readable() -> None:
    logged = [step for step in range(1, 100_001) if worth_logging(step)]
    assert logged[:2000] == list(range(1, 2001))
    assert len(logged) == 2000 + 1800 + 800


def test_a_log_goes_on_after_its_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = Log(path)
    log.add({"step": 1})
    whole = log.length()
    log.add({"step": 2})
    log.close()
    for length in (whole, whole + 4, 10_000):
        again = Log(path, length)
        kept = again.rows[-1]["step"]
        again.add({"step": "next"})
        again.close()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert rows == again.rows
        assert rows[-2:] == [{"step": kept}, {"step": "next"}]
        path.write_text('{"step": 1}\n{"step": 2}\n')


@pytest.mark.parametrize("line", ["[" * 100_000, "7", "{", '{"step": 2}'], ids=["deep", "number", "cut", "no end"])
def test_a_line_that_is_no_row_ends_the_log(line: str) -> None:
    assert read_rows(b'{"step": 1}\n' + line.encode()) == [{"step": 1}]


# ---------------------------------------------------------------------- precision and compiling


@pytest.mark.parametrize(
    "model", [GRU(TINY, VOCAB), LSTM(TINY, VOCAB), RNNAttention(RNNAttentionConfig(width=8), VOCAB)]
)
def test_bfloat16_learns_nearly_as_well_and_its_state_can_be_saved(model: Any, tmp_path: Path) -> None:
    ends = {}
    for precision in ("float32", "bfloat16"):
        loop = made_loop(model, budget="60steps", precision=precision)
        loop.run(Stopping())
        loop.capture().save(tmp_path)
        ends[precision] = loop.position.best_value
    assert ends["float32"] < math.log2(VOCAB - 1) - 0.3  # it has learnt something
    assert ends["bfloat16"] == pytest.approx(ends["float32"], rel=0.02)
    assert ends["bfloat16"] != ends["float32"]


def test_a_model_in_double_precision_is_not_lowered() -> None:
    assert not made_loop(GRU(TINY, VOCAB).double(), precision="bfloat16").precision.low


def test_where_compiling_fails_training_goes_on_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def no_compiler(_: Any, **how: Any) -> Any:
        def call(*_: Any) -> Any:
            calls.append(1)
            raise TorchDynamoException("there is no compiler here")

        return call

    def no_dynamo(_: Any, **how: Any) -> Any:
        raise RuntimeError("not on this Python")

    plain, calls = made_loop(), []
    plain.run(Stopping())
    for compiler in (no_compiler, no_dynamo):
        monkeypatch.setattr(torch, "compile", compiler)
        loop = made_loop(compile="on")
        loop.run(Stopping())
        assert losses(loop) == losses(plain)
    assert len(calls) == 1  # it is tried once, not at every step
    assert capfd.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its own parts
def test_a_compiled_step_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # The graph is captured but not turned into C++, which would take a minute.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    plain, compiled = made_loop(budget="4steps"), made_loop(budget="4steps", compile="on")
    for loop in (plain, compiled):
        loop.run(Stopping())
    assert compiled.objective.forward.fast is not None
    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_transformer_whose_blocks_are_compiled_once_for_all_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.testing import CompileCounter  # here, because it takes seconds

    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counter))
    settings = {"width": 8, "layers": 3, "heads": 2, "context": 8}
    losses_of = {}
    for how in ("off", "parts"):
        model = GPT(GPTConfig(**settings), VOCAB)
        model.initialise(seeded_generator(0))
        loop = made_loop(model, budget="4steps", compile=how)
        loop.run(Stopping())
        losses_of[how] = losses(loop)
    assert losses_of["parts"] == pytest.approx(losses_of["off"], rel=1e-5)
    assert counter.frame_count == 1  # for all blocks


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_long_context_that_fills_up_is_compiled_once_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counter))
    model = GPT(GPTConfig(width=8, layers=2, heads=2, context=80), VOCAB)  # ten windows, and the compiler's limit is 8
    loop, counts = made_loop(model, budget="13steps", compile="parts"), []
    for _ in range(13):
        loop.step(0.5)
        counts.append(counter.frame_count)
    assert counts == [0] * 10 + [1] * 3


def test_what_is_carried_is_no_view_of_something_larger() -> None:
    loop = made_loop(GPT(GPTConfig(width=8, layers=1, heads=2, context=12), VOCAB), budget="3steps")
    loop.run(Stopping())
    keys_BGSK, _ = loop.state[2][0]
    assert keys_BGSK.shape[2] == 12
    assert keys_BGSK.untyped_storage().nbytes() == keys_BGSK.nbytes


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"positions": "learned"},
        {"attention": "linear", "features": "random"},
        {"attention": "dense"},
        {"stride": 3},
    ],
    ids=lambda settings: "-".join(settings.values() if "stride" not in settings else ["stride"]) or "full",
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_transformer_goes_on_from_a_checkpoint_to_the_last_bit(
    settings: dict[str, Any], precision: str, tmp_path: Path
) -> None:
    def loop() -> Loop:
        model = GPT(GPTConfig(**{"width": 8, "layers": 2, "heads": 2, "context": 12, "dropout": 0.1} | settings), VOCAB)
        return made_loop(model, budget="6steps", precision=precision)

    whole, first, second = loop(), loop(), loop()
    for _ in range(6):
        whole.step(0.5)
    for _ in range(3):
        first.step(0.5)
    first.capture().save(tmp_path)
    second.take(Checkpoint.load(tmp_path))
    for _ in range(3):
        second.step(0.5)
    ends = [one.capture().tensors for one in (whole, second)]
    names, again = ([(kind, sorted(group)) for kind, group in end.items()] for end in ends)
    assert names == again
    assert all(torch.equal(t, ends[1][kind][name]) for kind, group in ends[0].items() for name, t in group.items())
    build(describe(whole.model), ends[0]["weights"])  # nothing of the model is missing


def test_muon_on_stacked_matrices_is_pytorchs_to_the_last_bit() -> None:
    def weights() -> list[torch.nn.Parameter]:
        generator = torch.Generator().manual_seed(0)
        return [torch.nn.Parameter(torch.randn(s, generator=generator)) for s in [(6, 6), (8, 6), (6, 8)] * 2]

    theirs, ours = weights(), weights()
    theirs_muon, ours_muon = (kind(w, lr=0.05) for kind, w in ((torch.optim.Muon, theirs), (StackedMuon, ours)))
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for a, b in zip(theirs, ours, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        theirs_muon.step()
        ours_muon.step()
    assert all(torch.equal(a, b) for a, b in zip(theirs, ours, strict=True))


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("factor", [math.nan, math.inf, 100.0])
def test_a_step_that_goes_wrong_is_left_out_and_reported(factor: float) -> None:
    loop = made_loop()
    loop.objective = Spoilt(loop, lambda step, paid: paid * factor if step == 7 else paid)
    before: list[Tensor] = []
    for step in range(9):
        if step in (7, 8):
            before.append(torch.cat([p.detach().flatten() for p in loop.tensors.values()]))
        loop.step(0.5)
    assert torch.equal(before[0], before[1])
    events = [row for row in loop.log.rows if "event" in row]
    assert [(row["event"], row["step"]) for row in events] == [("skipped", 8)]
    assert events[0]["why"] == (
        "the loss has exploded" if factor == 100 else "the loss or its gradient is not a number"
    )
    assert len(losses(loop)) == 8
    assert loop.position.skipped == 0


def test_a_gradient_that_is_no_number_is_left_out_though_the_loss_is_one() -> None:
    loop = made_loop()
    parameter = loop.model.get_parameter("layers.0.bias_hh")
    handle = parameter.register_hook(lambda gradient: gradient * math.nan)
    loop.step(0.5)
    handle.remove()
    loop.step(0.5)
    assert events(loop) == ["skipped"]
    assert all(bool(torch.isfinite(p).all()) for p in loop.model.parameters())


def test_a_state_that_is_no_number_is_forgotten() -> None:
    loop = made_loop()
    loop.step(0.5)
    loop.state[0][0, 0] = math.nan
    loop.step(0.5)
    assert events(loop) == ["skipped"]
    assert loop.state is None
    loop.step(0.5)
    assert events(loop) == ["skipped"]


@pytest.mark.parametrize("factor", [math.nan, 100.0])
def test_several_bad_steps_in_a_row_bring_the_best_weights_back_at_half_the_rate(factor: float) -> None:
    loop = made_loop(budget="16steps")  # checks after 4, 8, 12 and 16
    bad = range(9, 9 + BAD_STEPS)
    loop.objective = Spoilt(loop, lambda step, paid: paid * factor if step in bad else paid)
    while loop.position.step < 8:
        loop.step(0.5)
    loop.evaluate()
    while loop.position.step < bad.stop:
        loop.step(0.5)
    assert events(loop) == ["skipped"] * BAD_STEPS + ["went back"]
    assert loop.position.rate_factor == 0.5
    torch.testing.assert_close({name: p.detach() for name, p in loop.tensors.items()}, loop.best, rtol=0, atol=0)
    loop.step(0.5)
    highest = loop.stage.optimizer.learning_rate
    assert loop.log.rows[-1]["learning_rate"] == highest * 0.5 * learning_rate_factor(0.5, 0.02, "linear")


def test_training_that_always_goes_wrong_ends_with_the_last_good_weights_and_says_why() -> None:
    loop = made_loop(budget="100steps", evaluations=50)
    loop.objective = Spoilt(loop, lambda step, paid: paid * math.nan if step >= 10 else paid)
    why = loop.run(Stopping())
    assert why == "the loss or its gradient is not a number; these are the last good weights"
    assert loop.position.step == 10 + BAD_STEPS * (BAD_STEPS + 1)
    assert events(loop).count("went back") == BAD_STEPS
    torch.testing.assert_close({name: p.detach() for name, p in loop.tensors.items()}, loop.best, rtol=0, atol=0)
    assert loop.position.best_value == min(held_out(loop))


def test_training_that_never_goes_right_ends_with_the_weights_that_it_began_with() -> None:
    loop = made_loop(budget="100steps", evaluations=1)
    first = {name: p.detach().clone() for name, p in loop.tensors.items()}
    loop.objective = Spoilt(loop, lambda step, paid: paid * (math.nan if step > 2 else 1))
    loop.run(Stopping())
    torch.testing.assert_close({name: p.detach() for name, p in loop.tensors.items()}, first, rtol=0, atol=0)


def test_weights_that_are_no_numbers_are_neither_kept_nor_asked_for_a_sample() -> None:
    loop = made_loop()
    loop.stage.sample = lambda: "sampled"
    loop.evaluate()
    best = dict(loop.best)
    with torch.no_grad():
        loop.model.get_parameter("layers.0.weight_hh").fill_(math.inf)
    loop.evaluate()
    assert loop.best == best
    assert [row.get("sample") for row in loop.log.rows] == ["sampled", None]


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
     RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError()],
)  # fmt: skip
def test_out_of_memory_says_which_setting_to_lower(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: Any) -> None:
        raise error

    path = tmp_path / "text"
    path.write_text("to be or not to be " * 50)
    monkeypatch.setattr(NextToken, "forward", fails)
    with pytest.raises(
        UserError, match=r"batch_size=6, sequence_length=4, accumulate=2; --accumulate 3 .* --batch-size 3 "
    ):
        octavo.train("gru", path, width=8, layers=1, batch_size=6, sequence_length=4, accumulate=2, budget="2steps")


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("shapes do not fit")

    path = tmp_path / "text"
    path.write_text("to be or not to be " * 50)
    monkeypatch.setattr(NextToken, "forward", fails)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        octavo.train("gru", path, width=8, layers=1, budget="2steps")


# ---------------------------------------------------------------------- from a text to a run


def small(path: Path, **settings: Any) -> Any:
    return octavo.train(
        "gru", path, **{"width": 8, "layers": 1, "batch_size": 4, "sequence_length": 8, "budget": "3steps", **settings}
    )


@pytest.mark.parametrize("text", [b"a", b"ab", b"abc", b"a" * 30, b"to be or not to be " * 3])
def test_a_text_smaller_than_a_batch_is_trained_on_as_far_as_it_goes(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(text)
    run = small(
        path, batch_size=64, sequence_length=32, valid=(path,) if len(text) == 1 else ()
    )  # one byte cannot be split
    assert run.record["training"]["steps"] == 3
    assert octavo.evaluate(run, text).bits_per_byte > 0


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"")
    with pytest.raises(UserError):
        small(tmp_path / "text")


def test_large_seeds_train_and_the_callers_random_numbers_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("to be or not to be " * 50)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    small(path, seed=2**63 - 1, dropout=0.5, measure=False)
    assert torch.equal(torch.rand(3), expected)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("to be or not to be " * 50)
    one, same, other = (small(path, seed=seed, dropout=0.2, measure=False) for seed in (1, 1, 2))
    assert one.identity == same.identity != other.identity


def test_the_record_says_what_was_held_out_and_why_training_ended(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("to be or not to be " * 300)
    training = small(path, measure=False).record["training"]
    assert training["finished"] is True
    assert training["why"] == "the budget is spent"
    assert training["held_out_bits_per_byte"] > 0
    assert training["held_tokens"] > 0
    record = {"model": "gru", "config": {"width": 8}, "training": training, "seed": 0}
    assert find_task("language").recipe_of(record).loop.budget == "3steps"


def recorded_and_plain(device: str, **settings: Any) -> list[list[Tensor]]:
    """What windows cost, all their gradients and the state after them: recorded, and as it stands."""
    results = []
    for wrap in (Recorded, lambda plain: plain):
        model = GPT(GPTConfig(width=32, layers=2, heads=2, context=8, **settings), 20)
        model.initialise(seeded_generator(0))
        objective = wrap(NextToken(model.to(device)))
        state, paid = model.start(3), []
        for seed in (1, 2, 3, 4):  # the first states grow, the last does not
            x_BT = torch.randint(0, 19, (3, 9), generator=seeded_generator(seed)).to(device)
            model.zero_grad()
            nats, state = objective(state, x_BT)
            nats.backward()
            paid += [nats.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
            del nats  # the graph goes before the next shape is recorded, as in the loop
        results.append([*paid, *tensors_of(state)])
    return results


def test_where_there_is_no_gpu_nothing_is_recorded() -> None:
    for ours, plain in zip(*recorded_and_plain("cpu"), strict=True):
        assert torch.equal(ours, plain)


def test_a_recording_computes_the_same_without_tying_the_weights_to_its_stream() -> None:
    model = GPT(GPTConfig(width=32, layers=2, heads=2, context=8), 20).double()
    model.initialise(seeded_generator(0))
    objective, state = NextToken(model), model.start(3)
    x_BT = torch.randint(0, 19, (3, 9), generator=seeded_generator(1))
    nats, after = objective(state, x_BT)
    nats.backward()
    leaves = shared_leaves(objective.parameters())
    recorded_nats, *recorded_after = as_function(objective, state)(*tensors_of(state), x_BT, *leaves)
    grads = torch.autograd.grad(recorded_nats, leaves)
    for ours, plain in zip([recorded_nats, *recorded_after], [nats, *tensors_of(after)], strict=True):
        assert torch.equal(ours, plain)
    for ours, weight, leaf in zip(grads, objective.parameters(), leaves, strict=True):
        assert torch.equal(ours, weight.grad)
        assert leaf.data_ptr() == weight.data_ptr()  # what the optimizer changes is what is played back
        assert leaf is not weight


@pytest.mark.gpu
@pytest.mark.parametrize("attention", ["full", "local", "linear", "dense"])
def test_a_recorded_step_is_the_same_step(attention: str) -> None:
    for ours, plain in zip(*recorded_and_plain("cuda", attention=attention), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


def test_gradients_of_a_recording_cannot_be_added_up() -> None:
    with pytest.raises(UserError, match="--compile graph, --accumulate 2"):
        LoopConfig(compile="graph", batch_size=4, accumulate=2)
