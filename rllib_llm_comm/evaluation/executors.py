"""Whole games under a planner: who carries its subgoals out, how an episode is played, and what is counted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.agents.recorded_settings import granted
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.client import ChatError
from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.planning.planned_env import PlannedSubgoals
from rllib_llm_comm.planning.planners import make_planner, planner_model
from rllib_llm_comm.planning.planning_game import planning_game
from rllib_llm_comm.planning.plans import no_plan
from rllib_llm_comm.planning.player import Player, PolicyPlayer
from rllib_llm_comm.planning.random_planners import DisturbedPlanner
from rllib_llm_comm.planning.reflection import ReflectedEpisode, ReflectivePlay
from rllib_llm_comm.planning.shipped_cassettes import find_recording
from rllib_llm_comm.planning.tracking import PATIENCE

SCRIPTED = "scripted"
DEFAULT_ENV = "rllib_llm_comm/overcooked_ai-v0"
_WITHOUT_SUBGOALS = {"rllib_llm_comm/overcooked_ai_subgoals-v0": DEFAULT_ENV}
"""Games that give subgoals themselves, and the same games without."""


class ScriptedExecutor:
    """The game's own player, who carries out any subgoal by rules.

    Args:
        env_id: A parallel environment in PettingZoo's registry, of a game that planners know.
        env_config: Its settings, beside those of the scenarios.

    Attributes:
        scenarios: Settings of the games that are played by default, by name.

    Raises:
        UserError: If the game does not fit, or nobody follows subgoals in it.
    """

    def __init__(self, env_id: str = DEFAULT_ENV, env_config: Mapping[str, Any] | None = None) -> None:
        self._env_id = env_id
        game = planning_game(_make(env_id, env_config or {}))
        game.player()
        self._config = {**game.played_with, **(env_config or {})}
        self.scenarios: Mapping[str, Mapping[str, Any]] = game.scenarios

    def identity(self) -> dict[str, Any]:
        """What tells this executor from others, JSON-able."""
        return {"executor": SCRIPTED, "env": self._env_id, "env_config": self._config}

    def env(self, settings: Mapping[str, Any]) -> Any:
        """A game.

        Args:
            settings: Of a scenario.
        """
        return _make(self._env_id, {**self._config, **settings})

    def player(self, env: Any, seed: int) -> Player:
        """Who plays an episode.

        Args:
            env: The game.
            seed: Of the episode.
        """
        return planning_game(env).player()


class PolicyExecutor:
    """A trained policy that reads `subgoal`.

    A policy that was trained in a game with sampled subgoals plays the same game without them, as the planner gives
    subgoals now.

    Args:
        policy: What `load_policy` gives.
        name: What it is called in tables and files.
        env_config: Settings of the game that differ from training.
        greedy: Whether the most likely action is taken instead of a sampled one.
        digest: Tells its weights from others under the same name.

    Attributes:
        scenarios: The game that it was trained on.

    Raises:
        UserError: If a recorded setting of the game is withheld and not given (see `modules.recorded`).
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
        self._env_id = str(policy.manifest.env)
        trained = dict(policy.manifest.env_config)
        if self._env_id in _WITHOUT_SUBGOALS:
            self._env_id = _WITHOUT_SUBGOALS[self._env_id]
            known = _make(self._env_id, {}).settings
            trained = {key: value for key, value in trained.items() if key in known}
        merged = {**trained, **(env_config or {})}
        self._config = {key: granted(value) for key, value in merged.items()}
        self.scenarios: Mapping[str, Mapping[str, Any]] = {str(self._config.get("layout", "as trained")): {}}

    def identity(self) -> dict[str, Any]:
        """See `ScriptedExecutor`."""
        about = {"executor": self._name, "sha256": self._digest, "algorithm": self._policy.manifest.algorithm}
        return {**about, "greedy": self._greedy, "env": self._env_id, "env_config": self._config}

    def env(self, settings: Mapping[str, Any]) -> Any:
        """See `ScriptedExecutor`."""
        return _make(self._env_id, {**self._config, **settings})

    def player(self, env: Any, seed: int) -> Player:
        """See `ScriptedExecutor`; also fixes what is random in the policy's messages."""
        self._policy.reset(seed)
        return PolicyPlayer(self._policy, explore=not self._greedy)


