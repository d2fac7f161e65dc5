"""Models of installed packages: the entry-point group `octavo.models`, each entry naming a ModelSpec."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from octavo.models.spec import ModelSpec

GROUP = "octavo.models"


def load_plugins(built_in: Mapping[str, ModelSpec]) -> dict[str, ModelSpec]:
    """The specs of installed packages by name. One that is broken, or takes a name that is taken, is left out with one
    line on standard error: octavo works without it."""
    taken = {*built_in, *(preset for spec in built_in.values() for preset in spec.presets)}
    found: dict[str, ModelSpec] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            spec = _load(entry)
            names = {spec.name, *spec.presets}
            if names & taken:
                raise ValueError(f"the name {', '.join(sorted(names & taken))} is taken; choose another")
        except Exception as error:  # whatever a foreign package raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"octavo: the model {entry.name} of the package {_package(entry)} is left out: {reason}",
                  file=sys.stderr)  # fmt: skip
            continue
        found[spec.name] = spec
        taken |= names
    return found


def _load(entry: EntryPoint) -> ModelSpec:
    spec = entry.load()
    if not isinstance(spec, ModelSpec):
        raise TypeError(f"{entry.value} must be a ModelSpec, not a {type(spec).__name__}")
    return spec


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
