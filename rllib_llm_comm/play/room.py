"""The table with its clock and everybody who sits at it or watches; one per server."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.play.table import SeatViews, Table

SPEEDS = (0.1, 50.0)
"""Least and most moments per second."""
MOST_SEED = 2**31 - 1
logger = logging.getLogger(__name__)
_FAULT = "A fault of the program stopped the game; its console tells it."
_MOST_WAITING = 32
_STEERING = ("pause", "step", "restart", "speed", "clock")


@dataclass(frozen=True)
class ServerLimits:
    """Bounds of one server.

    Attributes:
        most_connections: Browsers at a time.
        most_bytes: Longest message of a browser, in bytes.
        commands_per_second: Commands of one browser, on average; twice as many may come at once.
        idle_minutes: Minutes without a command after which a seat is given back and the browser sent away.
        most_episodes: Episodes until the server has to be started anew.
        send_seconds: Longest time that a browser may take for one message before its seat is given back.
        most_strangers: Connections at a time that have not yet shown the token; the oldest makes room for a new one.
        stranger_seconds: Longest time of such a connection.
    """

    most_connections: int = 16
    most_bytes: int = 4096
    commands_per_second: float = 30.0
    idle_minutes: float = 60.0
    most_episodes: int = 1000
    send_seconds: float = 20.0
    most_strangers: int = 64
    stranger_seconds: float = 10.0


class BrowserWire(Protocol):
    """The way to one browser."""

    async def send_text(self, data: str) -> None:
        """Sends a text."""


@dataclass(eq=False)
class Guest:
    """A browser. What it is told waits here, so that a browser that takes nothing keeps nobody else waiting.

    Attributes:
        wire: The way to it.
        seat: The seat that it holds; `None` while it watches.
        host: True if it is the browser of who started the server.
    """

    wire: BrowserWire
    seat: str | None = None
    host: bool = False
    _waiting: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_WAITING))  # a slow one misses old views
    _told: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, told: Mapping[str, Any]) -> None:
        """Puts a message down for it."""
        self._waiting.append(json.dumps(told, default=_plain))
        self._told.set()

    async def deliver(self, seconds: float) -> None:
        """Sends what waits, until a message cannot be sent; then the browser is gone.

        Args:
            seconds: Longest time that the browser may take for one message.
        """
        while True:
            await self._told.wait()
            self._told.clear()
            while self._waiting:
                try:
                    await asyncio.wait_for(self.wire.send_text(self._waiting.popleft()), seconds)
                except Exception as error:  # a closed connection raises what its library likes
                    logger.debug("A browser is gone: %s", error)
                    return


def _plain(value: Any) -> Any:
    """Numbers of numpy, which games of users put into what is shown, as Python's; other things as text."""
    return value.item() if isinstance(value, np.generic) else str(value)


@dataclass
class Clock:
    """The rule by which the game goes on.

    Attributes:
        paused: True if it stands still but for single steps.
        speed: Moments per second where nobody has to think.
        runs: True if the game does not wait for people who think.
        step: True if one moment is to be played although it is paused.
        last: Time of the last moment, of `time.monotonic`.
    """

    paused: bool = True
    speed: float = 2.0
    runs: bool = False
    step: bool = False
    last: float = 0.0


