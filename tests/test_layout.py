"""Imports go only up the layout's list, and no file outgrows its reader.

python tests/test_layout.py writes the list into CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "octavo"
LAYOUT = {
    "errors": "the one exception that means: the user can fix this",
    "deprecation": "old names that still work, with a warning",
    "config": "configs are frozen dataclasses; read from JSON, checked",
    "io": "atomic files, run folders and their locks, compressed streams, GGUF, memory, progress",
    "engines": "DuckDB and Spark: SQL queries into files, stages that a killed job goes on from",
    "pages": "one HTML frame, stylesheet, figures and sections over plain data",
    "datasets": "named data: the catalogue, fetching, pairs, labels, images, questions",
    "text": "reading, splitting, tokenizers, token files: text to tokens",
    "core": "`LanguageModel`, a state and a step; `Session`",
    "ops": "mathematics as functions, without weights: attention, recurrence, norms, cross-entropy",
    "models": "one file a family: the class, its config, its `SPEC`",
    "decode": "greedy, sampling, beam, exact and speculative decoding",
    "scoring": "bits per byte, the range coder, the metrics of the tasks",
    "costs": "parameters, operations, memory and time before a model is trained",
    "exchange": "ARPA, Hugging Face, GGUF, word vectors: formats that others read and write",
    "training": "one loop: batches, optimizers, schedule, checkpoints, precision, several processes",
    "tasks": "language, masked words, translation, classification, images, facts; train, resume, load, evaluate",
    "inspection": "views of a trained model, and the doctor",
    "experiments": "one runner and one table: compare, scale, domains",
    "exercises": "textbook claims with evidence, and the grader",
    "studio": "the same views in the browser",
    "cli": "the command line, one file a group of verbs",
}
ORDER = tuple(LAYOUT)
VERSION = "__version__"  # octavo's own, which every module may name
FACADE = "__init__"  # octavo itself: may import any part, but only when asked for it
LONGEST_FILE = 350


def part_of(file: Path, root: Path) -> str:
    return file.relative_to(root).with_suffix("").parts[0]


def module_level(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: everything but functions' bodies and `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from module_level(node)


def imported_parts(node: ast.AST, file: Path, root: Path) -> Iterator[str]:
    """The parts of octavo that one import statement names; FACADE for octavo itself."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            package, *rest = alias.name.split(".")
            if package == "octavo":
                yield rest[0] if rest else FACADE
    elif isinstance(node, ast.ImportFrom):
        base = (node.module or "").split(".") if node.module else []
        if node.level:
            here = ("octavo", *file.relative_to(root).parts[:-1])
            base = [*here[: len(here) - node.level + 1], *base]
        if base[:1] != ["octavo"]:
            return
        names = base[1:2] or [
            alias.name if alias.name in ORDER else FACADE for alias in node.names if alias.name != VERSION
        ]
        yield from names


def forbidden_imports(root: Path) -> list[str]:
    """One line for each import below `root` that the layout does not allow."""
    complaints = []
    for file in sorted(root.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        importer = part_of(file, root)
        if importer not in (*ORDER, FACADE, "__main__"):
            complaints.append(f"{file.relative_to(root)}: {importer} has no place in the layout's order; give it one")
            continue
        for node in module_level(tree) if importer == FACADE else ast.walk(tree):
            for imported in imported_parts(node, file, root):
                if not allowed(importer, imported):
                    line = getattr(node, "lineno", 0)
                    complaints.append(f"{file.relative_to(root)}:{line}: {importer} must not import {imported}")
    return complaints


def allowed(importer: str, imported: str) -> bool:
    if importer == FACADE:  # only its module level counts, and it stays free of numpy and torch
        return imported == "deprecation"
    if importer == "__main__":
        return True
    if imported == FACADE:  # octavo's own names come from the api
        return ORDER.index(importer) > ORDER.index("tasks")
    return imported in ORDER and ORDER.index(importer) >= ORDER.index(imported)


def made_up_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_modules_import_only_from_those_above_them() -> None:
    assert forbidden_imports(SOURCE) == []


def test_the_source_is_really_read() -> None:
    assert {"errors", "core", "text", "models", FACADE} <= {part_of(file, SOURCE) for file in SOURCE.rglob("*.py")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core.py", "import octavo.models.bag"),
        ("core.py", "from octavo.models import bag"),
        ("core.py", "from octavo import models"),
        ("core.py", "import octavo"),
        ("core.py", "from octavo import evaluate_everything"),
        ("text/byte.py", "from ..models import bag"),
        ("text/byte.py", "from .. import models"),
        ("text/deep/byte.py", "from ...models.bag import Bag"),
        ("text/byte.py", "def f():\n    from octavo.training import loop"),
        ("text/byte.py", "from octavo.unheard_of import x"),
        ("unheard_of.py", "x = 1"),
        ("__init__.py", "from octavo.tasks.api import load"),
        ("__init__.py", "if True:\n    import octavo.tasks.api"),
    ],
)
def test_a_forbidden_import_is_caught(tmp_path: Path, name: str, text: str) -> None:
    [complaint] = forbidden_imports(made_up_tree(tmp_path, {name: text}))
    assert complaint.startswith(name)


def test_allowed_imports_are_let_through(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from octavo.tasks.api import load\n"
        "def __getattr__(name):\n    import octavo.tasks.api",
        "core.py": "import torch\nfrom octavo.errors import UserError",
        "models/bag.py": "from . import parts\nfrom ..core import scan\nfrom .parts import x\nimport octavo_peer",
        "models/__init__.py": "from .bag import Bag\nfrom octavo.models.parts import x",
        "cli.py": "import octavo\nfrom octavo import __version__, api",
        "__main__.py": "from octavo.cli import main",
    }
    assert forbidden_imports(made_up_tree(tmp_path, files)) == []


def test_no_test_module_imports_another() -> None:
    importers = []
    for file in Path(__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            importers += [f"{file.name} imports {name}" for name in names if name.startswith("test_")]
    assert importers == []  # what two of them need stands in a module of its own in tests/


def layout_list() -> str:
    """The packages and modules in their order, as Markdown."""
    return "\n".join(f"1. `{part}`: {description}" for part, description in LAYOUT.items())


def with_layout(text: str) -> str:
    """CONTRIBUTING.md with the list between its two marks."""
    before, rest = text.split("<!-- layout: begin -->\n")
    after = rest.split("<!-- layout: end -->")[1]
    return f"{before}<!-- layout: begin -->\n{layout_list()}\n<!-- layout: end -->{after}"


def test_the_contributors_guide_has_the_layout_as_it_is() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert with_layout(text) == text, "run python tests/test_layout.py"


def test_only_the_named_modules_stand_at_the_root() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == {"__init__", "config", "core", "deprecation", "errors"}


def test_no_module_is_called_utils() -> None:
    assert [path for path in SOURCE.rglob("*") if path.stem in ("util", "utils")] == []


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCE.rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


if __name__ == "__main__":
    guide = ROOT / "CONTRIBUTING.md"
    guide.write_text(with_layout(guide.read_text(encoding="utf-8")), encoding="utf-8")
