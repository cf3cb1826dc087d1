"""A trained policy of agents that see numbers, to act with; needs no Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.decision import Decision, choose
from rllib_llm_comm.evaluation.environments import make_environment
from rllib_llm_comm.modules.numeric_network import (
    ACTION_MASK,
    CRITIC_STATE,
    STATE,
    TEAM_VECTORS,
    VECTOR,
    NumericNetwork,
    team_vectors,
)
from rllib_llm_comm.modules.policy_folder import PolicyManifest


@dataclass
class NumericMemory:
    """What one episode keeps between two calls.

    Attributes:
        rng: Draws its actions.
        latest: (V,) the vector that each agent saw last.
    """

    rng: np.random.Generator
    latest: dict[str, np.ndarray] = field(default_factory=dict)


class NumericPolicy:
    """Acts for all agents of one episode, or of many at once, as `Policy` does.

    Args:
        network: The network.
        manifest: Where the policy comes from.
    """

    def __init__(self, network: NumericNetwork, manifest: PolicyManifest) -> None:
        self.network = network
        self.manifest = manifest
        self._memory = NumericMemory(np.random.default_rng())

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode.

        Args:
            seed: Fixes sampled actions from here on; `None` goes on with the random numbers at hand.
        """
        self._memory = NumericMemory(self._memory.rng) if seed is None else self.begin(seed)

    def begin(self, seed: int) -> NumericMemory:
        """Begins an episode that is played beside others.

        Args:
            seed: Fixes its sampled actions.
        """
        return NumericMemory(np.random.default_rng(seed))

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
        return self.act_together([(self._memory, observations)], explore)[0]

    def act_together(
        self, episodes: Sequence[tuple[NumericMemory, Mapping[Any, Mapping[str, Any]]]], explore: bool = True
    ) -> list[dict[Any, Decision]]:
        """Does for several episodes what `act` does for one, in one pass of the network.

        Args:
            episodes: Per episode its memory (of `begin`) and the observations of its agents that are asked now.
            explore: As for `act`.

        Returns:
            One decision per given agent, by episode.
        """
        answers: list[dict[Any, Decision]] = [{} for _ in episodes]
        rows = []
        for number, (memory, observations) in enumerate(episodes):
            for agent, seen in observations.items():
                if VECTOR not in seen:
                    raise UserError(f"the observation of {agent!r} has no `{VECTOR}`, which this policy acts on.")
                memory.latest[str(agent)] = np.asarray(seen[VECTOR], np.float32)
                rows.append((number, agent, memory, seen))
        if not rows:
            return answers
        asked = [(str(agent), memory, seen) for _, agent, memory, seen in rows]
        batch = self._batch(asked)
        with torch.no_grad():
            chances = self.network.logits(batch).double().softmax(-1).numpy()
        values = self._values(asked, batch)
        allowed = batch[ACTION_MASK].numpy() != 0
        for index, (number, agent, memory, seen) in enumerate(rows):
            own = np.where(allowed[index], chances[index], 0.0)
            own = own / own.sum()
            answers[number][agent] = Decision(
                action=choose(own, memory.rng, explore),
                said="",
                heard={},
                candidates=[str(phrase) for phrase in seen.get("candidates", range(len(own)))],
                probabilities=own,
                value=float(values[index]),
                prompt="",
            )
        return answers

    def _batch(self, rows: Sequence[tuple[str, NumericMemory, Mapping[str, Any]]]) -> dict[str, torch.Tensor]:
        free = np.ones(int(self.manifest.model_config["actions"]))
        masks = [np.asarray(seen.get(ACTION_MASK, free), np.int8) for _, _, seen in rows]
        batch = {ACTION_MASK: torch.from_numpy(np.stack(masks))}
        if self.network.settings.hears:
            teams = [_team(agent, memory) for agent, memory, _ in rows]
            batch[TEAM_VECTORS] = torch.from_numpy(np.stack(teams))
        else:
            batch[VECTOR] = torch.from_numpy(np.stack([memory.latest[agent] for agent, memory, _ in rows]))
        return batch

    def _values(
        self, rows: Sequence[tuple[str, NumericMemory, Mapping[str, Any]]], batch: dict[str, torch.Tensor]
    ) -> list[float]:
        """Values of all rows; NaN where a central critic is not told all that it needs, which acting does not need."""
        name = self.network.settings.critic_input
        if name in batch:
            with torch.no_grad():
                return self.network.values(batch).tolist()
        size = int(self.manifest.model_config["critic_size"])
        seen = [self._central(*row) for row in rows]
        told = np.array([view.size == size for view in seen])
        filled = [view if view.size == size else np.zeros(size, np.float32) for view in seen]
        with torch.no_grad():
            values = self.network.values({name: torch.from_numpy(np.stack([view.reshape(-1) for view in filled]))})
        return np.where(told, values.numpy(), np.nan).tolist()

    def _central(self, agent: str, memory: NumericMemory, seen: Mapping[str, Any]) -> np.ndarray:
        if self.network.settings.critic_input == CRITIC_STATE:
            return np.asarray(seen.get(STATE, ()), np.float32)
        return _team(agent, memory)

    def env(self, **settings: Any) -> Any:
        """Makes the PettingZoo environment that the policy was trained on.

        Args:
            **settings: Settings that differ from those of the training, such as `render_mode`.
        """
        return make_environment(self.manifest, settings)


def _team(agent: str, memory: NumericMemory) -> np.ndarray:
    return team_vectors(agent, sorted(memory.latest), memory.latest)
