"""The benchmarks name only what exists, and the docs name only benchmarks and flags that exist; none is started."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(FOLDER.glob("*.py"))
DOCS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
COMMAND = re.compile(r"benchmarks/(\w+\.py)([^`\n]*)")
FLAG = re.compile(r"(?<=\s)--[a-z][a-z-]*")


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_file(module: str) -> Path | None:
    """The file of a module of octavo or of the benchmarks; None if it does not exist."""
    root = ROOT / "src" if module.split(".")[0] == "octavo" else FOLDER
    path = root.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.exists()), None)


def bound_names(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements define or import, those inside `if` and `try` included."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stores = (name for name in ast.walk(node) if isinstance(name, ast.Name))
            yield from (name.id for name in stores if isinstance(name.ctx, ast.Store))
        else:
            for part in ast.iter_child_nodes(node):
                yield from bound_names([part] if isinstance(part, ast.stmt) else getattr(part, "body", []))


def has_name(module: str, name: str) -> bool:
    file = module_file(module)
    assert file is not None, module
    return module_file(f"{module}.{name}") is not None or name in set(bound_names(parse(file).body))


def missing_names(tree: ast.Module) -> Iterator[str]:
    """What a file imports from octavo or from the benchmarks, or reads of a module of theirs, and is not there."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = [(alias.name, None, alias.asname or alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = [(node.module, alias.name, alias.asname or alias.name) for alias in node.names]
        else:
            continue
        for module, name, local in named:
            if module.split(".")[0] not in ("octavo", *(script.stem for script in SCRIPTS)):
                continue
            if module_file(module) is None or (name is not None and not has_name(module, name)):
                yield f"{module} {name or ''}"
            elif name is None or module_file(f"{module}.{name}") is not None:
                modules[local] = module if name is None else f"{module}.{name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            module = modules[node.value.id]
            if not has_name(module, node.attr):
                yield f"{module} {node.attr}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_names_only_what_exists(script: Path) -> None:
    assert not sorted(set(missing_names(parse(script))))


def test_a_name_that_is_gone_is_found() -> None:
    source = "import octavo\nfrom octavo.text import gone\nfrom octavo.ops import linear\nlinear.gone\noctavo.train\n"
    assert sorted(missing_names(ast.parse(source))) == ["octavo.ops.linear gone", "octavo.text gone"]


def test_the_docs_name_only_benchmarks_and_flags_that_exist() -> None:
    wrong = []
    for page in DOCS:
        for name, rest in COMMAND.findall(page.read_text(encoding="utf-8")):
            if not (FOLDER / name).exists():
                wrong.append(f"{page.name}: {name}")
                continue
            strings = {node.value for node in ast.walk(parse(FOLDER / name)) if isinstance(node, ast.Constant)}
            wrong += [f"{page.name}: {name} {flag}" for flag in FLAG.findall(rest) if flag not in strings]
    assert not wrong


def test_docs_benchmarks_names_every_script() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert [script.name for script in SCRIPTS if f"benchmarks/{script.name}" not in page] == []
