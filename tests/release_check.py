"""Build octavo, install what was built into an environment, and compare two models from an empty folder.

`python tests/release_check.py DIST` does so in fresh environments, with every supported Python that it finds; the
tests use the same functions with an environment that has the dependencies already.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
LEFT_OUT = (".git", ".venv", "build", "dist", "runs", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis")
TEXT = "The quick brown fox jumps over the lazy dog; the dog sleeps on, and the fox runs home.\n"


def build(kind: str, out: Path, source: Path = ROOT) -> Path:
    """The wheel or the sdist of a source tree, made by its own build backend."""
    tree = out / f"source-{kind}"  # setuptools writes beside what it builds: not into the checkout
    shutil.copytree(source, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    done = checked([sys.executable, "-W", "ignore", "-c", code], tree)
    return out / done.splitlines()[-1]


def names_in(archive: Path) -> set[str]:
    """The files of a wheel or an sdist; of an sdist, below its one folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as sdist:
        return {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}


def compare_with(python: Path, folder: Path) -> dict[str, float]:
    """Run a comparison with an environment's octavo, from a folder with nothing but a text; bits per byte by model."""
    (folder / "text.txt").write_text(TEXT * 200, encoding="utf-8")
    words = ["compare", "text.txt", "--models", "bag,kn3,gru,bz2", "--budget", "2steps", "--out", "out", "--json"]
    printed = checked([str(python), "-m", "octavo.cli", *words], folder)
    assert "Reproduce" in (folder / "out/report.html").read_text(encoding="utf-8")
    return {row["model"]: row["bits_per_byte"] for row in json.loads(printed)["rows"]}


def checked(command: list[str], folder: Path) -> str:
    """What a command prints; one that fails is an error with all that it said."""
    hidden = ("PYTHONPATH", "PYTHONWARNINGS", "OCTAVO_DATA")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\nexited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fresh_check(interpreter: str, archive: Path) -> None:
    """Install into an environment that has nothing, with the versions of constraints.txt, and compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checked([interpreter, "-m", "venv", str(folder / "env")], folder)
        python = python_of(folder / "env")
        checked([str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(archive)], folder)
        (folder / "empty").mkdir()
        bits = compare_with(python, folder / "empty")
        version = checked([str(python), "-m", "octavo.cli", "--version"], folder).strip()
        assert "kn3" in bits
        print(f"{interpreter}: {archive.name} installed, {version}, {bits}", flush=True)


def main(dist: Path) -> int:
    found = [name for name in PYTHONS if shutil.which(name)]
    for name in PYTHONS:
        if name not in found:
            print(f"{name}: not here, so not tried", flush=True)
    for interpreter in found:
        for archive in [*dist.glob("octavo-*.whl"), *dist.glob("octavo-*.tar.gz")]:
            fresh_check(interpreter, archive.absolute())
    return 0 if found else 1


def environment_beside(folder: Path) -> Path:
    """A new environment that sees this one's packages, all but octavo itself: its Python."""
    venv.create(folder, with_pip=False)
    python = python_of(folder)
    packages = checked([str(python), "-c", "import site; print(site.getsitepackages()[0])"], folder).strip()
    here = [entry for entry in sys.path if entry.endswith("site-packages")]
    (Path(packages) / "beside.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
    return python


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
