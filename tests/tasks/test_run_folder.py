"""The run folder: what is saved is what is loaded, a kill leaves the last good one, and nothing foreign gets in."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import octavo
from octavo.cli import main
from octavo.errors import UserError
from octavo.io.run_folder import BOARD, CONFIG, OURS, REPORT, SAMPLES, STATE, TENSORS, TOKENIZER, check_out, find_runs
from octavo.io.tensors import write_tensors
from octavo.scoring import range_coder as coder
from octavo.tasks.run import Run, load

TEXT = "she sells sea shells by the sea shore; the shells she sells are sea shells, I'm sure.\n" * 20


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and one run of each kind and tokenizer; tests copy what they change."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text(TEXT)
    for name, model, settings in (
        ("bag", "bag", {}), ("kn3", "ngram", {"order": 3}), ("kn2", "ngram", {"order": 2}),
        ("char", "ngram", {"order": 3, "tokenizer": "char"}), ("word", "ngram", {"order": 2, "tokenizer": "word"}),
        ("bpe", "ngram", {"order": 2, "tokenizer": "bpe", "vocab_size": 300}),
        ("lines", "ngram", {"order": 3, "sentences": True}),
        ("bigram", "bigram", {"dim": 4, "hidden": 4, "steps": 20}),
        ("gru", "gru", {"width": 8, "layers": 1, "batch_size": 4, "budget": "3steps", "device": "cpu"}),
    ):  # fmt: skip
        octavo.train(model, folder / "text.txt", out=folder / name, **settings)
    octavo.train("mix", folder / "text.txt", parts=[folder / "kn3", folder / "bag"], out=folder / "mix")
    return folder


ALL = ("bag", "kn3", "char", "word", "bpe", "lines", "bigram", "gru", "mix")


def copied(runs: Path, tmp_path: Path, name: str = "kn3") -> Path:
    return Path(shutil.copytree(runs / name, tmp_path / name))


@pytest.mark.parametrize("name", ALL)
def test_a_loaded_run_answers_to_the_last_bit_as_the_trained_one(runs: Path, tmp_path: Path, name: str) -> None:
    first = load(runs / name)
    again = load(runs / name).save(tmp_path / "again")
    loaded = load(tmp_path / "again")
    for text in ("sea shells", "Zürich\r\n", ""):
        assert octavo.evaluate(first, text).bits == octavo.evaluate(loaded, text).bits
    assert octavo.generate(first, "she", 20, seed=3) == octavo.generate(loaded, "she", 20, seed=3)
    assert first.identity == again.identity == loaded.identity
    assert first.record == loaded.record


def test_the_object_that_was_trained_and_the_one_loaded_agree(runs: Path, tmp_path: Path) -> None:
    trained = octavo.train("ngram", runs / "text.txt", order=4, out=tmp_path / "run")
    loaded = octavo.load(tmp_path / "run")
    assert octavo.evaluate(trained, runs / "text.txt").bits == octavo.evaluate(loaded, runs / "text.txt").bits
    assert trained.identity == loaded.identity
    assert trained.record["result"] == loaded.record["result"]


@pytest.mark.parametrize("name", ALL)
def test_a_flipped_bit_of_the_weights_is_refused(runs: Path, tmp_path: Path, name: str) -> None:
    run = copied(runs, tmp_path, name)
    data = bytearray((run / TENSORS).read_bytes())
    data[-3] ^= 1
    (run / TENSORS).write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        load(run)


def test_files_of_another_run_are_refused(runs: Path, tmp_path: Path) -> None:
    run = copied(runs, tmp_path, "kn3")
    shutil.copy(runs / "kn2" / TENSORS, run)
    with pytest.raises(UserError, match=r"model\.safetensors is not the file that was saved with this run"):
        load(run)


def test_a_run_without_hashes_is_read_and_verbose_says_so(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(runs, tmp_path)
    record = json.loads((run / CONFIG).read_text())
    assert record["sha256"].keys() == {"tensors", "tokenizer"}
    del record["sha256"]
    (run / CONFIG).write_text(json.dumps(record))
    assert main(["eval", str(run), str(runs / "text.txt"), "--verbose"]) == 0
    assert "was saved without hashes" in capsys.readouterr().err


def test_tables_that_are_no_probabilities_give_no_score_where_their_hash_is_right(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(runs, tmp_path)
    tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(run / TENSORS).items()}
    digest = write_tensors(tensors | {"alpha_M": 50 * tensors["alpha_M"]}, run / TENSORS)
    record = json.loads((run / CONFIG).read_text())
    record["sha256"]["tensors"] = digest
    (run / CONFIG).write_text(json.dumps(record))
    assert main(["eval", str(run), str(runs / "text.txt")]) == 2
    said = capsys.readouterr()
    assert "must have probabilities that sum to 1" in said.err
    assert not said.out


def test_an_archive_opens_with_a_copy_of_the_run_and_with_no_other(runs: Path, tmp_path: Path) -> None:
    first, copy, other = load(runs / "kn3"), load(copied(runs, tmp_path)), load(runs / "kn2")
    archive = coder.compress_bytes(first.model, first.tokenizer, TEXT.encode(), first.identity)
    assert coder.decompress_bytes(copy.model, copy.tokenizer, archive, copy.identity) == TEXT.encode()
    with pytest.raises(UserError, match="opens only with the model that wrote it"):
        coder.decompress_bytes(other.model, other.tokenizer, archive, other.identity)


def test_identities_tell_models_settings_and_tokenizers_apart(runs: Path) -> None:
    assert len({load(runs / name).identity for name in (*ALL, "kn2")}) == len(ALL) + 1


def test_one_changed_number_changes_the_identity(runs: Path) -> None:
    run = load(runs / "kn3")
    before = run.identity
    run.model.alpha_M = run.model.alpha_M.clone()
    run.model.alpha_M[5] += 1e-3
    assert Run(run.model, run.tokenizer).identity != before


def test_the_tensors_are_plain_safetensors(runs: Path) -> None:
    tensors = safetensors.torch.load_file(runs / "mix" / TENSORS)
    own = load(runs / "mix").model.state_dict()
    assert set(tensors) == set(own)
    assert all(torch.equal(tensors[key], own[key]) for key in own)


def test_the_files_of_a_run_are_the_documented_ones(runs: Path) -> None:
    assert set(os.listdir(runs / "kn3")) == set(OURS) - {STATE, BOARD}
    record = json.loads((runs / "kn3" / CONFIG).read_text())
    assert record["corpus"]["valid"]["bytes"] == record["result"]["bytes"] == len(TEXT) - len(TEXT) * 9 // 10


def test_a_run_whose_names_are_not_utf8_is_saved_and_loaded(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.raw")
    (tmp_path / name).write_bytes(b"\xff\xfewords \xff\xfewords " * 50)
    made = octavo.train("ngram", tmp_path / name, order=2, tokenizer="word", errors="raw", out=tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert loaded.record["corpus"]["source"] == [str(tmp_path / name)]
    assert loaded.identity == made.identity


# --- where a run may be written


def test_a_run_replaces_a_run(runs: Path, tmp_path: Path) -> None:
    place = copied(runs, tmp_path)
    load(runs / "bag").save(place)
    assert load(place).identity == load(runs / "bag").identity
    assert not (place / REPORT).exists()


def make_file(place: Path) -> None:
    place.write_text("mine")


def make_folder_with_a_file(place: Path) -> None:
    place.mkdir()
    (place / "thesis.txt").write_text("mine")


def make_checkpoint_of_others(place: Path) -> None:
    place.mkdir()
    (place / CONFIG).write_text('{"model_type": "gpt2"}')
    (place / TENSORS).write_bytes(b"mine")


def make_damaged_run(place: Path) -> None:
    place.mkdir()
    (place / CONFIG).write_text('{"octavo": "0.1", "form')


def make_run_with_something_in_it(place: Path) -> None:
    Run(octavo.models.Bag(octavo.models.bag.BagConfig(), 257), octavo.text.Byte()).save(place)  # type: ignore[attr-defined]
    (place / "my notes.txt").write_text("mine")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_file, "is there already and is not a run; choose another --out"),
        (make_folder_with_a_file, "is there already and is not a run; choose another --out"),
        (make_checkpoint_of_others, "is there already and is not a run; choose another --out"),
        (make_damaged_run, "is there already and is not a run; choose another --out"),
        (make_run_with_something_in_it, "holds what octavo did not put there: my notes.txt; move that"),
    ],
)
def test_what_is_not_a_run_is_refused_and_left_as_it_is(
    runs: Path, tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "place")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=message):
        load(runs / "bag").save(tmp_path / "place")
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert os.listdir(tmp_path) == ["place"]


def test_a_bad_place_is_refused_before_any_work_is_done(runs: Path, tmp_path: Path) -> None:
    make_folder_with_a_file(tmp_path / "mine")
    with pytest.raises(UserError, match="is not a run; choose another --out"):
        octavo.train("ngram", tmp_path / "there is no such text", out=tmp_path / "mine")
    with pytest.raises(UserError, match=r"cannot write .*thesis.txt is not a folder"):
        octavo.train("ngram", tmp_path / "there is no such text", out=tmp_path / "mine" / "thesis.txt" / "run")
    with pytest.raises(UserError, match="seed must be from 0"):
        octavo.train("ngram", tmp_path / "there is no such text", seed=-1)


def test_an_empty_or_new_folder_will_do(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "new" / "deep" / "run"):
        check_out(place)
        load(runs / "bag").save(place)
        assert load(place).path == place


# --- a kill at any moment

KILLED_AT_EVERY_MOMENT = """
import os, signal, sys
from octavo.tasks.run import load
first, second, place = load(sys.argv[1]), load(sys.argv[2]), sys.argv[3]
first.save(place)
moment, seen = 0, set()
while True:
    moment += 1
    child = os.fork()
    if not child:
        left = moment
        def count(event, args):
            global left
            if event.split(".")[0] in ("open", "os", "shutil", "tempfile", "fcntl", "ctypes", "glob"):
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        second.save(place)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    found = load(place).identity
    seen.add(found)
    assert found in (first.identity, second.identity), moment
    others = [name for name in os.listdir(os.path.dirname(place)) if name != os.path.basename(place)]
    assert all(name.startswith(".") and name.endswith((".part", ".lock")) for name in others), (moment, others)
    if status == 0:
        break
    first.save(place)
    assert os.listdir(os.path.dirname(place)) == [os.path.basename(place)], moment  # the next one sweeps
