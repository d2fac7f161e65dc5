"""Training: from a text and a config to a run."""

from octavo.tasks.count_training import TextConfig, train_counts
from octavo.tasks.language_training import Recipe, resume, train_neural
from octavo.tasks.mixture_training import train_mix
from octavo.training.loop_config import LoopConfig
from octavo.training.optimizer import OptimConfig

__all__ = ["LoopConfig", "OptimConfig", "Recipe", "TextConfig", "resume", "train_counts", "train_mix", "train_neural"]
