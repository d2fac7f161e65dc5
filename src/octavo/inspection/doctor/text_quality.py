"""The text that a run learnt from and was measured on: its encoding, whether it repeats itself, whether the held-out
part stands in it or is of another kind, whether it is sorted or has no order; and what the tokenizer makes of it.

N bytes or tokens, W windows.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from octavo.text import Split, Tokenizer
from octavo.text.chunks import Chunk
from octavo.text.overlap import MAX_OVERLAP, overlap
from octavo.training.diagnosis.finding import Finding, not_applicable, percent

READ_BYTES = 1_000_000  # of each part at most
WINDOW_BYTES = 48  # that occur twice by copying, and hardly by chance
BLOCKS = 64  # of a text, every other one of which is costed by the rest: what the same kind of text costs
LEAST_BYTES = 2_000  # of a part to be judged: tables of pairs say nothing about less
REPEATED = 0.8  # of the windows of the training text stand elsewhere in it
LEAKED_TIMES = 3.0  # more of the held-out text stands in the training text than stands there twice
SORTED, FOREIGN = 0.25, 0.25  # more bits by pairs of bytes than for the same kind of text
UNORDERED = 0.03  # at least so much less is a byte's cost where the one before is known
NULS, REPLACED, GARBLED = 0.01, 0.001, 0.3  # of the bytes; of the characters; of those beyond ASCII
LEAST_GARBLED = 20
LEAST_LINES, LEAST_INITIALS = 50, 5  # of a text whose lines may be sorted
ASCENDING = 0.95  # of neighbouring lines: by chance it is half of them
SHUFFLE = "shuffle its documents or lines, and train on that: shuf FILE > SHUFFLED"
MOJIBAKE = re.compile(
    "[ÂÃâÐÑ][\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]"
)
UNKNOWN = 0.2  # of the held-out tokens or words
ONE_TOKEN = 0.5  # of the tokens are one and the same
LARGE_VOCABULARY, UNUSED = 512, 0.75  # ids; the share of them that the training text never has

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class TextMeasures:
    """What was measured; costs are in bits a byte, by frequencies and by pairs of bytes."""

    bytes_read: int
    repeated: float  # windows of the training text that stand elsewhere in it
    leaked: float  # of the held-out text, what stands in the training text
    frequencies: float  # every other block of the training text, by the rest
    pairs: float
    last_quarter: (
        float  # of the training text, by its first half, in pairs; over what it costs by the rest of all of it
    )
    held_out: float  # in pairs, by the training text; over `pairs`


def measure_text(train: bytes, valid: bytes) -> TextMeasures:
    """All measures of two parts of a text."""
    train_N, valid_N = (np.frombuffer(data, np.uint8) for data in (train, valid))
    hash_W = window_hashes(train_N)
    repeated = 1 - len(np.unique(hash_W)) / max(1, len(hash_W))
    leaked = overlap([Chunk(train)], valid)
    blocks = np.array_split(train_N, BLOCKS)
    even, odd = np.concatenate(blocks[::2]), np.concatenate(blocks[1::2])
    frequencies, pairs = (cost(even, odd, by_pairs) for by_pairs in (False, True))
    half = train_N[: len(train_N) // 2]
    rest = np.concatenate(blocks[3 * BLOCKS // 4 + 1 :: 2])
    drift = cost(half, rest, True) / cost(even, rest, True) - 1
    other = cost(train_N, valid_N, True) / pairs - 1
    return TextMeasures(len(train), repeated, leaked, frequencies, pairs, drift, other)


def window_hashes(x_N: Bytes) -> NDArray[np.uint64]:
    """A hash of every window of WINDOW_BYTES bytes."""
    count = len(x_N) - WINDOW_BYTES + 1
    hash_W = np.zeros(max(0, count), np.uint64)
    for offset in range(WINDOW_BYTES if count > 0 else 0):
        hash_W = hash_W * np.uint64(6364136223846793005) + x_N[offset : offset + count] + np.uint64(1)
    return hash_W


def cost(learnt_N: Bytes, read_N: Bytes, by_pairs: bool) -> float:
    """Bits a byte of a text under the counts of another one: of bytes, or of pairs interpolated with those."""
    count_V = np.bincount(learnt_N, minlength=256) + 0.5
    p_V = count_V / count_V.sum()
    if not by_pairs:
        return float(-np.log2(p_V[read_N]).mean())
    pair_VV = np.bincount(learnt_N[:-1].astype(np.int64) * 256 + learnt_N[1:], minlength=1 << 16).reshape(256, 256)
    total_V, kinds_V = pair_VV.sum(1), (pair_VV > 0).sum(1)
    before_N, x_N = read_N[:-1], read_N[1:]
    weight_N = kinds_V[before_N] / np.maximum(1, total_V + kinds_V)[before_N]  # Witten and Bell's
    weight_N = np.where(total_V[before_N] > 0, weight_N, 1.0)
    seen_N = pair_VV[before_N, x_N] / np.maximum(1, total_V[before_N])
    return float(-np.log2((1 - weight_N) * seen_N + weight_N * p_V[x_N]).mean())


def encoding_problem(data: bytes) -> tuple[str, float] | None:
    """How a text was read in a wrong encoding, and the share that shows it; None where nothing does."""
    nuls = data.count(0) / max(1, len(data))
    if nuls > NULS:
        return "zero bytes: it is UTF-16, or no text", nuls
    text = data.decode("utf-8", "ignore")
    beyond = sum(map(len, re.findall(r"[^\x00-\x7f]+", text)))
    garbled = MOJIBAKE.findall(text)
    if len(garbled) >= LEAST_GARBLED and 2 * len(garbled) > GARBLED * beyond:
        return f"characters such as {garbled[0]!r}: UTF-8 that was once read as Latin-1", 2 * len(garbled) / beyond
    replaced = text.count("\ufffd") / max(1, len(text))
    return ("replacement characters (U+FFFD): what stood there was lost", replaced) if replaced > REPLACED else None


def is_alphabetical(data: bytes) -> bool:
    """Whether lines stand in the order of their bytes, through several first letters (those of a log may, by its
    dates, but then they begin alike or with digits)."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    changes = [(one, two) for one, two in pairwise(lines) if one != two]
    initials = {line[:1] for line in lines if line[:1].isalpha()}
    if len(changes) < LEAST_LINES or len(initials) < LEAST_INITIALS:
        return False
    return sum(one < two for one, two in changes) / len(changes) > ASCENDING


