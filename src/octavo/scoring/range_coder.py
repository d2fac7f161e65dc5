"""Lossless compression with any language model by a range coder (arithmetic coding; the package constriction): the
cost in bits that a model claims, as a file that restores the text.

L parallel streams, V vocabulary, G groups of K consecutive ids (G * K >= V). The tokens are cut into L contiguous
streams that are coded in lock-step, so that one step of the model's session serves L tokens; every stream begins with
a fresh state and the begin token. All of them write to one range coder. Encoder and decoder make the same calls of the
session with the same shapes, and so compute the same probabilities to the last bit. Archives of version 1 were written
with the model's own step, whose last bits differ from the session's, and are restored with it. Where a model has a
coder of its own for one stream, that writes the archive (version 3).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import constriction
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode, single_thread
from octavo.errors import UserError
from octavo.io.progress import Advance, progress
from octavo.ops.range_coding import TextCoder
from octavo.scoring.archive import (
    OWN_CODER_VERSION,
    PORTABLE_VERSION,
    SESSION_VERSION,
    STEPWISE_VERSION,
    Header,
    Origin,
    read_header,
    write_header,
)
from octavo.scoring.portable import portable_model
from octavo.scoring.symbol_coding import (
    PROBABILITY_BITS,
    MismatchError,
    decode_column,
    encode_column,
    group_probabilities,
    group_shape,
)
from octavo.text import Tokenizer

MAX_STREAMS_COST = 0.0006  # of the bits, for the little context that streams begin with
SPARE_BITS = 128.0  # that streams may cost beside: so a short text is not coded token by token in a single one
MIN_START_BITS = 8.0  # that a fresh start is taken to cost, however well the samples begin
SAMPLES, SAMPLE_TOKENS = 64, 256  # whose second halves, with and without context, tell what a fresh start costs
MAX_AUTO_STREAMS = 512
MAX_AUTO_PROBABILITIES = 2**24  # L * V, where the number of streams is not given
MAX_PROBABILITIES = 2**27  # L * V that an option or a forged header may ask for: a gigabyte
DECODED_TOKENS = 1 << 16  # turned into text at a time

UNWRITTEN_BITS = 128  # that the coder's last words may leave out at most


def compress_bytes(
    model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes, identity: bytes, streams: int | None = None,
    portable: bool = False,
) -> bytes:  # fmt: skip
    """An archive of `data`, which the same model restores: on a device like this one, or, `portable`, on any."""
    model = portable_model(model) if portable else model
    tokens = np.asarray(tokenizer.encode(data), dtype=np.int64)
    if tokenizer.decode(tokens.astype(np.int32)) != data:
        raise UserError("only a lossless tokenizer can compress: this one does not give the bytes back; use another")
    streams = choose_streams(model, torch.from_numpy(tokens)) if streams is None else streams
    if not 1 <= streams <= max(1, MAX_PROBABILITIES // model.vocab):
        most = max(1, MAX_PROBABILITIES // model.vocab)
        raise UserError(f"streams must lie between 1 and {most} with a vocabulary of {model.vocab}: streams={streams}")
    streams = max(1, min(streams, len(tokens)))
    version = PORTABLE_VERSION if portable else archive_version(model, streams)
    with progress("compressing", 1) as advance:
        words = encode_tokens(model, torch.from_numpy(tokens), streams, advance, version)
    checksum, origin = hashlib.sha256(data).digest()[:8], origin_here(device_of(model))
    header = Header(identity[:8], checksum, len(tokens), len(data), streams, version, origin)
    return write_header(header, words) + words


def decompress_bytes(model: LanguageModel[Any], tokenizer: Tokenizer, archive: bytes, identity: bytes) -> bytes:
    """The bytes that were compressed."""
    header, words = read_header(archive)
    if header.identity != identity[:8]:
        raise UserError(
            f"an archive opens only with the model that wrote it: that was {header.identity.hex()}, "
            f"this is {identity[:8].hex()}; give the other model, or the --adaptive settings it was written with"
        )
    _check_claims(header, words, model.vocab)
    here, portable = origin_here(device_of(model)), header.version == PORTABLE_VERSION
    if not portable and header.origin is not None and header.origin.device != here.device:
        raise UserError(
            f"the archive was made on {header.origin}, and the model is on {here}, where its probabilities differ in "
            f"their last bits; restore it with --device {header.origin.device}, or compress with --portable"
        )
    model = portable_model(model) if portable else model
    try:
        with progress("restoring", 1) as advance:
            tokens = decode_tokens(model, words, header.tokens, header.streams, advance, header.version)
        data = _decode_text(tokenizer, tokens.numpy().astype(np.int32), header.bytes)
        if len(data) != header.bytes or hashlib.sha256(data).digest()[:8] != header.checksum:
            raise MismatchError
    except MismatchError as error:
        made = "" if header.origin is None else f" (made on {header.origin}, this is {here})"
        raise UserError(
            "the text that came out is not the one that went in: the archive is whole, so the model computes other "
            f"probabilities here than where it was written{made}, or somebody forged it; use the same device, thread "
            "count and torch version, or compress with --portable"
        ) from error
    return data


def origin_here(device: torch.device) -> Origin:
    """What an archive says of this machine."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    numbers = [int(digits) for digits in re.findall(r"\d+", torch.__version__.partition("+")[0])] + [0, 0, 0]
    return Origin(device.type, (numbers[0], numbers[1], numbers[2]), "Apple" if device.type == "mps" else name)


