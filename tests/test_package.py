"""What goes to a package index: one version, and a source distribution that holds what its tests read."""

from __future__ import annotations

import configparser
import re
from importlib.metadata import metadata
from pathlib import Path

import yaml

import rllib_llm_comm
from rllib_llm_comm.sama.manuals.manual import manuals
from tools.absolute_readme import absolute
from tools.smoke_wheel import PYTHONS

ROOT = Path(__file__).parents[1]


def test_one_version():
    assert "attr: rllib_llm_comm.__version__" in (ROOT / "setup.cfg").read_text()
    assert metadata("rllib_llm_comm")["Version"] == rllib_llm_comm.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == rllib_llm_comm.__version__
    newest = re.search(r"^## \[?([\w.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest.group(1) in ("Unreleased", rllib_llm_comm.__version__)


def test_extras_are_found_by_old_versions_of_pip():
    """pip 23.2, which comes with Python 3.11, looks for `a_b` where new builds of a package write `a-b`."""
    extras = metadata("rllib_llm_comm").get_all("Provides-Extra")
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    told = list(config["options.extras_require"])
    assert "clients" in told and set(extras) <= set(told)
    assert [name for name in told if not re.fullmatch("[a-z0-9]+", name)] == []


def test_the_source_distribution_takes_every_folder():
    told = (ROOT / "MANIFEST.in").read_text()
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))}
    built = {"rllib_llm_comm", "envs", "results", "build", "dist", "site", "rllib_llm_comm.egg-info"}
    missing = [name for name in folders - built if f"graft {name}\n" not in told and not _ignored(name)]
    assert missing == []


def _ignored(name: str) -> bool:
    return any(line.strip("/") == name for line in (ROOT / ".gitignore").read_text().splitlines())


def test_the_same_pythons_everywhere():
    config = (ROOT / "setup.cfg").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    told = [f"3.{minor}" for minor in re.findall(r"Programming Language :: Python :: 3\.(\d+)", config)]
    assert told == [name.removeprefix("python") for name in PYTHONS]
    least, beyond = re.search(r"python_requires = >=3\.(\d+),<3\.(\d+)", config).groups()
    assert (told[0], told[-1]) == (f"3.{least}", f"3.{int(beyond) - 1}")
    # Types and syntax are checked against the oldest.
    assert f'target-version = "py3{least}"' in project and f'python_version = "3.{least}"' in project
    nightly = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())
    assert nightly["jobs"]["wheel"]["strategy"]["matrix"]["python"] == told


def test_the_page_for_an_index_has_absolute_links_only():
    base = "https://example.org/a/b/blob/v1"
    text = absolute((ROOT / "README.md").read_text(), base)
    places = re.findall(r"\]\(([^)\s]+)\)", text)
    assert places and all(place.startswith(("https://", "#")) for place in places)
    ours = [place for place in places if place.startswith("https://example.org/")]
    assert all((ROOT / re.sub(r".*/(?:blob|raw)/v1/|#.*", "", place)).exists() for place in ours)
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert images and all("/raw/v1/" in image for image in images)


def test_every_folder_of_code_is_a_package():
    """setup.py finds no others."""
    folders = ("rllib_llm_comm", "envs", "examples", "tuned_examples")
    code = {path.parent for folder in folders for path in (ROOT / folder).rglob("*.py")}
    assert [folder for folder in code if not (folder / "__init__.py").exists()] == []


def test_descriptions_and_manuals_are_in_the_wheel():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    taken = config["options.package_data"]["rllib_llm_comm.sama.manuals"].split()
    assert {"made/*.md", "papers/*.tex"} <= set(taken)
    folder = ROOT / "rllib_llm_comm" / "sama" / "manuals"
    described = {path.stem for path in (folder / "papers").glob("*.tex")}
    assert described == set(manuals()) == {"frozen_lake", "minirts", "onion_soup", "overcooked_text"}
