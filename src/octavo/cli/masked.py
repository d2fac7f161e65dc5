"""octavo fill and embed, a BERT in, and the report on one that was trained."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from tyro.conf import Positional, arg

from octavo.cli.flags import Device, Encoding, InFile, MaybeNewPath, read_file
from octavo.cli.output import Output, Table, print_table
from octavo.errors import UserError
from octavo.io.encoding import UTF8, decode_text
from octavo.io.files import whole_file
from octavo.models.parts.checks import check_positive
from octavo.tasks.encoder import PSEUDO, load_encoder
from octavo.tasks.predictions import PseudoLikelihood
from octavo.tasks.predictions import embed as embed_texts
from octavo.tasks.predictions import fill as fill_text
from octavo.text.tokenizers.wordpiece import MASK

BertPath = Annotated[Positional[str], arg(metavar="RUN", help=(
    "A run of octavo train bert, a Hugging Face folder with a BERT, or minilm."))]  # fmt: skip
Sentence = Annotated[Positional[str], arg(metavar="TEXT")]
SCORES = {
    "words_accuracy": "masked words found", "words_perplexity": "perplexity of masked words",
    "next_accuracy": "does the sentence follow?", "order_accuracy": "are the sentences in order?",
    "replaced_balanced": "was the word replaced? (mean of both kinds)",
}  # fmt: skip


def print_result(result: dict[str, Any]) -> None:
    """The measures of pretraining on the held-out part."""
    rows = [(title, f"{result[key]:,.1f}" if key == "words_perplexity" else f"{result[key]:.1%}")
            for key, title in SCORES.items() if key in result]  # fmt: skip
    print_table(("on the held-out part", ""), rows)


def fill(run: BertPath, text: Sentence, top: int = 5, device: Device = "auto") -> Output:
    """Fill in masked words; or, of a text without any, say how well each word is predicted from all others.

    Example: octavo fill runs/bert "the [MASK] sat"

    Args:
        text: A text with [MASK] in it. Without one, its pseudo-log-likelihood: it ranks texts, but is no probability.
        top: How many words to show for each [MASK].
    """
    found = fill_text(run, text, top=top, device=device)
    if isinstance(found, PseudoLikelihood):
        each = [(token, f"{nats:.3f}") for token, nats in zip(found.tokens, found.nats, strict=True)]
        mean = f"{found.total:.3f} nats, {found.total / len(found.tokens):.3f} a token\n{PSEUDO}"
        return Output(found.to_json(), Table(("token", "log p given the others"), each), mean)
    rows = [(str(i + 1), one.token, f"{one.probability:.2%}") for i, some in enumerate(found.masks) for one in some]
    return Output(found.to_json(), found.filled, Table((MASK, "word", "probability"), rows, left=(0, 1)))


def embed(
    run: BertPath, file: InFile, query: str | None = None, top: int = 5, out: MaybeNewPath = None,
    device: Device = "auto", encoding: Encoding = UTF8,
) -> Output:  # fmt: skip
    """Make a vector of each line of a file, and show which sentences are nearest.

    Example: octavo embed minilm sentences.txt --query "how do I cook rice?"

    Args:
        file: A text file with one sentence a line, or - for standard input.
        query: Show the sentences nearest to this one; without it, the pairs nearest to each other.
        top: How many to show.
        out: A .npy file for the vectors: one row a line, of length one.
    """
    check_positive("top", top, 5)
    lines = _lines(file, encoding)
    encoder = load_encoder(run)
    vectors_ND = torch.from_numpy(embed_texts(encoder, lines, device=device))
    if out is not None:
        with whole_file(out) as opened:
            np.save(opened, vectors_ND.numpy(), allow_pickle=False)
    if query is not None:
        similar_N = vectors_ND @ torch.from_numpy(embed_texts(encoder, query, device=device))
        best = similar_N.topk(min(top, len(lines)))
        found = [(float(s), lines[i]) for s, i in zip(best.values, best.indices.tolist(), strict=True)]
    else:
        found = [(s, f"{lines[i]}\n{lines[j]}") for s, i, j in nearest_pairs(vectors_ND, top)]
    nearest = [{"similarity": s, "sentences": text.split("\n")} for s, text in found]
    rows = [(f"{s:.3f}", text) for s, text in found]
    words = f"{len(lines):,} sentences as vectors of {encoder.width}" + (f", written to {out}" if out else "")
    result = {"sentences": len(lines), "width": encoder.width, "nearest": nearest, "file": out}
    return Output(result, Table(("cosine", "nearest sentences"), rows, left=(1,)), words)


def nearest_pairs(vectors_ND: Tensor, top: int) -> list[tuple[float, int, int]]:
    """The most similar pairs of different rows; never more than a band of all pairs is held."""
    found: list[tuple[float, int, int]] = []
    N, band = len(vectors_ND), 1024
    for first in range(0, N, band):
        similar = (vectors_ND[first : first + band] @ vectors_ND.T).triu(first + 1)
        best = similar.flatten().topk(min(top, similar.numel()))
        places = [divmod(place, N) for place in best.indices.tolist()]
        found += [(s, first + i, j) for s, (i, j) in zip(best.values.tolist(), places, strict=True) if first + i < j]
    return sorted(found, reverse=True)[:top]


def _lines(file: str, encoding: str) -> list[str]:
    text = decode_text(read_file(file), file, encoding)
    if not (found := [" ".join(line.split()) for line in text.splitlines() if line.strip()]):
        raise UserError(f"there are no sentences in {file}: each stands on a line of its own")
    return found
