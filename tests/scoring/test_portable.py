"""Archives say where they were made, and portable ones are restored by a machine that rounds otherwise."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from examples import examples, text
from octavo.core import LanguageModel, Session
from octavo.errors import UserError
from octavo.scoring import portable
from octavo.scoring.archive import PORTABLE_VERSION, SESSION_VERSION, Header, Origin, read_header, write_header
from octavo.scoring.range_coder import compress_bytes, decode_tokens, decompress_bytes, encode_tokens, origin_here
from tiny_models import Bytes, Recurrent, random_markov

MINE = b"model-01"
GPU = Origin("cuda", (2, 11, 0), "NVIDIA H200")
EXAMPLES = examples()
CASES = [pytest.param(m, id=f"{name}:{v}") for name, variants in EXAMPLES.items() for v, m in variants.items()
         if not m.adaptive and v != "mle"]  # fmt: skip  # which gives tokens probability zero


def some_bytes(length: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(97, 123, length, dtype=np.uint8).tobytes()


@contextmanager
def another_machine(noise: float = 1e-11, seed: int = 0) -> Iterator[None]:
    """Within it, every probability that a session gives differs by a random share of it."""
    generator = torch.Generator().manual_seed(seed)
    predict = Session.predict

    def disturbed(self: Session[Any], x_B: Tensor) -> Tensor:
        p_BV = predict(self, x_B)
        return p_BV * (1 + noise * torch.randn(p_BV.shape, dtype=p_BV.dtype, generator=generator))

    with patch.object(Session, "predict", disturbed):
        yield


def with_other_weights(model: LanguageModel[Any], noise: float = 1e-13) -> LanguageModel[Any]:
    """The model in double precision with weights that differ in their last digits, which every step passes on."""
    made, generator = portable.portable_model(model), torch.Generator().manual_seed(1)
    for weight in made.parameters():
        weight.data *= 1 + noise * torch.randn(weight.shape, dtype=weight.dtype, generator=generator)
    return made


# ---------------------------------------------------------------------- where it was made


def test_an_archive_says_where_it_was_made() -> None:
    archive = compress_bytes(random_markov(257), Bytes(), some_bytes(100), MINE)
    header, _ = read_header(archive)
    here = header.origin
    assert here == origin_here(torch.device("cpu"))
    assert here is not None
    assert here.device == "cpu"
    assert here.torch == tuple(int(number) for number in torch.__version__.partition("+")[0].split("."))
    assert str(here).startswith(f"cpu ({torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__[:3]}")
    made = write_header(Header(MINE, MINE, 3, 3, 1, SESSION_VERSION, GPU), b"")
    assert read_header(made)[0].origin == GPU


def test_an_archive_of_another_kind_of_device_is_refused_in_one_line() -> None:
    model, data = random_markov(257), some_bytes(100)
    header, words = read_header(compress_bytes(model, Bytes(), data, MINE))
    elsewhere = header._replace(origin=GPU)
    with pytest.raises(
        UserError, match=r"made on cuda \(NVIDIA H200, torch 2.11.0\), and the model is on cpu"
    ) as error:
        decompress_bytes(model, Bytes(), write_header(elsewhere, words) + words, MINE)
    assert "restore it with --device cuda, or compress with --portable" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_archive_that_does_not_say_where_it_was_made_is_read_as_before() -> None:
    model, data = random_markov(257), some_bytes(100)
    header, words = read_header(compress_bytes(model, Bytes(), data, MINE))
    older = write_header(header._replace(origin=None), words)
    assert older[4] == SESSION_VERSION
    assert decompress_bytes(model, Bytes(), older + words, MINE) == data


@pytest.mark.parametrize("at", range(25, 36))
def test_an_archive_with_a_damaged_origin_is_refused(at: int) -> None:
    archive = bytearray(compress_bytes(random_markov(257), Bytes(), some_bytes(100), MINE))
    for value in (0, 255):
        if archive[at] != value:
            wrong = bytes(archive[:at]) + bytes([value]) + bytes(archive[at + 1 :])
            with pytest.raises(UserError, match="damaged"):
                read_header(wrong)


# ---------------------------------------------------------------------- portable ones


@pytest.mark.parametrize("model", CASES)
def test_every_model_writes_what_a_machine_that_rounds_otherwise_restores(model: LanguageModel[Any]) -> None:
    x_N, exact = text(300, seed=4)[1:].long(), portable.portable_model(model)
    for streams in (1, 3):
        words = encode_tokens(exact, x_N, streams, version=PORTABLE_VERSION)
        again = with_other_weights(model)
        assert decode_tokens(again, words, len(x_N), streams, version=PORTABLE_VERSION).tolist() == x_N.tolist()


@pytest.mark.parametrize("vocab", [257, 5000])
def test_noise_of_1e_11_in_every_probability_changes_nothing(vocab: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x_N = torch.randint(0, vocab - 1, (6000,), generator=generator)
    model = portable.portable_model(random_markov(vocab, scale=1.0))
    words = encode_tokens(model, x_N, 20, version=PORTABLE_VERSION)
    for seed in range(3):
        with another_machine(seed=seed):
            assert torch.equal(decode_tokens(model, words, len(x_N), 20, version=PORTABLE_VERSION), x_N)


def test_a_plain_archive_fails_in_one_line_where_a_portable_one_does_not() -> None:
    model, data = Recurrent(257, seed=1, scale=2.0), some_bytes(20_000)
    plain, exact = (compress_bytes(model, Bytes(), data, MINE, 8, portable=one) for one in (False, True))
    with another_machine(1e-11):
        with pytest.raises(UserError, match="the text that came out is not the one that went in") as error:
            decompress_bytes(model, Bytes(), plain, MINE)
        assert "made on cpu (" in str(error.value)
        assert "\n" not in str(error.value)
        assert decompress_bytes(model, Bytes(), exact, MINE) == data
    with another_machine(1e-7), pytest.raises(UserError, match="the text that came out is not"):  # not guaranteed
        decompress_bytes(model, Bytes(), exact, MINE)


def test_a_portable_archive_is_restored_whatever_device_it_was_made_on_and_the_model_is_of() -> None:
    model, data = random_markov(257), some_bytes(300)
    header, words = read_header(compress_bytes(model, Bytes(), data, MINE, portable=True))
    assert header.version == PORTABLE_VERSION
    archive = write_header(header._replace(origin=GPU), words) + words
    assert decompress_bytes(copy.deepcopy(model), Bytes(), archive, MINE) == data


def test_a_number_is_rounded_alike_wherever_it_lies_within_the_tolerance() -> None:
    generator = torch.Generator().manual_seed(0)
    p_LK = torch.rand(2000, 64, dtype=torch.float64, generator=generator).pow(8)
    steps = torch.randint(1, 1000, (1000, 64), generator=generator)
    p_LK[:1000] = steps / portable.SCALE  # each on an edge, or a few last bits beside it
    p_LK /= p_LK.sum(1, keepdim=True).clamp(min=1)
    n_LK, choice_L = portable.round_to_grid(p_LK)
    for share in (-portable.TOLERANCE, portable.TOLERANCE):
        assert torch.equal(portable.round_with(p_LK * (1 + 0.999 * share), choice_L), n_LK)
    assert bool((choice_L[:1000] > 0).any())
    assert float((choice_L[1000:] > 0).double().mean()) < 0.01


def test_rounding_costs_less_than_a_hundredth_of_a_bit_a_token() -> None:
    model, data = random_markov(257, scale=2.0), some_bytes(30_000)
    plain, exact = (len(compress_bytes(model, Bytes(), data, MINE, 16, portable=one)) for one in (False, True))
    assert 8 * (exact - plain) / len(data) < 0.01
    assert 8 * exact > 0


def test_simple_fractions_do_not_lie_on_edges() -> None:
    for n in range(1, 300):
        _, choice_L = portable.round_to_grid(torch.full((1, n), 1 / n, dtype=torch.float64))
        assert int(choice_L) == 0


def test_a_model_that_learns_while_it_reads_is_refused() -> None:
    for name in ("adaptive-ngram", "adaptive-mix"):
        model = next(iter(EXAMPLES[name].values()))
        if model.adaptive:
            with pytest.raises(UserError, match="learns while it reads cannot write a portable archive"):
                portable.portable_model(model)


def test_what_is_no_probability_is_refused() -> None:
    model = random_markov(257)
    model.logits_VV.data[:] = math.nan
    with pytest.raises(UserError, match="probability zero"):
        compress_bytes(model, Bytes(), some_bytes(10), MINE, portable=True)
