"""Replay pages: one self-contained HTML file that plays recorded episodes, offline."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.evaluation.frames import event_words
from rllib_llm_comm.evaluation.replay_schema import (
    ReplayAgent,
    ReplayAttempt,
    ReplayEpisode,
    ReplayFrame,
    ReplayPage,
    ReplaySide,
    ReplaySubgoal,
)
from rllib_llm_comm.evaluation.rollout import Episode
from rllib_llm_comm.evaluation.tiles import TileSheets
from rllib_llm_comm.sama.answer_counts import authors_in

# Figures that the tree of plans shows in full.
_OF_PLANS = ("plan", "subgoals_", "rewards_", "assignments_by_", "reflections_by_", "judgements_by_", "messages_by_")
# A count with at most so many values, such as "won", needs no curve.
_LEVELS = 2


def write_replay(
    episodes: Episode | Sequence[Episode],
    path: str | os.PathLike[str],
    *,
    title: str = "Replay",
    stand_ins: Sequence[str] = (),
) -> Path:
    """Writes a page that shows episodes frame by frame: the game, what everyone saw, said, heard and weighed.

    The page needs nothing but itself: no network, no other file. Texts of language models are data in it and are shown
    as text only. Its JSON has the schema of `replay_schema.ReplayPage`.

    Args:
        episodes: Recorded episodes (`record`).
        path: The file; it appears at once or not at all.
        title: Heading of the page.
        stand_ins: What stands in for what the papers use (`agents.stand_ins`).

    Returns:
        The path.
    """
    sides = {"": [episodes] if isinstance(episodes, Episode) else list(episodes)}
    return _write(sides, local_path(path), title, stand_ins)


def write_comparison(
    sides: Mapping[str, Sequence[Episode]],
    path: str | os.PathLike[str],
    *,
    title: str,
    stand_ins: Sequence[str] = (),
) -> Path:
    """Writes a page of two runs beside each other, which go on together by the game's clock.

    Args:
        sides: Name -> recorded episodes with the same seeds.
        path: The file.
        title: Heading of the page.
        stand_ins: As of `write_replay`.

    Returns:
        The path.
    """
    return _write({name: list(episodes) for name, episodes in sides.items()}, local_path(path), title, stand_ins)


def _write(sides: Mapping[str, Sequence[Episode]], target: Path, title: str, stand_ins: Sequence[str]) -> Path:
    from jinja2 import Environment

    sheets = TileSheets()
    recorded: list[ReplaySide] = [
        {"title": name, "episodes": [_episode(episode, sheets) for episode in episodes]}
        for name, episodes in sides.items()
    ]
    data: ReplayPage = {"sides": recorded, "drawing": sheets.layout()}
    template = resources.files(__package__).joinpath("templates/replay.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True).from_string(template)
    text = page.render(title=title, stand_ins=list(stand_ins), data=_json_for_html(data), sheets=sheets.data_urls())
    write_atomically(target, text)
    return target


def _json_for_html(data: Any) -> Any:
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    # Inside <script type="application/json"> only these could end the element or open a comment.
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def headline(episode: Episode) -> str:
    """The outcome of an episode: what the game counts itself, or whether it was solved, in the game's words.

    Args:
        episode: The episode.
    """
    counted = {name: value for name, value in episode.metrics.items() if not name.startswith(_OF_PLANS)}
    if counted:
        return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in counted.items())
    return episode.words[0] if episode.success else episode.words[1]


def _frames(episode: Episode, sheets: TileSheets) -> list[ReplayFrame]:
    totals = dict.fromkeys(episode.agents, 0.0)
    # The sums of rewards begin again with a round that begins again.
    begins = {attempt["frame"]: (attempts, attempt) for attempts in episode.rounds for attempt in attempts}
    before: dict[int, dict[str, float]] = {}
    latest: Mapping[str, Any] | None = None
    frames: list[ReplayFrame] = []
    for number, frame in enumerate(episode.frames):
        attempts, latest = begins.get(number, (None, latest))
        if attempts is not None and latest is not attempts[0]:
            totals = dict(before[attempts[0]["frame"]])
        cards: dict[str, ReplayAgent] = {}
        for agent, card in frame["agents"].items():
            totals[agent] = totals.get(agent, 0.0) + card["reward"]
            told = {"events": event_words(episode.game, card["events"]), "reward": round(card["reward"], 4)}
            cards[agent] = {**card, **told, "total": round(totals[agent], 4)}  # type: ignore[typeddict-item]
        before[number] = dict(totals)
        frames.append(
            {
                "step": frame["game_step"],
                "ansi": "" if frame["image"] is not None else frame["ansi"],
                "picture": None if frame["image"] is None else sheets.add(frame["image"]),
                "agents": cards,
                "undone": latest is not None and not latest["kept"],
            }
        )
    return frames


def _episode(episode: Episode, sheets: TileSheets) -> ReplayEpisode:
    return {
        "env": episode.env_id,
        "settings": _settings(episode.settings),
        "agents": episode.agents,
        "seed": episode.seed,
        "team_return": round(float(np.mean(list(episode.returns.values()) or [0.0])), 3),
        "headline": headline(episode),
        "length": episode.length,
        "frames": _frames(episode, sheets),
        "curves": _curves(episode),
        "rounds": [[_attempt(attempt) for attempt in attempts] for attempts in episode.rounds],
        "answers": _answers(episode),
        "influence": _influence(episode),
    }


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a line can tell; of a list of names all are told."""
    plain = {name: " or ".join(v) if _is_names(v) else v for name, v in settings.items()}
    return {name: value for name, value in plain.items() if isinstance(value, str | int | float | bool)}


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)


