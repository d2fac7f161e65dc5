"""What the finished model does with text it has not seen: how sure it is, how far back the loss's gradient flows, and
how much of its context it uses: what the same tokens cost when it sees only the last few before each.

N tokens, R rows, S tokens of a row, V vocabulary, W windows, K tokens of context at most.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.costs import cost_of, one_token
from octavo.inspection.gradient_flow import Flow, default_back, gradient_flow, has_gradient, in_words, rate, relative
from octavo.io.progress import progress
from octavo.models import spec_of
from octavo.text import Tokenizer
from octavo.training.diagnosis.finding import GATES, MORE_ATTENTION, Finding, Verdict, not_applicable, percent

ROWS, LEAD, JUDGED = 64, 32, 64  # 4,096 predictions, each after at least 32 tokens: a share is then right to 1 %
SURE = 0.99  # a top probability above it is a saturated softmax: its gradient is below a hundredth
OVERCONFIDENT_NOTE, OVERCONFIDENT = 0.05, 0.10  # of probability over the share that is right
SURE_AND_WRONG = 0.10  # of the sure predictions: ten times what they promise
ENOUGH_SURE = 0.01  # of all predictions: fewer sure ones say nothing
LOGITS = 80.0  # the top one over the mean: beyond, exp of a usual logit leaves float32's normal numbers
FLOW_TOKENS, FLOW_ENDS = 80, 16
ARRIVES = 0.01  # a gradient below this share of its first length counts as gone
SHORT_RANGE, FAIR_RANGE = 4, 8  # steps: less than a 5-gram sees; about what character models of text live on
GROWS = 10.0  # times the first length


def spread(x_N: Tensor, rows: int, length: int) -> Tensor:
    """x_RS: rows of that length from places spread evenly over the tokens; fewer where they would overlap."""
    length = min(length, len(x_N))
    rows = max(1, min(rows, len(x_N) // max(1, length)))
    starts = [i * (len(x_N) - length) // max(1, rows - 1) if rows > 1 else 0 for i in range(rows)]
    return torch.stack([x_N[start : start + length] for start in starts])


@dataclass(frozen=True)
class Confidence:
    """Means over predictions; in a calibrated model `top` and `right` agree."""

    predictions: int
    top: float  # the probability of the likeliest token
    right: float  # the share of predictions in which it came
    entropy: float  # bits: what the model expects to pay
    bits: float  # per token, on average
    sure: float  # the share with a top probability above SURE
    sure_wrong: float  # of those, the share that was wrong
    logits: float  # the top logit over the mean of the possible ones


@torch.no_grad()
def confidence(model: LanguageModel[Any], x_RS: Tensor, lead: int) -> Confidence:
    """Read the rows; judge each prediction after `lead` tokens."""
    x_RS, judged = x_RS.to(device_of(model)), []
    with eval_mode(model):
        state = model.start(len(x_RS))
        for s, x_R in enumerate(model.prepend_begin(x_RS)[:, :-1].unbind(1)):
            logits_RV, state = model.step(state, x_R)
            if s >= lead:
                judged.append(_judge(logits_RV.double(), x_RS[:, s])[x_RS[:, s] != model.begin])
    top, right, entropy, bits, logits = torch.cat(judged).unbind(1)
    sure = top > SURE
    return Confidence(
        len(top), float(top.mean()), float(right.mean()), float(entropy.mean()), float(bits.mean()),
        float(sure.double().mean()), float(1 - right[sure].mean()) if bool(sure.any()) else 0.0, float(logits.mean()),
    )  # fmt: skip


def _judge(logits_RV: Tensor, next_R: Tensor) -> Tensor:
    """For each row: top probability, whether it came, entropy and price in bits, top logit over the mean."""
    logp_RV = logits_RV.log_softmax(-1)
    p_RV, possible_RV = logp_RV.exp(), logits_RV > -torch.inf
    top_R, which_R = p_RV.max(-1)
    entropy_R = -(p_RV * logp_RV.where(p_RV > 0, 0)).sum(-1) / math.log(2)
    bits_R = -logp_RV.gather(1, next_R[:, None])[:, 0] / math.log(2)
    mean_R = logits_RV.where(possible_RV, 0).sum(-1) / possible_RV.sum(-1)
    return torch.stack([top_R, (which_R == next_R).double(), entropy_R, bits_R, logits_RV.amax(-1) - mean_R], 1)


def softmax(model: LanguageModel[Any], x_N: Tensor) -> Finding:
    """Whether the model is as sure as it may be."""
    name = "softmax"
    if len(x_N) < 2:
        return not_applicable(name, "the validation text is too short")
    x_RS = spread(x_N, ROWS, LEAD + JUDGED)
    found = confidence(model, x_RS, min(LEAD, x_RS.shape[1] // 2))
    over = found.top - found.right
    measured = f"sure of {percent(found.top)}, right in {percent(found.right)}"
    expected = f"sure at most {100 * OVERCONFIDENT_NOTE:.0f} points more than right"
    values = asdict(found) | {"overconfidence": over}
    verdict: Verdict = "ok"
    condition = ""
    why = f"it expects a cost of {found.entropy:.2f} bits per token, and the cost is {found.bits:.2f}."
    neural = any(True for _ in model.parameters())
    advice: tuple[str, ...] = ()
    if over > OVERCONFIDENT_NOTE:
        verdict, condition = "warning" if over > OVERCONFIDENT else "note", "overconfidence"
        why = f"the softmax is surer than it is right: {why}"
        advice = TAMER if neural else SMOOTHER
    if found.sure >= ENOUGH_SURE and found.sure_wrong > SURE_AND_WRONG:
        verdict, advice, condition = "warning", TAMER if neural else SMOOTHER, "saturated softmax"
        why = (
            f"the softmax is saturated: it is over {percent(SURE, 0)} sure in {percent(found.sure)} of predictions, "
            f"{percent(found.sure_wrong)} of those are wrong{', with hardly any gradient left' * neural}. "
            f"{why.capitalize()}"
        )
    elif found.logits > LOGITS and neural:
        verdict, advice, condition = "warning", ("a lower --learning-rate", "more --weight-decay"), "saturated softmax"
        why = f"the logits are huge: the top one is {found.logits:.0f} over the mean. {why.capitalize()}"
    return Finding(name, verdict, measured, expected, why, advice, values, condition)


TAMER = (
    "more smoothing: --label-smoothing 0.1", "more dropout: --dropout 0.2", "a lower --learning-rate",
    "stop earlier: --patience 3", "a smaller --hidden",
)  # fmt: skip
SMOOTHER = ("smoother estimates: --estimator kneser-ney", "a larger --k", "a lower --order")


def gradient_range(flow: Flow) -> int | None:
    """How many steps back until less than a hundredth of the gradient arrives; None: further than was followed."""
    return next((t for t, share in enumerate(relative(flow.norms)) if not share >= ARRIVES), None)


def through_time(model: LanguageModel[Any], x_N: Tensor) -> Finding:
    """How far back the gradient of the loss flows through the state."""
    name = "gradient flow"
    if not has_gradient(model):
        return not_applicable(name, "the model has no state that a gradient could flow through")
    x_T = x_N[x_N != model.begin][:FLOW_TOKENS].tolist()
    if len(x_T) < 2 * FAIR_RANGE:  # the gradient is followed back over half of a short text
        return not_applicable(name, f"it takes {2 * FAIR_RANGE} tokens of validation text, and there are {len(x_T)}")
    flow = gradient_flow(model, x_T, default_back(len(x_T)), FLOW_ENDS)
    steps, factor = gradient_range(flow), rate(flow.norms)
    values = {"norms": list(flow.norms), "range": steps, "factor": factor}
    left = f"1 % left after {steps} steps"
    if steps is None:
        shrinks = in_words(factor).startswith("shrinks")
        left = f"{'over 1 % left after' if shrinks else 'does not shrink within'} {flow.back} steps"
    measured = f"{in_words(factor)}, {left}"
    expected = f"1 % left after {FAIR_RANGE} steps or more"
    advice = (*GATES, "--init orthogonal", *MORE_ATTENTION, "a lower --learning-rate")
    if flow.norms[-1] > GROWS * flow.norms[0] > 0:
        why = "the gradient grows on its way back: what happened long ago shakes every step."
        tamer = ("a lower --learning-rate", "--init orthogonal")
        return Finding(name, "warning", measured, expected, why, tamer, values, "exploding gradients")
    if steps is None or steps >= FAIR_RANGE:
        lesson = "what to attend to" if spec_of(model).family == "attention" else "what to remember"
        why = f"the loss can teach the model {lesson}."
        return Finding(name, "ok", measured, expected, why, (), values)
    if steps == 0:
        why = "no gradient arrives at all: the model does not read its state."
        return Finding(name, "warning", "does not arrive", expected, why, advice, values, "vanishing gradients")
    verdict: Verdict = "warning" if steps < SHORT_RANGE else "note"
    why = f"the gradient vanishes: what was {steps} tokens ago gets less than a hundredth of it, and cannot be learnt."
    if spec_of(model).family == "attention":
        why = f"it hardly attends to the past: what was {steps} tokens ago gets less than a hundredth of the gradient."
    return Finding(name, verdict, measured, expected, why, advice, values, "vanishing gradients")


LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32)
K = LENGTHS[-1]
CONTEXT_LEAD = 128  # tokens before the first that is judged: what counts as all of the context
CONTEXT_ROWS = 16  # stretches of text
MOST, LEAST = 4096, 256  # tokens judged: differences of 0.5 % need thousands; a large model makes do with fewer
WORK = 1e11  # floating-point operations: some seconds of one core
PER_CHANCE = 20  # of them for each logit that becomes a probability: exp takes about so long
MAX_LOGITS = 1 << 25  # held at once: 128 MB
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
    width = max(1, min(MOST_WINDOWS, MAX_LOGITS // (K * model.vocab)))
    found = []
    with progress("cutting the context", len(x_WK), "windows") as advance:
        for part in x_WK.split(width):
            found.append(model.token_log_probs(model.start(len(part)), part)[0])
            advance(len(part))
    return torch.cat(found)


def _carried(model: LanguageModel[Any], x_RS: Tensor) -> Tensor:
    """log p of every token but the first, the state carried, some columns at a time."""
    state, found, width = model.start(len(x_RS)), [], max(1, MAX_LOGITS // (len(x_RS) * model.vocab))
    for t in range(0, x_RS.shape[1] - 1, width):
        logp_Rt, state = model.token_log_probs(state, x_RS[:, t : t + width + 1])
        found.append(logp_Rt)
    return torch.cat(found, 1)


def used(bits: dict[int | None, float], field: int | None = None) -> int | None:
    """The shortest context beyond which a longer one saves nothing to speak of; None: longer than the longest cut.

    Never more than `field`, the tokens that the model sees at all: a longer cut only begins its text elsewhere.
    """
    for k in LENGTHS:
        if field is not None and k >= field:
            return field
        longer = min(value for j, value in bits.items() if j is None or j >= k)
        if bits[k] <= (1 + NOTHING) * longer:
            return k
    return None


def context(model: LanguageModel[Any], tokenizer: Tokenizer, x_N: Tensor) -> Finding:
    """Whether a longer context makes the same tokens cheaper, and up to which length."""
    name = "context"
    if len(x_N) < 2 * K + 2:
        return not_applicable(name, f"it takes {2 * K + 2} tokens of validation text, and there are {len(x_N)}")
    each = max(1, judged_tokens(model) // CONTEXT_ROWS)
    x_RS = spread(x_N, CONTEXT_ROWS, CONTEXT_LEAD + each + K)
    target_M, costs = context_costs(model, x_RS, max(K, min(CONTEXT_LEAD, x_RS.shape[1] - 2 * K)))
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
    length = used(bits, field)
    named = {"all" if k is None else str(k): value for k, value in bits.items()}
    values = {"bits_per_byte": named, "used": length, "tokens": tokens, "receptive_field": field}
    words = f"more than {K}" if length is None else f"about {length}"
    if field is not None:
        words = f"{length} of its {field}"
    measured = f"uses {words} token{'s' * ((length if field is None else field) != 1)}"
    wanted = FAIR if field is None else min(1, field)
    expected = (
        f"{wanted} or more" if field is None else "none" if field == 0 else "1" if field == 1 else f"1 to {field}"
    )
    why = f"bits per byte by tokens of context: {', '.join(f'{k}: {value:.3f}' for k, value in named.items())}."
    verdict: Verdict = "ok"
    advice: tuple[str, ...] = ()
    if length is not None and length < wanted:
        verdict = "note" if length > 1 else "warning"
        advice = ("a larger --budget", "more --steps", "another --learning-rate", *GATES, *MORE_ATTENTION,
                  "a longer --sequence-length")  # fmt: skip
        if length == 0:
            why = f"the context is never used: its cost is the same without it; {why}"
        elif length == 1:
            why = f"only the last token is used, as by a 2-gram; {why}"
    return Finding("context", verdict, measured, expected, why, advice, values, "context unused" if advice else "")
