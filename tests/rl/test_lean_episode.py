"""The quicker episode holds what RLlib's holds, whoever comes, waits or leaves."""

from __future__ import annotations

import random

from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

from rllib_llm_comm.rl.lean import LeanEpisode


def found(function, *args):
    """What a function gives, or the kind of its error."""
    try:
        return function(*args)
    except Exception as error:
        return type(error)


def held(episode):
    agents = {
        agent: [
            *(column.data for column in (single.observations, single.infos, single.actions, single.rewards)),
            {name: column.data for name, column in single.extra_model_outputs.items()},
            [single.t, single.is_terminated, single.is_truncated],
        ]
        for agent, single in episode.agent_episodes.items()
    }
    waiting = (episode._hanging_actions_end, episode._hanging_rewards_end, episode._hanging_rewards_begin,
               episode._hanging_extra_model_outputs_end)  # fmt: skip
    steps = {agent: column.data for agent, column in episode.env_t_to_agent_t.items()}
    ended = [episode.env_t, episode.is_terminated, episode.is_truncated, episode.is_reset]
    return agents, [dict(one) for one in waiting], steps, ended


def test_random_steps_leave_the_same_behind():
    count = refused = 0
    for seed in range(400):
        draw = random.Random(seed)
        agents = ["a", "b", "c"][: draw.randint(1, 3)]
        both = [LeanEpisode(), MultiAgentEpisode()]
        first = {agent: (agent, 0) for agent in agents if draw.random() < 0.9}
        for episode in both:
            episode.add_env_reset(observations=first, infos={agent: {"time": 0} for agent in first})
        ready, gone = set(first), set()
        for time in range(1, 12):
            here = [agent for agent in agents if agent not in gone]
            ends = {agent: draw.random() < 0.03 for agent in here}
            limits = {agent: draw.random() < 0.02 for agent in here if draw.random() < 0.8}
            seen = {agent: (agent, time) for agent in here if draw.random() < 0.6 or limits.get(agent)}
            paid = {agent: draw.choice([0.0, 1.0, -0.5]) for agent in here if agent in seen or draw.random() < 0.5}
            acts = {agent: time for agent in sorted(ready) if draw.random() < 0.97}
            told = {
                "infos": {agent: {"time": time} for agent in seen},
                "terminateds": {**ends, "__all__": draw.random() < 0.02},
                "truncateds": {**limits, "__all__": False},
                "extra_model_outputs": {agent: {"logp": time} for agent in acts},
            }
            errors = [found(lambda: episode.add_env_step(seen, acts, paid, **told)) for episode in both]  # noqa: B023
            assert errors[0] == errors[1], (seed, time)
            count, refused = count + 1, refused + (errors[0] is not None)
            if errors[0] is not None:
                break
            stepped = found(both[1].get_agents_that_stepped)
            if isinstance(stepped, type):  # RLlib loses count of an agent that waited through two cuts
                break
            assert held(both[0]) == held(both[1]), (seed, time)
            assert both[0].get_agents_that_stepped() == stepped, (seed, time)
            assert both[0].get_agents_to_act() == both[1].get_agents_to_act(), (seed, time)
            gone |= {agent for agent in here if ends[agent] or limits.get(agent)}
            ready = set(seen) - gone
            if both[0].is_done:
                break
            if draw.random() < 0.1:
                lookback = draw.choice([0, 1, 1, 2])
                both = [found(episode.cut, lookback) for episode in both]
                if isinstance(both[1], type):
                    assert both[0] == both[1]
                    break
                assert type(both[0]) is LeanEpisode
    assert count > 1500 and refused > 20
