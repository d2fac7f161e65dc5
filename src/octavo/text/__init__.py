"""Text to tokens: files in, lossless tokenizers, memory-mapped tokens out."""

from octavo.text.block import Block, encode_blocks
from octavo.text.bpe import Bpe
from octavo.text.byte import Byte
from octavo.text.char import Char
from octavo.text.corpus import (
    Corpus,
    learn_and_tokenize,
    learn_tokenizer,
    open_corpus,
    open_text,
    text_in_memory,
    tokenize,
)
from octavo.text.load import Split
from octavo.text.preprocess import PREPROCESS
from octavo.text.registry import TOKENIZERS, load_tokenizer, save_tokenizer
from octavo.text.store import Store, fingerprint, open_store, write_store
from octavo.text.tokenizer import Tokenizer, Tokens
from octavo.text.word import Word

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
