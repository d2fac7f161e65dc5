"""The settings of the training loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from octavo.config import Amount, CountOrZero, LengthOrZero, Range, check_ranges
from octavo.core import LanguageModel
from octavo.errors import UserError
from octavo.training.schedule import Budget


@dataclass(frozen=True)
class LoopConfig:
    """How long and in what batches a model is trained."""

    budget: str = "180s"
    """How long to train: 180s, 3min, 5000steps, 20Mtokens of a text or 20kexamples of anything else."""
    batch_size: LengthOrZero = 0
    """Examples (of language models: parallel streams) of an update, over all processes; 0: the model's default."""
    sequence_length: LengthOrZero = 0
    """Language models: tokens of each stream in an update (block size, length of BPTT); 0: the model's default."""
    accumulate: Annotated[int, Range(1, 1 << 16)] = 1
    """Gradient accumulation: work through the batch in so many parts, with less memory and the same result."""
    evaluations: Annotated[int, Range(1, 1_000_000)] = 10
    """Number of evaluations on validation data during training; a language model also writes a sample at each."""
    patience: CountOrZero = 0
    """Early stopping: end after so many evaluations without an improvement; 0: never."""
    checkpoint_seconds: Amount = 30.0
    """Seconds between checkpoints."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast of matrix products where the hardware supports it."""
    compile: Literal["auto", "on", "parts", "graph", "off"] = "auto"
    """torch.compile. on: the whole step; parts: each block; graph: CUDA graph capture; auto: what is fastest."""
    shard: bool = False
    """With several processes: each keeps a part of the weights (FSDP), for models that do not fit."""
    tensorboard: bool = False
    """Write TensorBoard events into the run's folder too."""

    RENAMED: ClassVar[dict[str, str]] = {
        "batch": "batch_size", "window": "sequence_length", "checks": "evaluations", "save_every": "checkpoint_seconds",
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.budget:
            Budget.parse(self.budget)
        check_ranges(self)
        if self.batch_size and self.batch_size % self.accumulate:
            raise UserError(
                f"accumulate must divide the batch: batch_size={self.batch_size}, accumulate={self.accumulate}; "
                "try powers of 2"
            )
        if self.compile == "graph" and self.accumulate > 1:  # a recording puts its gradient where the last one was
            raise UserError(
                f"a recorded step takes its batch at once: --compile graph, --accumulate {self.accumulate}; "
                "try --compile parts"
            )

    def suiting(self, model: LanguageModel[Any]) -> LoopConfig:
        """With the model's default batch size and sequence length, where none were given."""
        tokens, length = model.default_batch_shape
        length = self.sequence_length or length
        rows = self.batch_size or -(-max(1, tokens // length) // self.accumulate) * self.accumulate
        return replace(self, batch_size=rows, sequence_length=length)

    def out_of_memory(self, error: BaseException) -> UserError | None:
        """What to tell the user where the error says that memory was short."""
        words = str(error)
        if not isinstance(error, MemoryError) and "allocate memory" not in words and "out of memory" not in words:
            return None
        size, length = self.batch_size, self.sequence_length
        more = next((n for n in range(self.accumulate + 1, size + 1) if size % n == 0), 0)
        same = f"--accumulate {more} takes less and trains the same, " if more else ""
        fewer = f"--batch-size {size // 2} takes less" if size > 1 else f"--sequence-length {length // 2} takes less"
        return UserError(
            f"out of memory with batch_size={size}, sequence_length={length}, accumulate={self.accumulate}; "
            f"{same}{fewer}, and so does a narrower model"
        )
