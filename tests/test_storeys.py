"""The picture of the house in CONTRIBUTING.md shows the storeys of the import contract, and those alone."""

from __future__ import annotations

import re
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
NODE = re.compile(r'^    (\w+)\["([\w, ]+):[^"]*"\](?: --> (\w+))?$', re.MULTILINE)


def contract() -> list[frozenset[str]]:
    """The storeys of the contract, from above; those beside each other stand in one set."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (one for one in linter["contracts"] if one.get("containers") == ["rllib_llm_comm"])
    assert layers["type"] == "layers" and layers["exhaustive"]
    return [frozenset(re.split(r" [:|] ", layer)) for layer in layers["layers"]]


def picture() -> list[tuple[str, frozenset[str], str]]:
    """Node, what it shows, and the node below it, by line of the picture."""
    (drawn,) = re.findall(r"^```mermaid\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE)
    found = [(node, frozenset(names.split(", ")), below) for node, names, below in NODE.findall(drawn)]
    assert len(found) == len(drawn.splitlines()) - 1, "a line of the picture is not read"
    return found


def test_the_picture_shows_the_storeys_of_the_contract_in_their_order():
    assert [shown for _, shown, _ in picture()] == contract()


def test_arrows_go_from_each_storey_to_the_next():
    nodes = [node for node, _, _ in picture()]
    assert [below for _, _, below in picture()] == [*nodes[1:], ""]
