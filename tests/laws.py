"""What holds of every language model, as functions that fail with an assertion. B batch, T time, V vocabulary."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo.core import LanguageModel, scan, select
from octavo.scoring import range_coder as coder
from octavo.scoring.token_costs import StreamShape, token_costs

LENGTHS = (1, 2, 63)
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def tokens(model: LanguageModel[Any], batch: int, length: int, seed: int = 0) -> Tensor:
    """Random tokens, the begin token never among them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.begin, (batch, length), generator=generator)


def logp(model: LanguageModel[Any], x_BT: Tensor) -> Tensor:
    """log p_BTV of the token after each of x_BT, begin absorbed first."""
    return model(model.prepend_begin(x_BT)).log_softmax(-1)


def same_state(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same_state(x, y) for x, y in zip(a, b, strict=True))
    return torch.equal(a, b) if isinstance(a, Tensor) else a is b


def step_by_step_equals_all_at_once(model: LanguageModel[Any], length: int) -> None:
    x_BT = model.prepend_begin(tokens(model, 3, length))
    at_once, last = model.absorb(model.start(3), x_BT)
    by_step, last_by_step = scan(model, model.start(3), x_BT)
    torch.testing.assert_close(at_once, by_step, **EXACT)
    next_B = x_BT[:, 0] * 0
    torch.testing.assert_close(model.step(last, next_B)[0], model.step(last_by_step, next_B)[0], **EXACT)


def cutting_absorb_anywhere_changes_nothing(model: LanguageModel[Any], length: int) -> None:
    x_BT = model.prepend_begin(tokens(model, 2, length))
    whole, _ = model.absorb(model.start(2), x_BT)
    for cut in {0, 1, length // 2, length, length + 1}:
        left, state = model.absorb(model.start(2), x_BT[:, :cut])
        right, _ = model.absorb(state, x_BT[:, cut:])
        torch.testing.assert_close(torch.cat([left, right], 1), whole, **EXACT)


def token_log_probs_are_what_step_predicts(model: LanguageModel[Any], length: int) -> None:
    x_BT = tokens(model, 2, length)
    expected_BT = logp(model, x_BT)[:, :-1].gather(-1, x_BT[:, :, None]).squeeze(-1)
    torch.testing.assert_close(model.score(x_BT).double(), expected_BT.double(), **EXACT)
    state, parts = model.start(2), []
    opened_BT = model.prepend_begin(x_BT)
    for start in range(0, length, 7):  # windows that overlap by one token score every token once
        part, state = model.token_log_probs(state, opened_BT[:, start : start + 8])
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1).double(), expected_BT.double(), **EXACT)


def the_future_cannot_change_the_past(model: LanguageModel[Any], length: int) -> None:
    x_BT = tokens(model, 2, length)
    y_BT = x_BT.clone()
    y_BT[:, -1] = (y_BT[:, -1] + 1) % model.begin
    assert torch.equal(logp(model, x_BT)[:, :length], logp(model, y_BT)[:, :length])


def rows_do_not_touch_each_other(model: LanguageModel[Any], length: int) -> None:
    x_BT = tokens(model, 3, length)
    together = logp(model, x_BT)
    for row in range(3):
        torch.testing.assert_close(together[row : row + 1], logp(model, x_BT[row : row + 1]), **EXACT)


def step_does_not_mutate_its_state(model: LanguageModel[Any], length: int) -> None:
    x_BT = model.prepend_begin(tokens(model, 2, length))
    _, state = model.absorb(model.start(2), x_BT)
    before = copy.deepcopy(state)
    first, _ = model.step(state, x_BT[:, -1])
    assert same_state(state, before)
    assert torch.equal(model.step(state, x_BT[:, -1])[0], first)


def states_can_be_reordered(model: LanguageModel[Any], length: int) -> None:
    x_BT = model.prepend_begin(tokens(model, 3, length))
    _, state = model.absorb(model.start(3), x_BT)
    rows = torch.tensor([2, 0, 0])
    expected, _ = model.step(state, torch.tensor([0, 1, 0]))
    reordered, _ = model.step(select(state, rows), torch.tensor([0, 0, 0]))
    torch.testing.assert_close(reordered[0], expected[2], **EXACT)
    torch.testing.assert_close(reordered[1:], expected[:1].expand(2, -1), **EXACT)


