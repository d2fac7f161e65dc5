"""Self-supervised tasks: masked words, next sentence, sentence order and replaced tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from octavo.exercises import Choice, Exercise, Finding, Formula, Function, Number, Part, Truth, verdict
from octavo.exercises.framework.answers import IntervalAt
from octavo.exercises.framework.evidence import share_error
from octavo.pages.figures.charts import bars
from octavo.tasks.masking import NOTHING, MaskConfig, Masked, MaskedBatch
from octavo.tasks.sentences import Sentences
from octavo.text.chunks import Chunk
from octavo.text.tokenizers.wordpiece import WordPiece, WordPieceSettings

TOPICS = (  # each document uses the words of one topic
    "boat sail lake wind shore wave", "bread oven flour salt dough crust", "horse field fence grass barn hay",
    "piano chord song voice stage note", "stone wall roof door brick tower", "snow ski slope ice frost sledge",
)  # fmt: skip
Examples = list[list[Any]]
SHARES = (MaskConfig().share, MaskConfig().masked, MaskConfig().random)  # predicted; of these: masked, replaced
STANDARD_ERRORS = 4  # by which an accuracy must exceed chance


@cache
def corpus() -> tuple[WordPiece, Sentences]:
    """120 short documents, each about one of six topics."""
    rng = np.random.default_rng(0)
    texts = []
    for n in range(120):
        words = TOPICS[n % len(TOPICS)].split()
        drawn = [rng.choice(words, 4).tolist() for _ in range(6)]
        texts.append(" ".join(f"The {a} and the {b} of the {c} {d}." for a, b, c, d in drawn))
    tokenizer = WordPiece.learn([Chunk("\n".join(texts).encode())], WordPieceSettings(200))
    return tokenizer, Sentences.of(enumerate(texts), tokenizer)


def batches(task: str, steps: int = 20, config: MaskConfig | None = None) -> list[MaskedBatch]:
    """Batches of octavo's generator for one task, whose labels come from the text."""
    tokenizer, sentences = corpus()
    masked = Masked(sentences, tokenizer, (task,), rows=16, length=64, seed=0, config=config or MaskConfig())
    return [masked.at(step) for step in range(steps)]


LABELS: dict[str, Callable[[MaskedBatch], torch.Tensor]] = {
    "words": lambda b: b.target_N, "next": lambda b: b.next_P, "order": lambda b: b.order_P,
    "replaced": lambda b: b.replaced_BT.flatten(),
}  # fmt: skip
KINDS = {
    "generative": "the model predicts the missing text",
    "contrastive": "the model distinguishes real from corrupted text",
}


def kind_of(task: str) -> Callable[[], Finding]:
    """Evidence: the labels of a task are hidden tokens, or binary labels of real and corrupted examples."""

    def evidence() -> Finding:
        labels = torch.cat([LABELS[task](batch) for batch in batches(task)])
        labels = labels[labels != NOTHING]
        values = labels.unique().tolist()
        kind = "contrastive" if values == [0, 1] else "generative"
        meaning = f"binary, {labels.double().mean():.0%} corrupted" if kind == "contrastive" else "words of the text"
        note = f"{len(labels):,} labels from octavo's generator with {len(values)} different values: {meaning}"
        return Finding(kind, note)

    return evidence


def masked_share() -> Finding:
    tokenizer, _ = corpus()
    masked = real = 0
    for batch in batches("words", 60):
        x, special = batch.x_BT, (tokenizer.pad, tokenizer.first, tokenizer.end)
        real += sum(int((x != one).sum()) for one in special) - (len(special) - 1) * x.numel()
        masked += int((x == tokenizer.mask).sum())
    share = masked / real
    error = share_error(share, real, STANDARD_ERRORS)
    exact = Fraction(str(SHARES[0])) * Fraction(str(SHARES[1]))
    assert abs(share - exact) <= error, "octavo's generator must mask as configured"
    note = f"octavo's settings multiplied; {real:,} generated tokens give {share:.4f} ± {error:.4f} (4 standard errors)"
    return Finding(exact, note)


