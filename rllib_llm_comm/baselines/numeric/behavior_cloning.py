"""Behaviour cloning: a policy that acts as the players of saved onion-soup games did; needs no Ray."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.session_files import is_session, read_session
from rllib_llm_comm.core.settings import Seeded, Several
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.golden import read_games
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON, NUM_ACTIONS, SoupKitchen
from rllib_llm_comm.policies.numeric_network import (
    BY_STATE,
    MOST_LAYERS,
    MOST_WIDTH,
    VECTOR,
    NumericNetwork,
    NumericSettings,
)
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.policy import make_recorded_game
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import NUMERIC, PolicyManifest

_MOST_BYTES = 2**29
_NO_CRITIC = 1  # no state has this length, so that values stay unknown (`NumericPolicy.values`)


class CloningSettings(Seeded):
    """Settings of behaviour cloning; defaults of Carroll et al. 2019 unless marked."""

    hiddens: Several[Annotated[int, Field(ge=1, le=MOST_WIDTH)]] = Field((64, 64), min_length=1, max_length=MOST_LAYERS)
    """Widths of the hidden layers."""
    lr: float = Field(1e-3, gt=0, le=1)
    """Learning rate of Adam, with eps 1e-8."""
    epochs: int = Field(100, ge=1, le=10**5)
    """Passes over the games that are learned from. Theirs: 90 to 120, by kitchen."""
    batch_size: int = Field(64, ge=1, le=10**6)
    """Decisions per gradient step (ours)."""
    held_out: float = Field(0.15, ge=0.01, le=0.5)
    """Share of the decisions that are held out: whole games, the last ones of the file; of a single game its last steps
    (ours)."""
    players: Literal["both", "0", "1"] = "both"
    """The players whose decisions are learned."""
    half: Literal["all", "first", "second"] = "all"
    """The games that are used at all: all of them, or every other one. Carroll et al. train with a clone of one half of
    the games and judge with a clone of the other."""


@dataclass(frozen=True)
class Demonstrations:
    """Decisions of saved games of one kitchen.

    Attributes:
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
    if half == "all":
        return demonstrations
    if len(demonstrations.actions) == 1:
        raise UserError(f"`half` is {half!r} but there is one game, which belongs to one clone only; use 'all'.")
    part = slice(0 if half == "first" else 1, None, 2)
    people = demonstrations.by_people
    return replace(
        demonstrations,
        vectors=demonstrations.vectors[part],
        actions=demonstrations.actions[part],
        by_people=None if people is None else people[part],
    )


