"""Advantages of messages that are paid by what their listeners, or the whole team, gained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import EpisodeType

from rllib_llm_comm.rl.gae import RAW_ADVANTAGES, episodes_of_module, in_order, standardized
from rllib_llm_comm.verco.message_loss import UTTERANCE_MOMENT

SPEAKER, TEAM, LISTENERS = "speaker", "team", "listeners"
"""Values of the setting `message_credit`; the last two are computed here."""
MESSAGE_ADVANTAGES = "message_advantages"
"""Column of a train batch: the advantage of the message that each row's agent wrote."""


def message_advantages(
    moments: Mapping[Hashable, np.ndarray], advantages: Mapping[Hashable, np.ndarray], credit: str
) -> dict[Hashable, np.ndarray]:
    """Advantages of the messages of one episode, one for each decision of each agent.

    Every agent speaks just before it decides, and is heard until it speaks again. With j(t) the first decision of agent
    j at moment t or later, the message of agent i at moment t has the advantage

    * `"team"`: mean of A at j(t) over all agents j, the speaker included;
    * `"listeners"`: mean of A at j(t) over the other agents j that heard it, those whose j(t) comes before i speaks
      again.

    An agent without such a decision in the batch is left out of the mean.

    Args:
        moments: By agent (N,) the ascending moments of its decisions.
        advantages: By agent (N,) the advantages of these decisions.
        credit: `"team"` or `"listeners"`.

    Returns:
        By agent (N,) float64; NaN for a message that nobody can be asked about.
    """
    found: dict[Hashable, np.ndarray] = {}
    for speaker, times in moments.items():
        until = np.append(times[1:].astype(np.float64), np.inf)
        total, count = np.zeros(len(times)), np.zeros(len(times))
        if credit == TEAM:
            total, count = advantages[speaker].astype(np.float64), np.ones(len(times))
        for other, theirs in moments.items():
            if other == speaker or not len(theirs):
                continue
            next_one = np.searchsorted(theirs, times)
            known = next_one < len(theirs)
            next_one = np.minimum(next_one, len(theirs) - 1)
            if credit == LISTENERS:
                known &= theirs[next_one] < until
            total = total + np.where(known, advantages[other][next_one], 0.0)
            count = count + known
        found[speaker] = np.divide(total, count, out=np.full(len(times), np.nan), where=count > 0)
    return found


class MessageCredit(ConnectorV2):
    """Adds the advantages of messages to the train batch; stands behind `SemiMarkovGAE` with `keep_raw`.

    They are in standard deviations from their mean, over the messages of the module that anybody answers for; a message
    that nobody does has 0.
    """

    def __init__(
        self,
        *,
        credit: str = LISTENERS,
        floor: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Sets whose advantages count, `"team"` or `"listeners"`, and by what they are divided at least."""
        super().__init__(**kwargs)
        self.credit = credit
        self.floor = floor

    @override(ConnectorV2)
    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: list[EpisodeType],
        **kwargs: Any,
    ) -> Any:
        """Completes the batches of all modules whose messages are trained."""
        # By episode and agent: module, rows, moments and advantages of its decisions.
        talks: dict[Hashable, dict[Hashable, list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]]] = defaultdict(dict)
        for module_id, rows in batch.items():
            if RAW_ADVANTAGES not in rows or UTTERANCE_MOMENT not in rows[Columns.OBS]:
                continue
            raw = rows.pop(RAW_ADVANTAGES).cpu().numpy()
            moments = rows[Columns.OBS][UTTERANCE_MOMENT][:, 0].cpu().numpy()
            begin = 0
            for single, _ in in_order(episodes_of_module(self, episodes, module_id)):
                own = np.arange(begin, begin + len(single) - 1)  # as in SemiMarkovGAE: one row was added
                begin += len(own)
                agents = talks[single.multi_agent_episode_id]
                agents.setdefault(single.agent_id, []).append((module_id, own, moments[own], raw[own]))
        self._write(batch, talks)
        return batch

    def _write(self, batch: dict[str, Any], talks: Mapping[Hashable, Mapping[Hashable, list[Any]]]) -> None:
        credits = {
            module_id: np.full(len(rows[Columns.OBS][UTTERANCE_MOMENT]), np.nan)
            for module_id, rows in batch.items()
            if UTTERANCE_MOMENT in rows[Columns.OBS]
        }
        for agents in talks.values():
            joined = {agent: [np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True)]
                      for agent, parts in agents.items()}  # fmt: skip
            order = {agent: np.argsort(columns[1], kind="stable") for agent, columns in joined.items()}
            found = message_advantages(
                {agent: columns[1][order[agent]] for agent, columns in joined.items()},
                {agent: columns[2][order[agent]] for agent, columns in joined.items()},
                self.credit,
            )
            for agent, parts in agents.items():
                credits[parts[0][0]][joined[agent][0][order[agent]]] = found[agent]
        for module_id, values in credits.items():
            device = batch[module_id][Columns.OBS][UTTERANCE_MOMENT].device
            batch[module_id][MESSAGE_ADVANTAGES] = torch.as_tensor(standardized(values, self.floor), device=device)