def restorable() -> Finding:
    """Whether inserting the labels restores passages of the original text."""
    tokenizer, sentences = corpus()
    original = f" {' '.join(map(str, sentences.tokens_N.tolist()))} "
    found = tried = 0
    for batch in batches("words", 5):
        x_N = batch.x_BT.flatten().clone()
        x_N[batch.chosen_N] = batch.target_N
        for part in _split_at(x_N.tolist(), {tokenizer.pad, tokenizer.first, tokenizer.end}):
            tried, found = tried + 1, found + (f" {' '.join(map(str, part))} " in original)
    note = f"with the labels inserted, {found} of {tried} passages occur in the original text"
    return Finding(verdict(found == tried), note)


def _split_at(tokens: Sequence[int], ends: set[int]) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for token in tokens:
        if token in ends:
            runs.append([])
        else:
            runs[-1].append(token)
    return [run for run in runs if run]


def replaced_share() -> Finding:
    _, sentences = corpus()
    counts = Counter(sentences.tokens_N.tolist())
    same = sum((n / counts.total()) ** 2 for n in counts.values())
    points, measured = [], []
    for wanted in (0.15, 0.5):
        exact = sum(n * wanted * (counts.total() - n) for n in counts.values()) / counts.total() ** 2  # every pair
        points.append(IntervalAt({"r": wanted, "c": same}, exact - 1e-12, exact + 1e-12))
        labels = torch.cat([b.replaced_BT.flatten() for b in batches("replaced", 60, MaskConfig(replaced=wanted))])
        share = labels[labels != NOTHING].double()
        error = share_error(wanted, len(share), STANDARD_ERRORS)
        mean = share.mean().item()
        assert abs(mean - exact) <= error, "octavo's generator must agree with the count"
        measured.append(f"{mean:.3f} ± {error:.3f}")
    note = f"every pair of an original and a sampled token is counted; octavo's generator gives {', '.join(measured)}"
    return Finding(points, note)


