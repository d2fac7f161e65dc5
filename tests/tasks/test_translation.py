"""Translating, from files to figures: pairs and their batches, training that resumes, folders, alignments, commands."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import octavo
from octavo.cli import main
from octavo.core import seeded_generator
from octavo.datasets.pairs import Lines, open_pairs, read_lines
from octavo.decode import Beam, Greedy
from octavo.errors import UserError
from octavo.models.seq2seq import Seq2Seq, Seq2SeqConfig
from octavo.scoring.metrics import score_translations
from octavo.tasks.pair_batches import IGNORE, PairBatches, encode_lines
from octavo.tasks.run import load as load_run
from octavo.tasks.translation import PairLoss, PairsConfig, batches_of, predicted_tokens
from octavo.tasks.translation_alignment import align
from octavo.tasks.translation_page import alignment_page
from octavo.tasks.translator import Translator
from octavo.text import TOKENIZERS, BpeSettings, Byte, Chunk
from octavo.training.loop import Loop

REVERSE: dict[str, Any] = {
    "tokenizer": "char", "width": 32, "layers": 1, "heads": 2, "dropout": 0.0, "batch_size": 512, "evaluations": 2,
    "precision": "float32", "device": "cpu",
}  # fmt: skip


def write_pairs(path: Path, count: int = 1500, columns: int = 1) -> Path:
    """Words and the same words turned round; as a second target, the words themselves."""
    luck = random.Random(0)
    words = {"".join(luck.choices("abcdefgh", k=luck.randint(2, 5))) for _ in range(count)}
    rows = [[word, word[::-1], word][: columns + 1] for word in sorted(words)]
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def reversed_run(home: Path) -> Translator:
    """One that was trained on two target languages."""
    pairs = write_pairs(home / "words.tsv", columns=2)
    return octavo.train("seq2seq", pairs, out=home / "run", budget="300steps", **REVERSE)


@pytest.mark.parametrize("name", [*TOKENIZERS])
def test_every_registered_tokenizer_can_be_translated_with(home: Path, name: str) -> None:
    pairs = write_pairs(home / "few.tsv", 200)
    run = octavo.train("seq2seq", pairs, out=home / name, budget="2steps", **REVERSE | {"tokenizer": name})
    (texts,) = Translator.load(home / name).into(["abc", "hgf"], (), Greedy(), seeded_generator(0)).values()
    assert run.source_tokenizer.name == name
    assert len(texts) == 2


def test_a_tokenizer_that_is_not_installed_is_refused() -> None:
    with pytest.raises(UserError, match="there is no tokenizer named 'letters'; known are byte, char, word, bpe"):
        PairsConfig(tokenizer="letters")


# ---------------------------------------------------------------------- pairs


def test_a_source_is_never_both_learnt_and_asked(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("".join(f"word{n % 700}\tw{n}\n" for n in range(1400)), encoding="utf-8")
    pairs = open_pairs([str(path)])
    parts = [set(lines.sources) for lines in (pairs.train, pairs.valid, pairs.test)]
    assert sum(map(len, parts)) == 700
    assert min(map(len, parts)) >= 5
    assert len(pairs.train) + len(pairs.valid) + len(pairs.test) == 1400
    assert open_pairs([str(path)]).identity == pairs.identity


def test_tab_separated_lines_and_files_side_by_side_are_the_same_pairs(tmp_path: Path) -> None:
    rows = [(f"a dog {n}", f"ein Hund {n}", f"un chien {n}") for n in range(300)]
    (tmp_path / "p.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    for n, ending in enumerate(("en", "de", "fr")):
        (tmp_path / f"p.{ending}").write_text("\r\n".join(row[n] for row in rows) + "\n", encoding="utf-8")
    one = open_pairs([str(tmp_path / "p.tsv")])
    other = open_pairs([str(tmp_path / f"p.{ending}") for ending in ("en", "de", "fr")])
    assert one.train == other.train
    assert one.test == other.test
    assert other.languages == ("en", "de", "fr")
    assert one.languages == ("source", "target", "target 2")
    given = open_pairs([str(tmp_path / "p.tsv")], [str(tmp_path / "p.tsv")], [str(tmp_path / "p.tsv")])
    assert len(given.train) == len(given.test) == 300


def test_another_way_to_say_a_word_is_another_reference() -> None:
    lines = Lines(("read", "dog", "read"), (("R IY1 D", "D AO1 G", "R EH1 D"),))
    assert lines.references(0) == {"read": ["R IY1 D", "R EH1 D"], "dog": ["D AO1 G"]}


@pytest.mark.data("multi30k")
def test_captions_come_in_their_published_parts() -> None:
    pairs = open_pairs(["multi30k-en-de-fr"])
    assert [len(part) for part in (pairs.train, pairs.valid, pairs.test)] == [29000, 1014, 1000]
    assert pairs.test.sources[0] == "A man in an orange hat starring at something."
    assert pairs.test.targets[0][0].startswith("Ein Mann mit einem orangefarbenen Hut")
    assert pairs.test.targets[1][0].startswith("Un homme avec un chapeau orange")
    assert read_lines(["multi30k-de-en"]).targets[0] == pairs.test.sources


def test_spellings_and_sounds_are_read_without_remarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.datasets import pairs as module

    path = tmp_path / "cmudict.dict"
    path.write_text("abc EY1 B IY2 # a remark\nabc(2) AH0 B\n", encoding="utf-8")
    monkeypatch.setattr(module, "get_files", lambda name: {"cmudict.dict": path})
    assert read_lines(["cmudict"]) == Lines(("abc", "abc"), (("EY1 B IY2", "AH0 B"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one column\n", "a source, a tab and a target"),
        ("a\tb\nc\n", "line 2"),
        ("", "0 columns"),
        ("a\tb\n", "no pair to"),
    ],
)
def test_lines_that_are_no_pairs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        open_pairs([str(tmp_path / "p.tsv")])


def test_places_that_hold_no_pairs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    (tmp_path / "c.tsv").write_bytes(b"\xff\ta\n")
    for source, message in (
        ([], "name one"), (["nowhere.tsv"], "no such file"), (["multi30k-en-xx"], "try multi30k-en-de"),
        ([str(tmp_path / "a"), str(tmp_path / "b")], "as many lines"), ([str(tmp_path / "c.tsv")], "UTF-8"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            open_pairs(source)


# ---------------------------------------------------------------------- batches


@pytest.mark.parametrize("kind", ["byte", "char", "word", "bpe"])
def test_lines_together_are_cut_as_each_alone(kind: str) -> None:
    lines = ["A dog runs.", "", "Ein Hund läuft. Ein Hund!", "x", "A dog runs."]
    chunks = [Chunk("\n".join(lines).encode())]
    learnt = TOKENIZERS[kind].learn(chunks, BpeSettings(300) if kind == "bpe" else None)
    rows = encode_lines(learnt, lines, 999)
    assert [rows.row(n) for n in range(5)] == [[*learnt.encode(line.encode()).tolist(), 999] for line in lines]


def random_batches(seed: int = 1, tokens: int = 256) -> PairBatches:
    luck = random.Random(2)
    lines = ["x" * luck.randint(1, 30) for _ in range(400)]
    others = ["y" * max(1, len(line) + luck.randint(-3, 3)) for line in lines]
    sources, targets = encode_lines(Byte(), lines, 256), encode_lines(Byte(), others, 256)
    return PairBatches(sources, targets, np.full(400, 257), tokens, seed)


def test_every_pair_comes_once_an_epoch_and_little_is_filled_up() -> None:
    batches = random_batches()
    batches(0)
    steps, seen, waste = batches.first[1], [], []
    for step in range(steps):
        batch = batches(step).tensors
        assert max(batch.source_BS.numel(), batch.after_BT.numel()) <= 256
        assert (batch.before_BT[:, 0] == 257).all()
        lengths = zip(batch.lengths_B.tolist(), (batch.after_BT != IGNORE).sum(1).tolist(), strict=True)
        seen += list(lengths)
        filled = int((batch.after_BT == IGNORE).sum()) + batch.source_BS.numel() - int(batch.lengths_B.sum())
        waste.append(filled / (batch.source_BS.numel() + batch.after_BT.numel()))
    expected = zip(batches.sources.lengths.tolist(), batches.targets.lengths.tolist(), strict=True)
    assert sorted(seen) == sorted(expected)
    assert sum(waste) / steps < 0.12


def test_the_nth_batch_depends_on_n_alone() -> None:
    in_order, jumped = random_batches(), random_batches()
    steps = [0, 70, 3, 140, 71]
    expected = {step: batch for step in range(141) for batch in [in_order(step).tensors]}
    for step in steps:
        for one, other in zip(expected[step], jumped(step).tensors, strict=True):
            assert torch.equal(one, other)
    other_seed = random_batches(seed=2)(0).tensors
    assert not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(other_seed, expected[0], strict=True))


def test_a_batch_too_small_for_a_pair_is_refused() -> None:
    with pytest.raises(UserError, match="batch_size=8"):
        random_batches(tokens=8)


# ---------------------------------------------------------------------- figures


def test_bleu_and_chrf_are_those_that_sacrebleu_prints_in_its_manual() -> None:
    """Three sentences, two references each; and a sum by hand."""
    outputs = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
    references = [
        ["The dog bit the man.", "The dog had bit the man."], ["It was not unexpected.", "No one was surprised."],
        ["The man bit him first.", "The man had bitten the dog."],
    ]  # fmt: skip
    scores = score_translations(outputs, references)
    assert scores.bleu == pytest.approx(48.530827009929865)
    assert scores.chrf == pytest.approx(59.73, abs=0.005)
    assert scores.exact == pytest.approx(1 / 3)
    assert "tok:13a" in scores.signature
    assert "case:mixed" in scores.signature
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 threes, 1 of 3 fours are right, and both are of one length.
    by_hand = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert score_translations(["a b c d x f"], [["a b c d e f"]]).bleu == pytest.approx(by_hand)


def test_references_need_not_be_as_many_for_every_text() -> None:
    assert score_translations(["a b c d", "e f g h"], [["a b c d"], ["x", "e f g h"]]).bleu == pytest.approx(100)
    with pytest.raises(UserError, match="needs references"):
        score_translations(["a"], [])


# ---------------------------------------------------------------------- learning


def test_turning_words_round_is_learnt(reversed_run: Translator) -> None:
    figures = reversed_run.record["result"]["languages"]["target"]
    assert figures["exact"] > 0.9
    assert reversed_run.translate(["abcd", "", "hgf"]) == ["dcba", "", "fgh"]
    assert reversed_run.record["training"]["finished"]
    assert reversed_run.record["pairs"]["test"] == figures["sentences"]


@pytest.mark.parametrize(("cell", "score"), [("gru", "additive"), ("lstm", "dot")])
def test_a_recurrent_network_with_attention_learns_it_too(tmp_path: Path, cell: str, score: str) -> None:
    settings = {key: value for key, value in REVERSE.items() if key != "heads"} | {"cell": cell, "score": score}
    pairs = write_pairs(tmp_path / "words.tsv")
    run = octavo.train("seq2seq-recurrent", pairs, budget="230steps", **settings)
    assert run.record["result"]["languages"]["target"]["exact"] > 0.6


def test_what_is_translated_together_is_translated_as_each_alone(reversed_run: Translator) -> None:
    texts = ["abc", "abcde", "hg", "edcba", "aaaa", "b"]
    for method in (Beam(4, 1.0), Greedy()):
        together = reversed_run.translate(texts, method=method)
        assert together == [reversed_run.translate([text], method=method)[0] for text in texts]


def test_one_run_serves_two_languages_and_reads_each_text_once(reversed_run: Translator) -> None:
    run = reversed_run
    calls: list[int] = []
    hook = run.model.encoder_blocks[0].register_forward_hook(lambda *_: calls.append(1))  # type: ignore[union-attr, index]
    found = run.into(["abcd", "gh"])
    hook.remove()
    assert found == {"target": ["dcba", "hg"], "target 2": ["abcd", "gh"]}
    assert len(calls) == 1  # both texts together, for both languages
    assert run.translate(["abcd"], "target 2") == ["abcd"]
    with pytest.raises(UserError, match="target, target 2"):
        run.translate(["abcd"], "de")


def test_a_stopped_run_goes_on_to_the_same_weights(home: Path, reversed_run: Translator, tmp_path: Path) -> None:
    settings = REVERSE | {"dropout": 0.1, "evaluations": 3, "checkpoint_seconds": 0.0}
    pairs = str(home / "words.tsv")
    whole = octavo.train("seq2seq", pairs, out=tmp_path / "whole", budget="24steps", **settings)

    def stop_at_13(self: Any, spent: float) -> None:
        step(self, spent)
        if self.position.step == 13:
            raise KeyboardInterrupt

    step = Loop.step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "step", stop_at_13)
        with pytest.raises(KeyboardInterrupt):
            octavo.train("seq2seq", pairs, out=tmp_path / "cut", budget="24steps", **settings)
    assert Translator.load(tmp_path / "cut").unfinished
    resumed = octavo.resume(tmp_path / "cut")
    assert not Translator.load(tmp_path / "cut").unfinished
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    longer = octavo.resume(tmp_path / "cut", budget="30steps")
    assert longer.record["training"]["steps"] == 30


def test_training_leaves_cudnn_out_which_plans_for_every_new_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = list[bool](), PairLoss.forward

    def watched(*inputs: Any) -> Any:
        asked.append(torch.backends.cuda.cudnn_sdp_enabled())
        return plain(*inputs)

    monkeypatch.setattr(PairLoss, "forward", watched)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    octavo.train("seq2seq", write_pairs(tmp_path / "words.tsv", 200), budget="2steps", **REVERSE)
    assert asked == [False, False]
    assert torch.backends.cuda.cudnn_sdp_enabled() == before  # of anything else it stays as it was


def test_a_text_that_is_too_long_is_named_before_any_is_translated(reversed_run: Translator) -> None:
    context = reversed_run.model.config.context
    with pytest.raises(UserError, match=rf"text 2 has {context + 2} tokens, context={context}; cut it"):
        reversed_run.translate(["abc", "a" * (context + 1), "abcd"])


def test_pairs_that_changed_are_not_gone_on_with(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "w.tsv", 600)
    octavo.train("seq2seq", pairs, out=tmp_path / "run", budget="2steps", **REVERSE)
    pairs.write_text(pairs.read_text(encoding="utf-8") + "abc\tcab\n", encoding="utf-8")
    with pytest.raises(UserError, match="has changed since"):
        octavo.resume(tmp_path / "run", budget="4steps")


def test_separate_vocabularies_and_the_best_by_bleu(tmp_path: Path) -> None:
    pairs = tmp_path / "p.tsv"
    pairs.write_text("".join(f"{'ab'[n % 2] * (n % 7 + 1)}{n}\tx {n} y z\n" for n in range(400)), encoding="utf-8")
    settings = REVERSE | {"tokenizer": "char", "target_tokenizer": "word", "shared": False, "tied": "target"}
    run = octavo.train("seq2seq", pairs, out=tmp_path / "run", budget="6steps", keep="bleu", **settings)
    assert run.source_tokenizer.name == "char"
    assert run.target_tokenizer.name == "word"
    assert run.record["training"]["bleu"] is not None
    again = Translator.load(tmp_path / "run")
    assert again.translate(["a1", "b2"]) == run.translate(["a1", "b2"])
    with pytest.raises(UserError, match="--no-shared"):
        PairsConfig(tokenizer="char", target_tokenizer="word")


def test_predicted_tokens_are_counted_over_all_pairs(reversed_run: Translator, home: Path) -> None:
    lines = open_pairs([str(home / "words.tsv")]).valid
    device = torch.device("cpu")
    batches = [batches_of(reversed_run, lines, size, 0, device) for size in (40, 4096)]
    predicted = [predicted_tokens(reversed_run.model, one) for one in batches]
    assert predicted[0]["nats"] == pytest.approx(predicted[1]["nats"], rel=1e-5)
    assert predicted[0]["right"] == predicted[1]["right"] > 0.9


# ---------------------------------------------------------------------- folders


def test_a_saved_run_answers_as_before_and_is_no_next_token_model(reversed_run: Translator, home: Path) -> None:
    again = Translator.load(home / "run")
    texts = ["abc", "hgfed", "unknown letters: äß"]
    assert again.translate(texts) == reversed_run.translate(texts)
    assert again.languages == reversed_run.languages
    assert again.record["result"] == reversed_run.record["result"]
    with pytest.raises(UserError, match="translate"):
        load_run(home / "run")


def test_the_report_shows_figures_and_translations_beside_references(reversed_run: Translator, home: Path) -> None:
    page = (home / "run" / "report.html").read_text(encoding="utf-8")
    lines = open_pairs([str(home / "words.tsv")]).test
    figures = reversed_run.record["result"]["languages"]
    assert f"{figures['target']['chrf']:.1f}" in page
    assert figures["target 2"]["signature"] in page
    assert all(f"<td>{source}</td>" in page for source in lines.sources[:5])
    assert "<svg" in page
    assert f"octavo train seq2seq {home / 'words.tsv'} --width" in page


def _config(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        record = json.loads((folder / "config.json").read_text())
        change(record)
        (folder / "config.json").write_text(json.dumps(record))

    return forge


def _file(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return forge


HOSTILE: dict[str, Callable[[Path], None]] = {
    "an enormous width": _config(lambda record: record["config"].update(width=1 << 40, heads=1)),
    "countless layers": _config(lambda record: record["config"].update(layers=1 << 40)),
    "countless decoder layers": _config(lambda record: record["config"].update(decoder_layers=1 << 40)),
    "an unknown setting": _config(lambda record: record["config"].update(evil=1)),
    "a vocabulary that is another's": _config(lambda record: record["sizes"].update(target_vocab=3)),
    "sizes that are no numbers": _config(lambda record: record["sizes"].update(languages=True)),
    "no sizes": _config(lambda record: record.pop("sizes")),
    "an unknown model": _config(lambda record: record.update(model="os.system")),
    "languages that are no names": _config(lambda record: record.update(languages=[1, 2])),
    "too many languages": _config(lambda record: record.update(languages=["a", "b", "c", "d"])),
    "another task": _config(lambda record: record.update(task="classify images")),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "a tokenizer that is none": _file("tokenizer.json", lambda _: b'{"source": {"model": 1}}'),
    "another tokenizer": _file("tokenizer.json", lambda _: json.dumps({"source": Byte().to_json()}).encode()),
    "weights cut off": _file("model.safetensors", lambda data: data[:500]),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_or_forged_folder_is_refused(reversed_run: Translator, home: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(home / "run", folder)
    HOSTILE[name](folder)
    with pytest.raises(UserError):
        Translator.load(folder)


# ---------------------------------------------------------------------- alignments


def test_words_turned_round_look_from_the_end_to_the_beginning(reversed_run: Translator) -> None:
    hits = total = 0
    for text in ("abcde", "hgfe", "cabgh"):
        one = align(reversed_run, text, text[::-1])
        assert one.source == (*text, "<end>")
        assert one.target == (*text[::-1], "<end>")
        torch.testing.assert_close(one.mean.sum(-1), torch.ones(len(text) + 1), rtol=0, atol=1e-5)
        hits += sum(at == len(text) - 1 - t for t, at in enumerate(one.strongest[:-1]))
        total += len(text)
    assert hits / total > 0.5


def test_the_page_of_alignments_tells_every_weight_and_escapes_the_text(reversed_run: Translator) -> None:
    one = align(reversed_run, "a<b>&c", "c&")
    page = alignment_page("looks", reversed_run.summary(), [one])
    assert "<b>&c" not in page
    assert "a&lt;b&gt;&amp;c" in page
    assert page.count("<tr>") == 1 + len(one.target)
    assert page.count("attends to") == len(one.target) * len(one.source)
    with pytest.raises(UserError, match="from 1 to 99"):
        align(reversed_run, "a" * 200)


# ---------------------------------------------------------------------- commands


def test_the_commands_train_measure_translate_and_show(
    home: Path, reversed_run: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    flags = "--tokenizer char --width 16 --layers 1 --heads 2 --budget 3steps --tokens 512 --device cpu --json"
    assert main(["train", "seq2seq", str(home / "words.tsv"), *flags.split(), "--out", out]) == 0
    assert json.loads(capsys.readouterr().out)["languages"]["target"]["sentences"] > 20
    assert main(["resume", out, "--budget", "5steps"]) == 0
    assert "5 steps: the budget is spent" in capsys.readouterr().out
    run = str(home / "run")
    page = tmp_path / "p.html"
    assert main(["translate", run, "--text", "abcd", "--text", "hg", "--into", "target", "--page", str(page)]) == 0
    assert capsys.readouterr().out == "dcba\ngh\n"
    assert "abcd" in page.read_text(encoding="utf-8")
    (tmp_path / "lines.txt").write_text("abcd\n\nfed\n", encoding="utf-8")
    assert main(["translate", run, str(tmp_path / "lines.txt"), "--json", "--beam", "2"]) == 0
    output = json.loads(capsys.readouterr().out)["translations"]
    assert [row["target"] for row in output] == ["dcba", "", "def"]
    assert main(["eval", run, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)["languages"]["target"]
    assert output == reversed_run.record["result"]["languages"]["target"]
    assert main(["inspect", run, "--text", "abcd", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["translation"] == "dcba"
    assert main(["translate", run, "--text", "abcd"]) == 0
    assert capsys.readouterr().out == "dcba\tabcd\n"
    assert main(["inspect", run]) == 0
    assert ", source to target" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["translate", "RUN"], "either --text TEXT or a file"),
        (["translate", "RUN", "nowhere.txt"], "cannot read nowhere.txt"),
        (["translate", "RUN", "--text", "a", "--into", "xx"], "it translates into target"),
        (["translate", "RUN", "--text", "a" * 400], "fit into the context"),
        (["eval", "RUN", "nowhere.tsv"], "no such file"),
        (["generate", "RUN"], "but to translate"),
        (["train", "seq2seq", "nowhere.tsv"], "no such file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    home: Path, reversed_run: Translator, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main([str(home / "run") if word == "RUN" else word for word in words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_without_sacrebleu_training_says_so_before_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r"octavo\[translate\]"):
        octavo.train("seq2seq", write_pairs(tmp_path / "w.tsv", 100), budget="1steps", **REVERSE)


def test_a_setting_that_nothing_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean width"):
        octavo.train("seq2seq", tmp_path, widht=3)


def test_the_first_weights_depend_on_the_seed_alone() -> None:
    one, other = (Seq2Seq(Seq2SeqConfig(width=16, heads=2), 9, 9) for _ in range(2))
    one.initialise(seeded_generator(3))
    torch.rand(5)
    other.initialise(seeded_generator(3))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
