"""Snippets of the docs: Python runs, experiment files are valid, commands have the options that they are given.

A page's Python blocks run in their order in one namespace. Two things stand in for what a reader has: checkpoints that
pages load are one that an earlier version trained, and servers of language models are one on this machine that answers
with fixed sentences.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import typer
from chat_server import ChatServer
from snippets import PAGES, ROOT, Block, blocks, commands, inline_commands, name, of_language, pages_with
from typer.core import TyperGroup

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.experiments import pipeline
from rllib_llm_comm.experiments.experiment_file import read_experiment_file
from rllib_llm_comm.experiments.stages import make_stages
from rllib_llm_comm.experiments.study_file import expand, is_study, read_study
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels
from tests.refusal import refused

CHECKPOINT = ROOT / "rllib_llm_comm" / "policies" / "zoo_policies" / "verco_salad"
UNKNOWN = ("NoSuchOption", "NoSuchCommand", "UsageError")
"""Errors of typer for unknown names; it has its own copy of click."""
MOST_NOT_RUN = 3
OWN_SERVER = "http://127.0.0.1:8000/v1"
"""The address that pages give a server of the reader's own."""

_LOADED = re.compile(r"(?:load_policy\(|message_checkpoint=)\"(results/[^\"]+)\"")
_LABELS = re.compile(r"input_=\"(results/[^\"]+)\"")
_RECORDINGS = re.compile(r"docs/results/planning/recordings")
_SESSION = re.compile(r"\bsessions/\w+")
_FILE = re.compile(r"\b(?:tuned_examples|examples|tests/data|docs/manuals)/[\w./-]+\.(?:yaml|py|gz|tex|jsonl)\b")
ROOT_COMMAND = typer.main.get_command(cli)


def is_slow(page: Path) -> bool:
    return any(block.mark == "slow" for block in of_language("python", page))


def python_pages() -> list:
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(page, marks=marks[is_slow(page)], id=name(page)) for page in pages_with("python")]


def answer(prompt: str) -> str:
    """The answer of the server that stands in for a language model: by the form that the prompt asks for."""
    if '"subgoals"' in prompt:
        return '{"goal": "deliver a soup", "subgoals": ["fetch an onion", "fetch a dish"]}'
    if "team mates" in prompt:
        return "alice: i bring the plate\nbob: please bring the lettuce"
    return "1. soups\n2. the time" if "1. " in prompt else "i wait"


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    return Path(shutil.copytree(CHECKPOINT, tmp_path_factory.mktemp("trained") / "verco"))


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[Path]:
    """The working directory of all pages, with one Ray, whose workers stay where it was started."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if ray.is_initialized():  # an algorithm that was built without it has started its own
            ray.shutdown()
        ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    yield folder
    ray.shutdown()


@pytest.fixture
def at_home(home, monkeypatch, chat_client_at_home):
    """The working directory, and a server in place of OpenAI's."""
    monkeypatch.chdir(home)
    with ChatServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-nobody")
        yield server


@pytest.mark.parametrize("page", python_pages())
def test_python_runs(page, at_home, trained):
    found = of_language("python", page)
    text = "".join(block.text for block in found)
    for path in _LOADED.findall(text):
        shutil.copytree(trained, path, dirs_exist_ok=True)
    for path in _LABELS.findall(text):
        collect_labels("rllib_llm_comm/overcooked_text-v0", path, target_labels=64)
    for path in set(_RECORDINGS.findall(text)):  # pages say that these need a clone
        shutil.copytree(ROOT / path, path, dirs_exist_ok=True)
    namespace = {"__name__": "snippets"}
    try:
        run(found, namespace, at_home.url)
    finally:
        if "algo" in namespace:
            namespace["algo"].stop()


def run(found: list[Block], namespace: dict, url: str) -> None:
    for block in found:
        source = "\n" * (block.line - 1) + block.text.replace(OWN_SERVER, url)
        exec(compile(source, str(block.page), "exec"), namespace)


