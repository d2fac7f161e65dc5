"""A clinic: small real trainings, each sick in a way that is known, and healthy ones of every task to tell them from.

A sick run is trained by octavo itself, on a text or with settings that are wrong; or by a task of which one thing is
changed: the first weights, the batches or the loss of a step. Each states the name that the doctor must give it.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import octavo
from octavo.core import map_state
from octavo.io.run_folder import METRICS
from octavo.tasks.task import task_for
from octavo.tasks.training_run import train_run
from octavo.training.stage import Stage

CONSONANTS, VOWELS = "bcdfghklmnprstvw", "aeiou"
SMALL = {"device": "cpu", "evaluations": 4, "seed": 0}
NETWORK = SMALL | {"width": 32, "layers": 1, "batch_size": 16, "sequence_length": 16, "budget": "200steps"}
GPT = NETWORK | {"heads": 2, "context": 16}


def words_of(seed: int, count: int = 300) -> list[str]:
    """Made-up words of two to four syllables."""
    draw = random.Random(seed)
    syllable = lambda: draw.choice(CONSONANTS) + draw.choice(VOWELS)  # noqa: E731
    return ["".join(syllable() for _ in range(draw.choice((1, 1, 2, 2, 3)))) for _ in range(count)]


def prose(sentences: int, seed: int = 1, words: list[str] | None = None) -> str:
    """Sentences in which a word tells what may follow it: text with frequencies, spelling and order to learn."""
    draw, words = random.Random(seed), words or words_of(0)
    weights = [1 / (rank + 3) for rank in range(len(words))]
    lines = []
    for _ in range(sentences):
        line, at = [], draw.choices(range(len(words)), weights)[0]
        for _ in range(draw.randint(5, 11)):
            line.append(words[at])
            following = [(at * 7 + 13 * k) % len(words) for k in range(1, 6)]
            at = draw.choice(following) if draw.random() < 0.7 else draw.choices(range(len(words)), weights)[0]
        lines.append(" ".join(line).capitalize() + draw.choice(".....?!"))
    return "\n".join(" ".join(lines[i : i + 3]) for i in range(0, len(lines), 3)) + "\n"


@dataclass(frozen=True)
class Patient:
    """A run to be made: its name, what the doctor must call it (nothing of a healthy one), and how it is made."""

    name: str
    condition: str
    make: Callable[[Path, Path], Any]
    """make(texts, out): the trained run."""


def train(model: str, source: str | Path, out: Path, **settings: Any) -> Any:
    return octavo.train(model, source, out=out, **settings)


def train_changed(
    model: str, source: str | Path, out: Path, first: Callable[[Any], None] | None = None,
    stage: Callable[[Stage], None] | None = None, **settings: Any,
) -> Any:  # fmt: skip
    """Train by a task of which the first weights, or a stage, are changed."""
    task = task_for(model)

    class Changed(type(task)):  # type: ignore[misc]
        def create(self, recipe: Any, data: Any) -> Any:
            run = super().create(recipe, data)
            if first is not None:
                with torch.no_grad():
                    first(run.model)
            return run

        def stage(self, *args: Any) -> Stage:
            made: Stage = super().stage(*args)
            if stage is not None:
                stage(made)
            return made

    seed, device = settings.pop("seed", 0), settings.pop("device", "cpu")
    changed = Changed()
    return train_run(changed, changed.recipe(model, settings, seed, device), [str(source)], out, quiet=True)


def alter(run: Any, out: Path, change: Callable[[Any], None]) -> Any:
    """A trained run whose weights are changed afterwards, as by a bug in saving or loading."""
    metrics = (run.path / METRICS).read_text()
    with torch.no_grad():
        change(run.model)
    measured = octavo.evaluate(run)
    run.record["result"] = measured.to_json()
    return run.save(out, {METRICS: metrics})


# ---------------------------------------------------------------------- texts


def write_texts(folder: Path) -> None:
    """Every text and every file of examples."""
    text = prose(800)
    (folder / "text.txt").write_text(text)
    (folder / "small.txt").write_text(prose(90, seed=3))
    (folder / "repeated.txt").write_text(prose(30, seed=4) * 50)
    lines = text.splitlines(keepends=True)
    (folder / "seen.txt").write_text("".join(lines[10:80]))
    numbers = random.Random(5)
    (folder / "numbers.txt").write_text(
        "".join(
            f"{numbers.randint(0, 9999)};{numbers.randint(0, 99)},{numbers.randint(0, 99)}\r\n" for _ in range(1200)
        )
    )
    (folder / "sorted.txt").write_text("".join(sorted("".join(lines).replace(" ", "\n").splitlines(keepends=True))))
    (folder / "shuffled.txt").write_bytes(
        bytes(np.random.default_rng(6).permutation(np.frombuffer(text.encode(), np.uint8)))
    )
    accents = text.replace("a", "á").replace("e", "é").replace("o", "ö")
    (folder / "mojibake.txt").write_bytes(accents.encode("utf-8").decode("cp1252", "replace").encode("utf-8"))
    (folder / "utf16.txt").write_bytes(text.encode("utf-16-le"))
    write_moods(folder)
    write_pairs(folder)
    write_images(folder)
    write_facts(folder)


def write_moods(folder: Path) -> None:
    """Two classes of texts that their words tell apart; the same with labels shuffled, rare, or examples repeated."""
    draw = random.Random(7)
    good, bad, other = words_of(11, 40), words_of(12, 40), words_of(13, 80)
    examples = []
    for number in range(600):
        own = good if number % 2 else bad
        chosen = [draw.choice(own if draw.random() < 0.4 else other) for _ in range(8)]
        examples.append(("good" if number % 2 else "bad", " ".join(chosen)))
    labels = [label for label, _ in examples]
    draw.shuffle(labels)
    rare = [one for one in examples if one[0] == "bad" or draw.random() < 0.06]
    again = examples[:200] * 3
    draw.shuffle(again)
    for name, rows in {
        "moods": examples, "moods-shuffled": [(label, text) for label, (_, text) in zip(labels, examples, strict=True)],
        "moods-rare": rare, "moods-again": again,
    }.items():  # fmt: skip
        (folder / f"{name}.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in rows))


def write_pairs(folder: Path) -> None:
    """Sentences and their translation word for word; and the same with the targets out of order."""
    draw, words = random.Random(8), words_of(21, 20)
    meaning = dict(zip(words, words_of(22, 20), strict=True))
    sources = [[draw.choice(words) for _ in range(draw.randint(1, 3))] for _ in range(600)]
    targets = [" ".join(meaning[word] for word in line) for line in sources]
    shuffled = draw.sample(targets, len(targets))
    for name, column in (("pairs", targets), ("pairs-misaligned", shuffled)):
        rows = [f"{' '.join(line)}\t{target}\n" for line, target in zip(sources, column, strict=True)]
        (folder / f"{name}.tsv").write_text("".join(rows))


def write_images(folder: Path) -> None:
    """Bars that lie or stand, as pictures in two folders; and the same with half of them in the wrong folder."""
    from PIL import Image

    draw = np.random.default_rng(9)
    for name in ("bars", "bars-shuffled"):
        for number in range(160):
            kind = number % 2
            picture = draw.integers(0, 60, (8, 8)).astype(np.uint8)
            place = int(draw.integers(1, 7))
            if kind:
                picture[place] = 255
            else:
                picture[:, place] = 255
            label = kind if name == "bars" else int(draw.integers(2))
            at = folder / name / ("lying" if label else "standing")
            at.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(at / f"{number:03}.png")


def write_facts(folder: Path) -> None:
    at = folder / "facts"
    at.mkdir(exist_ok=True)
    draw, cities = random.Random(10), [word.capitalize() for word in words_of(31, 6)]
    people = [f"{a.capitalize()} {b.capitalize()}" for a, b in zip(words_of(32, 40), words_of(33, 40), strict=True)]
    homes = {one: draw.choice(cities) for one in people}
    (at / "text.txt").write_text("".join(f"{one} was born in {home}.\n" for one, home in homes.items()))
    asked = [f"Where was {one} born?\t{home}\n" for one, home in homes.items()]
    (at / "train.tsv").write_text("".join(asked[:30]))
    (at / "dev.tsv").write_text("".join(asked[30:]))


# ---------------------------------------------------------------------- what is changed


def times(factor: float) -> Callable[[Any], None]:
    """All first weights multiplied."""
    return lambda model: [parameter.mul_(factor) for parameter in model.parameters()] and None


def freeze(*names: str, factor: float = 1.0) -> Callable[[Any], None]:
    """Tensors that the optimizer is not given, multiplied first."""

    def change(model: Any) -> None:
        for name, parameter in model.named_parameters():
            if any(one in name for one in names):
                parameter.mul_(factor)
                parameter.requires_grad_(False)

    return change


def fill(name: str, *values: float) -> Callable[[Any], None]:
    """A bias set to a value; with several, each part of it to one."""

    def change(model: Any) -> None:
        found = [parameter for key, parameter in model.named_parameters() if key.endswith(name)]
        for parameter in found:
            for part, value in zip(parameter.chunk(len(values)), values, strict=True):
                part.fill_(value)

    return change


def scale(factor: float, *names: str) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        for key, parameter in model.named_parameters():
            if any(one in key for one in names):
                parameter.mul_(factor)

    return change


def wrong_targets(stage: Stage) -> None:
    """Every window predicts the tokens of another one, in another order."""
    draw = torch.Generator().manual_seed(0)

    def shuffled(state: Any, x_BT: torch.Tensor) -> Any:
        model: Any = stage.model
        logits_BTV, after = model.absorb(state, x_BT[:, :-1])
        targets = x_BT[:, 1:].flatten()
        targets = targets[torch.randperm(len(targets), generator=draw)]
        loss = torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), targets, reduction="sum")
        return loss, map_state(after, torch.Tensor.detach)

    stage.objective.forward = shuffled  # type: ignore[method-assign]


def poisoned(*steps: int) -> Callable[[Stage], None]:
    """A loss that is not a number at some steps."""

    def change(stage: Stage) -> None:
        forward, count = stage.objective.forward, [0]

        def at_times(state: Any, part: Any) -> Any:
            count[0] += stage.model.training
            loss, after = forward(state, part)
            return (loss * math.nan if count[0] in steps and stage.model.training else loss), after

        stage.objective.forward = at_times  # type: ignore[method-assign]

    return change


def drop_always(run: Any) -> Any:
    """Dropout that is on in evaluation too, as by a forgotten `self.training`."""
    run.model.drop = lambda h: torch.nn.functional.dropout(h, 0.3)
    return run


# ---------------------------------------------------------------------- the patients

THOROUGH = {  # a second case of the same, or slow: examined by benchmarks/bench_doctor.py alone
    "gpt, rate too high", "gpt, rate too low", "bert, rate too low", "gpt, overfitting", "gpt, first weights x 10",
    "gru, first weights x 10", "vit, first weights x 0", "gpt, embeddings frozen", "facts, rate too high",
    "vit, rate too high", "vit, labels shuffled", "seq2seq, misaligned", "rnn, hardly any recurrence", "gru, clipped",
    "gru, too small", "gpt, dead units", "healthy local", "healthy seq2seq", "healthy lstm", "healthy bert",
    "healthy facts",
}  # fmt: skip

RATES = {"learning_rate": 1e-5, "muon_learning_rate": 1e-4}
HIGH = {"learning_rate": 3.0, "muon_learning_rate": 3.0, "decay": "none", "warmup": 0.0}
DAN = {"device": "cpu", "width": 16, "batch_size": 32, "epochs": 12, "patience": 50, "evaluations": 8}
VIT = {
    "device": "cpu",
    "width": 16,
    "layers": 1,
    "heads": 2,
    "patch": 4,
    "batch_size": 16,
    "budget": "150steps",
    "evaluations": 5,
    "shift": 0,
}
PAIR = {
    "device": "cpu",
    "width": 32,
    "layers": 1,
    "heads": 2,
    "vocab_size": 300,
    "batch_size": 160,
    "budget": "200steps",
    "evaluations": 3,
}
BERT = {
    "device": "cpu",
    "width": 32,
    "layers": 1,
    "heads": 2,
    "context": 32,
    "batch_size": 8,
    "vocab_size": 200,
    "budget": "200steps",
    "evaluations": 5,
}
FACTS = {
    "device": "cpu",
    "width": 32,
    "layers": 1,
    "heads": 2,
    "context": 96,
    "pretrain_epochs": 40,
    "pretrain_batch_size": 16,
    "epochs": 40,
    "batch_size": 16,
}


PATIENTS: list[Patient] = []


def add(name: str, condition: str, model: str, source: str, **settings: Any) -> None:
    """A patient that is trained by octavo as it is, with these settings on this text."""
    changes = {key: settings.pop(key) for key in ("first", "stage") if key in settings}
    maker = train_changed if changes else train
    PATIENTS.append(
        Patient(name, condition, lambda texts, out: maker(model, texts / source, out, **settings, **changes))
    )


def add_altered(name: str, condition: str, change: Callable[[Any], None], model: str, **settings: Any) -> None:
    """A patient that was healthy, and whose weights are changed after training."""
    PATIENTS.append(
        Patient(
            name,
            condition,
            lambda texts, out: alter(
                train(model, texts / "text.txt", out.with_name(f"{out.name}-before"), **settings), out, change
            ),
        )
    )


add("gru, rate too high", "learning rate too high", "gru", "text.txt", **NETWORK | HIGH)
add("gpt, rate too high", "learning rate too high", "gpt", "text.txt", **GPT | HIGH)
add("vit, rate too high", "learning rate too high", "vit", "bars", **VIT | HIGH)
add("gru, rate too low", "learning rate too low", "gru", "text.txt", **NETWORK | RATES)
add("gpt, rate too low", "learning rate too low", "gpt", "text.txt", **GPT | RATES)
add("bert, rate too low", "learning rate too low", "bert", "text.txt", **BERT | RATES)
add("lstm, stopped", "stopped too early", "lstm", "text.txt", **NETWORK | {"budget": "25steps"})
add(
    "gru, overfitting",
    "overfitting",
    "gru",
    "small.txt",
    **NETWORK
    | {"width": 64, "budget": "400steps", "weight_decay": 0.0, "learning_rate": 0.004, "muon_learning_rate": 0.05},
)
add(
    "gpt, overfitting",
    "overfitting",
    "gpt",
    "small.txt",
    **GPT | {"width": 64, "budget": "400steps", "weight_decay": 0.0},
)
add("gru, first weights x 10", "bad initialisation", "gru", "text.txt", first=times(10), **NETWORK)
add("gpt, first weights x 10", "bad initialisation", "gpt", "text.txt", first=times(10), **GPT)
add("rnn, first weights x 0", "bad initialisation", "rnn", "text.txt", first=times(0), **NETWORK)
add("vit, first weights x 0", "bad initialisation", "vit", "bars", first=times(0), **VIT)
add_altered(
    "rnn, hardly any recurrence", "vanishing gradients", scale(0.1, "weight_hh"), "rnn", **NETWORK | {"layers": 3}
)
add_altered("rnn, recurrence x 3", "exploding gradients", scale(3.0, "weight_hh"), "rnn", **NETWORK)
add("gru, frozen layer", "frozen weights", "gru", "text.txt", first=freeze("layers.0"), **NETWORK)
add("gpt, embeddings frozen", "frozen weights", "gpt", "text.txt", first=freeze("embedding"), **GPT)
add("gru, weight decay", "weight decay too strong", "gru", "text.txt", **NETWORK | {"weight_decay": 30.0})
add("gru, clipped", "clipping", "gru", "text.txt", **NETWORK | {"clip": 0.001})
add("gru, nan steps", "steps that are not numbers", "gru", "text.txt", stage=poisoned(60, 61), **NETWORK)
add("gru, wrong targets", "targets unrelated to inputs", "gru", "text.txt", stage=wrong_targets, **NETWORK)
add("gru, too much dropout", "too much dropout", "gru", "text.txt", **NETWORK | {"dropout": 0.8})
add(
    "gru, too small",
    "underfitting",
    "gru",
    "text.txt",
    **NETWORK | {"width": 2, "learning_rate": 0.02, "budget": "300steps"},
)
add_altered(
    "gru, logits x 12", "saturated softmax", scale(12, "output_VD", "output_bias"), "gru", **NETWORK | {"tied": False}
)
add("lstm, gates stuck", "gates stuck", "lstm", "text.txt", first=fill("bias_ih", -30, 30, 0, 0), **NETWORK)
add_altered("gpt, attention collapsed", "attention collapsed", scale(60, "query"), "gpt", **GPT | {"qk_norm": False})
add(
    "gpt, dead units",
    "dead units",
    "gpt",
    "text.txt",
    first=fill("up_bias_F", -30),
    **GPT | {"feed_forward": "relu2", "bias": True, "norm": "layer"},
)
PATIENTS.append(
    Patient(
        "gru, dropout at evaluation",
        "random evaluation",
        lambda texts, out: drop_always(train("gru", texts / "text.txt", out, **NETWORK)),
    )
)
add("gru, repeated text", "repeated text", "gru", "repeated.txt", **NETWORK | {"budget": "60steps"})
add("kn3, sorted text", "sorted text", "ngram", "sorted.txt", order=3)
add("kn3, shuffled bytes", "text without order", "ngram", "shuffled.txt", order=3)
add("kn3, mojibake", "text encoding", "ngram", "mojibake.txt", order=3)
add("kn3, UTF-16", "text encoding", "ngram", "utf16.txt", order=3)
PATIENTS.append(
    Patient(
        "kn5, held-out text learnt",
        "data leak",
        lambda texts, out: train("ngram", texts / "text.txt", out, order=5, valid=[str(texts / "seen.txt")]),
    )
)
PATIENTS.append(
    Patient(
        "kn5, another domain",
        "different domains",
        lambda texts, out: train("ngram", texts / "text.txt", out, order=5, valid=[str(texts / "numbers.txt")]),
    )
)
add("maximum likelihood", "impossible tokens", "ngram", "text.txt", order=5, estimator="mle")
add("9-gram, add-k", "order too high", "ngram", "text.txt", order=9, estimator="add-k")
add("words unknown", "broken tokenizer", "ngram", "text.txt", order=3, tokenizer="word", min_count=80)
PATIENTS.append(
    Patient(
        "a foreign vocabulary",
        "unused vocabulary",
        lambda texts, out: train("ngram", texts / "text.txt", out, order=3, tokenizer=str(foreign_tokenizer(texts))),
    )
)
add("dan, labels shuffled", "labels unrelated to inputs", "dan", "moods-shuffled.tsv", **DAN)
add("linear, labels shuffled", "labels unrelated to inputs", "linear-classifier", "moods-shuffled.tsv")
add("vit, labels shuffled", "labels unrelated to inputs", "vit", "bars-shuffled", **VIT)
add("dan, one class", "one class only", "dan", "moods-rare.tsv", **DAN | {"epochs": 2})
add("linear, examples repeated", "data leak", "linear-classifier", "moods-again.tsv")
add("seq2seq, misaligned", "labels unrelated to inputs", "seq2seq", "pairs-misaligned.tsv", **PAIR)
add(
    "facts, rate too high", "learning rate too high", "facts", "facts", **FACTS | HIGH | {"pretrain_learning_rate": 3.0}
)

add("healthy 5-gram", "", "ngram", "text.txt", order=5)
add("healthy bag", "", "bag", "text.txt")
add("healthy bigram", "", "bigram", "text.txt", dim=16, hidden=16, steps=200)
add("healthy rnn", "", "rnn", "text.txt", **NETWORK)
add("healthy gru", "", "gru", "text.txt", **NETWORK)
add("healthy lstm", "", "lstm", "text.txt", **NETWORK | {"budget": "300steps"})
add("healthy gpt", "", "gpt", "text.txt", **GPT)
add("healthy local", "", "local", "text.txt", **GPT | {"attention_window": 16})
PATIENTS.append(
    Patient(
        "healthy mixture",
        "",
        lambda texts, out: train(
            "mix",
            texts / "text.txt",
            out,
            parts=[
                str(train("ngram", texts / "text.txt", out.with_name("part-kn5"), order=5).path),
                str(train("bag", texts / "text.txt", out.with_name("part-bag")).path),
            ],
        ),
    )
)
add("healthy words", "", "ngram", "text.txt", order=3, tokenizer="word")
add("healthy bert", "", "bert", "text.txt", **BERT)
add("healthy dan", "", "dan", "moods.tsv", **DAN)
add("healthy linear", "", "linear-classifier", "moods.tsv")
add("healthy vit", "", "vit", "bars", **VIT)
add("healthy seq2seq", "", "seq2seq", "pairs.tsv", **PAIR)
add("healthy facts", "", "facts", "facts", **FACTS)


def foreign_tokenizer(texts: Path) -> Path:
    """A BPE tokenizer that was learnt from another text."""
    from octavo.text import learn_tokenizer, open_corpus

    (texts / "foreign.txt").write_text(prose(2000, seed=40, words=[word.upper() for word in words_of(41, 900)]))
    learnt = learn_tokenizer("bpe", open_corpus(texts / "foreign.txt"), vocab_size=1500)
    (texts / "foreign.json").write_text(json.dumps(learnt.to_json()))
    return texts / "foreign.json"
