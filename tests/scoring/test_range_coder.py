"""Compression: the bytes come back, the size is the bits the model claims, and what is not an archive is refused."""

from __future__ import annotations

import math
import zlib
from itertools import pairwise
from typing import Any

import constriction
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from octavo.core import LanguageModel, Session
from octavo.errors import UserError
from octavo.io.progress import listening
from octavo.scoring import range_coder as coder
from octavo.scoring.archive import MAGIC, Header, read_header, write_header
from octavo.scoring.range_coder import compress_bytes, decompress_bytes
from tiny_models import Bytes, Dropped, Markov, Recurrent, random_markov

MINE, OTHER = b"model-01", b"model-02"


def some_bytes(length: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(97, 123, length, dtype=np.uint8).tobytes()


def claimed_bits(model: LanguageModel[Any], tokens: Tensor, streams: int) -> float:
    """-log2 p of every token, each stream scored by itself."""
    starts = coder.stream_starts(len(tokens), streams)
    parts = [tokens[a:b] for a, b in pairwise(starts)]
    return -sum(float(model.score(part[None]).sum()) for part in parts) / math.log(2)


def forged(archive: bytes, header: Header, words: bytes = b"") -> bytes:
    return write_header(header, words) + words


@pytest.mark.parametrize("streams", [None, 1, 2, 7, 64])
@pytest.mark.parametrize("length", [0, 1, 2, 63, 1000])
def test_the_bytes_come_back_and_the_size_is_the_claim(length: int, streams: int | None) -> None:
    data = some_bytes(length)
    for model in (random_markov(257), Recurrent(257, seed=1, scale=0.5)):  # no token is below 2**-24 here
        archive = compress_bytes(model, Bytes(), data, MINE, streams)
        assert decompress_bytes(model, Bytes(), archive, MINE) == data
        used = read_header(archive)[0].streams
        assert used == max(1, min(streams, length)) if streams else 1 <= used <= 3
        bits = claimed_bits(model, torch.from_numpy(Bytes().encode(data)).long(), used) if length else 0
        assert len(archive) <= 1.001 * bits / 8 + 64
        assert len(archive) >= 0.999 * bits / 8


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=200), st.integers(1, 9))
def test_any_bytes_come_back(data: bytes, streams: int) -> None:
    model = random_markov(257, scale=6.0)
    assert decompress_bytes(model, Bytes(), compress_bytes(model, Bytes(), data, MINE, streams), MINE) == data


def test_logits_in_single_precision_come_back_too() -> None:
    model, data = Markov(random_markov(257).get_buffer("logits_VV").float()), some_bytes(999)
    assert decompress_bytes(model, Bytes(), compress_bytes(model, Bytes(), data, MINE, 5), MINE) == data


def test_an_empty_file_is_a_header_of_less_than_forty_bytes() -> None:
    archive = compress_bytes(random_markov(257), Bytes(), b"", MINE)
    assert len(archive) < 40
    assert len(write_header(Header(MINE, MINE, 10**11, 10**12, 512), b"")) <= 40


def test_a_long_certain_text_costs_nearly_nothing_and_comes_back() -> None:
    model, data = Markov(40 * torch.eye(257, dtype=torch.float64)), b"a" * 100_000
    model.get_buffer("logits_VV")[256, 97] = 80.0
    archive = compress_bytes(model, Bytes(), data, MINE)
    assert len(archive) < 100
    assert decompress_bytes(model, Bytes(), archive, MINE) == data


