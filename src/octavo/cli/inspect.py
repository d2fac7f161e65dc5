"""octavo inspect."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from tyro.conf import Positional, arg

from octavo.cli.inspect_text import as_json, check_several, lens, print_lens
from octavo.cli.output import note, print_json, print_table
from octavo.inspect.gradient_flow import SHORTEST, has_gradient
from octavo.inspect.summary import look
from octavo.inspect.surprisal import surprises
from octavo.models import GPT, NGram, describe
from octavo.scoring.bits_per_byte import finite
from octavo.tasks.run import SAMPLES, Run, load
from octavo.text.preprocess import apply

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
