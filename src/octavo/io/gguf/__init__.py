"""GGUF, the files of llama.cpp: a pretrained model's settings, tokenizer and weights in one file."""

from octavo.io.gguf.reader import Gguf, Tensor, read_gguf

__all__ = ["Gguf", "Tensor", "read_gguf"]
