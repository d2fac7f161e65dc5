"""octavo doctor on real texts: an independent set of runs, written down before its code was read.

    python benchmarks/bench_doctor_independent.py              (all of them)
    python benchmarks/bench_doctor_independent.py --only gru   (those whose name has it in it: a pattern)

tests/sick_runs.py is the set that the doctor was developed with; this is not. Its texts are Shakespeare, captions and
film reviews (octavo data get shakespeare multi30k sentence-polarity digits) and a module of Python. Each sick run has
the names that are right for it, the nearest first; a run counts as right where the doctor's first finding is one of
them, a healthy one where there is no warning. Nothing here may be changed to suit the doctor.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from measure import parser, print_header, print_row
from octavo.core import map_state
from octavo.datasets.sources import get_files
from octavo.inspection.doctor import examine
from octavo.text import learn_tokenizer, open_corpus
from octavo.training.stage import Stage
from sick_runs import times, train, train_changed  # type: ignore[import-not-found]

NETWORK = {"device": "cpu", "width": 64, "layers": 1, "batch_size": 16, "sequence_length": 32, "budget": "300steps"}
GPT = NETWORK | {"layers": 2, "heads": 2, "context": 32}
GPT_RATES, RECURRENT_RATES = (0.004, 0.02), (0.004, 0.08)  # the models' own, of AdamW and of Muon


@dataclass(frozen=True)
class Case:
    """A run: the names that are right for it (none: healthy), and how it is made from the folder of texts."""

    name: str
    right: tuple[str, ...]
    make: Callable[[Path, Path], Any]


def rates(usual: tuple[float, float], factor: float) -> dict[str, float]:
    return {"learning_rate": usual[0] * factor, "muon_learning_rate": min(10.0, usual[1] * factor)}


def write_texts(folder: Path) -> None:
    draw = random.Random(17)
    captions, opinions = get_files("multi30k"), get_files("sentence-polarity")
    play = get_files("shakespeare")["input.txt"].read_text()[:200_000]
    (folder / "play.txt").write_text(play)
    (folder / "play-3k.txt").write_text(play[:3_000])
    (folder / "play-20k.txt").write_text(play[:20_000])
    for language in ("en", "de"):
        lines = captions[f"train.{language}"].read_text().splitlines()[:3000]
        (folder / f"captions.{language}").write_text("\n".join(lines) + "\n")
        (folder / f"captions-valid.{language}").write_text(captions[f"val.{language}"].read_text()[:20_000])
    english = (folder / "captions.en").read_text().splitlines()
    german = (folder / "captions.de").read_text().splitlines()
    valid = (folder / "captions-valid.en").read_text()
    (folder / "captions-with-valid.en").write_text("\n".join(english) + "\n" + valid)
    (folder / "captions-sorted.en").write_text("\n".join(sorted(english)) + "\n")
    (folder / "captions-20-times.en").write_text("".join(f"{line}\n" * 20 for line in english[:400]))
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(english, german, strict=True)))
    (folder / "pairs-one-off.tsv").write_text(
        "".join(f"{a}\t{b}\n" for a, b in zip(english[:-1], german[1:], strict=True))
    )
    (folder / "module.py.txt").write_text(Path(torch.nn.functional.__file__).read_text()[:150_000])
    greek = str.maketrans("abcdefghijklmnopqrstuvwxyz", "αβγδεζηθικλμνξοπρστυφχψωϊϋ")
    (folder / "greek.txt").write_text("\n".join(german).lower().translate(greek))
    learnt = learn_tokenizer("bpe", open_corpus(folder / "greek.txt"), vocab_size=2000)
    (folder / "greek.json").write_text(json.dumps(learnt.to_json()))
    reviews = []
    for label in ("pos", "neg"):
        text = opinions[f"rt-polarity.{label}"].read_text(encoding="utf-8", errors="replace")
        reviews += [(label, line.strip()) for line in text.splitlines()[:1500]]
    draw.shuffle(reviews)
    labels = [label for label, _ in reviews]
    draw.shuffle(labels)

    def write(name: str, rows: list[tuple[str, str]]) -> None:
        (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in rows))

    write("reviews.tsv", reviews)
    write("reviews-shuffled.tsv", [(label, text) for label, (_, text) in zip(labels, reviews, strict=True)])
    write("reviews-one-class.tsv", [(label, text) for label, text in reviews if label == "pos"] + reviews[:3])


def two_ahead(stage: Stage) -> None:
    """Targets that are shifted twice: once by the loader, and once more by the loss."""

    def shifted(state: Any, x_BT: torch.Tensor) -> Any:
        model: Any = stage.model
        logits_BTV, after = model.absorb(state, x_BT[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits_BTV[:, :-1].flatten(0, 1), x_BT[:, 2:].flatten(), reduction="sum"
        )
        return loss, map_state(after, torch.Tensor.detach)

    stage.objective.forward = shifted


def zero_embeddings(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if "embedding" in name:
            parameter.zero_()


CASES: list[Case] = []


def add(name: str, right: str, model: str, source: str, **settings: Any) -> None:
    """A run of a text in the folder; `right`: names with `/` between them."""
    changes = {key: settings.pop(key) for key in ("first", "stage") if key in settings}
    for key in ("valid", "tokenizer"):
        if key in settings and settings[key] != "bpe":
            settings[key] = Path(settings[key])

    def make(texts: Path, out: Path) -> Any:
        own = {key: str(texts / value) if isinstance(value, Path) else value for key, value in settings.items()}
        if "valid" in own:
            own["valid"] = [own["valid"]]
        data = texts / source if (texts / source).exists() else source
        return (train_changed if changes else train)(model, data, out, **own, **changes)

    CASES.append(Case(name, tuple(right.split("/")) if right else (), make))


TOO_HIGH = "learning rate too high/instability/exploding gradients"
add("gpt, rates x 30", TOO_HIGH, "gpt", "play.txt", **GPT | rates(GPT_RATES, 30))
add("lstm, rates / 200", "learning rate too low", "lstm", "play.txt", **NETWORK | rates(RECURRENT_RATES, 1 / 200))
add("dan, labels shuffled", "labels unrelated to inputs", "dan", "reviews-shuffled.tsv", device="cpu", width=32)
add("gru, targets shifted twice", "targets unrelated to inputs", "gru", "play.txt", stage=two_ahead, **NETWORK)
add("gru, validation file in the training file", "data leak", "gru", "captions-with-valid.en",
    valid="captions-valid.en", **NETWORK)  # fmt: skip
add("gru, lines sorted", "sorted text", "gru", "captions-sorted.en", **NETWORK)
add("gpt, first weights x 4", "bad initialisation", "gpt", "play.txt", first=times(4), **GPT)
add("lstm, embeddings zero", "bad initialisation", "lstm", "play.txt", first=zero_embeddings, **NETWORK)
add("gru, tokenizer of another script", "broken tokenizer/unused vocabulary", "gru", "play.txt",
    tokenizer="greek.json", **NETWORK)  # fmt: skip
add("9-gram of 20 kB", "order too high", "ngram", "play-20k.txt", order=9)
add("gru, 600 steps on 3 kB", "overfitting", "gru", "play-3k.txt", **NETWORK | {"budget": "600steps"})
add("gpt, batch of 1, rates x 10", TOO_HIGH, "gpt", "play.txt",
    **GPT | rates(GPT_RATES, 10) | {"batch_size": 1})  # fmt: skip
add("gru, 6 of 300 steps", "stopped too early", "gru", "play.txt", **NETWORK | {"budget": "6steps"})
add("lstm, dropout 0.9", "too much dropout", "lstm", "play.txt", **NETWORK | {"dropout": 0.9})
add("gpt, weight decay 10", "weight decay too strong", "gpt", "play.txt", **GPT | {"weight_decay": 10.0})
add("linear, nearly one class", "one class only", "linear-classifier", "reviews-one-class.tsv")
add("gru, each line 20 times", "repeated text", "gru", "captions-20-times.en", **NETWORK)
add("gru, held-out text in German", "different domains", "gru", "captions.en", valid="captions-valid.de", **NETWORK)
PAIR = {"device": "cpu", "width": 64, "layers": 1, "heads": 2, "vocab_size": 1000, "batch_size": 512}
add("seq2seq, one line missing", "labels unrelated to inputs", "seq2seq", "pairs-one-off.tsv",
    **PAIR | {"budget": "300steps"})  # fmt: skip

add("healthy gpt", "", "gpt", "play.txt", **GPT)
add("healthy gru", "", "gru", "play.txt", **NETWORK)
add("healthy lstm", "", "lstm", "captions.en", **NETWORK)
add("healthy local", "", "local", "captions.de", **GPT)
add("healthy gru of source code", "", "gru", "module.py.txt", **NETWORK)
add("healthy gpt with bpe", "", "gpt", "play.txt", tokenizer="bpe", vocab_size=500, **GPT)
add("healthy 5-gram of captions", "", "ngram", "captions.en", order=5)
add("healthy 5-gram of source code", "", "ngram", "module.py.txt", order=5)
CASES.append(
    Case("healthy mix", (), lambda texts, out: train("mix", texts / "play.txt", out, parts=[
        str(train("ngram", texts / "play.txt", out.with_name("part-kn5"), order=5).path),
        str(train("gru", texts / "play.txt", out.with_name("part-gru"), **NETWORK).path)]))
)  # fmt: skip
add("healthy dan", "", "dan", "reviews.tsv", device="cpu", width=32)
add("healthy linear", "", "linear-classifier", "reviews.tsv")
add("healthy vit", "", "vit", "digits", device="cpu", width=32, layers=2, heads=2, patch=2, budget="400steps")
add("healthy seq2seq", "", "seq2seq", "pairs.tsv", **PAIR | {"budget": "300steps"})


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--only", default="", help="a pattern in the names of the runs to examine")
    options = flags.parse_args()
    print_header("run", "right", "named first", "also warned of", "verdict", "CPU s")
    counts = {"right": 0, "wrong": 0, "false alarm": 0, "healthy": 0}
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts"
        texts.mkdir()
        write_texts(texts)
        for number, case in enumerate(one for one in CASES if re.search(options.only, one.name)):
            began = time.process_time()
            try:
                found = examine(case.make(texts, Path(folder) / str(number) / "run"))
            except Exception as error:
                print_row(case.name, case.right[0] if case.right else "healthy", f"refused: {error}", "", "", "")
                continue
            first = found.condition
            verdict = ("right" if first in case.right else "wrong") if case.right else (
                "false alarm" if found.count("warning") else "healthy")  # fmt: skip
            counts[verdict] += 1
            others = [one.condition for one in found.findings if one.verdict == "warning" and one.condition != first]
            print_row(case.name, case.right[0] if case.right else "healthy", first or "nothing",
                      ", ".join(others), verdict, f"{time.process_time() - began:.1f}")  # fmt: skip
            for one in found.findings:
                if one.verdict in ("warning", "note"):
                    print(f"      {one.verdict}: {one.condition}: {one.measured} | {one.expected}", file=sys.stderr)
            sys.stdout.flush()
    print(counts)


if __name__ == "__main__":
    main()
