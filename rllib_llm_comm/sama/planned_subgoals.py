"""Callback that lets a planner give subgoals in RLlib's environments."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_llm_comm.rl.chat_cost import ChatCost
from rllib_llm_comm.rl.episode_metrics import EpisodeMetrics, games_own_metrics
from rllib_llm_comm.rl.rllib_adapter import wrap_games
from rllib_llm_comm.sama.judgements import JudgedSubgoals
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import make_planner, planner_model
from rllib_llm_comm.sama.rewards.subgoal_rewards import make_rewards
from rllib_llm_comm.sama.subgoal_observations import ALL
from rllib_llm_comm.sama.tracking import PATIENCE


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

    @classmethod
    def policy_record(cls) -> dict[str, Any]:
        """What a policy folder tells of the planning, as far as a file can hold it."""
        if not isinstance(cls.planner, str | Mapping):
            return {}
        told = {"patience": PATIENCE, "replan": "any", "subgoals_to": ALL, "in_vector": False}
        return {"planning": {"planner": cls.planner, **{name: cls.settings.get(name, told[name]) for name in told}}}

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
