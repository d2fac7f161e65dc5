"""Runs that are no plain language models: what trains them, goes on with them and opens them.

octavo.train, octavo.resume and octavo.load hand over to what is named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from octavo.config import configs_from, from_json
from octavo.errors import UserError
from octavo.io.run_folder import read_record

Other = Literal["vit", "davit", "seq2seq", "seq2seq-recurrent", "bert", "facts"]
OTHERS: tuple[Other, ...] = ("vit", "davit", "seq2seq", "seq2seq-recurrent", "bert", "facts")
ANSWERS = "answer questions"
ALSO = ("out", "seed", "device")


def task_of(record: Mapping[str, Any]) -> str:
    """What a run was trained to do, where that is not to predict the next token alone."""
    return str(record.get("task", "")) or (ANSWERS if "facts" in record else "")


def train_task(
    model: str, source: Any, out: str | Path | None, seed: int, device: str, settings: Mapping[str, Any]
) -> Any:  # fmt: skip
    """Train one of OTHERS; what comes back is what its own module gives: an ImageRun, a Translator, ..."""
    if model in ("vit", "davit"):
        from octavo.tasks import images

        return images.train(model, source, out=out, seed=seed, device=device, **settings)
    if model in ("seq2seq", "seq2seq-recurrent"):
        from octavo.tasks import translation

        return translation.train(model, source, out=out, seed=seed, device=device, **settings)
    return (_train_bert if model == "bert" else _train_facts)(source, out, seed, device, settings)


def _train_bert(source: Any, out: str | Path | None, seed: int, device: str, settings: Mapping[str, Any]) -> Any:
    from octavo.models.bert import BertConfig
    from octavo.tasks.masked_training import PretrainConfig, pretrain
    from octavo.tasks.masking import MaskConfig
    from octavo.training.optimizer import OptimizerConfig

    usual = BertConfig(), PretrainConfig(), OptimizerConfig(), MaskConfig()
    config, how, optim, mask = configs_from("bert", usual, settings, ALSO)
    sources = [source] if isinstance(source, str | Path) else list(source)
    return pretrain(list(map(str, sources)), config, how, optim, mask, out, seed, device)


def _train_facts(source: Any, out: str | Path | None, seed: int, device: str, settings: Mapping[str, Any]) -> Any:
    from octavo.tasks.facts_training import USUAL, FactsConfig

    if not isinstance(source, str | Path):
        raise UserError(f"facts are of one source: got {source!r}; name birthplaces, people-500 or a folder")
    how, config = configs_from("facts", (FactsConfig(), USUAL), settings, ALSO)
    return _facts(str(source), config, how, out, seed, device)


def _facts(source: str, config: Any, how: Any, out: str | Path | None, seed: int, device: str = "auto") -> Any:
    from octavo.tasks.facts_page import answers_page_maker
    from octavo.tasks.facts_run import train_facts

    page = answers_page_maker(source, config, how, out, seed) if out is not None else None
    return train_facts(source, config, how, out, seed, device, page)


def resume_task(path: str | Path, budget: str | None = None) -> Any:
    """Go on with a run that is no plain language model; None where it is one."""
    record = read_record(path)
    task = task_of(record)
    if task == "classify images":
        from octavo.tasks import images

        return images.resume(path, budget=budget)
    if task == "translate":
        from octavo.tasks import translation

        return translation.resume(path, budget)
    if task == "fill in masked words":
        from octavo.tasks.masked_training import resume_pretraining

        return resume_pretraining(path, budget)
    if task not in ("classify text", ANSWERS):
        return None
    if budget:
        counted = "epochs" if task == "classify text" else "passes"
        raise UserError(f"{path} is trained for so many {counted}, not for a budget: budget={budget}; leave it out")
    if task == ANSWERS:
        return _resume_facts(path, record["facts"])
    from octavo.tasks.classification_page import classify_page_maker
    from octavo.tasks.classification_training import resume_classifier

    return resume_classifier(path, classify_page_maker)


def _resume_facts(path: str | Path, told: Any) -> Any:
    from octavo.models.parts.config import GPTConfig
    from octavo.tasks.facts_run import DONE
    from octavo.tasks.facts_training import FactsConfig

    settings = told.get("settings") if isinstance(told, Mapping) else None
    if not isinstance(settings, Mapping) or not isinstance(settings.get("source"), str):
        raise UserError(f"{path} does not say what it learns from; train it anew with octavo train facts")
    if told.get("stage") == DONE:
        raise UserError(f"{path} is finished; to teach it more: octavo answer {path} --learn --facts FILE")
    config, how = from_json(GPTConfig, settings.get("model", {})), from_json(FactsConfig, settings.get("how", {}))
    return _facts(settings["source"], config, how, path, int(settings.get("seed", 0)))


def refuse_others(model: str, parts: Sequence[Any], measure: bool) -> None:
    """What octavo.train takes for language models only."""
    if parts or not measure:
        raise UserError(f"parts and measure are for language models: model={model}; leave them out")
