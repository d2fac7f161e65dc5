"""Write the five texts of bench_adaptive_texts.py, each with a training part and what is held out, into one folder.

python benchmarks/adaptive_texts_data.py --out /tmp/octavo-bench/texts

wikitext-2: English, its validation part and the beginning of its test part. german: image captions of multi30k.
chinese: manual pages in Chinese from the Debian package manpages-zh, fetched by name and not installed. python:
modules of Python's standard library. log: a log of a web service in CSV, MADE by this script from a seed: it is no log
that anybody wrote, only as regular and as repetitive as one. The table printed has the sizes and digests.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from measure import parser, print_header, print_row
from octavo.io.files import whole_file

HELD_OUT_BYTES, TRAIN_BYTES = 100_000, 1_000_000
LOG_SEED, LOG_LINES = 20, 14_000
PATHS = (
    "/", "/login", "/logout", "/search?q={word}", "/api/v1/items/{number}", "/api/v1/items/{number}/reviews",
    "/api/v1/orders", "/api/v1/orders/{number}", "/static/app.{hash}.js", "/static/style.css", "/health", "/metrics",
)  # fmt: skip
WORDS = ("lamp", "desk", "chair", "garden+hose", "kettle", "blue+paint", "socks", "tent", "bicycle", "notebook")
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5)", "curl/8.5.0", "probe/2.1")
STATUSES = (200, 200, 200, 200, 200, 200, 204, 301, 304, 304, 400, 401, 404, 404, 500, 503)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--data", type=Path, default=os.environ.get("OCTAVO_DATA"), help="wikitext-2, multi30k")
    arguments.add_argument("--held-out", type=int, default=HELD_OUT_BYTES)
    arguments.add_argument("--train", type=int, default=TRAIN_BYTES)
    args = arguments.parse_args()
    if args.data is None:
        raise SystemExit("wikitext-2 and multi30k are read from a folder: give --data FOLDER or set OCTAVO_DATA")
    args.out.mkdir(parents=True, exist_ok=True)
    print_header("text", "training bytes", "held-out bytes", "SHA-256 of both")
    for name, read in TEXTS.items():
        train, held_out = read(args.data)
        train = whole_lines(train[-args.train :]) if len(train) > args.train else train
        if held_out:
            held_out = held_out[: held_out.rfind(b"\n", 0, args.held_out) + 1]
        else:
            held_out = whole_lines(train[-args.held_out :])
            train = train[: -len(held_out)]
        for part, text in (("train", train), ("valid", held_out)):
            with whole_file(args.out / f"{name}.{part}.txt") as file:
                file.write(text)
        digest = hashlib.sha256(train + held_out).hexdigest()
        print_row(name, f"{len(train):,}", f"{len(held_out):,}", digest)
    print(" ".join(f"{name}={args.out}/{name}.train.txt:{args.out}/{name}.valid.txt" for name in TEXTS))


def whole_lines(text: bytes) -> bytes:
    """The text from the first line's end on, so that no character is cut."""
    return text[text.find(b"\n") + 1 :]


def wikitext(data: Path) -> tuple[bytes, bytes]:
    return (data / "wikitext-2" / "valid.txt").read_bytes(), (data / "wikitext-2" / "test.txt").read_bytes()


def german(data: Path) -> tuple[bytes, bytes]:
    return (data / "multi30k" / "train.de").read_bytes(), (data / "multi30k" / "val.de").read_bytes()


def python(data: Path) -> tuple[bytes, bytes]:
    """Modules in the order of a digest of their names, so that what is held out is not the end of the alphabet."""
    files = Path(sysconfig.get_paths()["stdlib"]).glob("*.py")
    chosen = sorted(files, key=lambda path: hashlib.sha256(path.name.encode()).hexdigest())
    return b"".join(path.read_bytes() for path in chosen), b""


def chinese(data: Path) -> tuple[bytes, bytes]:
    """Pages in the order of a digest of their names, without the marks of the formatter."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "-qq", "download", "manpages-zh"], cwd=folder, check=True)
        [package] = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        pages = sorted(
            (path for path in Path(folder).rglob("zh_CN/**/*.gz") if not path.is_symlink()),
            key=lambda path: hashlib.sha256(path.name.encode()).hexdigest(),
        )
        return "".join(plain_page(gzip.decompress(page.read_bytes())) for page in pages).encode(), b""


def plain_page(page: bytes) -> str:
    """The prose of a manual page: no requests, no comments, no changes of font."""
    lines = [line for line in page.decode("utf-8", "replace").splitlines() if line and line[0] not in ".'"]
    return re.sub(r"\\f.|\\&|\\\".*", "", "\n".join(lines)).replace("\\-", "-") + "\n"


def log(data: Path) -> tuple[bytes, bytes]:
    """Requests of some users, each with a few items that they ask for again; a fault lasts for a while."""
    draw = random.Random(LOG_SEED)
    now, broken_until = datetime(2026, 3, 2, 7, 0, tzinfo=UTC), 0
    users = [(f"10.{draw.randrange(4)}.{draw.randrange(256)}.{draw.randrange(256)}", draw.choice(AGENTS), f"{i:06d}")
             for i in range(400)]  # fmt: skip
    favourites = [[draw.randrange(10_000, 99_999) for _ in range(4)] for _ in users]
    build, lines = f"{draw.getrandbits(32):08x}", ["time,level,host,client,user,method,path,status,bytes,ms,agent"]
    for line in range(LOG_LINES):
        now += timedelta(milliseconds=int(draw.expovariate(1 / 900)))
        if draw.random() < 0.0005:
            broken_until = line + draw.randrange(20, 120)
        at = min(int(draw.paretovariate(0.8)) - 1, len(users) - 1)
        client, agent, user = users[at]
        path = draw.choice(PATHS).format(word=draw.choice(WORDS), number=draw.choice(favourites[at]), hash=build)
        method = "POST" if path in ("/login", "/api/v1/orders") else "GET"
        status = 503 if line < broken_until and path.startswith("/api") else draw.choice(STATUSES)
        size = 0 if status in (204, 304) else int(draw.lognormvariate(7, 1.2))
        level = "ERROR" if status >= 500 else "WARN" if status >= 400 else "INFO"
        spent = draw.lognormvariate(3, 0.8) * (20 if status == 503 else 1)
        when = now.isoformat(timespec="milliseconds")
        lines.append(
            f"{when},{level},web-{draw.randrange(1, 5)},{client},{user},{method},{path},"
            f"{status},{size},{spent:.1f},{agent}"
        )
    return ("\n".join(lines) + "\n").encode(), b""


TEXTS: dict[str, Callable[[Path], tuple[bytes, bytes]]] = {
    "wikitext-2": wikitext, "german": german, "chinese": chinese, "python": python, "log": log,
}  # fmt: skip


if __name__ == "__main__":
    main()
