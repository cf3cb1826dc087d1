"""A trained MiniRTS officer that acts by itself, at the action level "red"; needs no Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.baselines.red.collective_choice import CollectiveChoice
from rllib_llm_comm.baselines.red.officer_network import OfficerNetwork
from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.minirts.collective_command import KIND_WORDS
from rllib_llm_comm.envs.minirts.view.officer_view import officer_spaces
from rllib_llm_comm.policies.array_policy import AgentRequest, ArrayMemory, ArrayPolicy
from rllib_llm_comm.policies.decision import Decision, Request

_SEEN = tuple(officer_spaces())


class OfficerPolicy(ArrayPolicy):
    """Gives RED's actions by observations with the part `officer`; in a game at the level "red" nobody commands it.

    With commanders the same network is the game's `executor="trained:CHECKPOINT"`.
    """

    @staticmethod
    def network_builder(settings: dict[str, Any]) -> Callable[[], OfficerNetwork]:
        """Makes a network from `model_config`."""
        checked = OfficerSettings.checked("model_config", settings)
        return lambda: OfficerNetwork(checked)

    def act_together(self, episodes: Sequence[Request], explore: bool = True) -> list[dict[Any, Decision]]:
        """Decisions of several episodes, in one pass of the network; arguments as of `ArrayPolicy.act_together`.

        The candidates are the kinds of commands, with their chances where all own units go along by their flags' means.

        Args:
            episodes: As of `ArrayPolicy.act_together`.
            explore: As of `ArrayPolicy.act_together`; otherwise the most likely value of each part is taken in turn.
        """
        answers: list[dict[Any, Decision]] = [{} for _ in episodes]
        rows = [(n, a, memory, seen) for n, (memory, views) in enumerate(episodes) for a, seen in views.items()]
        if not rows:
            return answers
        batch = self.batch([(str(agent), memory, seen) for _, agent, memory, seen in rows])
        with torch.no_grad():
            choice, values = self.network(batch)
            chances = choice.kind_chances().double().numpy()
            for index, (number, agent, memory, _) in enumerate(rows):
                answers[number][agent] = Decision(
                    action=_drawn(choice.row(index), memory, explore),
                    said="",
                    heard={},
                    candidates=list(KIND_WORDS),
                    probabilities=chances[index],
                    value=float(values[index]),
                    prompt="",
                )
        return answers

    def batch(self, asked: Sequence[AgentRequest]) -> dict[str, torch.Tensor]:
        """The arrays of all rows.

        Args:
            asked: As of `ArrayPolicy.batch`.

        Raises:
            UserError: If an observation lacks the part `officer`.
        """
        for agent, _, seen in asked:
            if missing := [name for name in _SEEN if name not in seen]:
                raise UserError(
                    f"the observation of {agent!r} has no `{missing[0]}`, which this policy acts on; play MiniRTS with "
                    "`action_level='red'` and `observe=['officer']`."
                )
        return {name: torch.from_numpy(np.stack([np.asarray(seen[name]) for _, _, seen in asked])) for name in _SEEN}


def _drawn(choice: CollectiveChoice, memory: ArrayMemory, explore: bool) -> np.ndarray:
    """An action (58,), independent of which other rows are asked at the same time."""
    generator = torch.Generator().manual_seed(int(memory.rng.integers(2**62)))
    action: np.ndarray = choice.sample(generator, greedy=not explore)[0].numpy()
    return action
