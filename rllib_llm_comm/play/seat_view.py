"""The view of one seat for the page, as JSON: the sight of its agent, and nothing else of the game."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.envs.interface import PRIVATE, parts_of
from rllib_llm_comm.evaluation.frames import ansi_of, event_words, image_of
from rllib_llm_comm.evaluation.replay import headline
from rllib_llm_comm.play.table import Table

_MOST_NUMBERS = 256
_SHOWN = ("said", "heard", "candidates", "probabilities", "action", "value", "silent", "influence", "changed")


class SeatViews:
    """Views of a table; pictures are made once per moment.

    Args:
        table: The table.
        why: True if people may ask why agents did what they did.
        spectators: True if browsers without a seat are shown the game with the private facts of all seats; otherwise
            they are shown who sits where, and returns.
    """

    def __init__(self, table: Table, why: bool = True, spectators: bool = True) -> None:
        self._table, self._why, self._spectators = table, why, spectators
        self._pictures: dict[str, str] = {}
        self._made = (-1, -1)

    def view(self, seat: str | None) -> dict[str, Any]:
        """The view of a seat, or of somebody who watches.

        Args:
            seat: The agent's name; `None` to watch, which shows everything where there may be spectators.
        """
        table = self._table
        shown = seat is not None or self._spectators
        told: dict[str, Any] = {
            "episode": table.episodes,
            "moment": table.moments,
            "seed": table.seed,
            "step": max((int(info.get("game_step", 0)) for info in table.game.infos.values()), default=0),
            "over": table.over,
            "outcome": self._outcome() if table.over else "",
            "returns": {agent: _rounded(total) for agent, total in table.episode.returns.items()},
            "seats": [self._seat(agent) for agent in table.agents],
            "notice": table.notice,
            "you": seat,
            "picture": self._picture(seat) if shown else None,
            "ansi": "",
            "why": self._weighed() if shown else {},
            "log": self._log(seat) if shown else [],
            "hidden": not shown,
        }
        if not shown:
            return told
        if seat is None:
            told["ansi"] = "" if told["picture"] else ansi_of(table.env.unwrapped)
            told["texts"] = {agent: self._read(agent) for agent in table.agents}
            return told
        return {**told, **self._own(seat)}

    def _own(self, seat: str) -> dict[str, Any]:
        """The part that only the holder of a seat is shown."""
        table, game = self._table, self._table.env.unwrapped
        record = game_of(game)
        asked = not table.over and seat in table.asked()
        allowed: list[bool] = table.allowed(seat).tolist() if asked else []
        phrases = table.phrases(seat) if asked else []
        person = table.people[seat]
        return {
            **self._read(seat),
            "asked": asked,
            "chosen": person.action,
            "said": person.said,
            "heard": table.heard(seat),
            "options": [
                {"action": number, "phrase": phrase}
                for number, (phrase, may) in enumerate(zip(phrases, allowed, strict=True))
                if may
            ],
            "keys": load(record.keys)(game, seat) if record is not None and record.keys and asked else {},
        }

    def _weighed(self) -> dict[str, Any]:
        """The latest decision of each agent with all that it weighed; nothing where nobody may ask."""
        cards = self._table.why if self._why else {}
        return {agent: {key: card[key] for key in _SHOWN if key in card} for agent, card in cards.items()}

    def _read(self, agent: str) -> dict[str, str]:
        """An agent's observation in words."""
        game = self._table.game
        seen = game.observations.get(agent, {})
        parts, fact = parts_of(seen), game.infos.get(agent, {}).get(PRIVATE)
        text = str(parts["text"]) if "text" in parts else _numbers(parts.get("observation", seen))
        return {"text": text, "subgoal": str(parts.get("subgoal", "")), "told": str(fact or "")}

    def _seat(self, agent: str) -> dict[str, Any]:
        table = self._table
        person = table.people.get(agent)
        return {
            "agent": agent,
            "by": person.name if person else table.policy.seats[agent].settings.name,
            "person": person is not None,
            "thinking": agent in table.thinking(),
        }

    def _log(self, seat: str | None) -> list[dict[str, Any]]:
        """The lines that a seat knows: everybody's messages, its own actions, rewards and events."""
        lines = []
        for line in self._table.lines:
            own = seat in (None, line.agent)
            if own or line.said:
                lines.append(
                    {
                        "step": line.step,
                        "agent": line.agent,
                        "said": line.said,
                        "phrase": line.phrase if own else "",
                        "events": event_words(self._table.episode.game, line.events) if own else [],
                        "reward": _rounded(line.reward) if own else 0,
                    }
                )
        return lines

    def _outcome(self) -> str:
        return headline(self._table.episode)

    def _picture(self, seat: str | None) -> str | None:
        """The picture as a data URL; `None` where the game draws none for this seat."""
        now = (self._table.episodes, self._table.moments)
        if now != self._made:
            self._pictures, self._made = {}, now
        if (seat or "") not in self._pictures:
            pixels = self._pixels(seat)
            self._pictures[seat or ""] = "" if pixels is None else _data_url(pixels)
        return self._pictures[seat or ""] or None

    def _pixels(self, seat: str | None) -> np.ndarray | None:
        game = self._table.env.unwrapped
        if seat is None:
            return image_of(game)
        record = game_of(game)
        if record is None or not record.picture:
            return None
        pixels: np.ndarray = load(record.picture)(game, seat)
        return pixels


def _numbers(seen: Any) -> str:
    """Observations of games without words: their numbers, if a person can read so many."""
    if isinstance(seen, Mapping) or np.size(seen) > _MOST_NUMBERS:
        return ""
    return np.array2string(np.asarray(seen), precision=3, separator=", ", suppress_small=True)


def _rounded(number: float) -> float | str:
    """A number for JSON, which has no word for those that are not finite."""
    return round(float(number), 3) if math.isfinite(number) else str(number)


def _data_url(pixels: np.ndarray) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
