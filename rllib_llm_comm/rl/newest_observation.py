"""The newest observation of an agent in an episode, of which connectors ask for every agent and step."""

from __future__ import annotations

from typing import Any

from ray.rllib.env.single_agent_episode import SingleAgentEpisode


def newest_observation(single: SingleAgentEpisode) -> Any:
    """The same as `get_observations(-1)`; read straight from the list that an episode is while it is played.

    Args:
        single: One agent's episode with at least one observation.
    """
    seen = single.observations
    return single.get_observations(-1) if seen.finalized else seen.data[-1]
