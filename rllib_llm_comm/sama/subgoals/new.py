"""Subgoals that are added to a game's data set while agents train on it.

SAMA adds states that its agents encounter, and what its language model wants in them, to the data set periodically.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from rllib_llm_comm.chat.chat_model import ChatCounters, ChatError, begun_at_once, cost_of, side_by_side
from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.language.text_encoder import check_text_encoder
from rllib_llm_comm.sama.manuals.manual import read_manual
from rllib_llm_comm.sama.planners import WITH_MODEL, make_planner, planner_model
from rllib_llm_comm.sama.planners.chat import SamaPlanner
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.plans import PlanRequest
from rllib_llm_comm.sama.preparation import Transition, open_game, played_with, preparation_of
from rllib_llm_comm.sama.rewards.reward_code import checked_reward, told_manual
from rllib_llm_comm.sama.subgoals.dataset import (
    SubgoalDataset,
    digest_of,
    distinct,
    propose_states,
    read_record,
    words_of,
)

logger = logging.getLogger(__name__)

ENCOUNTERED, BY_MODEL = ("encountered", "model")


class NewSubgoalSettings(Settings):
    """Settings by which a data set of subgoals grows while agents train on it."""

    every: int = Field(ge=1, le=LARGEST)
    """Training iterations between two times. SAMA: "periodically", without a number."""
    planner: Mapping[str, Any]
    """Settings of `make_planner` that asks a chat model, with `chat`."""
    states: int = Field(default=10, ge=1, le=LARGEST)
    """Most states in which the planner is asked each time (ours)."""
    states_by: Literal["encountered", "model"] = "encountered"
    """"encountered" (SAMA): states in which the training games are; "model" (ours): the chat model proposes them."""
    apart: float = Field(default=0.0, ge=0, le=2)
    """Least distance of a new state's words to those of all that were asked before, 1 minus the cosine of their mean
    token vectors; 0 takes all that differ (ours; SAMA asks its model)."""
    text_encoder: str = "embedded"
    """The frozen text encoder that compares them."""
    manual: str = ""
    """File of the manual for proposed states and reward code; empty: the game's own."""
    steps: int = Field(default=300, ge=1, le=LARGEST)
    """Steps in which reward code is compared with the game's own test (ours)."""
    least_agreement: float = Field(default=0.8, ge=0, le=1)
    """Least share of judgements that agree; code below it is left out, and its subgoal with it (ours; SAMA checks
    nothing)."""

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        check_text_encoder(self.text_encoder)
        if self.manual:
            read_manual(self.manual)
        if self.planner.get("name") not in WITH_MODEL:
            raise UserError(
                f"`planner` is {self.planner!r} but must ask a chat model: a mapping with `name` "
                f"({', '.join(WITH_MODEL)}) and `chat`."
            )
        make_planner(self.planner)
        return self


