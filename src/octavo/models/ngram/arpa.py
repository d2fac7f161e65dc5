"""The ARPA format: what KenLM, SRILM and others read and write.

An ARPA file gives log10 p(w | c) of each n-gram in full and a back-off weight for its use as a context; alpha follows
from p(w | c) = alpha(c w) + gamma(c) p(w | c without its first word). Here M k-grams of k words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from octavo.errors import UserError
from octavo.files import whole_file
from octavo.models.ngram.count import Level
from octavo.models.ngram.estimate import Weights
from octavo.models.ngram.model import NGram, NGramConfig
from octavo.models.ngram.trie import parents

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
ZERO = -99.0  # how the format writes log10 of zero
ROWS = 1 << 18  # n-grams worked on at once


def write_arpa(model: NGram, path: str | Path, names: list[str]) -> None:
    """Write the model with names[i] for token i. A model without an end of sentence gets an impossible `</s>`."""
    names = [*names]
    names[model.begin] = BEGIN
    if model.newline is not None:
        names[model.newline] = END
    extra = [name for name in (UNKNOWN, END) if name not in names]
    parent_M = parents(model.first_C[:-1], model.none)
    with whole_file(path) as file:
        sizes = [high - low for low, high in model.order_ranges()]
        sizes[0] += len(extra)
        file.write(b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % (k, size) for k, size in enumerate(sizes, 1)))
        for k, (low, high) in enumerate(model.order_ranges(), 1):
            file.write(b"\n\\%d-grams:\n" % k)
            if k == 1:
                file.write("".join(f"{ZERO:g}\t{name}\n" for name in extra).encode())
            for start in range(low, high, ROWS):
                node_M = torch.arange(start, min(high, start + ROWS), device=parent_M.device)
                _write_rows(file, model, node_M, parent_M, k, names)
        file.write(b"\n\\end\\\n")


def _write_rows(file: IO[bytes], model: NGram, node_M: Tensor, parent_M: Tensor, k: int, names: list[str]) -> None:
    words = [model.word_M[node_M]]
    ancestor_M = node_M
    for _ in range(k - 1):
        ancestor_M = parent_M[ancestor_M]
        words.append(model.word_M[ancestor_M])
    word_Mk = torch.stack(words[::-1], 1).long()
    logp = _log10(probability(model, word_Mk)).tolist()
    rows = [" ".join([names[w] for w in row]) for row in word_Mk.tolist()]
    if k < model.config.order:
        backoff = _log10(model.gamma_C[node_M]).tolist()
        lines = (f"{p:.7g}\t{row}\t{b:.7g}\n" for p, row, b in zip(logp, rows, backoff, strict=True))
    else:
        lines = (f"{p:.7g}\t{row}\n" for p, row in zip(logp, rows, strict=True))
    file.write("".join(lines).encode())


def probability(model: NGram, word_Mk: Tensor) -> Tensor:
    """p of the last word of each row after the words before it, and nothing before those."""
    return model.probability(word_Mk[:, -1:], [c[:, -1:] for c in model.contexts(model.start(len(word_Mk)), word_Mk)])[
        :, 0
    ]


def read_arpa(path: str | Path) -> tuple[NGram, list[str]]:
    """The model and the names of its tokens; `<s>` becomes the begin token, a line's end becomes `</s>`."""
    path = Path(path)
    try:
        with open(path, encoding="utf-8") as file:
            return _read(file, path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the name") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not an ARPA file in UTF-8: {error.reason} at byte {error.start}") from error


def _read(file: IO[str], path: Path) -> tuple[NGram, list[str]]:
    sizes = _header(file, path)
    words, logp_V, backoff_V = _section(file, path, 1, sizes[0])
    names = [row[0] for row in words]
    if len(set(names)) < len(names):
        raise UserError(f"{path}: a word stands twice among the 1-grams; write the file again")
    if BEGIN not in names:
        raise UserError(
            f"{path} has no {BEGIN}: octavo needs the token that opens a sentence; train with sentence marks"
        )
    by_id = sorted(range(len(names)), key=lambda i: (names[i] == BEGIN, i))
    names, logp_V, backoff_V = [names[i] for i in by_id], logp_V[by_id], backoff_V[by_id]
    ids = {name: i for i, name in enumerate(names)}
    vocab = len(names)
    word_V = torch.arange(vocab, dtype=torch.int32)
    levels = [Level(1, torch.zeros_like(word_V), word_V, word_V, word_V, False)]
    weights = [Weights(_power(logp_V), torch.zeros(1, dtype=torch.float64))]
    newline = ids.get(END)
    gamma = _power(backoff_V)
    for k, size in enumerate(sizes[1:], 2):
        words, logp_M, backoff_M = _section(file, path, k, size)
        below = NGram(NGramConfig(order=k - 1), vocab)
        below._assemble(zip(levels, weights, strict=True))
        by_key = _add_order(levels, weights, below, _ids(words, ids, path), _power(logp_M), gamma, path)
        gamma = _power(backoff_M)[by_key]
    config = NGramConfig(order=len(sizes), estimator="arpa", sentences=newline is not None)
    model = NGram(config, vocab, newline)
    model._assemble(zip(levels, weights, strict=True))
    return model, names


