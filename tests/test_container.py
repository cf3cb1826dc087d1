"""The Dockerfile, as far as it can be checked where no Docker is: its files, its command, its PyTorch."""

import configparser
import fnmatch
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.smoke_wheel import PYTHONS

ROOT = Path(__file__).parents[1]


def instructions():
    """Name and rest of every instruction, in order."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def copied():
    """The sources of all COPY instructions."""
    return [source for name, rest in instructions() if name == "COPY" for source in shlex.split(rest)[:-1]]


def ignored(path):
    """True if `.dockerignore` keeps a top-level file or folder out of the build; its last match counts."""
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    found = False
    for rule in rules:
        if fnmatch.fnmatch(path, rule.removeprefix("!")):
            found = not rule.startswith("!")
    return found


def setup():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def test_what_is_copied_is_there_and_reaches_the_build():
    assert copied()
    for source in copied():
        assert (ROOT / source).exists() and not ignored(source), source
    assert ignored("tests") and ignored(".git") and ignored("results")
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(kept) == sorted(set(copied())), "nothing else is sent"


def test_all_that_the_package_is_made_of_is_copied():
    told = setup()
    folders = [line.split("=")[1].strip() for line in told["options"]["package_dir"].split("\n") if "=" in line]
    assert folders and set(folders) <= set(copied())
    page = told["metadata"]["long_description"].removeprefix("file: ")
    assert {page, told["metadata"]["license_files"]} <= set(copied())


def test_its_command_is_that_of_the_readme():
    ((_, command),) = [told for told in instructions() if told[0] == "CMD"]
    words = json.loads(command)
    assert f".venv/bin/{' '.join(words)}" in (ROOT / "README.md").read_text()
    assert words[-1].split("/")[0] in copied(), "relative to the last folder"
    assert (ROOT / words[-1]).is_file()


def test_its_pytorch_and_its_python_are_the_packages():
    runs = " ".join(rest for name, rest in instructions() if name == "RUN")
    (torch,) = [line for line in setup()["options"]["install_requires"].split("\n") if line.startswith("torch>")]
    assert f'"{torch}"' in runs and "[play]" in runs
    arguments = dict(rest.split("=", 1) for name, rest in instructions() if name == "ARG")
    assert f"python{arguments['PYTHON']}" in PYTHONS and arguments["TORCH_INDEX"].endswith("/cpu")


@pytest.mark.slow
def test_the_package_installs_from_the_copied_files_alone(tmp_path):
    context, target = tmp_path / "context", tmp_path / "installed"
    context.mkdir()
    for source in dict.fromkeys(copied()):
        if (ROOT / source).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(ROOT / source, context / source, symlinks=True, ignore=left_out)
        else:
            shutil.copy(ROOT / source, context / source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(target)]
    subprocess.run([*pip, str(context)], check=True, timeout=300)
    module = "import rllib_llm_comm.cli.main as main; print(main.__file__)"
    command = [sys.executable, "-c", module]
    done = subprocess.run(command, cwd=target, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(str(target))
    assert (target / "rllib_llm_comm/envs/door.py").is_file()
    assert list((target / "rllib_llm_comm/policies/zoo_policies").glob("*/card.json"))
