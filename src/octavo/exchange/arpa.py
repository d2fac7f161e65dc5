"""The ARPA format: what KenLM, SRILM and others read and write.

An ARPA file gives log10 p(w | c) of each n-gram in full and a back-off weight for its use as a context; alpha follows
from p(w | c) = alpha(c w) + gamma(c) p(w | c without its first word). Here M k-grams of k words.

Tokens of any bytes become words without white space, and come back from them. A space is shown as ▁. Bytes that are not
UTF-8, characters that cannot be seen, a ▁ of the text's own, and a `<` that would look like the beginning of a mark are
written as <0xNN>, byte by byte. Several tokens may have one spelling (the character 'a' and the byte 'a'): all but the
last of them add their id, a<#97>, and so does one without any bytes.
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.errors import UserError
from octavo.exchange.arpa_lines import Lines, Section, read_end, read_ngrams, read_sizes, read_words
from octavo.exchange.imported import ImportedModel
from octavo.io.compressed import is_compressed
from octavo.io.files import whole_file
from octavo.io.progress import progress
from octavo.models.ngram.config import NGramConfig
from octavo.models.ngram.counting import Level
from octavo.models.ngram.estimators import Weights
from octavo.models.ngram.model import NGram
from octavo.models.ngram.sums import check_sums, probability, words_of
from octavo.text.tokenizers.base import Tokenizer
from octavo.text.tokenizers.closed_vocabulary import BEGIN, END, UNKNOWN, UNKNOWNS, ClosedVocabulary
from octavo.text.tokenizers.token_bytes import as_bytes, as_text

ZERO = -99.0  # how the format writes log10 of zero
WRITE_NGRAMS = 1 << 18  # n-grams written at a time
MARGIN = 1 - 2.0**-48  # of what is handed down, the most that a negative alpha takes back
SPACE = "▁"
# Controls, white space and what takes no room, written out instead of asked of Python, whose idea of them changes with
# every version of Unicode; surrogates are bytes that are not UTF-8.
UNSEEN = (
    r"\x00-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u206f\u2581\u3000\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\U000e0000-\U000e0fff"
)
ESCAPED = re.compile(f"[{UNSEEN}]|<(?=0x|#|/?s>|unk>)", re.IGNORECASE)


def read_model(path: str | Path, tokenizer: Tokenizer | None = None) -> ImportedModel:
    """The n-gram model of an ARPA file: its words are a closed vocabulary, or the names of a tokenizer's tokens."""
    record = {"corpus": {"name": Path(path).name}, "imported": {"file": str(path), "format": "arpa"}}
    if tokenizer is None:
        model, names = read_arpa(path)
        return ImportedModel(model, ClosedVocabulary(names), record)
    model, _ = read_arpa(path, token_names(tokenizer), tokenizer.newline)
    return ImportedModel(model, tokenizer, record)


def write_model(model: NGram, tokenizer: Tokenizer, path: str | Path) -> list[str]:
    """Write the model with readable names for its tokens."""
    write_arpa(model, path, token_names(tokenizer))
    return []


def write_arpa(model: NGram, path: str | Path, names: Sequence[str]) -> None:
    """Write the model with names[i] for token i. A model without an end of sentence gets an impossible `</s>`."""
    named = _checked(model, names)
    extra = [] if any(name in named for name in UNKNOWNS) else [UNKNOWN]
    extra += [] if END in named else [END]
    sizes = model.sizes()
    with _opened(Path(path)) as file, progress(f"writing {Path(path).name}", sum(sizes), "n-grams") as advance:
        sizes[0] += len(extra)
        file.write(b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % (k, size) for k, size in enumerate(sizes, 1)))
        for k, (low, high) in enumerate(model.order_ranges(), 1):
            file.write(b"\n\\%d-grams:\n" % k)
            if k == 1:
                file.write("".join(f"{ZERO:g}\t{name}\t0\n" for name in extra).encode())
            for start in range(low, high, WRITE_NGRAMS):
                node_M = torch.arange(start, min(high, start + WRITE_NGRAMS), device=model.word_M.device)
                _write_rows(file, model, node_M, k, named)
                advance(len(node_M))
        file.write(b"\n\\end\\\n")