def examine_text(train: Split, valid: Split) -> Finding:
    """The two parts, of which the first bytes are read."""
    name = "text"
    first, second = (part.first(READ_BYTES).read() for part in (train, valid))
    if len(first) < LEAST_BYTES:
        return not_applicable(name, f"it takes {LEAST_BYTES:,} bytes of training text, and there are {len(first):,}")
    garbled = encoding_problem(first)
    found = measure_text(first, second)
    values = asdict(found) | {"garbled": garbled[1] if garbled else 0.0}
    expected = "UTF-8, in order, not repeated, held-out text of the same kind"

    def finding(condition: str, measured: str, why: str, *advice: str) -> Finding:
        return Finding(name, "warning", measured, expected, why, advice, values, condition)

    if garbled:
        what, share = garbled
        remedy = "convert the file to UTF-8, and train on that: iconv -f LATIN1 -t UTF-8 FILE"
        return finding("text encoding", f"{percent(share)} garbled", f"the text has {what}.", remedy)
    stretches = f"stretches of {WINDOW_BYTES} bytes"
    repeated, leaked = percent(found.repeated, 0), percent(found.leaked, 0)
    if found.repeated > REPEATED:
        why = f"{repeated} of the {stretches} stand more than once in the training text."
        remedy = "keep one copy of each passage: a result on this text says only that it can be copied"
        return finding("repeated text", f"{repeated} repeated", why, remedy)
    if found.leaked > MAX_OVERLAP and found.leaked > LEAKED_TIMES * found.repeated:
        why = (
            f"{leaked} of the held-out text stands word for word in the training text, of which only {repeated} "
            "stands there twice: the result is that of a text already seen."
        )
        remedy = "measure on a text that is not in the training part: --valid FILE"
        return finding("data leak", f"{leaked} of held-out text seen", why, remedy)
    if 1 - found.pairs / max(found.frequencies, 1e-9) < UNORDERED:
        why = (
            f"knowing the byte before saves nothing: {found.frequencies:.3f} bits a byte without it, "
            f"{found.pairs:.3f} with it. The text is shuffled, encrypted or compressed: there is nothing to learn but "
            "frequencies."
        )
        remedy = "see that the text was not shuffled or compressed before it was read: octavo data show FILE"
        return finding("text without order", f"{found.pairs:.3f} bits by pairs of bytes", why, remedy)
    if found.last_quarter > SORTED:
        more = percent(found.last_quarter, 0, sign=True)
        why = (
            f"the end of the training text costs {more} by pairs of bytes of its first half, against those of as many "
            "bytes from all of it: it is sorted, or changes its kind on the way, so that the model learns one thing "
            "and is measured on another."
        )
        return finding("sorted text", f"{more} bits at its end", why, SHUFFLE)
    if is_alphabetical(first):
        why = (
            "its lines stand in alphabetical order, so that the model learns one end of the alphabet last, and is "
            "measured on what comes after it."
        )
        return finding("sorted text", "lines in alphabetical order", why, SHUFFLE)
    other = percent(found.held_out, 0, sign=True)
    if len(second) >= LEAST_BYTES and found.held_out > FOREIGN:
        why = f"by pairs of bytes of the training text, held-out text costs {other} against training text itself."
        remedies = ("measure on text of the same kind: --valid FILE", "compare the two texts: octavo domains RUN")
        return finding("different domains", f"held out {other} by pairs", why, *remedies)
    measured = f"{repeated} repeated, {leaked} leaked, held out {other}"
    why = "training and held-out text are of one kind, and in order."
    return Finding(name, "ok", measured, expected, why, (), values)


