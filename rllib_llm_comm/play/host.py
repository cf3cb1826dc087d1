"""A table on a local page until it is stopped; the seats before people come: a checkpoint, and partners."""

from __future__ import annotations

import logging
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.envs.interface import GameInfo
from rllib_llm_comm.evaluation.planned_play import env_maker
from rllib_llm_comm.evaluation.play_settings import HostSettings, PlaySettings
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.play.room import Room, ServerLimits
from rllib_llm_comm.play.server import Access, listen, make_app, make_server, require_libraries
from rllib_llm_comm.play.session_recorder import SessionRecorder, require_new
from rllib_llm_comm.play.table import MAX_WORDS, Table
from rllib_llm_comm.policies.partner_settings import PartnerSettings, parse_partners
from rllib_llm_comm.policies.partners import Partner, make_partner
from rllib_llm_comm.policies.seated_policy import SeatedPolicy

_OBSERVE, _TEXT = "observe", "text"


def set_table(
    checkpoint: str,
    *,
    partners: Sequence[str] = (),
    settings: PlaySettings | None = None,
    seed: int = 0,
    silence: bool = True,
) -> Table:
    """The table of a checkpoint's game.

    Args:
        checkpoint: A checkpoint, trial, stage or run folder (`find_checkpoint`).
        partners: Players in place of the checkpoint: "scripted", "random", "stay", a checkpoint or a function, with
            "AGENT=" before it for a certain seat; others take the last seats that are left.
        settings: Settings of play that differ from training; `None` for none.
        seed: Seed of the first episode.
        silence: True to score what agents would have done without the messages that they heard.

    Raises:
        UserError: If something cannot be loaded, or partners and seats do not fit.
    """
    how = settings or PlaySettings()
    if how.trials is not None:
        raise UserError(f"`trials` is {how.trials} but nobody puts a game with people back; omit it.")
    policy = how.load(checkpoint)
    holder = Partner(PartnerSettings(policy=str(checkpoint), name=_short(checkpoint), greedy=how.greedy), policy)
    make_env = _with_words(env_maker(policy, how.planning(), how.env_config))
    env = make_env()
    if unnamed := [agent for agent in env.possible_agents if not isinstance(agent, str)]:
        raise UserError(
            f"an agent of the game is named {unnamed[0]!r}, but people take seats by their names; let the names in "
            "`possible_agents` be text."
        )
    seats = _seats([str(agent) for agent in env.possible_agents], holder, partners, how.load)
    env.close()
    talk = policy.communication
    words = MAX_WORDS if talk is None else talk.max_message_words
    return Table(
        SeatedPolicy(seats, make_env), make_env, explore=not how.greedy, silence=silence, max_words=words, seed=seed
    )


def _seats(
    agents: Sequence[str], holder: Partner, partners: Sequence[str], load: Callable[..., Any]
) -> dict[str, Partner]:
    """Partner by agent."""
    seats: dict[str, Partner] = dict.fromkeys(agents, holder)
    named = [_named(partner, agents) for partner in partners]
    if len(named) > len(agents):
        raise UserError(
            f"`--partner` is given {len(named)} times but there are {len(agents)} seats: {', '.join(agents)}."
        )
    chosen = [agent for agent, _ in named if agent is not None]
    if len(set(chosen)) < len(chosen):
        raise UserError(f"`--partner` is given twice for one seat; the seats are {', '.join(agents)}.")
    left = [agent for agent in agents if agent not in chosen]
    parsed = parse_partners([partner for _, partner in named], "partner") if named else ()
    for (agent, _), one in zip(named, parsed, strict=True):
        seats[left.pop() if agent is None else agent] = make_partner(one, load)
    return seats


def _named(partner: str, agents: Sequence[str]) -> tuple[str | None, str]:
    """The seat and the partner of AGENT=PARTNER, or of PARTNER."""
    agent, sign, policy = partner.partition("=")
    if sign and agent.isidentifier() and agent not in agents and not Path(partner).exists():
        raise UserError(f"`--partner` is {partner!r} but no seat is {agent!r}; the seats are {', '.join(agents)}.")
    return (agent, policy) if sign and agent in agents else (None, partner)


def _short(checkpoint: str) -> str:
    """A name for the page: the last part of a path that is no checkpoint's number."""
    parts = [part for part in str(checkpoint).rstrip("/").split("/") if not part.startswith("checkpoint_")]
    return parts[-1] if parts else str(checkpoint)


def _with_words(make: Callable[..., Any]) -> Callable[..., Any]:
    """The game with observations in words, too, which people read; agents see what they saw in training."""
    plain = make()
    observe = GameInfo(plain).settings.get(_OBSERVE)
    plain.close()
    if not isinstance(observe, list | tuple) or _TEXT in observe:
        return make

    def with_words(**settings: Any) -> Any:
        return make(**{_OBSERVE: [*observe, _TEXT], **settings})

    try:
        with_words().close()
    except UserError:  # settings under which the game has no words; its actions are told by number then
        return make
    return with_words


logger = logging.getLogger(__name__)
_MOST_CONSENT = 20_000


def host_table(
    checkpoint: str,
    settings: HostSettings | None = None,
    *,
    tell: Callable[[str], None] = logger.info,
) -> None:
    """Serves a page on which people play with a checkpoint's agents; returns when it is interrupted.

    Args:
        checkpoint: As of `set_table`.
        settings: The play, and the offer to browsers; `None` for the defaults.
        tell: Takes sentences for the person who started it, the page's address among them.

    Raises:
        UserError: If a library, the checkpoint or the port cannot be had.
    """
    require_libraries()
    how, bounds = settings or HostSettings(), ServerLimits()
    consent = "" if how.consent is None else read_consent(how.consent)
    if how.record is not None:
        require_new(how.record)
    listening = listen(how.host, how.port)
    with listening:
        table = set_table(checkpoint, partners=how.partners, settings=how, seed=how.seed, silence=how.why)
        trained = [one.policy.manifest for one in table.policy.seats.values() if one.policy is not None]
        phrases = stand_ins(*trained, how.planning())
        log = None if how.record is None else SessionRecorder(how.record, table, consent, phrases)
        room = Room(
            table, bounds, title=f"Play with {checkpoint}", why=how.why, spectators=how.spectators,
            consent=consent, recorded=log is not None, watch=how.watch,
        )  # fmt: skip
        access = Access(how.host, listening.getsockname()[1])
        tell(f"Open {access.url}")
        for phrase in phrases:
            tell(f"Stands in: {phrase}")
        tell(f"Every browser with this address can take one of the seats: {', '.join(table.agents)}. Ctrl-C ends it.")
        if not access.local:
            tell(f"The page is open to everybody who reaches {how.host} and has the address; nothing is encrypted.")
        if how.record is not None or consent:
            tell(f"Who has no seat cannot steer; you can, at {access.host_url}")
        if how.browser:
            webbrowser.open(access.once_url)  # other users of this machine can read a browser's command line
        try:
            make_server(make_app(room, access), bounds).run(sockets=[listening])
        except KeyboardInterrupt:  # how a session ends
            pass
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
        raise UserError(f"`--consent` is {str(path)!r}, which cannot be read ({error}); give a text file.") from error
    if not 0 < len(text) <= _MOST_CONSENT:
        raise UserError(f"`--consent` is {str(path)!r}, of {len(text)} characters but must have 1 to {_MOST_CONSENT}.")
    return text