def _checked(model: NGram, names: Sequence[str]) -> list[str]:
    """The names with those of the sentence marks, each a word and no two alike."""
    named = [*names]
    if model.newline is None and END in named:
        raise UserError(f"{END} must end a sentence, and this model knows no sentences; train it with --sentences")
    named[model.begin :] = [BEGIN]
    if model.newline is not None:
        named[model.newline] = END
    if not len(names) == len(set(named)) == len(" ".join(named).encode().split()) == model.vocab:
        raise UserError(f"{model.vocab:,} tokens need as many different names without white space in them")
    return named


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The file to write, compressed if its name says so."""
    if is_compressed(path) and path.suffix.lower() != ".gz":
        raise UserError(f"an ARPA file is written plain or as .gz, not as {path.suffix}; choose another name: {path}")
    with whole_file(path) as file:
        if is_compressed(path):
            with gzip.GzipFile(path.stem, "wb", compresslevel=6, fileobj=file, mtime=0) as zipped:
                yield cast(IO[bytes], zipped)
        else:
            yield file


def _write_rows(file: IO[bytes], model: NGram, node_M: Tensor, k: int, names: Sequence[str]) -> None:
    word_Mk = words_of(model, node_M, k)
    logp = _log10(probability(model, word_Mk)).clamp(max=0).tolist()  # sums may round to above 1
    rows = [" ".join([names[w] for w in row]) for row in word_Mk.tolist()]
    if k < model.config.order:
        backoff = _log10(model.gamma_C[node_M]).tolist()
        lines = (f"{p:.7g}\t{row}\t{b:.7g}\n" for p, row, b in zip(logp, rows, backoff, strict=True))
    else:
        lines = (f"{p:.7g}\t{row}\n" for p, row in zip(logp, rows, strict=True))
    file.write("".join(lines).encode())


def read_arpa(
    path: str | Path, names: Sequence[str] | None = None, newline: int | None = None
) -> tuple[NGram, list[str]]:
    """The model and the names of its tokens; `<s>` becomes the begin token, a line's end becomes `</s>`.

    A file without `<unk>` gets one of probability zero. Given the `names` of a tokenizer's tokens, and which of them
    is the `newline`, the file must have just these words and the model gets the tokenizer's ids. The file may be
    compressed, if its name says so.
    """
    lines = Lines(Path(path))
    sizes = read_sizes(lines)
    config = NGramConfig(order=len(sizes), estimator="arpa")
    with progress(f"reading {lines.path.name}", sum(sizes), "n-grams") as advance:
        found, *numbers = read_words(lines, sizes[0], advance)
        if names is None:
            named = _own_names(lines.path, found)
        else:
            named = _tokens_names(lines.path, dict(zip(found, numbers[0].tolist(), strict=True)), names, newline)
        builder = _Builder(lines, *_by_id(named, found, *numbers))
        ids = {name.encode(): i for i, name in enumerate(named)}
        for k, size in enumerate(sizes[1:], 2):
            builder.add(read_ngrams(lines, k, size, ids, advance))
    read_end(lines)
    model = builder.model(config, ids.get(END.encode()))
    try:
        check_sums(model, named)
    except UserError as error:
        raise UserError(f"{lines.path}: {error}") from error
    return model, named


def _own_names(path: Path, found: list[str]) -> list[str]:
    """The file's words as tokens: the begin token last, an unknown word among them."""
    for mark in (BEGIN, END):
        if mark not in found:
            raise UserError(f"{path} has no {mark}: octavo needs both marks of a sentence; train with sentence marks")
    unknown = [] if any(name in found for name in UNKNOWNS) else [UNKNOWN]
    return [*(name for name in found if name != BEGIN), *unknown, BEGIN]


def _tokens_names(path: Path, logp_of: dict[str, float], names: Sequence[str], newline: int | None) -> list[str]:
    """The tokenizer's names, if the file has just these; it may have `<unk>` and `</s>` besides if they never occur."""
    named = [*names]
    if newline is not None and named[newline] not in logp_of:
        named[newline] = END
    missing = [name for name in named if name not in logp_of]
    known = set(named)
    never = {name for name in (UNKNOWN, END) if logp_of.get(name, 0.0) <= ZERO}
    foreign = [name for name in logp_of if name not in known and name not in never]
    if missing or foreign:
        differences = [f"{len(some):,} are only in {where}, such as {some[0]!r}"
                for some, where in ((foreign, "the file"), (missing, "the tokenizer")) if some]  # fmt: skip
        raise UserError(
            f"the words of {path} must be the tokenizer's tokens: {'; '.join(differences)}; name the run that the "
            "file was exported from, or import it without a tokenizer"
        )
    return named


def _by_id(
    named: list[str], found: list[str], logp_W: NDArray[np.float64], backoff_W: NDArray[np.float64]
) -> tuple[Tensor, Tensor]:
    """p and back-off of each token from those of the file's words; a token that the file lacks is impossible."""
    row_of = {name: row for row, name in enumerate(found)}
    row_V = np.array([row_of.get(name, len(found)) for name in named])
    p_V = _power(torch.from_numpy(np.append(logp_W, ZERO)[row_V]))
    p_V[-1] = 0  # lmplz writes log10 p = 0 for <s>, which nothing predicts
    return p_V, _power(torch.from_numpy(np.append(backoff_W, 0.0)[row_V]))


