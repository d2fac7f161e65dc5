"""Pretraining a BERT from raw text: words hidden, sentences exchanged, and the text itself knows the answers.

B rows, T tokens of a row, N masked tokens, P pairs of sentences, D width.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from octavo.config import from_json
from octavo.core import eval_mode, seeded_generator
from octavo.errors import UserError
from octavo.io.run_folder import CONFIG, METRICS, STATE, check_out, read_record
from octavo.models.bert import Bert, BertConfig, Texts
from octavo.ops.cross_entropy import nats_of
from octavo.tasks.count_training import pick_device, record_of
from octavo.tasks.encoder import Encoder, load_encoder
from octavo.tasks.masking import NOTHING, Ahead, Batch, MaskConfig, Masked
from octavo.tasks.sentences import Sentences, documents
from octavo.text.corpus import Corpus, open_corpus
from octavo.text.tokenizers.wordpiece import WordPiece, WordPieceSettings
from octavo.training.batch_loop import Fit, fit
from octavo.training.optimizer import OptimizerConfig
from octavo.training.precision import compiled

CHECKED, MEASURED = 4, 16  # batches of the text held out for choices, and of that which is reported


@dataclass(frozen=True)
class PretrainConfig:
    """How long, and in what pieces."""

    budget: str = "5min"
    """180s, 5min, 2h or 5000steps."""
    batch: int = 32
    """Rows of a step; each is as long as the context."""
    size: int = 8192
    """Words and parts of words of the vocabulary."""
    checks: int = 10
    """How often text that is held out is looked at; the best weights are kept."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """What products are computed in; auto: bfloat16 where the machine has it."""
    valid: tuple[str, ...] = ()
    """Text to measure on; without it the last tenth of the corpus."""
    field: str = "text"
    """JSON lines, parquet: where the text is."""

    def __post_init__(self) -> None:
        if self.batch < 1 or self.checks < 1:
            raise UserError(f"batch and checks must be at least 1: {self.batch}, {self.checks}; leave them out")


# ---------------------------------------------------------------------- what is asked of a batch


def losses(model: Bert, batch: Batch, smoothing: float = 0.0) -> dict[str, Tensor]:
    """The mean loss of each task, in nats an answer; nothing here waits for a GPU."""
    return {task: _nats(logits, target, smoothing) / (target != NOTHING).sum().clamp(min=1)
            for task, (logits, target) in questions(model, batch).items()}  # fmt: skip


def questions(model: Bert, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
    """For each task what the model says and what is right: logits_NV of several answers, or scores_N of yes."""
    h_ND = encoded(model, batch).flatten(0, 1)
    found = {}
    if model.words is not None:
        found["words"] = model.word_logits(h_ND[batch.chosen_N]), batch.target_N
    if model.next is not None or model.order is not None:
        pooled_PD = model.pool(h_ND[batch.first_P])
        if model.next is not None:
            found["next"] = model.next(pooled_PD), batch.next_P
        if model.order is not None:
            found["order"] = model.order(pooled_PD), batch.order_P
    if model.replaced is not None:
        found["replaced"] = model.replaced(h_ND), batch.replaced_BT.flatten()
    return found


def _nats(logits: Tensor, target_N: Tensor, smoothing: float = 0.0) -> Tensor:
    """In sum; what is not asked costs nothing."""
    if logits.dim() == 2:
        return nats_of(logits, target_N, NOTHING, smoothing)
    scores_N = logits if logits.dtype == torch.float64 else logits.float()
    asked_N = target_N != NOTHING
    nats_N = F.binary_cross_entropy_with_logits(scores_N, (target_N == 1).to(scores_N), reduction="none")
    return (nats_N * asked_N).sum()


def encoded(model: Bert, batch: Batch) -> Tensor:
    """h_BTD of the rows, in which each text sees itself alone."""
    return model.encode(batch.x_BT, batch.segment_BT, batch.place_BT, Texts.of(batch.text_BT))


@torch.no_grad()
def measure(model: Bert, batches: Iterable[Batch]) -> dict[str, float]:
    """How often each task is answered rightly; of replaced words the mean of both kinds, so that 0.5 is chance."""
    nats, kept = 0.0, dict[str, list[Tensor]]()
    device = model.embedding_VD.device
    with eval_mode(model):
        for batch in batches:
            for task, (logits, target_N) in questions(model, batch.to(device)).items():
                guess_N = logits.argmax(-1) if logits.dim() == 2 else (logits > 0).long()
                kept.setdefault(task, []).append(torch.stack([guess_N, target_N])[:, target_N != NOTHING])
                nats += float(_nats(logits, target_N)) if task == "words" else 0.0
    told: dict[str, float] = {}
    for task, parts in kept.items():
        guess_N, target_N = torch.cat(parts, 1)
        right_N = (guess_N == target_N).double()
        if task == "replaced":
            both = [right_N[target_N == kind].mean() for kind in (0, 1)]
            told["replaced_balanced"] = float(sum(both)) / 2
        else:
            told[f"{task}_accuracy"] = float(right_N.mean())
        if task == "words":
            told |= {"words_perplexity": math.exp(nats / max(1, len(right_N))), "masked_words": len(right_N)}
    return told


# ---------------------------------------------------------------------- the whole way


def pretrain(
    source: Any, config: BertConfig, how: PretrainConfig, optim: OptimizerConfig, mask: MaskConfig = MaskConfig(),  # noqa: B008
    out: str | Path | None = None, seed: int = 0, device: str = "auto", quiet: bool = False, going_on: bool = False,
) -> Encoder:  # fmt: skip
    """Learn words, then a BERT, from the first nine tenths of a text, and measure it on the rest.

    With `out`, a run that was stopped goes on from its last checkpoint when it is asked for again; `going_on` does so
    whatever its budget was.
    """
    began = time.perf_counter()
    _check(config, out, seed)
    corpus = open_corpus(source, field=how.field, valid=list(how.valid) or None)
    settings = {"pretrain": asdict(how), "optim": asdict(optim), "mask": asdict(mask), "seed": seed,
                "model": asdict(config), "corpus": corpus.train.sha256}  # fmt: skip
    settings = json.loads(json.dumps(settings))  # as a record that is read again has them
    encoder = _stopped(out, settings, going_on) or _fresh(corpus, config, how, seed)
    if out is not None and encoder.path is None:
        encoder.record = record_of(corpus, how.field, how.valid, seed, 0.0, 0)
        encoder.record["training"] = {"finished": False, "settings": settings}
        encoder.save(out)
    chosen = pick_device(device)
    done, told = _fit(encoder, corpus, how, optim, mask, seed, chosen, Path(out) if out is not None else None, quiet)
    read = done.steps * how.batch * config.context
    encoder.record = record_of(corpus, how.field, how.valid, seed, time.perf_counter() - began, read) | {
        "training": {"finished": True, "settings": settings, "steps": done.steps, "seconds": done.seconds,
                     "why": done.why, "padding": told.pop("padding")},
        "result": told,
    }  # fmt: skip
    encoder.model.cpu().eval()
    rows = "".join(json.dumps(row, allow_nan=False) + "\n" for row in [*done.history, told])
    return encoder.save(out, {METRICS: rows}, keep=(STATE,)) if out is not None else encoder


def resume_pretraining(path: str | Path, budget: str | None = None, device: str = "auto") -> Encoder:
    """Go on with a run that was stopped, as if it had not been; or, with a larger budget, with any."""
    record = read_record(path)
    training, source = record.get("training"), record.get("corpus", {}).get("source")
    settings = training.get("settings") if isinstance(training, Mapping) else None
    if not isinstance(settings, Mapping) or not source or not (Path(path) / STATE).is_dir():
        raise UserError(f"{path} was not trained here step by step, so there is nothing to go on with; train it anew")
    config, how = (
        from_json(BertConfig, settings.get("model", {})),
        from_json(PretrainConfig, settings.get("pretrain", {})),
    )
    optim, mask = from_json(OptimizerConfig, settings.get("optim", {})), from_json(MaskConfig, settings.get("mask", {}))
    how = replace(how, budget=budget) if budget else how
    return pretrain(source, config, how, optim, mask, path, int(record.get("seed", 0)), device, going_on=True)


def _check(config: BertConfig, out: str | Path | None, seed: int) -> None:
    """What would only fail when the model is trained is refused before."""
    seeded_generator(seed)
    if not config.tasks:
        raise UserError("a BERT learns from a task at least: tasks is empty; try --tasks words next")
    if config.context < 16 or config.segments < 2:
        raise UserError(
            f"pairs need a context of 16 tokens or more and 2 segments: context={config.context}, "
            f"segments={config.segments}; try --context 128"
        )
    if out is not None:
        check_out(out)


def _stopped(out: str | Path | None, settings: Mapping[str, Any], going_on: bool) -> Encoder | None:
    """The run that was stopped on the way with these same settings, if there is one."""
    if out is None or not (Path(out) / CONFIG).is_file() or not (Path(out) / STATE).is_dir():
        return None
    training = read_record(out).get("training")
    training = training if isinstance(training, Mapping) else {}
    known = training.get("settings")
    if going_on:
        if not isinstance(known, Mapping) or known.get("corpus") != settings["corpus"]:
            raise UserError(f"the text has changed since {out} was trained; train it anew")
        return load_encoder(out)
    return load_encoder(out) if known == settings and not training.get("finished") else None


def _fresh(corpus: Corpus, config: BertConfig, how: PretrainConfig, seed: int) -> Encoder:
    tokenizer = WordPiece.learn(corpus.train.chunks(), WordPieceSettings(how.size))
    model = Bert(config, tokenizer.vocab)
    model.initialise(seeded_generator(seed))
    return Encoder(model, tokenizer)


def _fit(
    encoder: Encoder, corpus: Corpus, how: PretrainConfig, optim: OptimizerConfig, mask: MaskConfig, seed: int,
    device: torch.device, folder: Path | None, quiet: bool,
) -> tuple[Fit, dict[str, float]]:  # fmt: skip
    """Train the encoder's model; how it went, and what it is worth on the text that is reported."""
    model, config = encoder.model, encoder.model.config
    learnt, held = Sentences.of(documents(corpus.train), encoder.tokenizer).parted()
    learnt.check("the training part")

    def batches(sentences: Sentences, seed: int) -> Masked:
        return Masked(sentences, encoder.tokenizer, config.tasks, how.batch, config.context, seed, mask)

    check: Callable[[], dict[str, float]] | None = None
    best = None
    if len(held) >= 4 and len(held.anchors_A):
        looked_at = [batches(held, seed + 1).at(n) for n in range(CHECKED)]
        best = _figure(config)

        def check() -> dict[str, float]:
            told = measure(model, looked_at)
            return {name: told[name] for name in told if name != "masked_words"}

    model.train()  # one that was loaded drops nothing
    ahead = Ahead(batches(learnt, seed).at)
    try:
        with compiled(model.blocks, "forward", device):
            done = fit(
                model, lambda batch: torch.stack(list(losses(model, batch, optim.label_smoothing).values())).sum(),
                lambda n: ahead(n).to(device), budget=how.budget, optim=optim, seed=seed, device=device,
                precision=how.precision, check=check, checks=how.checks, keep_best=best, folder=folder, quiet=quiet,
            )  # fmt: skip
    finally:
        ahead.close()
    valid = Sentences.of(documents(corpus.valid), encoder.tokenizer)
    valid.check("the part to measure on")
    measured = [batches(valid, 0).at(n) for n in range(MEASURED)]
    told: dict[str, float] = measure(model, measured)
    return done, told | {"padding": sum(batch.waste for batch in measured) / len(measured)}


def _figure(config: BertConfig) -> str:
    """What of the check says which weights are best."""
    task = config.tasks[0] if "words" not in config.tasks else "words"
    return "replaced_balanced" if task == "replaced" else f"{task}_accuracy"
