"""Tokenizers of the `tokenizers` library, from files that others wrote; its errors and panics are refused in words.

The library is written in Rust. Where a file or a pattern in it is odd enough it panics, which Python sees as an
exception that is none of Exception's, after a report of its own on standard error.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import tokenizers

from octavo.errors import UserError
from octavo.text.tokenizers.token_bytes import Tokens

MAX_REPLACEMENT = 1000  # characters that a normalizer may put in the place of some others
ONES_OWN = (UserError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)
STANDARD_ERROR = 2
REDIRECTED = Lock()  # standard error belongs to the whole process


def read_tokenizer_json(parts: Mapping[str, Any], probe: str) -> tokenizers.Tokenizer:
    """The tokenizer of the content of a `tokenizer.json`; it must be able to encode the probe."""
    _check_normalizer(parts.get("normalizer"))
    with _without_reports(), refused_in_words("this is not a tokenizer that the tokenizers library reads"):
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(parts))
        tokenizer.encode_batch_fast([probe, ""], add_special_tokens=False)
    return tokenizer


def encode_texts(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> list[Tokens]:
    """The ids of each text, nothing put around them."""
    with refused_in_words("the tokenizers library cannot encode this text with this tokenizer"):
        found = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [np.array(one.ids, np.int32) for one in found]


@contextmanager
def refused_in_words(problem: str) -> Iterator[None]:
    """Turn what the library raises, and its panics, into an error of the user's."""
    try:
        yield
    except ONES_OWN:
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{problem}: {reason}; use another tokenizer") from error


@contextmanager
def _without_reports() -> Iterator[None]:
    """Within it, nothing reaches standard error; afterwards it does, unless there was an error, which says it all."""
    with REDIRECTED, tempfile.TemporaryFile() as said:
        try:
            before = os.dup(STANDARD_ERROR)
        except OSError:  # there is none
            yield
            return
        try:
            os.dup2(said.fileno(), STANDARD_ERROR)
            yield
        finally:
            os.dup2(before, STANDARD_ERROR)
            os.close(before)
        said.seek(0)
        if text := said.read():
            os.write(STANDARD_ERROR, text)


def _check_normalizer(section: Any) -> None:
    """Refuse a normalizer that would make a long text of every few characters."""
    if isinstance(section, Mapping):
        for key in ("content", "prepend", "left", "right"):
            if isinstance(text := section.get(key), str) and len(text) > MAX_REPLACEMENT:
                raise UserError(
                    f"a normalizer may put at most {MAX_REPLACEMENT:,} characters in the place of others: this "
                    f"tokenizer's puts {len(text):,}; use another tokenizer"
                )
        members = section.get("normalizers")
        for member in members if isinstance(members, list) else ():
            _check_normalizer(member)