class Room:
    """Takes commands of browsers, lets the game go on, and shows everybody what it may see.

    Args:
        table: The table.
        limits: Bounds.
        title: Heading of the page.
        why: True if people may ask why agents did what they did.
        spectators: True if browsers without a seat are shown the game with the private facts of all seats.
        consent: A text to which people have to agree before they sit down; empty for none.
        recorded: True if the session is recorded, which the page tells.
        watch: True if the game runs at once.
    """

    def __init__(
        self,
        table: Table,
        limits: ServerLimits | None = None,
        *,
        title: str = "Play",
        why: bool = True,
        spectators: bool = True,
        consent: str = "",
        recorded: bool = False,
        watch: bool = False,
    ) -> None:
        self.table, self.limits, self.title = table, limits or ServerLimits(), title
        self.clock = Clock(paused=not watch)
        self.guests: list[Guest] = []
        self._consent, self._recorded = consent, recorded
        self._views = SeatViews(table, why, spectators)
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._commands: dict[str, Callable[[Guest, Mapping[str, Any]], None]] = {
            "sit": self._sit, "stand": self._stand, "say": self._say, "choose": self._choose, "pause": self._pause,
            "step": self._step, "restart": self._restart, "speed": self._speed, "clock": self._run_clock,
        }  # fmt: skip

    async def enter(self, guest: Guest) -> bool:
        """Takes a browser in and shows it the game; false if there are too many."""
        if len(self.guests) >= self.limits.most_connections:
            return False
        self.guests.append(guest)
        await self._show([guest])
        return True

    async def leave(self, guest: Guest) -> None:
        """Lets a browser go; its agent takes the seat again."""
        async with self._lock:
            if guest in self.guests:
                self.guests.remove(guest)
            self._give_back(guest)
        await self._tell_all()

    async def obey(self, guest: Guest, text: str) -> None:
        """Does what a browser asks; a command that cannot be done is answered with one sentence.

        Args:
            guest: The browser.
            text: JSON with `do` and arguments.
        """
        try:
            told = json.loads(text)
            if not isinstance(told, dict) or told.get("do") not in self._commands:
                raise UserError(f"`do` must be one of {', '.join(self._commands)}.")
            async with self._lock:
                self._require_role(guest, told["do"])
                # A restart lets agents speak, which takes a network's time.
                await asyncio.to_thread(self._commands[told["do"]], guest, told)
        except (UserError, ChatError) as error:
            guest.tell({"error": str(error)})
            return
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            guest.tell({"error": "This is no command of the page."})
            return
        await self._tell_all()

    async def run(self) -> None:
        """Lets the game go on, until it is cancelled."""
        while True:
            self._changed.clear()
            async with self._lock:
                seconds = self._seconds()
            try:
                await asyncio.wait_for(self._changed.wait(), seconds)
                continue
            except (asyncio.TimeoutError, TimeoutError):
                pass
            async with self._lock:
                await asyncio.to_thread(self._tick)
            await self._show(self.guests)

    def _steers(self, guest: Guest) -> bool:
        """True if a browser may change the course of the game for everybody.

        Who holds a seat has agreed to play; others may watch, and steer what they watch only where no person plays and
        nothing is a person's record.
        """
        return guest.host or guest.seat is not None or not (self.table.people or self._consent or self._recorded)

    def _require_role(self, guest: Guest, do: str) -> None:
        """The one place that decides who may do what: `sit` is for all, speaking and acting for seats (`_own`)."""
        if do in _STEERING and not self._steers(guest):
            raise UserError(f"who holds no seat cannot `{do}` a game of people; sit down first.")

    def _seconds(self) -> float | None:
        """Seconds until the next moment; `None` if somebody has to do something first."""
        clock, table = self.clock, self.table
        if table.over or (clock.paused and not clock.step):
            return None
        if clock.step:
            return None if table.thinking() else 0.0
        pause = max(0.0, clock.last + 1.0 / clock.speed - time.monotonic())
        if table.thinking():
            return pause if clock.runs else None
        decided = any(agent in table.people for agent in table.asked())
        return 0.0 if decided and not clock.runs else pause

    def _tick(self) -> None:
        """Plays a moment; a fault stops the clock and is told to everybody."""
        try:
            if self.clock.runs and not self.clock.step:
                self.table.wait_for_nobody()
            self.table.advance()
        except (UserError, ChatError) as error:
            self.table.notice, self.clock.paused = str(error), True
        except Exception:
            logger.exception("A moment could not be played.")
            self.table.notice, self.clock.paused = _FAULT, True
        self.clock.step, self.clock.last = False, time.monotonic()

    async def _tell_all(self) -> None:
        self._changed.set()
        await self._show(self.guests)

    async def _show(self, guests: list[Guest]) -> None:
        """Tells everybody its view; a game that cannot be shown is told to everybody."""
        async with self._lock:
            try:
                views: dict[str | None, dict[str, Any]] = {}
                for seat in {guest.seat for guest in guests}:
                    views[seat] = {**await asyncio.to_thread(self._views.view, seat), **self._state()}
                for guest in guests:
                    guest.tell({**views[guest.seat], "steers": self._steers(guest)})
            except Exception:
                logger.exception("The game could not be shown.")
                self.clock.paused = True
                for guest in guests:
                    guest.tell({"error": _FAULT})

    def _state(self) -> dict[str, Any]:
        clock = self.clock
        return {
            "paused": clock.paused, "speed": clock.speed, "clock": clock.runs, "title": self.title,
            "recorded": self._recorded, "consent": self._consent, "max_words": self.table.max_words,
        }  # fmt: skip

    # ---- commands ----------------------------------------------------------------------------------------

    def _sit(self, guest: Guest, told: Mapping[str, Any]) -> None:
        if self._consent and told.get("agree") is not True:
            raise UserError("Read the text above the seats and agree to it first.")
        agent = str(told["agent"])
        if guest.seat == agent:
            return
        self.table.sit(agent, str(told.get("name") or "person"))  # who is refused keeps the seat that it has
        self._give_back(guest)
        guest.seat = agent
        self.clock.paused = False

    def _stand(self, guest: Guest, told: Mapping[str, Any]) -> None:
        self._give_back(guest)

    def _give_back(self, guest: Guest) -> None:
        """Gives a browser's seat to its agent; without people the game rests."""
        if guest.seat is not None:
            self.table.stand(guest.seat)
            guest.seat = None
            self.clock.paused = self.clock.paused or not self.table.people

    def _say(self, guest: Guest, told: Mapping[str, Any]) -> None:
        self.table.say(self._own(guest), str(told["text"]))

    def _choose(self, guest: Guest, told: Mapping[str, Any]) -> None:
        if told.get("moment") != self.table.moments or told.get("episode") != self.table.episodes:
            return  # a key that was pressed for a moment that is over
        self.table.choose(self._own(guest), int(told["action"]))

    def _pause(self, guest: Guest, told: Mapping[str, Any]) -> None:
        self.clock.paused = bool(told["on"])

    def _step(self, guest: Guest, told: Mapping[str, Any]) -> None:
        self.clock.step = True

    def _restart(self, guest: Guest, told: Mapping[str, Any]) -> None:
        if self.table.episodes >= self.limits.most_episodes:
            raise UserError(f"{self.table.episodes} episodes were played here; start `rllib play` anew.")
        seed = told.get("seed")
        seed = self.table.seed + 1 if seed is None else seed
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST_SEED:
            raise UserError(f"the seed is {str(seed)[:30]!r} but must be a whole number from 0 to {MOST_SEED}.")
        try:
            self.table.restart(seed)
        except (UserError, ChatError):
            raise
        except Exception as error:
            logger.exception("An episode could not be begun.")
            self.clock.paused = True
            raise UserError(_FAULT) from error

    def _speed(self, guest: Guest, told: Mapping[str, Any]) -> None:
        speed = float(told["value"])
        if not SPEEDS[0] <= speed <= SPEEDS[1]:
            raise UserError(f"the speed is {speed:g} but must be between {SPEEDS[0]:g} and {SPEEDS[1]:g}.")
        self.clock.speed = speed

    def _run_clock(self, guest: Guest, told: Mapping[str, Any]) -> None:
        self.clock.runs = bool(told["on"])
        self.clock.last = time.monotonic()

    def _own(self, guest: Guest) -> str:
        if guest.seat is None:
            raise UserError("sit down first.")
        return guest.seat
