"""An adaptive mixture: its distribution, its steps along the gradient, and what it is good for."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from examples import VOCAB, adaptive_ngram, adaptively_mixed, baum_welch, ngram, recurrent, text
from octavo.errors import UserError
from octavo.models import build, context_tables, describe
from octavo.models import mixing_loops as loops
from octavo.models.adaptive_mix import AdaptiveMix, AdaptiveMixConfig
from octavo.models.adaptive_mix_session import MixReader
from octavo.models.context_reader import ContextReader, first_tables
from octavo.models.context_tables import ContextTables
from octavo.models.dynamic_evaluation import adapted
from octavo.models.parts.even_split import EvenSplit
from octavo.models.recurrent import GRU
from octavo.scoring.range_coder import MismatchError, decode_tokens, encode_tokens

BEGIN = VOCAB - 1


def a_place(
    experts: int = 3, leaves: int = 12, seed: int = 0, contexts: int = 0
) -> tuple[loops.Shape, np.ndarray, np.ndarray, ContextTables]:
    """A mixture's shape, random θ near where it starts, the experts' distributions over the ids, and contexts that have
    read a little text."""
    bits = (leaves - 1).bit_length()
    shape = loops.Shape(experts, contexts, 2, leaves, bits, 8, 0.05, 0.01)
    rng = np.random.default_rng(seed)
    first_P = loops.first_theta(shape, np.full(experts, 1 / experts))
    theta_P = first_P * rng.uniform(0.8, 1.2, loops.theta_size(shape))
    p_IV = rng.dirichlet(np.full(leaves, 0.5), experts)
    context = ContextReader(first_tables(bits, np.zeros(leaves + 1, np.uint8), 64), bits, leaves)
    context.read(rng.integers(0, leaves, 60))
    return shape, np.clip(theta_P, 0, 1), np.concatenate([p_IV, np.zeros((experts, 1))], 1), context.tables


def equations(
    shape: loops.Shape, theta_P: torch.Tensor, p_IV: np.ndarray, tables: ContextTables, kind: int, word: int
) -> torch.Tensor:
    """log p of an id by the module's equations, in plain torch, without the calibration tables: the sum over bits."""
    width, first = loops.input_count(shape), 1 << shape.bits
    final = loops.selector_rows(shape) * width + kind * loops.SELECTORS
    v_S = theta_P[final : final + loops.SELECTORS]
    mass_IL = np.zeros((shape.experts, first))
    mass_IL[:, : shape.leaves] = p_IV[:, : shape.leaves]
    total, low, high = torch.zeros((), dtype=torch.float64), 0, first
    for depth in range(shape.bits):
        middle = (low + high) // 2
        bit, node = int(word >= middle), (first + low) >> (shape.bits - depth)
        if middle < shape.leaves:
            q_I = mass_IL[:, middle:high].sum(1) / mass_IL[:, low:high].sum(1)
            said = np.zeros(shape.contexts)
            if shape.contexts:
                context_tables.bit_inputs(tables, shape.bits, node, depth, said, 0)
            x_W = torch.tensor([*np.log(q_I / (1 - q_I)), *said, loops.BIAS])
            row_S = np.empty(loops.SELECTORS, np.int64)
            loops.rows_of(shape, tables, kind, 1, node, depth, row_S)
            y_S = torch.stack([theta_P[row * width : (row + 1) * width] @ x_W for row in row_S.tolist()])
            total = total + torch.nn.functional.logsigmoid((2 * bit - 1) * (v_S @ y_S))
        low, high = (middle, high) if bit else (low, middle)
    return total


def uncalibrated(
    shape: loops.Shape, theta_P: np.ndarray, p_IV: np.ndarray, tables: ContextTables, kind: int, word: int
) -> float:
    """log p by the loops, with calibration tables that say what they are given: a fine straight line is not a
    logistic curve, so p' is taken apart again."""
    mass_IN, path, total = np.empty((shape.experts, 2 << shape.bits)), loops.new_path(shape), 0.0
    loops.tree_sums(p_IV, shape, mass_IN)
    for depth in range(shape.bits):
        node = (word + (1 << shape.bits)) >> (shape.bits - depth)
        bit = (word >> (shape.bits - 1 - depth)) & 1
        if loops.is_open(shape, node, depth):
            loops.predict_node(theta_P, shape, tables, mass_IN, loops.Known(kind, 1, 0), node, depth, path)
            p = path.out_L4[depth, 0]
            total += math.log(p if bit else 1 - p)
    return total


