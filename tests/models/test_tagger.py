"""The encoders of sentences and the tagger on top: PyTorch's layers as the reference, and independence of the batch.

B sentences, T words of the longest, F features, C tags.
"""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from octavo.core import seeded_generator
from octavo.costs import Shape, cost_of_config
from octavo.errors import UserError
from octavo.models import parameter_count
from octavo.models.encoders import ENCODERS, EncoderName, RecurrentEncoder
from octavo.models.tagger import SequenceTagger, TaggerConfig

FEATURES, TAGS, LENGTHS = 30, 4, torch.tensor([5, 1, 3])
BOTH = [(encoder, both) for encoder in ENCODERS for both in (True, False)]


def tagger(**settings: Any) -> SequenceTagger:
    """One whose weights are all drawn at random, in double precision."""
    model = SequenceTagger(
        TaggerConfig(**{"width": 8, "layers": 2, "heads": 2, "dropout": 0.0} | settings), FEATURES, TAGS
    )
    model.initialise(seeded_generator(0))
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn(weight.shape, generator=seeded_generator(weight.numel()))
    return model.double()


def sentences() -> tuple[Tensor, Tensor]:
    """x_BTF, 0 behind a sentence's end, and y_BT."""
    x_BTF = torch.randint(0, FEATURES, (3, 5, 11), generator=seeded_generator(1))
    y_BT = torch.randint(0, TAGS, (3, 5), generator=seeded_generator(2))
    x_BTF[torch.arange(5) >= LENGTHS[:, None]] = 0
    return x_BTF, y_BT


def test_every_encoder_has_a_name_among_the_settings() -> None:
    assert set(ENCODERS) == set(get_args(EncoderName))


@pytest.mark.parametrize(("encoder", "bidirectional"), BOTH)
def test_what_is_said_of_a_sentence_does_not_depend_on_the_batch(encoder: str, bidirectional: bool) -> None:
    model, (x_BTF, y_BT) = tagger(encoder=encoder, bidirectional=bidirectional), sentences()
    loss_B, (tags_BT, p_BTC) = model.loss(x_BTF, LENGTHS, y_BT), model.decode(x_BTF, LENGTHS)
    for b, n in enumerate(LENGTHS.tolist()):
        alone = x_BTF[b : b + 1, :n], torch.tensor([n])
        torch.testing.assert_close(model.loss(*alone, y_BT[b : b + 1, :n])[0], loss_B[b], rtol=1e-9, atol=1e-9)
        (own_1T, own_1TC) = model.decode(*alone)
        assert own_1T[0].tolist() == tags_BT[b, :n].tolist()
        torch.testing.assert_close(own_1TC[0], p_BTC[b, :n], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("encoder", "bidirectional"), BOTH)
def test_one_direction_does_not_see_what_follows_and_two_do(encoder: str, bidirectional: bool) -> None:
    model, (x_BTF, _) = tagger(encoder=encoder, bidirectional=bidirectional), sentences()
    changed = x_BTF.clone()
    changed[0, 4] = (changed[0, 4] + 7) % FEATURES
    before, after = model(x_BTF, LENGTHS)[0, 0], model(changed, LENGTHS)[0, 0]
    assert torch.equal(before, after) == (not bidirectional or encoder == "none")


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_recurrent_encoders_are_pytorchs(cell: Any, bidirectional: bool) -> None:
    ours = RecurrentEncoder(cell, TaggerConfig(width=8, layers=2, dropout=0.0, bidirectional=bidirectional)).double()
    ours.initialise(seeded_generator(0))
    theirs = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell](8, 8, 2, bidirectional=bidirectional).double()
    for n in range(2):
        for stack, end in ((ours.forwards, ""), (ours.backwards, "_reverse"))[: 2 if bidirectional else 1]:
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(theirs, f"{name}_l{n}{end}").data.copy_(getattr(stack[n], name).data)
    x_BTD = torch.randn(3, 5, 8, generator=seeded_generator(3), dtype=torch.double)
    packed = nn.utils.rnn.pack_padded_sequence(x_BTD, LENGTHS, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    real_BT1 = (torch.arange(5) < LENGTHS[:, None])[..., None]
    torch.testing.assert_close(ours(x_BTD, LENGTHS) * real_BT1, expected * real_BT1, rtol=1e-10, atol=1e-10)


def test_a_chain_of_zeros_is_a_softmax_for_each_word() -> None:
    with_chain, without, (x_BTF, y_BT) = tagger(), tagger(crf=False), sentences()
    without.load_state_dict(with_chain.state_dict(), strict=False)
    for one in (with_chain.start_C, with_chain.transition_CC, with_chain.end_C):
        assert one is not None
        one.data.zero_()
    torch.testing.assert_close(with_chain.loss(x_BTF, LENGTHS, y_BT), without.loss(x_BTF, LENGTHS, y_BT))
    (tags_BT, p_BTC), e_BTC = without.decode(x_BTF, LENGTHS), without(x_BTF, LENGTHS)
    real_BT = torch.arange(5) < LENGTHS[:, None]
    assert torch.equal(tags_BT[real_BT], e_BTC[real_BT].argmax(-1))
    torch.testing.assert_close(p_BTC[real_BT], F.softmax(e_BTC[real_BT], -1))


def test_the_loss_is_minus_the_log_probability_of_the_tags_and_all_sequences_sum_to_one() -> None:
    model, (x_BTF, _) = tagger(), sentences()
    every = torch.cartesian_prod(*[torch.arange(TAGS)] * 3)
    loss_B = model.loss(x_BTF[2:, :3].expand(len(every), -1, -1), torch.full((len(every),), 3), every)
    assert math.isclose(float((-loss_B.detach()).exp().sum()), 1.0, abs_tol=1e-5)


def test_forbidden_tags_are_never_the_answer() -> None:
    """Tag 0 begins no sentence and follows no other tag, however much its words ask for it."""
    model, (x_BTF, _) = tagger(), sentences()
    model.bias_C.data[0] = 30.0
    assert bool((model.decode(x_BTF, LENGTHS)[0][0] == 0).all())
    pair_CC = torch.zeros(TAGS, TAGS, dtype=torch.bool)
    pair_CC[:, 0] = True
    model.forbid(torch.tensor([True, False, False, False]), pair_CC)
    tags_BT, p_BTC = model.decode(x_BTF, LENGTHS)
    assert 0 not in tags_BT[0].tolist()
    assert p_BTC[..., 0].max().item() == 0.0


def test_a_unit_of_cost_is_a_product_with_each_word() -> None:
    """One word, one layer, one direction: the GRU's matrices, and the tags' scores."""
    config, sizes = TaggerConfig(width=8, bidirectional=False), {"features": FEATURES, "tags": TAGS}
    cost = cost_of_config("tagger", config, sizes, Shape(1, 1))
    assert cost.parameters == parameter_count(SequenceTagger(config, FEATURES, TAGS))
    assert cost.total("forward") == 2 * (2 * 24 * 8 + TAGS * 8)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(UserError, match="heads must divide width"):
        TaggerConfig(encoder="transformer", width=10, heads=4)
