"""The page of a language model: its score and how it was counted, its surprisal, samples, training and parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from octavo.core import LanguageModel
from octavo.io.run_folder import SAMPLES
from octavo.models import spec_of
from octavo.models.views import Bars, Table
from octavo.pages.figures.charts import bars
from octavo.pages.markup import NOTHING, join
from octavo.pages.sections import code, facts, paragraph, score, section, table, verbatim
from octavo.pages.surprisal import Piece, annotated_text, surprisal_legend, whole_characters
from octavo.scoring.bits_per_byte import ADAPTIVE, NOT_COMPARABLE
from octavo.scoring.token_costs import token_costs
from octavo.tasks.corpus import SAMPLE_TOKENS
from octavo.tasks.language import LanguageData
from octavo.tasks.run import Run
from octavo.tasks.run_page import PageContent, bits_per_byte, number, stored, title_of
from octavo.text import Split
from octavo.text.token_display import display_token
from octavo.text.tokenizers.base import Tokenizer

HOW_COUNTED = (
    "Every token costs the bits that the model's probability says, −log₂ p, the first token included. The sum is "
    "divided by the length of the raw text, so models with different tokens can be compared. The held-out text was "
    "used for nothing but this measurement."
)


def page_content(run: Run, data: LanguageData, sample: str, out: Path) -> PageContent:
    """What the page shows."""
    return content_of(run, out.name, opening(data.corpus.valid), sample, out)


def content_of(run: Run, name: str, held_out: bytes, sample: str, path: Path) -> PageContent:
    """The same of any run; `held_out` is the beginning of the text that it was measured on."""
    corpus, result = run.record.get("corpus", {}), run.record.get("result", {})
    seed = run.record.get("seed", 0)
    generate = ["octavo", "generate", str(path), "--max-tokens", str(SAMPLE_TOKENS), "--seed", str(seed)]
    commands = [["octavo", "eval", str(path), "--prove"], generate]
    lead = f"The run {name}, trained on {corpus.get('name', 'an unknown text')}."
    return PageContent(title_of(run), lead, [
        _result(result, bits_per_byte(run), run.record.get("other_text", ())),
        _surprisal(run, held_out),
        _passages(result.get("passages", [])),
        section("Sample", paragraph(f"Generated without a prompt, with seed {seed}:"), verbatim(sample)),
    ], [_model(run), _corpus(corpus)], commands, {SAMPLES: sample})  # fmt: skip


def _result(result: Mapping[str, Any], bits: float, other: Sequence[str]) -> Markup:
    unit = "" if math.isnan(bits) else "bits per byte of held-out text; uncompressed text has 8"
    parts = [score(number(bits), unit)]
    if result.get("adaptive"):
        parts.append(
            paragraph(f"The model is {ADAPTIVE}: it went on learning while it was scored, each token after it.")
        )
    if NOT_COMPARABLE in result.get("label", ""):
        parts.append(paragraph(f"This result is {NOT_COMPARABLE}: information was lost before scoring."))
    if other:
        parts.append(paragraph(
            f"The model used other text than the training part ({', '.join(other)}), perhaps the reported text too: "
            "set it beside results of the training part alone with care."
        ))  # fmt: skip
    if result.get("impossible"):
        parts.append(paragraph(
            f"{result['impossible']:,} of {result['tokens']:,} held-out tokens have probability zero, and one is "
            "enough to make the sum infinite. That is what smoothing is for."
        ))  # fmt: skip
    pairs = [("tokens", f"{result['tokens']:,}"), ("held-out text", f"{result['bytes']:,} bytes")]
    if result.get("bits") is not None:
        total = f"{result['bits']:,.0f} bits, the size of a file of {result['bits'] / 8:,.0f} bytes"
        perplexity = f"{result['perplexity']:.4g} per token ({result['bits_per_token']:.4f} bits)"
        pairs = [("total cost", total), *pairs, ("perplexity", perplexity)]
    if result.get("unknown_rate") is not None:
        pairs.append(("unknown words", f"{result['unknown_rate']:.2%}, spelt out in bytes, which are counted"))
    pairs.append(("context", result["policy"]))
    return section("Bits per byte", *parts, facts(pairs), paragraph(HOW_COUNTED, quiet=True))


def _surprisal(run: Run, held_out: bytes) -> Markup:
    explained = (
        f"The first {len(held_out):,} bytes of the held-out text. The colour is the cost of each token, in bits per "
        "byte; point at a token to read it."
    )
    pieces = annotate(run.model, run.tokenizer, held_out)
    return section("Surprisal", paragraph(explained), surprisal_legend(), annotated_text(pieces))


def _passages(passages: Sequence[Mapping[str, Any]]) -> Markup:
    if not passages:
        return NOTHING
    rows = [
        (number(math.inf if p["bits_per_byte"] is None else p["bits_per_byte"]), f"{p['offset']:,}",
         code(p["text"].replace("\n", "↵")))
        for p in passages
    ]  # fmt: skip
    return section("The most surprising passages", table(("bits/byte", "at byte", "text"), rows, numeric=(0, 1)))


def _model(run: Run) -> Markup:
    details = spec_of(run.model).details
    found = details(run.model, lambda token: display_token(run.tokenizer, token)) if details is not None else None
    match found:
        case Bars(caption, rows, digits):
            figure = bars(rows, caption, digits=digits)
        case Table("", (), rows):
            figure = facts((name, value) for name, value in rows)
        case Table(caption, titles, rows):
            figure = join(paragraph(caption), table(titles, rows, numeric=range(len(titles))))
        case _:
            figure = NOTHING
    return section("Model", paragraph(f"It has {stored(run.model)}."), figure)


def _corpus(corpus: Mapping[str, Any]) -> Markup:
    pairs = [("name", corpus.get("name", "unknown"))]
    for part, name in (("train", "training text"), ("valid", "held-out text")):
        if part in corpus:
            size, documents = corpus[part]["bytes"], corpus[part]["documents"]
            pairs.append((name, f"{size:,} bytes in {documents:,} {'document' if documents == 1 else 'documents'}"))
            pairs.append(("its sha256", corpus[part]["sha256"]))
    if corpus.get("preprocess"):
        pairs.append(("preprocessing", ", ".join(corpus["preprocess"])))
    return section("Text", facts(pairs))


OPENING_BYTES = 600


def opening(split: Split, limit: int = OPENING_BYTES) -> bytes:
    """The first bytes of the first document, up to the end of a line, a word or at least a character."""
    first = next(split.chunks(), None)
    if first is None:
        return b""
    later = first.starts[first.starts > 0]
    data = first.data[: int(later[0]) if len(later) else None]
    return data[: readable_end(data, limit)]


def readable_end(data: bytes, limit: int) -> int:
    """Where to end a text of at most so many bytes: after a line, a word or at least a character."""
    if len(data) <= limit:
        return len(data)
    ends = (data.rfind(separator, limit // 2, limit) + 1 for separator in (b"\n", b" "))
    return next(filter(None, ends), character_start(data, limit))


def character_start(data: bytes, at: int) -> int:
    """The same place, or a little before it where it lies inside a character."""
    for start in range(at, max(at - 4, -1), -1):
        if start >= len(data) or data[start] & 0xC0 != 0x80:
            return start
    return at  # not UTF-8


def annotate(model: LanguageModel[Any], tokenizer: Tokenizer, data: bytes) -> list[Piece]:
    """The text in pieces that are whole characters, each with its cost in bits; the first follows the begin token."""
    return whole_characters(
        (tokenizer.token_bytes(token), cost)
        for tokens_W, bits_W in token_costs(model, [tokenizer.encode(data)])
        for token, cost in zip(tokens_W.tolist(), bits_W.tolist(), strict=True)
    )