class NewSubgoals:
    """Asks for subgoals in new states of a game, and for their reward code where code judges.

    Args:
        settings: The settings.
        env: Id of an environment of a game that language models can prepare.
        env_config: Its settings.
        path: The data set that grows; the file stays as it is.
        with_code: Whether subgoals are judged by code, so that new ones need some.
        seed: Of what is drawn in proposed states, and of the steps in which code is compared.

    Attributes:
        subgoals: Subgoals that were added, in words.
        sources: Their reward code, with `with_code`.
        left_out: Subgoals without code that agrees with the game's own test.
        failed: Times at which a request failed, so that states were left unasked.

    Raises:
        UserError: If the data set cannot be read.
    """

    def __init__(
        self,
        settings: NewSubgoalSettings,
        env: str,
        env_config: Mapping[str, Any],
        path: str,
        *,
        with_code: bool = False,
        seed: int = 0,
    ) -> None:
        self.settings, self._with_code, self._seed = settings, with_code, seed
        self._env, played = env, played_with(env)  # as those play who compare reward code
        self._env_config = {name: value for name, value in env_config.items() if name not in played}
        self._model = planner_model(settings.planner)
        game = self._fresh_game()
        self._data = SubgoalDataset(game, settings.planner, seed, self._model, states_by=settings.states_by)
        planner = make_planner(settings.planner, self._model)
        self._situation = planner.situation if isinstance(planner, SamaPlanner) else None
        record, known = read_record(path)
        self._known = set(known)
        self._asked_before = {str(plan.get("state")) for plan in record.get("plans", [])}
        self._told: dict[str, str] = {}  # words of the states that were asked, by their digest
        self.subgoals: list[str] = []
        self.sources: dict[str, str] = {}
        self.left_out: list[str] = []
        self.failed = 0
        self._cost_before: dict[str, float] = {}

    def ask(self, snapshots: Sequence[Any]) -> list[str]:
        """Asks in states that differ from all before, and adds what is new.

        Args:
            snapshots: States in which the training games are, as `put` takes them; of no use to "model".

        Returns:
            The subgoals that were added now.

        Raises:
            UserError: If the user has to do something first, such as giving a recording that has the answers.
        """
        try:
            states = self._proposed() if self.settings.states_by == BY_MODEL else self._encountered(snapshots)
            how = self.settings
            new = distinct(states, self._words, how.apart, how.text_encoder, list(self._told.values()))
            self._ask_in(dict(islice(new.items(), how.states)))
            return self._add()
        except ChatError as error:
            if isinstance(error, UserError):
                raise
            self.failed += 1
            logger.warning("No new subgoals this time (%s); the training goes on with those that are there.", error)
            return []

    def put(self, game: PlanningGame, snapshot: Any) -> None:
        """Puts a game into the state of a training game.

        Args:
            game: A game of the same settings.
            snapshot: As of `PlanningGame.save`.
        """
        game.load(snapshot)

    def figures(self) -> dict[str, float]:
        """Counts so far: `states` asked, `subgoals` added and `left_out`, `goals`, `failed` times, and the cost."""
        return {
            "states": float(len(self._data.plans)),
            "subgoals": float(len(self.subgoals)),
            "left_out": float(len(self.left_out)),
            "goals": float(len(self._data.goals())),
            "failed": float(self.failed),
            **self._cost(),
        }

    def _cost(self) -> dict[str, float]:
        """The cost of all questions, those before a restart, too."""
        now = cost_of(ChatCounters() if self._model is None else self._model.counters)
        return {name: self._cost_before.get(name, 0.0) + float(amount) for name, amount in now.items()}

    def to_state(self) -> dict[str, Any]:
        """All that was asked and added, as plain values."""
        return {
            "plans": self._data.plans,
            "told": self._told,
            "subgoals": self.subgoals,
            "sources": self.sources,
            "left_out": self.left_out,
            "failed": self.failed,
            "cost": self._cost(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `to_state` gave."""
        self._data.plans = [dict(plan) for plan in state["plans"]]
        self._data.given = dict.fromkeys(plan["state"] for plan in self._data.plans)
        self._told = dict(state["told"])
        self.subgoals, self.left_out = list(state["subgoals"]), list(state["left_out"])
        self.sources, self.failed = dict(state["sources"]), int(state["failed"])
        self._cost_before = dict(state.get("cost", {}))

    def _words(self, state: State) -> str:
        """A state as the planner reads it."""
        if self._situation is None:
            return words_of(self._data.game, state)
        return self._situation(PlanRequest(self._data.game, state))

    def _encountered(self, snapshots: Sequence[Any]) -> list[State]:
        game, found = self._data.game, []
        for snapshot in snapshots:
            self.put(game, snapshot)
            state = game.state()
            if digest_of(words_of(game, state)) not in self._asked_before:
                found.append(state)
        return found

    def _proposed(self) -> list[State]:
        game, how = self._data.game, self.settings
        told = f"{read_manual(how.manual)}\n{game.scenario()}" if how.manual else game.manual()
        known = list(self._told.values())
        assert self._model is not None
        return propose_states(self._model, game, how.states, manual=told, seed=self._seed + len(known), known=known)

    def _ask_in(self, states: Mapping[str, State]) -> None:
        data, words = self._data, {digest: self._words(state) for digest, state in states.items()}
        data.given = {**data.given, **states}
        try:
            if data.given:
                data.ask(len(data.given), lambda text: None)
        finally:  # states that were not asked are forgotten: the games will have moved on
            data.given = dict.fromkeys(plan["state"] for plan in data.plans)
            self._told |= {digest: words[digest] for digest in data.given if digest in words}

    def _add(self) -> list[str]:
        wanted = [str(entry["subgoal"]) for entry in self._data.subgoals()]
        new = [text for text in wanted if text not in {*self._known, *self.subgoals, *self.left_out}]
        if self._with_code and new:
            coded = side_by_side(self._coded, new, begun_at_once(self._model))
            new = [text for text, found in zip(new, coded, strict=True) if found]
        self.subgoals += new
        return new

    def _coded(self, text: str) -> bool:
        """True if there is code for a subgoal that agrees with the game's own test."""
        assert self._model is not None
        how, game = self.settings, self._example
        told = told_manual(game, how.manual)
        source, row = checked_reward(self._model, game, text, told, self._transitions, how.least_agreement)
        if source:
            self.sources[text] = source
        else:
            self.left_out.append(text)
            logger.warning("The new subgoal %r is left out: %s.", text, str(row["why"]).rstrip("."))
        return bool(source)

    @cached_property
    def _transitions(self) -> list[Transition]:
        return list(preparation_of(self._fresh_game()).steps(self.settings.steps, self._seed))

    @cached_property
    def _example(self) -> PlanningGame:
        """A game that stays at its start, which writers of reward code are shown."""
        return self._fresh_game()

    def _fresh_game(self) -> PlanningGame:
        return open_game(self._env, self._env_config, self._seed)
