"""octavo inspect: what a run is, and with a text the surprisal of its tokens and the model's views."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.flags import MaybeNewPath
from octavo.cli.output import Output, note, print_table, rounded, write_page
from octavo.errors import UserError
from octavo.inspection.attention_maps import heads_of
from octavo.inspection.attention_maps import in_words as heads_in_words
from octavo.inspection.attention_page import depth_table, heads_table
from octavo.inspection.gradient_flow import SHORTEST, Flow, Norms, in_words, rate
from octavo.inspection.inspection import Inspection, has_inspection, inspect_run
from octavo.inspection.page import SATURATED, fewest, flow_table, gate_table, inspect_page, labels, theory
from octavo.inspection.surprisal import Surprise, surprises
from octavo.io.run_folder import SAMPLES
from octavo.models import name_of, spec_of
from octavo.tasks.run import Run, load
from octavo.tasks.task import find_task
from octavo.text.preprocess import apply

RunPaths = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...")]
SHOWN = ("tokenizer", "vocab", "parameters", "bytes", "ngrams", "sizes", "labels", "languages", "train_seconds",
         "train_tokens", "seed")  # fmt: skip
DIGITS = 4  # of the gates' values in JSON
MAX_MAPPED_TOKENS = 64  # tokens whose maps are in JSON: as many numbers as that squared, halved, for each head


def inspect(runs: RunPaths, text: str | None = None, out: MaybeNewPath = None, back: int | None = None) -> Output:
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
    """
    if not runs:
        raise UserError("inspect needs at least one run: octavo inspect runs/kn7; octavo list shows those there are")
    if text is None and (len(runs) > 1 or out is not None or back is not None):
        asked = "several runs" if len(runs) > 1 else "--out" if out is not None else "--back"
        raise UserError(f'there must be a text with {asked}; add --text "..."')
    loaded = [load(run) for run in runs]
    if text is None:
        return describe_run(loaded[0])
    if len(runs) == 1 and out is None and back is None:
        return inspect_tokens(loaded[0], text)
    inspections = [inspect_run(run, text, back) for run in loaded]
    if out is not None:
        command = ["octavo", "inspect", *(one.name for one in inspections), "--text", text, "--out", out]
        command += ["--back", str(back)] if back is not None else []
        write_page(out, inspect_page(inspections, text, shlex.join(command)))
    return Output(lambda: as_json(inspections, text), lambda: print_inspections(inspections))


def inspect_tokens(run: Run, text: str) -> Output:
    """The surprisal of each token, and the model's views."""
    data = apply(run.record.get("preprocess", ()), text.encode("utf-8", "surrogateescape"))
    tokens = surprises(run.model, run.tokenizer, data)
    inspections = [inspect_run(run, text)] if has_inspection(run) and len(tokens) >= SHORTEST else []
    found = as_json(inspections, text) if inspections else {"runs": []}
    return Output(found | {"surprisal": tokens}, lambda: _print_tokens(run, tokens, len(data), inspections))


def _print_tokens(run: Run, tokens: Sequence[Surprise], data_bytes: int, inspections: list[Inspection]) -> None:
    rows = [
        (one.token, f"{one.bits:.2f}", str(one.rank), "" if one.context is None else str(one.context),
         "  ".join(f"{token} {p:.0%}" for token, p in one.candidates))
        for one in tokens
    ]  # fmt: skip
    print_table(("token", "bits", "rank", "context used", "expected"), rows, left=(0, 4))
    print(f"{sum(one.bits for one in tokens):.1f} bits for {data_bytes} bytes")
    if inspections:
        print()
        print_inspections(inspections)
    elif has_inspection(run):
        note(f"gates, attention and gradients need a text of at least {SHORTEST} tokens: this has {len(tokens)}")
    else:
        views = ", ".join(view.title.lower() for view in spec_of(run.model).views) or "no views"
        note(f"a {name_of(run.model)} has no gates, attention or gradient flow; in the studio: {views}")


def describe_run(run: Any) -> Output:
    """What a run of any task is: its model, its size, its data, its training."""
    tensors = run.model.state_dict()
    record = {
        "run": str(run.path), **run.description(), "parameters": sum(t.numel() for t in tensors.values()),
        "bytes": sum(t.numel() * t.element_size() for t in tensors.values()), **run.record,
    }  # fmt: skip
    if isinstance(run, Run):
        record |= {"tokenizer": run.tokenizer.name, "vocab": run.tokenizer.vocab}
        if "arpa" in spec_of(run.model).exports:
            model: Any = run.model
            record["ngrams"] = model.sizes()
    return Output(record, lambda: _print_run(run, record, record.get(find_task(run.task).data_key, {})))


def _print_run(run: Any, record: dict[str, Any], data: dict[str, Any]) -> None:
    print(run.summary())
    for key in SHOWN:
        if key in record:
            print(f"  {key:<15}{record[key]}")
    for key, value in data.items():
        if isinstance(value, dict) and {"bytes", "sha256"} <= set(value):
            print(f"  {key:<15}{value['bytes']:,} bytes, sha256 {value['sha256'][:16]}")
        elif key in ("source", "split") or isinstance(value, int):
            print(f"  {key:<15}{value}")
    if run.path is not None and (run.path / SAMPLES).is_file():
        print("\nit writes:\n" + (run.path / SAMPLES).read_text(encoding="utf-8", errors="replace")[:400])


def print_inspections(inspections: Sequence[Inspection]) -> None:
    """The tables: of each run its gates, its heads and its logit lens, then the gradients of all."""
    for one, name in zip(inspections, labels(inspections), strict=True):
        _print_attention(one, name)
        if one.rows:
            print(f"gates of {name}, over {len(one.tokens):,} tokens, the begin token included")
            print_table(*gate_table(one), left=(1, 5))
            print()
    if any(one.rows for one in inspections):
        print(SATURATED + "\n")
    if any(one.flow for one in inspections):
        print("the gradient of the loss with respect to the state t steps back, as a share of that at t = 0")
        if any(one.flow and one.flow.depths for one in inspections):
            print("of a transformer: with respect to the embedding of the token t back, and to each layer's output")
        print_table(*flow_table(inspections, theory(inspections)), left=(0, 1))
    if shortest := fewest(inspections):
        note(f"only the first {shortest:,} tokens were read")


def _print_attention(one: Inspection, name: str) -> None:
    """The heads of one run, and its logit lens."""
    if one.maps is not None:
        print(f"heads of {name}: entropy in bits, its share of what is possible, distance in tokens, and attention to")
        print_table(*heads_table(one.maps), left=(8,))
        print("".join(f"{line}\n" for line in heads_in_words(one.maps)))
    if one.layers:
        print(f"logit lens of {name}: read out after each layer, and the gradient of the loss there")
        print_table(*depth_table(one))
        print()


def as_json(inspections: Sequence[Inspection], text: str) -> dict[str, Any]:
    """Everything that the views of the runs show."""
    flows = any(one.flow for one in inspections)
    return {
        "text": text.encode("utf-8", "backslashreplace").decode(),
        "runs": [
            {"run": one.name, "model": name_of(one.run.model), "tokens": list(one.tokens), "truncated": one.truncated,
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
    if one.layers:
        found["logit_lens"] = [
            {"depth": layer.depth, "name": layer.name, "bits_per_token": layer.bits, "accuracy": layer.right,
             "bits": layer.bits_N.tolist(), "predicted": [one.spell(token) for token in layer.top_N.tolist()],
             "probability": layer.p_N.tolist()}
            for layer in one.layers
        ]  # fmt: skip
    return found


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
