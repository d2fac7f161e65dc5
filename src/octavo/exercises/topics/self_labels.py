"""Tasks whose labels a text gives by itself: masked words, next sentence, sentence order, replaced tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from octavo.exercises import (
    Choice,
    Exercise,
    Finding,
    Formula,
    Function,
    Interval,
    IntervalAt,
    Number,
    Part,
    Truth,
    verdict,
)
from octavo.pages.figures.bars import bars
from octavo.tasks.masking import NOTHING, Batch, MaskConfig, Masked
from octavo.tasks.sentences import Sentences
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.wordpiece import WordPiece, WordPieceSettings

TOPICS = (  # each document keeps to its own words
    "boat sail lake wind shore wave", "bread oven flour salt dough crust", "horse field fence grass barn hay",
    "piano chord song voice stage note", "stone wall roof door brick tower", "snow ski slope ice frost sledge",
)  # fmt: skip
Examples = list[list[Any]]
SURE = 4  # standard errors by which chance must be beaten


@cache
def told() -> tuple[WordPiece, Sentences]:
    """120 short documents, each about one of six topics."""
    rng = np.random.default_rng(0)
    texts = []
    for n in range(120):
        words = TOPICS[n % len(TOPICS)].split()
        drawn = [rng.choice(words, 4).tolist() for _ in range(6)]
        texts.append(" ".join(f"The {a} and the {b} of the {c} {d}." for a, b, c, d in drawn))
    tokenizer = WordPiece.learn([Chunk("\n".join(texts).encode())], WordPieceSettings(200))
    return tokenizer, Sentences.of(enumerate(texts), tokenizer)


def batches(task: str, steps: int = 20, config: MaskConfig | None = None) -> list[Batch]:
    """What octavo's generator makes for one task, without anybody labelling anything."""
    tokenizer, sentences = told()
    masked = Masked(sentences, tokenizer, (task,), rows=16, length=64, seed=0, config=config or MaskConfig())
    return [masked.at(step) for step in range(steps)]


LABELS: dict[str, Callable[[Batch], torch.Tensor]] = {
    "words": lambda b: b.target_N, "next": lambda b: b.next_P, "order": lambda b: b.order_P,
    "replaced": lambda b: b.replaced_BT.flatten(),
}  # fmt: skip
KINDS = {
    "generative": "it asks for the missing text itself",
    "contrastive": "it asks to tell the real from the made-up",
}


def kind_of(task: str) -> Callable[[], Finding]:
    """What the labels of a task are: tokens that the input hides, or yes and no about a real and a made-up thing."""

    def evidence() -> Finding:
        labels = torch.cat([LABELS[task](batch) for batch in batches(task)])
        labels = labels[labels != NOTHING]
        values = labels.unique().tolist()
        kind = "contrastive" if values == [0, 1] else "generative"
        made = f"yes or no, {labels.double().mean():.0%} made up" if kind == "contrastive" else "words of the text"
        return Finding(kind, f"{len(labels):,} labels from octavo's generator, {len(values)} different ones: {made}")

    return evidence


def masked_share() -> Finding:
    tokenizer, _ = told()
    shown = real = 0
    for batch in batches("words", 60):
        x, special = batch.x_BT, (tokenizer.pad, tokenizer.first, tokenizer.end)
        real += sum(int((x != one).sum()) for one in special) - (len(special) - 1) * x.numel()
        shown += int((x == tokenizer.mask).sum())
    share = shown / real
    error = 4 * math.sqrt(share * (1 - share) / real)
    return Finding(Interval(share - error, share + error), f"{real:,} tokens of the generator, 4 standard errors")


def restorable() -> Finding:
    """Whether putting the labels back gives sentences that stand in the text, word for word."""
    tokenizer, sentences = told()
    whole = f" {' '.join(map(str, sentences.tokens_N.tolist()))} "
    found = tried = 0
    for batch in batches("words", 5):
        x_N = batch.x_BT.flatten().clone()
        x_N[batch.chosen_N] = batch.target_N
        for part in _runs(x_N.tolist(), {tokenizer.pad, tokenizer.first, tokenizer.end}):
            tried, found = tried + 1, found + (f" {' '.join(map(str, part))} " in whole)
    return Finding(
        verdict(found == tried), f"labels put back: {found} of {tried} passages stand in the text, word for word"
    )


def _runs(tokens: Sequence[int], ends: set[int]) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for token in tokens:
        if token in ends:
            runs.append([])
        else:
            runs[-1].append(token)
    return [run for run in runs if run]


def replaced_share() -> Finding:
    _, sentences = told()
    counts = Counter(sentences.tokens_N.tolist())
    same = sum((n / counts.total()) ** 2 for n in counts.values())
    points = []
    for wanted in (0.15, 0.5):
        labels = torch.cat([b.replaced_BT.flatten() for b in batches("replaced", 60, MaskConfig(replaced=wanted))])
        share = labels[labels != NOTHING].double()
        error = 4 * math.sqrt(wanted * (1 - wanted) / len(share))
        mean = share.mean().item()
        points.append(IntervalAt({"r": wanted, "c": same}, mean - error, mean + error))
    return Finding(points, f"{len(share):,} tokens each; two tokens of this text are the same in {same:.1%} of cases")


