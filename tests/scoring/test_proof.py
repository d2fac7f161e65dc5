"""The proof of a score: what it covers, and how long it is expected to take."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest
import torch

from octavo.scoring import proof as proof_module
from octavo.scoring.bits_per_byte import Score
from octavo.scoring.proof import MIN_PROVED_BYTES, proof_seconds, provable_bytes, prove_score
from tiny_models import Bytes, random_markov

DATA = np.random.default_rng(0).integers(97, 123, 3 * MIN_PROVED_BYTES, dtype=np.uint8).tobytes()


def test_a_text_is_proved_as_far_as_the_time_allows_and_at_least_its_first_ten_thousand_bytes() -> None:
    model = random_markov(257)
    assert provable_bytes(model, Bytes(), DATA, 3600.0)[0] == len(DATA)
    assert provable_bytes(model, Bytes(), DATA, 0.0)[0] == MIN_PROVED_BYTES
    assert provable_bytes(model, Bytes(), DATA[:100], 0.0)[0] == 100
    assert provable_bytes(model, Bytes(), b"", 0.0) == (0, 0.0)


def test_a_proof_takes_about_as_long_as_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_module, "perf_counter", process_time)  # a busy machine keeps other times
    model, tokens = random_markov(257), torch.from_numpy(Bytes().encode(DATA)).long()
    bits = -float(model.score(tokens[None]).sum()) / np.log(2)
    expected, began = proof_seconds(model, tokens), process_time()
    proof = prove_score(model, Bytes(), b"model-01", Score("text", bits, len(DATA), len(DATA), 0.0), DATA)
    taken = process_time() - began
    assert proof["restored"]
    assert 0.1 * taken < expected < 10 * taken + 1
