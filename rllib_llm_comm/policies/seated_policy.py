"""A policy whose seats are held by different partners, messages between them included; needs no Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import secret_of
from rllib_llm_comm.policies.decision import Decision, Heard, Judge, Memory, Policy, Request
from rllib_llm_comm.policies.partners import Partner, PartnerMemory
from rllib_llm_comm.policies.policy import Spoken, TalkingPolicy


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
            if partner.needs_the_team and len(self.partners) > 1:
                raise UserError(
                    f"partner {partner.settings.name!r} is a checkpoint of {_algorithm(partner)}, whose agents "
                    "exchange vectors inside of one network; it can play with itself only."
                )
        self.manifest = next((one.policy.manifest for one in self.partners if one.policy is not None), None)
        self._memory: SeatedMemory | None = None

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
        """Names the game that `act` plays; call it after `reset`.

        Args:
            env: The game.
        """
        self._now().env = env

    def note(self, infos: Mapping[Any, Mapping[str, Any]]) -> None:
        """Notes what is told to anybody in the episode that `act` plays.

        Args:
            infos: The environment's latest infos, by agent.
        """
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
        shares = self._shares(episodes)
        if spoken is None:
            told = self._speak(shares, explore)
        else:
            told = [
                [{a: said[a] for a in seen} for (_, seen), said in zip(share, spoken, strict=True)] for share in shares
            ]
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

    def _probabilities(self, heard: Sequence[Heard]) -> np.ndarray:
        """The chances of each candidate behind messages that are given, as of `LanguagePolicy.probabilities`."""
        env = None if self._memory is None else self._memory.env
        return np.concatenate([self._holder(row[0]).probabilities([row], env) for row in heard])

    def _now(self) -> SeatedMemory:
        if self._memory is None:
            raise UserError("`act` was called before `reset`; begin an episode first.")
        return self._memory


def seed_at(seed: int, place: int) -> int:
    """The seed of the partner at a place; that of the first is the episode's own.

    Args:
        seed: Of the episode.
        place: Number of the partner, in the order of the first seat that each holds.
    """
    return seed if place == 0 else int(np.random.SeedSequence([seed, place]).generate_state(1)[0])


def _algorithm(partner: Partner) -> str:
    return str(getattr(getattr(partner.policy, "manifest", None), "algorithm", "a checkpoint"))
