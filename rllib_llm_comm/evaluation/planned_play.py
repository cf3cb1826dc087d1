"""Episodes of trained policies, under a planner if there is one, with or without reflection. No Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rllib_llm_comm.chat.chat_model import ChatError, ChatModel, begun_at_once, concurrent_questions, side_by_side
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.frames import Counterfactuals, frame_of
from rllib_llm_comm.evaluation.replay_schema import Frame
from rllib_llm_comm.evaluation.rollout import (
    Episode,
    EpisodeRecorder,
    Progress,
    collisions_in,
    new_episode,
    play,
    record,
    replaced_messages,
    require_control,
)
from rllib_llm_comm.policies.decision import Decision, Policy
from rllib_llm_comm.policies.play_loop import Observer, PlayedGame, play_games
from rllib_llm_comm.policies.policy import planning_of
from rllib_llm_comm.policies.recorded_settings import granted
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from rllib_llm_comm.sama.planned_env import ALL, PATIENCE
from rllib_llm_comm.sama.planner_seats import SEATS
from rllib_llm_comm.sama.planners import make_planner, planner_model
from rllib_llm_comm.sama.planners.baselines import thinker
from rllib_llm_comm.sama.plans import Attempt, Planner, no_plan
from rllib_llm_comm.sama.reflection import SNAPSHOT, ReflectedEpisode, ReflectivePlay, check_recovery
from rllib_llm_comm.verco.settings import SHUFFLED
from rllib_llm_comm.verco.teachers.base import make_teacher


def play_planned(
    policy: Policy,
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
    observers: Sequence[Observer] = (),
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
        observers: They see all games; without `trials` and `keep_frames` only.

    Returns:
        The episodes; `rounds` holds the plans, all figures are those of the attempts that stood.

    Under a planner that asks a server games are played side by side: as many as are answered at once
    (`max_concurrent`), and `ask_ahead` more whose questions wait in line; with a teacher that speaks for the agents,
    without rounds, as many as are answered at once. One goes on at a time, while the others wait
    for answers, so that each takes the course that it takes alone.

    Raises:
        UserError: If a setting is not allowed, reflection lacks a planner, an episode has no plan, or messages are a
            control that did nothing or cannot be one in this game.
    """
    check_recovery(recover, trials)
    by, settings = _planning_of(policy, planning), dict(env_config or {})
    for name, value in {"trials": trials, "patience": (planning or {}).get("patience")}.items():
        if by is None and value is not None:
            plan = policy.manifest is not None and policy.manifest.env in SEATS
            remedy = "omit it: these agents are planners" if plan else "set `planner`, too"
            raise UserError(f"`{name}` is {value!r} but nobody plans; {remedy}.")
    model, planner, make_env = _maker(policy, planning, by, settings)
    common: dict[str, Any] = {"episodes": episodes, "seed": seed, "explore": explore}
    if trials is None and keep_frames:
        return record(policy, env=make_env(), counterfactuals=counterfactuals, **common)
    at_once = min(episodes, max(_begun_at_once(policy, model), _taught_at_once(policy)))
    if trials is None and at_once > 1 and not observers:  # talk is measured in the order in which it was said
        return require_control(_play_beside(policy, make_env, at_once, progress, **common))
    if by is None or planner is None or trials is None:
        return play(policy, env=make_env, num_envs=num_envs, progress=progress, observers=observers, **common)
    rounds = {"trials": trials, "recover": recover or SNAPSHOT, "patience": by.get("patience", PATIENCE)}
    silence = Counterfactuals(policy, counterfactuals) if keep_frames else None
    games = _GamesInRounds(policy, by, model, planner, settings, {**rounds, "explore": explore}, silence)
    return require_control(games.play(range(seed, seed + episodes), progress))


