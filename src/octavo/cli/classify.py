"""octavo classify: train, eval, predict, explain."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.flags import Device, InFile, MaybeNewPath, run_action
from octavo.cli.output import Output, note, print_json, print_table, write_page
from octavo.cli.train import run_training
from octavo.datasets.labels import Labelled, LabelledConfig, read_texts
from octavo.errors import UserError, did_you_mean
from octavo.tasks.classification import TASK, held_out_examples
from octavo.tasks.classification_page import excerpt, explain_page
from octavo.tasks.classifier import Classifier
from octavo.tasks.device import place
from octavo.tasks.predictions import classify as classify_texts
from octavo.tasks.run_page import flags_of
from octavo.tasks.trained_run import models_of
from octavo.tasks.word_contributions import Explained, explain, surest_errors

ClassifierPath = Annotated[Positional[str], arg(metavar="RUN", help="A classifier's folder.")]
Data = Annotated[Positional[tuple[str, ...]], arg(metavar="DATA...")]
MODELS = {
    "linear": "a weight for every word and pair of words: trained in a second, hard to beat",
    "dan": "a deep averaging network: the mean of word vectors, and layers above it",
    "sequence": "a GRU, LSTM or transformer that reads the words in order, from both ends",
    "head": "layers on another model's vectors: --base RUN, a language model or a BERT",
}
SHOWN_CLASSES = 12  # whose confusion is printed
ROOM = 90  # letters of a text in a table

USAGE = """usage: octavo classify train MODEL DATA...   learn from labelled texts
       octavo classify eval RUN [DATA...]     accuracy, F1, calibration, the confusion matrix
       octavo classify predict RUN FILE       the class of every line
       octavo classify explain RUN [DATA...]  its surest mistakes, word by word

DATA is sentence-polarity, movie-reviews, or a file: label<TAB>text, CSV, JSON lines, or fastText's __label__ lines.

