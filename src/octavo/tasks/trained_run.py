"""What runs of all tasks have: a model, a record of where it came from, and a folder.

    config.json        the model's settings, the data, the seed, the versions, the result
    tokenizer.json     the tokenizer, whole
    model.safetensors  the tensors and nothing else; never a pickle
    metrics.jsonl      one object a measurement
    samples.txt        text the model wrote
    report.html        a page that opens offline
    state/             what training needs to go on: optimizers, the place in the text

The folder is written under another name and renamed when it is complete, so a killed run leaves the last good one.
Reading it runs no code that is in it, and every value is checked before it is used.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor

from octavo.config import from_json
from octavo.errors import UserError
from octavo.io.integrity import verified
from octavo.io.lock import locked
from octavo.io.run_folder import read_record, save_folder
from octavo.models import MODELS, name_of, parameter_count
from octavo.models.loading import filled
from octavo.models.spec import ModelSpec
from octavo.pages.markup import element
from octavo.pages.sections import notebook_view, paragraph
from octavo.tasks.run_rows import BITS, figures_of, is_unfinished, shown_figure, trained_on

READ_TRIES = 5


class TrainedRun:
    """A trained model with everything needed to use it and to say where it came from."""

    task: ClassVar[str]
    model: Any
    record: dict[str, Any]
    path: Path | None

    # ------------------------------------------------------------------ what it is

    @property
    def model_name(self) -> str:
        """As a record has it: gpt, seq2seq, linear."""
        return name_of(self.model).removesuffix("-classifier")

    @property
    def name(self) -> str:
        """What to call it: the folder's name, else the model's."""
        return self.path.absolute().name if self.path else self.model_name

    @property
    def unfinished(self) -> bool:
        """Whether its training was stopped before its end, or goes on."""
        return is_unfinished(self.record)

    def summary(self) -> str:
        """One line: the model, the data, the result."""
        config = self.model.config
        plain = {field.name: field.default for field in dataclasses.fields(config)}
        settings = [(k, v) for k, v in vars(config).items() if k in ("order", "estimator") or v != plain[k]]
        shape = ", ".join(f"{key} {value}" for key, value in settings)
        model = f"{self.model_name} ({shape})" if shape else self.model_name
        result = ", training not finished" if self.unfinished else self.result_in_words()
        return f"{model}{self.manner()}, on {trained_on(self.record) or 'unknown data'}{result}"

    def manner(self) -> str:
        """What the summary says between the model and the data."""
        return ""

    def result_in_words(self) -> str:
        """What the summary says of the result."""
        words = [shown_figure(name, value).replace(BITS, "bits per byte") for name, value in figures_of(self.record)]
        return "".join(f", {one}" for one in words)

    def __repr__(self) -> str:
        return f"<octavo run {self.name!r}{f' at {self.path}' if self.path else ''}: {self.summary()}>"

    def _repr_html_(self) -> str:
        return notebook_view(paragraph(element("b", f"octavo run {self.name}")), paragraph(self.summary()))

    # ------------------------------------------------------------------ its folder

    def description(self) -> dict[str, Any]:
        """What the record needs to build the model again, but for its tensors."""
        return {"model": self.model_name, "config": dataclasses.asdict(self.model.config), "sizes": self.sizes}

    @property
    def sizes(self) -> dict[str, int]:
        """The whole numbers beside the config that the model's constructor takes."""
        return dict(self.model.sizes)

    def tensors(self) -> Mapping[str, Tensor]:
        """What model.safetensors holds."""
        tensors: Mapping[str, Tensor] = self.model.state_dict()
        return tensors

    def texts(self) -> dict[str, str]:
        """What other files of the folder hold."""
        return {}

    @classmethod
    def read_folder(cls, path: Path, record: dict[str, Any], **given: Any) -> Self:
        """The run in a folder, but for its record; what is damaged raises any error of a wrong value."""
        raise NotImplementedError

    def save(self, path: str | Path, texts: Mapping[str, str] | None = None, keep: Sequence[str] = ()) -> Self:
        """Write the folder, in place of the run that stood there; anything else that stands there is refused.

        What the old folder has of the names in `keep` goes into the new one.
        """
        with locked(path, "saves a run"):
            return self.write(Path(path), texts, [Path(path) / name for name in keep])

    def write(self, path: Path, texts: Mapping[str, str] | None = None, keep: Sequence[Path] = ()) -> Self:
        """Write the folder, of which the caller holds the lock; the files and folders in `keep` go into it too."""
        record = {**self.record, **self.description(), "task": self.task, "parameters": parameter_count(self.model)}
        self.record["sha256"] = save_folder(path, record, self.tensors(), {**self.texts(), **(texts or {})}, keep)
        self.path = path
        return self

    @classmethod
    def load(cls, path: str | Path, record: dict[str, Any] | None = None, **given: Any) -> Self:
        """The run in a folder. Nothing in it is executed; what is damaged, foreign or of another task is refused."""
        path = Path(path)
        record = read_record(path) if record is None else record
        for _ in range(READ_TRIES):  # the folder may be replaced by another run while it is read
            try:
                run, error = cls._read(path, record, **given), None
            except UserError as wrong:
                error = wrong
            if (now := read_record(path)) == record:
                break
            record = now
        if error is not None:
            raise error
        return run.placed(path, record)

    @classmethod
    def _read(cls, path: Path, record: dict[str, Any], **given: Any) -> Self:
        if record["task"] != cls.task:
            from octavo.tasks.task import find_task

            raise UserError(
                f"{path} was not trained to {find_task(cls.task).purpose}, but to "
                f"{find_task(record['task']).purpose}; in Python, octavo.load({str(path)!r}) opens runs of every task"
            )
        try:
            with verified(path, record):
                return cls.read_folder(path, record, **given)
        except UserError as error:
            if str(error).startswith(str(path)):  # it names the run's file, and what is wrong with it
                raise
            raise UserError(f"{path} is damaged or foreign: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            raise UserError(f"{path} is damaged or foreign: {reason}; train the run again") from error

    def placed(self, path: Path, record: Mapping[str, Any]) -> Self:
        """The run as that of a folder: with what the folder's record says besides what the run itself does."""
        self.path, own = path, {*self.description(), "format", "octavo", "task"}
        self.record = {key: value for key, value in record.items() if key not in own}
        return self

    def data(self, remedy: str = "name others, or train it anew") -> Any:
        """The data that it was trained and measured on, read again; refused where they have changed since."""
        from octavo.tasks.task import find_task

        return find_task(self.task).reopen({**self.record, **self.description()}, str(self.path or self.name), remedy)

    def check_finished(self) -> Self:
        """The run itself; one whose training was stopped is refused."""
        if self.unfinished:
            raise UserError(f"{self.path}: its training is not finished; go on with: octavo resume {self.path}")
        return self


def models_of(task: str) -> dict[str, ModelSpec]:
    """The specs of a task's models, by the names that records have."""
    return {spec.name.removesuffix("-classifier"): spec for spec in MODELS.values() if spec.task == task}


def read_model(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """The model of a record, made without memory first: a forged config must not take any without bound."""
    specs, sizes = models_of(record["task"]), record["sizes"]
    if record["model"] not in specs:
        raise ValueError(f"such a run has a model {' or '.join(specs)}: it has {record['model']!r}")
    spec = specs[record["model"]]
    config: Any = from_json(spec.config, record["config"])
    names = list(inspect.signature(spec.model).parameters)[1:]
    if not isinstance(sizes, dict) or set(sizes) != set(names) or not all(type(n) is int for n in sizes.values()):
        raise ValueError(f"sizes must be whole numbers {', '.join(names)}: {str(sizes)[:80]}")
    layers = max(getattr(config, "layers", 0), getattr(config, "decoder_layers", 0))
    return filled(lambda: spec.model(config, **sizes), tensors, layers, spec.log_tables)
