"""Efficient attention: what a new token costs, and what patterns and channels cost on a grid of patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from octavo.exercises import Choice, Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.ops import channel_attention as channel
from octavo.ops.attention import CAUSAL, FULL, Axial, Block, Global, Local, Neighbourhood, Pattern
from octavo.ops.attention.reference import attend_reference
from octavo.pages.figures.bars import bars
from octavo.pages.figures.lines import Series, lines

SIDE, CHANNELS = 16, 512
PATCHES = SIDE * SIDE


def counted(work: Callable[[], Any]) -> int:
    """The operations of the products in it, by PyTorch's counter: a multiplication and an addition each."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def empty(*shape: int) -> Tensor:
    """A tensor without values: products with it are counted, not computed."""
    return torch.empty(*shape, device="meta")


def two_layers(x_TD: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """What two layers of attention make of the tokens: the inputs of the second, and its results."""
    once: Tensor = x_TD + attend_reference(x_TD[None, None], x_TD[None, None], x_TD[None, None], pattern)[0, 0]
    return once, once + attend_reference(once[None, None], once[None, None], once[None, None], pattern)[0, 0]


def change_of_earlier(pattern: Pattern) -> tuple[float, float]:
    """How much a ninth token changes the first eight: after one layer, and after two."""
    x_TD = torch.randn(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before, after = two_layers(x_TD[:8], pattern), two_layers(x_TD, pattern)
    one, two = (float((b - a[:8]).abs().max()) for b, a in zip(before, after, strict=True))
    return one, two


def earlier_results() -> Finding:
    (_, masked), (_, full) = change_of_earlier(CAUSAL), change_of_earlier(FULL)
    note = f"a ninth token changes the first eight by {masked:.0e} with the mask, by {full:.2f} without"
    return Finding(verdict(max(masked, full) < 1e-12, masked < 1e-12), note, "to 1e-12")


def kept_keys() -> Finding:
    (masked, _), (full, _) = change_of_earlier(CAUSAL), change_of_earlier(FULL)
    note = (
        f"the second layer's inputs, from which its keys come, change by {masked:.0e} with the mask, {full:.2f} without"
    )
    return Finding(verdict(max(masked, full) < 1e-12, masked < 1e-12), note, "to 1e-12")


def what_is_new() -> Finding:
    before, after = (CAUSAL.mask(n, n) for n in (8, 9))
    new = after.clone()
    new[:8, :8] &= ~before
    rows, columns = new.any(1).nonzero().flatten().tolist(), new.any(0).nonzero().flatten().tolist()
    found = {(1, 9): "new-row", (9, 1): "new-column", (9, 9): "both"}[len(rows), len(columns)]
    return Finding(
        found, f"the mask of 9 tokens has {int(new.sum())} pairs that the one of 8 lacks: queries {rows}, keys 0-8"
    )


def new_pairs(pattern: Pattern) -> list[IntervalAt]:
    sizes = [(n, pattern.pairs(n + 1, n + 1) - pattern.pairs(n, n)) for n in (1, 7, 100)]
    return [IntervalAt({"N": n}, pairs, pairs) for n, pairs in sizes]


def new_operations() -> Finding:
    points = []
    for n, d in ((7, 16), (100, 64), (1023, 32)):
        q, k = empty(1, 1, 1, d), empty(1, 1, n + 1, d)
        operations = counted(lambda: attend_reference(q, k, k, CAUSAL))  # noqa: B023
        points.append(IntervalAt({"N": n, "D": d}, operations, operations))
    return Finding(points, "PyTorch's counter on octavo's attention with one query")


def pairs_without_cache() -> Finding:
    points = []
    for n in (1, 5, 40):
        pairs = sum(CAUSAL.pairs(t, t) for t in range(1, n + 1))
        points.append(IntervalAt({"N": n}, pairs, pairs))
    return Finding(points, "the pairs of every text length from 1 to N, counted and added")


N = {"N": "whole"}
NEW_TOKEN = Exercise(
    id="masked-new-token",
    title="What a new token costs in masked attention",
    question="N tokens have gone through masked attention of width D (one head, or all heads together), and their keys "
    "and values are kept. Token N + 1 arrives.",
    answer="Only one query is new, the last. It meets N + 1 keys, its own among them: `N + 1` scores and as many terms "
    "in the sum of values, `4*(N + 1)*D` operations. Nothing that was computed before changes, in any layer, because "
    "no earlier token looks at it; without the mask, every earlier result and the second layer's keys would. So N "
    "tokens one by one take `N*(N + 1)/2` pairs, as many as all at once; forgetting the cache makes it `N*(N + 1)*(N + "
    "2)/6`.",
    figure=lambda: lines(
     [Series("everything again", [(n, n * (n + 1) * (n + 2) / 6) for n in (2**i for i in range(13))]),
      Series("keys and values kept", [(n, CAUSAL.pairs(n, n)) for n in (2**i for i in range(13))])],
     "Pairs of a query and a key for a text of N tokens, written one by one.", ("tokens N", "pairs"), True, True),
    parts=[
        Part("changes", "A new token at the end changes no earlier result.",
             Truth("nearly", only_if="attention is masked: no token sees a later one"), "numeric", earlier_results,
             why="Row t of the weights is over `s <= t`; the new column is hidden from all rows but the last.",
             wrong={"took the mask for granted": True}),
        Part("kept", "In a network of several layers, the keys and values of earlier tokens can be kept.",
             Truth("nearly", only_if="every layer is masked"), "numeric", kept_keys,
             why="The first layer's keys depend on one token only, but the second's on all that its token has seen.",
             wrong={"took the mask for granted, in every layer": True}),
        Part("which", "Which pairs are new?", Choice("new-row", {"new-row": "the new query with all keys",
             "new-column": "all queries with the new key", "both": "a row and a column"}), "counted", what_is_new,
             why="The new column's other entries are masked."),
        Part("pairs", "How many pairs are new?", Formula("N + 1", N), "counted",
             lambda: Finding(new_pairs(CAUSAL), "octavo's causal pattern counts its pairs"),
             why="The token sees N others and itself.",
             wrong={"forgot that it sees itself": "N", "counted the hidden column": "2*N + 1"}),
        Part("unmasked", "How many pairs are new without the mask?", Formula("2*N + 1", N), "counted",
             lambda: Finding(new_pairs(FULL), "the full pattern counts its pairs"),
             why="`(N + 1)^2 - N^2`: a new row and a new column, which share their corner.",
             wrong={"counted the corner twice": "2*N + 2", "only the new row": "N + 1"}),
        Part("operations", "How many operations do its scores and the sum of values take, a multiplication and an "
             "addition counted as two?", Formula("4*(N + 1)*D", {"N": "whole", "D": "whole"}), "counted",
             new_operations, why="N + 1 dot products of length D, then N + 1 values of length D times a weight.",
             wrong={"left out the sum of values": "2*(N + 1)*D", "computed all rows again": "4*(N + 1)^2*D",
                    "forgot its own key": "4*N*D"}),
        Part("no-cache", "N tokens are produced one by one, and at each step everything is computed again, hidden "
             "pairs left out. How many pairs in all?", Formula("N*(N + 1)*(N + 2)/6", N), "counted",
             pairs_without_cache, why="The sum of `t*(t + 1)/2` for t from 1 to N.",
             wrong={"gave the count with a cache": "N*(N + 1)/2", "left the mask out": "N*(N + 1)*(2*N + 1)/6"}),
    ],
)  # fmt: skip


def pairs_found(pattern: Pattern, tokens: int = PATCHES) -> Callable[[], Finding]:
    """Evidence: the pattern counts its pairs one by one."""
    return lambda: Finding(pattern.pairs(tokens, tokens), f"{pattern} on {tokens} tokens, counted one by one")


def near_pairs() -> Finding:
    points = []
    for n, r in ((16, 1), (16, 3), (9, 2), (30, 4)):
        pairs = Neighbourhood(n, n, r).pairs(n * n, n * n)
        points.append(IntervalAt({"n": n, "r": r}, pairs, pairs))
    return Finding(points, "octavo's neighbourhood counts its pairs on four grids")


def axial_pairs() -> Finding:
    points = [
        IntervalAt({"n": n}, Axial(n, n).pairs(n * n, n * n), Axial(n, n).pairs(n * n, n * n)) for n in (1, 4, 16, 20)
    ]
    return Finding(points, "octavo's axial pattern counts its pairs on four grids")


def layers_found(pattern: Pattern) -> Callable[[], Finding]:
    """Evidence: the number of layers until every patch has received information from every other."""

    def evidence() -> Finding:
        mask = pattern.mask(PATCHES, PATCHES).float()
        reached, layers = mask, 1
        while not bool((reached > 0).all()):
            reached, layers = ((reached @ mask) > 0).float(), layers + 1
            if layers > PATCHES:
                return Finding(0, "no number of layers is enough")
        return Finding(layers, "powers of the mask until no entry is zero")

    return evidence


PATTERNS = Exercise(
    id="sparse-patterns-grid",
    title="Sparse patterns on a 16 by 16 grid",
    question="256 patches stand in row order. A pair is a query and a key it may look at, itself included; (q, k) and "
    "(k, q) are two pairs.",
    answer="All pairs: 65,536. Borders make the exact counts smaller than patches times neighbours: a window of 9 "
    "tokens in row order has 2,284 pairs, not 2,304; a 3 by 3 neighbourhood `(3*16 - 2)^2 = 2116`; rows as blocks "
    "`16*16^2 = 4096`; row and column `256*31 = 7936`, since the patch itself is in both; one global token in front "
    "`2*257 - 1 = 513`. Few pairs are paid for in layers: row and column connect everything in 2, the neighbourhood in "
    "15, blocks never.",
    figure=lambda: bars(
     [(name, pattern.pairs(size, size)) for name, pattern, size in (
         ("row and column", Axial(SIDE, SIDE), PATCHES), ("rows as blocks", Block(SIDE), PATCHES),
         ("9 in a row", Local(5), PATCHES), ("3 by 3", Neighbourhood(SIDE, SIDE, 1), PATCHES),
         ("global token", Global(1), PATCHES + 1))],
     "Pairs on a 16 by 16 grid; full attention has 65,536."),
    parts=[
        Part("full", "How many pairs has full attention?", Number(65_536, rel=0), "counted", pairs_found(FULL),
             why="Each of 256 patches sees all 256: `256^2`.",
             wrong={"counted each pair once": 32_896, "took the side for the number of patches": 256}),
        Part("local", "Each patch sees itself and up to 4 before and 4 behind it in row order. How many pairs?",
             Number(2284, rel=0), "counted", pairs_found(Local(5)),
             why="`256*9` less 4 + 3 + 2 + 1 missing at either end.",
             wrong={"ignored the ends": 2304, "took one end only": 2294, "left the patch itself out": 2028}),
        Part("neighbourhood", "Each patch sees the 3 by 3 patches around it. How many pairs?", Number(2116, rel=0),
             "counted", pairs_found(Neighbourhood(SIDE, SIDE, 1)),
             why="On a line of 16 there are `3*16 - 2 = 46` pairs at most one apart; rows and columns choose "
             "independently.", wrong={"ignored the borders": 2304, "left the corners of the 3 by 3 out": 1216}),
        Part("radius", "On an n by n grid each patch sees up to r rows and r columns away, r < n. How many pairs?",
             Formula("(n*(2*r + 1) - r*(r + 1))^2", {"n": "whole", "r": "whole"}), "counted", near_pairs,
             why="On a line, each end lacks 1 to r neighbours: `r*(r + 1)` together; then square.",
             wrong={"ignored the borders": "n^2*(2*r + 1)^2", "took one end off": "(n*(2*r + 1) - r*(r + 1)/2)^2"}),
        Part("block", "Each row is a block whose patches see each other. How many pairs?", Number(4096, rel=0),
             "counted", pairs_found(Block(SIDE)), why="16 blocks, and in each of them 16 patches see 16: `16*16^2`.",
             wrong={"forgot the number of blocks": 256, "took full attention": 65_536}),
        Part("axial", "Each patch sees its row and its column. How many pairs?", Number(7936, rel=0), "counted",
             pairs_found(Axial(SIDE, SIDE)),
             why="16 + 16 patches, of which the patch itself is counted twice: `256*31`.",
             wrong={"counted the patch itself twice": 8192, "left it out": 7680, "took the row only": 4096}),
        Part("axial-side", "How many pairs has row and column on an n by n grid?",
             Formula("n^2*(2*n - 1)", {"n": "whole"}), "counted", axial_pairs,
             why="Each of `n^2` patches has `2*n - 1` keys: nearly `2*N^1.5` pairs for N patches.",
             wrong={"counted the patch itself twice": "2*n^3", "squared the side's pairs": "(2*n - 1)^2"}),
        Part("global", "Patches see only one extra token in front, and it sees all; it counts as a token. How many "
             "pairs?", Number(513, rel=0), "counted", pairs_found(Global(1), PATCHES + 1),
             why="A row and a column of 257, which share their corner. A patch does not see even itself.",
             wrong={"counted the corner twice": 514, "forgot the token itself": 512,
                    "let patches see themselves": 769}),
        Part("layers", "After how many layers of 3 by 3 neighbourhoods has every patch heard of every other?",
             Number(15, rel=0), "counted", layers_found(Neighbourhood(SIDE, SIDE, 1)),
             why="News moves one row and one column a layer; opposite corners are 15 apart.",
             wrong={"added rows and columns": 30, "counted patches, not steps": 16}),
        Part("axial-layers", "And after how many layers of row and column?", Number(2, rel=0), "counted",
             layers_found(Axial(SIDE, SIDE)), why="First along the row, then along the column.",
             wrong={"thought one is enough": 1, "one step a layer": 30}),
    ],
)  # fmt: skip


def projected(width: int, tokens: int) -> int:
    """The operations of the four projections: queries, keys, values and the result."""
    return 4 * counted(lambda: empty(tokens, width) @ empty(width, width))


def patch_attention() -> Finding:
    x = empty(1, 1, PATCHES, CHANNELS)
    return Finding(
        counted(lambda: attend_reference(x, x, x)), "PyTorch's counter on octavo's attention, 256 patches of 512"
    )


def channel_attention() -> Finding:
    x = empty(1, 1, PATCHES, CHANNELS)
    return Finding(counted(lambda: channel.attend_channels(x, x, x)), "PyTorch's counter on octavo's channel attention")


def channel_ratio() -> Finding:
    more = projected(CHANNELS, PATCHES)
    patch, channels = patch_attention().value, channel_attention().value
    note = f"with projections {channels + more:,} against {patch + more:,}; without {channels:,} against {patch:,}"
    return Finding((channels + more) / (patch + more), note)


def channel_cheaper() -> Finding:
    def fewer(n: int, d: int) -> bool:
        x = empty(1, 1, n, d)
        return counted(lambda: channel.attend_channels(x, x, x)) < counted(lambda: attend_reference(x, x, x))

    sizes = [(n, d) for n in (16, 64, 256, 1024) for d in (32, 64, 512)]
    wins = {size for size in sizes if fewer(*size)}
    above = {(n, d) for n, d in sizes if n > d}
    return Finding(
        verdict(wins == set(sizes), wins == above),
        f"of {len(sizes)} sizes it is cheaper for {len(wins)}, those with more patches than channels",
    )


def group_formula() -> Finding:
    points = []
    for n, d, g in ((256, 512, 1), (256, 512, 8), (64, 32, 4)):
        x = channel.in_groups(empty(1, n, d), g)
        operations = counted(lambda: channel.attend_channels(x, x, x))  # noqa: B023
        points.append(IntervalAt({"N": n, "D": d, "G": g}, operations, operations))
    return Finding(points, "PyTorch's counter on octavo's channel attention in G groups")


CHANNEL = Exercise(
    id="patch-or-channel",
    title="Attention over patches or over channels",
    question="An image has N = 256 patches (16 by 16) of D = 512 channels. Patches look at patches, or channels look "
    "at channels, a channel's vector being its 256 values. Count operations of products, multiplication and addition.",
    answer="Over patches the two products take `4*N^2*D = 134217728` operations, over channels `4*N*D^2 = 268435456`: "
    "twice as many, since the channels are twice as many as the patches. The four projections take `8*N*D^2`, the same "
    "for both, and then the ratio is only 1.2. Channel attention wins when there are more patches than channels in a "
    "group; with G groups it takes `4*N*D^2/G`.",
    figure=lambda: lines(
     [Series("over patches", [(n, 4 * n * n * CHANNELS + 8 * n * CHANNELS**2) for n in (2**i for i in range(4,
     14))]),
      Series("over channels", [(n, 12 * n * CHANNELS**2) for n in (2**i for i in range(4, 14))])],
     "Operations with projections for 512 channels: the curves cross at 512 patches.",
     ("patches", "operations"), True, True),
    parts=[
        Part("patches", "How many operations are the two products over patches, without projections?",
             Number(134_217_728, rel=0), "counted", patch_attention, why="`2*N^2*D` for scores, as many for the sum.",
             wrong={"left out the sum of values": 67_108_864, "exchanged patches and channels": 268_435_456}),
        Part("channels", "And over channels, in one group?", Number(268_435_456, rel=0), "counted", channel_attention,
             why="The same with N and D exchanged: `4*D^2*N`.",
             wrong={"left out the sum of values": 134_217_728, "counted the map's entries": 262_144}),
        Part("ratio", "With the four projections, how many times as dear are channels?", Number("6/5", rel=1e-9),
             "counted", channel_ratio, why="`(4*N*D^2 + 8*N*D^2)/(4*N^2*D + 8*N*D^2) = 3*D/(N + 2*D) = 1536/1280`.",
             wrong={"forgot the projections": 2, "took three projections": 1.25}),
        Part("cheaper", "Channel attention is cheaper than attention over patches.",
             Truth("nearly", only_if="there are more patches than channels in a group"), "counted", channel_cheaper,
             why="`4*N*D^2 < 4*N^2*D` if and only if `D < N`.", wrong={"thought of large images only": True}),
        Part("groups", "How many operations has channel attention in G groups, without projections?",
             Formula("4*N*D^2/G", {"N": "whole", "D": "whole", "G": "whole"}), "counted", group_formula,
             why="G maps of `(D/G)^2` entries, each entry costing N twice, times two.",
             wrong={"divided twice by G": "4*N*D^2/G^2", "ignored the groups": "4*N*D^2"}),
    ],
)  # fmt: skip

EXERCISES = (NEW_TOKEN, PATTERNS, CHANNEL)
