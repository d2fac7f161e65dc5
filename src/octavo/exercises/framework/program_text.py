"""The program of a reference function: its source with what it uses of its module, as a file that can be handed in."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator

from octavo.exercises.framework.answers import Function


def program_text(answer: Function) -> str:
    """A Python file with the right function under the name that was asked for."""
    module = sys.modules[answer.right.__module__]
    source = inspect.getsource(module)
    statements = ast.parse(source).body
    needed, pending = set[int](), [answer.right.__name__]
    while pending:
        name = pending.pop()
        for n, statement in enumerate(statements):
            if n not in needed and name in _defined(statement):
                needed.add(n)
                pending += [] if isinstance(statement, ast.Import | ast.ImportFrom) else _used(statement)
    names = {name for n in needed for name in _used(statements[n])}
    imports = [text for n in sorted(needed) for text in _import_lines(statements[n], names)]
    rest = [ast.get_source_segment(source, statements[n]) or "" for n in sorted(needed)
            if not isinstance(statements[n], ast.Import | ast.ImportFrom)]  # fmt: skip
    alias = [] if answer.right.__name__ == answer.name else [f"{answer.name} = {answer.right.__name__}"]
    return "\n\n\n".join(["\n".join(["from __future__ import annotations", "", *imports]), *rest, *alias]) + "\n"


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [node.id for target in targets if target is not None for node in ast.walk(target)
            if isinstance(node, ast.Name)]  # fmt: skip


def _used(statement: ast.stmt) -> list[str]:
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]


def _import_lines(statement: ast.stmt, names: set[str]) -> Iterator[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        aliases = [alias for alias in statement.names if (alias.asname or alias.name) in names]
        statement.names = aliases
        if aliases:
            yield ast.unparse(statement)
