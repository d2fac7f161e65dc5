"""Lossless compression with any language model: the bits a model claims, paid in a file that gives the text back.

L lanes, V vocabulary, G groups of K consecutive ids (G * K >= V). The tokens are cut into L contiguous lanes that
are coded in lock-step, so that one batched `predict` serves L tokens; every lane begins with a fresh state and the
begin token. All lanes share one stream of the range coder. Encoder and decoder make the same calls of it with
the same shapes, and so compute the same probabilities to the last bit.

The range coder works with 24 bits and gives every id at least 2**-24, and its own arithmetic costs about 1.3e-4 bits
a symbol. A large vocabulary is therefore coded in two symbols, the group and then the id within it, which takes
about sqrt(V) instead of V times 2**-24 from the probabilities. The same floor makes a symbol cost at most 24 bits:
a model that is surprised by more pays less in the file than it claims, so the size bounds the claim from below only
where such tokens are rare.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import constriction
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode, single_thread
from octavo.errors import UserError
from octavo.io.progress import Advance
from octavo.text.tokenizers.token_bytes import Tokens

MAGIC, VERSION = b"OCTV", 1
FIXED = struct.Struct("<4sBI8s8s")  # magic, version, crc32 of what follows it, model, sha256 of the original
CHECKED_FROM = 9  # the crc32 covers the archive from this byte on

LANES_COST = 0.0006  # of the bits, for the little context that lanes begin with
LEAST_START_BITS = 8.0  # that a fresh start is taken to cost, however well the samples begin
SAMPLES, SAMPLE = 64, 256  # texts of so many tokens, to see what a fresh start costs
MOST_LANES = 512
ROOM = 2**24  # automatic lanes keep the L * V probabilities below this many
MOST_ROOM = 2**27  # and nothing, neither an option nor a forged header, may ask for more (a gigabyte)
ONE_SYMBOL = 1024  # up to this vocabulary one symbol a token is cheaper than two
PRECISION = 24  # bits of the range coder's probabilities


class Codec(Protocol):
    """The part of a tokenizer that compression needs."""

    def encode(self, data: bytes) -> Tokens:
        """The tokens of any bytes."""

    def decode(self, tokens: Tokens) -> bytes:
        """The bytes of any tokens."""


class Header(NamedTuple):
    """What stands before the coder's words in an archive."""

    identity: bytes
    checksum: bytes
    tokens: int
    bytes: int
    lanes: int


class MismatchError(Exception):
    """The stream cannot have been written with the probabilities the model computes now."""


