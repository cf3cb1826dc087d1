"""Episodes played under a planner, also with reflection: what counts in the end, and traces of all attempts. No Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rllib_llm_comm.agents.decision import Decision
from rllib_llm_comm.agents.policy_env import planning_of
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.client import ChatError
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.counterfactuals import Counterfactuals
from rllib_llm_comm.evaluation.frames import frame_of
from rllib_llm_comm.evaluation.rollout import (
    COLLISION,
    Episode,
    Progress,
    Watch,
    new_episode,
    play,
    record,
    shuffled_same,
)
from rllib_llm_comm.planning.attempts import Attempt
from rllib_llm_comm.planning.planners import make_planner, planner_model
from rllib_llm_comm.planning.plans import no_plan
from rllib_llm_comm.planning.reflection import ReflectedEpisode, ReflectivePlay
from rllib_llm_comm.planning.rounds import SNAPSHOT, check_recovery
from rllib_llm_comm.planning.tracking import PATIENCE


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
    """Plays episodes, under a planner if there is one.

    Args:
        policy: What `load_policy` gives.
        planning: Who plans, if not as in training: see `make_environment`.
        trials: `None`: plans are followed as they are. Otherwise an episode is a chain of rounds, of which each that
            fails is put back and planned anew, at most so many times (`ReflectivePlay`).
        recover: How: "snapshot" (if `None`) or "replay"; only with `trials`.
        episodes: How many, >= 1.
        seed: Seed of the first; the others count up.
        explore: Whether actions are sampled.
        env_config: Settings of the environment that differ from those of the training.
        num_envs: Episodes that are played at once; one if `trials` or `keep_frames` is set.
        keep_frames: Whether all frames are kept, also of attempts that were put back.
        counterfactuals: Whether decisions with something heard are scored without it, too; with `keep_frames` only.
        progress: Called with the number of finished episodes and `episodes`.
        watch: Sees every step before it is played; without `trials` and `keep_frames` only.

    Returns:
        The episodes; `rounds` tells of the plans, all figures are those of the attempts that stood.

    Raises:
        UserError: If a setting is not allowed, nobody plans what should be thought over, or no plan could be made for
            an episode.
    """
    check_recovery(recover, trials)
    by, settings = planning_of(policy.manifest, planning), dict(env_config or {})
    model = None if by is None else planner_model(by["planner"])

    def make_env() -> Any:
        if by is None:
            return policy.env(planning=planning, **settings)
        return policy.env(planning={**by, "planner": make_planner(by["planner"], model)}, **settings)

    for name, value in {"trials": trials, "patience": (planning or {}).get("patience")}.items():
        if by is None and value is not None:
            raise UserError(f"`{name}` is {value!r} but nobody plans; set `planner`, too.")
    if trials is None:
        if keep_frames:
            how: dict[str, Any] = {"explore": explore, "counterfactuals": counterfactuals}
            return record(policy, episodes=episodes, seed=seed, env=make_env(), **how)
        options: dict[str, Any] = {"num_envs": num_envs, "progress": progress, "watch": watch}
        return play(policy, episodes=episodes, seed=seed, explore=explore, env=make_env, **options)
    assert by is not None
    env = policy.env(planning={"planner": None}, **settings)
    silence = Counterfactuals(policy, counterfactuals) if keep_frames else None
    played = []
    for number in range(episodes):
        recorder = _Recorder(policy, env, seed + number, explore, silence)
        played.append(_reflectively(env, recorder, by, model, trials, recover or SNAPSHOT, seed + number))
        if progress:
            progress(number + 1, episodes)
    return played


def _reflectively(
    env: Any, recorder: _Recorder, by: Mapping[str, Any], model: ChatModel | None, trials: int, recover: str, seed: int
) -> Episode:
    """An episode in rounds; raises a `UserError` if no plan could be made for one."""
    reflective = ReflectivePlay(
        env,
        recorder,
        make_planner(by["planner"], model),
        trials=trials,
        patience=by.get("patience", PATIENCE),
        recover=recover,
        in_vector=bool(by.get("in_vector")),
        watch=recorder.watch,
    )
    try:
        return recorder.finished(reflective.play(seed))
    except ChatError as error:
        raise no_plan(error) from error


class _Recorder:
    """A policy as a player, who notes what it weighed in each attempt; frames are kept where `silence` is given."""

    def __init__(self, policy: Any, env: Any, seed: int, explore: bool, silence: Counterfactuals | None) -> None:
        self._policy, self._env, self._explore, self._silence = policy, env, explore, silence
        self._episode = new_episode(policy, env, seed)
        self._episode.no_silence = silence.missing if silence is not None else ""
        self._decisions: dict[Any, Decision] = {}
        self._latest: Attempt | None = None
        self._end: dict[str, Any] | None = None  # how the latest attempt ended
        self._steps = 0
        self._notes: dict[int, _Notes] = {}

    def begin(self, seed: int) -> Any:
        self._policy.reset(seed=seed)
        return self._policy.begin(seed)

    def act(self, memory: Any, observations: dict[Any, Any]) -> dict[Any, int]:
        self._decisions = self._policy.act_together([(memory, observations)], explore=self._explore)[0]
        return {agent: decision.action for agent, decision in self._decisions.items()}

    def watch(self, attempt: Attempt, seen: Any, infos: Any, rewards: Any, actions: Mapping[Any, int]) -> None:
        """Collects frames, as `planning.rounds.Watch`."""
        begins = attempt is not self._latest
        if begins:
            self._begin_attempt(attempt)
        notes = self._notes[id(attempt)]
        if not begins:  # what led to an attempt's first moment belongs to the one before
            notes.collisions += sum(list(info.get("events", ())).count(COLLISION) for info in infos.values())
        if actions:
            notes.said += [decision.said for decision in self._decisions.values() if decision.said]
            notes.shuffled_same += shuffled_same(self._decisions)
        self._steps = max((int(info.get("game_step", 0)) for info in infos.values()), default=0)
        if self._silence is not None:
            decisions = self._decisions if actions else {}
            frame = frame_of(self._env, seen, infos, decisions, rewards)
            self._silence.add_to(frame, seen, decisions)
            if actions:
                self._episode.frames.append(frame)
            else:
                self._end = frame

    def _begin_attempt(self, attempt: Attempt) -> None:
        # Where an attempt stands, the next one begins with the moment in which it ended.
        if self._end is not None and self._latest is not None and not self._latest.kept:
            self._episode.frames.append(self._end)
        self._latest, self._end = attempt, None
        self._notes[id(attempt)] = _Notes(len(self._episode.frames))

    def finished(self, told: ReflectedEpisode) -> Episode:
        """The episode, of which only attempts that stand count.

        Args:
            told: What `ReflectivePlay` gave.
        """
        episode = self._episode
        if self._end is not None:
            episode.frames.append(self._end)
        stood = [self._notes[id(attempts[-1])] for attempts in told.rounds]
        episode.returns, episode.success = dict(told.returns), told.success
        episode.metrics = {**told.metrics, **told.counts()}
        episode.length = self._steps or told.steps
        episode.collisions = sum(notes.collisions for notes in stood)
        episode.messages = [said for notes in stood for said in notes.said]
        episode.shuffled_same = [flag for notes in stood for flag in notes.shuffled_same]
        episode.rounds = [
            [{**attempt.to_json(), "frame": self._notes[id(attempt)].frame} for attempt in attempts]
            for attempts in told.rounds
        ]
        return episode


@dataclass
class _Notes:
    """What is known of one attempt.

    Attributes:
        frame: Index of its first frame.
        collisions: In it.
        said: In it.
        shuffled_same: As of `Episode`, in it.
    """

    frame: int
    collisions: int = 0
    said: list[str] = field(default_factory=list)
    shuffled_same: list[bool] = field(default_factory=list)
