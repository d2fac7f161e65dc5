"""One run under the lens: the text as its tokens, gates and attention over them, and the gradient's way back."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import UserError
from octavo.inspect.attention_maps import Maps, attention_over, from_rows, most_tokens
from octavo.inspect.gates import Gates, gates_over
from octavo.inspect.gradient_flow import Flow, check_back, default_back, gradient_flow, has_gradient, stateless
from octavo.inspect.logit_lens import Depth, depths_over
from octavo.models import GPT, RNNAttention
from octavo.tasks.run import Run
from octavo.text.preprocess import apply
from octavo.text.token_display import BEGIN, display_token

LONGEST = 1000  # tokens of a text that are looked at


@dataclass(frozen=True)
class Look:
    """What a run shows of itself; the tokens are those read, begin first."""

    run: Run
    tokens: tuple[str, ...]
    cut: bool  # whether the text was longer
    gates: Gates
    flow: Flow
    maps: Maps | None = None  # of a model with attention
    depths: tuple[Depth, ...] = ()  # of a transformer

    @property
    def name(self) -> str:
        return str(self.run.path or self.run.name)

    def spelt(self, token: int) -> str:
        """A token as it is shown."""
        return BEGIN if token == self.run.model.begin else display_token(self.run.tokenizer, token)

    @property
    def read(self) -> int:
        """How many tokens of the text were looked at."""
        return len(self.tokens) - 1


def tokens_of(run: Run, text: str) -> list[int]:
    """A text as the run's model would have met it in training."""
    data = apply(run.record.get("preprocess", ()), text.encode("utf-8", "surrogateescape"))
    x_T: list[int] = run.tokenizer.encode(data).tolist()
    return x_T


def look(run: Run, text: str, back: int | None = None) -> Look:
    """Look at the beginning of a text; `back` is how many steps the gradient is followed, by default half of it."""
    whole = tokens_of(run, text)
    if not whole:
        raise UserError("there is nothing to look at: the text is empty; give a sentence or two as --text")
    if not has_gradient(run.model):
        raise UserError(f"{run.path or run.name}: {stateless(run.model)}")
    model = run.model
    x_T = whole[: min(LONGEST, most_tokens(model))]
    back = default_back(len(x_T)) if back is None else back
    check_back(back, len(x_T))
    tokens = (BEGIN, *(display_token(run.tokenizer, token) for token in x_T))
    flow, gates, cut = gradient_flow(model, x_T, back), gates_over(model, x_T), len(whole) > len(x_T)
    if isinstance(model, GPT):
        return Look(run, tokens, cut, gates, flow, attention_over(model, x_T), depths_over(model, x_T))
    maps = from_rows(gates, model.config.memory) if isinstance(model, RNNAttention) else None
    return Look(run, tokens, cut, gates, flow, maps)