def _curves(episode: Episode) -> dict[str, list[float]]:
    """The game's counts that change more than once, over the frames, and the influence of messages."""
    counted = [frame.get("metrics", {}) for frame in episode.frames]
    names = [name for name in (counted[-1] if counted else {}) if not name.startswith(_OF_PLANS)]
    curves = {name: [round(metrics.get(name, 0.0), 4) for metrics in counted] for name in names}
    for agent in episode.agents:
        parts = [frame["agents"].get(agent) for frame in episode.frames]
        if any(part and "influence" in part for part in parts):
            course = [part.get("influence", 0.0) if part else 0.0 for part in parts]
            curves[f"influence of messages on {agent}"] = course
    return {name: values for name, values in curves.items() if len(set(values)) > _LEVELS and np.isfinite(values).all()}


def _influence(episode: Episode) -> str:
    """The influence of messages over the episode in one line, or the reason why it is not known."""
    cards = [(agent, card) for frame in episode.frames for agent, card in frame["agents"].items()]
    if not any(card.get("heard") for _, card in cards):
        return "Nobody heard a message here, so there is no influence of messages to show."
    if episode.no_silence:
        return f"Messages were heard; {episode.no_silence}."
    told = []
    for agent in episode.agents:
        own = [card for name, card in cards if name == agent and "influence" in card]
        if own:
            mean, changed = np.mean([card["influence"] for card in own]), sum(card["changed"] for card in own)
            told.append(
                f"{agent} {mean:.2f} over {len(own)} decisions, another most likely action than in silence in {changed}"
            )
    return f"Mean influence of messages (total variation, 0 to 1): {'; '.join(told)}."


def _answers(episode: Episode) -> list[str]:
    """The counts of authors, such as "assignments: model 3, rules 4", whose answers they are, and `fallback`."""
    told = []
    for what in ("plans", "assignments", "subgoals", "reflections", "judgements"):
        authors = authors_in(episode.metrics, what)
        if authors:
            told.append(f"{what}: {', '.join(f'{who} {count:g}' for who, count in authors.items())}")
    plans = [attempt["plan"] for attempts in episode.rounds for attempt in attempts]
    told += [f"answers from: {source}" for source in sorted({plan.get("source", "") for plan in plans} - {""})]
    return told + [f"fallback: {fallback}" for fallback in sorted({plan["fallback"] for plan in plans} - {""})]


def _attempt(attempt: Mapping[str, Any]) -> ReplayAttempt:
    """A plan and its outcome."""
    plan, ends = attempt["plan"], {outcome["agent"]: outcome["how"] for outcome in attempt["outcomes"]}
    reflection = attempt["reflection"]
    return {
        "frame": attempt["frame"],
        "goal": plan["goal"],
        "reason": plan["reason"],
        "by": plan["answered_by"],
        "subgoals": [_subgoal(one, ends.get(one["agent"], "")) for one in plan["subgoals"]],
        "refused": plan["refused"],
        "kept": attempt["kept"],
        "returns": round(float(np.mean(list(attempt["returns"].values()) or [0.0])), 3),
        "unplanned": attempt["unplanned"],
        "blamed": "" if reflection is None else reflection["phase"],
        "blamed_by": "" if reflection is None else reflection["answered_by"],
        "why": "" if reflection is None else reflection["why"],
        "thoughts": "" if reflection is None else reflection["thoughts"],
    }


def _subgoal(told: Mapping[str, Any], end: str) -> ReplaySubgoal:
    return {
        "agent": told["agent"],
        "subgoal": told["subgoal"],
        "reason": told["reason"],
        "answered_by": told["answered_by"],
        "end": end,
    }
