"""Text to tokens: files in, lossless tokenizers, memory-mapped tokens out."""

from octavo.text.blocks import Block, encode_blocks
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
from octavo.text.token_store import Store, fingerprint, open_store, write_store
from octavo.text.tokenizers.bpe import Bpe
from octavo.text.tokenizers.byte import Byte
from octavo.text.tokenizers.char import Char
from octavo.text.tokenizers.protocol import Tokenizer, Tokens
from octavo.text.tokenizers.registry import TOKENIZERS, load_tokenizer, save_tokenizer
from octavo.text.tokenizers.word import Word

__all__ = [
    "PREPROCESS",
    "TOKENIZERS",
    "Block",
    "Bpe",
    "Byte",
    "Char",
    "Corpus",
    "Split",
    "Store",
    "Tokenizer",
    "Tokens",
    "Word",
    "encode_blocks",
    "fingerprint",
    "learn_and_tokenize",
    "learn_tokenizer",
    "load_tokenizer",
    "open_corpus",
    "open_store",
    "open_text",
    "save_tokenizer",
    "text_in_memory",
    "tokenize",
    "write_store",
]