def learnt(
    shape: loops.Shape, theta_P: np.ndarray, p_IV: np.ndarray, tables: ContextTables, kind: int, word: int
) -> np.ndarray:
    """θ after a token."""
    mass_IN, moved_P = np.empty((shape.experts, 2 << shape.bits)), theta_P.copy()
    loops.tree_sums(p_IV, shape, mass_IN)
    none = np.empty(0, np.int64), np.empty(0), np.zeros(1, np.int64)
    copied = ContextTables(*(part.copy() for part in tables))
    loops.read_token(moved_P, shape, copied, mass_IN, loops.Known(kind, 1, 0), word, True, *none)
    return moved_P


@pytest.mark.parametrize("contexts", [0, context_tables.INPUTS])
@pytest.mark.parametrize("leaves", [2, 7, 12, 16])
def test_the_loops_compute_the_equations(leaves: int, contexts: int) -> None:
    shape, theta_P, p_IV, tables = a_place(leaves=leaves, contexts=contexts)
    for word in range(leaves):
        expected = equations(shape, torch.from_numpy(theta_P), p_IV, tables, 1, word)
        assert math.isclose(uncalibrated(shape, theta_P, p_IV, tables, 1, word), float(expected), rel_tol=1e-12)


@pytest.mark.parametrize("contexts", [0, context_tables.INPUTS])
def test_weights_move_along_the_gradients_of_the_log_probabilities(contexts: int) -> None:
    shape, theta_P, p_IV, tables = a_place(contexts=contexts)
    word, kind, width = 5, 1, loops.input_count(shape)
    variable_P = torch.from_numpy(theta_P.copy()).requires_grad_()
    equations(shape, variable_P, p_IV, tables, kind, word).backward()
    assert variable_P.grad is not None
    moved_P = learnt(shape, theta_P, p_IV, tables, kind, word)
    start = loops.selector_rows(shape) * width + kind * loops.SELECTORS
    final = slice(start, start + loops.SELECTORS)
    np.testing.assert_allclose(
        moved_P[final] - theta_P[final], shape.final_rate * variable_P.grad[final].numpy(), rtol=1e-9, atol=1e-15
    )
    # The weights of a selector follow log p of the selector alone: one node's bit, by hand.
    row_S, x_W = np.empty(loops.SELECTORS, np.int64), np.empty(width)
    mass_IN = np.empty((shape.experts, 2 << shape.bits))
    loops.tree_sums(p_IV, shape, mass_IN)
    loops.rows_of(shape, tables, kind, 1, 1, 0, row_S)
    loops.inputs(mass_IN, shape, tables, 1, 0, x_W)
    at = slice(row_S[1] * width, (row_S[1] + 1) * width)  # the node's own weights: no other bit of the token has them
    w_W = torch.from_numpy(theta_P[at].copy()).requires_grad_()
    torch.nn.functional.logsigmoid((2 * (word >> 3 & 1) - 1) * (w_W @ torch.from_numpy(x_W))).backward()
    assert w_W.grad is not None
    np.testing.assert_allclose(moved_P[at] - theta_P[at], shape.rate * w_W.grad.numpy(), rtol=1e-9, atol=1e-15)


def test_calibration_tables_move_towards_what_came() -> None:
    shape, theta_P, p_IV, tables = a_place()
    start_2 = np.empty(2, np.int64)
    loops.table_starts(shape, 1, 0, 1, start_2)
    for word, up in ((0, False), (11, True)):  # the first bit is 0 or 1
        moved_P = learnt(shape, theta_P, p_IV, tables, 0, word)
        for start in start_2:
            change = (moved_P - theta_P)[start : start + loops.BINS]
            assert (change >= 0).all() if up else (change <= 0).all()
            assert np.count_nonzero(change) in (1, 2)


