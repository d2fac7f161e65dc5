"""GGUF files are read as the format says, weights are what plain sums give, and damaged files are refused in time."""

from __future__ import annotations

import json
import struct
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from gguf_files import ARRAY, STRING, TOKENIZER, TOKENS, described, gguf, pair, string
from octavo.datasets import sources
from octavo.datasets.catalogue import MODEL_SOURCES, SOURCES, File, Source
from octavo.errors import UserError
from octavo.exchange.gguf_tokenizer import special_ids, tokenizer_parts
from octavo.io.gguf import Gguf, read_gguf
from octavo.io.gguf.dequantize import KINDS, LAYOUTS, dequantise
from octavo.text import Bpe

NUMBER_OF = {name: number for number, name in KINDS.items()}
# A writer of the format, as plain as can be.


def opened(tmp_path: Path, data: bytes) -> Gguf:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return read_gguf(path)


VALUES: list[tuple[int, Any]] = [
    (0, 200), (1, -3), (2, 65535), (3, -300), (4, 1 << 31), (5, -70000), (6, 0.5), (7, True), (STRING, "naïve ▁"),
    (10, 1 << 63), (11, -(1 << 40)), (12, 0.1),
]  # fmt: skip


def small(tokenizer: list[bytes] = TOKENIZER) -> bytes:
    """A file with every type of value, a tokenizer and three tensors."""
    pairs = [pair(f"value.{kind}", kind, given) for kind, given in VALUES]
    pairs += [pair(f"array.{kind}", ARRAY, (kind, [given] * 3)) for kind, given in VALUES]
    pairs += [pair("array.array", ARRAY, (ARRAY, [(4, [1, 2]), (STRING, ["x"])])), pair("array.none", ARRAY, (0, []))]
    floats = np.arange(6, dtype="<f4").tobytes()
    eighths = (np.float16(0.125).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()) * 2
    halves = np.array([1.5, -2], "<f2").tobytes()
    tensors = [
        described("matrix", (2, 3), 0, 0),
        described("eighths", (2, 32), NUMBER_OF["Q8_0"], 32),
        described("halves", (2,), 1, 128),
    ]
    return gguf(pairs + tokenizer, tensors, floats.ljust(32, b"\0") + eighths.ljust(96, b"\0") + halves)


# Reading


def test_every_type_of_value_is_read_as_it_was_written(tmp_path: Path) -> None:
    read = opened(tmp_path, small()).metadata
    for kind, given in VALUES:
        assert read[f"value.{kind}"] == given
        assert type(read[f"value.{kind}"]) is type(given)
        assert list(read[f"array.{kind}"]) == [given] * 3
    assert [list(items) for items in read["array.array"]] == [[1, 2], ["x"]]
    assert len(read["array.none"]) == 0


def test_tensors_have_their_shapes_kinds_and_numbers(tmp_path: Path) -> None:
    file = opened(tmp_path, small())
    result = {name: (tensor.kind, tensor.shape) for name, tensor in file.tensors.items()}
    assert result == {"matrix": ("F32", (2, 3)), "eighths": ("Q8_0", (2, 32)), "halves": ("F16", (2,))}
    assert file.tensor("matrix").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert file.tensor("eighths").tolist() == [[i / 8 for i in range(-16, 16)]] * 2
    assert file.tensor("halves").tolist() == [1.5, -2]
    assert file.tensor("halves").dtype == np.float32
    with pytest.raises(UserError, match="no tensor thirds: its 3 tensors are matrix"):
        file.tensor("thirds")


def test_an_alignment_of_the_files_own_is_heeded(tmp_path: Path) -> None:
    pairs = [pair("general.alignment", 4, 64)]
    head = gguf(pairs, [described("x", (1,), 0, 0)])
    file = opened(tmp_path, head.ljust(128, b"\0") + struct.pack("<f", 7))
    assert file.tensors["x"].start == 128
    assert file.tensor("x").tolist() == [7]


def test_a_value_is_asked_for_by_its_type(tmp_path: Path) -> None:
    file = opened(tmp_path, small())
    assert file.get("value.4", int) == 1 << 31
    assert file.get("missing", str, "else") == "else"
    for key, kind, rule in (("missing", int, "does not say missing"), ("value.8", int, "must be int: it is str"),
                            ("value.7", int, "must be int: it is bool")):  # fmt: skip
        with pytest.raises(UserError, match=rule):
            file.get(key, kind)


