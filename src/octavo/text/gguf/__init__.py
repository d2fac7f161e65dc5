"""GGUF, the files of llama.cpp: a pretrained model's settings, tokenizer and weights in one file."""

from octavo.text.gguf.read import Gguf, Tensor, read_gguf
from octavo.text.gguf.tokenizer import special_ids, tokenizer_parts

__all__ = ["Gguf", "Tensor", "read_gguf", "special_ids", "tokenizer_parts"]
