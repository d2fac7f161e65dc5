"""Efficient attention: the cost of a new token with a KV cache, of sparse patterns, and of attention over channels."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
from torch import Tensor

from octavo.exercises import Choice, Exercise, Finding, Formula, IntervalAt, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import count_attention_flops, count_flops, meta, normal, tabulate, tabulated
from octavo.ops import channel_attention as channel
from octavo.ops.attention import CAUSAL, FULL, Axial, Block, Global, Local, Neighbourhood, Pattern
from octavo.ops.attention.reference import attend_reference
from octavo.pages.figures.charts import Series, bars, lines

SIDE, CHANNELS = 16, 512
PATCHES = SIDE * SIDE
BAND = Neighbourhood(1, 9, 1)  # each of 9 tokens in a row attends to itself and its neighbours


def two_layers(x_TD: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Two attention layers with residual connections: the input and the output of the second."""
    once: Tensor = x_TD + attend_reference(x_TD[None, None], x_TD[None, None], x_TD[None, None], pattern)[0, 0]
    return once, once + attend_reference(once[None, None], once[None, None], once[None, None], pattern)[0, 0]


def change_of_earlier(pattern: Pattern) -> tuple[float, float]:
    """How much appending a ninth token changes the first eight, after one layer and after two."""
    x_TD = normal(9, 4, seed=1)
    before, after = two_layers(x_TD[:8], pattern), two_layers(x_TD, pattern)
    one, two = (float((b - a[:8]).abs().max()) for b, a in zip(before, after, strict=True))
    return one, two


def earlier_outputs_unchanged() -> Finding:
    (_, masked), (_, full) = change_of_earlier(CAUSAL), change_of_earlier(FULL)
    note = f"a ninth token changes the outputs of the first eight by {masked:.0e} with the mask, by {full:.2f} without"
    (once, _), (_, local) = change_of_earlier(FULL), change_of_earlier(BAND)
    under = {"causal": masked < 1e-12, "local": local < 1e-12, "single": once < 1e-12}
    return Finding(verdict(full < 1e-12, under), note, "to 1e-12")


def cached_keys_valid() -> Finding:
    (masked, _), (full, _) = change_of_earlier(CAUSAL), change_of_earlier(FULL)
    note = f"the inputs of the second layer's keys change by {masked:.0e} with the mask, {full:.2f} without"
    local = change_of_earlier(BAND)[0]
    under = {"causal": masked < 1e-12, "local": local < 1e-12, "last": full < 1e-12}  # the first layer decides
    return Finding(verdict(full < 1e-12, under), note, "to 1e-12")


def new_pairs_in_mask() -> Finding:
    before, after = (CAUSAL.mask(n, n) for n in (8, 9))
    new = after.clone()
    new[:8, :8] &= ~before
    rows, columns = new.any(1).nonzero().flatten().tolist(), new.any(0).nonzero().flatten().tolist()
    found = {(1, 9): "new-row", (9, 1): "new-column", (9, 9): "both"}[len(rows), len(columns)]
    note = f"the mask of 9 tokens has {int(new.sum())} pairs that the mask of 8 lacks: query {rows}, keys 0-8"
    return Finding(found, note)


def new_pairs(pattern: Pattern) -> list[IntervalAt]:
    return tabulate("N", [(1,), (7,), (100,)], lambda n: pattern.pairs(n + 1, n + 1) - pattern.pairs(n, n))


@tabulated("N D", ((7, 16), (100, 64), (1023, 32)), "PyTorch's FLOP counter on octavo's attention with one query")
def new_operations(n: int, d: int) -> int:
    q, k = meta(1, 1, 1, d), meta(1, 1, n + 1, d)
    return count_flops(lambda: attend_reference(q, k, k, CAUSAL))


