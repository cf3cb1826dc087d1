"""Games of many seatings in an onion-soup kitchen, side by side in arrays, with the scores of games played one by one.

Every partner draws the random numbers of `SeatedPolicy`, in the same order. So a game is the same in both ways, unless
the rounding of a network's sum in another batch turns a draw over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from rllib_llm_comm.baselines.numeric.policy import NumericPolicy
from rllib_llm_comm.envs.overcooked_ai import GAME, kernel
from rllib_llm_comm.envs.overcooked_ai.env import OvercookedAI
from rllib_llm_comm.envs.overcooked_ai.observations import DEFAULT_PARTS, SLOTS, entities, manual_of
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS, KitchenBatch, SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.scripted_cooks import HabitualCook
from rllib_llm_comm.evaluation.rollout import Episode, EpisodeRecorder, new_episode
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.decision import Policy
from rllib_llm_comm.policies.numeric_network import VECTOR
from rllib_llm_comm.policies.partner_settings import CHECKPOINT, RANDOM, SCRIPTED, STAY
from rllib_llm_comm.policies.partners import Partner, own_actions
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.seated_policy import seed_at
from rllib_llm_comm.sama.emma.network import EmmaEncoder
from rllib_llm_comm.sama.emma.policy import FrozenActor, GroundedPolicy
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import ScriptedPlanner
from rllib_llm_comm.sama.rewards.subgoal_rewards import EXACT

_SEATS = 2


def kitchen_under_a_planner(env: Any) -> OvercookedAI | None:
    """The kitchen of an environment whose games under a planner can be played side by side; `None` for others.

    That is so with the scripted planner and exact rewards, which are the same at any time, and subgoals in words only.
    """
    if type(env) is not PlannedSubgoals or type(env.env) is not OvercookedAI:
        return None
    agent = env.possible_agents[0]
    in_words = env.observation_space(agent) is env.env.observation_space(agent)
    plain = type(env.planner) is ScriptedPlanner and env.rewards.name == EXACT
    return env.env if plain and in_words else None


def can_follow(partner: Partner, kitchen: OvercookedAI) -> bool:
    """True if a partner is a checkpoint of EMMA that chooses goals in this kitchen, which is played in single steps."""
    policy = partner.policy
    if type(policy) is not GroundedPolicy or policy.manifest.env not in GAME.entry_points:
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
        """One step of all games; `actions` are (N, 2)."""
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
        """The single steps of all seats, in the (N, S) states of the games."""
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
        probabilities = self._actor.probabilities(self._frames[asked], subgoals, allowed)
        if not self._drawn:
            return list(probabilities.argmax(1).tolist())
        sums = probabilities.cumsum(1)
        draws = np.array([self._draws[k]() for k in asked])
        return list((sums / sums[:, -1:] <= draws[:, None]).sum(1).tolist())  # as numpy's `Generator.choice`


GAMES_AT_ONCE, PLANNED_AT_ONCE = 1024, 128
_SURE = np.eye(NUM_ACTIONS)
"""Probabilities of a choice that is sure, by action."""

Seating = tuple[int, ...]


class KitchenTables:
    """Plays seatings of networks that see planes, scripted players, `random` and `stay`; under a planner EMMA's, too.

    Args:
        env: The environment of cross-play.
        entrants: Everybody who may hold a seat.
        explore: True if checkpoints' actions are drawn.
        make_env: Makes such an environment.

    Attributes:
        seated: Numbers of the entrants that it can play; none in an environment with more than the kitchen's own
            single steps.
    """

    def __init__(self, env: Any, entrants: Sequence[Partner], explore: bool, make_env: Callable[[], Any]) -> None:
        self._entrants, self._explore = entrants, explore
        self._make_env, self._free = make_env, list[Any]()
        self.seated: frozenset[int] = frozenset()
        planned = kitchen_under_a_planner(env)
        self._planned, self._env = planned is not None, env if planned is None else planned
        if _plain_kitchen(self._env):
            self.seated = frozenset(k for k, one in enumerate(entrants) if self._can_sit(one))

    def play(self, seatings: Sequence[Seating], seeds: Sequence[int]) -> Iterator[tuple[Seating, list[Episode]]]:
        """Plays the episodes of all seatings, which have per agent the number of its entrant, all of them `seated`.

        Every seating plays all seeds.

        Yields:
            A seating and its episodes, in the order of the seeds, without lengths of less than the horizon, messages
            and frames.
        """
        at_once = max(1, (PLANNED_AT_ONCE if self._planned else GAMES_AT_ONCE) // len(seeds))
        for first in range(0, len(seatings), at_once):
            some = seatings[first : first + at_once]
            games = [(one, seed) for one in some for seed in seeds]
            played = _GamesOfTable(self._env, self._entrants, games, self._explore, self._envs(len(games))).play()
            for place, seating in enumerate(some):
                yield seating, played[place * len(seeds) : (place + 1) * len(seeds)]

    def _envs(self, count: int) -> list[Any]:
        """Environments of games under a planner, none without; they are used again."""
        if not self._planned:
            return []
        self._free += [self._make_env() for _ in range(count - len(self._free))]
        return self._free[:count]

    def _can_sit(self, partner: Partner) -> bool:
        # Scripted words are drawn from the numbers that actions are drawn from.
        if partner.settings.speech == "scripted" or partner.settings.unstuck:
            return False
        if self._planned and can_follow(partner, self._env):
            return True
        return _sees_planes(partner, self._env.kitchen.lossless().size // _SEATS)


def _plain_kitchen(env: Any) -> bool:
    """True if the game is the kitchen alone: no wrapper, no wanted pot, single steps, cooks in the agents' order."""
    if type(env) is not OvercookedAI:
        return False
    settings = env.settings
    return settings["action_level"] == "primitive" and settings["wanted"] is None and not settings["swap_roles"]


