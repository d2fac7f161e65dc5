"""Tagging: the best sequence of tags for the words of a text, and how probable each tag is for each word."""

from __future__ import annotations

import math
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from torch import Tensor

from octavo.studio.server.app import RunRequest, Studio
from octavo.studio.server.computed_routes import ComputedRoutes
from octavo.studio.server.scheduler import Ticket
from octavo.tasks.tagger import TaggedSentence, Tagger

MAX_TEXT_CHARACTERS = 10_000
MAX_ALTERNATIVES = 8  # tags of a word that are listed
BATCH_SENTENCES = 32  # that are tagged in one turn


class Sentences(RunRequest):
    """A sentence a line, its words separated by spaces, and the tagger that tags them."""

    text: str = Field(max_length=MAX_TEXT_CHARACTERS)


def router(studio: Studio) -> APIRouter:
    routes = ComputedRoutes(studio, "tag")
    routes.compute("/tag", tag, studio, place="process")
    return routes


def tag(ticket: Ticket, studio: Studio, asked: Sentences) -> dict[str, Any]:
    """Each sentence by the best sequence of tags (Viterbi), and by the most likely tag of each word.

    tags: all that the tagger knows. crf: whether it scores pairs of tags; without, both ways give the same. Of each
    word, alternatives: the most likely tags and their probabilities; known: whether training has seen the word often
    enough. p_best, p_likely: the probability of each way's whole sequence.
    """
    tagger = studio.models.get(asked.run, ticket, Tagger)
    sentences = [words for line in asked.text.splitlines() if (words := line.split())]
    found = []
    for start in range(0, len(sentences), BATCH_SENTENCES):
        with ticket.turn():
            found += _tag_batch(tagger, sentences[start : start + BATCH_SENTENCES])
    return {"tags": tagger.tags, "crf": tagger.model.config.crf, "sentences": found}


def _tag_batch(tagger: Tagger, sentences: list[list[str]]) -> list[dict[str, Any]]:
    tagged = tagger.tag(sentences)
    likely = [[tagger.tags[c] for c in one.p_TC.argmax(1).tolist()] for one in tagged]
    logp_best = tagger.sequence_log_probs(sentences, [one.tags for one in tagged])
    logp_likely = tagger.sequence_log_probs(sentences, likely)
    return [
        {"words": _words(tagger, one, tags), "p_best": math.exp(best), "p_likely": math.exp(other)}
        for one, tags, best, other in zip(tagged, likely, logp_best, logp_likely, strict=True)
    ]


def _words(tagger: Tagger, one: TaggedSentence, likely: list[str]) -> list[dict[str, Any]]:
    return [
        {"word": word, "tag": best, "p": float(p_C[tagger.tags.index(best)]), "likely": most,
         "alternatives": _alternatives(tagger, p_C), "known": tagger.reader.knows(word)}
        for word, best, most, p_C in zip(one.words, one.tags, likely, one.p_TC, strict=True)
    ]  # fmt: skip


def _alternatives(tagger: Tagger, p_C: Tensor) -> list[tuple[str, float]]:
    """The most likely tags of a word, the first of equals first."""
    best = p_C.sort(descending=True, stable=True)
    every = zip(best.indices[:MAX_ALTERNATIVES].tolist(), best.values[:MAX_ALTERNATIVES].tolist(), strict=True)
    return [(tagger.tags[c], p) for c, p in every]
