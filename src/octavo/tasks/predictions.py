"""The public functions for runs beyond the next token: classify, translate, fill, embed, answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from octavo.core import seeded_generator
from octavo.decode import Beam, Greedy, Sample
from octavo.errors import UserError
from octavo.models.parts.checks import check_positive
from octavo.pages.sections import notebook_view, paragraph, table
from octavo.tasks.answering import Reply, Rules, replies_to
from octavo.tasks.classifier import Classifier
from octavo.tasks.device import ANSWERED, place
from octavo.tasks.encoder import PSEUDO, Encoder, Guess, load_encoder
from octavo.tasks.facts_file import open_file_of_facts
from octavo.tasks.facts_run import FactsRun, answering_run
from octavo.tasks.run import load
from octavo.tasks.task import find_task
from octavo.tasks.trained_run import TrainedRun
from octavo.tasks.translator import Method, Translator
from octavo.text.tokenizers.wordpiece import MASK

T = TypeVar("T", bound=TrainedRun)
Texts = list[str] | tuple[str, ...]
SHOWN_CLASSES = 12  # in a notebook


def run_of(kind: type[T], run: T | str | Path) -> T:
    """The run itself, or the one in a folder; one of another task is refused."""
    if isinstance(run, str | Path):
        return kind.load(run)
    if not isinstance(run, kind):
        purpose = find_task(kind.task).purpose
        raise UserError(f"this needs a run that was trained to {purpose}: it is {run!r}; name another")
    return run


# ---------------------------------------------------------------------- classify


@dataclass(frozen=True)
class Classified:
    """The class of a text."""

    label: str
    probability: float
    probabilities: dict[str, float]

    def to_json(self) -> dict[str, float]:
        """The probability of every class."""
        return dict(self.probabilities)

    def __repr__(self) -> str:
        return f"<{self.label}: {self.probability:.1%}>"

    def _repr_html_(self) -> str:
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:SHOWN_CLASSES]
        return notebook_view(table(("class", "probability"), [(n, f"{p:.1%}") for n, p in ranked], numeric=(1,)))


@overload
def classify(run: Classifier | str | Path, texts: str, *, device: str = "auto") -> Classified: ...
@overload
def classify(run: Classifier | str | Path, texts: Texts, *, device: str = "auto") -> list[Classified]: ...
def classify(
    run: Classifier | str | Path, texts: str | Texts, *, device: str = "auto"
) -> Classified | list[Classified]:  # fmt: skip
    """Give texts to the classes that a classifier has learnt.

    Args:
        run: A classifier, or the path of its folder.
        texts: A text, or a list of texts.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        The label of the text, its probability and that of every class; of a list, a list of these.

    Raises:
        UserError: The run is no classifier.

    Examples:
        >>> octavo.classify("runs/moods", "what a fine day").label
        'good'
        >>> [one.label for one in octavo.classify("runs/moods", ["a fine day", "a grim day"])]
        ['good', 'bad']
    """
    classifier = run_of(Classifier, run)
    given = [texts] if isinstance(texts, str) else list(texts)
    p_NC = place(classifier, device, sum(map(len, given))).probabilities(given).tolist()
    found = [
        Classified(classifier.classes[max(range(len(p_C)), key=p_C.__getitem__)], max(p_C),
                   dict(zip(classifier.classes, p_C, strict=True)))
        for p_C in p_NC
    ]  # fmt: skip
    return found[0] if isinstance(texts, str) else found


# ---------------------------------------------------------------------- translate


def translation_method(method: str | Method, beam: int, length_penalty: float) -> Method:
    """The decoding method of that name."""
    known: dict[str, Method] = {"beam": Beam(beam, length_penalty), "greedy": Greedy(), "sample": Sample()}
    if isinstance(method, str) and method not in known:
        raise UserError(f"there is no method {method!r}; methods are {', '.join(known)}")
    return known[method] if isinstance(method, str) else method


def translate(
    run: Translator | str | Path, texts: str | Texts, *, into: str | Sequence[str] = "",
    method: str | Method = "beam", beam: int = 5, length_penalty: float = 1.0, seed: int = 0, device: str = "auto",
) -> Any:  # fmt: skip
    """Translate texts with an encoder-decoder model.

    Args:
        run: A run that translates, or the path of its folder.
        texts: A text, or a list of texts.
        into: The target language, by default the first; a list of languages gives a dict, and the encoder reads each
            text once for all.
        method: "beam", "greedy" or "sample", or a decoding method of octavo.decode.
        beam: How many translations the beam keeps.
        length_penalty: How much of a long translation's lower probability is made up for; 0: nothing.
        seed: For sampling.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        The translation, or a list of translations; with a list of languages, a dict of those.

    Raises:
        UserError: The run does not translate, or not into that language.

    Examples:
        >>> isinstance(octavo.translate("runs/pairs", "a b c"), str)
        True
        >>> len(octavo.translate("runs/pairs", ["a b c", "c b a"], method="greedy"))
        2
    """
    translator = run_of(Translator, run)
    chosen = translation_method(method, beam, length_penalty)
    languages = [into or translator.languages[1]] if isinstance(into, str) else list(into) or translator.languages[1:]
    sources = [texts] if isinstance(texts, str) else list(texts)
    place(translator, device, beam * sum(map(len, sources)))
    found = translator.into(sources, languages, chosen, seeded_generator(seed))
    ready = {language: some[0] if isinstance(texts, str) else some for language, some in found.items()}
    return ready[languages[0]] if isinstance(into, str) else ready


# ---------------------------------------------------------------------- fill and embed


@dataclass(frozen=True)
class Filled:
    """A text with its masked words filled in, and the most probable words for each."""

    text: str
    filled: str
    masks: list[list[Guess]]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        masks = [[guess._asdict() for guess in guesses] for guesses in self.masks]
        return {"text": self.text, "filled": self.filled, "masks": masks}

    def __repr__(self) -> str:
        return f"<filled: {self.filled!r}>"

    def _repr_html_(self) -> str:
        rows = [(str(i), one.token, f"{one.probability:.1%}") for i, some in enumerate(self.masks, 1) for one in some]
        return notebook_view(paragraph(self.filled), table((MASK, "word", "probability"), rows, numeric=(0, 2)))


@dataclass(frozen=True)
class PseudoLikelihood:
    """How well each token of a text is predicted from all others, in nats: it ranks texts, but is no probability."""

    text: str
    tokens: list[str]
    nats: list[float]

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood."""
        return sum(self.nats)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"text": self.text, "tokens": self.tokens, "nats": self.nats, "pseudo_log_likelihood": self.total,
                "label": PSEUDO}  # fmt: skip

    def __repr__(self) -> str:
        return f"<pseudo-log-likelihood {self.total:.3f} nats of {len(self.tokens)} tokens>"

    def _repr_html_(self) -> str:
        rows = [(token, f"{nats:.3f}") for token, nats in zip(self.tokens, self.nats, strict=True)]
        return notebook_view(table(("token", "log p given the others"), rows, numeric=(1,)), paragraph(PSEUDO))


