"""No module imports itself in a circle, deferred and type-only imports included."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {"rllib_llm_comm": ROOT / "rllib_llm_comm", "rllib_llm_comm.envs": ROOT / "envs"}


def modules(places: Mapping[str, Path]) -> dict[str, Path]:
    """Name -> file of all modules below some packages."""
    found = {}
    for package, folder in places.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules that it imports anywhere; the root package, which imports lazily by name, is left out."""

    def module_of(name: str) -> str:
        while name and name not in files:
            name = name.rpartition(".")[0]
        return name

    found: dict[str, set[str]] = {}
    for module, path in files.items():
        names: list[str] = []
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names += [f"{node.module}.{alias.name}" for alias in node.names]
        found[module] = {module_of(name) for name in names} - {"", module, "rllib_llm_comm"}
    return found


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import each other in a circle; found by taking out those that import nothing of the rest."""

    def inner(rest: Mapping[str, set[str]]) -> dict[str, set[str]]:
        rest = {module: targets & set(rest) for module, targets in rest.items()}
        while free := {module for module, targets in rest.items() if not targets}:
            rest = {module: targets - free for module, targets in rest.items() if module not in free}
        return dict(rest)

    found, rest = [], inner(graph)
    while rest:
        path = [min(rest)]
        while (following := min(rest[path[-1]])) not in path:
            path.append(following)
        found.append(path[path.index(following) :])
        rest = inner({module: targets for module, targets in rest.items() if module not in found[-1]})
    return found


def test_no_circle():
    assert circles(imports(modules(PLACES))) == []


def test_circles_are_found(tmp_path):
    (tmp_path / "a.py").write_text("def late():\n    from p.b import x\n")
    (tmp_path / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import c\n")
    (tmp_path / "c.py").write_text("import p.a\nimport p.d\n")
    (tmp_path / "d.py").write_text("import os\n")
    assert circles(imports(modules({"p": tmp_path}))) == [["p.a", "p.b", "p.c"]]
    (tmp_path / "c.py").write_text("import p.d\n")
    assert circles(imports(modules({"p": tmp_path}))) == []
