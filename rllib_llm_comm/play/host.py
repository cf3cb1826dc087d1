"""Puts a table on a local page until it is stopped."""

from __future__ import annotations

import logging
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.evaluation.play_settings import PlaySettings
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.play.room import Limits, Room
from rllib_llm_comm.play.seating import set_table
from rllib_llm_comm.play.server import Access, listen, make_app, make_server, require_libraries
from rllib_llm_comm.play.session_recorder import SessionRecorder, require_new

logger = logging.getLogger(__name__)
_MOST_CONSENT = 20_000


@dataclass(frozen=True)
class Hosting:
    """The offer of a table to browsers.

    Attributes:
        host: Address to listen on.
        port: Port; 0 for a free one.
        watch: True if the game begins at once.
        why: True if people may ask why agents did what they did.
        spectators: True if browsers without a seat are shown the game with the private facts of all seats.
        browser: True to open the page in a browser of this machine.
        record: A new folder for the session; `None` to record nothing.
        consent: A text to which people have to agree before they sit down; empty for none.
        limits: Bounds of what browsers may ask.
    """

    host: str = "127.0.0.1"
    port: int = 0
    watch: bool = False
    why: bool = True
    spectators: bool = True
    browser: bool = True
    record: Path | None = None
    consent: str = ""
    limits: Limits = Limits()


def host_table(
    checkpoint: str,
    *,
    partners: Sequence[str] = (),
    settings: PlaySettings | None = None,
    seed: int = 0,
    hosting: Hosting | None = None,
    tell: Callable[[str], None] = logger.info,
) -> None:
    """Serves a page on which people play with a checkpoint's agents; returns when it is interrupted.

    Args:
        checkpoint: As of `set_table`.
        partners: As of `set_table`.
        settings: As of `set_table`.
        seed: As of `set_table`.
        hosting: The offer to browsers; `None` for the defaults.
        tell: Takes sentences for the person who started it, the page's address among them.

    Raises:
        UserError: If a library, the checkpoint or the port cannot be had, or nobody would see the game.
    """
    require_libraries()
    how = hosting or Hosting()
    if how.watch and not how.spectators:
        raise UserError("--watch and --no-spectators were given, so nobody would see the game; omit one of them.")
    if how.record is not None:
        require_new(how.record)
    listening = listen(how.host, how.port)
    with listening:
        table = set_table(checkpoint, partners=partners, settings=settings, seed=seed, silence=how.why)
        planning = (settings or PlaySettings()).planning()
        trained = [one.policy.manifest for one in table.policy.seats.values() if one.policy is not None]
        standing = stand_ins(*trained, planning)
        log = None if how.record is None else SessionRecorder(how.record, table, how.consent, standing)
        room = Room(
            table, how.limits, title=f"Play with {checkpoint}", why=how.why, spectators=how.spectators,
            consent=how.consent, recorded=log is not None, watch=how.watch,
        )  # fmt: skip
        access = Access(how.host, listening.getsockname()[1])
        tell(f"Open {access.url}")
        for phrase in standing:
            tell(f"Stands in: {phrase}")
        tell(f"Every browser with this address can take one of the seats: {', '.join(table.agents)}. Ctrl-C ends it.")
        if not access.local:
            tell(f"The page is open to everybody who reaches {how.host} and has the address; nothing is encrypted.")
        if how.record is not None or how.consent:
            tell(f"Who has no seat cannot steer; you can, at {access.host_url}")
        if how.browser:
            webbrowser.open(access.once_url)  # other users of this machine can read a browser's command line
        try:
            make_server(make_app(room, access), how.limits).run(sockets=[listening])
        finally:
            if log is not None:
                log.close()
                tell(f"The session is in {log.folder}")


def read_consent(path: Path) -> str:
    """The text to which people agree.

    Args:
        path: A text file in UTF-8.

    Raises:
        UserError: If it cannot be read, is empty, or is longer than a person reads.
    """
    try:
        text = read_text(path).strip()
    except (OSError, ValueError) as error:
        raise UserError(f"--consent {str(path)!r} cannot be read ({error}); give a text file.") from error
    if not 0 < len(text) <= _MOST_CONSENT:
        raise UserError(f"--consent {str(path)!r} has {len(text)} characters but must have 1 to {_MOST_CONSENT}.")
    return text
