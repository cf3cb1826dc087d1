"""Files of the package have at most 400 lines, functions at most 60 beside their docstring."""

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
