"""What every policy takes and gives: requests of games, and a decision of each agent that is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload, runtime_checkable

import numpy as np

from rllib_llm_comm.core.errors import UserError

if TYPE_CHECKING:
    from rllib_llm_comm.policies.policy_manifest import PolicyManifest
    from rllib_llm_comm.verco.settings import CommunicationSettings

PROMPT_IDS = "prompt_ids"
"""Of observations in words: token ids of the prompt."""
CANDIDATE_IDS = "candidate_ids"
"""Of observations in words: token ids of the candidate actions."""
CRITIC_IDS = "critic_ids"
"""Of observations in words: token ids of the critic's prompt."""


class Value:
    """The field `Decision.value`: a number, or a function that gives it, which is called when somebody reads it."""

    @overload
    def __get__(self, decision: None, owner: type) -> Any: ...
    @overload
    def __get__(self, decision: Any, owner: type) -> float: ...
    def __get__(self, decision: Any, owner: type) -> Any:
        """The number."""
        if decision is None:
            raise AttributeError("value")  # dataclasses ask so for a default; there is none
        known = decision.__dict__["value"]
        return known() if callable(known) else known

    def __set__(self, decision: Any, value: float | Callable[[], float]) -> None:
        """Keeps the number, or the function."""
        decision.__dict__["value"] = value


@dataclass(frozen=True)
class Decision:
    """Decision of one agent, with all that it knew.

    Attributes:
        action: Index of the chosen candidate; of actions of several parts, such as RED's, all of them (P,), whose first
            is that index.
        said: Its message; empty if it said nothing.
        heard: The others' latest messages, by speaker.
        candidates: The phrases that it chose among.
        probabilities: (K,) probability of each; 0 where forbidden.
        value: The critic's judgement of its state; NaN where a central critic is not told what it needs. A function may
            be given in its place, for those whose critic costs something: most who play never read it.
        prompt: The prompt behind which the candidates were scored; empty for agents that see numbers.
        replaced: Its true message, where a control put another one in its place; else `None`.
    """

    action: Any
    said: str
    heard: dict[str, str]
    candidates: list[str]
    probabilities: np.ndarray
    value: Value = Value()  # noqa: RUF009 (it is no default)
    prompt: str  # type: ignore[misc]
    replaced: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Its fields, to be pickled: the value as a number."""
        return {**self.__dict__, "value": self.value}

    @property
    def choice(self) -> int:
        """Index of the chosen candidate."""
        return int(np.asarray(self.action).reshape(-1)[0])


@dataclass(kw_only=True)
class Memory:
    """State of one game between two requests; policies add their own.

    Attributes:
        env: The game, for policies that ask more of it than observations; whoever plays sets it (`PlayedGame.request`).
        secret: Facts told to anybody in this game at the moment (`envs.interface.secret_of`); only controls use it,
            agents do not.
    """

    env: Any = None
    secret: str = ""


class Request(NamedTuple):
    """What a policy is asked in one game.

    Attributes:
        memory: The policy's memory of this game, of `Policy.begin`.
        observations: Observations of the agents that have to choose now, and only of these.
    """

    memory: Any
    observations: Mapping[Any, Mapping[str, Any]]


class Hearing(NamedTuple):
    """An agent with what it sees, its observation, and the messages that it hears, by speaker."""

    agent: Any
    view: Any
    messages: Mapping[str, str]


Judge = Callable[[Sequence[Hearing]], np.ndarray]
"""Gives the probabilities (B, K) of each candidate behind messages that are given."""


@runtime_checkable
class Policy(Protocol):
    """Decides for all agents of many games at once; everything that plays takes one (`play_loop.play_games`).

    Attributes:
        manifest: Origin of a trained policy; `None` for others.
        communication: Settings of its messages; `None` if it exchanges none.
        draws: True if its actions can be sampled; a policy that always takes the best one has none to draw by.
        side_by_side: True if it can play several games at once.
    """

    manifest: PolicyManifest | None = None
    communication: CommunicationSettings | None = None
    draws: bool = True
    side_by_side: bool = True

    @property
    def judge(self) -> Judge | None:
        """Gives its probabilities behind other messages than those that were heard; `None` if it hears none."""
        return None

    def env(self, *, planning: Mapping[str, Any] | None = None, **settings: Any) -> Any:
        """Makes the game that it is for; without one it plays games that it is given."""
        raise UserError("this policy knows no environment; give one.")

    def reset(self, seed: int | None = None) -> None:
        """Fixes what it draws for all games together, such as messages, before a game or several begin."""
        return

    def forget(self) -> None:
        """Forgets earlier games, from whose messages controls draw."""
        return

    def begin(self, seed: int) -> Any:
        """The memory of a game that begins; what is drawn in the game depends on the seed."""
        return Memory()

    def act_together(self, requests: Sequence[Request], explore: bool = True) -> list[dict[Any, Decision]]:
        """Per game a decision of each agent that is asked; sampled with `explore`, else the most likely one."""
        ...


class OneGamePolicy(Policy):
    """Base of policies that play one game at a time, such as a reader's own: give `act`, and `reset` if it draws."""

    side_by_side = False

    def act(self, observations: Mapping[Any, Mapping[str, Any]], explore: bool = True) -> dict[Any, Decision]:
        """A decision of each agent that is asked.

        Args:
            observations: Observations of these agents.
            explore: True if actions are sampled.
        """
        raise NotImplementedError

    def act_together(self, requests: Sequence[Request], explore: bool = True) -> list[dict[Any, Decision]]:
        """As `act`, for the one game."""
        return [self.act(request.observations, explore) for request in requests]


def unweighed(action: Any) -> Decision:
    """The decision of a player without a network: it says nothing and gives no probabilities.

    Args:
        action: As of `Decision`.
    """
    return Decision(action, "", {}, [], np.zeros(0), np.nan, "")


def choose(probabilities: np.ndarray, rng: np.random.Generator, explore: bool) -> int:
    """An action by its probabilities.

    Args:
        probabilities: (K,).
        rng: Draws.
        explore: True to draw; otherwise the most likely action is taken.
    """
    return int(rng.choice(len(probabilities), p=probabilities) if explore else probabilities.argmax())
