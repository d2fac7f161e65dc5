"""A word model and a character model of Shakespeare on two passages: one of Shakespeare, one from Wikipedia."""

from __future__ import annotations

import math
from functools import cache

import torch

from octavo.exercises import Choice, Exercise, Finding, Part, Truth, verdict
from octavo.exercises.framework.evidence import dataset
from octavo.exercises.topics.vector_bigram import VOCABULARY, shakespeare, split_words
from octavo.models.ngram import NGram, NGramConfig

PASSAGE = 4000  # characters
PLAYS, WIKI = "Shakespeare", "Wikipedia"


@cache
def passages() -> dict[str, str]:
    """The beginning of Tiny Shakespeare's last tenth, and of the validation part of WikiText-2 without its marks."""
    plays = dataset("shakespeare").read_text(encoding="utf-8")
    files = dataset("wikitext-2")
    wiki = (files / "valid.txt").read_text(encoding="utf-8").replace("<unk>", "").replace("@-@", "-")
    start = wiki.index("\n \n") + 1
    return {PLAYS: plays[len(plays) * 9 // 10 :][:PASSAGE], WIKI: wiki[start : start + PASSAGE]}


@cache
def word_model() -> NGram:
    text = shakespeare()
    return NGram.fit(text.train_N.to(torch.int32), NGramConfig(order=2), text.vocab)


def word_tokens(words: list[str]) -> list[int]:
    text = shakespeare()
    token = {word: n for n, word in enumerate(text.words)}
    return [token.get(word, len(text.words)) for word in words]


def word_perplexity(words: list[str]) -> tuple[float, float]:
    """The perplexity per word of the closed-vocabulary model, and the share of words it does not know."""
    text, model = shakespeare(), word_model()
    tokens = word_tokens(words)
    x_BT = torch.tensor([[text.vocab - 1, *tokens]])
    logp, _ = model.token_log_probs(model.start(1), x_BT)
    unknown = sum(token == len(text.words) for token in tokens) / len(tokens)
    return math.exp(-float(logp.double().mean())), unknown


@cache
def character_bits() -> dict[str, float]:
    """Bits a character of both passages under a character model of order 6; new characters are one token."""
    plays = dataset("shakespeare").read_text(encoding="utf-8")
    train = plays[: len(plays) * 9 // 10]
    alphabet = {one: n for n, one in enumerate(sorted(set(train)))}
    size = len(alphabet) + 2  # other and begin

    def tokens(text: str) -> list[int]:
        return [size - 1, *(alphabet.get(one, size - 2) for one in text)]

    model = NGram.fit(torch.tensor(tokens(train), dtype=torch.int32), NGramConfig(order=6), size)
    bits = {}
    for name, text in passages().items():
        logp, _ = model.token_log_probs(model.start(1), torch.tensor([tokens(text)]))
        bits[name] = -float(logp.double().sum()) / math.log(2) / len(text)
    return bits


def all_words_harder() -> Finding:
    scores = {name: word_perplexity(split_words(text)) for name, text in passages().items()}
    listed = ", ".join(f"{name} {ppl:.0f} with {unknown:.0%} unknown" for name, (ppl, unknown) in scores.items())
    return Finding(verdict(scores[WIKI][0] > scores[PLAYS][0]), f"perplexity of all words: {listed}", "any higher")


def words_harder() -> Finding:
    known = {name: known_perplexity(text) for name, text in passages().items()}
    note = f"perplexity of known words: {PLAYS} {known[PLAYS]:.0f}, {WIKI} {known[WIKI]:.0f}"
    return Finding(verdict(known[WIKI] > known[PLAYS]), note, "any higher")


def known_perplexity(text: str) -> float:
    """The perplexity of the words of the vocabulary only, in their context."""
    model, vocabulary = word_model(), shakespeare()
    tokens = word_tokens(split_words(text))
    x_BT = torch.tensor([[vocabulary.vocab - 1, *tokens]])
    logp, _ = model.token_log_probs(model.start(1), x_BT)
    known = [float(logp[0, i]) for i, token in enumerate(tokens) if token != len(vocabulary.words)]
    return math.exp(-sum(known) / len(known))


def characters_harder() -> Finding:
    bits = character_bits()
    listed = ", ".join(f"{name} {2**x:.1f}" for name, x in bits.items())
    return Finding(verdict(bits[WIKI] > bits[PLAYS]), f"perplexity per character: {listed}", "any higher")


def unknown_lowers() -> Finding:
    """Words as they stand between spaces, and the same words in capitals, which are all unknown."""
    plain = word_perplexity(split_words(passages()[PLAYS]))
    raw = word_perplexity([word.upper() for word in passages()[PLAYS].split()])
    note = f"perplexity {plain[0]:.1f} with {plain[1]:.0%} unknown words, {raw[0]:.1f} with {raw[1]:.0%}"
    return Finding(verdict(raw[0] < plain[0]), note, "any lower")


def splitting_helps() -> Finding:
    shares = {}
    for name, text in passages().items():
        shares[name] = word_perplexity(text.split())[1], word_perplexity(split_words(text))[1]
    listed = ", ".join(f"{name} {raw:.0%} before, {split:.0%} after" for name, (raw, split) in shares.items())
    return Finding(verdict(all(split < raw for raw, split in shares.values())), f"unknown words: {listed}")


def fewer_bits() -> Finding:
    """The word model pays only for the class of an unknown word, not for its spelling: not the same bytes."""
    text = passages()[WIKI]
    words = split_words(text)
    perplexity, unknown = word_perplexity(words)
    word_bits = math.log2(perplexity) * len(words) / len(text)
    character = character_bits()[WIKI]
    note = (f"{word_bits:.2f} bits a character for the words, of which {unknown:.0%} are unknown and not spelt out; "
            f"{character:.2f} for all characters")  # fmt: skip
    return Finding("cannot" if unknown > 0 else "words" if word_bits < character else "characters", note, "any unknown")


PASSAGES = Exercise(
    id="two-passages", title="Perplexities of two models on two passages", where={"known": VOCABULARY - 2},
    question="A bigram model of words and a model of characters are trained on Tiny Shakespeare. The word model "
    "knows the 1,998{known} most frequent words and has one token for all others. Both are measured on a passage of "
    "Shakespeare that was held out, and on one from Wikipedia.",
    answer="Both models find the Wikipedia passage harder: its words, spellings and signs are not those of the "
    "plays. But the perplexity of the word model alone does not show it, because every unknown word is the same "
    "token, which is easy to predict where it is frequent: the less it knows, the better it looks. A perplexity far "
    "below that on its own development text is a sign of that, not of a good model. Splitting off punctuation and "
    "lower-casing reduces the share of unknown words. Models with different tokens are compared in bits per "
    "character, with unknown words spelt out.",
    parts=[
        Part("all-words",
             "With unknown words counted as one token, the word model has a higher perplexity on the Wikipedia "
             "passage than on the Shakespeare passage.", Truth("false"), "trained", all_words_harder,
             why="Unknown words are so frequent there that their token is easy to predict.",
             wrong={"thought that text of another kind always has a higher perplexity": True}),
        Part("word-model",
             "On the words that it knows, the word model has a higher perplexity on the Wikipedia passage than on "
             "the Shakespeare passage.", Truth("true"), "trained", words_harder,
             why="Known words follow each other in other orders there, and often follow unknown ones.",
             wrong={"compared the perplexity with unknown words": False}),
        Part("character-model",
             "The character model also has a higher perplexity on the Wikipedia passage.", Truth("true"),
             "trained", characters_harder, why="Names, numbers and long words have other spellings than the plays.",
             wrong={"thought that characters are the same in every text": False}),
        Part("unknown",
             "If the Shakespeare passage is written in capitals, so that the word model knows none of its words, its "
             "perplexity falls.", Truth("true"), "trained", unknown_lowers,
             why="One token is repeated, and the model soon expects it.",
             wrong={"thought that unknown words are always expensive": False}),
        Part("split", "Splitting off punctuation and lower-casing reduces the share of unknown words in both passages.",
             Truth("true"), "counted", splitting_helps,
             why="“Sir,” and “sir” become the same known word.",
             wrong={"thought that the vocabulary does not depend on the spelling": False}),
        Part("compare", "Which of the two models predicts the Wikipedia passage better, by these perplexities?",
             Choice("cannot", {"words": "the word model", "characters": "the character model",
                               "cannot": "they do not tell: unknown words are not spelt out"}), "trained", fewer_bits,
             why="The word model does not pay for the spelling of unknown words, so it encodes less than the passage."),
    ])  # fmt: skip

EXERCISES = (PASSAGES,)
