"""A run that answers questions: trained in two stages, measured by where a name was seen, and taught new pairs.

The folder is that of any GPT, so octavo generate, eval and inspect work on it too; what it was taught stands in its
record under `facts`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from octavo.config import from_json
from octavo.core import seeded_generator
from octavo.datasets.questions import Frame, Knowledge, Pair
from octavo.decode.answers import Answer, answer_questions
from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, METRICS, REPORT, STATE, check_out, read_record
from octavo.models.gpt import GPT
from octavo.models.parts.config import GPTConfig
from octavo.scoring.answers import answered, exact_match
from octavo.tasks.count_training import pick_device
from octavo.tasks.facts_training import (
    USUAL,
    FactsConfig,
    finetune,
    finetune_on,
    fresh_model,
    open_facts,
    pretrain,
    settings_of,
    thinned,
)
from octavo.tasks.run import Run, load, save
from octavo.text.question_tokens import mark_of
from octavo.training.batch_loop import Fit

PRETRAINING, FINETUNING, DONE = "pretraining", "finetuning", "done"
MOST = 500  # questions learnt in finetuning that are asked again
SUREST = 10  # mistakes that are kept
Page = Callable[[Run], str]


@dataclass
class Oracle:
    """A run together with what it needs to answer: how questions are framed."""

    run: Run
    model: GPT
    frame: Frame

    def answer(self, questions: Sequence[str], beam: int = 1) -> list[Answer]:
        """The model's own answers, each with its confidence."""
        return answer_questions(self.model, self.run.tokenizer, questions, beam, self.model.config.context)

    def to(self, device: torch.device) -> Oracle:
        self.model.to(device)
        return self


def oracle_of(run: Run) -> Oracle:
    """The run as one that answers questions; any other is refused."""
    facts = run.record.get("facts")
    if not isinstance(facts, Mapping):
        raise UserError(
            f"{run.path or run.name} was not trained to answer questions; train one with octavo train facts birthplaces"
        )
    if facts.get("stage") != DONE:
        raise UserError(f"{run.path or run.name} is not trained to its end; go on with: octavo resume {run.path}")
    frame = facts.get("frame")
    if not isinstance(frame, list) or len(frame) != 2 or not all(isinstance(part, str) for part in frame):
        raise UserError(f"{run.path or run.name} is damaged: facts.frame must be two strings; train the run again")
    mark_of(run.tokenizer)
    return Oracle(run, cast(GPT, run.model), Frame(*frame))


def load_oracle(path: str | Path) -> Oracle:
    """The run in a folder, as one that answers questions."""
    return oracle_of(load(path))


def train_facts(
    source: str, config: GPTConfig = USUAL, how: FactsConfig = FactsConfig(), out: str | Path | None = None,  # noqa: B008
    seed: int = 0, device: str = "auto", page: Page | None = None, quiet: bool = False,
) -> Run:  # fmt: skip
    """Pretrain on a source's text, finetune on its questions, measure.

    With `out`, a run that was stopped goes on from its last checkpoint when it is asked for again.
    """
    seeded_generator(seed)
    if out is not None:
        check_out(out)
    began, chosen, known = time.perf_counter(), pick_device(device), open_facts(source, seed)
    settings = settings_of(source, known, config, how, seed)
    run = _stopped(out, settings) or _fresh(known, config, how, seed, settings)
    folder = Path(out) if out is not None else None
    facts, model = run.record["facts"], cast(GPT, run.model)
    if folder is not None and run.path is None:
        save(run, folder, {METRICS: ""})
    if facts["stage"] == PRETRAINING:
        told = pretrain(model, run.tokenizer, known, how, seed, chosen, folder, quiet)
        facts |= {PRETRAINING: _stage(told), "stage": FINETUNING}
        if folder is not None:
            save(run, folder, {METRICS: ""})  # without a state: the next stage begins anew
    told = finetune(model, run.tokenizer, known, how, seed, chosen, folder, quiet)
    facts |= {FINETUNING: _stage(told), "stage": DONE}
    run.record["train_seconds"] = sum(facts[stage]["seconds"] for stage in (PRETRAINING, FINETUNING) if stage in facts)
    run.record["result"] = measure(oracle_of(run), known, how.pretraining)
    facts["seconds_in_all"] = time.perf_counter() - began
    model.cpu()
    if folder is not None:
        rows = "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in told.history)
        save(run, folder, {METRICS: rows} | ({REPORT: page(run)} if page else {}))
    return run