def fill(run: Encoder | str | Path, text: str, *, top: int = 5, device: str = "auto") -> Filled | PseudoLikelihood:
    """Fill in the masked words of a text with a BERT.

    Args:
        run: A run of a bert, a Hugging Face folder with one, minilm, or the path of a run's folder.
        text: A text with [MASK] in it. Without one, its pseudo-log-likelihood is computed: how well each word is
            predicted from all others.
        top: How many words to find for each [MASK].
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        The text filled in, with the most probable words for each mask.

    Raises:
        UserError: The run is no encoder, or the text does not fit into its context.

    Examples:
        >>> found = octavo.fill("runs/bert", "the [MASK] sat", top=3)
        >>> [len(words) for words in found.masks]
        [3]
        >>> octavo.fill("runs/bert", "the cat sat").total < 0
        True
    """
    check_positive("top", top, 5)
    encoder = encoder_of(run)
    place(encoder, device, len(text) if MASK in text else len(text) ** 2)  # or each token is hidden in turn
    if MASK in text:
        return Filled(text, encoder.filled(text), encoder.fill(text, top))
    return PseudoLikelihood(text, *encoder.pseudo_log_likelihood(text))


def embed(
    run: Encoder | str | Path, texts: str | Texts, *, device: str = "auto"
) -> NDArray[np.float32]:  # fmt: skip
    """Make a vector of each text: its cosine with another's says how alike they are.

    Args:
        run: A run of a bert, a Hugging Face folder with one, minilm, or the path of a run's folder.
        texts: A text, or a list of texts.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        A vector of length one for a text; a row for each of a list.

    Raises:
        UserError: The run is no encoder.

    Examples:
        >>> vectors = octavo.embed("runs/bert", ["the cat sat", "a dog ran", "the cat sat"])
        >>> vectors.shape[0], round(float(vectors[0] @ vectors[2]), 4)
        (3, 1.0)
    """
    given = [texts] if isinstance(texts, str) else list(texts)
    vectors_ND = place(encoder_of(run), device, sum(map(len, given))).encode(given).numpy()
    return vectors_ND[0] if isinstance(texts, str) else vectors_ND