def compress(
    model: LanguageModel[Any],
    tokenizer: Codec,
    data: bytes,
    identity: bytes,
    lanes: int | None = None,
    progress: Advance | None = None,
) -> bytes:
    """An archive of `data` that the same model turns back; `progress` is told the fraction of the work done."""
    tokens = np.asarray(tokenizer.encode(data), dtype=np.int64)
    if tokenizer.decode(tokens.astype(np.int32)) != data:
        raise UserError("only a lossless tokenizer can compress: this one does not give the bytes back; use another")
    lanes = lanes_for(model, torch.from_numpy(tokens)) if lanes is None else lanes
    if not 1 <= lanes <= max(1, MOST_ROOM // model.vocab):
        most = max(1, MOST_ROOM // model.vocab)
        raise UserError(f"lanes must lie between 1 and {most} with a vocabulary of {model.vocab}: lanes={lanes}")
    lanes = max(1, min(lanes, len(tokens)))
    words = encode_tokens(model, torch.from_numpy(tokens), lanes, progress)
    header = Header(identity[:8], hashlib.sha256(data).digest()[:8], len(tokens), len(data), lanes)
    return write_header(header, words) + words


def decompress(
    model: LanguageModel[Any],
    tokenizer: Codec,
    archive: bytes,
    identity: bytes,
    progress: Advance | None = None,
) -> bytes:
    """The bytes that were compressed; `progress` is told the fraction of the work done."""
    header, words = read_header(archive)
    if header.identity != identity[:8]:
        raise UserError(
            f"an archive opens only with the model that wrote it: that was {header.identity.hex()}, "
            f"this is {identity[:8].hex()}; give the other model"
        )
    _check_claims(header, words, model.vocab)
    try:
        tokens = decode_tokens(model, words, header.tokens, header.lanes, progress)
        data = tokenizer.decode(tokens.numpy().astype(np.int32))
        if len(data) != header.bytes or hashlib.sha256(data).digest()[:8] != header.checksum:
            raise MismatchError
    except MismatchError as error:
        raise UserError(
            "the text that came out is not the one that went in: the archive is whole, so the model computes other "
            "probabilities here than where it was written; use the same device, thread count and torch version"
        ) from error
    return data


@torch.no_grad()
def lanes_for(model: LanguageModel[Any], tokens: Tensor) -> int:
    """How many lanes a text gets: enough for speed, few enough that their fresh starts cost at most LANES_COST.

    A lane's first tokens are predicted with little context. What that costs is seen on samples from all over the
    text, each begun afresh: what their first half takes beyond their second half.
    """
    most = min(len(tokens) // SAMPLE, MOST_LANES, ROOM // model.vocab)
    if most < 2:
        return 1
    rows = max(2, min(SAMPLES, model.max_scored_tokens // SAMPLE, most))
    starts_R = torch.linspace(0, len(tokens) - SAMPLE, rows).long()
    x_RT = tokens[starts_R[:, None] + torch.arange(SAMPLE)].to(device_of(model))
    with eval_mode(model):
        bits_RT = model.score(x_RT).double() / -math.log(2)
    first, second = (float(half.sum()) / rows for half in bits_RT.chunk(2, 1))
    if not math.isfinite(first + second):
        return 1
    total_bits = len(tokens) * second / (SAMPLE / 2)
    return max(1, min(most, int(LANES_COST * total_bits / max(first - second, LEAST_START_BITS))))


def lane_starts(tokens: int, lanes: int) -> NDArray[np.int64]:
    """Where each lane begins, and where the last one ends; the longer lanes (by one token) come first."""
    lane = np.arange(lanes + 1)
    return lane * (tokens // lanes) + np.minimum(lane, tokens % lanes)


@torch.no_grad()
def encode_tokens(model: LanguageModel[Any], tokens: Tensor, lanes: int, progress: Advance | None = None) -> bytes:
    """The range coder's words (little-endian, 32 bits) for the tokens."""
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < model.vocab:
        raise UserError(
            f"tokens must lie between 0 and {model.vocab - 1}: {int(tokens.min())} to {int(tokens.max())} found; "
            "use the tokenizer the model was trained with"
        )
    encoder = constriction.stream.queue.RangeEncoder()
    starts_L = torch.from_numpy(lane_starts(len(tokens), lanes)[:-1])
    x_L = torch.full((lanes,), model.begin, device=device_of(model))
    with eval_mode(model), single_thread():
        state = model.start(lanes)
        for t, active in _columns(len(tokens), lanes, progress):
            p_LV, state = model.predict(state, x_L)
            p_LGK = _grouped(p_LV[:active])
            at_L = starts_L[:active] + t
            x_L = tokens[at_L].to(x_L.device)
            _encode(encoder, p_LGK, x_L, at_L)
    words: NDArray[np.uint32] = encoder.get_compressed()
    return words.astype("<u4").tobytes()


@torch.no_grad()
def decode_tokens(
    model: LanguageModel[Any], words: bytes, count: int, lanes: int, progress: Advance | None = None
) -> Tensor:
    """The `count` tokens that were encoded in that many lanes."""
    decoder = constriction.stream.queue.RangeDecoder(np.frombuffer(words, dtype="<u4").astype(np.uint32))
    x_L = torch.full((lanes,), model.begin, device=device_of(model))
    columns = []
    with eval_mode(model), single_thread():
        state = model.start(lanes)
        for _, active in _columns(count, lanes, progress):
            p_LV, state = model.predict(state, x_L)
            x_L = _decode(decoder, _grouped(p_LV[:active]))
            columns.append(x_L.cpu().int())
    if not columns:
        return torch.empty(0, dtype=torch.long)
    x_LT = torch.nn.utils.rnn.pad_sequence(columns, padding_value=-1)
    return x_LT[x_LT >= 0].long()


def read_header(archive: bytes) -> tuple[Header, bytes]:
    """The header and the coder's words of an archive that is whole and ours."""
    if archive[:4] != MAGIC[: len(archive)]:
        raise UserError(f"not an octavo archive: it starts with {archive[:4]!r}, not with {MAGIC!r}")
    if len(archive) < FIXED.size + 3:
        raise UserError(f"the archive is cut off: {len(archive)} bytes do not even hold its header; copy it again")
    _, version, crc, identity, checksum = FIXED.unpack_from(archive)
    if version != VERSION:
        remedy = "install a newer octavo" if version > VERSION else "it is damaged; copy it again"
        raise UserError(f"this octavo reads archives of version {VERSION}: this one has version {version}; {remedy}")
    if zlib.crc32(archive[CHECKED_FROM:]) != crc:
        raise UserError("the archive is damaged or cut off: its bytes do not match its checksum; copy it again")
    tokens, at = _read_varint(archive, FIXED.size)
    size, at = _read_varint(archive, at)
    lanes, at = _read_varint(archive, at)
    return Header(identity, checksum, tokens, size, lanes), archive[at:]


def write_header(header: Header, words: bytes) -> bytes:
    """The bytes that stand before the words; at most 40 below a terabyte."""
    varints = b"".join(_varint(number) for number in (header.tokens, header.bytes, header.lanes))
    checked = header.identity + header.checksum + varints
    return FIXED.pack(MAGIC, VERSION, zlib.crc32(checked + words), header.identity, header.checksum) + varints


def _columns(count: int, lanes: int, progress: Advance | None) -> Iterator[tuple[int, int]]:
    """Each time t and how many lanes, the first so many, have a token there; only the last t can lack some."""
    steps = -(-count // lanes)
    for t in range(steps):
        yield t, min(lanes, count - t * lanes)
        if progress is not None:
            progress(1 / steps)


def _group_shape(vocab: int) -> tuple[int, int]:
    """G groups of K ids: one group where one symbol a token is cheaper, else about the root of each."""
    K = vocab if vocab <= ONE_SYMBOL else math.isqrt(vocab - 1) + 1
    return -(-vocab // K), K


def _grouped(p_LV: Tensor) -> Tensor:
    """p_LGK: the ids in groups, the last one filled up with what never occurs."""
    G, K = _group_shape(p_LV.shape[1])
    return torch.nn.functional.pad(p_LV, (0, G * K - p_LV.shape[1])).view(len(p_LV), G, K)


def _within(p_LGK: Tensor, g_L: Tensor) -> Tensor:
    """p_LK of the ids within one group a lane."""
    if p_LGK.shape[1] == 1:
        return p_LGK[:, 0]
    p_LK = p_LGK[torch.arange(len(g_L), device=g_L.device), g_L]
    return p_LK / p_LK.sum(-1, keepdim=True)  # the coder cannot scale a group whose sum is next to nothing


def _encode(encoder: Any, p_LGK: Tensor, x_L: Tensor, at_L: Tensor) -> None:
    """Append one token of each lane."""
    g_L, k_L = x_L // p_LGK.shape[2], x_L % p_LGK.shape[2]
    p_LK = _within(p_LGK, g_L)
    possible_L = p_LK.gather(1, k_L[:, None])[:, 0] > 0
    if not bool(possible_L.all()):
        lane = int((~possible_L).nonzero()[0])
        raise UserError(
            f"only what has a probability can be coded: the model gives probability zero to token {int(x_L[lane])} "
            f"at position {int(at_L[lane])}; smooth the model"
        )
    family = constriction.stream.model.Categorical(perfect=False)
    if p_LGK.shape[1] > 1:
        encoder.encode(g_L.int().cpu().numpy(), family, p_LGK.sum(-1).cpu().numpy())
    encoder.encode(k_L.int().cpu().numpy(), family, p_LK.cpu().numpy())


def _decode(decoder: Any, p_LGK: Tensor) -> Tensor:
    """Read one token of each lane."""
    L, G, K = p_LGK.shape
    family = constriction.stream.model.Categorical(perfect=False)
    g_L = torch.zeros(L, dtype=torch.long, device=p_LGK.device)
    try:
        if G > 1:
            g_L = torch.from_numpy(decoder.decode(family, p_LGK.sum(-1).cpu().numpy())).to(g_L)
        k_L = torch.from_numpy(decoder.decode(family, _within(p_LGK, g_L).cpu().numpy())).to(g_L)
    except (ValueError, AssertionError) as error:  # not a distribution, or what constriction calls invalid data
        raise MismatchError from error
    return g_L * K + k_L


def _check_claims(header: Header, words: bytes, vocab: int) -> None:
    """Refuse a forged header before it costs memory or time without bound."""
    symbols = sum(_group_shape(vocab)) - 2  # ids beside the most probable one, each of which keeps 2**-24
    least_bits = max(1, symbols) * 2**-PRECISION / math.log(2)
    most_tokens = (8 * len(words) + 128) / least_bits  # the coder's last words may leave up to 128 bits unwritten
    lanes_fit = 1 <= header.lanes <= max(1, min(header.tokens, MOST_ROOM // vocab))
    if len(words) % 4 or not lanes_fit or header.tokens > most_tokens:
        raise UserError(
            f"the archive's header cannot be true: {header.tokens:,} tokens in {header.lanes:,} lanes and "
            f"{len(words):,} bytes; it was not written by octavo"
        )


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; the top bit says that more follow."""
    low = number & 0x7F
    return bytes([low]) if number == low else bytes([low | 0x80]) + _varint(number >> 7)


def _read_varint(archive: bytes, at: int) -> tuple[int, int]:
    """The number that starts at a byte, and where the next one starts."""
    number = 0
    for shift, byte in enumerate(archive[at : at + 9]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    raise UserError("the archive's header cannot be true: a number in it has no end; it was not written by octavo")
