"""Models describe themselves: nothing outside models/ asks for a model's class, and foreign packages can join."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.costs import Shape, cost_of_config
from octavo.errors import UserError
from octavo.inspection.views import find_view
from octavo.io import plugins
from octavo.models import BUILT_IN, MODELS, find_spec, language_models, load_models, preset, spec_of
from octavo.models.bag import SPEC as BAG
from octavo.models.bag import Bag, BagConfig

SOURCE = Path(__file__).parents[2] / "src" / "octavo"
NAMES = {cls.__name__ for spec in BUILT_IN.values() for cls in (*spec.model.__mro__[:-1], spec.config)}
NAMES -= {"Module", "LanguageModel", "Generic"}


def type_checks(tree: ast.AST) -> list[ast.AST]:
    """isinstance, issubclass, `type(x) is`, and class patterns that name a model or its config."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        asked: ast.AST | None = None
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = node.args[1]
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node):
            asked = node
        elif isinstance(node, ast.MatchClass):
            asked = node.cls
        if asked is None:
            continue
        names = {one.id for one in ast.walk(asked) if isinstance(one, ast.Name)}
        names |= {one.attr for one in ast.walk(asked) if isinstance(one, ast.Attribute)}
        found += [node] if names & NAMES else []
    return found


def test_nothing_outside_models_asks_for_a_models_class() -> None:
    assert {"GPT", "NGram", "Recurrent", "EncoderDecoder", "GPTConfig"} <= NAMES
    outside = [file for file in SOURCE.rglob("*.py") if file.relative_to(SOURCE).parts[0] != "models"]
    found = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"  # type: ignore[attr-defined]
        for file in outside for node in type_checks(ast.parse(file.read_text(encoding="utf-8")))
    ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize("text", ["isinstance(m, GPT)", "isinstance(m, a.NGram | int)", "type(m) is Bag"])
def test_a_type_check_is_found(text: str) -> None:
    assert len(type_checks(ast.parse(text))) == 1


@pytest.mark.parametrize("name", MODELS)
def test_every_spec_is_complete(name: str) -> None:
    spec = MODELS[name]
    assert spec.name == name
    assert spec.title
    assert spec.description
    assert spec.family
    assert (spec.fit is not None) == (spec.fitting == "counts")
    assert len({view.name for view in spec.views}) == len(spec.views)
    if spec.task == "language" and spec.fitting != "mixture":
        assert spec.cost is not None
        assert spec.compared_as(20.0, "cpu")
        assert spec.views


def test_candidates_suit_their_budget() -> None:
    short, long = (find_spec("gru").compared_as(seconds)[0] for seconds in (20.0, 600.0))
    assert (dict(short.settings), dict(long.settings)) == (
        {"batch_size": 32, "width": 192, "muon_learning_rate": 0.05},
        {},
    )
    gpts = find_spec("gpt").compared_as()
    assert [one.name for one in gpts if not one.only_if_named] == ["gpt", "local", "linear", "synthesizer"]
    assert [one.name for one in gpts if one.only_if_named] == ["gpt-experts", "gpt-latent"]


def test_presets_are_found_and_mistakes_are_reported() -> None:
    assert find_spec("linear").name == "gpt"
    assert preset("linear")[1].attention == "linear"
    with pytest.raises(UserError, match="there is no model 'gppt'; did you mean gpt"):
        find_spec("gppt")
    with pytest.raises(UserError, match="vit is no language model: it belongs to the task images"):
        preset("vit")


def test_a_model_without_a_spec_has_no_views_and_says_so() -> None:
    class Own(Bag):
        pass

    model = Own(BagConfig(), 9)
    assert find_view(model, "token-rows") is None
    with pytest.raises(UserError, match="Own has none; docs"):
        spec_of(model)


# ---------------------------------------------------------------------- packages


class Package:
    """What entry_points gives, in small."""

    def __init__(self, name: str, loaded: Any) -> None:
        self.name, self.module, self.value, self.loaded = name, name, f"{name}:SPEC", loaded
        self.dist = type("Dist", (), {"name": f"octavo-{name}"})

    def load(self) -> Any:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


@pytest.mark.parametrize(
    ("loaded", "words"),
    [
        (ImportError("no module\nof that name"), "ImportError: no module of that name"),
        ({"name": "mine"}, "must be a ModelSpec, not a dict"),
        (BAG, "the name bag is taken"),
        (replace(BAG, name="linear"), "the name linear is taken"),
    ],
)
def test_a_broken_package_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], loaded: Any, words: str
) -> None:
    good = replace(BAG, name="mine")
    entries = [Package("broken", loaded), Package("good", good)]
    groups = {"octavo.models": entries}
    monkeypatch.setattr(plugins, "entry_points", lambda group: groups[group])
    assert load_models(BUILT_IN) == {"mine": good}
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("octavo: the model broken of the package octavo-broken is left out: ")
    assert words in err


def test_a_model_that_does_not_say_its_cost_is_counted_from_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = replace(MODELS["gru"], cost=None)
    exact = cost_of_config("gru", silent.config(), 50, Shape(2, 3))
    monkeypatch.setitem(MODELS, "gru", silent)
    counted = cost_of_config("gru", silent.config(), 50, Shape(2, 3))
    assert counted.parameters == exact.parameters
    assert 0 < counted.total("forward") <= exact.total("forward")


def test_every_language_model_names_its_task() -> None:
    assert all(spec.task for spec in language_models())
