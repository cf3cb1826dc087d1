"""What the commands of `rllib planning` share: options, and what they become."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from rllib_llm_comm.checkpoints.find_checkpoint import find_checkpoint
from rllib_llm_comm.checkpoints.loading import Loading
from rllib_llm_comm.cli.options import Imports, TrustRecorded
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.console import print_table, say, short_path
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.files import write_atomically

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.executors import Executor
    from rllib_llm_comm.evaluation.planning_study import Cell, Study

SCRIPTED = "scripted"
RULES = ("scripted", "plan4mc", "random")
"""Planners that read no prompts."""

JsonFile = Annotated[
    Path | None, Option("--json", help="Keep the figures in this file; what it holds already is not played again.")
]
MarkdownFile = Annotated[Path | None, Option("--markdown", help="Also write the table to this file.")]
Layouts = Annotated[
    str | None,
    Option(
        "--layouts",
        help="Kitchens, with commas between them; all five, or those that a checkpoint was trained on. In other games "
        "their scenarios, such as opponents.",
    ),
]


@dataclass(frozen=True)
class PlanningOptions:
    """Options of all commands that play games; each field is one, and its help text is its documentation."""

    executor: Annotated[
        list[str] | None,
        Option(help="Who carries out subgoals: 'scripted' (rules; default) or a checkpoint; may be given again."),
    ] = None
    planner: Annotated[
        list[str] | None,
        Option(
            metavar="NAME|JSON",
            help='A name, or settings such as \'{"name": "cassette", "cassette": "plans.jsonl"}\'; scripted by '
            "default.",
        ),
    ] = None
    layouts: Layouts = None
    env: Annotated[
        str | None,
        Option(help="Game of the scripted executor: an id in PettingZoo's registry; the kitchens by default."),
    ] = None
    env_config: Annotated[str | None, Option(metavar="JSON", help="Settings of the game.")] = None
    episodes: Annotated[int, Option("--episodes", "--seeds", min=1, help="Episodes per cell, a seed each.")] = 10
    seed: Annotated[int, Option(min=0, help="The first seed; the others count up.")] = 0
    trials: Annotated[int, Option(min=0, help="Most reflections per round.")] = 0
    replan: Annotated[
        str | None,
        Option(help="'any': plan when somebody's subgoal has ended; 'all': in rounds, which --trials needs."),
    ] = None
    recover: Annotated[str, Option(help="How a failed round is put back: snapshot or replay.")] = "snapshot"
    patience: Annotated[int, Option(min=1, help="Game steps that a subgoal may take.")] = 40
    greedy: Annotated[bool, Option("--greedy", help="A checkpoint takes the most likely action.")] = False
    json_file: JsonFile = None
    markdown_file: MarkdownFile = None
    modules: Imports = None
    trust: TrustRecorded = False

    def planners(self) -> list[str | dict[str, Any]]:
        """The planners' settings, the scripted one if none is given."""
        return [read_planner(text) for text in self.planner or [SCRIPTED]]

    def one_planner(self) -> str | dict[str, Any]:
        """The settings of the only planner.

        Raises:
            UserError: If several are given.
        """
        found = self.planners()
        if len(found) > 1:
            raise UserError(f"--planner is given {len(found)} times, which only `rllib planning planners` takes.")
        return found[0]

    def cells(
        self, variants: Sequence[tuple[Mapping[str, Any], str | Mapping[str, Any], int]], rounds: bool = False
    ) -> list[Cell]:
        """All variants in all scenarios of all executors.

        Args:
            variants: Per variant its labels, its planner and its trials.
            rounds: Whether all are played in rounds.

        Raises:
            UserError: If a setting is not allowed.
        """
        from rllib_llm_comm.evaluation.executors import PlanningSetup
        from rllib_llm_comm.evaluation.planning_study import SCENARIO, Cell

        cells = []
        executors = self._executors()
        for name, executor in executors.items():
            names = named(self.layouts)
            known = executor.scenarios
            scenarios = known if names is None else {name: known.get(name, {"layout": name}) for name in names}
            for scenario, settings in scenarios.items():
                who = {"executor": name} if len(executors) > 1 else {}
                for labels, planner, trials in variants:
                    replan = self.replan or ("all" if rounds or trials else "any")
                    setup = PlanningSetup(planner, replan, trials, self.recover, self.patience)
                    cells.append(Cell({SCENARIO: scenario, **who, **labels}, executor, settings, setup))
        return cells

    def has_skills(self) -> bool:
        """Whether the games that are played have skill graphs."""
        from rllib_llm_comm.planning.planning_game import planning_game

        games = (executor.env(next(iter(executor.scenarios.values()))) for executor in self._executors().values())
        return all(planning_game(game).has_skills for game in games)

    def require_different_prompts(
        self, variants: Sequence[tuple[Mapping[str, Any], str | Mapping[str, Any]]], what: str
    ) -> None:
        """Refuses a comparison of prompts in which two variants lead to the same ones.

        Args:
            variants: Per variant its labels and its planner.
            what: Name of the comparison.

        Raises:
            UserError: If two do, in the first scenario of an executor.
        """
        from rllib_llm_comm.planning.planning_game import planning_game
        from rllib_llm_comm.planning.prompt_check import require_different_prompts

        for executor in self._executors().values():
            env = executor.env(next(iter(executor.scenarios.values())))
            env.reset(seed=self.seed)
            require_different_prompts(variants, planning_game(env), what)

    def _executors(self) -> dict[str, Executor]:
        from rllib_llm_comm.evaluation.executors import DEFAULT_ENV, PolicyExecutor, ScriptedExecutor

        config = load_json_option("--env-config", self.env_config) if self.env_config else {}
        loading = Loading(trust=self.trust)
        made: dict[str, Executor] = {}
        for name in self.executor or [SCRIPTED]:
            if name == SCRIPTED:
                made[name] = ScriptedExecutor(self.env or DEFAULT_ENV, config)
            else:
                path = short_path(find_checkpoint(name))
                made[path] = PolicyExecutor(loading.load(path), path, config, self.greedy, _digest(path))
        return made


