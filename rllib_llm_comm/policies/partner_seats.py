"""A game in which partners hold all seats but the learner's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from rllib_llm_comm.envs.interface import EPISODE_METRICS, STEP_REWARDS, asked, joined_info, secret_of
from rllib_llm_comm.policies.decision import Request
from rllib_llm_comm.policies.numeric_network import VECTOR
from rllib_llm_comm.policies.partner_settings import shares
from rllib_llm_comm.policies.partners import Partner, PartnerMemory
from rllib_llm_comm.policies.policy import Spoken

BOTH = "both"


class Told(dict[str, Any]):
    """A record of an episode that stays one object, however often RLlib copies the episode's data."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Told:
        """The same object: RLlib copies an episode's data where a roll-out cuts it."""
        return self


class PartnerSeats(BaseParallelWrapper):
    """Shows the learner its own agent only; a partner, drawn anew for each episode, acts for all others.

    The learner's seat is drawn anew, too. What it is paid while it is busy comes with its next observation. In an
    episode of self-play all agents are the learner's. At the end the learner's `episode_metrics` have its return under
    `return_with_` and the partner's name.

    Args:
        env: A parallel environment.
        pool: The partners, with their weights.
        seat: `"both"`: the learner takes every seat equally often; or the name of its agent.
        self_play_share: In [0, 1): the share of episodes without partners.

    Attributes:
        partner: The partner of this episode; `None` in self-play.
        learners: The agents of the learner in this episode.
        mailbox: Latest message by speaker; the learner's are written by whoever lets it speak.
        vectors: Vector of each of the partner's agents at its last decision, for critics that see the whole team.
    """

    def __init__(
        self, env: ParallelEnv, pool: Sequence[Partner], seat: str = BOTH, self_play_share: float = 0.0
    ) -> None:
        super().__init__(env)
        self._pool = list(pool)
        self._shares = shares([partner.settings for partner in pool])
        self._seat, self._self_play = seat, self_play_share
        self.possible_agents = list(env.possible_agents)
        self.render_mode = getattr(env, "render_mode", None)
        self._rng = np.random.default_rng()
        self.partner: Partner | None = None
        self.learners: list[Any] = list(self.possible_agents)
        self._memory: PartnerMemory | None = None
        self._waiting: tuple[dict[Any, Any], dict[Any, Spoken]] = ({}, {})
        self._earned = 0.0
        self.meet_anew()

    def meet_anew(self) -> tuple[Told, Told]:
        """Begins new records of what agents tell each other; call it before `reset`.

        Returns:
            `mailbox` and `vectors`.
        """
        self.mailbox, self.vectors = Told(), Told()
        return self.mailbox, self.vectors

    @property
    def agents(self) -> list[Any]:  # type: ignore[override]
        """The learner's agents that are in the game."""
        return [agent for agent in self.env.agents if agent in self.learners]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode: draws the partner and the learner's seat, and lets the partner play until it is asked.

        Args:
            seed: Fixes both and what the partner draws, beside the game.
            options: The game's own.
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
        """Plays on until one of the learner's agents is asked, or the game is over for it.

        Args:
            actions: Actions of the learner's agents.
        """
        found = self._until_asked(self._play(actions))
        observations, rewards, terminations, truncations, infos = map(self._own, found)
        self._earned += float(np.mean(list(rewards.values()))) if rewards else 0.0
        if not self.agents:
            name = "itself" if self.partner is None else self.partner.settings.name.replace("/", ".")
            told = {f"return_with_{name}": self._earned}
            infos = {
                agent: {**info, EPISODE_METRICS: {**info.get(EPISODE_METRICS, {}), **told}}
                for agent, info in infos.items()
            }
        return observations, rewards, terminations, truncations, infos

    def _draw(self) -> None:
        """Partner, seat and the partner's random numbers of the next episode; always as many numbers are drawn."""
        alone, place = self._rng.random() < self._self_play, int(self._rng.integers(len(self.possible_agents)))
        partner = self._pool[int(self._rng.choice(len(self._pool), p=self._shares))]
        seed = int(self._rng.integers(2**31))
        self.partner, self._memory = (None, None) if alone else (partner, partner.begin(seed))
        if alone:
            self.learners = list(self.possible_agents)
        else:
            self.learners = [self.possible_agents[place] if self._seat == BOTH else self._seat]
        if self._memory is not None:
            self._memory.env, self._memory.mailbox = self.env, self.mailbox

    def _listen(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        """Lets the partner's agents that are asked speak; they choose in the next step, when the learner has spoken."""
        if self.partner is None or self._memory is None:
            return
        self._memory.secret = secret_of(infos)
        choosing = [agent for agent in asked(self.env.agents, infos) if agent not in self.learners]
        seen = {agent: observations[agent] for agent in choosing}
        for agent, one in seen.items():
            if isinstance(one, Mapping) and VECTOR in one:
                self.vectors[str(agent)] = np.array(one[VECTOR], np.float32)
        self._waiting = (seen, self.partner.speak_together([Request(self._memory, seen)])[0] if seen else {})

    def _play(self, actions: Mapping[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """One step of the game, with the partner's actions."""
        chosen = dict(actions)
        seen, spoken = self._waiting
        if self.partner is not None and self._memory is not None and seen:
            decisions = self.partner.act_together([Request(self._memory, seen)], True, [spoken])[0]
            chosen.update({agent: decision.action for agent, decision in decisions.items()})
        self._waiting = ({}, {})
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
