"""Collects message labels: the initial policy plays, a teacher says what each agent should say (Verco Algorithm 1)."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from rllib_llm_comm.chat.chat_model import begun_at_once, concurrent_questions, side_by_side
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import SideBySide
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model, resolve_device
from rllib_llm_comm.language.prompts import Prompt, PromptTemplates, limit_words, read_prompts
from rllib_llm_comm.language.scoring import score_texts
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.verco.settings import BaseModelSettings
from rllib_llm_comm.verco.teachers.base import Teacher, TeacherRequest, make_teacher, teacher_identity
from rllib_llm_comm.verco.teachers.label_store import ANSWERS, LabelStore

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
        complete: Whether the target was reached (else `exhausted`, or `max_decisions` ended it); of rows that were
            recorded before, whether all of them were taken.
        output: The folder.
        exhausted: Whether it ended because `max_stale_decisions` in a row brought nothing new.
    """

    labels: int
    prompts: int
    decisions: int
    episodes: int
    complete: bool
    output: str
    exhausted: bool = False

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


class CollectionSettings(SideBySide):
    """What collections of labels and of demonstrations are told."""

    teacher: str | dict[str, Any] | SkipJsonSchema[Teacher] = "scripted"
    """Who says what agents should say: a teacher's name, or a mapping with `name` and its settings."""
    max_decisions: int = Field(200_000, ge=1)
    """No further games are begun after so many decisions (ours). With a larger number it goes on."""
    max_message_words: int = Field(10, ge=1, le=1000)
    """Longer messages of the teacher are cut. Verco: 10, which the prompts of the package tell a chat model; for more
    give the teacher prompts of your own."""
    max_empty_moments: int = Field(100, ge=1)
    """Gives up when the teacher said nothing in so many moments in a row (ours)."""
    max_stale_decisions: int = Field(20_000, ge=1)
    """Ends with the rows that are there when so many decisions in a row brought no new one: the game seems to show no
    others (ours)."""
    random_share: float = Field(0.25, ge=0, le=1)
    """Share of actions that are drawn uniformly and played, so that more states are met; a demonstration holds the
    player's choice all the same. Verco: 0; 0.25 (ours)."""

    @field_validator("env_config", "teacher", "player", mode="before", check_fields=False)
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return dict(value) if isinstance(value, Mapping) else value


class CollectionGame(PlayedGame):
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
        settings: Those of the collection.
    """

    def __init__(self, teacher: Teacher, settings: CollectionSettings) -> None:
        self.teacher, self._max_words = teacher, settings.max_message_words
        self._empty, self._most_empty = 0, settings.max_empty_moments

    def messages(
        self, games: Sequence[CollectionGame], store: LabelStore, rng: np.random.Generator
    ) -> Iterator[dict[str, str]]:
        """Per game what the agents that have to choose should say; empty texts where it has no word for one.

        A teacher whose client has several questions under way (`max_concurrent`) is asked about as many games at once.
        The order of what comes is that of the games in any case.

        Raises:
            UserError: If it seems dead or useless.
        """
        if concurrent_questions(self.teacher.chat_model) > 1:
            # Draws of several games at once would come in the order of the answers.
            asked = list(zip(games, rng.spawn(len(games)), strict=True))
            at_once = begun_at_once(self.teacher.chat_model)
            said: Iterable[dict[str, str]] = side_by_side(lambda one: self._asked(*one), asked, at_once)
        else:
            said = (self._asked(game, rng) for game in games)
        for game, found in zip(games, said, strict=True):
            if game.asked:
                self._require_words(found, store)
            yield {agent: limit_words(found.get(agent, ""), self._max_words) for agent in game.asked}

    def _asked(self, game: CollectionGame, rng: np.random.Generator) -> dict[str, str]:
        """The teacher's words at the moment of a game; it is not asked where nobody has to choose."""
        if not game.asked:
            return {}
        return self.teacher.messages(TeacherRequest.of(game.env.unwrapped, game.observations), rng=rng)

    def _require_words(self, said: Mapping[str, str], store: LabelStore) -> None:
        """Counts moments without a word, and gives up after too many in a row."""
        self._empty = 0 if any(said.values()) else self._empty + 1
        if self._empty >= self._most_empty:
            counts = ", ".join(f"{name} {count}" for name, count in self.teacher.counts.items())
            raise UserError(
                f"`teacher` {self.teacher.name!r} gave no label in {self._empty} moments in a row"
                f"{f' ({counts})' if counts else ''}; {store.labels} {store.form.name} are kept in "
                f"{str(store.folder)!r}. Mend the teacher, or raise `max_empty_moments`, and call again."
            )


