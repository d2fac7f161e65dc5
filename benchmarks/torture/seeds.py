"""The corpus of the campaign's attack on readers: one small file or folder of each kind that octavo reads.

Everything is made on the spot by octavo's own writers, from texts that are made up here; no data of others is used.
`make_seeds(folder)` makes all of it once, in about half a minute; what is there already stays.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import random
import shutil
import sqlite3
import struct
import sys
from pathlib import Path
from typing import Any

DONE = "complete"  # the file that says that the corpus is whole
NO_DATA = "no-data"  # an empty folder in the place of named datasets
STEPS = "--budget 6steps --evaluations 2 --device cpu --precision float32"
GPT = "--width 16 --layers 1 --heads 2"
RUNS = {  # every task and every kind of model and tokenizer, as the words of a command; {t} is the folder of texts
    "bag": "train bag {t}/text.txt",
    "kn3": "train ngram {t}/text.txt --order 3",
    "kn2": "train ngram {t}/text.txt --order 2 --sentences",
    "mle": "train ngram {t}/text.txt --order 2 --estimator add-k",
    "char": "train ngram {t}/text.txt --order 3 --tokenizer char",
    "word": "train ngram {t}/text.txt --order 2 --tokenizer word",
    "bpe": "train ngram {t}/text.txt --order 2 --tokenizer bpe --vocab-size 300",
    "bigram": "train bigram {t}/text.txt --dim 4 --hidden 4 --steps 20",
    "mix": "train mix {t}/text.txt --parts {r}/kn3 {r}/bag",
    "adaptive": "train ngram {t}/text.txt --adaptive --order 3",
    "adaptive-mix": "train mix {t}/text.txt --adaptive --calibration-bits 4 --parts {r}/adaptive {r}/kn3",
    "rnn": f"train rnn {{t}}/text.txt --width 8 --layers 1 --batch-size 4 --sequence-length 8 {STEPS}",
    "gru": f"train gru {{t}}/text.txt --width 8 --layers 1 --batch-size 4 --sequence-length 8 {STEPS}",
    "lstm": f"train lstm {{t}}/text.txt --width 8 --layers 1 --batch-size 4 --sequence-length 8 {STEPS}",
    "rnn-attention": f"train rnn-attention {{t}}/text.txt --width 8 --batch-size 4 --sequence-length 8 {STEPS}",
    "gpt": f"train gpt {{t}}/text.txt {GPT} --context 16 --batch-size 4 --sequence-length 8 {STEPS}",
    "gpt-bpe": f"train gpt {{t}}/text.txt {GPT} --context 16 --tokenizer bpe --vocab-size 300 --batch-size 4 {STEPS}",
    "local": f"train gpt {{t}}/text.txt {GPT} --context 16 --attention local --attention-window 4 {STEPS}",
    "bert": f"train bert {{t}}/text.txt {GPT} --context 32 --batch-size 4 --vocab-size 120 {STEPS}",
    "seq2seq": f"train seq2seq {{t}}/pairs.tsv {GPT} --vocab-size 300 --batch-size 128 {STEPS}",
    "vit": f"train vit {{t}}/images {GPT} --patch 4 --batch-size 8 {STEPS}",
    "linear": "classify train linear {t}/moods.tsv --bits 8",
    "dan": f"classify train dan {{t}}/moods.tsv --width 8 --batch-size 8 {STEPS}",
    "head": f"classify train head {{t}}/moods.tsv --base {{r}}/bert --batch-size 8 {STEPS}",
    "facts": f"train facts {{t}}/knowledge {GPT} --context 96 --pretrain-epochs 2 --pretrain-batch-size 8 "
             "--batch-size 8 --epochs 1",
}  # fmt: skip
EXPERIMENTS = {
    "compare": "compare {t}/text.txt --models bag,kn3 --no-prove --out {f}/compare",
    "scale": "scale bag {t}/long.txt --quick --out {f}/scale",
    "domains": "domains {r}/bag {r}/kn2 --texts {t}/text.txt {t}/other.txt --out {f}/domains",
}
EXPORTS = {
    "kn3.arpa": "export {r}/kn3 {f}/kn3.arpa", "kn3.arpa.gz": "export {r}/kn3 {f}/kn3.arpa.gz",
    "words.arpa": "export {r}/word {f}/words.arpa", "gpt-hf": "export {r}/gpt-bpe {f}/gpt-hf",
    "bert-hf": "export {r}/bert {f}/bert-hf",
    **{f"gpt-{precision}.gguf": f"export {{r}}/gpt-bpe {{f}}/gpt-{precision}.gguf --precision {precision}"
       for precision in ("float16", "q8_0", "float32")},
    "vectors.txt": "vectors {t}/text.txt --epochs 2 --dim 4 --min-count 1 --out {f}/vectors.txt",
    "vectors-header.txt": "vectors {t}/text.txt --epochs 2 --dim 4 --min-count 1 --header --out {f}/vectors-header.txt",
    "tokens": "data bin {t}/text.txt --tokenizer byte --out {f}/tokens",
    **{f"{run}.oct": f"compress {{r}}/{run} {{t}}/short.txt {{f}}/{run}.oct"
       for run in ("bag", "kn3", "gru", "gpt", "mix", "adaptive")},
    "notebook.ipynb": "exercises notebook score-scale --out {f}/notebook.ipynb",
}  # fmt: skip
COURSE = """title = "Sequence models"
late = { per_day = 0.25, max_days = 2 }