assert len(seen) == 2
print(moment)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, which can exchange two folders in one step")
def test_a_kill_at_any_moment_leaves_the_old_run_or_the_new_one(runs: Path, tmp_path: Path) -> None:
    place = tmp_path / "place" / "run"
    command = [sys.executable, "-c", KILLED_AT_EVERY_MOMENT, runs / "kn2", runs / "bag", place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20  # so many moments there were


# --- truncated, foreign and forged folders


@pytest.mark.parametrize("name", [CONFIG, TOKENIZER, TENSORS])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99, -1])
def test_a_truncated_or_missing_file_is_refused(runs: Path, tmp_path: Path, name: str, kept: float) -> None:
    for run in ("kn3", "word", "mix"):
        place = copied(runs, tmp_path, run)
        data = (place / name).read_bytes()
        if kept < 0:
            (place / name).unlink()
        else:
            (place / name).write_bytes(data[: int(len(data) * kept)])
        with pytest.raises(UserError) as caught:
            load(place)
        assert str(place) in str(caught.value)


def changed(place: Path, file: str, keys: str, value: Any) -> None:
    """Set one value, addressed like 'config.order', in a JSON file."""
    record = json.loads((place / file).read_text())
    *above, last = keys.split(".")
    inner = record
    for key in above:
        inner = inner[int(key)] if isinstance(inner, list) else inner[key]
    inner[last] = value
    (place / file).write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("run", "keys", "value", "message"),
    [
        ("kn3", "format", 3, "format 3, this octavo reads up to 2"),
        ("kn3", "model", "transformer", "damaged or foreign"),
        ("kn3", "model", ["ngram"], "damaged: model is"),
        ("kn3", "model", "bag", "damaged or foreign"),
        ("kn3", "config.depth", 3, "has no setting 'depth'"),
        ("kn3", "config.order", "3", "order must be a whole number: order='3'"),
        ("kn3", "config.order", 10**9, "order must be at most 64"),
        ("kn3", "config", 3, "damaged or foreign"),
        ("kn3", "vocab", 258, "the model knows 258 tokens, the tokenizer 257"),
        ("kn3", "vocab", -5, "the model knows -5 tokens"),
        ("bag", "vocab", 10**12, "the tokenizer 257"),
        ("kn3", "vocab", 257.0, "the model knows 257.0 tokens"),
        ("kn3", "vocab", None, "the model knows None tokens"),
        ("lines", "newline", "\n", r"newline is '\\n'"),
        ("lines", "newline", 9999, "newline is 9999"),
        ("mix", "parts", 7, "damaged or foreign"),
        ("mix", "parts", [], "damaged or foreign"),
        ("mix", "parts", [{"model": "mix"}], "damaged or foreign"),
        ("mix", "parts.1.vocab", 10**12, "the tokenizer 257"),
        ("mix", "config.rounds", -3, "rounds must be at least 0"),
        ("kn3", "corpus", "shakespeare", "damaged: corpus is"),
        ("kn3", "corpus.source", [1], "corpus.source must be a list of strings"),
        ("kn3", "corpus.valid.bytes", "many", "damaged: corpus.valid.bytes is"),
        ("kn3", "result.bits_per_byte", "good", "damaged: result.bits_per_byte is"),
        ("kn3", "result.bits_per_byte", -2.85, "no model needs -2.85 bits per byte"),
        ("kn3", "result", [], "damaged: result is"),
        ("kn3", "preprocess", {"lower": 1}, "damaged: preprocess is"),
        ("kn3", "train_seconds", True, "damaged: train_seconds is true"),
        ("gru", "config.width", 1 << 16, "embedding_VD must have the shape"),  # gigabytes, were they taken
        ("gru", "config.width", 10**18, "width must be at most"),
        ("gru", "config.layers", 4096, "layers=4,096, the file has 6 tensors"),
        ("gru", "config.layers", 10**12, "layers must be at most"),
        ("gru", "config.layers", 2, "it is of another model"),
        ("gru", "config.tied", False, "it is of another model"),
        ("gru", "model", "lstm", "it is of another model"),
        ("bigram", "config.hidden", 1 << 16, "must have the shape"),
    ],
)
def test_a_config_that_was_tampered_with_is_refused(
    runs: Path, tmp_path: Path, run: str, keys: str, value: Any, message: str
) -> None:
    place = copied(runs, tmp_path, run)
    changed(place, CONFIG, keys, value)
    with pytest.raises(UserError, match=message):
        load(place)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "NaN", '{"octavo": NaN}', "\udcff", "[" * 100_000, '"tokenizer.json"', "7", "{}"]
)
@pytest.mark.parametrize("name", [CONFIG, TOKENIZER])
def test_json_that_describes_nothing_is_refused(runs: Path, tmp_path: Path, name: str, text: str) -> None:
    place = copied(runs, tmp_path)
    (place / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match="kn3"):
        load(place)


