"""Docstrings say what a thing is, `See` names things that exist, and lines of the docs fit a screen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GENERATED = (
    "docs/results/*/report.md",
    "docs/results/planning/*.md",
)
"""Pages that commands write; their lines are as long as their sentences."""
PLACES = {
    "benchmarks": "benchmarks",
    "envs": "rllib_llm_comm.envs",
    "rllib_llm_comm": "rllib_llm_comm",
    "tools": "tools",
}
LIBRARIES = ("gymnasium", "numpy", "peft", "pettingzoo", "ray", "torch", "transformers")
LONGEST = 120

_QUESTION = re.compile(r"(What|How|Who|Whom|Whose|Where|Whether|When|Which|Why|See)\b")
_ENTRY = re.compile(r"^ +[\w`*, .]+: (What|How|Who|Whom|Whose|Where|When|Which|Why)\b", re.MULTILINE)
_EMPTY = re.compile(r"((See|As|As of|As in) `[^`]*`|The same|As before)\.?$")
_SEE = re.compile(r"\b[Ss]ee (?:also )?((?:`[^`]+`(?:, | and | or )?)+)")
_URL_ONLY = re.compile(r"\s*(?:[-*>] )?(?:\[[^\]]*\]: ?|\[[^\]]*\]\()?<?https?://\S+$")


def files() -> list[Path]:
    """All modules; the link from the package to the games is not followed."""
    found = [path for place in PLACES for path in (ROOT / place).rglob("*.py")]
    return sorted(path for path in found if not _within(path, ("rllib_llm_comm/envs",)))


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each string that documents a module, class, function or attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def faults(text: str, names: frozenset[str]) -> list[str]:
    """Everything that is wrong with a docstring.

    Args:
        text: The docstring.
        names: All full names of the project.
    """
    found = []
    if _QUESTION.match(text):
        found.append(f"begins with {text.split()[0]!r}")
    if _EMPTY.match(text):
        found.append("says only where to look")
    for links in _SEE.findall(text):
        for name in re.findall(r"`([^`]+)`", links):
            if name.split(".")[0] not in LIBRARIES and name not in names:
                found.append(f"`{name}` after See is no full name of anything")
    return found


def entries(text: str) -> list[str]:
    """Beginnings of the arguments and attributes of a docstring that are described by a question."""
    return [found[0] for found in _ENTRY.finditer(text)]


@lru_cache
def full_names() -> frozenset[str]:
    """Names of all modules, classes, functions and their attributes, by where they are defined."""
    found: set[str] = set()
    for path in files():
        place, *parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join([PLACES[place], *(part for part in parts if part != "__init__")])
        found.add(module)
        _collect(ast.parse(path.read_text(encoding="utf-8")).body, module, found)
    return frozenset(found)


def long_lines(text: str) -> list[int]:
    """Numbers of the lines of a page that are too long, outside of tables, code, comments and bare links."""
    found, fenced = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip("> ").startswith(("```", "~~~")):
            fenced = not fenced
        table = line.lstrip("> ").startswith("|")
        if len(line) > LONGEST and not (fenced or table or _URL_ONLY.match(line)):
            found.append(number)
    return found


def test_docstrings_say_what_a_thing_is():
    names = full_names()
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in files()
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        for fault in faults(text, names)
    ]
    assert not found, "\n".join(found)


def test_arguments_are_described_as_things():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {entry.strip()!r}"
        for path in files()
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        for entry in entries(text)
    ]
    assert not found, "\n".join(found)


def test_lines_of_the_docs_are_short():
    generated = {path for pattern in GENERATED for path in ROOT.glob(pattern)}
    pages = {*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"}
    found = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in sorted(pages - generated)
        for number in long_lines(page.read_text(encoding="utf-8"))
    ]
    assert not found, f"lines of more than {LONGEST} characters: {' '.join(found)}"


@pytest.mark.parametrize(
    "text",
    [
        "What a cook sees.",
        "Whether a cell lies on the lake.\n\nMore.",
        "See `rllib_llm_comm.envs.interface`.",
        "As of `Player`.",
        "The same.",
        "A plan; see `Planner`.",
        "A plan (see `rllib_llm_comm.planning.plans.Nothing`).",
        "A plan; see `plans.Plan`.",
    ],
)
def test_faults_are_found(text):
    assert faults(text, full_names())


def test_good_docstrings_have_no_faults():
    assert not faults("A plan; see `rllib_llm_comm.planning.plans.Plan` and `torch.nn.Linear`.", full_names())
    assert not faults("The same plan as before.", full_names())
    assert not entries("A plan.\n\n    Args:\n        model: The chat model.\n        wait: Whether games wait.\n")
    assert entries("A plan.\n\n    Args:\n        model: Whom to ask.\n") == ["        model: Whom"]


def test_long_lines_are_found():
    long = "word " * 30
    assert long_lines(f"{long}\nshort\n> {long}\n") == [1, 3]
    assert not long_lines(f"| {long} |\n```\n{long}\n```\n[name]: https://example.org/{'x' * 130}\n")


def _collect(body: list[ast.stmt], above: str, found: set[str]) -> None:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(f"{above}.{node.name}")
            if isinstance(node, ast.ClassDef):
                _collect(node.body, f"{above}.{node.name}", found)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            found |= {f"{above}.{name.id}" for name in names}


def _within(path: Path, places: tuple[str, ...]) -> bool:
    inner = path.relative_to(ROOT)
    return any(inner == Path(place) or Path(place) in inner.parents for place in places)


def test_no_merge_left_its_marks():
    marks = ("<<<<<<< ", ">>>>>>> ")
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    left = [str(path) for path in pages if any(line.startswith(marks) for line in path.read_text().splitlines())]
    assert not left