def _digest(checkpoint: str) -> str:
    """Of the weights: a checkpoint of another training under the same path is another executor."""
    from rllib_llm_comm.agents.policy_folder import find_policy

    found = hashlib.sha256()
    for path in sorted(find_policy(checkpoint).rglob("*.safetensors")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def named(layouts: str | None) -> list[str] | None:
    """The names of an option with commas between them; `None` if it is not given."""
    return None if layouts is None else [name.strip() for name in layouts.split(",")]


def read_planner(text: str) -> str | dict[str, Any]:
    """A planner's settings as a user types them.

    Args:
        text: A name, or a JSON object.
    """
    return load_json_option("--planner", text) if text.lstrip().startswith("{") else text


def with_settings(planner: str | Mapping[str, Any], /, **settings: Any) -> dict[str, Any]:
    """A planner's settings with some of them changed.

    Args:
        planner: A name or settings.
        **settings: What changes.
    """
    return {**({"name": planner} if isinstance(planner, str) else planner), **settings}


def require_prompts(planner: str | Mapping[str, Any], what: str) -> None:
    """Refuses a planner that reads no prompts, where prompts are compared.

    Args:
        planner: A name or settings.
        what: What is compared.

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


def play_and_tell(study: Study, options: PlanningOptions, figure: Callable[[Study], None] | None = None) -> None:
    """Plays what is missing of a comparison, prints its table and writes the files.

    Args:
        study: The comparison.
        options: Where its figures go.
        figure: Draws it.
    """
    from rllib_llm_comm.evaluation.planning_study import markdown, table

    path = options.json_file
    if path is not None and path.exists():
        study.take_over(path.read_text(encoding="utf-8"))
    say(f"Measures {study.measures}.")
    with counting_bar("playing") as progress:
        study.play(lambda text: None if path is None else write_atomically(path, text), progress)
    columns, rows = table(study.figures())
    print_table([columns, *rows])
    if path is not None:
        say(f"Figures: {short_path(path)}")
    if options.markdown_file is not None:
        write_atomically(options.markdown_file, markdown(columns, rows))
        say(f"Table: {short_path(options.markdown_file)}")
    if figure is not None:
        figure(study)
