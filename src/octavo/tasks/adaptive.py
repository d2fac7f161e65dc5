"""Runs whose model goes on learning while it reads: what --adaptive makes of a trained run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.errors import UserError
from octavo.tasks.run import Run


def adaptive_run(run: Run, adaptive: bool, learning_rate: float | None = None, segment: int | None = None) -> Run:
    """The run with its model adaptive, where that is asked for; settings without it are refused."""
    from octavo.models.dynamic_evaluation import AdaptiveConfig, adapted

    given: dict[str, Any] = {"learning_rate": learning_rate, "segment": segment}
    given = {name: value for name, value in given.items() if value is not None}
    if not adaptive:
        if given:
            shown = ", ".join(f"adaptive_{name}={value}" for name, value in given.items())
            raise UserError(f"{shown} belongs to scoring with --adaptive; give that too, or leave it out")
        return run
    try:
        adaptation = AdaptiveConfig(**given) if given else None
    except UserError as error:  # which names the setting, and not the flag
        raise UserError(str(error).replace("try --", "try --adaptive-")) from error
    return replace(run, model=adapted(run.model, adaptation))
