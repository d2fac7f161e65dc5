"""octavo scale: how a model gets better with more text, and where it passes another."""

from __future__ import annotations

import dataclasses
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.cli.flags import Corpora, run_command
from octavo.cli.output import note, print_json, print_table, size
from octavo.experiments.scale import Scaling
from octavo.experiments.scale.plan import BUDGET, CHECKS, QUICK, QUICK_BUDGET, Plan
from octavo.experiments.scale.power_law import LEVEL
from octavo.experiments.scale.run import HELD_OUT, scale
from octavo.experiments.scale.wording import summary
from octavo.models import find_spec, preset
from octavo.tasks.count_training import TextConfig
from octavo.tasks.run import REPORT
from octavo.tasks.run_facts import number
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

WIDE = 79  # letters of a line


def run_scale(argv: list[str]) -> None:
    """scale takes the model's name first; its config decides the other flags."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: octavo scale MODEL CORPUS [flags]       octavo scale MODEL --help shows the model's flags\n")
        print("Trains MODEL and an n-gram at several lengths of text, fits power laws with their intervals, and says")
        print("where the two cross. Stopped, the same command goes on.\n")
        print("example: octavo scale gpt shakespeare --quick --out runs/scale-quick")
        print("example: octavo scale gpt shakespeare --budget 20s --out runs/scale")
        return
    run_command(_scale(argv[0], argv), f"octavo scale {argv[0]}", argv[1:])


@dataclass(frozen=True)
class SeriesFlags:
    """The series."""

    against: str = "auto"
    """The model to compare with. auto: an n-gram whose order is chosen for each length; none: nothing."""
    lengths: tuple[float, ...] = ()
    """Shares of the training text to learn from; else 1/16, 1/8, 1/4, 1/2 and 1."""
    sizes: tuple[float, ...] = ()
    """Shares of a network's width; else 1/4, 1/2 and 1."""
    budgets: tuple[float, ...] = ()
    """Shares of the budget, for the whole network on the whole text; else 1/8, 1/4, 1/2 and 1."""
    seeds: int = 1
    """Train every network so often, from other first weights: narrower intervals."""
    seed: int = 0
    """The first of the seeds."""
    held_out: int = HELD_OUT
    """Measure on so many bytes of the held-out text at most."""
    device: str = "auto"
    """auto, cpu or cuda."""
    quick: bool = False
    """Fewer and shorter trainings, 3 s each: a look in about a minute."""
    json: bool = False
    """Print JSON."""


def _scale(model: str, argv: list[str]) -> Callable[..., None]:
    """The verb with the flags of a model."""
    kind, usual = preset(model)
    folder, command = f"runs/scale-{model}", shlex.join(["octavo", "scale", *argv])
    asked = LoopConfig(budget=QUICK_BUDGET if "--quick" in argv else BUDGET, evaluations=CHECKS)
    order_given = any(word.split("=")[0] == "--order" for word in argv)  # also where it is the usual one

    def of_network(
        corpus: Corpora,
        config: Any = usual,
        loop: LoopConfig = asked,
        optim: OptimizerConfig = OptimizerConfig(),  # noqa: B008
        text: TextConfig = TextConfig(),  # noqa: B008
        series: SeriesFlags = SeriesFlags(),  # noqa: B008
        out: str = folder,
    ) -> None:
        told = {**_changed(config, usual), **_changed(loop, asked), **_changed(optim), **_changed(text)}
        _run(model, corpus, {"budget": loop.budget, **told}, series, out, command)

    def of_counts(
        corpus: Corpora,
        config: Any = usual,
        text: TextConfig = TextConfig(),  # noqa: B008
        series: SeriesFlags = SeriesFlags(),  # noqa: B008
        out: str = folder,
    ) -> None:
        told = {**_changed(config, usual), **_changed(text), **({"order": config.order} if order_given else {})}
        _run(model, corpus, told, series, out, command)

    verb: Callable[..., None] = of_network if find_spec(kind).trained_by_gradient else of_counts
    verb.__annotations__["config"] = type(usual)  # the flags come from its fields
    verb.__doc__ = f"""Train at several lengths of text, fit power laws, and say where the model passes an n-gram.

    Example: octavo scale {model} shakespeare --quick --out runs/scale-quick

    Stopped (Ctrl-C) or killed, the same command goes on; at most one training is lost.

    Args:
        corpus: A named source (octavo data list), a file, several, or a folder.
        config: The model; of a network, the largest of the series.
        loop: How long each training lasts, and in what pieces.
        optim: How the weights are changed.
        text: The text and its tokens.
        series: What is trained.
        out: The folder for the points, the result and the page.
    """
    return verb


def _changed(config: Any, usual: Any = None) -> dict[str, Any]:
    """The settings that are not the usual ones."""
    usual = type(config)() if usual is None else usual
    told = {one.name: getattr(config, one.name) for one in dataclasses.fields(config)}
    return {name: value for name, value in told.items() if value != getattr(usual, name)}


def _run(
    model: str, corpus: tuple[str, ...], settings: dict[str, Any], flags: SeriesFlags, out: str, command: str
) -> None:
    usual = QUICK if flags.quick else Plan()
    given = {name: value for name in ("lengths", "sizes", "budgets") if (value := getattr(flags, name))}
    found = scale(
        model, list(corpus), against=flags.against, plan=dataclasses.replace(usual, **given, seeds=flags.seeds),
        seed=flags.seed, device=flags.device, held_out=flags.held_out, out=out, tell=note, command=command, **settings,
    )  # fmt: skip
    for line in found.notes:
        note(line)
    if flags.json:
        print_json(found.to_json())
        return
    print(f"All are measured on the same {found.held_out_bytes:,} bytes that none of them learnt from.\n")
    _print_points(found)
    print("\n*: the size that was best on pieces held out of the text to learn from\n" if _networks(found) else "")
    for line in summary(found):
        print(textwrap.fill(line, WIDE, subsequent_indent="  "))
    if any(curve.fit is not None for curve in found.curves):
        print(f"\nIn brackets, and of floor and exponent: intervals of {LEVEL:.0%}.")
    print(f"The page with the figures: {Path(out) / REPORT}")


def _networks(found: Scaling) -> bool:
    return any(point.operations for point in found.points)


def _print_points(found: Scaling) -> None:
    taken = {point for curve in found.text.values() for point in curve.points}
    networks, seeds = _networks(found), len({point.seed for point in found.points}) > 1
    rows = []
    for p in found.points:
        how = (f"{p.budget:g}", f"{p.passes:.2g}") if p.operations else ("", "")
        star = " *" if p in taken and p.operations else "  "
        rows.append((
            p.model, size(p.bytes), p.shape, f"{p.parameters:,}", *(how if networks else ()), f"{p.seconds:.1f}",
            *((str(p.seed),) if seeds else ()), number(p.bits) + (star if networks else ""),
        ))  # fmt: skip
    titles = ["model", "text", "size", "parameters", *(("budget", "passes") if networks else ()), "train s"]
    titles += [*(("seed",) if seeds else ()), "bits/byte  " if networks else "bits/byte"]
    print_table(titles, rows, left=(0, 2))
