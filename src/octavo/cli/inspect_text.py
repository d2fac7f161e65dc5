"""octavo inspect with a text, for neural models: gates, attention, depths, and gradients through time."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from octavo.cli.output import note, print_json, print_table
from octavo.errors import UserError
from octavo.inspect.attention_maps import Maps
from octavo.inspect.attention_maps import in_words as heads_in_words
from octavo.inspect.attention_page import depth_table, heads_table
from octavo.inspect.gates import Gates
from octavo.inspect.gradient_flow import Norms, in_words, rate
from octavo.inspect.page import SATURATED, fewest, flow_table, gate_table, labels, lens_page, theory
from octavo.inspect.summary import Look, look
from octavo.io.files import whole_file
from octavo.models import name_of
from octavo.scoring.bits_per_byte import finite
from octavo.tasks.run import Run

DIGITS = 4  # of the gates' values in JSON
MAPPED = 64  # tokens whose maps are in JSON: as many numbers as that squared, halved, for each head


def lens(runs: Sequence[Run], text: str, out: str | None, back: int | None, json: bool) -> None:
    """Several runs side by side on one text, as tables or JSON, and as a page where --out says so."""
    looks = [look(run, text, back) for run in runs]
    if out is not None:
        command = ["octavo", "inspect", *(one.name for one in looks), "--text", text, "--out", out]
        if back is not None:
            command += ["--back", str(back)]
        with whole_file(out) as file:
            file.write(lens_page(looks, text, shlex.join(command)).encode("utf-8", "backslashreplace"))
    if json:
        print_json(as_json(looks, text))
    else:
        print_lens(looks)
    if out is not None:
        note(f"the page is {out}")


def print_lens(looks: Sequence[Look]) -> None:
    """The tables: of each run its gates and its heads, then the gradients of all."""
    for one, name in zip(looks, labels(looks), strict=True):
        _print_attention(one, name)
        if one.gates.gates:
            print(f"gates of {name}, over {len(one.tokens):,} tokens, the begin token included")
            titles, rows = gate_table(one)
            print_table(titles, rows, left=(1, 5))
            print()
    if any(one.gates.gates for one in looks):
        print(SATURATED + "\n")
    titles, rows = flow_table(looks, theory(looks))
    print("the gradient of the loss with respect to the state t steps back, as a share of that at t = 0")
    if any(one.depths for one in looks):
        print("of a transformer: with respect to the embedding of the token t back, and to what each layer made of it")
    print_table(titles, rows, left=(0, 1))
    if shortest := fewest(looks):
        note(f"only the first {shortest:,} tokens were looked at")


def _print_attention(one: Look, name: str) -> None:
    """The heads of one run, and what a transformer knows at each depth."""
    if one.maps is None:
        return
    print(f"heads of {name}: entropy in bits, its share of what is possible, distance in tokens, and where looks go")
    titles, rows = heads_table(one.maps)
    print_table(titles, rows, left=(8,))
    print("".join(f"{line}\n" for line in heads_in_words(one.maps)))
    if one.depths:
        print(f"{name} read out after each layer, and the gradient of the loss there")
        titles, rows = depth_table(one)
        print_table(titles, rows, left=(0,))
        print()


def as_json(looks: Sequence[Look], text: str) -> dict[str, Any]:
    """Everything that the lens shows of the runs."""
    return {
        "text": text.encode("utf-8", "backslashreplace").decode(),
        "runs": [
            {"run": one.name, "model": name_of(one.run.model), "tokens": list(one.tokens), "cut": one.cut,
             **gates_as_json(one.gates), **_maps_as_json(one.maps), **_depths_as_json(one), "gradient": {
                 "back": one.flow.back, "ends": one.flow.ends, **_norms(one.flow.norms),
                 "parts": {name: _norms(norms) for name, norms in one.flow.parts.items()},
                 **({"depths": [finite(norm) for norm in one.flow.depths]} if one.flow.depths else {}),
             }}
            for one in looks
        ],
        "theory": [{"scale": scale, "activation": activation, **_norms(norms)}
                   for scale, activation, norms in theory(looks)],
    }  # fmt: skip


def gates_as_json(gates: Gates) -> dict[str, Any]:
    """Each gate's mean and its shares of saturated units, token by token; and the weights of attention."""
    return {
        "gates": [
            {"layer": gate.layer, "gate": gate.name, "mean": _rounded(gate.mean.tolist()),
             "low": _rounded(gate.low.tolist()), "high": _rounded(gate.high.tolist())}
            for gate in gates.gates
        ],
        "attention": [_rounded(row) for row in gates.attention],
    }  # fmt: skip


def _maps_as_json(maps: Maps | None) -> dict[str, Any]:
    """Each head's figures, token by token and as means, and its map over the first tokens: row t has t + 1 weights."""
    if maps is None:
        return {}
    return {
        "mapped_tokens": min(MAPPED, len(maps.visible_T)), "visible": maps.visible_T.tolist(),
        "heads": [
            {"layer": one.layer, "head": one.head, "entropy": round(one.entropy, DIGITS),
             "of_possible": round(one.spread, DIGITS), "distance": round(one.distance, DIGITS),
             "on_itself": round(one.itself, DIGITS), "on_previous": round(one.previous, DIGITS),
             "on_begin": round(one.begin, DIGITS), "habit": one.kind or None,
             "entropies": _rounded(one.entropies.tolist()), "distances": _rounded(one.distances.tolist()),
             "map": [_rounded(row[: t + 1]) for t, row in enumerate(one.a_TT[:MAPPED, :MAPPED].tolist())]}
            for one in maps.heads
        ],
    }  # fmt: skip


def _depths_as_json(one: Look) -> dict[str, Any]:
    """What each depth expects in the place of each token, and what that token costs there."""
    if not one.depths:
        return {}
    return {"depths": [
        {"depth": depth.depth, "name": depth.name, "bits_a_token": finite(round(depth.bits, DIGITS)),
         "right": round(depth.right, DIGITS), "bits": _rounded(depth.bits_N.tolist()),
         "expected": [one.spelt(token) for token in depth.top_N.tolist()],
         "probability": _rounded(depth.p_N.tolist())}
        for depth in one.depths
    ]}  # fmt: skip


def _rounded(values: Sequence[float]) -> list[float | None]:
    return [finite(round(value, DIGITS)) for value in values]


def _norms(norms: Norms) -> dict[str, Any]:
    factor = rate(norms)
    return {"norms": [finite(norm) for norm in norms], "factor_a_step": finite(factor), "words": in_words(factor)}


def check_several(runs: Sequence[str], text: str | None, out: str | None, back: int | None) -> None:
    """Refuse what makes sense only together with a text."""
    if not runs:
        raise UserError("inspect needs at least one run: octavo inspect runs/kn7; octavo list shows those there are")
    if text is None and (len(runs) > 1 or out is not None or back is not None):
        asked = "several runs" if len(runs) > 1 else "--out" if out is not None else "--back"
        raise UserError(f'there must be a text to look at with {asked}; add --text "..."')
