"""Settings by which any of our algorithms plays under a planner, and the callback that puts it into the games."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils import force_list

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import without_subgoals
from rllib_llm_comm.rl.chat_cost import ChatCost
from rllib_llm_comm.rl.episode_metrics import EpisodeMetrics, games_own_metrics
from rllib_llm_comm.rl.rllib_adapter import wrap_games
from rllib_llm_comm.rl.strict_config import StrictConfigMixin
from rllib_llm_comm.sama.following import ALL, PATIENCE
from rllib_llm_comm.sama.planned_env import JudgedSubgoals, PlannedSubgoals, check_planning
from rllib_llm_comm.sama.planners import make_planner, planner_model
from rllib_llm_comm.sama.rewards.subgoal_rewards import ERROR, EXACT, make_rewards

if TYPE_CHECKING:
    from typing_extensions import Self


class AddPlannedSubgoals(RLlibCallback):
    """Wraps the games of every EnvRunner in `PlannedSubgoals`; works with any algorithm whose policy reads `subgoal`.

    Our algorithms add it when `planner` is set, and it reads their settings. In a config of your own use
    `AddPlannedSubgoals.of("scripted")` in `config.callbacks`. All environments of a runner share one chat model and its
    budget, the rewards that were written, and a pool of threads in which slow planners think. What `PlannedSubgoals`
    counts (plans, subgoals, who answered, cost) is logged with the episode metrics, and all that was asked under
    `chat` (`rllib_llm_comm.rl.chat_cost.ChatCost`).
    """

    planner: ClassVar[Any] = None
    settings: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def of(cls, planner: str | Mapping[str, Any] = "scripted", **settings: Any) -> type[AddPlannedSubgoals]:
        """The callback class for a given planner.

        Args:
            planner: As of `make_planner`.
            **settings: The other arguments of `PlannedSubgoals`.

        Raises:
            UserError: If the planner's settings are not allowed.
        """
        make_planner(planner)
        return type("AddPlannedSubgoals", (cls,), {"planner": planner, "settings": settings})

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Puts the wrapper between adapter and game, in each sub-environment.

        Raises:
            UserError: If the environment is no PettingZoo environment behind our adapter, or planners do not know it.
        """
        planner, settings = self.planner, dict(self.settings)
        if planner is None:
            settings = dict(env_runner.config.planning_settings())
            planner = settings.pop("planner")
        settings["subgoal_rewards"] = rewards = make_rewards(settings.get("subgoal_rewards", "exact"))
        model = None if planner is None else planner_model(planner)
        slow = model is not None or rewards.slow
        threads = ThreadPoolExecutor(len(env.envs), thread_name_prefix="planner") if slow else None
        self._cost = ChatCost([model, getattr(rewards, "model", None)])

        def wrapped(game: Any, number: int) -> Any:
            if planner is None:
                return JudgedSubgoals(game, rewards)
            return PlannedSubgoals(game, make_planner(planner, model), threads=threads, **settings)

        wrap_games(env, wrapped, "A planner needs")

    def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, samples: Any, **kwargs: Any) -> None:
        """Logs what the questions of planner and judge have cost."""
        self._cost.log(metrics_logger)

    def on_episode_end(self, *, episode: Any, env_runner: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """Logs what was planned, unless `EpisodeMetrics` does."""
        callbacks = env_runner.config.callbacks_class
        used = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        if any(isinstance(one, type) and issubclass(one, EpisodeMetrics) for one in used):
            return
        window = env_runner.config.metrics_num_episodes_for_smoothing
        for name, value in games_own_metrics(episode.get_infos(-1)).items():
            metrics_logger.log_value(name, value, window=window)


_SEVERAL = 2
_NAMES = ("planner", "subgoal_reward", "subgoal_rewards", "patience", "replan", "wait", "subgoals_to")


def require_one_budget(where: str, settings: Any, runners: int) -> None:
    """Refuses a budget of a chat model that each of several EnvRunners would spend for itself.

    Args:
        where: Name of the setting, for messages.
        settings: Settings in which `chat` may stand, at any depth.
        runners: Number of EnvRunners.

    Raises:
        UserError: If there is one.
    """
    if not isinstance(settings, Mapping) or runners < _SEVERAL:
        return
    chat = settings.get("chat")
    if isinstance(chat, Mapping) and chat.get("budget") is not None and not chat.get("cache_dir"):
        raise UserError(
            f"`{where}.chat.budget` is {chat['budget']!r} but each of {runners} EnvRunners would spend as much; set "
            f"`{where}.chat.cache_dir`, a folder in which they keep one account, or `num_env_runners` to at most 1."
        )
    for name, value in settings.items():
        require_one_budget(f"{where}.{name}", value, runners)


class PlanningConfigMixin(StrictConfigMixin):
    """Adds `.planning(...)`: a planner gives the agents subgoals.

    Every setting is also an attribute, and so a flat key of a YAML file's `config:`.

    Attributes:
        subgoals_in_vector: True if agents read numbers, so that subgoals are told behind their vectors.
    """

    subgoals_in_vector: ClassVar[bool] = False

    def _set_planning_defaults(self) -> None:
        self.planner: str | Mapping[str, Any] | None = None
        self.subgoal_reward = 1.0
        self.subgoal_rewards: str | Mapping[str, Any] = EXACT
        self.patience = PATIENCE
        self.replan = "any"
        self.wait: bool | None = None
        self.subgoals_to: str | Sequence[str] = ALL

    def planning(
        self,
        *,
        planner: str | Mapping[str, Any] | None = NotProvided,
        subgoal_reward: float = NotProvided,
        subgoal_rewards: str | Mapping[str, Any] = NotProvided,
        patience: int = NotProvided,
        replan: str = NotProvided,
        wait: bool | None = NotProvided,
        subgoals_to: str | Sequence[str] = NotProvided,
    ) -> Self:
        """Lets a planner say what the agents shall do, as SAMA does; agents that read words find it in `subgoal`.

        In `evaluation_config` these settings are those of the periodic evaluation; where the training games give
        subgoals themselves it plays the same game without them.

        Args:
            planner: `None` (default): nobody plans. `"scripted"` (the game's rules), `"plan4mc"`, or a dict with `name`
                (`"chat"`, `"cassette"`, `"deps"`, ...) and the planner's arguments, as of
                `rllib_llm_comm.sama.planners.make_planner`.
            subgoal_reward: Reward of an agent in the game step in which its subgoal is done, beside the game's own
                rewards. Default 1 (ours).
            subgoal_rewards: The judge of that. `"exact"` (default, ours): the game's own tests. A dict with
                `name` `"code"` (and `path`: reward code in a folder or JSON file), `"chat"` (a model writes such code,
                as in SAMA) or `"judge"`, as of `rllib_llm_comm.sama.rewards.subgoal_rewards.make_rewards`. Also for
                environments that give subgoals themselves; then without `planner`.
            patience: Game steps after which a subgoal that is not done ends, >= 1. Default 40 (ours).
            replan: `"any"` (default, ours): plans when any agent's subgoal has ended. `"all"`: when those of all have
                (SAMA).
            wait: True if the games wait for the plan; `None` (default): unless the planner asks a server.
            subgoals_to: Agents that are told their subgoals: `"all"` (default, as in SAMA) or a list of names (ours).
                The planner plans for all; who is not told reads no subgoal and is not paid for one.

        Returns:
            This config.
        """
        return self._assign(locals())

    def planning_settings(self) -> dict[str, Any]:
        """All of them as arguments of `PlannedSubgoals`."""
        return {**{name: getattr(self, name) for name in _NAMES}, "in_vector": self.subgoals_in_vector}

    def _prepare_evaluation(self) -> None:
        """Makes the periodic evaluation under a planner one of whole games, and of no more games than are counted."""
        config: Any = self
        if isinstance(self.subgoal_rewards, Mapping) and self.subgoal_rewards.get("fallback") == ERROR:
            raise UserError(
                "`evaluation_config` has `planner` and `subgoal_rewards` with `fallback: error`, but planners give "
                "subgoals without code, too, which would end the training; set `subgoal_rewards: exact` in "
                "`evaluation_config`."
            )
        if isinstance(config.env, str):  # agents that learn on sampled subgoals are evaluated in whole games
            config.env, config.env_config = without_subgoals(config.env, dict(config.env_config or {}))
        if config.evaluation_duration_unit == "episodes" and isinstance(config.evaluation_duration, int):
            # Games that nobody counts would ask the planner, too.
            counted = math.ceil(config.evaluation_duration / max(1, config.evaluation_num_env_runners))
            config.num_envs_per_env_runner = min(config.num_envs_per_env_runner, counted)

    def _validate_planning(self) -> None:
        config: Any = self
        if self.planner is None and self.subgoals_to != ALL and not config.in_evaluation:
            raise UserError(f"`subgoals_to` is {self.subgoals_to!r} but nobody plans; set `planner`, or leave it away.")
        if self.planner is None and self.subgoal_rewards == EXACT:
            return
        self.require_numbers(["subgoal_reward"])
        check_planning(self.subgoal_reward, self.patience, self.replan, self.wait, self.subgoals_to)
        if self.planner is not None:
            make_planner(self.planner)
        make_rewards(self.subgoal_rewards)
        for name in ("planner", "subgoal_rewards"):
            require_one_budget(name, getattr(self, name), config.num_env_runners)
        if self.planner is not None and config.in_evaluation:
            self._prepare_evaluation()
        present: list[Any] = force_list(getattr(self, "callbacks_class"))  # noqa: B009  (untyped in RLlib)
        if any(isinstance(one, type) and issubclass(one, AddPlannedSubgoals) and one.planner for one in present):
            raise UserError(
                f"`planner` is {self.planner!r} but `callbacks` has another AddPlannedSubgoals; leave one of them away."
            )
        self._add_callback(AddPlannedSubgoals)
