"""Answers with a confidence: the model first, then a file of facts, then the user; what is new is kept and learnt."""

from octavo.answering.facts_file import Facts, open_file_of_facts
from octavo.answering.system import Reply, Rules, other_answers, pairs_in, replies_to, what_words_did

__all__ = ["Facts", "Reply", "Rules", "open_file_of_facts", "other_answers", "pairs_in", "replies_to", "what_words_did"]
