"""The command line: results on standard output alone, one line for a mistake, exit codes 0, 1 and 2."""

from __future__ import annotations

import ast
import bz2
import gzip
import inspect
import io
import json
import lzma
import math
import os
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zstandard

import octavo
from octavo.cli import VERBS, main
from octavo.models import MODELS
from octavo.models.parts.config import GPTConfig
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimizerConfig

FOREIGN = "not runs, but read like them (Hugging Face)"
TEXT = "The owl and the pussycat went to sea in a beautiful pea-green boat.\nThey took some honey, naïve café.\n" * 12


class Done(NamedTuple):
    code: int
    out: str
    err: str


Octavo = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Octavo:
    """octavo in this process."""

    def call(*words: object) -> Done:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Done(code, *capsys.readouterr())

    return call


def shell(*words: object, data: bytes = b"", **more: Any) -> subprocess.CompletedProcess[bytes]:
    """octavo in a process of its own."""
    command = [sys.executable, "-m", "octavo.cli", *map(str, words)]
    return subprocess.run(command, input=data, capture_output=True, timeout=120, check=False, **more)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and three runs."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    octavo.train("ngram", folder / "text.txt", order=3, out=folder / "runs" / "kn3")
    octavo.train("ngram", folder / "text.txt", order=2, tokenizer="word", out=folder / "runs" / "word")
    octavo.train("bag", folder / "text.txt", k=0.0, out=folder / "runs" / "mle")
    return folder


def json_of(done: Done) -> Any:
    """The one JSON value on standard output."""
    assert done.code == 0, done.err
    assert "NaN" not in done.out
    assert "Infinity" not in done.out
    return json.loads(done.out)


