"""What the verbs' flags have in common."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

STYLE = (OmitArgPrefixes, FlagCreatePairsOff)
Corpora = Annotated[Positional[tuple[str, ...]], arg(metavar="CORPUS...", help_behavior_hint="(at least one)")]
Files = Annotated[Positional[tuple[str, ...]], arg(metavar="FILE...")]
InPath = Annotated[Positional[str], arg(metavar="IN")]
OutPath = Annotated[Positional[str], arg(metavar="OUT")]
RunPath = Annotated[Positional[str], arg(metavar="RUN")]
Target = Annotated[Positional[str | None], arg(metavar="[TARGET]")]