def probabilities_sum_to_one(model: LanguageModel[Any], length: int) -> None:
    p_BTV = logp(model, tokens(model, 2, length)).exp()
    torch.testing.assert_close(p_BTV.sum(-1), torch.ones(2, length + 1, dtype=p_BTV.dtype), rtol=0, atol=1e-12)
    assert bool((p_BTV >= 0).all())


def compressing_costs_what_is_claimed_and_restores(model: LanguageModel[Any], length: int) -> None:
    x_T = tokens(model, 1, length)[0]
    claimed_bits = -float(model.score(x_T[None]).sum()) / math.log(2)
    if math.isinf(
        claimed_bits
    ):  # maximum likelihood: such a text cannot be coded, and test_coder says how it is refused
        return
    packed = coder.encode_tokens(model, x_T, 1)
    assert torch.equal(coder.decode_tokens(model, packed, length, 1), x_T)
    assert len(packed) <= claimed_bits / 8 * 1.001 + 64


def a_session_says_what_step_says(model: LanguageModel[Any], length: int) -> None:
    """Step by step, as a distribution, after a few tokens were taken back, and in a fork."""
    x_BT = tokens(model, 2, length + 3)
    with torch.no_grad():
        expected_BTV = model.absorb(model.start(2), x_BT)[0].log_softmax(-1)
        session = model.session(model.start(2), length)
        for t in range(length):
            logp_BV = session.predict(x_BT[:, t]).log() if t % 2 else session.step(x_BT[:, t]).log_softmax(-1)
            torch.testing.assert_close(logp_BV, expected_BTV[:, t], **EXACT)
        fork = session.fork()
        for _ in range(2):
            for t in range(length, length + 3):
                torch.testing.assert_close(session.step(x_BT[:, t]).log_softmax(-1), expected_BTV[:, t], **EXACT)
            session.rewind(3)
        torch.testing.assert_close(fork.step(x_BT[:, length]).log_softmax(-1), expected_BTV[:, length], **EXACT)
        state = session.state
    torch.testing.assert_close(model.step(state, x_BT[:, length])[0].log_softmax(-1), expected_BTV[:, length], **EXACT)


def parallel_scoring_equals_sequential(model: LanguageModel[Any], length: int) -> None:
    """Several documents, some as long as the receptive field, in blocks that end anywhere: every token costs the same
    in parallel streams as when its document is read from its first token on.
    """
    field = model.receptive_field
    lengths = [length, 1, *((field + 1, max(1, field), 3 * field + 5) if field is not None else (17,)), 2 * length + 1]
    documents = [tokens(model, 1, n, seed)[0] for seed, n in enumerate(lengths)]
    sequential = torch.cat([-model.score(x_T[None])[0].double() / math.log(2) for x_T in documents])
    opened = np.concatenate([model.prepend_begin(x_T[None])[0].numpy() for x_T in documents]).astype(np.int32)
    shapes: list[StreamShape | None] = [None]
    if field is not None and not model.window_stride:
        shapes += [StreamShape(n, n, max(1, field)) for n in (field + 1, field + 4)]
    for shape in shapes:
        for blocks in ([opened], np.array_split(opened, 5)):
            scored = list(token_costs(model, blocks, shape))
            x_N = np.concatenate([x for x, _ in scored])
            bits_N = np.concatenate([bits for _, bits in scored])
            assert np.array_equal(x_N[x_N != model.begin], np.concatenate([x_T.numpy() for x_T in documents]))
            torch.testing.assert_close(torch.from_numpy(bits_N[x_N != model.begin]), sequential, **EXACT)
            assert not bits_N[x_N == model.begin].any()


LAWS = (
    step_by_step_equals_all_at_once,
    cutting_absorb_anywhere_changes_nothing,
    token_log_probs_are_what_step_predicts,
    the_future_cannot_change_the_past,
    rows_do_not_touch_each_other,
    step_does_not_mutate_its_state,
    states_can_be_reordered,
    probabilities_sum_to_one,
    compressing_costs_what_is_claimed_and_restores,
    a_session_says_what_step_says,
    parallel_scoring_equals_sequential,
)
