"""An episode as one animated picture: the game with speech bubbles, and beside it each agent's message and action."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.envs.drawing import COOK_COLOURS, INK, PAPER, Colour, font
from rllib_llm_comm.evaluation.replay import headline
from rllib_llm_comm.evaluation.rollout import Episode

_TALLEST = 560
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
        raise UserError(f"{episode.env_id!r} draws no pictures, so there is no animation; leave it out.")
    shown = [_moment(episode, number, image) for number, image in enumerate(images)]
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
    frame = episode.frames[number]
    game = Image.fromarray(image).convert("RGB")
    scale = min(1.0, _TALLEST / game.height)
    game = game.resize((round(game.width * scale), round(game.height * scale)), Image.Resampling.LANCZOS)
    colours = {agent: COOK_COLOURS[k % len(COOK_COLOURS)] for k, agent in enumerate(episode.agents)}
    draw, taken = ImageDraw.Draw(game), list[_Box]()
    for agent, (x, y) in frame["places"].items():
        part = frame["agents"].get(agent)
        if part and (said := part.get("said")):
            _bubble(draw, game.size, (x * scale, y * scale), _lines(said, _BUBBLE, 15), colours[agent], taken)
    whole = Image.new("RGB", (game.width + _PANEL, game.height), PAPER[:3])
    whole.paste(game, (0, 0))
    pen = ImageDraw.Draw(whole)
    left, top = game.width + _MARGIN, float(_MARGIN)
    over = number == len(episode.frames) - 1
    for agent in episode.agents:
        if agent in frame["agents"]:
            busy = "" if over else _latest(episode.frames[:number], agent)
            top = _card(pen, (left, top), agent, colours[agent], frame["agents"][agent], busy)
    if over:
        end = f"{headline(episode)} after {episode.length} game steps"
        pen.text((left, top + 4), end, fill=INK, font=font(20))
    return whole


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


def _card(
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
