"""One Spark session for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine_models import settings
from octavo.engines import open_engine
from octavo.engines.engine import Engine


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_engine("spark", settings(tmp_path_factory.mktemp("spark"))) as engine:
        yield engine
