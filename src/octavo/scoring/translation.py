"""The metrics of translation: BLEU and chrF of sacrebleu, on raw text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from types import ModuleType
from typing import Any

from octavo.errors import UserError


@dataclass(frozen=True)
class Translated:
    """Figures of one language; a signature says how sacrebleu counted, so that others can count the same way."""

    bleu: float
    chrf: float
    exact: float
    """The share of translations that are a reference, character by character."""
    sentences: int
    signature: str
    chrf_signature: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def score_translations(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Translated:
    """Every output against what it may be: one reference or several."""
    if len(outputs) != len(references) or not outputs:
        raise UserError(f"every translation needs references: {len(outputs)} translations, {len(references)} of those")
    sacrebleu = load_sacrebleu()
    # As sacrebleu wants them: the first reference of all, then the second of all, None where there is none.
    columns = [list(column) for column in zip_longest(*references)]
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    bleu_score, chrf_score = bleu.corpus_score(list(outputs), columns), chrf.corpus_score(list(outputs), columns)
    hits = sum(output in known for output, known in zip(outputs, references, strict=True))
    return Translated(
        bleu_score.score, chrf_score.score, hits / len(outputs), len(outputs), str(bleu.get_signature()),
        str(chrf.get_signature()),
    )  # fmt: skip


def load_sacrebleu() -> ModuleType:
    """The library, which is optional."""
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError(
            "translations are scored with sacrebleu, which is missing: pip install 'octavo[translate]'"
        ) from error
    return sacrebleu
