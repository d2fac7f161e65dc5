"""Why an n-gram model gave a token its probability: its back-off path; and the parts of a mixture.

    p(w | c) = alpha(c w) + gamma(c) p(w | c without its first word)

Written out, p is a sum: what each length of context gives, alpha, times the gammas of all longer ones; and at last the
uniform share. N tokens, K contexts of 0 to n - 1 tokens, I parts of a mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.core import device_of, eval_mode
from octavo.io.cooperative import Turn
from octavo.models import Mix, NGram

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
