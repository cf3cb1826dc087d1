"""Replays: recorded episodes, of checkpoints or of sessions with people, as one HTML page or as an animated picture."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.session_files import Session, SessionEpisode, SessionMoment, read_session
from rllib_llm_comm.envs.drawing import COOK_COLOURS, INK, PAPER, Colour, font
from rllib_llm_comm.envs.games import game_of, without_subgoals
from rllib_llm_comm.envs.interface import parts_of
from rllib_llm_comm.evaluation.figures import render_page
from rllib_llm_comm.evaluation.frames import event_words, frame_of
from rllib_llm_comm.evaluation.play_settings import PlaySettings, ReplaySettings
from rllib_llm_comm.evaluation.replay_schema import (
    ReplayAgent,
    ReplayAttempt,
    ReplayDrawing,
    ReplayEpisode,
    ReplayFrame,
    ReplayPage,
    ReplayPicture,
    ReplaySide,
)
from rllib_llm_comm.evaluation.rollout import Episode
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.policy import make_recorded_game
from rllib_llm_comm.policies.policy_folder import find_policy
from rllib_llm_comm.policies.policy_manifest import read_manifest
from rllib_llm_comm.sama.plans import authors_in

TILE = 64
COLUMNS = 32
ROWS = 64
_PER_SHEET = COLUMNS * ROWS


class TileSheets:
    """Cuts pictures into square tiles and keeps each distinct tile once, on sheets.

    Games draw cells, most of which look the same from one moment to the next; a page with a long episode is a
    third to a tenth of what it would be with whole pictures.
    """

    def __init__(self) -> None:
        self._tiles: dict[bytes, int] = {}
        self._pictures: dict[tuple[int, ...], int] = {}
        self._layouts: list[ReplayPicture] = []

    def add(self, image: np.ndarray) -> int:
        """Takes a picture (H, W, 3) of uint8 values and gives its number; equal pictures have the same."""
        pixels = np.asarray(image, dtype=np.uint8)
        height, width = pixels.shape[:2]
        padding = ((0, -height % TILE), (0, -width % TILE), (0, 0))
        padded = np.pad(pixels[..., :3], padding, mode="edge")
        rows, columns = padded.shape[0] // TILE, padded.shape[1] // TILE
        blocks = padded.reshape(rows, TILE, columns, TILE, 3).swapaxes(1, 2).reshape(rows * columns, -1)
        numbers = tuple(self._tiles.setdefault(block.tobytes(), len(self._tiles)) for block in blocks)
        key = (width, height, *numbers)
        if key not in self._pictures:
            self._pictures[key] = len(self._layouts)
            self._layouts.append({"width": width, "height": height, "tiles": list(numbers)})
        return self._pictures[key]

    def layout(self) -> ReplayDrawing:
        """The layout of the sheets, and for each picture its size and its tiles, row by row."""
        return {"tile": TILE, "columns": COLUMNS, "per_sheet": _PER_SHEET, "pictures": self._layouts}

    def data_urls(self) -> list[str]:
        """The sheets, lossless."""
        tiles = list(self._tiles)
        return [_sheet(tiles[start : start + _PER_SHEET]) for start in range(0, len(tiles), _PER_SHEET)]


def _sheet(tiles: list[bytes]) -> str:
    rows = -(-len(tiles) // COLUMNS)
    columns = min(COLUMNS, len(tiles))
    pixels = np.zeros((rows * TILE, columns * TILE, 3), np.uint8)
    for number, tile in enumerate(tiles):
        y, x = TILE * (number // COLUMNS), TILE * (number % COLUMNS)
        pixels[y : y + TILE, x : x + TILE] = np.frombuffer(tile, np.uint8).reshape(TILE, TILE, 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="WEBP", lossless=True, method=6)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


_TALLEST = 560
_MOST_PAPER = 4000
_PANEL = 340
_MARGIN = 12
_BUBBLE = 150
_MOST_LINES = 3
_COLOURS = 200
_LAST = 3
"""Duration of the last moment, in moments."""
_WHITE: Colour = (255, 255, 255)
_SOFT: Colour = (133, 124, 112)
_SAID: Colour = (251, 233, 215)
_BAR: Colour = (226, 203, 170)
_QUIET: Colour = (125, 143, 163)

_Box = tuple[float, float, float, float]


def write_animation(episode: Episode, path: str | os.PathLike[str], *, milliseconds: int = 1600) -> Path:
    """Writes an episode as an animated GIF, a moment per frame.

    Messages stand in bubbles beside their speakers where the game tells where they are (`Game.places`), and in the
    panel at the right in any case. The panel's bar is the probability of the chosen action; the thin bar below it is
    what it would have been in silence.

    Args:
        episode: A recorded episode (`record`).
        path: The file; it appears at once or not at all.
        milliseconds: Duration of each moment.

    Returns:
        The path.

    Raises:
        UserError: If the game draws no pictures.
    """
    images = [frame["image"] for frame in episode.frames if frame["image"] is not None]
    if not images or len(images) < len(episode.frames):
        raise UserError(f"{episode.env_id!r} draws no pictures, so there is no animation; omit it.")
    drawn = [_moment(episode, number, image) for number, image in enumerate(images)]
    size = drawn[0].width, max(picture.height for picture in drawn)
    shown = [Image.new("RGB", size, PAPER[:3]) for _ in drawn]
    for page, picture in zip(shown, drawn, strict=True):
        page.paste(picture)
    palette = _side_by_side(shown).quantize(_COLOURS)
    few = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in shown]
    durations = [milliseconds] * (len(few) - 1) + [_LAST * milliseconds]
    stream = io.BytesIO()
    few[0].save(stream, "GIF", save_all=True, append_images=few[1:], duration=durations, loop=0, optimize=True)
    target = local_path(path)
    write_atomically(target, stream.getvalue())
    return target


def _side_by_side(pictures: Sequence[Image.Image]) -> Image.Image:
    """A few moments in one picture, whose colours all share."""
    few = [pictures[0], pictures[len(pictures) // 2], pictures[-1]]
    whole = Image.new("RGB", (sum(picture.width for picture in few), few[0].height))
    for number, picture in enumerate(few):
        whole.paste(picture, (number * few[0].width, 0))
    return whole


def _moment(episode: Episode, number: int, image: np.ndarray) -> Image.Image:
    """A moment, as tall as it needs to be; pictures too small to be seen are enlarged."""
    frame = episode.frames[number]
    game = Image.fromarray(image).convert("RGB")
    small = game.height < _TALLEST
    scale = max(1, _TALLEST // (2 * game.height)) if small else _TALLEST / game.height
    way = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    game = game.resize((round(game.width * scale), round(game.height * scale)), way)
    colours = {agent: COOK_COLOURS[k % len(COOK_COLOURS)] for k, agent in enumerate(episode.agents)}
    draw, taken = ImageDraw.Draw(game), list[_Box]()
    for agent, (x, y) in frame["places"].items():
        part = frame["agents"].get(agent)
        if part and (said := part.get("said")):
            _bubble(draw, game.size, (x * scale, y * scale), _lines(said, _BUBBLE, 15), colours[agent], taken)
    whole = Image.new("RGB", (game.width + _PANEL, max(game.height, _MOST_PAPER)), PAPER[:3])
    whole.paste(game, (0, 0))
    pen = ImageDraw.Draw(whole)
    left, top = game.width + _MARGIN, float(_MARGIN)
    over = number == len(episode.frames) - 1
    for agent in episode.agents:
        if agent in frame["agents"]:
            busy = "" if over else _latest(episode.frames[:number], agent)
            top = _speaker_card(pen, (left, top), agent, colours[agent], frame["agents"][agent], busy)
    if over:
        end = f"{headline(episode)} after {episode.length} game steps"
        pen.text((left, top + 4), end, fill=INK, font=font(20))
        top += 32
    return whole.crop((0, 0, whole.width, min(whole.height, max(game.height, round(top)))))


def _latest(frames: Sequence[Mapping[str, Any]], agent: str) -> str:
    """The action that an agent began last."""
    phrases = [frame["agents"].get(agent, {}).get("phrase") for frame in frames]
    return next((phrase for phrase in reversed(phrases) if phrase), "")


def _bubble(
    draw: ImageDraw.ImageDraw,
    size: tuple[int, int],
    place: tuple[float, float],
    lines: Sequence[str],
    colour: Colour,
    taken: list[_Box],
) -> None:
    """A message above its speaker's head, or below where that would leave the picture or cover another bubble."""
    written = font(15)
    width, height = max(written.getlength(line) for line in lines) + 18, 19 * len(lines) + 10
    x = min(max(place[0] - width / 2, 4), size[0] - width - 4)
    above, below = ((x, y, x + width, y + height) for y in (place[1] - height - 12, place[1] + 68))
    fits = above[1] >= 4 and not any(_overlap(above, other) for other in taken)
    box = above if fits or below[3] > size[1] - 4 else below
    taken.append(box)
    foot, tip = (box[3] - 2, place[1]) if box is above else (box[1] + 2, place[1] + 56)
    middle = min(max(place[0], box[0] + 16), box[2] - 16)
    draw.rounded_rectangle(box, 10, fill=_WHITE, outline=colour, width=2)
    draw.polygon([(middle - 7, foot), (middle + 7, foot), (place[0], tip)], fill=_WHITE)
    draw.line([(middle - 7, foot), (place[0], tip), (middle + 7, foot)], fill=colour, width=2, joint="curve")
    for row, line in enumerate(lines):
        draw.text((box[0] + 9, box[1] + 5 + 19 * row), line, fill=INK, font=written)


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _speaker_card(
    pen: ImageDraw.ImageDraw, corner: tuple[float, float], name: str, colour: Colour, card: Mapping[str, Any], busy: str
) -> float:
    """Draws an agent's private fact, message and action; returns the height at which the next card begins."""
    left, top = corner
    width = _PANEL - 2 * _MARGIN
    pen.text((left, top), _plain(name).capitalize(), fill=colour, font=font(22))
    top += 32
    if "told" in card:
        top = _line(pen, (left, top), "is told", card["told"] or "nothing")
    if card["busy"]:
        return _line(pen, (left, top), "goes on with" if busy else "", busy) + 26
    top = _line(pen, (left, top), "says", card["said"] or "nothing", _SAID if card["said"] else None)
    top = _line(pen, (left, top), "does", card["phrase"])
    share = card["probabilities"][card["action"]]
    pen.rectangle((left, top + 2, left + width * share, top + 18), fill=_BAR)
    pen.text((left + 5, top + 2), f"{100 * share:.0f} % likely", fill=INK, font=font(14))
    if "silent" in card:
        without = card["silent"][card["action"]]
        pen.rectangle((left, top + 20, left + width * without, top + 25), fill=_QUIET)
        pen.text((left, top + 29), f"in silence {100 * without:.0f} %", fill=_SOFT, font=font(14))
    return top + 66


