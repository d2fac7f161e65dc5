"""Which tests can run here: `gpu` needs a CUDA device, `browser` Chromium and playwright, `data("shakespeare", ...)`
folders below OCTAVO_DATA.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    # The tests' tensors are small: a second thread costs more in waiting than it saves.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test comes first, so that no process waits for it at the end."""
    items.sort(key=lambda item: item.path.name != "test_readme.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Skipping from here, not by a mark on each test, makes pytest's summary one line for each reason.
    if item.get_closest_marker("gpu") and not _has_cuda():
        pytest.skip("needs a GPU: no CUDA device is present")
    if item.get_closest_marker("browser") and (reason := why_no_browser()):
        pytest.skip(reason)
    for marker in item.iter_markers("data"):
        if reason := why_no_data(os.environ.get("OCTAVO_DATA"), marker.args):
            pytest.skip(reason)


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
def data_root() -> Path:
    """The folder OCTAVO_DATA names; for tests marked `data`."""
    return Path(os.environ["OCTAVO_DATA"]).absolute()