def _fresh(known: Knowledge, config: GPTConfig, how: FactsConfig, seed: int, settings: Mapping[str, Any]) -> Run:
    model, tokenizer = fresh_model(known, config, seed)
    counts = {"texts": len(known.text), "learnt": len(known.train), "asked": len(known.dev)}
    facts = {"stage": PRETRAINING if how.pretraining else FINETUNING, "settings": settings,
             "frame": list(known.frame), **counts}  # fmt: skip
    return Run(model, tokenizer, {"corpus": {"name": known.name}, "seed": seed, "facts": facts})


def _stopped(out: str | Path | None, settings: Mapping[str, Any]) -> Run | None:
    """The run that was stopped on the way with these same settings, if there is one."""
    if out is None or not (Path(out) / CONFIG).is_file():
        return None
    facts = read_record(out).get("facts")
    if not isinstance(facts, Mapping) or facts.get("stage") == DONE or facts.get("settings") != settings:
        return None
    return load(out)


def _stage(told: Fit) -> dict[str, Any]:
    return {"steps": told.steps, "seconds": told.seconds, "why": told.why, "curve": thinned(told.history)}


# ---------------------------------------------------------------------- measuring


def measure(oracle: Oracle, known: Knowledge, pretrained: bool, beam: int = 1) -> dict[str, Any]:
    """Exact match on the questions kept back, always the commonest answer beside it, and all of it by group."""
    groups = known.groups(pretrained, MOST)
    asked = list(dict.fromkeys([*known.dev, *(pair for some in groups.values() for pair in some)]))
    said = dict(zip(asked, oracle.answer([pair.question for pair in asked], beam), strict=True))
    dev = known.dev
    wrong = sorted((pair for pair in dev if not exact_match(said[pair].text, pair.answer)),
                   key=lambda pair: -said[pair].confidence)  # fmt: skip
    return {
        **_judged(dev, said),
        "commonest": {"answer": known.commonest, "exact_match": _share(dev, known.commonest)},
        "groups": {name: _judged(some, said) for name, some in groups.items() if some},
        "surest_mistakes": [[pair.question, pair.answer, said[pair].text, said[pair].confidence]
                            for pair in wrong[:SUREST]],
    }  # fmt: skip


def _judged(pairs: Sequence[Pair], said: Mapping[Pair, Answer]) -> dict[str, Any]:
    right_N = [exact_match(said[pair].text, pair.answer) for pair in pairs]
    return answered([said[pair].confidence for pair in pairs], right_N).to_json()


def _share(pairs: Sequence[Pair], answer: str) -> float:
    return sum(exact_match(answer, pair.answer) for pair in pairs) / max(1, len(pairs))


# ---------------------------------------------------------------------- learning later


def learn(
    oracle: Oracle, pairs: Sequence[Pair], steps: int = 100, seed: int = 0, device: str = "auto",
    out: str | Path | None = None, quiet: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Finetune on new pairs beside those of the run's own finetuning, and save; the share of each that is right,
    before and after.
    """
    if not pairs or steps < 1:
        raise UserError(f"there must be pairs to learn, and steps: {len(pairs)} pairs, steps={steps}; store some first")
    if out is not None:
        check_out(out)
    run = oracle.run
    settings = run.record["facts"].get("settings")
    if not isinstance(settings, Mapping) or not {"source", "seed", "sha256", "how"} <= settings.keys():
        raise UserError(f"{run.path or run.name} does not say how it was trained; train it anew")
    known = open_facts(str(settings["source"]), int(settings["seed"]))
    if known.identity != settings["sha256"]:
        raise UserError(f"the facts of {settings['source']} are not those the run was trained on; train it anew")
    how, chosen = from_json(FactsConfig, settings["how"]), pick_device(device)
    oracle.to(chosen)
    before = _twice(oracle, pairs, known)
    told = finetune_on(oracle.model, run.tokenizer, pairs, known.train, steps, how, seed, chosen, quiet)
    after = _twice(oracle, pairs, known)
    oracle.model.cpu()
    run.record["facts"]["later"] = {"pairs": len(pairs), "steps": told.steps, "before": before, "after": after}
    if out is not None:
        save(run, out, keep=(REPORT, STATE))
    return {"pairs": len(pairs), "steps": told.steps, "seconds": told.seconds, "before": before, "after": after}


def _twice(oracle: Oracle, pairs: Sequence[Pair], known: Knowledge) -> dict[str, float]:
    """How many of the new pairs and of the questions kept back are answered rightly."""
    told = {}
    for name, some in (("new", pairs), ("dev", known.dev)):
        said = oracle.answer([pair.question for pair in some])
        told[name] = sum(exact_match(one.text, pair.answer) for one, pair in zip(said, some, strict=True)) / len(some)
    return told
