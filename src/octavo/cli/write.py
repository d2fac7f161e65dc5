"""octavo generate."""

from __future__ import annotations

import codecs
import sys
from typing import Any, Literal

from octavo import api
from octavo.cli.flags import RunPath
from octavo.cli.show import print_json
from octavo.core import seeded
from octavo.decode import generate as generate_tokens
from octavo.decode import stream
from octavo.run import Run, load


def generate(
    run: RunPath,
    prompt: str = "",
    max_tokens: int = 200,
    method: Literal["sample", "greedy", "beam", "exact"] = "sample",
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    width: int | None = None,
    length_penalty: float | None = None,
    limit: int | None = None,
    count: int = 1,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Let a model continue a prompt.

    Example: octavo generate runs/kn7 --prompt "ROMEO:" --max-tokens 200 --temperature 0.8 --seed 1

    Args:
        run: A run folder.
        prompt: What the text begins with.
        max_tokens: How many tokens to write.
        method: Draw at random, take the most probable token, search with a beam, or search exactly.
        temperature: sample: below 1 sharper, above 1 flatter.
        top_k: sample: only the k most probable tokens.
        top_p: sample: only the most probable tokens that make up this much.
        min_p: sample: only tokens at least this share of the most probable one.
        width: beam: how many hypotheses are kept.
        length_penalty: beam: how much longer texts are preferred.
        limit: exact: give up after so many expansions.
        count: How many texts to write.
        seed: The same seed writes the same text.
        json: Print JSON.
    """
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "width": width,
             "length_penalty": length_penalty, "limit": limit}  # fmt: skip
    chosen = api.make_method(method, {key: value for key, value in given.items() if value is not None})
    api.check_amount("max_tokens", max_tokens, 0)
    api.check_amount("count", count, 1)
    generator = seeded(seed)
    loaded = load(run)
    x_T = api.encode_prompt(loaded, prompt)
    prompt = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # as it can be shown
    if count == 1 and not json and method in ("sample", "greedy") and loaded.tokenizer.lossless:
        sys.stdout.write(prompt)
        _stream(loaded, stream(loaded.model, [x_T], max_tokens, chosen, generator))  # type: ignore[arg-type]
        return
    texts = [
        loaded.tokenizer.decode(y_T.tolist()).decode("utf-8", "replace")
        for y_T in generate_tokens(loaded.model, [x_T] * count, max_tokens, chosen, generator)
    ]
    if json:
        print_json({"prompt": prompt, "method": method, "seed": seed, "texts": texts})
    else:
        between = "" if loaded.tokenizer.lossless or not prompt else " "  # a closed vocabulary's words imply spaces
        print("\n---\n".join(prompt + between + text for text in texts))


def _stream(run: Run, columns: Any) -> None:
    """Print tokens as they come; bytes of an unfinished character wait for the rest."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for x_B in columns:
        sys.stdout.write(decoder.decode(run.tokenizer.decode(x_B.tolist())))
        sys.stdout.flush()
    sys.stdout.write(decoder.decode(b"", final=True) + "\n")
