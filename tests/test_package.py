"""What goes to a package index: one version, and a source distribution that holds what its tests read."""

from __future__ import annotations

import re
from importlib.metadata import metadata
from pathlib import Path

import yaml

import rllib_llm_comm

ROOT = Path(__file__).parents[1]


def test_one_version():
    assert "attr: rllib_llm_comm.__version__" in (ROOT / "setup.cfg").read_text()
    assert metadata("rllib_llm_comm")["Version"] == rllib_llm_comm.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == rllib_llm_comm.__version__
    newest = re.search(r"^## \[?([\w.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest.group(1) in ("Unreleased", rllib_llm_comm.__version__)


def test_the_source_distribution_takes_every_folder():
    told = (ROOT / "MANIFEST.in").read_text()
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))}
    built = {"rllib_llm_comm", "envs", "results", "build", "dist", "site", "rllib_llm_comm.egg-info"}
    missing = [name for name in folders - built if f"graft {name}\n" not in told and not _ignored(name)]
    assert missing == []


def _ignored(name: str) -> bool:
    return any(line.strip("/") == name for line in (ROOT / ".gitignore").read_text().splitlines())


def test_every_package_is_in_the_wheel():
    config = (ROOT / "setup.cfg").read_text()
    listed = set(re.search(r"^packages =\n((?:    .+\n)+)", config, re.MULTILINE).group(1).split())
    there = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for folder in ("rllib_llm_comm", "tuned_examples", "examples")
        for path in (ROOT / folder).rglob("__init__.py")
    }
    there = {name if name.startswith("rllib_llm_comm") else f"rllib_llm_comm.{name}" for name in there}
    there |= {
        ".".join(("rllib_llm_comm", *path.parent.relative_to(ROOT).parts))
        for path in (ROOT / "envs").rglob("__init__.py")
    }
    assert listed >= there, there - listed
