"""What looks episodes up in a table gives games and episodes the same as RLlib's own pieces."""

from __future__ import annotations

import numpy as np
import pytest
from ray.rllib.connectors.module_to_env import ListifyDataForVectorEnv, UnBatchToIndividualItems
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from toys import ColourTalk, language_model

from rllib_llm_comm import VercoConfig
from rllib_llm_comm.rl import multi_agent_ppo
from rllib_llm_comm.rl.lean import BY_TABLE
from rllib_llm_comm.rl.rllib_adapter import register_parallel_env


def played(policies):
    register_parallel_env("toys/direct", entry=ColourTalk)
    settings = (
        VercoConfig()
        .environment("toys/direct", env_config={"busy": (1, 3), "length": 7}, disable_env_checking=True)
        .language_model(**language_model(temperature=2.0))
        .multi_agent(policies=policies)
        .env_runners(num_envs_per_env_runner=4)
        .debugging(seed=0)
    )
    settings.validate()
    runner = MultiAgentEnvRunner(config=settings, worker_index=0)
    pieces = {type(piece) for piece in runner._module_to_env.connectors}
    found = []
    for episode in runner.sample(num_timesteps=80, explore=True):
        for agent, single in sorted(episode.agent_episodes.items()):
            outputs = {name: np.asarray(single.get_extra_model_outputs(name)) for name in single.extra_model_outputs}
            found.append((agent, np.asarray(single.get_actions()), outputs))
    return pieces, found


@pytest.mark.parametrize("policies", ["shared", "per_agent"])
def test_episodes_are_those_of_rllibs_own_pieces(policies, monkeypatch):
    ours, quick = played(policies)
    monkeypatch.setattr(multi_agent_ppo, "BY_TABLE", {})
    theirs, slow = played(policies)
    assert set(BY_TABLE.values()) <= ours and {UnBatchToIndividualItems, ListifyDataForVectorEnv} <= theirs
    assert len(quick) == len(slow) > 8
    for (agent, actions, outputs), (other, wanted, expected) in zip(quick, slow, strict=True):
        assert agent == other and outputs.keys() == expected.keys()
        np.testing.assert_array_equal(actions, wanted)
        for name, values in outputs.items():
            np.testing.assert_array_equal(values, expected[name])
