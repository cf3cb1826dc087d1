"""RLlib's episode of several agents with quicker steps; what it holds is the same.

After every step RLlib's episode counts the data of every agent five times over, and to say who stepped it builds what
they saw. Here lists are looked at directly as long as an episode is played, and the usual step is added without the
questions about agents that come and go. Everything else is RLlib's.
"""

from __future__ import annotations

import time
from typing import Any

from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.spaces.space_utils import batch

_SKIPPED = MultiAgentEpisode.SKIP_ENV_TS_TAG
_ALL = frozenset({"__all__"})


class LeanEpisode(MultiAgentEpisode):
    """RLlib's `MultiAgentEpisode`, quicker while it is played."""

    __slots__ = ()

    @override(MultiAgentEpisode)
    def validate(self) -> None:
        """Refuses data of different lengths, as RLlib does."""
        for single in self.agent_episodes.values():
            _require_fit(single)

    @property
    def is_reset(self) -> bool:
        """True if there is a first observation."""
        for single in self.agent_episodes.values():
            seen = single.observations
            if (len(seen) if seen.finalized else len(seen.data) - seen.lookback) > 0:
                return True
        return False

    @override(MultiAgentEpisode)
    def get_agents_that_stepped(self) -> set[Any]:
        """The agents that have an observation of the latest step."""
        return {agent for agent in self.agent_episodes if self.env_t_to_agent_t[agent].data[-1] != _SKIPPED}

    @override(MultiAgentEpisode)
    def get_agents_to_act(self) -> set[Any]:
        """Those of them that go on."""
        return {agent for agent in self.get_agents_that_stepped() if not self.agent_episodes[agent].is_done}

    @override(MultiAgentEpisode)
    def cut(self, len_lookback_buffer: int = 0) -> MultiAgentEpisode:
        """The episode that goes on behind this one."""
        successor = super().cut(len_lookback_buffer)
        successor.__class__ = LeanEpisode
        return successor

    @override(MultiAgentEpisode)
    def to_numpy(self) -> MultiAgentEpisode:
        """Turns lists into arrays, once: RLlib comes back to each chunk that is done in every step."""
        for single in self.agent_episodes.values():
            seen = single.observations
            if seen.finalized:
                continue
            if seen.data and type(first := seen.data[0]) is dict:
                seen.data = {name: batch([one[name] for one in seen.data]) for name in first}
                seen.finalized = True
            single.to_numpy()
        return self

    @override(MultiAgentEpisode)
    def add_env_step(
        self,
        observations: dict[Any, Any],
        actions: dict[Any, Any],
        rewards: dict[Any, Any],
        infos: dict[Any, Any] | None = None,
        *,
        terminateds: dict[Any, bool] | None = None,
        truncateds: dict[Any, bool] | None = None,
        extra_model_outputs: dict[Any, Any] | None = None,
    ) -> None:
        """Adds a step; one in which nobody comes, ends or has ended without RLlib's questions about that."""
        singles, ends = self.agent_episodes, (terminateds or {}, truncateds or {})
        hanging = self._hanging_actions_end
        if (
            not singles
            or self.is_terminated
            or self.is_truncated
            or any(ends[0].values())
            or any(ends[1].values())
            or any(single.is_terminated or single.is_truncated for single in singles.values())
            or not {*observations, *actions, *rewards, *ends[0], *ends[1]} - _ALL <= singles.keys()
            or any(seen is None for seen in observations.values())
            # Somebody chose and was shown what follows: it needs a reward. Or it has chosen before, then or now.
            or not all(agent in rewards if agent in actions else agent in hanging for agent in observations)
            or any(action is None or agent in hanging for agent, action in actions.items())
        ):
            super().add_env_step(
                observations, actions, rewards, infos,
                terminateds=terminateds, truncateds=truncateds, extra_model_outputs=extra_model_outputs,
            )  # fmt: skip
            return
        infos, outputs = infos or {}, extra_model_outputs or {}
        self.env_t += 1
        for agent, single in singles.items():
            steps, paid = self.env_t_to_agent_t[agent], rewards.get(agent) or 0.0
            if agent in observations:
                if agent in actions:
                    action, told = actions[agent], outputs.get(agent)
                else:
                    action, told = hanging.pop(agent), self._hanging_extra_model_outputs_end.pop(agent, None)
                    paid = self._hanging_rewards_end.pop(agent, 0.0) + paid
                single.add_env_step(observations[agent], action, paid, infos.get(agent), extra_model_outputs=told)
                steps.append(len(single) + self.agent_t_started[agent])
                _require_fit(single)
                continue
            steps.append(_SKIPPED)
            if agent in actions:
                hanging[agent], self._hanging_rewards_end[agent] = actions[agent], paid
                self._hanging_extra_model_outputs_end[agent] = outputs.get(agent)
            elif agent in rewards or any(agent in end for end in ends):
                self._hanging_rewards_end[agent] += paid
        self._last_step_time = time.perf_counter()  # type: ignore[misc]
        if self._start_time is None:  # type: ignore[has-type]
            self._start_time = self._last_step_time  # type: ignore[misc]


def _require_fit(single: SingleAgentEpisode) -> None:
    """Refuses an episode unless it is played and has one observation and one info more than all else."""
    seen = single.observations
    steps = len(seen.data) - seen.lookback - 1
    fits = not seen.finalized and steps >= 0 and len(single.infos.data) - single.infos.lookback == steps + 1
    for column in (single.actions, single.rewards, *single.extra_model_outputs.values()):
        fits = fits and len(column.data) - column.lookback == steps
    if not fits:
        single.validate()  # RLlib has the sentence