def _line(
    pen: ImageDraw.ImageDraw, corner: tuple[float, float], label: str, text: str, fill: Colour | None = None
) -> float:
    left, top = corner
    if not label:
        return top
    pen.text((left, top + 2), label, fill=_SOFT, font=font(14))
    indent = left + (96 if label == "goes on with" else 52)
    for line in _lines(text, _PANEL - _MARGIN - 12 - round(indent - left), 16):
        if fill is not None:
            width = font(16).getlength(line)
            pen.rounded_rectangle((indent - 6, top - 1, indent + width + 6, top + 20), 8, fill=fill)
        pen.text((indent, top), line, fill=INK, font=font(16))
        top += 22
    return top + 3


def _lines(text: str, width: int, size: int) -> list[str]:
    """A text in lines that fit; what goes beyond is cut."""
    lines = [""]
    for word in _plain(text).split():
        longer = f"{lines[-1]} {word}".strip()
        if font(size).getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    kept = [_cut(line, width, size) for line in lines[:_MOST_LINES]]
    return kept if len(lines) <= _MOST_LINES else [*kept[:-1], _cut(kept[-1] + " ...", width, size)]


def _cut(line: str, width: int, size: int) -> str:
    while line and font(size).getlength(line) > width:
        line = line[:-1]
    return line