Executor = ScriptedExecutor | PolicyExecutor


@dataclass(frozen=True)
class PlanningSetup:
    """How games under a planner are played.

    Attributes:
        planner: See `make_planner`.
        replan: "any": plans whenever somebody's subgoal has ended; "all": in rounds, when those of all have or one has
            failed (SAMA).
        trials: Most reflections per round; more than 0 needs rounds.
        recover: How a failed round is put back; see `ReflectivePlay`.
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
        """Refuses what is not allowed; the rest is checked where it is used."""
        if self.trials and self.replan == "any":
            raise UserError(
                f"`replan` is 'any' but `trials` is {self.trials}, and reflection puts whole rounds back; use 'all'."
            )


class PlannedGames:
    """Plays episodes of one game under one planner.

    Args:
        executor: Who carries subgoals out.
        settings: Of the scenario.
        setup: The planner, and how it is used.

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
            `seed`, `return` (what the game paid, averaged over agents) and `metrics`: what the game counted, what was
            planned and what it cost. `subgoals_completed` and `subgoals_stuck` (not done in time, or no longer
            possible) leave out what was put back; `plans` and the cost do not.

        Raises:
            UserError: If the user has to do something first, or no plan could be made: in rounds for one of them, else
                in the whole episode.
        """
        player = self._executor.player(self._env, seed)
        played = self._in_rounds(player, seed) if self._setup.replan == "all" else self._at_any_time(player, seed)
        if isinstance(self._planner, DisturbedPlanner):
            played["metrics"]["subgoals_replaced"] = float(self._planner.replaced)
        return {"seed": seed, **played}

    def _at_any_time(self, player: Player, seed: int) -> dict[str, Any]:
        env = self._wrapped
        memory = player.begin(seed)
        observations, infos = env.reset(seed=seed)
        earned = dict.fromkeys(env.possible_agents, 0.0)
        while env.agents:
            choosing = {agent: observations[agent] for agent in asked(env.agents, infos)}
            observations, rewards, _, _, infos = env.step(player.act(memory, choosing))
            for agent, reward in rewards.items():
                earned[agent] += float(reward)
        env.require_plan()
        metrics: dict[str, float] = {}
        for info in infos.values():
            metrics.update(info["episode_metrics"])
        return {"return": float(np.mean(list(earned.values()))), "metrics": metrics}

    def _in_rounds(self, player: Player, seed: int) -> dict[str, Any]:
        setup = self._setup
        play = ReflectivePlay(
            self._env, player, self._planner,
            trials=setup.trials, patience=setup.patience, recover=setup.recover,
        )  # fmt: skip
        try:
            episode = play.play(seed)
        except ChatError as error:
            raise no_plan(error) from error
        return {"return": float(np.mean(list(episode.returns.values()))), "metrics": _counted(episode)}


def recording(planner: str | Mapping[str, Any]) -> dict[str, str]:
    """Which recording a planner plays back: the digest of its file, and who was recorded.

    Args:
        planner: See `make_planner`.

    Returns:
        `sha256` and `model`; empty for planners that play nothing back.
    """
    if not isinstance(planner, Mapping):
        return {}
    if planner.get("name") == "disturbed":
        return recording(planner.get("planner", SCRIPTED))
    if planner.get("name") != "cassette":
        return {}
    tape = Cassette(path := find_recording(str(planner.get("cassette", ""))))
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:16], "model": str(tape.header.get("model", ""))}


def _counted(episode: ReflectedEpisode) -> dict[str, float]:
    """The figures of an episode of rounds, under the names that `PlannedSubgoals` has."""
    failed = sum(attempts[-1].failed for attempts in episode.rounds)
    rounds = {"rounds": float(len(episode.rounds)), "rounds_failed": float(failed)}
    return {**episode.metrics, **episode.counts(), **rounds}


def _make(env_id: str, settings: Mapping[str, Any]) -> Any:
    from pettingzoo.env_registry import registration

    import rllib_llm_comm.envs  # noqa: F401  (registers our games)

    try:
        registration.spec("parallel", env_id)
    except Exception as error:
        raise UserError(
            f"`env` is {env_id!r}, which PettingZoo does not know here; import the module that registers it first."
        ) from error
    return registration.make("parallel", env_id, **settings)
