"""Language agents in the strategy game: one short iteration, with subgoals through the callback."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow.dataset as ds
import pytest
from toys import language_model

from rllib_llm_comm import MessageSFTConfig, TWOSOMEConfig
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.games import same_request
from rllib_llm_comm.envs.minirts.commanders import make_commander
from rllib_llm_comm.envs.minirts.sayings import understand
from rllib_llm_comm.envs.minirts.words import NOTHING
from rllib_llm_comm.experiments.packaged_examples import examples
from rllib_llm_comm.sama.planning_config import AddPlannedSubgoals
from rllib_llm_comm.verco.teachers.base import TeacherRequest, make_teacher
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels
from tests.cli.command import succeeds
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")
SETTINGS = {"opponent": "simple", "numbers": [3], "observe": ["text"], "max_tick": 400}


def test_agents_are_told_subgoals_and_train():
    config = (
        TWOSOMEConfig()
        .environment("rllib_llm_comm/minirts-v0", env_config=SETTINGS)
        .language_model(base_model="embedded", max_prompt_tokens=448, critic_hiddens=[16])
        .callbacks(AddPlannedSubgoals.of("scripted", subgoal_reward=0.1))
        .env_runners(num_envs_per_env_runner=1)
        .training(train_batch_size_per_learner=16, num_epochs=1)
        .debugging(seed=0)
    )
    with running(config) as algo:
        results = algo.train()["env_runners"]
    assert results["won"] == 0 and results["subgoals_given"] >= 2
    assert results["episode_game_steps"] == 400


def test_the_scripted_teacher_speaks_and_advises():
    teacher, rng = make_teacher("scripted"), np.random.default_rng(0)
    env = minirts.parallel_env(**SETTINGS | {"max_tick": 8000})
    env.reset(seed=0)
    meant = set()
    while env.agents:
        request = TeacherRequest(tuple(env.agents), {}, state=env.teacher_state)
        said = teacher.messages(request, rng=rng)
        assert all(len(words.split()) <= 10 and understand(words) for words in said.values())
        again = teacher.messages(request, rng=rng)
        assert same_request(said["alice"], again["alice"])
        meant |= {understand(words) for words in said.values()}
        env.step({agent: teacher.advise(env, agent) for agent in env.agents})
    assert env.game.winner == 0 and len(meant) > 5
    assert env.commands[0] == NOTHING


TOLD = {**SETTINGS, "opponent": "medium", "told_to": ["alice"], "producers": "bob", "max_tick": 200}


@pytest.mark.slow
def test_told_commanders_from_labels_to_measured_talk(tmp_path):
    """Messages of the teacher tell the fact, a tiny model is trained on them, and its talk is measured."""
    collect_labels("rllib_llm_comm/minirts-v0", tmp_path / "labels", env_config=TOLD, target_labels=80, policy="random")
    rows = ds.dataset([str(part) for part in (tmp_path / "labels").rglob("*.parquet")]).to_table().to_pylist()
    game = minirts.parallel_env(**TOLD)
    told = [row for row in rows if game.meaning(row["message"]) in game.facts]
    assert len(told) >= 10 and all(f"The enemy trains {game.meaning(row['message'])}." in row["prompt"] for row in told)
    with running(
        MessageSFTConfig()
        .offline_data(input_=str(tmp_path / "labels"))
        .language_model(**language_model(max_prompt_tokens=512, max_candidate_tokens=32))
        .training(lr=1e-2, train_batch_size_per_learner=32, judge_interval=4)
        .debugging(seed=0)
    ) as algo:
        losses = [algo.train()["message_sft"]["train_loss"] for _ in range(4)]
        checkpoint = algo.save_to_path(str(tmp_path / "sft"))
    assert losses[-1] < losses[0] - 0.5
    succeeds(
        "evaluate", checkpoint, "--episodes", "8", "--communication", "--json", "talk.json", cwd=tmp_path, timeout=300
    )
    talk = json.loads((tmp_path / "talk.json").read_text())["communication"]
    # Who is told is known to the measure: half of the decisions, with the entropy of the facts that were drawn.
    facts = Counter()
    for seed in range(8):
        _, infos = game.reset(seed=seed)
        facts[infos["alice"]["private"]] += 1
    shares = np.array(list(facts.values())) / 8
    assert talk["signalling"]["entropy"] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-3)
    assert talk["decisions"] == talk["signalling"]["samples"] > 0
    assert talk["listening"] is not None and talk["understood"] is not None


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_commanders_learn_to_beat_the_medium_opponent(tmp_path):
    succeeds(
        "train", "file", str(examples()["symbolic_ppo_minirts"]), "--ray-num-cpus", "2", cwd=tmp_path, timeout=3500
    )
    learned = json.loads((tmp_path / "results/symbolic_ppo_minirts/evaluation/evaluation.json").read_text())
    assert learned["metrics"]["won"] >= wins_by_chance(games=30) + 0.15


def wins_by_chance(games: int) -> float:
    """Share of games that random commands win."""
    env = minirts.parallel_env(numbers=[3], opponent="medium", max_tick=6400, observe=["vector"])
    won = 0
    for seed in range(games):
        env.reset(seed=seed)
        commander = make_commander("random", env.executor, env.commands, seed)
        while env.agents:
            env.step({agent: env.commands.index(commander(i)) for i, agent in enumerate(env.agents)})
        won += env.game.winner == 0
    return won / games
