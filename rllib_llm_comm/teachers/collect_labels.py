"""Collects message labels: the initial policy plays, a teacher says what each agent should say (Verco Algorithm 1)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.envs.game_contract import GameContract
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.interface import asked, teacher_state
from rllib_llm_comm.errors import UserError, require_choice
from rllib_llm_comm.language.message_words import limit_words
from rllib_llm_comm.teachers.base import Teacher, TeacherRequest, make_teacher, teacher_identity
from rllib_llm_comm.teachers.label_store import ANSWERS, LabelStore

POLICIES = ("base", "random")
_ROWS_PER_PART = 256
_SECONDS_PER_PART = 30.0
# Settings with limits: counts of at least 1, shares between 0 and 1.
_COUNTS = (
    "target_labels", "max_decisions", "max_labels_per_prompt", "num_envs", "max_message_words", "max_empty_moments",
)  # fmt: skip
_SHARES = ("random_share", "teacher_share")


@dataclass(frozen=True)
class CollectionReport:
    """The result of a collection.

    Attributes:
        labels: Rows written.
        prompts: Distinct prompts among them.
        decisions: Decisions of agents in all roll-outs.
        episodes: Roll-outs begun.
        complete: Whether `target_labels` were reached (else `max_decisions` ended it); of a teacher with recorded
            labels, whether all of them were taken.
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
    random_share: float = 0.25,
    teacher_share: float = 0.5,
    num_envs: int = 16,
    max_message_words: int = 10,
    max_empty_moments: int = 100,
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
        max_decisions: Ends after so many decisions at the latest. With a larger number it goes on.
        max_labels_per_prompt: Most different messages kept of one observation.
        policy: `"base"`: the base model plays (Verco); `"random"`: every allowed action is as likely.
        base_model: The language model of `policy="base"`.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`: how its weights are held.
        device: Where it computes: `"cpu"`, `"cuda"`, ... or `"auto"` (a GPU where this process sees one).
        random_share: Share of actions that are drawn uniformly instead, so that more states are met. 0 in the
            paper; 0.25 (ours).
        teacher_share: Share of actions in which the teacher's own advice is followed, if it has one, so that late
            states are met, too. 0 in the paper; 0.5 (ours).
        num_envs: Games played side by side.
        max_message_words: Longer labels are cut. Verco: 10.
        max_empty_moments: Gives up when the teacher gave no label in so many moments in a row, >= 1; 100 (ours).
        seed: The same seed gives the same labels.
        progress: Called with the labels so far and the target.

    Raises:
        UserError: If a setting is not allowed, the folder is damaged, or the teacher seems dead or useless: all labels
            so far are on disk then, and the next call goes on.
    """
    check_limits(
        {
            "policy": policy, "target_labels": target_labels, "max_decisions": max_decisions,
            "max_labels_per_prompt": max_labels_per_prompt, "num_envs": num_envs, "seed": seed,
            "max_message_words": max_message_words, "max_empty_moments": max_empty_moments,
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
        "dtype": dtype,
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
    collector = _Collector(
        store,
        teacher,
        settings,
        _player(policy, base_model, dtype, device),
        (random_share, teacher_share),
        max_empty_moments,
    )
    while store.labels < target_labels and collector.decisions < max_decisions:
        collector.play_round(target_labels, progress)
    store.flush(collector.state(), complete=store.labels >= target_labels)
    return CollectionReport(
        labels=store.labels,
        prompts=store.prompts,
        decisions=collector.decisions,
        episodes=collector.round * num_envs,
        complete=store.labels >= target_labels,
        output=str(store.folder),
    )


def _take_recorded(
    store: LabelStore, teacher: Teacher, settings: Mapping[str, Any], recorded: Iterator[dict[str, Any]]
) -> CollectionReport:
    """Labels of a teacher that has them already; all of them, up to `target_labels`."""
    common = {"teacher": teacher.name, "env": _env_text(settings)}
    decisions, episodes = 0, set()
    for row in recorded:
        decisions += 1
        episodes.add(row["episode"])
        message = limit_words(row["message"], settings["max_message_words"])
        if message and store.labels < settings["target_labels"]:
            store.add({**row, "message": message, **common})
    if not store.labels:
        raise UserError(f"`teacher` {teacher.name!r} has no labels: nobody said anything in what it was given.")
    state = {"round": 0, "decisions": decisions}
    store.flush(state, complete=True)
    return CollectionReport(store.labels, store.prompts, decisions, len(episodes), True, str(store.folder))


def _env_text(settings: Mapping[str, Any]) -> str:
    return json.dumps({"id": settings["env"], "settings": settings["env_config"]}, sort_keys=True)


def check_limits(settings: Mapping[str, Any], prefix: str = "") -> None:
    """Checks the values of those settings of `collect_labels` that are given.

    Args:
        settings: Name -> value of the right type, or `None`; unknown names are passed over.
        prefix: Text before the setting's name in messages, such as "config.".

    Raises:
        UserError: At the first value that is not allowed.
    """
    if "policy" in settings:
        require_choice(f"{prefix}policy", settings["policy"], POLICIES)
    for name, least in (*((count, 1) for count in _COUNTS), ("seed", 0)):
        value = settings.get(name, least)
        if value is None or value < least:
            raise UserError(f"`{prefix}{name}` is {value!r} but must be at least {least}.")
    for name in _SHARES:
        share = settings.get(name, 0.0)
        if share is None or not 0.0 <= share <= 1.0:
            raise UserError(f"`{prefix}{name}` is {share!r} but must be between 0 and 1.")


def _player(policy: str, base_model: str, dtype: str, device: str) -> Any:
    if policy == "random":
        return None
    from rllib_llm_comm.teachers.initial_policy import InitialPolicy

    return InitialPolicy(base_model, dtype=dtype, device=device)


class _Collector:
    def __init__(
        self,
        store: LabelStore,
        teacher: Teacher,
        settings: Mapping[str, Any],
        player: Any,
        shares: tuple[float, float],
        max_empty_moments: int,
    ) -> None:
        self._store, self._teacher, self._player = store, teacher, player
        self._shares = shares
        self._empty, self._most_empty = 0, max_empty_moments
        self._settings = settings
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
        self._row = {
            "teacher": teacher.name,
            "env": _env_text(settings),
        }

    def state(self) -> dict[str, int]:
        """The round and decision from which a collection goes on."""
        return {"round": self.round, "decisions": self.decisions}

    def play_round(self, target: int, progress: Callable[[int, int], None] | None) -> None:
        """One episode in every environment.

        Parts are written on the way and also when the teacher gives up, so that answers that were paid for are
        on disk. An interrupted round is played again from its start: rounds are seeded by their number, and rows
        that are there already are not taken twice.
        """
        begun = self.state()
        try:
            with self._store.saving(begun, _SECONDS_PER_PART):
                self._play(target, progress, begun)
        except BaseException:
            self._store.flush(begun)
            raise
        self.round += 1
        self._store.flush(self.state())

    def _play(self, target: int, progress: Callable[[int, int], None] | None, begun: Mapping[str, int]) -> None:
        rng = np.random.default_rng([self._settings["seed"], self.round])
        games, contracts = [], {}
        for number, env in enumerate(self._envs):
            episode = self.round * len(self._envs) + number
            contracts[episode] = GameContract(env)
            observations, infos = contracts[episode].reset(seed=int(rng.integers(2**31)))
            games.append((episode, env, observations, infos))
        while games:
            turns = []
            for episode, env, observations, infos in games:
                choosing = asked([agent for agent in observations if agent in env.agents], infos)
                self._label(episode, env, observations, infos, choosing, rng)
                turns.append(choosing)
            actions = self._act(games, turns, rng)
            following = []
            for (episode, env, _, _), chosen in zip(games, actions, strict=True):
                observations, _, _, _, infos = contracts[episode].step(chosen)
                if env.agents:
                    following.append((episode, env, observations, infos))
            games = following
            if progress:
                progress(min(self._store.labels, target), target)
            if self._store.labels >= target:
                break
            if self._store.buffered >= _ROWS_PER_PART:
                self._store.flush(begun)

    def _label(
        self,
        episode: int,
        env: Any,
        observations: Mapping[str, Any],
        infos: Mapping[str, Any],
        choosing: list[str],
        rng: np.random.Generator,
    ) -> None:
        game = env.unwrapped
        request = TeacherRequest(
            agents=tuple(observations),
            observations={a: str(o["text"]) for a, o in observations.items()},
            task=getattr(game, "task", ""),
            brief=getattr(game, "brief", ""),
            state=teacher_state(game),
        )
        messages = self._teacher.messages(request, rng=rng) if choosing else {}
        if choosing:
            self._watch(messages)
        for agent in choosing:
            message = limit_words(messages.get(agent, ""), self._settings["max_message_words"])
            if message:
                self._store.add(
                    {
                        "prompt": request.observations[agent],
                        "message": message,
                        "agent": agent,
                        "episode": episode,
                        "game_step": int(infos.get(agent, {}).get("game_step", 0)),
                        **self._row,
                    }
                )

    def _watch(self, messages: Mapping[str, str]) -> None:
        """Gives up a teacher that says nothing."""
        self._empty = 0 if any(messages.values()) else self._empty + 1
        if self._empty >= self._most_empty:
            counts = ", ".join(f"{name} {count}" for name, count in getattr(self._teacher, "counts", {}).items())
            raise UserError(
                f"`teacher` {self._teacher.name!r} gave no label in {self._empty} moments in a row"
                f"{f' ({counts})' if counts else ''}; {self._store.labels} labels are kept in "
                f"{str(self._store.folder)!r}. Mend the teacher, or raise `max_empty_moments`, and call again."
            )

    def _act(
        self, games: list[tuple[int, Any, Any, Any]], turns: list[list[str]], rng: np.random.Generator
    ) -> list[dict[str, int]]:
        actions: list[dict[str, int]] = [{} for _ in games]
        open_turns = []
        for number, ((_, env, observations, _), choosing) in enumerate(zip(games, turns, strict=True)):
            for agent in choosing:
                self.decisions += 1
                draw = rng.random()
                choice: int | None = None
                if draw < self._shares[1]:
                    choice = self._teacher.advise(env.unwrapped, agent)
                if choice is None and (self._player is None or draw >= 1.0 - self._shares[0]):
                    choice = int(rng.choice(np.flatnonzero(observations[agent]["action_mask"])))
                if choice is None:
                    open_turns.append((number, agent, observations[agent]))
                else:
                    actions[number][agent] = choice
        if open_turns:
            chosen = self._player([observation for *_, observation in open_turns], rng)
            for (number, agent, _), action in zip(open_turns, chosen, strict=True):
                actions[number][agent] = action
        return actions