class Collector(ABC):
    """Plays rounds of games and fills a store.

    Args:
        store: Takes the rows.
        env: Id of the environment.
        settings: Those of the collection.

    Raises:
        UserError: If the game cannot be made.
    """

    def __init__(self, store: LabelStore, env: str, settings: CollectionSettings) -> None:
        self.store, self.settings = store, settings
        self.round = int(store.state.get("round", 0))
        self.decisions = int(store.state.get("decisions", 0))
        try:
            self._envs = [make_env(env, **settings.env_config) for _ in range(settings.num_envs)]
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"`env` {env!r} cannot be made ({error}); import the module that registers it first."
            ) from error

    def begin_round(self, rng: np.random.Generator) -> None:
        """Prepares for a round; all that it draws comes from `rng`."""
        return

    def begin(self, game: CollectionGame) -> None:
        """Prepares for an episode, behind the reset of its game."""
        return

    @abstractmethod
    def decide(self, games: list[CollectionGame], rng: np.random.Generator) -> list[dict[str, int]]:
        """Adds rows of one moment of all games, and chooses.

        Args:
            games: The games; in some nobody may have to choose.
            rng: Source of randomness.

        Returns:
            Per game the actions of those who have to choose.
        """

    def collect(self, target: int, progress: Progress | None = None) -> CollectionReport:
        """Plays until there are enough rows, or `max_stale_decisions` in whole rounds brought none."""
        max_decisions, max_stale = self.settings.max_decisions, self.settings.max_stale_decisions
        newest = self.decisions  # when a round brought a row last; a call that goes on begins to count anew
        while self.store.labels < target and self.decisions < max_decisions and self.decisions - newest < max_stale:
            before = self.store.labels
            self._play_round(target, progress)
            if self.store.labels > before:
                newest = self.decisions
        complete, exhausted = self.store.labels >= target, self.decisions - newest >= max_stale
        self.store.flush(self._state(), complete=complete)
        episodes = self.round * len(self._envs)
        counts = (self.store.labels, self.store.prompts, self.decisions, episodes)
        return CollectionReport(*counts, complete, str(self.store.folder), exhausted)

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
        rng = np.random.default_rng([self.settings.seed, self.round])
        self.begin_round(rng)
        games = []
        for number, env in enumerate(self._envs):
            games.append(CollectionGame(self.round * len(self._envs) + number, env, int(rng.integers(2**31))))
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


def env_text(env: str, env_config: Mapping[str, Any]) -> str:
    """Id and settings of a game as the column `env` holds them."""
    return json.dumps({"id": env, "settings": env_config}, sort_keys=True)