def test_ids_that_cannot_come_cost_nothing_and_have_no_probability() -> None:
    """Seven ids need three bits, of which one combination does not occur, and begin is the eighth."""
    shape, theta_P, p_IV, tables = a_place(leaves=7, contexts=context_tables.INPUTS)
    mass_IN, p_N, p_V = np.empty((3, 16)), np.empty(16), np.empty(8)
    loops.tree_sums(p_IV, shape, mass_IN)
    loops.mixed_distribution(theta_P, shape, tables, mass_IN, loops.Known(0, 1, 0), p_N, p_V)
    assert math.isclose(p_V.sum(), 1, rel_tol=1e-12)
    assert p_V[7] == 0


def test_equal_experts_are_mixed_to_what_they_all_say_before_anything_is_learnt() -> None:
    model = AdaptiveMix(AdaptiveMixConfig(calibration_bits=2), [ngram(order=3), ngram(order=3)])
    state, begin_B = model.start(1), torch.tensor([BEGIN])
    p_BV, _ = model.predict(state, begin_B)
    expected_BV, _ = model.parts[0].predict(model.parts[0].start(1), begin_B)
    torch.testing.assert_close(p_BV, expected_BV, rtol=0, atol=0.02)  # tables interpolate the logistic curve


def test_it_is_better_than_each_of_its_parts_and_than_the_same_weights_kept() -> None:
    parts = [adaptive_ngram(order=4), ngram(order=2)]
    model = adaptively_mixed(*parts)
    other_T = torch.randint(0, BEGIN, (1500,), generator=torch.Generator().manual_seed(1))
    x_1T = torch.cat([text(1500, seed=11)[1:].long(), other_T])[None]  # it becomes another text
    bits = [float(-one.score(x_1T).mean()) / math.log(2) for one in (model, *parts)]
    assert bits[0] < min(bits[1:])
    kept = adaptively_mixed(*parts)
    kept.config = AdaptiveMixConfig(rate=0.0, final_rate=0.0, calibration_bits=6)
    kept.shape = kept.shape._replace(rate=0.0, final_rate=0.0)
    assert bits[0] < float(-kept.score(x_1T).mean()) / math.log(2)


def test_a_session_takes_back_sixteen_tokens_to_the_last_bit() -> None:
    model, x_1T = adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU)), text(80, seed=4)[None].long()
    session = model.session(model.start(1))
    session.absorb(x_1T[:, :40])
    before = session.readers[0].theta_P.copy()  # type: ignore[attr-defined]
    expected = session.fork().absorb(x_1T[:, 40:60])
    session.absorb(x_1T[:, 40:56])
    session.rewind(16)
    assert np.array_equal(session.readers[0].theta_P, before)  # type: ignore[attr-defined]
    torch.testing.assert_close(session.absorb(x_1T[:, 40:60]), expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(UserError, match="only the last 16 tokens can be taken back"):
        session.rewind(17)


def test_saved_equals_loaded_and_damage_is_refused() -> None:
    model = adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU))
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x_1T = text(100, seed=4)[None, 1:].long()
    assert torch.equal(build(describe(model), tensors).requires_grad_(False).score(x_1T), model.score(x_1T))
    tensors["theta_P"][-1] = 2.0
    with pytest.raises(UserError, match="calibration tables must hold probabilities"):
        build(describe(model), tensors)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("map_M", lambda one: one.fill_(1.5)),
        ("last_H", lambda one: one.fill_(10**6)),
        ("text_T", lambda one: one.fill_(VOCAB)),
        ("place_F", lambda one: one.fill_(10**6)),
        ("kind_V", lambda one: one.resize_(3)),
    ],
)
def test_tables_of_contexts_that_point_outside_themselves_are_refused(name: str, change: Any) -> None:
    model = adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU))
    tensors = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    change(tensors[name])
    with pytest.raises(UserError, match="tables of contexts must fit the text"):
        build(describe(model), tensors)


