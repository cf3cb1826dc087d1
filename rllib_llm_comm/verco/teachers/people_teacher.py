"""The teacher `people`: what people said in recorded sessions, as labels of messages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import Session, read_session
from rllib_llm_comm.verco.teachers.base import Teacher, TeacherRequest


class PeopleTeacher(Teacher):
    """Gives what people wrote to the others, behind what their seat saw when they wrote it.

    It is no player that could be asked: its labels are those of the sessions, and `collect_labels` plays no games.

    Args:
        sessions: Folders of sessions (`rllib play --record`), or one.
        names: Names of the people who are taken, or one; `None` for all.

    Raises:
        UserError: If there is no session, one cannot be read, or nobody in them has one of the names.
    """

    name = "people"

    def __init__(self, sessions: str | Sequence[str], names: str | Sequence[str] | None = None) -> None:
        paths = [sessions] if isinstance(sessions, str | os.PathLike) else list(sessions)
        if not paths:
            raise UserError("`teacher.sessions` is empty; give folders that `rllib play --record` wrote.")
        wanted = [names] if isinstance(names, str) else names
        self.settings = {"sessions": [str(path) for path in paths], "names": None if wanted is None else list(wanted)}
        self._sessions = [read_session(path) for path in paths]
        self._names = None if wanted is None else set(wanted)
        people = {
            person.name
            for session in self._sessions
            for episode in session.episodes
            for moment in episode.moments
            for person in moment.people.values()
        }
        for name in sorted(self._names or ()):
            if name not in people:
                raise UserError(
                    f"`teacher.names` has {name!r}, but nobody in the sessions has that name; there are "
                    f"{', '.join(map(repr, sorted(people))) or 'no people'}."
                )

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """Refused: people of the past answer no questions.

        Raises:
            UserError: Always.
        """
        raise UserError(
            "`teacher` is 'people', whose messages are in recorded sessions; it labels in `collect_labels` and cannot "
            "speak in a game."
        )

    def recorded(self, env: str, env_config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The labels: `prompt`, `message`, `agent`, `episode`, `game_step`.

        Args:
            env: Id of the environment that is collected for.
            env_config: Not compared: people may have played other kitchens of the same game.

        Raises:
            UserError: If a session is of another environment.
        """
        episodes = 0
        for session in self._sessions:
            if session.env != env:
                raise UserError(f"`env` is {env!r} but a session of `teacher.sessions` is of {session.env!r}.")
            yield from self._labels(session, episodes)
            episodes += len(session.episodes)

    def _labels(self, session: Session, before: int) -> Iterator[dict[str, Any]]:
        for episode in session.episodes:
            for moment in episode.moments:
                for agent, person in moment.people.items():
                    card = moment.agents.get(agent, {})  # none behind the agent's end
                    wanted = self._names is None or person.name in self._names
                    if person.spoke and wanted and card.get("said") and card.get("text"):
                        yield {
                            "prompt": card["text"],
                            "message": card["said"],
                            "agent": agent,
                            "episode": before + episode.episode - 1,
                            "game_step": moment.game_step,
                        }