def examine_tokenizer(tokenizer: Tokenizer, x_N: NDArray[np.int64], valid: bytes) -> Finding:
    """What the tokenizer makes of the text; x_N are tokens of the training part."""
    name = "tokenizer"
    x_N = x_N[x_N != tokenizer.begin]
    if not len(x_N) or not valid:
        return not_applicable(name, "there is no text to tokenize")
    tokens_N = tokenizer.encode(valid)
    back = tokenizer.decode(tokens_N)
    count_V = np.bincount(x_N, minlength=tokenizer.vocab)
    common = int(count_V.argmax())
    share, unused = float(count_V[common] / count_V.sum()), float((count_V == 0).mean())
    unknown, words = tokenizer.count_unknown(valid)
    rate, size = unknown / words if words else 0.0, len(valid) / max(1, len(tokens_N))
    values = {"vocabulary": tokenizer.vocab, "unused": unused, "commonest_share": share, "unknown": rate,
              "lossless": back == valid, "bytes_per_token": size}  # fmt: skip
    expected = f"text comes back, below {percent(UNKNOWN, 0)} unknown, below {percent(UNUSED, 0)} of many ids unused"

    def finding(measured: str, why: str, *advice: str, condition: str = "broken tokenizer") -> Finding:
        return Finding(name, "warning", measured, expected, why, advice, values, condition)

    if share > ONE_TOKEN:
        which = tokenizer.token_bytes(common)
        why = f"{percent(share, 0)} of all tokens are {which!r}: hardly anything is left to predict."
        return finding(f"{percent(share, 0)} one token", why, "one that loses nothing: --tokenizer byte", *LARGER)
    if rate > UNKNOWN:
        why = f"{percent(rate, 0)} of the held-out words are not in its vocabulary of {tokenizer.vocab:,}."
        return finding(f"{percent(rate, 0)} unknown", why, "one without unknown words: --tokenizer bpe", *LARGER)
    if tokenizer.lossless and back != valid:
        at = next((i for i, (a, b) in enumerate(zip(back, valid, strict=False)) if a != b), min(len(back), len(valid)))
        why = f"decoding what it encoded gives another text, from byte {at:,} on: bits per byte mean nothing."
        return finding("text does not come back", why, "one that loses nothing: --tokenizer byte")
    if tokenizer.vocab > LARGE_VOCABULARY and unused > UNUSED:
        why = (
            f"{percent(unused, 0)} of its {tokenizer.vocab:,} ids never occur in the training text: their weights are "
            "never trained, and the softmax gives them a share of its probability."
        )
        fits = max(LARGE_VOCABULARY, 1 << math.ceil(math.log2(max(2, int((count_V > 0).sum())))))
        remedy = f"a tokenizer learnt from this text: --tokenizer bpe --vocab-size {fits}"
        return finding(f"{percent(unused, 0)} of ids unused", why, remedy, condition="unused vocabulary")
    measured = f"{tokenizer.vocab:,} ids, {percent(unused, 0)} unused, {size:.2f} bytes a token"
    return Finding(name, "ok", measured, expected, "the text comes back from its tokens.", (), values)


LARGER = ("rarer words in the vocabulary: --min-count 1", "a larger --vocab-size 20000")
