"""Two domains: hand sums, groups that add up to the whole, the same bytes for every model, and honest denominators."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from html_pages import HOSTILE, Page
from octavo.cli.domains import domains
from octavo.cli.flags import run_command
from octavo.config import plain_json
from octavo.errors import Stopped, UserError
from octavo.experiments.domains import run as domains_run
from octavo.experiments.domains.page import domains_page
from octavo.experiments.domains.result import ModelResult, perplexity
from octavo.experiments.domains.run import CANDIDATES
from octavo.experiments.domains.scoring import GROUPS, Reading, Vocabulary, excerpt, gap, read
from octavo.models import MODELS, Bag, NGram
from octavo.models.bag import BagConfig
from octavo.models.ngram import NGramConfig
from octavo.scoring.bits_per_byte import NOT_COMPARABLE, score_bytes, score_text
from octavo.tasks import api
from octavo.tasks.corpus import learnt_text
from octavo.tasks.language_page import character_start
from octavo.tasks.run import load
from octavo.text import Bpe, BpeSettings, Byte, Char, Split, Tokenizer, Word, text_in_memory
from octavo.text.overlap import PROBE_BYTES, overlap
from octavo.text.token_display import on_one_line
from octavo.text.tokenizers.closed_vocabulary import ClosedVocabulary
from octavo.training.loop import Loop

HOME = "the king and the queen sat by the fire while rain fell on every roof of the old town".split()
AWAY = "the album sold 2008 copies and the band <unk> toured every town of Québec by train".split()
TRAINING = "the cat sat. the cat ran."


def prose(words: list[str], count: int, seed: int) -> str:
    """Lines of random words; capitals, so that a step such as `lower` has something to do."""
    choose = random.Random(seed)
    lines = [" ".join(choose.choices(words, k=8)).capitalize() + " ." for _ in range(count)]
    return "\n".join(lines) + "\n"


def bag(tokenizer: Tokenizer, text: bytes, k: float = 1.0) -> Bag:
    x_N = torch.tensor([tokenizer.begin, *tokenizer.encode(text).tolist()])
    return Bag.fit(x_N, BagConfig(k=k), tokenizer.vocab)


def learn(text: str) -> Vocabulary:
    return Vocabulary.learn(text_in_memory(text))


def reading(data: str, training: str = TRAINING, steps: tuple[str, ...] = (), k: float = 1.0) -> Reading:
    model = bag(Byte(), training.encode(), k)
    return read(model, Byte(), excerpt("away", data.encode(), steps), learn(training))


def sizes(found: Reading) -> dict[str, int]:
    return {group.name: group.bytes for group in found.groups}


def test_bits_and_perplexities_are_the_hand_sum() -> None:
    found = reading("a cé")
    # Add-one over 256 bytes: of 25 training bytes 4 are a, 5 are spaces, 2 are c, and the two bytes of é never came.
    bits = sum(-math.log2((count + 1) / (25 + 256)) for count in (4, 5, 2, 0, 0))
    assert [TRAINING.count(c) for c in "a c"] == [4, 5, 2]
    assert found.bits == pytest.approx(bits, rel=1e-12)
    assert (found.tokens, found.bytes, found.characters) == (5, 5, 4)
    assert found.bits_per_byte == pytest.approx(bits / 5)
    assert found.token_perplexity == pytest.approx(2 ** (bits / 5))
    assert found.character_perplexity == pytest.approx(2 ** (bits / 4))
    assert found.label == ""


def test_each_byte_is_in_the_group_of_its_character_and_word() -> None:
    found = reading("the rat é sat")
    # the: as frequent as in training. " rat": letters known, word not. " é": the space goes with an unknown word, the
    # two bytes of é are out of the alphabet. " sat": 1 of 4 words here, 1 of 8 there, which is not five times as often.
    assert sizes(found) == {"out of alphabet": 2, "out of vocabulary": 4 + 1, "domain words": 0, "common": 3 + 4}


def test_a_known_word_five_times_as_frequent_is_a_domain_word() -> None:
    five_of_eight = "ran ran ran ran ran cat the cat"  # 5/8 is five times 1/8
    assert sizes(reading(five_of_eight))["domain words"] == len("ran ran ran ran ran")
    five_of_nine = f"{five_of_eight} the"
    assert sizes(reading(five_of_nine))["domain words"] == 0


def test_a_word_is_known_with_and_without_the_space_before_it() -> None:
    assert " ran" in TRAINING
    assert sizes(reading("ran the cat. the cat"))["out of vocabulary"] == 0


def tokenizers() -> list[Tokenizer]:
    chunks = text_in_memory(prose(HOME, 200, 0)).chunks
    return [Byte(), Char.learn(chunks()), Word.learn(chunks()), Bpe.learn(chunks(), BpeSettings(300))]


@pytest.mark.parametrize("tokenizer", tokenizers(), ids=lambda one: one.name)
@pytest.mark.parametrize("steps", [(), ("lower",), ("ptb",)])
def test_the_groups_sum_to_the_score_of_eval(tokenizer: Tokenizer, steps: tuple[str, ...]) -> None:
    training = prose(HOME, 200, 0)
    x_N = torch.tensor([tokenizer.begin, *tokenizer.encode(training.encode()).tolist()], dtype=torch.int32)
    model = NGram.fit(x_N, NGramConfig(order=3), tokenizer.vocab, tokenizer.newline)
    text = excerpt("away", prose(AWAY, 30, 1).encode(), steps)
    found = read(model, tokenizer, text, learn(training))
    claimed = score_text(model, tokenizer, text_in_memory(text.data), "")
    assert found.bits == pytest.approx(claimed.bits, rel=1e-12)
    assert math.fsum(group.bits for group in found.groups) == pytest.approx(claimed.bits, rel=1e-12)
    assert math.fsum(map(found.cost, found.groups)) == pytest.approx(found.bits_per_byte, rel=1e-12)
    assert sum(group.bytes for group in found.groups) == len(text.data) == found.scored_bytes
    assert (found.tokens, found.unknown_rate) == (claimed.tokens, claimed.unknown_rate)
    assert all(group.bytes for group in found.groups[:2])


def test_the_groups_have_the_same_bytes_whatever_the_tokens_are() -> None:
    training = prose(HOME, 200, 0)
    text, vocabulary = excerpt("away", prose(AWAY, 30, 1).encode()), learn(training)
    found = [sizes(read(bag(t, training.encode()), t, text, vocabulary)) for t in tokenizers()]
    assert found.count(found[0]) == 4


def test_a_token_shares_its_bits_evenly_among_its_bytes() -> None:
    word = Word([b"the"])
    model = bag(word, b"the the")
    score, bits_N = score_bytes(model, word, text_in_memory("the!"), "")
    assert (score.tokens, score.impossible) == (2, 0)
    assert bits_N[0] == bits_N[1] == bits_N[2] < bits_N[3]
    assert bits_N.sum() == pytest.approx(score_text(model, word, text_in_memory("the!"), "").bits, rel=1e-12)


@pytest.mark.parametrize("steps", [(), ("lower",), ("ptb",)])
def test_the_shares_of_the_gap_sum_to_the_gap(steps: tuple[str, ...]) -> None:
    training = prose(HOME, 300, 0)
    home, away = (reading(prose(words, 40, 1), training, steps) for words in (HOME, AWAY))
    shares = gap(home, away)
    assert list(shares) == list(GROUPS)
    assert sum(shares.values()) == pytest.approx(away.bits_per_byte - home.bits_per_byte, rel=1e-9)
    assert shares["out of alphabet"] > 0


def test_the_gap_counts_what_a_byte_costs_beyond_the_home_average() -> None:
    home, away = reading("the cat"), reading("the cat é")
    surplus = sum(group.bits for group in away.groups[:1]) - 2 * home.bits_per_byte
    assert gap(home, away)["out of alphabet"] == pytest.approx(surplus / len("the cat é".encode()))


def test_a_text_has_no_gap_to_itself() -> None:
    found = reading("the rat é sat")
    assert gap(found, found) == dict.fromkeys(GROUPS, 0.0)


def test_the_preprocessed_text_is_divided_by_the_original_bytes() -> None:
    original = "The (cat) SAT."
    plain, preprocessed = reading(original), reading(original, steps=("ptb",))
    assert preprocessed.scored_bytes == len("The -LRB- cat -RRB- SAT .") != plain.scored_bytes
    assert preprocessed.bytes == plain.bytes == len(original)
    assert preprocessed.characters == plain.characters == len(original)
    model = bag(Byte(), TRAINING.encode())
    claimed = score_text(model, Byte(), text_in_memory("The -LRB- cat -RRB- SAT ."), "").bits
    assert preprocessed.bits_per_byte == pytest.approx(claimed / len(original), rel=1e-12)
    assert (plain.label, preprocessed.label) == ("", NOT_COMPARABLE)


def test_the_costliest_words_are_those_that_cost_most_beyond_the_average() -> None:
    found = reading("the rat éé sat éé")
    best = found.costliest[0]
    assert (best.word, best.group, best.count) == ("éé", "out of alphabet", 2)
    never, space = math.log2(281), math.log2(281 / 6)
    assert best.bits == pytest.approx(4 * never + space)  # the space before it is its own
    assert best.excess == pytest.approx(2 * (4 * never + space) - 10 * found.bits / found.bytes)
    assert [c.excess for c in found.costliest] == sorted((c.excess for c in found.costliest), reverse=True)


def test_what_is_impossible_is_infinite_and_null_in_json() -> None:
    found = reading("the rat é", k=0.0)
    assert found.bits_per_byte == math.inf
    assert found.impossible == 2
    record = json.dumps(found.to_json(), allow_nan=False)
    assert '"bits_per_byte": null' in record
    assert found.costliest == ()
    assert all(math.isnan(share) for share in gap(reading("the"), found).values())


@pytest.mark.parametrize(
    "change", [{"bits": "many"}, {"tokens": None}, {"groups": [{}]}, {"costliest": [{"word": "a"}]}, {"steps": [1]}]
)
def test_a_damaged_reading_is_refused(change: dict[str, Any]) -> None:
    found = reading("the rat é a dog")
    record = plain_json(found)
    assert Reading.of(record) == found
    with pytest.raises((UserError, TypeError, ValueError)):
        Reading.of(record | change)


def test_marks_for_removed_words_are_counted_and_scored() -> None:
    found = reading("the <unk> sat <unk>")
    assert found.unk_marks == 2
    assert found.unk_mark_bits == pytest.approx(2 * sum(-math.log2((TRAINING.count(c) + 1) / 281) for c in "<unk>"))


def test_a_lossy_tokenizer_is_refused() -> None:
    closed = ClosedVocabulary(["the", "</s>", "<unk>", "<s>"])
    with pytest.raises(UserError, match="tokenizer closed loses some of the text"):
        score_bytes(bag(closed, b"the"), closed, text_in_memory("the cat"), "")


@pytest.mark.parametrize(
    ("original", "steps", "why"), [(b"", (), "it has no bytes"), (b"  ", ("ptb",), "leave nothing")]
)
def test_an_empty_excerpt_is_refused(original: bytes, steps: tuple[str, ...], why: str) -> None:
    with pytest.raises(UserError, match=why):
        excerpt("wiki", original, steps)


def test_no_character_is_cut_in_two() -> None:
    assert character_start("aéb".encode(), 2) == 1
    assert character_start("aéb".encode(), 3) == 3
    assert b"ab"[: character_start(b"ab", 9)] == b"ab"


def test_copied_text_is_found_across_blocks_and_short_text_never() -> None:
    training = prose(HOME, 100, 0)
    split = text_in_memory(training)
    inside = training[500:2500].encode()
    halves = [Split(split.text, 0, 1501), Split(split.text, 1501, split.end)]
    assert overlap((block for half in halves for block in half.chunks()), inside) == 1.0
    assert overlap(split.chunks(), inside + prose(HOME, 50, 9).encode()[:2000]) == pytest.approx(0.5, abs=0.1)
    assert overlap(split.chunks(), prose(HOME, 50, 9).encode()) == 0.0
    assert overlap(split.chunks(), inside[: PROBE_BYTES - 1]) == 0.0


# The command.


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "plays.txt").write_text(prose(HOME, 600, 0), encoding="utf-8")
    (folder / "wiki.txt").write_text(prose(AWAY, 500, 1), encoding="utf-8")
    return str(folder / "plays.txt"), str(folder / "wiki.txt")


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {
        "kn3-chars": ("ngram", {"tokenizer": "char", "order": 3}),
        "kn2-words": ("ngram", {"tokenizer": "word", "order": 2}),
        "dream": ("no-such-model-yet", {}),
    }
    monkeypatch.setattr(domains_run, "CANDIDATES", few)


def command(*args: str) -> None:
    run_command(domains, "octavo domains", args)


@pytest.mark.usefixtures("few_candidates")
def test_the_command_trains_measures_and_writes_a_page(
    texts: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "domains"
    command("--texts", *texts, "--bytes", "1500", "--out", str(out), "--json")
    record = json.loads(capsys.readouterr().out)
    names = ["kn3-chars", "kn3-chars-lower", "kn2-words", "kn2-words-lower"]
    assert [Path(model["run"]).name for model in record["models"]] == names
    held = Path(texts[0]).read_bytes()
    held = held[len(held) * 9 // 10 :][:1500]
    for model in record["models"]:
        home, away = model["readings"]
        run = load(model["run"])
        assert home["bytes"] == away["bytes"] == 1500
        assert home["bits_per_byte"] == pytest.approx(api.evaluate(run, held).bits / 1500, rel=1e-12)
        assert sum(model["gap_by_group"].values()) == pytest.approx(model["gap"], rel=1e-9)
        assert home["label"] == (NOT_COMPARABLE if "lower" in model["run"] else "")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert record["page"] == str(out / "report.html")
    parsed = Page(page)
    assert not re.search(r"https?://|<script|src=", page)
    assert all((out / link).is_file() for name, link in parsed.attributes if name == "href")
    for model in record["models"]:
        assert all(f"{one['bits_per_byte']:.4f}" in parsed.text for one in model["readings"])


def test_a_model_that_learns_while_it_reads_is_marked_in_table_page_and_json(
    texts: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("adaptive-ngram", "ngram"):
        api.train(name, texts[0], order=2, out=tmp_path / name, measure=False)
    runs = [str(tmp_path / name) for name in ("adaptive-ngram", "ngram")]
    flags = (*runs, "--texts", *texts, "--bytes", "500", "--out", str(tmp_path / "d"))
    command(*flags)
    printed = capsys.readouterr().out
    assert all(shown in printed for shown in ("adaptive-ngram †", "†: adaptive"))
    assert printed.count("ngram †") == 2  # of both texts; the fixed model has no mark
    command(*flags, "--json")
    models = json.loads(capsys.readouterr().out)["models"]
    assert [[one["adaptive"] for one in model["readings"]] for model in models] == [[True, True], [False, False]]
    shown = Page((tmp_path / "d" / "report.html").read_text(encoding="utf-8")).text
    assert all(words in shown for words in ("adaptive-ngram †", "†: adaptive"))


@pytest.mark.usefixtures("few_candidates")
def test_finished_runs_are_used_again_and_changed_ones_are_trained_anew(
    texts: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--texts", *texts, "--bytes", "300", "--out", str(tmp_path / "d"), "--preprocess")

    def begun(error: str) -> list[str]:
        return re.findall(r"^\d of \d: ([\w-]+)", error, re.MULTILINE)

    command(*flags, "lower")
    assert begun(capsys.readouterr().err) == ["kn3-chars", "kn3-chars-lower", "kn2-words", "kn2-words-lower"]
    trained = (tmp_path / "d" / "kn3-chars" / "model.safetensors").stat().st_mtime_ns
    command(*flags, "lower")
    again = capsys.readouterr()
    assert begun(again.err) == []
    assert "\n*: not comparable" in again.out
    (tmp_path / "d" / "kn2-words" / "model.safetensors").unlink()  # half a run is not a finished one
    command(*flags)
    assert begun((plain := capsys.readouterr()).err) == ["kn2-words"]
    assert "not comparable" not in plain.out
    command(*flags, "--bytes", "200")  # other excerpts are scored again, and nothing is trained for them
    assert begun(capsys.readouterr().err) == ["kn3-chars", "kn2-words"]
    assert (tmp_path / "d" / "kn3-chars" / "model.safetensors").stat().st_mtime_ns == trained
    command(*flags, "--seed", "1")
    assert begun(capsys.readouterr().err) == ["kn3-chars", "kn2-words"]
    assert (tmp_path / "d" / "kn3-chars" / "model.safetensors").stat().st_mtime_ns > trained


def test_a_candidate_that_was_stopped_is_resumed(
    texts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"tokenizer": "char", "width": 8, "batch_size": 4, "checkpoint_seconds": 0.0}
    monkeypatch.setattr(domains_run, "CANDIDATES", {"rnn-chars": ("rnn", settings)})
    flags = ("--texts", *texts, "--bytes", "300", "--out", str(tmp_path / "d"), "--budget", "4steps", "--preprocess")
    step, steps = Loop.step, []

    def stopped(loop: Loop, spent: float) -> None:
        steps.append(loop.position.step)
        if len(steps) == 3:
            raise KeyboardInterrupt
        step(loop, spent)

    monkeypatch.setattr(Loop, "step", stopped)
    with pytest.raises(Stopped, match="0 of 1 are finished and stored; resume with: octavo domains --texts "):
        command(*flags)
    assert load(tmp_path / "d" / "rnn-chars").record["training"]["finished"] is False
    command(*flags)
    assert load(tmp_path / "d" / "rnn-chars").record["training"]["finished"] is True
    assert steps == [0, 1, 2, 2, 3]
    assert "bits/byte" in capsys.readouterr().out


def test_named_runs_are_measured_as_they_were_trained(
    texts: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, steps in (("plain", ()), ("lowered", ("lower",))):
        api.train("bag", texts[0], tokenizer="word", preprocess=steps, out=tmp_path / name)
    command(str(tmp_path / "plain"), str(tmp_path / "lowered"), "--texts", *texts, "--out", str(tmp_path / "out"))
    shown = capsys.readouterr().out
    assert re.search(r"^plain +plays\.txt .*\d\.\d{4} +\d+\.\d%$", shown, re.MULTILINE)
    assert re.search(r"^lowered +plays\.txt .*\d\.\d{4}\* +\d+\.\d%$", shown, re.MULTILINE)
    assert "literal <unk> marks" in shown
    assert [line for line in shown.splitlines() if len(line.rstrip()) > 88 and "/" not in line] == []


@pytest.mark.usefixtures("few_candidates")
def test_runs_of_one_name_are_distinguished_and_runs_in_the_tables_own_folder_stay(
    texts: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--texts", *texts, "--bytes", "300", "--out", str(tmp_path / "d"))
    command(*flags, "--preprocess")
    api.train("bag", texts[0], out=tmp_path / "kn3-chars")
    capsys.readouterr()
    command(str(tmp_path / "d" / "kn3-chars"), str(tmp_path / "kn3-chars"), *flags, "--json")
    first, second = json.loads(capsys.readouterr().out)["models"]
    assert (first["run"], second["run"]) == (str(tmp_path / "d" / "kn3-chars"), str(tmp_path / "kn3-chars"))
    assert first["readings"][0]["bits"] < second["readings"][0]["bits"]
    assert load(tmp_path / "d" / "kn3-chars").model.config.order == 3
    command(*flags, "--preprocess")
    assert f"finished in {tmp_path / 'd'} already: " in capsys.readouterr().err


def test_a_run_trained_on_the_excerpt_is_refused(texts: tuple[str, str], tmp_path: Path) -> None:
    api.train("bag", texts[0], valid=[texts[1]], out=tmp_path / "cheat")
    with pytest.raises(UserError, match=r"cheat was trained on the excerpt of plays\.txt itself \(100% of it\)"):
        command(str(tmp_path / "cheat"), "--texts", *texts, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_run_that_has_seen_a_part_of_the_excerpt_is_warned_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = prose(HOME, 300, 0)
    held_out = train[:800] + prose(HOME, 200, 7)[:3200]  # the last tenth: a fifth of it stands in the training text
    contents = {"train": train, "valid": prose(HOME, 9, 5), "away": prose(AWAY, 200, 1),
                "mixed": prose(HOME, 1500, 9)[:36_000] + held_out}  # fmt: skip
    for name, content in contents.items():
        (tmp_path / f"{name}.txt").write_text(content, encoding="utf-8")
    api.train("bag", tmp_path / "train.txt", valid=[str(tmp_path / "valid.txt")], out=tmp_path / "some")
    files = (str(tmp_path / "mixed.txt"), str(tmp_path / "away.txt"))
    command(str(tmp_path / "some"), "--texts", *files, "--out", str(tmp_path / "out"))
    assert re.search(
        r"some: (1[5-9]|2[0-5])% of the excerpt of mixed\.txt is in its training text", capsys.readouterr().err
    )
    assert "so its result is too good" in Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8")).text


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["no/such/run"], "is not a run"),
        (["--bytes", "0"], "--bytes must be at least 1"),
        (["--preprocess", "shout"], "no preprocessing step named 'shout'"),
        (["a-run", "--preprocess", "digits"], "a named run keeps its own"),
        (["--texts", "TEXT"], "must be two different texts"),
        (["--texts", "TEXT", "TEXT"], "must be two different texts"),
        (["--texts", "TEXT", "-"], "standard input can be read once"),
        (["--texts", "TEXT", "no-such-text"], "no source of that name"),
    ],
)
def test_mistakes_are_refused_before_any_training(
    flags: list[str], why: str, texts: tuple[str, str], tmp_path: Path
) -> None:
    named = [texts[0] if flag == "TEXT" else flag for flag in flags]
    named += [] if "--texts" in flags else ["--texts", *texts]
    with pytest.raises(UserError, match=why):
        command(*named, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_run_is_refused(texts: tuple[str, str], tmp_path: Path) -> None:
    api.train("bag", texts[0], out=tmp_path / "bag")
    with pytest.raises(UserError, match="is there already and is not a domains table; choose another --out"):
        command("--texts", *texts, "--out", str(tmp_path / "bag"))


def test_a_run_whose_text_is_gone_or_changed_is_refused(texts: tuple[str, str], tmp_path: Path) -> None:
    source = tmp_path / "own.txt"
    source.write_text(prose(HOME, 50, 3), encoding="utf-8")
    run = api.train("bag", source, out=tmp_path / "bag")
    assert learnt_text(run).read() == source.read_bytes()[: source.stat().st_size * 9 // 10]
    source.write_text(prose(HOME, 50, 4), encoding="utf-8")
    with pytest.raises(UserError, match=r"own\.txt has changed since bag was trained"):
        learnt_text(run)
    with pytest.raises(UserError, match="does not say what it was trained on"):
        learnt_text(replace(run, record={}))


def test_the_candidates_have_words_characters_and_bytes_of_models_that_exist() -> None:
    assert {settings["tokenizer"] for _, settings in CANDIDATES.values()} == {"byte", "char", "word"}
    assert all(model in MODELS for model, _ in CANDIDATES.values())


# The page and its figure.


def measured(name: str, home: str, away: str, k: float = 1.0) -> ModelResult:
    model = bag(Byte(), TRAINING.encode(), k)
    readings = [read(model, Byte(), excerpt(name, text.encode()), learn(TRAINING)) for text in (home, away)]
    return ModelResult(name, name, name, readings[0], readings[1])


@pytest.mark.parametrize("k", [1.0, 0.0])
def test_the_page_is_safe_with_any_text_and_with_infinite_bits(k: float) -> None:
    found = [measured(HOSTILE, HOSTILE, "the <unk> cat", k)]
    page = domains_page(
        found, [(HOSTILE, HOSTILE.encode()), ("b", b"the <unk> cat")], Path("x"), HOSTILE, {HOSTILE: HOSTILE}
    )
    parsed = Page(page)
    assert "failed: " in parsed.text
    assert not re.search(r"<script|<img|\x1b|\x00", page)
    assert ("infinite" in parsed.text) == (k == 0.0)
    assert "1 literal <unk> marks" in parsed.text


def test_numbers_and_words_are_shown_with_all_their_digits_and_marks() -> None:
    shown: list[Any] = [perplexity(value) for value in (4.49, 48.7, 1234.56, 98765.4, math.inf)]
    assert shown == ["4.490", "48.70", "1235", "98,765", "infinite"]
    assert on_one_line("a\n\x1b") == "a⏎\\x1b"


@pytest.mark.data("shakespeare", "wikitext-2")
def test_a_word_model_has_the_larger_perplexity_and_fewer_bits_on_shakespeare(data_root: Path) -> None:
    texts = [str(data_root / name) for name in ("shakespeare/input.txt", "wikitext-2/test.txt")]
    readings = {}
    for name, order in (("word", 3), ("char", 5)):
        run = api.train("ngram", texts[0], tokenizer=name, order=order, measure=False)
        training = Vocabulary.learn(learnt_text(run))
        plays = Path(texts[0]).read_bytes()
        for text, data in (("plays", plays[len(plays) * 9 // 10 :]), ("wiki", Path(texts[1]).read_bytes())):
            found = read(run.model, run.tokenizer, excerpt(text, data[: character_start(data, 20_000)]), training)
            readings[name, text] = found
    assert readings["word", "plays"].token_perplexity > 10 * readings["char", "plays"].token_perplexity
    assert readings["word", "plays"].bits_per_byte < readings["char", "plays"].bits_per_byte
    assert readings["word", "wiki"].bits_per_byte > readings["char", "wiki"].bits_per_byte
    assert np.isclose(readings["char", "plays"].bits_per_byte, 2.151, atol=5e-4)