N = {"N": "whole"}
NEW_TOKEN = Exercise(
    id="masked-new-token", title="What a new token costs in causal attention",
    question="N tokens have been processed by causal attention of width D (one head, or all heads together), and their "
    "keys and values are cached. One more token arrives.",
    where={"cached": lambda N: CAUSAL.pairs(N, N), "t": (2, 3, 5), "triangle": lambda t: CAUSAL.pairs(t, t)},
    answer="Only one query is new. It attends to all keys, its own included: `N + 1`{pairs} scores and as many terms "
    "in the weighted sum, `4*(N + 1)*D`{operations} operations. Nothing that was computed before changes, in any "
    "layer, because no earlier token attends to the new one; without the mask, every earlier output and the keys of "
    "the second layer would change. So generating N tokens one by one takes `N*(N + 1)/2`{cached} pairs, as many as "
    "processing them in parallel; without the KV cache it takes `N*(N + 1)*(N + 2)/6`{no-cache}.",
    figure=lambda: lines([Series("without a cache",
        [(n, n * (n + 1) * (n + 2) / 6) for n in (2**i for i in range(13))]),
        Series("with a KV cache", [(n, CAUSAL.pairs(n, n)) for n in (2**i for i in range(13))])],
        "Query-key pairs for generating N tokens one by one.", ("tokens N", "pairs"), True, True),
    parts=[
        Part("changes", "In attention of any kind, appending a token changes no earlier "
             "output.", Truth("nearly", Choice("causal", {
             "single": "there is only one layer", "causal": "attention is causal: no token attends to a later one",
             "local": "tokens attend only to their neighbours, on both sides"})), "numeric", earlier_outputs_unchanged,
             why="Row t of the attention weights covers `s <= t`; the new column is masked in all rows but the last.",
             wrong={"assumed a causal mask": True}),
        Part("kept", "In a network with several layers and attention of any kind, the keys and values of earlier "
             "tokens can be cached.",
             Truth("nearly", Choice("causal", {"last": "the last layer is causal", "causal": "every layer is causal",
             "local": "tokens attend only to their neighbours, on both sides"})), "numeric", cached_keys_valid,
             why="The keys of the first layer depend on one token each, but those of the second on all tokens attended "
             "to.", wrong={"assumed a causal mask in every layer": True}),
        Part("which", "Which pairs of a query and a key are new?", Choice("new-row", {"new-row": "the new query with "
             "all keys",
             "new-column": "all queries with the new key", "both": "a row and a column"}), "counted", new_pairs_in_mask,
             why="The other entries of the new column are masked."),
        Part("pairs", "How many pairs are new?", Formula("N + 1", N), "counted",
             lambda: Finding(new_pairs(CAUSAL), "pairs counted by octavo's causal pattern"),
             why="The token attends to N others and itself.",
             wrong={"forgot that it attends to itself": ("N", lambda N: CAUSAL.pairs(N + 1, N + 1) - CAUSAL.pairs(N,
                 N) - 1),
                    "counted the masked column": ("2*N + 1", lambda N: FULL.pairs(N + 1, N + 1) - FULL.pairs(N, N))}),
        Part("unmasked", "How many pairs are new without the mask?", Formula("2*N + 1", N), "counted",
             lambda: Finding(new_pairs(FULL), "pairs counted by octavo's full pattern"),
             why="`(N + 1)^2 - N^2`{}: a new row and a new column, which share one entry.",
             wrong={"counted the shared entry twice": ("2*N + 2", lambda N: 2 * len(range(N + 1))),
                    "counted only the new row": ("N + 1", lambda N: len(range(N + 1)))}),
        Part("operations", "How many operations do its scores and the weighted sum take? (Additions and "
             "multiplications both count.)", Formula("4*(N + 1)*D", {"N": "whole", "D": "whole"}), "counted",
             new_operations,
             why="`N + 1`{pairs} dot products of length D, then `N + 1`{pairs} values of length D, each multiplied by "
             "a weight and added.",
             wrong={"left out the weighted sum":
                        ("2*(N + 1)*D", lambda N, D: count_flops(lambda: meta(1, D) @ meta(D, N + 1))),
                    "recomputed all rows": ("4*(N + 1)^2*D", lambda N, D: count_attention_flops(N + 1, N + 1, D)),
                    "forgot its own key": ("4*N*D", lambda N, D: count_attention_flops(1, N, D))}),
        Part("no-cache", "N tokens are generated one by one without a cache: every step recomputes all unmasked pairs. "
             "How many pairs in total?", Formula("N*(N + 1)*(N + 2)/6", N), "counted",
             tabulated("N", [(1,), (5,), (40,)], "the pairs of every length from 1 to N, counted and added")(
                 lambda n: sum(CAUSAL.pairs(t, t) for t in range(1, n + 1))),
             why="The sum of `t*(t + 1)/2`{triangle} for t from one to N.",
             wrong={"gave the count with a KV cache": ("N*(N + 1)/2", lambda N: CAUSAL.pairs(N, N)),
                    "ignored the mask":
                        ("N*(N + 1)*(2*N + 1)/6", lambda N: sum(FULL.pairs(t, t) for t in range(1, N + 1)))}),
    ])  # fmt: skip


