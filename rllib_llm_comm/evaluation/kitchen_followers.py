"""Games of cooks that a planner tells what to do, side by side, and EMMA's cooks in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from rllib_llm_comm.envs.overcooked_ai import game
from rllib_llm_comm.envs.overcooked_ai.entities import SLOTS, entities
from rllib_llm_comm.envs.overcooked_ai.env import OvercookedAI
from rllib_llm_comm.envs.overcooked_ai.observations import DEFAULT_PARTS, manual_of
from rllib_llm_comm.evaluation.rollout import Episode, EpisodeRecorder
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.decision import Policy
from rllib_llm_comm.policies.partners import Partner, own_actions
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.sama.emma.network import EmmaEncoder
from rllib_llm_comm.sama.emma.policy import FrozenActor, GroundedPolicy
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import ScriptedPlanner
from rllib_llm_comm.sama.rewards.subgoal_rewards import EXACT

_SEATS = 2


def kitchen_under_a_planner(env: Any) -> OvercookedAI | None:
    """The kitchen of an environment whose games under a planner can be played side by side; `None` for others.

    That is so with the scripted planner and exact rewards, which are the same at any time, and subgoals in words only.

    Args:
        env: The environment.
    """
    if type(env) is not PlannedSubgoals or type(env.env) is not OvercookedAI:
        return None
    agent = env.possible_agents[0]
    in_words = env.observation_space(agent) is env.env.observation_space(agent)
    plain = type(env.planner) is ScriptedPlanner and env.rewards.name == EXACT
    return env.env if plain and in_words else None


def can_follow(partner: Partner, kitchen: OvercookedAI) -> bool:
    """True if a partner is a checkpoint of EMMA that chooses goals in this kitchen.

    Args:
        partner: The partner.
        kitchen: The kitchen, in single steps.
    """
    policy = partner.policy
    if type(policy) is not GroundedPolicy or policy.manifest.env not in game.GAME.entry_points:
        return False
    own = policy.manifest.env_config
    return (
        "entities" in own.get("observe", DEFAULT_PARTS)
        and own.get("layout", "cramped_room") == kitchen.settings["layout"]
        and own.get("action_level", "primitive") != "primitive"
        and own.get("wanted") is None
    )


class PlannedKitchens:
    """Games under a planner, whose states are rows of one array.

    Args:
        envs: One per game, each made for it alone or free again.
        policies: Per game the policy by which its episode is named, or `None`.
        seeds: Per game its seed.
        states: int16 (N, S); from now on the games write their states there.

    Attributes:
        envs: The environments.
    """

    def __init__(
        self,
        envs: Sequence[PlannedSubgoals],
        policies: Sequence[Policy | None],
        seeds: Sequence[int],
        states: np.ndarray,
    ) -> None:
        self.envs = envs
        self._games = []
        for env, policy, seed, state in zip(envs, policies, seeds, states, strict=True):
            env.unwrapped.parts = ()  # nobody reads observations: networks see the states
            recorder = EpisodeRecorder(policy)
            self._games.append((PlayedGame(env, seed, [recorder], reads=False), recorder))
            kitchen = env.unwrapped.kitchen
            state[:] = kitchen.state
            kitchen.state = state

    def step(self, actions: np.ndarray) -> None:
        """One step of all games.

        Args:
            actions: (N, 2).
        """
        for (played, _), chosen in zip(self._games, actions.tolist(), strict=True):
            played.advance(dict(zip(played.env.possible_agents, chosen, strict=True)))

    def episodes(self) -> list[Episode]:
        """The episodes, after their ends."""
        return [recorder.episodes[played.seed] for played, recorder in self._games]


class Followers:
    """The seats of one checkpoint of EMMA in several games; each cook carries its goals out in single steps.

    Args:
        partner: The checkpoint.
        games: The games.
        rows: The seats: 2 * game + seat, ascending.
        seeds: Per seat the seed of the partner in its game.
        explore: True if goals are drawn.
    """

    def __init__(
        self, partner: Partner, games: PlannedKitchens, rows: Sequence[int], seeds: Sequence[int], explore: bool
    ) -> None:
        policy = cast(GroundedPolicy, partner.policy)
        how, kitchen = policy.network.settings, games.envs[0].unwrapped.kitchen
        self.rows = list(rows)
        self._layout, self._drawn = kitchen.layout, explore and not partner.settings.greedy
        encoder = EmmaEncoder(load_text_encoder(how.text_encoder), how)
        self._actor = FrozenActor(policy.network, encoder, manual_of(kitchen))
        shape = (how.frames, self._layout.height, self._layout.width, len(SLOTS))
        self._frames = np.zeros((len(self.rows), *shape), np.int16)
        self._seats: list[Any] = []
        self._told: list[Callable[[], str]] = []
        self._draws: list[Callable[[], float]] = []
        rngs: dict[int, np.random.Generator] = {}
        for row, seed in zip(self.rows, seeds, strict=True):
            env, seat = games.envs[row // _SEATS], row % _SEATS
            agent = env.possible_agents[seat]
            self._seats.append(own_actions(env, agent, policy.manifest, seed))
            self._told.append(partial(env.subgoal_of, agent))
            rng = rngs.setdefault(row // _SEATS, np.random.default_rng(seed))  # seats of one game share it
            self._draws.append(rng.random)

    def actions(self, states: np.ndarray) -> list[int]:
        """The single steps of all seats.

        Args:
            states: int16 (N, S): those of the games.
        """
        asked = [number for number, seat in enumerate(self._seats) if seat.free()]
        if asked:
            seen = {
                number: entities(states[number], self._layout) for number in {self.rows[k] // _SEATS for k in asked}
            }
            newest = np.stack([seen[self.rows[k] // _SEATS][self.rows[k] % _SEATS] for k in asked])
            self._frames[asked] = np.concatenate([self._frames[asked, 1:], newest[:, None]], 1)
            allowed = np.stack([self._seats[k].mask() for k in asked])
            subgoals = [self._told[k]() for k in asked]
            for k, goal in zip(asked, self._goals(asked, subgoals, allowed), strict=True):
                self._seats[k].choose(goal)
        return [seat.action() for seat in self._seats]

    def _goals(self, asked: list[int], subgoals: list[str], allowed: np.ndarray) -> list[int]:
        chances = self._actor.chances(self._frames[asked], subgoals, allowed)
        if not self._drawn:
            return list(chances.argmax(1).tolist())
        sums = chances.cumsum(1)
        draws = np.array([self._draws[k]() for k in asked])
        return list((sums / sums[:, -1:] <= draws[:, None]).sum(1).tolist())  # as numpy's `Generator.choice`
