"""How a model gets better with more text, more parameters and more training, and where it passes another.

from octavo.experiments.scale import scale
found = scale("gpt", "shakespeare", budget="20s", out="runs/scale")
found.text["gpt"].fit.law, found.crossing, found.to_json()
"""

from octavo.experiments.scale.measure import ScalePoint
from octavo.experiments.scale.power_law import Crossing, Fit, Interval, Law, crossing, fit_law
from octavo.experiments.scale.result import ScaleCurve, Scaling
from octavo.experiments.scale.run import ScalePlan, scale

__all__ = [
    "Crossing", "Fit", "Interval", "Law", "ScaleCurve", "ScalePlan", "ScalePoint", "Scaling", "crossing", "fit_law",
    "scale",
]  # fmt: skip
