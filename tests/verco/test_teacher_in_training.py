"""A chat teacher that speaks for the agents while they train and play: several games ask it at once."""

from __future__ import annotations

import pytest
import toys
from chat_server import ChatServer, Late

from rllib_llm_comm import VercoConfig, load_policy
from rllib_llm_comm.evaluation.planned_play import play_planned
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

KITCHEN = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 8}


def answer(prompt):
    return f"alice: please bring {len(prompt) % 7} plates\nbob: i see {len(prompt) % 5} things"


def config(server, at_once):
    teacher = {"name": "chat", **server.settings(max_concurrent=at_once)}
    return (
        VercoConfig()
        .environment("rllib_llm_comm/overcooked_text-v0", env_config=KITCHEN)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .language_model(**toys.language_model(max_prompt_tokens=256, max_candidate_tokens=32))
        .communication(messages="teacher", teacher=teacher)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .debugging(seed=0)
    )


def course(episodes):
    return [
        (agent, str(single.get_observations()), list(single.get_actions()), list(single.get_rewards()))
        for episode in episodes
        for agent, single in sorted(episode.agent_episodes.items())
    ]


def test_games_that_ask_at_once_take_the_same_course(tmp_path):
    seen, played = {}, {}
    for at_once in (1, 4):
        late = Late(answer, together=min(at_once, 2))
        with ChatServer(late) as server, running(config(server, at_once)) as algo:
            episodes = algo.env_runner.sample(num_timesteps=96, random_actions=False)
            assert any(episode.is_done for episode in episodes)  # a new one begins beside those that go on
            seen[at_once] = course(episodes)
            assert (late.most > 1) == (at_once > 1)
            algo.train()
            algo.save_to_path(str(tmp_path / str(at_once)))
            late.most = 0
            games = play_planned(load_policy(tmp_path / str(at_once), trust=True), episodes=4, seed=5)
            assert (late.most > 1) == (at_once > 1)
            played[at_once] = [(game.seed, game.returns, game.length, game.metrics) for game in games]
            assert all(game.metrics["messages_by_teacher"] for game in games)
    assert seen[1] == seen[4] and played[1] == played[4]
