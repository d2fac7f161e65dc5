"""The limits of every setting: the last value that is allowed is taken, the first one beyond it refused by name."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from octavo.config import declared_range, from_json
from octavo.decode import Beam, Exact, Sample
from octavo.errors import UserError
from octavo.experiments.compare.config import CompareConfig
from octavo.models import MODELS
from octavo.models.bert import BertConfig
from octavo.models.bigram import BigramConfig
from octavo.models.conv import ConvConfig
from octavo.models.cost.parts import Shape
from octavo.models.dan import DanConfig, HeadConfig, LinearConfig
from octavo.models.linear_recurrent import (
    LinearRecurrentConfig,
    LRUConfig,
    MinGRUConfig,
    MinLSTMConfig,
    RGLRUConfig,
)
from octavo.models.mix import MixConfig
from octavo.models.nnlm import NNLMConfig
from octavo.models.parts.config import GPTConfig
from octavo.models.recurrent import RecurrentConfig
from octavo.models.rnn_attention import RNNAttentionConfig
from octavo.models.seq2seq import Seq2SeqConfig
from octavo.models.seq2seq_recurrent import RecurrentSeq2SeqConfig
from octavo.models.vit import VitConfig
from octavo.tasks.task import TASKS, find_task
from octavo.text import TOKENIZERS
from octavo.training.glove import GloveConfig
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

BELOW_1 = math.nextafter(1, 0)
JUST_ABOVE_0 = math.nextafter(0, 1)
POSITIVE: tuple[list[Any], list[Any]] = ([1], [0, -1])
NOT_NEGATIVE: tuple[list[Any], list[Any]] = ([0, 1], [-1])
SHARE: tuple[list[Any], list[Any]] = ([0, BELOW_1], [-0.001, 1, 1.5, math.nan])
RATE: tuple[list[Any], list[Any]] = ([JUST_ABOVE_0, 10], [0, -1, 10.001, math.nan])
LIMITS: dict[Any, dict[str, tuple[list[Any], list[Any]]]] = {
    GPTConfig: {
        "width": ([8], [0]), "layers": POSITIVE, "heads": POSITIVE, "context": ([1, 64], [0]),
        "attention_window": POSITIVE, "dropout": SHARE, "feed_forward_width": NOT_NEGATIVE,
        "rotary_base": ([1.001], [1]), "norm_eps": ([JUST_ABOVE_0], [0]),
        "experts": ([0, 2, 1024], [-1, 1025]), "experts_per_token": ([1], [0]), "latent_width": NOT_NEGATIVE,
        "stride": ([0, 63], [-1, 256]), "attention": (["full"], ["wide"]),
    },
    RecurrentConfig: {"width": POSITIVE, "layers": POSITIVE, "dropout": SHARE, "forget_bias": ([0, -9], [math.inf])},
    LinearRecurrentConfig: {
        "width": POSITIVE, "layers": POSITIVE, "state_width": NOT_NEGATIVE, "feed_forward_width": NOT_NEGATIVE,
        "dropout": SHARE,
    },
    MinGRUConfig: {"convolution": ([1, 64], [0, 65])},
    MinLSTMConfig: {"forget_bias": ([0, -9], [math.inf])},
    RGLRUConfig: {
        "convolution": ([1, 64], [0, 65]), "smallest_share": ([JUST_ABOVE_0, 0.9], [0, 1]),
        "largest_share": ([BELOW_1], [0, 1]),
    },
    LRUConfig: {
        "smallest_radius": ([JUST_ABOVE_0, 0.9], [0, 1, math.nan]), "largest_radius": ([BELOW_1], [0, 1]),
        "largest_phase": ([JUST_ABOVE_0, 6.2832], [0, 7.0]),
    },
    NNLMConfig: {"order": ([2], [1, 1025]), "width": POSITIVE, "hidden": POSITIVE, "dropout": SHARE},
    ConvConfig: {
        "width": POSITIVE, "layers": ([1, 6], [0]), "kernel": ([2, 1024], [1, 1025]), "dilation": ([1, 8], [0, 1025]),
        "cycle": ([0, 1], [-1]), "dropout": SHARE, "gate": (["linear"], ["relu"]),
    },
    RNNAttentionConfig: {"width": POSITIVE, "dropout": SHARE, "memory": NOT_NEGATIVE},
    Seq2SeqConfig: {
        "layers": POSITIVE, "decoder_layers": NOT_NEGATIVE, "dropout": SHARE, "positions": (["none"], ["no"]),
    },
    RecurrentSeq2SeqConfig: {"width": POSITIVE, "layers": POSITIVE, "dropout": SHARE, "cell": (["gru"], ["rnm"])},
    VitConfig: {"layers": POSITIVE, "patch": NOT_NEGATIVE, "radius": NOT_NEGATIVE, "pool": (["mean"], ["max"])},
    BertConfig: {"segments": POSITIVE, "dropout": SHARE},
    BigramConfig: {
        "dim": POSITIVE, "hidden": POSITIVE, "batch": POSITIVE, "steps": NOT_NEGATIVE, "patience": NOT_NEGATIVE,
        "rate": RATE,
    },
    MixConfig: {"rounds": NOT_NEGATIVE},
    DanConfig: {
        "width": POSITIVE, "ngrams": POSITIVE, "buckets": POSITIVE, "min_count": POSITIVE, "spare": NOT_NEGATIVE,
        "word_dropout": SHARE, "dropout": SHARE,
    },
    HeadConfig: {"dropout": SHARE},
    LinearConfig: {
        "ngrams": POSITIVE, "bits": ([1], [0]), "steps": NOT_NEGATIVE, "smooth": ([JUST_ABOVE_0], [0, math.nan]),
        "penalty": ([0], [-0.001, math.nan]),
    },
    GloveConfig: {
        "dim": POSITIVE, "window": POSITIVE, "min_count": POSITIVE, "vocab_size": POSITIVE, "epochs": POSITIVE,
        "learning_rate": RATE,
    },
    LoopConfig: {
        "accumulate": ([1], [0]), "evaluations": POSITIVE, "batch_size": NOT_NEGATIVE, "sequence_length": NOT_NEGATIVE,
        "patience": NOT_NEGATIVE, "checkpoint_seconds": ([0], [-0.001]),
    },
    OptimizerConfig: {
        "learning_rate": RATE, "muon_learning_rate": ([0, 10], [-0.001, 10.001]), "weight_decay": ([0], [-0.001]),
        "clip": ([0], [-0.001]), "warmup": SHARE, "label_smoothing": SHARE, "ema": SHARE,
    },
    Sample: {
        "temperature": ([JUST_ABOVE_0, 1e300], [0, -1, math.inf, math.nan]), "top_k": ([1, None], [0]),
        "top_p": ([JUST_ABOVE_0, 1], [0, 1.001]), "min_p": ([0, 1], [-0.001, 1.001]),
    },
    Beam: {"width": POSITIVE, "length_penalty": ([0], [-0.001])},
    Exact: {"limit": POSITIVE, "together": POSITIVE},
}  # fmt: skip
CASES = [(kind, name, *values) for kind, fields in LIMITS.items() for name, values in fields.items()]


@pytest.mark.parametrize(
    ("kind", "name", "allowed", "refused"), CASES, ids=[f"{kind.__name__}.{name}" for kind, name, *_ in CASES]
)
def test_a_setting_is_taken_up_to_its_limit_and_refused_by_name_beyond(
    kind: Any, name: str, allowed: list[Any], refused: list[Any]
) -> None:
    for value in allowed:
        assert getattr(kind(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(UserError, match=name):
            kind(**{name: value})


@pytest.mark.parametrize(("name", "allowed", "refused"), [("batch", 1, 0), ("window", 1, 0), ("past", 0, -1)])
def test_a_shape_has_at_least_one_row_and_one_token(name: str, allowed: int, refused: int) -> None:
    sizes = {"batch": 2, "window": 2, "past": 2}
    assert getattr(Shape(**sizes | {name: allowed}), name) == allowed
    with pytest.raises(UserError, match=name):
        Shape(**sizes | {name: refused})


CONFIGS = [  # all that a record, a tokenizer or a command line holds settings of
    *dict.fromkeys(spec.config for spec in MODELS.values()),
    *dict.fromkeys(type(find_task(task).settings) for task in TASKS),
    *dict.fromkeys(tokenizer.Settings for tokenizer in TOKENIZERS.values()),
    HeadConfig, GloveConfig, LoopConfig, OptimizerConfig, CompareConfig,
]  # fmt: skip
NUMBERS = [
    (kind, field.name, hint)
    for kind in CONFIGS
    for field in dataclasses.fields(kind)
    for hint, plain in [(get_type_hints(kind, include_extras=True)[field.name], get_type_hints(kind)[field.name])]
    if {int, float} & {plain, *get_args(plain)}
]


@pytest.mark.parametrize(
    ("kind", "name", "hint"), NUMBERS, ids=[f"{kind.__name__}.{name}" for kind, name, _ in NUMBERS]
)
def test_every_number_among_the_settings_declares_its_range_and_a_file_cannot_leave_it(
    kind: Any, name: str, hint: Any
) -> None:
    within = declared_range(hint)
    assert within is not None, "declare it: Annotated[int, Range(least, most)]"
    plain = get_type_hints(kind)[name]
    for value in (within.least - 1, within.most * 2 + 1, -(1 << 63), 10**30, 1e300):
        number = int(value) if int in (plain, *get_args(plain)) else float(value)
        with pytest.raises(UserError, match=name):
            from_json(kind, {name: [number] if get_origin(plain) is tuple else number})


def test_a_package_that_declares_no_range_is_still_held_to_what_tensors_can_count() -> None:
    @dataclasses.dataclass(frozen=True)
    class Theirs:
        size: int = 1

    assert from_json(Theirs, {"size": 1 << 62}).size == 1 << 62
    with pytest.raises(UserError, match="size must be at most"):
        from_json(Theirs, {"size": 1 << 63})
