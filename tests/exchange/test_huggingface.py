"""Decoders of Hugging Face's in and ours out, with transformers as the judge of logits and of tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

import octavo
from octavo.cli import main
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.exchange import is_foreign, read_foreign
from octavo.exchange.huggingface_export import write_folder, write_huggingface
from octavo.models import GPT
from octavo.models.parts.config import GPTConfig
from octavo.tasks.run import Run, load
from octavo.text import Bpe, BpeSettings, Byte, Char, Chunk, Tokenizer, Word

TEXT = "A rose, a rosé — «is» a <s> rose ▁ <0x41>\r\n\tis\u00a0it\u200b? \x00 12,345 the end\n".encode() * 4
GPT2: dict[str, Any] = {
    "width": 24, "layers": 2, "heads": 4, "context": 32, "positions": "learned", "norm": "layer", "bias": True,
    "feed_forward": "gelu", "qk_norm": False, "init": "gpt2",
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "width": 24, "layers": 2, "heads": 4, "kv_heads": 2, "context": 32, "feed_forward": "gated",
    "feed_forward_width": 40,
    "qk_norm": False, "rotary_base": 500.0, "norm_eps": 1e-3,
}  # fmt: skip
QWEN3 = {**LLAMA, "qk_norm": True}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": GPT2, "llama": LLAMA | {"stride": 16}, "mistral": LLAMA, "qwen3": QWEN3,
}  # fmt: skip
CLOSE = 1e-4  # of logits with a deviation of about one, in single precision
CLOSE_DOUBLE = 1e-10


@pytest.fixture(scope="module")
def transformers() -> ModuleType:
    os.environ["HF_HUB_OFFLINE"] = "1"
    found: ModuleType = pytest.importorskip("transformers", reason="needs transformers, the judge of its own format")
    found.utils.logging.set_verbosity_error()
    found.utils.logging.disable_progress_bar()
    return found


def tokenizers(text: bytes) -> dict[str, Tokenizer]:
    block = [Chunk(text, np.zeros(0, np.int64))]
    return {
        "byte": Byte(),
        "char": Char.learn(block),
        "bpe": Bpe.learn(block, BpeSettings(280)),
        "word": Word.learn(block),
    }


def random_model(settings: dict[str, Any], vocab: int = 257) -> GPT:
    """A transformer in which every weight matters: biases and norms are not at their harmless beginnings."""
    model, generator = GPT(GPTConfig(**settings), vocab), seeded_generator(1)
    model.initialise(generator)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def some_ids(vocab: int, length: int = 30) -> Tensor:
    return torch.randint(0, vocab, (2, length), generator=seeded_generator(2))


def edit(folder: Path, **settings: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | settings))


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    changed = {name: tensor.clone() for name, tensor in change(tensors).items()}
    safetensors.torch.save_file(changed, folder / "model.safetensors")


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    write_huggingface(random_model(GPT2), Byte(), tmp_path / "gpt2")
    return tmp_path / "gpt2"


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    write_huggingface(random_model(SHAPES["llama"]), Byte(), tmp_path / "llama")
    return tmp_path / "llama"


# Theirs in


def saved_gpt2(transformers: ModuleType, folder: Path, **settings: Any) -> Any:
    shape = {"vocab_size": 60, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}
    torch.manual_seed(0)
    config = transformers.GPT2Config(**shape, bos_token_id=7, eos_token_id=7, **settings)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    return model


def saved_llama(transformers: ModuleType, folder: Path, **settings: Any) -> Any:
    shape = {
        "vocab_size": 60, "max_position_embeddings": 32, "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40, "initializer_range": 0.3,
    }  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**shape, **settings})).eval()
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def largest_difference(theirs: Any, ours: Run, length: int = 30) -> float:
    x_BT = some_ids(ours.model.vocab, length)
    logits_BTV, expected_BTV = ours(x_BT), theirs(x_BT).logits
    assert logits_BTV.shape == expected_BTV.shape
    assert expected_BTV.std() > 0.5  # logits of which some would differ if anything were wrong
    return float((logits_BTV - expected_BTV).abs().max())


@torch.no_grad()
def logits_in_double(theirs: Any, x_BT: Tensor, config: GPTConfig) -> Tensor:
    """Their logits in double precision throughout: of themselves, norms and rotary angles go through single."""
    with pytest.MonkeyPatch.context() as patch:
        theirs = theirs.double()
        if hasattr(theirs.base_model, "rotary_emb"):
            pairs_P = torch.arange(0, config.head_size, 2).double() / config.head_size
            theirs.base_model.rotary_emb.inv_freq = config.rotary_base**-pairs_P
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(Tensor, "float", Tensor.double)
        logits_BTV: Tensor = theirs(x_BT).logits
        return logits_BTV


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_inner": 50, "layer_norm_epsilon": 0.1},
        {"activation_function": "gelu"},
        {"activation_function": "relu2"},
        {"tie_word_embeddings": False},
    ],
)
def test_gpt2_has_the_logits_that_transformers_gives_it(
    transformers: ModuleType, tmp_path: Path, settings: dict[str, Any]
) -> None:
    theirs = saved_gpt2(transformers, tmp_path, **settings)
    run = octavo.load(tmp_path)
    assert largest_difference(theirs, run) < CLOSE
    config = run.model.config
    assert (config.context, config.stride, run.model.begin, run.model.vocab) == (32, 16, 7, 60)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rms_norm_eps": 0.1, "tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
    ],
)
def test_llama_has_the_logits_that_transformers_gives_it(
    transformers: ModuleType, tmp_path: Path, settings: dict[str, Any]
) -> None:
    theirs = saved_llama(transformers, tmp_path, **settings)
    run = octavo.load(tmp_path)
    assert largest_difference(theirs, run) < CLOSE
    assert (run.model.config.context, run.model.config.stride, run.model.begin) == (32, 16, 1)


def test_weights_in_several_files_are_put_together(transformers: ModuleType, tmp_path: Path) -> None:
    theirs = saved_gpt2(transformers, tmp_path / "whole")
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert not (tmp_path / "model.safetensors").exists()
    assert largest_difference(theirs, octavo.load(tmp_path)) < CLOSE


def test_weights_of_16_bits_are_widened(transformers: ModuleType, tmp_path: Path) -> None:
    saved_llama(transformers, tmp_path).to(torch.bfloat16).save_pretrained(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    run = octavo.load(tmp_path)
    assert {parameter.dtype for parameter in run.model.parameters()} == {torch.float32}
    assert largest_difference(theirs, run) < CLOSE


def test_old_files_without_the_prefix_and_with_masks_are_read(gpt2: Path) -> None:
    x_BT = some_ids(257)
    before = octavo.load(gpt2)(x_BT)
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 32, 32) for i in range(2)} | {"h.0.attn.masked_bias": torch.ones(())}
    edit_tensors(gpt2, lambda old: {name.removeprefix("transformer."): tensor for name, tensor in old.items()} | masks)
    assert torch.equal(octavo.load(gpt2)(x_BT), before)


def test_a_base_where_older_versions_wrote_it_is_found(llama: Path) -> None:
    edit(llama, rope_parameters=None, rope_theta=50.0)
    assert octavo.load(llama).model.config.rotary_base == 50.0


def test_a_copy_of_tied_weights_is_left_out_and_other_weights_are_refused(gpt2: Path) -> None:
    x_BT = some_ids(257)
    before = octavo.load(gpt2)(x_BT)
    edit_tensors(gpt2, lambda old: old | {"lm_head.weight": old["transformer.wte.weight"]})
    assert torch.equal(octavo.load(gpt2)(x_BT), before)
    edit_tensors(gpt2, lambda old: old | {"lm_head.weight": old["lm_head.weight"] + 1})
    with pytest.raises(UserError, match="tie_word_embeddings"):
        octavo.load(gpt2)


def test_texts_longer_than_the_context_are_charged(gpt2: Path, llama: Path) -> None:
    for folder in (gpt2, llama):
        score = octavo.evaluate(octavo.load(folder), TEXT)
        assert (score.tokens, score.policy) == (len(TEXT), "sliding window of 32 tokens, moved by 16 when it is full")
        assert np.isfinite(score.bits)


# Without a tokenizer


def test_a_folder_without_a_tokenizer_scores_ids_and_says_why_it_reads_no_text(gpt2: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (gpt2 / name).unlink()
    run = octavo.load(gpt2)
    x_BT = some_ids(257, 50)
    assert run(x_BT).shape == (2, 50, 257)
    assert torch.isfinite(run.model.score(x_BT)).all()
    assert run.model.begin == 256
    for use in (lambda: octavo.evaluate(run, "text"), lambda: octavo.generate(run, "text")):
        with pytest.raises(UserError, match=r"has no tokenizer\.json.*put the tokenizer\.json"):
            use()
    assert main(["import", str(gpt2), "--out", str(gpt2.parent / "run")]) == 2
    assert not (gpt2.parent / "run").exists()


def test_a_begin_outside_the_vocabulary_is_the_last_id(gpt2: Path) -> None:
    (gpt2 / "tokenizer.json").unlink()
    edit(gpt2, bos_token_id=50256, eos_token_id=[50256])
    assert octavo.load(gpt2).model.begin == 256


def test_vocab_and_merges_serve_as_a_tokenizer(tmp_path: Path) -> None:
    bpe = tokenizers(TEXT)["bpe"]
    write_huggingface(random_model(GPT2, bpe.vocab), bpe, tmp_path / "gpt2")
    parts = json.loads((tmp_path / "gpt2" / "tokenizer.json").read_text(encoding="utf-8"))
    (tmp_path / "gpt2" / "tokenizer.json").unlink()
    vocab = parts["model"]["vocab"] | {"<|begin|>": bpe.begin}
    merges = "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in parts["model"]["merges"]) + "\n"
    (tmp_path / "gpt2" / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "gpt2" / "merges.txt").write_text(merges, encoding="utf-8")
    run = octavo.load(tmp_path / "gpt2")
    assert run.tokenizer.encode(TEXT).tolist() == bpe.encode(TEXT).tolist()
    assert (run.tokenizer.begin, run.tokenizer.vocab, run.comparable) == (bpe.begin, bpe.vocab, True)


# Ours out


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *SHAPES.items(),
        ("gpt2", GPT2 | {"feed_forward": "relu2", "tied": False}),
        ("llama", LLAMA | {"stride": 3, "tied": False}),
        ("mistral", LLAMA | {"attention": "local", "attention_window": 5, "kv_heads": 0}),
        ("qwen3", QWEN3 | {"stride": 3}),
        ("qwen3", QWEN3 | {"attention": "local", "attention_window": 5, "tied": False}),
        ("qwen3", {"width": 24, "layers": 2, "context": 16}),  # what octavo train gpt makes, but for its size
    ],
)
def test_transformers_gives_an_exported_model_its_logits(
    transformers: ModuleType, tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    model = random_model(settings)
    notes = write_huggingface(model, Byte(), tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert theirs.config.model_type == kind
    carried = not model.config.absolute
    assert bool(notes) != carried  # beyond the context they differ only where octavo's window moves
    length = 3 * model.config.context if carried else 30
    assert largest_difference(theirs, Run(model, Byte()), length) < CLOSE
    assert len({file.stat().st_mode for file in (tmp_path / "out").iterdir()}) == 1  # whoever may read one, may all
    again = octavo.load(tmp_path / "out")
    assert torch.equal(again(some_ids(257, length)), model(some_ids(257, length)))
    assert again.model.context_policy == model.context_policy or settings.get("stride") == 3
    expected_BTV = logits_in_double(theirs, some_ids(257, length), model.config)
    torch.testing.assert_close(model.double()(some_ids(257, length)), expected_BTV, rtol=0, atol=CLOSE_DOUBLE)


def test_a_qwen3_whose_query_norm_was_trained_is_refused(transformers: ModuleType, tmp_path: Path) -> None:
    write_huggingface(random_model(QWEN3), Byte(), tmp_path)
    name = "model.layers.1.self_attn.k_norm.weight"
    edit_tensors(tmp_path, lambda old: old | {name: old[name] * 1.5})
    with pytest.raises(UserError, match=r"key_norm_K must be ones"):
        octavo.load(tmp_path)


def test_layers_with_different_windows_are_refused_and_one_window_is_local_attention(
    transformers: ModuleType, tmp_path: Path
) -> None:
    write_huggingface(random_model(QWEN3), Byte(), tmp_path)
    edit(tmp_path, sliding_window=5)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    run = octavo.load(tmp_path)
    assert (run.model.config.attention, run.model.config.attention_window) == ("local", 5)
    assert largest_difference(theirs, run, 80) < CLOSE
    edit(tmp_path, layer_types=["sliding_attention", "full_attention"])
    with pytest.raises(UserError, match="one window: these have different ones"):
        octavo.load(tmp_path)
    edit(tmp_path, layer_types=None, max_window_layers=1)
    with pytest.raises(UserError, match="one window"):
        octavo.load(tmp_path)


PIPELINE = """
import json, sys
sys.modules["octavo"] = None  # so that importing it is an ImportError
from transformers import pipeline
from transformers.utils import logging
logging.set_verbosity_error()
said = {}
for folder in sys.argv[2:]:
    write = pipeline("text-generation", model=folder)
    said[folder] = write(sys.argv[1], max_new_tokens=100)[0]["generated_text"]