def _play_beside(
    policy: Policy,
    make_env: Callable[..., Any],
    at_once: int,
    progress: Progress | None,
    *,
    episodes: int,
    seed: int,
    explore: bool,
) -> list[Episode]:
    """Episodes without rounds, each in a thread of its own; its other arguments are those of `play_planned`."""
    free, recorder = list[Any](), EpisodeRecorder(policy, episodes, progress)

    def one(number: int) -> Episode:
        """Plays an episode in a game that is free, or else in a new one."""
        env = free.pop() if free else make_env()
        play_games(policy, lambda: env, [number], observers=[recorder], explore=explore, reset=False)
        free.append(env)
        return recorder.episodes[number]

    policy.reset(seed=seed)
    return side_by_side(one, range(seed, seed + episodes), at_once)


def _begun_at_once(policy: Policy, model: ChatModel | None) -> int:
    """The number of games that are played side by side; 1 where messages are drawn, which all games draw from one."""
    talk = policy.communication
    drawn = talk is not None and (talk.messages in SHUFFLED or talk.message_temperature > 0)
    alone = drawn or isinstance(policy, SeatedPolicy) or not policy.side_by_side
    return 1 if alone else begun_at_once(model)


def _taught_at_once(policy: Policy) -> int:
    """The number of games that ask the teacher who speaks for the agents; each has a client of its own."""
    talk, manifest = policy.communication, policy.manifest
    if (
        talk is None
        or talk.messages != "teacher"
        or not policy.side_by_side
        or manifest is None
        or not manifest.teacher
    ):
        return 1
    return concurrent_questions(make_teacher(granted(manifest.teacher)).chat_model)


