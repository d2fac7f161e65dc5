"""What reads each seed: the commands of octavo that open a file of the corpus, by class of attack.

A case copies a seed (`base`, below the corpus) into the trial's folder, damages one of its files, and runs one line of
commands. {x} is the copy, {o} an empty folder for what is written, {s} the corpus. `&&` joins commands of which each
needs the one before. To add a format: add its seed to seeds.py and a case here.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORT = "{s}/texts/short.txt"
TINY = "--width 8 --layers 1 --heads 2 --budget 1steps --out {o}/run"
IMPORT_ARPA = (
    f"import {{x}} --tokenizer-of {{s}}/runs/kn3 --out {{o}}/run --json && eval {{o}}/run {SHORT} --prove --json"
)
DOMAINS = "domains {s}/runs/bag {s}/runs/kn2 --texts {s}/texts/text.txt {s}/texts/other.txt --out {x} --json"
BINS = "{x}/train.bin --valid {x}/val.bin --tokenizer {x}/tokenizer.json"
LANGUAGE = (
    f"eval {{x}} {SHORT} --json",
    f"eval {{x}} {SHORT} --prove --json",
    "inspect {x} --json",
    "generate {x} --prompt The --max-tokens 5 --json",
    "list {x} --json",
    f"compress {{x}} {SHORT} {{o}}/a.oct && decompress {{x}} {{o}}/a.oct {{o}}/back",
)
RARELY = (  # slower ones
    "inspect {x} --text Themanwasold --json",
    "doctor {x} --quick --json",
    "eval {x} --json",
    "generate {x} --method beam --max-tokens 3",
    f"eval {{x}} {SHORT}",
)
NETWORK = "inspect {x} --text Themanwasold --out {o}/a.html"
MIXTURE = "train mix {s}/texts/text.txt --parts {x} {s}/runs/bag --out {o}/run --json"
COMPARE = "compare {s}/texts/text.txt --models bag,kn3 --no-prove --out {x} --json"


@dataclass(frozen=True)
class Case:
    """A seed and the lines that read it; lines of `often` are drawn four times as often as those of `rarely`."""

    base: str
    often: tuple[str, ...]
    rarely: tuple[str, ...] = ()
    weight: float = 1.0  # how often it is drawn: less where its commands take long
    left_out: tuple[str, ...] = ("report.html", "figures")  # files that nothing reads

    @property
    def lines(self) -> list[str]:
        return [*self.often * 4, *self.rarely]


def _language(*runs: str, more: tuple[str, ...] = ()) -> list[Case]:
    return [Case(f"runs/{run}", LANGUAGE, (*RARELY, *more)) for run in runs]


def _resumed(*runs: str, line: str = "resume {x} --budget 8steps --json") -> list[Case]:
    return [Case(f"runs/{run}", (line,), weight=0.3) for run in runs]


RUNS = [
    *_language("char", "word", "bpe", "mix", "adaptive", "adaptive-mix"),
    *_language("bag", "kn3", "kn2", "mle", "bigram", more=(MIXTURE,)),
    *_language("rnn", "gru", "lstm", "rnn-attention", "gpt", "local", more=(NETWORK, MIXTURE)),
    *_language("gpt-bpe", more=(NETWORK,)),
    *_resumed("gru", "gpt", "bert", "seq2seq", "vit", "dan", "head", "facts"),
    *_resumed("stopped-gru", "stopped-bert", "stopped-dan", "stopped-seq2seq", "stopped-vit", line="resume {x} --json"),
    Case("runs/kn3", ("export {x} {o}/a.arpa --json",)),
    Case("runs/gpt-bpe", ("export {x} {o}/a.gguf --json", "export {x} {o}/hf --format hf --json")),
    Case(
        "runs/bert",
        ("fill {x} [MASK]king --json", f"embed {{x}} {SHORT} --query king --json", "list {x} --json"),
        ("doctor {x} --quick --json", "export {x} {o}/hf --json"),
    ),
    Case(
        "runs/seq2seq",
        ("translate {x} --text abc --json", "inspect {x} --json"),
        ("translate {x} --text abc --method greedy", "doctor {x} --quick --json", "eval {x} --json", "list {x} --json"),
    ),
    Case(
        "runs/vit",
        ("eval {x} --json", "inspect {x} --image 0 --out {o}/a.html"),
        ("doctor {x} --quick --json", "list {x}"),
    ),
    *[
        Case(
            f"runs/{run}",
            ("classify eval {x} {s}/files/moods.tsv --json", "classify predict {x} {s}/files/text.jsonl --json"),
            (
                "classify explain {x} {s}/files/moods.tsv --json",
                "doctor {x} --quick --json",
                "inspect {x} --json",
                "list {x}",
            ),
        )
        for run in ("linear", "dan", "head")
    ],
    Case(
        "runs/facts",
        ("answer {x} Ada --json", "answer {x} --file {s}/files/questions.tsv --json"),
        ("inspect {x} --json", "doctor {x} --quick --json", "list {x} --json"),
    ),
]
ARCHIVES = [
    Case(f"files/{run}.oct", (f"decompress {{s}}/runs/{run} {{x}} {{o}}/back",))
    for run in ("bag", "kn3", "gru", "gpt", "mix", "adaptive")
]
EXPERIMENTS = [
    Case("files/compare", (f"eval {{x}}/kn3 {SHORT} --json", "inspect {x}/bag --json", "list {x} --json"), (COMPARE,)),
    Case("files/scale", ("scale bag {s}/texts/long.txt --quick --out {x} --json",), weight=0.2),
    Case("files/domains", (DOMAINS,), weight=0.5),
    *[Case(f"runs/{run}", (f"domains {{x}} --texts {SHORT} {{s}}/texts/other.txt --out {{o}}/domains --json",),
           ("compare {s}/texts/text.txt --models bag --pretrained {x} --out {o}/compare --json",), weight=0.5)
      for run in ("kn3", "gru")],
    Case("files/teams", (f"exercises leaderboard {{x}} --text {SHORT} --out {{o}}/board.html --json",), weight=0.02),
]  # fmt: skip
MODELS = [
    Case("files/kn3.arpa", (IMPORT_ARPA,)),
    Case("files/kn3.arpa.gz", (IMPORT_ARPA,)),
    Case("files/words.arpa", (f"import {{x}} --out {{o}}/run --json && eval {{o}}/run {SHORT} --json",)),
    Case(
        "files/gpt-hf",
        (f"eval {{x}} {SHORT} --json", "import {x} --out {o}/run --json", f"eval {{x}} {SHORT} --prove --json"),
    ),
    Case(
        "files/bert-hf",
        ("fill {x} [MASK]king --json", "import {x} --out {o}/run --json", f"embed {{x}} {SHORT} --json"),
    ),
    *[
        Case(f"files/gpt-{precision}.gguf", (f"eval {{x}} {SHORT} --json", "import {x} --out {o}/run --json"))
        for precision in ("float16", "q8_0", "float32")
    ],
]
DATA = [
    Case("texts/text.txt", (f"train bert {{x}} --vocab-size 100 {TINY}",), weight=0.3),
    *[
        Case(
            f"files/{name}",
            ("eval {s}/runs/bag {x} --json",),
            (
                "train ngram {x} --order 2 --out {o}/run --json",
                "vectors {x} --dim 2 --epochs 1 --min-count 1 --out {o}/v.txt",
                "data bin {x} --tokenizer char --out {o}/bin",
            ),
        )
        for name in ("text.txt.gz", "text.txt.bz2", "text.txt.xz", "text.txt.zst", "text.parquet", "text.jsonl")
    ],
    *[
        Case(
            f"files/{name}",
            ("classify eval {s}/runs/linear {x} --json", "classify predict {s}/runs/linear {x} --json"),
            (
                "classify train linear {x} --bits 8 --out {o}/run --json",
                "classify train dan {x} --width 4 --budget 2steps --out {o}/run",
            ),
        )
        for name in ("moods.csv", "moods.tsv", "moods.ft", "text.jsonl")
    ],
    Case(
        "files/vectors.txt",
        ("vectors near {x} the --json", "vectors analogy {x} the king man --json"),
        (
            "vectors check {x} --json",
            "train bigram {s}/texts/text.txt --tokenizer word --vectors {x} --dim 4 --steps 2 --out {o}/run",
            "classify train dan {s}/texts/moods.tsv --vectors {x} --budget 2steps --out {o}/run",
        ),
    ),
    Case("files/vectors-header.txt", ("vectors near {x} the --json",)),
    Case("texts/pairs.tsv", (f"train seq2seq {{x}} --vocab-size 280 {TINY}",)),
    Case("texts/knowledge", (f"train facts {{x}} --no-pretraining {TINY}",)),
    Case("files/questions.tsv", ("answer {s}/runs/facts --file {x} --json",)),
    Case("files/facts.csv", ("answer {s}/runs/facts Ada --facts {x} --json",)),
    Case("files/facts.db", ("answer {s}/runs/facts Ada --facts {x} --json",)),
    *[Case(f"{name}", (f"train vit {{x}} --patch 4 {TINY}",)) for name in ("files/idx", "texts/images")],
    Case("files/tokens", (f"train gpt {BINS} --context 16 {TINY}", f"train ngram {BINS} --order 2 --out {{o}}/run")),
    *[
        Case(f"runs/{run}/tokenizer.json", ("train ngram {s}/texts/text.txt --tokenizer {x} --order 2 --out {o}/run",))
        for run in ("char", "word", "bpe", "kn3")
    ],
]
COURSES = [
    Case("files/answers.toml", ("exercises grade {x} --json",)),
    Case("files/class", ("exercises grade {x}/week1 --json",)),
    Case(
        "files/course.toml", ("exercises gradebook {x} {s}/files/class --out {o}/g.csv --manual {s}/files/manual.csv",)
    ),
    Case(
        "files/manual.csv", ("exercises gradebook {s}/files/course.toml {s}/files/class --out {o}/g.csv --manual {x}",)
    ),
    Case("files/times.csv", ("exercises gradebook {s}/files/course.toml {s}/files/class --out {o}/g.csv --times {x}",)),
]
CLASSES = {
    "read-runs": ("run folders of every task: settings, tokenizers, weights, curves, checkpoints", 4.0, RUNS),
    "read-archives": ("archives of compress", 0.5, ARCHIVES),
    "read-models": ("models of other programs: ARPA, GGUF, Hugging Face", 2.0, MODELS),
    "read-data": (
        "texts, JSON lines, Parquet, compressed files, labels, pairs, pictures, vectors, tokens",
        3.0,
        DATA,
    ),
    "read-experiments": (
        "results of compare, scale and domains; damaged runs as candidates",
        1.0,
        EXPERIMENTS,
    ),
    "read-courses": ("students' answers, course files, marks", 0.5, COURSES),
}
