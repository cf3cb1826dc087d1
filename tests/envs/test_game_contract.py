"""Games of strangers under the adapter: what it plays, what it refuses, and what it says."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from odd_games import IN_PLAY, LENGTH, PLAYED, SPACES, Odd
from pettingzoo import ParallelEnv
from test_rllib_adapter import play as play_episode

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.game_contract import GameContract
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter
from tests.refusal import refused


def play(game, episodes=2):
    """Plays as RLlib does, into episodes that check its protocol."""
    env = ParallelEnvAdapter(game)
    return [play_episode(env, seed)[0] for seed in range(episodes)]


@pytest.mark.parametrize("kind", PLAYED)
def test_every_agent_is_asked_from_its_first_observation_to_its_end(kind):
    game = Odd(kind)
    for episode in play(game):
        first, second = (episode.agent_episodes[str(agent)] for agent in game.ids)
        begin = {"comes later": 2, "comes later, busy": 3, "comes and goes": 2, "paid on arrival": 2}.get(kind, 0)
        end = {"one step": 1, "leaves": 3, "comes and goes": 3, "all leave one by one": 3}.get(kind, LENGTH)
        last = {"one step": 1, "all leave one by one": 4}.get(kind, LENGTH)
        assert (len(first), len(second)) == (end, last - begin)
        assert first.is_terminated and second.is_terminated
        assert first.get_return() == end
        assert second.get_return() == last - begin + (kind == "paid on arrival") + (kind == "comes later, busy")
        assert [info["duration"] for info in second.get_infos()] == [0, *[1] * (last - begin)]
        seen = second.get_observations(0)["vector"]
        np.testing.assert_allclose(seen, np.full(3, begin / LENGTH), rtol=1e-6)
        names = sorted(map(str, game.ids))
        asked = [sorted(map(str, acted)) for acted in game.acted]
        assert asked == [[n for n, a, b in zip(names, (0, begin), (end, last), strict=True) if a <= t < b]
                         for t in range(len(asked))]  # fmt: skip


@pytest.mark.parametrize("kind", IN_PLAY)
def test_what_cannot_be_played_is_told_with_agent_step_and_part(kind):
    part, when = IN_PLAY[kind]
    with pytest.raises(UserError) as told:
        play(Odd(kind))
    sentence = str(told.value)
    assert part in sentence and when in sentence
    if kind not in ("nobody begins", "four results"):
        who = "c" if kind in ("stranger", "reward of a stranger") else "a"
        assert f"'{who}'" in sentence


def test_actions_that_do_not_count_from_0_are_refused():
    with pytest.raises(UserError, match=r"agent 'a' is Discrete\(3, start=1\), but .*" + SPACES["from one"]):
        ParallelEnvAdapter(Odd("from one"))


def test_agents_that_follow_each_other_without_a_common_step_are_refused():
    """RLlib ends an episode when all agents that it knows have ended."""

    class Relay(Odd):
        def reset(self, seed=None, options=None):
            seen, infos = super().reset()
            self.agents = ["a"]
            return seen, infos

        def step(self, actions):
            seen, rewards, ends, cuts, infos = super().step(actions)
            self.agents = ["b"]
            return {agent: self.seen(agent) for agent in "ab"}, rewards, {"a": True}, cuts, infos

    env = ParallelEnvAdapter(Relay())
    env.reset()
    with pytest.raises(UserError, match=r"in step 1, in which only \['b'\] go on"):
        env.step({"a": 0})


class Seen(ParallelEnv):
    """One agent sees a value of a space for two steps; results of steps are changed as wanted."""

    metadata = {"name": "seen"}

    def __init__(self, space=None, value=0, ids=("a", "b"), **changes):
        self.space, self.value, self.changes = space or gym.spaces.Discrete(2), value, changes
        self.possible_agents = list(ids)

    def observation_space(self, agent):
        return self.space

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        told = {"observations": dict.fromkeys(self.agents, self.value), "infos": {}, **self.changes.get("reset", {})}
        return told["observations"], told["infos"]

    def step(self, actions):
        self.t += 1
        before, over = self.agents, self.t == 2
        self.agents = [] if over else before
        told = {"observations": dict.fromkeys(before, self.value), "rewards": dict.fromkeys(before, 1.0),
                "terminations": dict.fromkeys(before, over), "truncations": {}, "infos": {}}  # fmt: skip
        return tuple({**told, **self.changes}[part] for part in told)


VECTOR = gym.spaces.Box(-1, 1, (2,), np.float32)
NAN = np.array([0, np.nan], np.float32)


@pytest.mark.parametrize(
    ("space", "value", "part"),
    [
        (gym.spaces.Tuple([VECTOR, VECTOR]), (np.zeros(2), NAN), r"observation\[1\]"),
        (gym.spaces.Dict({"x": gym.spaces.Tuple([VECTOR])}), {"x": (NAN,)}, r"observation\['x'\]\[0\]"),
        (gym.spaces.Tuple([VECTOR]), None, "tuple of 1 parts"),
        (gym.spaces.Discrete(4), 4, r"the observation of agent 'a' at the reset is 4 but must be in Discrete\(4\)"),
        (VECTOR, [[1, 2], 3], r"shape \(2,\)"),
        (VECTOR, np.array([1e16, 0]), "at most 1e.15"),
        (VECTOR, np.array([-3e38, 3e38], np.float32), "at most 1e.15"),
    ],
)
def test_observations_are_checked_in_all_their_parts(space, value, part):
    with pytest.raises(UserError, match=f"{part}.*"):
        play(Seen(space, value))


@pytest.mark.parametrize("part", ["observations", "rewards", "terminations", "truncations", "infos"])
@pytest.mark.parametrize("value", [1.0, "text"])
def test_results_that_are_not_told_by_agent_are_refused(part, value):
    with pytest.raises(UserError, match=f"the {part} in step 1 are .* must be a dict"):
        play(Seen(**{part: value}))
    if part in ("observations", "infos"):
        with pytest.raises(UserError, match=f"the {part} at the reset are .* must be a dict"):
            play(Seen(reset={part: value}))


@pytest.mark.parametrize("reward", [1e16, -3e38, np.float32(1e20), 1 + 1j, np.complex64(1), "1.5", [1.0], None])
def test_rewards_that_float32_cannot_square_or_that_are_no_numbers_are_refused(reward):
    with pytest.raises(UserError, match="the reward of agent 'b' in step 1"):
        play(Seen(rewards={"a": 1.0, "b": reward}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step_rewards", "abc"), ("step_rewards", [np.nan]), ("step_rewards", [2.0, 3.0]),  # not the reward
        ("episode_metrics", "score"), ("episode_metrics", {"score": np.nan}), ("events", None), ("game_step", "first"),
    ],
)  # fmt: skip
def test_what_is_counted_of_infos_is_checked(key, value):
    with refused(key):
        play(Seen(infos={"a": {key: value}}))
    play(Seen(infos={"a": {"step_rewards": [0.25, 0.75], "episode_metrics": {"n": 1}, "events": (), "game_step": 2}}))


@pytest.mark.parametrize("fact", [3, {"card": 7}, np.zeros(2)])
def test_what_agents_without_words_are_told_is_the_games_own_and_no_fact(fact):
    game = GameContract(Seen(infos={"a": {"private": fact, "card": 7}}))
    game.reset()
    assert game.step({"a": 0, "b": 0})[4]["a"] == {"card": 7}
    words = gym.spaces.Dict({"text": gym.spaces.Text(9)})
    with refused("private"):
        play(Seen(words, {"text": "hello"}, infos={"a": {"private": fact}}))


@pytest.mark.parametrize("ids", [("a", "__all__"), ("a", "__common__"), (1, "1")])
def test_names_that_rllib_keeps_for_itself_or_whose_texts_are_equal_are_refused(ids):
    with refused("possible_agents"):
        GameContract(Seen(ids=ids))


def test_large_finite_numbers_are_no_fault_and_rewards_can_be_added_up_and_squared():
    for value in (np.float16(6e4), np.float32(1e15)):
        with np.errstate(over="ignore"):
            play(Seen(gym.spaces.Box(-np.inf, np.inf, (3,), value.dtype), np.full(3, value)), 1)
    (episode,) = play(Seen(rewards={"a": 1e15, "b": -1e15}), 1)
    total = np.float32(episode.agent_episodes["a"].get_return()) * np.float32(1000)
    assert np.isfinite(total * total)