print(json.dumps(said))
"""


def test_the_pipeline_writes_our_greedy_text_without_octavo(tmp_path: Path) -> None:
    prompt = "A rose is"
    (tmp_path / "text.txt").write_bytes(TEXT * 20)
    expected = {}
    for kind in tokenizers(TEXT):
        settings = {"width": 32, "layers": 2, "heads": 2, "context": 16, "vocab_size": 280} if kind == "bpe" else {}
        run = octavo.train(
            "gpt", tmp_path / "text.txt", tokenizer=kind, budget="30steps", batch_size=8, measure=False,
            **{"width": 32, "layers": 2, "heads": 2, "context": 16} | settings,
        )  # fmt: skip
        folder = str(tmp_path / kind)
        write_huggingface(run.model, run.tokenizer, folder)
        expected[folder] = prompt + octavo.generate(run, prompt, method="greedy", max_tokens=100)
    command = [sys.executable, "-c", PIPELINE, prompt, *expected]
    quiet = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    finished = subprocess.run(command, capture_output=True, text=True, check=True, env=quiet, timeout=300)
    assert json.loads(finished.stdout.splitlines()[-1]) == expected


@pytest.mark.parametrize("kind", ["byte", "char", "bpe", "word"])
def test_transformers_gives_text_the_same_ids(transformers: ModuleType, tmp_path: Path, kind: str) -> None:
    tokenizer = tokenizers(TEXT)[kind]
    assert write_huggingface(random_model(LLAMA, tokenizer.vocab), tokenizer, tmp_path / "out") == []
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    new = TEXT.decode() + "\n\n  unseen: ŷ 🙂 Ⅷ e\u0301 ﬁ\r\n"
    ids = tokenizer.encode(new.encode()).tolist()
    assert theirs(new).input_ids == [tokenizer.begin, *ids]
    assert theirs.decode(ids) == new
    assert (theirs.bos_token_id, theirs.eos_token_id, len(theirs)) == (
        tokenizer.begin,
        tokenizer.begin,
        tokenizer.vocab,
    )


@pytest.mark.parametrize("kind", ["byte", "char", "bpe"])
@pytest.mark.parametrize("settings", [GPT2 | {"stride": 16}, LLAMA, QWEN3])
def test_what_goes_out_comes_in_the_same(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    tokenizer = tokenizers(TEXT)[kind]
    run = Run(random_model(settings, tokenizer.vocab), tokenizer)
    write_huggingface(run.model, tokenizer, tmp_path / "out")
    again = octavo.load(tmp_path / "out")
    new = TEXT + "unseen: ŷ 🙂\n".encode() + b"\xff\xc3 not UTF-8"
    assert again.tokenizer.encode(new).tolist() == tokenizer.encode(new).tolist()
    assert again.comparable
    assert octavo.evaluate(again, new).bits == pytest.approx(octavo.evaluate(run, new).bits, rel=1e-9)


def test_a_tokenizer_that_the_library_cannot_express_comes_back_by_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Own(Byte):
        def huggingface_json(self) -> None:  # type: ignore[override]
            return None

    model = random_model(LLAMA)
    assert "byte tokenizer has no tokenizer.json" in write_huggingface(model, Own(), tmp_path / "hf")[0]
    assert not (tmp_path / "hf" / "tokenizer.json").exists()
    run = Run(model, Byte()).save(tmp_path / "run")
    command = ["import", str(tmp_path / "hf"), "--tokenizer-of", str(run.path), "--out", str(tmp_path / "again")]
    assert main([*command, "--json"]) == 0
    again = load(tmp_path / "again")
    assert again.tokenizer.encode(TEXT).tolist() == Byte().encode(TEXT).tolist()
    assert torch.equal(again(some_ids(257)), run(some_ids(257)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (LLAMA | {"positions": "alibi"}, "positions is alibi; the nearest is mistral: train with --positions rotary$"),
        (QWEN3 | {"attention": "strided"}, "attention is strided; the nearest is qwen3: train with --attention full$"),
        (QWEN3 | {"experts": 4}, "shape: experts is 4; the nearest is qwen3: train with --experts 0$"),
        (
            QWEN3 | {"attention": "latent", "kv_heads": 0},
            "attention is latent; the nearest is qwen3: train with --attention full$",
        ),
        (QWEN3 | {"norm": "layer"}, "norm is layer; the nearest is qwen3: train with --norm rms$"),
        (GPT2 | {"kv_heads": 2}, "kv_heads is 2; the nearest is gpt2: train with --kv-heads 0$"),
        (GPT2 | {"bias": False}, "bias is False; the nearest is gpt2: train with --bias$"),
    ],
)
def test_other_shapes_are_refused_with_what_would_have_to_be_different(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        write_huggingface(random_model(settings), Byte(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_replaces_only_an_export(gpt2: Path, tmp_path: Path) -> None:
    write_huggingface(random_model(LLAMA), Byte(), gpt2)
    assert isinstance(octavo.load(gpt2).model, GPT)
    assert octavo.load(gpt2).model.config.positions == "rotary"
    run = Run(random_model(LLAMA), Byte()).save(tmp_path / "run")
    (gpt2 / "my notes.txt").write_text("mine")
    for place in (gpt2, run.path, __file__):
        with pytest.raises(UserError, match="choose another target"):
            write_huggingface(random_model(GPT2), Byte(), place)  # type: ignore[arg-type]
    assert (gpt2 / "my notes.txt").read_text() == "mine"
    load(run.path or "")


# What is refused


@pytest.mark.parametrize(
    ("shape", "settings", "said"),
    [
        ("gpt2", {"activation_function": "relu"}, "activation_function=relu"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("gpt2", {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn=True"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=False"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True"),
        ("gpt2", {"quantization_config": {"bits": 4}}, "quantised"),
        ("gpt2", {"model_type": "bert"}, "'bert'"),
        ("gpt2", {"model_type": None}, "None"),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_scaling says 'yarn'"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling says 'linear'"),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5.0}}, "rope_parameters says 'llama3'"),
        ("llama", {"rope_parameters": 7}, "rope_parameters must be a JSON object"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ("llama", {"head_dim": 8}, "head_dim=8"),
        ("llama", {"attention_bias": True}, "attention_bias=True"),
        ("llama", {"mlp_bias": True}, "mlp_bias=True"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act=gelu"),
        ("llama", {"tie_word_embeddings": False}, "lm_head.weight"),
        # damaged or forged
        ("gpt2", {"n_layer": 10**9}, "layers must be at most"),
        ("gpt2", {"n_layer": 4096}, ": 4,096 layers"),
        ("gpt2", {"n_layer": 3}, "of 3 layers must have"),
        ("gpt2", {"n_layer": 1}, "GPT-2 has no tensors"),
        ("gpt2", {"n_positions": 10**12}, "context must have"),
        ("gpt2", {"n_positions": 1 << 20}, "shape"),
        ("gpt2", {"n_embd": 1 << 60, "n_head": 1}, "as large as|shape|width must be at most"),
        ("gpt2", {"n_head": 0}, "heads"),
        ("gpt2", {"n_head": -4}, "heads"),
        ("gpt2", {"n_head": 5}, "heads must divide width"),
        ("gpt2", {"n_inner": -5}, "feed_forward_width"),
        ("gpt2", {"n_embd": "24"}, "n_embd must be a whole number"),
        ("gpt2", {"layer_norm_epsilon": -1}, "norm_eps"),
        ("gpt2", {"vocab_size": 300}, "vocab_size=300, the file has 257"),
        ("gpt2", {"vocab_size": 10**12}, "vocab_size"),
        ("gpt2", {"vocab_size": 0}, "vocab_size=0"),
        ("llama", {"max_position_embeddings": 10**12}, "context must have"),
        ("llama", {"num_key_value_heads": 3}, "kv_heads must divide heads"),
        ("llama", {"rope_parameters": {"rope_theta": 0}}, "rotary_base"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(
    request: pytest.FixtureRequest, shape: str, settings: dict[str, Any], said: str
) -> None:
    folder: Path = request.getfixturevalue(shape)
    edit(folder, **settings)
    with pytest.raises(UserError, match=said):
        octavo.load(folder)


JUNK = (None, -1, 2**40, 10**30, 1.5, float("inf"), "x", [], [1], {}, {"type": "x"}, {"rope_theta": "a"}, True)


@pytest.mark.parametrize("shape", ["gpt2", "llama"])
def test_whatever_stands_in_the_json_is_read_or_refused(request: pytest.FixtureRequest, shape: str) -> None:
    folder: Path = request.getfixturevalue(shape)
    refused = 0
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        values = json.loads((folder / name).read_text(encoding="utf-8"))
        for key in values:
            for junk in JUNK:
                (folder / name).write_text(json.dumps(values | {key: junk}))
                try:
                    octavo.load(folder)
                except UserError:
                    refused += 1
        (folder / name).write_text(json.dumps(values))
    assert refused > 100
    octavo.load(folder)


def test_whole_numbers_are_no_weights(gpt2: Path) -> None:
    edit_tensors(gpt2, lambda old: old | {"transformer.wpe.weight": old["transformer.wpe.weight"].to(torch.int8)})
    with pytest.raises(UserError, match=r"positions_CD must be torch\.float32"):
        octavo.load(gpt2)


def test_damaged_weights_are_refused(gpt2: Path) -> None:
    whole = (gpt2 / "model.safetensors").read_bytes()
    for damaged in (whole[:-5], whole[:100], b"", b"\xff" * 64):
        (gpt2 / "model.safetensors").write_bytes(damaged)
        with pytest.raises(UserError, match="damaged or cut off"):
            octavo.load(gpt2)
    (gpt2 / "model.safetensors").write_bytes(whole)
    edit_tensors(gpt2, lambda old: old | {"transformer.h.0.attn.c_attn.weight": torch.zeros(5)})
    with pytest.raises(UserError, match="must be a matrix"):
        octavo.load(gpt2)
    edit_tensors(gpt2, lambda old: old | {"transformer.h.0.attn.c_attn.weight": torch.zeros(24, 71)})
    with pytest.raises(UserError, match="of one size"):
        octavo.load(gpt2)
    edit_tensors(gpt2, lambda old: old | {"transformer.h.0.attn.c_attn.weight": torch.zeros(24, 30)})
    with pytest.raises(UserError, match="shape"):
        octavo.load(gpt2)
    edit_tensors(gpt2, lambda old: old | {"transformer.h.0.adapter.weight": torch.zeros(5)})
    with pytest.raises(UserError, match=r"no tensors transformer\.h\.0\.adapter\.weight"):
        octavo.load(gpt2)


def test_a_pickle_is_refused_with_the_way_to_convert_it(gpt2: Path) -> None:
    (gpt2 / "model.safetensors").rename(gpt2 / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pickle can run any code.*safe_serialization=True"):
        octavo.load(gpt2)


@pytest.mark.parametrize("place", ["../model.safetensors", "/etc/passwd", "other.bin", 7])
def test_an_index_names_only_files_beside_it(gpt2: Path, place: Any) -> None:
    (gpt2 / "model.safetensors").rename(gpt2.parent / "model.safetensors")
    (gpt2 / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte.weight": place}}))
    with pytest.raises(UserError, match=r"must name \.safetensors files beside it"):
        octavo.load(gpt2)


def test_a_tokenizer_that_does_not_belong_to_the_model_is_refused(gpt2: Path) -> None:
    parts = json.loads((gpt2 / "tokenizer.json").read_text(encoding="utf-8"))
    (gpt2 / "tokenizer.json").write_text(json.dumps(parts | {"added_tokens": []}))
    with pytest.raises(UserError, match=r"set bos_token_id in config\.json"):
        octavo.load(gpt2)
    more = {"id": 257, "content": "<|more|>", **dict.fromkeys(("single_word", "lstrip", "rstrip"), False)}
    added = [*parts["added_tokens"], more | {"normalized": False, "special": True}]
    (gpt2 / "tokenizer.json").write_text(json.dumps(parts | {"added_tokens": added}))
    with pytest.raises(UserError, match="size=257, ids=258"):
        octavo.load(gpt2)
    (gpt2 / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer\.json is missing or damaged"):
        octavo.load(gpt2)


def test_the_token_that_opens_is_found_by_its_name_too(gpt2: Path) -> None:
    edit(gpt2, bos_token_id=None, eos_token_id=None)
    assert octavo.load(gpt2).tokenizer.begin == 256


def test_only_what_is_a_foreign_model_is_taken_for_one(gpt2: Path, tmp_path: Path) -> None:
    assert is_foreign(gpt2)
    run = Run(random_model(GPT2), Byte()).save(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"a": 1}')
    assert not any(map(is_foreign, (run.path or "", tmp_path / "other", tmp_path, tmp_path / "nothing", __file__)))
    for place in (tmp_path / "other", tmp_path / "nothing"):
        with pytest.raises(UserError, match="is not a run"):
            octavo.load(place)


# The verbs


def test_an_imported_run_is_an_ordinary_run(gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_bytes(TEXT)
    assert main(["import", str(gpt2), "--out", str(tmp_path / "run"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["vocab"], result["comparable"]) == (257, True)
    assert torch.equal(load(tmp_path / "run")(some_ids(257)), load(gpt2)(some_ids(257)))
    for place in ("run", "gpt2"):  # a folder of theirs needs no import
        path = str(tmp_path / place)
        assert main(["eval", path, str(tmp_path / "text.txt"), "--json"]) == 0
        assert main(["generate", path, "--max-tokens", "5"]) == 0
        assert main(["inspect", path]) == 0
        packed, again = tmp_path / f"{place}.oct", tmp_path / f"{place}.txt"
        assert main(["compress", path, str(tmp_path / "text.txt"), str(packed)]) == 0
        assert main(["decompress", path, str(packed), str(again)]) == 0
        assert again.read_bytes() == TEXT
    assert main(["eval", str(tmp_path / "run")]) == 2
    assert "does not say what it was trained on" in capsys.readouterr().err


def test_half_precision_halves_the_file_and_computes_in_single(gpt2: Path, tmp_path: Path) -> None:
    for precision in ("float32", "float16"):
        out = str(tmp_path / precision)
        assert main(["import", str(gpt2), "--out", out, "--precision", precision, "--json"]) == 0
    sizes = [(tmp_path / one / "model.safetensors").stat().st_size for one in ("float16", "float32")]
    assert sizes[0] < 0.6 * sizes[1]
    rounded, exact = (load(tmp_path / one) for one in ("float16", "float32"))
    x_BT = some_ids(257)
    assert rounded(x_BT).dtype == torch.float32
    off = (rounded(x_BT) - exact(x_BT)).abs().max()
    assert 0 < off < 0.1
    read = read_foreign(gpt2).model.half().float()
    assert torch.equal(rounded(x_BT), read(x_BT))


def test_what_was_done_to_the_text_before_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(random_model(GPT2), Byte(), {"preprocess": ["lower"]}).save(tmp_path / "run")
    assert main(["export", str(tmp_path / "run")]) == 0
    assert "--preprocess lower" in capsys.readouterr().err


def test_the_format_is_the_one_the_model_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_bytes(TEXT)
    octavo.train("ngram", tmp_path / "text.txt", out=tmp_path / "kn", measure=False)
    Run(random_model(GPT2), Byte()).save(tmp_path / "gpt")
    assert main(["export", str(tmp_path / "kn")]) == 0
    assert main(["export", str(tmp_path / "gpt"), "--json"]) == 0
    assert (tmp_path / "kn.arpa").is_file()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["folder"] == str(tmp_path / "gpt-hf")
    assert main(["export", str(tmp_path / "gpt"), "--format", "arpa"]) == 2
    assert "--format hf" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "kn"), "--format", "hf"]) == 2
    assert "a model of kind ngram cannot be written as a Hugging Face folder" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="limits on file sizes are a Unix matter")
def test_a_disk_that_takes_no_more_of_the_weights_is_an_error_of_the_system_and_leaves_nothing(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_folder(tmp_path / "out", {"weights": torch.zeros(1000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    write_folder(tmp_path / "out", {"weights": torch.arange(3.0)}, {"config.json": {}})
    read = safetensors.torch.load_file(tmp_path / "out" / "model.safetensors")
    assert read["weights"].tolist() == [0.0, 1.0, 2.0]
