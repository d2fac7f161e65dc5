"""How much of its context a model uses: what the same tokens cost when it sees only the last few before each.

N tokens, R rows, S tokens of a row, W windows, K tokens of context at most.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.cost import cost_of, one_token
from octavo.inspect.doctor.finding import GATES, LOOKS, Finding, Verdict, not_applicable
from octavo.inspect.doctor.unseen_text import spread
from octavo.io.progress import progress
from octavo.models import spec_of
from octavo.text import Tokenizer

LENGTHS = (0, 1, 2, 4, 8, 16, 32)
K = LENGTHS[-1]
LEAD = 128  # tokens before the first that is judged: what counts as all of the context
ROWS = 16  # stretches of text
MOST, LEAST = 4096, 256  # tokens judged: differences of 0.5 % need thousands; a large model makes do with fewer
WORK = 1e11  # floating-point operations: some seconds of one core
PER_CHANCE = 20  # of them for each logit that becomes a probability: exp takes about so long
LOGITS = 1 << 25  # held at once: 128 MB
MOST_WINDOWS = 1024  # at once: a model that keeps its states in a memory has one for each
NOTHING = 0.005  # of the bits: more context that saves less gives nothing
FAIR = 4  # tokens that a model with a state should use at least: a 5-gram does


def judged_tokens(model: LanguageModel[Any]) -> int:
    """How many tokens to judge, so that a large model takes seconds too; each is predicted K times."""
    each = K * (cost_of(model, one_token(model.config)).total("forward") + PER_CHANCE * model.vocab)
    return int(min(MOST, max(LEAST, WORK // each)))


@torch.no_grad()
def context_costs(model: LanguageModel[Any], x_RS: Tensor, lead: int) -> tuple[Tensor, dict[int | None, Tensor]]:
    """The tokens judged, x_M, and the bits of each with only its last k tokens for context; None is all of them.

    Cut means that the state starts afresh and processes the k tokens; with none of them it processes begin. One window
    of K + 1 tokens at each place gives a cost for every k at once: its k-th token has k before it.
    """
    x_RS = x_RS.to(device_of(model))
    R, S = x_RS.shape
    last = S - K  # a window begins at each place before it, so every judged token is the k-th of one for each k
    bits: dict[int | None, Tensor] = {}
    with eval_mode(model):
        target_RM = x_RS[:, lead:last]
        begin_1V = model.step(model.start(1), x_RS.new_full((1,), model.begin))[0].log_softmax(-1)
        bits[0] = begin_1V[0][target_RM]
        cut_RWK = _windows(model, x_RS[:, lead - K :]).view(R, -1, K)
        for k in LENGTHS[1:]:
            bits[k] = cut_RWK[:, K - k : K - k + last - lead, k - 1]
        bits[None] = _carried(model, model.prepend_begin(x_RS))[:, lead:last]
    costs = {k: (-logp_RM.double() / math.log(2)).flatten().cpu() for k, logp_RM in bits.items()}
    usable_M = costs[None].isfinite() & (target_RM != model.begin).flatten().cpu()  # cut short, they may be impossible
    return target_RM.flatten().cpu()[usable_M], {k: bits_M[usable_M] for k, bits_M in costs.items()}


def _windows(model: LanguageModel[Any], x_RS: Tensor) -> Tensor:
    """log p of the tokens after the first of each window, from a state that starts with the window."""
    x_WK = x_RS.unfold(1, K + 1, 1).reshape(-1, K + 1)
    width = max(1, min(MOST_WINDOWS, LOGITS // (K * model.vocab)))
    found = []
    with progress("cutting the context", len(x_WK), "windows") as advance:
        for part in x_WK.split(width):
            found.append(model.token_log_probs(model.start(len(part)), part)[0])
            advance(len(part))
    return torch.cat(found)


def _carried(model: LanguageModel[Any], x_RS: Tensor) -> Tensor:
    """log p of every token but the first, the state carried, some columns at a time."""
    state, found, width = model.start(len(x_RS)), [], max(1, LOGITS // (len(x_RS) * model.vocab))
    for t in range(0, x_RS.shape[1] - 1, width):
        logp_Rt, state = model.token_log_probs(state, x_RS[:, t : t + width + 1])
        found.append(logp_Rt)
    return torch.cat(found, 1)


def used(bits: dict[int | None, float]) -> int | None:
    """The shortest context beyond which a longer one saves nothing to speak of; None: longer than the longest cut."""
    for k in LENGTHS:
        longer = min(value for j, value in bits.items() if j is None or j >= k)
        if bits[k] <= (1 + NOTHING) * longer:
            return k
    return None


def context(model: LanguageModel[Any], tokenizer: Tokenizer, x_N: Tensor) -> Finding:
    """Whether a longer context makes the same tokens cheaper, and up to which length."""
    name = "context"
    if len(x_N) < 2 * K + 2:
        return not_applicable(name, f"it takes {2 * K + 2} tokens of validation text, and there are {len(x_N)}")
    each = max(1, judged_tokens(model) // ROWS)
    x_RS = spread(x_N, ROWS, LEAD + each + K)
    target_M, costs = context_costs(model, x_RS, max(K, min(LEAD, x_RS.shape[1] - 2 * K)))
    size = len(tokenizer.decode(target_M.tolist()))
    if not size:
        return not_applicable(name, "every token judged is impossible for the model, or stands for no bytes")
    bits = {k: float(bits_M.sum()) / size for k, bits_M in costs.items()}
    return judge(bits, required_field(model), len(target_M))


def required_field(model: LanguageModel[Any]) -> int | None:
    """The model's receptive field, where that limits how much context it is expected to use; None: it does not."""
    field = model.receptive_field
    wide = spec_of(model).trained_by_gradient and field is not None and field >= FAIR
    return None if wide else field


def judge(bits: dict[int | None, float], field: int | None, tokens: int) -> Finding:
    """The finding, from bits per byte by the length of the context."""
    length = used(bits)
    named = {"all" if k is None else str(k): value for k, value in bits.items()}
    values = {"bits_per_byte": named, "used": length, "tokens": tokens, "receptive_field": field}
    words = f"more than {K}" if length is None else f"about {length}"
    measured = f"uses {words} token{'s' * (length != 1)}"
    wanted = FAIR if field is None else min(1, field)
    expected = (
        f"{wanted} or more" if field is None else "none" if field == 0 else "1" if field == 1 else f"1 to {field}"
    )
    why = f"bits per byte by tokens of context: {', '.join(f'{k}: {value:.3f}' for k, value in named.items())}."
    verdict: Verdict = "ok"
    advice: tuple[str, ...] = ()
    if length is not None and length < wanted:
        verdict = "note" if length > 1 else "warning"
        advice = (
            "a larger --budget",
            "more --steps",
            "another --learning-rate",
            *GATES,
            *LOOKS,
            "a longer --sequence-length",
        )
        if length == 0:
            why = f"the context is never used: its cost is the same without it; {why}"
        elif length == 1:
            why = f"only the last token is used, as by a 2-gram; {why}"
    return Finding("context", verdict, measured, expected, why, advice, values)
