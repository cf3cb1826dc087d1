"""Whole games under a planner that are compared: who carries subgoals out, and the episodes played. No Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.planned_play import play_rounds
from rllib_llm_comm.evaluation.rollout import EpisodeRecorder
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.policies.decision import Decision, Policy, Request, unweighed
from rllib_llm_comm.policies.play_loop import play_games
from rllib_llm_comm.policies.policy import TrainedPolicy
from rllib_llm_comm.policies.recorded_settings import granted
from rllib_llm_comm.sama.planned_env import PATIENCE, PlannedSubgoals
from rllib_llm_comm.sama.planners import make_planner, planner_model
from rllib_llm_comm.sama.planners.baselines import DisturbedPlanner
from rllib_llm_comm.sama.planning_game import Player, PolicyPlayer, planning_game
from rllib_llm_comm.sama.reflection import ReflectedEpisode

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
        policy: TrainedPolicy,
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


@dataclass(frozen=True)
class PlanningSetup:
    """The planner of whole games, and its use.

    Attributes:
        planner: A name or settings of `make_planner`.
        replan: "any": plans whenever somebody's subgoal has ended; "all": in rounds, when those of all have or one has
            failed (SAMA).
        trials: Most reflections per round; more than 0 needs rounds.
        recover: Recovery of a failed round, as of `ReflectivePlay`.
        patience: Game steps that a subgoal may take.

    Raises:
        UserError: If reflection is wanted without rounds.
    """

    planner: str | Mapping[str, Any] = SCRIPTED
    replan: str = "any"
    trials: int = 0
    recover: str = "snapshot"
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        """Refuses reflection without rounds; the planner and the games check the rest."""
        if self.trials and self.replan == "any":
            raise UserError(
                f"`replan` is 'any' but `trials` is {self.trials}, and reflection puts whole rounds back; use 'all'."
            )


class PlannedGames:
    """Plays episodes of one game under one planner.

    Args:
        executor: Gives the game and the player that carries subgoals out.
        settings: Settings of the scenario.
        setup: The planner, and its use.

    Raises:
        UserError: If the game does not fit or a setting is not allowed.
    """

    def __init__(self, executor: Executor, settings: Mapping[str, Any], setup: PlanningSetup) -> None:
        self._executor, self._setup = executor, setup
        self._env = executor.env(settings)
        self._planner = make_planner(setup.planner, planner_model(setup.planner))
        self._wrapped = PlannedSubgoals(
            self._env, self._planner, subgoal_reward=0.0, patience=setup.patience, replan=setup.replan, wait=True
        )

    def play(self, seed: int) -> dict[str, Any]:
        """Plays an episode.

        Args:
            seed: Fixes everything that is random but a chat model.

        Returns:
            `seed`, `return` (the game's rewards, averaged over agents) and `metrics`: the game's own, and figures of
            planning and its cost. `subgoals_completed` and `subgoals_stuck` (not done in time, or no longer possible)
            leave out attempts that were put back; `plans` and the cost do not.

        Raises:
            UserError: If the user has to do something first, or no plan could be made: in rounds for one of them, else
                in the whole episode.
        """
        player = self._executor.player(self._env, seed)
        if self._setup.replan == "all":
            setup = self._setup
            rounds = {"trials": setup.trials, "patience": setup.patience, "recover": setup.recover}
            told = play_rounds(self._env, player, self._planner, seed, **rounds)
            returns, metrics = told.returns, _figures(told)
        else:
            policy = _AsPolicy(player)
            recorder = EpisodeRecorder(policy)
            play_games(policy, lambda: self._wrapped, [seed], observers=[recorder])
            returns, metrics = recorder.episodes[seed].returns, dict(recorder.episodes[seed].metrics)
        if isinstance(self._planner, DisturbedPlanner):
            metrics["subgoals_replaced"] = float(self._planner.replaced)
        return {"seed": seed, "return": float(np.mean(list(returns.values()))), "metrics": metrics}


def _figures(episode: ReflectedEpisode) -> dict[str, float]:
    """The figures of an episode of rounds, under the names that `PlannedSubgoals` has."""
    failed = sum(attempts[-1].failed for attempts in episode.rounds)
    rounds = {"rounds": float(len(episode.rounds)), "rounds_failed": float(failed)}
    return {**episode.metrics, **episode.counts(), **rounds}


class _AsPolicy(Policy):
    """A player of subgoals as a policy; it says nothing and gives no probabilities.

    Args:
        player: The player.
    """

    def __init__(self, player: Player) -> None:
        self._player = player

    def begin(self, seed: int) -> Any:
        return self._player.begin(seed)

    def act_together(self, requests: Sequence[Request], explore: bool = True) -> list[dict[Any, Decision]]:
        """The player's decisions; it has its own setting of whether they are sampled."""
        return [
            {agent: unweighed(action) for agent, action in self._player.act(one.memory, dict(one.observations)).items()}
            for one in requests
        ]
