"""Comparisons of planners by whole games: settings, the cells to play, and playing with a table and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text, write_atomically
from rllib_llm_comm.experiments.console import print_table, say, say_stand_ins, short_path
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.load_options import Loading

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.planner_scores import Cell, PlannerScores
    from rllib_llm_comm.evaluation.subgoal_executors import Executor

SCRIPTED = "scripted"
RULES = ("scripted", "plan4mc", "random")
"""Planners that read no prompts."""
PlannerSettings = str | Mapping[str, Any]
"""A planner's name, or its settings with `name`."""
Variant = tuple[Mapping[str, Any], PlannerSettings, int]
"""Labels, planner and most reflections per round of one row of a comparison."""


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings of all comparisons of planners, the same as the options of `rllib planning`.

    Attributes:
        executor: Players who carry out subgoals: "scripted" (rules; by default) or paths of checkpoints.
        planner: Planners; the scripted one by default.
        layouts: Names of kitchens, or of the scenarios of other games; all by default, or those that a checkpoint was
            trained on.
        env: Game of the scripted executor: an id in PettingZoo's registry; the kitchens by default.
        env_config: Settings of the game.
        episodes: Episodes per cell, >= 1, a seed each.
        seed: The first seed; the others count up.
        trials: Most reflections per round.
        replan: "any": plans after the end of any subgoal; "all": plans in rounds, which `trials` needs; by default
            rounds only with reflection.
        recover: Recovery of a failed round, "snapshot" or "replay".
        patience: Game steps that a subgoal may take, >= 1.
        greedy: True if a checkpoint takes the most likely action.
        json_file: File of the figures; its cells are not played again.
        markdown_file: File of the table.
        modules: Modules that are imported first.
        trust: True to use addresses, names of keys, paths and hub ids that a checkpoint recorded.
    """

    executor: Sequence[str] | None = None
    planner: Sequence[PlannerSettings] | None = None
    layouts: Sequence[str] | None = None
    env: str | None = None
    env_config: Mapping[str, Any] | None = None
    episodes: int = 10
    seed: int = 0
    trials: int = 0
    replan: str | None = None
    recover: str = "snapshot"
    patience: int = 40
    greedy: bool = False
    json_file: Path | None = None
    markdown_file: Path | None = None
    modules: Sequence[str] | None = None
    trust: bool = False

    def planners(self) -> list[PlannerSettings]:
        """The planners, the scripted one if none is given."""
        return list(self.planner or [SCRIPTED])

    def one_planner(self) -> PlannerSettings:
        """The only planner.

        Raises:
            UserError: If several are given.
        """
        found = self.planners()
        if len(found) > 1:
            raise UserError(f"--planner is given {len(found)} times, which only `rllib planning planners` takes.")
        return found[0]

    def executors(self) -> dict[str, Executor]:
        """The executors by name.

        Raises:
            UserError: If a checkpoint cannot be loaded, or the game does not fit.
        """
        from rllib_llm_comm.evaluation.subgoal_executors import DEFAULT_ENV, PolicyExecutor, ScriptedExecutor
        from rllib_llm_comm.policies.policy_folder import weights_digest

        config = self.env_config or {}
        made: dict[str, Executor] = {}
        for name in self.executor or [SCRIPTED]:
            if name == SCRIPTED:
                made[name] = ScriptedExecutor(self.env or DEFAULT_ENV, config)
            else:
                path = short_path(find_checkpoint(name))
                policy = Loading(trust=self.trust).load(path)
                made[path] = PolicyExecutor(policy, path, config, self.greedy, weights_digest(path))
        return made


def comparison(
    name: str, measures: str, variants: Sequence[Variant], settings: ComparisonSettings, rounds: bool = False
) -> PlannerScores:
    """A comparison of all variants in all scenarios of all executors.

    Args:
        name: Name of the comparison.
        measures: The quantity that it measures, in a sentence.
        variants: Its rows.
        settings: Executors, scenarios and seeds.
        rounds: True if all variants are played in rounds.

    Raises:
        UserError: If a setting is not allowed.
    """
    from rllib_llm_comm.evaluation.planner_scores import PlannerScores

    seeds = range(settings.seed, settings.seed + settings.episodes)
    return PlannerScores(name, measures, _cells(variants, settings, rounds), seeds)


def _cells(variants: Sequence[Variant], settings: ComparisonSettings, rounds: bool) -> list[Cell]:
    from rllib_llm_comm.evaluation.planned_play import PlanningSetup
    from rllib_llm_comm.evaluation.planner_scores import SCENARIO, Cell

    cells = []
    executors, names = settings.executors(), settings.layouts
    for name, executor in executors.items():
        known = executor.scenarios
        scenarios = known if names is None else {name: known.get(name, {"layout": name}) for name in names}
        for scenario, config in scenarios.items():
            who = {"executor": name} if len(executors) > 1 else {}
            for labels, planner, trials in variants:
                replan = settings.replan or ("all" if rounds or trials else "any")
                setup = PlanningSetup(planner, replan, trials, settings.recover, settings.patience)
                cells.append(Cell({SCENARIO: scenario, **who, **labels}, executor, config, setup))
    return cells


def have_skills(settings: ComparisonSettings) -> bool:
    """True if all games that are played have skill graphs.

    Args:
        settings: The executors.
    """
    from rllib_llm_comm.sama.planning_game import planning_game

    games = (executor.env(next(iter(executor.scenarios.values()))) for executor in settings.executors().values())
    return all(planning_game(game).has_skills for game in games)


def require_different_prompts(
    variants: Sequence[tuple[Mapping[str, Any], PlannerSettings]], settings: ComparisonSettings, what: str
) -> None:
    """Refuses a comparison of prompts in which two variants lead to the same ones.

    Args:
        variants: Per variant its labels and its planner.
        settings: The executors.
        what: Name of the comparison.

    Raises:
        UserError: If two do, in the first scenario of an executor.
    """
    from rllib_llm_comm.sama import planners
    from rllib_llm_comm.sama.planning_game import planning_game

    for executor in settings.executors().values():
        env = executor.env(next(iter(executor.scenarios.values())))
        env.reset(seed=settings.seed)
        planners.require_different_prompts(variants, planning_game(env), what)


def with_settings(planner: PlannerSettings, /, **settings: Any) -> dict[str, Any]:
    """A planner's settings with some of them changed.

    Args:
        planner: A name or settings.
        **settings: The changes.
    """
    return {**({"name": planner} if isinstance(planner, str) else planner), **settings}


def require_prompts(planner: PlannerSettings, what: str) -> None:
    """Refuses a planner that reads no prompts in a comparison of prompts.

    Args:
        planner: A name or settings.
        what: The settings that are compared, in words.

    Raises:
        UserError: If it reads none.
    """
    name = with_settings(planner)["name"]
    if name in RULES:
        chat, tape = {"name": "chat", "chat": {"model": "gpt-4o"}}, {"name": "cassette", "cassette": "plans.jsonl"}
        raise UserError(
            f"--planner is {name!r}, which asks no language model, so that {what} change nothing; give one that does, "
            f"such as '{json.dumps(chat)}', or a recording, '{json.dumps(tape)}'."
        )


def play_and_tell(
    scores: PlannerScores, settings: ComparisonSettings, figure: Callable[[PlannerScores], None] | None = None
) -> None:
    """Plays the missing episodes of a comparison, prints its table and writes the files.

    Args:
        scores: The comparison and its episodes so far.
        settings: The files.
        figure: Draws it; `None` for no figure.

    Raises:
        UserError: If the file of figures holds another comparison, or a game cannot be played.
    """
    from rllib_llm_comm.evaluation.planner_scores import markdown, table

    path = settings.json_file
    if path is not None and path.exists():
        scores.take_over(read_text(path))
    say(f"Measures {scores.measures}.")
    say_stand_ins(scores.stand_ins())
    with counting_bar("playing") as progress:
        scores.play(lambda text: None if path is None else write_atomically(path, text), progress)
    columns, rows = table(scores.figures())
    print_table([columns, *rows])
    say_stand_ins(scores.stand_ins())
    if path is not None:
        say(f"Figures: {short_path(path)}")
    if settings.markdown_file is not None:
        write_atomically(settings.markdown_file, markdown(columns, rows, scores.stand_ins()))
        say(f"Table: {short_path(settings.markdown_file)}")
    if figure is not None:
        figure(scores)
