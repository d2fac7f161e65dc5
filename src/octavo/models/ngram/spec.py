"""What octavo knows about n-gram models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from octavo.engines.engine import Engine
from octavo.engines.stages import Stages
from octavo.io.progress import progress
from octavo.models.cost.parts import Cache, Cost, Shape
from octavo.models.ngram.config import NGramConfig
from octavo.models.ngram.counting import Workspace
from octavo.models.ngram.model import DTYPES, NGram
from octavo.models.spec import Candidate, FitContext, Fitted, ModelSpec, Preset
from octavo.models.views import Bars, View
from octavo.text.tokenizers.base import Tokenizer

ESTIMATORS = {
    "kneser-ney": "Kneser-Ney",
    "mle": "maximum likelihood",
    "add-k": "add-k",
    "stupid": "stupid backoff",
    "ppm": "prediction by partial matching",
    "arpa": "read from an ARPA file",
}
PRESETS = {
    "ppm": Preset("PPM", "counts of n tokens in a row, the longest context first (prediction by partial matching)",
                  NGramConfig(order=6, estimator="ppm")),
}  # fmt: skip


def _fit(x_N: Tensor, config: NGramConfig, tokenizer: Tokenizer, context: FitContext) -> Fitted:
    with progress(f"counting {config.order}-grams", len(x_N) * config.order, "look-ups") as advance:
        workspace = Workspace(folder=context.folder)
        return Fitted(NGram.fit(x_N, config, tokenizer.vocab, tokenizer.newline, workspace, advance))


def _fit_by_engine(engine: Engine, stages: Stages, tokens: Path, config: NGramConfig, tokenizer: Tokenizer) -> Fitted:
    from octavo.models.ngram.engine_fit import fit_tokens  # which needs pyarrow

    return Fitted(fit_tokens(engine, stages, tokens, config, tokenizer))


def _candidates(seconds: float | None, device: str) -> tuple[Candidate, ...]:
    words = {"order": 3, "tokenizer": "word"}
    further = {3: ("char", "bpe"), 5: ("char",), 7: ()}  # a character of several bytes takes as much of a byte 7-gram
    return (
        *(Candidate(f"kn{n}", f"{n}-gram, Kneser-Ney", "ngram", {"order": n}, further[n]) for n in (3, 5, 7)),
        Candidate("words3", "3-gram of words, Kneser-Ney", "ngram", words),
        Candidate("ppm", "PPM, 5 tokens of context", "ngram", {"order": 6, "estimator": "ppm"}, only_if_named=True),
    )


def _cost(config: NGramConfig, V: int, shape: Shape) -> Cost:
    """Tables at most as large as the text allows, if no n-gram came twice; the state is a node for each length of
    context, none to order - 1.
    """
    words = min(V, shape.text) if shape.text else V
    nodes = [1, V, *(min(words**n, shape.text) for n in range(2, config.order + 1))]  # of each length
    total, contexts = sum(nodes), sum(nodes[:-1])
    lengths = {"word_M": total, "alpha_M": total + 1, "first_C": contexts + 1, "gamma_C": contexts}
    tables = sum(length * DTYPES[name].itemsize for name, length in lengths.items())
    return Cost("ngram", V, shape, (), (Cache(constant=config.order),), tables, total - 1, tables_at_most=True)


def _sizes(model: NGram, spell: Callable[[int], str]) -> Bars:
    rows = tuple((f"{order}-grams", float(count)) for order, count in enumerate(model.sizes(), 1))
    return Bars("How many different n-grams of each length it stores.", rows)


SPEC = ModelSpec(
    "ngram", "n-gram", "counts of n tokens in a row, smoothed (Kneser-Ney)", "counts", NGram, NGramConfig,
    fitting="counts", fit=_fit, fit_by_engine=_fit_by_engine,
    counting_job=lambda config: {"order": config.order, "sentences": config.sentences}, cost=_cost, presets=PRESETS,
    views=(View("backoff", "Back-off path", "token-table", "backoff"),),
    candidates=_candidates, details=_sizes, exports=("arpa",), adaptive_variant="adaptive-ngram",
    summarise=lambda model, tokens: f"{model.config.order}-gram of {tokens}, {ESTIMATORS[model.config.estimator]}",
    unused_settings=lambda config: (*(() if config.estimator == "add-k" else ("k",)),
                                    *(() if config.estimator == "ppm" else ("escape", "exclusion"))),
    entries="n-grams", count_entries=lambda model: sum(model.sizes()),
    equation="""p(w | c) = α(c w) + γ(c) p(w | c′), where c′ is the context c without its first token
p(w | nothing) = α(w) + γ / V
Kneser-Ney: α(c w) = (n(c w) - D) / Σ_v n(c v), with a discount D for n = 1, 2, 3 or more; γ(c) = 1 - Σ_v α(c v)
below the highest order n(c w) counts the different tokens in front of c w
PPM: p(w | c) = n(c w) / (T + e) where c w was seen, else e / (T + e) p(w | c′ without what was seen after c)
T = Σ_v n(c v); escape e: 1 (A), the number d of different v (C); D: n - ½ for n, e = d / 2""",
)  # fmt: skip
