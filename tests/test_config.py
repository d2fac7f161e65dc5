"""Configs from JSON: unknown keys and wrong types are refused, in words that name the remedy."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from octavo.config import from_json
from octavo.errors import UserError
from octavo.models import MODELS


@dataclass(frozen=True)
class Settings:
    width: int = 1
    rate: float = 0.5
    kind: Literal["near", "far"] = "near"
    limit: int | None = None
    steps: tuple[str, ...] = ()
    loud: bool = False


def test_values_of_the_right_type_are_taken() -> None:
    values = {"width": 3, "rate": 2, "kind": "far", "limit": 7, "steps": ["a", "b"], "loud": True}
    assert from_json(Settings, values) == Settings(3, 2.0, "far", 7, ("a", "b"), True)
    assert type(from_json(Settings, {"rate": 2}).rate) is float
    assert from_json(Settings, {"limit": None}).limit is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 1.0}, "width must be a whole number: width=1.0"),
        ({"width": True}, "width must be a whole number: width=True"),
        ({"width": None}, "width must be a whole number: width=None"),
        ({"rate": "fast"}, "rate must be a finite number: rate='fast'"),
        ({"rate": True}, "rate must be a finite number: rate=True"),
        ({"rate": float("nan")}, "rate must be a finite number: rate=nan"),
        ({"rate": float("inf")}, "rate must be a finite number: rate=inf"),
        ({"rate": 10**400}, "rate must be a finite number"),
        ({"kind": "middle"}, "kind must be one of near, far: kind='middle'"),
        ({"kind": ["near"]}, "kind must be one of near, far"),
        ({"limit": "7"}, "limit must be a whole number: limit='7'"),
        ({"steps": "ab"}, "steps must be a list, each of it a string: steps='ab'"),
        ({"steps": ["a", 1]}, "steps must be a string: steps=1"),
        ({"loud": 1}, "loud must be true or false: loud=1"),
    ],
)
def test_a_wrong_type_is_refused_with_the_value(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        from_json(Settings, values)
    assert str(caught.value).startswith(message)


def test_an_unknown_key_names_the_near_one_or_all() -> None:
    with pytest.raises(UserError, match=r"Settings has no setting 'widht'; did you mean width\?"):
        from_json(Settings, {"widht": 3})
    with pytest.raises(UserError, match=r"has no setting 'zzz'; it has width, rate, kind, limit, steps, loud"):
        from_json(Settings, {"zzz": 3})


@pytest.mark.parametrize("model", MODELS)
def test_every_models_config_survives_json(model: str) -> None:
    config = MODELS[model].config()
    assert from_json(MODELS[model].config, json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_what_is_no_object_is_refused() -> None:
    for values in ([], "width", 3, None):
        with pytest.raises(UserError, match="Settings must be a JSON object"):
            from_json(Settings, values)  # type: ignore[arg-type]
