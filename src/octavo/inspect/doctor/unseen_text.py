"""What the finished model does with text it has not seen: how sure it is, and how far back the loss's gradient flows.

R rows, S tokens of a row, V vocabulary, N tokens.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel, device_of, eval_mode
from octavo.inspect.doctor.finding import GATES, LOOKS, Finding, Verdict, not_applicable, percent
from octavo.inspect.gradient_flow import Flow, default_back, gradient_flow, has_gradient, in_words, rate, relative
from octavo.models import spec_of

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
    why = f"it expects a cost of {found.entropy:.2f} bits per token, and the cost is {found.bits:.2f}."
    neural = any(True for _ in model.parameters())
    advice: tuple[str, ...] = ()
    if over > OVERCONFIDENT_NOTE:
        verdict = "warning" if over > OVERCONFIDENT else "note"
        why = f"the softmax is surer than it is right: {why}"
        advice = TAMER if neural else SMOOTHER
    if found.sure >= ENOUGH_SURE and found.sure_wrong > SURE_AND_WRONG:
        verdict, advice = "warning", TAMER if neural else SMOOTHER
        why = (
            f"the softmax is saturated: it is over {percent(SURE, 0)} sure in {percent(found.sure)} of predictions, "
            f"{percent(found.sure_wrong)} of those are wrong{', with hardly any gradient left' * neural}. "
            f"{why.capitalize()}"
        )
    elif found.logits > LOGITS and neural:
        verdict, advice = "warning", ("a lower --learning-rate", "more --weight-decay")
        why = f"the logits are huge: the top one is {found.logits:.0f} over the mean. {why.capitalize()}"
    return Finding(name, verdict, measured, expected, why, advice, values)


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
    advice = (*GATES, "--init orthogonal", *LOOKS, "a lower --learning-rate")
    if flow.norms[-1] > GROWS * flow.norms[0] > 0:
        why = "the gradient grows on its way back: what happened long ago shakes every step."
        return Finding(
            name, "warning", measured, expected, why, ("a lower --learning-rate", "--init orthogonal"), values
        )
    if steps is None or steps >= FAIR_RANGE:
        lesson = "what to attend to" if spec_of(model).family == "attention" else "what to remember"
        why = f"the loss can teach the model {lesson}."
        return Finding(name, "ok", measured, expected, why, (), values)
    if steps == 0:
        why = "no gradient arrives at all: the model does not read its state."
        return Finding(name, "warning", "does not arrive", expected, why, advice, values)
    verdict: Verdict = "warning" if steps < SHORT_RANGE else "note"
    why = f"the gradient vanishes: what was {steps} tokens ago gets less than a hundredth of it, and cannot be learnt."
    if spec_of(model).family == "attention":
        why = f"it hardly attends to the past: what was {steps} tokens ago gets less than a hundredth of the gradient."
    return Finding(name, verdict, measured, expected, why, advice, values)
