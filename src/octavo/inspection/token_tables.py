"""Views of kind token-table: an n-gram's back-off path, a mixture's votes, a bag's probabilities.

    p(w | c) = alpha(c w) + gamma(c) p(w | c without its first word)

Written out, p is a sum: what each length of context gives, alpha, times the gammas of all longer ones; and at last the
uniform share. N tokens, K contexts of 0 to n - 1 tokens, I parts of a mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.inspection.surprisal import read
from octavo.inspection.views import call_source, require_view
from octavo.io.cooperative import Turn
from octavo.models import Mix, NGram
from octavo.models.mix import short_title
from octavo.models.views import Table, TokenDetail, TokenTable, View

PIECE = 256  # tokens of a turn


@dataclass(frozen=True, eq=False)
class Backoff:
    """Each token of a text with the contexts that were searched for it; column k is the context of k tokens."""

    p_N: Tensor
    seen_NK: Tensor  # whether training kept the context
    followed_NK: Tensor  # distinct tokens seen after the context
    found_NK: Tensor  # whether this token is one of them
    alpha_NK: Tensor  # the discounted probability of this token in the context
    gamma_NK: Tensor  # the back-off (interpolation) weight of the next shorter context
    share_NK: Tensor  # the context's contribution to p: alpha times the weights of all longer contexts
    uniform_N: Tensor  # the rest of p: the uniform distribution over the vocabulary
    counts_N2: Tensor | None
    """add-k: how often the longest context was followed by this token, and by any. The other estimators keep no
    counts, and theirs cannot be worked out from what they keep."""

    @property
    def matched_length_N(self) -> Tensor:  # noqa: N802
        """Length of the longest context that this token was seen after."""
        return (self.found_NK * torch.arange(self.found_NK.shape[1])).amax(1)


@torch.no_grad()
def backoff(model: NGram, x_N: Sequence[int]) -> Backoff:
    """The path of every token of a text, which is read after begin."""
    x_1N = torch.tensor([list(x_N)], dtype=torch.long, device=device_of(model))
    begun_1K = model.predict(model.start(1), x_1N.new_full((1,), model.begin))[1]
    contexts, nodes = model.matches(begun_1K, x_1N)
    p_N = model.probability(x_1N, zip(contexts, nodes, strict=True))[0]
    context_NK, node_NK = torch.stack(contexts, -1)[0], torch.stack(nodes, -1)[0]
    place_NK = context_NK.clamp(max=len(model.gamma_C) - 1)  # the last index is a sentinel for missing contexts
    followed_NK = model.first_C[place_NK + 1] - model.first_C[place_NK]
    found_NK = node_NK != model.none
    followed_NK[:, 0] = model.vocab - 1  # below all contexts stands the vocabulary; begin never comes
    found_NK[:, 0] = model.alpha_M[node_NK[:, 0]] != 0
    alpha_NK, gamma_NK = model.alpha_M[node_NK].double(), model.gamma_C[place_NK]
    handed_NK = torch.cat([gamma_NK, torch.ones_like(gamma_NK[:, :1])], 1).flip(1).cumprod(1).flip(1)
    uniform_N = handed_NK[:, 0] * (x_1N[0] != model.begin) / (model.vocab - 1)
    return Backoff(
        p_N.cpu(), (context_NK != model.none).cpu(), followed_NK.cpu(), found_NK.cpu(), alpha_NK.cpu(), gamma_NK.cpu(),
        (alpha_NK * handed_NK[:, 1:]).cpu(), uniform_N.cpu(), _counts(model, alpha_NK[:, -1], gamma_NK[:, -1]),
    )  # fmt: skip


def _counts(model: NGram, alpha_N: Tensor, gamma_N: Tensor) -> Tensor | None:
    """Of add-k, where alpha = count / (total + k V) and gamma = k V / (total + k V): both solved for whole numbers.

    Where a context was pruned or never seen, gamma is 1 and the total 0, which is what was kept of it.
    """
    if model.config.estimator != "add-k" or any(model.config.prune):
        return None
    added = model.config.k * (model.vocab - 1)
    whole_N = added / gamma_N
    return torch.stack([(alpha_N * whole_N).round(), (whole_N - added).round()], 1).long().cpu()


@dataclass(frozen=True, eq=False)
class Votes:
    """What each part of a mixture gives each token, and how much its word counts there."""

    p_N: Tensor  # the mixture's
    p_NI: Tensor
    weight_NI: Tensor
    class_N: Tensor  # which of the sets of weights was taken: how much the part that chooses knows of the context

    @property
    def share_NI(self) -> Tensor:  # noqa: N802
        """What each part gives to p."""
        return self.p_NI * self.weight_NI


@torch.no_grad()
def votes(model: Mix, x_N: Sequence[int], turn: Turn = nullcontext) -> Votes:
    """The votes on every token of a text, which is read after begin, a piece at a time."""
    device = device_of(model)
    x_1T = model.prepend_begin(torch.tensor([list(x_N)], dtype=torch.long, device=device))
    state, found = model.start(1), []
    for first in range(0, len(x_N), PIECE):
        with turn(), eval_mode(model):
            some_1T = x_1T[:, first : first + PIECE + 1]
            class_1T = model.token_context_classes(state, some_1T)
            logp_I1T, state = model.part_log_probs(state, some_1T)
            found.append((logp_I1T[:, 0].T.exp(), model.logw_GI[class_1T[0]].exp(), class_1T[0]))
    p_NI, weight_NI, class_N = (torch.cat(one).cpu() for one in zip(*found, strict=True))
    return Votes((p_NI * weight_NI).sum(1), p_NI, weight_NI, class_N)


Spell = Callable[[int], str]
BACKOFF_COLUMNS = ("context", "followed by", "this one", "alpha", "gamma", "gives to p")
BACKOFF_NOTE = (
    "From the longest context down: by how many different tokens it was followed in training, whether this was one of "
    "them, alpha, what the token gets there, and gamma, what is handed down to the next shorter one. A context gives "
    "alpha times all gammas above it; together that is p."
)


def token_table(
    model: LanguageModel[Any], x_N: Sequence[int], spell: Spell, turn: Turn = nullcontext, view: View | None = None
) -> TokenTable:
    """The model's view of kind token-table (its first, if none is named); `spell` shows a token."""
    view = view or require_view(model, "token-table")
    known: dict[str, Callable[..., TokenTable]] = {
        "backoff": partial(backoff_table, spell), "votes": votes_table, "unigram": unigram_table,
    }  # fmt: skip
    return call_source(view, known, model, x_N, turn)  # type: ignore[no-any-return]