def refused(done: Done, *parts: str) -> None:
    """A user's mistake: exit code 2, one line on standard error, nothing else."""
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("octavo: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    assert "Traceback" not in done.err
    for part in parts:
        assert part in done.err


# --- exit codes


def test_train_tells_of_every_model_what_it_is(run: Octavo) -> None:
    listed = [line.split()[0] for line in run("train", "--help").out.splitlines() if line.startswith("  ")]
    presets = {name for spec in MODELS.values() for name in spec.presets}
    assert set(listed) == {*MODELS, *presets, "facts"}


def test_help_of_a_transformer_breaks_no_line_before_its_end(run: Octavo) -> None:
    config_docs = [name for name, doc in attribute_docs(GPTConfig, LoopConfig, OptimizerConfig) if "\n" in doc]
    assert config_docs == []  # which the help would keep
    assert run("train", "gpt", "--help").code == 0


def attribute_docs(*classes: type) -> Iterator[tuple[str, str]]:
    """The string after each field of the classes."""
    for cls in classes:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        for one, after in pairwise(body.body):
            if isinstance(one, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                yield ast.unparse(one.target), str(after.value.value)


def test_list_leaves_out_what_others_made_without_calling_it_damaged(run: Octavo, here: Path, tmp_path: Path) -> None:
    shutil.copytree(here / "runs" / "kn3", tmp_path / "kn3")
    (tmp_path / "kn3-hf").mkdir()
    (tmp_path / "kn3-hf" / "config.json").write_text('{"model_type": "llama"}')
    done = run("list", tmp_path)
    assert str(tmp_path / "kn3 ") in done.out
    assert "hf" not in done.out
    assert done.err == f"{FOREIGN}: {tmp_path / 'kn3-hf'}\n"


def test_help_and_version_are_results(run: Octavo) -> None:
    for words in ((), ("--help",), ("-h",), ("help",)):
        done = run(*words)
        assert (done.code, done.err) == (0, "")
        assert all(f"  {verb} " in done.out for verb in VERBS)
    assert run("--version") == (0, f"octavo {octavo.__version__}\n", "")


@pytest.mark.parametrize("words", [[verb] for verb in VERBS if verb not in ("data", "train")] + [
    ["data"], ["train"], ["train", "ngram"], ["train", "bag"], ["train", "mix"],
    ["data", "list"], ["data", "get"], ["data", "show"],
])  # fmt: skip
def test_every_verb_has_help_with_an_example(run: Octavo, words: list[str]) -> None:
    done = run(*words, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"octavo {' '.join(words)} " in " ".join(done.out.split())
    assert "xample: octavo" in done.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["evla"], "there is no verb 'evla'; did you mean eval?"),
        (["zzz"], "there is no verb 'zzz'; see octavo --help"),
        (
            ["train", "trasnformer", "x"],
            "there is no model 'trasnformer'; models are bag, ngram, ppm, adaptive-ngram, ctw, bigram, nnlm, "
            "rnn, gru, lstm, rnn-attention, mingru, minlstm, lru, rglru, hmm, hmm-em, conv, gpt, local, linear, "
            "synthesizer, retention, gla, mamba2, deltanet, gated-deltanet, mlstm, mix, adaptive-mix",
        ),
        (["data", "gte"], "there is no action 'gte'; did you mean get?"),
        (["data", "zzz"], "there is no action 'zzz'; the actions of octavo data are list, get, show, bin, duplicates"),
        (["data", "show", "shakespear"], "shakespeare"),
        (["data", "show", "shakespeare", "--lines", "-1"], "lines must not be negative"),
        (["eval", "no/such/run"], "no/such/run is not a run"),
        (["generate", "no/such/run"], "is not a run"),
        (["inspect", "no/such/run"], "is not a run"),
        (["compress", "no/such/run", "no/such/file", "x"], "cannot read no/such/file"),
        (["list", "no/such/folder"], "there is no folder no/such/folder"),
        (["train", "ngram"], "a corpus needs at least one file"),
        (["train", "ngram", "no/such/file"], "there is no file or folder no/such/file"),
        (["train", "ngram", "x" * 5000], "File name too long"),
        (["train", "ngram", "x", "--order", "0"], "order must be at least 1: order=0"),
        (["train", "bag", "x", "--k", "-1"], "k must be at least 0 and at most 1e+09: k=-1.0"),
        (["train", "ngram", "x", "--seed", "-1"], "seed must be from 0"),
        (["train", "gpt", "x", "--head-decay", "fixed"], "head_decay belongs to attention linear"),
        (["train", "gpt", "x", "--latent-width", "9"], "latent_width belongs to attention latent"),
        (["train", "gpt", "x", "--experts-per-token", "4"], "belongs to a mixture of experts: experts=0, "),
        (["train", "gpt", "x", "--attention-window", "8"], "attention_window belongs to attention local or strided"),
        (["train", "gpt", "x", "--features", "relu"], "features=relu; leave it out, or try --attention linear"),
        (["train", "gpt", "x", "--heads", "128"], "128 / 128; try --heads 64 or --positions none"),
        (["train", "ngram", "x", "--out", "/dev/null/run"], "cannot write /dev/null/run"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    run: Octavo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(run(*words), part)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "words",
    [
        ["eval"], ["eval", "run", "--bogus"], ["generate", "run", "--max-tokens", "many"], ["compress", "run"],
        ["generate", "run", "--method", "magic"], ["train", "ngram", "x", "--ordr", "3"], ["train", "mix", "x"],
        ["train", "ngram", "x", "--estimator", "magic"], ["list", "a", "b"], ["data", "get", "a", "b"],
    ],
)  # fmt: skip
def test_wrong_flags_exit_with_2_and_say_so_on_standard_error_alone(run: Octavo, words: list[str]) -> None:
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err
    assert "Traceback" not in done.err


def test_a_bug_of_ours_is_a_traceback_and_exit_code_1(run: Octavo, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("octavo.cli.eval.score_text", broken)
    done = run("eval", here / "runs" / "kn3")
    assert (done.code, done.out) == (1, "")
    assert "ZeroDivisionError: ours" in done.err
    assert done.err.splitlines()[-1].startswith("octavo: that was a bug in octavo")


def test_an_interrupt_and_a_lack_of_memory_are_one_line(
    run: Octavo, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, code in ((KeyboardInterrupt(), 130), (MemoryError(), 2), (RuntimeError("can't allocate memory"), 2)):

        def stop(*words: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("octavo.cli.eval.score_text", stop)
        done = run("eval", here / "runs" / "kn3")
        assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)


# --- processes of their own


def test_standard_output_holds_results_and_the_process_exits_as_documented(here: Path) -> None:
    done = shell("eval", here / "runs" / "kn3", here / "text.txt", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    score = json.loads(done.stdout)
    assert {"bits_per_byte", "bits", "bytes", "tokens", "perplexity", "seconds"} <= set(score)
    wrong = shell("eval", here / "runs" / "kn4")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count(b"\n")) == (2, b"", 1)


def test_progress_is_shown_on_a_terminal_and_never_among_the_results(here: Path) -> None:
    terminal, ours = os.openpty()
    command = [sys.executable, "-m", "octavo.cli", "eval", here / "runs" / "kn3", here / "text.txt", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=ours, timeout=60, check=False)
    os.close(ours)
    shown = os.read(terminal, 1 << 16)
    os.close(terminal)
    assert done.returncode == 0
    assert json.loads(done.stdout)["bytes"] == len(TEXT.encode())
    assert b"scoring" in shown


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which only Linux has")
def test_a_full_disk_under_standard_output_is_one_line(here: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "octavo.cli", "data", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, b"octavo: No space left on device\n")


def test_a_reader_that_goes_away_is_no_error(here: Path) -> None:
    for words in (["data", "list"], ["data", "list", "--json"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        command = [sys.executable, "-m", "octavo.cli", *words]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(writer)
        assert (done.returncode, done.stderr) == (0, b""), words


def test_a_terminal_that_knows_only_ascii_gets_valid_json(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    words = ("generate", str(here / "runs" / "kn3"), "--prompt", "naïve", "--max-tokens", "3")
    assert main([*words, "--json"]) == 0
    assert json.loads(raw.getvalue().decode("ascii"))["prompt"] == "naïve"
    assert main(words) == 0
    assert b"na\\xefve" in raw.getvalue()


# --- text in all its forms


def train(run: Octavo, source: Path, *words: object) -> dict[str, Any]:
    done = run("train", "ngram", source, "--order", 2, "--out", source.parent / "out", "--json", *words)
    assert "Traceback" not in done.err
    value: dict[str, Any] = json_of(done)
    return value


@pytest.mark.parametrize(
    ("data", "part"),
    [(b"", "there is no text in"), (b"x", "the text is too small to be split"), (b"\n", "too small to be split")],
)
def test_an_empty_or_tiny_file_is_refused_for_training(run: Octavo, tmp_path: Path, data: bytes, part: str) -> None:
    (tmp_path / "tiny").write_bytes(data)
    refused(run("train", "ngram", tmp_path / "tiny", "--out", tmp_path / "out"), part)
    assert os.listdir(tmp_path) == ["tiny"]


@pytest.mark.parametrize("model", ["bag", "ngram"])
@pytest.mark.parametrize("data", [b"ab", b"aaaaaaaaaaaa", b"ab" * 8, bytes(20), b"\n" * 30])
def test_the_smallest_texts_that_can_be_split_train(run: Octavo, tmp_path: Path, model: str, data: bytes) -> None:
    (tmp_path / "small").write_bytes(data)
    result = json_of(run("train", model, tmp_path / "small", "--out", tmp_path / "out", "--json"))
    assert result["bytes"] == len(data) - len(data) * 9 // 10
    assert math.isfinite(result["bits"])


def test_one_byte_can_be_scored_and_nothing_cannot(run: Octavo, here: Path, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"T")
    assert json_of(run("eval", here / "runs" / "kn3", tmp_path / "one", "--json"))["tokens"] == 1
    (tmp_path / "none").write_bytes(b"")
    refused(run("eval", here / "runs" / "kn3", tmp_path / "none"), "there is no text in")


def test_text_of_one_token_trains(run: Octavo, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("aaa" * 40)
    result = json_of(run(
        "train", "ngram", tmp_path / "one", "--tokenizer", "word", "--min-count", 1, "--out", tmp_path / "o", "--json"
    ))  # fmt: skip
    assert result["bytes"] == 12


@pytest.mark.parametrize("tokenizer", ["char", "word", "bpe"])
def test_wrong_encoding_is_refused_with_its_place(run: Octavo, tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait " * 20)
    words = ("train", "ngram", tmp_path / "latin.txt", "--tokenizer", tokenizer, "--out", tmp_path / "out")
    refused(run(*words), "must be UTF-8: byte 3 of", "latin.txt (0xe9)")
    done = run(*words, "--errors", "replace", "--json")
    assert json_of(done)["label"] == "not comparable"


def test_a_score_of_replaced_bytes_is_labelled(run: Octavo, here: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait\n")
    kn3, word = here / "runs" / "kn3", here / "runs" / "word"
    refused(run("eval", word, tmp_path / "latin.txt"), "byte 3 of")
    assert json_of(run("eval", kn3, tmp_path / "latin.txt", "--json"))["label"] == ""
    assert (
        json_of(run("eval", word, tmp_path / "latin.txt", "--errors", "replace", "--json"))["label"] == "not comparable"
    )
    assert json_of(run("eval", word, tmp_path / "latin.txt", "--errors", "raw", "--json"))["label"] == ""
    assert (
        "not comparable: information was lost" in run("eval", word, tmp_path / "latin.txt", "--errors", "replace").out
    )


def test_binary_junk_trains_scores_and_compresses_as_bytes(run: Octavo, tmp_path: Path) -> None:
    junk = random.Random(3).randbytes(400) + bytes(range(256))
    (tmp_path / "junk").write_bytes(junk)
    result = train(run, tmp_path / "junk")
    assert result["tokens"] == result["bytes"] == pytest.approx(len(junk) / 10, abs=4)  # not inside a character
    assert json_of(run("eval", tmp_path / "out", tmp_path / "junk", "--json"))["bytes"] == len(junk)
    assert run("compress", tmp_path / "out", tmp_path / "junk", tmp_path / "junk.oct").code == 0
    assert run("decompress", tmp_path / "out", tmp_path / "junk.oct", tmp_path / "back").code == 0
    assert (tmp_path / "back").read_bytes() == junk


@pytest.mark.parametrize("tokenizer", ["byte", "word"])
def test_one_huge_line_is_a_text_like_any_other(run: Octavo, tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "line").write_bytes(b"all on one line, no end in sight; " * 150_000)
    assert train(run, tmp_path / "line", "--tokenizer", tokenizer, "--order", 2)["bytes"] == 510_000
    assert json_of(run("eval", tmp_path / "out", tmp_path / "line", "--json"))["bytes"] == 5_100_000


def test_carriage_returns_are_bytes_like_any_other(run: Octavo, tmp_path: Path) -> None:
    text = "one line\r\nanother line\r\n" * 30
    (tmp_path / "dos.txt").write_bytes(text.encode())
    assert train(run, tmp_path / "dos.txt")["bytes"] == len(text) - len(text) * 9 // 10
    assert run("generate", tmp_path / "out", "--method", "greedy", "--max-tokens", 30).code == 0
    shown = run("inspect", tmp_path / "out", "--text", "e\r\na").out
    assert "\r" not in shown
    assert "\\r" in shown


def test_a_folder_is_its_texts_and_what_was_passed_over_is_reported(run: Octavo, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text(TEXT)
    (folder / "deep" / "b.txt").write_text("the end\n" * 60)
    (folder / "c.bin").write_bytes(bytes(100))
    done = run("train", "ngram", folder, "--order", 2, "--out", tmp_path / "out", "--json")
    assert json_of(done)["bytes"] == 480
    assert "passed over" in done.err
    assert "c.bin" in done.err


def test_a_folder_without_text_is_refused(run: Octavo, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    refused(run("train", "ngram", tmp_path / "folder", "--out", tmp_path / "out"), "has no text in it: no files")
    (tmp_path / "folder" / "c.bin").write_bytes(bytes(100))
    refused(run("train", "ngram", tmp_path / "folder", "--out", tmp_path / "out"), "has no text in it", "NUL")


def test_standard_input_is_a_text(run: Octavo, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give() -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))

    give()
    json_of(run("train", "ngram", "-", "--order", 3, "--out", tmp_path / "run", "--json"))
    assert octavo.load(tmp_path / "run").identity == octavo.load(here / "runs" / "kn3").identity
    give()
    piped = json_of(run("eval", here / "runs" / "kn3", "-", "--json"))
    assert piped["bits"] == json_of(run("eval", here / "runs" / "kn3", here / "text.txt", "--json"))["bits"]
    refused(run("eval", tmp_path / "run"), "was trained on standard input, which is gone; name a file")
    give()
    assert run("compress", here / "runs" / "kn3", "-", tmp_path / "a.oct").code == 0


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), (".zst", zstandard.compress)],
)
def test_compressed_texts_are_read_as_what_is_in_them(
    run: Octavo, here: Path, tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = tmp_path / f"text.txt{ending}"
    packed.write_bytes(pack(TEXT.encode()))
    plain = json_of(run("eval", here / "runs" / "kn3", here / "text.txt", "--json"))
    assert json_of(run("eval", here / "runs" / "kn3", packed, "--json"))["bits"] == plain["bits"]
    json_of(run("train", "ngram", packed, "--order", 3, "--out", tmp_path / "run", "--json"))
    assert octavo.load(tmp_path / "run").identity == octavo.load(here / "runs" / "kn3").identity
    packed.write_bytes(packed.read_bytes()[:-20])
    refused(run("eval", here / "runs" / "kn3", packed), "get a whole copy")


def test_json_lines_are_documents_of_the_named_field(run: Octavo, here: Path, tmp_path: Path) -> None:
    texts = ["The owl", "and the pussycat", "Ünïcode 🙂"]
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps({"body": text, "id": i}) + "\n" for i, text in enumerate(texts)))
    for name, text in enumerate(texts):
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    together = json_of(run("eval", here / "runs" / "kn3", lines, "--field", "body", "--json"))
    apart = json_of(run("eval", here / "runs" / "kn3", *(tmp_path / f"{i}.txt" for i in range(3)), "--json"))
    assert together["bits"] == pytest.approx(apart["bits"], rel=1e-12)
    assert together["bytes"] == apart["bytes"] == sum(len(text.encode()) for text in texts)
    refused(run("eval", here / "runs" / "kn3", lines), "line 1 of", "has no field 'text': it has body, id")
    lines.write_text('{"body": "x"}\nnot json\n')
    refused(run("eval", here / "runs" / "kn3", lines, "--field", "body"), "line 2 of", "is not JSON")


# --- where results are written


@pytest.mark.parametrize("verb", ["train", "compress"])
def test_a_place_that_cannot_be_written_is_refused(run: Octavo, here: Path, tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").write_text("mine")
    text, below = here / "text.txt", tmp_path / "file" / "below"
    words = (
        ("train", "bag", text, "--out", below) if verb == "train" else ("compress", here / "runs" / "kn3", text, below)
    )
    refused(run(*words), f"cannot write {below}")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_is_no_run_is_refused_and_left_as_it_is(run: Octavo, here: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    refused(run("train", "bag", here / "text.txt", "--out", tmp_path / "thesis"), "is not a run; choose another --out")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "mine"


LIMITED = """
import resource, sys
from octavo.cli import main
from octavo.io.files import whole_file
import octavo.tasks.api, octavo.cli.verbs, octavo.pages  # what writes caches has written them
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
sys.exit(main(sys.argv[1:]))
"""


def test_a_disk_that_takes_no_more_is_one_line_and_the_old_run_stays(here: Path, tmp_path: Path) -> None:
    octavo.train("bag", here / "text.txt", out=tmp_path / "run")
    before = octavo.load(tmp_path / "run").identity
    words = [sys.executable, "-c", LIMITED, "train", "ngram", here / "text.txt", "--force", "--out", tmp_path / "run"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr == f"octavo: File too large: {tmp_path / 'run'}\n"
    assert octavo.load(tmp_path / "run").identity == before
    assert os.listdir(tmp_path) == ["run"]


def test_an_archive_may_be_written_to_a_device(run: Octavo, here: Path) -> None:
    assert run("compress", here / "runs" / "kn3", here / "text.txt", "/dev/null").code == 0
    assert not Path("/dev/null").is_file()


# --- eval


def test_evals_json_has_the_promised_keys(run: Octavo, here: Path) -> None:
    score = json_of(run("eval", here / "runs" / "kn3", here / "text.txt", "--json"))
    assert {"bits_per_byte", "bits", "bytes", "tokens", "perplexity", "seconds", "policy", "label"} <= set(score)
    assert score["bits_per_byte"] == score["bits"] / score["bytes"]
    assert score["perplexity"] == pytest.approx(2 ** (score["bits"] / score["tokens"]))
    assert score["policy"] == "state carried from the first byte of each document to its last"


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("bag", {}), ("ngram", {"order": 3}), ("ngram", {"tokenizer": "word", "order": 2}),
        ("ngram", {"tokenizer": "bpe", "vocab_size": 300, "order": 2}), ("ngram", {"preprocess": ["lower", "digits"]}),
        ("ngram", {"errors": "replace", "order": 2}), ("ngram", {"tokenizer": "char", "sentences": True}),
    ],
)  # fmt: skip
def test_without_files_the_held_out_part_is_scored_as_in_the_record(
    run: Octavo, here: Path, tmp_path: Path, model: str, settings: dict[str, Any]
) -> None:
    octavo.train(model, here / "text.txt", out=tmp_path / "run", **settings)
    record = json.loads((tmp_path / "run" / "config.json").read_text())["result"]
    score = json_of(run("eval", tmp_path / "run", "--json"))
    same = ("bits", "bytes", "tokens", "bits_per_byte", "perplexity", "unknown_rate", "label", "policy", "impossible")
    assert {key: score[key] for key in same} == {key: record[key] for key in same}
    if "preprocess" not in settings:
        assert score["bytes"] == len(TEXT.encode()) - len(TEXT.encode()) * 9 // 10


def test_the_held_out_part_is_found_again_with_field_and_validation_files(run: Octavo, tmp_path: Path) -> None:
    for name, text in (("a", TEXT), ("v", "The owl and the cat.\n")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"body": text}) + "\n")
    words = ("--order", 2, "--field", "body", "--valid", tmp_path / "v.jsonl", "--out", tmp_path / "run", "--json")
    made = json_of(run("train", "ngram", tmp_path / "a.jsonl", *words))
    score = json_of(run("eval", tmp_path / "run", "--json"))
    assert (score["bits"], score["bytes"]) == (made["bits"], 21)


def test_a_text_that_has_changed_is_not_scored_as_the_old_one(run: Octavo, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    octavo.train("ngram", tmp_path / "text.txt", order=2, out=tmp_path / "run")
    (tmp_path / "text.txt").write_text(TEXT + "one more line")
    refused(run("eval", tmp_path / "run"), "text.txt has changed since run was trained; name a file")
    (tmp_path / "text.txt").unlink()
    refused(run("eval", tmp_path / "run"), "there is no file or folder")


def test_several_files_are_rows_and_a_total(run: Octavo, here: Path, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("The owl")
    files = (here / "text.txt", tmp_path / "b.txt")
    score = json_of(run("eval", here / "runs" / "kn3", *files, "--json"))
    assert [row["name"] for row in score["files"]] == list(map(str, files))
    assert score["bits"] == pytest.approx(sum(row["bits"] for row in score["files"]), rel=1e-14)
    assert score["bytes"] == len(TEXT.encode()) + 7
    assert score["bits_per_byte"] == score["bits"] / score["bytes"]
    table = run("eval", here / "runs" / "kn3", *files).out
    assert [line.split()[0] for line in table.splitlines()[2:5]] == [*map(str, files), "all"]
    assert "policy: state carried" in table


def test_infinite_bits_are_null_everywhere(run: Octavo, here: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("Zebra!")
    mle = here / "runs" / "mle"
    score = json_of(run("eval", mle, tmp_path / "new.txt", "--json"))
    assert (score["bits"], score["bits_per_byte"], score["perplexity"]) == (None, None, None)
    assert score["impossible"] > 0
    assert None in [token["bits"] for token in json_of(run("inspect", mle, "--text", "Zebra", "--json"))["surprisal"]]
    assert "infinite; smooth the model" in run("eval", mle, tmp_path / "new.txt").out
    refused(run("eval", mle, tmp_path / "new.txt", "--prove"), "probability zero", "smooth the model")
    (tmp_path / "abc.txt").write_text("a" * 90 + "b" * 10)
    made = json_of(run("train", "bag", tmp_path / "abc.txt", "--k", 0, "--out", tmp_path / "abc", "--json"))
    assert (made["bits"], made["impossible"]) == (None, 10)
    assert (
        json.loads((tmp_path / "abc" / "config.json").read_text(), parse_constant=pytest.fail)["result"]["bits"] is None
    )
    assert json_of(run("list", tmp_path, "--json"))[0]["result"]["bits_per_byte"] is None
    assert run("list", tmp_path).code == 0


def test_the_proof_restores_and_costs_what_was_claimed(run: Octavo, here: Path, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text(TEXT[:300])
    score = json_of(run("eval", here / "runs" / "kn3", tmp_path / "some.txt", "--prove", "--json"))
    (proof,) = score["proof"]
    assert proof["restored"] is True
    assert proof["claimed_bytes"] == score["bits"] / 8
    assert proof["archive_bytes"] <= proof["claimed_bytes"] * 1.001 + 64
    assert "restored to the byte" in run("eval", here / "runs" / "kn3", tmp_path / "some.txt", "--prove").out


def test_the_unknown_rate_is_shown_for_words(run: Octavo, here: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("The xylophone")
    score = json_of(run("eval", here / "runs" / "word", tmp_path / "new.txt", "--json"))
    assert 0 < score["unknown_rate"] < 1
    assert "words that the vocabulary lacks: " in run("eval", here / "runs" / "word", tmp_path / "new.txt").out


def test_a_name_that_is_not_utf8_is_shown_and_not_a_traceback(run: Octavo, here: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / name).write_text("The owl")
    table = run("eval", here / "runs" / "kn3", tmp_path / name)
    assert (table.code, table.err) == (0, "")
    assert "caf\\udce9.txt" in table.out
    assert json_of(run("eval", here / "runs" / "kn3", tmp_path / name, "--json"))["name"] == str(tmp_path / name)


# --- compress and decompress


def test_compress_and_decompress_give_the_file_back_as_json_says(run: Octavo, here: Path, tmp_path: Path) -> None:
    kn3, text, archive, back = here / "runs" / "kn3", here / "text.txt", tmp_path / "a.oct", tmp_path / "back"
    packed = json_of(run("compress", kn3, text, archive, "--json"))
    assert packed["archive_bytes"] == archive.stat().st_size
    assert packed["bytes"] == len(TEXT.encode())
    assert json_of(run("decompress", kn3, archive, back, "--json"))["bytes"] == len(TEXT.encode())
    assert back.read_bytes() == text.read_bytes()
    refused(
        run("decompress", here / "runs" / "mle", archive, tmp_path / "no"), "opens only with the model that wrote it"
    )
    archive.write_bytes(archive.read_bytes()[:-3])
    refused(run("decompress", kn3, archive, tmp_path / "no"), "damaged or cut off")
    refused(run("decompress", kn3, text, tmp_path / "no"), "not an octavo archive")
    assert not (tmp_path / "no").exists()


# --- generate


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("sample", ["--temperature", 0.7, "--top-k", 5, "--top-p", 0.9, "--min-p", 0.01]),
        ("greedy", []),
        ("beam", ["--width", 3, "--length-penalty", 0.5]),
        ("exact", ["--limit", 5000]),
    ],
)
def test_every_method_writes_through_the_command_line(
    run: Octavo, here: Path, method: str, flags: list[object]
) -> None:
    words = ("generate", here / "runs" / "kn3", "--prompt", "The ", "--max-tokens", 4, "--method", method, *flags)
    done = run(*words)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("The ")
    assert done.out.endswith("\n")
    assert len(done.out) == len("The ") + 4 + 1
    written = json_of(run(*words, "--json"))
    assert done.out == "The " + written["texts"][0] + "\n"
    assert (written["method"], written["prompt"]) == (method, "The ")


def test_seeds_reproduce_and_count_counts(run: Octavo, here: Path) -> None:
    def texts(seed: int, count: int = 3) -> list[str]:
        words = ("--max-tokens", 30, "--seed", seed, "--count", count, "--json")
        value: list[str] = json_of(run("generate", here / "runs" / "kn3", *words))["texts"]
        return value

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)
    assert len(set(texts(1))) == 3
    shown = run("generate", here / "runs" / "kn3", "--max-tokens", 30, "--seed", 1, "--count", 3).out
    assert shown == "\n---\n".join(texts(1)) + "\n"


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--count", 0], "count must be at least 1: count=0"),
        (["--max-tokens", -1], "max_tokens must be at least 0: max_tokens=-1"),
        (["--temperature", 0], "temperature must be above 0"),
        (["--method", "greedy", "--temperature", 1], "Greedy has no setting 'temperature'"),
        (["--method", "exact", "--limit", 2, "--max-tokens", 9], "exact search may expand at most limit=2"),
        (["--method", "beam", "--width", 0], "width must be at least 1"),
        (["--seed", 2**64], "seed must be from 0"),
    ],
)
def test_wrong_ways_to_write_are_refused(run: Octavo, here: Path, flags: list[object], part: str) -> None:
    refused(run("generate", here / "runs" / "kn3", *flags), part)


def test_streamed_text_is_utf8_also_where_a_token_is_half_a_character(run: Octavo, tmp_path: Path) -> None:
    text = "日本語、そして🙂。" * 40
    (tmp_path / "ja.txt").write_text(text, encoding="utf-8")
    octavo.train("ngram", tmp_path / "ja.txt", order=9, out=tmp_path / "ja", measure=False)
    done = run("generate", tmp_path / "ja", "--max-tokens", 61, "--method", "greedy")  # the last one is not whole
    assert (done.code, done.err) == (0, "")
    assert done.out == (text.encode() * 2)[:61].decode("utf-8", "replace") + "\n"
    assert done.out.endswith("\ufffd\n")


def test_prompts_of_any_bytes_are_continued(run: Octavo, here: Path) -> None:
    for name in ("kn3", "word"):
        for prompt, shown in (("日本 🙂 The", "日本 🙂 The"), (os.fsdecode(b"a\xff"), "a\ufffd")):
            words = ("generate", here / "runs" / name, "--prompt", prompt, "--max-tokens", 5)
            done = run(*words)
            assert (done.code, done.err) == (0, "")
            assert done.out.startswith(shown)
            assert json_of(run(*words, "--json"))["prompt"] == shown


# --- inspect, list, train, data


def test_inspect_shows_each_tokens_price_and_they_sum_to_evals(run: Octavo, here: Path, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("The owl\nnaïve")
    for name in ("kn3", "word"):
        tokens = json_of(run("inspect", here / "runs" / name, "--text", "The owl\nnaïve", "--json"))["surprisal"]
        bits = json_of(run("eval", here / "runs" / name, tmp_path / "some.txt", "--json"))["bits"]
        assert sum(token["bits"] for token in tokens) == pytest.approx(bits, rel=1e-12)
        table = run("inspect", here / "runs" / name, "--text", "The owl\nnaïve").out
        assert f"{bits:.1f} bits for 14 bytes" in table.splitlines()


def test_inspect_with_preprocessing_agrees_with_eval(run: Octavo, here: Path, tmp_path: Path) -> None:
    octavo.train("ngram", here / "text.txt", order=3, preprocess=["lower"], out=tmp_path / "run", measure=False)
    (tmp_path / "some.txt").write_text("THE OWL")
    tokens = json_of(run("inspect", tmp_path / "run", "--text", "THE OWL", "--json"))["surprisal"]
    bits = json_of(run("eval", tmp_path / "run", tmp_path / "some.txt", "--json"))["bits"]
    assert "".join(token["token"] for token in tokens) == "the␣owl"
    assert sum(token["bits"] for token in tokens) == pytest.approx(bits, rel=1e-12)


def test_inspect_describes_a_run(run: Octavo, here: Path) -> None:
    printed_run = json_of(run("inspect", here / "runs" / "kn3", "--json"))
    assert (printed_run["model"], printed_run["vocab"], printed_run["config"]["order"]) == ("ngram", 257, 3)
    assert len(printed_run["ngrams"]) == 3
    assert "it writes:" in run("inspect", here / "runs" / "kn3").out


def test_list_is_best_first_and_a_damaged_run_does_not_hide_the_others(run: Octavo, here: Path, tmp_path: Path) -> None:
    figures = [record["result"]["bits_per_byte"] for record in json_of(run("list", here / "runs", "--json"))]
    assert figures == sorted(figures)
    assert len(figures) == 3
    octavo.train("bag", here / "text.txt", out=tmp_path / "good")
    octavo.train("bag", here / "text.txt", out=tmp_path / "bare", measure=False)
    for name, config in (("damaged", "{"), ("foreign", '{"model_type": "gpt2"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    done = run("list", tmp_path, "--json")
    assert [Path(record["run"]).name for record in json_of(done)] == ["good", "bare"]
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["left out", FOREIGN]
    first_words = [line.split()[0] for line in run("list", tmp_path).out.splitlines() if line.strip()]
    assert [Path(word).name for word in first_words if Path(word).name in ("good", "bare")] == ["good", "bare"]


def test_list_without_runs_is_empty_and_no_mistake(
    run: Octavo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("list")
    assert (done.code, done.out) == (0, "")
    assert "no runs in runs" in done.err
    assert json_of(run("list", "--json")) == []


def test_labels_stand_beside_figures_that_are_not_comparable(run: Octavo, here: Path, tmp_path: Path) -> None:
    words = ("--order", 2, "--preprocess", "lower", "--out", tmp_path / "run")
    done = run("train", "ngram", here / "text.txt", *words)
    assert "bits per byte (not comparable)" in done.out
    assert "not comparable" in run("list", tmp_path).out
    assert "not comparable" in run("eval", tmp_path / "run").out


def test_train_says_what_came_of_it_and_what_to_do_next(run: Octavo, here: Path, tmp_path: Path) -> None:
    done = run("train", "ngram", here / "text.txt", "--order", 2, "--out", tmp_path / "run")
    assert (done.code, done.err) == (0, "")
    assert f"octavo eval {tmp_path / 'run'}" in done.out
    bare = run("train", "ngram", here / "text.txt", "--order", 2, "--no-measure", "--out", tmp_path / "bare", "--json")
    assert "bits" not in json_of(bare)
    assert not (tmp_path / "bare" / "samples.txt").exists()


def test_train_mix_through_the_command_line(run: Octavo, here: Path, tmp_path: Path) -> None:
    text, kn3, kn2, mix = here / "text.txt", here / "runs" / "kn3", tmp_path / "kn2", tmp_path / "mix"
    json_of(run("train", "ngram", text, "--order", 2, "--out", kn2, "--json"))
    made = json_of(run("train", "mix", text, "--parts", kn3, kn2, "--out", mix, "--json"))
    assert json_of(run("eval", mix, "--json"))["bits"] == made["bits"]
    assert run("generate", mix, "--max-tokens", 5).code == 0
    assert [part["model"] for part in json_of(run("inspect", mix, "--json"))["parts"]] == ["ngram", "ngram"]
    refused(
        run("train", "mix", text, "--parts", kn3, here / "runs" / "word"), "with the same tokenizer: kn3 (byte), word"
    )
    refused(run("train", "mix", text, "--parts", kn3), "two or more --parts")


def test_data_speaks_json_too(run: Octavo) -> None:
    listed = json_of(run("data", "list", "--json"))
    assert "shakespeare" in [source["name"] for source in listed]
    assert json_of(run("data", "show", "shakespeare", "--json"))["name"] == "shakespeare"


@pytest.mark.data("shakespeare")
def test_data_get_and_show_find_what_is_here(run: Octavo, data_root: Path, tmp_path: Path) -> None:
    got = json_of(run("data", "get", "shakespeare", "--json"))
    assert [Path(path).is_file() for path in got.values()] == [True]
    assert run("data", "get", "shakespeare").out == "\n".join(got.values()) + "\n"
    assert "First Citizen:" in run("data", "show", "shakespeare", "--lines", 3).out
