"""Snippets of the docs that need a client run where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from snippets import PAGES, blocks

from tools.client_runs import CLIENTS

HEAVY = {module for client in CLIENTS if client.heavy for module in client.needs}
BLOCKS = [block for page in PAGES for block in blocks(page) if block.mark == "client"]


def params() -> list:
    return [
        pytest.param(b, marks=[pytest.mark.clients] if HEAVY & set(b.reason.split()) else [], id=b.reason)
        for b in BLOCKS
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", params())
def test_the_snippet_of_a_client_runs(block):
    missing = [module for module in block.reason.split() if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; `pip install -e '.[clients,heavy]'` brings it")
    source = "\n" * (block.line - 1) + block.text
    exec(compile(source, str(block.page), "exec"), {"__name__": "snippets"})


def test_each_client_has_a_snippet():
    shown = {module for block in BLOCKS for module in block.reason.split()}
    assert shown == {module for client in CLIENTS for module in client.needs}
