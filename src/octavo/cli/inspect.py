"""octavo inspect."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.inspect_text import as_json, check_several, inspect_together, print_inspections
from octavo.cli.output import note, print_json, print_table
from octavo.inspect.gradient_flow import SHORTEST
from octavo.inspect.inspection import has_inspection, inspect_run
from octavo.inspect.surprisal import surprises
from octavo.models import describe, name_of, spec_of
from octavo.scoring.bits_per_byte import finite
from octavo.tasks.run import SAMPLES, Run, load
from octavo.text.preprocess import apply

RunPaths = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...")]


def inspect(
    runs: RunPaths, text: str | None = None, out: str | None = None, back: int | None = None, json: bool = False
) -> None:
    """What a run is; with --text, the surprisal of each token, and the model's views: gates, attention, gradient flow.

    Several runs are set side by side: their gates, or what their heads attend to and what each layer would predict
    (the logit lens); and how much of the loss's gradient arrives t steps back. --out or --back ask for the same of one
    run. With --json, attention maps are over the first 64 tokens.

    Example: octavo inspect runs/kn7 --text "to be or not to be"

    Args:
        runs: A run folder, or several.
        text: A short text to read token by token.
        out: Where to write a page with the figures, such as lens.html.
        back: How many steps to follow the gradient back; by default half of the text, and at most 40.
        json: Print JSON.
    """
    check_several(runs, text, out, back)
    loaded = [load(run) for run in runs]
    if text is None:
        _print_run(loaded[0], json)
    elif len(runs) > 1 or out is not None or back is not None:
        inspect_together(loaded, text, out, back, json)
    else:
        _print_tokens(loaded[0], text, json)


def _print_tokens(run: Run, text: str, json: bool) -> None:
    """The surprisal of each token, and the model's views."""
    data = apply(run.record.get("preprocess", ()), text.encode("utf-8", "surrogateescape"))
    tokens = surprises(run.model, run.tokenizer, data)
    inspected = has_inspection(run)
    if json:
        each = [dataclasses.asdict(one) | {"bits": finite(one.bits)} for one in tokens]
        found = as_json([inspect_run(run, text)], text) if inspected and len(tokens) >= SHORTEST else {"runs": []}
        print_json(found | {"surprisal": each})
        return
    rows = [
        (one.token, f"{one.bits:.2f}", str(one.rank), "" if one.context is None else str(one.context),
         "  ".join(f"{token} {p:.0%}" for token, p in one.candidates))
        for one in tokens
    ]  # fmt: skip
    print_table(("token", "bits", "rank", "context used", "expected"), rows, left=(0, 4))
    print(f"{sum(one.bits for one in tokens):.1f} bits for {len(data)} bytes")
    if inspected and len(tokens) < SHORTEST:
        note(f"gates, attention and gradients need a text of at least {SHORTEST} tokens: this has {len(tokens)}")
    elif inspected:
        print()
        print_inspections([inspect_run(run, text)])
    else:
        views = ", ".join(view.title.lower() for view in spec_of(run.model).views) or "no views"
        note(f"a {name_of(run.model)} has no gates, attention or gradient flow; in the studio: {views}")


def _print_run(run: Run, json: bool) -> None:
    tensors = run.model.state_dict()
    record = {
        "run": str(run.path), **describe(run.model), "tokenizer": run.tokenizer.name,
        "vocab": run.tokenizer.vocab, "parameters": sum(t.numel() for t in tensors.values()),
        "bytes": sum(t.numel() * t.element_size() for t in tensors.values()), **run.record,
    }  # fmt: skip
    if "arpa" in spec_of(run.model).exports:
        model: Any = run.model
        record["ngrams"] = model.sizes()
    if json:
        print_json(record)
        return
    print(run.summary())
    for key in ("tokenizer", "vocab", "parameters", "bytes", "ngrams", "train_seconds", "train_tokens", "seed"):
        if key in record:
            print(f"  {key:<15}{record[key]}")
    corpus = record.get("corpus", {})
    for part in ("train", "valid"):
        if {"bytes", "sha256"} <= set(corpus.get(part, ())):
            print(f"  {part:<15}{corpus[part]['bytes']:,} bytes, sha256 {corpus[part]['sha256'][:16]}")
    if run.path is not None and (run.path / SAMPLES).is_file():
        print("\nit writes:\n" + (run.path / SAMPLES).read_text(encoding="utf-8", errors="replace")[:400])
