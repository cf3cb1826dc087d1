"""A trained policy of agents that see numbers, to act with; needs no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.decision import Decision, choose
from rllib_llm_comm.evaluation.environments import make_environment
from rllib_llm_comm.modules.numeric_network import ACTION_MASK, TEAM_VECTORS, VECTOR, NumericNetwork, team_vectors
from rllib_llm_comm.modules.policy_folder import PolicyManifest


class NumericPolicy:
    """Acts for all agents of one episode at a time, as `Policy` does.

    Args:
        network: The network.
        manifest: Where the policy comes from.
    """

    def __init__(self, network: NumericNetwork, manifest: PolicyManifest) -> None:
        self.network = network
        self.manifest = manifest
        self._latest: dict[str, np.ndarray] = {}
        self._team: list[str] = []
        self._rng = np.random.default_rng()

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode.

        Args:
            seed: Fixes sampled actions from here on; `None` goes on with the random numbers at hand.
        """
        self._latest, self._team = {}, []
        if seed is not None:
            self._rng = np.random.default_rng(seed)

    def act(self, observations: Mapping[Any, Mapping[str, Any]], explore: bool = True) -> dict[Any, Decision]:
        """Lets agents choose.

        Args:
            observations: The environment's observations of the agents that are asked now, and only of these; in the
                first call of an episode those of all agents.
            explore: Whether actions are sampled; otherwise the most likely one is taken.

        Returns:
            One decision per given agent.

        Raises:
            UserError: If an observation has no `vector`.
        """
        if not observations:
            return {}
        for agent, seen in observations.items():
            if VECTOR not in seen:
                raise UserError(f"the observation of {agent!r} has no `{VECTOR}`, which this policy acts on.")
            self._latest[str(agent)] = np.asarray(seen[VECTOR], np.float32)
        self._team = sorted({*self._team, *map(str, observations)})
        batch = self._batch(observations)
        with torch.no_grad():
            chances = self.network.logits(batch).double().softmax(-1).numpy()
            values = self.network.values(batch).tolist()
        decisions = {}
        for row, (agent, seen) in enumerate(observations.items()):
            own = np.where(batch[ACTION_MASK][row].numpy() != 0, chances[row], 0.0)
            own = own / own.sum()
            decisions[agent] = Decision(
                action=choose(own, self._rng, explore),
                said="",
                heard={},
                candidates=[str(phrase) for phrase in seen.get("candidates", range(len(own)))],
                probabilities=own,
                value=float(values[row]),
                prompt="",
            )
        return decisions

    def _batch(self, observations: Mapping[Any, Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        actions = int(self.manifest.model_config["actions"])
        masks = [np.asarray(seen.get(ACTION_MASK, np.ones(actions)), np.int8) for seen in observations.values()]
        batch = {ACTION_MASK: torch.from_numpy(np.stack(masks))}
        if self.network.settings.hears:
            rows = [team_vectors(str(agent), self._team, self._latest) for agent in observations]
            batch[TEAM_VECTORS] = torch.from_numpy(np.stack(rows))
        else:
            batch[VECTOR] = torch.from_numpy(np.stack([self._latest[str(agent)] for agent in observations]))
        return batch

    def env(self, **settings: Any) -> Any:
        """Makes the PettingZoo environment that the policy was trained on.

        Args:
            **settings: Settings that differ from those of the training, such as `render_mode`.
        """
        return make_environment(self.manifest, settings)