def backoff_table(spell: Spell, model: Any, x_N: Sequence[int], turn: Turn, view: View) -> TokenTable:
    """The path of each token from the longest context down to none."""
    with turn():
        path = backoff(model, x_N)
    order, tokens = model.config.order, [spell(token) for token in (model.begin, *x_N)]
    longest = path.matched_length_N.tolist()
    details = tuple(
        _backoff_detail(path, n, tokens[: n + 1][-(order - 1) :] if order > 1 else [], tokens[n + 1], longest[n],
                        max(1, order - 1), model.vocab - 1)
        for n in range(len(x_N))
    )  # fmt: skip
    note = BACKOFF_NOTE + ("" if path.counts_N2 is not None else " The model keeps no counts, only these.")
    return TokenTable(
        "Colour: the longest context that a token was seen after in training.", BACKOFF_COLUMNS,
        details, legend=tuple(_tokens(k) for k in range(order)), outro=note,
    )  # fmt: skip


def _backoff_detail(
    path: Backoff, n: int, before: list[str], token: str, longest: int, most: int, choices: int
) -> TokenDetail:
    p = float(path.p_N[n])
    rows, shares = [], []
    for k in range(len(before), -1, -1):
        seen, found, share = bool(path.seen_NK[n, k]), bool(path.found_NK[n, k]), float(path.share_NK[n, k])
        rows.append((
            "".join(before[-k:]) if k else "no context", f"{int(path.followed_NK[n, k]):,}" if seen else "–",
            "context never seen" if not seen else "yes" if found else "no", _short(float(path.alpha_NK[n, k])),
            _short(float(path.gamma_NK[n, k])), _short(share),
        ))  # fmt: skip
        shares.append(share / p if p > 0 else 0.0)
    uniform = float(path.uniform_N[n])
    rows.append(("uniform", f"{choices:,}", "", _short(1 / choices), "", _short(uniform)))
    rows.append(("p", "", "", "", "", _short(p)))
    shares += [uniform / p if p > 0 else 0.0, 0.0]
    notes: tuple[str, ...] = ()
    if path.counts_N2 is not None:
        count, total = path.counts_N2[n].tolist()
        notes = (f"The longest context was seen {total:,} times, {count:,} times followed by this token.",)
    title = f"“{token}” after “{''.join(before) or 'nothing'}”: {_costs(p)}, seen after {_tokens(longest)}"
    return TokenDetail(longest / most, title, tuple(rows), tuple(shares), notes)


