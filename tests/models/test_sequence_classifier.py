"""A classifier of word sequences: its texts do not influence each other, and its GRU is PyTorch's.

B texts, T words of the longest.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from octavo.core import seeded_generator
from octavo.costs import cost_of_config
from octavo.errors import UserError
from octavo.models import sequence_classifier
from octavo.models.cost.parts import Shape
from octavo.models.encoders import ENCODERS
from octavo.models.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from octavo.text.bag_of_ngrams import Bags

TEXTS = [[3, 1, 4, 1, 5], [2], [], [7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5], [3, 1], [4, 4, 4]]
BOTH = [(encoder, both) for encoder in ENCODERS for both in (True, False)]


def bags_of(texts: list[list[int]]) -> Bags:
    sizes = torch.tensor([len(text) for text in texts])
    ids_N = torch.tensor([word for text in texts for word in text], dtype=torch.long)
    return Bags(ids_N, torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)]))


def classifier(**settings: Any) -> SequenceClassifier:
    config = SequenceClassifierConfig(**{"width": 8, "heads": 2, "dropout": 0.0, "word_dropout": 0.0} | settings)
    model = SequenceClassifier(config, 9, 8, 3)
    model.initialise(seeded_generator(4))
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():  # some parts start at zero, and would hide what they read
            weight += 0.3 * torch.randn_like(weight)
    return model.double()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize(("encoder", "bidirectional"), BOTH)
def test_a_batch_of_different_lengths_equals_its_texts_one_by_one(
    encoder: str, bidirectional: bool, pooling: str, training: bool
) -> None:
    model = classifier(encoder=encoder, bidirectional=bidirectional, pooling=pooling, layers=2).train(training)
    together = model(bags_of(TEXTS))
    alone = torch.cat([model(bags_of([text])) for text in TEXTS])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    sum_together, sum_alone = (
        torch.autograd.grad(one.square().sum(), model.vectors_VD)[0] for one in (together, alone)
    )
    torch.testing.assert_close(sum_together, sum_alone, rtol=1e-9, atol=1e-12)
    assert not sum_together[0].any()  # the row of what is unknown, which fills up


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name != "none"])
def test_the_order_of_the_words_counts_and_without_an_encoder_it_does_not(encoder: str) -> None:
    there, back = bags_of([[3, 1, 4]]), bags_of([[4, 1, 3]])
    model, plain = classifier(encoder=encoder).eval(), classifier(encoder="none", pooling="mean").eval()
    assert not torch.allclose(model(there), model(back), atol=1e-9)
    torch.testing.assert_close(plain(there), plain(back), rtol=0, atol=1e-15)


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("layers", [1, 2])
def test_its_gru_in_both_directions_is_pytorchs(pooling: str, layers: int) -> None:
    model = classifier(pooling=pooling, layers=layers).eval()
    theirs = nn.GRU(8, 8, layers, batch_first=True, bidirectional=True).double()
    state = {
        f"{name}_l{n}{suffix}": weight
        for n in range(layers)
        for suffix, side in (("", model.encoder.forwards), ("_reverse", model.encoder.backwards))
        for name, weight in side[n].named_parameters()
    }
    theirs.load_state_dict(state)
    texts = [text for text in TEXTS if text]
    rows = pad_sequence([model.vectors_VD[text] for text in texts], batch_first=True)
    packed = pack_padded_sequence(rows, torch.tensor([len(t) for t in texts]), batch_first=True, enforce_sorted=False)
    h_BTE, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True)
    pool = (lambda h: h.mean(0)) if pooling == "mean" else (lambda h: h.amax(0))
    x_BE = torch.stack([pool(h_TE[: len(text)]) for h_TE, text in zip(h_BTE, texts, strict=True)])
    torch.testing.assert_close(model.text_vectors(bags_of(texts)), x_BE, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(model(bags_of(texts)), model.head(x_BE), rtol=1e-10, atol=1e-12)


def test_a_text_without_words_has_the_vector_zero() -> None:
    for pooling in ("mean", "max"):
        model = classifier(pooling=pooling)
        for some in ([[]], [[], [1]]):
            assert not model.text_vectors(bags_of(some))[0].any()
        assert model(bags_of([])).shape == (0, 3)


def test_passes_of_few_words_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier().eval()
    whole = model(bags_of(TEXTS))
    monkeypatch.setattr(sequence_classifier, "MAX_PASS_WORDS", 12)
    sizes_B = bags_of(TEXTS).sizes
    split = list(sequence_classifier.passes(sizes_B))
    assert sorted(torch.cat(split).tolist()) == list(range(len(TEXTS)))
    assert all(len(rows) == 1 or len(rows) * int(sizes_B[rows].max()) <= 12 for rows in split)
    torch.testing.assert_close(model(bags_of(TEXTS)), whole, rtol=1e-12, atol=1e-12)


def test_training_leaves_words_out_and_keeps_their_order() -> None:
    model = classifier(word_dropout=0.5, encoder="gru").train()
    texts = [[1, 2, 3]]
    torch.manual_seed(2)
    kept = {tuple(model._without_some(bags_of(texts)).ids_N.tolist()) for _ in range(200)}
    assert kept == {(), (1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)}


def test_a_unit_of_cost_is_a_product_with_each_word_and_the_output_one_with_each_text() -> None:
    config = SequenceClassifierConfig(width=8, encoder="gru")
    cost = cost_of_config("sequence-classifier", config, {"words": 50, "classes": 3}, Shape(2, 6))
    model = SequenceClassifier(config, 51, 8, 3)
    assert cost.parameters == sum(weight.numel() for weight in model.parameters())
    gru, head = 2 * (3 * 8 * 8 + 3 * 8 * 8), 3 * 16
    assert cost.total("forward") == 2 * (12 * gru + 2 * head)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(UserError, match="heads must divide width"):
        SequenceClassifierConfig(encoder="transformer", width=10, heads=4)
