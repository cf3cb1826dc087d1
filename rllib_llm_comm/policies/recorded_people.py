"""People of recorded sessions as partners: in each situation they say and do what they did in the one most like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import read_session
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.envs.interface import ACTION_MASK, parts_of

_TEXT, _CANDIDATES = "text", "candidates"


class RecordedPeople:
    """A player that replays people. Nobody answers: it hears nothing, and its words fit the situation of the record.

    Situations are what a seat saw in words. The likeness of two is the share of their different words that they have
    in common. Of moments that are equally like the present one, one is drawn; a moment whose action is not allowed now
    is passed over. Where no recorded action is allowed, an allowed one is drawn uniformly.

    Args:
        folder: The folder of their session.

    Raises:
        UserError: If there is none, it is damaged, or no person chose anything in it.
    """

    def __init__(self, folder: str) -> None:
        self.session = read_session(folder)
        self._situations: list[frozenset[str]] = []
        self._did: list[tuple[str, str]] = []
        for episode in self.session.episodes:
            for moment in episode.moments:
                for agent, person in moment.people.items():
                    card = moment.agents.get(agent)
                    if card and agent in moment.actions and not person.forced and card["text"]:
                        self._situations.append(frozenset(str(card["text"]).split()))
                        self._did.append((str(card.get("phrase", "")), str(card.get("said", ""))))
        if not self._did:
            raise UserError(
                f"`policy` is {folder!r}, in which no person chose anything that was seen in words; give a session of "
                "`rllib play --record` in which somebody held a seat."
            )

    def require_game(self, env: Any) -> None:
        """Refuses a game that the people did not play.

        Raises:
            UserError: If it is another one.
        """
        record = game_of(env.unwrapped)
        if record is None or self.session.env not in record.entry_points:
            raise UserError(
                f"the session is of {self.session.env!r} but the game is {type(env.unwrapped).__name__}; take sessions "
                "of the same game."
            )

    def answer(self, seen: Mapping[str, Any], rng: np.random.Generator) -> tuple[int, str]:
        """The action and the message in a situation.

        Args:
            seen: The seat's observation.
            rng: Draws among moments that are equally like it.

        Raises:
            UserError: If it is not in words.
        """
        parts = parts_of(seen)
        if _TEXT not in parts or _CANDIDATES not in parts:
            raise UserError("recorded people play games that show themselves in words; this one shows none.")
        names = [str(phrase) for phrase in parts[_CANDIDATES]]
        mask = np.asarray(parts.get(ACTION_MASK, np.ones(len(names))), bool)
        allowed = {name: number for number, (name, free) in enumerate(zip(names, mask, strict=True)) if free}
        now = frozenset(str(parts[_TEXT]).split())
        likeness = np.array([len(now & one) / max(1, len(now | one)) for one in self._situations])
        usable = np.array([phrase in allowed for phrase, _ in self._did])
        if not usable.any():
            _, message = self._did[int(rng.choice(np.flatnonzero(likeness == likeness.max())))]
            return int(rng.choice(list(allowed.values()))), message
        ranked = np.where(usable, likeness, -1.0)
        phrase, message = self._did[int(rng.choice(np.flatnonzero(ranked == ranked.max())))]
        return allowed[phrase], message
