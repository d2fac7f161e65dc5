"""octavo export and import: models in the formats of octavo.exchange, out of runs and into them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from octavo.cli.flags import Force, MaybeNewPath, Target
from octavo.cli.output import Output, note, size
from octavo.io.run_folder import TENSORS
from octavo.tasks.api import load
from octavo.tasks.encoder import Encoder
from octavo.tasks.run_exchange import Precision, import_model, size_of_model
from octavo.tasks.run_exchange import export as export_model
from octavo.tasks.run_place import numbered

Source = Annotated[Positional[str], arg(metavar="NAME|PATH")]
ExportedRun = Annotated[Positional[str], arg(metavar="RUN", help="A run of an n-gram, a bert or a neural network.")]
ExportFormat = Literal["hf", "gguf", "onnx", "arpa"]
StoredPrecision = Literal["float16", "q8_0", "float32"]
LOSSY = "\nits tokenizer loses part of the text, so its bits per byte are not comparable with other models'"


def export(
    run: ExportedRun, target: Target = None, format: ExportFormat | None = None,
    precision: StoredPrecision | None = None, force: Force = False,
) -> Output:  # fmt: skip
    """Write a model in a format that others read.

    A gpt run goes to Hugging Face as the decoder that it is: Qwen3, Mistral, Llama or GPT-2 (docs/exchange.md).

    Example: octavo export runs/gpt gpt.gguf

    Args:
        target: The file or folder to write, by default beside the run; an ARPA file's .gz compresses it.
        format: hf: a folder for transformers. gguf: for llama.cpp. onnx: for onnxruntime. arpa: for KenLM and SRILM.
            By default what the target's name says (.gguf, .onnx, .arpa), or else what suits the model.
        precision: gguf: how weights are stored, float16 unless you say otherwise; q8_0 takes 8 bits.
    """
    loaded = load(run)
    exported = export_model(loaded, target, format, precision, force=force)
    note(*exported.notes)
    return Output(exported.to_json(), f"{size_of_model(loaded)[1]}, written to {exported.path}")


def import_(
    source: Source, out: MaybeNewPath = None, tokenizer_of: str | None = None, precision: Precision = "float32"
) -> Output:  # fmt: skip
    """Make a run of a model that others made: an ARPA file, a GGUF file, a Hugging Face folder, or a known name.

    An ARPA file's words become a closed vocabulary: text is split at white space, a line is a sentence, every other
    word is <unk>, or impossible where the file has no <unk>. With --tokenizer-of, a file that octavo exported gets its
    lossless tokenizer back.

    Example: octavo import smollm2 --out runs/smollm2

    Args:
        source: A file, plain or compressed, a folder, smollm2 (a decoder of 135 million parameters) or minilm (a BERT).
        out: The folder the run is written to; by default runs/imported, or runs/imported-2, ... if that exists.
        tokenizer_of: A run whose tokens are the model's, such as the one it was exported from.
        precision: How weights of a transformer are stored: float16 takes half the room and rounds them to 11 bits;
            computing is in float32 either way.
    """
    with nullcontext(Path(out)) if out else numbered(Path("runs/imported")) as place:
        run = import_model(source, place, tokenizer_of=tokenizer_of, precision=precision, force=True)  # --force decided
    if isinstance(run, Encoder):
        about: dict[str, Any] = {"vocab": run.model.vocab, "heads": list(run.model.config.tasks)}
        remarks, verbs = f"heads: {', '.join(about['heads']) or 'none'}", ["embed {} FILE"]
    else:
        tokenizer = run.tokenizer
        about = {"tokenizer": tokenizer.name, "vocab": tokenizer.vocab, "comparable": run.comparable}
        remarks, verbs = f"{tokenizer.name} tokens" + ("" if run.comparable else LOSSY), ["eval {} FILE", "inspect {}"]
    stored, (numbers, words) = (place / TENSORS).stat().st_size, size_of_model(run)
    next_steps = "".join(f"\n  octavo {verb.format(place)}" for verb in verbs)
    return Output({"run": str(place), **about, **numbers, "bytes": stored},
                  f"{words} ({size(stored)}), {remarks}\nthe run is in {place}; next:{next_steps}")  # fmt: skip
