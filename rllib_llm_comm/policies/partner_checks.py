"""Checks that a partner can play a game, before anybody plays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import GAMES
from rllib_llm_comm.envs.interface import asked, secret_of
from rllib_llm_comm.policies.decision import Request
from rllib_llm_comm.policies.partner_settings import FUNCTION
from rllib_llm_comm.policies.partners import Partner, require_wait

_VERSION = re.compile(r"-v\d+$")


def game_difference(
    played: str, settings: Mapping[str, Any], learned: str | None, learned_settings: Mapping[str, Any]
) -> str:
    """The reason why a policy of one environment cannot play in another, as the end of a sentence; empty if it can.

    Environments of one game's record, and versions of one id, are the same game. The game itself tells which of its
    settings have to be the same (`GameRecord.difference`).

    Args:
        played: Id of the environment in which it is to play.
        settings: Its settings.
        learned: Id of the environment of the training; `None` if nobody knows.
        learned_settings: Its settings.
    """
    if learned is None:
        return ""
    record = next((one for one in GAMES.values() if played in one.entry_points), None)
    same = learned in record.entry_points if record else _VERSION.sub("", learned) == _VERSION.sub("", played)
    if not same:
        return f"was trained in {learned!r} but `env` is {played!r}; take partners of the same game."
    return str(load(record.difference)(settings, learned_settings)) if record and record.difference else ""


def try_out(partner: Partner, env: Any, seed: int, others: Iterable[Any] = ()) -> None:
    """Begins a game and lets a partner choose once in all seats that are asked, if that costs next to nothing.

    Language agents are only asked whether they can read: writing takes long. A user's function is not called.

    Args:
        partner: The partner.
        env: The game, which is begun anew.
        seed: Of the episode.
        others: Agents whose seats it does not hold.

    Raises:
        UserError: If it cannot play.
    """
    observations, infos = env.reset(seed=seed)
    free = [agent for agent in asked(env.agents, infos) if agent not in set(others)]
    seen = {agent: observations[agent] for agent in free}
    if partner.settings.pauses:
        for agent in free:
            require_wait(env, agent, "pauses")
    if partner.policy is not None and partner.talks:
        partner.policy.require_readable(seen)
    elif partner.settings.kind != FUNCTION:
        memory = partner.begin(seed)
        memory.env, memory.secret = env, secret_of(infos)
        for agent, decision in partner.act_together([Request(memory, seen)])[0].items():
            _require_actions(env, agent, decision.probabilities)


def _require_actions(env: Any, agent: Any, chances: Any) -> None:
    count = int(env.action_space(agent).n)
    if len(chances) < count or any(chances[count:]):
        raise UserError(
            f"{agent!r} has {count} actions but this policy was trained with {len(chances)}; play the game with the "
            "settings of its training, such as `action_level`."
        )
