"""Ours out as GGUF: llama.cpp's own reader accepts the file, and what is read back is the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

import octavo
from octavo.cli import main
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.exchange.gguf import KINDS, write_llamacpp
from octavo.io.gguf import read_gguf
from octavo.io.gguf.dequantize import dequantise
from octavo.io.gguf.writer import quantise
from octavo.models import GPT
from octavo.models.parts.config import GPTConfig
from octavo.tasks.run import Run
from octavo.text import Bpe, BpeSettings, Byte, Char, Chunk, Tokenizer, Word

TEXT = "A rose, a rosé — «is» a <s> rose <0x41>\r\n\tis\u00a0it\u200b? \x00 12,345 the end\n".encode() * 4
SMALL: dict[str, Any] = {"width": 64, "layers": 2, "heads": 4, "context": 32, "feed_forward_width": 96}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3": SMALL,
    "llama": SMALL | {"qk_norm": False, "kv_heads": 2, "rotary_base": 500.0, "tied": False, "stride": 7},
    "gpt2": SMALL | {"positions": "learned", "norm": "layer", "bias": True, "feed_forward": "gelu", "qk_norm": False},
}
# Of logits with a deviation of about one: nothing is lost, 11 bits of each weight are left, or 8 of a block's largest.
CLOSE = {"float32": 1e-6, "float16": 0.02, "q8_0": 0.3}


def random_model(settings: dict[str, Any], vocab: int = 257) -> GPT:
    """Every weight is drawn, norms and biases too."""
    model, generator = GPT(GPTConfig(**settings), vocab), seeded_generator(1)
    model.initialise(generator)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tokenizers(text: bytes) -> dict[str, Tokenizer]:
    block = [Chunk(text, np.zeros(0, np.int64))]
    return {
        "byte": Byte(), "char": Char.learn(block), "bpe": Bpe.learn(block, BpeSettings(280)), "word": Word.learn(block),
    }  # fmt: skip


def metadata_of(reader: gguf.GGUFReader) -> dict[str, Any]:
    return {key: field.contents() for key, field in reader.fields.items()}


@pytest.mark.parametrize("precision", KINDS)
@pytest.mark.parametrize("kind", SHAPES)
def test_llamacpps_reader_accepts_the_file_and_it_comes_back_the_same(
    tmp_path: Path, kind: str, precision: Any
) -> None:
    model = random_model(SHAPES[kind])
    path = tmp_path / "model.gguf"
    assert "-c 32" in write_llamacpp(model, Byte(), path, precision)[0]
    reader = gguf.GGUFReader(path)
    metadata = metadata_of(reader)
    assert metadata["general.architecture"] == kind
    assert metadata["general.file_type"] == {"float32": 0, "float16": 1, "q8_0": 7}[precision]
    assert metadata[f"{kind}.context_length"] == 32
    known = {name.format(bid=b) for name in gguf.TENSOR_NAMES.values() for b in range(2)}
    arch = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    allowed = {gguf.TENSOR_NAMES[one].format(bid=b) for one in gguf.MODEL_TENSORS[arch] for b in range(2)}
    assert {tensor.name.rpartition(".")[0] for tensor in reader.tensors} <= allowed <= known
    ours = read_gguf(path)
    for tensor in reader.tensors:
        theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(ours.tensor(tensor.name), theirs)
        assert tensor.tensor_type.name == (KINDS[precision][0] if _is_matrix(tensor.name) else "F32")
    again = octavo.load(path)
    assert again.model.config == GPTConfig(**{**SHAPES[kind], "init": "gpt2", "begin": 256, "kv_heads":
                                              again.model.config.kv_heads})  # fmt: skip
    x_BT = torch.randint(0, 257, (2, 90), generator=seeded_generator(2))  # longer than the context
    expected_BTV = model(x_BT)
    assert expected_BTV.std() > 0.5
    assert (again(x_BT) - expected_BTV).abs().max() < CLOSE[precision]


def _is_matrix(name: str) -> bool:
    return name.endswith(".weight") and "norm" not in name and name != "position_embd.weight"


def test_weights_are_rounded_as_the_gguf_package_rounds_them() -> None:
    values = np.random.default_rng(0).normal(size=(64, 96)).astype(np.float32)
    values[3] = 0  # a block without a scale
    values[5, :32] = np.arange(32) - 15.5  # numbers half way between two
    values[5, 31] = 127
    for kind in ("F16", "Q8_0", "F32"):
        theirs = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
        written = quantise(values, kind)  # type: ignore[arg-type]
        assert written == theirs.tobytes()
        error = np.abs(dequantise(np.frombuffer(written, np.uint8), kind).reshape(values.shape) - values)
        step = np.abs(values).max() / 127
        # half a step, and the rounding of the scale to 11 bits
        assert error.max() <= {"F32": 0, "F16": 2**-11 * 4, "Q8_0": step * (0.5 + 127 * 2**-11)}[kind]


def test_what_16_bits_cannot_hold_is_refused(tmp_path: Path) -> None:
    model = random_model(SMALL)
    model.embedding_VD.data[0, 0] = 1e9
    for precision in ("float16", "q8_0"):
        with pytest.raises(UserError, match=r"token_embd\.weight has numbers beyond .* try --precision float32"):
            write_llamacpp(model, Byte(), tmp_path / "model.gguf", precision)  # type: ignore[arg-type]
    assert not (tmp_path / "model.gguf").exists()
    write_llamacpp(model, Byte(), tmp_path / "model.gguf", "float32")


def test_rows_that_are_no_whole_blocks_are_stored_in_16_bits(tmp_path: Path) -> None:
    model = random_model(SMALL | {"feed_forward_width": 40})
    write_llamacpp(model, Byte(), tmp_path / "model.gguf", "q8_0")
    kinds = {tensor.name: tensor.kind for tensor in read_gguf(tmp_path / "model.gguf").tensors.values()}
    assert (kinds["blk.0.ffn_down.weight"], kinds["blk.0.ffn_up.weight"]) == ("F16", "Q8_0")


@pytest.mark.parametrize("kind", ["byte", "char", "bpe"])
def test_text_has_the_same_ids_when_it_comes_back(tmp_path: Path, kind: str) -> None:
    tokenizer = tokenizers(TEXT)[kind]
    run = Run(random_model(SMALL, tokenizer.vocab), tokenizer)
    path = tmp_path / "model.gguf"
    write_llamacpp(run.model, tokenizer, path, "float32")
    metadata = metadata_of(gguf.GGUFReader(path))
    assert metadata["tokenizer.ggml.model"] == ("llama" if kind == "char" else "gpt2")
    assert len(metadata["tokenizer.ggml.tokens"]) == tokenizer.vocab == len(metadata["tokenizer.ggml.token_type"])
    assert metadata["tokenizer.ggml.bos_token_id"] == tokenizer.begin
    again = octavo.load(path)
    new = TEXT + "unseen: ŷ 🙂 ▁\n".encode() + b"\xff\xc3 not UTF-8"
    assert again.tokenizer.encode(new).tolist() == tokenizer.encode(new).tolist()
    assert octavo.evaluate(again, new).bits == pytest.approx(octavo.evaluate(run, new).bits, rel=1e-9)


def test_a_word_tokenizer_stays_behind_and_comes_back_by_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = tokenizers(TEXT)["word"]
    run = Run(random_model(SMALL, word.vocab), word).save(tmp_path / "run")
    path = str(tmp_path / "model.gguf")
    assert main(["export", str(run.path), path, "--precision", "float32"]) == 0
    assert "no tokenizer like word" in capsys.readouterr().err
    assert main(["import", path, "--out", str(tmp_path / "again")]) == 2
    assert "--tokenizer-of RUN" in capsys.readouterr().err
    assert main(["import", path, "--tokenizer-of", str(run.path), "--out", str(tmp_path / "again")]) == 0
    again = octavo.load(tmp_path / "again")
    assert octavo.evaluate(again, TEXT).bits == pytest.approx(octavo.evaluate(run, TEXT).bits, rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (SMALL | {"attention": "local"}, "GGUF has no decoder of this shape: attention is local; the nearest is qwen3"),
        (SMALL | {"experts": 4}, "GGUF has no decoder of this shape: experts is 4; the nearest is qwen3"),
        (SHAPES["gpt2"] | {"feed_forward": "relu2"}, "feed_forward is relu2; the nearest is gpt2: train with --feed-"),
    ],
)
def test_other_shapes_are_refused_with_the_flags_of_the_nearest(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        write_llamacpp(random_model(settings), Byte(), tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()