def counted_pairs(pattern: Pattern, tokens: int = PATCHES) -> Callable[[], Finding]:
    """Evidence: the pairs of a pattern, counted one by one."""
    return lambda: Finding(pattern.pairs(tokens, tokens), f"{pattern} on {tokens} tokens, counted one by one")


SHOWN_PATTERNS: list[tuple[str, Pattern, int]] = [
    ("axial", Axial(SIDE, SIDE), PATCHES), ("rows as blocks", Block(SIDE), PATCHES), ("window of 9", Local(5), PATCHES),
    ("3 by 3", Neighbourhood(SIDE, SIDE, 1), PATCHES), ("global token", Global(1), PATCHES + 1),
]  # fmt: skip


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
    id="sparse-patterns-grid", title="Sparse attention patterns on a 16 by 16 grid",
    where={"patches": PATCHES, "side": SIDE, "three": 3, "window": 9, "reach": 4, "lines": 2 * SIDE, "tokens":
        PATCHES + 1,
           "without_ends": sum(9 for _ in range(PATCHES)), "block_pairs": FULL.pairs(SIDE, SIDE),
           "missing": sum(1 for q in range(PATCHES) for k in range(q - 4, q) if k < 0),
           "lacking": lambda r: sum(1 for q in range(50) for k in range(q - r, q + r + 1) if not 0 <= k < 50),
           "keys": lambda n: Axial(n, n).pairs(n * n, n * n) / n**2, "grid": lambda n: sum(n for _ in range(n)),
           "nearly": lambda N: 2 * mpmath.sqrt(N) ** 3},
    question="There are 256{patches} patches in row order. A pair is a query and a key it may attend to, itself "
    "included; (q, k) and (k, q) are two pairs.",
    answer="All pairs: 65,536{full}. Because of the borders, the exact counts are smaller than patches times "
    "neighbours: a window of 9{window} tokens in row order has 2,284{local} pairs, not 2,304{without_ends}; a "
    "3{three} by 3{three} neighbourhood has `(3*16 - 2)^2 = 2116`; rows as blocks `16*16^2 = 4096`; axial attention "
    "`256*31 = 7936`, since the patch itself is in its row and its column; one global token `2*257 - 1 = 513`. Fewer "
    "pairs need more layers: axial attention connects all patches in 2{axial-layers} layers, the neighbourhood in "
    "15{layers}, blocks never.",
    figure=lambda: bars([(name, pattern.pairs(size, size)) for name, pattern, size in SHOWN_PATTERNS],
        "Pairs on a 16 by 16 grid; full attention has 65,536."),
    parts=[
        Part("full", "How many pairs does full attention have?", Number(65_536, rel=0), "counted", counted_pairs(FULL),
             why="Each of the 256{patches} patches attends to all 256{patches}: `256^2`{}.",
             wrong={"counted each pair once": (32_896, lambda: CAUSAL.pairs(PATCHES, PATCHES)),
                    "used the number of patches instead of pairs": (256, lambda: SIDE * SIDE)}),
        Part("local", "Each patch attends to itself and up to 4{reach} patches before and after it in row order. How "
             "many pairs?", Number(2284, rel=0), "counted", counted_pairs(Local(5)),
             why="`256*9`{without_ends} minus `4 + 3 + 2 + 1`{missing} at either end.",
             wrong={"ignored the ends": (2304, lambda: sum(9 for _ in range(PATCHES))),
                    "corrected one end only": (2294, lambda: sum(min(q, 4) + 5 for q in range(PATCHES))),
                    "left the patch itself out": (2028, lambda: Local(5).pairs(PATCHES, PATCHES) - PATCHES)}),
        Part("neighbourhood", "Each patch attends to the 3{three} by 3{three} patches around it. How many pairs?",
             Number(2116, rel=0), "counted", counted_pairs(Neighbourhood(SIDE, SIDE, 1)),
             why="On a line of 16{side} there are `3*16 - 2 = 46` pairs at most one apart; rows and columns choose "
             "independently.", wrong={"ignored the borders": (2304, lambda: sum(9 for _ in range(PATCHES))),
                             "left the corners out": (1216, lambda: PATCHES + 4 * SIDE * (SIDE - 1))}),
        Part("radius", "On an n by n grid each patch attends to patches up to r rows and r columns away, with r below "
             "n. How many pairs?", Formula("(n*(2*r + 1) - r*(r + "
             "1))^2", {"n": "whole", "r": "whole"}, ("n", "r")), "counted",
             tabulated("n r", ((16, 1), (16, 3), (9, 2), (30, 4)),
                 "pairs counted by octavo's neighbourhood pattern on four grids")(
                 lambda n, r: Neighbourhood(n, n, r).pairs(n * n, n * n)),
             why="On a line, the patches near the two ends lack `r*(r + 1)`{lacking} neighbours in total; then square.",
             wrong={"ignored the borders": ("n^2*(2*r + 1)^2", lambda n, r: (n * len(range(-r, r + 1))) ** 2),
                    "corrected one end only": ("(n*(2*r + 1) - r*(r + 1)/2)^2",
                        lambda n, r: (n * len(range(-r, r + 1)) - sum(range(r + 1))) ** 2)}),
        Part("block", "Each row is a block whose patches attend to each other. How many pairs?", Number(4096, rel=0),
             "counted", counted_pairs(Block(SIDE)), why="16{side} blocks with `16^2`{block_pairs} pairs each.",
             wrong={"forgot the number of blocks": (256, lambda: FULL.pairs(SIDE, SIDE)),
                    "gave full attention": (65_536, lambda: FULL.pairs(PATCHES, PATCHES))}),
        Part("axial", "Each patch attends to its row and its column (axial attention). How many pairs?",
             Number(7936, rel=0), "counted", counted_pairs(Axial(SIDE, SIDE)),
             why="`16 + 16`{lines} patches, of which the patch itself is counted twice: `256*31`{}.",
             wrong={"counted the patch itself twice": (8192, lambda: sum(2 * SIDE for _ in range(PATCHES))),
                    "left it out": (7680, lambda: Axial(SIDE, SIDE).pairs(PATCHES, PATCHES) - PATCHES),
                    "counted the row only": (4096, lambda: Block(SIDE).pairs(PATCHES, PATCHES))}),
        Part("axial-side", "How many pairs does axial attention have on an n by n grid?",
             Formula("n^2*(2*n - 1)", {"n": "whole"}), "counted", tabulated("n", [(1,), (4,), (16,), (20,)],
                 "pairs counted by octavo's axial pattern on four grids")(lambda n: Axial(n, n).pairs(n * n, n * n)),
             why="Each of `n^2`{grid} patches has `2*n - 1`{keys} keys: nearly `2*N^1.5`{nearly} pairs for N patches.",
             wrong={"counted the patch itself twice": ("2*n^3", lambda n: sum(2 * n for _ in range(n * n))),
                    "squared the side's pairs": ("(2*n - 1)^2", lambda n: (2 * n - 1) * (n + n - 1))}),
        Part("global", "Patches attend only to one extra global token, and it attends to all tokens; it counts as a "
             "token. How many pairs?", Number(513, rel=0), "counted", counted_pairs(Global(1), PATCHES + 1),
             why="A row and a column of 257{tokens}, which share one entry. A patch does not even attend to itself.",
             wrong={"counted the shared entry twice": (514, lambda: 2 * (PATCHES + 1)),
                    "forgot the token itself": (512, lambda: 2 * PATCHES),
                    "let patches attend to themselves":
                        (769, lambda: Global(1).pairs(PATCHES + 1, PATCHES + 1) + PATCHES)}),
        Part("layers", "After how many layers of 3{three} by 3{three} neighbourhoods does every patch depend on every "
             "other?",
             Number(15, rel=0), "counted", layers_found(Neighbourhood(SIDE, SIDE, 1)),
             why="Information moves one row and one column per layer; opposite corners are 15{} apart.",
             wrong={"added rows and columns": (30, lambda: 2 * (SIDE - 1)), "counted patches, not steps": (16, lambda:
                 SIDE)}),
        Part("axial-layers", "After how many layers of axial attention does every patch depend on every "
             "other?", Number(2, rel=0), "counted",
             layers_found(Axial(SIDE, SIDE)), why="First along the row, then along the column.",
             wrong={"thought that one is enough": (1, lambda: layers_found(FULL)().value),
                    "moved one step per layer": (30, lambda: 2 * (SIDE - 1))}),
    ])  # fmt: skip


