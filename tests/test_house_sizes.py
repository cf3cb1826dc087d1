"""Files have at most 400 lines, functions at most 60 beside their docstring; no block of code is there twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "rllib_llm_comm", ROOT / "envs")  # the package's `envs` is a link to the latter
MOST_FILE_LINES, MOST_FUNCTION_LINES = 400, 60
# Compiled rules: numba compiles a function at a time, and calls between them cost compile time.
COMPILED = "envs/minirts/engine/"
EXCEPTIONS: dict[str, str] = {}
"""File, or file:function, and the reason that it is longer."""


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, from its name to its end, without its docstring."""
    count = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return count
    return count - (function.body[0].end_lineno - function.body[0].lineno + 1)


def too_long(root: Path, folders: tuple[Path, ...]) -> Iterator[str]:
    """File, or file:function, with its lines, of all that is longer than allowed."""
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        if (count := len(text.splitlines())) > MOST_FILE_LINES and name not in EXCEPTIONS:
            yield f"{name}: {count}"
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or name.startswith(COMPILED):
                continue
            if (count := lines_of(node)) > MOST_FUNCTION_LINES and f"{name}:{node.name}" not in EXCEPTIONS:
                yield f"{name}:{node.name}: {count}"


def test_no_file_or_function_is_too_long():
    assert list(too_long(ROOT, FOLDERS)) == []


def test_long_ones_are_found(tmp_path):
    body = "\n".join(f"    a = {number}" for number in range(59))
    told = '    """Tells.\n\n    Much.\n    """\n'
    (tmp_path / "fits.py").write_text(f"def fits():\n{told}{body}\n" + "\n" * 300)
    (tmp_path / "long.py").write_text(f"class A:\n    pass\n\n\ndef f():\n{body}\n    return a\n" + "\n" * 400)
    assert list(too_long(tmp_path, (tmp_path,))) == ["long.py: 465", "long.py:f: 61"]


COPIED_LINES = 6


def code_of(text: str) -> list[str]:
    """Lines that do something: no imports, signatures, docstrings, comments or brackets alone."""
    left: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            left.update(range(first, node.body[0].lineno))
        elif isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) and not isinstance(
            getattr(node, "value", None), ast.Call | ast.Await | ast.Yield | ast.YieldFrom
        ):
            left.update(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    stripped = [line.strip() for number, line in lines if number not in left]
    return [line for line in stripped if line.strip("()[]{}, ") and not line.startswith("#")]


def copies(root: Path, folders: tuple[Path, ...]) -> Iterator[str]:
    """Beginnings of blocks of code that are in two places, with both files."""
    seen: dict[tuple[str, ...], str] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        name, code = path.relative_to(root).as_posix(), code_of(path.read_text(encoding="utf-8"))
        for start in range(len(code) - COPIED_LINES + 1):
            block = tuple(code[start : start + COPIED_LINES])
            if block in seen:
                yield f"{seen[block]}, {name}: {block[0]}"
            seen.setdefault(block, name)


def test_no_block_of_code_is_there_twice():
    assert list(copies(ROOT, FOLDERS)) == []


def test_copied_blocks_are_found(tmp_path):
    body = "\n".join(f"    a = {number}" for number in range(COPIED_LINES))
    (tmp_path / "one.py").write_text(f"import os\n\n\ndef f(a):\n{body}\n    return a\n")
    (tmp_path / "other.py").write_text(f'def g(\n    a,\n):\n    """Tells."""\n    # why\n{body}\n    print(a)\n')
    assert list(copies(tmp_path, (tmp_path,))) == ["one.py, other.py: a = 0"]