def test_a_large_vocabulary_loses_less_than_a_twentieth_of_a_percent() -> None:
    V, L, steps = 100_000, 256, 140
    logits_V = 6 * torch.randn(V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p_GK = coder.group_probabilities(logits_V.softmax(0)[None])[0]
    p_V = p_GK.flatten()[:V]
    x_TL = torch.multinomial(p_V, L * steps, True, generator=torch.Generator().manual_seed(1)).view(steps, L)
    encoder = constriction.stream.queue.RangeEncoder()
    for x_L in x_TL:
        coder.encode_column(encoder, p_GK.expand(L, -1, -1), x_L, x_L)
    claim = float(-p_V[x_TL].log2().sum())
    assert claim > 64 / 0.0005  # so that the coder's last words do not hide a loss
    assert encoder.num_bits() <= 1.0005 * claim + 64


@pytest.mark.parametrize("vocab", [2, 1024, 1025, 5000])
def test_one_and_two_symbols_a_token_give_the_tokens_back(vocab: int) -> None:
    model, g = Recurrent(vocab, seed=2), torch.Generator().manual_seed(0)
    tokens = torch.randint(0, vocab, (101,), generator=g)
    words = coder.encode_tokens(model, tokens, 4)
    assert torch.equal(coder.decode_tokens(model, words, 101, 4), tokens)
    assert 8 * len(words) <= 1.001 * claimed_bits(model, tokens, 4) + 64


def test_a_group_of_vanishing_probability_can_still_be_coded() -> None:
    model = Markov(torch.zeros(2000, 2000, dtype=torch.float64))
    model.get_buffer("logits_VV")[:, :45] = -700.0  # 5e-308 each: 2**24 over the first group is beyond a double
    tokens = torch.arange(50)
    assert torch.equal(coder.decode_tokens(model, coder.encode_tokens(model, tokens, 1), 50, 1), tokens)


def test_a_token_below_the_coders_precision_costs_less_than_the_model_claims() -> None:
    model = Markov(torch.zeros(257, 257, dtype=torch.float64))
    model.get_buffer("logits_VV")[:, 97] = -100.0  # 152 bits each by the model
    tokens = torch.full((100,), 97)
    words = coder.encode_tokens(model, tokens, 1)
    assert claimed_bits(model, tokens, 1) > 15_000
    assert 8 * len(words) <= 24 * 100 + 64


def test_streams_cover_the_text_in_order_and_differ_by_at_most_one() -> None:
    for count, streams in ((10, 3), (9, 3), (5, 5), (0, 1), (1001, 64)):
        sizes = np.diff(coder.stream_starts(count, streams))
        assert sizes.sum() == count
        assert sizes.max() - sizes.min() <= 1
        assert (np.diff(sizes) <= 0).all()


@pytest.mark.parametrize("start_bits", [0.0, 40.0])
def test_streams_are_few_enough_that_their_starts_cost_little(start_bits: float) -> None:
    """A model that needs `start_bits` more for a sequence's first token, and three bits for any token."""
    logits_VV = torch.zeros(9, 9, dtype=torch.float64)
    logits_VV[:, 8] = -torch.inf
    logits_VV[8, 0] = start_bits * math.log(2)  # after begin, everything but token 0 is expensive
    x_T = torch.randint(1, 8, (200_000,), generator=torch.Generator().manual_seed(0))
    streams = coder.choose_streams(Markov(logits_VV), x_T)
    assert 1 < streams <= coder.MAX_AUTO_STREAMS
    allowed = coder.MAX_STREAMS_COST * 3 * len(x_T) + coder.SPARE_BITS
    assert (streams - 1) * max(8, start_bits) == pytest.approx(allowed, rel=0.1)


def test_short_texts_and_huge_vocabularies_get_one_stream() -> None:
    model = Markov(torch.zeros(9, 9, dtype=torch.float64))
    assert coder.choose_streams(model, torch.zeros(300, dtype=torch.long)) == 1
    assert coder.choose_streams(model, torch.zeros(0, dtype=torch.long)) == 1


def test_probability_zero_is_refused_and_named() -> None:
    model = random_markov(257)
    model.get_buffer("logits_VV")[:, ord("z")] = -torch.inf
    with pytest.raises(UserError, match=r"probability zero to token 122 at position 5; smooth the model"):
        compress_bytes(model, Bytes(), b"abcdez", MINE, 2)


def test_logits_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="smooth the model"):
        compress_bytes(Markov(torch.full((257, 257), torch.nan)), Bytes(), b"abc", MINE)


def test_every_changed_byte_and_every_cut_is_refused() -> None:
    model, data = random_markov(257), some_bytes(40)
    archive = compress_bytes(model, Bytes(), data, MINE)
    for at in range(len(archive)):
        for bit in (0x01, 0x80):
            wrong = bytearray(archive)
            wrong[at] ^= bit
            with pytest.raises(UserError):
                decompress_bytes(model, Bytes(), bytes(wrong), MINE)
        with pytest.raises(UserError):
            decompress_bytes(model, Bytes(), archive[:at], MINE)
    with pytest.raises(UserError, match="damaged or cut off"):
        decompress_bytes(model, Bytes(), archive + b"\0\0\0\0", MINE)


def test_each_refusal_has_its_own_line() -> None:
    model, data = random_markov(257), some_bytes(40)
    archive = compress_bytes(model, Bytes(), data, MINE)
    newer, older = archive[:4] + b"\5" + archive[5:], archive[:4] + b"\0" + archive[5:]
    for wrong, identity, line in (
        (b"PK\3\4" + archive[4:], MINE, "not an octavo archive"),
        (archive[:20], MINE, "cut off: 20 bytes"),
        (b"", MINE, "cut off: 0 bytes"),
        (archive[:-4], MINE, "damaged or cut off"),
        (newer, MINE, "has version 5; install a newer octavo"),
        (older, MINE, "has version 0; it is damaged"),
        (archive, OTHER, "opens only with the model that wrote it"),
    ):
        with pytest.raises(UserError, match=line):
            decompress_bytes(model, Bytes(), wrong, identity)


class Hurried(Session[Any]):
    """A session whose probabilities differ from the model's step by more than rounding."""

    def step(self, x_B: Tensor) -> Tensor:
        return super().step(x_B) * 1.01


class Sessional(Recurrent):
    def session(self, state: Any, tokens: int = 1 << 30) -> Session[Any]:
        return Hurried(self, state)