def read_session_demonstrations(path: str | Path) -> Demonstrations:
    """Decisions of people in a recorded session of an onion-soup kitchen; its games are played again.

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
        game = PlayedGame(make_recorded_game(ENV_ID, settings, **played), episode.seed)
        seen, done, by = [], [], []
        for moment in episode.moments:
            if game.over:
                raise UserError(f"episode {episode.episode} of {str(path)!r} goes on after its end; record it again.")
            if missing := [agent for agent in session.agents if agent not in moment.actions]:
                raise UserError(
                    f"a moment of episode {episode.episode} of {str(path)!r} has no action of {missing[0]!r}; give a "
                    "session that is as it was recorded."
                )
            seen.append(np.stack([game.observations[agent]["vector"] for agent in session.agents]))
            done.append([moment.actions[agent] for agent in session.agents])
            chose = {agent for agent, person in moment.people.items() if not person.forced}
            by.append([agent in chose for agent in session.agents])
            game.advance(moment.actions)
        if seen:
            vectors.append(np.stack(seen).astype(np.float32))
            actions.append(np.array(done, np.int64))
            people.append(np.array(by, bool))
    if not any(one.any() for one in people):
        raise UserError(f"nobody but agents acted in the session {str(path)!r}; give one in which people played.")
    config: dict[str, Any] = {name: settings[name] for name in ("layout", "dynamics", "horizon") if name in settings}
    return Demonstrations({**config, "observe": ["vector"]}, vectors, actions, people)


@dataclass(frozen=True)
class CloningResult:
    """Figures of a clone.

    Attributes:
        decisions: Number of decisions that it learned from, and that were held out.
        agreement: Share of the held-out decisions whose action is its most likely one.
        cross_entropy: Mean negative log-likelihood of the held-out decisions, in nats.
        most_common: Share of the most common action among the held-out decisions: the agreement of a constant.
    """

    folder: Path
    games: int
    decisions: tuple[int, int]
    agreement: float
    cross_entropy: float
    most_common: float


def read_demonstrations(path: str | Path, layout: Any = None, dynamics: str | None = None) -> Demonstrations:
    """The decisions in a file that Overcooked-AI wrote (`ep_states`, `ep_actions`), or of people in a session.

    Args:
        path: The JSON file, or the folder of a session (`rllib play --record`), of which what people did is taken.
        layout: The kitchen, where the file does not tell it (`golden.read_games`).
        dynamics: "old" or "new"; `None` as the file says.

    Raises:
        UserError: If the file cannot be read, or has games of different kitchens.
    """
    if is_session(path):
        return read_session_demonstrations(path)
    try:
        games = list(read_games(read_foreign_json(local_path(path), _MOST_BYTES), layout, dynamics))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{str(path)!r} cannot be read as games of Overcooked-AI ({type(error).__name__}: {str(error)[:200]}); "
            "give a JSON file with `ep_states` and `ep_actions`."
        ) from error
    if not games or not any(game.actions for game in games):
        raise UserError(f"{str(path)!r} has no decisions in it; give a file of games that were played.")
    vectors, actions, maps = [], [], set()
    for game in games:
        kitchen = SoupKitchen(game.layout, game.dynamics, game.horizon or HORIZON)
        maps.add((tuple(kitchen.layout.rows), game.dynamics))
        steps = min(len(game.actions), len(game.states))
        seen = []
        for state in game.states[:steps]:
            kitchen.restore(state)
            seen.append(kitchen.features().astype(np.float32))
        vectors.append(np.stack(seen))
        actions.append(np.array(game.actions[:steps], np.int64))
    if len(maps) > 1:
        raise UserError(f"{str(path)!r} has games of {len(maps)} kitchens or dynamics; give a file for each.")
    config = {"layout": _shortest(games[0].layout, layout), "dynamics": games[0].dynamics, "observe": ["vector"]}
    return Demonstrations({**config, "horizon": games[0].horizon or HORIZON}, vectors, actions)


def clone_players(
    demonstrations: Demonstrations,
    folder: str | Path,
    settings: CloningSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CloningResult:
    """Trains a clone by cross-entropy and writes its policy folder.

    Args:
        folder: The policy folder (one of that name is replaced); `load_policy`, `rllib evaluate`, `rllib crossplay` and
            pools of partners take it.
        progress: Called with the numbers of epochs that were done and of all.

    Raises:
        UserError: If there are too few decisions.
    """
    how = settings or CloningSettings()
    demonstrations = half_of(demonstrations, how.half)
    learned, held_out = _split(demonstrations, how)
    size = demonstrations.vectors[0].shape[-1]
    network_settings = NumericSettings(
        hiddens=how.hiddens, activation="relu", critic_observation=BY_STATE, init_seed=how.seed
    )
    network = NumericNetwork(network_settings, size, NUM_ACTIONS, _NO_CRITIC)
    _train(network, *learned, how, progress)
    with torch.no_grad():
        logits = _logits(network, held_out[0])
        entropy = float(torch.nn.functional.cross_entropy(logits, held_out[1]))
    agreement = float((logits.argmax(1) == held_out[1]).double().mean())
    common = float(torch.bincount(held_out[1]).max() / len(held_out[1]))
    counts = (len(learned[1]), len(held_out[1]))
    config = {**network_settings.to_dict(), "size": size, "actions": NUM_ACTIONS, "critic_size": _NO_CRITIC}
    manifest = PolicyManifest(
        algorithm="BehaviorCloning",
        kind=NUMERIC,
        model_config=config,
        communication={},
        env=ENV_ID,
        env_config=demonstrations.env_config,
        provenance={
            "half": how.half,
            "decisions": counts[0],
            "held_out": counts[1],
            "agreement": round(agreement, 4),
        },
    )
    written = write_policy(folder, network_file(network), manifest)
    return CloningResult(written, len(demonstrations.actions), counts, agreement, entropy, common)


def _split(demonstrations: Demonstrations, how: CloningSettings) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Vectors (N, F) and actions (N,) that are learned from, and that are held out."""
    chosen = slice(None) if how.players == "both" else slice(int(how.players), int(how.players) + 1)
    vectors = [game[:, chosen] for game in demonstrations.vectors]
    actions = [game[:, chosen] for game in demonstrations.actions]
    taken = [np.ones(game.shape, bool) for game in demonstrations.actions]
    taken = [game[:, chosen] for game in demonstrations.by_people or taken]
    if len(actions) == 1:
        cut = round(len(actions[0]) * (1 - how.held_out))
        vectors, actions, taken = ([games[0][:cut], games[0][cut:]] for games in (vectors, actions, taken))
        games = 1
    else:
        wanted, games = how.held_out * sum(map(len, actions)), len(actions) - 1
        while games > 1 and sum(map(len, actions[games:])) < wanted:
            games -= 1
    parts = (slice(0, games), slice(games, None))
    if any(sum(map(np.sum, taken[part])) == 0 for part in parts):
        raise UserError("there are too few decisions to learn from some and to hold out others; give longer games.")
    return tuple(
        (
            torch.from_numpy(np.concatenate(vectors[part])[np.concatenate(taken[part])]),
            torch.from_numpy(np.concatenate(actions[part])[np.concatenate(taken[part])]),
        )
        for part in parts
    )


def _train(
    network: NumericNetwork,
    vectors: torch.Tensor,
    actions: torch.Tensor,
    how: CloningSettings,
    progress: Callable[[int, int], None] | None,
) -> None:
    optimizer = torch.optim.Adam(network.actor.parameters(), lr=how.lr, eps=1e-8)
    generator = torch.Generator().manual_seed(how.seed)
    for epoch in range(how.epochs):
        for rows in torch.randperm(len(actions), generator=generator).split(how.batch_size):
            loss = torch.nn.functional.cross_entropy(_logits(network, vectors[rows]), actions[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if progress:
            progress(epoch + 1, how.epochs)


def _logits(network: NumericNetwork, vectors: torch.Tensor) -> torch.Tensor:
    return network.logits({VECTOR: vectors, ACTION_MASK: torch.ones(len(vectors), NUM_ACTIONS)})


def _shortest(described: dict[str, Any], given: Any) -> Any:
    """The kitchen as the user named it, or by its own name where that names the same map, else its description."""
    if given is not None:
        return given
    layout = get_layout(described)
    try:
        same = get_layout(layout.name)
    except UserError:
        return described
    return layout.name if same.rows == layout.rows and layout.classic and same.classic else described
