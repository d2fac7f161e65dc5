"""octavo inspect and list."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from octavo.cli.lens import as_json, check_several, lens, print_lens
from octavo.cli.show import note, print_json, print_table, size
from octavo.errors import UserError
from octavo.exchange import is_foreign
from octavo.lens.gradients import SHORTEST, has_gradient
from octavo.lens.look import look
from octavo.lens.surprisal import surprises
from octavo.models import GPT, NGram, describe
from octavo.run import SAMPLES, TENSORS, Run, find_runs, load, read_record
from octavo.scoring.bits import finite
from octavo.text.preprocess import apply

RUNS = "runs"
RunPaths = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...")]


def inspect(
    runs: RunPaths, text: str | None = None, out: str | None = None, back: int | None = None, json: bool = False
) -> None:
    """What a run is; with --text, how the model saw each token of it coming, and what a network did inside.

    Several networks (rnn, gru, lstm, rnn-attention, gpt) are set side by side: their gates, or what their heads look at
    and what each layer would predict; and how much of the loss's gradient arrives t steps back. --out or --back ask for
    the same of one run. With --json, maps of attention are over the first 64 tokens.

    Example: octavo inspect runs/kn7 --text "to be or not to be"

    Args:
        runs: A run folder, or several.
        text: A short text to look at token by token.
        out: Where to write a page with the figures, such as lens.html.
        back: How many steps to follow the gradient back; by default half of the text, and at most 40.
        json: Print JSON.
    """
    check_several(runs, text, out, back)
    loaded = [load(run) for run in runs]
    if text is None:
        _print_run(loaded[0], json)
    elif len(runs) > 1 or out is not None or back is not None:
        lens(loaded, text, out, back, json)
    else:
        _print_tokens(loaded[0], text, json)


def _print_tokens(run: Run, text: str, json: bool) -> None:
    """Token by token, and what the lens shows of a model that has a state; as JSON, that is for transformers."""
    data = apply(run.record.get("preprocess", ()), text.encode("utf-8", "surrogateescape"))
    told = surprises(run.model, run.tokenizer, data)
    if json:
        each = [dataclasses.asdict(one) | {"bits": finite(one.bits)} for one in told]
        if isinstance(run.model, GPT):
            seen = as_json([look(run, text)], text) if len(told) >= SHORTEST else {"runs": []}
            print_json(seen | {"surprises": each})
        else:
            print_json(each)
        return
    rows = [
        (one.token, f"{one.bits:.2f}", str(one.rank), "" if one.context is None else str(one.context),
         "  ".join(f"{token} {p:.0%}" for token, p in one.candidates))
        for one in told
    ]  # fmt: skip
    print_table(("token", "bits", "rank", "context used", "expected"), rows, left=(0, 4))
    print(f"{sum(one.bits for one in told):.1f} bits for {len(data)} bytes")
    if has_gradient(run.model):
        if len(told) < SHORTEST:
            inside = "heads" if isinstance(run.model, GPT) else "gates"
            note(f"{inside} and gradients need a text of at least {SHORTEST} tokens: this has {len(told)}")
            return
        print()
        print_lens([look(run, text)])


def _print_run(run: Run, json: bool) -> None:
    tensors = run.model.state_dict()
    told = {
        "run": str(run.path), **describe(run.model), "tokenizer": run.tokenizer.name,
        "vocab": run.tokenizer.vocab, "parameters": sum(t.numel() for t in tensors.values()),
        "bytes": sum(t.numel() * t.element_size() for t in tensors.values()), **run.record,
    }  # fmt: skip
    if isinstance(run.model, NGram):
        told["ngrams"] = run.model.sizes()
    if json:
        print_json(told)
        return
    print(run.summary())
    for key in ("tokenizer", "vocab", "parameters", "bytes", "ngrams", "train_seconds", "train_tokens", "seed"):
        if key in told:
            print(f"  {key:<15}{told[key]}")
    corpus = told.get("corpus", {})
    for part in ("train", "valid"):
        if {"bytes", "sha256"} <= set(corpus.get(part, ())):
            print(f"  {part:<15}{corpus[part]['bytes']:,} bytes, sha256 {corpus[part]['sha256'][:16]}")
    if run.path is not None and (run.path / SAMPLES).is_file():
        print("\nit writes:\n" + (run.path / SAMPLES).read_text(encoding="utf-8", errors="replace")[:400])


def list_(folder: Annotated[Positional[str], arg(metavar="FOLDER")] = RUNS, json: bool = False) -> None:
    """The runs in a folder, best first.

    Example: octavo list runs

    Args:
        folder: Where the runs are.
        json: Print JSON.
    """
    if folder != RUNS and not Path(folder).is_dir():
        raise UserError(f"there is no folder {folder}; name one that holds runs")
    told, foreign = [], []
    for path in find_runs(folder):
        if is_foreign(path):
            foreign.append(str(path))
            continue
        try:
            told.append((path, read_record(path)))
        except UserError as error:
            note(f"left out: {error}")
    if foreign:
        note(f"not runs, but read like them (Hugging Face): {', '.join(foreign)}")
    told.sort(key=lambda one: (one[1].get("result", {}).get("bits_per_byte") or 1e9, str(one[0])))
    if json:
        print_json([{"run": str(path), **record} for path, record in told])
        return
    if not told:
        note(f"no runs in {folder}; make one with: octavo train ngram shakespeare --out runs/kn")
        return
    rows = []
    for path, record in told:
        result = record.get("result", {})
        figure = "" if result.get("bits_per_byte") is None else f"{result['bits_per_byte']:.4f}"
        tensors = path / TENSORS
        corpus, seconds = record.get("corpus", {}).get("name", ""), record.get("train_seconds", 0)
        told_size = size(tensors.stat().st_size) if tensors.is_file() else "incomplete"
        unfinished = not record.get("training", {}).get("finished", True)
        label, model = "not finished" if unfinished else result.get("label", ""), record.get("model", "")
        rows.append((str(path), model, corpus, figure, label, f"{seconds:.2f}", told_size))
    print_table(("run", "model", "corpus", "bits/byte", "", "train s", "size"), rows, left=(0, 1, 2, 4))
