"""Algorithms whose data set of subgoals grows while they train, as SAMA's does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.annotations import override
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.overcooked_ai import ENV_ID, SUBGOAL_ENV_ID
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import SubgoalKitchen
from rllib_llm_comm.rl.strict_config import StrictConfigMixin
from rllib_llm_comm.sama.data_set import BY_MODEL, ENCOUNTERED, NewSubgoals, NewSubgoalSettings
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners.baselines import RandomPlanner
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.preparation import preparation_class


class KitchenSubgoals(NewSubgoals):
    """Asks in states of kitchens that give subgoals themselves, which no planner looks at while agents train."""

    def put(self, game: PlanningGame, snapshot: Any) -> None:
        """Puts a kitchen into a state of `Kitchen.snapshot`."""
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
            if self._sources and hasattr(game, "learn"):
                game.learn(self._sources)
            game.unwrapped.draw_also(self._texts)


def _draws(game: Any) -> bool:
    """True for a game under a planner that draws the subgoals of a data set."""
    return isinstance(game, PlannedSubgoals) and isinstance(game.planner, RandomPlanner) and bool(game.planner.subgoals)


def _callbacks(env_runner: Any) -> list[DrawNewSubgoals]:
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
    `rllib_llm_comm.sama.data_set.NewSubgoalSettings`. The training waits for the answers."""


class NewSubgoalsConfigMixin(StrictConfigMixin):
    """Adds `.subgoal_data(...)`: a chat model is asked for further subgoals while the agents train."""

    def subgoal_data(self, **settings: Any) -> Self:
        """Lets the data set of subgoals grow during training; the settings are those of `SubgoalData`."""
        return self.assign("subgoal_data", settings)

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
            for callback in _callbacks(runner):
                callback.learn(texts, sources)

        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.foreach_env_runner(learn)

    def _encountered(self) -> list[Any]:
        assert self.env_runner_group is not None
        parts = self.env_runner_group.foreach_env_runner(
            lambda runner: [snapshot for callback in _callbacks(runner) for snapshot in callback.snapshots()]
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
