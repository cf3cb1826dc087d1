"""Algorithms whose data set of subgoals grows while they train, as SAMA's does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.annotations import override

from rllib_llm_comm.algorithms.strict_config import StrictConfigMixin
from rllib_llm_comm.callbacks.new_subgoals import DrawNewSubgoals, drawing
from rllib_llm_comm.envs.overcooked_ai.game import SUBGOAL_ENV_ID
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.planning.new_subgoals import NewSubgoals, NewSubgoalSettings

if TYPE_CHECKING:
    from typing_extensions import Self

NEW_SUBGOALS = "new_subgoals"


class NewSubgoalsConfigMixin(StrictConfigMixin):
    """Adds `.subgoal_data(...)`: a chat model is asked for further subgoals while the agents train."""

    def _set_new_subgoals_defaults(self) -> None:
        self.new_subgoals: Mapping[str, Any] | None = None

    def subgoal_data(self, *, new_subgoals: Mapping[str, Any] | None) -> Self:
        """Lets the data set `subgoal_file` grow during training.

        Args:
            new_subgoals: `None` (default): it stays as it is. SAMA adds to it "periodically". A mapping with `every`
                (training iterations between two times) and `planner` (asks a chat model), and maybe other fields of
                `rllib_llm_comm.planning.new_subgoals.NewSubgoalSettings`. The training waits for the answers.

        Returns:
            This config.
        """
        return self._assign(locals())

    def _validate_new_subgoals(self) -> None:
        if self.new_subgoals is None or self._evaluates_whole_games():
            return
        NewSubgoalSettings.from_mapping(self.new_subgoals)
        config: Any = self
        game = config.env_config or {}
        wanted = (
            ("env", config.env, SUBGOAL_ENV_ID, "train there"),
            ("planner", config.planner, None, "leave one of them away"),
            ("env_config.subgoals", game.get("subgoals", "sampled"), "sampled", "only sampled ones are drawn"),
            ("env_config.dynamics", game.get("dynamics", "old"), "old", "planners know no other"),
        )
        for name, value, right, remedy in wanted:
            if value != right:
                raise UserError(f"`new_subgoals` is set but `{name}` is {value!r} and not {right!r}; {remedy}.")
        if not game.get("subgoal_file"):
            raise UserError("`new_subgoals` is set but `env_config.subgoal_file` is not; give the data set to add to.")
        self._add_callback(DrawNewSubgoals)

    def _evaluates_whole_games(self) -> bool:
        """True for settings of a periodic evaluation under a planner, whose games draw no subgoals."""
        config: Any = self
        return bool(config.in_evaluation and config.planner is not None)


class NewSubgoalsMixin(Algorithm):
    """Asks for further subgoals each so many iterations, and keeps what was added in its checkpoints."""

    _new_subgoals: NewSubgoals | None = None

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Sets up the algorithm, then who asks."""
        super().setup(config)
        own = self.config
        if own.new_subgoals is not None:
            self._new_subgoals = NewSubgoals(
                NewSubgoalSettings.from_mapping(own.new_subgoals),
                own.env_config.get("layout", "cramped_room"),
                str(own.env_config["subgoal_file"]),
                with_code=isinstance(own.subgoal_rewards, Mapping) and own.subgoal_rewards.get("name") == "code",
                seed=own.seed or 0,
            )

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
            games = drawing(runner)
            if games is not None:
                games.learn(texts, sources)

        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.foreach_env_runner(learn)

    def _encountered(self) -> list[dict[str, Any]]:
        def snapshots(runner: Any) -> list[dict[str, Any]]:
            games = drawing(runner)
            return [] if games is None else games.snapshots()

        assert self.env_runner_group is not None
        parts = self.env_runner_group.foreach_env_runner(snapshots)
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
