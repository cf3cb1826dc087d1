"""Algorithms whose data set of subgoals grows while they train, as SAMA's does."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from pydantic import Field, model_validator
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.annotations import override
from typing_extensions import Self

from rllib_llm_comm.chat.chat_model import ChatCounters, ChatError, begun_at_once, cost_of, side_by_side
from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.overcooked_ai import ENV_ID, SUBGOAL_ENV_ID
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import SubgoalKitchen
from rllib_llm_comm.language.text_encoder import check_text_encoder
from rllib_llm_comm.rl.strict_config import StrictConfigMixin
from rllib_llm_comm.sama.data_set import StatesApart, SubgoalDataset, digest_of, distinct, propose_states, words_of
from rllib_llm_comm.sama.manuals.manual import read_manual
from rllib_llm_comm.sama.planned_env import JudgedSubgoals, PlannedSubgoals
from rllib_llm_comm.sama.planners import WITH_MODEL, make_planner, planner_model
from rllib_llm_comm.sama.planners.baselines import RandomPlanner, read_record
from rllib_llm_comm.sama.planners.chat import ChatPlanner
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.plans import PlanRequest
from rllib_llm_comm.sama.preparation import Transition, open_game, played_with, preparation_class, preparation_of
from rllib_llm_comm.sama.rewards.subgoal_rewards import RewardChecks, checked_reward, told_manual

logger = logging.getLogger(__name__)

ENCOUNTERED, BY_MODEL = ("encountered", "model")


class NewSubgoalSettings(RewardChecks, StatesApart):
    """Settings by which a data set of subgoals grows while agents train on it."""

    every: int = Field(ge=1, le=LARGEST)
    """Training iterations between two times. SAMA: "periodically", without a number."""
    planner: Mapping[str, Any]
    """Settings of `make_planner` that asks a chat model, with `chat`."""
    states: int = Field(default=10, ge=1, le=LARGEST)
    """Most states in which the planner is asked each time (ours)."""
    states_by: Literal["encountered", "model"] = "encountered"
    """"encountered" (SAMA): states in which the training games are; "model" (ours): the chat model proposes them."""

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
        env: Id of an environment of a game that language models can prepare.
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
        self._situation = planner.situation if isinstance(planner, ChatPlanner) and planner.free else None
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
        """Puts a game into the state of a training game."""
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


class KitchenSubgoals(NewSubgoals):
    """Asks in states of kitchens that give subgoals themselves, which no planner looks at while agents train."""

    def put(self, game: PlanningGame, snapshot: Any) -> None:
        """Puts a kitchen into a state of `SoupKitchen.snapshot`."""
        game.env.unwrapped.kitchen.restore(snapshot)


class DrawNewSubgoals(RLlibCallback):
    """Shows the states of an EnvRunner's games and lets these draw new subgoals; algorithms add it for `new_subgoals`.

    Games are kitchens that draw subgoals themselves, and games under a planner that draws those of a data set. What was
    added stays for games that are made anew after a failure; new EnvRunners are told by the algorithm.
    """

    def __init__(self) -> None:
        """No games yet."""
        super().__init__()
        self._games: list[Any] = []
        self._texts: list[str] = []
        self._sources: dict[str, str] = {}

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Keeps the games and tells them what was added so far."""
        found = [sub.unwrapped.env for sub in env.envs]
        self._games = [game for game in found if isinstance(game.unwrapped, SubgoalKitchen) or _draws(game)]
        self._tell()

    def on_env_runners_recreated(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Has the algorithm tell all EnvRunners, the new ones among them."""
        algorithm.tell_new_subgoals()

    def snapshots(self) -> list[Any]:
        """The states in which the games are; under a planner of those that are not over."""
        kitchens = [game.unwrapped.kitchen.snapshot() for game in self._games if not _draws(game)]
        return kitchens + [game.game.save() for game in self._games if _draws(game) and game.agents]

    def learn(self, texts: Sequence[str], sources: Mapping[str, str]) -> None:
        """Lets all games draw subgoals from now on.

        Args:
            texts: Subgoals in words, all that were added so far.
            sources: Their reward code, where code judges.
        """
        self._texts, self._sources = list(texts), dict(sources)
        self._tell()

    def _tell(self) -> None:
        for game in self._games:
            if _draws(game):
                game.learn(self._texts, self._sources)
                continue
            if self._sources and isinstance(game, JudgedSubgoals):
                game.learn(self._sources)
            game.unwrapped.draw_also(self._texts)


def _draws(game: Any) -> bool:
    """True for a game under a planner that draws the subgoals of a data set."""
    return isinstance(game, PlannedSubgoals) and isinstance(game.planner, RandomPlanner) and bool(game.planner.subgoals)


def draw_callbacks(env_runner: Any) -> list[DrawNewSubgoals]:
    """The callback of an EnvRunner, if it has one."""
    return [one for one in env_runner._callbacks if isinstance(one, DrawNewSubgoals)]


NEW_SUBGOALS = "new_subgoals"


class SubgoalData(Settings):
    """The data set of subgoals: `subgoal_file` of kitchens that draw subgoals themselves; in other games that of the
    planner `random`.
    """

    new_subgoals: Mapping[str, Any] | None = None
    """None: it stays as it is. SAMA adds to it "periodically". A mapping with `every` (training iterations between two
    times) and `planner` (asks a chat model), and maybe other fields of
    `rllib_llm_comm.sama.emma.new_subgoals.NewSubgoalSettings`. The training waits for the answers."""


class NewSubgoalsConfigMixin(StrictConfigMixin):
    """Adds `.subgoal_data(...)`: a chat model is asked for further subgoals while the agents train."""

    def subgoal_data(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Lets the data set of subgoals grow during training; the settings are those of `SubgoalData`."""
        return self.assign("subgoal_data", settings, values)

    def validate(self) -> None:
        """Checks all settings; a `UserError` names one that is not allowed or does not fit the others."""
        super().validate()
        config: Any = self
        # The games of a periodic evaluation under a planner draw no subgoals.
        if self.new_subgoals is None or (config.in_evaluation and config.planner is not None):
            return
        settings = NewSubgoalSettings.checked(NEW_SUBGOALS, self.new_subgoals)
        if config.env == SUBGOAL_ENV_ID:
            _check_kitchen(config)
        else:
            _check_planned_game(config, settings)
        self.add_callback(DrawNewSubgoals)


def _check_kitchen(config: Any) -> None:
    """Refuses settings with which a kitchen that gives subgoals itself does not draw those of a data set."""
    game = config.env_config or {}
    wanted = (
        ("planner", config.planner, None, "omit one of them"),
        ("env_config.subgoals", game.get("subgoals", "sampled"), "sampled", "only sampled ones are drawn"),
        ("env_config.dynamics", game.get("dynamics", "old"), "old", "planners know no other"),
    )
    for name, value, right, remedy in wanted:
        if value != right:
            raise UserError(f"`new_subgoals` is set but `{name}` is {value!r} and not {right!r}; {remedy}.")
    if not game.get("subgoal_file"):
        raise UserError("`new_subgoals` is set but `env_config.subgoal_file` is not; give the data set to add to.")


def _check_planned_game(config: Any, settings: NewSubgoalSettings) -> None:
    """Refuses other games that no language model can prepare, and planners that draw no data set."""
    planner = config.planner
    if not isinstance(planner, Mapping) or planner.get("name") != RandomPlanner.name or not planner.get("subgoals"):
        raise UserError(
            f"`new_subgoals` is set but `planner` is {planner!r}, which draws no data set that could grow; give "
            "{name: random, subgoals: FILE}, or train in the onion-soup kitchens with subgoals "
            f"({SUBGOAL_ENV_ID})."
        )
    how = preparation_class(config.env)
    if settings.states_by == BY_MODEL and how.form is None:
        raise UserError(
            f"`new_subgoals.states_by` is {BY_MODEL!r}, but no model can propose states of {config.env!r}; set it to "
            f"{ENCOUNTERED!r}."
        )


class NewSubgoalsMixin(Algorithm):
    """Asks for further subgoals each so many iterations, and keeps what was added in its checkpoints."""

    _new_subgoals: NewSubgoals | None = None

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Sets up the algorithm, then who asks."""
        super().setup(config)
        own = self.config
        if own.new_subgoals is not None:
            settings, game = NewSubgoalSettings.checked(NEW_SUBGOALS, own.new_subgoals), dict(own.env_config or {})
            coded = isinstance(own.subgoal_rewards, Mapping) and own.subgoal_rewards.get("name") == "code"
            common: dict[str, Any] = {"with_code": coded, "seed": own.seed or 0}
            if own.env == SUBGOAL_ENV_ID:
                kitchen = {"layout": game.get("layout", "cramped_room")}
                self._new_subgoals = KitchenSubgoals(settings, ENV_ID, kitchen, str(game["subgoal_file"]), **common)
            else:
                self._new_subgoals = NewSubgoals(settings, own.env, game, str(own.planner["subgoals"]), **common)

    @override(Algorithm)
    def step(self) -> dict[str, Any]:
        """One training iteration; then, if it is time, new subgoals. The figures stand under `new_subgoals`."""
        result: dict[str, Any] = super().step()
        new = self._new_subgoals
        if new is not None:
            if (self.iteration + 1) % new.settings.every == 0 and new.ask(self._encountered()):
                self.tell_new_subgoals()
            result[NEW_SUBGOALS] = new.figures()
        return result

    def tell_new_subgoals(self) -> None:
        """Lets the games of all EnvRunners draw what was added so far."""
        if self._new_subgoals is None:
            return
        texts, sources = list(self._new_subgoals.subgoals), dict(self._new_subgoals.sources)

        def learn(runner: Any) -> None:
            for callback in draw_callbacks(runner):
                callback.learn(texts, sources)

        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.foreach_env_runner(learn)

    def _encountered(self) -> list[Any]:
        assert self.env_runner_group is not None
        parts = self.env_runner_group.foreach_env_runner(
            lambda runner: [snapshot for callback in draw_callbacks(runner) for snapshot in callback.snapshots()]
        )
        return [snapshot for part in parts for snapshot in part]

    @override(Algorithm)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, and what was asked and added."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        if self._new_subgoals is not None:
            state[NEW_SUBGOALS] = self._new_subgoals.to_state()
        return state

    @override(Algorithm)
    def set_state(self, state: Any) -> None:
        """Goes on from a state; the games draw what was added."""
        super().set_state(state)
        if self._new_subgoals is not None and NEW_SUBGOALS in state:
            self._new_subgoals.set_state(state[NEW_SUBGOALS])
            self.tell_new_subgoals()
