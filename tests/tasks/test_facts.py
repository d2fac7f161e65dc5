"""Pretraining that teaches facts: span corruption, questions, made-up people, confidence, and who answers."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import octavo
from octavo.cli import main
from octavo.datasets.people import made_up
from octavo.datasets.questions import FINETUNED, NEVER, PRETRAINED, Frame, Knowledge, Pair, open_knowledge
from octavo.decode.answers import answer_questions, log_probability
from octavo.errors import UserError
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.scoring.metrics import answered, calibration_error, coverage_curve, reliability, threshold_for
from octavo.tasks.answering import Rules, learn, pairs_in, replies_to
from octavo.tasks.facts import TASK, AnswerLoss, CorruptedTexts, FactsConfig, Questions, fresh_model
from octavo.tasks.facts_file import Facts, open_file_of_facts
from octavo.tasks.facts_run import FactsRun, answering_run, measure
from octavo.tasks.run import Run
from octavo.tasks.span_corruption import SHORTEST, corrupted, corrupted_rows, draw_cuts, lots, restored
from octavo.tasks.task import Recipe
from octavo.tasks.training_run import train_alone, train_run
from octavo.text.question_tokens import MARK, mark_of, question_rows, shuffled
from octavo.training.loop import Loop

FIRSTS, LASTS = ("Ada", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gil", "Hal"), ("Ash", "Birch", "Cedar", "Elm", "Fir")
PLACES = ("Rome", "Oslo", "Lima", "Bern")
TINY = GPTConfig(width=32, layers=2, heads=2, context=96)
CPU = torch.device("cpu")


def people(size: int = 16) -> Knowledge:
    return made_up(FIRSTS, LASTS, PLACES, size, tellings=2)


# ---------------------------------------------------------------------- span corruption


def test_a_span_is_hidden_and_written_at_the_end() -> None:
    x_C = np.frombuffer(b"Lucy was born in Rome today", np.uint8)
    row = corrupted(x_C, kept=21, begin=9, end=13, mark=ord("?"))
    assert row.tobytes() == b"Lucy was ? in Rome?born?"
    assert restored(row, ord("?")).tobytes() == b"Lucy was born in Rome"


@given(
    lengths=st.lists(st.integers(1, 80), min_size=1, max_size=6), longest=st.integers(SHORTEST, 60),
    seed=st.integers(0, 2**63 - 1), step=st.integers(0, 10**6), span=st.floats(0.01, 0.5),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_text_can_be_rebuilt_whatever_is_drawn(
    lengths: list[int], longest: int, seed: int, step: int, span: float
) -> None:
    length_B, text_B = np.array(lengths), np.arange(len(lengths))
    x_NC = torch.arange(2, 2 + 80).repeat(len(lengths), 1)
    cut = draw_cuts(length_B, longest, seed, step, text_B, span)
    x_BT = corrupted_rows(x_NC, torch.from_numpy(text_B), cut, mark=0, pad=1, T=longest + 3)
    for b, length in enumerate(lengths):
        kept, begin, end = (int(one[b]) for one in cut)
        assert min(length, SHORTEST) <= kept <= min(length, longest)
        assert 0 <= begin < end <= kept
        assert end - begin <= max(1, round(2 * span * kept))
        row = x_BT[b].numpy()
        plain = corrupted(x_NC[b].numpy(), kept, begin, end, 0)
        assert row[: kept + 3].tolist() == plain.tolist()
        assert (row[kept + 3 :] == 1).all()
        assert restored(row, 0).tolist() == list(range(2, 2 + kept))


def test_what_is_drawn_depends_on_seed_step_and_text_alone() -> None:
    length_B = np.full(4, 50)
    whole = draw_cuts(length_B, 40, 7, 3, np.array([5, 6, 7, 8]))
    alone = draw_cuts(length_B[:1], 40, 7, 3, np.array([7]))
    assert [int(one[2]) for one in whole] == [int(one[0]) for one in alone]
    others = [draw_cuts(length_B, 40, *what) for what in ((8, 3, np.arange(5, 9)), (7, 4, np.arange(5, 9)))]
    assert all(any((a != b).any() for a, b in zip(whole, other, strict=True)) for other in others)


def test_the_share_that_is_hidden_is_the_one_asked_for_and_lots_are_even() -> None:
    text_B = np.arange(20_000)
    kept_B, begin_B, end_B = draw_cuts(np.full(len(text_B), 200), 112, 1, 0, text_B, span=0.25)
    assert ((end_B - begin_B) / kept_B).mean() == pytest.approx(0.25, abs=0.01)
    assert (kept_B.min(), kept_B.max()) == (SHORTEST, 112)
    assert np.histogram(lots(3, 9, text_B, 1), 10, (0, 1))[0] == pytest.approx(2000, rel=0.1)


def test_too_wide_a_span_or_an_empty_text_is_refused() -> None:
    with pytest.raises(UserError, match="up to half are hidden"):
        draw_cuts(np.array([9]), 40, 0, 0, np.array([0]), span=0.6)
    with pytest.raises(UserError, match="must have a token"):
        draw_cuts(np.array([9, 0]), 40, 0, 0, np.array([0, 1]))


# ---------------------------------------------------------------------- questions


def test_only_the_answer_and_the_mark_behind_it_are_learnt() -> None:
    known = people()
    _, tokenizer = fresh_model(known, TINY, 0)
    x_NT, target_NT = question_rows(tokenizer, [Pair("Where?", "Rome"), Pair("Where was it?", "Oslo")], 96)
    asked = target_NT[0][target_NT[0] != tokenizer.begin].tolist()
    assert tokenizer.decode(asked).decode() == f"Rome{MARK}"
    assert tokenizer.decode(x_NT[0].tolist()).decode() == f"Where?{MARK}Rome"
    assert int(x_NT[0, 0]) == tokenizer.begin
    at = int((x_NT[0] == mark_of(tokenizer)).nonzero()[0])
    assert tokenizer.token_bytes(int(target_NT[0, at])) == b"R"  # what stands behind the question's mark
    with pytest.raises(UserError, match="fit into the context"):
        question_rows(tokenizer, [Pair("Where?", "Rome")], 8)


def test_the_name_is_what_questions_do_not_share() -> None:
    frame = Frame.of(["Where was Ada Ash born?", "Where was Adam Birch born?"])
    assert frame == ("Where was ", " born?")
    assert frame.name_in("where was  Bob Elm born?") == "Bob Elm"
    assert frame.question("Bob Elm") == "Where was Bob Elm born?"
    assert frame.name_in("Who is it?") == frame.question("Who is it?") == "Who is it?"
    assert Frame.of(["Where was Ada born?"]) == ("", "")


def test_every_pass_comes_by_every_number_once() -> None:
    at = shuffled(10, 4, seed=1)
    drawn = np.concatenate([at(step) for step in range(5)])
    assert [sorted(drawn[first : first + 10].tolist()) for first in (0, 10)] == [list(range(10))] * 2
    assert drawn[:10].tolist() != drawn[10:].tolist()
    assert at(1).tolist() == drawn[4:8].tolist()  # going back gives the same


def test_made_up_people_are_described_asked_or_neither() -> None:
    known = people(16)
    assert (len(known.train), len(known.dev), len(known.never), len(known.text)) == (8, 4, 4, 24)
    whole = "\n".join(known.text)
    names = {known.frame.name_in(pair.question): pair.answer for pair in (*known.train, *known.dev, *known.never)}
    assert len(names) == 16
    for pair in (*known.train, *known.dev):
        name = known.frame.name_in(pair.question)
        assert all(pair.answer in line for line in known.text if line.startswith(f"{name}."))
        assert sum(line.startswith(f"{name}.") for line in known.text) == 2
    assert not any(known.frame.name_in(pair.question) in whole for pair in known.never)
    assert known == people(16) != made_up(FIRSTS, LASTS, PLACES, 16, seed=1, tellings=2)
    with pytest.raises(UserError, match="people can be made up"):
        made_up(FIRSTS, LASTS, PLACES, 10_000)


def test_names_are_grouped_by_where_the_model_has_seen_them() -> None:
    known = people(16)
    groups = known.groups(pretrained=True, most=3)
    assert {name: len(some) for name, some in groups.items()} == {PRETRAINED: 4, FINETUNED: 3, NEVER: 4}
    assert {name: len(some) for name, some in known.groups(False, 3).items()} == {PRETRAINED: 0, FINETUNED: 3, NEVER: 8}


def test_a_folder_of_facts_is_read_and_a_bad_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Ada Ash. Born in Rome .\n\nBob Elm. Born in Oslo .\n")
    (tmp_path / "train.tsv").write_text("Where was Ada Ash born?\tRome\n")
    (tmp_path / "dev.tsv").write_text("Where was Bob Elm born?\tOslo\n")
    known = open_knowledge(tmp_path)
    assert (len(known.text), known.train, known.commonest) == (2, (Pair("Where was Ada Ash born?", "Rome"),), "Rome")
    (tmp_path / "dev.tsv").write_text("Where was Bob Elm born?\tOslo\nno tab\n")
    with pytest.raises(UserError, match="line 2 of"):
        open_knowledge(tmp_path)
    with pytest.raises(UserError, match="there are no facts 'nowhere'"):
        open_knowledge("nowhere")


@pytest.mark.data("birthplaces")
def test_london_is_right_for_one_in_twenty_of_birthplaces() -> None:
    known = open_knowledge("birthplaces")
    assert (len(known.text), len(known.train), len(known.dev)) == (2937, 2000, 500)
    assert known.frame == ("Where was ", " born?")
    assert known.commonest == "London"
    assert sum(pair.answer == "London" for pair in known.dev) / 500 == pytest.approx(0.05)
    groups = known.groups(True, 500)
    assert (len(groups[PRETRAINED]), len(groups[NEVER])) == (
        499,
        0,
    )  # all stand in the text, and one among the learnt too


def facts_recipe(**settings: Any) -> Recipe:
    return TASK.recipe("facts", {**asdict(TINY), **settings}, device="cpu")


def train_facts(source: str, recipe: Recipe, out: Path | None = None) -> Run:
    run: Run = train_run(TASK, recipe, [str(source)], out, quiet=True)
    return run


# ---------------------------------------------------------------------- batches and losses


@pytest.mark.parametrize("mixed", [0.0, 0.25])
def test_a_batch_depends_on_its_step_alone_and_fits_the_context(mixed: float) -> None:
    known = people()
    _, tokenizer = fresh_model(known, TINY, 0)
    how = FactsConfig(pretrain_batch_size=8, mixed=mixed)
    texts, again = (CorruptedTexts(known, tokenizer, how, TINY.context, 5, CPU) for _ in range(2))
    list(map(texts, range(4)))
    for one, other in zip(texts(2).tensors, again(2).tensors, strict=True):
        assert torch.equal(one, other)
        assert one.shape[0] == 8
        assert one.shape[1] <= TINY.context
    x_BT, target_BT = texts(2).tensors
    assert texts(2).targets == int((target_BT != tokenizer.begin).sum())
    text = target_BT[0][target_BT[0] != tokenizer.begin].tolist()
    assert text.count(mark_of(tokenizer)) == 3
    assert torch.equal(x_BT[:6, 1:], target_BT[:6, :-1])
    answers = [tokenizer.decode(row[row != tokenizer.begin].tolist()).decode() for row in target_BT[6:]]
    assert all(one.removesuffix(MARK) in PLACES for one in answers) == bool(mixed)


def test_the_loss_is_the_mean_of_minus_log_p_of_the_answers() -> None:
    known = people()
    model, tokenizer = fresh_model(known, TINY, 0)
    model = model.double()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    batch = Questions(known.train, tokenizer, TINY.context, 4, 0, CPU)(0)
    rows = batch.tensors
    logp_BTV = model(rows[0]).log_softmax(-1)
    asked_BT = rows[1] != tokenizer.begin
    by_hand = -logp_BTV.gather(-1, rows[1][..., None]).squeeze(-1)[asked_BT].mean()
    assert AnswerLoss(model)((), rows)[0].item() / batch.targets == pytest.approx(by_hand.item(), rel=1e-6)


# ---------------------------------------------------------------------- answers and their confidence


def random_model(seed: int = 0) -> tuple[GPT, FactsRun]:
    known = people()
    model, tokenizer = fresh_model(known, TINY, seed)
    chance = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=chance)
    facts = {"frame": list(known.frame)}
    return model, answering_run(FactsRun(model.eval(), tokenizer, {"facts": facts}))


def test_confidence_is_the_product_of_the_tokens_probabilities() -> None:
    model, oracle = random_model()
    tokenizer = oracle.tokenizer
    prompts = [[300, 301], [302, 303, 304, 305]]
    prompts = [[token % model.vocab for token in prompt] for prompt in prompts]
    logp_B = log_probability(model, prompts, [[5, 6, 7], [8]])
    state, logits, product = model.start(1), None, 1.0
    for x in [tokenizer.begin, *prompts[0], 5, 6, 7]:
        if logits is not None and x in (5, 6, 7):
            product *= logits.softmax(-1)[0, x].item()
        logits, state = model.step(state, torch.tensor([x]))
    assert math.exp(float(logp_B[0])) == pytest.approx(product, rel=1e-4)


def test_a_wider_beam_never_finds_a_less_probable_answer_and_ranks_the_others() -> None:
    _, oracle = random_model()
    asked = ["Where was Ada Ash born?", "Where was Bob Elm born?"]
    greedy, wide = oracle.answer(asked), oracle.answer(asked, beam=4)
    assert all(w.confidence >= g.confidence * (1 - 1e-4) for g, w in zip(greedy, wide, strict=True))
    assert all(len(one.others) == 3 for one in wide)
    ranked = [wide[0].confidence, *(p for _, p in wide[0].others)]
    assert ranked == sorted(ranked, reverse=True)
    together, alone = oracle.answer(asked)[1], oracle.answer(asked[1:])[0]
    assert together.text == alone.text
    assert together.confidence == pytest.approx(alone.confidence, rel=1e-4)


def test_questions_that_leave_no_room_are_refused() -> None:
    model, oracle = random_model()
    with pytest.raises(UserError, match="leave room for its answer"):
        answer_questions(model, oracle.tokenizer, ["a" * 120], context=96)
    with pytest.raises(UserError, match="beam must be at least 1"):
        oracle.answer(["Where?"], beam=0)


def test_the_curve_and_the_calibration_error_are_those_of_a_hand_sum() -> None:
    confidence, right = [0.9, 0.9, 0.4, 0.2], [True, False, True, False]
    curve = coverage_curve(confidence, right)
    assert curve == [(0.9, 0.5, 0.5), (0.4, 0.75, pytest.approx(2 / 3)), (0.2, 1.0, 0.5)]
    assert threshold_for(curve, 0.6) == curve[1]
    assert threshold_for(curve, 0.9) is None
    bins = reliability([*confidence, 1.0], [*right, True])
    assert list(bins[-1]) == pytest.approx([3, 2.8 / 3, 2 / 3])  # 1.0 belongs to the last bin
    by_hand = (abs(2.8 - 2) + abs(0.4 - 1) + abs(0.2 - 0)) / 5
    assert calibration_error(bins) == pytest.approx(by_hand)
    result = answered(confidence, right).to_json()
    assert (result["exact_match"], result["questions"]) == (0.5, 4)
    assert json.loads(json.dumps(result))["curve"][-1] == [0.2, 1.0, 0.5]


# ---------------------------------------------------------------------- files of facts


@pytest.mark.parametrize("name", ["facts.db", "facts.csv", "facts.tsv", "deep/new.sqlite"])
def test_what_is_stored_is_found_whatever_the_case_and_the_last_counts(tmp_path: Path, name: str) -> None:
    facts = open_file_of_facts(tmp_path / name)
    assert facts.find("Ada Ash") is None
    assert facts.pairs() == []
    assert not (tmp_path / name).exists()  # looking makes nothing
    facts.store("Ada  Ash", "Rome, Italy")
    facts.store("Bob; DROP TABLE facts; --", "O\"slo's")
    facts.store("ada ash", "Bern")
    again = open_file_of_facts(tmp_path / name)
    assert again.find("ADA ASH") == "Bern"
    assert again.find("Bob; DROP TABLE facts; --") == "O\"slo's"
    assert again.find("x' OR '1'='1") is None
    assert again.pairs() == [("ada ash", "Bern"), ("Bob; DROP TABLE facts; --", "O\"slo's")]


def test_any_sqlite_file_serves_and_looking_cannot_change_it(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE other (a TEXT, b TEXT)")
        base.execute('CREATE TABLE "born in" (id INTEGER PRIMARY KEY, "who ""is""" TEXT, town TEXT)')
        base.execute('INSERT INTO "born in" VALUES (1, ?, ?)', (" Ada Ash ", "Rome"))
    base.close()
    before = path.read_bytes()
    path.chmod(0o444)
    facts = open_file_of_facts(path, "born in", ('who "is"', "town"))
    assert facts.find("ada ash") == "Rome"
    assert path.read_bytes() == before
    for table, columns, message in (("nope", (), "no table 'nope'"), ("born in", ("x", "town"), "no column 'x'")):
        with pytest.raises(UserError, match=message):
            open_file_of_facts(path, table, columns).find("Ada Ash")
    with pytest.raises(UserError, match="two columns"):
        open_file_of_facts(path, "other", ("a",))