def votes_table(model: Any, x_N: Sequence[int], turn: Turn, view: View) -> TokenTable:
    """What each part of a mixture gives each token, and how much its vote counts."""
    found = votes(model, x_N, turn)
    parts = tuple(map(short_title, model.parts))
    chooser = parts[model.gate] if len(model.logw_GI) > 1 else ""
    columns = (found.p_N, found.p_NI, found.weight_NI, found.share_NI, found.class_N)
    details = []
    for p, part_p, weights, given, known in zip(*(column.tolist() for column in columns), strict=True):
        rows = [
            (part, _short(one), f"{weight:.1%}", _short(share))
            for part, one, weight, share in zip(parts, part_p, weights, given, strict=True)
        ]
        notes = (f"The weights are those for a context of which {chooser} knows {_tokens(known)}.",) if chooser else ()
        most = given.index(max(given))
        title = f"{_costs(p)}, most of it from {parts[most]}"
        shares = tuple(share / p if p > 0 else 0.0 for share in given)
        bits = tuple(-math.log2(each) if each > 0 else math.inf for each in (*part_p, p))
        details.append(TokenDetail(most, title, (*rows, ("p", "", "", _short(p))), (*shares, 0.0), notes, bits))
    return TokenTable(
        "Colour: the part that gave most to the token's probability.",
        ("part", "its p", "weight", "gives to p"), tuple(details), parts=parts,
    )  # fmt: skip


@dataclass(frozen=True)
class PartSummary:
    """How one part of a mixture did over a text."""

    name: str
    won: float | None
    """The share of tokens to which it gave most; None of the whole mixture."""
    bits: float
    """What a token costs by it alone, on average."""


def part_summaries(table: TokenTable) -> tuple[PartSummary, ...]:
    """Of a table whose tokens are tinted by part: each part, and last the whole mixture."""
    if not table.details or not all(detail.part_bits for detail in table.details):
        return ()
    N, winners = len(table.details), [int(detail.shade) for detail in table.details]
    means = [math.fsum(column) / N for column in zip(*(detail.part_bits for detail in table.details), strict=True)]
    shares = [winners.count(i) / N for i in range(len(table.parts))]
    return tuple(map(PartSummary, (*table.parts, "mixture"), (*shares, None), means))


def summary_table(table: TokenTable) -> Table | None:
    """What the table says of the whole text, or of a mixture its parts' costs in cells; None where neither is known."""
    if table.summary is not None:
        return table.summary
    found = part_summaries(table)
    if not found:
        return None
    rows = tuple((one.name, "" if one.won is None else f"{one.won:.1%}", _mean_bits(one.bits)) for one in found)
    caption = "How often each part gave the token most, and what a token costs by it alone."
    return Table(caption, ("part", "tokens won", "bits per token"), rows)


def _mean_bits(bits: float) -> str:
    return f"{bits:.3f}" if math.isfinite(bits) else "infinite"


def unigram_table(model: LanguageModel[Any], x_N: Sequence[int], turn: Turn, view: View) -> TokenTable:
    """The probability of each token, which is the same in every place."""
    found = read(model, x_N, turn=turn)
    every = zip(found.bits_N.tolist(), found.rank_N.tolist(), strict=True)
    details = tuple(
        TokenDetail(2**-bits, _costs(2**-bits), notes=(f"It is number {rank:,} of all tokens, in every place.",))
        for bits, rank in every
    )
    return TokenTable("A bag has no state: each token has the same probability wherever it stands.", (), details)


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def _costs(p: float) -> str:
    return f"{p:.1%}, {-math.log2(p):.2f} bits" if p > 0 else "impossible"


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.4f}" if abs(value) >= 0.001 else f"{value:.1e}"
