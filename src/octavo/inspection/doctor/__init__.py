"""Is my loss normal? A run's curve, baselines, softmax, gradients and use of context, each examined and explained."""

from octavo.inspection.doctor.checks import examine
from octavo.training.diagnosis.finding import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "examine"]
