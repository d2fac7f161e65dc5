"""The registry of exercises: each topic is a list of modules with an `EXERCISES` tuple; teachers add a folder of files.

To add an exercise, write one module in `octavo/exercises/topics` and add its name to its topic in `TOPICS`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from octavo.errors import UserError, did_you_mean
from octavo.exercises.framework.exercise import Exercise
from octavo.exercises.question_sets import exercises_by_source

TOPICS_PACKAGE = "octavo.exercises.topics"
TOPICS: dict[str, tuple[str, ...]] = {  # title of a topic -> its modules in TOPICS_PACKAGE, in reading order
    "Attention and softmax": (
        "softmax", "weight_bounds", "score_scaling", "score_variance", "attention", "sparse_factors", "heads",
        "output_size", "projection_counts", "permutation",
    ),
    "Copy and average": ("copying", "noisy_keys", "query_design", "key_value_lookup", "synthesizer"),
    "Positions": ("positions", "position_maps", "head_patterns"),
    "Efficient attention": (
        "attention_cost", "linear_attention", "matrix_state", "retention", "channel_decay", "state_space_duality",
        "gated_delta", "matrix_lstm", "feature_products", "encoder_decoder", "attention_products", "latent_cache",
        "expert_routing",
    ),
    "Recurrent networks": (
        "sigmoid", "gates", "gru_conventions", "lstm_gradients", "vanishing_gradients", "gradient_paths",
        "linear_recurrence", "minimal_lstm", "complex_recurrence", "retained_share",
    ),
    "Language models": (
        "ngrams", "ngram_sequences", "partial_matching", "context_weighting", "forward_algorithm", "linear_chain",
        "vector_bigram", "fixed_context", "characters_or_words", "shakespeare_characters", "greedy_decoding",
        "greedy_tables", "perplexity", "two_passages", "preprocessing",
    ),
    "Networks and pretraining": (
        "cross_entropy", "hidden_layer", "deep_averaging", "bert_parameters", "self_supervision", "pretraining_tasks",
        "factual_knowledge", "unknown_names", "confidence_threshold",
    ),
}  # fmt: skip
FOLDER_TOPIC = "Your own"  # the topic of exercises that come from a teacher's folder


def exercises_by_topic(folder: str | Path | None = None) -> dict[str, list[Exercise]]:
    """Every topic with its exercises, in order; those of a teacher's folder come last."""
    topics: dict[str, list[Exercise]] = {
        topic: [one for name in names for one in importlib.import_module(f"{TOPICS_PACKAGE}.{name}").EXERCISES]
        for topic, names in TOPICS.items()
    }
    if folder is not None:
        topics[FOLDER_TOPIC] = load_folder(folder)
    ids = [exercise.id for exercises in topics.values() for exercise in exercises]
    if repeated := sorted({name for name in ids if ids.count(name) > 1}):
        raise UserError(f"every exercise needs its own id: {', '.join(repeated)} occurs twice; rename one")
    return topics


def select_exercises(names: Sequence[str], folder: str | Path | None = None) -> list[Exercise]:
    """The exercises with these ids, of these topics or for these sources; all of them if no name is given."""
    topics = exercises_by_topic(folder)
    by_id = {exercise.id: exercise for exercises in topics.values() for exercise in exercises}
    if not names:
        return list(by_id.values())
    groups = {name: [by_id[one] for one in exercises] for name, exercises in exercises_by_source().items()}
    groups |= {topic.lower(): exercises for topic, exercises in topics.items()}
    selected: dict[str, Exercise] = {}
    for name in names:
        if name not in by_id and name.lower() not in groups:
            remedy = did_you_mean(name, [*by_id, *topics, *groups], "octavo exercises list shows them")
            raise UserError(f"there is no exercise, topic or source {name!r}; {remedy}")
        exercises = groups[name.lower()] if name.lower() in groups else [by_id[name]]
        selected |= {exercise.id: exercise for exercise in exercises}
    return list(selected.values())


def load_folder(folder: str | Path) -> list[Exercise]:
    """The exercises of a teacher's Python files. The files are executed: name only a folder whose code you trust."""
    files = sorted(Path(folder).glob("*.py"))
    if not files:
        raise UserError(f"a folder of exercises holds Python files: {folder} has none; see octavo exercises --help")
    loaded: list[Exercise] = []
    for file in files:
        spec = importlib.util.spec_from_file_location(f"octavo_own_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            remedy = (
                "import names from octavo.exercises" if isinstance(error, ImportError) else "fix it or move it away"
            )
            raise UserError(f"{file} cannot be executed: {type(error).__name__}: {error}; {remedy}") from error
        exercises = getattr(module, "EXERCISES", None)
        if not isinstance(exercises, list | tuple) or not all(isinstance(one, Exercise) for one in exercises):
            raise UserError(f"{file} must define EXERCISES, a list of Exercise; see docs/exercises.md")
        loaded += exercises
    return loaded
