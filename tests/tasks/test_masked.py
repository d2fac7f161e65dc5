"""BERT: the same model as transformers', text spoilt as it says, packed without loss, saved and read without trust."""

from __future__ import annotations

import copy
import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import octavo
from octavo.cli import main
from octavo.core import seeded_generator
from octavo.errors import Stopped, UserError
from octavo.exchange.bert import read_bert, write_bert
from octavo.models import parameter_count
from octavo.models.bert import Bert, BertConfig, bert_cost
from octavo.models.cost.parts import Shape
from octavo.ops.attention.patterns import Texts
from octavo.ops.tracing import trace
from octavo.tasks.encoder import Encoder, load_encoder
from octavo.tasks.masked import TASK, encoded, losses_of, measure_masked
from octavo.tasks.masking import FOLLOWS, NOTHING, RANDOM, SWAPPED, MaskConfig, Masked
from octavo.tasks.run import load as load_run
from octavo.tasks.sentences import Sentences, split_sentences
from octavo.tasks.training_run import resume_run, train_run
from octavo.text import Chunk, WordPieceSettings
from octavo.text.tokenizers.wordpiece import SPECIAL, WordPiece
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import parameter_groups
from octavo.training.precision import Precision

ALL = ("words", "next", "order", "replaced")
SMALL = BertConfig(width=16, layers=2, heads=4, feed_forward_width=40, context=32, norm_eps=1e-5, tasks=ALL)
TEXT = "The cat sat on the mat. A dog lay by the door! Did the bird sing? It sang all day long. " * 40


@pytest.fixture(scope="module")
def tokenizer() -> WordPiece:
    return WordPiece.learn([Chunk(TEXT.encode())], WordPieceSettings(120))


def random_bert(config: BertConfig = SMALL, vocab: int = 120, dtype: torch.dtype = torch.float32) -> Bert:
    """Every parameter drawn, biases and norms too, so that none can be mixed up unseen."""
    model, generator = Bert(config, vocab), seeded_generator(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.empty(parameter.shape).normal_(0, 0.3, generator=generator))
    return model.to(dtype).eval()


def hidden_states(model: Bert, x_BT: torch.Tensor, segment_BT: torch.Tensor | None = None) -> list[torch.Tensor]:
    """The embeddings, and what each layer makes of them."""
    bare = copy.deepcopy(model)
    bare.blocks = torch.nn.ModuleList()
    with trace() as found:
        model.encode(x_BT, segment_BT)
    return [bare.encode(x_BT, segment_BT), *found["stream"]]


def theirs_of(model: Bert, tokenizer: WordPiece, folder: Path, kind: Any = transformers.BertForPreTraining) -> Any:
    """The same model as transformers loads it."""
    write_bert(model, tokenizer, folder)
    return kind.from_pretrained(folder).eval()


def numbered(documents: int = 3, sentences: int = 30, length: int = 6) -> Sentences:
    """A text whose tokens say where they stand: all different, one more at each place."""
    count = documents * sentences
    starts = np.arange(count + 1) * length
    tokens = np.arange(count * length, dtype=np.int64) + len(SPECIAL)
    return Sentences(tokens, starts, np.repeat(np.arange(documents), sentences))


class Numbers:
    """A tokenizer for such a text."""

    pad, unknown, first, end, mask = range(len(SPECIAL))

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab

    @property
    def ordinary(self) -> Any:
        return np.arange(len(SPECIAL), self.vocab)


def batches(tasks: tuple[str, ...], rows: int = 8, length: int = 64, seed: int = 0, **mask: float) -> Masked:
    sentences = numbered()
    tokenizer: Any = Numbers(len(sentences.tokens_N) + len(SPECIAL))
    return Masked(sentences, tokenizer, tasks, rows, length, seed, MaskConfig(**mask))


# ---------------------------------------------------------------------- the same model as transformers'


def test_hidden_states_logits_and_loss_are_those_of_transformers(tokenizer: WordPiece, tmp_path: Path) -> None:
    model = random_bert(replace(SMALL, tasks=("words", "next")))
    theirs = theirs_of(model, tokenizer, tmp_path / "hf").double()
    model = model.double()
    x_BT = torch.randint(5, 120, (3, 11), generator=seeded_generator(1))
    segment_BT = (torch.arange(11) > 5).long().expand(3, -1)
    labels_BT = torch.where(torch.rand(3, 11, generator=seeded_generator(2)) < 0.3, x_BT, -100)
    follows_B = torch.tensor([0, 1, 1])
    expected = theirs(x_BT, token_type_ids=segment_BT, labels=labels_BT, next_sentence_label=follows_B,
                  output_hidden_states=True)  # fmt: skip
    for ours, other in zip(hidden_states(model, x_BT, segment_BT), expected.hidden_states, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=1e-12)
    h_BTD = model.encode(x_BT, segment_BT)
    torch.testing.assert_close(model.word_logits(h_BTD), expected.prediction_logits, rtol=0, atol=1e-11)
    assert model.next is not None
    logits_B2 = model.next(model.pool(h_BTD[:, 0]))
    torch.testing.assert_close(logits_B2, expected.seq_relationship_logits, rtol=0, atol=1e-11)
    cross_entropy = torch.nn.functional.cross_entropy
    charged = labels_BT != -100
    loss = cross_entropy(model.word_logits(h_BTD[charged]), labels_BT[charged]) + cross_entropy(logits_B2, follows_B)
    torch.testing.assert_close(loss, expected.loss, rtol=0, atol=1e-12)