def _plain(text: str) -> str:
    """Without characters that cannot be drawn in a line."""
    return "".join(c if c.isprintable() else " " for c in text)


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
        stand_ins: What stands in for what the papers use (`evaluation.stand_ins`).

    Returns:
        The path.
    """
    sides = {"": [episodes] if isinstance(episodes, Episode) else episodes}
    return write_comparison(sides, path, title=title, stand_ins=stand_ins)


def write_comparison(
    sides: Mapping[str, Sequence[Episode]],
    path: str | os.PathLike[str],
    *,
    title: str,
    stand_ins: Sequence[str] = (),
) -> Path:
    """Writes a page of two runs beside each other, which go on together by the game's clock.

    `sides` are names and recorded episodes with the same seeds; all else is as of `write_replay`.
    """
    sheets, target = TileSheets(), local_path(path)
    recorded: list[ReplaySide] = [
        {"title": name, "episodes": [_episode(episode, sheets) for episode in episodes]}
        for name, episodes in sides.items()
    ]
    data: ReplayPage = {"sides": recorded, "drawing": sheets.layout()}
    told = {"title": title, "stand_ins": list(stand_ins), "data": _json_for_html(data), "sheets": sheets.data_urls()}
    write_atomically(target, render_page("replay.html", {}, **told))
    return target


def _json_for_html(data: Any) -> Any:
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    # Inside <script type="application/json"> only these could end the element or open a comment.
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def headline(episode: Episode) -> str:
    """The outcome of an episode: what the game counts itself, or whether it was solved, in the game's words."""
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
    told = {}
    for name, value in settings.items():
        if isinstance(value, str | int | float | bool):
            told[name] = value
        elif isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value):
            told[name] = " or ".join(value)
    return told


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
        "subgoals": [
            {
                "agent": one["agent"],
                "subgoal": one["subgoal"],
                "reason": one["reason"],
                "answered_by": one["answered_by"],
                "end": ends.get(one["agent"], ""),
            }
            for one in plan["subgoals"]
        ],
        "refused": plan["refused"],
        "kept": attempt["kept"],
        "returns": round(float(np.mean(list(attempt["returns"].values()) or [0.0])), 3),
        "unplanned": attempt["unplanned"],
        "blamed": "" if reflection is None else reflection["phase"],
        "blamed_by": "" if reflection is None else reflection["answered_by"],
        "why": "" if reflection is None else reflection["why"],
        "thoughts": "" if reflection is None else reflection["thoughts"],
    }


