"""Is my loss normal? What the history of a training says: the doctor and the page of a run both judge by this."""

from octavo.training.diagnosis.curve import Training, TrainingCurve
from octavo.training.diagnosis.finding import Diagnosis, Finding
from octavo.training.diagnosis.history import examine_history

__all__ = ["Diagnosis", "Finding", "Training", "TrainingCurve", "examine_history"]
