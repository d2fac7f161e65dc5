"""The page of a scaling study: its figures, its power laws and crossing in plain words, and every point."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from octavo.experiments.scale.power_law import CONFIDENCE, MAX_TIMES, MIN_VALUES_FOR_FLOOR, Crossing, Fit, Interval
from octavo.experiments.scale.result import EXTRAPOLATED, ScaleCurve, Scaling, Variable, value_of
from octavo.experiments.table import adaptive_note, page_table
from octavo.io.files import size
from octavo.models import find_spec
from octavo.pages.figures.charts import FittedPoints, law_figure
from octavo.pages.figures.plot import Style, family_colour, number
from octavo.pages.markup import NOTHING
from octavo.pages.sections import paragraph, paragraphs, render_page, reproduce, section

NAMES = {"ngram": "the n-gram", "bag": "the bag", "bigram": "the bigram"}  # of models inside a sentence
OVER = {"text": "text", "parameters": "width", "flops": "training"}
AXES: dict[Variable, str] = {"text": "bytes of training text", "parameters": "parameters", "flops": "training FLOPs"}
HOW = (
    f"A power law is fitted by least squares of relative errors. Its interval ({CONFIDENCE:.0%}) is that of refits to "
    "the law's own values with noise as large as the residuals (parametric bootstrap); with few points it is wide. It "
    "knows nothing of a bend that comes later, so an extrapolation is worth less the further it goes. All training "
    "texts are ends of the same training part, so a longer one contains the shorter ones. The size of a network and "
    "the order of an n-gram are chosen for each length on validation chunks of the training text, never on the text "
    "that the results are of."
)
MARKED = "*: the size that was best on the validation chunks; the law over text goes through it."


def amount(value: float, variable: Variable) -> str:
    """So much text, so many parameters or FLOPs."""
    return size(value) if variable == "text" else number(value)


def summary(scaling: Scaling) -> list[str]:
    """Everything that the laws say, a sentence or two a line."""
    lines = [line for curve in scaling.curves for line in law_lines(curve, scaling)]
    joint = [joint_line(scaling.joint)] if scaling.joint and scaling.joint.whole else []
    return [*lines, *joint, *crossing_lines(scaling), *limit_lines(scaling)]


def law_lines(curve: ScaleCurve, scaling: Scaling) -> list[str]:
    """The law as a formula, how sure it is, and where it leads."""
    who, over = _sentence(NAMES.get(curve.model, curve.model)), OVER[curve.variable]
    if curve.fit is None:
        return [f"{who} has no law over {over}: {curve.why}."]
    fit, x = curve.fit, EXTRAPOLATED * curve.high
    if not fit.falls:
        first, last = (_mean_at(curve, x) for x in (curve.low, curve.high))
        return [
            f"{who}, over {over}{_at_budget(curve, scaling)}: from {first:.3f} to {last:.3f} bits per byte; these "
            f"{fit.points} points are too few, or too scattered, to be sure of a fall."
        ]
    floor = f"floor {_between(fit.floor)}, " if fit.with_floor else ""
    lines = [
        f"{who}, over {over}{_at_budget(curve, scaling)}: bits per byte = {formula(curve)}",
        f"  {floor}exponent {_between(fit.exponent(), 3)}; with {EXTRAPOLATED:.0f} times as much "
        f"({amount(x, curve.variable)}) {fit.law(x):.3f} ({_between(fit.interval(x), 3)}), if the law goes on.",
    ]
    if not fit.with_floor:
        lines[-1] += (
            f" Fewer than {MIN_VALUES_FOR_FLOOR} different values cannot show a floor, so it is taken as 0 and what is "
            "extrapolated is rather too low."
        )
    return lines


def formula(curve: ScaleCurve) -> str:
    """floor + excess × (x / unit)^-exponent."""
    assert curve.fit is not None
    law = curve.fit.law
    floor = f"{law.floor:.3f} + " if curve.fit.with_floor else ""
    unit = amount(law.unit[0], curve.variable)
    return f"{floor}{law.excess[0]:.3f} × ({curve.variable} / {unit})^-{law.exponent[0]:.3f}"


def joint_line(fit: Fit) -> str:
    """The law over parameters N and text D at once."""
    law = fit.law
    (a, b), (alpha, beta), (n, d) = law.excess, law.exponent, law.unit
    return (
        f"Over both: bits per byte = {law.floor:.3f} + {a:.3f} × (parameters / {number(n)})^-{alpha:.3f} + {b:.3f} × "
        f"(text / {size(d)})^-{beta:.3f}; floor {_between(fit.floor)}, exponents {_between(fit.exponent(0), 3)} and "
        f"{_between(fit.exponent(1), 3)}, {fit.points} points, typically missed by {fit.error:.1%}."
    )


def crossing_lines(scaling: Scaling) -> list[str]:
    """Who is ahead where, as measured and by the laws."""
    if scaling.against is None:
        return []
    first, second = scaling.text[scaling.model], scaling.text[scaling.against]
    lengths = sorted({p.bytes for p in first.points} & {p.bytes for p in second.points})
    ahead = [length for length in lengths if _mean_at(first, length) < _mean_at(second, length)]
    model, other = NAMES.get(scaling.model, scaling.model), NAMES.get(scaling.against, scaling.against)
    where = "none" if not ahead else "all" if ahead == lengths else f"{len(ahead)} ({', '.join(map(size, ahead))})"
    lines = [f"As measured, {model} is ahead of {other} at {where} of the {len(lengths)} lengths."]
    if scaling.crossing is not None and first.fit and second.fit:
        falling = first.fit.falls and second.fit.falls
        lines.append(_sentence(crossing_line(scaling.crossing, "text", model, other, falling)))
    training = scaling.training
    if scaling.crossing_by_training is not None and training is not None and training.fit is not None:
        last = max(training.points, key=lambda point: point.flops)
        pace = last.seconds / last.flops
        sentence = crossing_line(scaling.crossing_by_training, "flops", model, other, training.fit.falls, pace)
        lines.append(f"Trained for longer on the whole text, {sentence}")
    return lines


def crossing_line(
    found: Crossing, variable: Variable, model: str, other: str, falling: bool = True, pace: float = 0.0
) -> str:
    """Where two laws meet; `falling`: both surely fall; `pace`: seconds a FLOP takes, to say when."""
    doubt = f" {found.share:.0%} of the refits say so." if found.share < CONFIDENCE else ""
    if not falling and not found.measured:
        return (
            "they do not cross where it was measured, and a law that does not surely fall cannot be extrapolated to "
            "where they might."
        )
    if found.kind == "ahead":
        return (
            f"by the laws {model} is ahead of {other} everywhere within {MAX_TIMES:.0f} times what was measured.{doubt}"
        )
    if found.kind == "behind":
        return (
            f"by the laws {model} does not catch up with {other} within {MAX_TIMES:.0f} times what was measured; "
            f"beyond that any extrapolation is a guess.{doubt}"
        )
    verb = "overtakes" if found.overtakes else "falls behind"
    unit = {"text": " of text", "parameters": " parameters", "flops": " FLOPs"}[variable]
    when = f", {_time(found.at * pace)} here" if pace else ""
    sentence = f"by the laws {model} {verb} {other} at about {amount(found.at, variable)}{unit}{when} "
    sentence += f"({_ends(found, variable)})."
    if found.at > found.high:
        sentence += f" That is {found.at / found.high:.1f} times the most that was measured: an extrapolation."
    elif found.at < found.low:
        sentence += (
            f" That is {found.low / found.at:.1f} times less than the least that was measured: an extrapolation."
        )
    return sentence


def limit_lines(scaling: Scaling) -> list[str]:
    """Whether text or training is what is short."""
    whole = [p for p in scaling.text[scaling.model].points if p.bytes == scaling.text_bytes]
    lines = []
    if whole and whole[0].flops:
        passes = sum(p.passes for p in whole) / len(whole)
        lines.append(f"A budget of {scaling.budget} reads the whole text {passes:.2g} times.")
    text, training = scaling.text[scaling.model].fit, scaling.training.fit if scaling.training else None
    if text is None or training is None:
        return lines
    model = NAMES.get(scaling.model, scaling.model)
    by_text, by_training = (doubled(fit) for fit in (text, training))
    sentence = (
        f"By the laws, twice the text would save {by_text[0]:.3f} bits per byte ({_between(by_text[1], 3)}), twice the "
        f"training {by_training[0]:.3f} ({_between(by_training[1], 3)}): "
    )
    if by_text[1].low > by_training[1].high:
        sentence += f"{model} is limited by text here."
    elif by_training[1].low > by_text[1].high:
        sentence += f"{model} is limited by training here, and its law over text is that of this budget."
    else:
        sentence += "which of them is the limit cannot be said from these points."
    return [*lines, sentence]


def doubled(fit: Fit) -> tuple[float, Interval]:
    """What twice the largest x would save."""
    x = fit.law.unit[0]
    saved = [law(x) - law(2 * x) for law in (fit.law, *fit.refits)]
    return saved[0], Interval.of(saved[1:])


def _mean_at(curve: ScaleCurve, x: float) -> float:
    bits = [y for at, y in curve.xy if at == x]
    return sum(bits) / len(bits)


def _at_budget(curve: ScaleCurve, scaling: Scaling) -> str:
    """A law over text or parameters is that of one budget, where there is one."""
    return f" ({scaling.budget} each)" if curve.variable != "flops" and curve.points[0].flops else ""


def _between(interval: Interval, places: int = 2) -> str:
    return f"{interval.low:.{places}f} to {interval.high:.{places}f}"


def _ends(found: Crossing, variable: Variable) -> str:
    """The interval; where refits do not cross, they do so before or after the searched range."""
    low, high = found.interval.low, found.interval.high
    least = amount(low, variable) if low > 0 else f"below {amount(found.low / MAX_TIMES, variable)}"
    most = amount(high, variable) if math.isfinite(high) else f"beyond {amount(found.high * MAX_TIMES, variable)}"
    return f"{least} to {most}"


def _time(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def _sentence(text: str) -> str:
    """With a capital, but for names of models."""
    return text[0].upper() + text[1:] if text.startswith(("the ", "by ", "they ")) else text


def failure_lines(scaling: Scaling) -> list[str]:
    """Why trainings failed."""
    return [f"{point.model} on {point.bytes:,} bytes failed: {point.error}" for point in scaling.failed]


def scaling_page(scaling: Scaling) -> str:
    """The whole page."""
    models = scaling.model if scaling.against is None else f"{scaling.model} and {scaling.against}"
    lead = (
        f"{len(scaling.points)} trainings, all measured on the same {scaling.held_out_bytes:,} bytes of "
        f"{scaling.corpus} that none of them was trained on. Bits per byte, lower is better."
    )
    curves = [(title, curve) for title, curve in (("More compute", scaling.training),
                                                  ("More parameters", scaling.parameters)) if curve]  # fmt: skip
    joint, notes = scaling.joint, [one for one in (adaptive_note(scaling.rows), MARKED) if one]
    return render_page(f"Scaling: {models} on {scaling.corpus}", lead, [
        section("More text", _text_figure(scaling), _laws(scaling, list(scaling.text.values()))),
        section("Where they cross", paragraphs(crossing_lines(scaling))) if scaling.against is not None else NOTHING,
        *(section(title, _figure(scaling, curve), _laws(scaling, [curve])) for title, curve in curves),
        section("Parameters and text together", paragraph(joint_line(joint))) if joint and joint.whole else NOTHING,
        section("What limits the model", paragraphs(limit_lines(scaling))),
        section("Results", page_table(scaling.rows), *(paragraph(note, quiet=True) for note in notes),
                paragraphs(failure_lines(scaling))),
        section("Method", paragraph(HOW)),
        reproduce([scaling.command]) if scaling.command else NOTHING,
    ])  # fmt: skip


def _laws(scaling: Scaling, curves: list[ScaleCurve]) -> Markup:
    return paragraphs(line for curve in curves for line in law_lines(curve, scaling))


def _text_figure(scaling: Scaling) -> Markup:
    drawn = []
    for model, curve in scaling.text.items():
        taken = set(curve.points)
        others = [(value_of(p, "text"), p.bits) for p in scaling.points
                  if p.model == model and p.budget == 1 and p not in taken]  # fmt: skip
        drawn.append(_fitted(scaling, curve, others))
    return law_figure(drawn, _caption(any(one.others for one in drawn)), (AXES["text"], "bits per byte"), EXTRAPOLATED)


def _figure(scaling: Scaling, curve: ScaleCurve) -> Markup:
    other = scaling.text[scaling.against].points if scaling.against is not None else ()
    whole = [p.bits for p in other if p.bytes == scaling.text_bytes and p.bits_per_byte is not None]
    references = [(f"{scaling.against}, the whole text", bits) for bits in whole[:1]]
    return law_figure(
        [_fitted(scaling, curve)], _caption(), (AXES[curve.variable], "bits per byte"), EXTRAPOLATED, references
    )


def _fitted(scaling: Scaling, curve: ScaleCurve, others: Sequence[tuple[float, float]] = ()) -> FittedPoints:
    """What is drawn of a curve."""
    chosen = ", order chosen for each length" if curve.model == "ngram" else ""
    what = {"flops": ", the whole text, more steps", "parameters": ", the whole text, wider", "text": chosen}
    law, band = (curve.fit.law, curve.fit.interval) if curve.fit is not None else (None, None)
    style = Style(family_colour(find_spec(curve.model).family), list(scaling.text).index(curve.model))
    return FittedPoints(f"{curve.model}{what[curve.variable]}", curve.xy, law, band, others, style)


def _caption(others: bool = False) -> str:
    pale = "; pale ones are other sizes" if others else ""
    return (
        f"Marks are measured{pale}. The line is the fitted law, dashed where it is extrapolated, up to "
        f"{EXTRAPOLATED:.0f} times; the band is its interval ({CONFIDENCE:.0%})."
    )
