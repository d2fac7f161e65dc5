"""WordPiece, the tokens of BERT: words and parts of words, without what stands between them.

It loses case and white space, so its models are on a scale of their own: it is no tokenizer for bits per byte.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from octavo.errors import UserError
from octavo.text.tokenizers.protocol import Tokens

PAD, UNKNOWN, FIRST, END, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_IDS = 1 << 24  # many times the largest vocabulary
PRIVATE, MOST_LETTERS = 0x100000, 0xFFFE  # the last plane of Unicode, which no text uses


class WordPiece:
    """A tokenizer of the `tokenizers` library with BERT's special tokens."""

    name = "wordpiece"
    lossless = False

    def __init__(self, parts: dict[str, Any]) -> None:
        """`parts` is what a `tokenizer.json` holds; how it pads, cuts and frames texts is left out."""
        if not isinstance(parts, dict):
            raise UserError(f"a tokenizer.json must hold a JSON object: it holds a {type(parts).__name__}")
        parts = {**parts, "truncation": None, "padding": None, "post_processor": None}
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(parts))
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"this is not a tokenizer that the tokenizers library reads: {error}") from error
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        if lacking := [token for token in SPECIAL if token not in ids]:
            raise UserError(
                f"BERT's tokenizer must have the tokens {' '.join(SPECIAL)}: this lacks {' '.join(lacking)}"
            )
        self._parts, self.vocab = parts, max(ids.values()) + 1
        if self.vocab > MOST_IDS:
            raise UserError(f"a vocabulary has at most {MOST_IDS:,} ids: this one has {self.vocab:,}")
        self.pad, self.unknown, self.first, self.end, self.mask = (ids[token] for token in SPECIAL)
        self._spelt = {number: token for token, number in ids.items()}

    @classmethod
    def learn(cls, texts: Iterable[str], size: int = 8192, lower: bool = True) -> WordPiece:
        """Learn `size` words and parts of words, the special ones included."""
        if not 100 <= size <= MOST_IDS:
            raise UserError(f"a vocabulary must have from 100 to {MOST_IDS:,} tokens: size={size}; try --size 8192")
        normalizer, splitter = normalizers.BertNormalizer(lowercase=lower), pre_tokenizers.BertPreTokenizer()
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
        vocab = {token: number for number, token in enumerate((*SPECIAL, *_pieces(counts, size - len(SPECIAL))))}
        made = tokenizers.Tokenizer(models.WordPiece(vocab=vocab, unk_token=UNKNOWN))
        made.normalizer, made.pre_tokenizer, made.decoder = normalizer, splitter, decoders.WordPiece()
        made.add_special_tokens(list(SPECIAL))
        return cls(json.loads(made.to_str()))

    @property
    def ordinary(self) -> Tokens:
        """The ids that a text can have: all but the special ones."""
        special = {self.pad, self.unknown, self.first, self.end, self.mask}
        return np.array([number for number in range(self.vocab) if number not in special], np.int32)

    def encode(self, texts: Sequence[str], typed: bool = False) -> list[Tokens]:
        """The tokens of each text, nothing put around them. With `typed`, a [MASK] in the text is the special token."""
        self._tokenizer.encode_special_tokens = not typed
        clean = [text.encode("utf-8", "replace").decode() for text in texts]  # half a character cannot be handed over
        found = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [np.array(one.ids, np.int32) for one in found]

    def decode(self, tokens: Iterable[int]) -> str:
        """Readable text: words with spaces between them."""
        text: str = self._tokenizer.decode([int(token) for token in tokens], skip_special_tokens=False)
        return text

    def token(self, number: int) -> str:
        """A token as the vocabulary spells it; ## stands before what continues a word."""
        return self._spelt.get(number, UNKNOWN)

    def to_json(self) -> dict[str, Any]:
        """What a tokenizer.json holds."""
        return self._parts


def _pieces(counts: Mapping[str, int], size: int) -> list[str]:
    """The characters of the words, and the pieces that pairs of pieces make most often, up to `size` in all.

    The library's own trainer for this numbers the characters inside words in a random order, and which of two pairs
    that are equally frequent comes first depends on it. So these characters become others, of a private range, before
    it counts pairs, and themselves again afterwards.
    """
    inside = sorted({letter for word in counts for letter in word[1:]})
    to_private = {ord(letter): chr(PRIVATE + i) for i, letter in enumerate(inside)}
    back = {PRIVATE + i: letter for i, letter in enumerate(inside)}
    if len(inside) > MOST_LETTERS:
        raise UserError(
            f"a text may have {MOST_LETTERS:,} different letters: this has {len(inside):,}; check its coding"
        )
    learner = tokenizers.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    words = (" ".join([word[0] + word[1:].translate(to_private)] * count) for word, count in sorted(counts.items()))
    learner.train_from_iterator(words, trainer)
    found = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    return [("##" if ord(piece[0]) >= PRIVATE else "") + piece.translate(back) for piece, _ in found]
