"""Cross-play: how policies of different seeds play with each other, and with partners that none of them has seen."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.envs.games import game_of, make_env, without_subgoals
from rllib_llm_comm.envs.interface import EPISODE_METRICS, GameInfo
from rllib_llm_comm.evaluation.figures import render_page
from rllib_llm_comm.evaluation.play_settings import CrossPlaySettings
from rllib_llm_comm.evaluation.rollout import Episode, Progress, play, record
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.evaluation.statistics import Estimate, jackknife
from rllib_llm_comm.policies.load_policy import Loading
from rllib_llm_comm.policies.partner_settings import PEOPLE, SCRIPTED, PartnerEntry, PartnerSettings, parse_partners
from rllib_llm_comm.policies.partners import allowed_actions, make_partner, try_out
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.policy_folder import weights_digest
from rllib_llm_comm.policies.policy_manifest import GROUNDED
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import ScriptedPlanner, trusting
from rllib_llm_comm.verco.teachers.base import TeacherMessages

RETURN = "return"


def require_metric(metric: str, env: Any, seed: int) -> None:
    """Refuses a metric that a game, which is begun anew, does not count.

    Our games tell all names at their reset. Of a game that does not tell this one, an episode of random actions is
    played. No planner and no teacher is asked: their answers may cost something.

    Raises:
        UserError: If the metric is neither `RETURN` nor among them.
    """
    if metric == RETURN:
        return
    names: dict[str, None] = {}
    while isinstance(env, PlannedSubgoals | TeacherMessages):
        names.update(dict.fromkeys(env.figures()))
        env = env.env
    game, rng = PlayedGame(env, seed), np.random.default_rng(seed)
    names.update(_told(game.infos))
    while metric not in names and not game.over:
        free = {agent: allowed_actions(env, agent, game.observations[agent]) for agent in game.asked}
        game.advance({agent: int(rng.choice(np.flatnonzero(allowed))) for agent, allowed in free.items()})
        names.update(_told(game.infos))
    if metric not in names:
        raise UserError(
            f"`metric` is {metric!r} but must be {RETURN!r} or what the game counts: {', '.join(names) or 'nothing'}."
            f"{did_you_mean(metric, names)}"
        )


def _told(infos: Mapping[Any, Mapping[str, Any]]) -> dict[str, None]:
    return dict.fromkeys(str(name) for info in infos.values() for name in info.get(EPISODE_METRICS, {}))


_PAIR = 2
_PALE, _FULL = (255, 253, 249), (217, 119, 66)


@dataclass
class CrossPlayResult:
    """Scores of all pairs, and their figures.

    Attributes:
        env: Id of the environment.
        env_config: Its settings.
        metric: The game's metric that is the score, or "return".
        episodes: Episodes per pair and seat.
        seed: Seed of the first episode.
        sampled: True if anybody's actions were sampled.
        agents: The agents of the game.
        players: Settings of the players, the seeds of one method.
        groups: Settings of the unseen partners, by group.
        scores: Per seating (who holds each agent's seat; players first, then all partners in their order) the score of
            each episode.
        notes: Sentences about the figures.
        planning: Settings of the planner of the whole game; `None` if none was given.
        stand_ins: What stands in for what the papers use (`evaluation.stand_ins`).
    """

    env: str
    env_config: dict[str, Any]
    metric: str
    episodes: int
    seed: int
    sampled: bool
    agents: list[str]
    players: list[dict[str, Any]]
    groups: dict[str, list[dict[str, Any]]]
    scores: dict[tuple[int, ...], list[float]]
    notes: list[str] = field(default_factory=list)
    planning: dict[str, Any] | None = None
    stand_ins: list[str] = field(default_factory=list)

    def matrix(self, seat: int, group: str | None = None) -> np.ndarray:
        """(players, others) mean scores of each player in a seat (its number) beside each other one in all other seats.

        The others are those of a group, or the players themselves.
        """
        count, places = len(self.players), len(self.agents)
        names = [name for name in self.groups for _ in self.groups[name]]
        others = list(range(count)) if group is None else [count + k for k, name in enumerate(names) if name == group]
        return np.array(
            [
                [
                    float(np.mean(self.scores[tuple(ego if place == seat else other for place in range(places))]))
                    for other in others
                ]
                for ego in range(count)
            ]
        )

    def self_play(self) -> Estimate:
        """Mean of each player with itself."""
        own = np.diagonal(self.matrix(0))
        return _over_players(own)

    def cross_play(self, seat: int | None = None) -> Estimate:
        """Mean of each player with all other players, in a seat (its number) or over all."""
        table = self._over_seats() if seat is None else self.matrix(seat)
        return jackknife(len(table), lambda kept: _off_diagonal(table[np.ix_(kept, kept)]))

    def with_others(self, seat: int) -> np.ndarray:
        """(players,) mean of each player in a seat (its number) with all other players; NaN where there are none.

        Among players of two seats the mean over all players is the same in both, as every game has one in each.
        """
        table = self.matrix(seat)
        count = len(table)
        return (table.sum(1) - np.diagonal(table)) / (count - 1) if count > 1 else np.full(count, math.nan)

    def gap(self) -> Estimate:
        """The share of self-play lost with others, 1 - cross-play / self-play; NaN if self-play is not above 0."""
        table = self._over_seats()

        def lost(kept: np.ndarray) -> float:
            own = float(np.diagonal(table)[kept].mean())
            return math.nan if own <= 0 else 1.0 - _off_diagonal(table[np.ix_(kept, kept)]) / own

        return jackknife(len(table), lost)

    def with_group(self, group: str, seat: int | None = None) -> Estimate:
        """Mean of each player with the partners of a group, in a seat (its number) or over all."""
        seats = range(len(self.agents)) if seat is None else [seat]
        return _over_players(np.mean([self.matrix(one, group) for one in seats], axis=(0, 2)))

    def to_json(self) -> dict[str, Any]:
        """All figures as plain values; numbers that are not known are `None`."""
        apart = list(enumerate(self.agents))
        own = {
            name: getattr(self, name)
            for name in ("env", "env_config", "planning", "metric", "episodes", "seed", "sampled")
        }
        cross = {
            "by_seat": {agent: _plain(self.cross_play(seat)) for seat, agent in apart},
            "by_player": {agent: [_known(mean) for mean in self.with_others(seat)] for seat, agent in apart},
        }
        names = [one["name"] for one in [*self.players, *(one for group in self.groups.values() for one in group)]]
        return {
            **own,
            "agents": self.agents,
            "players": self.players,
            "self_play": _plain(self.self_play()),
            "cross_play": {**_plain(self.cross_play()), **cross},
            "gap": _plain(self.gap()),
            "matrix": {agent: _rounded(self.matrix(seat)) for seat, agent in apart},
            "groups": {
                name: {
                    **_plain(self.with_group(name)),
                    "by_seat": {agent: _plain(self.with_group(name, seat)) for seat, agent in apart},
                    "partners": partners,
                    "matrix": {agent: _rounded(self.matrix(seat, name)) for seat, agent in apart},
                }
                for name, partners in self.groups.items()
            },
            "games": [
                {
                    "seats": {agent: names[number] for agent, number in zip(self.agents, seating, strict=True)},
                    "scores": _rounded(found),
                }
                for seating, found in self.scores.items()
            ],
            "notes": self.notes,
            "stand_ins": self.stand_ins,
        }

    def _over_seats(self) -> np.ndarray:
        return np.asarray(np.mean([self.matrix(seat) for seat in range(len(self.agents))], axis=0))


def write_cross_play(result: CrossPlayResult, path: Path) -> Path:
    """Writes the figures as a page with heat-maps, which needs nothing else; it appears at once or not at all."""
    told = result.to_json()
    matrices = [*told["matrix"].values(), *(m for group in told["groups"].values() for m in group["matrix"].values())]
    scores = [value for matrix in matrices for row in matrix for value in row]
    filters = {"estimate": estimate_text, "colour": _colours(min(scores), max(scores)), "with_others": others_text}
    write_atomically(path, render_page("cross_play.html", filters, told=told))
    return path


def others_text(told: Mapping[str, Any], agent: str, player: int) -> str:
    """A player's mean with all other players in one seat, as text, of what `CrossPlayResult.to_json` tells."""
    mean = told["cross_play"]["by_player"][agent][player]
    return "—" if mean is None else f"{mean:.4g}"


def estimate_text(found: Mapping[str, Any]) -> str:
    """A figure (`mean`) with its `standard_error`, as text."""
    mean, error = found["mean"], found["standard_error"]
    if mean is None:
        return "—"
    return f"{mean:.4g}" if error is None else f"{mean:.4g} ± {error:.2g}"


def _colours(low: float, high: float) -> Callable[[float], str]:
    """Colour of a score on the scale of all cells, from pale (the least) to full (the most)."""

    def colour(score: float) -> str:
        share = 0.0 if high <= low else (score - low) / (high - low)
        mixed = [round(pale + share * (full - pale)) for pale, full in zip(_PALE, _FULL, strict=True)]
        return f"rgb({mixed[0]}, {mixed[1]}, {mixed[2]})"

    return colour


def _over_players(values: np.ndarray) -> Estimate:
    return jackknife(len(values), lambda kept: float(values[kept].mean()) if len(kept) else math.nan)


def _off_diagonal(table: np.ndarray) -> float:
    count = len(table)
    if count < _PAIR:
        return math.nan
    return float((table.sum() - np.trace(table)) / (count * (count - 1)))


def _plain(found: Estimate) -> dict[str, float | None]:
    mean, error = map(_known, found)
    return {"mean": mean, "standard_error": error}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)


