"""PPM against published examples, and against counts in dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import octavo
from examples import VOCAB, ngram, text
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.models import find_spec, preset
from octavo.models.ngram import NGram, NGramConfig

ABRACADABRA = "abracadabra"


def fit(word: str, alphabet: int = 256, **config: Any) -> NGram:
    """PPM of a word over an alphabet of the first so many characters of `word` and others that never came."""
    letters = sorted(set(word))
    x_N = torch.tensor([alphabet, *(letters.index(letter) for letter in word)], dtype=torch.int32)
    return NGram.fit(x_N, NGramConfig(estimator="ppm", **config), alphabet + 1)


def after(model: NGram, context: str, word: str = ABRACADABRA) -> Any:
    """p of each letter of the word, and of a new one, after a context."""
    letters = sorted(set(word))
    state = model.start(1)
    for token in (letters.index(letter) for letter in context):
        p_1V, state = model.predict(state, torch.tensor([token]))
    found = p_1V[0].tolist()
    return {letter: found[i] for i, letter in enumerate(letters)} | {"new": found[len(letters)]}


@pytest.mark.parametrize(("exclusion", "c", "d", "t"), [
    (True, 1 / 2, 1 / 2 * 1 / 6, 1 / 2 * 3 / 6 * 5 / 12 * 1 / 251),
    (False, None, None, 1 / 2 * 3 / 7 * 5 / 16 * 1 / 256),
])  # fmt: skip
def test_the_example_of_cleary_teahan_and_witten(exclusion: bool, c: float | None, d: float | None, t: float) -> None:
    """Method C after abracadabra, contexts of up to two letters, an alphabet of 256: what follows ra is c, d, and a new
    letter (tables 1 and 2 of Unbounded length contexts for PPM)."""
    found = after(fit(ABRACADABRA, order=3, exclusion=exclusion), "ra")
    assert found["new"] == pytest.approx(t, rel=1e-12)
    if c is not None and d is not None:
        assert (found["c"], found["d"]) == pytest.approx((c, d), rel=1e-12)


def test_without_exclusion_what_was_seen_gets_a_share_of_the_escape_too() -> None:
    """c after ra: 1/2 there, and 1/2 of what a gives it: 1/7, and 3/7 of what nothing gives it: 1/16 + 5/16 · 1/256."""
    found = after(fit(ABRACADABRA, order=3, exclusion=False), "ra")
    assert found["c"] == pytest.approx(1 / 2 + 1 / 2 * (1 / 7 + 3 / 7 * (1 / 16 + 5 / 16 / 256)), rel=1e-12)


@pytest.mark.parametrize(("escape", "seen", "escaped"), [("a", 2 / 3, 1 / 3), ("c", 2 / 3, 1 / 3), ("d", 3 / 4, 1 / 4)])
def test_methods_by_hand(escape: str, seen: float, escaped: float) -> None:
    """After ab, r came twice: by A and C 2 of 2 + 1, by D 3/2 of 3/2 + 1/2. What is left goes to the others."""
    found = after(fit(ABRACADABRA, order=3, escape=escape), "ab")
    assert found["r"] == pytest.approx(seen, rel=1e-12)
    p = sum(p for letter, p in found.items() if letter not in ("r", "new")) + 251 * found["new"]
    assert p == pytest.approx(escaped, rel=1e-12)


def slow(documents: Sequence[Sequence[int]], choices: int, config: NGramConfig) -> Any:
    """PPM by dictionaries: walk from the longest context down, with a set of tokens that are left out."""
    counts: dict[tuple[int, ...], Counter[int]] = {}
    for document in documents:
        opened = [-1, *document]
        for t in range(1, len(opened)):
            for k in range(min(config.order, t + 1)):
                counts.setdefault(tuple(opened[t - k : t]), Counter())[opened[t]] += 1

    def probability(read: Sequence[int], word: int) -> float:
        past, p, out = (-1, *read), 1.0, set[int]()
        for k in range(min(config.order - 1, len(past)), -1, -1):
            seen = counts.get(past[len(past) - k :])
            if not seen:
                continue
            less = 0.5 if config.escape == "d" else 0.0
            escape = {"a": 1.0, "c": len(seen), "d": len(seen) / 2}[config.escape] if len(seen) < choices else 0.0
            total = sum(n - less for token, n in seen.items() if token not in out) + escape
            if word in seen and word not in out:
                return p * (seen[word] - less) / total
            p *= escape / total
            out |= set(seen)
        return p / (choices - len(out))

    return probability


@pytest.mark.parametrize("escape", ["a", "c", "d"])
@pytest.mark.parametrize(("order", "vocab"), [(1, 5), (3, 4), (4, VOCAB), (6, 40)])
def test_probabilities_are_those_of_counts_in_dictionaries(escape: Any, order: int, vocab: int) -> None:
    """Also where contexts have been followed by every token, or by none that is left."""
    config = NGramConfig(order=order, estimator="ppm", escape=escape)
    documents = [text(seed=s, length=n, vocab=vocab)[1:].tolist() for s, n in ((1, 150), (2, 1), (3, 37))]
    x_N = torch.tensor([token for document in documents for token in (vocab - 1, *document)], dtype=torch.int32)
    model, probability = NGram.fit(x_N, config, vocab), slow(documents, vocab - 1, config)
    generator = seeded_generator(1)
    for n in range(30):
        start = int(torch.randint(0, 140, (1,), generator=generator))
        read = documents[0][start : start + n % 7] if n % 2 else documents[2][: n % 5]
        expected_V = [probability(read, word) for word in range(vocab - 1)]
        found_V = model(model.prepend_begin(torch.tensor([read], dtype=torch.long)))[0, -1].exp()
        torch.testing.assert_close(found_V, torch.tensor([*expected_V, 0.0], dtype=torch.float64), rtol=0, atol=1e-12)
        assert sum(expected_V) == pytest.approx(1, abs=1e-12)


def test_pruned_tables_are_refused() -> None:
    with pytest.raises(UserError, match="leave --prune out"):
        ngram(order=3, estimator="ppm", prune=(0, 1))


def test_ppm_is_a_name_of_its_own(tmp_path: Path) -> None:
    assert preset("ppm") == ("ngram", NGramConfig(order=6, estimator="ppm"))
    assert [one.name for one in find_spec("ppm").compared_as() if one.only_if_named] == ["ppm"]
    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog ran to the door\n" * 40)
    run = octavo.train("ppm", tmp_path / "text.txt", escape="d", out=tmp_path / "run")
    again = octavo.load(tmp_path / "run")
    assert again.model.config == NGramConfig(order=6, estimator="ppm", escape="d")
    assert run.record["result"]["bits_per_byte"] < 1


def test_ppm_has_no_adaptive_variant_yet_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 40)
    with pytest.raises(UserError, match="--adaptive is for ngram and mix"):
        octavo.train("ppm", tmp_path / "text.txt", adaptive=True, out=tmp_path / "run")
