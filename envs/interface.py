"""Interface of games: keys of observations and infos, text spaces, checks of actions."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import game_of

ACTION_MASK = "action_mask"
"""Key of an observation: 1 for each action that is allowed now."""
SUBGOAL = "subgoal"
"""Key of an observation: what a planner wants of the agent, in words; empty without a planner."""
NEEDS_ACTION = "needs_action"
"""Key of an agent's info: whether it has to choose now. Agents that are busy are not asked."""
STEP_REWARDS = "step_rewards"
"""Key of an agent's info: the reward of each game step of the last `step`."""
DURATION = "duration"
"""Key of an agent's info at a decision, set by the adapter to RLlib: game steps since its last one."""
TEACHER_MESSAGE = "teacher_message"
"""Key of an observation: what a teacher would say in the agent's place."""
EPISODE_METRICS = "episode_metrics"
"""Key of an agent's info: what the game counts itself in this episode, such as the score, by name; the same names in
every episode, best from the reset on."""
TASK_SUCCESS = "task_success"
"""Key of an agent's info: whether the task is done, in games that can also end by a loss."""
SUCCESS_WORDS = "success_words"
"""Key of an environment's `metadata`: the game's words for an episode that was solved, and for one that was not."""
NEUTRAL_WORDS = ("solved", "not solved")
"""The same for games that have no words of their own."""
PRIVATE = "private"
"""Key of an agent's info: what it is told at the moment and others may not know (an order, a place), as a short text;
None for an agent that is told nothing. Games in which nobody is told anything leave the key out. Measures of
communication compare it with what the agent says, which a game's `meaning(message)` reduces to the same texts."""
HIDDEN = "hidden"
"""Key of an agent's info: a fact that no agent is told, spelt as `private`; left out where somebody is told it. It is
for measures and controls, never for agents."""
CRITIC_TEXT = "critic_text"
"""Key of an observation: what the critic of language agents reads in place of `text` (a centralised critic)."""
MAX_TEXT, MAX_PHRASE, MAX_SUBGOAL, MAX_MANUAL = 1000, 100, 300, 10_000
"""Longest texts, in characters."""
_CHARACTERS = frozenset(map(chr, range(32, 127)))  # printable ASCII


