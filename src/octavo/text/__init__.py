"""Text to tokens: files in, lossless tokenizers, memory-mapped tokens out."""

from octavo.io.plugins import load_plugins
from octavo.text.chunks import Chunk
from octavo.text.corpus import (
    Corpus,
    learn_and_tokenize,
    learn_tokenizer,
    open_corpus,
    open_text,
    text_in_memory,
    tokenize,
)
from octavo.text.loading import Split
from octavo.text.preprocess import PREPROCESS
from octavo.text.token_store import TokenStore, fingerprint
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.bpe import Bpe, BpeSettings
from octavo.text.tokenizers.byte import Byte
from octavo.text.tokenizers.char import Char, CharSettings
from octavo.text.tokenizers.registry import TOKENIZERS, load_tokenizer, save_tokenizer
from octavo.text.tokenizers.token_bytes import Tokens
from octavo.text.tokenizers.word import Word, WordSettings
from octavo.text.tokenizers.wordpiece import WordPiece, WordPieceSettings

__all__ = [
    "PREPROCESS", "TOKENIZERS", "Bpe", "BpeSettings", "Byte", "Char", "CharSettings", "Chunk", "Corpus", "Split",
    "TokenStore", "Tokenizer", "Tokens", "Word", "WordPiece", "WordPieceSettings", "WordSettings", "fingerprint",
    "learn_and_tokenize", "learn_tokenizer", "load_tokenizer", "open_corpus", "open_text", "save_tokenizer",
    "text_in_memory", "tokenize",
]  # fmt: skip


def _check_tokenizer(plugin: object, name: str) -> type[Tokenizer]:
    if not isinstance(plugin, type) or not issubclass(plugin, Tokenizer):
        raise TypeError(f"{plugin!r} must be a class derived from octavo.text.Tokenizer")
    if name in TOKENIZERS:
        raise ValueError(f"the name {name} is taken; choose another")
    return plugin


TOKENIZERS.update(load_plugins("octavo.tokenizers", "tokenizer", _check_tokenizer))
