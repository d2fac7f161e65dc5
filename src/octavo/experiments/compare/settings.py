"""With which settings each model of a comparison was trained, and the commands that train it longer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from octavo.errors import UserError
from octavo.experiments.compare.rows import CompareRow, Comparison
from octavo.io.files import thousands
from octavo.io.run_folder import CONFIG, read_record
from octavo.pages.markup import NOTHING
from octavo.pages.sections import paragraph, section, table, verbatim
from octavo.tasks.language import TASK
from octavo.tasks.run_page import train_command
from octavo.tasks.run_rows import detail_of, value_at
from octavo.training.schedule import Budget

LONGER = 10  # times the budget
TITLES = ("model", "size", "params", "tokens", "context", "tokens seen", "learning rate")


def settings_section(comparison: Comparison) -> Markup:
    """The section of the page; nothing where no run of the comparison is there."""
    found = {row.model: (row, read_record(path.parent)) for row in comparison
             if row.trained and (path := comparison.file(row.run and f"{row.run}/{CONFIG}"))}  # fmt: skip
    if not found:
        return NOTHING
    rows = [settings_row(row, record) for row, record in found.values()]
    commands = [one for row, record in found.values() if (one := longer_command(row, record, comparison.folder))]
    longer = (
        paragraph(
            f"To train one of them {LONGER} times as long, as a run of its own (octavo list and octavo eval show it "
            "beside the others); octavo compare with a larger --budget and another --out does so with all of them:"
        ),
        verbatim("\n".join(commands)),
    )
    sizes = [paragraph(f"{row.model} was given a size for this device and budget: {row.chosen}.")
             for row, _ in found.values() if row.chosen]  # fmt: skip
    settings = table(TITLES, rows, numeric=(2, 5, 6), row_headers=True)
    return section("Settings", settings, *sizes, *(longer if commands else ()))


def settings_row(row: CompareRow, record: Mapping[str, Any]) -> tuple[str, ...]:
    """A model's size, tokenizer, context, the tokens it has seen and its learning rate."""
    seen = record.get("train_tokens")
    epochs = value_at(record, "training.steps_per_epoch") and (
        f", {value_at(record, 'training.steps') / value_at(record, 'training.steps_per_epoch'):.1f} epochs"
    )
    return (
        row.model, detail_of({**record, "training": {}}), "" if row.parameters is None else thousands(row.parameters),
        f"{row.tokenizer}, {thousands(record['vocab'])}" if isinstance(record.get("vocab"), int) else row.tokenizer,
        f"the last {thousands(row.context)} tokens" if row.context else row.policy,
        "" if seen is None else f"{thousands(seen)}{epochs or ''}", learning_rate(record),
    )  # fmt: skip


def learning_rate(record: Mapping[str, Any]) -> str:
    """At its highest; Muon has one for matrices and one for all else."""
    optimizer = value_at(record, "training.optimizer")
    if not isinstance(optimizer, Mapping):
        return "" if (rate := value_at(record, "config.learning_rate")) is None else f"{rate:g}"
    rate, matrices = (optimizer.get(key) for key in ("learning_rate", "muon_learning_rate"))
    return f"{rate:g}, matrices {matrices:g} ({optimizer['optimizer']})" if optimizer["optimizer"] == "muon" else (
        f"{rate:g} ({optimizer['optimizer']})"
    )  # fmt: skip


def longer_command(row: CompareRow, record: Mapping[str, Any], folder: Path | None) -> str:
    """octavo train with the same settings and a larger budget; nothing for what is not trained step by step."""
    try:
        recipe = TASK.recipe_of(record)
    except UserError:
        return ""
    assert folder is not None
    budget = Budget.parse(recipe.loop.budget)
    unit = {"seconds": "s"}.get(budget.kind, budget.kind)
    longer = recipe.replace(loop=replace(recipe.loop, budget=f"{LONGER * budget.amount:.9g}{unit}"))
    out = folder.with_name(f"{folder.name}-longer") / row.model
    return train_command(TASK, longer, record["corpus"]["source"], out)
