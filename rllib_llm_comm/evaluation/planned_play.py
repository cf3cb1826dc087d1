"""Episodes played under a planner, with or without reflection, by trained policies and by scripted players. No Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rllib_llm_comm.chat.chat_model import ChatError, ChatModel, begun_at_once
from rllib_llm_comm.chat.turns import side_by_side
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.attempt_recorder import AttemptRecorder
from rllib_llm_comm.evaluation.counterfactuals import Counterfactuals
from rllib_llm_comm.evaluation.rollout import (
    Episode,
    PlayedGame,
    Progress,
    Watch,
    counted,
    forget_messages,
    play,
    play_episode,
    record,
    require_control,
)
from rllib_llm_comm.evaluation.subgoal_executors import SCRIPTED, Executor
from rllib_llm_comm.policies.decision import Decision
from rllib_llm_comm.policies.policy_env import planning_of
from rllib_llm_comm.sama.following import ALL, PATIENCE
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import make_planner, planner_model
from rllib_llm_comm.sama.planners.baselines import DisturbedPlanner, thinker
from rllib_llm_comm.sama.planners.chat import remembers_games
from rllib_llm_comm.sama.planning_game import Player
from rllib_llm_comm.sama.plans import Planner, no_plan
from rllib_llm_comm.sama.reflection import SNAPSHOT, ReflectedEpisode, ReflectivePlay, check_recovery
from rllib_llm_comm.verco.settings import DRAWN


def play_planned(
    policy: Any,
    *,
    planning: Mapping[str, Any] | None = None,
    trials: int | None = None,
    recover: str | None = None,
    episodes: int = 1,
    seed: int = 0,
    explore: bool = True,
    env_config: Mapping[str, Any] | None = None,
    num_envs: int = 1,
    keep_frames: bool = False,
    counterfactuals: bool = True,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> list[Episode]:
    """Plays episodes of a trained policy, under a planner if there is one.

    Args:
        policy: The policy that `load_policy` gives.
        planning: Arguments of `make_environment` about planning that differ from training.
        trials: Most reflections per round (`ReflectivePlay`); `None`: plans are followed without rounds.
        recover: Recovery, "snapshot" (if `None`) or "replay"; only with `trials`.
        episodes: Number of episodes, >= 1.
        seed: Seed of the first; the others count up.
        explore: True if actions are sampled.
        env_config: Settings of the environment that differ from those of the training.
        num_envs: Episodes that are played at once; one if `trials` or `keep_frames` is set.
        keep_frames: True to keep all frames, also of attempts that were put back.
        counterfactuals: True to score decisions of listeners also in silence; with `keep_frames` only.
        progress: Called with the number of finished episodes and `episodes`.
        watch: Called before every step; without `trials` and `keep_frames` only.

    Returns:
        The episodes; `rounds` holds the plans, all figures are those of the attempts that stood.

    Under a planner that asks a server games are played side by side: as many as are answered at once
    (`max_concurrent`), and `ask_ahead` more whose questions wait in line. One goes on at a time, while the others wait
    for answers, so that each takes the course that it takes alone.

    Raises:
        UserError: If a setting is not allowed, reflection lacks a planner, an episode has no plan, or messages are a
            control that did nothing or cannot be one in this game.
    """
    check_recovery(recover, trials)
    by, settings = planning_of(policy.manifest, planning), dict(env_config or {})
    _require_planner(by, trials, planning)
    model, make_env = _maker(policy, planning, by, settings)
    common: dict[str, Any] = {"episodes": episodes, "seed": seed, "explore": explore}
    if trials is None and keep_frames:
        return record(policy, env=make_env(), counterfactuals=counterfactuals, **common)
    at_once = min(episodes, _begun_at_once(policy, model))
    if trials is None and at_once > 1 and watch is None:  # talk is measured in the order in which it was said
        return require_control(_play_beside(policy, make_env, at_once, progress, watch, **common))
    if by is None or trials is None:
        return play(policy, env=make_env, num_envs=num_envs, progress=progress, watch=watch, **common)
    rounds = {"trials": trials, "recover": recover or SNAPSHOT, "patience": by.get("patience", PATIENCE)}
    games = _GamesInRounds(policy, by, model, settings, rounds, explore, keep_frames, counterfactuals)
    return require_control(games.play(range(seed, seed + episodes), progress))


def _play_beside(
    policy: Any,
    make_env: Callable[..., Any],
    at_once: int,
    progress: Progress | None,
    watch: Watch | None,
    *,
    episodes: int,
    seed: int,
    explore: bool,
) -> list[Episode]:
    """Episodes without rounds, each in a thread of its own; its other arguments are those of `play_planned`."""
    free, finished = list[Any](), list[int]()

    def one(number: int) -> Episode:
        env = free.pop() if free else make_env()
        game, memory = PlayedGame(policy, env, number, watch), policy.begin(number)
        while env.agents:
            game.tell(memory)
            game.step(policy.act_together([(memory, game.asked())], explore=explore)[0])
        game.finish()
        free.append(env)
        finished.append(number)
        return counted(game.episode, len(finished), episodes, progress)

    policy.reset(seed=seed)
    return side_by_side(one, range(seed, seed + episodes), at_once)


def _begun_at_once(policy: Any, model: ChatModel | None) -> int:
    """The number of games that are played side by side; 1 where messages are drawn, which all games draw from one."""
    talk = getattr(policy, "communication", None)
    drawn = talk is not None and (talk.messages in DRAWN or talk.message_temperature > 0)
    alone = drawn or hasattr(policy, "partners") or not hasattr(policy, "act_together")
    return 1 if alone else begun_at_once(model)


def env_maker(
    policy: Any, planning: Mapping[str, Any] | None = None, env_config: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """A function that makes the environment of a policy, under its planner if there is one.

    Args:
        policy: As of `play_planned`.
        planning: As of `play_planned`.
        env_config: As of `play_planned`.

    Returns:
        The function; it takes further settings of the environment.
    """
    by = planning_of(policy.manifest, planning)
    return _maker(policy, planning, by, dict(env_config or {}))[1]


class _GamesInRounds:
    """Episodes in rounds, one after the other or side by side; its arguments are those of `play_planned`."""

    def __init__(
        self,
        policy: Any,
        by: Mapping[str, Any],
        model: ChatModel | None,
        settings: Mapping[str, Any],
        rounds: Mapping[str, Any],
        explore: bool,
        keep_frames: bool,
        counterfactuals: bool,
    ) -> None:
        self._policy, self._model, self._explore = policy, model, explore
        self._settings, self._rounds = (
            settings,
            {
                "in_vector": bool(by.get("in_vector")),
                "subgoals_to": by.get("subgoals_to", ALL),
                **rounds,
            },
        )
        self._silence = Counterfactuals(policy, counterfactuals) if keep_frames else None
        self._planner = make_planner(by["planner"], model)
        self._one = remembers_games(thinker(self._planner)) or isinstance(by["planner"], Planner)
        self._done = 0

    def play(self, seeds: Sequence[int], progress: Progress | None) -> list[Episode]:
        """The episodes of seeds, in their order."""
        # Games of which earlier ones are told, or that are recorded frame by frame, are played in their order.
        in_order = self._one or self._silence is not None
        at_once = 1 if in_order else min(len(seeds), _begun_at_once(self._policy, self._model))
        forget_messages(self._policy)
        if at_once == 1:
            env = self._env()
            return [self._played(env, seed, len(seeds), progress) for seed in seeds]
        return side_by_side(lambda seed: self._played(self._env(), seed, len(seeds), progress), seeds, at_once)

    def _env(self) -> Any:
        return self._policy.env(planning={"planner": None}, **self._settings)

    def _played(self, env: Any, seed: int, games: int, progress: Progress | None) -> Episode:
        recorder = AttemptRecorder(self._policy, env, seed, self._explore, self._silence)
        planner = self._planner if self._one else self._planner.beside()
        told = _play_rounds(env, recorder, planner, seed, watch=recorder.watch, **self._rounds)
        self._done += 1
        return counted(recorder.finished(told), self._done, games, progress)


def _maker(
    policy: Any, planning: Mapping[str, Any] | None, by: Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> tuple[ChatModel | None, Callable[..., Any]]:
    """The planner's chat model, and a function that makes the environment."""
    if by is None:
        return None, partial(_planned_env, policy, planning, None, settings)
    model = planner_model(by["planner"])
    planner = make_planner(by["planner"], model)
    one = isinstance(by["planner"], Planner)  # one of the caller's own plans for all games itself
    return model, partial(_planned_env, policy, by, planner if one else planner.beside, settings)


