"""octavo fill and embed, a BERT in, and the report on one that was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from torch import Tensor
from tyro.conf import Positional, arg

from octavo.cli.flags import RunPath
from octavo.cli.output import print_json, print_table, size
from octavo.errors import UserError
from octavo.exchange.bert import is_bert
from octavo.io.files import whole_file
from octavo.io.run_folder import TENSORS, check_out
from octavo.models.cost.parts import parameter_count
from octavo.tasks.encoder import NAMED, PSEUDO, Encoder, load_encoder
from octavo.text.reading import STDIN
from octavo.text.tokenizers.wordpiece import MASK

Sentence = Annotated[Positional[str], arg(metavar="TEXT")]
SentenceFile = Annotated[Positional[str], arg(metavar="FILE")]
SCORES = {
    "words_accuracy": "masked words found", "words_perplexity": "perplexity of masked words",
    "next_accuracy": "does the sentence follow?", "order_accuracy": "are the sentences in order?",
    "replaced_balanced": "was the word replaced? (mean of both kinds)",
}  # fmt: skip


def report(run: Encoder, json: bool) -> None:
    """What came of pretraining, and what to do with it."""
    record, result = run.record, run.record.get("result", {})
    training, tokens = record["training"], record["train_tokens"]
    if json:
        about = {key: training.get(key) for key in ("steps", "why", "padding")}
        print_json({"run": str(run.path), "train_seconds": record["train_seconds"], **about, **result})
        return
    print(f"{described(run)}, on {record['corpus']['name']}")
    print(f"read {tokens:,} tokens in {training['steps']:,} steps, {training.get('padding', 0):.2%} of them padding: "
          f"{tokens / max(record['train_seconds'], 1e-9):,.0f} tokens/s: {training['why']}")  # fmt: skip
    shown = {key: f"{result[key]:,.1f}" if key == "words_perplexity" else f"{result[key]:.1%}" for key in SCORES
             if key in result}  # fmt: skip
    rows = [(SCORES[key], value) for key, value in shown.items()]
    print_table(("on the held-out part", ""), rows)
    print(f"the run is in {run.path}; next:")
    if run.model.words is not None:
        print(f'  octavo fill {run.path} "a text with a {MASK} in it"')
    print(f"  octavo embed {run.path} FILE\n  octavo export {run.path}")


def fill(run: RunPath, text: Sentence, top: int = 5, json: bool = False) -> None:
    """Fill in masked words; or, of a text without any, say how well each word is predicted from all others.

    Example: octavo fill runs/bert "the [MASK] sat"

    Args:
        run: A run of octavo train bert, or a Hugging Face folder with a BERT.
        text: A text with [MASK] in it. Without one, its pseudo-log-likelihood: it ranks texts, but is no probability.
        top: How many words to show for each [MASK].
        json: Print JSON.
    """
    if top < 1:
        raise UserError(f"top must be at least 1: top={top}; try --top 5")
    encoder = load_encoder(run)
    if MASK not in text:
        found = encoder.pseudo_log_likelihood(text)
        if json:
            scores = {"text": text, "tokens": found.tokens, "nats": found.nats}
            print_json(scores | {"pseudo_log_likelihood": found.total, "label": PSEUDO})
            return
        print_table(("token", "log p given the others"), [(t, f"{n:.3f}") for t, n in zip(*found, strict=True)])
        print(f"{found.total:.3f} nats, {found.total / len(found.tokens):.3f} a token\n{PSEUDO}")
        return
    guesses = encoder.fill(text, top)
    best = encoder.filled(text)
    if json:
        masks = [[one._asdict() for one in some] for some in guesses]
        print_json({"text": text, "filled": best, "masks": masks})
        return
    print(best)
    rows = [(str(i + 1), one.token, f"{one.probability:.2%}") for i, some in enumerate(guesses) for one in some]
    print_table((MASK, "word", "probability"), rows, left=(0, 1))


def embed(
    run: RunPath,
    file: SentenceFile,
    query: str | None = None,
    top: int = 5,
    out: str | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Make a vector of each line of a file, and show which sentences are nearest.

    Example: octavo embed minilm sentences.txt --query "how do I cook rice?"

    Args:
        run: A run of octavo train bert, a Hugging Face folder with a BERT, or minilm.
        file: A text file with one sentence a line, or - for standard input.
        query: Show the sentences nearest to this one; without it, the pairs nearest to each other.
        top: How many to show.
        out: A .npy file for the vectors: one row a line, of length one.
        device: auto, cpu or cuda.
        json: Print JSON.
    """
    if top < 1:
        raise UserError(f"top must be at least 1: top={top}; try --top 5")
    lines = _lines(file)
    encoder = load_encoder(run)
    vectors_ND = encoder.encode(lines, device)
    if out is not None:
        with whole_file(out) as opened:
            np.save(opened, vectors_ND.numpy(), allow_pickle=False)
    if query is not None:
        similar_N = vectors_ND @ encoder.encode([query], device)[0]
        best = similar_N.topk(min(top, len(lines)))
        found = [(float(s), lines[i]) for s, i in zip(best.values, best.indices.tolist(), strict=True)]
    else:
        found = [(s, f"{lines[i]}\n{lines[j]}") for s, i, j in nearest_pairs(vectors_ND, top)]
    if json:
        nearest = [{"similarity": s, "sentences": text.split("\n")} for s, text in found]
        print_json({"sentences": len(lines), "width": encoder.width, "nearest": nearest, "file": out})
        return
    print_table(("cosine", "nearest sentences"), [(f"{s:.3f}", text) for s, text in found], left=(1,))
    print(f"{len(lines):,} sentences as vectors of {encoder.width}" + (f", written to {out}" if out else ""))


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


def _lines(file: str) -> list[str]:
    try:
        text = Path("/dev/stdin" if file == STDIN else file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} must be UTF-8: {error}; convert it") from error
    lines = [" ".join(line.split()) for line in text.splitlines()]
    if not (found := [line for line in lines if line]):
        raise UserError(f"there are no sentences in {file}: each stands on a line of its own")
    return found


def imports_bert(source: str) -> bool:
    """Whether octavo import should make an encoder of it."""
    return is_bert(source) or (source in NAMED and not Path(source).exists())


def import_bert(source: str, out: str, json: bool) -> None:
    """Make a run of a BERT that others made."""
    check_out(out)
    run = load_encoder(source)
    tasks = ", ".join(run.model.config.tasks) or "none"
    run.save(out)
    stored = (Path(out) / TENSORS).stat().st_size
    if json:
        about = {"run": out, "parameters": parameter_count(run.model), "bytes": stored, "vocab": run.model.vocab}
        print_json(about | {"heads": list(run.model.config.tasks)})
        return
    print(f"{described(run)} ({size(stored)}), heads: {tasks}")
    print(f"the run is in {out}; next:\n  octavo embed {out} FILE")


def described(run: Encoder) -> str:
    """A BERT in a few words."""
    return f"a BERT of {parameter_count(run.model):,} parameters, {run.model.vocab:,} tokens known"
