"""Exact duplicates and near duplicates (MinHash) among the lines or documents of a text, found by an engine."""

from octavo.text.duplicates.config import Bands, DuplicatesConfig
from octavo.text.duplicates.removal import Removal, remove_duplicates, summary

__all__ = ["Bands", "DuplicatesConfig", "Removal", "remove_duplicates", "summary"]
