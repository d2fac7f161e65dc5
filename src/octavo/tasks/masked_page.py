"""The page of a BERT: how often each of its tasks is answered rightly."""

from __future__ import annotations

from typing import Any

from octavo.pages.sections import facts, section
from octavo.tasks.encoder import Encoder
from octavo.tasks.run_page import PageContent


def page_content(run: Encoder, *_: Any) -> PageContent:
    """What the page shows."""
    scores = [(name.replace("_", " "), f"{value:.4g}") for name, value in run.record["result"].items()]
    lead = f"A BERT that fills in masked words, trained on {run.record['corpus']['name']}."
    return PageContent("Masked words", lead, [section("Scores", facts(scores))])
