"""The adapter between a game and the stages that prepare it for planning: states, code, steps and words for actions.

It is written once for each game, beside its `PlanningGame`, and named in the game's record (`preparation`). The stages
`translate`, `collect_subgoals` and `write_rewards` know games through it and not by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import GAMES, GameRecord, game_of, make_env
from rllib_llm_comm.sama.planning_game import PlanningGame, State, planning_game

if TYPE_CHECKING:
    from rllib_llm_comm.sama.code_index import Check, CodeIndex


@dataclass(frozen=True)
class Transition:
    """One step of a game.

    Attributes:
        before: The moment before it.
        after: The moment after it.
        plain_before: The former as plain values.
        plain_after: The latter as plain values.
    """

    before: State
    after: State
    plain_before: Mapping[str, Any]
    plain_after: Mapping[str, Any]


class GamePreparation(ABC):
    """Shows one game to the stages that prepare it. Texts are parts of sentences in the stages' questions.

    Args:
        game: The game as planners know it; it is left in the states that are drawn or put.

    Attributes:
        to_tell: Content of a translator's sentences, as an imperative sentence.
        to_leave: Things that a translator leaves out, as a list in words.
        course: The course of a game from its start to its end, in words.
        form: Form of proposed states, with the list `states`; `None` if a model cannot propose states of this game.
    """

    to_tell: ClassVar[str] = "Say all that the team needs to choose what to do next."
    to_leave: ClassVar[str] = "counts of steps"
    course: ClassVar[str] = "from its start to its end"
    form: ClassVar[type[BaseModel] | None] = None

    def __init__(self, game: PlanningGame) -> None:
        self.game = game

    @abstractmethod
    def code(self) -> CodeIndex:
        """The game's code, to search in."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> State:
        """A random legal state.

        Args:
            rng: Draws it.
        """

    @abstractmethod
    def steps(self, number: int, seed: int = 0) -> Iterator[Transition]:
        """Steps of games in which many subgoals are done, to compare tests of subgoals in.

        Args:
            number: Number of steps.
            seed: Of all that is drawn.
        """

    # ---- states that a model proposes --------------------------------------------------------------------

    def parts(self) -> str:
        """The parts of a situation, and what each can be."""
        raise NotImplementedError

    def impossible(self, proposed: Any) -> str:
        """Reason against a proposed state; empty if it is possible.

        Args:
            proposed: An entry of `form`'s list.
        """
        raise NotImplementedError

    def put(self, proposed: Any, rng: np.random.Generator) -> State:
        """The state that was proposed; what it leaves open is drawn.

        Args:
            proposed: An entry of `form`'s list that is possible.
            rng: Draws the rest.
        """
        raise NotImplementedError

    # ---- actions -----------------------------------------------------------------------------------------

    def actions(self, state: State, agent: str) -> Mapping[str, Check]:
        """An agent's actions as the code names them, each with the check of words for it; none: they are words already.

        Args:
            state: The moment.
            agent: Its name.
        """
        return {}

    def beside(self, state: State, agent: str) -> Mapping[str, str]:
        """The places on the sides of an agent, for states without a map.

        Args:
            state: The moment.
            agent: Its name.
        """
        return {}

    # ---- data sets ---------------------------------------------------------------------------------------

    def origin(self) -> dict[str, Any]:
        """The game and its scenario, JSON-able, as a data set of subgoals tells them."""
        env = self.game.env.unwrapped
        return {"game": {"env": env.env_id, "settings": dict(env.settings)}}


def prepared_games() -> list[str]:
    """Names of the games that have a preparation."""
    return [name for name, record in GAMES.items() if record.preparation]


def preparation_of(game: PlanningGame) -> GamePreparation:
    """The preparation of a game.

    Args:
        game: The game as planners know it.

    Raises:
        UserError: If it has none.
    """
    env = game.env.unwrapped
    record = game_of(env)
    if record is None or not record.preparation:
        name = record.name if record else type(env).__name__
        raise UserError(
            f"No language model can prepare the game {name!r}, only {', '.join(prepared_games())}; write a "
            "`GamePreparation` for it and name it in the game's record (`preparation`)."
        )
    made: GamePreparation = load(record.preparation)(game)
    return made


def preparation_class(env: str) -> type[GamePreparation]:
    """The preparation of the game of an environment.

    Args:
        env: Id of an environment.

    Raises:
        UserError: If its game has none.
    """
    record = _record_of(env)
    if record is None or not record.preparation:
        raise _unprepared(env, record)
    found: type[GamePreparation] = load(record.preparation)
    return found


def played_with(env: str) -> Mapping[str, Any]:
    """The settings with which subgoals can be followed in the game of an environment; empty where none is known.

    Args:
        env: Id of an environment.
    """
    record = _record_of(env)
    found: Mapping[str, Any] = load(record.planning).played_with if record is not None and record.planning else {}
    return found


def _record_of(env: str) -> GameRecord | None:
    return next((record for record in GAMES.values() if env in record.entry_points), None)


def _unprepared(env: str, record: GameRecord | None) -> UserError:
    game = f"the game {record.name!r}" if record is not None else "this game"
    return UserError(
        f"`env` is {env!r}, but no language model can prepare {game}, only {', '.join(prepared_games())}; use an "
        "environment of one of these."
    )


def open_game(env: str, settings: Mapping[str, Any], seed: int = 0) -> PlanningGame:
    """A game at its start, with the settings with which subgoals can be followed unless others are given.

    Args:
        env: Id of an environment.
        settings: Settings of the environment.
        seed: Of its start.

    Raises:
        UserError: If there is no such environment, planners do not know its game, or a setting is not allowed.
    """
    record = _record_of(env)
    if record is not None and not record.preparation:
        raise _unprepared(env, record)
    made = make_env(env, **{**played_with(env), **settings})
    made.reset(seed=seed)
    game = planning_game(made)
    preparation_of(game)
    return game
