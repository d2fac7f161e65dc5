"""Models of installed packages: the entry-point group `octavo.models`, each entry naming a ModelSpec."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.io.plugins import load_plugins
from octavo.models.spec import ModelSpec


def load_models(built_in: Mapping[str, ModelSpec]) -> dict[str, ModelSpec]:
    """The specs of installed packages by name; one that is broken, or takes a name that is taken, is left out."""
    taken = {*built_in, *(preset for spec in built_in.values() for preset in spec.presets)}

    def check(spec: object, name: str) -> ModelSpec:
        if not isinstance(spec, ModelSpec):
            raise TypeError(f"{name} must be a ModelSpec, not a {type(spec).__name__}")
        names = {spec.name, *spec.presets}
        if names & taken:
            raise ValueError(f"the name {', '.join(sorted(names & taken))} is taken; choose another")
        taken.update(names)
        return spec

    return {spec.name: spec for spec in load_plugins("octavo.models", "model", check).values()}
