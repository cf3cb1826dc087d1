"""Old names of modules and classes lead to the new ones."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import warnings
from importlib.util import find_spec

import pytest

from rllib_llm_comm import moved
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.env_settings import check_environment

ROOT = "rllib_llm_comm"


def test_every_old_module_has_a_place_and_none_is_in_the_way():
    assert [new for new in moved.MODULES.values() if find_spec(f"{ROOT}.{new}") is None] == []
    real = {old for old in moved.MODULES if type(find_spec(f"{ROOT}.{old}").loader) is not moved._OldNames}
    assert real == moved._TAKEN


def test_every_renamed_name_has_a_place():
    for old, new in moved.NAMES.items():
        (module, _, name), (place, _, attribute) = old.rpartition("."), new.rpartition(".")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = getattr(importlib.import_module(f"{ROOT}.{module}"), name)
        assert found is getattr(importlib.import_module(f"{ROOT}.{place}"), attribute)
        # A module holds a renamed class under the new name only.
        assert attribute == name or not hasattr(importlib.import_module(f"{ROOT}.{place}"), name)


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("evaluation.decision", "Decision", "agents.decision"),
        ("runners.onion_soup", "OnionSoupEnvRunner", "env_runners.overcooked_ai"),  # its folder is gone
        ("envs.telling", "TellingGame", "envs.told_game"),
        ("envs.minirts.game", "Game", "envs.minirts.engine.game"),  # another module has its name
        ("planning.rewards", "CodeReward", "planning.rewards.reward_code"),  # a package has its name
    ],
)
def test_a_pickle_finds_a_class_under_its_old_name(old, name, new):
    found = pickle.loads(f"c{ROOT}.{old}\n{name}\n.".encode())
    assert found is getattr(importlib.import_module(f"{ROOT}.{new}"), name)
    assert pickle.loads(pickle.dumps(found)) is found


def test_a_program_that_imports_an_old_name_is_told_the_new_one(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("from rllib_llm_comm.language.chat import ChatClient\nprint(ChatClient.__module__)\n")
    # Other tests of this process may have silenced warnings for its children.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, env=env)
    assert run.stdout == "rllib_llm_comm.chat.client\n"
    told = "program.py:1: DeprecationWarning: `rllib_llm_comm.language.chat` has moved to `rllib_llm_comm.chat.client`."
    assert told in run.stderr


def test_the_front_of_the_package_uses_no_old_name():
    program = "import rllib_llm_comm as front\nfor name in front.__all__: getattr(front, name)"
    ours = "error:`rllib_llm_comm:DeprecationWarning"
    run = subprocess.run([sys.executable, "-W", ours, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_names_that_never_were_are_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{ROOT}.runners.nobody")
    with pytest.raises(ImportError, match="cannot import name 'Nobody'"):
        exec("from rllib_llm_comm.modules.core import Nobody")


def test_a_class_path_of_an_experiment_file_may_be_an_old_one():
    check_environment("ppo", "rllib_llm_comm.envs.telling.TellingGame", {})
    with pytest.raises(UserError, match="nor a class path"):
        check_environment("ppo", "rllib_llm_comm.envs.telling.Nobody", {})
