"""What a teacher is, and where teachers are found by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rllib_llm_comm.errors import UserError, did_you_mean


@dataclass(frozen=True)
class TeacherRequest:
    """What a teacher is shown.

    Attributes:
        agents: Names of the agents.
        observations: Each agent's own observation in words.
        task: The goal of the episode.
        brief: The game in a few sentences.
        state: The game's true state, for scripted teachers; a chat teacher does not see it.
    """

    agents: tuple[str, ...]
    observations: Mapping[str, str]
    task: str = ""
    brief: str = ""
    state: Any = None


class Teacher(ABC):
    """Says what each agent should say (Verco Eq. 1: the labels of the message adapter)."""

    name: str = "teacher"

    @abstractmethod
    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message of at most ten words per agent; an agent without an entry gets no label.

        Args:
            request: What there is to see.
            rng: Source of randomness.
        """

    def advise(self, env: Any, agent: str) -> int | None:
        """The action that the teacher itself would take, if it knows one.

        Args:
            env: The (unwrapped) environment.
            agent: Whose turn it is.
        """
        return None


_TEACHERS: dict[str, str | type[Teacher]] = {
    "scripted": "rllib_llm_comm.teachers.scripted:ScriptedTeacher",
    "chat": "rllib_llm_comm.teachers.chat:ChatTeacher",
}


def register_teacher(name: str, teacher: type[Teacher]) -> None:
    """Makes a teacher of your own known by name, for YAML files and configs.

    Args:
        name: The name.
        teacher: The class; its constructor takes the settings as keyword arguments.
    """
    _TEACHERS[name] = teacher


def make_teacher(settings: str | Mapping[str, Any] | Teacher) -> Teacher:
    """Builds a teacher.

    Args:
        settings: A registered name, a dict with `name` and the teacher's arguments, or a teacher.

    Raises:
        UserError: If the name is unknown or the arguments do not fit.
    """
    if isinstance(settings, Teacher):
        return settings
    values = {"name": settings} if isinstance(settings, str) else dict(settings)
    name = values.pop("name", None)
    if name not in _TEACHERS:
        known = ", ".join(repr(key) for key in _TEACHERS)
        raise UserError(f"`teacher` is {name!r} but must be one of {known}.{did_you_mean(str(name), _TEACHERS)}")
    found = _TEACHERS[name]
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, type)
    try:
        return found(**values)
    except TypeError as error:
        raise UserError(f"`teacher` {name!r} does not take these settings ({error}).") from error
