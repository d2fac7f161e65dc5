"""Everything that octavo offers at its top level is shown by an example in its documentation, and the examples run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import octavo
from public_api import write_folder

ROOT = Path(__file__).parents[1]
FUNCTIONS = [name for name in octavo.__all__ if inspect.isfunction(getattr(octavo, name))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `octavo\.(\w+)` \| .* \| `(.+)` \|$", PAGE, re.MULTILINE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with texts and runs, in which the examples are at home."""
    here, place = os.getcwd(), tmp_path_factory.mktemp("examples")
    os.chdir(place)
    write_folder(place)
    os.chdir(here)
    return place


@pytest.fixture(autouse=True)
def at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def examples_of(name: str) -> doctest.DocTest:
    """The examples in a name's documentation; a value has none of its own, so the package's stand for it."""
    value = getattr(octavo, name)
    documentation = (value.__doc__ if callable(value) else octavo.__doc__) or ""
    return doctest.DocTestParser().get_doctest(documentation, {"octavo": octavo}, f"octavo.{name}", None, None)


@pytest.mark.parametrize("name", octavo.__all__)
def test_the_documentations_example_of_every_public_name_runs(name: str) -> None:
    found = examples_of(name)
    assert any(f"octavo.{name}" in example.source + (example.exc_msg or "") or name == "UserError"
               for example in found.examples), f"octavo.{name} has no example of itself"  # fmt: skip
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(found, out=said.append)
    assert result.failed == 0, "".join(said)


def test_an_example_that_is_wrong_is_found() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> octavo.tokenize('runs/kn3', 'ab')\n['a']", {"octavo": octavo},
                                                "wrong", None, None)  # fmt: skip
    assert doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(wrong, out=lambda _: None).failed == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documentation_says_what_every_argument_is(name: str) -> None:
    function = getattr(octavo, name)
    documentation = inspect.getdoc(function) or ""
    for part in ("Args:", "Returns:", "Raises:", "Examples:"):
        assert f"\n{part}\n" in documentation, f"octavo.{name} has no section {part}"
    for argument in inspect.signature(function).parameters:
        assert re.search(rf"^    \**{argument}: ", documentation, re.MULTILINE), f"octavo.{name}: {argument}"
    assert all(argument.annotation is not inspect.Parameter.empty
               for argument in inspect.signature(function).parameters.values())  # fmt: skip


def test_no_public_function_has_the_name_of_a_subpackage() -> None:
    packages = {module.name for module in pkgutil.iter_modules(octavo.__path__)}
    assert packages & set(octavo.__all__) == set()  # importing the subpackage would put it in the function's place


def test_importing_every_subpackage_leaves_the_public_functions_alone() -> None:
    for module in pkgutil.iter_modules(octavo.__path__):
        importlib.import_module(f"octavo.{module.name}")
    assert all(callable(getattr(octavo, name)) for name in FUNCTIONS)


def test_the_page_of_the_api_has_a_row_for_every_name() -> None:
    assert set(ROWS) == set(octavo.__all__) - {"__version__"}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_example_in_the_page_of_the_api_runs(name: str) -> None:
    assert f"octavo.{name}" in ROWS[name]
    exec(ROWS[name], {"octavo": octavo, "Path": Path})


