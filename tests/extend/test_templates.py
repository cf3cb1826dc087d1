"""The templates of docs/extend, added from outside of the package: what stands on the pages is what runs here."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from pettingzoo.env_registry import registration
from ray.tune.registry import TRAINABLE_CLASS, _global_registry

from rllib_llm_comm import Verco, load_policy, make_env
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import env_ids, game_of
from rllib_llm_comm.envs.games import GAMES, is_understood, same_request
from rllib_llm_comm.envs.interface import success_words
from rllib_llm_comm.experiments.algorithm_settings import check_config, find_algorithm
from rllib_llm_comm.rl.algorithms import ALGORITHMS
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import PLANNERS, make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.testing import check_env
from rllib_llm_comm.verco.teachers.base import TEACHERS, TeacherRequest, make_teacher
from tests import forked
from tests.cli.command import succeeds
from tests.refusal import refused

PAGES = Path(__file__).parents[2] / "docs" / "extend"
BLOCK = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', re.S | re.M)
MODULES = ("coin", "coin_planning", "my_teacher", "my_planner", "my_algorithm", "my_loss", "hysteretic")


def templates() -> dict[str, str]:
    """File name -> content of all blocks with a title on all pages."""
    return {name: text for page in sorted(PAGES.glob("*.md")) for name, text in BLOCK.findall(page.read_text())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder with the templates as files."""
    made = tmp_path_factory.mktemp("mine")
    for name, text in templates().items():
        (made / name).write_text(text)
    return made


