"""Seats that partners hold: around a game beside one learner, and as a policy of its own; needs no Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import STEP_REWARDS, asked, joined_info, secret_of, with_figures
from rllib_llm_comm.policies.decision import Decision, Hearing, Judge, Memory, Policy, Request
from rllib_llm_comm.policies.numeric_network import VECTOR
from rllib_llm_comm.policies.partner_settings import shares
from rllib_llm_comm.policies.partners import Partner, PartnerMemory, judge_ahead, speak_ahead
from rllib_llm_comm.policies.policy import Spoken, TalkingPolicy

BOTH = "both"


class Told(dict[str, Any]):
    """A record of an episode that stays one object, however often RLlib copies the episode's data.

    Attributes:
        complete: Called by whoever is going to read it, so that partners speak that have not yet.
    """

    complete: Callable[[], None] = staticmethod(lambda: None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Told:
        """The same object: RLlib copies an episode's data where a roll-out cuts it."""
        return self

    def __reduce__(self) -> tuple[type[Told], tuple[dict[str, Any]]]:
        """Elsewhere, where an episode is sent, it is a record without the games."""
        return Told, (dict(self),)


def _speak(games: Iterable[PartnerSeats]) -> None:
    """Lets the partners of some games speak that have not yet, each in all of its games at once."""
    waiting = _by_partner(game for game in games if game.spoken is None)
    speak_ahead([(partner, [game.request for game in own]) for partner, own in waiting])
    for partner, own in waiting:
        said = partner.speak_together([game.request for game in own])
        for game, one in zip(own, said, strict=True):
            game.spoken = one


def _choose(games: Iterable[PartnerSeats]) -> None:
    """Lets the partners of some games choose that have not yet, each in all of its games at once."""
    waiting = _by_partner(game for game in games if game.chosen is None)
    judge_ahead([(partner, [game.request for game in own]) for partner, own in waiting])
    for partner, own in waiting:
        made = partner.act_together([game.request for game in own], True, [game.spoken or {} for game in own])
        for game, one in zip(own, made, strict=True):
            game.chosen = one


def _by_partner(games: Iterable[PartnerSeats]) -> list[tuple[Partner, list[PartnerSeats]]]:
    found: dict[int, tuple[Partner, list[PartnerSeats]]] = {}
    for game in games:
        if game.partner is not None and game.asked_now:
            found.setdefault(id(game.partner), (game.partner, []))[1].append(game)
    return list(found.values())