def test_results_have_a_short_repr_and_html_without_script() -> None:
    results = [
        octavo.evaluate("runs/kn3", "to be"), octavo.inspect("runs/kn3"), octavo.inspect("runs/kn3", "to be"),
        octavo.inspect(["runs/gru", "runs/gpt"], "to be, or not to be"), octavo.inspect("runs/moods", "a fine day"),
        octavo.doctor("runs/gru", quick=True), octavo.cost("gru", width=16), octavo.cost("bag"),
        octavo.classify("runs/moods", "a fine day"), octavo.fill("runs/bert", "the [MASK] sat"),
        octavo.tag("runs/tags", "a dog"),
        octavo.fill("runs/bert", "the cat sat"), octavo.vectors("book.txt", dim=4, epochs=1, min_count=1),
        octavo.compare("book.txt", models=["bag", "kn3"], out="runs/two"),
        octavo.domains(["runs/kn3"], texts=["book.txt", "other.txt"], bytes=500, out="runs/domains"),
    ]  # fmt: skip
    assert all(octavo.load(f"runs/{name}")._repr_html_().startswith("<div") for name in ("kn3", "moods", "bert"))
    assert repr(octavo.answer("runs/facts", "Ada Ash", threshold=1.0)).startswith("<not known: the model's ")
    for result in results:
        assert repr(result).startswith("<"), repr(result)
        assert repr(result).endswith(">")
        assert len(repr(result)) < 200, repr(result)
        html = result._repr_html_()
        assert html.startswith("<div")
        assert "<script" not in html
    assert all(isinstance(result.to_json(), dict) for result in results)


def test_a_wrong_kind_of_run_is_refused_with_what_it_is() -> None:
    for use in (
        lambda: octavo.classify(octavo.load("runs/kn3"), "a"), lambda: octavo.translate(octavo.load("runs/kn3"), "a"),
        lambda: octavo.classify("runs/kn3", "a"), lambda: octavo.fill("runs/kn3", "a [MASK]"),
        lambda: octavo.tag("runs/kn3", "a dog"),
        lambda: octavo.answer("runs/kn3", "Ada Ash"), lambda: octavo.compress("runs/moods", "a"),
        lambda: octavo.inspect("runs/bert", "a b"), lambda: octavo.inspect([], "a"),
    ):  # fmt: skip
        with pytest.raises(octavo.UserError, match=r"kn3|moods|bert|\[\]"):
            use()


def test_what_exists_is_refused_unless_forced() -> None:
    for use in (lambda **how: octavo.export("runs/kn3", "kn3.arpa", **how),
                lambda **how: octavo.import_model("kn3.arpa", "runs/again", tokenizer_of="runs/kn3", **how),
                lambda **how: octavo.train("bag", "book.txt", out="runs/bag", measure=False, **how)):  # fmt: skip
        use(force=True)
        with pytest.raises(octavo.UserError, match=r"kn3.arpa exists|runs/again exists|runs/bag is a finished run"):
            use()


def test_pandas_is_asked_for_by_name_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = octavo.compare("book.txt", models=["bag", "kn3"], out="runs/two")
    frame = comparison.to_pandas()
    assert frame.loc[frame["model"] == "kn3", "bits_per_byte"].item() == comparison["kn3"].bits_per_byte
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(octavo.UserError, match=r"pip install 'octavo\[pandas\]'"):
        comparison.to_pandas()


def test_old_names_work_and_warn_at_the_users_line() -> None:
    script = (
        "import octavo\nfrom octavo.cost import Shape\n"
        "octavo.train('ngram', 'book.txt', order=2, tokenizer='bpe', size=300, measure=False)\n"
        "assert callable(octavo.cost) and Shape(1, 2).tokens == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "DeprecationWarning" in line]
    assert [line.split(": ")[0] for line in lines] == ["<string>:2", "<string>:3"]
    assert "octavo.cost.Shape is deprecated and will be removed in octavo 2.0; use octavo.costs.Shape" in lines[0]
    assert "'size' of ngram is deprecated and will be removed in octavo 2.0; use 'vocab_size'" in lines[1]


def test_current_names_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        octavo.train("ngram", "book.txt", order=2, tokenizer="bpe", vocab_size=300, measure=False)


def test_no_example_in_the_source_stands_where_it_is_not_run() -> None:
    sources = (Path(octavo.__file__).parent).rglob("*.py")
    nodes = [(file, node) for file in sources for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    shown = {getattr(node, "name", file.parent.name) for file, node in nodes
             if isinstance(node, kinds) and ">>>" in (ast.get_docstring(node) or "")}  # fmt: skip
    assert shown - set(octavo.__all__) == {"octavo"}  # whose own example stands for its values
