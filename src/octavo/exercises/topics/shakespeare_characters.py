"""A character model of Shakespeare: where its loss starts, how it falls, and what the model writes."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from octavo.core import seeded_generator
from octavo.decode import Sample, generate
from octavo.exercises import Exercise, Finding, Number, Part, Truth, verdict
from octavo.exercises.framework.evidence import dataset
from octavo.exercises.framework.exercise import MissingDataError
from octavo.models.recurrent import GRU, RecurrentConfig
from octavo.pages.figures.charts import Series, lines

BATCH, LENGTH, STEPS, WIDTH, LEARNING_RATE = 32, 48, 120, 64, 0.01
FULL_STEPS = 2000
CHARACTERS = 65  # different ones in Tiny Shakespeare
SAMPLED, HELD_OUT = 1500, 20_000  # characters
EVALUATE_EVERY = 20  # steps


@cache
def characters() -> tuple[str, Tensor, Tensor]:
    """The alphabet, and the two parts of Tiny Shakespeare as tokens."""
    text = dataset("shakespeare").read_text(encoding="utf-8")
    alphabet = "".join(sorted(set(text)))
    tokens_N = torch.tensor([alphabet.index(one) for one in text])
    cut = len(text) * 9 // 10
    return alphabet, tokens_N[:cut], tokens_N[cut:]


@torch.no_grad()
def held_out_loss(model: GRU, held_N: Tensor) -> float:
    """Nats a character, on the beginning of the held-out part, cut into rows."""
    rows_BT = held_N[: HELD_OUT // LENGTH * LENGTH].view(-1, LENGTH)
    logits_BTV = model(rows_BT[:, :-1])
    return float(F.cross_entropy(logits_BTV.flatten(0, 1), rows_BT[:, 1:].flatten()))


@cache
def trained(steps: int) -> tuple[GRU, tuple[float, ...], tuple[tuple[int, float], ...]]:
    """A GRU, its training loss at every step, and its held-out loss every few steps."""
    alphabet, train_N, held_N = characters()
    model = GRU(RecurrentConfig(width=WIDTH, layers=1), len(alphabet) + 1)
    generator = seeded_generator(0)
    model.initialise(generator)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    losses, held = [], [(0, held_out_loss(model, held_N))]
    for step in range(1, steps + 1):
        starts_B = torch.randint(len(train_N) - LENGTH, (BATCH,), generator=generator)
        x_BT = torch.stack([train_N[start : start + LENGTH] for start in starts_B.tolist()])
        loss = F.cross_entropy(model(x_BT[:, :-1]).flatten(0, 1), x_BT[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if step % EVALUATE_EVERY == 0:
            held.append((step, held_out_loss(model, held_N)))
    return model, tuple(losses), tuple(held)


def bag_loss() -> float:
    """Nats a held-out character under the relative frequencies of the training text."""
    _, train_N, held_N = characters()
    p_V = torch.bincount(train_N).double() / len(train_N)
    return float(-p_V[held_N].log().mean())


def pairs_loss() -> float:
    """Nats a held-out character under add-one frequencies of pairs of characters."""
    alphabet, train_N, held_N = characters()
    size = len(alphabet)
    counts_VV = torch.bincount(train_N[:-1] * size + train_N[1:], minlength=size * size).view(size, size).double() + 1
    logp_VV = (counts_VV / counts_VV.sum(1, keepdim=True)).log()
    return float(-logp_VV[held_N[:-1], held_N[1:]].mean())


def uniform() -> Finding:
    alphabet, _, _ = characters()
    logits_V = torch.zeros(len(alphabet), dtype=torch.float64)
    return Finding(
        float(-logits_V.log_softmax(0)[0]), f"{len(alphabet)} different characters in the file, equal logits"
    )


def beats_pairs(steps: int = STEPS) -> Finding:
    _, _, held = trained(steps)
    limits = {"bag": bag_loss(), "pairs": pairs_loss()}
    curve = ", ".join(f"{loss:.2f} at {step}" for step, loss in held[:: max(1, len(held) // 6)])
    note = f"held-out nats: {curve}, {held[-1][1]:.3f} at the end; bag {limits['bag']:.3f}, pairs {limits['pairs']:.3f}"
    return Finding(verdict(held[-1][1] < limits["pairs"]), note, "any lower")


def every_step(steps: int = STEPS) -> Finding:
    _, losses, _ = trained(steps)
    rises = sum(later > earlier for earlier, later in pairwise(losses))
    return Finding(verdict(rises == 0), f"the loss of a batch rises in {rises} of {len(losses) - 1} steps", "any rise")


def known_share(text: str) -> float:
    """The share of the words of four letters or more that occur in the training text."""
    alphabet, train_N, _ = characters()
    known = set(re.findall(r"[a-z]{4,}", "".join(alphabet[token] for token in train_N.tolist()).lower()))
    words = re.findall(r"[a-z]{4,}", text.lower())
    return sum(word in known for word in words) / max(1, len(words))


def write(steps: int) -> str:
    alphabet, _, _ = characters()
    model, _, _ = trained(steps)
    prompt = torch.tensor([alphabet.index(one) for one in "ROMEO:\n"])
    with torch.no_grad():
        (tokens,) = generate(model, [prompt], SAMPLED, Sample(temperature=0.8), seeded_generator(1))
    return "".join(alphabet[token] for token in tokens.tolist() if token < len(alphabet))


def samples_have_words(steps: int = STEPS) -> Finding:
    alphabet, train_N, _ = characters()
    text = write(steps)
    drawn = train_N[torch.randint(len(train_N), (SAMPLED,), generator=seeded_generator(2))]
    shares = known_share(text), known_share("".join(alphabet[token] for token in drawn.tolist()))
    shown = " ".join(text[:120].split())
    note = f"known words: {shares[0]:.0%} of the model's, {shares[1]:.0%} of characters at random; it wrote: {shown}"
    return Finding(verdict(shares[0] > shares[1] + 0.1), note, "by more than 0.1")


def loss_figure() -> str:
    try:
        _, losses, held = trained(STEPS)
    except MissingDataError:
        return ""
    return lines(
        [Series("training", list(enumerate(losses, 1))), Series("held out", list(held))],
        "The loss of the character model in nats per character, batch by batch, and on held-out "
        "text.", ("step", "loss"),
    )  # fmt: skip


def frequencies_entropy() -> Finding:
    alphabet, train_N, _ = characters()
    counts = Counter(train_N.tolist())
    total = len(train_N)
    entropy = -sum(n / total * math.log(n / total) for n in counts.values())
    return Finding(entropy, f"the relative frequencies of {len(alphabet)} characters in the first nine tenths")


SHAKESPEARE = Exercise(
    id="shakespeare-characters", title="A character model of Shakespeare", figure=loss_figure,
    where={"units": WIDTH, "characters": CHARACTERS, "steps": STEPS},
    question="A GRU with 64{units} units reads Tiny Shakespeare, which has 65{characters} different characters, "
    "character by character and predicts the next one. It is trained for 120{steps} small steps on the first nine "
    "tenths.",
    answer="A model that knows nothing has a loss of `ln(65)`{start} nats. In the first steps the loss falls to that "
    "of a bag of characters, the entropy of their frequencies; then below that of pairs, because the state remembers "
    "more than one character. The loss of single batches goes up and down, so a curve should be judged by its trend, "
    "and by held-out text. Samples first have the right frequencies, then syllables, then words.",
    parts=[
        Part("start",
             "What is the loss of a model that gives all 65{characters} characters the same probability, in nats?",
             Number("ln(65)"),
             "numeric", uniform, why="Each has the same share of the probability: `-ln(1/65) = ln(65)`.",
             wrong={"gave it in bits": ("ln(65)/ln(2)", lambda: math.log2(CHARACTERS)),
                    "gave the perplexity": (65, lambda: CHARACTERS)}),
        Part("bag",
             "What is the entropy of the character frequencies of the training part, in nats per character? (Count "
             "them.)", Number(3.309084), "counted", frequencies_entropy,
             why="The sum of `-p*ln(p)`; a model without context cannot be better on this text.",
             wrong={"gave it in bits": (4.773999474, lambda: frequencies_entropy().value / math.log(2)),
                    "gave that of equal frequencies": ("ln(65)", lambda: math.log(CHARACTERS))}),
        Part("curve",
             "At the end, its loss on held-out text is below that of counted pairs of characters.", Truth("true"),
             "trained", beats_pairs, full=lambda: beats_pairs(FULL_STEPS),
             why="Its state carries more than the last character.",
             wrong={"thought that so few steps only reach the frequencies": False}),
        Part("every-step", "While it learns, the loss falls from every batch to the next.", Truth("false"), "trained",
             every_step, full=lambda: every_step(FULL_STEPS),
             why="Each batch is another piece of text, and some are harder than others.",
             wrong={"confused the trend with single steps": True}),
        Part("samples",
             "Of the words of four or more letters that it writes, a larger share occurs in the training text than "
             "of those made of characters drawn at random.", Truth("true"), "trained", samples_have_words,
             full=lambda: samples_have_words(FULL_STEPS), why="It has learnt which characters follow which.",
             wrong={"thought that only frequencies are learnt so early": False}),
    ])  # fmt: skip

EXERCISES = (SHAKESPEARE,)
