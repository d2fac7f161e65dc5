"""What reads for the hashed contexts and the match of an adaptive mixture: its tables in one place of a text.

C contexts, S slots of each, T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.errors import UserError
from octavo.models import context_tables as loops
from octavo.models.context_tables import Array, ContextTables

SPARE_TOKENS = 1 << 12  # that new tables have room for
MIN_TABLE_BITS, MAX_TABLE_BITS = 8, 20  # of the slots of each context
MATCH_BITS = 18  # of the hashes by which a match is found
SAVED = ("slot_CS", "map_M", "last_H", "kind_V", "text_T", "place_F")  # of the tables, in a file


class ContextReader:
    """Tables, and the tokens that they have read since the text they were made from."""

    def __init__(self, tables: ContextTables, bits: int, begin: int) -> None:
        self.tables, self.bits, self.begin = tables, bits, begin
        self.first = int(tables.place_F[loops.READ])
        loops.hash_contexts(tables)

    @property
    def history_T(self) -> NDArray[np.int32]:  # noqa: N802
        """The tokens read since then."""
        history_T: NDArray[np.int32] = self.tables.text_T[self.first : self.tables.place_F[loops.READ]]
        return history_T

    @property
    def undoable(self) -> int:
        """How many tokens can be taken back."""
        return int(self.tables.place_F[loops.UNDOABLE])

    def read(self, x_T: NDArray[Any]) -> None:
        """Learn from tokens without mixing."""
        self.make_room(len(x_T))
        loops.read_tokens(self.tables, self.bits, self.begin, x_T.astype(np.int64))

    def make_room(self, count: int) -> None:
        """Let the text grow by so many tokens."""
        text_T, end = self.tables.text_T, int(self.tables.place_F[loops.READ]) + count
        if end > len(text_T):
            more_T = np.zeros(2 * end - len(text_T) + SPARE_TOKENS, np.int32)
            self.tables = self.tables._replace(text_T=np.concatenate([text_T, more_T]))

    def undo(self, count: int) -> None:
        """Forget the last tokens as if they had not been read."""
        for _ in range(count):
            loops.undo_token(self.tables)

    def copy(self) -> ContextReader:
        """Another reader at the same place."""
        other = object.__new__(ContextReader)
        other.__dict__ |= self.__dict__
        other.tables = ContextTables(*(part.copy() for part in self.tables))
        return other

    def saved(self) -> dict[str, Tensor]:
        """The tables as a file has them, with the text read so far; they share this reader's memory."""
        read = int(self.tables.place_F[loops.READ])
        parts = {name: getattr(self.tables, name) for name in SAVED} | {"text_T": self.tables.text_T[:read]}
        parts["slot_CS"] = parts["slot_CS"].view(np.int32)  # which every reader of safetensors knows
        return {name: torch.from_numpy(part) for name, part in parts.items()}


def first_tables(bits: int, kind_V: Array, tokens: int) -> ContextTables:
    """Tables that have read nothing, for a text of about so many tokens."""
    table_bits = min(max(MIN_TABLE_BITS, (max(1, tokens) - 1).bit_length()), MAX_TABLE_BITS)
    slot_CS = np.zeros((loops.CONTEXTS, 1 << table_bits), np.uint32)
    last_H = np.zeros(1 << min(MATCH_BITS, table_bits), np.int32)
    return _with_undo(slot_CS, loops.first_maps(), last_H, kind_V, np.zeros(0, np.int32), loops.first_place(), bits)


def _with_undo(
    slot_CS: Array, map_M: Array, last_H: Array, kind_V: Array, text_T: Array, place_F: Array, bits: int
) -> ContextTables:
    """The tables, with room for what the last tokens changed."""
    L, slots, numbers = loops.UNDO_TOKENS, bits * loops.CONTEXTS, bits * (2 * loops.CONTEXTS + 1)
    return ContextTables(
        slot_CS, map_M, last_H, kind_V, text_T, place_F, np.zeros((bits, loops.CONTEXTS), np.int64),
        np.zeros((bits, loops.CONTEXTS), np.int64), np.zeros((L, loops.FIELDS), np.int64),
        np.zeros((L, 2), np.int64), np.zeros((L, 2), np.int64), np.zeros((L, slots, 2), np.int64),
        np.zeros((L, numbers), np.int64), np.zeros((L, numbers)),
    )  # fmt: skip


def loaded_tables(tensors: Mapping[str, Tensor], bits: int, vocab: int) -> ContextTables:
    """The tables of a file; look-ups trust them, so tables that point outside themselves are refused."""
    slot_CS, map_M, last_H, kind_V, text_T, place_F = (tensors[name].numpy().copy() for name in SAVED)
    kinds = [part.dtype.name for part in (slot_CS, map_M, last_H, kind_V, text_T, place_F)]
    read = len(text_T)
    whole = (
        kinds == ["int32", "float64", "int32", "uint8", "int32", "int64"]
        and slot_CS.ndim == 2 and len(slot_CS) == loops.CONTEXTS and _is_power_of_two(slot_CS.shape[1])
        and map_M.shape == loops.first_maps().shape and bool(((map_M >= 0) & (map_M <= 1)).all())
        and _is_power_of_two(last_H.size) and last_H.ndim == 1 and _within(last_H, 0, read)
        and kind_V.shape == (vocab,) and text_T.ndim == 1 and _within(text_T, 0, vocab - 1)
        and place_F.shape == (loops.FIELDS,) and _is_place(place_F, read)
    )  # fmt: skip
    if not whole:
        raise UserError(
            "tables of contexts must fit the text that they are of: the file is damaged; train the mixture again"
        )
    place_F[loops.UNDOABLE] = 0
    return _with_undo(slot_CS.view(np.uint32), map_M, last_H, kind_V, text_T, place_F, bits)


def _is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0


def _within(numbers: Array, low: int, high: int) -> bool:
    return not numbers.size or (int(numbers.min()) >= low and int(numbers.max()) <= high)


def _is_place(place_F: Array, read: int) -> bool:
    """Whether what a place points at lies in a text of so many tokens."""
    line, before, match = (int(place_F[field]) for field in (loops.LINE, loops.LINE_BEFORE, loops.MATCH))
    return bool(
        place_F[loops.READ] == read
        and -1 <= before <= line < max(1, read)
        and 0 <= match < max(1, read)
        and 0 <= place_F[loops.MATCHED] <= read
    )


def id_kinds(spell: Callable[[int], bytes], vocab: int) -> Array:
    """Whether each id is of letters or ends a line, by the bytes that it stands for."""
    kind_V = np.zeros(vocab, np.uint8)
    for v in range(vocab):
        text = spell(v)
        if b"\n" in text:
            kind_V[v] = loops.NEWLINE
        elif text and all(byte >= 128 or chr(byte).isalpha() for byte in text):
            kind_V[v] = loops.LETTER
    return kind_V