def replay_session(path: str | Path, page: str | Path, *, trust: bool = False) -> Path:
    """Writes a replay page of a recorded session, and gives its path.

    Args:
        path: The session's folder.
        page: The file to write; it appears at once or not at all.
        trust: True if recorded settings that reach beyond this program are used as they are.

    Raises:
        UserError: If the session cannot be read, has no played episode, or its games cannot be played again.
    """
    session = read_session(path)
    played = [played_again(session, one, trust) for one in session.episodes if one.moments]
    if not played:
        raise UserError(f"{str(path)!r} has no played episode; record a session in which somebody acts.")
    return write_replay(played, page, title="A session with people", stand_ins=session.stand_ins)


def played_again(session: Session, recorded: SessionEpisode, trust: bool = False) -> Episode:
    """An episode of a session with its drawings, which come from playing it again.

    Raises:
        UserError: If the game does not come out as it was recorded, or a recorded setting is withheld.
    """
    env = make_recorded_game(session.env, session.env_config, trust=trust)
    game = game_of(env.unwrapped)
    episode = Episode(
        session.env,
        session.env_config,
        session.agents,
        recorded.seed,
        returns=dict.fromkeys(session.agents, 0.0),
        game=game.name if game else "",
    )
    for moment, now in moments_again(env, recorded):
        for agent, reward in now.rewards.items():
            episode.returns[str(agent)] += float(reward)
        frame = frame_of(env, now.observations, now.infos, {}, now.rewards)
        if moment is not None:
            frame["agents"] = {agent: _card(moment, agent) for agent in moment.agents}  # type: ignore[misc]
            episode.messages += [card["said"] for card in moment.agents.values() if card.get("said")]
        episode.frames.append(frame)
    episode.length = episode.frames[-1]["game_step"]
    episode.metrics, episode.success = dict(recorded.metrics), recorded.success
    episode.no_silence = "" if any("silent" in c for m in recorded.moments for c in m.agents.values()) else "not scored"
    env.close()
    return episode


def moments_again(env: Any, recorded: SessionEpisode) -> Iterator[tuple[SessionMoment | None, PlayedGame]]:
    """Plays a recorded episode again in its game, as of `make_recorded_game`.

    Yields:
        Each moment with the game as it is then; at last `None` with the game as it ended.

    Raises:
        UserError: If the game does not come out as it was recorded.
    """
    game = PlayedGame(env, recorded.seed)
    for number, moment in enumerate(recorded.moments):
        _require_same(game, moment, number)
        yield moment, game
        game.advance(moment.actions)
    yield None, game