def test_a_csv_keeps_its_other_columns_and_junk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("id,person,town\n1,Ada Ash,Rome\n", encoding="utf-8-sig")
    facts = open_file_of_facts(path, columns=("person", "town"))
    facts.store("Bob Elm", "Oslo, Norway")
    with open(path, newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["id", "person", "town"], ["1", "Ada Ash", "Rome"],
                                          ["", "Bob Elm", "Oslo, Norway"]]  # fmt: skip
    (tmp_path / "junk.db").write_bytes(b"\xff\xfe\x00junk")
    with pytest.raises(UserError, match="neither SQLite nor CSV"):
        open_file_of_facts(tmp_path / "junk.db").find("Ada")
    with pytest.raises(UserError, match="is a folder"):
        open_file_of_facts(tmp_path)


# ---------------------------------------------------------------------- who answers


def nobody(question: str) -> str:
    raise AssertionError("the user must not be asked")


def test_the_model_answers_if_it_is_sure_then_the_file_then_the_user(tmp_path: Path) -> None:
    _, oracle = random_model()
    (own,) = oracle.answer(["Where was Ada Ash born?"])
    assert own.text
    assert 0 < own.confidence < 1

    def reply(facts: Facts | None, ask: Callable[[str], str] | None, threshold: float) -> tuple[str | None, str, bool]:
        (one,) = replies_to(oracle, ["Where was Ada Ash born?"], Rules(threshold, facts, ask))
        assert (one.guess, one.confidence) == (own.text, own.confidence)
        return one.answer, one.source, one.stored

    sure, unsure, facts = own.confidence, 1.0, open_file_of_facts(tmp_path / "facts.db")
    assert reply(facts, nobody, sure) == (own.text, "model", False)  # exactly at the threshold it is believed
    assert reply(facts, None, unsure) == (None, "nobody", False)
    assert reply(facts, lambda question: "", unsure) == (None, "nobody", False)
    assert reply(None, lambda question: "Lima", unsure) == ("Lima", "user", False)
    assert facts.pairs() == []
    assert reply(facts, lambda question: " Lima\n", unsure) == ("Lima", "user", True)
    assert reply(facts, nobody, unsure) == ("Lima", "facts", False)
    assert pairs_in(oracle, facts) == [Pair("Where was Ada Ash born?", "Lima")]


