"""How a foreign model's settings and tensors stand beside ours: tables that are read in both directions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from octavo.config import from_json
from octavo.errors import UserError
from octavo.models.parts.config import GPTConfig

T = TypeVar("T")
SHOWN = 3  # names that a message shows
LONGEST_CONTEXT = 1 << 24  # tokens; no model has more, and a forged one could take memory without bound
ACTIVATIONS = {  # theirs and ours; of several for one of ours, the first is written
    "gelu_new": "gelu", "gelu": "gelu-exact", "relu2": "relu2", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu",
}  # fmt: skip
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


@dataclass(frozen=True)
class Settings:
    """What of a config.json decides the model."""

    ours: Mapping[str, tuple[str, Any]]
    """Their settings, each with ours and with what transformers takes where config.json leaves it out; 0: implied."""
    known: Mapping[str, tuple[Any, ...]]
    """Their settings that we have no counterpart of, each with the values that we can read, the usual one first."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Our settings for theirs; a variant that our transformer does not have is refused by name."""
        usual = {name: default for name, (_, default) in self.ours.items()}
        usual |= {name: values[0] for name, values in self.known.items()}
        fields = [(name, type(default), field(default=default)) for name, default in usual.items()]
        typed = dataclasses.make_dataclass("Settings", fields, frozen=True)
        given: Any = from_json(typed, {name: values[name] for name in usual if values.get(name) is not None})
        known = dict(self.known) | {
            name: tuple(ACTIVATIONS) for name, (ours, _) in self.ours.items() if ours == "feed_forward"
        }
        for name, readable in known.items():
            if (value := getattr(given, name)) not in readable:
                able_to = " or ".join(map(str, readable))
                raise UserError(f"octavo's transformer has no {name}={value}, only {able_to}; take another model")
        found = {ours: getattr(given, name) for name, (ours, _) in self.ours.items()}
        if "context" in found and not 2 <= found["context"] <= LONGEST_CONTEXT:
            raise UserError(f"a context must have from 2 to {LONGEST_CONTEXT:,} tokens: it says {found['context']:,}")
        if "feed_forward" in found:
            found["feed_forward"] = ACTIVATIONS[found["feed_forward"]]
        return found

    def write(self, config: Any, parts: GPTConfig, vocab: int) -> dict[str, Any]:
        """Their settings for our config; `parts` says what it implies."""
        implied = {"feed_forward_width": parts.inner, "kv_heads": parts.groups, "head_size": parts.head_size}
        activation = THEIR_ACTIVATIONS.get(parts.feed_forward, "")
        ours = dataclasses.asdict(config) | implied | {"vocab": vocab, "feed_forward": activation}
        theirs = {name: ours[own] for name, (own, _) in self.ours.items()}
        return theirs | {name: values[0] for name, values in self.known.items()}


@dataclass(frozen=True)
class Names:
    """A format's names, each beside ours; those of a layer stand after its number."""

    owner: str  # what the format calls such a model
    prefix: str  # may stand before all names but the output's
    layer: str  # stands before a layer's number
    top: Mapping[str, str]
    inner: Mapping[str, str]
    output: str = "lm_head.weight"
    ignored: str = r"(?!)"  # tensors that hold nothing learnt

    def to_ours(self, theirs: Mapping[str, T], layers: int, tied: bool) -> dict[str, T]:
        """The tensors under our names; the output weights are `output_VD`, where they are there."""
        found: dict[str, T] = {}
        foreign = []
        for name, tensor in theirs.items():
            short = name.removeprefix(self.prefix)
            ours = self._ours(short, layers)
            if ours is not None and ours not in found:
                found[ours] = tensor
            elif not re.fullmatch(self.ignored, short):
                foreign.append(name)
        if foreign:
            raise UserError(f"{self.owner} has no tensors {_some(foreign)}; it is of another model")
        if layers > len(theirs):  # before names are made for that many
            raise UserError(f"a layer has tensors of its own: {layers:,} layers, the file has {len(theirs)} tensors")
        wanted = self.to_theirs(layers, tied)
        if missing := [theirs for ours, theirs in wanted.items() if ours not in found]:
            raise UserError(
                f"{self.owner} of {layers} layers must have the tensors {_some(missing)}; the file lacks them"
            )
        return found

    def to_theirs(self, layers: int, tied: bool) -> dict[str, str]:
        """Their name for each of ours."""
        top = {ours: self.prefix + theirs for theirs, ours in self.top.items()}
        inner = {
            f"blocks.{i}.{ours}": f"{self.prefix}{self.layer}.{i}.{theirs}"
            for i in range(layers) for theirs, ours in self.inner.items()
        }  # fmt: skip
        return top | inner | ({} if tied else {"output_VD": self.output})

    def _ours(self, name: str, layers: int) -> str | None:
        if name == self.output:
            return "output_VD"
        if name in self.top:
            return self.top[name]
        inside = re.fullmatch(rf"{self.layer}\.(0|[1-9][0-9]{{0,8}})\.(.+)", name)
        if inside is None or int(inside[1]) >= layers or inside[2] not in self.inner:
            return None
        return f"blocks.{inside[1]}.{self.inner[inside[2]]}"


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


