"""Play loops ask the agents that `asked` names: no other code reads the key of busy agents."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("rllib_llm_comm", "envs", "benchmarks", "examples", "tools")
# The function itself, and the adapter that leaves busy agents out of RLlib's observations.
READERS = {"envs/interface.py", "rllib_llm_comm/rl/rllib_adapter.py"}


def is_key(node: ast.expr) -> bool:
    named = isinstance(node, ast.Name) and node.id == "NEEDS_ACTION"
    return named or (isinstance(node, ast.Constant) and node.value == "needs_action")


def reads(code: str) -> bool:
    """True if code takes the value of the key from a mapping: `info["needs_action"]`, `info.get("needs_action")`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and is_key(node.slice):
            return True
        get = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if get and node.args and is_key(node.args[0]):
            return True
    return False


def test_no_other_file_reads_the_key():
    assert reads('x = info["needs_action"]') and reads("x = info.get(NEEDS_ACTION, True)")
    assert not reads('info = {"needs_action": True}\nlevel.needs_action(0)')
    paths = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    own = {path for path in paths if not path.is_relative_to(ROOT / "rllib_llm_comm" / "envs")}  # a link to envs/
    named = {path: code for path in own if "needs_action" in (code := path.read_text()).lower()}
    assert {path.relative_to(ROOT).as_posix() for path, code in named.items() if reads(code)} == READERS
