"""Decisions of players to learn from, and those of people in recorded sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import read_session
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.policies.policy_env import make_recorded_game

HALVES = ("all", "first", "second")


@dataclass(frozen=True)
class Demonstrations:
    """Decisions of saved games of one kitchen.

    Attributes:
        env_config: Settings of the environment.
        vectors: Per game float32 (steps, 2, 96), the features that each player sees before each step.
        actions: Per game int64 (steps, 2), the primitive actions.
        by_people: Per game bool (steps, 2), the decisions that are learned; `None` for all.
    """

    env_config: dict[str, Any]
    vectors: list[np.ndarray]
    actions: list[np.ndarray]
    by_people: list[np.ndarray] | None = None


def half_of(demonstrations: Demonstrations, half: str) -> Demonstrations:
    """A half of the games, so that a clone to train with and one to be judged with share none.

    Args:
        demonstrations: At least two games.
        half: `"first"`: games 1, 3, 5, ... of the file; `"second"`: games 2, 4, 6, ...; `"all"`: all of them.

    Raises:
        UserError: If there is one game alone.
    """
    if half == HALVES[0]:
        return demonstrations
    if len(demonstrations.actions) == 1:
        raise UserError(f"`half` is {half!r} but there is one game, which belongs to one clone only; use 'all'.")
    part = slice(HALVES.index(half) - 1, None, 2)
    people = demonstrations.by_people
    return replace(
        demonstrations,
        vectors=demonstrations.vectors[part],
        actions=demonstrations.actions[part],
        by_people=None if people is None else people[part],
    )


def read_session_demonstrations(path: str | Path) -> Demonstrations:
    """Decisions of people in a recorded session of an onion-soup kitchen; its games are played again.

    Args:
        path: The session's folder.

    Raises:
        UserError: If it is of another game, its actions are no single steps, or no person acted.
    """
    session = read_session(path)
    settings = session.env_config
    if session.env != ENV_ID or settings.get("action_level") != "primitive" or settings.get("wanted") is not None:
        raise UserError(
            f"the session {str(path)!r} is of {session.env!r} with `action_level` {settings.get('action_level')!r}, "
            f"but cloning takes {ENV_ID!r} with single steps and without a wanted pot."
        )
    played: dict[str, Any] = {"observe": ["vector"], "vector": "features"}
    vectors, actions, people = [], [], []
    for episode in session.episodes:
        env = make_recorded_game(ENV_ID, settings, **played)
        observations, _ = env.reset(seed=episode.seed)
        seen, done, by = [], [], []
        for moment in episode.moments:
            if not env.agents:
                raise UserError(f"episode {episode.episode} of {str(path)!r} goes on after its end; record it again.")
            if missing := [agent for agent in session.agents if agent not in moment.actions]:
                raise UserError(
                    f"a moment of episode {episode.episode} of {str(path)!r} has no action of {missing[0]!r}; give a "
                    "session that is as it was recorded."
                )
            seen.append(np.stack([observations[agent]["vector"] for agent in session.agents]))
            done.append([moment.actions[agent] for agent in session.agents])
            chose = {agent for agent, person in moment.people.items() if not person.forced}
            by.append([agent in chose for agent in session.agents])
            observations, *_ = env.step(moment.actions)
        if seen:
            vectors.append(np.stack(seen).astype(np.float32))
            actions.append(np.array(done, np.int64))
            people.append(np.array(by, bool))
    if not any(game.any() for game in people):
        raise UserError(f"nobody but agents acted in the session {str(path)!r}; give one in which people played.")
    config: dict[str, Any] = {name: settings[name] for name in ("layout", "dynamics", "horizon") if name in settings}
    return Demonstrations({**config, "observe": ["vector"]}, vectors, actions, people)