@cache
def overlap_shares() -> dict[str, tuple[float, float]]:
    """How often the words in common alone tell which of two pairs is the real one, and chance's error, by task."""
    tokenizer, _ = told()
    right = {}
    for task in ("next", "order"):
        overlaps: dict[int, list[float]] = {0: [], 1: []}
        for batch in batches(task):
            for at, label in zip(batch.first_P.tolist(), LABELS[task](batch).tolist(), strict=True):
                row = batch.x_BT.flatten()[at + 1 : (at // 64 + 1) * 64].tolist()
                one, other = (set(part) for part in _runs(row, {tokenizer.end, tokenizer.first, tokenizer.pad})[:2])
                overlaps[label].append(len(one & other) / len(one | other))
        pairs = [(real > made) + 0.5 * (real == made) for real in overlaps[0] for made in overlaps[1]]
        real, made = map(len, overlaps.values())
        # Of Mann and Whitney's statistic, if which pair is the real one has nothing to do with the words in common.
        right[task] = sum(pairs) / len(pairs), SURE * math.sqrt((real + made + 1) / (12 * real * made))
    return right


def by_overlap() -> Finding:
    right = overlap_shares()
    better = [task for task, (share, error) in right.items() if share > 0.5 + error]
    said = ", ".join(f"{name} {right[task][0]:.1%} (by chance 50%, give or take {right[task][1]:.1%})"
                     for name, task in (("next sentence", "next"), ("order", "order")))  # fmt: skip
    name = {("next",): "next", ("order",): "order", ("next", "order"): "both", (): "neither"}[tuple(better)]
    return Finding(name, f"the pair with more words in common is the real one: {said}", f"{SURE} standard errors")


def overlap_figure() -> str:
    right = overlap_shares()
    return bars(
        [("next sentence", 100 * right["next"][0]), ("sentence order", 100 * right["order"][0]), ("chance", 50.0)],
        "In percent, how often the real pair is known by its words in common alone.", 0,
    )  # fmt: skip


def order_examples(sentences: Sequence[str]) -> Examples:
    """Each pair of neighbours once in order, label 0, then once swapped, label 1."""
    return [made for a, b in pairwise(sentences) for made in ([a, b, 0], [b, a, 1])]


def _any_two_sentences(sentences: Sequence[str]) -> Examples:
    return [[a, b, int(i > j)] for i, a in enumerate(sentences) for j, b in enumerate(sentences) if i != j]


def order_by_search() -> Finding:
    """Label every pair of different sentences by where the two stand; keep neighbours."""
    results = []
    for (sentences,) in ORDER_CASES:
        place = {one: n for n, one in enumerate(sentences)}
        pairs = [(a, b) for a in sentences for b in sentences if abs(place[a] - place[b]) == 1]
        pairs.sort(key=lambda pair: (min(place[pair[0]], place[pair[1]]), place[pair[0]] > place[pair[1]]))
        results.append([[a, b, int(place[a] > place[b])] for a, b in pairs])
    return Finding(results, "all pairs of sentences were tried, and labelled by looking up where they stand")


ORDER_CASES = ((["It rained.", "The roof leaked.", "We moved."],), (["One.", "Two."],), (["Alone."],))


def replaced_labels(tokens: Sequence[str], places: Sequence[int], drawn: Sequence[str]) -> list[list[Any]]:
    """Put a drawn token at each place; label 1 where the token is now another one."""
    spoilt = list(tokens)
    for place, token in zip(places, drawn, strict=True):
        spoilt[place] = token
    return [spoilt, [int(a != b) for a, b in zip(tokens, spoilt, strict=True)]]


def _every_drawn_place(tokens: Sequence[str], places: Sequence[int], drawn: Sequence[str]) -> list[list[Any]]:
    return [replaced_labels(tokens, places, drawn)[0], [int(n in places) for n in range(len(tokens))]]


def _real_is_one(tokens: Sequence[str], places: Sequence[int], drawn: Sequence[str]) -> list[list[Any]]:
    spoilt, labels = replaced_labels(tokens, places, drawn)
    return [spoilt, [1 - one for one in labels]]


REPLACED_CASES: tuple[tuple[list[str], list[int], list[str]], ...] = (
    ("the boat left the shore".split(), [1, 3], ["horse", "the"]), ("snow fell".split(), [], []),
    ("a b c".split(), [2, 0], ["c", "z"]),
)  # fmt: skip


def replaced_by_place() -> Finding:
    results = []
    for tokens, places, drawn in REPLACED_CASES:
        new = dict(zip(places, drawn, strict=True))
        changed = {place for place, token in new.items() if tokens[place] != token}
        results.append([[new.get(n, token) for n, token in enumerate(tokens)],
                        [int(n in changed) for n in range(len(tokens))]])  # fmt: skip
    return Finding(results, "place by place: what was drawn there, and whether it is another token than before")


def _asks(task: str, right: str, ask: str, why: str) -> Part:
    return Part(task, ask, Choice(right, KINDS), "counted", kind_of(task), why=why)


SELF_LABELS = Exercise(
    id="labels-from-text",
    title="Generative or contrastive: four tasks that label themselves",
    question="A text is spoilt, and the model must say what was done. A generative task asks for the missing text "
    "itself, a contrastive one to tell the real from the made-up. Which is which, and how are the labels made?",
    answer="Masked words are generative: the answer is one of all words, and answers put back restore the text. Next "
    "sentence is contrastive: yes or no, the real continuation against a drawn one. Two more that need no annotator: "
    "sentence order (two neighbours, half of the pairs swapped) and replaced tokens (some tokens drawn anew, each "
    "token judged); both contrastive. How the made-up ones are made decides what is learnt: a sentence from elsewhere "
    "betrays itself by its topic, two swapped neighbours do not.",
    figure=overlap_figure,
    parts=[
        _asks("words", "generative", "Words are hidden, and the model must say which they were.",
              "There are as many possible labels as words, and the label is what the text said."),
        _asks("next", "contrastive", "Does the second sentence follow the first, or is it from another place?",
              "The label says only whether the pair is real; the model never produces a sentence."),
        _asks("order", "contrastive", "New: two neighbouring sentences, half of the time swapped. In order or not?",
              "The swapped pair is the made-up one. Nothing but order tells them apart."),
        _asks("replaced", "contrastive", "New: some tokens are replaced by others. For each token: was it replaced?",
              "One yes or no for every token, so every token teaches something, not only those hidden."),
        Part("make-order", "Write a generator for sentence order: for each pair of neighbours first [a, b, 0], then "
             "[b, a, 1].", Function("order_examples", order_examples, ORDER_CASES,
             "order_examples(sentences: list) -> list of [first, second, label]"), "exact", order_by_search,
             why="Both labels come from the same two sentences, so neither is longer, rarer or of another topic.",
             wrong={"never swapped, so there is nothing to tell apart": lambda s: [[a, b, 0] for a, b in pairwise(s)],
                    "swapped, but kept the label": lambda s: [[a, b, 0] for a, b, _ in order_examples(s)],
                    "used any two sentences, neighbours or not": _any_two_sentences}),
        Part("make-replaced", "Write a generator for replaced tokens: places and the tokens drawn for them are given; "
             "return the spoilt tokens and their labels, 1 for replaced.", Function("replaced_labels", replaced_labels,
             REPLACED_CASES, "replaced_labels(tokens: list, places: list, drawn: list) -> [tokens, labels]"), "exact",
             replaced_by_place,
             why="A drawn token may be the one that stood there. Then nothing was replaced, and a label that says so "
             "would ask for what nobody can know.",
             wrong={"labelled every place that was drawn, though some tokens stayed": _every_drawn_place,
                    "labelled the real ones 1": _real_is_one}),
        Part("replaced-share", "A share r of tokens is drawn anew from the text; two random tokens of it are the same "
             "with probability c. Which share is labelled replaced?",
             Formula("r*(1 - c)", {"r": "share", "c": "share"}), "monte carlo", replaced_share,
             why="Drawn, and not the same by chance.",
             wrong={"forgot that the same token may come again": "r", "used the share that stays": "r*c",
                    "left out the drawing": "1 - c"}),
        Part("masked-share", "15% of the tokens are to be predicted; of these 80% are hidden behind [MASK], 10% "
             "replaced by any token and 10% left. Which share of all tokens is [MASK]?", Number(0.12), "monte carlo",
             masked_share,
             why="`0.15*0.8`. The rest is asked too, so that the model must mind every token, not only those that say "
             "[MASK].",
             wrong={"used all that are asked": 0.15, "used 80% of all": 0.8, "added the replaced ones": 0.135}),
        Part("restored", "The labels of masked words, put back where they belong, give the text as it was.",
             Truth("true"), "exact", restorable,
             why="They were taken from it: that is why no annotator is needed, and why no label is wrong.",
             wrong={"mistook hiding a word for losing it": False}),
        Part("overlap", "A judge only counts the words that two sentences share. At which task is it better than "
             "chance, if documents keep to their topics?", Choice("next", {"next": "next sentence",
             "order": "sentence order", "both": "both", "neither": "neither"}), "counted", by_overlap,
             why="What two sentences share does not change when they are swapped, but a sentence from another document "
             "shares less. So next sentence can be learnt without understanding what follows from what."),
    ],
)  # fmt: skip

EXERCISES = (SELF_LABELS,)
