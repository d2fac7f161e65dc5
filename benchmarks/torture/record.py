"""What a campaign leaves behind: torture.json, report.html and a line for each class."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from octavo.experiments.compare.cost import describe_machine, versions
from octavo.io.files import write_text
from octavo.pages import sections
from torture.campaign import GOALS, Campaign, Finding, Outcome, Tally

WORDS = {
    Outcome.LOST: "Lost: something that was whole before is gone or changed.",
    Outcome.ACCEPTED: "Wrongly accepted: a half-written, damaged or false file was taken for a good one.",
    Outcome.TRACEBACK: "Traceback: octavo did not answer with one line.",
    Outcome.HANG: "Hang: no end within the limit.",
    Outcome.LEFTOVER: "Leftover: temporary files, locks or processes stayed behind.",
    Outcome.OTHER: "Other: a wrong exit code, a result that differs, or a fault of the campaign itself.",
}
NOTHING_TRIED = "none yet: the time went into preparing it; give it more"


def summarise(campaign: Campaign, seconds: float) -> dict[str, Any]:
    """Everything that a campaign has counted and found, as JSON."""
    reached = Counter[str]()
    for tally in campaign.tallies:
        reached[tally.attack.unit] += tally.total
    return {
        "seed": campaign.seed, "jobs": campaign.jobs, "seconds": round(seconds, 1),
        "seconds_asked": round(campaign.seconds, 1), "stopped": campaign.stopped,
        "found": sum(tally.found for tally in campaign.tallies),
        "goals": {unit: {"goal": goal, "reached": reached[unit]} for unit, goal in GOALS.items()},
        "classes": [_class_record(tally) for tally in campaign.tallies],
        "findings": [
            _finding_record(tally, finding) for tally in campaign.tallies for finding in tally.findings.values()
        ],
        "machine": describe_machine("cpu"), "versions": versions(),
    }  # fmt: skip


def _class_record(tally: Tally) -> dict[str, Any]:
    return {
        "name": tally.attack.name, "title": tally.attack.title, "unit": tally.attack.unit, "total": tally.total,
        "outcomes": {str(outcome): tally.counts[outcome] for outcome in Outcome if tally.counts[outcome]},
        "found": tally.found, "seconds": round(tally.seconds, 1), "every_point": tally.complete,
        "not_run": tally.problem,
    }  # fmt: skip


def _finding_record(tally: Tally, finding: Finding) -> dict[str, Any]:
    return {
        "class": tally.attack.name, "outcome": str(finding.result.outcome), "count": finding.count,
        "what": finding.result.what, "command": finding.result.command, "point": finding.point,
        "files": list(finding.result.files), "reproduce": reproduction(tally.attack.name, finding.point),
    }  # fmt: skip


def reproduction(name: str, point: Any) -> str:
    quoted = json.dumps(point, ensure_ascii=False).replace("'", "'\\''")
    return f".venv/bin/python benchmarks/torture --replay {name} '{quoted}'"


def write_record(record: dict[str, Any], out: Path) -> None:
    """torture.json and report.html in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "torture.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_text(out / "report.html", render_report(record))


