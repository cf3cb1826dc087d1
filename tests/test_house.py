"""Adding a game, algorithm, planner or teacher touches one folder or file and one registry entry."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import GAMES, env_ids
from rllib_llm_comm.rl.algorithms import ALGORITHMS
from rllib_llm_comm.sama.planners import PLANNERS
from rllib_llm_comm.verco.teachers.base import TEACHERS

ROOT = Path(__file__).parents[1]
HOMES = {
    "ALGORITHMS": "rl/algorithms.py",
    "PLANNERS": "sama/planners/__init__.py",
    "TEACHERS": "verco/teachers/base.py",
}
FRONT = "__init__.py"  # lists what a user imports from the package


@cache
def modules() -> dict[str, ast.Module]:
    """Path within the package -> syntax of all modules."""
    found = {}
    for folder, prefix in ((ROOT / "rllib_llm_comm", ""), (ROOT / "envs", "envs/")):
        for path in folder.rglob("*.py"):
            found[prefix + path.relative_to(folder).as_posix()] = ast.parse(path.read_text())
    return found


def words(tree: ast.Module) -> Iterator[str]:
    """Texts in a module's code, docstrings left out, and the modules that it imports."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def games_in(tree: ast.Module) -> set[str]:
    """The games that a module's code names: by folder, id, or import."""
    said = set(words(tree))
    text = "\n".join(said)
    games = {name: record for name, record in GAMES.items() if not record.derived}
    return {
        name
        for name, record in games.items()
        if name in said or any(part in text for part in (f"envs.{name}", *record.entry_points))
    }


@cache
def lists() -> list[tuple[str, set[object]]]:
    """Path, and the constants in it, of each list, tuple, set and dict of the code."""
    return [
        (path, {part.value for part in parts if isinstance(part, ast.Constant)})
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if (parts := getattr(node, "keys", None) or getattr(node, "elts", None))
    ]


def test_only_the_registry_of_games_names_several():
    several = {path: sorted(games) for path, tree in modules().items() if len(games := games_in(tree)) > 1}
    wrong = {path: games for path, games in several.items() if path != "envs/games.py"}
    assert not wrong, f"code that names several games: {wrong}; ask the records of `GAMES` in envs/games.py instead"


@pytest.mark.parametrize(
    ("registry", "home"),
    [(ALGORITHMS, HOMES["ALGORITHMS"]), (PLANNERS, HOMES["PLANNERS"]), (TEACHERS, HOMES["TEACHERS"])],
    ids=HOMES,
)
def test_nothing_but_a_registry_lists_most_of_its_names(registry, home):
    names = set(registry)
    places = {path for path, constants in lists() if len(constants & names) > len(names) / 2}
    assert home in modules()
    assert places <= {home}, f"{places} list most names of {home}; ask its registry instead"


def test_each_game_has_its_record_beside_its_code():
    """A new game is a module or a package, and a line in the registry."""
    defined = {path.parent.name if path.stem == "__init__" else path.stem for path in (ROOT / "envs").rglob("*.py")
               if "GAME = GameRecord(" in path.read_text()}  # fmt: skip
    games = {name: record for name, record in GAMES.items() if not record.derived}
    assert defined == set(GAMES), "`GAMES` of envs/games.py needs a line for each module of envs/ that has a `GAME`"
    for name, record in games.items():
        assert (record.name, record.package) == (name, f"rllib_llm_comm.envs.{name}")


@pytest.mark.parametrize("name", GAMES)
def test_all_that_a_record_names_exists(name):
    record = GAMES[name]
    lazy = [*record.entry_points.values(), record.sayings, record.planning, *record.without_subgoals.values()]
    lazy += [golden.replay for golden in record.golden]
    assert all(callable(load(where)) for where in lazy if where)
    if record.scripted_player:
        player = load(record.scripted_player)
        assert callable(player.messages) and callable(player.advise)
    assert set(record.without_subgoals) <= set(record.entry_points) <= set(env_ids(derived=True))


def typed_names(tree: ast.Module) -> dict[str, str]:
    """Name -> module of the imports that type checkers see of a lazy package."""
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {a.asname or a.name: node.module for node in block.body for a in node.names}


@pytest.mark.parametrize(
    "path", [FRONT, *(f"envs/{name}/__init__.py" for name in GAMES if (ROOT / "envs" / name).is_dir())]
)
def test_type_checkers_see_what_a_lazy_package_gives(path):
    package = "rllib_llm_comm" if path == FRONT else f"rllib_llm_comm.envs.{Path(path).parent.name}"
    module = load(package)
    typed = typed_names(modules()[path])
    given = {name for name in dir(module) if name not in vars(module) or name in typed}
    assert given == set(typed), f"the imports under TYPE_CHECKING in {path} have to be all names that it gives"
    for name, home in typed.items():
        assert getattr(module, name) is getattr(load(home), name)
