"""Views of kind token-table: an n-gram's back-off path, a mixture's votes, a bag's probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from octavo.core import LanguageModel
from octavo.inspect.backoff import Backoff, backoff, votes
from octavo.inspect.surprisal import read
from octavo.inspect.views import call_source, require_view
from octavo.io.cooperative import Turn
from octavo.models.mix import short_title
from octavo.models.views import TokenDetail, TokenTable, View

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
        "Colour: the longest context that a token was seen after in training. Choose a token.", BACKOFF_COLUMNS,
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
    every = zip(found.p_N.tolist(), found.p_NI.tolist(), found.weight_NI.tolist(), found.class_N.tolist(), strict=True)
    details = []
    for p, part_p, weights, known in every:
        given = [one * weight for one, weight in zip(part_p, weights, strict=True)]
        rows = [
            (part, _short(one), f"{weight:.1%}", _short(share))
            for part, one, weight, share in zip(parts, part_p, weights, given, strict=True)
        ]
        notes = (f"The weights are those for a context of which {chooser} knows {_tokens(known)}.",) if chooser else ()
        most = given.index(max(given))
        title = f"{_costs(p)}, most of it from {parts[most]}"
        shares = tuple(share / p if p > 0 else 0.0 for share in given)
        details.append(TokenDetail(most, title, (*rows, ("p", "", "", _short(p))), (*shares, 0.0), notes))
    return TokenTable(
        "Colour: the part that gave most to the token's probability. Choose a token.",
        ("part", "its p", "weight", "gives to p"), tuple(details), parts=parts,
    )  # fmt: skip


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