def encoder_of(run: Encoder | str | Path) -> Encoder:
    """The encoder itself, or the one in a folder or of a known name."""
    return load_encoder(run) if isinstance(run, str | Path) else run_of(Encoder, run)


# ---------------------------------------------------------------------- answer


@overload
def answer(
    run: FactsRun | str | Path, question: str, *, facts: str | Path | None = None, threshold: float = 0.5,
    beam: int = 1, device: str = "auto",
) -> Reply: ...  # fmt: skip
@overload
def answer(
    run: FactsRun | str | Path, question: Texts, *, facts: str | Path | None = None, threshold: float = 0.5,
    beam: int = 1, device: str = "auto",
) -> list[Reply]: ...  # fmt: skip
def answer(
    run: FactsRun | str | Path, question: str | Texts, *, facts: str | Path | None = None,
    threshold: float = 0.5, beam: int = 1, device: str = "auto",
) -> Reply | list[Reply]:  # fmt: skip
    """Answer a question with a confidence, or say that the answer is not known.

    Args:
        run: A run that was trained on facts, or the path of its folder.
        question: The question, the name alone that it asks about, or a list of questions.
        facts: An SQLite file or CSV with names and answers, which is asked where the model is not sure.
        threshold: Believe the model's answer if it is at least so probable.
        beam: How many candidates are kept while searching; more than 1 gives other answers too.
        device: Where the model computes: "auto", "cpu", "cuda", "cuda:1" or "mps"; auto is a GPU where it is faster.

    Returns:
        The answer (None where nobody knows), who gave it, and what the model would have said how surely; of a list,
        a list of these.

    Raises:
        UserError: The run does not answer questions.

    Examples:
        >>> reply = octavo.answer("runs/facts", "Ada Ash", threshold=0.0)
        >>> reply.question, 0 < reply.confidence <= 1
        ('Ada Ash', True)
        >>> octavo.answer("runs/facts", "Ada Ash", threshold=1.0).answer is None
        True
    """
    oracle = answering_run(load(run) if isinstance(run, str | Path) else run)
    place(oracle, device, ANSWERED * (1 if isinstance(question, str) else len(question)))
    rules = Rules(threshold, None if facts is None else open_file_of_facts(facts), beam=beam)
    replies = replies_to(oracle, [question] if isinstance(question, str) else list(question), rules)
    return replies[0] if isinstance(question, str) else replies
