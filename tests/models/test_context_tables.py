"""Hashed contexts and the match of an adaptive mixture, against dictionaries and searches."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from octavo.models import context_tables as loops
from octavo.models.context_reader import ContextReader, first_tables, id_kinds

BITS, BEGIN, VOCAB = 8, 256, 257
TEXT = b"The cat sat on the mat.\nThe dog sat on the log.\nA cat and a dog sat on the mat and the log.\n" * 3


def bytes_of(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8).astype(np.int64)


def reader(tokens: int = 1 << 20) -> ContextReader:
    """One that has read nothing; tables so large that no two contexts share a slot."""
    kind_V = id_kinds(lambda v: bytes([v]) if v < 256 else b"", VOCAB)
    return ContextReader(first_tables(BITS, kind_V, tokens), BITS, BEGIN)


def path_of(word: int) -> list[tuple[int, int, int]]:
    """Depth, node and bit of a token."""
    return [(d, (word + 256) >> (8 - d), word >> (7 - d) & 1) for d in range(8)]


def last_tokens(text: bytes, at: int, count: int) -> tuple[int, ...]:
    return tuple(text[at - k] if at >= k else -1 for k in range(1, count + 1))


def words(text: bytes, at: int) -> list[bytes]:
    """The letters in front of a place that belong to its word, and the word before."""
    pieces, word = [b"", b""], b""
    for byte in text[:at].lower():
        if chr(byte).isalpha():
            word += bytes([byte])
        elif word:
            pieces, word = [*pieces, word], b""
    return [word, pieces[-1]]


CONTEXTS = {
    **{c: lambda text, at, c=c: last_tokens(text, at, c + 1) for c in range(6)},
    6: lambda text, at: words(text, at)[0],
    7: lambda text, at: tuple(words(text, at)),
    10: lambda text, at: last_tokens(text, at, 3)[1:],
    13: lambda text, at: last_tokens(text, at, 3)[::2],
}


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_slot_counts_the_bits_after_its_context(context: int) -> None:
    """p ← p + (b - p) / (n + 1.5), in units of 1/65536, from a half on: in a dictionary by the context itself."""
    one, slots = reader(), defaultdict(lambda: (1 << 15, 0))
    for at, word in enumerate(TEXT):
        for depth, node, bit in path_of(word):
            loops.find_slots(one.tables, node, depth)
            found = int(one.tables.found_DC[depth, context])
            p, n = slots[CONTEXTS[context](TEXT, at), node]
            assert (found == loops.NONE) == (n == 0)
            if n:
                slot = loops.slot_at(one.tables, context, found)
                assert (slot >> 16, slot & 255) == (p, n)
            p += int((bit * 65535 - p) / (n + 1.5))
            slots[CONTEXTS[context](TEXT, at), node] = p, min(n + 1, loops.MAX_COUNT)
        one.read(np.array([word]))


def test_the_match_is_where_the_last_tokens_stood_last_and_lengthens_while_it_is_right() -> None:
    one = reader()
    for at in range(len(TEXT) - 1):
        one.read(np.array([TEXT[at]]))
        place_F, read = one.tables.place_F, TEXT[: at + 1]
        length, goes_on = int(place_F[loops.MATCHED]), int(place_F[loops.MATCH])
        if length:
            assert read[goes_on - min(length, goes_on) : goes_on] == read[len(read) - min(length, goes_on) :]
        elif len(read) >= loops.MATCH_TOKENS:
            assert read[-loops.MATCH_TOKENS :] not in read[:-1]
        expected = [loops.matched_bit(one.tables, BITS, node, d) for d, node, _ in path_of(TEXT[goes_on])]
        assert expected == ([bit for _, _, bit in path_of(TEXT[goes_on])] if length else [loops.NONE] * 8)


def test_begin_is_not_learnt_from_and_opens_no_word() -> None:
    one = reader()
    one.read(bytes_of(b"some words"))
    slots = one.tables.slot_CS.copy()
    one.read(np.array([BEGIN]))
    assert np.array_equal(one.tables.slot_CS, slots)
    assert one.tables.place_F[loops.WORD] == 0


@pytest.mark.parametrize("tokens", [1 << 16, 256])
def test_tokens_are_taken_back_to_the_last_bit_also_where_contexts_share_slots(tokens: int) -> None:
    one = reader(tokens)
    one.read(bytes_of(TEXT[:150]))
    for count in (1, 7, loops.UNDO_TOKENS):
        before = one.copy()
        one.read(bytes_of(TEXT[150 : 150 + count]))
        one.undo(count)
        for name in ("slot_CS", "map_M", "last_H"):
            assert np.array_equal(getattr(one.tables, name), getattr(before.tables, name)), name
        changed = np.flatnonzero(one.tables.place_F != before.tables.place_F)
        assert set(changed.tolist()) <= {loops.UNDOABLE}
        assert one.undoable == loops.UNDO_TOKENS - count


def test_a_copy_goes_its_own_way() -> None:
    one = reader(256)
    one.read(bytes_of(TEXT[:100]))
    other = one.copy()
    before = [part.copy() for part in one.tables]
    other.read(bytes_of(TEXT[100:120]))
    assert all(np.array_equal(part, old) for part, old in zip(one.tables, before, strict=True))
    assert bytes(other.history_T.astype(np.uint8)) == TEXT[:120]


def test_what_a_context_says_becomes_what_it_was_worth() -> None:
    """After "ab" there is always c: contexts of two tokens or more say so the more firmly, the longer it goes on."""
    one, said = reader(), []
    for _ in range(40):
        one.read(bytes_of(b"xyzab"))
        x_I = np.zeros(loops.INPUTS)
        loops.bit_inputs(one.tables, BITS, 256 + ord("c") >> 5, 3, x_I, 0)  # after the bits 011, a 0 comes
        said.append(x_I[2])
        one.read(bytes_of(b"c"))
    assert said[0] == 0 > said[1] > said[10] > said[39]


PLAIN = """
import sys, types, hashlib
sys.path[:0] = {path!r}
import octavo.ops.compiled as compiled
compiled.HAS_NUMBA = {numba}
import numpy as np
from octavo.models.context_reader import ContextReader, first_tables, id_kinds
kind_V = id_kinds(lambda v: bytes([v]) if v < 256 else b"", 257)
one = ContextReader(first_tables(8, kind_V, 512), 8, 256)
one.read(np.frombuffer({text!r}, np.uint8).astype(np.int64))
one.undo(5)
print(hashlib.sha256(b"".join(part.tobytes() for part in one.tables[:6])).hexdigest())
"""


def test_plain_python_computes_the_same_numbers() -> None:
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[fast]'")
    path = [str(Path(loops.__file__).parents[2])]
    found = [
        subprocess.run(
            [sys.executable, "-c", PLAIN.format(path=path, numba=numba, text=TEXT[:120])],
            capture_output=True, text=True, check=True,
        ).stdout
        for numba in (True, False)
    ]  # fmt: skip
    assert found[0] == found[1]