def _card(moment: SessionMoment, agent: str) -> Any:
    person = moment.people.get(agent)
    if person is None:
        return moment.agents[agent]
    return {**moment.agents[agent], "by": f"the clock, not {person.name}" if person.forced else person.name}


def _require_same(game: PlayedGame, moment: SessionMoment, number: int) -> None:
    for agent, card in moment.agents.items():
        text = str(parts_of(game.observations.get(agent)).get("text", ""))
        if game.over or text != card.get("text", ""):
            raise UserError(
                f"moment {number} of episode {moment.episode} does not come out as it was recorded ({agent} sees "
                "another text); replay the session with the version of the game that recorded it."
            )
    missing = [agent for agent in game.asked if agent not in moment.actions]
    if missing:
        raise UserError(
            f"moment {number} of episode {moment.episode} has no action of {missing[0]!r}, so the session is damaged; "
            "give one that is as it was recorded."
        )


def replay_checkpoint(
    checkpoint: str | Path,
    page: str | Path,
    settings: PlaySettings | None = None,
    *,
    beside: str | Path | None = None,
    animation: Path | None = None,
    watch: Callable[[Sequence[Episode]], None] | None = None,
    tell: Callable[[Sequence[str]], None] | None = None,
    **given: Any,
) -> Path:
    """Records episodes of a checkpoint as a self-contained HTML page. Needs no Ray.

    Args:
        checkpoint: A checkpoint, trial, stage or run folder (`find_checkpoint`).
        page: The file to write; it appears at once or not at all.
        settings: The play and what is shown; `None` for the defaults.
        beside: Another checkpoint, whose episodes with the same seeds are shown beside these; it keeps its own message
            mode.
        animation: File of an animated picture (GIF) of the first episode; `None` for none.
        watch: Called with the checkpoint's episodes once they are played, such as to tell who planned them.
        tell: Called with what stands in, before the first episode of each checkpoint.
        **given: Fields of `ReplaySettings` such as `episodes`, above those of `settings`.

    Returns:
        The page's path.

    Raises:
        UserError: If a checkpoint cannot be loaded or played, `beside` is one of another game, or the game draws no
            pictures for an animation.
    """
    chosen = ReplaySettings.like(settings, **given)
    phrases: dict[str, None] = {}

    def play(path: str | Path, how: ReplaySettings) -> list[Episode]:
        """Plays the episodes with a checkpoint; what stands in for its models is told once."""
        policy = how.load(path)
        found = [phrase for phrase in chosen.stand_ins(policy) if phrase not in phrases]
        phrases.update(dict.fromkeys(found))
        if tell is not None:
            tell(found)
        return chosen.play(
            policy,
            episodes=chosen.episodes,
            seed=chosen.seed,
            keep_frames=True,
            counterfactuals=chosen.counterfactuals,
        )

    if beside is not None:
        games = [read_manifest(find_policy(one)).env for one in (checkpoint, beside)]
        if len({without_subgoals(str(game), {})[0] for game in games}) > 1:
            raise UserError(
                f"`beside` is {str(beside)!r}, which was trained in {games[1]!r}, but {str(checkpoint)!r} in "
                f"{games[0]!r}; give a checkpoint of the same game, or write two pages."
            )
    played = play(checkpoint, chosen)
    if watch is not None:
        watch(played)
    if animation is not None:
        write_animation(played[0], animation)
    if beside is None:
        return write_replay(played, page, stand_ins=list(phrases))
    names = name_apart(str(find_checkpoint(checkpoint)), str(find_checkpoint(beside)))
    other = play(beside, chosen.replace(messages=None))
    sides = dict(zip(names, (played, other), strict=True))
    return write_comparison(sides, page, title="Side by side", stand_ins=list(phrases))


def name_apart(one: str, two: str) -> tuple[str, str]:
    """Names of two runs: the first parts in which the paths of their checkpoints differ, or the whole paths."""
    parts, others = Path(one).parts, Path(two).parts
    for part, other in zip(parts, others, strict=False):
        if part != other:
            return part, other
    return (one, two) if one != two else ("one", "the same once more")
