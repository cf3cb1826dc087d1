"""The table of faults in the docs is that of the tests, and each test that it names is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.cli.chaos_table import BEGIN, CELLS, END, PAGE, table

TESTS = Path(__file__).parents[1]


def test_the_docs_show_this_table():
    """Where it differs, `python -m tests.cli.chaos_table` writes it anew."""
    text = PAGE.read_text()
    assert text.split(BEGIN)[1].split(END)[0].strip() == table().strip()


@pytest.mark.parametrize("test", sorted({cell.test for cell in CELLS}))
def test_each_test_of_the_table_is_there(test):
    file, name = test.split("::")
    functions = [node for node in ast.parse((TESTS / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert name in [function.name for function in functions]


@pytest.mark.parametrize("file", sorted(TESTS.glob("cli/test_chaos*.py")))
def test_each_test_of_a_fault_is_in_the_table(file):
    if file == Path(__file__):
        return
    functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    named = {cell.test for cell in CELLS}
    tests = [function.name for function in functions if function.name.startswith("test_")]
    assert tests and all(f"cli/{file.name}::{name}" in named for name in tests)


def test_no_cell_is_empty():
    assert all(all(cell) for cell in CELLS)
    assert len({cell[:2] for cell in CELLS}) == len(CELLS)