@pytest.fixture
def mine(folder, monkeypatch):
    """The user's folder, from which modules can be imported; the registries are as before afterwards."""
    monkeypatch.syspath_prepend(folder)
    for registry in (ALGORITHMS, GAMES, PLANNERS, TEACHERS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    yield folder
    registration.parallel_registry.pop("mine/coin-v0", None)
    for name in ("IPPO", "SignTWOSOME", "HystereticVDN"):
        if _global_registry.contains(TRAINABLE_CLASS, name):
            _global_registry.unregister(TRAINABLE_CLASS, name)
    for name in MODULES:
        sys.modules.pop(name, None)


def test_the_game_passes_the_tests_of_the_packages_own_games(mine):
    import coin

    results = check_env(coin.ENV_ID, settings={"rounds": 3})
    assert all(result.ok for result in results), [result for result in results if not result.ok]
    assert {"runs under RLlib", "text is not empty"} <= {result.name for result in results if result.status == "passed"}


def test_one_record_makes_the_game_known_everywhere(mine):
    import coin

    env = make_env(coin.ENV_ID, rounds=2)
    seen, _ = env.reset(seed=0)
    assert coin.ENV_ID in env_ids() and game_of(env).name == "coin" and success_words(env) == ("named", "not named")

    teacher = make_teacher("scripted")
    request = TeacherRequest(tuple(env.agents), {a: s["text"] for a, s in seen.items()}, state=env.teacher_state)
    told = teacher.messages(request, rng=np.random.default_rng(0))
    side = coin.SIDES[env.side]
    assert told == {"ann": f"the coin shows {side}", "bob": "i wait"}
    assert seen["bob"]["candidates"][teacher.advise(env, "bob")] == f"say {side}"
    assert is_understood("The coin shows heads.") and same_request("The coin shows heads.", "the coin shows heads")
    assert not same_request("the coin shows heads", "the coin shows tails")

    game = planning_game(env)
    assert type(game).__name__ == "CoinPlanning" and game.possible(game.state(), "ann") == ["wait"]
    with refused("rounds", "range"):
        make_env(coin.ENV_ID, rounds=0)
    with pytest.raises(UserError, match="`round` .*'rounds'"):
        make_env(coin.ENV_ID, round=2)
    with pytest.raises(UserError, match="'mine/coin-v0'"):
        make_env("mine/coin-v1")


def test_games_that_nobody_registered_are_strangers(mine):
    assert not is_understood("the coin shows heads") and "coin" not in GAMES
    import coin

    assert is_understood("the coin shows heads") and coin.ENV_ID


def test_the_teacher_labels(mine):
    import my_teacher

    teacher = make_teacher({"name": "brief", "case": "upper"})
    assert isinstance(teacher, my_teacher.Brief)
    request = TeacherRequest(("ann", "bob"), {"ann": "i am ann. the coin shows heads.", "bob": "it is hidden."})
    assert teacher.messages(request, rng=np.random.default_rng(0)) == {"ann": "HEADS", "bob": "HIDDEN"}
    with pytest.raises(UserError, match="`teacher` is 'brif' .*'brief'"):
        make_teacher("brif")
    with refused("teacher.case", "choice"):
        make_teacher({"name": "brief", "case": "title"})
    with pytest.raises(UserError, match="`teacher.cas` .* 'case'"):
        make_teacher({"name": "brief", "cas": "upper"})
    # A training with an unknown setting does not begin.
    settings = {"env": "rllib_llm_comm/door-v0", "messages": "teacher"}
    check_config("verco", Verco, {**settings, "teacher": {"name": "brief", "case": "upper"}})
    with refused("verco.config.teacher.cas", "unknown"):
        check_config("verco", Verco, {**settings, "teacher": {"name": "brief", "cas": "upper"}})


def test_the_planner_plans_in_the_game(mine):
    done = forked.run("plan_once.py", cwd=mine)
    assert done.stdout.strip() == "{'ann': 'wait', 'bob': 'say heads'}", done.stderr


def test_the_planner_is_followed_and_its_settings_are_checked(mine):
    import coin
    import my_planner  # noqa: F401

    env = PlannedSubgoals(make_env(coin.ENV_ID, rounds=3), planner="in_turn", wait=True)
    seen, _ = env.reset(seed=0)
    told = [seen["bob"]["subgoal"]]
    while env.agents:
        seen, *_ = env.step({"ann": 0, "bob": 0})
        told.append(seen["bob"]["subgoal"])
    assert told[:3] == ["wait", "say heads", "say tails"]
    with pytest.raises(UserError, match="`planner.frist` .* 'first'"):
        make_planner({"name": "in_turn", "frist": 1})
    with pytest.raises(UserError, match="`planner` is 'in_trun' .*'in_turn'"):
        make_planner("in_trun")


def test_the_algorithm_is_found_by_its_name(mine):
    import coin  # noqa: F401
    import my_algorithm

    assert find_algorithm("IPPO") is my_algorithm.IPPO
    config = check_config("ippo", my_algorithm.IPPO, {"patient": True, "env": "mine/coin-v0"})
    assert (config.gamma, config.critic_observation) == (1.0, "own")
    with refused("ippo.config.patient", "type"):
        check_config("ippo", my_algorithm.IPPO, {"patient": "yes"})
    with pytest.raises(UserError, match="'IPPO'.*`--import MODULE`"):
        find_algorithm("IPO")


def test_the_game_tells_whether_it_is_solved(mine):
    import coin

    env = coin.parallel_env(rounds=1)
    env.reset(seed=0)
    wrong = env.step({"ann": 0, "bob": 0})
    assert wrong[2]["bob"] and not wrong[4]["bob"]["task_success"], "an episode that pays nothing is not solved"
    env.reset(seed=0)
    assert env.step({"ann": 0, "bob": env.side + 1})[4]["bob"]["task_success"]


def test_one_command_labels_and_trains_with_the_files_of_all_pages(mine):
    files = {name: (mine / f"{name}.yaml").read_text() for name in ("coin", "labels", "ippo", "sign", "hysteretic")}
    files["labels"] = files["labels"].replace("labels:", "brief_labels:", 1)
    files["hysteretic"] += "    min_sample_timesteps_per_iteration: 20\n"
    (mine / "all.yaml").write_text("".join(files.values()))
    imports = [word for name in MODULES if "plan" not in name for word in ("--import", name)]
    done = succeeds("train", "file", "all.yaml", *imports, "--ray-num-cpus", "3", cwd=mine, timeout=400)
    assert done.stdout.count("3 labels of 3 different observations") == 2
    import coin  # noqa: F401

    trained = {"verco": "Verco", "ippo": "IPPO", "sign": "SignTWOSOME", "hysteretic": "HystereticVDN"}
    for stage, algorithm in trained.items():
        policy = load_policy(next((mine / "results" / "all" / stage).rglob("policy")))
        assert policy.manifest.algorithm == algorithm and policy.manifest.env == "mine/coin-v0"