def _sees_planes(partner: Partner, planes: int) -> bool:
    """True for networks that see planes, and for who needs none."""
    if partner.settings.kind != CHECKPOINT:
        return partner.settings.kind in (RANDOM, STAY, SCRIPTED)
    policy = partner.policy
    if type(policy) is not NumericPolicy or policy.network.settings.hears:
        return False
    manifest = policy.manifest
    seen = manifest.env_config
    return (
        manifest.env == OvercookedAI.env_id
        and manifest.planning is None
        and VECTOR in seen.get("observe", DEFAULT_PARTS)
        and seen.get("vector") == "planes"
        and manifest.model_config["size"] == planes
    )


@dataclass
class _Scripts:
    """The seats of one scripted partner in one game; its cooks and its mistakes share random numbers."""

    game: int
    kitchen: SoupKitchen
    rng: np.random.Generator
    rows: list[int]
    cooks: list[HabitualCook]


class _GamesOfTable:
    """Games from start to end; arguments as of `KitchenTables`, and per game its seating and seed.

    Under a planner each game has its environment in `envs`, which steps it.

    A row is a seat of a game: 2 * game + seat.
    """

    def __init__(
        self,
        env: OvercookedAI,
        entrants: Sequence[Partner],
        games: Sequence[tuple[Seating, int]],
        explore: bool,
        envs: Sequence[Any] = (),
    ) -> None:
        self._env, self._entrants, self._games = env, entrants, games
        rules = env.kitchen
        self._batch = KitchenBatch(len(games), rules.layout, rules.dynamics, rules.horizon)
        holder = np.array([seating for seating, _ in games]).reshape(-1)
        settings = [entrants[number].settings for number in holder]
        rows = {number: np.flatnonzero(holder == number) for number in dict.fromkeys(holder.tolist())}
        trained = {number: own for number, own in rows.items() if entrants[number].policy is not None}
        following = [number for number in trained if isinstance(entrants[number].policy, GroundedPolicy)]
        self._networks = [
            (entrants[number].policy.network.actor, own) for number, own in trained.items() if number not in following
        ]
        self._noise = np.array([one.noise for one in settings])[:, None]
        self._pauses = np.array([one.pauses for one in settings])[:, None]
        frozen = np.array([one.kind == CHECKPOINT for one in settings])
        mistakes = (self._noise + self._pauses)[:, 0] > 0
        self._sharp = frozen & np.array([one.greedy or not explore for one in settings])
        self._mixed = ~frozen | mistakes
        sure = np.isin(holder, following)  # their goals are drawn, not their steps
        self._drawn = (~self._sharp & ~sure) | self._mixed
        self._probabilities = np.full((len(holder), NUM_ACTIONS), 1.0 / NUM_ACTIONS)
        self._probabilities[np.array([one.kind == STAY for one in settings])] = _SURE[kernel.STAY]
        self._draws = np.zeros((rules.horizon, len(holder)))
        self._scripts: list[_Scripts] = []
        for number, (seating, seed) in enumerate(games):
            self._seat(number, seating, seed)
        policies = [self._policy(seating) for seating, _ in games]
        seeds = [seed for _, seed in games]
        self._planned = PlannedKitchens(envs, policies, seeds, self._batch.states) if envs else None
        self._followers = [
            Followers(entrants[number], self._planned, trained[number].tolist(), self._seeds(trained[number]), explore)
            for number in following
            if self._planned is not None
        ]

    def _seat(self, game: int, seating: Seating, seed: int) -> None:
        """Random numbers of a game's partners, as `SeatedPolicy.begin` gives them."""
        for place, number in enumerate(dict.fromkeys(seating)):
            rng = np.random.default_rng(seed_at(seed, place))
            seats = [seat for seat, one in enumerate(seating) if one == number]
            rows = [_SEATS * game + seat for seat in seats]
            settings = self._entrants[number].settings
            if settings.kind != SCRIPTED:
                self._draws[:, rows] = rng.random((len(self._draws), len(rows)))
                continue
            kitchen = SoupKitchen(self._batch.layout, self._batch.dynamics, self._batch.horizon)
            cooks = [HabitualCook(kitchen, seat, settings.habit, rng) for seat in seats]
            self._scripts.append(_Scripts(game, kitchen, rng, rows, cooks))

    def _policy(self, seating: Seating) -> Policy | None:
        """The policy by which an episode is named."""
        policies = (self._entrants[number].policy for number in seating)
        return next((one for one in policies if one is not None), None)

    def _seeds(self, rows: np.ndarray) -> list[int]:
        """The seed of the partner that holds each row."""
        found = []
        for row in rows.tolist():
            seating, seed = self._games[row // _SEATS]
            found.append(seed_at(seed, list(dict.fromkeys(seating)).index(seating[row % _SEATS])))
        return found

    def play(self) -> list[Episode]:
        """Plays all games to their ends."""
        if self._planned is None:
            return self._play_alone()
        with torch.no_grad():
            for step in range(self._batch.horizon):
                self._planned.step(self._actions(step).reshape(-1, _SEATS))
        return self._planned.episodes()

    def _play_alone(self) -> list[Episode]:
        count = len(self._games)
        score, soups, shaped = np.zeros(count), np.zeros(count), np.zeros((count, _SEATS))
        with torch.no_grad():
            for step in range(self._batch.horizon):
                sparse, shares, _ = self._batch.step(self._actions(step).reshape(count, _SEATS))
                score += sparse.sum(1)
                soups += (sparse > 0).sum(1)
                shaped += shares
        return [self._episode(*told) for told in zip(self._games, score, soups, shaped, strict=True)]

    def _actions(self, step: int) -> np.ndarray:
        """Actions (2 * games,) of all rows."""
        if self._networks:
            planes = self._batch.lossless()
            seen = planes.reshape(_SEATS * len(planes), -1).view(np.uint8)
        for actor, rows in self._networks:
            probabilities = actor(torch.from_numpy(seen[rows]).float()).double().softmax(-1).numpy()
            self._probabilities[rows] = probabilities / probabilities.sum(1, keepdims=True)
        for cooks in self._followers:
            self._probabilities[cooks.rows] = _SURE[cooks.actions(self._batch.states)]
        for one in self._scripts:
            one.kitchen.state = self._batch.states[one.game]
            self._probabilities[one.rows] = _SURE[[cook.action() for cook in one.cooks]]
            self._draws[step, one.rows] = [one.rng.random() for _ in one.rows]
        probabilities = np.where(self._sharp[:, None], _SURE[self._probabilities.argmax(1)], self._probabilities)
        mixed = (1.0 - self._noise - self._pauses) * probabilities + self._noise / NUM_ACTIONS
        mixed[:, kernel.STAY] += self._pauses[:, 0]
        probabilities = np.where(self._mixed[:, None], mixed / mixed.sum(1, keepdims=True), probabilities)
        sums = probabilities.cumsum(1)
        drawn = (sums / sums[:, -1:] <= self._draws[step][:, None]).sum(1)  # as numpy's `Generator.choice`
        return np.where(self._drawn, drawn, probabilities.argmax(1))

    def _episode(self, game: tuple[Seating, int], score: float, soups: float, shaped: np.ndarray) -> Episode:
        episode = new_episode(self._policy(game[0]), self._env, game[1])
        episode.length = self._batch.horizon
        shares = zip(episode.agents, shaped, strict=True)
        episode.returns = {agent: float(score + self._env.shaping * share) for agent, share in shares}
        episode.metrics = {"score": float(score), "soups": float(soups), "shaped": float(shaped.sum())}
        return episode