def test_gradients_are_those_of_transformers(tokenizer: WordPiece, tmp_path: Path) -> None:
    model = random_bert(replace(SMALL, tasks=("words", "next")))
    theirs = theirs_of(model, tokenizer, tmp_path / "hf").double()
    model = model.double()
    x_BT = torch.randint(5, 120, (3, 9), generator=seeded_generator(1))
    expected = theirs(x_BT)
    (expected.prediction_logits.square().sum() + expected.seq_relationship_logits.exp().sum()).backward()
    h_BTD = model.encode(x_BT)
    assert model.next is not None
    (model.word_logits(h_BTD).square().sum() + model.next(model.pool(h_BTD[:, 0])).exp().sum()).backward()
    pairs = {
        "embedding_VD": theirs.bert.embeddings.word_embeddings.weight,
        "blocks.1.attention.query_DD": theirs.bert.encoder.layer[1].attention.self.query.weight,
        "blocks.0.feed_forward.down_bias_D": theirs.bert.encoder.layer[0].output.dense.bias,
        "pooler.weight_DD": theirs.bert.pooler.dense.weight,
        "words.norm.weight_D": theirs.cls.predictions.transform.LayerNorm.weight,
    }
    ours = dict(model.named_parameters())
    for name, other in pairs.items():
        torch.testing.assert_close(ours[name].grad, other.grad, rtol=1e-9, atol=1e-10)


