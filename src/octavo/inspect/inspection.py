"""One run inspected on a text: every view that its model has of kinds that tables and pages can show."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import UserError
from octavo.inspect.attention_maps import attention_over, most_tokens
from octavo.inspect.gradient_flow import Flow, check_back, default_back, gradient_flow
from octavo.inspect.views import find_view, layer_predictions, token_rows
from octavo.models import spec_of
from octavo.models.views import LayerPrediction, TokenMaps, TokenRow
from octavo.tasks.run import Run
from octavo.text.preprocess import apply
from octavo.text.token_display import BEGIN, display_token

MAX_TOKENS = 1000  # of a text that are read
SHOWN_KINDS = ("token-rows", "token-maps", "layers", "curve")  # in tables and pages


@dataclass(frozen=True)
class Inspection:
    """What a run shows of itself; the tokens are those read, begin first."""

    run: Run
    tokens: tuple[str, ...]
    truncated: bool  # whether the text was longer
    rows: tuple[TokenRow, ...] = ()  # gates and states
    maps: TokenMaps | None = None  # attention
    layers: tuple[LayerPrediction, ...] = ()  # the logit lens
    flow: Flow | None = None  # gradient flow

    @property
    def name(self) -> str:
        return str(self.run.path or self.run.name)

    def spell(self, token: int) -> str:
        """A token as it is shown."""
        return BEGIN if token == self.run.model.begin else display_token(self.run.tokenizer, token)

    @property
    def read(self) -> int:
        """How many tokens of the text were read."""
        return len(self.tokens) - 1


def tokens_of(run: Run, text: str) -> list[int]:
    """A text as the run's model would have met it in training."""
    data = apply(run.record.get("preprocess", ()), text.encode("utf-8", "surrogateescape"))
    x_T: list[int] = run.tokenizer.encode(data).tolist()
    return x_T


def has_inspection(run: Run) -> bool:
    """Whether the model has a view that tables and pages can show."""
    return any(view.kind in SHOWN_KINDS for view in spec_of(run.model).views)


def inspect_run(run: Run, text: str, back: int | None = None) -> Inspection:
    """Read the beginning of a text; `back` is how many steps the gradient is followed, by default half of it."""
    whole, model = tokens_of(run, text), run.model
    if not whole:
        raise UserError("there is nothing to read: the text is empty; give a sentence or two as --text")
    if not has_inspection(run):
        spec = spec_of(model)
        others = ", ".join(view.title.lower() for view in spec.views)
        elsewhere = f"the studio shows its {others}" if others else "its model declares no views"
        raise UserError(f"{run.path or run.name}: a {spec.name} has no gates, attention or gradient flow; {elsewhere}")
    x_T = whole[: min(MAX_TOKENS, most_tokens(model))]
    tokens = (BEGIN, *(display_token(run.tokenizer, token) for token in x_T))
    flow = None
    if find_view(model, "curve"):
        back = default_back(len(x_T)) if back is None else back
        check_back(back, len(x_T))
        flow = gradient_flow(model, x_T, back)
    return Inspection(
        run, tokens, len(whole) > len(x_T), token_rows(model, x_T),
        attention_over(model, x_T) if find_view(model, "token-maps") else None,
        layer_predictions(model, x_T) if find_view(model, "layers") else (), flow,
    )  # fmt: skip