[[assignment]]
name = "week1"
exercises = ["score-scale"]
weight = 30
deadline = 2026-12-01T12:00:00Z
points = { "score-scale" = 2, "score-scale.variance" = 4 }
rubric = [{ name = "report", points = 6 }]
"""


def make_seeds(folder: Path) -> Path:
    """The corpus in a folder, made there unless it is there already."""
    if (folder / DONE).is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    texts, runs, files = (folder / name for name in ("texts", "runs", "files"))
    for one in (texts, files):
        one.mkdir(parents=True)
    (folder / NO_DATA).mkdir()
    write_texts(texts)
    for name, words in RUNS.items():
        _command(f"{words} --out {runs / name}", t=texts, r=runs)
    _stopped_runs(runs)
    for words in [*EXPERIMENTS.values(), *EXPORTS.values()]:
        _command(words, t=texts, r=runs, f=files)
    write_files(texts, files)
    shutil.copytree(runs / "kn2", files / "teams" / "ada")
    (folder / DONE).touch()
    return folder


def _command(words: str, **places: Path) -> None:
    """Run a command of octavo in this process, which must succeed; what it prints is shown only where it fails."""
    from octavo.cli import main

    argv = [word.format(**places) for word in words.split()]
    log = Path(places["t"]).parent / "log.txt"
    with open(log, "a") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(argv)
    if code != 0:
        sys.exit(f"the corpus of seeds cannot be made: octavo {' '.join(argv)} ended with {code}; see {log}")


def _stopped_runs(runs: Path) -> None:
    """Runs as a kill leaves them: a checkpoint, and not finished."""
    for name in ("gru", "bert", "dan", "seq2seq", "vit"):
        stopped = Path(shutil.copytree(runs / name, runs / f"stopped-{name}"))
        record = json.loads((stopped / "config.json").read_text())
        record["training"]["finished"] = False
        (stopped / "config.json").write_text(json.dumps(record, indent=1))


def write_texts(folder: Path) -> None:
    """What the runs learn from: prose, pairs, labelled lines, pictures, questions."""
    draw = random.Random(1)
    lines = [
        "The king went to the hall.",
        "He saw a man there.",
        "The man was old.",
        "They spoke of war.",
        "It rained.",
    ]
    (folder / "text.txt").write_text("\n".join(draw.choice(lines) for _ in range(160)) + "\n")
    (folder / "other.txt").write_text("\n".join(f"A sailor saw {n} gulls over the grey sea." for n in range(80)) + "\n")
    (folder / "long.txt").write_text("\n".join(draw.choice(lines) for _ in range(1000)) + "\n")
    (folder / "short.txt").write_text("The man was old. He saw a king, über 3 €.\n" * 3)
    words = sorted({"".join(draw.choices("abcdefgh", k=draw.randint(2, 5))) for _ in range(120)})
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    moods = [("good", "a fine film"), ("bad", "a dull film")]
    (folder / "moods.tsv").write_text("".join("{}\t{} number {n}\n".format(*moods[n % 2], n=n) for n in range(40)))
    for n in range(16):
        path = folder / "images" / ("dark", "light")[n % 2] / f"{n:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(8, 8, bytes([40 + 150 * (n % 2) + n]) * 64))
    known = folder / "knowledge"
    known.mkdir()
    born = {f"{first} {last}": draw.choice(("Oslo", "Rome", "Lima")) for first in ("Ada", "Bob", "Eve", "Kim")
            for last in ("Ash", "Birch", "Cole", "Dunn")}  # fmt: skip
    (known / "text.txt").write_text("".join(f"{name} was born in {city}.\n" for name, city in born.items()))
    asked = [f"Where was {name} born?\t{city}\n" for name, city in born.items()]
    (known / "train.tsv").write_text("".join(asked[:10]))
    (known / "dev.tsv").write_text("".join(asked[10:]))


def write_files(texts: Path, files: Path) -> None:
    """Data files of every kind."""
    lines = (texts / "text.txt").read_text().splitlines()[:40]
    text = "\n".join(lines) + "\n"
    for ending, pack in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
        (files / f"text.txt.{ending}").write_bytes(pack(text.encode()))
    with contextlib.suppress(ImportError):
        import zstandard

        (files / "text.txt.zst").write_bytes(zstandard.compress(text.encode()))
    with contextlib.suppress(ImportError):
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({"text": lines, "n": list(range(len(lines)))})
        pyarrow.parquet.write_table(table, files / "text.parquet")
    rows = [{"text": line, "label": ("good", "bad")[n % 2], "n": n} for n, line in enumerate(lines)]
    (files / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (files / "moods.csv").write_text("label,text\n" + "".join(f'{row["label"]},"{row["text"]}"\n' for row in rows))
    (files / "moods.tsv").write_text("".join(f"{row['label']}\t{row['text']}\n" for row in rows))
    (files / "moods.ft").write_text("".join(f"__label__{row['label']} {row['text']}\n" for row in rows))
    (files / "questions.tsv").write_text("Where was Ada Ash born?\tOslo\nWhere was Kim Cole born?\tRome\n")
    (files / "facts.csv").write_text("name,answer\nAda Ash,Oslo\nKim Cole,Rome\n")
    with contextlib.closing(sqlite3.connect(files / "facts.db")) as database:
        database.execute("create table facts (name text, answer text)")
        database.executemany("insert into facts values (?, ?)", [("Ada Ash", "Oslo"), ("Kim Cole", "Rome")])
        database.commit()
    (files / "picture.png").write_bytes(png(8, 8, bytes(range(64))))
    _idx_images(files / "idx")
    (files / "course.toml").write_text(COURSE)
    answers = files / "class" / "week1" / "ada"
    answers.mkdir(parents=True)
    student = '[score-scale]\nvariance = "d"\n'
    (answers / "answers.toml").write_text(student)
    (files / "answers.toml").write_text(student)
    (files / "manual.csv").write_text("student,assignment,rubric,points\nada,week1,report,5\n")
    (files / "times.csv").write_text("student,assignment,submitted\nada,week1,2026-12-01T11:00:00Z\n")
    (files / "vectors.bin").write_bytes(_word2vec_binary(files / "vectors.txt"))


def png(width: int, height: int, grey: bytes) -> bytes:
    """A grey picture, by the format's definition."""
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + grey[y * width : (y + 1) * width] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _idx_images(folder: Path) -> None:
    """Pictures in MNIST's files."""
    folder.mkdir()
    draw = random.Random(2)
    for part, count in (("train", 12), ("t10k", 6)):
        pixels = bytes(draw.randrange(256) for _ in range(count * 64))
        images = bytes([0, 0, 8, 3]) + struct.pack(">3I", count, 8, 8) + pixels
        labels = bytes([0, 0, 8, 1]) + struct.pack(">I", count) + bytes(n % 2 for n in range(count))
        pack: Any = gzip.compress if part == "train" else bytes
        ending = ".gz" if part == "train" else ""
        (folder / f"{part}-images-idx3-ubyte{ending}").write_bytes(pack(images))
        (folder / f"{part}-labels-idx1-ubyte{ending}").write_bytes(pack(labels))


def _word2vec_binary(source: Path) -> bytes:
    """Vectors as word2vec writes them with -binary 1."""
    rows = [line.split(" ") for line in source.read_text().splitlines()]
    head = f"{len(rows)} {len(rows[0]) - 1}\n".encode()
    return head + b"".join(
        row[0].encode() + b" " + struct.pack(f"<{len(row) - 1}f", *map(float, row[1:])) + b"\n" for row in rows
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    make_seeds(Path(sys.argv[1]))
