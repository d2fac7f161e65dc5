"""How a model gets better with more text, more parameters and more training, and where it passes another.

from octavo.scaling import scale
found = scale("gpt", "shakespeare", budget="20s", out="runs/scale")
found.text["gpt"].fit.law, found.crossing, found.to_json()
"""

from octavo.scaling.cross import Crossing, crossing
from octavo.scaling.law import Fit, Interval, Law, fit_law
from octavo.scaling.plan import Plan
from octavo.scaling.result import Curve, Scaling
from octavo.scaling.series import Point
from octavo.scaling.survey import scale

__all__ = ["Crossing", "Curve", "Fit", "Interval", "Law", "Plan", "Point", "Scaling", "crossing", "fit_law", "scale"]
