"""Measures of the house: lines, files, what an import loads, where keys are declared, how long commands take.

Run: python tools/house.py [--json FILE]
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import json
import re
import subprocess
import sys
import time
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "rllib_llm_comm"
KEYS = ("lora_r", "messages", "entropy_coeff", "max_game_steps", "requests_per_minute")
VERCO = "rllib train file tuned_examples/verco.yaml --dry-run"
AT_FIRST = {
    "product lines": ("85,800", "about 58,000"),
    "product files": ("605", "<= 260"),
    "test lines": ("46,000", "about 30,000"),
    "files from a YAML file to a gradient, of the tables Start and Learn": ("about 35", "<= 14"),
    "modules loaded by MAPPO": ("173", "<= 60"),
    "of these language, chat, sama, verco": ("75 with planning", "0"),
    "declarations": ("4 of a key", "1"),
    "megabytes of docs/results": ("30", "<= 6"),
}
"""Measure -> where it stood when the house was first measured, and the goal."""


def modules() -> dict[str, Path]:
    """Module name -> file of the package, the games included."""
    found = {}
    for folder, prefix in ((ROOT / PACKAGE, PACKAGE), (ROOT / "envs", f"{PACKAGE}.envs")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((prefix, *(part for part in parts if part != "__init__")))] = path
    return found


def lines(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def code_lines(path: Path) -> int:
    """Lines of a file without blank lines, comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str):
                found -= set(range(statement.lineno, int(statement.end_lineno or 0) + 1))
    return len(found)


def loaded_by(module: str) -> Counter[str]:
    """Our modules that an import loads, counted by slice."""
    code = f"import {module}, sys; print('\\n'.join(n for n in sys.modules if n.startswith('{PACKAGE}.')))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return Counter(name.split(".")[1] for name in told.split())


_UPDATE = f"""
import sys
from {PACKAGE} import VercoConfig
from {PACKAGE}.verco.verco import VercoLearner

entered, update = set(), VercoLearner.update

def traced(*given, **named):
    sys.setprofile(lambda frame, *_: entered.add(frame.f_code.co_filename))
    try:
        return update(*given, **named)
    finally:
        sys.setprofile(None)

VercoLearner.update = traced
config = VercoConfig().environment("{PACKAGE}/overcooked_text-v0").env_runners(num_envs_per_env_runner=4)
config.training(train_batch_size_per_learner=32, num_epochs=1).build_algo().train()
print(*entered, sep="\\n")
"""


def entered_by_update() -> set[str]:
    """Our files, as CONTRIBUTING.md names them, that an update of Verco enters: a tiny one is run and traced."""
    told = subprocess.run([sys.executable, "-c", _UPDATE], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return {line.partition(f"/{PACKAGE}/")[2] for line in told.splitlines() if f"/{PACKAGE}/" in line}


@functools.cache
def settings_classes() -> dict[str, dict[str, str]]:
    """Each model of settings, by its bases' names, and the settings that it declares itself, with type and default."""
    bases, own = {}, {}
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base) for base in node.bases]
                fields = (one for one in node.body if isinstance(one, ast.AnnAssign))
                own[node.name] = {one.target.id: declared(one) for one in fields if isinstance(one.target, ast.Name)}
    found = {"Settings"}
    while more := {name for name, over in bases.items() if name not in found and found & set(over)}:
        found |= more
    return {name: own[name] for name in sorted(found)}


def declared(field: ast.AnnAssign) -> str:
    """Type and default of a field, without its range."""
    value: ast.expr | None = field.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "Field":
        named = {word.arg: word.value for word in value.keywords}
        value = next(iter(value.args), named.get("default", named.get("default_factory")))
    return ast.unparse(field.annotation) + (f" = {ast.unparse(value)}" if value else "")


def declared_twice() -> dict[str, list[str]]:
    """Keys that several models declare with the same type and default, and these models."""
    found = defaultdict(list)
    for name, fields in settings_classes().items():
        for key, about in fields.items():
            found[f"{key}: {about}"].append(name)
    return {key: names for key, names in sorted(found.items()) if len(names) > 1}


def declarations(key: str) -> list[str]:
    """The models of settings that declare a key; one of them may mean another thing by it."""
    return [name for name, fields in settings_classes().items() if key in fields]


def seconds(*command: str, times: int = 3) -> float:
    """The least wall time of a command, in seconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], capture_output=True, check=True, cwd=ROOT)
        taken.append(time.perf_counter() - start)
    return round(min(taken), 2)


def seconds_to_first_line(command: str) -> float:
    """Wall time until a command of ours prints its first line; it is ended then."""
    start = time.perf_counter()
    called = [sys.executable, "-u", "-m", f"{PACKAGE}.cli.main", *command.split()[1:]]
    with subprocess.Popen(called, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT) as running:
        assert running.stdout is not None and running.stdout.readline(), f"`{command}` prints nothing"
        taken = time.perf_counter() - start
        running.kill()
    return round(taken, 2)


def files_told(part: str) -> set[str]:
    """The files that CONTRIBUTING.md names on Verco's way: of its table `Start`, `Learn` or `Play`."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return set(re.findall(r"`([\w/]+\.py)`", text.partition(f"\n| {part} | Files |\n")[2].partition("\n\n")[0]))


def measure() -> dict[str, object]:
    """All measures by name."""
    paths = modules().values()
    mappo = loaded_by(f"{PACKAGE}.baselines.numeric.mappo")
    twice, entered, learn = declared_twice(), entered_by_update(), files_told("Learn")
    by_slice = Counter(name.split(".")[1] for name in modules() if name != PACKAGE)
    sizes: Counter[str] = Counter()
    for name, path in modules().items():
        sizes[name.split(".")[1] if "." in name else "(front)"] += lines(path)
    tests = list((ROOT / "tests").rglob("*.py"))
    return {
        "product lines": sum(map(lines, paths)),
        "of these code": sum(map(code_lines, paths)),
        "product files": len(paths),
        "lines by slice": dict(sizes.most_common()),
        "files by slice": dict(by_slice.most_common()),
        "test lines": sum(map(lines, tests)),
        "of these code in tests": sum(map(code_lines, tests)),
        "test files": len(tests),
        "files that an update of Verco enters": len(entered),
        "of these of verco, rl and language": sum(name.startswith(("verco/", "rl/", "language/")) for name in entered),
        "files from a YAML file to a gradient, of the tables Start and Learn": len(files_told("Start") | learn),
        "of these Learn": len(learn),
        "modules loaded by MAPPO": sum(mappo.values()),
        "of these language, chat, sama, verco": sum(mappo[name] for name in ("language", "chat", "sama", "verco")),
        "declarations": {key: declarations(key) for key in KEYS},
        "keys": len({key for fields in settings_classes().values() for key in fields}),
        "keys declared twice with the same type and default": len(twice),
        "these": twice,
        "seconds of `rllib --help`": seconds("-m", f"{PACKAGE}.cli.main", "--help"),
        f"seconds to the first line of `{VERCO}`": seconds_to_first_line(VERCO),
        "megabytes of docs/results": round(
            sum(p.stat().st_size for p in (ROOT / "docs/results").rglob("*") if p.is_file()) / 2**20, 1
        ),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the measures to this file")
    arguments = parser.parse_args()
    measured = measure()
    for name, value in measured.items():
        first, goal = AT_FIRST.get(name, ("", ""))
        print(f"{name}: {value}" + (f" (at first {first}, goal {goal})" if goal else ""))
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
