"""GGUF, the files of llama.cpp: a pretrained model's settings, tokenizer and weights in one file."""

from octavo.io.gguf.reader import Gguf, Tensor, read_gguf
from octavo.io.gguf.writer import Kind, write_gguf

__all__ = ["Gguf", "Kind", "Tensor", "read_gguf", "write_gguf"]