def _decode_text(tokenizer: Tokenizer, tokens: NDArray[np.int32], size: int) -> bytes:
    """The text of the tokens, as far as it is not longer than the archive says."""
    parts, total = list[bytes](), 0
    for start in range(0, len(tokens), DECODED_TOKENS):
        parts.append(tokenizer.decode(tokens[start : start + DECODED_TOKENS]))
        total += len(parts[-1])
        if total > size:
            raise MismatchError
    return b"".join(parts)


@torch.no_grad()
def choose_streams(model: LanguageModel[Any], tokens: Tensor) -> int:
    """The number of streams: enough for speed, few enough that their fresh starts cost at most MAX_STREAMS_COST and
    SPARE_BITS.

    The first tokens of a stream are predicted with little context. What that costs is measured on samples from all over
    the text: their second half, begun afresh, against the same tokens after the first half.
    """
    if model.adaptive:  # each stream would learn from its own tokens alone
        return 1
    most = min(len(tokens) // SAMPLE_TOKENS, MAX_AUTO_STREAMS, MAX_AUTO_PROBABILITIES // model.vocab)
    if most < 2:
        return 1
    rows = max(2, min(SAMPLES, model.max_scored_tokens // SAMPLE_TOKENS, most))
    starts_R = torch.linspace(0, len(tokens) - SAMPLE_TOKENS, rows).long()
    x_RT = tokens[starts_R[:, None] + torch.arange(SAMPLE_TOKENS)].to(device_of(model))
    half = SAMPLE_TOKENS // 2
    with eval_mode(model):
        known_R, fresh_R = (
            bits_RT[:, -half:].sum(1) for x in (x_RT, x_RT[:, half:])
            for bits_RT in [model.score(x).double() / -math.log(2)]
        )  # fmt: skip
    start_R = fresh_R - known_R
    start_bits = float(start_R.mean() + start_R.std() / math.sqrt(rows))  # rather too much than too little
    if not math.isfinite(start_bits):
        return 1
    spent = MAX_STREAMS_COST * len(tokens) * float(known_R.mean()) / half + SPARE_BITS
    return min(most, 1 + int(spent / max(start_bits, MIN_START_BITS)))


def stream_starts(tokens: int, streams: int) -> NDArray[np.int64]:
    """Where each stream begins, and where the last one ends; the longer streams (by one token) come first."""
    stream = np.arange(streams + 1)
    return stream * (tokens // streams) + np.minimum(stream, tokens % streams)


def archive_version(model: LanguageModel[Any], streams: int) -> int:
    """The format that a text is written in: by the model's own coder where there is one, and one stream is enough."""
    return OWN_CODER_VERSION if streams == 1 and model.text_coder() is not None else SESSION_VERSION


@torch.no_grad()
def encode_tokens(
    model: LanguageModel[Any], tokens: Tensor, streams: int, advance: Advance | None = None, version: int | None = None
) -> bytes:
    """The range coder's words (little-endian, 32 bits) for the tokens."""
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < model.vocab:
        raise UserError(
            f"tokens must lie between 0 and {model.vocab - 1}: {int(tokens.min())} to {int(tokens.max())} found; "
            "use the tokenizer the model was trained with"
        )
    version = archive_version(model, streams) if version is None else version
    own: TextCoder | None = model.text_coder()
    if version == OWN_CODER_VERSION and own is not None:
        packed = own.encode(tokens.cpu().numpy().astype(np.int64), advance or (lambda share: None))
        return packed + bytes(-len(packed) % 4)
    encoder = constriction.stream.queue.RangeEncoder()
    starts_L = torch.from_numpy(stream_starts(len(tokens), streams)[:-1])
    x_L = torch.full((streams,), model.begin, device=device_of(model))
    with eval_mode(model), single_thread():
        predict = _predictor(model, len(tokens), streams, version)
        for t, active in _columns(len(tokens), streams, advance):
            p_LGK = group_probabilities(predict(x_L)[:active])
            at_L = starts_L[:active] + t
            x_L = tokens[at_L].to(x_L.device)
            encode_column(encoder, p_LGK, x_L, at_L, version == PORTABLE_VERSION)
    words: NDArray[np.uint32] = encoder.get_compressed()
    return words.astype("<u4").tobytes()


@torch.no_grad()
def decode_tokens(
    model: LanguageModel[Any], words: bytes, count: int, streams: int, advance: Advance | None = None,
    version: int | None = None,
) -> Tensor:  # fmt: skip
    """The `count` tokens that were encoded in that many streams."""
    version = archive_version(model, streams) if version is None else version
    if version == OWN_CODER_VERSION:
        return _decode_alone(model, words, count, advance or (lambda share: None))
    decoder = constriction.stream.queue.RangeDecoder(np.frombuffer(words, dtype="<u4").astype(np.uint32))
    x_L = torch.full((streams,), model.begin, device=device_of(model))
    columns, bits_left = [], 8.0 * len(words) + UNWRITTEN_BITS
    with eval_mode(model), single_thread():
        predict = _predictor(model, count, streams, version)
        for _, active in _columns(count, streams, advance):
            x_L, bits = decode_column(decoder, group_probabilities(predict(x_L)[:active]), version == PORTABLE_VERSION)
            columns.append(x_L.cpu().int())
            bits_left -= bits
            if not bits_left >= 0:  # more tokens are claimed than were written: those from here on come out of nothing
                raise MismatchError
    if not columns:
        return torch.empty(0, dtype=torch.long)
    x_LT = torch.nn.utils.rnn.pad_sequence(columns, padding_value=-1)
    return x_LT[x_LT >= 0].long()


def _decode_alone(model: LanguageModel[Any], words: bytes, count: int, advance: Advance) -> Tensor:
    """The tokens that the model's own coder wrote."""
    own: TextCoder | None = model.text_coder()
    x_T = None if own is None else own.decode(words, count, advance, 8.0 * len(words) + UNWRITTEN_BITS)
    if x_T is None:
        raise MismatchError
    return torch.from_numpy(x_T)


def _predictor(model: LanguageModel[Any], tokens: int, streams: int, version: int) -> Callable[[Tensor], Tensor]:
    """What gives p_LV of the next tokens, called with the last ones."""
    state = model.start(streams)
    if version > STEPWISE_VERSION:
        return model.session(state, -(-tokens // streams)).predict

    def predict(x_L: Tensor) -> Tensor:
        nonlocal state
        p_LV, state = model.predict(state, x_L)
        return p_LV

    return predict


def _columns(count: int, streams: int, advance: Advance | None) -> Iterator[tuple[int, int]]:
    """Each time t and how many streams, the first so many, have a token there; only the last t can lack some."""
    steps = -(-count // streams)
    for t in range(steps):
        yield t, min(streams, count - t * streams)
        if advance is not None:
            advance(1 / steps)


def _check_claims(header: Header, words: bytes, vocab: int) -> None:
    """Refuse a forged header before it costs memory or time without bound."""
    symbols = sum(group_shape(vocab)) - 2  # ids beside the most probable one, each of which keeps 2**-24
    least_bits = max(1, symbols) * 2**-PROBABILITY_BITS / math.log(2)
    most_tokens = (8 * len(words) + UNWRITTEN_BITS) / least_bits
    streams_fit = 1 <= header.streams <= max(1, min(header.tokens, MAX_PROBABILITIES // vocab))
    streams_fit &= header.version != OWN_CODER_VERSION or header.streams == 1 or not header.tokens
    if len(words) % 4 or not streams_fit or header.tokens > most_tokens:
        raise UserError(
            f"the archive's header cannot be true: {header.tokens:,} tokens in {header.streams:,} streams and "
            f"{len(words):,} bytes; it was not written by octavo"
        )