def _rounded(values: Any) -> Any:
    return np.round(np.asarray(values, np.float64), 4).tolist()


_OBSERVE = "observe"
_OWN = ("render_mode", "shaping", "vector")
"""Settings that every partner may have for itself: a kitchen shows each what it was trained to see."""

Seating = tuple[int, ...]
"""Per agent of the game the number of the partner that holds its seat."""


class CrossPlay:
    """Plays policies with each other in all seats.

    Args:
        players: The policies that are judged, seeds of one method: paths of checkpoints, or anything that
            `parse_partners` takes.
        partners: Group -> partners that none of them was trained with.
        settings: Settings of play; `None` for the defaults.

    Attributes:
        agents: The agents of the game.
        notes: Sentences about what a reader of the figures has to know.
        stand_ins: What stands in for what the papers use (`evaluation.stand_ins`).

    Raises:
        UserError: If something cannot be loaded or played, the game does not count `metric`, or names of players and
            partners are the same.
    """

    def __init__(
        self,
        players: Sequence[PartnerEntry],
        partners: Mapping[str, Sequence[PartnerEntry]] | None = None,
        settings: CrossPlaySettings | None = None,
    ) -> None:
        self._how = settings or CrossPlaySettings()
        self._planning = None if self._how.planning is None else {"planner": SCRIPTED, **self._how.planning}
        if self._planning is not None and self._how.trust:
            self._planning["planner"] = trusting(self._planning["planner"])
        self.players = parse_partners(players, "players")
        self.groups = _groups(partners or {}, [one.name for one in self.players])
        load = functools.cache(Loading.from_attributes(self._how).load)

        every = [*self.players, *(one for group in self.groups.values() for one in group)]
        self._entrants = [make_partner(one, load) for one in every]
        trained = [one.policy.manifest for one in self._entrants if one.policy is not None]
        self.stand_ins = stand_ins(*trained, self._planning)
        self.notes = [
            f"{one.name} replays by situation what people said and did in a recorded session: nobody answers there."
            for one in every
            if one.kind == PEOPLE
        ]
        if self._planning is not None:
            self.notes.append(self._planned())
        self._settings = self._environment()
        env = self._make_env()
        self.agents = [str(agent) for agent in env.possible_agents]
        self._note_differences(env)
        self._note_sessions(env)
        require_metric(self._how.metric, env, self._how.seed)
        record = game_of(env.unwrapped)
        tables = record.code("tables") if record is not None and self._how.arrays else None
        self._tables = tables(env, self._entrants, not self._how.greedy, self._make_env) if tables else None
        if len(self.agents) == 1:
            raise UserError("cross-play needs an environment with at least two agents, and this one has one.")
        self._try_out(env)
        env.close()

    def play(self, progress: Progress | None = None) -> CrossPlayResult:
        """Plays all pairs in all seats and computes the figures.

        Args:
            progress: Called with the numbers of pairs that were played and of all.

        Raises:
            UserError: If a pair cannot be played.
        """
        wanted = self._seatings()
        scores: dict[Seating, list[float]] = {}
        for seating, played in self._played(wanted):
            scores[seating] = [self._score(episode) for episode in played]
            if progress:
                progress(len(scores), len(wanted))
        players = self._told(self.players)
        return CrossPlayResult(
            env=str(self._how.env or self._first().manifest.env),
            env_config=self._settings,
            metric=self._how.metric,
            episodes=self._how.episodes,
            seed=self._how.seed,
            sampled=not self._how.greedy and any(one.policy is None or one.policy.draws for one in self._entrants),
            agents=self.agents,
            players=players,
            groups={name: self._told(group) for name, group in self.groups.items()},
            scores={seating: scores[seating] for seating in wanted},
            notes=[*self.notes, *_same_weights(players)],
            planning=self._planning,
            stand_ins=self.stand_ins,
        )

    def _told(self, partners: Sequence[PartnerSettings]) -> list[dict[str, Any]]:
        """Settings of partners; checkpoints with a digest of their weights, as another training may have their path."""
        trained = {one.settings.policy for one in self._entrants if one.policy is not None}
        return [
            one.to_dict() | ({"digest": weights_digest(one.policy)} if one.policy in trained else {})
            for one in partners
        ]

    def record(self, names: Sequence[str], episodes: int = 1) -> list[Episode]:
        """Episodes of one cell of the matrix, with their frames, for `write_replay`.

        Args:
            names: Name of the player or partner of each seat, in the order of `agents`.
            episodes: Number of episodes; they are the first ones of the cell.

        Raises:
            UserError: If there is nobody of a name, or too few or many names.
        """
        known = self.names
        if len(names) != len(self.agents):
            raise UserError(
                f"a cell has {len(self.agents)} seats ({', '.join(self.agents)}) but {len(names)} names were given."
            )
        for name in names:
            if name not in known:
                raise UserError(f"nobody is named {name!r}; the players and partners are {', '.join(known)}.")
        seats = tuple(known.index(name) for name in names)
        policy = self._seated(seats)
        return record(policy, episodes=episodes, seed=self._how.seed, explore=not self._how.greedy)

    @property
    def names(self) -> list[str]:
        """Names of the players, then of all partners."""
        return [partner.settings.name for partner in self._entrants]

    def alone(self, name: str) -> SeatedPolicy:
        """A player or partner, one of `names`, that holds all seats."""
        return self._seated((self.names.index(name),) * len(self.agents))

    def _seatings(self) -> list[Seating]:
        """All seatings that the figures need, each once: every player in every seat beside every other and itself."""
        count = len(self.players)
        found = [
            tuple(ego if place == seat else other for place in range(len(self.agents)))
            for ego in range(count)
            for other in range(len(self._entrants))
            for seat in range(len(self.agents))
        ]
        return list(dict.fromkeys(found))

    def _played(self, wanted: Sequence[Seating]) -> Iterator[tuple[Seating, list[Episode]]]:
        """All seatings with their episodes: first those that are played in arrays."""
        seated = frozenset() if self._tables is None else self._tables.seated
        together = [seating for seating in wanted if seated.issuperset(seating)]
        if together and self._tables is not None:
            yield from self._tables.play(together, range(self._how.seed, self._how.seed + self._how.episodes))
        for seating in wanted:
            if not seated.issuperset(seating):
                yield seating, self._episodes(seating)

    def _episodes(self, seating: Seating) -> list[Episode]:
        how = self._how
        policy = self._seated(seating)
        return play(
            policy, episodes=how.episodes, seed=how.seed, explore=not how.greedy, env=policy.env, num_envs=how.num_envs
        )

    def _seated(self, seating: Seating) -> SeatedPolicy:
        chosen = [self._entrants[number] for number in seating]
        return SeatedPolicy(dict(zip(self.agents, chosen, strict=True)), self._make_env)

    def _try_out(self, env: Any) -> None:
        """Lets everybody choose once, as far as that costs nothing, before the first pair has been played.

        Raises:
            UserError: If one cannot act in this game.
        """
        if isinstance(env, PlannedSubgoals) and type(env.planner) is not ScriptedPlanner:
            return  # a plan may cost something
        for one in self._entrants:
            try:
                try_out(one, env, self._how.seed)
            except UserError as error:
                raise UserError(f"{one.settings.name!r} cannot play here: {error}") from error

    def _score(self, episode: Episode) -> float:
        if self._how.metric == RETURN:
            return sum(episode.returns.values()) / len(episode.returns)
        if self._how.metric not in episode.metrics:
            raise UserError(
                f"`metric` is {self._how.metric!r}, which the game did not count in the episode of seed {episode.seed}"
                f"; use {RETURN!r}, or a metric that it counts in every episode."
            )
        return float(episode.metrics[self._how.metric])

    def _first(self) -> Any:
        """The checkpoint whose environment is played: the first that reads subgoals, if anybody plans, or the first."""
        found = [one.policy for one in self._entrants if one.policy is not None]
        if self._planning is None:
            planned = [policy for policy in found if (policy.manifest.planning or {}).get("planner") is not None]
        else:
            planned = [policy for policy in found if _reads_subgoals(policy.manifest)]
        return next(iter([*planned, *found]), None)

    def _planned(self) -> str:
        """The note on the planner.

        Raises:
            UserError: If nobody reads subgoals.
        """
        planning = self._planning or {}
        names = [
            one.settings.name
            for one in self._entrants
            if one.policy is not None and _reads_subgoals(one.policy.manifest)
        ]
        if not names:
            raise UserError(
                f"`planning` is {planning!r} but none of the players and partners reads subgoals; omit it, or "
                "add a checkpoint that does, such as one of EMMA."
            )
        planner = planning["planner"]
        named = planner.get("name", planner) if isinstance(planner, Mapping) else planner
        return f"{', '.join(names)}: told by the planner {named!r}, which plans for all seats."

    def _environment(self) -> dict[str, Any]:
        """Settings of the environment: those of the first checkpoint, with all parts that anybody observes."""
        policies = [
            (one.settings.name, *self._trained_in(one.policy.manifest))
            for one in self._entrants
            if one.policy is not None
        ]
        given = dict(self._how.env_config)
        first = self._first()
        if first is None:
            if self._how.env is None:
                raise UserError("`env` is not given and nobody is a checkpoint; name the environment to play.")
            return given
        env_id, config = self._trained_in(first.manifest)
        base = dict(config)
        parts = [part for _, _, own in policies for part in _parts(own.get(_OBSERVE))]
        if _OBSERVE in base and _OBSERVE not in given:
            base[_OBSERVE] = list(dict.fromkeys([*_parts(base[_OBSERVE]), *parts]))
        for name, own_id, _ in policies:
            if self._how.env is None and own_id != env_id:
                raise UserError(
                    f"{name!r} was trained on {own_id!r} but others on {env_id!r}; choose one with "
                    "`env`, or omit one of them."
                )
        return {**base, **given}

    def _note_differences(self, env: Any) -> None:
        """Notes who was trained with other settings than the first checkpoint's, or than the game's defaults."""
        first = self._first()
        if first is None:
            return
        config = self._trained_in(first.manifest)[1]
        played = {**GameInfo(env).settings, **config}
        left = {_OBSERVE, *_OWN, *self._how.env_config}
        for one in self._entrants:
            own = {} if one.policy is None else self._trained_in(one.policy.manifest)[1]
            keys = sorted({*own, *(config if one.policy is not None else ())} - left)
            odd = [key for key in keys if own.get(key) != (played if key in own else config).get(key)]
            if odd:
                self.notes.append(f"{one.settings.name} was trained with another {', '.join(odd)} than is played here.")

    def _note_sessions(self, env: Any) -> None:
        """Notes whose session was of a game with other settings, where hardly a situation comes again."""
        played = json.loads(json.dumps(GameInfo(env).settings or self._settings, default=str))
        for one in self._entrants:
            recorded = {} if one.people is None else one.people.session.env_config
            odd = sorted({*recorded} & {*played} - {_OBSERVE, *_OWN})
            odd = [key for key in odd if recorded[key] != played[key]]
            if odd:
                self.notes.append(f"{one.settings.name}: the session had another {', '.join(odd)} than is played here.")

    def _trained_in(self, manifest: Any) -> tuple[str, dict[str, Any]]:
        """Id and settings of a checkpoint's environment; under a planner of one that gives no subgoals itself."""
        if self._planning is None:
            return manifest.env, dict(manifest.env_config)
        return without_subgoals(manifest.env, dict(manifest.env_config))

    def _make_env(self, **settings: Any) -> Any:
        first, planning = self._first(), self._planning
        merged = {**self._settings, **settings}
        if first is not None and self._how.env is None:
            return first.env(planning=planning, **merged)
        if planning is None:
            return make_env(str(self._how.env), **merged)
        env_id, merged = without_subgoals(str(self._how.env), merged)
        return PlannedSubgoals(make_env(env_id, **merged), **{"subgoal_reward": 0.0, "wait": True, **planning})


