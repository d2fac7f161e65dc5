"""Advice that fits a run: only flags that its model has, and nothing that the run did already."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args, get_type_hints

from octavo.core import LanguageModel
from octavo.inspect.doctor.curve import Training
from octavo.models import spec_of

FLAG = re.compile(r"--([a-z][a-z-]*)(?: ([\w.+-]+))?")
GATES = ("a gru or lstm instead of an rnn: their gates keep the way open", "gates in the cell: --cell gru")
LOOKS = ("a longer --attention-window", "attention to every token: --attention full")  # the remedies of a transformer


def settings(model: LanguageModel[Any], training: Training | None) -> dict[str, Any]:
    """Every setting that a flag can change for this model, with the run's own value."""
    found = asdict(model.config)
    if training is not None:
        found |= asdict(training.optim) | asdict(training.loop)
    for name in spec_of(model).unused_settings(model.config):
        del found[name]
    return found


def fitting(advice: Sequence[str], model: LanguageModel[Any], own: Mapping[str, Any]) -> tuple[str, ...]:
    """What of the advice makes sense for a model with its `settings`; each string is one thing to try."""
    spec = spec_of(model)
    return tuple(
        one
        for one in advice
        if ("gru or lstm" not in one or (spec.family == "recurrent" and not spec.has_gates))
        and ("greater --width" not in one or spec.family != "attention")  # whose output grows with it
        and all(
            _is_new(one, name.replace("-", "_"), value, own) and _is_choice(model, name, value)
            for name, value in FLAG.findall(one)
        )
    )


def _is_choice(model: LanguageModel[Any], name: str, value: str) -> bool:
    """Whether a setting of the model that is one of a few words can be this one."""
    known = get_args(get_type_hints(type(model.config)).get(name))
    return not (value and known) or value in known


def _is_new(advice: str, name: str, value: str, own: Mapping[str, Any]) -> bool:
    """Whether the run has the setting, and not yet in the direction that the advice goes."""
    if name.startswith("no_"):
        return bool(own.get(name.removeprefix("no_")))
    if name not in own:
        return False
    if advice.startswith("fewer "):
        return bool(own[name] > 1)
    try:
        number = float(value)
    except ValueError:
        return bool(own[name] != value)
    if name == "patience":  # with any but 0, training stops in time already
        return bool(own[name] == 0)
    return bool(own[name] < number if advice.startswith("more ") else own[name] != number)
