"""The registry of attention kinds: what an entry says is true, and one more entry is all that a new pattern takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from examples import gpt
from laws import LAWS
from octavo.cli import main
from octavo.errors import UserError
from octavo.models.parts.config import GPTConfig
from octavo.models.vit import VitConfig
from octavo.ops.attention.kinds import ATTENTION_KINDS, cache_length, kinds_for, text_pattern

TEXT_KINDS = {name: kind for name, kind in ATTENTION_KINDS.items() if kind.text is not None}


@pytest.fixture
def dilated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pattern that the page on transformers adds, by the page's own code."""
    page = (Path(__file__).parents[2] / "docs" / "transformers.md").read_text(encoding="utf-8")
    monkeypatch.setitem(ATTENTION_KINDS, "dilated", ATTENTION_KINDS["full"])  # and afterwards, it is gone
    exec(page.split("```python\n")[1].split("```")[0], {})
    assert ATTENTION_KINDS["dilated"] is not ATTENTION_KINDS["full"]


@pytest.mark.parametrize("name", TEXT_KINDS)
@pytest.mark.parametrize(("context", "window"), [(11, 4), (12, 12), (7, 9), (9, 1)])
def test_what_an_entry_says_of_its_pattern_is_true(name: str, context: int, window: int) -> None:
    kind = ATTENTION_KINDS[name]
    mask_CC = text_pattern(kind, context, window).mask(context, context)
    assert not mask_CC.triu(1).any(), "no token attends to a later one"
    assert mask_CC.diagonal().all(), "every token attends to itself"
    same_distance = all(len(set(mask_CC.diagonal(-back).tolist())) == 1 for back in range(context))
    if kind.relative:
        assert same_distance
        assert cache_length(kind, context, window) == int(mask_CC[-1].sum()) if kind.first_key else context
    if kind.first_key is not None:
        for t in range(context):
            first = max(0, kind.first_key(t, context, window))
            assert mask_CC[t].tolist() == [first <= s <= t for s in range(context)]


def test_patterns_that_depend_on_positions_are_not_called_relative() -> None:
    for name in ("block", "global"):
        mask_CC = text_pattern(ATTENTION_KINDS[name], 11, 4).mask(11, 11)
        assert any(len(set(mask_CC.diagonal(-back).tolist())) > 1 for back in range(11))


def test_texts_and_images_choose_from_one_registry() -> None:
    assert kinds_for("text") == ["full", "local", "strided", "block", "global", "latent", "linear", "dense", "random"]
    assert kinds_for("image") == ["full", "local", "global", "axial"]
    assert all(kind.description for kind in ATTENTION_KINDS.values())
    with pytest.raises(UserError, match=r"attention must be one of full, local, .*: attention='axial'; try"):
        GPTConfig(attention="axial")
    with pytest.raises(UserError, match="attention must be one of full, local, global, axial: attention='linear'"):
        VitConfig(attention="linear")


@pytest.mark.usefixtures("dilated")
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_model_with_a_new_pattern_keeps_every_law(law: object) -> None:
    for settings in ({}, {"positions": "learned", "stride": 3}):
        law(gpt(attention="dilated", **settings), 40)  # type: ignore[operator]


@pytest.mark.usefixtures("dilated")
def test_a_new_pattern_decodes_from_its_cache_as_it_steps() -> None:
    model = gpt(attention="dilated")
    session, state = model.session(model.start(1)), model.start(1)
    for x in [model.begin, *range(11), *range(11)]:
        logits_BV, state = model.step(state, torch.tensor([x]))
        torch.testing.assert_close(session.step(torch.tensor([x])), logits_BV, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("dilated")
def test_one_entry_is_all_that_a_new_pattern_takes(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"{tmp_path}/text.txt"
    with open(text, "w", encoding="utf-8") as file:
        file.write("one after the other. " * 300)
    small = ["--width", "16", "--layers", "1", "--heads", "2", "--budget", "3steps", "--device", "cpu"]
    main(["train", "gpt", text, "--attention", "dilated", *small, "--out", f"{tmp_path}/run"])
    run = octavo.load(f"{tmp_path}/run")
    assert run.model.config == replace(GPTConfig(), width=16, layers=1, heads=2, attention="dilated")
    assert octavo.evaluate(run, Path(text)).bits_per_byte < 9
    main(["cost", "gpt", "--attention", "dilated"])
    assert "attention" in capsys.readouterr().out


def test_an_unknown_kind_is_refused_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "gpt", "text.txt", "--attention", "dilated"]) == 2
    assert "attention must be one of full, local, strided" in capsys.readouterr().err
