"""Decisions of a real roll-out as texts, step by step: what a training run asks the language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.verco.encoding import ObservationEncoder, TextObservation, read_observation
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker, heard_by
from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings


@dataclass(frozen=True)
class Ask:
    """One agent at one decision: what it sees and what it has heard."""

    seen: TextObservation
    heard: Mapping[str, str]


def new_network() -> LanguageNetwork:
    """The embedded model with fresh adapters."""
    return LanguageNetwork(ModuleSettings(temperature=1.5, init_seed=0))


def to_batch(encoder: ObservationEncoder, asks: list[Ask]) -> dict[str, torch.Tensor]:
    """The arrays of one step's asks, as the module reads them."""
    rows = [encoder.encode(ask.seen, ask.heard) for ask in asks]
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}


def record_stream(decisions: int, num_envs: int = 16, seed: int = 0) -> list[list[Ask]]:
    """Plays the main job's kitchen with the untrained policy, kitchens side by side.

    Args:
        decisions: At least so many are recorded.
        num_envs: Kitchens.
        seed: Fixes everything.

    Returns:
        Per step all agents of all kitchens that are asked then.
    """
    network = new_network()
    encoder = ObservationEncoder(network.lm.base, network.settings)
    protocol = MessageProtocol(CommunicationSettings(), seed=seed)
    rng = np.random.default_rng(seed)
    games = [Game(parallel_env(map_name="B", recipe="lettuce-tomato salad"), seed + k) for k in range(num_envs)]
    steps: list[list[Ask]] = []
    while sum(map(len, steps)) < decisions:
        choosing = [(game, agent) for game in games for agent in game.asked()]
        seen = [read_observation(game.observations[agent]) for game, agent in choosing]
        speakers = [Speaker(agent, view, game.mailbox) for (game, agent), view in zip(choosing, seen, strict=True)]
        protocol.speak(speakers, network.write_messages)
        steps.append(
            [Ask(view, heard_by(agent, game.mailbox)) for (game, agent), view in zip(choosing, seen, strict=True)]
        )
        chances = network.remembered_logits(to_batch(encoder, steps[-1])).double().softmax(-1).numpy()
        for (game, agent), row in zip(choosing, chances, strict=True):
            game.actions[agent] = int(rng.choice(len(row), p=row / row.sum()))
        for game in games:
            game.step()
    return steps


@dataclass(frozen=True)
class Outcome:
    """Result of a step: infos, whether the episode is over, and whether the dish was served."""

    infos: Mapping[str, Any]
    over: bool
    terminated: bool


class Game:
    """One kitchen with its mailbox, begun anew whenever it ends."""

    def __init__(self, env: Any, seed: int) -> None:
        self.env, self._seed = env, seed
        self._begin()

    def _begin(self) -> None:
        self.observations, self.infos = self.env.reset(seed=self._seed)
        self._seed += 1000
        self.mailbox: dict[str, str] = {}
        self.actions: dict[str, int] = {}

    def asked(self) -> list[str]:
        """The cooks that need an action now."""
        return asked(self.env.agents, self.infos)

    def step(self) -> Outcome:
        """Lets them act; `actions` has an action for each cook that was asked."""
        self.observations, _, terminations, _, self.infos = self.env.step(self.actions)
        outcome = Outcome(self.infos, not self.env.agents, any(terminations.values()))
        self.actions = {}
        if outcome.over:
            self._begin()
        return outcome
