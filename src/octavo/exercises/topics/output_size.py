"""Why the input and the output of an attention layer have the same size."""

from __future__ import annotations

import torch

from octavo.exercises import Choice, Exercise, Finding, Part, Truth, verdict
from octavo.ops.attention.reference import attend_reference


def any_output_width() -> Finding:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 5, 4, generator=generator)
    shapes = [tuple(attend_reference(q, k, torch.randn(1, 1, 5, V, generator=generator)).shape[2:]) for V in (1, 3, 9)]
    note = f"values of width 1, 3 and 9 gave outputs of shape {shapes}"
    return Finding(verdict(shapes != [(5, 1), (5, 3), (5, 9)]), note, "exact shape")


def residual_needs_it() -> Finding:
    """Adding tensors of different widths fails, except for width one, which is broadcast."""
    x_ND, failed = torch.zeros(5, 4), []
    for width in (1, 3, 4, 9):
        try:
            failed.append((x_ND + torch.zeros(5, width)).shape != x_ND.shape)
        except RuntimeError:
            failed.append(True)
    note = (
        f"adding widths 1, 3, 4 and 9 to width 4 in PyTorch fails: {failed}; width 1 is broadcast, which is not "
        "a residual"
    )
    return Finding(verdict(failed[1] and failed[3] and not failed[2]), note, "exact shape")


def rows_are_queries() -> Finding:
    generator = torch.Generator().manual_seed(0)
    shapes = []
    for T, S in ((1, 7), (5, 7), (9, 2)):
        q, k = torch.randn(1, 1, T, 4, generator=generator), torch.randn(1, 1, S, 4, generator=generator)
        shapes.append(attend_reference(q, k, k).shape[2] == T)
    note = "1, 5 and 9 queries over 7, 7 and 2 keys: as many outputs as queries each time"
    return Finding(verdict(all(shapes)), note, "exact count")


SIZE = Exercise(
    where={}, id="same-size", title="Why input and output have the same size",
    question="Attention layers in a transformer output as many vectors as they read, of the same width.",
    answer="Attention itself has one output per query, with the width of the values or of the output projection. The "
    "width is D because the output is added to the input, and because layers of equal shape are stacked.",
    parts=[
        Part("width", "Attention requires its output to be as wide as its input.", Truth("false"), "numeric",
             any_output_width,
             why="Values and output may have any width; only queries and keys must have the same one.",
             wrong={"mistook a design choice for a requirement": True}),
        Part("residual", "The sum `x + attention(x)` needs the output to be as wide as the input.", Truth("true"),
             "numeric", residual_needs_it,
             why="Vectors are added entry by entry. Beware of width one: libraries broadcast it silently.",
             wrong={"thought that addition pads automatically": False}),
        Part("rows", "There are as many outputs as queries, however many keys there are.", Truth("true", Choice("", {
             "self": "queries and keys come from the same tokens",
             "causal": "attention is causal", "equal": "there are as many keys as queries"})), "numeric",
             rows_are_queries, why="Each query has one row of attention weights, and each row gives one weighted sum.",
             wrong={"used the number of keys": False}),
    ])  # fmt: skip

EXERCISES = (SIZE,)
