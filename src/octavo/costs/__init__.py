"""What models cost, before they are built: parameters, operations, memory, and time on a machine.

    from octavo.models.parts.config import GPTConfig
    from octavo.costs import Shape, cost_of_config
    cost = cost_of_config("gpt", GPTConfig(width=768, layers=12, heads=12), 50257, Shape(batch=8, window=256))
    cost.parameters, cost.per_token("forward"), [part.name for part in cost.parts]

`cost_of` takes a model that is there, `cost_like` the name of a well-known one; `training_memory`, `predict_training`
and `predict_decoding` go on from a cost, and `plan_for` from a budget.
"""

from octavo.costs.memory import Memory, training_memory
from octavo.costs.models import cost_of, cost_of_config, on_meta, one_token
from octavo.costs.planning import Assumptions, Plan, parse_budget, plan_for
from octavo.costs.published import cost_like
from octavo.costs.roofline import (
    GPUS,
    Machine,
    Prediction,
    measured_machine,
    named_gpu,
    predict_decoding,
    predict_training,
)
from octavo.models.cost.parts import Cache, Cost, Part, Shape

__all__ = [
    "GPUS", "Assumptions", "Cache", "Cost", "Machine", "Memory", "Part", "Plan", "Prediction", "Shape",
    "cost_like", "cost_of", "cost_of_config", "measured_machine", "named_gpu", "on_meta", "one_token", "parse_budget",
    "plan_for", "predict_decoding", "predict_training", "training_memory",
]  # fmt: skip
