"""Training: from a text and a config to a run."""

from octavo.training.fit import TextConfig, train_counts, train_mix

__all__ = ["TextConfig", "train_counts", "train_mix"]
