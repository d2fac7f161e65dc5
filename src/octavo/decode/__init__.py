"""From a model to text: greedy, sampling, speculative decoding, beam and exact search, written once for every family.

`generate` takes the method as a value; `stream` gives the tokens of greedy, sampling and speculative decoding as they
are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from octavo.core import LanguageModel
from octavo.decode.beam import Beam, Hypothesis, beam_search
from octavo.decode.exact import Exact, Found, exact_search
from octavo.decode.greedy import Choice, Greedy, Prompt
from octavo.decode.greedy import stream as stream_choices
from octavo.decode.sample import Sample
from octavo.decode.speculative import Round, Speculative, Tally, lucks, speculate, stream_speculative
from octavo.decode.threads import decoding_threads

__all__ = [
    "Beam", "Choice", "Exact", "Found", "Greedy", "Hypothesis", "Method", "Prompt", "Round", "Sample",
    "Speculative", "Tally", "beam_search", "decoding_threads", "exact_search", "generate", "lucks", "speculate",
    "stream",
]  # fmt: skip

Method = Greedy | Sample | Beam | Exact | Speculative


def stream(
    model: LanguageModel[Any],
    prompts: Sequence[Prompt],
    max_tokens: int,
    method: Choice | Speculative,
    generator: torch.Generator | None = None,
    stop: Sequence[int] = (),
) -> Iterator[Tensor]:
    """Yield the next token of every row, column by column, until max_tokens or until every row has stopped.

    A row stops after it has yielded a stop token; from then on it yields the begin token, which stands for
    no text and is never yielded otherwise.
    """
    if isinstance(method, Speculative):
        return stream_speculative(model, prompts, max_tokens, method, generator, stop)
    return stream_choices(model, prompts, max_tokens, method, generator, stop)


def generate(
    model: LanguageModel[Any],
    prompts: Sequence[Prompt],
    max_tokens: int,
    method: Method,
    generator: torch.Generator | None = None,
    stop: Sequence[int] = (),
) -> list[Tensor]:
    """The new tokens of each prompt: max_tokens of them, or up to and including the first stop token."""
    if isinstance(method, Beam):
        return [ranked[0].tokens for ranked in beam_search(model, prompts, max_tokens, method, stop)]
    if isinstance(method, Exact):
        return [exact_search(model, prompt, max_tokens, method, stop).tokens for prompt in prompts]
    with decoding_threads(model, len(prompts)):
        columns = list(stream(model, prompts, max_tokens, method, generator, stop))
    if not columns:
        return [torch.empty(0, dtype=torch.long) for _ in prompts]
    return [x_T[x_T != model.begin] for x_T in torch.stack(columns, 1)]