def test_archives_are_written_with_sessions_and_those_of_version_1_are_still_restored() -> None:
    model, data = Sessional(257, seed=1, scale=0.5), some_bytes(300)
    archive = compress_bytes(model, Bytes(), data, MINE, 3)
    header, words = read_header(archive)
    assert header.version == 2
    assert decompress_bytes(model, Bytes(), archive, MINE) == data
    old = coder.encode_tokens(model, torch.from_numpy(Bytes().encode(data)).long(), 3, version=1)
    assert old != words
    first = header._replace(version=1)
    assert decompress_bytes(model, Bytes(), forged(b"", first, old), MINE) == data
    for wrong in (forged(b"", first, words), forged(b"", header, old)):
        with pytest.raises(UserError, match="computes other"):
            decompress_bytes(model, Bytes(), wrong, MINE)


def test_a_short_text_is_coded_in_several_streams_at_a_cost_of_a_few_bytes() -> None:
    model, data = Recurrent(257, seed=1, scale=0.5), some_bytes(5000)
    archive = compress_bytes(model, Bytes(), data, MINE)
    assert read_header(archive)[0].streams >= 4
    assert len(archive) <= 1.001 * claimed_bits(model, torch.from_numpy(Bytes().encode(data)).long(), 1) / 8 + 64


def test_a_model_that_computes_otherwise_is_noticed() -> None:
    archive = compress_bytes(random_markov(257, seed=0), Bytes(), some_bytes(300), MINE)
    with pytest.raises(UserError, match="computes other"):
        decompress_bytes(random_markov(257, seed=1), Bytes(), archive, MINE)


class Untouchable(Markov):
    def step(self, state: None, x_B: Tensor) -> tuple[Tensor, None]:
        raise AssertionError("a forged header must be refused before the model runs")


@pytest.mark.parametrize(
    ("tokens", "streams", "words"),
    [(2**60, 1, 8), (10**9, 1, 8), (10, 11, 8), (10, 0, 8), (2**40, 2**30, 8), (10, 1, 7)],
)
def test_a_forged_header_is_refused_before_it_costs_anything(tokens: int, streams: int, words: int) -> None:
    model = Untouchable(random_markov(257).get_buffer("logits_VV"))
    archive = forged(b"", Header(MINE, MINE, tokens, tokens, streams), bytes(words))
    with pytest.raises(UserError, match="header cannot be true"):
        decompress_bytes(model, Bytes(), archive, MINE)


class Counted(Markov):
    steps = 0

    def step(self, state: None, x_B: Tensor) -> tuple[Tensor, None]:
        self.steps += 1
        return super().step(state, x_B)


@pytest.mark.parametrize("words", [b"", bytes(4), b"\xff" * 4, b"\x12\x34\x56\x78" * 3])
def test_an_archive_cannot_claim_more_tokens_than_its_bytes_can_tell(words: bytes) -> None:
    model = Counted(random_markov(257).get_buffer("logits_VV"))
    archive = forged(b"", Header(MINE, MINE, 5_000_000, 5_000_000, 1), words)
    assert len(archive) <= 46
    with pytest.raises(UserError, match="forged"):
        decompress_bytes(model, Bytes(), archive, MINE)
    assert model.steps < 200


def test_tokens_that_spell_more_bytes_than_the_archive_says_are_not_all_spelt_out() -> None:
    model, data = random_markov(257), some_bytes(300)
    header, words = read_header(compress_bytes(model, Bytes(), data, MINE))
    with pytest.raises(UserError, match="forged"):
        decompress_bytes(model, Bytes(), forged(b"", header._replace(bytes=200), words), MINE)


def test_a_number_without_end_in_the_header_is_refused() -> None:
    body = MINE + MINE + b"\xff" * 12
    archive = MAGIC + b"\1" + zlib.crc32(body).to_bytes(4, "little") + body
    with pytest.raises(UserError, match="has no end"):
        decompress_bytes(random_markov(257), Bytes(), archive, MINE)


def test_a_tokenizer_that_loses_bytes_is_refused_before_anything_is_written() -> None:
    class Lossy(Bytes):
        def decode(self, tokens: Any) -> bytes:
            return super().decode(tokens).lower()

    with pytest.raises(UserError, match="only a lossless tokenizer"):
        compress_bytes(random_markov(257), Lossy(), b"Abc", MINE)


def test_wrong_streams_and_foreign_tokens_are_refused() -> None:
    for streams in (0, 2**30):
        with pytest.raises(UserError, match="streams must lie between 1 and"):
            compress_bytes(random_markov(257), Bytes(), b"abc", MINE, streams)
    with pytest.raises(UserError, match="tokens must lie between 0 and 9"):
        compress_bytes(random_markov(10), Bytes(), b"abc", MINE)


def test_dropout_is_off_while_coding() -> None:
    model, data = Dropped(257), some_bytes(50)
    assert decompress_bytes(model, Bytes(), compress_bytes(model, Bytes(), data, MINE), MINE) == data
    assert model.training


def test_progress_ends_with_all_of_the_work_done() -> None:
    done: list[float] = []
    with listening(lambda amount, total: done.append(amount / total)):
        archive = compress_bytes(random_markov(257), Bytes(), some_bytes(100), MINE, 3)
        assert done[-1] == pytest.approx(1)
        decompress_bytes(random_markov(257), Bytes(), archive, MINE)
    assert done[-1] == pytest.approx(1)
    assert done.count(done[0]) == 2  # two bars, each from its beginning