@pytest.mark.data("minilm")
def test_minilm_gives_the_hidden_states_and_sentence_vectors_of_transformers() -> None:
    ours = load_encoder("minilm")
    theirs: Any = transformers.BertModel.from_pretrained(str(ours.path)).eval()
    texts = ["The cat sat on the mat.", "A feline was resting on a rug, quite happily and for a long while.", "Rain!"]
    known: Any = transformers.AutoTokenizer.from_pretrained(str(ours.path))
    expected = known(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        states = theirs(**expected, output_hidden_states=True).hidden_states
    for b in range(len(texts)):
        length = int(expected["attention_mask"][b].sum())
        with torch.no_grad():
            mine = hidden_states(ours.model, expected["input_ids"][b : b + 1, :length])
        for one, other in zip(mine, states, strict=True):
            torch.testing.assert_close(one[0], other[b, :length], rtol=0, atol=1e-4)
    there = expected["attention_mask"][..., None]
    mean_BD = torch.nn.functional.normalize((states[-1] * there).sum(1) / there.sum(1))
    torch.testing.assert_close(ours.encode(texts), mean_BD, rtol=0, atol=1e-4)
    cat, feline, rain = ours.encode(texts)
    assert cat @ feline > cat @ rain + 0.2


def test_an_untied_bert_trained_by_transformers_keeps_the_bias_that_was_trained(
    tokenizer: WordPiece, tmp_path: Path
) -> None:
    write_bert(random_bert(replace(SMALL, tasks=("words",), tied=False)), tokenizer, tmp_path / "hf")
    theirs: Any = transformers.BertForMaskedLM.from_pretrained(tmp_path / "hf").train()
    x_BT = torch.randint(5, 120, (2, 7), generator=seeded_generator(1))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    theirs(x_BT, labels=x_BT).loss.backward()
    optimizer.step()
    head = theirs.cls.predictions
    assert (head.bias - head.decoder.bias).abs().max() > 0.01  # only the second has a gradient
    theirs.eval().save_pretrained(tmp_path / "hf")
    model, _, _ = read_bert(tmp_path / "hf")
    assert not model.config.tied
    expected = theirs.double()(x_BT).logits
    torch.testing.assert_close(model.double().word_logits(model.encode(x_BT)), expected, rtol=0, atol=1e-11)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    with pytest.raises(UserError, match=r"set tie_word_embeddings in config\.json to false"):
        read_bert(tmp_path / "hf")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("tasks", [(), ("words",), ("words", "next")])
def test_what_goes_out_comes_back_and_loads_in_transformers(
    tokenizer: WordPiece, tmp_path: Path, tasks: Any, tied: bool
) -> None:
    model = random_bert(replace(SMALL, tasks=tasks, tied=tied, feed_forward="gelu"))
    assert write_bert(model, tokenizer, tmp_path / "hf") == []
    back, _, _ = read_bert(tmp_path / "hf")
    assert back.config == (model.config if tasks else replace(model.config, tied=back.config.tied))
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    x_BT = torch.randint(5, 120, (2, 7), generator=seeded_generator(1))
    bare: Any = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()
    torch.testing.assert_close(bare(x_BT).last_hidden_state, model.encode(x_BT), rtol=0, atol=1e-5)
    if "words" in tasks:
        kind: Any = transformers.AutoModelForPreTraining if "next" in tasks else transformers.AutoModelForMaskedLM
        expected = kind.from_pretrained(tmp_path / "hf").eval()(x_BT)
        logits = expected.prediction_logits if "next" in tasks else expected.logits
        torch.testing.assert_close(logits, model.word_logits(model.encode(x_BT)), rtol=0, atol=1e-4)
    known: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    (ids,) = tokenizer.encode_texts(["The cat sang [MASK]!"], typed=True)
    assert known("The cat sang [MASK]!")["input_ids"] == [tokenizer.first, *ids.tolist(), tokenizer.end]


def test_heads_that_transformers_lacks_are_left_out_and_reported(tokenizer: WordPiece, tmp_path: Path) -> None:
    (message,) = write_bert(random_bert(), tokenizer, tmp_path / "hf")
    assert "order, replaced" in message
    assert read_bert(tmp_path / "hf")[0].config.tasks == ("words", "next")


def test_the_names_of_the_first_releases_are_known(tokenizer: WordPiece, tmp_path: Path) -> None:
    model = random_bert(replace(SMALL, tasks=("words", "next")))
    write_bert(model, tokenizer, tmp_path / "hf")
    file = tmp_path / "hf" / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
           for name, tensor in tensors.items()}  # fmt: skip
    old |= {"cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone()}
    old |= {"bert.embeddings.position_ids": torch.arange(32)[None]}
    safetensors.torch.save_file(old, file)
    back, _, _ = read_bert(tmp_path / "hf")
    assert back.config.tied
    assert torch.equal(back.norm.weight_D, model.norm.weight_D)


def test_the_same_words_are_learnt_in_every_process() -> None:
    code = (
        "from octavo.text import Chunk, WordPiece, WordPieceSettings; import sys, json; "
        "learnt = WordPiece.learn([Chunk(sys.argv[1].encode())], WordPieceSettings(100)); "
        "print(json.dumps(learnt.huggingface_json()['model']))"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", code, TEXT], capture_output=True, text=True).stdout for _ in range(2)
    }
    (model,) = map(json.loads, outputs)
    assert model == WordPiece.learn([Chunk(TEXT.encode())], WordPieceSettings(100)).huggingface_json()["model"]
    assert {"cat", "##t", "the", "[MASK]"} <= set(model["vocab"])


def test_a_learnt_vocabulary_spells_words_it_has_never_seen() -> None:
    known = WordPiece.learn([Chunk(b"unhappy happily unkind kindly")], WordPieceSettings(100))
    (ids,) = known.encode_texts(["Unhappily, kind"])
    assert known.unknown in ids  # the comma was never seen
    assert known.decode(ids) == b"unhappily [UNK] kind"
    assert "##" in "".join(known.token(int(i)) for i in ids)


# ---------------------------------------------------------------------- packing


def test_packed_texts_equal_texts_by_themselves_in_value_and_gradient() -> None:
    model = random_bert(dtype=torch.float64)
    generator = seeded_generator(5)
    texts = [torch.randint(5, 120, (n,), generator=generator) for n in (7, 13, 1, 10)]
    lengths = torch.tensor([len(text) for text in texts])
    x_BT = torch.cat([*texts, torch.tensor([0])])[None]  # one place is left over
    text_BT = torch.cat([torch.arange(4).repeat_interleave(lengths), torch.tensor([-1])])[None]
    place_BT = torch.cat([*map(torch.arange, lengths.tolist()), torch.zeros(1, dtype=torch.long)])[None]
    segment_BT = place_BT % 2
    weights_TD = torch.randn(31, 16, generator=generator, dtype=torch.float64)
    packed_TD = model.encode(x_BT, segment_BT, place_BT, Texts(text_BT))[0, :31]
    (packed_TD * weights_TD).sum().backward()
    gradient = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    alone = [model.encode(text[None], (torch.arange(len(text)) % 2)[None])[0] for text in texts]
    torch.testing.assert_close(packed_TD, torch.cat(alone), rtol=0, atol=1e-12)
    (torch.cat(alone) * weights_TD).sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradient[name], parameter.grad, rtol=1e-9, atol=1e-11)