class PartnerSeats(BaseParallelWrapper):
    """Shows the learner its own agent only; a partner, drawn anew for each episode, acts for all others.

    The learner's seat is drawn anew, too. What it is paid while it is busy comes with its next observation. In an
    episode of self-play all agents are the learner's. At the end the learner's `episode_metrics` have its return under
    `return_with_` and the partner's name.

    Args:
        env: A parallel environment.
        pool: The partners, with their weights; without any the learner holds all seats.
        seat: `"both"`: the learner takes every seat equally often; or the name of its agent.
        self_play_share: In [0, 1): the share of episodes without partners.
        beside: A list that the games of an EnvRunner share, to which this one adds itself. Their partners speak when
            the first mailbox is read (`Told.complete`), and choose when the first game goes on, each in all of its
            games at once: the same as alone. The learners speak in between. `None`: partners speak at once.

    Attributes:
        asked_now: Observations of the partner's agents that have to choose.
        spoken: What they have said; `None` before.
        is_heard: True if the mailbox was read since they were asked: the learner speaks, too.
        chosen: Their decisions; `None` before.
        partner: The partner of this episode; `None` in self-play.
        learners: The agents of the learner in this episode.
        mailbox: Latest message by speaker; the learner's are written by whoever lets it speak.
        vectors: Vector of each of the partner's agents at its last decision, for critics that see the whole team.
    """

    def __init__(
        self,
        env: ParallelEnv,
        pool: Sequence[Partner],
        seat: str = BOTH,
        self_play_share: float = 0.0,
        beside: list[PartnerSeats] | None = None,
    ) -> None:
        super().__init__(env)
        self._speaks_at_once = beside is None
        self._beside = [] if beside is None else beside
        self._beside.append(self)
        self.seat_others(pool, self_play_share)
        self._seat = seat
        self.possible_agents = list(env.possible_agents)
        self.render_mode = getattr(env, "render_mode", None)
        self._rng = np.random.default_rng()
        self.partner: Partner | None = None
        self.learners: list[Any] = list(self.possible_agents)
        self._memory: PartnerMemory | None = None
        self._wait({})
        self._earned = 0.0
        self.meet_anew()

    def seat_others(self, pool: Sequence[Partner], self_play_share: float = 0.0) -> None:
        """Takes another pool, from which the next episode's partner is drawn.

        Args:
            pool: The partners; without any the learner holds all seats.
            self_play_share: The share of episodes without partners.
        """
        self._pool = list(pool)
        self._shares = shares([partner.settings for partner in pool])
        self._self_play = self_play_share if pool else 1.0

    def meet_anew(self) -> tuple[Told, Told]:
        """Begins new records of what agents tell each other; call it before `reset`.

        Returns:
            `mailbox` and `vectors`.
        """
        self.mailbox, self.vectors = Told(), Told()
        self.mailbox.complete = self._hear
        return self.mailbox, self.vectors

    @property
    def agents(self) -> list[Any]:  # type: ignore[override]
        """The learner's agents that are in the game."""
        return [agent for agent in self.env.agents if agent in self.learners]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode: draws the partner and the learner's seat, and lets the partner play until it is asked.

        Args:
            seed: Fixes both and what the partner draws, beside the game.
        """
        if seed is not None:
            self._rng = np.random.default_rng([seed, 1])
        self._draw()
        self.mailbox.clear()
        self.vectors.clear()
        self._earned = 0.0
        observations, infos = self.env.reset(seed=seed, options=options)
        self._listen(observations, infos)
        if self._idle(infos):
            zero = dict.fromkeys(self.learners, 0.0)
            infos = {agent: {**info, STEP_REWARDS: []} for agent, info in infos.items()}
            observations, _, _, _, infos = self._until_asked((observations, zero, {}, {}, infos))
        return self._own(observations), self._own(infos)

    def step(self, actions: dict[Any, Any]) -> Any:
        """Plays on until one of the learner's agents is asked, or the game is over for it."""
        found = self._until_asked(self._play(actions))
        observations, rewards, terminations, truncations, infos = map(self._own, found)
        self._earned += float(np.mean(list(rewards.values()))) if rewards else 0.0
        if not self.agents:
            name = "itself" if self.partner is None else self.partner.settings.name.replace("/", ".")
            infos = with_figures(infos, {f"return_with_{name}": self._earned})
        return observations, rewards, terminations, truncations, infos

    def _draw(self) -> None:
        """Partner, seat and the partner's random numbers of the next episode; always as many numbers are drawn."""
        alone, place = self._rng.random() < self._self_play, int(self._rng.integers(len(self.possible_agents)))
        drawn = int(self._rng.choice(len(self._pool), p=self._shares)) if self._pool else 0
        seed = int(self._rng.integers(2**31))
        self.partner = None if alone else self._pool[drawn]
        self._memory = None if self.partner is None else self.partner.begin(seed)
        if alone:
            self.learners = list(self.possible_agents)
        else:
            self.learners = [self.possible_agents[place] if self._seat == BOTH else self._seat]
        if self._memory is not None:
            self._memory.env, self._memory.mailbox = self.env, self.mailbox

    def _listen(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        """Lets the partner's agents that are asked speak, if not beside those of other games; they choose in the next
        step, when the learner has spoken."""
        self._wait({})
        if self.partner is None or self._memory is None:
            return
        self._memory.secret = secret_of(infos)
        choosing = [agent for agent in asked(self.env.agents, infos) if agent not in self.learners]
        seen = {agent: observations[agent] for agent in choosing}
        for agent, one in seen.items():
            if isinstance(one, Mapping) and VECTOR in one:
                self.vectors[str(agent)] = np.array(one[VECTOR], np.float32)
        self._wait(seen)
        if self._speaks_at_once:
            _speak([self])

    def _wait(self, seen: dict[Any, Any]) -> None:
        """The partner's agents have these observations, and have said and chosen nothing."""
        self.asked_now, self.is_heard = seen, False
        self.spoken: dict[Any, Spoken] | None = None
        self.chosen: dict[Any, Decision] | None = None

    @property
    def request(self) -> Request:
        """What the partner is asked now."""
        return Request(self._memory, self.asked_now)

    def _hear(self) -> None:
        _speak(self._beside)
        for game in self._beside:
            game.is_heard = True

    def _play(self, actions: Mapping[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """One step of the game, with the partner's actions."""
        chosen = dict(actions)
        # Of a game that is not heard yet the learner has still to speak, unless it is busy.
        ready = [game for game in self._beside if game.is_heard] if self.is_heard else [self]
        _speak(ready)
        _choose(ready)
        chosen.update({agent: decision.action for agent, decision in (self.chosen or {}).items()})
        found: tuple[dict[Any, Any], ...] = self.env.step(chosen)
        self._listen(found[0], found[4])
        return found

    def _until_asked(self, found: tuple[dict[Any, Any], ...]) -> tuple[dict[Any, Any], ...]:
        """The step's result, joined with those of further steps while the learner is busy."""
        while self._idle(found[4]):
            observations, rewards, terminations, truncations, infos = self._play({})
            earned = {agent: found[1].get(agent, 0.0) + reward for agent, reward in rewards.items()}
            told = {
                agent: joined_info(_with_rewards(found, agent), {**_with_rewards((0, rewards, 0, 0, infos), agent)})
                for agent in infos
            }
            found = (observations, earned, terminations, truncations, told)
        return found

    def _idle(self, infos: Mapping[Any, Any]) -> bool:
        """True if the game goes on, with the learner in it, and none of its agents is asked."""
        return self.partner is not None and bool(self.agents) and not asked(self.agents, infos)

    def _own(self, told: Mapping[Any, Any]) -> dict[Any, Any]:
        return {agent: told[agent] for agent in self.learners if agent in told}


def _with_rewards(found: Sequence[Any], agent: Any) -> dict[str, Any]:
    """An agent's info of a step with the rewards of its game steps, which the game may have left out."""
    info = dict(found[4].get(agent, {}))
    if STEP_REWARDS not in info:
        info[STEP_REWARDS] = [float(found[1].get(agent, 0.0))]
    return info


@dataclass
class SeatedMemory(Memory):
    """State of one episode between two calls.

    Attributes:
        partners: Per partner its memory; they share one mailbox.
        mailbox: The latest message of every speaker.
    """

    partners: list[PartnerMemory]
    mailbox: dict[str, str] = field(default_factory=dict)


class SeatedPolicy(Policy):
    """Lets every seat of a game be held by a partner.

    All agents that are asked in one moment speak first, each in its partner's way, then all of them hear and choose.
    Numeric partners hear nothing. A partner that holds several seats plays them as in its own training.

    Args:
        seats: Partner by agent; all agents of the game.
        make_env: Makes the game from settings that differ, such as `render_mode`; `None` if `play` is given one.

    Attributes:
        manifest: Of the first checkpoint; `None` if there is none.

    Raises:
        UserError: If a partner cannot share the game with others.
    """

    def __init__(self, seats: Mapping[str, Partner], make_env: Callable[..., Any] | None = None) -> None:
        self.seats, self._make_env = dict(seats), make_env
        self.partners = list({id(one): one for one in seats.values()}.values())
        for partner in self.partners:
            if partner.policy is not None and partner.needs_the_team and len(self.partners) > 1:
                raise UserError(
                    f"partner {partner.settings.name!r} is a checkpoint of {partner.policy.manifest.algorithm}, whose "
                    "agents exchange vectors inside of one network; it can play with itself only."
                )
        self.manifest = next((one.policy.manifest for one in self.partners if one.policy is not None), None)
        self._memory: SeatedMemory | None = None
        self._env: Any = None  # of the latest decisions, which are judged once more

    @property
    def judge(self) -> Judge | None:
        """As of `LanguagePolicy`; `None` if no partner talks."""
        return self._probabilities if any(partner.talks for partner in self.partners) else None

    def env(self, *, planning: Mapping[str, Any] | None = None, **settings: Any) -> Any:
        """Makes the game.

        Args:
            planning: Passed on if it is given.
            **settings: Settings that differ.

        Raises:
            UserError: If nobody told how.
        """
        if self._make_env is None:
            return super().env()
        return self._make_env(**settings, **({} if planning is None else {"planning": planning}))

    def begin(self, seed: int) -> SeatedMemory:
        """Begins an episode that is played beside others.

        Args:
            seed: Fixes everything that is drawn; partners draw different numbers, the first one those that its
                policy draws when it plays alone.
        """
        memories = [partner.begin(seed_at(seed, place)) for place, partner in enumerate(self.partners)]
        memory = SeatedMemory(memories)
        for one in memories:
            one.mailbox = memory.mailbox
        return memory

    def reset(self, seed: int | None = None) -> None:
        """Begins the episode that `act` plays.

        Args:
            seed: As of `begin`; `None` draws one.
        """
        seed = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        for place, partner in enumerate(self.partners):
            if partner.policy is not None:
                partner.policy.reset(seed=seed_at(seed, place))
        self._memory = self.begin(seed)

    def forget(self) -> None:
        """Lets all partners forget the messages that controls draw from, as of `LanguagePolicy.forget`."""
        for partner in self.partners:
            if isinstance(partner.policy, TalkingPolicy):
                partner.policy.forget()

    def meet(self, env: Any) -> None:
        """Names the game that `act` plays; call it after `reset`."""
        self._now().env = env

    def note(self, infos: Mapping[Any, Mapping[str, Any]]) -> None:
        """Notes what is told to anybody in the episode that `act` plays."""
        self._now().secret = secret_of(infos)

    @property
    def mailbox(self) -> dict[str, str]:
        """The latest message of every speaker in the episode that `act` plays; who is no partner writes into it."""
        return self._now().mailbox

    def speak(self, observations: Mapping[Any, Mapping[str, Any]], explore: bool = True) -> dict[Any, Spoken]:
        """Lets agents speak, as `act` does before they choose.

        Args:
            observations: As for `act`.
            explore: As for `act`.

        Returns:
            Each agent's message, as `act` takes it.
        """
        spoken = self._speak(self._shares([Request(self._now(), observations)]), explore)
        return {agent: said for (own,) in spoken for agent, said in own.items()}

    def act(
        self,
        observations: Mapping[Any, Mapping[str, Any]],
        explore: bool = True,
        spoken: Mapping[Any, Spoken] | None = None,
    ) -> dict[Any, Decision]:
        """Lets agents speak, listen and choose; call `reset` and `meet` first.

        Args:
            observations: Observations of the agents that are asked now.
            explore: True if checkpoints' actions are drawn.
            spoken: Their messages, where they have spoken before this call (`speak`).
        """
        return self.act_together([Request(self._now(), observations)], explore, None if spoken is None else [spoken])[0]

    def act_together(
        self, episodes: Sequence[Request], explore: bool = True, spoken: Sequence[Mapping[Any, Spoken]] | None = None
    ) -> list[dict[Any, Decision]]:
        """Does for several episodes what `act` does for one; each partner judges its agents of all of them at once.

        Args:
            episodes: Per episode its memory, whose `env` is set, and the observations of the agents that are asked.
            explore: As for `act`.
            spoken: Per episode the messages of these agents, where they have spoken before this call.
        """
        for memory, _ in episodes:
            self._env = memory.env
        shares = self._shares(episodes)
        if spoken is None:
            told = self._speak(shares, explore)
        else:
            told = [
                [{a: said[a] for a in seen} for (_, seen), said in zip(share, spoken, strict=True)] for share in shares
            ]
        judge_ahead(list(zip(self.partners, shares, strict=True)))
        found: list[dict[Any, Decision]] = [{} for _ in episodes]
        for partner, share, said in zip(self.partners, shares, told, strict=True):
            for decisions, own in zip(found, partner.act_together(share, explore, said), strict=True):
                decisions.update(own)
        return [
            {agent: decisions[agent] for agent in observations}
            for decisions, (_, observations) in zip(found, episodes, strict=True)
        ]

    def _shares(self, episodes: Sequence[Request]) -> list[list[Request]]:
        return [self._share(place, episodes) for place in range(len(self.partners))]

    def _speak(self, shares: Sequence[Sequence[Request]], explore: bool) -> list[list[dict[Any, Spoken]]]:
        """Per partner and episode what its agents say; all mailboxes take it in before anybody chooses."""
        speak_ahead(list(zip(self.partners, shares, strict=True)), explore)
        return [partner.speak_together(share, explore) for partner, share in zip(self.partners, shares, strict=True)]

    def _share(self, place: int, episodes: Sequence[Request]) -> list[Request]:
        """A partner's part of the episodes: its memories, and the observations of its agents."""
        share = []
        for memory, observations in episodes:
            own = memory.partners[place]
            own.env, own.secret = memory.env, memory.secret
            seen = {a: one for a, one in observations.items() if self._holder(a) is self.partners[place]}
            share.append(Request(own, seen))
        return share

    def _holder(self, agent: Any) -> Partner:
        if str(agent) not in self.seats:
            raise UserError(f"nobody holds the seat of {agent!r}; the seats are those of {', '.join(self.seats)}.")
        return self.seats[str(agent)]

    def _probabilities(self, heard: Sequence[Hearing]) -> np.ndarray:
        """The probabilities of each candidate behind messages that are given, as of `LanguagePolicy.probabilities`."""
        return np.concatenate([self._holder(one.agent).probabilities([one], self._env) for one in heard])

    def _now(self) -> SeatedMemory:
        if self._memory is None:
            raise UserError("`act` was called before `reset`; begin an episode first.")
        return self._memory


def seed_at(seed: int, place: int) -> int:
    """The seed of the partner at a place; that of the first is the episode's own.

    Args:
        place: Number of the partner, in the order of the first seat that each holds.
    """
    return seed if place == 0 else int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
