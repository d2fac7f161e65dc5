"""What octavo does with a model of an installed package, each part a function; run in a process of its own.

python scenario.py FOLDER      prints JSON: the name of each part, and its traceback where it failed
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from starlette.testclient import TestClient
from torch.utils.flop_counter import FlopCounterMode

import octavo
from laws import LAWS, LENGTHS
from octavo.cli import main
from octavo.core import seeded_generator
from octavo.costs import Shape, cost_of, cost_of_config
from octavo.models import MODELS, parameter_count
from octavo.studio import ModelCache, Studio, make_app

NAME = "gated-convolution"
SENTENCE = "The cat sat on the mat."
SMALL = "--width 16 --kernel 3 --batch-size 8 --sequence-length 32 --evaluations 1 --device cpu --checkpoint-seconds 0"


def run(*words: str, code: int = 0) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        assert main(list(words)) == code, out.getvalue()
    return out.getvalue()


def laws(folder: Path) -> None:
    spec = MODELS[NAME]
    model: Any = spec.model(spec.config(width=6, layers=2, kernel=3), 12).double()
    model.initialise(seeded_generator(1))
    for law, length in itertools.product(LAWS, LENGTHS):
        with torch.no_grad():
            law(model, length)


def train(folder: Path) -> None:
    assert NAME in run("train", "--help")
    assert "--kernel" in run("train", NAME, "--help")
    words = [NAME, str(folder / "text.txt"), *SMALL.split(), "--budget", "60steps", "--out", str(folder / "run")]
    assert "60 steps" in run("train", *words)
    assert "gated convolution of bytes, 2 layers" in (folder / "run" / "report.html").read_text()
    assert NAME in run("list", str(folder))


def resume(folder: Path) -> None:
    """Killed at any moment and resumed, it ends as if nothing had happened, to the bit."""
    out = folder / "killed"
    words = ["train", NAME, str(folder / "text.txt"), *SMALL.split(), "--budget", "60steps", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "octavo.cli", *words], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    until = time.monotonic() + 120
    while not (out / "state" / "training.safetensors").is_file():
        assert process.poll() is None, "training ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    run("resume", str(out))
    assert (out / "model.safetensors").read_bytes() == (folder / "run" / "model.safetensors").read_bytes()


def evaluate(folder: Path) -> None:
    loaded = octavo.load(folder / "run")
    score = octavo.evaluate(loaded, SENTENCE)
    bits = -loaded.model.score(torch.tensor([list(SENTENCE.encode())])).sum() / torch.log(torch.tensor(2.0))
    assert abs(score.bits_per_byte - float(bits) / len(SENTENCE)) < 1e-4
    assert "bits per byte" in run("eval", str(folder / "run"), str(folder / "text.txt"))


def compress_and_restore(folder: Path) -> None:
    archive, restored = folder / "text.oct", folder / "restored.txt"
    (folder / "short.txt").write_text(SENTENCE * 5)
    run("compress", str(folder / "run"), str(folder / "short.txt"), str(archive))
    run("decompress", str(folder / "run"), str(archive), str(restored))
    assert restored.read_bytes() == (folder / "short.txt").read_bytes()


def generate(folder: Path) -> None:
    loaded = octavo.load(folder / "run")
    written = octavo.generate(loaded, "The ", max_tokens=30, seed=1)
    assert written == octavo.generate(loaded, "The ", max_tokens=30, seed=1)
    assert octavo.generate(loaded, "The ", max_tokens=5, method="beam")


def compare(folder: Path) -> None:
    words = f"--models bag,{NAME} --budget 4steps --device cpu --out {folder / 'compared'}"
    out = run("compare", str(folder / "text.txt"), *words.split())
    assert "gated convolution" in out, out


def cost(folder: Path) -> None:
    assert "convolutions" in run("cost", NAME, "--no-measure", "--width", "32")
    assert "convolutions" in run("cost", str(folder / "run"), "--no-measure")
    model: Any = octavo.load(folder / "run").model
    exact = cost_of(model, Shape(2, 5))
    assert exact.parameters == parameter_count(model)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(2, 5, dtype=torch.long))
    assert exact.total("forward") == counter.get_total_flops()
    state = sum(past.numel() for past in model.start(1))
    assert cost_of_config(NAME, model.config, 257, Shape()).cache_bytes(9, 4) == 4 * state


def inspect(folder: Path) -> None:
    out = run("inspect", str(folder / "run"), "--text", SENTENCE, "--out", str(folder / "page.html"))
    assert "how much is new" in out, out
    assert "t steps back" in out
    assert "how much is new" in (folder / "page.html").read_text()
    data = json.loads(run("inspect", str(folder / "run"), "--text", SENTENCE, "--json"))
    assert {row["gate"] for row in data["runs"][0]["gates"]} == {"gate", "candidate"}
    assert data["runs"][0]["gradient_flow"]["norms"]
    assert run("doctor", str(folder / "run"), "--quick")


def export(folder: Path) -> None:
    """To ONNX, which octavo itself compares with the model in onnxruntime before it writes the file."""
    assert "written to" in run("export", str(folder / "run"))
    assert (folder / "run.onnx").stat().st_size > 1000
    assert "cannot be written as a GGUF file" in run("export", str(folder / "run"), "run.gguf", code=2)


def studio(folder: Path) -> None:
    app = make_app(Studio(ModelCache(folder)))
    with TestClient(app, base_url="http://127.0.0.1", headers={"X-Octavo": "1"}) as client:

        def ask(path: str, **asked: Any) -> Any:
            answer = client.post(f"/api/inspect/{path}", json={"run": "run", **asked})
            assert answer.status_code == 200, answer.text
            return answer.json()

        about = ask("about")
        assert about["family"] == "convolution"
        kinds = {view["view"]: view["kind"] for view in about["views"]}
        assert kinds == {"gates": "token-rows", "gradient-flow": "curve", "field": "token-table"}
        rows = ask("rows", text=SENTENCE)
        assert {(row["row"], row["layer"]) for row in rows["rows"]} == {
            (name, layer) for name in ("gate", "candidate") for layer in (1, 2)
        }
        assert ask("curve", text=SENTENCE)["whole"]["shares"][0] == 1
        table = ask("table", text=SENTENCE, view="field")
        assert [detail["rows"][0][1] for detail in table["details"][:6]] == ["1", "2", "3", "4", "5", "5"]


PARTS = (laws, train, resume, evaluate, compress_and_restore, generate, compare, cost, inspect, export, studio)

if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "text.txt").write_text("The cat sat on the mat. A dog lay by the door! Did the bird sing?\n" * 60)
    torch.set_num_threads(1)
    results = {}
    for part in PARTS:
        try:
            part(place)
            results[part.__name__] = ""
        except BaseException:
            results[part.__name__] = traceback.format_exc()
    print(json.dumps(results))