def test_rows_are_full_and_every_text_begins_anew() -> None:
    made = batches(ALL)
    for step in range(20):
        batch = made.at(step)
        assert batch.waste == 0
        for x_T, segment_T, place_T, text_T in zip(*batch[:4], strict=True):
            for text in range(int(text_T.max()) + 1):
                inside = text_T == text
                assert place_T[inside].tolist() == list(range(int(inside.sum())))
                first, *_, last = x_T[inside].tolist()
                assert (first, last) == (Numbers.first, Numbers.end)
                ends = (x_T[inside] == Numbers.end).nonzero().flatten()
                assert len(ends) == 2
                assert segment_T[inside].tolist() == [0] * (int(ends[0]) + 1) + [1] * int(ends[1] - ends[0])


def test_a_short_document_leaves_a_few_places_empty_and_they_are_counted() -> None:
    sentences = numbered(documents=40, sentences=2, length=4)
    tokenizer: Any = Numbers(1000)
    made = [Masked(sentences, tokenizer, ("words",), 4, 64, 0).at(step) for step in range(10)]
    empty = np.mean([float((batch.x_BT == Numbers.pad).double().mean()) for batch in made])
    assert 0 < empty == np.mean([batch.waste for batch in made]) < 8 / 64


def test_a_step_reads_the_same_whenever_it_is_asked_for() -> None:
    one, other = batches(ALL).at(7), batches(ALL).at(7)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert not torch.equal(one.x_BT, batches(ALL).at(8).x_BT)
    assert not torch.equal(one.x_BT, batches(ALL, seed=1).at(7).x_BT)


# ---------------------------------------------------------------------- what is asked


