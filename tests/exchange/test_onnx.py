"""Networks out as ONNX: what onnxruntime computes from the file alone is the model's step, state included."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import octavo
from octavo.cli import main
from octavo.core import LanguageModel, seeded_generator, tensors_of
from octavo.errors import UserError
from octavo.exchange.onnx_export import find_growth, write_onnx
from octavo.models import find_spec, preset
from octavo.tasks.run import Run
from octavo.text import Byte

DOCS = Path(__file__).parents[2] / "docs" / "exchange.md"
CLOSE = 1e-5  # of logits and states with a deviation of about one, in single precision
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("lstm", {"width": 8, "layers": 1}),
    ("rnn-attention", {"width": 8, "memory": 0, "score": "additive", "cell": "gru"}),  # grows for ever
    ("gpt", {"width": 16, "layers": 1, "context": 12}),  # grows, then drops the oldest
    ("gpt", {"width": 16, "layers": 1, "context": 12, "positions": "learned"}),  # full, reads the last ones again
    ("gpt", {"width": 16, "layers": 1, "context": 12, "attention": "latent", "experts": 3}),
    ("linear", {"width": 16, "layers": 1}),
    *((name, {"width": 8, "layers": 1}) for name in ("mingru", "minlstm", "lru", "rglru")),
    ("hmm", {"states": 8}),
    *((name, {"width": 16, "layers": 1, "heads": 2}) for name in ("retention", "mamba2", "mlstm")),
]


def random_model(name: str, **settings: Any) -> LanguageModel[Any]:
    kind, config = preset(name)
    model: Any = find_spec(kind).model(dataclasses.replace(config, **settings), 257)
    generator = seeded_generator(1)
    model.initialise(generator)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


class Running:
    """A file in onnxruntime, used by what it says about itself."""

    def __init__(self, path: Path) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.about = self.session.get_modelmeta().custom_metadata_map

    def start(self, batch: int) -> list[Any]:
        return [np.full([batch, *one["shape"]], one["value"], one["dtype"]) for one in json.loads(self.about["start"])]

    def step(self, token_B: Any, state: list[Any]) -> tuple[Any, list[Any]]:
        inputs = {"token": token_B} | {f"state_{i}": one for i, one in enumerate(state)}
        logits_BV, *state = self.session.run(None, inputs)
        return logits_BV, state


@torch.no_grad()
@pytest.mark.parametrize(("name", "settings"), KINDS)
def test_onnxruntime_steps_as_the_model_does(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    model = random_model(name, **settings)
    assert write_onnx(model, Byte(), tmp_path / "model.onnx") == []
    running = Running(tmp_path / "model.onnx")
    assert {one.name for one in running.session.get_outputs()} >= {"logits", "next_state_0"}
    for batch in (1, 2):
        state, given = model.start(batch), running.start(batch)
        x_BT = torch.randint(0, 257, (batch, 30), generator=seeded_generator(batch))
        for x_B in x_BT.unbind(1):
            logits_BV, state = model.step(state, x_B)
            found_BV, given = running.step(x_B.numpy(), given)
            torch.testing.assert_close(torch.from_numpy(found_BV), logits_BV, rtol=0, atol=CLOSE)
            expected = [tensor for tensor in tensors_of(state) if tensor.numel()]
            assert len(given) == len(expected)
            for one, other in zip(given, expected, strict=True):
                torch.testing.assert_close(torch.from_numpy(one), other, rtol=0, atol=CLOSE)
        assert logits_BV.std() > 0.2
    data = (tmp_path / "model.onnx").read_bytes()
    assert str(Path(octavo.__file__).parent).encode() not in data  # nor where it was made
    assert len(data) < 4 * sum(p.nbytes for p in model.parameters())


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "settings", "limit"),
    [
        ("gru", {"width": 8}, None),
        ("gpt", {"width": 16, "layers": 1, "context": 48}, 48),
        ("gpt", {"width": 16, "layers": 1, "context": 48, "stride": 5}, 48),
        ("local", {"width": 16, "layers": 1, "attention_window": 9}, 9),
        ("rnn-attention", {"width": 8, "memory": 17}, 17),
        ("rnn-attention", {"width": 8, "memory": 0}, 0),
        ("synthesizer", {"width": 16, "layers": 1, "context": 20}, 20),
        ("local", {"width": 16, "layers": 1, "attention_window": 3}, 0),  # every size is traced by itself
    ],
)
def test_the_size_at_which_a_state_is_full_is_found(name: str, settings: dict[str, Any], limit: int | None) -> None:
    states, growth = find_growth(random_model(name, **settings))
    assert (growth.limit if growth else None) == limit
    assert len(states) == (1 if limit is None else 4 if settings.get("attention_window") == 3 else 7)


def test_a_step_that_is_no_tensor_operation_is_refused(tmp_path: Path) -> None:
    model = random_model("gru", width=8, layers=1)
    step = model.step
    model.step = lambda state, x_B: step(state, x_B + int(x_B[0]) % 2)  # type: ignore[method-assign]
    with pytest.raises(
        UserError, match=r"ONNX cannot hold the step of model gru: .* must be tensor operations"
    ) as said:
        write_onnx(model, Byte(), tmp_path / "model.onnx")
    assert "\n" not in str(said.value)
    assert not (tmp_path / "model.onnx").exists()


def test_the_program_in_the_docs_writes_our_greedy_text_without_octavo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("A rose is a rose is a rose.\n" * 300)
    run = octavo.train(
        "gru", tmp_path / "text.txt", tokenizer="bpe", vocab_size=280, width=16, layers=1, budget="20steps",
        batch_size=8, measure=False, out=tmp_path / "gru",
    )  # fmt: skip
    assert main(["export", str(tmp_path / "gru"), str(tmp_path / "gru.onnx"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["format"], result["bytes"]) == ("onnx", (tmp_path / "gru.onnx").stat().st_size)
    model = onnx.load(tmp_path / "gru.onnx")
    shapes = {
        one.name: [size.dim_param or size.dim_value for size in one.type.tensor_type.shape.dim]
        for one in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {
        "token": ["batch"], "state_0": ["batch", 16], "logits": ["batch", run.model.vocab],
        "next_state_0": ["batch", 16],
    }  # fmt: skip
    about = {one.key: one.value for one in model.metadata_props}
    assert (about["begin"], about["vocab"], about["model"]) == (str(run.model.begin), str(run.model.vocab), "gru")
    assert json.loads(about["start"]) == [{"shape": [16], "dtype": "float32", "value": 0.0}]
    (program,) = re.findall(r"```python\n(import json.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    command = [sys.executable, "-c", 'import sys; sys.modules["octavo"] = sys.modules["torch"] = None\n' + program]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120)
    expected = octavo.generate(run, "ROMEO:", method="greedy", max_tokens=100)
    assert finished.stdout.removesuffix("\n") == "ROMEO:" + expected


def test_a_model_without_a_step_in_tensors_is_refused_by_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("A rose is a rose.\n" * 30)
    octavo.train("ngram", tmp_path / "text.txt", out=tmp_path / "kn", measure=False)
    assert main(["export", str(tmp_path / "kn"), str(tmp_path / "kn.onnx")]) == 2
    assert "a model of kind ngram cannot be written as an ONNX file; use --format arpa" in capsys.readouterr().err
    Run(random_model("gru", width=8, layers=1), Byte()).save(tmp_path / "gru")
    assert main(["export", str(tmp_path / "gru"), str(tmp_path / "gru.gguf")]) == 2
    assert "cannot be written as a GGUF file" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "gru"), "--precision", "q8_0"]) == 2
    assert "an ONNX file cannot be written with precision q8_0; leave --precision out" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.onnx"))
