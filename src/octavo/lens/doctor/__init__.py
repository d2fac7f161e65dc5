"""Is my loss normal? A run's curve, floors, softmax, gradients and use of context, each examined and explained."""

from octavo.lens.doctor.examine import examine
from octavo.lens.doctor.finding import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "examine"]