@pytest.mark.parametrize(
    "block",
    [block for page in pages_with("yaml") for block in of_language("yaml", page)],
    ids=lambda block: f"{name(block.page)}:{block.line}",
)
def test_experiment_files_are_valid(block, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-nobody")
    check_file(with_sessions(block.text, tmp_path), tmp_path)


def with_sessions(text: str, folder: Path) -> str:
    """A file that takes recorded sessions, with sessions that are there."""
    for found in set(_SESSION.findall(text)):
        (folder / found).mkdir(parents=True)
        head = {"kind": "session", "format": 1, "env": "", "env_config": {}, "agents": [], "holders": {}, "started": ""}
        (folder / found / "session.jsonl").write_text(json.dumps(head) + "\n")
    return _SESSION.sub(lambda found: f"{folder}/{found.group()}", text)


def check_file(text: str, folder: Path) -> None:
    path = folder / "file.yaml"
    path.write_text(text)
    file = expand(read_study(path), "study") if is_study(path) else read_experiment_file(path)
    assert pipeline.check_stages(make_stages(file.experiments, lambda stage, _: folder / stage), {}) >= 1


@pytest.mark.parametrize("page", sorted({*pages_with("bash"), *pages_with("console")}), ids=name)
def test_commands_are_known(page):
    for block in [*of_language("bash", page), *of_language("console", page)]:
        for words in commands(block):
            check_command(words)


@pytest.mark.parametrize("page", [page for page in PAGES if inline_commands(page)], ids=name)
def test_commands_in_sentences_are_known(page):
    for words in inline_commands(page):
        if "COMMAND" in words or words[-1].endswith("..."):
            continue
        try:
            check_command(words)
        except CommandError as error:
            if error.kind in UNKNOWN:  # values may be left out or be placeholders: `rllib evaluate`, `--episodes N`
                raise


def check_command(words: list[str]) -> None:
    """Reads a command without running it: of `rllib`, also in a container, of a Python script or of `.ci`."""
    if rest := [place for place, word in enumerate(words) if Path(word).name == "rllib"]:
        if rest[0] == 0 or words[0] == "docker":
            parse(words[rest[0] + 1 :])
    elif words[0].startswith(".ci/"):
        assert (ROOT / words[0]).is_file(), words
    elif Path(words[0]).name == "python" and words[1:3] == ["-m", "pytest"]:
        assert all((ROOT / word).is_file() for word in words if word.startswith("tests/")), words
    elif Path(words[0]).name == "python" and "NAME" not in words[1]:
        script = ROOT / (words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1])
        script = script if script.is_file() else script.with_suffix("") / "__main__.py"
        assert script.is_file(), words
        known = "".join(
            path.read_text() for folder in (script.parent, ROOT / "benchmarks") for path in folder.glob("*.py")
        )
        made = script.read_text() if 'f"--{' in script.read_text() else ""  # options of a loop: their names are there
        assert all(f'"{word}"' in known or f'{word[2:]}"' in made for word in words if word.startswith("--")), words


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_pages_name_exist(page):
    named = set(_FILE.findall(page.read_text(encoding="utf-8")))
    assert not {path for path in named if not (ROOT / path).exists()}


class CommandError(Exception):
    """A command line that `rllib` refuses; its kind is the name of typer's error."""

    def __init__(self, kind: str, words: list[str], reason: str) -> None:
        super().__init__(f"{' '.join(words)}: {kind}: {reason}")
        self.kind = kind


def parse(words: list[str]) -> None:
    """Reads a command line without running it.

    Raises:
        CommandError: If a command or option is unknown, or a value is not allowed.
    """
    command, context, rest = ROOT_COMMAND, None, words
    while command is not None:
        try:
            context = command.make_context(command.name, list(rest), parent=context)
            rest = [*context._protected_args, *context.args]
            if not isinstance(command, TyperGroup) or not rest:  # `rllib train --run PPO` has no command within `train`
                return
            _, command, rest = command.resolve_command(context, rest)
        except typer.Exit:  # `rllib --version`
            return
        except Exception as error:
            if "ClickException" not in {kind.__name__ for kind in type(error).__mro__}:
                raise
            raise CommandError(type(error).__name__, words, error.format_message()) from None


def test_few_snippets_are_not_run():
    written = ROOT / "docs" / "extend"  # its blocks are files, which tests/extend uses
    found = [b for page in PAGES if page.parent != written for b in blocks(page) if b.mark == "not run"]
    assert len(found) <= MOST_NOT_RUN, [f"{name(block.page)}:{block.line}" for block in found]


def test_faults_of_snippets_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- slow: it trains -->\n\n```python\nx = 1\n```\n\n<!-- not run: a server -->\n```python\n1 / 0\n```\n\n"
        '```bash\nrllib evaluate \\\n    X --sed 1 # seeds\nsource a && rllib train fil "a b"\n```\n'
    )
    found = list(blocks(page))
    assert found[0] == Block(page, 4, "python", "x = 1\n", "slow") and is_slow(page)
    assert [block.mark for block in found] == ["slow", "not run", ""] and len(of_language("python", page)) == 1
    first, source, second = commands(found[2])
    assert source == ["source", "a"] and second[-1] == "a b"
    with pytest.raises(CommandError, match="NoSuchOption.*--sed"):
        parse(first[1:])
    with pytest.raises(CommandError, match="No such command .fil."):
        parse(second[1:])
    for wrong in ("benchmarks/peers/run.py --decision 2", "benchmarks/no_such.py", "-m pytest tests/no_such.py"):
        with pytest.raises(AssertionError):
            check_command(["python", *wrong.split()])
    with refused("a.config.lrr", "unknown"):
        check_file("a: {run: PPO, env: CartPole-v1, config: {lrr: 1}}\n", tmp_path)