def env_maker(
    policy: Policy, planning: Mapping[str, Any] | None = None, env_config: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """A function that makes the environment of a policy, under its planner if there is one, with further settings.

    Arguments as of `play_planned`.
    """
    by = _planning_of(policy, planning)
    return _maker(policy, planning, by, dict(env_config or {}))[2]


class _GamesInRounds:
    """Episodes in rounds, one after the other or side by side; its arguments are those of `play_planned`."""

    def __init__(
        self,
        policy: Policy,
        by: Mapping[str, Any],
        model: ChatModel | None,
        planner: Planner,
        settings: Mapping[str, Any],
        rounds: Mapping[str, Any],
        silence: Counterfactuals | None,
    ) -> None:
        self._policy, self._model, self._planner, self._silence = policy, model, planner, silence
        own = {"in_vector": bool(by.get("in_vector")), "subgoals_to": by.get("subgoals_to", ALL)}
        self._settings, self._rounds = settings, {**own, **rounds}
        self._one = thinker(planner).remembers_games or isinstance(by["planner"], Planner)
        self._done = 0

    def play(self, seeds: Sequence[int], progress: Progress | None) -> list[Episode]:
        """The episodes of seeds, in their order."""
        # Games of which earlier ones are told, or that are recorded frame by frame, are played in their order.
        in_order = self._one or self._silence is not None
        at_once = 1 if in_order else min(len(seeds), _begun_at_once(self._policy, self._model))
        self._policy.forget()
        if at_once == 1:
            env = self._env()
            return [self._played(env, seed, len(seeds), progress) for seed in seeds]
        return side_by_side(lambda seed: self._played(self._env(), seed, len(seeds), progress), seeds, at_once)

    def _env(self) -> Any:
        return self._policy.env(planning={"planner": None}, **self._settings)

    def _played(self, env: Any, seed: int, games: int, progress: Progress | None) -> Episode:
        recorder = AttemptRecorder(self._policy, env, seed, self._silence)
        planner = self._planner if self._one else self._planner.beside()
        told = play_rounds(env, self._policy, planner, seed, watch=recorder.watch, **self._rounds)
        self._done += 1
        if progress:
            progress(self._done, games)
        return recorder.finished(told)


def _maker(
    policy: Policy, planning: Mapping[str, Any] | None, by: Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> tuple[ChatModel | None, Planner | None, Callable[..., Any]]:
    """The planner with its chat model, and a function that makes the environment, each time with a planner of its own.

    Planners share the chat model and what was asked once; one of the caller's own plans for all games itself.
    """
    model = None if by is None else planner_model(by["planner"])
    planner = None if by is None else make_planner(by["planner"], model)

    def make(**more: Any) -> Any:
        planned = planning
        if by is not None and planner is not None:
            planned = {**by, "planner": planner if isinstance(by["planner"], Planner) else planner.beside()}
        return policy.env(planning=planned, **{**settings, **more})

    return model, planner, make


def _planning_of(policy: Policy, planning: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if policy.manifest is None:
        raise UserError("this policy comes from no checkpoint, so its game is not known; use `play` and give `env`.")
    return planning_of(policy.manifest, planning)


def play_rounds(env: Any, policy: Policy, planner: Planner, seed: int, **settings: Any) -> ReflectedEpisode:
    """An episode in rounds, with further arguments of `ReflectivePlay`.

    Raises:
        UserError: If no plan could be made for one.
    """
    try:
        return ReflectivePlay(env, policy, planner, **settings).play(seed)
    except ChatError as error:
        raise no_plan(error) from error


class AttemptRecorder:
    """Records each attempt of a `ReflectivePlay` for an `Episode`.

    Frames are kept if `silence`, the scores of listeners in silence, is given.
    """

    def __init__(self, policy: Policy, env: Any, seed: int, silence: Counterfactuals | None = None) -> None:
        self._silence = silence
        self._episode = new_episode(policy, env, seed)
        self._episode.no_silence = silence.missing if silence is not None else ""
        self._latest: Attempt | None = None
        self._end: Frame | None = None  # how the latest attempt ended
        self._steps = 0
        self._notes: dict[int, _Notes] = {}

    def watch(
        self, attempt: Attempt, game: PlayedGame, seen: Mapping[Any, Any], decisions: Mapping[Any, Decision]
    ) -> None:
        """Records a moment of an attempt, as a `rllib_llm_comm.sama.reflection.Watch`."""
        begins = attempt is not self._latest
        if begins:
            self._begin_attempt(attempt)
        notes = self._notes[id(attempt)]
        if not begins:  # what led to an attempt's first moment belongs to the one before
            notes.collisions += collisions_in(game.infos)
        self._episode.decisions += len(decisions)
        notes.said += [decision.said for decision in decisions.values() if decision.said]
        notes.replaced += replaced_messages(decisions)
        self._steps = max((int(info.get("game_step", 0)) for info in game.infos.values()), default=0)
        if self._silence is not None:
            frame = frame_of(game.env, seen, game.infos, decisions, game.rewards)
            self._silence.add_to(frame, seen, decisions)
            if decisions:
                self._episode.frames.append(frame)
            else:
                self._end = frame

    def _begin_attempt(self, attempt: Attempt) -> None:
        # An attempt after one that stands begins with the moment in which that one ended.
        if self._end is not None and self._latest is not None and not self._latest.kept:
            self._episode.frames.append(self._end)
        self._latest, self._end = attempt, None
        self._notes[id(attempt)] = _Notes(len(self._episode.frames))

    def finished(self, told: ReflectedEpisode) -> Episode:
        """The episode; only attempts that stand count."""
        episode = self._episode
        if self._end is not None:
            episode.frames.append(self._end)
        stood = [self._notes[id(attempts[-1])] for attempts in told.rounds]
        episode.returns, episode.success = dict(told.returns), told.success
        episode.metrics = {**told.metrics, **told.counts()}
        episode.length = self._steps or told.steps
        if episode.collisions is not None:
            episode.collisions = sum(notes.collisions for notes in stood)
        episode.messages = [said for notes in stood for said in notes.said]
        episode.replaced = [pair for notes in stood for pair in notes.replaced]
        episode.rounds = [
            [{**attempt.to_json(), "frame": self._notes[id(attempt)].frame} for attempt in attempts]
            for attempts in told.rounds
        ]
        return episode


@dataclass
class _Notes:
    """Counts of one attempt, and the index of its first frame."""

    frame: int
    collisions: int = 0
    said: list[str] = field(default_factory=list)
    replaced: list[tuple[str, str]] = field(default_factory=list)