def _add_order(
    levels: list[Level], weights: list[Weights], below: NGram, word_Mk: Tensor, p_M: Tensor, gamma_C: Tensor, path: Path
) -> Tensor:
    """Append the k-grams, sorted by context and word; returns the order they were sorted into."""
    vocab = below.vocab
    node_M = torch.zeros(len(word_Mk), dtype=torch.int64)
    for j in range(word_Mk.shape[1] - 1):
        node_M = below.index.child(node_M, word_Mk[:, j])
    if bool((node_M == below.none).any()):
        raise UserError(f"{path}: an n-gram's context is missing one order below; write the file again without gaps")
    context_M = node_M - (below.none - len(levels[-1]))
    lower_M = torch.cat([probability(below, rows) for rows in word_Mk[:, 1:].split(ROWS)])
    key_M, by_key_M = (context_M * vocab + word_Mk[:, -1]).sort()
    context_M, word_M = key_M // vocab, (key_M % vocab).int()
    alpha_M = (p_M - gamma_C[node_M - (below.none - len(levels[-1]))] * lower_M)[by_key_M]
    levels.append(Level(len(levels[-1]), context_M.int(), word_M, word_M, word_M, False))
    weights.append(Weights(alpha_M, gamma_C))
    return by_key_M


def _header(file: IO[str], path: Path) -> list[int]:
    """The number of n-grams of each order."""
    for line in islice(file, 10_000):
        if line.strip() == "\\data\\":
            break
    else:
        raise UserError(f"{path} is not an ARPA file: no line says \\data\\; give a file that lmplz or octavo wrote")
    sizes: list[int] = []
    for line in file:
        if not line.strip():
            break
        try:
            name, size = line.split("=")
            if name.split() != ["ngram", str(len(sizes) + 1)]:
                raise ValueError(name)
            sizes.append(int(size))
        except ValueError as error:
            raise UserError(
                f"{path}: the header says {line.strip()!r} where 'ngram {len(sizes) + 1}=...' must stand"
            ) from error
    if not sizes or min(sizes) < 0:
        raise UserError(f"{path}: the header names no n-grams; write the file again")
    return sizes


def _section(file: IO[str], path: Path, k: int, size: int) -> tuple[list[list[str]], Tensor, Tensor]:
    """The words, log10 p and log10 back-off of each k-gram."""
    for line in file:
        if line.strip():
            break
    if line.strip() != f"\\{k}-grams:":
        raise UserError(f"{path}: {line.strip()!r} stands where '\\{k}-grams:' must; the file is damaged")
    words: list[list[str]] = []
    numbers = np.zeros((size, 2))
    for i, fields in enumerate(_rows(file, size)):
        try:
            row = fields[1].split(" ")
            if len(row) != k:
                raise ValueError(fields[1])
            words.append(row)
            numbers[i, : len(fields) - 1] = (fields[0], *fields[2:])
        except (ValueError, IndexError) as error:
            raise UserError(f"{path}: {fields!r} is not a {k}-gram; the file is damaged") from error
    if len(words) < size:
        raise UserError(f"{path} ends early: {len(words):,} of {size:,} {k}-grams; copy the file again")
    return words, torch.from_numpy(numbers[:, 0]), torch.from_numpy(numbers[:, 1])


def _rows(file: IO[str], size: int) -> Iterator[list[str]]:
    for line in islice(file, size):
        if not line.strip() or line.startswith("\\"):
            return
        yield line.rstrip("\n").split("\t")


def _ids(words: list[list[str]], ids: dict[str, int], path: Path) -> Tensor:
    try:
        return torch.tensor([[ids[word] for word in row] for row in words])
    except KeyError as error:
        raise UserError(f"{path}: {error.args[0]!r} is in an n-gram but not among the 1-grams") from error


def _power(log10: Tensor) -> Tensor:
    return torch.where(log10 <= ZERO, 0.0, (log10 * math.log(10)).exp())


def _log10(p: Tensor) -> Tensor:
    return p.double().log10().clamp(min=ZERO)
