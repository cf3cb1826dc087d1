"""Collects message labels: the initial policy plays, a teacher says what each agent should say (Verco Algorithm 1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.language.chat_template import PLAIN, PROMPT_DATE
from rllib_llm_comm.language.message_words import limit_words
from rllib_llm_comm.language.prompt_sets import DEFAULT, read_prompts
from rllib_llm_comm.verco.teachers.base import Teacher, make_teacher, teacher_identity
from rllib_llm_comm.verco.teachers.collection import (
    CollectionReport,
    Collector,
    Game,
    TeacherInCollection,
    check_limits,
    env_text,
    random_action,
    take_recorded,
)
from rllib_llm_comm.verco.teachers.label_store import ANSWERS, LabelStore

POLICIES = ("base", "random")
# Settings with limits: counts of at least 1, shares between 0 and 1.
_COUNTS = (
    "target_labels", "max_decisions", "max_labels_per_prompt", "num_envs", "max_message_words", "max_empty_moments",
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
        from rllib_llm_comm.language.base_model import load_base_model, resolve_device
        from rllib_llm_comm.verco.teachers.initial_policy import InitialPolicy

        base = load_base_model(base_model, dtype, resolve_device(device), quantization)
        player = InitialPolicy(base.in_format(prompt_format, str(prompt_date)), read_prompts(prompts))
    shares = (random_share, teacher_share)
    collector = _LabelCollector(store, teacher, settings, player, shares, max_empty_moments)
    return collector.collect(target_labels, max_decisions, progress)


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
        for game in games:
            for agent, message in self._teacher.messages(game, self.store, rng).items():
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
