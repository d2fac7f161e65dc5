"""octavo inspect with a text: gates, attention, the logit lens and gradient flow, of models that have such views."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from octavo.cli.output import note, print_json, print_table
from octavo.errors import UserError
from octavo.inspect.attention_maps import heads_of
from octavo.inspect.attention_maps import in_words as heads_in_words
from octavo.inspect.attention_page import depth_table, heads_table
from octavo.inspect.gradient_flow import Flow, Norms, in_words, rate
from octavo.inspect.inspection import Inspection, inspect_run
from octavo.inspect.page import SATURATED, fewest, flow_table, gate_table, inspect_page, labels, theory
from octavo.io.files import whole_file
from octavo.models import name_of
from octavo.scoring.bits_per_byte import finite
from octavo.tasks.run import Run

DIGITS = 4  # of the gates' values in JSON
MAX_MAPPED_TOKENS = 64  # of several heads in JSON: as many numbers as that squared, halved, for each


def inspect_together(runs: Sequence[Run], text: str, out: str | None, back: int | None, json: bool) -> None:
    """Several runs side by side on one text, as tables or JSON, and as a page where --out says so."""
    inspections = [inspect_run(run, text, back) for run in runs]
    if out is not None:
        command = ["octavo", "inspect", *(one.name for one in inspections), "--text", text, "--out", out]
        if back is not None:
            command += ["--back", str(back)]
        with whole_file(out) as file:
            file.write(inspect_page(inspections, text, shlex.join(command)).encode("utf-8", "backslashreplace"))
    if json:
        print_json(as_json(inspections, text))
    else:
        print_inspections(inspections)
    if out is not None:
        note(f"the page is {out}")


def print_inspections(inspections: Sequence[Inspection]) -> None:
    """The tables: of each run its gates, its heads and its logit lens, then the gradients of all."""
    for one, name in zip(inspections, labels(inspections), strict=True):
        _print_attention(one, name)
        if one.rows:
            print(f"gates of {name}, over {len(one.tokens):,} tokens, the begin token included")
            titles, rows = gate_table(one)
            print_table(titles, rows, left=(1, 5))
            print()
    if any(one.rows for one in inspections):
        print(SATURATED + "\n")
    if any(one.flow for one in inspections):
        titles, rows = flow_table(inspections, theory(inspections))
        print("the gradient of the loss with respect to the state t steps back, as a share of that at t = 0")
        if any(one.flow and one.flow.depths for one in inspections):
            print("of a transformer: with respect to the embedding of the token t back, and to each layer's output")
        print_table(titles, rows, left=(0, 1))
    if shortest := fewest(inspections):
        note(f"only the first {shortest:,} tokens were read")


def _print_attention(one: Inspection, name: str) -> None:
    """The heads of one run, and its logit lens."""
    if one.maps is not None:
        print(f"heads of {name}: entropy in bits, its share of what is possible, distance in tokens, and attention to")
        titles, rows = heads_table(one.maps)
        print_table(titles, rows, left=(8,))
        print("".join(f"{line}\n" for line in heads_in_words(one.maps)))
    if one.layers:
        print(f"logit lens of {name}: read out after each layer, and the gradient of the loss there")
        titles, rows = depth_table(one)
        print_table(titles, rows, left=(0,))
        print()


def as_json(inspections: Sequence[Inspection], text: str) -> dict[str, Any]:
    """Everything that the views of the runs show."""
    flows = any(one.flow for one in inspections)
    return {
        "text": text.encode("utf-8", "backslashreplace").decode(),
        "runs": [
            {"run": one.name, "model": name_of(one.run.model), "tokens": list(one.tokens), "truncated": one.truncated,
             **_rows_as_json(one), **_maps_as_json(one), **_layers_as_json(one), **_flow_as_json(one.flow)}
            for one in inspections
        ],
        "theory": [{"scale": scale, "activation": activation, **_norms(norms)}
                   for scale, activation, norms in (theory(inspections) if flows else ())],
    }  # fmt: skip


def _rows_as_json(one: Inspection) -> dict[str, Any]:
    """Each gate's mean and its shares of saturated units, token by token."""
    return {"gates": [
        {"layer": row.layer, "gate": row.name, "mean": _rounded(row.mean.tolist()),
         "low": _rounded(row.low.tolist()), "high": _rounded(row.high.tolist())}
        for row in one.rows
    ]}  # fmt: skip


def _maps_as_json(one: Inspection) -> dict[str, Any]:
    """Each head's statistics, token by token and as means, and its map, of several heads over the first tokens: row t
    has t + 1 weights."""
    if one.maps is None:
        return {}
    heads, tokens = heads_of(one.maps), len(one.maps.visible_T)
    mapped = tokens if len(heads) == 1 else min(MAX_MAPPED_TOKENS, tokens)
    return {
        "mapped_tokens": mapped, "visible": one.maps.visible_T.tolist(),
        "heads": [
            {"layer": head.layer, "head": head.head, "entropy": round(head.entropy, DIGITS),
             "entropy_share": round(head.spread, DIGITS), "distance": round(head.distance, DIGITS),
             "to_itself": round(head.itself, DIGITS), "to_previous": round(head.previous, DIGITS),
             "to_begin": round(head.begin, DIGITS), "kind": head.kind or None,
             "entropies": _rounded(head.entropies.tolist()), "distances": _rounded(head.distances.tolist()),
             "map": [_rounded(row[: t + 1]) for t, row in enumerate(head.a_TT[:mapped, :mapped].tolist())]}
            for head in heads
        ],
    }  # fmt: skip


def _layers_as_json(one: Inspection) -> dict[str, Any]:
    """What each layer predicts in the place of each token, and what that token costs there."""
    if not one.layers:
        return {}
    return {"logit_lens": [
        {"depth": layer.depth, "name": layer.name, "bits_per_token": finite(round(layer.bits, DIGITS)),
         "accuracy": round(layer.right, DIGITS), "bits": _rounded(layer.bits_N.tolist()),
         "predicted": [one.spell(token) for token in layer.top_N.tolist()],
         "probability": _rounded(layer.p_N.tolist())}
        for layer in one.layers
    ]}  # fmt: skip


def _flow_as_json(flow: Flow | None) -> dict[str, Any]:
    if flow is None:
        return {}
    return {"gradient_flow": {
        "back": flow.back, "losses": flow.ends, **_norms(flow.norms),
        "parts": {name: _norms(norms) for name, norms in flow.parts.items()},
        **({"layers": [finite(norm) for norm in flow.depths]} if flow.depths else {}),
    }}  # fmt: skip


def _rounded(values: Sequence[float]) -> list[float | None]:
    return [finite(round(value, DIGITS)) for value in values]


def _norms(norms: Norms) -> dict[str, Any]:
    factor = rate(norms)
    return {"norms": [finite(norm) for norm in norms], "factor_per_step": finite(factor), "summary": in_words(factor)}


def check_several(runs: Sequence[str], text: str | None, out: str | None, back: int | None) -> None:
    """Refuse what makes sense only together with a text."""
    if not runs:
        raise UserError("inspect needs at least one run: octavo inspect runs/kn7; octavo list shows those there are")
    if text is None and (len(runs) > 1 or out is not None or back is not None):
        asked = "several runs" if len(runs) > 1 else "--out" if out is not None else "--back"
        raise UserError(f'there must be a text with {asked}; add --text "..."')
