"""An EnvRunner and a Learner without an algorithm around them."""

from __future__ import annotations

import copy

from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner

MODULE = "shared"


class Loop:
    """An EnvRunner and a Learner in this process."""

    def __init__(self, settings):
        settings.validate()
        self.config = settings
        self.runner = MultiAgentEnvRunner(config=settings, worker_index=0)
        spaces = self.runner.get_spaces()
        self.learner = settings.build_learner(
            spaces={**spaces, "__env__": spaces["__env_single__"]},
        )
        self.sync()

    def sync(self):
        state = self.learner.get_state(components="rl_module", inference_only=True)
        self.runner.set_state(state)

    @property
    def module(self):
        return self.learner.module[MODULE].unwrapped()

    def update(self, episodes=None):
        self.episodes = episodes or self.runner.sample()
        results = self.learner.update(
            episodes=copy.deepcopy(self.episodes),
            num_epochs=self.config.num_epochs,
            minibatch_size=self.config.minibatch_size,
            shuffle_batch_per_epoch=True,
            timesteps={"num_env_steps_sampled_lifetime": 0},
        )
        self.sync()
        return {name: float(stats.peek()) for name, stats in results[MODULE].items() if hasattr(stats, "peek")}

    def batch(self, episodes):
        return self.learner._learner_connector(
            rl_module=self.learner.module, batch={}, episodes=copy.deepcopy(episodes), shared_data={}
        )[MODULE]
