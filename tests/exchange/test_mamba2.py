"""Mamba-2 to and from Hugging Face: the logits are transformers' own."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import octavo
from octavo.core import seeded_generator
from octavo.errors import UserError
from octavo.exchange.huggingface_export import write_huggingface
from octavo.exchange.huggingface_import import read_huggingface
from octavo.models.linear_attention.config import Mamba2Config
from octavo.models.linear_attention.mamba2 import Mamba2
from octavo.text import Byte

CLOSE = 1e-4  # of logits with a deviation of about one, in single precision
SHAPE: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 8, "state_size": 5,
    "n_groups": 1, "chunk_size": 8, "bos_token_id": 7, "eos_token_id": 7, "initializer_range": 0.5,
}  # fmt: skip


@pytest.fixture(scope="module")
def transformers() -> ModuleType:
    import transformers

    return transformers


def some_ids(vocab: int) -> Tensor:
    return torch.randint(0, vocab, (2, 30), generator=seeded_generator(3))


def saved(transformers: ModuleType, folder: Path, **settings: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.Mamba2ForCausalLM(transformers.Mamba2Config(**{**SHAPE, **settings})).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and "A_log" not in name:
            parameter.data += 0.3 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    return model


def random_model(**settings: Any) -> Mamba2:
    small = {"width": 16, "layers": 2, "heads": 4, "state_size": 6}
    model = Mamba2(Mamba2Config(**(small | settings)), 257)
    generator = seeded_generator(1)
    model.initialise(generator)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [{}, {"tie_word_embeddings": True, "layer_norm_epsilon": 0.1}, {"expand": 1, "head_dim": 4, "conv_kernel": 2}],
)
def test_a_mamba2_has_the_logits_that_transformers_gives_it(
    transformers: ModuleType, tmp_path: Path, settings: dict[str, Any]
) -> None:
    theirs, ours = saved(transformers, tmp_path, **settings), octavo.load(tmp_path)
    x_BT = some_ids(60)
    expected_BTV = theirs(x_BT).logits
    assert expected_BTV.std() > 0.5
    torch.testing.assert_close(ours(x_BT), expected_BTV, rtol=0, atol=CLOSE)
    assert (type(ours.model), ours.model.begin, ours.model.vocab) == (Mamba2, 7, 60)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"tied": False, "expand": 1, "convolution": 3, "norm_eps": 1e-3}])
def test_transformers_gives_an_exported_mamba2_its_logits_and_it_comes_back_the_same(
    transformers: ModuleType, tmp_path: Path, settings: dict[str, Any]
) -> None:
    model = random_model(**settings)
    write_huggingface(model, Byte(), tmp_path / "hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    x_BT = some_ids(256)
    torch.testing.assert_close(theirs(x_BT).logits, model(x_BT), rtol=0, atol=CLOSE)
    again = read_huggingface(tmp_path / "hf").model
    assert torch.equal(again(x_BT), model(x_BT))
    assert again.begin == model.begin


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"n_groups": 2}, "n_groups=2, only 1"),
        ({"use_bias": True}, "no use_bias=True"),
        ({"head_dim": 3}, "head_dim=3 × 4 heads is not expand=2 × hidden_size=16"),
        ({"time_step_limit": [0.1, 1.0]}, "steps have no limit"),
        ({"hidden_act": "gelu"}, "no hidden_act=gelu"),
        ({"state_size": 4}, "mixer.in_proj must have 76 rows"),
        ({"num_hidden_layers": 3}, "must have the tensors"),
    ],
)
def test_what_is_no_mamba2_of_ours_is_refused_by_name(
    transformers: ModuleType, tmp_path: Path, settings: dict[str, Any], rule: str
) -> None:
    saved(transformers, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | settings), encoding="utf-8")
    with pytest.raises(UserError, match=rule):
        octavo.load(tmp_path)


def test_a_mamba2_that_is_no_mamba2_of_theirs_is_refused_with_the_flags(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="feed_forward=gated, convolution=0; train with --feed-forward none"):
        write_huggingface(random_model(feed_forward="gated", convolution=0), Byte(), tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
