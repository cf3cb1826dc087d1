"""`rllib planning` and `rllib manual`: planners judged by whole games, SAMA's ablations, material for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from rllib_llm_comm.cli.options import IMPORT, takes_settings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments import planning_run
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.planning_run import ComparisonSettings, RewardCodeSettings, SubgoalCollection
from rllib_llm_comm.sama.manuals.manual import ManualSettings

_SPELLED: dict[str, Any] = {
    "joined": ["layouts"],
    "layouts": Option(metavar="NAME,..."),
    "json_file": Option("--json"),
    "markdown_file": Option("--markdown"),
    "modules": IMPORT,
}
takes_comparison_settings = takes_settings(ComparisonSettings, episodes=Option("--episodes", "--seeds"), **_SPELLED)

planning_app = typer.Typer(
    no_args_is_help=True, help="Judge planners by whole games; SAMA's ablations, one command each."
)


@planning_app.callback()
def planning_group() -> None:
    """Judge planners by whole games; SAMA's ablations, one command each.

    Without options all of it runs without network: the scripted planner, and cooks who do as they are told by rules.
    """


@planning_app.command("reward")
@takes_comparison_settings
def reward(settings: ComparisonSettings) -> None:
    """The score of whole games under a planner.

    Examples:

        rllib planning reward --json reward.json

        rllib planning reward --executor results/emma/emma --planner plan4mc
    """
    planning_run.measure_reward(settings)


@planning_app.command("planners")
@takes_comparison_settings
def planners(settings: ComparisonSettings) -> None:
    """The scores of several planners with the same executor: scripted, plan4mc, random, and those given.

    Examples:

        rllib planning planners --planner '{"name": "cassette", "cassette": "plans.jsonl"}'
    """
    planning_run.compare_planners(settings)


@planning_app.command("trials")
@takes_comparison_settings
def trials(
    settings: ComparisonSettings,
    most: Annotated[int, Option("--most", min=0, help="Reflections per round: from 0 to this many.")] = 3,
    share: Annotated[
        float,
        Option("--share", min=0, max=1, help="Share of subgoals that are replaced by random ones, so that some fail."),
    ] = 0.5,
) -> None:
    """The gain of self-reflection: 0 to 3 times a failed round is put back and planned anew.

    Subgoals of rules hardly ever fail. So half of them are replaced by random possible ones: it is measured what is
    gained by undoing those that fail (a gain in time, as what is put back does not count), not how well a model thinks.
    With a planner that fails by itself give --share 0.

    Examples:

        rllib planning trials --json trials.json
    """
    planning_run.compare_trials(settings, most, share)


def _shares(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= share <= 1 for share in found):
        raise UserError(f"`--shares` is {text!r} but must be numbers from 0 to 1 with commas between them.")
    return found


@planning_app.command("random-commands")
@takes_comparison_settings
def random_commands(
    settings: ComparisonSettings,
    shares: Annotated[
        str,
        Option(help="Shares of random subgoals, with commas between them."),
    ] = "0,0.25,0.5,0.75,1",
    figure: Annotated[Path | None, Option(help="Draw score against share as PNG.")] = None,
) -> None:
    """Obedience to subgoals: the score when a share of the subgoals is replaced by random possible ones.

    The score of agents who follow falls with the share; who does not listen stays where he is (SAMA's Figure 14).

    Examples:

        rllib planning random-commands --json random.json --figure random.png
    """
    planning_run.compare_random_commands(settings, _shares(shares), figure)


def _ablation(name: str) -> None:
    """Adds the command that compares prompts of one kind."""
    what, _ = planning_run.PROMPT_ABLATIONS[name]

    def command(settings: ComparisonSettings) -> None:
        planning_run.compare_prompts(name, settings)

    command.__doc__ = f"""Measures {what}: {name.replace("-", " ")} in the prompts.

    The planner has to ask a language model, or to play its recording: rules answer all prompts alike.

    Example:

        rllib planning {name} --planner '{{"name": "chat", "chat": {{"model": "gpt-4o", "cassette": "plans.jsonl"}}}}'
    """
    planning_app.command(name)(takes_comparison_settings(command))


for _name in planning_run.PROMPT_ABLATIONS:
    _ablation(_name)


@planning_app.command("rewards")
@takes_settings(RewardCodeSettings, planner=Option(metavar="JSON"), **_SPELLED)
def rewards(settings: RewardCodeSettings) -> None:
    """Rewards by hand or by a planner: how far reward code agrees with the exact tests, for all subgoals of a kitchen.

    The code of "put the onion into the pot" lies in CODE/KITCHEN/put_the_onion_into_the_pot.py or in CODE itself.
    Without --code it is what a large model wrote for the cramped room, from the recording that comes with the package.

    Examples:

        rllib planning rewards

        rllib planning rewards --code rewards --layouts cramped_room

        rllib planning rewards --code rewards --planner '{"name": "chat", "chat": {"model": "gpt-4o"}}'
    """
    planning_run.compare_reward_code(settings)


@planning_app.command("subgoals")
@takes_settings(SubgoalCollection, **_SPELLED)
def subgoals(settings: SubgoalCollection) -> None:
    """A data set of subgoals: what a planner wants in many different states of a kitchen, without duplicates.

    The file FOLDER/KITCHEN.json is what the setting `subgoal_file` of the kitchens with subgoals takes, for training.

    Examples:

        rllib planning subgoals --layouts cramped_room --states 200

        rllib planning subgoals --planner '{"name": "chat", "chat": {"model": "gpt-4o"}}'
    """
    planning_run.collect_subgoals(settings)


@takes_settings(ManualSettings)
def manual_command(
    papers: Annotated[list[Path], typer.Argument(metavar="PAPER.tex...", help="Main LaTeX file of each paper.")],
    settings: ManualSettings,
    target: Annotated[Path, typer.Option("--out", help="File of the manual (Markdown).")] = Path("manual.md"),
    model: Annotated[str | None, typer.Option(help="The chat model's name at the server.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Address of the API; OpenAI's own by default.")] = None,
    cassette: Annotated[
        Path | None,
        typer.Option(help="Recorded answers: played back without network, or recorded if a model is given."),
    ] = None,
    chat: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Further settings of the chat client, such as prices, budget, cache_dir, or a `local` model.",
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--json", help="Also write facts, figures and cost to this file.")
    ] = None,
) -> None:
    """Make the manual of a game from the LaTeX sources of papers about it, with a chat model or a recording.

    Examples:

        rllib manual paper/main.tex --model gpt-4o --cassette manual.jsonl --out manual.md

        rllib manual paper/main.tex --cassette manual.jsonl --out manual.md

        rllib manual onion_soup --chat '{"local": "smollm2"}' --batch 1
    """
    from rllib_llm_comm.experiments.language_stages import run_manual

    given = {"model": model, "base_url": base_url, "cassette": None if cassette is None else str(cassette)}
    asked = {} if chat is None else load_json_option("--chat", chat)
    asked |= {key: value for key, value in given.items() if value is not None}
    run_manual(papers, target, asked, settings, figures=figures)
