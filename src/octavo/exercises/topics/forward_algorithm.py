"""The forward algorithm of a hidden Markov model, by hand."""

from __future__ import annotations

import itertools
import math

import torch

from octavo.exercises import Exercise, Finding, Formula, Number, Part
from octavo.exercises.framework.evidence import tabulated
from octavo.ops.hidden_markov import HiddenMarkov, forward_by_steps, viterbi
from octavo.pages.figures.charts import bars

STAY, HALF = 0.75, 0.5  # of the next state, and of a b from state 1
A, B, BEGIN = 0, 1, 2
MODEL = HiddenMarkov(
    torch.tensor([1.0, 0.0]).double(), torch.tensor([[STAY, 1 - STAY], [1 - STAY, STAY]]).double(),
    torch.tensor([[HALF, 0.0], [HALF, 1.0], [0.0, 0.0]]).double(), BEGIN,
)  # fmt: skip


def joint(path: tuple[int, ...]) -> float:
    """The probability of this path of hidden states, from 0, and of a b from each of them."""
    p = float(MODEL.start_S[path[0]])
    p *= math.prod(float(MODEL.transition_SS[pair]) for pair in itertools.pairwise(path))
    return p * math.prod(float(MODEL.emission_VS[B, state]) for state in path)


def paths(length: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(2), repeat=length))


def next_states() -> torch.Tensor:
    """The probability of each state at the second token, after a b."""
    return forward_by_steps(MODEL, MODEL.start_S[None], torch.tensor([[B]]))[0, 0]


def second() -> Finding:
    p = float(next_states() @ MODEL.emission_VS[B])
    return Finding(p, f"octavo's forward algorithm; the sums over all paths give {total(2) / total(1):.6f}")


def belief() -> Finding:
    q_S = next_states() * MODEL.emission_VS[B]
    shares = [sum(joint(path) for path in paths(2) if path[1] == state) / total(2) for state in range(2)]
    return Finding(float(q_S[1] / q_S.sum()), f"octavo's forward algorithm; the four paths give {shares[1]:.6f}")


def total(length: int) -> float:
    """The probability of so many b, as the sum over all paths."""
    return sum(joint(path) for path in paths(length))


def best_path() -> Finding:
    path_T, logp = viterbi(MODEL, torch.tensor([B, B, B]))
    return Finding(math.exp(logp), f"octavo's Viterbi path {[state + 1 for state in path_T.tolist()]} of the eight")


@tabulated("S T", ((2, 3), (3, 4), (4, 2)), "all paths listed and counted")
def path_count(s: int, t: int) -> int:
    return len(list(itertools.product(range(s), repeat=t)))


def path_figure() -> str:
    rows = [("".join(str(state + 1) for state in path), joint(path)) for path in paths(3) if joint(path) > 0]
    return bars(rows, "The probability of each path of hidden states together with the text bbb.", 4)


FORWARD = Exercise(
    id="forward-algorithm", title="The forward algorithm by hand", figure=path_figure,
    question="A hidden Markov model has the hidden states 1{one} and 2{two}. It starts in state 1{one}, and each time "
    "stays in its state with probability 3/4{stay}. State 1{one} emits a and b with probability 1/2{half} each, state "
    "2{two} always b.",
    where={"one": 1, "two": 2, "stay": STAY, "half": HALF, "leave": 1 - STAY, "first": lambda: total(1),
           "joint": lambda: joint((0, 1)), "text": lambda: total(2), "next": lambda: second().value,
           "first_path": lambda: joint((0, 0, 0)), "S": (2, 3, 4), "T": (3, 2, 2), "three": 3},
    answer="The belief is multiplied by what each state gives the token, divided by the sum, and moved on by the "
    "transitions. Each step takes all paths together by their last state: that is why a sum over `S^T`{paths} paths "
    "costs only S times S products a token.",
    parts=[
        Part("second", "The first token was b. What is the probability that the second one is b?", Number("5/8"),
             "exact", second,
             why="The first state is known, so the second one is 1{one} with probability 3/4{stay} and 2{two} with "
             "1/4{leave}: `3/4*1/2 + 1/4*1`{next}.",
             wrong={"kept the first belief, as if the state could not change": (0.5, lambda: total(1)),
                    "gave both states the same probability":
                        (0.75, lambda: float(MODEL.emission_VS[B].mean())),
                    "swapped staying and leaving":
                        (0.875, lambda: float(next_states().flip(0) @ MODEL.emission_VS[B]))}),
        Part("belief", "Both tokens were b. What is the probability that the second one came from state 2{two}?",
             Number("2/5"), "exact", belief,
             why="State 2{two} has `1/4*1`{leave} of the `5/8`{next}.",
             wrong={"did not divide by the probability of the token": (0.25, lambda: float(next_states()[1])),
                    "gave that of the other state": (0.6, lambda: joint((0, 0)) / total(2))}),
        Part("text", "What is the probability of the text bb?", Number("5/16"), "exact",
             lambda: Finding(total(2), "the sum over the four paths"),
             why="The product of what each token got: `1/2*5/8`{text}.",
             wrong={"took the most probable path alone": ("3/16", lambda: max(map(joint, paths(2)))),
                    "left out the first token": ("5/8", lambda: second().value)}),
        Part("path", "What is the probability of the most probable path of hidden states together with the text bbb?",
             Number("3/32"), "exact", best_path,
             why="The path leaves state 1{one} at once: `1/2*1/4*1*3/4*1`{}, more than the `9/128`{first_path} of "
             "never leaving it.",
             wrong={"took the most probable state at each step": ("9/128", lambda: joint((0, 0, 0))),
                    "summed over all paths": ("29/128", lambda: total(3))}),
        Part("paths", "A model has S hidden states. How many paths of hidden states does a text of T tokens have?",
             Formula("S^T", {"S": "whole", "T": "whole"}), "exact", path_count, why="One of S states for each token.",
             wrong={"added instead of multiplying": ("S*T", lambda S, T: sum(S for _ in range(T))),
                    "swapped S and T": ("T^S", lambda S, T: math.prod([T] * S))}),
    ])  # fmt: skip

EXERCISES = (FORWARD,)