def _reads_subgoals(manifest: Any) -> bool:
    return manifest.kind == GROUNDED or (manifest.planning or {}).get("planner") is not None


def _parts(observe: Any) -> list[str]:
    return [observe] if isinstance(observe, str) else list(observe or ())


def _same_weights(players: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note for each player with the weights of an earlier one: it is no further seed."""
    first: dict[str, str] = {}
    notes = []
    for one in players:
        other = first.setdefault(one.get("digest", one["name"]), one["name"])
        if other != one["name"]:
            notes.append(f"{one['name']} has the weights of {other}: the two are one seed, counted twice.")
    return notes


def _groups(
    partners: Mapping[str, Sequence[PartnerEntry]], taken: Sequence[str]
) -> dict[str, tuple[PartnerSettings, ...]]:
    """The parsed groups; a name belongs to one partner only."""
    if not isinstance(partners, Mapping):
        raise UserError(
            f"`partners` is {str(partners)[:80]!r} but must be a mapping from the name of a group to a list of "
            "partners."
        )
    groups = {str(name): parse_partners(group, f"partners.{name}") for name, group in partners.items()}
    known = set(taken)
    for name, group in groups.items():
        for one in group:
            if one.name in known:
                raise UserError(
                    f"`partners.{name}` has {one.name!r}, a name that is taken; give it a `name` of its own."
                )
            if one.weight != 1:
                raise UserError(f"`partners.{name}` has a `weight`, but in cross-play all partners count alike.")
            known.add(one.name)
    return groups
