"""GGUF files of Llamas become transformers: a small one written here, and SmolLM2 itself where it has been fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import octavo
from gguf_files import STRING, TOKENIZER, TOKENS, described, gguf, pair
from octavo.cli import main
from octavo.core import seeded_generator
from octavo.datasets import sources
from octavo.errors import UserError
from octavo.exchange.gguf import NAMES
from octavo.models import GPT
from octavo.models.parts.config import GPTConfig
from octavo.tasks.run import Run, load

U32, F32 = 4, 6
CONFIG = GPTConfig(
    width=32, layers=2, heads=4, kv_heads=2, context=24, stride=12, rotary_base=50.0, qk_norm=False,
    feed_forward="gated",
    feed_forward_width=40, norm_eps=1e-3, tied=False, begin=0,
)  # fmt: skip
VOCAB = len(TOKENS) + 3  # some models' vocabularies are padded
SETTINGS: dict[str, tuple[int, Any]] = {
    "general.architecture": (STRING, "llama"), "llama.block_count": (U32, 2), "llama.context_length": (U32, 24),
    "llama.embedding_length": (U32, 32), "llama.feed_forward_length": (U32, 40), "llama.attention.head_count": (U32, 4),
    "llama.attention.head_count_kv": (U32, 2), "llama.attention.layer_norm_rms_epsilon": (F32, 1e-3),
    "llama.rope.freq_base": (F32, 50.0), "llama.rope.dimension_count": (U32, 8),
}  # fmt: skip
TEXT = "the rose, 12 naïve\r\n\tthe  end …<|endoftext|>\n" * 3


def random_model(config: GPTConfig = CONFIG) -> GPT:
    model, generator = GPT(config, VOCAB), seeded_generator(1)
    for parameter in model.parameters():
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator)
    return model


def neighbours(weight_ED: Tensor, heads: int) -> Tensor:
    """llama.cpp's order, number by number: a head's row i of the first half, then row i of the second, and so on."""
    K = len(weight_ED) // heads
    order = [head * K + half * (K // 2) + i for head in range(heads) for i in range(K // 2) for half in range(2)]
    return weight_ED[order]


def written(path: Path, model: GPT, settings: dict[str, tuple[int, Any]] = SETTINGS, **more: Tensor) -> Path:
    """The model as a GGUF file of numbers in single precision."""
    state, config = model.state_dict(), model.config
    tensors = {theirs: state[ours] for ours, theirs in NAMES.to_theirs(config.layers, config.tied).items()} | more
    for name in tensors:
        heads = {"attn_q": config.heads, "attn_k": config.groups}.get(name.split(".")[-2])
        tensors[name] = neighbours(tensors[name], heads) if heads else tensors[name]
    data, tensor_headers = b"", []
    for name, tensor in tensors.items():
        tensor_headers.append(described(name, tuple(tensor.shape), 0, len(data)))
        data += tensor.numpy().astype("<f4").tobytes()
        data += b"\0" * (-len(data) % 32)
    path.write_bytes(gguf([pair(key, *value) for key, value in settings.items()] + TOKENIZER, tensor_headers, data))
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return written(tmp_path / "small.gguf", random_model())


def test_a_gguf_file_gives_the_models_logits(small: Path) -> None:
    model, run = random_model(), octavo.load(small)
    x_BT = torch.randint(0, VOCAB, (2, 20), generator=seeded_generator(2))
    logits_BTV = run(x_BT)
    assert logits_BTV.std() > 0.5
    torch.testing.assert_close(logits_BTV, model(x_BT))
    assert run.model.config == octavo.load(small).model.config
    result = {
        name: getattr(run.model.config, name) for name in ("context", "stride", "norm_eps", "rotary_base", "tied")
    }
    assert result == {"context": 24, "stride": 12, "norm_eps": 1e-3, "rotary_base": 50.0, "tied": False}


def test_the_order_of_rows_matters(tmp_path: Path, small: Path) -> None:
    """Were the rows taken as they stand, the logits would be others: the test above would see it."""
    model = random_model()
    for block in model.blocks:
        block.attention.query_DD.data = neighbours(block.attention.query_DD.data, 4)  # type: ignore[union-attr, arg-type]
        block.attention.key_ED.data = neighbours(block.attention.key_ED.data, 2)  # type: ignore[union-attr, arg-type]
    x_BT = torch.randint(0, VOCAB, (2, 20), generator=seeded_generator(2))
    assert (octavo.load(small)(x_BT) - model(x_BT)).abs().max() > 0.01


def test_a_file_without_output_weights_is_tied(tmp_path: Path) -> None:
    model = random_model(GPTConfig(**{**vars(CONFIG), "tied": True}))
    run = octavo.load(written(tmp_path / "tied.gguf", model))
    assert run.model.config.tied
    x_BT = torch.randint(0, VOCAB, (1, 9), generator=seeded_generator(2))
    torch.testing.assert_close(run(x_BT), model(x_BT))


def test_its_tokenizer_is_lossless_and_begins_as_the_file_says(small: Path) -> None:
    run = octavo.load(small)
    assert run.tokenizer.decode(run.tokenizer.encode(TEXT.encode())) == TEXT.encode()
    assert (run.tokenizer.begin, run.tokenizer.vocab, run.comparable) == (0, VOCAB, True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"general.architecture": (STRING, "mamba")}, "'mamba'"),
        ({"llama.rope.scaling.type": (STRING, "yarn")}, "yarn"),
        ({"llama.expert_count": (U32, 4)}, "experts"),
        ({"llama.rope.dimension_count": (U32, 4)}, r"one size.*\[4, 8\]"),
        ({"llama.attention.key_length": (U32, 16)}, r"one size.*\[8, 16\]"),
        ({"llama.block_count": (U32, 1 << 30)}, "layers"),
        ({"llama.block_count": (U32, 1)}, r"no tensors blk\.1\."),
        ({"llama.context_length": (U32, (1 << 32) - 1)}, "context must have"),
        ({"llama.attention.head_count_kv": (U32, 3)}, "kv_heads must divide heads"),
        ({"llama.attention.head_count": (U32, 0)}, "heads|sizes"),
        ({"llama.feed_forward_length": (U32, 1 << 31)}, "must be at most"),
        ({"llama.embedding_length": (U32, 64), "llama.rope.dimension_count": (U32, 16)}, "shape"),
        ({"llama.attention.layer_norm_rms_epsilon": (F32, -1.0)}, "norm_eps"),
        ({"llama.block_count": (STRING, "two")}, "must be int"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, settings: dict[str, tuple[int, Any]], said: str) -> None:
    path = written(tmp_path / "wrong.gguf", random_model(), SETTINGS | settings)
    with pytest.raises(UserError, match=said) as refused:
        octavo.load(path)
    assert str(path) in str(refused.value)


def test_tensors_that_a_llama_has_not_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "more.gguf", random_model(), **{"blk.0.attn_q.bias": torch.zeros(32)})
    with pytest.raises(UserError, match=r"no tensors blk\.0\.attn_q\.bias"):
        octavo.load(path)


def test_a_cut_file_is_refused(small: Path) -> None:
    whole = small.read_bytes()
    for size in (0, 3, 40, len(whole) // 2, len(whole) - 4):
        small.write_bytes(whole[:size])
        with pytest.raises(UserError, match="GGUF"):
            octavo.load(small)


def test_a_gguf_file_is_imported_as_an_ordinary_run(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8", newline="")
    assert main(["import", str(small), "--out", str(tmp_path / "run")]) == 0
    assert "parameters" in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "run"), str(tmp_path / "text.txt"), "--prove", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bytes"] == len(TEXT.encode())
    assert result["policy"] == "sliding window of 24 tokens, moved by 12 when it is full"
    assert load(tmp_path / "run").record["imported"]["stored"] == "F32"


def test_a_known_name_is_fetched(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.tasks.run_exchange.fetch_model", {"smollm2": small}.__getitem__)
    assert main(["import", "smollm2", "--out", str(tmp_path / "run"), "--precision", "float16"]) == 0
    assert load(tmp_path / "run").record["imported"]["precision"] == "float16"


# SmolLM2


@pytest.fixture(scope="module")
def smollm() -> Run:
    return octavo.load(sources.fetch_model("smollm2"))


@pytest.mark.data("smollm2")
def test_smollm_knows_the_capital_of_france(smollm: Run) -> None:
    assert octavo.generate(smollm, "The capital of France is", 2, "greedy") == " Paris."


@pytest.mark.data("shakespeare", "smollm2")
def test_smollm_reads_shakespeare_better_than_a_5_gram(smollm: Run, data_root: Path, tmp_path: Path) -> None:
    text = (data_root / "shakespeare" / "input.txt").read_bytes()
    (tmp_path / "known.txt").write_bytes(text[:-1000])
    counted = octavo.train("ngram", tmp_path / "known.txt", order=5, tokenizer="byte", measure=False)
    read, expected = (octavo.evaluate(run, text[-1000:]).bits_per_byte for run in (smollm, counted))
    assert read < expected - 0.5
    assert np.isfinite(read)
