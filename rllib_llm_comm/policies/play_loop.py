"""The loop in which games are played: a policy decides, observers see each moment. No Ray.

All that plays one game after another goes through `PlayedGame`: evaluations, replays, cross-play, games with people,
games under a planner, and collections of labels and demonstrations. What they keep of it, observers keep. These do not:

* training, whose games RLlib's EnvRunners step (`rl.rllib_adapter`, `verco.module`, `baselines.value.joint_game`);
* many games in lockstep, for speed: kitchens as arrays (`evaluation.kitchen_tables`, `baselines.population`,
  `baselines.value.joint_runners`), and battles of officers (`evaluation.officers`);
* `testing`, which looks for what is wrong with a game, and so plays it bare.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rllib_llm_comm.envs.game_contract import GameContract
from rllib_llm_comm.envs.interface import asked, secret_of
from rllib_llm_comm.policies.decision import Decision, Memory, Policy, Request


class Observer:
    """Sees games while they are played; override what is needed. One observer may see several games in turn."""

    def on_start(self, game: PlayedGame) -> None:
        """A game was reset."""

    def on_decisions(self, game: PlayedGame, decisions: Mapping[Any, Decision]) -> None:
        """Agents have decided, and nothing was done yet; the game still shows what they saw."""

    def on_step(self, game: PlayedGame) -> None:
        """A step was played; the game shows what came of it."""

    def on_end(self, game: PlayedGame) -> None:
        """The game is over, after the `on_step` of its last step."""


class PlayedGame:
    """A game while it is played.

    Args:
        env: A PettingZoo parallel environment; it is reset.
        seed: Seed of the game.
        observers: They see the game.
        reads: As of `GameContract`.

    Attributes:
        env: The environment.
        seed: Seed of the game.
        observations: The latest ones, by agent.
        infos: The latest ones, by agent.
        rewards: Those of the latest step, by agent; empty before the first one.
        terminations: Those of the latest step, by agent.
    """

    def __init__(self, env: Any, seed: int, observers: Sequence[Observer] = (), *, reads: bool = True) -> None:
        self.env, self.seed, self._observers = env, seed, observers
        self._contract = GameContract(env, reads)
        self.observations, self.infos = self._contract.reset(seed=seed)
        self.rewards: Mapping[Any, float] = {}
        self.terminations: Mapping[Any, bool] = {}
        for observer in observers:
            observer.on_start(self)

    @property
    def over(self) -> bool:
        """True if no agent is left."""
        return not self.env.agents

    @property
    def asked(self) -> list[Any]:
        """The agents that have to choose now."""
        return asked(self.env.agents, self.infos)

    def request(self, memory: Any) -> Request:
        """What a policy is asked now."""
        if isinstance(memory, Memory):
            memory.env, memory.secret = self.env, secret_of(self.infos)
        return Request(memory, {agent: self.observations[agent] for agent in self.asked})

    def saved(self) -> PlayedGame:
        """A game that goes on from here; it shares the environment, which whoever goes on puts back first."""
        kept = copy.copy(self)
        kept._contract = self._contract.saved()
        kept.observations, kept.infos = copy.deepcopy((self.observations, self.infos))
        return kept

    def step(self, decisions: Mapping[Any, Decision]) -> None:
        """Plays a step."""
        for observer in self._observers:
            observer.on_decisions(self, decisions)
        self.advance({agent: decision.action for agent, decision in decisions.items()})

    def advance(self, actions: Mapping[Any, Any]) -> None:
        """Plays a step whose actions nobody weighed."""
        self.observations, self.rewards, self.terminations, _, self.infos = self._contract.step(actions)
        for observer in self._observers:
            observer.on_step(self)
        if self.over:
            for observer in self._observers:
                observer.on_end(self)


def play_games(
    policy: Policy,
    make_env: Callable[[], Any],
    seeds: Sequence[int],
    *,
    observers: Sequence[Observer] = (),
    explore: bool = True,
    at_once: int = 1,
    reset: bool = True,
) -> None:
    """Plays games to their ends; one that is over makes room for the next seed.

    Args:
        make_env: Makes the environment; called `at_once` times.
        seeds: The games' seeds, in the order in which they begin.
        observers: They see all games.
        explore: True if actions are sampled.
        at_once: Games that are played at once, >= 1. Messages that are drawn from other moments, and those that a
            server samples, depend on it, all else does not.
        reset: False if the policy was reset already. Otherwise it is reset with the seed of each game, if one is played
            after the other, or with the first one.
    """
    waiting, free = list(reversed(seeds)), [make_env() for _ in range(at_once)]
    live: list[tuple[PlayedGame, Any]] = []
    while waiting or live:
        while waiting and free:
            seed = waiting.pop()
            game = PlayedGame(free.pop(), seed, observers)
            if reset and (at_once == 1 or seed == seeds[0]):
                policy.reset(seed=seed)
            live.append((game, policy.begin(seed)))
        decided = policy.act_together([game.request(memory) for game, memory in live], explore)
        for (game, _), decisions in zip(live, decided, strict=True):
            game.step(decisions)
        free += [game.env for game, _ in live if game.over]
        live = [entry for entry in live if not entry[0].over]
