"""The stage that plays the games of planner seats under planners, trained ones beside rules and random draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from rllib_llm_comm.chat.chat_model import cost_of, count_scope
from rllib_llm_comm.core.errors import UserError, within
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.experiments.env_settings import check_environment, without_missing
from rllib_llm_comm.experiments.language_stages import kept_planner
from rllib_llm_comm.experiments.stages import Stage, StageKind, StageResult
from rllib_llm_comm.sama.planners import make_planner, planner_model


class PlayPlannersSettings(Settings):
    """`config:` of `run: play_planners`."""

    planner: list[str | dict[str, Any]] = Field(default=["scripted", "random"], min_length=1)
    """Planners, as of `make_planner`; `{name: trained, policy: ${stage}}` stands for all results of a stage."""
    env_config: dict[str, Any] = Field(default_factory=dict)
    """Settings of the planners' seats: their game, who carries subgoals out, and the patience."""
    episodes: int = Field(default=10, ge=1, le=1_000_000)
    """Games per planner."""
    seed: int = Field(default=1000, ge=0, le=2**31 - 1)
    """Seed of the first game; the others count up."""

    def planners(self) -> list[str | dict[str, Any]]:
        """One entry per planner: those of several results are told apart."""
        found: list[str | dict[str, Any]] = []
        for one in self.planner:
            several = one.get("policy") if isinstance(one, dict) else None
            found += [{**one, "policy": path} for path in several] if isinstance(several, list) else [one]  # type: ignore[dict-item]
        return found


class PlayPlanners(StageKind):
    """`run: play_planners`: games of the seats of `env` under each planner; figures as JSON and as a table."""

    name = "play_planners"
    settings_class = PlayPlannersSettings
    takes_env = True

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values, the seats, and planners that should be there by now."""
        from rllib_llm_comm.experiments.planning_run import planners_by_label
        from rllib_llm_comm.sama.planner_seats import SEATS

        settings, env = self.settings(stage), stage.experiment.env
        if env not in SEATS:
            raise UserError(f"`{stage.name}.env` is {env!r} but must be one of {', '.join(SEATS)}.")
        there = without_missing(settings.env_config, unresolved)
        check_environment(stage.name, env, there, stage.trust)
        game = make_env(str(env), **there).game
        with within(f"{stage.name}.config.planner"):
            for planner in planners_by_label(settings.planners()).values():
                if not any(path in str(planner) for path in unresolved):
                    make_planner(planner, planner_model(planner)).check_game(game)

    def loads(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """All of `config:`, with the planners that it has by default."""
        return {**self.settings_class.defaults(), **config}

    def run(self, stage: Stage) -> StageResult:
        """Plays the games that are not played yet and writes `planners.json` and `planners.md`."""
        from rllib_llm_comm.evaluation.planner_scores import (
            Cell,
            PlannerScores,
            PlanningSetup,
            PolicyExecutor,
            ScriptedExecutor,
        )
        from rllib_llm_comm.experiments.planning_run import ComparisonSettings, planners_by_label, play_and_tell
        from rllib_llm_comm.policies.policy_folder import weights_digest
        from rllib_llm_comm.sama.planner_seats import SEATS, SeatSettings, executor_of

        settings: PlayPlannersSettings = self.settings(stage)
        seats = SeatSettings.checked(f"{stage.name}.config.env_config", settings.env_config)
        game_id = SEATS[str(stage.experiment.env)].game_id
        policy, name = executor_of(seats, game_id), seats.executor.removeprefix("trained:")
        executor = (
            ScriptedExecutor(game_id, seats.game)
            if policy is None
            else PolicyExecutor(policy, name, seats.game, seats.greedy, weights_digest(name))
        )
        cells = []
        for number, (label, planner) in enumerate(planners_by_label(settings.planners()).items()):
            # A recording of its own each: planners of different models have the same questions.
            kept = kept_planner(planner, stage.folder / f"planner_{number}")
            cells.append(Cell({"planner": label}, executor, {}, PlanningSetup(kept, patience=seats.patience)))
        seeds = range(settings.seed, settings.seed + settings.episodes)
        scores = PlannerScores("planners", "which planner brings the most with the same executor", cells, seeds)
        stage.folder.mkdir(parents=True, exist_ok=True)
        json_file, table = stage.folder / "planners.json", stage.folder / "planners.md"
        with count_scope() as asked:
            play_and_tell(scores, ComparisonSettings(json_file=json_file, markdown_file=table))
        told = {row["labels"]["planner"]: row["summary"]["value"] for row in scores.figures()}
        cost = cost_of(asked) if asked.requests or asked.cached else {}
        return StageResult([json_file], {"table": table}, summary={**told, **cost})
