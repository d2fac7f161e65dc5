"""A GRU over one sequence as loops: against PyTorch's own and autograd, and compiled against plain Python.

T time, I inputs, D hidden units, G = 3 D, V vocabulary, Y layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from octavo.core import seeded_generator
from octavo.models.decoding.recurrent_session import GRUSession
from octavo.models.recurrent import GRU, RecurrentConfig
from octavo.ops import recurrent_loops as loops
from octavo.ops.compiled import HAS_NUMBA
from octavo.ops.recurrent import Weights, layer

D, V = 7, 11  # odd: four rows at a time leave some over
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def drawn(seed: int, *shape: int, dtype: Any = np.float64) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(dtype)


def network(dtype: torch.dtype = torch.float64, **config: Any) -> GRU:
    model = GRU(RecurrentConfig(**{"width": D, "layers": 2} | config), V)
    model.initialise(seeded_generator(1))
    return model.to(dtype).eval().requires_grad_(False)


def python_of(loop: Any) -> Any:
    """The loop as plain Python, what it calls compiled."""
    return getattr(loop, "py_func", loop)


@pytest.mark.parametrize("length", [1, 2, 13])
def test_states_and_gradients_of_one_sequence_are_those_of_the_plain_steps(length: int) -> None:
    x, h, *w = (
        torch.from_numpy(drawn(seed, *shape)).requires_grad_()
        for seed, shape in enumerate([(length, 1, D), (1, D), (3 * D, D), (3 * D, D), (3 * D,), (3 * D,)])
    )
    found = []
    for path in ("plain", "by_hand"):
        out, last = layer("gru", x, h, Weights(*w), path)  # type: ignore[arg-type]
        loss = (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum() + last.sin().sum()
        found.append([out, last, *torch.autograd.grad(loss, [x, h, *w])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


@pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed: pip install -e '.[fast]'")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_and_plain_python_compute_the_same_bits(dtype: Any) -> None:
    T, G = 3, 3 * D
    hh_DG, hh_GD = drawn(1, D, G, dtype=dtype), drawn(2, G, D, dtype=dtype)
    found = []
    for run in (lambda loop: loop, python_of):
        rzu_TG, n_TD, h_TD = drawn(3, T, G, dtype=dtype), drawn(4, T, D, dtype=dtype), drawn(5, T + 1, D, dtype=dtype)
        da_TG, side_TG, carried_D = np.zeros((T, G), dtype), np.zeros((T, G), dtype), np.zeros(D, dtype)
        w_P, square_P, product_G = drawn(6, 50, dtype=dtype), drawn(7, 50, dtype=dtype) ** 2, drawn(8, G, dtype=dtype)
        run(loops.add_product)(product_G, hh_DG, h_TD[0])
        for t in range(T):
            run(loops.gru_step)(rzu_TG[t], n_TD[t], h_TD[t], h_TD[t + 1], hh_DG)
        run(loops.gru_backward)(drawn(9, T, D, dtype=dtype), rzu_TG, n_TD, h_TD, hh_GD, da_TG, side_TG, carried_D)
        run(loops.rms_step)(w_P, drawn(10, 50, dtype=dtype), square_P, np.array([0.9, 0.1, 0.01, 1e-8], dtype))
        found.append((product_G, rzu_TG, n_TD, h_TD, da_TG, side_TG, carried_D, square_P))
        np.testing.assert_allclose(w_P, drawn(6, 50) - 0.01 * drawn(10, 50) / np.sqrt(square_P), rtol=1e-5, atol=1e-6)
    for compiled, plain in zip(*found, strict=True):
        assert np.array_equal(compiled, plain)


def test_a_product_is_that_of_numpy() -> None:
    for rows in (1, 4, 9):
        w_MN, x_M, y_N = drawn(1, rows, 5), drawn(2, rows), drawn(3, 5)
        expected = y_N + x_M @ w_MN
        loops.add_product(y_N, w_MN, x_M)
        np.testing.assert_allclose(y_N, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("config", [{}, {"layers": 1, "tied": False}, {"layers": 3}])
def test_a_session_gives_the_networks_logits_and_gradients_also_after_tokens_were_taken_back(
    config: dict[str, Any],
) -> None:
    model = network(**config)
    x_1T = torch.randint(0, V, (1, 90), generator=seeded_generator(2))  # more than there is room for at first
    expected_1TV, _ = model.absorb(model.start(1), x_1T)
    session = GRUSession(model, model.start(1), 8)
    logits = [session.step(x_1) for x_1 in x_1T[:, :40].unbind(1)]
    session.absorb(x_1T[:, :20])  # another text, which is forgotten
    session.rewind(20)
    fork = session.fork()
    logits += [session.step(x_1) for x_1 in x_1T[:, 40:].unbind(1)]
    torch.testing.assert_close(torch.stack(logits, 1), expected_1TV, **EXACT)
    torch.testing.assert_close(fork.absorb(x_1T[:, 40:]), expected_1TV[:, 40:], **EXACT)
    model.requires_grad_(True)
    gradients = []
    for absorb in (model.absorb, lambda state, x_1T: session.absorb_again(model, state, x_1T)):
        logits_1TV, last = absorb(model.start(1), x_1T)
        torch.testing.assert_close(last[0], session.state[0], **EXACT)
        gradients.append(torch.autograd.grad(logits_1TV.square().mean(), list(model.parameters())))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_a_session_in_single_precision_is_as_near_as_that_allows() -> None:
    model, x_1T = network(torch.float32), torch.randint(0, V, (1, 30), generator=seeded_generator(3))
    found = GRUSession(model, model.start(1)).absorb(x_1T)
    torch.testing.assert_close(found, model.absorb(model.start(1), x_1T)[0], rtol=1e-5, atol=1e-6)