def test_pairs_follow_each_other_come_from_elsewhere_or_are_swapped_as_their_labels_say() -> None:
    made, seen = batches(ALL, share=0.0, replaced=0.0), dict.fromkeys((FOLLOWS, RANDOM, SWAPPED), 0)
    for step in range(60):
        batch = made.at(step)
        x_N, text_N = batch.x_BT.flatten(), batch.text_BT.flatten()
        for first, follows, order in torch.stack([batch.first_P, batch.next_P, batch.order_P], 1).tolist():
            ends = (x_N[first:] == Numbers.end).nonzero().flatten()[:2] + first
            assert text_N[first] == text_N[ends[1]]
            one, other = x_N[first + 1 : ends[0]] - 5, x_N[ends[0] + 1 : ends[1]] - 5
            for part in (one, other):
                assert (part.diff() == 1).all()
                assert len(part)
            same_document = bool(one[0] // 180 == other[0] // 180)
            kind = SWAPPED if follows == NOTHING else follows
            seen[kind] += 1
            assert order == (NOTHING if kind == RANDOM else kind // SWAPPED)
            if kind == RANDOM:
                assert not same_document
            else:  # at the joint less than a sentence of six tokens may be cut off each
                early, late = (other, one) if kind == SWAPPED else (one, other)
                assert same_document
                assert 0 < late[0] - early[-1] <= 1 + 2 * 5
    total = sum(seen.values())
    for count in seen.values():  # 4.5 standard deviations
        assert abs(count - total / 3) < 4.5 * math.sqrt(total * 2 / 9)


def test_where_nothing_is_asked_about_sentences_they_follow_each_other() -> None:
    batch = batches(("words",)).at(0)
    assert set(batch.next_P.tolist()) == {FOLLOWS}
    assert set(batches(("words", "next")).at(0).next_P.tolist()) == {FOLLOWS, RANDOM}


def test_of_the_chosen_tokens_80_per_cent_are_hidden_10_replaced_and_10_kept() -> None:
    made, counts, chosen = batches(("words",), rows=32), np.zeros(3), 0
    real = 0
    for step in range(40):
        batch = made.at(step)
        there = batch.x_BT.flatten()[batch.chosen_N]
        counts += [int((there == Numbers.mask).sum()), 0, int((there == batch.target_N).sum())]
        chosen += len(there)
        real += int((~torch.isin(batch.x_BT, torch.tensor([Numbers.pad, Numbers.first, Numbers.end]))).sum())
    counts[1] = chosen - counts[0] - counts[2]
    for count, share in zip(counts, (0.8, 0.1, 0.1), strict=True):
        # A random token is the right one once in 540 times; 4.5 standard deviations is one failure in 150,000.
        assert abs(count - share * chosen) < 4.5 * math.sqrt(chosen * share * (1 - share)) + 0.1 * chosen / 540
    assert abs(chosen / real - 0.15) < 0.005  # a share of each row, to the nearest token


def test_the_loss_of_words_is_charged_at_the_chosen_places_alone(tokenizer: WordPiece) -> None:
    sentences = Sentences.of([(0, TEXT)], tokenizer)
    batch = Masked(sentences, tokenizer, ("words",), 2, 32, 0).at(0)
    model = random_bert(replace(SMALL, tasks=("words",)), dtype=torch.float64)
    logits_NV = model.word_logits(encoded(model, batch).flatten(0, 1))
    logits_NV.retain_grad()
    by_hand = torch.zeros((), dtype=torch.float64)
    for place, target in zip(batch.chosen_N.tolist(), batch.target_N.tolist(), strict=True):
        by_hand = by_hand - logits_NV[place].log_softmax(-1)[target] / len(batch.chosen_N)
    torch.testing.assert_close(losses_of(model, batch)["words"], by_hand, rtol=0, atol=1e-12)
    by_hand.backward()
    assert logits_NV.grad is not None
    charged = logits_NV.grad.abs().sum(-1).nonzero().flatten()
    assert charged.tolist() == batch.chosen_N.tolist()
    assert len(charged) < batch.x_BT.numel() / 4


def test_replaced_tokens_are_drawn_from_the_text_and_distinguished_from_those_that_are_not() -> None:
    made = batches(("words", "replaced"), rows=32)
    plain = batches(("words", "replaced"), rows=32, share=0.0, replaced=0.0)
    hit = judged = 0
    for step in range(10):
        batch = made.at(step)
        flat, chosen = batch.replaced_BT.flatten(), torch.zeros(batch.x_BT.numel(), dtype=torch.bool)
        chosen[batch.chosen_N] = True
        assert (flat[chosen] == NOTHING).all()  # words to be found are not judged too
        original = plain.at(step).x_BT  # the same pairs: they are drawn first
        asked = batch.replaced_BT != NOTHING
        assert torch.equal((batch.x_BT != original)[asked], batch.replaced_BT[asked] == 1)
        assert (batch.x_BT[asked] >= len(SPECIAL)).all()
        hit, judged = hit + int((batch.replaced_BT == 1).sum()), judged + int(asked.sum())
    assert abs(hit / judged - 0.15) < 4.5 * math.sqrt(0.15 * 0.85 / judged) + 0.15 / 540


def test_measured_accuracies_are_what_counting_gives(tokenizer: WordPiece) -> None:
    sentences = Sentences.of([(0, TEXT)], tokenizer)
    made = [Masked(sentences, tokenizer, ALL, 4, 32, 0).at(step) for step in range(3)]
    model = random_bert()
    measured = measure_masked(model, made)
    right = kinds = 0
    hits: dict[int, list[bool]] = {0: [], 1: []}
    assert model.replaced is not None
    for batch in made:
        with torch.no_grad():
            h_BTD = encoded(model, batch)
        guess = model.word_logits(h_BTD.flatten(0, 1)[batch.chosen_N]).argmax(-1)
        right, kinds = right + int((guess == batch.target_N).sum()), kinds + len(guess)
        scores = model.replaced(h_BTD).flatten().tolist()
        for score, truth in zip(scores, batch.replaced_BT.flatten().tolist(), strict=True):
            if truth != NOTHING:
                hits[truth].append((score > 0) == bool(truth))
    assert measured["words_accuracy"] == pytest.approx(right / kinds)
    assert measured["masked_words"] == kinds
    assert measured["replaced_balanced"] == pytest.approx((np.mean(hits[0]) + np.mean(hits[1])) / 2)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He came. She left!", ["He came.", "She left!"]),
        ("Mr. Smith met J. Doe in St. Ives. They ate.", ["Mr. Smith met J. Doe in St. Ives.", "They ate."]),
        ("First Citizen:\nSpeak,\nspeak.", ["First Citizen:", "Speak, speak."]),
        ('"Go." "No."', ['"Go."', '"No."']),
        ("A title\n\nIt costs 3.50 a day", ["A title", "It costs 3.50 a day"]),
        ("", []),
        ("x" * 4500, ["x" * 2000, "x" * 2000, "x" * 500]),
    ],
)
def test_sentences_end_where_a_reader_says(text: str, sentences: list[str]) -> None:
    assert list(split_sentences(text)) == sentences


# ---------------------------------------------------------------------- the encoder in use


def test_the_cost_of_an_encoder_run_is_refused_with_what_to_do(tokenizer: WordPiece) -> None:
    with pytest.raises(UserError, match="is a run of masked; name a model and its settings instead"):
        octavo.cost(Encoder(random_bert(), tokenizer))


