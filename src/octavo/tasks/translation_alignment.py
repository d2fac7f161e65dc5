"""Alignment: the attention of a translation's tokens over the source, as it was generated.

L layers, H heads, T tokens of the target, S of the source.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.core import eval_mode
from octavo.errors import UserError
from octavo.io.cooperative import Turn
from octavo.ops.tracing import trace
from octavo.pages.sections import notebook_view
from octavo.tasks.translator import BEAM, Method, Translator
from octavo.text.token_display import display_token
from octavo.text.tokenizers.base import Tokenizer

END = "<end>"
LONGEST = 100  # tokens of a side


@dataclass(frozen=True)
class Alignment:
    """A source, a target and the attention weights between them: row t is of the step that generated token t."""

    text: str
    translation: str
    language: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    a_LHTS: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean of all layers and heads."""
        return self.a_LHTS.mean((0, 1))

    @property
    def strongest(self) -> list[int]:
        """For each token of the target, the place of the source with the largest weight."""
        found: list[int] = self.mean.argmax(-1).tolist()
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text, "translation": self.translation, "language": self.language, "source": list(self.source),
            "target": list(self.target), "attention": [[round(a, 4) for a in row] for row in self.mean.tolist()],
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<octavo alignment of {self.text!r} and {self.translation!r}>"

    def _repr_html_(self) -> str:
        from octavo.tasks.translation_page import alignment_parts  # which needs this class

        return notebook_view(alignment_parts(self))


@torch.no_grad()
def align(
    run: Translator, text: str, translation: str | None = None, language: str = "", method: Method = BEAM,
    turn: Turn = nullcontext,
) -> Alignment:  # fmt: skip
    """The alignment of a translation: of one that is given, or of the model's own."""
    language = language or run.languages[1]
    number = run.number_of(language)
    source = _ended(run.source_tokenizer, text)
    _check_length(source, "source")
    if translation is None:
        translation = run.into([text], (language,), method, turn=turn)[language][0]
    target = _ended(run.target_tokenizer, translation)
    _check_length(target, "translation")
    with turn():
        a_LHTS = _cross_attention(run, source, [run.model.language(number), *target[:-1]])
    return Alignment(
        text, translation, language, spelt(run.source_tokenizer, source), spelt(run.target_tokenizer, target), a_LHTS
    )


def _ended(tokenizer: Tokenizer, text: str) -> list[int]:
    return [*tokenizer.encode(text.encode("utf-8", "surrogateescape")).tolist(), tokenizer.begin]


def _check_length(tokens: list[int], what: str) -> None:
    fewest = 1 if what == "source" else 0
    if not fewest < len(tokens) <= LONGEST:
        raise UserError(
            f"a text to align has from {fewest} to {LONGEST - 1} tokens: the {what} has {len(tokens) - 1}; "
            "give a sentence"
        )


def spelt(tokenizer: Tokenizer, tokens: list[int]) -> tuple[str, ...]:
    """Tokens as they are shown."""
    return tuple(END if token == tokenizer.begin else display_token(tokenizer, token) for token in tokens)


def _cross_attention(run: Translator, source: list[int], before: list[int]) -> Tensor:
    """Those of the decoder at the source; its self-attention over the target so far is left out."""
    with eval_mode(run.model):
        memory = run.model.encode(*run.model.together(source))
        with trace() as found:
            run.model.read(memory, run.model.start(memory), torch.tensor([before], device=run.model.target_VD.device))
    maps = found.get("attention", [])
    if not maps:
        raise UserError(f"{run.path or run.name} has no attention; train one with --score dot")
    return torch.stack([a_1HTS[0] for a_1HTS in run.model.cross_attention(maps)]).float().cpu()
