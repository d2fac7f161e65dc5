"""The commands that are attacked: every verb that writes, with texts and models so small that each takes moments."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torture.processes import run

LINES = ("The king went to the hall.", "He saw a man there.", "The man was old.", "They spoke of war.", "It rained.")
STEPS = "--budget 6steps --evaluations 2 --checkpoint-seconds 0 --device cpu"
TINY = "--width 8 --layers 1 --heads 2"
TRAININGS = {  # of every task: words that end before --out
    "gru": f"train gru text.txt --width 8 --layers 1 --batch-size 4 --sequence-length 8 {STEPS}",
    "gpt": f"train gpt text.txt {TINY} --context 16 --batch-size 4 --sequence-length 8 {STEPS}",
    "bert": f"train bert text.txt {TINY} --context 16 --batch-size 4 --vocab-size 120 {STEPS}",
    "seq2seq": f"train seq2seq pairs.tsv {TINY} --vocab-size 300 --batch-size 128 {STEPS}",
    "dan": f"classify train dan moods.tsv --width 8 --batch-size 8 {STEPS}",
    "vit": f"train vit images {TINY} --patch 4 --batch-size 8 {STEPS}",
    "facts": f"train facts people-16 {TINY} --context 96 --pretrain-epochs 1 --pretrain-batch-size 16 {STEPS}",
    "ngram": "train ngram text.txt --order 3 --tokenizer byte",
    "bag": "train bag text.txt --tokenizer byte",
    "bigram": "train bigram text.txt --tokenizer byte --dim 4 --hidden 4 --steps 20 --device cpu",
    "linear": "classify train linear moods.tsv",
}
STEPPED = ("gru", "gpt", "bert", "seq2seq", "dan", "vit", "facts")  # are trained step by step, and resumed
BASE = {f"runs/{name}": f"{words} --out runs/{name}" for name, words in TRAININGS.items()} | {
    "model.arpa": "export runs/ngram model.arpa",
    "text.oct": "compress runs/ngram text.txt text.oct",
    "words.txt": "vectors text.txt --out words.txt --dim 4 --epochs 1 --min-count 1",
}
MADE_FROM = {"model.arpa": ("runs/ngram",), "text.oct": ("runs/ngram",)}


@dataclass(frozen=True)
class Scenario:
    """A command, what it needs, and what it writes."""

    name: str
    words: str
    target: str
    needs: tuple[str, ...] = ()  # of BASE
    over: str = ""  # a command that makes what stands at the target before
    stopped: bool = False  # that command was stopped half-way

    @property
    def group(self) -> str:
        return self.name.split("/")[0]


def _scenarios() -> Iterator[Scenario]:
    for name, words in TRAININGS.items():
        command = f"{words} --out run"
        yield Scenario(f"train/{name}", command, "run")
        yield Scenario(f"replace/{name}", f"{command} --force", "run", over=f"{words} --seed 5 --out run")
        if name in STEPPED:
            yield Scenario(f"resume/{name}", "resume run", "run", over=command, stopped=True)
    gru = TRAININGS["gru"]
    longer = gru.replace("6steps", "3steps")
    yield Scenario("resume/longer", "resume run --budget 6steps", "run", over=f"{longer} --out run")
    yield Scenario("replace/stopped", f"{gru} --out run --force", "run", over=f"{gru} --seed 5 --out run", stopped=True)
    yield Scenario(
        "train/mix", "train mix text.txt --parts runs/ngram runs/bag --out run", "run", ("runs/ngram", "runs/bag")
    )
    yield Scenario("replace/mix", "train mix text.txt --parts runs/ngram runs/bag --out run --force", "run",
                   ("runs/ngram", "runs/bag"), over="train bag text.txt --out run")  # fmt: skip
    yield Scenario(
        "train/head", f"classify train head moods.tsv --base runs/bert {STEPS} --out run", "run", ("runs/bert",)
    )
    yield from _files()
    yield from _experiments()


def _files() -> Iterator[Scenario]:
    for name, words, target, needs in (
        ("import-arpa", "import model.arpa --out run", "run", ("model.arpa",)),
        ("export-arpa", "export runs/ngram out.arpa", "out.arpa", ("runs/ngram",)),
        ("export-gguf", "export runs/gpt out.gguf", "out.gguf", ("runs/gpt",)),
        ("export-huggingface", "export runs/gpt out --format hf", "out", ("runs/gpt",)),
        ("compress", "compress runs/ngram text.txt out.oct", "out.oct", ("runs/ngram",)),
        ("decompress", "decompress runs/ngram text.oct out.txt", "out.txt", ("runs/ngram", "text.oct")),
        ("vectors", "vectors text.txt --out out.txt --dim 4 --epochs 1 --min-count 1", "out.txt", ()),
        ("data-bin", "data bin text.txt --tokenizer byte --out out", "out", ()),
        ("inspect", "inspect runs/gru --text old --out out.html", "out.html", ("runs/gru",)),
        ("explain", "classify explain runs/dan --text fine --out out.html", "out.html", ("runs/dan",)),
        ("translate-page", "translate runs/seq2seq --text ab --page out.html", "out.html", ("runs/seq2seq",)),
        ("embed", "embed runs/bert lines.txt --out out.npy", "out.npy", ("runs/bert",)),
        ("exercises-template", "exercises template softmax-range --out out.toml", "out.toml", ()),
        ("exercises-figure", "exercises figure score-scale --out out.html", "out.html", ()),
        ("exercises-book", "exercises book softmax-range --quick --out out.html", "out.html", ()),
        ("exercises-sheet", "exercises sheet softmax-range --out out.html", "out.html", ()),
        ("exercises-notebook", "exercises notebook softmax-range --out out", "out", ()),
        ("exercises-moodle", "exercises moodle softmax-range --out out.xml", "out.xml", ()),
        ("exercises-canvas", "exercises canvas softmax-range --out out.zip", "out.zip", ()),
        ("exercises-gradescope", "exercises gradescope --only softmax-range --out out.zip", "out.zip", ()),
    ):  # fmt: skip
        yield Scenario(f"files/{name}", words, target, needs)
        yield Scenario(f"files/{name}-over", f"{words} --force", target, needs, over=_another(words))


def _another(words: str) -> str:
    """A command that writes something else to the same place."""
    for one, other in (("text.txt", "pairs.tsv"), ("softmax-range", "score-scale"), ("--text old", "--text man"),
                       ("--text fine", "--text dull"), ("--text ab", "--text cd"), ("lines.txt", "others.txt"),
                       ("figure score-scale", "figure softmax-range")):  # fmt: skip
        if one in words:
            return words.replace(one, other)
    return words


def _experiments() -> Iterator[Scenario]:
    small = "--device cpu"
    compare = f"compare text.txt --models bag,kn3,bigram --budget 3steps --bytes 400 {small} --out out"
    yield Scenario("experiments/compare", compare, "out")
    yield Scenario("experiments/compare-network", compare.replace("kn3,bigram", "gru"), "out")
    yield Scenario("jobs/compare", f"{compare} --jobs 2", "out")
    yield Scenario("experiments/compare-more", compare, "out", over=compare.replace("bag,kn3,bigram", "bag"))
    lengths = f"--against none --lengths 0.25 0.5 1 --held-out 400 {small} --out out"
    yield Scenario("experiments/scale-counts", f"scale bag long.txt {lengths}", "out")
    tiny = "--width 8 --layers 1 --batch-size 4 --sequence-length 8 --budget 2steps --sizes 1 --budgets 1"
    yield Scenario("experiments/scale", f"scale gru long.txt {tiny} {lengths}", "out")
    yield Scenario(
        "experiments/domains", "domains runs/ngram runs/bag --texts text.txt other.txt --bytes 300 --out out", "out",
        ("runs/ngram", "runs/bag"),
    )  # fmt: skip


SCENARIOS = {scenario.name: scenario for scenario in _scenarios()}


def write_texts(folder: Path) -> None:
    """What the commands read: a text, pairs, labelled texts, images, lines."""
    rng = random.Random(1)
    (folder / "text.txt").write_text(" ".join(rng.choice(LINES) for _ in range(120)))
    (folder / "long.txt").write_text(" ".join(rng.choice(LINES) for _ in range(600)))
    (folder / "other.txt").write_text(" ".join(rng.choice(LINES[2:]) + " A ship came." for _ in range(120)))
    words = sorted({"".join(rng.choices("abcdefgh", k=rng.randint(2, 5))) for _ in range(400)})
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    moods = (("good", "a fine film"), ("bad", "a dull film"))
    (folder / "moods.tsv").write_text("".join("{}\t{} number {n}\n".format(*moods[n % 2], n=n) for n in range(40)))
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n")
    (folder / "others.txt").write_text("\n".join(LINES[::-1]) + "\n")
    images = folder / "images"
    images.mkdir()
    for name in ("train", "t10k"):
        pixels = bytes(rng.randrange(256) for _ in range(20 * 64))
        (images / f"{name}-images-idx3-ubyte").write_bytes(
            bytes([0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 8, 0, 0, 0, 8]) + pixels
        )
        (images / f"{name}-labels-idx1-ubyte").write_bytes(
            bytes([0, 0, 8, 1, 0, 0, 0, 20]) + bytes(n % 2 for n in range(20))
        )


def shared_folder(place: Path) -> Path:
    """Where scenarios are prepared, for all attacks of a campaign."""
    folder = place.parent / "prepared"
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def made_once(place: Path, name: str) -> Iterator[Path | None]:
    """A folder that the first process to come makes; the others wait, and get None."""
    safe = name.replace("/", "-")
    with open(place / f"{safe}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / f"{safe}.done"
        if done.exists():
            yield None
            return
        folder = place / safe
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        done.touch()


def make_base(place: Path, name: str) -> Path:
    """A run or a file that scenarios start from: its path."""
    for part in MADE_FROM.get(name, ()):
        make_base(place, part)
    made = place / f"base-{name.replace('/', '-')}" / name
    with made_once(place, f"base-{name}") as folder:
        if folder is not None:
            write_texts(folder)
            for part in MADE_FROM.get(name, ()):
                copy(make_base(place, part), folder / part)
            must_succeed(BASE[name], folder, place / f"base-{name.replace('/', '-')}-notes")
    return made


def must_succeed(words: str, folder: Path, notes: Path) -> None:
    ended = run(words.split(), folder, notes)
    if ended.code != 0:
        raise RuntimeError(f"octavo {words} ended with {ended.code}: {ended.text[-400:]}")


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def work_folder(folder: Path) -> Path:
    """The real name of a folder, by which its changes are counted."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(os.path.realpath(folder))
