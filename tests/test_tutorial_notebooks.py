"""The notebooks of the documentation are stored without outputs, teach in text, equation, code and figure, and run."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from public_api import WORDS

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
QUICK = {  # what stands in the place of each notebook's parameters, so that it runs in seconds
    "compare-my-text": "TEXT, MODELS, BUDGET = 'book.txt', ['bag', 'kn3', 'gru', 'xz'], '0.3s'",
    "inside-an-lstm": "TEXT, BUDGET, WIDTH = 'book.txt', '6steps', 16",
    "attention-from-scratch": "TEXT, BUDGET, DRAWS = 'book.txt', '3steps', 300",
    "n-grams-to-transformers": "TEXT, BUDGET, ORDERS, WIDTH = 'book.txt', '3steps', (1, 2, 3), 16",
    "compressing": "TEXT, BYTES, ORDERS = 'book.txt', 1000, (1, 2)",
    "facts-and-confidence": "PEOPLE, EPOCHS, FINETUNING, WIDTH = 'people-16', 1, 1, 16",
}
SECONDS = 300  # for a cell, on a busy machine


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", 4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters(notebook: Any) -> Any:
    [cell] = [cell for cell in code_cells(notebook) if "parameters" in cell.metadata.get("tags", [])]
    return cell


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One kernel for all notebooks: starting one and importing PyTorch takes longer than most of them."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, luck = tmp_path_factory.mktemp("notebooks"), random.Random(0)
    lines = [" ".join(luck.choices(WORDS, k=8)).capitalize() for _ in range(800)]
    (folder / "book.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def test_every_notebook_is_known_here_and_listed_in_the_index() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(QUICK)
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([\w-]+)\.ipynb\)", index)) == set(QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_no_output_is_stored_and_the_notebook_is_valid(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code_cells(notebook))
    raw = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert all(isinstance(cell["source"], list) for cell in raw["cells"])  # lines, so that changes can be read


@pytest.mark.parametrize("name", QUICK)
def test_a_notebook_has_text_equations_and_parameters_first(name: str) -> None:
    notebook = read(name)
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert texts[0].startswith("# ")
    assert "**Try.**" in texts[-1]
    assert sum(text.count("$$") for text in texts) >= 2
    assert parameters(notebook) is code_cells(notebook)[0]
    changed = re.findall(r"[A-Z]+", QUICK[name].split("=")[0])
    assert all(f"{word} = " in parameters(notebook).source for word in changed)


@pytest.mark.parametrize("name", QUICK)
def test_a_notebook_runs_from_top_to_bottom_and_shows_a_figure(name: str, kernel: KernelManager, place: Path) -> None:
    notebook = read(name)
    parameters(notebook).source += f"\n%cd -q {place}\n{QUICK[name]}"
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    client = NotebookClient(notebook, km=kernel, timeout=SECONDS)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()  # the kernel itself goes on, for the next notebook
    shown = [output.data["text/html"] for cell in code_cells(notebook) for output in cell.outputs
             if "text/html" in output.get("data", {})]  # fmt: skip
    assert any("<svg" in html for html in shown)
    assert not any("<script" in html for html in shown)
    stream = [output.text for cell in code_cells(notebook) for output in cell.outputs if output.get("name") == "stdout"]
    assert not any(word in text for text in stream for word in ("Warning", "nan", "None of"))