@pytest.mark.parametrize("contexts", [True, False])
def test_its_own_coder_restores_a_text_at_the_cost_that_it_claims(contexts: bool) -> None:
    model = adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU), contexts=contexts)
    x_T = text(1500, seed=5)[1:].long()
    packed = encode_tokens(model, x_T, 1)
    assert torch.equal(decode_tokens(model, packed, len(x_T), 1), x_T)
    claimed = float(-model.score(x_T[None]).sum()) / math.log(2) / 8
    assert len(packed) == pytest.approx(claimed, rel=0.001, abs=12)  # what ends an archive takes some bytes
    assert decode_tokens(model, encode_tokens(model, x_T[:0], 1), 0, 1).tolist() == []


def test_bytes_that_it_did_not_write_end_in_a_message() -> None:
    model, x_T = adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU)), text(200, seed=5)[1:].long()
    packed = encode_tokens(model, x_T, 1)
    with pytest.raises(MismatchError):
        decode_tokens(model, packed[: len(packed) // 3], len(x_T), 1)


@pytest.mark.parametrize("leaves", [1, 2, 7, 12])
def test_a_part_that_is_not_asked_has_no_say(leaves: int) -> None:
    one = EvenSplit(leaves + 1, leaves, leaves)
    p_V = one.predict(one.start(1), torch.tensor([leaves]))[0][0]
    assert float(p_V.sum()) == pytest.approx(1)
    shape, *_, tables = a_place(experts=1, leaves=max(2, leaves))
    if leaves > 1:
        mass_IN, x_W = np.empty((1, 2 << shape.bits)), np.empty(2)
        loops.tree_sums(p_V[None].numpy(), shape, mass_IN)
        for depth in range(shape.bits):
            for node in range(1 << depth, 2 << depth):
                if loops.is_open(shape, node, depth) and mass_IN[0, node]:
                    loops.inputs(mass_IN, shape, tables, node, depth, x_W)
                    assert x_W[0] == pytest.approx(0, abs=1e-12)


def test_contexts_and_a_match_help_where_a_text_repeats_itself() -> None:
    part, x_T = adaptive_ngram(order=2), torch.randint(0, BEGIN, (300,), generator=torch.Generator().manual_seed(3))
    x_1T = x_T.repeat(3)[None]
    bits = [
        float(-adaptively_mixed(part, recurrent(GRU), contexts=contexts).score(x_1T)[:, 300:].mean())
        for contexts in (True, False)
    ]
    assert bits[0] < 0.8 * bits[1]


def test_what_is_learnt_on_a_piece_stays_for_the_next_one() -> None:
    mix = AdaptiveMix(AdaptiveMixConfig(calibration_bits=4), [adaptive_ngram(order=3), ngram(order=2)])
    thetas = [mix.theta_P.clone()]
    for piece in (text(60, seed=1), text(60, seed=2)):
        assert mix.learn_pieces(piece[None, 1:].long()) == 60
        thetas.append(mix.theta_P.clone())
    assert all(not torch.equal(one, other) for one, other in pairwise(thetas))
    assert isinstance(mix.readers(*mix.start(1)[1:])[0], MixReader)


def test_no_gradient_flows_through_what_was_learnt_while_reading() -> None:
    from octavo.inspection.gradient_flow import has_gradient

    assert not has_gradient(adaptively_mixed(adaptive_ngram(order=3), recurrent(GRU)))
    assert has_gradient(recurrent(GRU))


def test_parts_that_were_fitted_stay_as_they_are_and_networks_learn() -> None:
    fitted, network = baum_welch(), recurrent(GRU)
    assert adaptively_mixed(fitted, network).experts[0] is fitted
    assert adaptively_mixed(fitted, network).experts[1] is not network


def test_a_fitted_model_that_cannot_learn_while_it_reads_says_how_to_score_it() -> None:
    with pytest.raises(UserError, match=r"hmm-em was fitted.* score it without --adaptive"):
        adapted(baum_welch())
    with pytest.raises(UserError, match=r"ngram was fitted.* train it with --adaptive"):
        adapted(ngram(order=2))
    with pytest.raises(UserError, match=r"ngram was fitted.* score it without --adaptive"):  # only Kneser-Ney goes on
        adapted(ngram(order=2, estimator="ppm"))
