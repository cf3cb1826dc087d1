"""A recorded session is data: it builds nothing outside of this program, and no file in its place is waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hub_server import HubServer
from typer.testing import CliRunner

from rllib_llm_comm.baselines.numeric.behavior_cloning import read_demonstrations
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import SESSION, read_session
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.replay import replay_session
from tests.refusal import refused

CARD = {"text": "", "subgoal": "", "reward": 0, "events": [], "busy": False}
SUBGOALS = "rllib_llm_comm/overcooked_ai_subgoals-v0"
KITCHEN = "rllib_llm_comm/overcooked_text-v0"
MINIRTS = "rllib_llm_comm/minirts-v0"


def write(folder, env, *, agents=("alice", "bob"), cards=None, actions=None, **settings):
    """A session of one moment, as somebody could write it."""
    folder.mkdir(exist_ok=True)
    head = {"kind": "session", "format": 1, "env": env, "env_config": settings, "agents": list(agents)}
    moment = {"agents": cards or dict.fromkeys(agents, CARD), "actions": actions or dict.fromkeys(agents, 0)}
    lines = [
        {**head, "holders": {}, "started": ""},
        {"kind": "episode", "episode": 1, "seed": 0},
        {"kind": "moment", "episode": 1, "game_step": 0, "people": {}, **moment},
    ]
    (folder / SESSION).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (MINIRTS, {"executor": "trained:hf:someone/officer"}),
        (MINIRTS, {"executor": "switch:zoo:red_officer:hf:someone/officer"}),
        (SUBGOALS, {"subgoal_file": "/dev/zero"}),
        (SUBGOALS, {"layout": "/dev/zero.layout"}),
        (KITCHEN, {"max_game_steps": 10**9}),
    ],
)
@pytest.mark.timeout(60)
def test_its_first_line_reaches_nothing_outside(env, settings, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    folder = write(tmp_path / "session", env, **settings)
    with HubServer() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        done = CliRunner().invoke(cli, ["replay", str(folder)])
        assert isinstance(done.exception, UserError) and not hub.asked
    told = str(done.exception)
    assert f"session recorded `env_config.{next(iter(settings))}`" in told and "--trust" in told


def test_trusted_settings_are_used(tmp_path):
    folder = write(tmp_path / "session", SUBGOALS, subgoal_file=str(tmp_path / "gone.json"))
    done = CliRunner().invoke(cli, ["replay", str(folder), "--trust"])
    assert isinstance(done.exception, UserError) and "gone.json" in str(done.exception), "it was looked for"


def test_what_comes_with_the_package_is_no_secret(tmp_path):
    folder = write(tmp_path / "session", MINIRTS, executor="trained:zoo:red_officer")
    with pytest.raises(UserError, match="does not come out as it was recorded"):
        replay_session(folder, tmp_path / "page.html")


@pytest.mark.parametrize(
    ("env", "settings", "told"),
    [
        ("nobody_knows:Env-v0", {}, ("env", "unknown")),
        (KITCHEN, {"view_radius": 10**400}, ("env_config.view_radius",)),
        (KITCHEN, {"nonsense": [1]}, ("nonsense", "unknown")),
    ],
)
def test_settings_that_fit_no_game_are_told(env, settings, told, tmp_path):
    folder = write(tmp_path / "session", env, **settings)
    with refused(*told):
        replay_session(folder, tmp_path / "page.html")


def test_clones_of_sessions_are_asked_as_well(tmp_path):
    env = "rllib_llm_comm/overcooked_ai-v0"
    folder = write(tmp_path / "session", env, action_level="primitive", layout="/dev/zero.layout")
    with pytest.raises(UserError, match=r"session recorded `env_config.layout`"):
        read_demonstrations(folder)


def test_actions_that_do_not_exist_are_told(tmp_path):
    env = make_env(KITCHEN)
    observations, _ = env.reset(seed=0)
    cards = {agent: {**CARD, "text": seen["text"]} for agent, seen in observations.items()}
    actions = dict.fromkeys(env.possible_agents, 10**6)
    folder = write(tmp_path / "session", KITCHEN, agents=env.possible_agents, cards=cards, actions=actions)
    with pytest.raises(UserError, match="1000000"):
        replay_session(folder, tmp_path / "page.html")


@pytest.mark.parametrize("cards", [{"alice": 5}, [5]])
def test_parts_that_are_none_are_told(cards, tmp_path):
    with pytest.raises(UserError, match="agents"):
        read_session(write(tmp_path / "session", SUBGOALS, cards=cards))


def test_nothing_is_kept_of_what_nobody_reads(tmp_path):
    cards = {"alice": {**CARD, "by": "somebody", "junk": [[]] * 9}, "bob": CARD}
    session = read_session(write(tmp_path / "session", SUBGOALS, cards=cards))
    assert set(session.episodes[0].moments[0].agents["alice"]) == set(CARD)


READERS = {
    "session.jsonl": "rllib_llm_comm.core.session_files:read_session",
    "subgoals.json": "rllib_llm_comm.sama.data_set:read_record",
    "policy.json": "rllib_llm_comm.policies.policy_manifest:read_manifest",
    "games.json": "rllib_llm_comm.baselines.numeric.behavior_cloning:read_demonstrations",
    "kitchen.layout": "rllib_llm_comm.envs.overcooked_ai.original:read_layout_file",
}
KINDS = {
    "pipe": os.mkfifo,
    "link": lambda path: (os.mkfifo(f"{path}.pipe"), path.symlink_to(f"{path}.pipe")),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "kernel": lambda path: path.symlink_to("/proc/self/pagemap"),  # a file of no size that ends late
    "folder": lambda path: path.mkdir(),
    "spaces": lambda path: (path.touch(), os.truncate(path, 4 * 2**30)),
}
READ_ALL = f"""
import resource, sys
from pathlib import Path
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
readers = {{name: load(reader) for name, reader in {READERS!r}.items()}}
with open("/proc/self/statm") as file:
    here = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (here + 2**30, here + 2**30))
for name, read in readers.items():
    for folder in Path(sys.argv[1], name).iterdir():
        try:
            read(folder / name if name != "policy.json" else folder)
        except UserError:
            print(name, folder.name)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_nobody_waits_for_a_pipe_or_reads_without_end(tmp_path):
    for name in READERS:
        for kind, make in KINDS.items():
            (tmp_path / name / kind).mkdir(parents=True)
            make(tmp_path / name / kind / name)
    # In another process, killed: one that waits for a pipe hears no signal of Python's.
    command = [sys.executable, "-c", READ_ALL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    refused = {tuple(line.split()) for line in done.stdout.splitlines()}
    assert not done.stderr and refused == {(name, kind) for name in READERS for kind in KINDS}, done.stderr
