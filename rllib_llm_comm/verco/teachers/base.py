"""Teachers, which label messages: what they are, how they speak in a game, and those that are rules or people."""

from __future__ import annotations

import inspect
import os
import string
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.core.session_files import Session, read_session
from rllib_llm_comm.core.settings import Settings, Several
from rllib_llm_comm.envs.games import GAMES, scripted_player_of
from rllib_llm_comm.envs.interface import TEACHER_MESSAGE, GameInfo, asked, teacher_state, with_figures


@dataclass(frozen=True)
class TeacherRequest:
    """One moment of a game, as a teacher sees it.

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

    @classmethod
    def of(cls, game: Any, observations: Mapping[str, Mapping[str, Any]]) -> TeacherRequest:
        """The present moment of a game whose agents read texts."""
        info = GameInfo(game)
        return cls(
            agents=tuple(observations),
            observations={agent: str(seen["text"]) for agent, seen in observations.items()},
            task=info.task,
            brief=info.brief,
            state=teacher_state(game),
        )


class Teacher(ABC):
    """Gives each agent the message that it should say (Verco Eq. 1: the labels of the message adapter).

    Attributes:
        name: Its name in files and label rows.
        without_effect: Names of settings that change how it works but not what it says, such as a time-out. A
            collection of labels goes on when they have changed.
        stands_in: What it is, if it stands in for a language model; empty for a language model, and for people.
        chat_model: The chat model that it asks, if it asks one.
        counts: What became of its answers so far, for errors.
        settings: Arguments of its constructor, as far as they are known.
    """

    name: str = "teacher"
    without_effect: ClassVar[frozenset[str]] = frozenset()
    stands_in: ClassVar[str] = ""
    chat_model: ChatModel | None = None
    counts: Mapping[str, int] = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message per agent, cut by who asks to `max_message_words`; an agent without an entry gets no label.

        Args:
            request: The moment.
            rng: Source of randomness.
        """

    @classmethod
    def portable(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Its settings as they mean the same on another machine: the texts of files in place of their path.

        Args:
            settings: Arguments of the constructor by name.
        """
        return dict(settings)

    def keep_answers(self, folder: str | os.PathLike[str]) -> None:
        """Names a folder for answers that cost something, so that a killed collection pays for none twice.

        Args:
            folder: A folder of the collection's own; it need not exist.
        """
        return

    def recorded(self, env: str, env_config: Mapping[str, Any]) -> Iterator[dict[str, Any]] | None:
        """Labels that are there already: `prompt`, `message`, `agent`, `episode`, `game_step` each. No game is played.

        Args:
            env: Id of the environment that is collected for.
            env_config: Its settings.

        Returns:
            The labels; `None` for a teacher that is asked while a policy plays, as most are.
        """
        return None

    def advise(self, env: Any, agent: str) -> int | None:
        """The action that the teacher itself would take, if it knows one.

        Args:
            env: The (unwrapped) environment.
            agent: Name of the agent to act.
        """
        return None


TEACHERS: Registry[type[Teacher]] = Registry(
    "teacher",
    {
        "scripted": "rllib_llm_comm.verco.teachers.base:ScriptedTeacher",
        "people": "rllib_llm_comm.verco.teachers.base:PeopleTeacher",
        "chat": "rllib_llm_comm.verco.teachers.chat_teacher:ChatTeacher",
    },
    "`register_teacher` adds one, in a module that `--import` names.",
)


def register_teacher(name: str, teacher: type[Teacher]) -> None:
    """Makes a teacher of your own known by name, for YAML files and configs.

    Args:
        name: The name.
        teacher: The class; its constructor takes the settings as keyword arguments: those of its `settings_model`, or
            else its arguments (`core.settings.settings_of`).
    """
    TEACHERS.register(name, teacher)


def make_teacher(settings: str | Mapping[str, Any] | Teacher) -> Teacher:
    """Builds a teacher.

    Args:
        settings: A registered name, a dict with `name` and the teacher's arguments, or a teacher.

    Raises:
        UserError: If the name is unknown or the arguments do not fit.
    """
    if isinstance(settings, Teacher):
        return settings
    name, values = TEACHERS.checked(settings)
    return TEACHERS[name](**values)


def teacher_identity(settings: str | Mapping[str, Any] | Teacher) -> dict[str, Any]:
    """The settings that decide a teacher's words, with its name.

    Args:
        settings: As for `make_teacher`. Of a teacher that was made already its `settings` are taken, if it has them.

    Raises:
        UserError: If the name is unknown.
    """
    if isinstance(settings, Teacher):
        name, values, kind = settings.name, dict(settings.settings), type(settings)
    else:
        name, values = TEACHERS.named(settings)
        kind = TEACHERS[name]
    deciding = kind.portable(values).items()
    return {"name": name, **{key: value for key, value in deciding if key not in kind.without_effect}}


def portable_teacher(settings: Any) -> Any:
    """The settings of a teacher as a checkpoint keeps them (`Teacher.portable`); a known name or a teacher stays one.

    Raises:
        UserError: If the name or a setting is unknown, or a setting is not allowed.
    """
    if isinstance(settings, Teacher):
        return settings
    name, values = TEACHERS.checked(settings)
    return settings if isinstance(settings, str) else {"name": name, **TEACHERS[name].portable(values)}


# ---- in a game --------------------------------------------------------------------------------------------------


_MAX_CHARACTERS = 400  # of a message of a teacher


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
        return told, with_figures(infos, self.figures())

    def step(self, actions: dict[Any, Any]) -> Any:
        """One step of the game."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        over = {agent: terminations[agent] or truncations[agent] for agent in terminations}
        told = self._with_messages(observations, infos, over)
        return told, rewards, terminations, truncations, with_figures(infos, self.figures())

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


# ---- rules ------------------------------------------------------------------------------------------------------


class ScriptedSettings(Settings):
    """Settings of the teacher `scripted` (all ours)."""

    repeat_fact: bool = False
    """Whether agents who are told a fact that others miss (`told_to`) say nothing else, and these ask for it, all the
    time; otherwise they do so while it is of use, and then speak of what they do. Strategy game only."""
    ask_to_wait: bool = True
    """Whether agents ask others to wait; otherwise who would do so says what it does itself, alone. Strategy game
    only."""
    wording: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of the only wording in which it says each thing, so that several teachers speak otherwise; the last one
    where a thing has fewer; null: any. Textual kitchen only."""


class ScriptedTeacher(Teacher):
    """Labels messages by rules on the true state of our games.

    It stands in for the paper's GPT-4. Its messages are those of each game's own scripted player, which has an
    answer in every state, in a few wordings.

    Args:
        **settings: Those of `ScriptedSettings`.

    Raises:
        UserError: If a setting is not allowed.
    """

    name, settings_model = "scripted", ScriptedSettings
    stands_in = "rules that see the whole game"

    def __init__(self, **settings: Any) -> None:
        self.settings = self.settings_model(**settings).model_dump(exclude_defaults=True)

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message per agent.

        Args:
            request: Its `state` is one of a game with a scripted player: a kitchen, or the side of a strategy game.
            rng: Chooses the wording.

        Raises:
            UserError: If the request comes from another game.
        """
        player = scripted_player_of(request.state)
        if player is None:
            known = ", ".join(name for name, record in GAMES.items() if record.scripted_player)
            raise UserError(
                f"`teacher` is 'scripted' but the environment's state is {type(request.state).__name__}, which belongs "
                f"to no game with a scripted player ({known}); use 'chat', register a teacher of your own, or register "
                "the game with a `scripted_player`."
            )
        taken = {"wording"} & set(inspect.signature(player.messages).parameters)
        taken |= {"repeat_fact", "ask_to_wait"} if hasattr(player, "facts") else set()
        if unknown := [name for name in self.settings if name not in taken]:
            name, value = unknown[0], self.settings[unknown[0]]
            raise UserError(
                f"`teacher.{name}` is {str(value).lower()} but the scripted player of this game has no messages of "
                "which it could choose; omit it."
            )
        wording = {name: value for name, value in self.settings.items() if name != "repeat_fact"}
        said: dict[str, str] = player.messages(request.state, request.agents, rng, **wording)
        if "repeat_fact" in self.settings:
            said.update(player.facts(request.state, request.agents, rng))
        return said

    def advise(self, env: Any, agent: str) -> int | None:
        """The action of the game's scripted player, which sees everything; `None` where it has no advice.

        Args:
            env: The (unwrapped) environment. In the textual kitchen there is advice on macro-actions only.
            agent: Name of the agent to act.
        """
        player = scripted_player_of(env)
        advice: int | None = None if player is None else player.advise(env, agent)
        return advice


# ---- people -----------------------------------------------------------------------------------------------------


_Folder = Annotated[str, Field(min_length=1)] | SkipJsonSchema[Path]


class PeopleSettings(Settings):
    """Settings of the teacher `people`."""

    sessions: _Folder | Annotated[Several[_Folder], Field(min_length=1)] = Field(examples=["sessions: [results/play]"])
    """Folders of sessions (`rllib play --record`), or one."""
    names: str | Several[str] | None = None
    """Names of the people who are taken, or one; null for all."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders, also if there is one."""
        return tuple(map(str, self.sessions if isinstance(self.sessions, tuple) else (self.sessions,)))

    @property
    def people(self) -> tuple[str, ...] | None:
        """The names, also if there is one."""
        return (self.names,) if isinstance(self.names, str) else self.names


class PeopleTeacher(Teacher):
    """Gives what people wrote to the others, behind what their seat saw when they wrote it.

    It is no player that could be asked: its labels are those of the sessions, and `collect_labels` plays no games.

    Args:
        **settings: Those of `PeopleSettings`.

    Raises:
        UserError: If a setting is not allowed, a session cannot be read, or nobody in them has one of the names.
    """

    name, settings_model = "people", PeopleSettings

    def __init__(self, **settings: Any) -> None:
        chosen = self.settings_model(**settings)
        names = None if chosen.people is None else list(chosen.people)
        self.settings = {"sessions": list(chosen.folders), "names": names}
        self._sessions = [read_session(path) for path in chosen.folders]
        self._names = None if names is None else set(names)
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
                    card = moment.agents.get(agent)  # none behind the agent's end
                    wanted = self._names is None or person.name in self._names
                    if card and person.spoke and wanted and card.get("said") and card["text"]:
                        yield {
                            "prompt": card["text"],
                            "message": card["said"],
                            "agent": agent,
                            "episode": before + episode.episode - 1,
                            "game_step": moment.game_step,
                        }