def test_a_name_alone_is_asked_about_as_all_questions_are() -> None:
    _, oracle = random_model()
    alone, asked = replies_to(oracle, ["Ada Ash", "where was Ada Ash born?"], Rules())
    assert (alone.guess, alone.confidence) == (asked.guess, asked.confidence)
    with pytest.raises(UserError, match="there is no question"):
        replies_to(oracle, ["  "], Rules())
    with pytest.raises(UserError, match="threshold is a probability"):
        Rules(threshold=50)


# ---------------------------------------------------------------------- the whole way


def write_facts(folder: Path, known: Knowledge) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text("\n".join(known.text))
    for part, pairs in (("train", known.train), ("dev", (*known.dev, *known.never))):
        (folder / f"{part}.tsv").write_text("\n".join("\t".join(pair) for pair in pairs))
    return str(folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("facts")
    source = write_facts(root / "people", people(16))
    flags = "--pretrain-passes 20 --pretrain-batch 12 --passes 40 --batch 8 --rate 0.002".split()
    flags += ["--width", "32", "--layers", "2", "--heads", "2", "--context", "96"]
    assert main(["train", "facts", source, *flags, "--out", str(root / "run"), "--json"]) == 0
    return root / "run"


def test_after_pretraining_a_name_is_followed_by_its_place() -> None:
    names = ("Ada Ash", "Bob Elm", "Cleo Fir", "Dan Oak", "Eve Yew", "Finn Bay")
    pairs = [(name, PLACES[n % len(PLACES)]) for n, name in enumerate(names)]
    text = tuple(f"{name} was born in {place} ." for name, place in pairs)
    known = Knowledge("six", text, people().train, people().dev)
    model, tokenizer = fresh_model(known, replace(TINY, context=64), 0)
    recipe = facts_recipe(pretrain_epochs=400, pretrain_batch_size=12, pretrain_learning_rate=0.01, context=64)
    loop = train_alone(TASK.stage(recipe, FactsRun(model, tokenizer), known, CPU, 0), recipe, CPU)
    assert loop.position.step == 200
    model = loop.trained_model().eval()
    choices = [tokenizer.encode(place.encode()).tolist() for place in PLACES]
    found = []
    for name, _ in pairs:
        prompt = tokenizer.encode(f"{name} was born in ".encode()).tolist()
        found.append(PLACES[int(log_probability(model, [prompt] * len(PLACES), choices).argmax())])
    assert found == [place for _, place in pairs]  # by chance, one time in 4,096


def test_without_pretraining_answers_are_learnt_by_heart_and_names_count_as_never_seen(tmp_path: Path) -> None:
    source = write_facts(tmp_path / "people", people(16))
    run = train_facts(source, facts_recipe(pretraining=False, batch_size=8, learning_rate=0.003))
    groups = run.record["result"]["groups"]
    assert [(stage["name"], stage["steps"]) for stage in run.record["training"]["stages"]] == [("finetuning", 75)]
    assert set(groups) == {FINETUNED, NEVER}
    assert groups[FINETUNED]["exact_match"] >= 0.75


def test_the_folder_is_that_of_any_gpt_and_has_a_page(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {file.name for file in trained.iterdir()} == {
        "config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "report.html", "state",
    }  # fmt: skip
    page = (trained / "report.html").read_text(encoding="utf-8")
    assert "Coverage and abstention" in page
    assert "--width 32" in page
    assert "<script" not in page
    assert main(["generate", str(trained), "--prompt", f"Where was Ada Ash born?{MARK}", "--max-tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("Where was Ada Ash born?")
    assert main(["resume", str(trained)]) == 2
    assert "is finished: it has trained for" in capsys.readouterr().err


def test_training_that_was_stopped_in_either_stage_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_facts(tmp_path / "people", people(16))
    recipe = facts_recipe(pretrain_epochs=4, pretrain_batch_size=12, epochs=4, batch_size=8, dropout=0.1)
    whole = train_facts(source, recipe)
    step = Loop.step
    for stage, where in ((0, 3), (1, 2)):

        def killed(loop: Loop, spent: float, stage: int = stage, where: int = where) -> None:
            if (loop.position.stage, loop.position.step) == (stage, where):
                raise KeyboardInterrupt
            step(loop, spent)

        monkeypatch.setattr(Loop, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            train_facts(source, recipe, tmp_path / "run")  # the same command resumes it
        monkeypatch.undo()
        with pytest.raises(UserError, match="not trained to its end"):
            answering_run(octavo.load(tmp_path / "run"))
    resumed = octavo.resume(tmp_path / "run")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])
    assert resumed.record["result"] == whole.record["result"]
    assert octavo.resume(tmp_path / "run", budget="30steps").record["training"]["steps"] == 30


def test_stored_pairs_are_learnt_and_the_old_ones_kept(trained: Path, tmp_path: Path) -> None:
    oracle = answering_run(octavo.load(trained))
    (never,) = [pair for pair in people(16).never if oracle.answer([pair.question])[0].text != "Lima"][:1]
    new = [Pair(never.question, "Lima")]
    result = learn(oracle, new, steps=60, out=tmp_path / "learnt", quiet=True)
    assert (result["before"]["new"], result["after"]["new"]) == (0.0, 1.0)
    again = answering_run(octavo.load(tmp_path / "learnt"))
    assert again.answer([never.question])[0].text == "Lima"
    kept = measure(again, open_knowledge(again.record["corpus"]["source"][0]), True)
    assert kept["groups"][FINETUNED]["exact_match"] >= 0.75


def test_the_command_answers_looks_up_abstains_and_learns(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = tmp_path / "facts.csv"
    open_file_of_facts(facts).store("Zed Yew", "Oslo")
    known = people(16).train[0]
    ask = ["answer", str(trained), known.question, "--facts", str(facts)]
    assert main([*ask, "--threshold", "0"]) == 0
    out, err = capsys.readouterr()
    assert "the model, with confidence" in err
    assert out.strip() in PLACES
    assert main(["answer", str(trained), "Zed Yew", "--facts", str(facts), "--threshold", "1"]) == 0
    assert capsys.readouterr().out == "Oslo\n"
    assert main([*ask, "--threshold", "1"]) == 0  # standard input is no terminal, so nobody is asked
    assert capsys.readouterr().out == "I do not know.\n"
    assert main(["answer", str(trained), "Zed Yew", "--threshold", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["answer"], result["from"]) == (None, "nobody")
    questions = tmp_path / "questions.tsv"
    questions.write_text(f"{known.question}\t{known.answer}\nWhere was Zed Yew born?\tOslo\n")
    assert main(["answer", str(trained), "--file", str(questions), "--facts", str(facts), "--threshold", "0.99"]) == 0
    assert "Where was Zed Yew born?\tOslo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["Where?", "--learn"], "give one thing to do"),
        (["--learn"], "name the file of stored pairs"),
        (["Where?", "--threshold", "2"], "threshold is a probability"),
        (["Where?", "--beam", "0"], "beam must be at least 1"),
    ],
)
def test_a_mistake_is_reported_in_one_line(
    trained: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["answer", str(trained), *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_was_not_taught_facts_does_not_answer(tmp_path: Path) -> None:
    model, oracle = random_model()
    with pytest.raises(UserError, match="was not trained to answer questions"):
        answering_run(Run(model, oracle.tokenizer, {}))
    with pytest.raises(UserError, match=r"facts\.frame must be two strings"):
        answering_run(FactsRun(model, oracle.tokenizer, {"facts": {"frame": [1]}}))


def test_bad_settings_are_refused_before_anything_is_read() -> None:
    for name, value in (("span", 0.9), ("mixed", 1.0), ("pretrain_epochs", 0), ("learning_rate", 0.0)):
        with pytest.raises(UserError, match=f"{name} must be"):
            TASK.recipe("facts", {name: value})
    with pytest.raises(UserError, match="learning_rate must be"):
        FactsConfig(pretrain_learning_rate=0.0)


def test_the_doctor_examines_a_facts_run_by_the_history_of_its_stages(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["doctor", str(trained), "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert not {"baselines", "softmax", "context"} & set(found)  # these are of language models
    vocab = octavo.load(trained).tokenizer.vocab
    assert f"{math.log(vocab):.2f}" in found["start"]["expected"]
