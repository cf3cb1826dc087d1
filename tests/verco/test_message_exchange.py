"""The connector inside RLlib's EnvRunner: what is heard, stored and counted."""

from __future__ import annotations

import re
from collections import defaultdict

import gymnasium as gym
import pytest
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from toys import ColourTalk, language_model, words_of

from rllib_llm_comm import VercoConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.rllib_adapter import register_parallel_env
from rllib_llm_comm.verco.module import MessageExchange


class Talk(ColourTalk):
    """The toy whose text also tells episode and game step, so that every message can be dated."""

    episodes = 0

    def reset(self, seed=None, options=None):
        Talk.episodes += 1
        self.number = Talk.episodes
        return super().reset(seed, options)

    def observe(self):
        observations = super().observe()
        for agent, observation in observations.items():
            observation["text"] = f"{agent} episode {self.number} step {self.t}. {self.colours[agent]}."
        return observations


def runner(messages="student", fragment=7, envs=2, **env_config):
    register_parallel_env("toys/dated", entry=Talk)
    config = (
        VercoConfig()
        .environment("toys/dated", env_config=env_config, disable_env_checking=True)
        .language_model(**language_model())
        .communication(messages=messages)
        .env_runners(num_envs_per_env_runner=envs, rollout_fragment_length=fragment)
        .training(train_batch_size_per_learner=fragment * envs)
        .debugging(seed=0)
    )
    config.validate()
    made = MultiAgentEnvRunner(config=config, worker_index=0)
    network = made.module["shared"].network

    def say(prompts, **kwargs):
        # "i am NAME SECONDS...": every message names its speaker, episode and game step.
        said = [re.match(r"(\w+) episode (\d+) step (\d+)", p).groups() for p in prompts]
        made.asked.append(said)
        return [f"{who} {episode} {step}" for who, episode, step in said]

    made.asked = []
    network.write_messages = say
    return made


def texts(made, episodes):
    """(agent, episode, step, heard) of every stored observation, from the token ids."""
    base = made.module["shared"].network.lm.base
    for episode in episodes:
        for agent, single in episode.agent_episodes.items():
            ids = single.get_observations(slice(0, len(single) + 1))["prompt_ids"]
            for row in range(len(ids)):
                text = words_of(base, ids[row])
                number, step = re.search(r"episode (\d+) step (\d+)", text).groups()
                heard = re.search(r"(\w+) says: (\w+) (\d+) (\d+)\.", text)
                yield agent, int(number), int(step), heard and (heard[1], int(heard[3]), int(heard[4]))


def decisions_of(busy, length):
    return {agent: list(range(0, length, each)) for agent, each in zip(("alice", "bob"), busy, strict=True)}


@pytest.mark.parametrize("busy", [(1, 1), (1, 3), (2, 5)])
def test_every_decision_hears_the_latest_message_of_this_episode(busy):
    made = runner(fragment=5, busy=busy, length=11)
    asked_at = decisions_of(busy, 11)
    seen = defaultdict(set)
    for _ in range(8):  # many fragments: episodes are cut again and again
        for agent, episode, step, heard in texts(made, made.sample()):
            seen[episode].add((agent, step))
            other = "bob" if agent == "alice" else "alice"
            last = max(t for t in asked_at[other] if t <= min(step, 10))
            if step == 11:  # final observation: nobody speaks any more
                last = asked_at[other][-1]
            assert heard == (other, episode, last), (agent, step)
    finished = [e for e in seen if (("alice", 11) in seen[e])]
    assert len(finished) >= 2
    for episode in finished:
        assert seen[episode] == {(a, t) for a in asked_at for t in [*asked_at[a], 11]}


def test_all_environments_speak_in_one_batch_and_only_when_asked():
    made = runner(fragment=6, envs=3, busy=(1, 3), length=11)
    made.sample()
    spoken = [who for batch in made.asked for who in batch]
    assert len(made.asked[0]) == 6  # three environments with two agents each
    assert len(spoken) == len(set(spoken))  # nobody is asked twice in one moment
    steps_of_bob = {int(step) for who, _, step in spoken if who == "bob"}
    assert steps_of_bob <= {0, 3, 6, 9}


@pytest.mark.parametrize("messages", ["none", "constant", "other_moments"])
def test_controls(messages):
    made = runner(messages, fragment=12, envs=2, length=6)
    base = made.module["shared"].network.lm.base
    said = []
    for episode in made.sample():
        for single in episode.agent_episodes.values():
            for ids in single.get_observations(slice(0, len(single)))["prompt_ids"]:
                said += re.findall(r"says: (.*?)\.", words_of(base, ids))
    if messages == "none":
        assert said == []
    elif messages == "constant":
        assert set(said) == {"hello"} and len(said) == 24
    else:
        assert len(set(said)) > 5
        metrics = made.get_metrics()
        assert 0.0 <= metrics["shuffled_same_share"].peek() < 0.5  # the toy's messages count up
        assert metrics["shuffled_silent_share"].peek() == 0.0


def test_metrics_count_words_and_distinct_messages():
    made = runner(fragment=10, length=6)
    made.sample()
    metrics = made.get_metrics()
    assert metrics["message_words"].peek() == 3.0
    assert 0.5 < metrics["message_distinct_share"].peek() <= 1.0
    assert metrics["message_vocabulary"].peek() >= 1
    assert "shuffled_same_share" not in metrics


def test_an_environment_without_words_is_refused():
    box = gym.spaces.Dict({"alice": gym.spaces.Box(0, 1, (3,))})
    with pytest.raises(UserError, match="Dict with `text` and `candidates`"):
        MessageExchange(box, gym.spaces.Dict({"alice": gym.spaces.Discrete(2)}))


def test_the_connector_restores_from_its_constructor_arguments():
    made = runner()
    piece = made._env_to_module[MessageExchange][0]
    args, kwargs = piece.get_ctor_args_and_kwargs()
    again = MessageExchange(*args, **kwargs)
    again.input_action_space = piece.input_action_space
    again.input_observation_space = piece.input_observation_space
    assert again.observation_space == piece.observation_space
    assert again._communication == piece._communication
