"""octavo tag: train, eval, predict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

from tyro.conf import Positional, arg

from octavo.cli.classify import print_classes
from octavo.cli.flags import Device, InFile, run_action, run_command
from octavo.cli.output import Output, print_json, print_table
from octavo.cli.train import train_command
from octavo.datasets.tagged import TaggedConfig, read_sentences
from octavo.errors import UserError, did_you_mean
from octavo.tasks.device import place
from octavo.tasks.tag import tag as tag_sentences
from octavo.tasks.tagger import Tagger
from octavo.tasks.tagging import TASK

TaggerPath = Annotated[Positional[str], arg(metavar="RUN", help="A tagger's folder.")]
Data = Annotated[Positional[tuple[str, ...]], arg(metavar="DATA...")]
MODELS = {"tagger": "an encoder of the words (--encoder gru, lstm, transformer, ...) and a linear-chain CRF (--no-crf)"}

USAGE = """usage: octavo tag train MODEL DATA...   learn from tagged sentences
       octavo tag eval RUN [DATA...]     accuracy, F1 of each tag and of spans, the confusion matrix
       octavo tag predict RUN FILE       the tag of every word

DATA is porttinari, hironsan, or a file: a word, a tab and its tag on a line, a blank line ends a sentence; or CoNLL-U.

"""
EXAMPLES = """
example: octavo tag train tagger porttinari --out runs/tagger
example: octavo tag train tagger hironsan --encoder lstm --no-crf --out runs/names
"""


def run_tag(argv: list[str]) -> None:
    """The action comes first, and in training the model: its config decides the other flags."""
    usage = USAGE + "".join(f"  {name:<8}{about}\n" for name, about in MODELS.items()) + EXAMPLES
    if argv[:1] != ["train"]:
        run_action("tag", usage, ACTIONS, argv)
        return
    if len(argv) == 1 or argv[1] in ("-h", "--help"):
        print(usage, end="")
        return
    if argv[1] not in MODELS:
        advice = did_you_mean(argv[1], MODELS, f"taggers are {', '.join(MODELS)}; an encoder is named with --encoder")
        raise UserError(f"there is no tagger {argv[1]!r}; {advice}")
    run_command(train_command(TASK, argv[1]), f"octavo tag train {argv[1]}", argv[2:])


def print_result(result: dict[str, Any]) -> None:
    """The scores of a tagger, then each kind of span and each tag."""
    print(f"accuracy {result['accuracy']:.2%} of {result['examples']:,} words, {result['sentences_right']:.1%} of "
          f"{result['sentences']:,} sentences without a mistake; none were learnt from")  # fmt: skip
    unknown, baseline = result["unknown"], result["baseline_accuracy"]
    rare = f"{result['unknown_accuracy']:.2%} of {unknown:,} words that training lacks" if unknown else ""
    common = "" if baseline is None else f"the commonest tag of each word: {baseline:.2%}"
    if rare or common:
        print("  " + "; ".join(filter(None, [rare, common])))
    print(f"  macro F1 {result['macro_f1']:.4f}, log loss {result['log_loss']:.4f}, Brier {result['brier']:.4f}, "
          f"calibration error {result['ece']:.4f}")  # fmt: skip
    if spans := result.get("spans"):
        rows = [
            (one.get("kind", "all spans"), f"{one['spans']:,}", f"{one['precision']:.3f}", f"{one['recall']:.3f}",
             f"{one['f1']:.3f}")
            for one in (*spans["per_kind"], spans)
        ]  # fmt: skip
        print_table(("kind of span", "spans", "precision", "recall", "F1"), rows)
    print_classes(result)


def eval_(
    run: TaggerPath,
    data: Data = (),
    reading: TaggedConfig = TaggedConfig(),  # noqa: B008
    device: Device = "auto",
) -> Output:
    """How good a tagger is on tagged sentences; without any, on those held out of its training.

    Example: octavo tag eval runs/tagger

    Args:
        data: Tagged sentences.
        reading: Where words and tags are.
    """
    result = TASK.evaluate(place(Tagger.load(run), device), data, reading=reading).to_json()
    return Output(result, lambda: print_result(result))


def predict(
    run: TaggerPath, file: InFile = "-", reading: TaggedConfig = TaggedConfig(), device: Device = "auto",  # noqa: B008
    json: bool = False,
) -> None:  # fmt: skip
    """The tag of every word: a line each, and a blank line behind a sentence.

    Example: echo "O gato dorme ." | octavo tag predict runs/tagger

    Args:
        file: One sentence a line, its words separated by spaces, or a word a line; - is standard input.
        reading: Where the words are.
        json: Print a JSON object a line, with the probability of each tag.
    """
    for one in tag_sentences(run, read_sentences(file, reading), device=device):
        if json:
            print_json(one.to_json())
        else:
            pairs = zip(one.words, one.tags, strict=True)
            sys.stdout.write("".join(f"{word}\t{tag}\n" for word, tag in pairs) + "\n")


ACTIONS: dict[str, Callable[..., Any]] = {"eval": eval_, "predict": predict}
