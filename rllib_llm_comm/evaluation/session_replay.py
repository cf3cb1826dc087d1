"""Recorded sessions of people as episodes for replays: the games are played again, and have to come out the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import Session, SessionEpisode, SessionMoment, read_session
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.envs.interface import parts_of
from rllib_llm_comm.evaluation.frames import frame_of
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.rollout import Episode
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.policy import make_recorded_game


def replay_session(
    path: str | Path, page: str | Path, *, first: int = 1, episodes: int | None = None, trust: bool = False
) -> Path:
    """Writes a replay page of a recorded session.

    Args:
        path: The session's folder.
        page: The file to write; it appears at once or not at all.
        first: Number of the first episode shown, from 1.
        episodes: Number of episodes shown at most; `None` for all.
        trust: True if recorded settings that reach beyond this program are used as they are.

    Returns:
        The page's path.

    Raises:
        UserError: If the session cannot be read, has no such episode, or its games cannot be played again.
    """
    session = read_session(path)
    chosen = [one for one in session.episodes if one.moments and one.episode >= first][:episodes]
    if not chosen:
        raise UserError(f"{str(path)!r} has no played episode from number {first} on; it has {len(session.episodes)}.")
    played = [played_again(session, one, trust) for one in chosen]
    return write_replay(played, page, title="A session with people", stand_ins=session.stand_ins)


def played_again(session: Session, recorded: SessionEpisode, trust: bool = False) -> Episode:
    """An episode of a session with its drawings, which come from playing it again.

    Args:
        session: The session.
        recorded: One of its episodes.
        trust: As of `replay_session`.

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
    """Plays a recorded episode again.

    Args:
        env: Its game, as of `make_recorded_game`.
        recorded: The episode.

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