def projection_flops(width: int, tokens: int) -> int:
    """The operations of the four projections: queries, keys, values and output."""
    return 4 * count_flops(lambda: meta(tokens, width) @ meta(width, width))


def patch_attention() -> Finding:
    note = "PyTorch's FLOP counter on octavo's attention, 256 patches of 512 channels"
    return Finding(count_attention_flops(PATCHES, PATCHES, CHANNELS), note)


def channel_attention() -> Finding:
    x = meta(1, 1, PATCHES, CHANNELS)
    note = "PyTorch's FLOP counter on octavo's channel attention"
    return Finding(count_flops(lambda: channel.attend_channels(x, x, x)), note)


def channel_ratio() -> Finding:
    projections = projection_flops(CHANNELS, PATCHES)
    patch, channels = patch_attention().value, channel_attention().value
    with_channels, with_patches = channels + projections, patch + projections
    note = f"with projections {with_channels:,} against {with_patches:,}; without {channels:,} against {patch:,}"
    return Finding(with_channels / with_patches, note)


def channel_cheaper() -> Finding:
    def fewer(n: int, d: int) -> bool:
        x = meta(1, 1, n, d)
        return count_flops(lambda: channel.attend_channels(x, x, x)) < count_flops(lambda: attend_reference(x, x, x))

    sizes = [(n, d) for n in (16, 64, 256, 1024) for d in (32, 64, 512)]
    wins = {size for size in sizes if fewer(*size)}
    above = {(n, d) for n, d in sizes if n > d}
    note = f"of {len(sizes)} sizes it is cheaper for {len(wins)}, those with more patches than channels"
    under = {"patches": above <= wins, "large": {(n, d) for n, d in sizes if n > 100} <= wins,
             "few": {(n, d) for n, d in sizes if d <= 64} <= wins}  # fmt: skip
    return Finding(verdict(wins == set(sizes), under), note)


