"""Recording of episodes that are played in rounds with reflection, attempt by attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rllib_llm_comm.evaluation.counterfactuals import Counterfactuals
from rllib_llm_comm.evaluation.frames import frame_of
from rllib_llm_comm.evaluation.replay_schema import Frame
from rllib_llm_comm.evaluation.rollout import COLLISION, Episode, new_episode, replaced_messages
from rllib_llm_comm.policies.decision import Decision
from rllib_llm_comm.sama.plans import Attempt
from rllib_llm_comm.sama.reflection import ReflectedEpisode


class AttemptRecorder:
    """A policy as a player of `ReflectivePlay` that records each attempt for an `Episode`.

    Args:
        policy: The policy that `load_policy` gives.
        env: The environment.
        seed: Seed of the episode.
        explore: True if actions are sampled.
        silence: Scores of listeners in silence; frames are kept if it is given.
    """

    def __init__(self, policy: Any, env: Any, seed: int, explore: bool, silence: Counterfactuals | None = None) -> None:
        self._policy, self._env, self._explore, self._silence = policy, env, explore, silence
        self._episode = new_episode(policy, env, seed)
        self._episode.no_silence = silence.missing if silence is not None else ""
        self._decisions: dict[Any, Decision] = {}
        self._latest: Attempt | None = None
        self._end: Frame | None = None  # how the latest attempt ended
        self._steps = 0
        self._notes: dict[int, _Notes] = {}

    def begin(self, seed: int) -> Any:
        """The policy's memory of an episode that begins.

        Args:
            seed: Fixes everything that is random in the policy.
        """
        self._policy.reset(seed=seed)
        return self._policy.begin(seed)

    def act(self, memory: Any, observations: dict[Any, Any]) -> dict[Any, int]:
        """The actions of the agents that are asked.

        Args:
            memory: The policy's memory.
            observations: Observations of these agents.
        """
        self._decisions = self._policy.act_together([(memory, observations)], explore=self._explore)[0]
        return {agent: decision.action for agent, decision in self._decisions.items()}

    def watch(self, attempt: Attempt, seen: Any, infos: Any, rewards: Any, actions: Mapping[Any, int]) -> None:
        """Records a moment of an attempt, as a `rllib_llm_comm.sama.reflection.Watch`.

        Args:
            attempt: The attempt.
            seen: The observations of all agents.
            infos: Their infos.
            rewards: Their rewards since the last call.
            actions: Their actions; empty at the end of the attempt.
        """
        begins = attempt is not self._latest
        if begins:
            self._begin_attempt(attempt)
        notes = self._notes[id(attempt)]
        if not begins:  # what led to an attempt's first moment belongs to the one before
            notes.collisions += sum(list(info.get("events", ())).count(COLLISION) for info in infos.values())
        if actions:
            notes.said += [decision.said for decision in self._decisions.values() if decision.said]
            notes.replaced += replaced_messages(self._decisions)
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
        # An attempt after one that stands begins with the moment in which that one ended.
        if self._end is not None and self._latest is not None and not self._latest.kept:
            self._episode.frames.append(self._end)
        self._latest, self._end = attempt, None
        self._notes[id(attempt)] = _Notes(len(self._episode.frames))

    def finished(self, told: ReflectedEpisode) -> Episode:
        """The episode; only attempts that stand count.

        Args:
            told: The result of `ReflectivePlay`.
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
        episode.replaced = [pair for notes in stood for pair in notes.replaced]
        episode.rounds = [
            [{**attempt.to_json(), "frame": self._notes[id(attempt)].frame} for attempt in attempts]
            for attempts in told.rounds
        ]
        return episode


@dataclass
class _Notes:
    """Counts of one attempt.

    Attributes:
        frame: Index of its first frame.
        collisions: Its number of collisions.
        said: Its messages.
        replaced: Messages that a control changed (`Episode.replaced`).
    """

    frame: int
    collisions: int = 0
    said: list[str] = field(default_factory=list)
    replaced: list[tuple[str, str]] = field(default_factory=list)
