"""The public functions inspect and doctor: what a run is, what it makes of a text, and whether its loss is normal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from octavo.config import plain_json, rounded
from octavo.errors import UserError
from octavo.inspection.adaptation import adaptation_json
from octavo.inspection.attention_maps import heads_of
from octavo.inspection.doctor import Diagnosis, examine
from octavo.inspection.gradient_flow import Flow, Norms, in_words, rate
from octavo.inspection.inspection import Inspection, has_inspection, inspect_run, shortest_text
from octavo.inspection.page import gradient_flow_section, inside_section, labels, surprisal_section, theory
from octavo.inspection.surprisal import Surprise, surprises
from octavo.inspection.token_tables import part_summaries, summary_table
from octavo.io.files import thousands
from octavo.io.run_folder import SAMPLES
from octavo.models import name_of, parameter_count, spec_of
from octavo.models.views import TokenTable, View
from octavo.pages.sections import details, facts, notebook_view, paragraph
from octavo.tasks.adaptive import adaptive_run
from octavo.tasks.api import open_run
from octavo.tasks.classifier import Classifier
from octavo.tasks.device import EXAMINED, VIEWS, place
from octavo.tasks.run import Run
from octavo.tasks.trained_run import TrainedRun
from octavo.tasks.translation_alignment import align
from octavo.tasks.translator import Translator
from octavo.tasks.word_contributions import explain
from octavo.text.preprocess import apply

DIGITS = 4  # of the gates' values in JSON
MAX_MAPPED_TOKENS = 64  # tokens whose maps are in JSON: as many numbers as that squared, halved, for each head
SHOWN = ("tokenizer", "vocab", "parameters", "bytes", "ngrams", "sizes", "labels", "languages", "train_seconds",
         "train_tokens", "seed")  # fmt: skip
COUNTS = ("vocab", "parameters", "bytes", "train_tokens")
SAMPLE_CHARACTERS = 400  # of what a run wrote, where it is described


@dataclass(frozen=True, repr=False)
class RunDescription:
    """What a run is: its model, its size, its data, its training."""

    run: Any
    record: dict[str, Any]

    @property
    def sample(self) -> str:
        """The beginning of what the model wrote after its training; empty where nothing was kept."""
        path = self.run.path and self.run.path / SAMPLES
        if not path or not path.is_file():
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(SAMPLE_CHARACTERS)

    def values(self) -> dict[str, Any]:
        """What is worth showing, by name."""
        found = {key: self.record[key] for key in SHOWN if key in self.record}
        return {key: thousands(value) if key in COUNTS else value for key, value in found.items()}

    def to_json(self) -> dict[str, Any]:
        """The whole record, as plain JSON values."""
        record: dict[str, Any] = plain_json(self.record)
        return record

    def __repr__(self) -> str:
        return f"<octavo run {self.run.name!r}: {self.run.summary()}>"

    def _repr_html_(self) -> str:
        values = [(name.replace("_", " "), str(value)) for name, value in self.values().items()]
        return notebook_view(paragraph(self.run.summary()), facts(values))


@dataclass(frozen=True, repr=False)
class TextInspection:
    """What runs show of themselves while they read a text."""

    text: str
    runs: tuple[Run, ...]
    surprisal: tuple[Surprise, ...]
    """Of a single run: every token with its cost in bits, its rank and what was expected."""
    bytes: int
    inspections: tuple[Inspection, ...]
    """Gates, attention, logit lens and gradient flow of each run that has them."""

    @property
    def bits(self) -> float:
        """What the text costs the single run."""
        return sum(one.bits for one in self.surprisal)

    def to_json(self) -> dict[str, Any]:
        """Everything that the views show; attention maps are over the first tokens."""
        found = inspections_json(self.inspections, self.text) if self.inspections else {"runs": []}
        return found | ({"surprisal": plain_json(self.surprisal)} if len(self.runs) == 1 else {})

    def __repr__(self) -> str:
        names = ", ".join(run.name for run in self.runs)
        if len(self.runs) > 1:
            return f"<octavo inspection of {names} over {self.bytes:,} bytes>"
        cost = f"{len(self.surprisal):,} tokens, {self.bits:.1f} bits for {self.bytes:,} bytes"
        return f"<octavo inspection of {names}: {cost}>"

    def _repr_html_(self) -> str:
        named = zip(labels(self.inspections), self.inspections, strict=True)
        parts = [inside_section(one, name) for name, one in named]
        if any(one.flow for one in self.inspections):
            parts.append(gradient_flow_section(self.inspections))
        if len(self.runs) == 1:
            tokens = surprisal_section(self.surprisal, f"{self.runs[0].name} reads")
            parts.append(details("Token by token: cost, rank and what was expected", tokens) if parts else tokens)
        return notebook_view(*parts)


def inspect(
    run: Any, text: str | None = None, *, back: int | None = None, adaptive: bool = False,
    adaptive_learning_rate: float | None = None, adaptive_segment: int | None = None, device: str = "auto",
) -> Any:  # fmt: skip
    """Look inside a run: what it is, or with a text, what it makes of every token.

    Args:
        run: A run of any task, or the path of its folder; with a text also several language models, side by side.
        text: A short text to read. Without one, the run is described.
        back: How many steps the gradient is followed back; by default half of the text, and at most 40.
        adaptive: Let a network learn while it reads the text.
        adaptive_learning_rate: Of that; without it, the same as of `evaluate`.
        adaptive_segment: Tokens read between two steps of that.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        Without a text, a description of the run. Of a language model with a text, the surprisal of each token and the
        views of the model: gates, attention, logit lens, gradient flow, back-off or Viterbi path; of one that learns
        while it reads, the cost of the text at a first and at a second reading, and beside it that of fixed models. Of
        a classifier, what each word contributed; of a translator, the alignment. Each is shown as HTML by a notebook
        and has `to_json()`.

    Raises:
        UserError: The text is empty, or there is nothing to show of this run.

    Examples:
        >>> octavo.inspect("runs/kn3")
        <octavo run 'kn3': ngram (order 3, ...
        >>> seen = octavo.inspect("runs/kn3", "to be")
        >>> [one.token for one in seen.surprisal]
        ['t', 'o', '␣', 'b', 'e']
        >>> round(seen.bits, 3) == round(octavo.evaluate("runs/kn3", "to be").bits, 3)
        True
    """
    runs = [open_run(one) for one in (run if isinstance(run, list | tuple) else [run])]
    if not runs or not all(isinstance(one, TrainedRun) for one in runs):
        raise UserError(f"inspect needs runs, or the paths of their folders: {run!r}; get one with octavo.load(PATH)")
    if adaptive or adaptive_learning_rate is not None or adaptive_segment is not None:
        runs = [_adaptive(one, text, adaptive, adaptive_learning_rate, adaptive_segment) for one in runs]
    if text is None:
        if len(runs) > 1 or back is not None:
            raise UserError("there must be a text for several runs and for back; give one, such as 'To be, or not'")
        return describe_run(runs[0])
    for one in runs:
        place(one, device, VIEWS * len(text))
    if len(runs) == 1 and isinstance(runs[0], Classifier):
        return explain(runs[0], [text], [None])[0]
    if len(runs) == 1 and isinstance(runs[0], Translator):
        return align(runs[0], text)
    for one in runs:
        if not isinstance(one, Run):
            raise UserError(f"{one.name} does not read texts token by token: it is a run of {one.task}; leave it out")
    return inspect_text(runs, text, back)


def _adaptive(run: Any, text: str | None, adaptive: bool, learning_rate: float | None, segment: int | None) -> Run:
    """The run with a network that learns while it reads the text."""
    if text is None or not isinstance(run, Run):
        what = "there is no text" if text is None else f"{run.name} is a run of {run.task}"
        raise UserError(f"adaptive is for language models that read a text: {what}; leave it out")
    return adaptive_run(run, adaptive, learning_rate, segment)


def inspect_text(runs: Sequence[Run], text: str, back: int | None = None) -> TextInspection:
    """The surprisal of a text's tokens under a single run, and the views of every run."""
    first = runs[0]
    data = apply(first.record.get("preprocess", ()), text.encode("utf-8", "surrogateescape"))
    alone = len(runs) == 1
    tokens = tuple(surprises(first.model, first.tokenizer, data)) if alone else ()
    shortest = shortest_text(first.model)
    if alone and back is None and not (has_inspection(first) and len(tokens) >= shortest):
        return TextInspection(text, tuple(runs), tokens, len(data), ())
    return TextInspection(text, tuple(runs), tokens, len(data), tuple(inspect_run(run, text, back) for run in runs))


def describe_run(run: Any) -> RunDescription:
    """What a run of any task is: its model, its size, its data, its training."""
    tensors = run.model.state_dict()
    record = {
        "run": str(run.path), **run.description(), "parameters": parameter_count(run.model),
        "bytes": sum(t.numel() * t.element_size() for t in tensors.values()),
        **{key: value for key, value in run.record.items() if key != "parameters"},
    }  # fmt: skip
    if isinstance(run, Run):
        record |= {"tokenizer": run.tokenizer.name, "vocab": run.tokenizer.vocab}
        if spec_of(run.model).entries == "n-grams":
            model: Any = run.model
            record["ngrams"] = model.sizes()
    return RunDescription(run, record)


def doctor(run: TrainedRun | str | Path, *, quick: bool = False, device: str = "auto") -> Diagnosis:
    """Is my loss normal? Examine the training of a run, and say what is unusual and what to try.

    Args:
        run: A run of any task, or the path of its folder.
        quick: Leave out the bag and the n-grams, which have to be counted.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        The diagnosis: a `verdict`, and `findings` with what was measured, what was expected, and advice.

    Raises:
        UserError: There is no such run.

    Examples:
        >>> diagnosis = octavo.doctor("runs/gru", quick=True)
        >>> {one.verdict for one in diagnosis.findings} <= {"ok", "note", "warning", "not applicable"}
        True
    """
    return examine(place(open_run(run), device, EXAMINED), quick)


# ---------------------------------------------------------------------- as JSON


def inspections_json(inspections: Sequence[Inspection], text: str) -> dict[str, Any]:
    """Everything that the views of the runs show."""
    flows = any(one.flow for one in inspections)
    return {
        "text": text.encode("utf-8", "backslashreplace").decode(),
        "runs": [
            {"run": one.name, "model": name_of(one.run.model), "adaptive": one.run.model.adaptive,
             "tokens": list(one.tokens), "truncated": one.truncated,
             **rounded(_views_as_json(one), DIGITS), **_flow_as_json(one.flow)}
            for one in inspections
        ],
        "theory": [{"scale": scale, "activation": activation, **_norms(norms)}
                   for scale, activation, norms in (theory(inspections) if flows else ())],
    }  # fmt: skip


def _views_as_json(one: Inspection) -> dict[str, Any]:
    """Gates token by token; heads token by token and as means, with their maps, whose row t has t + 1 weights, of
    several heads over the first tokens; and of each layer its predictions and what the tokens cost there."""
    found: dict[str, Any] = {"gates": [
        {"layer": row.layer, "gate": row.name, "mean": row.mean.tolist(), "low": row.low.tolist(),
         "high": row.high.tolist()}
        for row in one.rows
    ]}  # fmt: skip
    if one.maps is not None:
        heads, tokens = heads_of(one.maps), len(one.maps.visible_T)
        mapped = tokens if len(heads) == 1 else min(MAX_MAPPED_TOKENS, tokens)
        found |= {"mapped_tokens": mapped, "visible": one.maps.visible_T.tolist(), "heads": [
            {"layer": head.layer, "head": head.head, "entropy": head.entropy, "entropy_share": head.spread,
             "distance": head.distance, "to_itself": head.itself, "to_previous": head.previous, "to_begin": head.first,
             "kind": head.kind or None, "entropies": head.entropies.tolist(), "distances": head.distances.tolist(),
             "map": [row[: t + 1] for t, row in enumerate(head.a_TS[:mapped, :mapped].tolist())]}
            for head in heads
        ]}  # fmt: skip
    if one.adaptation is not None:
        found["adaptation"] = plain_json(adaptation_json(one.adaptation))
    if one.tables:
        found["tables"] = plain_json([_table_as_json(view, table) for view, table in one.tables])
    if one.experts is not None:
        found["experts"] = {
            "parts": plain_json([{"name": part.name, "won": part.won, "bits_per_token": part.bits}
                                 for part in part_summaries(one.experts)]),
            "best": [one.experts.parts[int(detail.shade)] for detail in one.experts.details],
            "bits": plain_json([detail.part_bits for detail in one.experts.details]),
        }  # fmt: skip
    if one.layers:
        found["logit_lens"] = [
            {"depth": layer.depth, "name": layer.name, "bits_per_token": layer.bits, "accuracy": layer.right,
             "bits": layer.bits_N.tolist(), "predicted": [one.spell(token) for token in layer.top_N.tolist()],
             "probability": layer.p_N.tolist()}
            for layer in one.layers
        ]  # fmt: skip
    return found


def _table_as_json(view: View, table: TokenTable) -> dict[str, Any]:
    """What a view says of each token, and of the whole text."""
    details = [
        {"title": one.title, "rows": one.rows, "shares": one.shares, "notes": one.notes} for one in table.details
    ]
    summary = summary_table(table)
    return {
        "view": view.name, "title": view.title, "columns": table.columns, "details": details, "outro": table.outro,
        "summary": asdict(summary) if summary else None,
    }  # fmt: skip


def _flow_as_json(flow: Flow | None) -> dict[str, Any]:
    if flow is None:
        return {}
    return {"gradient_flow": {
        "back": flow.back, "losses": flow.ends, **_norms(flow.norms),
        "parts": {name: _norms(norms) for name, norms in flow.parts.items()},
        **({"layers": flow.depths} if flow.depths else {}),
    }}  # fmt: skip


def _norms(norms: Norms) -> dict[str, Any]:
    return {"norms": norms, "factor_per_step": rate(norms), "summary": in_words(rate(norms))}