@pytest.mark.parametrize(
    ("run", "keys", "value"),
    [
        ("kn3", "octavo_tokenizer", "nonsense"),
        ("char", "characters", "ba"),
        ("char", "characters", 3),
        ("word", "words", ["the", "the"]),
        ("word", "words", "the"),
        ("word", "split", "sideways"),
        ("bpe", "tokenizer", None),
        ("bpe", "tokenizer.model", {"type": "BPE"}),
    ],
)
def test_a_tokenizer_that_was_tampered_with_is_refused(
    runs: Path, tmp_path: Path, run: str, keys: str, value: Any
) -> None:
    place = copied(runs, tmp_path, run)
    changed(place, TOKENIZER, keys, value)
    with pytest.raises(UserError, match=run):
        load(place)


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The address of every value inside a JSON value; of a list, the first two."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    return [place for key, item in inside for place in ((*above, key), *places(item, (*above, key)))]


@pytest.mark.parametrize(
    ("run", "file"), [("mix", CONFIG), ("lines", CONFIG), ("char", TOKENIZER), ("word", TOKENIZER)]
)
def test_whatever_one_value_is_changed_to_there_is_no_traceback(
    runs: Path, tmp_path: Path, run: str, file: str
) -> None:
    place = copied(runs, tmp_path, run)
    text = (place / file).read_text()
    refused = 0
    for address in places(json.loads(text)):
        for value in (None, -1, 10**12, "x", [], {}, True):
            record = json.loads(text)
            inner = record
            for key in address[:-1]:
                inner = inner[key]
            inner[address[-1]] = value
            (place / file).write_text(json.dumps(record))
            try:
                load(place).summary()
            except UserError:
                refused += 1
    assert refused > 10


