"""The public function for taggers: tag the words of sentences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from octavo.pages.sections import notebook_view, table
from octavo.tasks.device import place
from octavo.tasks.predictions import run_of
from octavo.tasks.tagger import Tagger

Sentences = list[str] | list[tuple[str, ...]] | tuple[str | tuple[str, ...], ...]


@dataclass(frozen=True)
class TaggedWords:
    """The words of a sentence, their tags, and the probability of each of these tags."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"words": self.words, "tags": self.tags, "probabilities": self.probabilities}

    def __repr__(self) -> str:
        return f"<{' '.join(f'{word}/{tag}' for word, tag in zip(self.words, self.tags, strict=True))}>"

    def _repr_html_(self) -> str:
        rows = [(w, t, f"{p:.1%}") for w, t, p in zip(self.words, self.tags, self.probabilities, strict=True)]
        return notebook_view(table(("word", "tag", "probability"), rows, numeric=(2,)))


@overload
def tag(run: Tagger | str | Path, sentences: str, *, device: str = "auto") -> TaggedWords: ...
@overload
def tag(run: Tagger | str | Path, sentences: Sentences, *, device: str = "auto") -> list[TaggedWords]: ...
def tag(
    run: Tagger | str | Path, sentences: str | Sentences, *, device: str = "auto"
) -> TaggedWords | list[TaggedWords]:  # fmt: skip
    """Give every word of a sentence the tag that a tagger has learnt.

    Args:
        run: A tagger, or the path of its folder.
        sentences: A sentence, its words separated by spaces, or a list of sentences: such texts, or tuples of words.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        The words, their tags and the probability of each; of a list, a list of these.

    Raises:
        UserError: The run is no tagger.

    Examples:
        >>> octavo.tag("runs/tags", "the dog sees a cat").tags
        ['DET', 'NOUN', 'VERB', 'DET', 'NOUN']
        >>> len(octavo.tag("runs/tags", ["a dog", ("the", "cat")]))
        2
    """
    tagger = run_of(Tagger, run)
    given = [sentences] if isinstance(sentences, str) else list(sentences)
    place(tagger, device, sum(map(len, given)))
    number = {name: c for c, name in enumerate(tagger.tags)}
    found = [
        TaggedWords(list(one.words), one.tags, [float(one.p_TC[t, number[tag]]) for t, tag in enumerate(one.tags)])
        for one in tagger.tag([words.split() if isinstance(words, str) else words for words in given])
    ]
    return found[0] if isinstance(sentences, str) else found
