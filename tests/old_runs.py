"""Small runs made by version 0.1, to prove that today's octavo still reads them. Nothing binary is committed: the last
revision of the first edition is unpacked from git and run, each training for a few steps.

`stopped` runs were killed after a checkpoint: they are what `octavo resume` must finish.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

REVISION = "ce886ad"  # the last commit of version 0.1
ROOT = Path(__file__).parents[1]
STEPS = "--budget 6steps --checks 2 --device cpu"
LONG = "--budget 100000steps --checks 100000 --device cpu"
GPT = "--width 16 --layers 1 --heads 2"
RUNS = {
    "ngram": "train ngram {t}/text.txt --order 3",
    "bag": "train bag {t}/text.txt",
    "mix": "train mix {t}/text.txt --parts {r}/ngram {r}/bag",
    "gru": f"train gru {{t}}/text.txt --width 16 --layers 1 --batch 4 --window 8 {STEPS}",
    "gpt": f"train gpt {{t}}/text.txt {GPT} --context 16 --batch 4 --window 8 --mix local --reach 8 {STEPS}",
    "bert": f"train bert {{t}}/text.txt {GPT} --context 32 --batch 4 --size 120 {STEPS}",
    "seq2seq": f"train seq2seq {{t}}/pairs.tsv {GPT} --size 300 --tokens 256 {STEPS}",
    "vit": f"train vit {{t}}/images {GPT} --patch 4 --batch 8 {STEPS}",
    "dan": "classify train dan {t}/moods.tsv --width 8 --epochs 2 --batch 8",
    "linear": "classify train linear {t}/moods.tsv",
    "facts": f"train facts people-16 {GPT} --context 96 --pretrain-passes 2 --pretrain-batch 8 --passes 2 --batch 8",
}  # fmt: skip
STOPPED = {
    "stopped-gru": f"train gru {{t}}/text.txt --width 16 --layers 1 --batch 4 --window 8 {LONG}",
    "stopped-bert": f"train bert {{t}}/text.txt {GPT} --context 32 --batch 4 --size 120 {LONG}",
    "stopped-seq2seq": f"train seq2seq {{t}}/pairs.tsv {GPT} --size 300 --tokens 256 {LONG}",
    "stopped-vit": f"train vit {{t}}/images {GPT} --patch 4 --batch 8 {LONG}",
    "stopped-dan": "classify train dan {t}/moods.tsv --width 8 --epochs 100000 --batch 8",
    "stopped-facts": f"train facts people-16 {GPT} --context 96 --pretrain-passes 100000 --pretrain-batch 8 --passes 2",
}  # fmt: skip


def why_not() -> str:
    """Why old runs cannot be made here; empty where they can."""
    try:
        done = subprocess.run(["git", "cat-file", "-e", f"{REVISION}^{{commit}}"], cwd=ROOT, capture_output=True)
    except OSError:
        return "git is not here"
    return "" if done.returncode == 0 else f"this copy has no git history with {REVISION}, the last of version 0.1"


def make_old_runs(folder: Path) -> Path:
    """Unpack version 0.1 and let it make the runs; returns the folder that they are in."""
    archive = subprocess.run(["git", "archive", REVISION, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder / "octavo-0.1", filter="data")
    write_texts(folder)
    environment = os.environ | {"PYTHONPATH": str(folder / "octavo-0.1" / "src"), "OMP_NUM_THREADS": "1"}
    commands = {name: _flags(words, folder, name) for name, words in (RUNS | STOPPED).items()}
    script = [sys.executable, __file__, str(folder / "runs"), json.dumps(commands)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "runs"


def _flags(words: str, folder: Path, name: str) -> list[str]:
    return [*words.format(t=folder, r=folder / "runs").split(), "--out", str(folder / "runs" / name)]


def run_commands(folder: Path, commands: dict[str, list[str]]) -> None:
    """Within version 0.1: every command in this one process, because its import takes longer than a training."""
    from octavo.cli import main

    for name, words in commands.items():
        if name in STOPPED:
            threading.Thread(target=_stop_after_a_checkpoint, args=(folder / name,), daemon=True).start()
        assert main(words) == (128 + signal.SIGTERM if name in STOPPED else 0), words


def _stop_after_a_checkpoint(run: Path) -> None:
    """Ask this process to stop once it trains: it saves where it is."""
    while not (run / "state" / "training.safetensors").is_file():
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)


def write_texts(folder: Path) -> None:
    """What the runs learn from."""
    from PIL import Image

    rng = random.Random(1)
    lines = [
        "The king went to the hall.",
        "He saw a man there.",
        "The man was old.",
        "They spoke of war.",
        "It rained.",
    ]
    (folder / "text.txt").write_text(" ".join(rng.choice(lines) for _ in range(800)))
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 5))) for _ in range(400)]
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in sorted(set(words))))
    moods = [("good", "a fine film"), ("bad", "a dull film")]
    (folder / "moods.tsv").write_text("".join("{}\t{} number {n}\n".format(*moods[n % 2], n=n) for n in range(60)))
    rows = [f"a\tDET\n{mood}\t{tag}\nfilm\tNOUN\n" for mood, tag in (("fine", "ADJ"), ("king", "NOUN"))]
    (folder / "tags.tsv").write_text("\n".join(rows[n % 2] for n in range(60)))
    for n in range(40):
        path = folder / "images" / ("dark", "light")[n % 2] / f"{n:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 40 + 150 * (n % 2) + n).save(path)


if __name__ == "__main__":
    run_commands(Path(sys.argv[1]), json.loads(sys.argv[2]))