class Bomb:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


@pytest.mark.parametrize("name", [CONFIG, TOKENIZER, TENSORS])
def test_a_pickle_is_refused_and_never_run(runs: Path, tmp_path: Path, name: str) -> None:
    place, trace = copied(runs, tmp_path), tmp_path / "it ran"
    data = pickle.dumps(Bomb(str(trace)))
    pickle.loads(data).close()
    assert trace.exists()  # the bomb is live
    trace.unlink()
    for bomb in (data, b""):
        if bomb:
            (place / name).write_bytes(bomb)
        else:
            torch.save({"x": Bomb(str(trace))}, place / name)
        with pytest.raises(UserError):
            load(place)
        assert not trace.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {key: value for key, value in t.items() if key != "alpha_M"},
        lambda t: t | {"more": torch.zeros(3)},
        lambda t: t | {"word_M": t["word_M"].float()},
        lambda t: t | {"word_M": t["word_M"][:-1]},
        lambda t: t | {"word_M": t["word_M"] + 10_000},
        lambda t: t | {"first_C": t["first_C"].flip(0)},
        lambda t: {},
    ],
)
def test_tensors_of_another_shape_are_refused(
    runs: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    place = copied(runs, tmp_path)
    tensors = change(safetensors.torch.load_file(place / TENSORS))
    safetensors.torch.save_file({key: value.contiguous() for key, value in tensors.items()}, place / TENSORS)
    with pytest.raises(UserError, match="kn3"):
        load(place)


def test_a_folder_in_place_of_a_file_is_refused(runs: Path, tmp_path: Path) -> None:
    for name in (CONFIG, TOKENIZER, TENSORS):
        place = copied(runs, tmp_path)
        (place / name).unlink()
        (place / name).mkdir()
        with pytest.raises(UserError, match="kn3"):
            load(place)
        shutil.rmtree(place)


def test_what_is_no_run_names_the_runs_nearby(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"kn4 is not a run: it has no config.json; did you mean .*kn3\?"):
        load(runs / "kn4")
    with pytest.raises(UserError, match=r"weather is not a run: it has no config.json; runs here: .*bag.*"):
        load(runs / "weather")
    with pytest.raises(UserError, match="make one with octavo train"):
        load(tmp_path / "nothing")


def test_runs_are_found_one_and_two_levels_down_but_not_in_hidden_folders(runs: Path, tmp_path: Path) -> None:
    for place in ("a", "deep/b", ".a.x.part", "too/deep/c"):
        shutil.copytree(runs / "bag", tmp_path / place)
    assert find_runs(tmp_path) == [tmp_path / "a", tmp_path / "deep" / "b"]
    assert find_runs(tmp_path / "no such folder") == []


def test_a_large_texts_tokens_leave_no_trace(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.tasks.corpus.MAX_BYTES_IN_MEMORY", 10)
    (tmp_path / "run.json").write_text("mine")
    made = octavo.train("ngram", runs / "text.txt", order=3, out=tmp_path / "run")
    assert made.identity == load(runs / "kn3").identity
    assert sorted(os.listdir(tmp_path)) == ["run", "run.json"]
    assert (tmp_path / "run.json").read_text() == "mine"


def test_the_sample_is_what_the_seed_gives(runs: Path) -> None:
    run = load(runs / "kn3")
    assert (runs / "kn3" / SAMPLES).read_text() == octavo.generate(run, "", 300, seed=0)
