"""An EnvRunner and a Learner without an algorithm around them."""

from __future__ import annotations

from typing import Any

from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner

MODULE = "shared"


class _Keep(ConnectorV2):
    """Last piece of the learner's connectors: keeps the batch that they have made."""

    batch: dict[str, Any]

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> Any:
        self.batch = dict(batch[MODULE])
        return batch


class Loop:
    """An EnvRunner and a Learner in this process, which share episodes as they do with `num_env_runners=0`.

    Attributes:
        trained: The whole batch of the latest update, as the learner's connectors made it.
    """

    def __init__(self, settings):
        settings.validate()
        self.config = settings
        self.runner = MultiAgentEnvRunner(config=settings, worker_index=0)
        spaces = self.runner.get_spaces()
        self.learner = settings.build_learner(
            spaces={**spaces, "__env__": spaces["__env_single__"]},
        )
        self._kept = _Keep()
        self.learner._learner_connector.append(self._kept)
        self.sync()

    def sync(self):
        state = self.learner.get_state(components="rl_module", inference_only=True)
        self.runner.set_state(state)

    @property
    def module(self):
        return self.learner.module[MODULE].unwrapped()

    @property
    def trained(self):
        return self._kept.batch

    def update(self, episodes=None):
        self.episodes = episodes or self.runner.sample()
        results = self.learner.update(
            episodes=self.episodes,
            num_epochs=self.config.num_epochs,
            minibatch_size=self.config.minibatch_size,
            shuffle_batch_per_epoch=True,
            timesteps={"num_env_steps_sampled_lifetime": 0},
        )
        self.sync()
        return {name: float(stats.peek()) for name, stats in results[MODULE].items() if hasattr(stats, "peek")}

    def batch(self, episodes):
        """The train batch of episodes, which get the row for bootstrapping by it."""
        return self.learner._learner_connector(
            rl_module=self.learner.module, batch={}, episodes=episodes, shared_data={}
        )[MODULE]