def test_a_pseudo_log_likelihood_is_the_sum_over_tokens_hidden_one_by_one(tokenizer: WordPiece, tmp_path: Path) -> None:
    model = random_bert(replace(SMALL, tasks=("words",)))
    theirs = theirs_of(model, tokenizer, tmp_path / "hf", transformers.BertForMaskedLM)
    text = "The cat sat by the door."
    (found,) = tokenizer.encode_texts([text])
    x_T = torch.tensor([tokenizer.first, *found.tolist(), tokenizer.end])
    by_hand = []
    for place in range(1, len(x_T) - 1):
        hidden_T = x_T.clone()
        hidden_T[place] = tokenizer.mask
        with torch.no_grad():
            by_hand.append(float(theirs(hidden_T[None]).logits[0, place].log_softmax(-1)[x_T[place]]))
    scored = Encoder(model, tokenizer).pseudo_log_likelihood(text)
    assert scored.nats == pytest.approx(by_hand, abs=1e-4)
    assert scored.total == pytest.approx(sum(by_hand), abs=1e-3)
    assert len(scored.tokens) == len(found)


def test_filling_in_gives_the_probabilities_of_the_model(tokenizer: WordPiece) -> None:
    encoder = Encoder(random_bert(), tokenizer)
    one, other = encoder.fill("the [MASK] sat on [MASK]", 120)
    assert sum(guess.probability for guess in one) == pytest.approx(1)
    assert one != other
    assert [guess.probability for guess in one] == sorted((guess.probability for guess in one), reverse=True)
    (x_T,) = tokenizer.encode_texts(["the [MASK] sat on [MASK]"], typed=True)
    x_BT = torch.tensor([[tokenizer.first, *x_T.tolist(), tokenizer.end]])
    with torch.no_grad():
        p_V = encoder.model.word_logits(encoder.model.encode(x_BT)[:, 2]).softmax(-1)[0]
    assert one[0].probability == pytest.approx(float(p_V.max()), abs=1e-6)
    assert tokenizer.token(int(p_V.argmax())) == one[0].token
    with pytest.raises(UserError, match=r"no \[MASK\]"):
        encoder.fill("the cat")
    with pytest.raises(UserError, match="context=32; shorten it"):
        encoder.fill("[MASK] " * 40)


def test_a_vector_does_not_depend_on_the_other_texts_and_long_ones_are_cut(tokenizer: WordPiece) -> None:
    encoder = Encoder(random_bert(), tokenizer)
    texts = ["The cat.", "A dog lay by the door! " * 9, "Did the bird sing?", ""]
    together = encoder.encode(texts)
    for text, vector_D in zip(texts, together, strict=True):
        torch.testing.assert_close(encoder.encode([text])[0], vector_D, rtol=0, atol=1e-6)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(4))
    cut = encoder.encode(["A dog lay by the door! " * 30])[0]
    torch.testing.assert_close(cut, together[1], rtol=0, atol=1e-6)
    assert encoder.encode([]).shape == (0, 16)


# ---------------------------------------------------------------------- training, saved and read


HOW: dict[str, Any] = {
    "budget": "8steps", "batch_size": 4, "vocab_size": 120, "evaluations": 2, "precision": "float32",
}  # fmt: skip


def pretrain(corpus: str, config: BertConfig, out: Path | None = None, **settings: Any) -> Encoder:
    recipe = TASK.recipe("bert", {**asdict(config), **HOW, **settings}, device="cpu")
    run: Encoder = train_run(TASK, recipe, [corpus], out, quiet=True)
    return run


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    (tmp_path / "text.txt").write_text(TEXT * 4, encoding="utf-8")
    return str(tmp_path / "text.txt")


def test_training_makes_masked_words_cheaper(corpus: str) -> None:
    config = replace(SMALL, tasks=("words", "next"))
    trained = pretrain(corpus, config, budget="60steps")
    untrained = pretrain(corpus, config, learning_rate=1e-9, muon_learning_rate=1e-9)
    after, before = trained.record["result"], untrained.record["result"]
    assert before["words_perplexity"] == pytest.approx(trained.model.vocab, rel=0.2)  # nothing is known yet
    assert after["words_perplexity"] < 0.5 * before["words_perplexity"]
    assert trained.record["training"]["padding"] < 0.01


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(SMALL, dropout=0.1)
    whole = pretrain(corpus, config, tmp_path / "whole")
    plain = Masked.at

    def interrupting(self: Masked, step: int) -> Any:
        if step == 5 and self.rows == 4 and len(self.sentences) > 300:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(Masked, "at", interrupting)
        with pytest.raises(Stopped, match=r"go on with: octavo resume .*/parted"):
            pretrain(corpus, config, tmp_path / "parted")
    assert not json.loads((tmp_path / "parted" / "config.json").read_text())["training"]["finished"]
    parted = pretrain(corpus, config, tmp_path / "parted")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(parted.model.state_dict()[name], tensor), name
    assert parted.record["result"] == whole.record["result"]
    capped = resume_run(tmp_path / "parted", "12steps", quiet=True)
    assert capped.record["training"]["steps"] == 12
    (Path(corpus)).write_text(TEXT, encoding="utf-8")
    with pytest.raises(UserError, match="has changed since"):
        resume_run(tmp_path / "parted", "14steps", quiet=True)


