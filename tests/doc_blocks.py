"""The commands and code blocks of the documentation, made small enough to run: shorter texts, budgets and networks.

What a page calls shakespeare is here a file of a few thousand bytes, three minutes are two steps, and so on; verbs,
flags, files and the order of the commands are the page's own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

STAND_INS = {  # by what a page names: a small one of the same kind
    "shakespeare": "book.txt", "wikitext-2": "other.txt", "sentence-polarity": "polarity.tsv",
    "multi30k-en-de-fr": "captions.tsv", "multi30k-en-de": "pairs.tsv", "digits": "bars", "mnist5k": "bars",
    "porttinari": "tags.tsv", "hironsan": "tags.tsv",
    "birthplaces": "people-40", "people-160": "people-40", "people-200": "people-40",
}  # fmt: skip
NETWORKS = ("nnlm", "rnn", "gru", "lstm", "rnn-attention", "mingru", "minlstm", "lru", "rglru", "conv", "gpt",
            "local", "linear", "synthesizer", "retention", "gla", "mamba2", "deltanet", "gated-deltanet", "mlstm",
            "bert", "seq2seq", "vit", "davit", "tagger")  # fmt: skip
BUDGET, LONGER = "2steps", "4steps"  # a resumed run needs more than it had
FACTS = "--width 32 --layers 1 --heads 2 --context 64 --pretrain-epochs 1 --epochs 1".split()

# What is not run, by how the command begins, and why. Whatever is not here is run.
NOT_RUN = {
    r"(pip|pipx|uvx|make|cd|git|source) ": "sets a machine up; tests/test_release.py installs and runs the wheel",
    r"otter ": "tests/exercises/test_notebooks.py runs otter and nbgrader",
    r"curl ": "needs a studio that runs: tests/studio ask its API",
    r"torchrun ": "tests/training/test_distributed.py starts two processes so",
    r"octavo studio": "tests/test_readme.py starts the studio, and tests/studio open its pages",
    r"octavo .*(FOLDER|MODEL\.)": "a capital name stands for a file of the reader's",
    r"octavo .*(smollm2|minilm)": "hundreds of megabytes are fetched; tests/exchange and tests/tasks read them",
    r"octavo data (?!duplicates)": "fetches a named corpus; tests/test_readme.py does",
    r"octavo exercises (check bishop|book)": "takes minutes; tests/exercises check every exercise and write the book",
    r"octavo domains$": "trains twelve models on two corpora; tests/experiments/test_domains.py runs it small",
}
PAGES_TESTED_ELSEWHERE = {
    "docs/extending.md": "tests/plugin and tests/text/test_tokenizer_plugins.py install what it shows",
}
BLOCKS_TESTED_ELSEWHERE = {  # by a line that only this block has
    "class LongestToken": "tests/studio/test_studio_pages.py installs the page",
    'pipeline("text-generation"': "tests/exchange run the exported folder in transformers",
    '"minilm"': "MiniLM must be fetched; tests/tasks read it where it is",
}


class Block(NamedTuple):
    """A command of a console block, or a whole block of Python."""

    kind: str  # command, python
    text: str


def blocks_of(page: str) -> Iterator[Block]:
    """What a page has to run, in its order; other blocks (JSON, TOML, text) are not code."""
    for language, block in re.findall(r"^```([a-z]*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        if language in ("console", "sh"):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                if line.startswith("$ "):
                    yield Block("command", re.sub(r"\s+# .*$", "", line.removeprefix("$ ")))
        elif language == "python":
            yield Block("python", block)


def languages_of(page: str) -> set[str]:
    return set(re.findall(r"^```([a-z]*)\n.*?^```$", page, re.DOTALL | re.MULTILINE))


def reason_not_to_run(block: Block) -> str | None:
    if block.kind == "command":
        return next((why for start, why in NOT_RUN.items() if re.match(start, block.text)), None)
    return next((why for line, why in BLOCKS_TESTED_ELSEWHERE.items() if line in block.text), None)


def smaller_command(text: str) -> str:
    """The command with small data, budgets and networks."""
    words = [STAND_INS.get(word, word) for word in shlex.split(text)]
    verb = words[1] if words[0] == "octavo" else ""
    if verb == "resume":
        words += _missing(words, "--budget", LONGER)
    if "--budget" in words:
        words[words.index("--budget") + 1] = LONGER if verb == "resume" else BUDGET
    if "--seeds" in words:
        words[words.index("--seeds") + 1] = "2"
    if "--max-tokens" in words:
        words[words.index("--max-tokens") + 1] = "20"
    if "--quick" in words and verb == "compare":
        words += _missing(words, "--models", "bag,kn3,bz2")
    if "--quick" in words:
        words[words.index("--quick") :] = ["--budget", BUDGET, *words[words.index("--quick") + 1 :]]
    if verb == "scale":
        words += _missing(words, "--lengths", "0.25", "0.5", "1")
    if verb == "scale" and words[2] != "ngram":
        words += [*_missing(words, "--budget", BUDGET), "--sizes", "1", "--budgets", "0.5", "1", "--width", "32"]
    trained = words[words.index("train") + 1] if "train" in words else ""
    if trained in NETWORKS and verb in ("train", "tag"):
        words += [
            *_missing(words, "--budget", BUDGET),
            *_missing(words, "--width", "32"),
            *([] if trained == "nnlm" else _missing(words, "--layers", "1")),
        ]
    if trained == "facts":
        words = [word for word in words if not word.startswith("--pretrain-batch")]
        words = words[: next((n for n, word in enumerate(words) if word in FACTS), len(words))] + FACTS
    return shlex.join(words)


def smaller_python(text: str) -> str:
    """The same for a block of Python."""
    for name, small in STAND_INS.items():
        text = text.replace(f'"{name}"', f'"{small}"')
    text = text.replace('["de", "fr"]', '["target", "target 2"]')  # as a file of pairs names them
    text = re.sub(r'(resume\(.*budget=)"[^"]*"', rf'\1"{LONGER}"', text)
    text = re.sub(r'budget="(?!4steps)[^"]*"', f'budget="{BUDGET}"', text)
    text = re.sub(r'octavo\.train\("(davit|vit)", "(\w+)"', rf'octavo.train("\1", "\2", budget="{BUDGET}"', text)
    plan = "plan=octavo.experiments.scale.run.ScalePlan((0.25, 0.5, 1.0), (1.0,), (0.5, 1.0)), width=32"
    text = text.replace('octavo.scale("gpt", "book.txt"', f'octavo.scale("gpt", "book.txt", {plan}')
    facts = "width=32, layers=1, heads=2, context=64, pretrain_epochs=1, epochs=1"
    return text.replace('octavo.train("facts", "people-40"', f'octavo.train("facts", "people-40", {facts}')


def _missing(words: list[str], flag: str, *values: str) -> list[str]:
    return [] if flag in words else [flag, *values]


def runs_made(page: str) -> set[str]:
    """The runs that a page makes itself."""
    return set(re.findall(r"--out (runs/[\w-]+)", page)) | set(re.findall(r'out="(runs/[\w-]+)"', page))


def runs_used(page: str) -> set[str]:
    return set(re.findall(r"runs/[\w-]+", "\n".join(block.text for block in blocks_of(page))))


def pages(root: Path) -> list[Path]:
    """Every page of the documentation but the README, whose commands run as they stand."""
    return [root / "CONTRIBUTING.md", root / "SECURITY.md", *sorted((root / "docs").rglob("*.md"))]
