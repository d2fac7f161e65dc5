"""octavo generate."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal

from octavo.cli.flags import Device, RunPath
from octavo.cli.output import note, print_json
from octavo.core import device_of, seeded_generator
from octavo.decode import Round, Speculative, Tally, decoding_threads, lucks, speculate, stream
from octavo.decode import generate as generate_tokens
from octavo.tasks import api
from octavo.tasks.run import Run, load

SPEED = (
    "{accepted:.0%} of the draft's tokens accepted, {tokens_per_call:.2f} tokens a call of the model, "
    "{tokens_per_second:,.0f} tokens/s"
)


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
    draft: str | None = None,
    draft_tokens: int | None = None,
    count: int = 1,
    seed: int = 0,
    device: Device = "auto",
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
        width: beam: number of hypotheses.
        length_penalty: beam: how much longer texts are preferred.
        limit: exact: give up after so many expansions.
        draft: sample, greedy: a run with the same tokenizer that guesses ahead; it changes only the speed.
        draft_tokens: How many tokens the draft guesses at a time; without it, 4.
        count: How many texts to write.
        seed: The same seed writes the same text.
        json: Print JSON.
    """
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "width": width,
             "length_penalty": length_penalty, "limit": limit}  # fmt: skip
    chosen = api.make_method(method, {key: value for key, value in given.items() if value is not None})
    api.check_amount("max_tokens", max_tokens, 0)
    api.check_amount("count", count, 1)
    generator = seeded_generator(seed)
    loaded, drafter = api.placed_writers(load(run), None if draft is None else load(draft), device, max_tokens * count)
    chosen = api.with_draft(loaded, drafter, draft_tokens, chosen)
    x_T = api.encode_prompt(loaded, prompt)
    prompt = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # as it can be shown
    streamed = count == 1 and not json and method in ("sample", "greedy") and loaded.tokenizer.lossless
    rounds: list[Round] = []
    began = time.perf_counter()
    if isinstance(chosen, Speculative):
        tries = (speculate(loaded.model, x_T, max_tokens, chosen, luck) for luck in lucks(chosen, generator, count))
        rows: Iterable[Iterable[list[int]]] = (_recording(one, rounds) for one in tries)
    elif streamed:
        rows = [(x_B.tolist() for x_B in stream(loaded.model, [x_T], max_tokens, chosen, generator))]  # type: ignore[arg-type]
    else:
        rows = [[y_T.tolist()] for y_T in generate_tokens(loaded.model, [x_T] * count, max_tokens, chosen, generator)]
    if streamed:
        with decoding_threads(loaded.model):
            _stream(loaded, prompt, *rows)
    else:
        texts = [loaded.tokenizer.decode(list(chain(*row))).decode("utf-8", "replace") for row in rows]
    speed = _speed(rounds, time.perf_counter() - began) if isinstance(chosen, Speculative) else {}
    if json:
        about = {"prompt": prompt, "method": method, "seed": seed, "device": str(device_of(loaded.model))}
        print_json(about | {"texts": texts} | speed)
        return
    if not streamed:
        between = "" if loaded.tokenizer.lossless or not prompt else " "  # a closed vocabulary's words imply spaces
        print("\n---\n".join(prompt + between + text for text in texts))
    if speed:
        note(SPEED.format(**speed))


def _recording(rounds: Iterable[Round], recorded: list[Round]) -> Iterator[list[int]]:
    """The rounds' tokens; the rounds themselves are recorded."""
    for one in rounds:
        recorded.append(one)
        yield one.tokens


def _speed(rounds: list[Round], seconds: float) -> dict[str, float]:
    """What the draft was good for."""
    tally = Tally.of(rounds)
    return {"accepted": tally.accepted_share, "tokens_per_call": tally.tokens_per_call,
            "tokens_per_second": tally.tokens / seconds}  # fmt: skip


def _stream(run: Run, prompt: str, pieces: Iterable[list[int]]) -> None:
    """Print the prompt, and tokens as they come; bytes of an unfinished character wait for the rest."""
    sys.stdout.write(prompt)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for tokens in pieces:
        sys.stdout.write(decoder.decode(run.tokenizer.decode(tokens)))
        sys.stdout.flush()
    sys.stdout.write(decoder.decode(b"", final=True) + "\n")