"""
EXAMPLES = """
example: octavo classify train linear sentence-polarity --out runs/polarity
example: octavo classify train dan sentence-polarity --vectors glove-6b-50d --out runs/dan
"""


def run_classify(argv: list[str]) -> None:
    """The action comes first, and in training the model: its config decides the other flags."""
    usage = USAGE + "".join(f"  {name:<10}{about}\n" for name, about in MODELS.items()) + EXAMPLES
    if argv[:1] != ["train"]:
        run_action("classify", usage, ACTIONS, argv)
        return
    if len(argv) == 1 or argv[1] in ("-h", "--help"):
        print(usage, end="")
        return
    name = argv[1].removesuffix("-classifier")
    if name not in MODELS:
        advice = did_you_mean(argv[1], MODELS, f"classifiers are {', '.join(models_of(TASK.name))}")
        raise UserError(f"there is no classifier {argv[1]!r}; {advice}")
    run_training(TASK, name, f"octavo classify train {name}", argv[2:])


def print_result(result: dict[str, Any]) -> None:
    """The scores of a classifier, of texts or of images, and each class."""
    error, examples = result["standard_error"], result["examples"]
    print(f"accuracy {result['accuracy']:.2%} (standard error {error:.2%}) on {examples:,} examples not learnt from")
    if folds := result.get("folds"):
        print(f"  {len(folds)} folds: {min(folds):.2%} to {max(folds):.2%}")
    print(f"  macro F1 {result['macro_f1']:.4f}, log loss {result['log_loss']:.4f}, Brier {result['brier']:.4f}, "
          f"calibration error {result['ece']:.4f}")  # fmt: skip
    print_classes(result)


def print_classes(result: dict[str, Any]) -> None:
    """Precision, recall and F1 of each class; of few also their confusion, of many those found least often first."""
    names = result["classes"]
    few = len(names) <= SHOWN_CLASSES
    titles = ("truth", "examples", "precision", "recall", "F1", *(f"as {name}" for name in names if few))
    counted = list(zip(result["per_class"], result["confusion"], strict=True))
    rows = [
        (one["class"], f"{one['examples']:,}", f"{one['precision']:.3f}", f"{one['recall']:.3f}", f"{one['f1']:.3f}",
         *(f"{count:,}" for count in counts if few))
        for one, counts in (counted if few else sorted(counted, key=lambda pair: pair[0]["recall"]))
    ]  # fmt: skip
    print_table(titles, rows)


def eval_(
    run: ClassifierPath,
    data: Data = (),
    reading: LabelledConfig = LabelledConfig(),  # noqa: B008
    device: Device = "auto",
) -> Output:
    """How good a classifier is on labelled texts; without any, on those held out of its training.

    Example: octavo classify eval runs/polarity

    Args:
        data: Labelled texts.
        reading: Where labels and texts are.
    """
    result = TASK.evaluate(place(Classifier.load(run), device), data, reading=reading).to_json()
    return Output(result, lambda: print_result(result))


def predict(
    run: ClassifierPath, file: InFile = "-", reading: LabelledConfig = LabelledConfig(), device: Device = "auto",  # noqa: B008
    json: bool = False,
) -> None:  # fmt: skip
    """The class of every text and its probability, a line each.

    Example: echo "a moving film" | octavo classify predict runs/polarity

    Args:
        file: One text a line, CSV or JSON lines; - is standard input.
        reading: Where the texts are.
        json: Print a JSON object a line, with the probability of every class.
    """
    found = classify_texts(run, read_texts(file, reading), device=device)
    if json:
        for one in found:
            print_json(one.to_json())
        return
    sys.stdout.write("".join(f"{one.label}\t{one.probability:.4f}\n" for one in found))


def inspect(
    run: ClassifierPath,
    data: Data = (),
    reading: LabelledConfig = LabelledConfig(),  # noqa: B008
    text: str | None = None,
    count: int = 5,
    out: MaybeNewPath = None,
    seed: int = 0,
    device: Device = "auto",
) -> Output:
    """Its surest mistakes: what each word contributed, whether word order counts, the nearest training examples.

    Example: octavo classify explain runs/polarity --text "not a good film"

    Args:
        data: Labelled texts to look for mistakes in; without any, those held out of its training.
        reading: Where labels and texts are.
        text: Explain the answer to this text instead.
        count: How many mistakes.
        out: Write a page with coloured words, such as why.html.
        seed: For the shuffling.
    """
    made = place(Classifier.load(run), device)
    learnt = _learnt(made)
    if text is not None:
        found = explain(made, [text], [None], learnt, seed)
    else:
        test = held_out_examples(made, data, reading)
        rows = surest_errors(made, test, count)
        truths = [test.classes[test.y_N[n]] for n in rows]
        found = explain(made, [test.texts[n] for n in rows], truths, learnt, seed)
    if out is not None:
        words = ["octavo", "classify", "explain", run, *data, *flags_of(reading)]
        words += ["--text", text] if text is not None else ["--count", str(count)]
        words += ["--seed", str(seed), "--out", out]
        write_page(out, explain_page(found, Path(run).name, shlex.join(words)))
    explanations: list[Any] = [partial(_print_explanation, one) for one in found]
    return Output([one.to_json() for one in found], *(explanations or ["it made no mistakes on these examples"]))


def _learnt(made: Classifier) -> Labelled | None:
    """The training examples, where they can still be had."""
    try:
        learnt: Labelled = made.data("name a file of examples").learn
        return learnt
    except UserError as error:
        note(f"no nearest examples: {error}")
        return None


def _print_explanation(one: Explained) -> None:
    truth = f", but it is {one.truth}" if one.truth is not None and one.truth != one.answer else ""
    print(f"\n{one.answer}, {one.confidence:.1%} sure{truth}: {excerpt(one.text)}")
    ranked = sorted(zip(one.contributions, one.words, strict=True), key=lambda pair: -abs(pair[0]))
    if not one.words:
        print("there is no word in it: the answer is that to an empty text")
        return
    print_table(("word", f"for {one.answer}"), [(word, f"{value:+.3f}") for value, word in ranked])
    if one.verdict():
        print(one.verdict())
    if one.nearest:
        rows = [(excerpt(near.text, ROOM), near.label, f"{near.likeness:.2f}") for near in one.nearest]
        print_table(("nearest training examples", "class", "likeness"), rows, left=(0, 1))


ACTIONS: dict[str, Callable[..., Any]] = {"eval": eval_, "predict": predict, "explain": inspect}
