"""Executors of subgoals in whole games: the game's own scripted player, or a trained policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.policies.recorded_settings import granted
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.player import Player, PolicyPlayer

SCRIPTED = "scripted"
DEFAULT_ENV = "rllib_llm_comm/overcooked_ai-v0"
_WITHOUT_SUBGOALS = {"rllib_llm_comm/overcooked_ai_subgoals-v0": DEFAULT_ENV}
"""Games that give subgoals themselves, and the same games without."""


class _InScenarios:
    """Games of one environment, with its settings and those of a scenario."""

    _env_id: str
    _config: dict[str, Any]
    stand_ins: Sequence[str] = ()
    """What stands in for what the papers use (`agents.stand_ins`)."""

    def env(self, settings: Mapping[str, Any]) -> Any:
        """A game.

        Args:
            settings: Settings of a scenario.
        """
        return make_env(self._env_id, **{**self._config, **settings})


class ScriptedExecutor(_InScenarios):
    """The game's own player, which carries out any subgoal by rules.

    Args:
        env_id: A parallel environment in PettingZoo's registry, of a game that planners know.
        env_config: Its settings, beside those of the scenarios.

    Attributes:
        scenarios: Settings of the games that are played by default, by name.

    Raises:
        UserError: If the game does not fit, or nobody follows subgoals in it.
    """

    def __init__(self, env_id: str = DEFAULT_ENV, env_config: Mapping[str, Any] | None = None) -> None:
        self._env_id, self.stand_ins = env_id, ("executor scripted: rules that do as they are told",)
        game = planning_game(make_env(env_id, **(env_config or {})))
        game.player()
        self._config = {**game.played_with, **(env_config or {})}
        self.scenarios: Mapping[str, Mapping[str, Any]] = game.scenarios

    def identity(self) -> dict[str, Any]:
        """The settings that distinguish this executor from others, JSON-able."""
        return {"executor": SCRIPTED, "env": self._env_id, "env_config": self._config}

    def player(self, env: Any, seed: int) -> Player:
        """The player of an episode.

        Args:
            env: The game.
            seed: Seed of the episode.
        """
        return planning_game(env).player()


class PolicyExecutor(_InScenarios):
    """A trained policy that reads `subgoal`.

    A policy that was trained in a game with sampled subgoals plays the same game without them, as the planner gives
    subgoals now.

    Args:
        policy: The policy that `load_policy` gives.
        name: Its name in tables and files.
        env_config: Settings of the game that differ from training.
        greedy: True if the most likely action is taken instead of a sampled one.
        digest: Digest of its weights, which distinguishes it from others of the same name.

    Attributes:
        scenarios: The game that it was trained on.

    Raises:
        UserError: If a recorded setting of the game is withheld and not given (`agents.recorded_settings`).
    """

    def __init__(
        self,
        policy: Any,
        name: str,
        env_config: Mapping[str, Any] | None = None,
        greedy: bool = False,
        digest: str = "",
    ) -> None:
        self._policy, self._name, self._greedy, self._digest = policy, name, greedy, digest
        self.stand_ins = stand_ins(replace(policy.manifest, planning=None))
        self._env_id = str(policy.manifest.env)
        trained = dict(policy.manifest.env_config)
        if self._env_id in _WITHOUT_SUBGOALS:
            self._env_id = _WITHOUT_SUBGOALS[self._env_id]
            known = make_env(self._env_id).settings
            trained = {key: value for key, value in trained.items() if key in known}
        merged = {**trained, **(env_config or {})}
        self._config = {key: granted(value) for key, value in merged.items()}
        self.scenarios: Mapping[str, Mapping[str, Any]] = {str(self._config.get("layout", "as trained")): {}}

    def identity(self) -> dict[str, Any]:
        """The settings that distinguish this executor from others, JSON-able."""
        about = {"executor": self._name, "sha256": self._digest, "algorithm": self._policy.manifest.algorithm}
        return {**about, "greedy": self._greedy, "env": self._env_id, "env_config": self._config}

    def player(self, env: Any, seed: int) -> Player:
        """The player of an episode; fixes everything that is random in the policy's messages.

        Args:
            env: The game.
            seed: Seed of the episode.
        """
        self._policy.reset(seed)
        return PolicyPlayer(self._policy, explore=not self._greedy)


Executor = ScriptedExecutor | PolicyExecutor
