"""What the studio says of itself in OpenAPI holds for whatever is asked: schemathesis makes up the requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from octavo.studio import ModelCache, Studio, make_app
from studio_place import make_runs, served

REQUESTS = 15  # made up for each address and way of asking


def operations() -> list[Any]:
    """Every address of the API with each way of asking."""
    reply = make_app(Studio(ModelCache(Path(__file__).parents[1], device="cpu"))).openapi()
    return [found.ok() for found in schemathesis.openapi.from_dict(reply).get_all_operations()]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    runs = make_runs(tmp_path_factory.mktemp("runs"), "kn", "gpt", "moods")
    with pytest.MonkeyPatch.context() as patch:
        for place in ("OCTAVO_DATA", "XDG_CACHE_HOME"):  # no named text is here, so nothing is trained on one
            patch.setenv(place, str(tmp_path_factory.mktemp("none")))
        with served(runs) as found:
            yield found


@pytest.mark.parametrize("operation", operations(), ids=lambda one: one.label)
def test_whatever_is_asked_is_answered_as_described(operation: Any, address: str) -> None:
    takes = operation.body or operation.query or operation.path_parameters
    for mode in schemathesis.GenerationMode if takes else [schemathesis.GenerationMode.POSITIVE]:  # NEGATIVE: nonsense

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=REQUESTS, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        def ask(case: Any) -> None:
            case.call_and_validate(base_url=address)

        ask()
