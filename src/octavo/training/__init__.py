"""Training: from a text and a config to a run."""

from octavo.training.fit import TextConfig, train_counts
from octavo.training.loop_config import LoopConfig
from octavo.training.mixing import train_mix
from octavo.training.neural import Recipe, resume, train_neural
from octavo.training.optim import OptimConfig

__all__ = ["LoopConfig", "OptimConfig", "Recipe", "TextConfig", "resume", "train_counts", "train_mix", "train_neural"]