def _planned_env(
    policy: Any,
    planning: Mapping[str, Any] | None,
    planner: Planner | Callable[[], Planner] | None,
    settings: Mapping[str, Any],
    **more: Any,
) -> Any:
    """The environment of a policy, with a planner of its own that shares the chat model and what was asked once."""
    made = planner() if callable(planner) else planner
    planned = planning if made is None else {**(planning or {}), "planner": made}
    return policy.env(planning=planned, **{**settings, **more})


def _require_planner(by: Mapping[str, Any] | None, trials: int | None, planning: Mapping[str, Any] | None) -> None:
    for name, value in {"trials": trials, "patience": (planning or {}).get("patience")}.items():
        if by is None and value is not None:
            raise UserError(f"`{name}` is {value!r} but nobody plans; set `planner`, too.")


def _play_rounds(env: Any, player: Player, planner: Planner, seed: int, **settings: Any) -> ReflectedEpisode:
    """An episode in rounds; raises a `UserError` if no plan could be made for one.

    Args:
        env: The game.
        player: The player of subgoals.
        planner: The planner.
        seed: Seed of the episode.
        **settings: Further arguments of `ReflectivePlay`.
    """
    try:
        return ReflectivePlay(env, player, planner, **settings).play(seed)
    except ChatError as error:
        raise no_plan(error) from error


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
            told = _play_rounds(self._env, player, self._planner, seed, **rounds)
            returns, metrics = told.returns, _figures(told)
        else:
            episode = play_episode(_AsPolicy(player), self._wrapped, seed)
            returns, metrics = episode.returns, dict(episode.metrics)
        if isinstance(self._planner, DisturbedPlanner):
            metrics["subgoals_replaced"] = float(self._planner.replaced)
        return {"seed": seed, "return": float(np.mean(list(returns.values()))), "metrics": metrics}


def _figures(episode: ReflectedEpisode) -> dict[str, float]:
    """The figures of an episode of rounds, under the names that `PlannedSubgoals` has."""
    failed = sum(attempts[-1].failed for attempts in episode.rounds)
    rounds = {"rounds": float(len(episode.rounds)), "rounds_failed": float(failed)}
    return {**episode.metrics, **episode.counts(), **rounds}


class _AsPolicy:
    """A player of subgoals behind the interface of policies in `rollout`; it says nothing and gives no probabilities.

    Args:
        player: The player.
    """

    def __init__(self, player: Player) -> None:
        self._player = player
        self._memory: Any = None

    def reset(self, seed: int) -> None:
        """Begins an episode.

        Args:
            seed: Seed of the episode.
        """
        self._memory = self._player.begin(seed)

    def act(self, observations: dict[Any, Any], explore: bool = True) -> dict[Any, Decision]:
        """The decisions of the agents that are asked.

        Args:
            observations: Observations of these agents.
            explore: Not used: the player has its own setting.
        """
        actions = self._player.act(self._memory, observations)
        return {agent: Decision(action, "", {}, [], np.zeros(0), np.nan, "") for agent, action in actions.items()}
