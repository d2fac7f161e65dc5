"""The laws, run on every registered model: a model that is not among the examples fails here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from examples import examples
from laws import LAWS, LENGTHS, logp, tokens
from octavo.core import LanguageModel
from octavo.models import build, describe, language_models

EXAMPLES = examples()
CASES = [pytest.param(m, id=f"{name}:{v}") for name, variants in EXAMPLES.items() for v, m in variants.items()]


def test_every_registered_model_has_an_example() -> None:
    assert set(EXAMPLES) == {spec.name for spec in language_models()}


@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Callable[[LanguageModel[Any], int], None], model: LanguageModel[Any]) -> None:
    for length in LENGTHS:
        law(model, length)


@pytest.mark.parametrize("model", CASES)
def test_saved_and_loaded_models_answer_identically(model: LanguageModel[Any]) -> None:
    again = build(describe(model), model.state_dict()).requires_grad_(False)  # with a gradient other kernels may serve
    x_BT = tokens(model, 2, 63)
    assert torch.equal(logp(again, x_BT), logp(model, x_BT))


def test_a_model_must_define_step_or_absorb() -> None:
    class Empty(LanguageModel[None]):
        def start(self, batch: int) -> None:
            return None

    with pytest.raises(NotImplementedError, match="Empty must define step or absorb"):
        Empty().step(None, torch.zeros(1, dtype=torch.long))
