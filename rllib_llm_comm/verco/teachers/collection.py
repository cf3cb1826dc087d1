"""The loop of collections: games side by side, whose moments give rows for a folder that a killed call goes on with."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.interface import teacher_state
from rllib_llm_comm.language.message_words import limit_words
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.verco.teachers.base import Teacher, TeacherRequest
from rllib_llm_comm.verco.teachers.label_store import LabelStore

Progress = Callable[[int, int], None]
"""Called with the number of rows so far and the target."""
_ROWS_PER_PART = 256
_SECONDS_PER_PART = 30.0


@dataclass(frozen=True)
class CollectionReport:
    """The result of a collection.

    Attributes:
        labels: Rows written.
        prompts: Distinct prompts among them.
        decisions: Decisions of agents in all roll-outs.
        episodes: Roll-outs begun.
        complete: Whether the target was reached (else `max_decisions` ended it); of rows that were recorded before,
            whether all of them were taken.
        output: The folder.
    """

    labels: int
    prompts: int
    decisions: int
    episodes: int
    complete: bool
    output: str

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


class Game(PlayedGame):
    """A game of a collection.

    Args:
        episode: Its number in the collection.
        env: The environment; it is reset.
        seed: Seed of the game.

    Attributes:
        memory: What the collector keeps of this episode.
    """

    def __init__(self, episode: int, env: Any, seed: int) -> None:
        super().__init__(env, seed)
        self.episode = episode
        self.memory: Any = None

    def place(self, agent: str) -> dict[str, Any]:
        """Columns that say where in the collection a row comes from."""
        step = int(self.infos.get(agent, {}).get("game_step", 0))
        return {"agent": agent, "episode": self.episode, "game_step": step}


class TeacherInCollection:
    """Asks a teacher at the moments of a collection.

    Args:
        teacher: The teacher.
        max_words: Longer messages are cut.
        max_empty: Gives up when it said nothing in so many moments in a row.
    """

    def __init__(self, teacher: Teacher, max_words: int, max_empty: int) -> None:
        self.teacher, self._max_words = teacher, max_words
        self._empty, self._most_empty = 0, max_empty

    def messages(self, game: Game, store: LabelStore, rng: np.random.Generator) -> dict[str, str]:
        """What the agents that have to choose should say; empty texts where it has no word for one.

        Args:
            game: The game.
            store: Where the rows so far are, in the message of the error.
            rng: Chooses wordings.

        Raises:
            UserError: If it seems dead or useless.
        """
        if not game.asked:
            return {}
        made = game.env.unwrapped
        request = TeacherRequest(
            agents=tuple(game.observations),
            observations={agent: str(seen["text"]) for agent, seen in game.observations.items()},
            task=getattr(made, "task", ""),
            brief=getattr(made, "brief", ""),
            state=teacher_state(made),
        )
        said = self.teacher.messages(request, rng=rng)
        self._empty = 0 if any(said.values()) else self._empty + 1
        if self._empty >= self._most_empty:
            counts = ", ".join(f"{name} {count}" for name, count in getattr(self.teacher, "counts", {}).items())
            raise UserError(
                f"`teacher` {self.teacher.name!r} gave no label in {self._empty} moments in a row"
                f"{f' ({counts})' if counts else ''}; {store.labels} {store.form.name} are kept in "
                f"{str(store.folder)!r}. Mend the teacher, or raise `max_empty_moments`, and call again."
            )
        return {agent: limit_words(said.get(agent, ""), self._max_words) for agent in game.asked}


class Collector(ABC):
    """Plays rounds of games and fills a store.

    Args:
        store: Takes the rows.
        settings: With `env`, `env_config`, `num_envs` and `seed`.

    Raises:
        UserError: If the game cannot be made.
    """

    def __init__(self, store: LabelStore, settings: Mapping[str, Any]) -> None:
        self.store, self.settings = store, settings
        self.round = int(store.state.get("round", 0))
        self.decisions = int(store.state.get("decisions", 0))
        try:
            self._envs = [make_env(settings["env"], **settings["env_config"]) for _ in range(settings["num_envs"])]
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"`env` {settings['env']!r} cannot be made ({error}); import the module that registers it first."
            ) from error

    def begin_round(self, rng: np.random.Generator) -> None:
        """Prepares for a round; all that it draws comes from `rng`."""
        return

    def begin(self, game: Game) -> None:
        """Prepares for an episode.

        Args:
            game: The game, after its reset.
        """
        return

    @abstractmethod
    def decide(self, games: list[Game], rng: np.random.Generator) -> list[dict[str, int]]:
        """Adds rows of one moment of all games, and chooses.

        Args:
            games: The games; in some nobody may have to choose.
            rng: Source of randomness.

        Returns:
            Per game the actions of those who have to choose.
        """

    def collect(self, target: int, max_decisions: int, progress: Progress | None = None) -> CollectionReport:
        """Plays until there are enough rows.

        Args:
            target: Ends when so many rows are there.
            max_decisions: Ends after so many decisions at the latest.
            progress: Called with the rows so far and the target.
        """
        while self.store.labels < target and self.decisions < max_decisions:
            self._play_round(target, progress)
        complete = self.store.labels >= target
        self.store.flush(self._state(), complete=complete)
        episodes = self.round * len(self._envs)
        folder = str(self.store.folder)
        return CollectionReport(self.store.labels, self.store.prompts, self.decisions, episodes, complete, folder)

    def _state(self) -> dict[str, int]:
        """The round and decision from which a collection goes on."""
        return {"round": self.round, "decisions": self.decisions}

    def _play_round(self, target: int, progress: Progress | None) -> None:
        """One episode in every environment.

        Parts are written on the way and also when somebody who is asked gives up, so that answers that were paid for
        are on disk. An interrupted round is played again from its start: rounds are seeded by their number, and rows
        that are there already are not taken twice.
        """
        begun = self._state()
        try:
            with self.store.saving(begun, _SECONDS_PER_PART):
                self._play(target, progress, begun)
        except BaseException:
            self.store.flush(begun)
            raise
        self.round += 1
        self.store.flush(self._state())

    def _play(self, target: int, progress: Progress | None, begun: Mapping[str, int]) -> None:
        rng = np.random.default_rng([self.settings["seed"], self.round])
        self.begin_round(rng)
        games = []
        for number, env in enumerate(self._envs):
            games.append(Game(self.round * len(self._envs) + number, env, int(rng.integers(2**31))))
            self.begin(games[-1])
        while games:
            for game in games:
                self.decisions += len(game.asked)
            for game, chosen in zip(games, self.decide(games, rng), strict=True):
                game.advance(chosen)
            games = [game for game in games if not game.over]
            if progress:
                progress(min(self.store.labels, target), target)
            if self.store.labels >= target:
                break
            if self.store.buffered >= _ROWS_PER_PART:
                self.store.flush(begun)


def random_action(observation: Mapping[str, Any], rng: np.random.Generator) -> int:
    """An allowed action, drawn uniformly."""
    return int(rng.choice(np.flatnonzero(observation["action_mask"])))


def take_recorded(store: LabelStore, rows: Iterable[Mapping[str, Any]], target: int) -> CollectionReport:
    """Rows that are there already; all of them, up to a number. No game is played for them.

    Args:
        store: Takes them.
        rows: The rows, one of every decision; those whose answer is `None` or empty are counted and left out.
        target: Most rows.

    Returns:
        The report; without a row nothing was written.
    """
    decisions, episodes = 0, set()
    for row in rows:
        decisions += 1
        episodes.add(row["episode"])
        if row[store.form.answer] not in (None, "") and store.labels < target:
            store.add(row)
    if store.labels:
        store.flush({"round": 0, "decisions": decisions}, complete=True)
    return CollectionReport(store.labels, store.prompts, decisions, len(episodes), True, str(store.folder))


def env_text(settings: Mapping[str, Any]) -> str:
    """Id and settings of a game as the column `env` holds them."""
    return json.dumps({"id": settings["env"], "settings": settings["env_config"]}, sort_keys=True)


def check_limits(settings: Mapping[str, Any], counts: Iterable[str], shares: Iterable[str], prefix: str = "") -> None:
    """Checks the values of those settings of a collection that are given.

    Args:
        settings: Name -> value of the right type, or `None`.
        counts: Names of counts of at least 1.
        shares: Names of shares between 0 and 1.
        prefix: Text before the setting's name in messages, such as "config.".

    Raises:
        UserError: At the first value that is not allowed.
    """
    for name, least in (*((count, 1) for count in counts), ("seed", 0)):
        value = settings.get(name, least)
        if value is None or value < least:
            raise UserError(f"`{prefix}{name}` is {value!r} but must be at least {least}.")
    for name in shares:
        share = settings.get(name, 0.0)
        if share is None or not 0.0 <= share <= 1.0:
            raise UserError(f"`{prefix}{name}` is {share!r} but must be between 0 and 1.")