@dataclass(frozen=True)
class Shape:
    """A decoder of Hugging Face that a transformer of ours can be."""

    model: ClassVar[str] = "gpt"

    architecture: str
    settings: Settings
    able: Mapping[str, tuple[Any, ...]]
    """What of our settings it can have."""
    names: Names
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    """config.json with every setting in the place where the table has it."""
    further: Callable[[GPTConfig], dict[str, Any]] = lambda config: {}
    """What else is written into config.json."""
    transposed: tuple[str, ...] = ()
    """Matrices that are (in, out) there."""
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tensors that are several of ours, one below the other."""
    ones: tuple[str, ...] = ()
    """Weights of the size of a head that ours has none of: they must be ones."""
    window: Callable[[Mapping[str, Any]], int] | None = None
    """The sliding window that config.json says, 0: none; no function: a decoder without sliding windows."""

    def config_of(self, values: Mapping[str, Any]) -> tuple[GPTConfig, int]:
        """Our config for theirs, and the size of the vocabulary."""
        ours = self.settings.read(self.prepare(values))
        vocab, size = ours.pop("vocab"), ours.pop("head_size", 0)
        if size and size * ours["heads"] != ours["width"]:
            raise UserError(
                f"octavo's heads share the width out: head_dim={size} × {ours['heads']} heads is not width "
                f"{ours['width']}; take another model"
            )
        fixed = {name: able[0] for name, able in self.able.items() if len(able) == 1}
        window, context = self.window(values) if self.window else 0, ours["context"]
        if 0 < window <= context:  # each token attends to the last so many, however long the text
            fixed |= {"attention": "full"} if window == context else {"attention": "local", "attention_window": window}
            return GPTConfig(**fixed | ours, init="gpt2"), vocab
        return GPTConfig(**fixed | ours, stride=context // 2, init="gpt2"), vocab

    def settings_from(self, config: GPTConfig, vocab: int) -> dict[str, Any]:
        """Their config.json for our config, but for its kind and the tokens' ids."""
        return (
            {"architectures": [self.architecture]} | self.settings.write(config, config, vocab) | self.further(config)
        )

    def to_ours(self, theirs: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
        """Their tensors as ours."""
        ours: dict[str, Tensor] = {}
        for name, tensor in self.names.to_ours(theirs, config.layers, config.tied).items():
            above, part = _parted(name)
            if part in self.ones:
                if not bool((tensor == 1).all()):
                    raise UserError(f"octavo's QK norm has no weights, so {part} must be ones; take another model")
                continue
            if part in self.transposed and tensor.dim() != 2:
                raise UserError(
                    f"{name} must be a matrix: the file has shape {tuple(tensor.shape)}; it is of another model"
                )
            tensor = tensor.T.contiguous() if part in self.transposed else tensor
            pieces = self.fused.get(part, (part,))
            if len(pieces) > 1 and (not tensor.dim() or len(tensor) % len(pieces)):
                raise UserError(f"queries, keys and values must be of one size: {name} has shape {tuple(tensor.shape)}")
            split = tensor.chunk(len(pieces)) if len(pieces) > 1 else (tensor,)
            ours |= {above + piece: values for piece, values in zip(pieces, split, strict=True)}
        return ours

    def to_theirs(self, ours: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
        """Our tensors as theirs."""
        theirs: dict[str, Tensor] = {}
        for name, called in self.names.to_theirs(config.layers, config.tied).items():
            above, part = _parted(name)
            if part in self.ones:
                theirs[called] = ours["embedding_VD"].new_ones(config.head_size)
                continue
            pieces = [ours[above + piece] for piece in self.fused.get(part, (part,))]
            tensor = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
            theirs[called] = (tensor.T if part in self.transposed else tensor).contiguous()
        return theirs


def _parted(name: str) -> tuple[str, str]:
    """blocks.0.attention.qkv as blocks.0. and attention.qkv."""
    if not name.startswith("blocks."):
        return "", name
    word, number, part = name.split(".", 2)
    return f"{word}.{number}.", part
