"""What other formats call a transformer's tensors: their names become ours, and none is left over or missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from octavo.errors import UserError

T = TypeVar("T")
SHOWN = 3  # names that a message shows


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