# Weights: each number by the sum that the format describes, one at a time


def half(block: bytes, at: int) -> float:
    return float(np.frombuffer(block[at : at + 2], "<f2")[0])


def nibble(block: bytes, at: int, i: int, run: int) -> int:
    """Number i where runs of `run` bytes hold twice as many numbers, the low halves first."""
    byte = block[at + i // (2 * run) * run + i % run]
    return byte & 15 if i % (2 * run) < run else byte >> 4


def bit(block: bytes, at: int, i: int) -> int:
    return block[at + i // 8] >> i % 8 & 1


def six_bits(block: bytes, j: int) -> tuple[int, int]:
    """Scale and shift j of the twelve bytes at 4, as the format's own source has it."""
    q = block[4:16]
    if j < 4:
        return q[j] & 63, q[j + 4] & 63
    return (q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def plain(kind: str, block: bytes, i: int) -> float:
    """Number i of a block."""
    if kind == "BF16":
        return float(struct.unpack("<f", b"\0\0" + block)[0])
    if kind in ("F32", "F16"):
        return float(np.frombuffer(block, "<f4" if kind == "F32" else "<f2")[0])
    if kind == "Q8_0":
        return half(block, 0) * signed(block[2 + i])
    if kind == "Q4_0":
        return half(block, 0) * (nibble(block, 2, i, 16) - 8)
    if kind == "Q4_1":
        return half(block, 0) * nibble(block, 4, i, 16) + half(block, 2)
    if kind == "Q5_0":
        return half(block, 0) * (nibble(block, 6, i, 16) + 16 * bit(block, 2, i) - 16)
    if kind == "Q5_1":
        return half(block, 0) * (nibble(block, 8, i, 16) + 16 * bit(block, 4, i)) + half(block, 2)
    if kind == "Q6_K":
        n, l = divmod(i, 128)
        two = block[128 + 32 * n + l % 32] >> 2 * (l // 32) & 3
        return half(block, 208) * signed(block[192 + i // 16]) * (nibble(block, 0, i, 64) + 16 * two - 32)
    scale, shift = six_bits(block, i // 32)
    q = (
        nibble(block, 16, i, 32)
        if kind == "Q4_K"
        else nibble(block, 48, i, 32) + 16 * (block[16 + i % 32] >> i // 32 & 1)
    )
    return half(block, 0) * scale * q - half(block, 2) * shift


SCALES = {"Q6_K": [208], "Q8_0": [0], "Q4_0": [0], "Q5_0": [0], "F16": [0]}  # where half-precision numbers stand


def random_blocks(kind: str, count: int = 64) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Blocks of random bytes whose scales are ordinary numbers."""
    random = np.random.default_rng(len(kind) + ord(kind[1]))
    blocks = random.integers(0, 256, (count, LAYOUTS[kind].bytes), np.uint8)
    for at in SCALES.get(kind, [] if kind in ("F32", "BF16") else [0, 2]):
        blocks[:, at : at + 2] = random.normal(size=(count, 1)).astype("<f2").view(np.uint8)
    if kind in ("F32", "BF16"):
        blocks = random.normal(size=(count, 1)).astype("<f4").view(np.uint8)[:, 4 - LAYOUTS[kind].bytes :]
    return blocks


@pytest.mark.parametrize("kind", LAYOUTS)
def test_weights_of_every_kind_are_what_plain_sums_give(kind: str) -> None:
    blocks = random_blocks(kind, 8)
    sums = [plain(kind, block.tobytes(), i) for block in blocks for i in range(LAYOUTS[kind].values)]
    found = dequantise(blocks.reshape(-1), kind)
    assert found.dtype == np.float32
    # Each is a sum of at most two products of float32 numbers: two roundings off, at the size of what is summed.
    np.testing.assert_allclose(found, sums, rtol=4e-7, atol=4e-7 * float(np.abs(found).max()))


@pytest.mark.parametrize("kind", LAYOUTS)
def test_weights_of_every_kind_are_the_gguf_packages_to_the_last_bit(kind: str) -> None:
    quants = pytest.importorskip("gguf.quants", reason="needs the gguf package to compare with: pip install gguf")
    from gguf import GGMLQuantizationType

    blocks = random_blocks(kind)
    theirs = quants.dequantize(blocks.reshape(4, -1), GGMLQuantizationType[kind]).reshape(-1)
    assert dequantise(blocks.reshape(-1), kind).tolist() == theirs.tolist()


def test_kinds_have_the_gguf_packages_numbers_and_sizes() -> None:
    constants = pytest.importorskip("gguf.constants", reason="needs the gguf package to compare with: pip install gguf")
    theirs = {kind.value: kind.name for kind in constants.GGMLQuantizationType}
    assert {number: name for number, name in theirs.items() if number in KINDS} == KINDS
    for name, layout in LAYOUTS.items():
        sizes = constants.GGML_QUANT_SIZES[constants.GGMLQuantizationType[name]]
        assert sizes == (layout.values, layout.bytes)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    file = opened(tmp_path, gguf([], [described("x", (2,), 0, 0)], struct.pack("<ff", 1, float("nan"))))
    with pytest.raises(UserError, match="tensor x holds numbers that are not finite"):
        file.tensor("x")


# Damage

FEW = [  # tokens, so that every byte of the file can be tried
    *TOKENIZER[:2],
    pair("tokenizer.ggml.tokens", ARRAY, (STRING, ["<s>", "a", "b", "ab"])),
    pair("tokenizer.ggml.token_type", ARRAY, (5, [3, 1, 1, 1])),
    pair("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"])),
    TOKENIZER[5],
]

FAR = 1 << 63
ABSURD = {
    "nothing": (b"", "starts with b''"),
    "another kind of file": (b"PK\3\4" + bytes(100), "not a GGUF file"),
    "highest byte first": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "highest bytes first"),
    "an old version": (gguf([], version=1), "version 1; versions 2 and 3 are read"),
    "a later version": (gguf([], version=9), "version 9"),
    "too many tensors": (b"GGUF" + struct.pack("<IQQ", 3, FAR, 0), "tensors and 0 keys need"),
    "too many keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, FAR), "keys need"),
    "a key that never ends": (gguf([struct.pack("<Q", FAR) + b"x" * 40]), "a string need"),
    "a key that is not UTF-8": (gguf([string(b"\xff") + struct.pack("<IB", 0, 1)]), "must be UTF-8"),
    "a key without letters": (gguf([pair("", 0, 1)]), "must not be empty"),
    "a key twice": (gguf([pair("a", 0, 1), pair("a", 0, 1)]), "'a' stands there twice"),
    "an unknown type": (gguf([string("a") + struct.pack("<IQ", 13, 1)]), "this one has type 13"),
    "an array that never ends": (gguf([string("a") + struct.pack("<IIQ", 9, 12, FAR)]), "numbers need"),
    "strings that never ends": (gguf([string("a") + struct.pack("<IIQ", 9, 8, FAR)]), "values of type 8 need"),
    "arrays that never ends": (gguf([string("a") + struct.pack("<IIQ", 9, 9, FAR)]), "values of type 9 need"),
    "bools that never ends": (gguf([string("a") + struct.pack("<IIQ", 9, 7, FAR)]), "bools need"),
    "deep arrays": (gguf([string("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50]), "at most 4 deep"),
    "half a bool": (gguf([string("a") + struct.pack("<IB", 7, 2)]), "must be 0 or 1"),
    "an odd alignment": (gguf([pair("general.alignment", 4, 33)]), "power of 2"),
    "no alignment": (gguf([pair("general.alignment", 4, 0)]), "power of 2"),
    "an alignment in words": (gguf([pair("general.alignment", STRING, "32")]), "power of 2"),
    "a tensor twice": (gguf([], [described("x", (1,), 0, 0), described("x", (1,), 0, 32)], bytes(64)), "'x' stands"),
    "no dimension": (gguf([], [described("x", (), 0, 0) + bytes(32)]), "1 to 4 dimensions: x has 0"),
    "many dimensions": (gguf([], [described("x", (1,) * 5, 0, 0)]), "x has 5"),
    "endless dimensions": (gguf([], [string("x") + struct.pack("<I", 1 << 31) + bytes(40)]), "x has 2,147,483,648"),
    "an empty dimension": (gguf([], [described("x", (3, 0), 0, 0)]), "at least 1: x has"),
    "a huge tensor": (gguf([], [described("x", (FAR, FAR, FAR), 0, 0)]), "x ends at byte"),
    "an offset far out": (gguf([], [described("x", (1,), 0, FAR)], bytes(64)), "x ends at byte"),
    "an offset at nothing": (gguf([], [described("x", (1,), 0, 4)], bytes(64)), "multiples of 32: x lies at 4"),
    "overlap": (gguf([], [described("x", (9,), 0, 0), described("y", (1,), 0, 32)], bytes(64)), "x and y do"),
    "half a block": (gguf([], [described("x", (2, 33), 8, 0)], bytes(96)), "blocks of 32 numbers"),
    "a kind not read": (gguf([], [described("x", (256,), 10, 0)], bytes(96)), "tensor x as Q2_K, which is not read"),
    "a kind unheard of": (gguf([], [described("x", (256,), 99, 0)], bytes(96)), "tensor x as type 99"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "rule"), ABSURD.values(), ids=ABSURD)
def test_an_absurd_file_is_refused_without_taking_memory(tmp_path: Path, data: bytes, rule: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=rule):
            read_gguf(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = small(FEW)
    path = tmp_path / "model.gguf"
    for size in (*range(0, len(whole), 3), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError):
            read_gguf(path)


def test_a_file_with_any_byte_changed_is_read_or_refused_but_never_breaks(tmp_path: Path) -> None:
    whole, outcomes = small(FEW), {"read": 0, "refused": 0}
    path = tmp_path / "model.gguf"
    for at in range(len(whole)):
        changed = whole[at] ^ (0x01 if at % 2 else 0xFF)
        path.write_bytes(whole[:at] + bytes([changed]) + whole[at + 1 :])
        try:
            file = read_gguf(path)
            for name in file.tensors:
                file.tensor(name)
            tokenizer_parts(file)
            special_ids(file)
            outcomes["read"] += 1
        except UserError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100, outcomes


@pytest.mark.parametrize("place", ["gone.gguf", "."])
def test_what_is_no_file_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(UserError, match="cannot read"):
        read_gguf(tmp_path / place)


# Tokenizers


def test_the_tokenizer_of_a_file_splits_and_joins_like_the_models(tmp_path: Path) -> None:
    file = opened(tmp_path, small())
    bpe = Bpe(tokenizer_parts(file), begin=special_ids(file)["bos"])
    assert (bpe.vocab, bpe.begin, bpe.lossless) == (len(TOKENS), 0, True)
    text = b"the the 12<tool> <|endoftext|>\n"
    spelt = [bpe.token_bytes(int(token)) for token in bpe.encode(text)]
    assert spelt[:9] == [b"t", b"he", b" the", b" ", b"1", b"2", b"<tool>", b" ", b"<"]
    assert bpe.decode(bpe.encode(text)) == text


def test_gpt2s_own_split_keeps_digits_together(tmp_path: Path) -> None:
    for pre in ([pair("tokenizer.ggml.pre", STRING, "gpt-2")], [pair("tokenizer.ggml.pre", STRING, "default")], []):
        parts = tokenizer_parts(opened(tmp_path, gguf([TOKENIZER[0], *TOKENIZER[2:], *pre])))
        assert parts["pre_tokenizer"]["type"] == "ByteLevel"


CHANGED = {
    "another model": (0, pair("tokenizer.ggml.model", STRING, "llama"), "'llama' split by 'smollm'; read are 'gpt2'"),
    "another split": (1, pair("tokenizer.ggml.pre", STRING, "qwen2"), "split by 'qwen2'"),
    "no tokens": (2, pair("x", 0, 1), "does not say tokenizer.ggml.tokens"),
    "tokens twice": (2, pair("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "a"])), "all different"),
    "tokens as numbers": (2, pair("tokenizer.ggml.tokens", ARRAY, (4, [1, 2])), "must be list: it is ndarray"),
    "tokens as arrays": (2, pair("tokenizer.ggml.tokens", ARRAY, (ARRAY, [(4, [1])])), "must be strings"),
    "few types": (3, pair("tokenizer.ggml.token_type", ARRAY, (5, [1])), "1 types"),
    "a merge of three": (4, pair("tokenizer.ggml.merges", ARRAY, (STRING, ["a b c"])), "'a b c' is not"),
    "a space in front": (5, pair("tokenizer.ggml.add_space_prefix", 7, True), "puts a space before every text"),
}


@pytest.mark.parametrize(("at", "changed", "rule"), CHANGED.values(), ids=CHANGED)
def test_a_tokenizer_that_cannot_be_built_is_refused_by_name(
    tmp_path: Path, at: int, changed: bytes, rule: str
) -> None:
    file = opened(tmp_path, gguf([*TOKENIZER[:at], changed, *TOKENIZER[at + 1 :]]))
    with pytest.raises(UserError, match=rule):
        tokenizer_parts(file)


def test_an_id_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    file = opened(tmp_path, gguf([*TOKENIZER, pair("tokenizer.ggml.eos_token_id", 4, len(TOKENS))]))
    with pytest.raises(UserError, match=f"eos .* from 0 to {len(TOKENS) - 1}: it is {len(TOKENS)}"):
        special_ids(file)


# The packaged model


def test_a_model_comes_by_name_like_the_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_DATA", str(tmp_path))
    data = small()
    source = Source("tiny", "a model", "checkpoint", "none", (File("t.gguf", len(data), sha256(data).hexdigest()),))
    monkeypatch.setitem(SOURCES, "tiny", source)
    monkeypatch.setitem(MODEL_SOURCES, "tiny", source)
    path = tmp_path / "tiny" / "t.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    assert sources.fetch_model("tiny") == path
    path.write_bytes(data[:-1])
    with pytest.raises(UserError, match="is not the file it should be"):
        sources.fetch_model("tiny")
    with pytest.raises(UserError, match=r"no pretrained model named 'shakespeare'; known are smollm2"):
        sources.fetch_model("shakespeare")


def test_every_model_that_has_a_name_is_a_source_of_one_file() -> None:
    for name, source in MODEL_SOURCES.items():
        assert SOURCES[name] is source
        assert source.kind == "checkpoint"
        assert len(source.files) == 1


@pytest.fixture(scope="module")
def smollm2() -> Gguf:
    return read_gguf(sources.fetch_model("smollm2"))


@pytest.mark.data("smollm2")
def test_smollm2_has_the_tensors_of_its_shape(smollm2: Gguf) -> None:
    layers = smollm2.get("llama.block_count", int)
    width, hidden = smollm2.get("llama.embedding_length", int), smollm2.get("llama.feed_forward_length", int)
    assert len(smollm2.tensors) == 2 + 9 * layers
    assert smollm2.tensors["token_embd.weight"].shape == (49152, width)
    assert smollm2.tensors[f"blk.{layers - 1}.ffn_down.weight"].shape == (width, hidden)
    kinds = [tensor.kind for tensor in smollm2.tensors.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"Q8_0": 1, "F32": 61, "Q4_1": 210}


@pytest.mark.data("smollm2")
def test_smollm2s_weights_are_the_gguf_packages_to_the_last_bit(smollm2: Gguf) -> None:
    package = pytest.importorskip("gguf", reason="needs the gguf package to compare with: pip install gguf")
    theirs = {tensor.name: tensor for tensor in package.GGUFReader(smollm2.path).tensors}
    assert list(theirs) == list(smollm2.tensors)
    for name in ("token_embd.weight", "blk.0.attn_norm.weight", "blk.7.attn_k.weight", "blk.29.ffn_down.weight"):
        expected = package.quants.dequantize(theirs[name].data, theirs[name].tensor_type)
        assert np.array_equal(smollm2.tensor(name), expected)


@pytest.mark.data("smollm2")
def test_smollm2s_tokenizer_is_lossless_and_the_librarys(smollm2: Gguf) -> None:
    parts = tokenizer_parts(smollm2)
    bpe = Bpe(parts, begin=0, size=smollm2.get("llama.vocab_size", int))
    assert (bpe.vocab, bpe.lossless) == (49152, True)
    assert special_ids(smollm2) == {"bos": 1, "eos": 2, "unknown": 0, "padding": 2}
    text = "In 1906, the naïve café (Straße 12) — 日本語 🙂…\n\n\tdef f(x):\n        return x**2  # <b>\n"
    theirs = tokenizers.Tokenizer.from_str(json.dumps(parts))
    assert bpe.encode(text.encode()).tolist() == theirs.encode(text).ids
    typed = b"<|endoftext|> and <|im_start|>user"
    assert bpe.decode(bpe.encode(typed)) == typed
    assert min(bpe.encode(typed)) > 16  # the 17 special tokens are not read from a text
    with pytest.raises(UserError, match="no token for byte 0x04"):
        bpe.encode(b"\x04")
