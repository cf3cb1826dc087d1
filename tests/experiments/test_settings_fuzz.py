"""Mutated files of settings end valid, or in one sentence that names what is wrong, before anything runs.

`SETTINGS_MUTATIONS=100` mutates each file so often, with other draws. Of a study one scenario is run, where the mutated
system has its stages.
"""

from __future__ import annotations

import copy
import os
import random
import signal
from pathlib import Path

import huggingface_hub.constants
import pytest
import yaml

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import TrainSettings, load_file, read_experiment_file
from rllib_llm_comm.experiments.pipeline import run_file
from rllib_llm_comm.experiments.study_file import expand, is_study, part_of, read_study
from tests.experiments.staged import BegunError

ROOT = Path(__file__).parents[2]
FILES = [*sorted((ROOT / "tuned_examples").glob("*.yaml")), *sorted((ROOT / "tests" / "data").glob("*.yaml"))]
MUTATIONS = int(os.environ.get("SETTINGS_MUTATIONS", "1"))
SECONDS = 180  # of work; rules of games may have to be compiled
VALUES = [
    None, True, False, 0, -1, 1.5, -0.0, 1e-320, 12345, 2**31, 10**40, -(10**40), float("nan"), float("inf"),
    float("-inf"), "", "no_such", "../..", "/dev/null", "${no}", "a.b.C", "x:y", "\0", "\u00e9", "x" * 5000,
    [], {}, [[]], [1, "x", None], [{"a": [{}]}], {"a": 1}, {"name": 5}, {"name": "no_such"}, {"grid_search": 7},
    {"grid_search": []}, {"grid_search": [None, "x", 1]}, {"choice": []}, {"uniform": [1, 0]}, {"by_seed": [1]},
]  # fmt: skip
NAMES = ["no_such", "", "_x", "__x", "env", "callbacks", "api_key_env", 5, True, None]


def begun():
    raise BegunError


def late(*_):
    raise AssertionError("the check hangs")


def places(value, place=()):
    """Places of all values in nested mappings and lists."""
    if place:
        yield place
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*place, key))


def mutated(data, draw):
    """A copy with one change, and the place of the change."""
    data = copy.deepcopy(data)
    place = draw.choice(list(places(data)))
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    value, way = holder[place[-1]], draw.random()
    if way < 0.1:
        del holder[place[-1]]
    elif way < 0.22 and isinstance(holder, dict):
        holder[draw.choice([*NAMES, f"{place[-1]}x"])] = holder.pop(place[-1])
    elif way < 0.3:
        holder[place[-1]] = draw.choice([{"nested": value}, [value], [value] * 3])
    elif way < 0.4 and isinstance(value, str):
        at = draw.randrange(len(value) + 1)
        holder[place[-1]] = value[:at] + draw.choice("xX /.:$-\n1") + value[at + draw.choice([0, 1]) :]
    elif way < 0.5 and isinstance(value, int | float):
        holder[place[-1]] = -value * draw.choice([1, 0.5, 10**6])
    else:
        holder[place[-1]] = draw.choice(VALUES)
    return data, place


def check(path, results, place):
    """The way of `rllib train file` and `rllib study file --scenario` up to what costs anything."""
    settings = TrainSettings(storage_path=str(results), ray_num_cpus=64)
    file = scenario_of(read_study(path), path.stem, place) if is_study(path) else read_experiment_file(path)
    run_file(file, settings, before=begun)


def scenario_of(study, name, place):
    """The stages of one scenario: that in which a place is, or one in which its system is trained."""
    system = study.systems.get(place[1]) if place[0] == "systems" and len(place) > 1 else None
    has_it = [one for one in study.scenarios if one in place] or (system and system.scenarios) or [*study.scenarios]
    return part_of(study, expand(study, name), has_it[:1])


@pytest.mark.parametrize("source", FILES, ids=lambda path: path.stem)
def test_mutated_settings_end_in_a_sentence(source, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    whole = tmp_path / "whole.yaml"
    there = source.read_text()
    for absent in ("huggyllama/llama-7b", "&model smollm2", "base_model: smollm2"):  # not every model is here
        there = there.replace(absent, absent.replace("huggyllama/llama-7b", "embedded").replace("smollm2", "embedded"))
    whole.write_text(there)
    data = load_file(whole)
    draw = random.Random(f"{source.name} {MUTATIONS}")
    signal.signal(signal.SIGPROF, late)
    for _ in range(MUTATIONS):
        changed, place = mutated(data, draw)
        path = _written(tmp_path, changed)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            check(path, tmp_path / "results", place)
        except BegunError:
            continue
        except UserError as error:
            sentence = str(error)
            names = [*map(str, place), path.name, str(_at(changed, place))]
            assert len(sentence.splitlines()) == 1 and len(sentence) < 2000, (place, sentence)
            assert any(name and name in sentence for name in names), (place, sentence)
        except Exception as error:
            raise AssertionError(f"{source.name} with {place} as {_at(changed, place)!r}") from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _written(folder, data):
    path = folder / "file.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def _at(data, place):
    try:
        for key in place:
            data = data[key]
    except (LookupError, TypeError):
        return "nothing"
    return data
