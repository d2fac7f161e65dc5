"""The gallery: figures of small runs that the build trains on the documentation's own text. Nothing is committed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from octavo.cli import main
from octavo.pages.markup import Markup
from octavo.pages.sections import notebook_view

DOCS = Path(__file__).parents[1]
BUDGET = os.environ.get("OCTAVO_GALLERY_BUDGET", "10s")  # of each network; the tests take less of both
TEXT_BYTES = int(os.environ.get("OCTAVO_GALLERY_BYTES", "100_000"))
SENTENCE = "The number can be audited: the model really compresses the file."


class Example(NamedTuple):
    """A page that octavo writes, by what, and what is to be seen on it."""

    name: str
    title: str
    about: str
    page: str  # of the folder that the runs are in
    command: str
    figures: int  # how many of the page's figures are shown; 0: only the link


EXAMPLES = (
    Example("compare", "A comparison", "Every model on one text: bits per byte against the time of training, the size "
            "and the speed; the learning curves.", "compare/report.html", "octavo compare text.txt", 4),
    Example("run", "A run's report", "The training curve, the text coloured by surprisal, a sample.",
            "lstm/report.html", "octavo train lstm text.txt", 1),
    Example("lstm", "Inside an LSTM", "How far the gradient reaches back, and the gates as the network reads.",
            "lstm.html", f'octavo inspect runs/lstm --text "{SENTENCE}" --out lstm.html', 2),
    Example("gpt", "Inside a transformer", "Gradient flow, the attention maps of every head, the logit lens.",
            "gpt.html", f'octavo inspect runs/gpt --text "{SENTENCE}" --out gpt.html', 2),
    Example("scale", "A scaling law", "Bits per byte as the text grows, with the law that was fitted and its interval.",
            "scale/report.html", "octavo scale ngram text.txt", 1),
    Example("exercise", "An exercise's figure", "What one head and two heads write under noise.",
            "exercise.html", "octavo exercises figure average-two-heads-noise --out exercise.html", 1),
)  # fmt: skip
FIGURES: dict[str, list[str]] = {}  # by example, for `insert_figures`


def pages() -> dict[str, str]:
    """gallery.md, and the whole pages it shows parts of."""
    lines = ["# Gallery", "", "Figures that octavo draws. The build of this site made them: small networks, trained "
             f"for {BUDGET} each on this documentation's own text, so the results are nothing to boast of. Every page "
             "is one file that works without a network."]  # fmt: skip
    made: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        _train()
        for path in sorted(Path().rglob("*.html")):  # with the runs' own, which the comparison links to
            made[f"gallery/{path.as_posix()}"] = path.read_text(encoding="utf-8")
        for example in EXAMPLES:
            page = made[f"gallery/{example.page}"]
            FIGURES[example.name] = re.findall(r"<figure.*?</figure>", page, re.DOTALL)[: example.figures]
            lines += ["", f"## {example.title}", "", example.about, "", f"`{example.command}`", "",
                      f"[The whole page](gallery/{example.page})" + '{ target="_blank" }', "",
                      f"FIGURES-OF-{example.name}"]  # fmt: skip
    return made | {"gallery.md": "\n".join(lines) + "\n"}


def insert_figures(content: str) -> str:
    """The page with its figures, which are put in after Markdown has done its work."""
    for name, figures in FIGURES.items():
        drawn = notebook_view(*map(Markup, figures))
        content = content.replace(f"<p>FIGURES-OF-{name}</p>", f'<div class="gallery">{drawn}</div>')
    return content


def _train() -> None:
    text = b"".join(page.read_bytes() for page in sorted(DOCS.glob("*.md")))[:TEXT_BYTES]
    Path("text.txt").write_bytes(text)
    small = "--width 64 --layers 1"
    for command in (
        f"compare text.txt --models bag,kn3,kn5,kn7,rnn,gru,gpt,xz,bz2 --budget {BUDGET} --out compare",
        f"train lstm text.txt --budget {BUDGET} {small} --out lstm",
        f"train gpt text.txt --budget {BUDGET} --width 64 --layers 2 --heads 4 --context 64 --out gpt",
        "scale ngram text.txt --out scale",
        "exercises figure average-two-heads-noise --out exercise.html",
    ):
        _run(command.split())
    for name in ("lstm", "gpt"):
        _run(["inspect", name, "--text", SENTENCE, "--out", f"{name}.html"])


def _run(words: list[str]) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    if code:
        raise RuntimeError(f"octavo {' '.join(words)} exits with {code}:\n{said.getvalue()}")
