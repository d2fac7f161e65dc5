"""Texts that meet every rule of a tokenizer, and a pretrained tokenizer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tokenizers

from octavo.text import Chunk

SAMPLE = (
    "The cat sat on the mat. The cat's hat — “flat” — is on the mat, naïve cat!\r\n"
    "Die Größe der Straße; l’été où e\u0301 va.\u00a0日本語のテキスト。 snake_case x2 10,000\n\tthe  end\n"
).encode() * 3
ODD = [
    b"", b"\0", b"\r\n\r\n", b"  two  spaces ", "🙂👩‍👩‍👧 e\u0301\ufeff".encode(), b"\xed\xa0\x80 lone surrogate",
    b"\xff\xfe\x00", b"cut \xe2\x82", b"\x80\xbf\xc0\x80 overlong \xe0\x80\xa0x", b"\xf4\x90\x80\x80 \xf8",
    "\u3000\u2028\u0085 \u00a0x".encode(), b"a" * 200, "<|endoftext|> ▁x <0x0A>".encode(), "unknown Ω".encode(),
]  # fmt: skip


def chunks_of(*documents: bytes) -> list[Chunk]:
    return [Chunk(document, np.zeros(1, np.int64)) for document in documents]


def pretrained_parts(alphabet: list[str] | None = None) -> dict[str, Any]:
    """A tokenizer.json of SmolLM2's kind: special tokens come first, and every digit stands alone."""
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    digits, bytes_ = tokenizers.pre_tokenizers.Digits(True), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, bytes_])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<|endoftext|>", "<|im_start|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet,
    )  # fmt: skip
    learner.train_from_iterator([SAMPLE.decode()], trainer)
    parts: dict[str, Any] = json.loads(learner.to_str())
    return parts
