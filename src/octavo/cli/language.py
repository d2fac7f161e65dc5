"""What is told of a language model that was trained."""

from __future__ import annotations

from typing import Any

from octavo.cli.output import print_json
from octavo.tasks.run import Run


def report(run: Run, json: bool) -> None:
    """How it was trained and what it scores."""
    result = run.record.get("result")
    if json:
        print_json({"run": str(run.path), "train_seconds": run.record["train_seconds"], **(result or {})})
        return
    print(f"{run.summary()}")
    tokens, seconds = run.record["train_tokens"], run.record["train_seconds"]
    print(f"trained on {tokens:,} tokens in {seconds:.2f} s" + _why(run.record.get("training", {}), tokens, seconds))
    if result and result["bits_per_byte"] is None:
        print(
            f"{result['impossible']:,} of {result['tokens']:,} held-out tokens have probability zero; smooth the model"
        )
    print(f"the run is in {run.path}; next:")
    print(f"  octavo eval {run.path} FILE\n  octavo generate {run.path} --max-tokens 200\n  octavo inspect {run.path}")


def _why(training: dict[str, Any], tokens: int, seconds: float) -> str:
    """How fast a model was trained, and why it ended."""
    if not training:
        return ""
    return f", {training['steps']:,} steps, {tokens / max(seconds, 1e-9):,.0f} tokens/s: {training['why']}"
