"""The mutants of a Python file: small changes to its code, each of which a test should notice.

Every mutant replaces one expression or statement; its place is a span of the source, so the rest of the file stays as
it is. Left alone are what no test should fix or can see: annotations, docstrings and other strings, `raise`, `assert`
and `strict=` (messages and our own bugs), capacities and tuning (named constants of a module, a config's defaults),
and `device=`, which changes nothing where there is one device.

python benchmarks/mutation_operators.py src/octavo/ops/norm.py       (print the mutants of a file)
"""

from __future__ import annotations

import ast
import copy
import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
UNSEEN_KEYWORDS = {"device", "strict", "pin_memory", "non_blocking"}
NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "mean": "sum", "sum": "mean", "amax": "amin",
    "amin": "amax", "argmax": "argmin", "argmin": "argmax", "exp": "expm1", "log": "log1p", "sin": "cos",
    "cos": "sin", "tril": "triu", "triu": "tril", "ceil": "floor", "floor": "ceil", "zeros": "ones", "ones": "zeros",
    "zeros_like": "ones_like", "ones_like": "zeros_like", "cumsum": "cumprod", "sigmoid": "tanh", "tanh": "sigmoid",
    "startswith": "endswith", "endswith": "startswith", "append": "extend", "minimum": "maximum",
    "maximum": "minimum", "clamp_min": "clamp_max", "clamp_max": "clamp_min",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: bytes `start` to `end` of the file become `text`."""

    file: str
    line: int
    end_line: int
    start: int
    end: int
    text: str
    operator: str
    scope: tuple[int, int]  # the lines of the function or class around it

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def is_valid(self, source: bytes) -> bool:
        """Whether the file still is Python: a generator may have lost its brackets."""
        try:
            compile(self.apply(source), self.file, "exec")
        except (SyntaxError, ValueError):
            return False
        return True

    def diff(self, source: bytes) -> str:
        before, after = source.decode().splitlines(), self.apply(source).decode().splitlines()
        lines = difflib.unified_diff(before, after, self.file, self.operator, lineterm="", n=0)
        return "\n".join(list(lines)[2:])


class Finder(ast.NodeVisitor):
    """Walks a file's syntax tree and collects its mutants."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source, self.found = file, source, list[Mutant]()
        self.offsets = [0]
        for line in source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))
        self.scopes: list[tuple[int, int]] = [(1, len(self.offsets))]
        self.in_class = False
        self.span = (1, 1)  # the lines of the statement around the node

    def add(self, node: ast.expr | ast.stmt, text: str, operator: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.offsets[node.lineno - 1] + node.col_offset
        end = self.offsets[node.end_lineno - 1] + node.end_col_offset
        first, last = (node.lineno, node.end_lineno) if isinstance(node, ast.stmt) else self.span
        self.found.append(Mutant(self.file, first, last, start, end, text, operator, self.scopes[-1]))

    def replace(self, node: ast.expr, new: ast.expr, operator: str) -> None:
        self.add(node, f"({ast.unparse(new)})", operator)

    # ------------------------------------------------------------------ what is walked

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            self.span = (node.lineno, max(last, node.lineno))
        super().visit(node)

    def scoped(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.scopes.append((node.lineno, node.end_lineno or node.lineno))
        outside, self.in_class = self.in_class, isinstance(node, ast.ClassDef)
        for default in [] if isinstance(node, ast.ClassDef) else [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()
        self.in_class = outside

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = scoped

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        is_default = self.in_class and isinstance(node.value, ast.Constant)
        if node.value is not None and not is_default and "TypeAlias" not in ast.unparse(node.annotation):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        is_constant = len(self.scopes) == 1 and any(name.isupper() for name in names)
        if "__all__" not in names and not is_constant:
            self.generic_visit(node)

    def leave(self, node: ast.AST) -> None:
        """Not mutated, nor anything in it."""

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = leave
    visit_TypeAlias = leave

    # ------------------------------------------------------------------ statements

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if not all(isinstance(statement, ast.Raise) for statement in node.body):
            self.replace(node.test, ast.Constant(True), "condition is true")
        self.replace(node.test, ast.Constant(False), "condition is false")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add(node, "pass", "call left out")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, "pass", "assignment left out")
        if (operator := ARITHMETIC.get(type(node.op))) is not None:
            new = copy.deepcopy(node)
            new.op = operator()
            self.add(node, ast.unparse(new), "arithmetic")
        self.visit(node.value)

    def visit_Break(self, node: ast.Break) -> None:
        self.add(node, "continue", "break to continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(node, "break", "continue to break")

    # ------------------------------------------------------------------ expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            new = copy.deepcopy(node)
            new.ops[place] = COMPARISONS[type(operator)]()
            self.replace(node, new, "comparison")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        operands = (node.left, node.right)
        strings = any(
            isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", 0), str) for part in operands
        )
        if (operator := ARITHMETIC.get(type(node.op))) is not None and not strings:
            self.replace(node, ast.BinOp(node.left, operator(), node.right), "arithmetic")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.replace(node, ast.BoolOp(other, node.values), "and, or")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.replace(node, node.operand, "sign or not left out")
        self.visit(node.operand)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.replace(node.test, ast.Constant(True), "condition is true")
        self.replace(node.test, ast.Constant(False), "condition is false")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.replace(node, ast.Constant(not node.value), "truth value")
        elif isinstance(node.value, int | float):
            self.replace(node, ast.Constant(node.value + 1), "number")

    def visit_Call(self, node: ast.Call) -> None:
        for place, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in UNSEEN_KEYWORDS:
                kept = [*node.keywords[:place], *node.keywords[place + 1 :]]
                self.replace(node, ast.Call(node.func, node.args, kept), "keyword left out")
        self.rename(node)
        for part in (node.func, *node.args, *(key.value for key in node.keywords if key.arg not in UNSEEN_KEYWORDS)):
            self.visit(part)

    def rename(self, node: ast.Call) -> None:
        """sum for mean, min for max: the same shape, another number."""
        if isinstance(node.func, ast.Name) and node.func.id in NAMES:
            self.replace(node.func, ast.Name(NAMES[node.func.id]), "another function")
        if isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
            self.replace(node.func, ast.Attribute(node.func.value, NAMES[node.func.attr]), "another function")


def find_mutants(file: Path, root: Path) -> list[Mutant]:
    """Every mutant of a file, in the order of the text."""
    source = file.read_bytes()
    finder = Finder(file.relative_to(root).as_posix(), source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda mutant: (mutant.start, mutant.operator, mutant.text))


def print_mutants(files: list[str]) -> Iterator[str]:
    for file in files:
        source = Path(file).read_bytes()
        for mutant in find_mutants(Path(file), Path()):
            if mutant.is_valid(source):
                yield f"{file}:{mutant.line} {mutant.operator}\n{mutant.diff(source)}"


if __name__ == "__main__":
    print("\n".join(print_mutants(sys.argv[1:])))