def test_saved_and_loaded_it_answers_the_same(tokenizer: WordPiece, tmp_path: Path) -> None:
    encoder = Encoder(random_bert(), tokenizer, {"seed": 3})
    encoder.save(tmp_path / "run")
    back = load_encoder(tmp_path / "run")
    assert back.model.config == SMALL
    assert back.record == {"seed": 3, "parameters": parameter_count(back.model), "sha256": encoder.record["sha256"]}
    assert back.identity == encoder.identity
    assert back.fill("the [MASK]") == encoder.fill("the [MASK]")
    with pytest.raises(UserError, match="not trained to predict the next token"):
        load_run(tmp_path / "run")
    assert octavo.load(tmp_path / "run").identity == encoder.identity


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"config": {"width": 1 << 40}}, "must|large|shape"),
        ({"config": {"width": 16, "layers": 1 << 40}}, "layers must be at most"),
        ({"config": {"width": 16, "layers": 1 << 12}}, "a layer has tensors of its own"),
        ({"config": {"unheard_of": 1}}, "no setting"),
        ({"config": {"tasks": ["dance"]}}, "tasks must be"),
        ({"config": []}, "JSON object"),
        ({"sizes": {"vocab": 1 << 60}}, "shape|large"),
        ({"sizes": {"vocab": "many"}}, "sizes must be whole numbers vocab"),
        ({"sizes": None}, "sizes must be whole numbers vocab"),
        ({"model": "gpt"}, "must be an encoder"),
    ],
)
def test_a_forged_folder_is_refused_with_a_reason(
    tokenizer: WordPiece, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    Encoder(random_bert(), tokenizer).save(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps(record | change))
    with pytest.raises(UserError, match=why):
        load_encoder(tmp_path / "run")


@pytest.mark.parametrize("content", ["[]", "{}", "{", '{"model": {"type": "WordPiece", "vocab": {"[PAD]": 0}}}'])
def test_a_forged_tokenizer_is_refused(tokenizer: WordPiece, tmp_path: Path, content: str) -> None:
    Encoder(random_bert(), tokenizer).save(tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match="damaged"):
        load_encoder(tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hidden_act": "swish"}, "hidden_act=swish"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder"),
        ({"hidden_size": 64}, "shape"),
        ({"num_hidden_layers": 1 << 40}, "layers must be at most"),
        ({"num_hidden_layers": 1 << 12}, "a layer has tensors of its own|no tensors"),
        ({"num_hidden_layers": 1}, "no tensors"),
        ({"max_position_embeddings": 1 << 50}, "context"),
        ({"vocab_size": 119}, "shape|embedding"),
    ],
)
def test_a_foreign_folder_that_is_no_such_bert_is_refused(
    tokenizer: WordPiece, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    write_bert(random_bert(), tokenizer, tmp_path / "hf")
    file = tmp_path / "hf" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=why):
        load_encoder(tmp_path / "hf")


def test_a_pickle_is_not_read(tokenizer: WordPiece, tmp_path: Path) -> None:
    write_bert(random_bert(), tokenizer, tmp_path / "hf")
    (tmp_path / "hf" / "model.safetensors").rename(tmp_path / "hf" / "pytorch_model.bin")
    with pytest.raises(UserError, match="a pickle can run any code"):
        load_encoder(tmp_path / "hf")


@pytest.mark.gpu
def test_on_a_gpu_compiled_losses_and_gradients_are_those_of_the_cpu(tokenizer: WordPiece) -> None:
    batch = Masked(Sentences.of([(0, TEXT)], tokenizer), tokenizer, ALL, 4, 32, 0).at(0)
    here, there, gpu = random_bert(), random_bert().to("cuda"), torch.device("cuda")
    paid = losses_of(here, batch)
    torch.stack(list(paid.values())).sum().backward()
    Precision(LoopConfig(precision="float32", compile="parts"), there, gpu, fixed_shapes=True).compiled(there, there)
    losses = losses_of(there, batch.to(gpu))
    torch.stack(list(losses.values())).sum().backward()
    for task in ALL:
        torch.testing.assert_close(losses[task].cpu(), paid[task], rtol=1e-4, atol=1e-5)
    for (name, ours), other in zip(here.named_parameters(), there.parameters(), strict=True):
        assert ours.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(other.grad.cpu(), ours.grad, rtol=1e-3, atol=1e-4, msg=name)


# ---------------------------------------------------------------------- counting


