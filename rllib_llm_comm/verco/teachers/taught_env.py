"""A game in which a teacher says what every agent should say."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from rllib_llm_comm.envs.interface import EPISODE_METRICS, TEACHER_MESSAGE, asked
from rllib_llm_comm.verco.teachers.base import TeacherRequest, make_teacher

_MAX_CHARACTERS = 400


class AnyText(gym.spaces.Text):
    """Texts of up to `max_length` characters of any script; samples stay with ASCII.

    Gymnasium's own space holds texts of a listed alphabet only, but a teacher may write in any language.
    """

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        """True for a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length


class TeacherMessages(BaseParallelWrapper):
    """Adds `teacher_message` to the observations of a text game.

    With `messages="teacher"` this field is what an agent says; without a usable message of the teacher it is silent,
    which the episode metrics count (`messages_by_nobody`, beside `messages_by_teacher`). The teacher is shown all
    observations, `task` and `brief` of the environment and, if it can read it, its state (`kitchen` or
    `teacher_state`).

    Args:
        env: A parallel environment whose observations have `text`.
        teacher: A teacher's registered name, or a dict with `name` and its arguments.
        seed: Seed of the teacher's choices of words.
    """

    def __init__(self, env: ParallelEnv, teacher: str | Mapping[str, Any], seed: int = 0) -> None:
        super().__init__(env)
        self.teacher = make_teacher(teacher)
        self._rng = np.random.default_rng(seed)
        self._said = self._silent = 0

    def observation_space(self, agent: Any) -> gym.Space:
        """The game's space with one text more."""
        inner = self.env.observation_space(agent)
        return gym.spaces.Dict({**inner.spaces, TEACHER_MESSAGE: AnyText(_MAX_CHARACTERS)})

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._said = self._silent = 0
        observations, infos = self.env.reset(seed=seed, options=options)
        told = self._with_messages(observations, infos, {})
        return told, self._counted(infos)

    def step(self, actions: dict[Any, Any]) -> Any:
        """One step of the game."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        over = {agent: terminations[agent] or truncations[agent] for agent in terminations}
        told = self._with_messages(observations, infos, over)
        return told, rewards, terminations, truncations, self._counted(infos)

    def _with_messages(
        self, observations: dict[Any, Any], infos: Mapping[Any, Any], over: Mapping[Any, bool]
    ) -> dict[Any, Any]:
        choosing = [agent for agent in asked(observations, infos) if not over.get(agent, False)]
        messages: dict[str, str] = {}
        if choosing:
            said = self.teacher.messages(TeacherRequest.of(self.env, observations), rng=self._rng)
            messages = {agent: message[:_MAX_CHARACTERS] for agent, message in said.items()}
            spoken = sum(bool(messages.get(agent)) for agent in choosing)
            self._said, self._silent = self._said + spoken, self._silent + len(choosing) - spoken
        return {
            agent: {**observation, TEACHER_MESSAGE: messages.get(agent, "") if agent in choosing else ""}
            for agent, observation in observations.items()
        }

    def figures(self) -> dict[str, float]:
        """Messages of the teacher in this episode, and where it left an agent silent, by `episode_metrics` name."""
        return {"messages_by_teacher": float(self._said), "messages_by_nobody": float(self._silent)}

    def _counted(self, infos: Mapping[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
        own = self.figures()
        return {
            agent: {**info, EPISODE_METRICS: {**info.get(EPISODE_METRICS, {}), **own}} for agent, info in infos.items()
        }