@tabulated("N D G", ((256, 512, 1), (256, 512, 8), (64, 32, 4)),
    "PyTorch's FLOP counter on octavo's channel attention in G groups")  # fmt: skip
def group_formula(n: int, d: int, g: int) -> int:
    x = channel.in_groups(meta(1, n, d), g)
    return count_flops(lambda: channel.attend_channels(x, x, x))


CHANNEL = Exercise(
    id="patch-or-channel", title="Attention over patches or over channels",
    where={"N": PATCHES, "D": CHANNELS, "side": SIDE, "G": (1, 2, 4, 8), "projections": projection_flops(CHANNELS,
        PATCHES),
           "scores": lambda N, D: count_flops(lambda: meta(N, D) @ meta(D, N)),
           "entries": lambda D, G: meta(D // G, D // G).numel(), "each": lambda N: count_flops(lambda: meta(1,
               N) @ meta(N, 1))},
    question="An image has `N = 256` patches (16{side} by 16{side}) of `D = 512` channels. Patches attend to patches, "
    "or channels attend to channels, where the vector of a channel is its 256{N} values. Count the multiplications "
    "and additions of matrix products.",
    answer="Over patches the two products take `4*N^2*D = 134217728` operations, over channels `4*N*D^2 = 268435456`: "
    "twice as many, since there are twice as many channels as patches. The four projections take "
    "`8*N*D^2`{projections}, the same for both, and then the ratio is only 1.2{ratio}. Channel attention is cheaper "
    "if there are more patches than channels per group; with G groups it takes `4*N*D^2/G`{groups}.",
    figure=lambda: lines([Series("over patches",
        [(n, 4 * n * n * CHANNELS + 8 * n * CHANNELS**2) for n in (2**i for i in range(4, 14))]),
        Series("over channels", [(n, 12 * n * CHANNELS**2) for n in (2**i for i in range(4, 14))])],
        "Operations with projections for 512 channels: the curves cross at 512 patches.", ("patches", "operations"),
        True, True),
    parts=[
        Part("patches", "How many operations do the two products over patches take, without projections?",
             Number(134_217_728, rel=0), "counted", patch_attention,
             why="`2*N^2*D`{scores} for the scores and as many for the weighted sums.",
             wrong={"left out the weighted sum": (67_108_864, lambda: patch_attention().value // 2),
                    "swapped patches and channels": (268_435_456, lambda: count_attention_flops(CHANNELS, CHANNELS,
                        PATCHES))}),
        Part("channels", "How many operations do the two products over channels take, without projections, if every "
             "channel attends to all of them?", Number(268_435_456, rel=0), "counted", channel_attention,
             why="The same with N and D swapped: `4*D^2*N`{}.",
             wrong={"left out the weighted sum": (134_217_728, lambda: channel_attention().value // 2),
                    "counted the attention weights": (262_144, lambda: meta(CHANNELS, CHANNELS).numel())}),
        Part("ratio", "With the four projections, how many times as expensive is attention over channels?",
             Number("6/5"), "counted", channel_ratio,
             why="`(4*N*D^2 + 8*N*D^2)/(4*N^2*D + 8*N*D^2) = 3*D/(N + 2*D) = 1536/1280`.",
             wrong={"forgot the projections": (2, lambda: channel_attention().value / patch_attention().value),
                    "counted three projections": (1.25, lambda:
                        (channel_attention().value + 0.75 * projection_flops(CHANNELS, PATCHES))
                        / (patch_attention().value + 0.75 * projection_flops(CHANNELS, PATCHES)))}),
        Part("cheaper", "Channel attention is cheaper than attention over patches.",
             Truth("nearly", Choice("patches", {"large": "there are more than a hundred patches",
             "patches": "there are more patches than channels per group",
             "few": "there are at most sixty-four channels"})), "counted", channel_cheaper,
             why="`4*N*D^2`{channels} is below `4*N^2*D`{patches} if and only if D is below N.", wrong={"considered "
             "large images only": True}),
        Part("groups", "The channels are divided into G groups, and each attends only to its own group. How many "
             "operations does that take, without projections?",
             Formula("4*N*D^2/G", {"N": "whole", "D": "whole", "G": "whole"}, ("D", "G")), "counted", group_formula,
             why="G matrices of `(D/G)^2`{entries} attention weights; each entry takes `2*N`{each} operations for its "
             "score and `2*N`{each} in the weighted sum.",
             wrong={"divided twice by G": ("4*N*D^2/G^2", lambda N, D, G: 4 * N * (mpmath.mpf(D) / G) ** 2),
                    "ignored the groups": ("4*N*D^2", lambda N, D: count_attention_flops(D, D, N))}),
    ])  # fmt: skip

EXERCISES = (NEW_TOKEN, PATTERNS, CHANNEL)