PARTS = {  # of a BERT, by the first of these that stands in a parameter's name
    "words.": "masked words", "output_VD": "output", "next.": "next sentence", "order.": "sentence order",
    "replaced.": "replaced words", "pooler.": "pooler", "norm": "norms", "attention.out": "out",
    "attention.": "queries, keys, values", "feed_forward.": "feed-forward", "embedding_VD": "embeddings",
    "positions_CD": "positions", "segments_CD": "segments",
}  # fmt: skip


def parameters_by_part(config: BertConfig, vocab: int) -> Counter[str]:
    """Of the model itself, built without memory."""
    with torch.device("meta"):
        model = Bert(config, vocab)
    count: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        count[next(part for mark, part in PARTS.items() if mark in name)] += parameter.numel()
    return count


@pytest.mark.parametrize(("like", "published"), [((768, 12, 12, 3072), 110), ((1024, 24, 16, 4096), 340)])
def test_the_cost_of_a_bert_is_the_count_of_the_model_itself(like: tuple[int, ...], published: int) -> None:
    width, layers, heads, inner = like
    config = BertConfig(width=width, layers=layers, heads=heads, feed_forward_width=inner, context=512)
    for variant in (config, replace(config, tied=False), replace(config, tasks=ALL), replace(config, tasks=())):
        cost = bert_cost(variant, 30522, Shape(1, 8))
        assert {part.name: part.parameters for part in cost.parts if part.parameters} == parameters_by_part(
            variant, 30522
        )
    assert round(cost.parameters / 1e6, -1) == published  # without heads


def test_tables_and_heads_are_left_to_adamw() -> None:
    matrices, tables, vectors = parameter_groups(random_bert())
    assert len(matrices) == 2 * 6 + 3  # of each layer, of the pooler and of two heads
    assert [tuple(table.shape) for table in tables] == [(120, 16), (32, 16), (2, 16), (2, 16), (2, 16), (1, 16)]
    assert vectors


# ---------------------------------------------------------------------- the command line


def test_the_command_line_trains_fills_in_embeds_exports_and_imports(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    flags = "--budget 4steps --batch 4 --size 120 --width 16 --layers 1 --heads 2 --context 32 --tasks words order"
    assert main(["train", "bert", corpus, *flags.split(), "--out", run, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["steps"] == 4
    assert {"words_accuracy", "order_accuracy"} <= set(output)
    assert "next_accuracy" not in output
    assert main(["fill", run, "the [MASK] sat", "--top", "2", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert len(output["masks"]) == 1
    assert len(output["masks"][0]) == 2
    assert "[MASK]" not in output["filled"]
    assert main(["fill", run, "the cat sat"]) == 0
    assert "no probability of the text" in capsys.readouterr().out
    (tmp_path / "lines.txt").write_text("The cat sat.\n\nA dog lay.\nThe cat sat.\n", encoding="utf-8")
    vectors = tmp_path / "v.npy"
    assert main(["embed", run, str(tmp_path / "lines.txt"), "--out", str(vectors), "--top", "1", "--json"]) == 0
    (nearest,) = json.loads(capsys.readouterr().out)["nearest"]
    assert nearest["sentences"] == ["The cat sat.", "The cat sat."]
    assert nearest["similarity"] == pytest.approx(1)
    assert np.load(vectors).shape == (3, 16)
    assert main(["export", run, str(tmp_path / "hf")]) == 0
    assert main(["import", str(tmp_path / "hf"), "--out", str(tmp_path / "back")]) == 0
    assert main(["embed", str(tmp_path / "back"), str(tmp_path / "lines.txt"), "--query", "a dog", "--top", "9"]) == 0
    assert "3 sentences as vectors of 16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["fill", "RUN", "the [MASK]", "--top", "0"], "top must be at least 1"),
        (["embed", "RUN", "no such file"], "No such file"),
        (["fill", "nowhere", "x"], "is not a run"),
        (["train", "bert", "CORPUS", "--tasks", "words", "words"], "name each once"),
        (["train", "bert", "CORPUS", "--no-pooler"], "judged by the pooler"),
        (["train", "bert", "CORPUS", "--context", "8"], "context of 16"),
        (["train", "bert", "CORPUS", "--masked", "0.95"], "parts of one"),
        (["cost", "bert", "--like", "gpt2"], "bert-base, bert-large"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    args: list[str], why: str, tokenizer: WordPiece, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Encoder(random_bert(), tokenizer).save(tmp_path / "run")
    names = {"RUN": str(tmp_path / "run"), "CORPUS": corpus}
    assert main([names.get(arg, arg) for arg in args]) == 2
    assert why in capsys.readouterr().err


def test_the_published_size_is_reconciled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "bert", "--like", "bert-large", "--no-measure"]) == 0
    out = capsys.readouterr().out
    for count in ("335,141,888", "336,226,108", "367,480,636", "340 million"):
        assert count in out
