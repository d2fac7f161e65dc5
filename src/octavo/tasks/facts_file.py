"""A file of facts: names with their answers, in any SQLite file or CSV.

Values go to the database as parameters; a table and columns are taken only by names that the file itself has. It is
opened for reading alone, except to store. Names match whatever the case of their letters; of several answers, the
last stored one counts.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from octavo.errors import UserError
from octavo.io.compressed import read_whole
from octavo.io.files import whole_file

TABLE, COLUMNS = "facts", ("name", "answer")  # of a file that is made here
MAGIC = b"SQLite format 3\x00"
CSV_ENDINGS = {".csv": ",", ".tsv": "\t"}
PATIENCE = 5.0  # seconds to wait for another program that writes the same file


@dataclass(frozen=True)
class Facts:
    """Where facts are found and stored; the file is made with the first that is stored."""

    path: Path
    columns: tuple[str, ...] = ()

    def pairs(self) -> list[tuple[str, str]]:
        """Every name with its answer."""
        raise NotImplementedError

    def store(self, name: str, answer: str) -> None:
        """Add a new pair."""
        raise NotImplementedError

    def find(self, name: str) -> str | None:
        """The answer for a name; None where there is none."""
        return {one.casefold(): answer for one, answer in self.pairs()}.get(plain(name).casefold())


def open_file_of_facts(path: str | Path, table: str = "", columns: Sequence[str] = ()) -> Facts:
    """A SQLite file or CSV, by what stands in it; a new one is CSV if its name ends so, else SQLite.

    table: the one to look in, without it `facts` or the first. columns: those of the name and of the answer, without
    them `name` and `answer` or the first two.
    """
    path = Path(path)
    if columns and len(columns) != 2:
        raise UserError(
            f"there are two columns, of the name and of the answer: {', '.join(columns)}; try --columns name city"
        )
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a SQLite or CSV file in it, such as {path / 'facts.db'}")
    head = b""
    if path.exists():
        with open(path, "rb") as file:
            head = file.read(len(MAGIC))
    if head == MAGIC or (not head and path.suffix.lower() not in CSV_ENDINGS):
        return SqliteFacts(path, tuple(columns), table)
    if table:
        raise UserError(f"{path} is no SQLite file, so it has no table {table!r}; leave out --table")
    return CsvFacts(path, tuple(columns))


def plain(text: str) -> str:
    """One line without spare spaces."""
    return " ".join(text.split())


@dataclass(frozen=True)
class SqliteFacts(Facts):
    """A table of a SQLite file."""

    table: str = ""

    def find(self, name: str) -> str | None:
        if not self.path.exists():
            return None
        with self._opened("ro") as base:
            table, key, value = self._place(base)
            rows = base.execute(
                f"SELECT {value} FROM {table} WHERE trim({key}) = ? COLLATE NOCASE ORDER BY rowid DESC LIMIT 1",
                (plain(name),),
            ).fetchall()
        return plain(str(rows[0][0])) if rows and rows[0][0] is not None else None

    def store(self, name: str, answer: str) -> None:
        with self._opened("rwc") as base, base:
            if not _tables(base) and not self.table:
                base.execute(f"CREATE TABLE {_quoted(TABLE)} (name TEXT NOT NULL, answer TEXT NOT NULL)")
            table, key, value = self._place(base)
            base.execute(f"INSERT INTO {table} ({key}, {value}) VALUES (?, ?)", (plain(name), plain(answer)))

    def pairs(self) -> list[tuple[str, str]]:
        if not self.path.exists():
            return []
        with self._opened("ro") as base:
            table, key, value = self._place(base)
            rows = base.execute(f"SELECT {key}, {value} FROM {table} ORDER BY rowid").fetchall()
        return _last([(plain(str(a)), plain(str(b))) for a, b in rows if a is not None and b is not None])

    @contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        try:
            if mode == "rwc":
                self.path.absolute().parent.mkdir(parents=True, exist_ok=True)
            uri = f"file:{quote(str(self.path.absolute()))}?mode={mode}"
            with closing(sqlite3.connect(uri, uri=True, timeout=PATIENCE)) as base:
                yield base
        except (sqlite3.Error, UnicodeEncodeError) as error:  # the second: a name with half a character
            doing = "written to" if mode == "rwc" else "read"
            raise UserError(f"{self.path} cannot be {doing} as facts: {error}; see --table and --columns") from error

    def _place(self, base: sqlite3.Connection) -> tuple[str, str, str]:
        """The table and the columns of name and answer, as SQL spells them; only what the file has is let through."""
        tables = _tables(base)
        table = self.table or (TABLE if TABLE in tables else next(iter(tables), ""))
        if table not in tables:
            raise UserError(f"{self.path} has no table {table!r}; it has {', '.join(tables) or 'none'}: try --table")
        known = [row[1] for row in base.execute(f"PRAGMA table_info({_quoted(table)})")]
        key, value = _chosen(self.columns, known, f"table {table} of {self.path}")
        return _quoted(table), _quoted(key), _quoted(value)


def _tables(base: sqlite3.Connection) -> list[str]:
    found = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [row[0] for row in found if not row[0].startswith("sqlite_")]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _chosen(wanted: Sequence[str], known: Sequence[str], where: str) -> tuple[str, str]:
    """The columns of name and answer."""
    for one in wanted:
        if one not in known:
            raise UserError(f"{where} has no column {one!r}; it has {', '.join(known)}: try --columns")
    if wanted:
        return wanted[0], wanted[1]
    if len(known) < 2:
        raise UserError(f"facts are a name and an answer: {where} has {len(known)} columns; name another")
    return COLUMNS if set(COLUMNS) <= set(known) else (known[0], known[1])


def _last(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each name once, with the answer stored last."""
    return list({name.casefold(): (name, answer) for name, answer in pairs}.values())


@dataclass(frozen=True)
class CsvFacts(Facts):
    """A CSV or TSV file whose first line has the columns' names."""

    @property
    def between(self) -> str:
        return CSV_ENDINGS.get(self.path.suffix.lower(), ",")

    def store(self, name: str, answer: str) -> None:
        rows = self._rows() or [list(COLUMNS)]
        key, value = _chosen(self.columns, rows[0], str(self.path))
        new = {key: plain(name), value: plain(answer)}
        rows.append([new.get(column, "") for column in rows[0]])
        text = io.StringIO()
        csv.writer(text, delimiter=self.between, lineterminator="\n").writerows(rows)
        with whole_file(self.path) as file:
            file.write(text.getvalue().encode())

    def pairs(self) -> list[tuple[str, str]]:
        rows = self._rows()
        if not rows:
            return []
        key, value = (rows[0].index(one) for one in _chosen(self.columns, rows[0], str(self.path)))
        full = [row for row in rows[1:] if len(row) > max(key, value)]
        return _last([(plain(row[key]), plain(row[value])) for row in full if row[key].strip() and row[value].strip()])

    def _rows(self) -> list[list[str]]:
        if not self.path.exists():
            return []
        try:
            text = read_whole(self.path).decode("utf-8-sig")
            return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=self.between) if row]
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{self.path} is neither SQLite nor CSV in UTF-8: {error}; name another file") from error
