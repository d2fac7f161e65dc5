"""What was renamed still works under its old name, and the new one is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from octavo.cli.flags import run_command, with_current_flags
from octavo.config import configs_from, from_json
from octavo.errors import UserError
from octavo.io.old_records import current_record
from octavo.io.tensors import current_tensor_name
from octavo.models.bert import BertConfig
from octavo.models.parts.config import GPTConfig
from octavo.models.seq2seq import Seq2SeqConfig
from octavo.models.vit import VitConfig
from octavo.tasks.corpus import TextConfig


@dataclass(frozen=True)
class Example:
    """A config whose field `rate` is now called `learning_rate`."""

    RENAMED: ClassVar[dict[str, str]] = {"rate": "learning_rate", "qk": "qk_norm"}
    learning_rate: float = 0.1
    """How fast it learns."""
    qk_norm: bool = True
    """Normalise queries and keys."""


def test_a_saved_config_is_read_under_the_old_name() -> None:
    assert from_json(Example, {"rate": 0.5}) == Example(0.5)


def test_a_setting_under_its_old_name_works_and_warns_with_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match="the setting 'rate' of gpt is deprecated .* use 'learning_rate'"):
        assert configs_from("gpt", [Example()], {"rate": 0.5}) == [Example(0.5)]


@pytest.mark.parametrize(("tokenizer", "read"), [("bpe", {}), ("word", {"min_count": 2, "split": "words"})])
def test_defaults_that_version_0_1_saved_for_other_tokenizers_are_left_out(
    tokenizer: str, read: dict[str, object]
) -> None:
    text = {"tokenizer": tokenizer, "size": 300, "min_count": 2, "split": "words"}
    record = current_record({"format": 1, "training": {"text": text, "optim": {}, "loop": {}}})
    config = from_json(TextConfig, record["training"]["settings"])
    assert config.tokenizer_options() == {"vocab_size": 300, **read}


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(UserError, match="rate and learning_rate"):
        from_json(Example, {"rate": 0.5, "learning_rate": 0.5})


def test_an_old_flag_works_and_names_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    received = []

    def command(config: Example = Example(), out: str = "") -> None:  # noqa: B008
        received.append((config, out))

    run_command(command, "octavo test", ["--rate", "0.25", "--no-qk", "--out", "x"])
    assert received == [(Example(0.25, False), "x")]
    assert capsys.readouterr().err == (
        "octavo: --rate is now called --learning-rate\noctavo: --no-qk is now called --no-qk-norm\n"
    )


def test_a_value_given_with_an_equals_sign_is_kept() -> None:
    assert with_current_flags(["--rate=0.5", "--rates", "3"], {"--rate": "--learning-rate"}) == [
        "--learning-rate=0.5", "--rates", "3",
    ]  # fmt: skip


def test_settings_of_transformers_are_read_under_their_names_of_version_0_1() -> None:
    old = {"mix": "local", "reach": 7, "feed": "gelu", "feed_width": 24}
    assert from_json(GPTConfig, old) == GPTConfig(
        attention="local", attention_window=7, feed_forward="gelu", feed_forward_width=24
    )
    assert from_json(VitConfig, {"pattern": "axial", "feed": "relu2"}) == VitConfig(
        attention="axial", feed_forward="relu2"
    )
    for config in (BertConfig, Seq2SeqConfig):
        assert from_json(config, {"feed": "gelu", "feed_width": 24}) == config(
            feed_forward="gelu", feed_forward_width=24
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("blocks.0.mix.query_DD", "blocks.0.attention.query_DD"),
        ("encoder.blocks.11.feed.up_FD", "encoder.blocks.11.feed_forward.up_FD"),
        ("readers.2.mix.out_bias", "encoder_blocks.2.attention.out_bias"),
        ("writers.2.look.key_ED", "decoder_blocks.2.cross_attention.key_ED"),
        ("read_norm.weight_D", "encoder_norm.weight_D"),
        ("mix_DG", "combine_DG"),
        ("optimizers:blocks.0.feed.down_DF/exp_avg_sq", "optimizers:blocks.0.feed_forward.down_DF/exp_avg_sq"),
        ("parts.1.blocks.0.mix.value_ED", "parts.1.blocks.0.attention.value_ED"),
    ],
)
def test_tensors_are_read_under_their_names_of_version_0_1(old: str, new: str) -> None:
    assert current_tensor_name(old) == new == current_tensor_name(new)
