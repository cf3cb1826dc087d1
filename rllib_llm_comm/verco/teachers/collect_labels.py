"""Collects message labels: the initial policy plays, a teacher says what each agent should say (Verco Algorithm 1)."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.chat.chat_model import begun_at_once, concurrent_questions, side_by_side
from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, resolve_device
from rllib_llm_comm.language.chat_template import PLAIN, PROMPT_DATE
from rllib_llm_comm.language.prompts import DEFAULT, Prompt, PromptTemplates, limit_words, read_prompts
from rllib_llm_comm.language.scoring import score_texts
from rllib_llm_comm.policies.play_loop import PlayedGame
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

    def messages(self, games: Sequence[Game], store: LabelStore, rng: np.random.Generator) -> Iterator[dict[str, str]]:
        """Per game what the agents that have to choose should say; empty texts where it has no word for one.

        A teacher whose client has several questions under way (`max_concurrent`) is asked about as many games at once.
        The order of what comes is that of the games in any case.

        Raises:
            UserError: If it seems dead or useless.
        """
        client = getattr(self.teacher, "client", None)
        if concurrent_questions(client) > 1:
            # Draws of several games at once would come in the order of the answers.
            asked = list(zip(games, rng.spawn(len(games)), strict=True))
            said: Iterable[dict[str, str]] = side_by_side(lambda one: self._asked(*one), asked, begun_at_once(client))
        else:
            said = (self._asked(game, rng) for game in games)
        for game, found in zip(games, said, strict=True):
            if game.asked:
                self._require_words(found, store)
            yield {agent: limit_words(found.get(agent, ""), self._max_words) for agent in game.asked}

    def _asked(self, game: Game, rng: np.random.Generator) -> dict[str, str]:
        """The teacher's words at the moment of a game; it is not asked where nobody has to choose."""
        if not game.asked:
            return {}
        return self.teacher.messages(TeacherRequest.of(game.env.unwrapped, game.observations), rng=rng)

    def _require_words(self, said: Mapping[str, str], store: LabelStore) -> None:
        """Counts moments without a word, and gives up after too many in a row."""
        self._empty = 0 if any(said.values()) else self._empty + 1
        if self._empty >= self._most_empty:
            counts = ", ".join(f"{name} {count}" for name, count in getattr(self.teacher, "counts", {}).items())
            raise UserError(
                f"`teacher` {self.teacher.name!r} gave no label in {self._empty} moments in a row"
                f"{f' ({counts})' if counts else ''}; {store.labels} {store.form.name} are kept in "
                f"{str(store.folder)!r}. Mend the teacher, or raise `max_empty_moments`, and call again."
            )


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
        """Prepares for an episode, behind the reset of its game."""
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

    def collect(
        self, target: int, max_decisions: int, max_stale: int, progress: Progress | None = None
    ) -> CollectionReport:
        """Plays until there are enough rows, or `max_stale` decisions in whole rounds brought none."""
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
        settings: Name -> value.
        counts: Names of counts of at least 1.
        shares: Names of shares between 0 and 1.
        prefix: Text before the setting's name in messages, such as "config.".

    Raises:
        UserError: At the first value that is not allowed.
    """
    for name, least in (*((count, 1) for count in counts), ("seed", 0)):
        value = settings.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"`{prefix}{name}` is {value!r} but must be a whole number of at least {least}.")
    for name in shares:
        share = settings.get(name, 0.0)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
            raise UserError(f"`{prefix}{name}` is {share!r} but must be a number between 0 and 1.")


class InitialPolicy:
    """Samples actions by the base model's candidate scores, without messages.

    Scores of a text are computed once: the base model never changes.
    """

    def __init__(self, base: BaseModel, prompts: Mapping[str, str] | None = None) -> None:
        """Keeps the model.

        Args:
            base: The model.
            prompts: Texts of its templates, as of `read_prompts`; `None` for the default ones.
        """
        self._model = AdaptedModel(base)
        self._templates = PromptTemplates(prompts or read_prompts(DEFAULT))
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
            chances = row[: len(key[1])]
            self._known[key] = chances / chances.sum()

    def _prompt(self, text: str, phrases: tuple[str, ...], mask: tuple[int, ...]) -> Prompt:
        allowed = [phrase for phrase, flag in zip(phrases, mask, strict=True) if flag]
        return self._templates.action(text, options=allowed)


POLICIES = ("base", "random")
# Settings with limits: counts of at least 1, shares between 0 and 1.
_COUNTS = (
    "target_labels", "max_decisions", "max_labels_per_prompt", "num_envs", "max_message_words", "max_empty_moments",
    "max_stale_decisions",
)  # fmt: skip
_SHARES = ("random_share", "teacher_share")


def collect_labels(
    env: str,
    output: str | os.PathLike[str],
    *,
    env_config: Mapping[str, Any] | None = None,
    teacher: str | Mapping[str, Any] | Teacher = "scripted",
    target_labels: int = 4000,
    max_decisions: int = 200_000,
    max_labels_per_prompt: int = 3,
    policy: str = "base",
    base_model: str = "embedded",
    dtype: str = "float32",
    device: str = "cpu",
    quantization: str = "none",
    prompts: str | Mapping[str, str] = DEFAULT,
    prompt_format: str = PLAIN,
    prompt_date: str = PROMPT_DATE,
    random_share: float = 0.25,
    teacher_share: float = 0.5,
    num_envs: int = 16,
    max_message_words: int = 10,
    max_empty_moments: int = 100,
    max_stale_decisions: int = 20_000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> CollectionReport:
    """Collects labels into a folder of Parquet files; goes on where a killed or failed call stopped.

    Labels are on disk half a minute after they came, and the answers of a chat teacher at once (`_chat_cache` in the
    folder, unless its `cache_dir` says anything else), so that none is paid for twice.

    Args:
        env: Id of a PettingZoo environment with observations in words.
        output: The folder.
        env_config: Settings of the environment.
        teacher: A teacher's name, or a dict with `name` and its settings.
        target_labels: Ends when so many labels are there, >= 1. Verco: "a small amount"; 4000 (ours).
        max_decisions: No further games are begun after so many decisions. With a larger number it goes on.
        max_labels_per_prompt: Most different messages kept of one observation.
        policy: `"base"`: the base model plays (Verco); `"random"`: every allowed action is as likely.
        base_model: The language model of `policy="base"`.
        dtype: How its weights are held; this and the next five are as of `LanguageModelSettings`.
        device: Where it computes.
        quantization: How its linear maps are held.
        prompts: Its prompts: a shipped set, a folder of templates, or their texts.
        prompt_format: `"plain"` or `"chat"`.
        prompt_date: The day that a chat template shows.
        random_share: Share of actions that are drawn uniformly instead, so that more states are met. 0 in the
            paper; 0.25 (ours).
        teacher_share: Share of actions in which the teacher's own advice is followed, if it has one, so that late
            states are met, too. 0 in the paper; 0.5 (ours).
        num_envs: Games played side by side.
        max_message_words: Longer labels are cut. Verco: 10.
        max_empty_moments: Gives up when the teacher gave no label in so many moments in a row, >= 1; 100 (ours).
        max_stale_decisions: Ends with the rows that are there when so many decisions in a row brought no new one: the
            game seems to show no others, >= 1; 20000 (ours).
        seed: The same seed gives the same labels.
        progress: Called with the labels so far and the target.

    Raises:
        UserError: If a setting is not allowed, the folder is damaged, or the teacher seems dead or useless: all labels
            so far are on disk then, and the next call goes on.
    """
    check_settings(
        {
            "policy": policy, "target_labels": target_labels, "max_decisions": max_decisions,
            "max_labels_per_prompt": max_labels_per_prompt, "num_envs": num_envs, "seed": seed,
            "max_message_words": max_message_words, "max_empty_moments": max_empty_moments,
            "max_stale_decisions": max_stale_decisions,
            "random_share": random_share, "teacher_share": teacher_share,
        }
    )  # fmt: skip
    settings = {
        "env": env,
        "env_config": dict(env_config or {}),
        "teacher": teacher_identity(teacher),
        "target_labels": target_labels,
        "max_labels_per_prompt": max_labels_per_prompt,
        "policy": policy,
        "base_model": base_model,
        "model": [dtype, quantization, prompt_format, str(prompt_date)],
        "prompts": read_prompts(prompts),
        "shares": [random_share, teacher_share],
        "num_envs": num_envs,
        "max_message_words": max_message_words,
        "seed": seed,
    }
    store = LabelStore(output, settings, max_labels_per_prompt)
    teacher = make_teacher(teacher)
    recorded = teacher.recorded(env, env_config or {})
    if recorded is not None:
        return _take_recorded(store, teacher, settings, recorded)
    teacher.keep_answers(store.folder / ANSWERS)
    player = None
    if policy == "base":
        base = load_base_model(base_model, dtype, resolve_device(device), quantization)
        player = InitialPolicy(base.in_format(prompt_format, str(prompt_date)), read_prompts(prompts))
    shares = (random_share, teacher_share)
    collector = _LabelCollector(store, teacher, settings, player, shares, max_empty_moments)
    return collector.collect(target_labels, max_decisions, max_stale_decisions, progress)


def _take_recorded(
    store: LabelStore, teacher: Teacher, settings: Mapping[str, Any], recorded: Iterator[dict[str, Any]]
) -> CollectionReport:
    """Labels of a teacher that has them already."""
    common = {"teacher": teacher.name, "env": env_text(settings)}
    words = settings["max_message_words"]
    rows = ({**row, "message": limit_words(row["message"], words), **common} for row in recorded)
    report = take_recorded(store, rows, settings["target_labels"])
    if not report.labels:
        raise UserError(f"`teacher` {teacher.name!r} has no labels: nobody said anything in what it was given.")
    return report


def check_settings(settings: Mapping[str, Any], prefix: str = "") -> None:
    """Checks the values of those settings of `collect_labels` that are given.

    Args:
        settings: Name -> value of the right type, or `None`; unknown names are passed over.
        prefix: Text before the setting's name in messages, such as "config.".

    Raises:
        UserError: At the first value that is not allowed.
    """
    if "policy" in settings:
        require_choice(f"{prefix}policy", settings["policy"], POLICIES)
    check_limits(settings, _COUNTS, _SHARES, prefix)


class _LabelCollector(Collector):
    def __init__(
        self,
        store: LabelStore,
        teacher: Teacher,
        settings: Mapping[str, Any],
        player: Any,
        shares: tuple[float, float],
        max_empty_moments: int,
    ) -> None:
        super().__init__(store, settings)
        self._teacher = TeacherInCollection(teacher, settings["max_message_words"], max_empty_moments)
        self._player, self._shares = player, shares
        self._row = {"teacher": teacher.name, "env": env_text(settings)}

    def decide(self, games: list[Game], rng: np.random.Generator) -> list[dict[str, int]]:
        for game, said in zip(games, self._teacher.messages(games, self.store, rng), strict=True):
            for agent, message in said.items():
                if message:
                    prompt = str(game.observations[agent]["text"])
                    self.store.add({"prompt": prompt, "message": message, **game.place(agent), **self._row})
        return self._act(games, rng)

    def _act(self, games: list[Game], rng: np.random.Generator) -> list[dict[str, int]]:
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
        if open_turns:
            chosen = self._player([observation for *_, observation in open_turns], rng)
            for (number, agent, _), action in zip(open_turns, chosen, strict=True):
                actions[number][agent] = action
        return actions
