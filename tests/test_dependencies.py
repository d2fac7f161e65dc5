"""What the source imports is declared in pyproject.toml, and what is declared is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from octavo.engines import ENGINES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}  # where the module has another name
UNDECLARED = {
    "triton": "comes with PyTorch for CUDA, and is imported only where it is there",
    "pandas": "to_pandas() is for those who have it, and says so to the others",
    "onnxscript": "torch.onnx needs it: in the extra, although no line imports it by name",
    "tensorboard": "torch.utils.tensorboard needs it: an extra, although no line imports it by name",
}
TOO_LARGE_FOR_DEVELOPERS = {
    "pyspark": "450 MB, and it needs Java: make test-spark installs it",
    "ray": "200 MB: make test-ray installs it",
}
LOADED_ON_REQUEST = {  # by `open_engine`, which first looks whether the packages are there
    "src/" + module.replace(".", "/") + ".py" for module, _ in ENGINES.values()
}
EXTRAS_FOR_PEOPLE = {
    "course",
    "dev",
    "docs",
    "peers",
}  # the tests' and the benchmarks' needs, which the source does not import


def distribution(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower()


def declared(extra: str = "") -> set[str]:
    return set(map(distribution, PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]))


def imports(tree: ast.AST, needed: bool = True) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, and whether it does so as soon as it is imported itself."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        at_once = needed and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try)
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, at_once
        elif isinstance(node, ast.Call) and _name(node.func).endswith("import_module"):
            yield from ((str(one.value), False) for one in node.args if isinstance(one, ast.Constant))
        yield from imports(node, at_once)


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


@cache
def imports_by_file() -> dict[str, list[tuple[str, bool]]]:
    files = sorted((ROOT / "src" / "octavo").rglob("*.py"))
    return {str(file.relative_to(ROOT)): [*imports(ast.parse(file.read_text(encoding="utf-8")))] for file in files}


@cache
def foreign_imports() -> dict[str, dict[str, bool]]:
    """The distributions that the source imports: for each, the files, and whether they need it at once."""
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for where, modules in imports_by_file().items():
        for module, at_once in modules:
            name = module.split(".")[0]
            if name not in sys.stdlib_module_names and name != "octavo":
                files = found[DISTRIBUTIONS.get(name, name).lower()]
                files[where] = files.get(where, False) or at_once
    return dict(found)


EXTRAS = {name for extra in PROJECT["optional-dependencies"] for name in declared(extra)}
OF_USERS = {name for extra in set(PROJECT["optional-dependencies"]) - EXTRAS_FOR_PEOPLE for name in declared(extra)}


def test_the_source_is_really_read() -> None:
    assert {"torch", "numpy", "jinja2", "pillow", "sacrebleu"} <= set(foreign_imports())


def test_every_import_is_declared() -> None:
    assert {
        name: sorted(files)
        for name, files in foreign_imports().items()
        if name not in declared() | EXTRAS | set(UNDECLARED)
    } == {}


def test_what_a_module_needs_at_once_is_a_dependency_and_no_extra() -> None:
    missing = {
        name: where
        for name, files in foreign_imports().items()
        if name not in declared() | set(UNDECLARED)
        and (where := sorted({where for where, at_once in files.items() if at_once} - LOADED_ON_REQUEST))
    }
    assert missing == {}


def test_no_module_imports_one_that_is_loaded_on_request() -> None:
    modules = {where.removeprefix("src/").removesuffix(".py").replace("/", ".") for where in LOADED_ON_REQUEST}
    named = {
        (where, module) for where, imported in imports_by_file().items() for module, _ in imported if module in modules
    }
    assert named == set()


def test_what_only_some_functions_need_is_a_dependency_or_an_extra_for_users() -> None:
    assert set(foreign_imports()) - declared() - OF_USERS - set(UNDECLARED) == set()


def test_nothing_is_declared_that_nothing_imports() -> None:
    assert declared() - set(foreign_imports()) == set()
    assert OF_USERS - set(foreign_imports()) - set(UNDECLARED) == set()


def test_what_users_can_add_the_developers_have() -> None:
    assert declared("dev") >= OF_USERS - set(TOO_LARGE_FOR_DEVELOPERS)
    assert set(TOO_LARGE_FOR_DEVELOPERS) <= OF_USERS


def test_the_development_environment_has_every_dependency_at_an_exact_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert (declared() | EXTRAS) - pinned == set()


def test_the_reasons_for_exceptions_still_hold() -> None:
    assert {"triton", "pandas"} <= set(foreign_imports())
    assert "tensorboard" in declared("tensorboard")
    assert "tensorboard" not in foreign_imports()