def duration(seconds: float) -> str:
    """Seconds in words: 5400 as 1 h 30 min."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def render_report(record: dict[str, Any]) -> str:
    found, trials = record["found"], sum(row["total"] for row in record["classes"])
    words = (
        f"nothing was found in {trials:,} trials" if not found else f"{found:,} of {trials:,} trials found something"
    )
    processes = "1 process" if record["jobs"] == 1 else f"{record['jobs']} processes"
    lead = f"{words}. {duration(record['seconds'])}, {processes}, seed {record['seed']}."
    if record["stopped"]:
        lead += " Stopped by the user."
    return sections.render_page("Torture campaign", lead[0].upper() + lead[1:], [
        sections.section("Goals", _goals_table(record)),
        sections.section("Classes", _class_table(record["classes"]), _legend(record["classes"])),
        sections.section("Findings", *map(_finding_article, record["findings"]))
        or sections.section("Findings", sections.paragraph("None.")),
        sections.reproduce([_command(record)]),
        sections.section("Made with", sections.versions(_made_with(record))),
    ])  # fmt: skip


def _made_with(record: dict[str, Any]) -> dict[str, Any]:
    memory = record["machine"].get("memory")
    shown = {} if memory is None else {"memory": f"{memory / 1e9:.1f} GB"}
    return {**record["machine"], **shown, **record["versions"]}


def _command(record: dict[str, Any]) -> str:
    minutes = f"{record['seconds_asked'] / 60:g}"
    classes = ",".join(row["name"] for row in record["classes"])
    return f"make torture MINUTES={minutes} SEED={record['seed']} JOBS={record['jobs']} CLASSES={classes}"


def _goals_table(record: dict[str, Any]) -> Any:
    goals = record["goals"].items()
    rows = [
        (unit, f"{row['goal']:,}", f"{row['reached']:,}", "yes" if row["reached"] >= row["goal"] else "no")
        for unit, row in goals
    ]
    return sections.table(("what", "goal", "tried", "reached"), rows, numeric=(1, 2))


def _class_table(classes: list[dict[str, Any]]) -> Any:
    outcomes = [outcome for outcome in Outcome if outcome == "ok" or any(outcome in row["outcomes"] for row in classes)]
    rows: list[Any] = []
    for row in classes:
        if row["not_run"]:
            rows.append((row["name"], row["title"], f"not run: {row['not_run']}"))
            continue
        counts = [f"{row['outcomes'].get(outcome, 0):,}" for outcome in outcomes]
        every = "all" if row["every_point"] else "sample" if row["total"] else NOTHING_TRIED
        rows.append((row["name"], row["title"], f"{row['total']:,} {row['unit']}", every, *counts,
                     duration(row["seconds"])))  # fmt: skip
    columns = ("class", "what is done", "tried", "points", *outcomes, "time")
    return sections.table(columns, rows, numeric=(2, *range(4, len(columns))), label="Counts by class")


def _legend(classes: list[dict[str, Any]]) -> Any:
    seen = {outcome for row in classes for outcome in row["outcomes"]}
    return sections.bullets(words for outcome, words in WORDS.items() if outcome in seen)


def _finding_article(finding: dict[str, Any]) -> Any:
    times = f", {finding['count']:,} times" if finding["count"] > 1 else ""
    commands = [line for line in (finding["command"], finding["reproduce"]) if line]
    return sections.subsection(
        f"{finding['class']}: {finding['outcome']}{times}", sections.verbatim(finding["what"]),
        sections.verbatim("\n".join(commands)), sections.bullets(map(sections.code, finding["files"])),
    )  # fmt: skip


# ---------------------------------------------------------------------- on the terminal


class Progress:
    """A line for each class on standard error, rewritten as its counts change where that is a terminal."""

    def __init__(self) -> None:
        self.last = 0.0
        self.is_terminal = sys.stderr.isatty()

    def __call__(self, tally: Tally, seconds_left: float | None) -> None:
        import time

        final = seconds_left is None
        pause = 0.2 if self.is_terminal else 15.0
        if not final and time.monotonic() - self.last < pause:
            return
        self.last = time.monotonic()
        line = class_line(tally)
        if seconds_left is not None:
            line += f", {duration(seconds_left)} left"
        if self.is_terminal:
            print(f"\r\033[K{line}", end="\n" if final else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def class_line(tally: Tally) -> str:
    """`kill-train: 812 kills, 2 found (leftover 2), 60 s`."""
    if tally.problem:
        return f"{tally.attack.name}: not run: {tally.problem}"
    found = ", ".join(f"{outcome} {count:,}" for outcome, count in tally.counts.items() if outcome != Outcome.OK)
    words = f"{tally.found:,} found ({found})" if found else "nothing found" if tally.total else NOTHING_TRIED
    return f"{tally.attack.name}: {tally.total:,} {tally.attack.unit}, {words}, {duration(tally.seconds)}"