class GameInfo:
    """What an environment tells of itself; one that is no `Game` of ours may lack any of it.

    Args:
        env: The environment, wrapped or not.
    """

    def __init__(self, env: Any) -> None:
        self._env, self._game = env, getattr(env, "unwrapped", env)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What stands in its `metadata`."""
        return self._told("metadata", {})  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """Its name in `metadata`; without one that of its class."""
        return str(self.metadata.get("name", type(self._game).__name__))

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings, as its constructor takes them."""
        return dict(self._told("settings", {}))

    @property
    def task(self) -> str:
        """The goal of an episode in a sentence."""
        return str(self._told("task", ""))

    @property
    def brief(self) -> str:
        """The game in a few sentences."""
        return str(self._told("brief", ""))

    @property
    def facts(self) -> tuple[str, ...]:
        """All private facts that agents can be told, in the spelling of the infos' `private`."""
        return tuple(self._told("facts", ()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about its settings that a user should read before a run."""
        return tuple(self._told("notes", ()))

    def _told(self, name: str, default: Any) -> Any:
        # A wrapper may give a game another name, task or brief; settings and facts are the game's own.
        found = getattr(self._env, name, None) if name in ("metadata", "task", "brief") else None
        found = getattr(self._game, name, None) if found is None else found
        return default if found is None else found


def parts_of(observation: Any) -> Mapping[str, Any]:
    """The parts of an observation that is a dict; none of other ones, such as arrays of games of users."""
    return observation if isinstance(observation, Mapping) else {}


def require_gone(agents: Iterable[Any], *ends: Mapping[Any, bool]) -> None:
    """Refuses games that keep agents which have ended, since such an episode would never be over.

    Args:
        agents: The environment's `agents` after a step.
        *ends: Its terminations and truncations.

    Raises:
        UserError: If an agent that ended is still among them.
    """
    for agent in agents:
        if any(end.get(agent, False) for end in ends):
            raise UserError(
                f"agent {agent!r} has ended but is still in the environment's `agents`; `step` has to take agents out "
                "of `agents` when they terminate or are truncated, as PettingZoo demands."
            )


def asked(agents: Iterable[Any], infos: Mapping[Any, Mapping[str, Any]]) -> list[Any]:
    """The agents that have to choose now by the last infos; those of games that do not say have to."""
    return [agent for agent in agents if infos.get(agent, {}).get(NEEDS_ACTION, True)]


def joined_info(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """One info of an agent that was busy in between: lists are joined, of all others but flags the latest counts.

    Of true-or-false values it is told whether one was true, except for `needs_action`.
    """
    joined = {**old, **new}
    for key, before in old.items():
        if isinstance(before, list):
            if isinstance(after := new.get(key, []), list):
                joined[key] = before + after
        elif isinstance(before, bool) and key != NEEDS_ACTION:
            joined[key] = before or bool(new.get(key, False))
    return joined


def with_figures(infos: Mapping[Any, Mapping[str, Any]], own: Mapping[str, float]) -> dict[Any, dict[str, Any]]:
    """Infos with more figures, by name, among their `episode_metrics`."""
    return {agent: {**info, EPISODE_METRICS: {**info.get(EPISODE_METRICS, {}), **own}} for agent, info in infos.items()}


def teacher_state(env: Any) -> Any:
    """Part of a started game that a scripted teacher may see: its `kitchen`, its `teacher_state`, or nothing."""
    state = getattr(env, "kitchen", None)
    return state if state is not None else getattr(env, "teacher_state", None)


def text_spaces(num_actions: int, central_critic: bool = False) -> dict[str, spaces.Space[Any]]:
    """The spaces of `text`, as many `candidates` as actions, `subgoal`, and with `central_critic` `critic_text`."""

    candidates: spaces.Space[Any] = spaces.Tuple([_words(MAX_PHRASE) for _ in range(num_actions)])
    own: dict[str, spaces.Space[Any]] = {
        "text": _words(MAX_TEXT),
        "candidates": candidates,
        "subgoal": _words(MAX_SUBGOAL),
    }
    return {**own, CRITIC_TEXT: _words(MAX_TEXT)} if central_critic else own


def entity_spaces(shape: tuple[int, int, int], num_symbols: int) -> dict[str, spaces.Space[Any]]:
    """The spaces of `entities` (a map of symbols), `manual` (what they mean) and `subgoal`.

    Args:
        shape: (H, W, K): K symbols per cell, 0 for none, the last for the agent itself.
        num_symbols: Number of symbols, 0 included.
    """
    symbols = spaces.Box(0, num_symbols - 1, shape, np.int16)
    return {"entities": symbols, "manual": _words(MAX_MANUAL), "subgoal": _words(MAX_SUBGOAL)}


def _words(longest: int) -> spaces.Text:
    """A space of texts; each is a copy, so that it has random numbers of its own."""
    return copy.copy(_made_words(longest))


@cache
def _made_words(longest: int) -> spaces.Text:
    """The same, made once: Gymnasium numbers all characters of a space anew."""
    return spaces.Text(max_length=longest, min_length=0, charset=_CHARACTERS)


def solved(terminated: bool, infos: Mapping[Any, Mapping[str, Any]]) -> bool:
    """True if an episode ended well: by the game's own word in the last infos, else by its termination."""
    told = [bool(info[TASK_SUCCESS]) for info in infos.values() if TASK_SUCCESS in info]
    return any(told) if told else terminated


def success_words(env: Any) -> tuple[str, str]:
    """The words of a game for an episode that was solved, and for one that was not: its own, or neutral ones.

    Args:
        env: The environment; its own words stand in its `metadata` under `SUCCESS_WORDS`, or in its game's record.

    Raises:
        UserError: If these are not two texts.
    """
    record = game_of(env.unwrapped)
    of_the_game = (record and record.success_words) or NEUTRAL_WORDS
    told = GameInfo(env).metadata.get(SUCCESS_WORDS, of_the_game)
    if isinstance(told, str) or len(told) != len(NEUTRAL_WORDS) or not all(isinstance(one, str) for one in told):
        raise UserError(
            f"`metadata[{SUCCESS_WORDS!r}]` of the environment is {told!r} but must be two texts, such as "
            f"{NEUTRAL_WORDS}."
        )
    return told[0], told[1]


def secret_of(infos: Mapping[Any, Mapping[str, Any]]) -> str:
    """All private and hidden facts of the latest infos, as one text; equal in episodes with the same ones."""
    facts = {str(info[key]) for info in infos.values() for key in (PRIVATE, HIDDEN) if info.get(key)}
    return " ".join(sorted(facts))


def words_of(text: str) -> set[str]:
    """The words of a text; those of "onion-tomato salad" are three."""
    return set(text.replace("-", " ").split())


def telling_words(facts: Sequence[str]) -> tuple[str, ...]:
    """The words by which private facts differ, sorted; empty where there are fewer than two facts.

    Args:
        facts: All facts that can be told, such as ("tomato salad", "onion salad").
    """
    words = [words_of(fact) for fact in dict.fromkeys(facts)]
    return tuple(sorted({word for own in words for word in own if not all(word in other for other in words)}))


def check_actions(
    actions: Mapping[str, Any], agents: Sequence[str], needs_action: Sequence[bool], num_actions: int
) -> list[int | None]:
    """Checks what a user gave to `step`.

    Args:
        actions: Action per agent.
        agents: All agents.
        needs_action: Per agent whether it needs an action.
        num_actions: Number of actions.

    Returns:
        The action of each agent that needs one, None for the others.

    Raises:
        UserError: For an unknown agent, or a missing or impossible action.
    """
    for agent in actions:
        if agent not in agents:
            raise UserError(f"`actions` has an entry for {agent!r}, but the agents are {list(agents)}.")
    chosen: list[int | None] = []
    for agent, needed in zip(agents, needs_action, strict=True):
        if not needed:
            chosen.append(None)
            continue
        if agent not in actions:
            raise UserError(
                f"`actions` has no entry for {agent!r}, which needs a new action; "
                "give one for every agent whose info `needs_action` is true."
            )
        action = actions[agent]
        if type(action) is int and 0 <= action < num_actions:  # the usual one, without more questions
            chosen.append(action)
            continue
        if not isinstance(action, (int, np.integer)) or not 0 <= action < num_actions:
            raise UserError(
                f"`actions[{agent!r}]` is {action!r} but must be a whole number from 0 to {num_actions - 1}."
            )
        chosen.append(int(action))
    return chosen


def wait_action(env: Any, agent: str) -> int:
    """The action of doing nothing: the first one."""
    return 0