class _Builder:
    """The orders read so far, as levels and weights."""

    def __init__(self, lines: Lines, p_V: Tensor, gamma_V: Tensor) -> None:
        self.lines, self.vocab = lines, len(p_V)
        word_V = torch.arange(self.vocab, dtype=torch.int32)
        self.levels = [Level(1, torch.zeros_like(word_V), word_V, word_V, word_V, False)]
        self.weights = [Weights(p_V, torch.zeros(1, dtype=torch.float64))]
        self.gamma_C = gamma_V  # of the highest order's n-grams as contexts

    def model(self, config: NGramConfig, newline: int | None = None) -> NGram:
        """The model of the orders so far."""
        sentences = NGramConfig(config.order, config.estimator, sentences=newline is not None)
        model = NGram(sentences, self.vocab, newline)
        model._assemble(zip(self.levels, self.weights, strict=True))
        return model

    def add(self, section: Section) -> None:
        """Append the k-grams, sorted by context and word."""
        below = self.model(NGramConfig(section.word_Mk.shape[1] - 1))
        context_M, lower_M = self._matched(below, section)
        word_Mk, p_M = torch.from_numpy(section.word_Mk), _power(torch.from_numpy(section.logp_M))
        p_M[word_Mk[:, -1] == below.begin] = 0
        key_M, by_key_M = (context_M * self.vocab + word_Mk[:, -1]).sort()
        if len(twice := by_key_M[1:][key_M.diff() == 0]):
            line = section.line + int(twice.min())
            raise self.lines.refusal("this n-gram stands in the file twice; write the file again", line)
        handed_M = self.gamma_C[context_M] * lower_M
        alpha_M = p_M - handed_M
        # Rounding must not make impossible what is only improbable.
        alpha_M = torch.where(p_M > 0, alpha_M.maximum(-MARGIN * handed_M), alpha_M)
        context_M, word_M = (key_M // self.vocab).int(), (key_M % self.vocab).int()
        self.levels.append(Level(len(self.levels[-1]), context_M, word_M, word_M, word_M, False))
        self.weights.append(Weights(alpha_M[by_key_M], self.gamma_C))
        self.gamma_C = _power(torch.from_numpy(section.backoff_M))[by_key_M]

    def _matched(self, below: NGram, section: Section) -> tuple[Tensor, Tensor]:
        """The context of each k-gram, as a rank among the (k-1)-grams, and what a context one shorter would give it."""
        contexts, lowers = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.float64)]
        for start in range(0, len(section.word_Mk), WRITE_NGRAMS):
            word_Mk = torch.from_numpy(section.word_Mk[start : start + WRITE_NGRAMS]).long()
            node_M = torch.zeros(len(word_Mk), dtype=torch.int64)
            for word_M in word_Mk[:, :-1].unbind(1):
                node_M = below.index.child(node_M, word_M)
            if bool((gaps := node_M == below.none).any()):
                line = section.line + start + int(gaps.int().argmax())
                raise self.lines.refusal("the n-gram's context is missing one order below; write the file again", line)
            contexts.append(node_M - (below.none - len(self.levels[-1])))
            lowers.append(probability(below, word_Mk[:, 1:]))
        return torch.cat(contexts), torch.cat(lowers)


def _power(log10: Tensor) -> Tensor:
    return torch.where(log10 <= ZERO, 0.0, (log10 * math.log(10)).exp())


def _log10(p: Tensor) -> Tensor:
    return p.double().log10().clamp(min=ZERO)


# ---------------------------------------------------------------------- names of tokens


def token_names(tokenizer: Tokenizer) -> list[str]:
    """A name for each token, no two alike, which says its bytes; the last is `<s>`."""
    if tokenizer.words is not None:  # they came out of an ARPA file, or could
        return [*tokenizer.words]
    return [*names_of([tokenizer.token_bytes(token) for token in range(tokenizer.begin)]), BEGIN]


def names_of(spellings: Sequence[bytes]) -> list[str]:
    """A name for each spelling, no two alike."""
    last = {spelling: token for token, spelling in enumerate(spellings)}
    return [
        _shown(spelling) + (f"<#{token}>" if token < last[spelling] or not spelling else "")
        for token, spelling in enumerate(spellings)
    ]


def _shown(spelling: bytes) -> str:
    escaped = ESCAPED.sub(lambda c: "".join(f"<0x{byte:02X}>" for byte in as_bytes(c[0])), as_text(spelling))
    return escaped.replace(" ", SPACE)