@cache
def overlap_shares() -> dict[str, tuple[float, float]]:
    """The accuracy of choosing the real pair by word overlap, and the error of chance, by task."""
    tokenizer, _ = corpus()
    right = {}
    for task in ("next", "order"):
        overlaps: dict[int, list[float]] = {0: [], 1: []}
        for batch in batches(task):
            for at, label in zip(batch.first_P.tolist(), LABELS[task](batch).tolist(), strict=True):
                row = batch.x_BT.flatten()[at + 1 : (at // 64 + 1) * 64].tolist()
                one, other = (set(part) for part in _split_at(row, {tokenizer.end, tokenizer.first, tokenizer.pad})[:2])
                overlaps[label].append(len(one & other) / len(one | other))
        pairs = [(real > made) + 0.5 * (real == made) for real in overlaps[0] for made in overlaps[1]]
        real, made = map(len, overlaps.values())
        # The standard error of the Mann-Whitney statistic if the overlap carries no information.
        right[task] = sum(pairs) / len(pairs), STANDARD_ERRORS * math.sqrt((real + made + 1) / (12 * real * made))
    return right


def by_overlap() -> Finding:
    right = overlap_shares()
    better = [task for task, (share, error) in right.items() if share > 0.5 + error]
    listed = ", ".join(f"{name} {right[task][0]:.1%} (chance: 50% ± {right[task][1]:.1%})"
                     for name, task in (("next sentence", "next"), ("order", "order")))  # fmt: skip
    name = {("next",): "next", ("order",): "order", ("next", "order"): "both", (): "neither"}[tuple(better)]
    note = f"accuracy of choosing the pair with the larger overlap: {listed}"
    return Finding(name, note, f"{STANDARD_ERRORS} standard errors")


def overlap_figure() -> str:
    right = overlap_shares()
    return bars(
        [("next sentence", 100 * right["next"][0]), ("sentence order", 100 * right["order"][0]), ("chance", 50.0)],
        "Accuracy in percent of choosing the real pair by word overlap.", 0,
    )  # fmt: skip


def order_examples(sentences: Sequence[str]) -> Examples:
    """Each pair of neighbours once in order, label 0, then once swapped, label 1."""
    return [made for a, b in pairwise(sentences) for made in ([a, b, 0], [b, a, 1])]


def _any_two_sentences(sentences: Sequence[str]) -> Examples:
    return [[a, b, int(i > j)] for i, a in enumerate(sentences) for j, b in enumerate(sentences) if i != j]


def order_by_search() -> Finding:
    """Label every pair of sentences by their positions, and keep neighbours."""
    results = []
    for (sentences,) in ORDER_CASES:
        position = {sentence: n for n, sentence in enumerate(sentences)}
        pairs = [(a, b) for a in sentences for b in sentences if abs(position[a] - position[b]) == 1]
        pairs.sort(key=lambda pair: (min(position[pair[0]], position[pair[1]]), position[pair[0]] > position[pair[1]]))
        results.append([[a, b, int(position[a] > position[b])] for a, b in pairs])
    return Finding(results, "all pairs of sentences, labelled by their positions")


ORDER_CASES = ((["It rained.", "The roof leaked.", "We moved."],), (["One.", "Two."],), (["Alone."],))


def replaced_labels(tokens: Sequence[str], places: Sequence[int], drawn: Sequence[str]) -> list[list[Any]]:
    """Put a sampled token at each position; label 1 where the token has changed."""
    corrupted = list(tokens)
    for n, token in zip(places, drawn, strict=True):
        corrupted[n] = token
    return [corrupted, [int(a != b) for a, b in zip(tokens, corrupted, strict=True)]]


def _every_sampled_position(tokens: Sequence[str], places: Sequence[int], drawn: Sequence[str]) -> list[list[Any]]:
    return [replaced_labels(tokens, places, drawn)[0], [int(n in places) for n in range(len(tokens))]]


def _real_is_one(tokens: Sequence[str], places: Sequence[int], drawn: Sequence[str]) -> list[list[Any]]:
    corrupted, labels = replaced_labels(tokens, places, drawn)
    return [corrupted, [1 - label for label in labels]]


REPLACED_CASES: tuple[tuple[list[str], list[int], list[str]], ...] = (
    ("the boat left the shore".split(), [1, 3], ["horse", "the"]), ("snow fell".split(), [], []),
    ("a b c".split(), [2, 0], ["c", "z"]),
)  # fmt: skip


def replaced_by_position() -> Finding:
    results = []
    for tokens, places, drawn in REPLACED_CASES:
        new = dict(zip(places, drawn, strict=True))
        changed = {place for place, token in new.items() if tokens[place] != token}
        results.append([[new.get(n, token) for n, token in enumerate(tokens)],
                        [int(n in changed) for n in range(len(tokens))]])  # fmt: skip
    return Finding(results, "position by position: the sampled token, and whether it differs from the original")


def _kind_part(task: str, right: str, ask: str, why: str) -> Part:
    return Part(task, ask, Choice(right, KINDS), "counted", kind_of(task), why=why)


SELF_LABELS = Exercise(
    where={"in_order": order_examples(["a", "b"])[0][2], "swapped": order_examples(["a", "b"])[1][2],
           "changed": replaced_labels(["a"], [0], ["b"])[1][0], "chosen": SHARES[0], "masked": SHARES[1], "random":
               SHARES[2]},
    id="labels-from-text", title="Generative or contrastive: four self-supervised tasks", figure=overlap_figure,
    question="A text is corrupted, and the model must undo or detect the corruption. In a generative task it predicts "
    "the missing text, in a contrastive task it distinguishes real from corrupted text. Which tasks are which, and how "
    "are the labels made?",
    answer="Masked words are generative: the label is one of all words, and the labels restore the text. Next sentence "
    "is contrastive: the real continuation against a random one. Two more tasks that need no annotator: sentence order "
    "(two neighbours, half of the pairs swapped) and replaced tokens (some tokens resampled, each token classified); "
    "both are contrastive. What is learnt depends on how the corrupted examples are made: a sentence from another "
    "document can be recognized by its topic, two swapped neighbours cannot.",
    parts=[
        _kind_part("words", "generative", "Words are masked, and the model predicts them. Is this task generative or "
             "contrastive?",
                   "There are as many possible labels as words, and the label is the original word."),
        _kind_part("next", "contrastive", "The model decides whether the second sentence follows the first or is from "
             "elsewhere. Generative or contrastive?",
                   "The label says only whether the pair is real; the model never generates a sentence."),
        _kind_part("order", "contrastive", "Two neighbouring sentences are swapped half of the time, and the model "
             "decides whether they are. Generative or contrastive?",
                   "The swapped pair is the corrupted one. Only the order differs."),
        _kind_part("replaced", "contrastive", "Some tokens are replaced by others, and the model decides for each "
             "token whether it was. Generative or contrastive?",
                   "One binary label for every token, so every token gives a training signal, not only the masked "
                   "ones."),
        Part("make-order", "Write a generator for sentence order: for each pair of neighbours first [a, b, "
             "0{in_order}], then [b, a, 1{swapped}].", Function("order_examples", order_examples, ORDER_CASES,
             "order_examples(sentences: list) -> list of [first, second, label]"), "exact", order_by_search,
             why="Both labels come from the same two sentences, so length, rarity and topic do not differ.",
             wrong={"never swapped": lambda s: [[a, b, 0] for a, b in pairwise(s)],
                    "swapped, but did not change the label": lambda s: [[a, b, 0] for a, b, _ in order_examples(s)],
                    "used any two sentences, not only neighbours": _any_two_sentences}),
        Part("make-replaced", "Write a generator for replaced tokens: positions and the tokens sampled for them are "
             "given; return the corrupted tokens and their labels, 1{changed} for "
             "replaced.", Function("replaced_labels",
             replaced_labels, REPLACED_CASES, "replaced_labels(tokens: list, places: list, drawn: list) -> [tokens, "
             "labels]"), "exact", replaced_by_position,
             why="A sampled token may equal the original. Then nothing has changed, and the label could not be "
             "predicted.",
             wrong={"labelled every sampled position, even if its token did not change": _every_sampled_position,
                    "swapped the two labels": _real_is_one}),
        Part("replaced-share", "A fraction r of the tokens is resampled from the text; two random tokens of it are "
             "equal with probability c. What fraction is labelled as replaced?",
             Formula("r*(1 - c)", {"r": "share", "c": "share"}), "exact", replaced_share,
             why="Resampled, and not equal by chance.",
             wrong={"forgot that the sampled token may equal the original": ("r", lambda r: r * 1),
                    "gave the fraction that stays equal": ("r*c", lambda r, c: r - r * (1 - c)),
                    "left out the resampling": ("1 - c", lambda c: 1 - c)}),
        Part("masked-share", "15%{chosen} of the tokens are predicted; of these 80%{masked} are replaced by [MASK], "
             "10%{random} by a random token, and 10%{random} are unchanged. What fraction of all tokens is [MASK]?",
             Number(0.12), "exact", masked_share,
             why="`(15/100)*(8/10)`{}. The others are predicted too, so that the model must represent every token, "
             "not only [MASK].",
             wrong={"gave all predicted tokens": (0.15, lambda: SHARES[0]), "took the share of all tokens": (0.8,
                 lambda: SHARES[1]),
                    "added the replaced ones": (0.135, lambda: SHARES[0] * (SHARES[1] + SHARES[2]))}),
        Part("restored", "Inserting the labels of the masked words restores the original text.", Truth("true"), "exact",
             restorable, why="They come from it: that is why no annotator is needed, and why no label is wrong.",
             wrong={"thought that a masked word is lost": False}),
        Part("overlap", "A classifier only counts the words that two sentences share. In which task is it better than "
             "chance, if each document has one topic?", Choice("next", {"next": "next sentence",
             "order": "sentence order", "both": "both", "neither": "neither"}), "counted", by_overlap,
             why="The overlap does not change when two sentences are swapped, but a sentence from another document has "
             "less overlap. So next sentence can be learnt from topics alone."),
    ])  # fmt: skip

EXERCISES = (SELF_LABELS,)
