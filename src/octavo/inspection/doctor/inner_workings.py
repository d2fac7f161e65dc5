"""Inside a language model while it reads held-out text: gates that never move, attention that always lands on one
place; and, of every task, whether the same question gets the same answer twice.

T tokens read, H heads, D units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.core import LanguageModel
from octavo.inspection.attention_maps import attention_over
from octavo.inspection.doctor.fresh_model import Bench, loss_of
from octavo.inspection.views import find_view, token_rows
from octavo.training.diagnosis.finding import Finding, not_applicable, percent

GATE_TOKENS, MAP_TOKENS = 64, 64  # read: enough for a gate to move, or for a head to attend elsewhere
SHUT, OPEN = 0.02, 0.98  # the mean of a gate over units and tokens
STILL = 0.02  # the deviation of a gate over the tokens, on average over the units
COLLAPSED, MOSTLY = 0.95, 0.8  # of a token's attention on a single place; of the tokens that do so
HEADS = 0.75  # of the heads: large trained models have many that rest on the first token, but not nearly all
FIRST_ROW = 8  # of a map: the first tokens have little to choose from
SAME = 1e-6  # of the loss: the same arithmetic may be summed in another order


def gates(model: LanguageModel[Any], x_N: Sequence[int]) -> Finding:
    """Whether the gates of each layer move at all."""
    name = "gates"
    view = find_view(model, "token-rows")
    if view is None or all(tap.signed for tap in view.taps):
        return not_applicable(name, "the model has no gates")
    if len(x_N) < FIRST_ROW:
        return not_applicable(name, "the validation text is too short")
    found = [row for row in token_rows(model, list(x_N[:GATE_TOKENS])) if not row.signed and row.name != "cell"]
    if not found:  # the cell of an rnn-attention may be one without
        return not_applicable(name, "the model has no gates")
    table = [(f"{row.name} of layer {row.layer}", float(row.value_TD.mean()),
              float(row.value_TD.std(0, correction=0).mean())) for row in found]  # fmt: skip
    if not table:  # its cell has none
        return not_applicable(name, "the model has no gates")
    stuck = [(which, mean) for which, mean, spread in table if not SHUT < mean < OPEN and spread < STILL]
    values = {"gates": [{"gate": which, "mean": mean, "spread": spread} for which, mean, spread in table]}
    expected = f"means between {SHUT} and {OPEN}, or values that change by {STILL}"
    if stuck:
        which, mean = stuck[0]
        more = f", and {len(stuck) - 1} more gates" if len(stuck) > 1 else ""
        state = "shut" if mean < SHUT else "open"
        why = f"the {which} gate{more} stayed {state} for every token: what it guards is never changed, or never kept."
        advice = ("train it anew: --seed 1", "a lower --learning-rate")
        return Finding(name, "warning", f"{which} {mean:.3f}, stuck", expected, why, advice, values, "gates stuck")
    low, high = min(table, key=lambda one: one[1]), max(table, key=lambda one: one[1])
    measured = f"from {low[1]:.2f} ({low[0]}) to {high[1]:.2f} ({high[0]})"
    return Finding(name, "ok", measured, expected, "the gates open and shut with the text.", (), values)


def attention(model: LanguageModel[Any], x_N: Sequence[int]) -> Finding:
    """Whether the heads attend to more than one place."""
    name, view = "attention", find_view(model, "token-maps")
    if view is None:
        return not_applicable(name, "the model has no attention maps")
    if len(x_N) <= 2 * FIRST_ROW:
        return not_applicable(name, "the validation text is too short")
    maps = attention_over(model, list(x_N[:MAP_TOKENS]), view=view)
    collapsed = [float(a_TT[FIRST_ROW:].max(-1).values.gt(COLLAPSED).double().mean()) > MOSTLY
                 for a_HTT in maps.layers for a_TT in a_HTT]  # fmt: skip
    heads, share = len(collapsed), sum(collapsed) / max(1, len(collapsed))
    visible = int(maps.visible_T.max())
    values, expected = (
        {"heads": heads, "collapsed": sum(collapsed)},
        f"at most {percent(HEADS, 0)} of the heads on a single place",
    )
    measured = f"{sum(collapsed)} of {heads} heads on a single place"
    if share > HEADS and visible > 1:
        why = (
            f"{sum(collapsed)} of {heads} heads give over {percent(COLLAPSED, 0)} of their attention to a single place "
            "for nearly every token: the attention softmax is saturated, and hardly any gradient passes it."
        )
        advice = ("normed queries and keys: --qk-norm", "a lower --learning-rate", "train it anew: --seed 1")
        return Finding(name, "warning", measured, expected, why, advice, values, "attention collapsed")
    return Finding(name, "ok", measured, expected, "the heads attend to several places.", (), values)


def evaluation(bench: Bench) -> Finding:
    """Whether the loss of the same batch is the same twice, dropout being off."""
    name = "evaluation"
    once, twice = (loss_of(bench.trained, 0, False, seed) for seed in (1, 2))
    off = abs(once - twice) / max(abs(once), 1e-9)
    values, measured, expected = (
        {"losses": [once, twice], "off": off},
        f"{once:.4f}, {twice:.4f} nats",
        "twice the same",
    )
    if off > SAME:
        why = f"the same batch costs {once:.4f} nats, then {twice:.4f}: something random, as dropout is, is still on."
        advice = ("let the model draw random numbers only where self.training is true",)
        return Finding(name, "warning", measured, expected, why, advice, values, "random evaluation")
    return Finding(name, "ok", measured, expected, "the same batch costs the same twice.", (), values)