class InitialPolicy:
    """Samples actions by the base model's candidate scores, without messages.

    Scores of a text are computed once: the base model never changes.
    """

    def __init__(self, settings: BaseModelSettings) -> None:
        """Loads the model."""
        device = resolve_device(settings.device)
        base = load_base_model(settings.base_model, settings.dtype, device, settings.quantization)
        self._model = AdaptedModel(base.in_format(settings.prompt_format, settings.prompt_date))
        self._templates = PromptTemplates(read_prompts(settings.prompts))
        self._known: dict[tuple[Any, ...], np.ndarray] = {}

    def __call__(self, observations: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> list[int]:
        """One action per observation, which has `text`, `candidates` and `action_mask`."""
        keys = [(str(o["text"]), tuple(o["candidates"]), tuple(int(m) for m in o["action_mask"])) for o in observations]
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if new:
            self._score(new)
        return [int(rng.choice(len(p), p=p)) for p in (self._known[key] for key in keys)]

    def _score(self, keys: Sequence[tuple[Any, ...]]) -> None:
        with torch.no_grad():
            rows = [(self._prompt(text, phrases, mask), phrases, mask) for text, phrases, mask in keys]
            scores = score_texts(self._model, rows, role=None)
        for key, row in zip(keys, scores.double().softmax(-1).cpu().numpy(), strict=True):
            probabilities = row[: len(key[1])]
            self._known[key] = probabilities / probabilities.sum()

    def _prompt(self, text: str, phrases: tuple[str, ...], mask: tuple[int, ...]) -> Prompt:
        allowed = [phrase for phrase, flag in zip(phrases, mask, strict=True) if flag]
        return self._templates.action(text, options=allowed)


class LabelSettings(BaseModelSettings, CollectionSettings):
    """What `collect_labels` is told; the base model is that of `policy: base`."""

    target_labels: int = Field(4000, ge=1)
    """Ends when so many labels are there. Verco: "a small amount"; 4000 (ours)."""
    max_labels_per_prompt: int = Field(3, ge=1)
    """Most different messages kept of one observation (ours)."""
    policy: Literal["base", "random"] = "base"
    """`"base"`: the base model plays (Verco); `"random"`: every allowed action is as likely."""
    teacher_share: float = Field(0.5, ge=0, le=1)
    """Share of actions in which the teacher's own advice is followed, if it has one, so that late states are met, too.
    0 in the paper; 0.5 (ours)."""


def collect_labels(
    env: str, output: str | os.PathLike[str], *, progress: Progress | None = None, **settings: Any
) -> CollectionReport:
    """Collects labels into a folder of Parquet files; goes on where a killed or failed call stopped.

    Labels are on disk half a minute after they came, and the answers of a chat teacher at once (`_chat_cache` in the
    folder, unless its `cache_dir` says anything else), so that none is paid for twice.

    Args:
        env: Id of a PettingZoo environment with observations in words.
        output: The folder.
        progress: Called with the labels so far and the target.
        **settings: Those of `LabelSettings`; one that is None has its default.

    Raises:
        UserError: If a setting is not allowed, the folder is damaged, or the teacher seems dead or useless: all labels
            so far are on disk then, and the next call goes on.
    """
    chosen = LabelSettings(**{name: value for name, value in settings.items() if value is not None})
    deciding = {
        "env": env,
        "env_config": chosen.env_config,
        "teacher": teacher_identity(chosen.teacher),
        "target_labels": chosen.target_labels,
        "max_labels_per_prompt": chosen.max_labels_per_prompt,
        "policy": chosen.policy,
        "base_model": chosen.base_model,
        "model": [chosen.dtype, chosen.quantization, chosen.prompt_format, chosen.prompt_date],
        "prompts": chosen.prompts,
        "shares": [chosen.random_share, chosen.teacher_share],
        "num_envs": chosen.num_envs,
        "max_message_words": chosen.max_message_words,
        "seed": chosen.seed,
    }
    store = LabelStore(output, deciding, chosen.max_labels_per_prompt)
    teacher = make_teacher(chosen.teacher)
    recorded = teacher.recorded(env, chosen.env_config)
    if recorded is not None:
        return _take_recorded(store, teacher, deciding, recorded)
    teacher.keep_answers(store.folder / ANSWERS)
    return _LabelCollector(store, teacher, env, chosen).collect(chosen.target_labels, progress)


def _take_recorded(
    store: LabelStore, teacher: Teacher, settings: Mapping[str, Any], recorded: Iterator[dict[str, Any]]
) -> CollectionReport:
    common = {"teacher": teacher.name, "env": env_text(settings["env"], settings["env_config"])}
    words = settings["max_message_words"]
    rows = ({**row, "message": limit_words(row["message"], words), **common} for row in recorded)
    report = take_recorded(store, rows, settings["target_labels"])
    if not report.labels:
        raise UserError(f"`teacher` {teacher.name!r} has no labels: nobody said anything in what it was given.")
    return report


class _LabelCollector(Collector):
    def __init__(self, store: LabelStore, teacher: Teacher, env: str, settings: LabelSettings) -> None:
        super().__init__(store, env, settings)
        self._teacher = TeacherInCollection(teacher, settings)
        self._player = InitialPolicy(settings) if settings.policy == "base" else None
        self._shares = settings.random_share, settings.teacher_share
        self._row = {"teacher": teacher.name, "env": env_text(env, settings.env_config)}

    def decide(self, games: list[CollectionGame], rng: np.random.Generator) -> list[dict[str, int]]:
        for game, said in zip(games, self._teacher.messages(games, self.store, rng), strict=True):
            for agent, message in said.items():
                if message:
                    prompt = str(game.observations[agent]["text"])
                    self.store.add({"prompt": prompt, "message": message, **game.place(agent), **self._row})
        return self._act(games, rng)

    def _act(self, games: list[CollectionGame], rng: np.random.Generator) -> list[dict[str, int]]:
        actions: list[dict[str, int]] = [{} for _ in games]
        open_turns = []
        for number, game in enumerate(games):
            for agent in game.asked:
                draw = rng.random()
                choice: int | None = None
                if draw < self._shares[1]:
                    choice = self._teacher.teacher.advise(game.env.unwrapped, agent)
                if choice is None and (self._player is None or draw >= 1.0 - self._shares[0]):
                    choice = random_action(game.observations[agent], rng)
                if choice is None:
                    open_turns.append((number, agent, game.observations[agent]))
                else:
                    actions[number][agent] = choice
        if open_turns and self._player is not None:
            chosen = self._player([observation for *_, observation in open_turns], rng)
            for (number, agent, _), action in zip(open_turns, chosen, strict=True):
                actions[number][agent] = action
        return actions
