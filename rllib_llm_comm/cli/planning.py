"""`rllib planning`: planners judged by whole games, and the ablations of SAMA, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from rllib_llm_comm.cli.comparison_options import takes_comparison_settings
from rllib_llm_comm.cli.planning_data import rewards, subgoals
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments import planning_run
from rllib_llm_comm.experiments.planner_comparison import ComparisonSettings

app = typer.Typer(no_args_is_help=True, help="Judge planners by whole games; SAMA's ablations, one command each.")


@app.callback()
def planning() -> None:
    """Judge planners by whole games; SAMA's ablations, one command each.

    Without options all of it runs without network: the scripted planner, and cooks who do as they are told by rules.
    """


@app.command("reward")
@takes_comparison_settings
def reward(settings: ComparisonSettings) -> None:
    """The score of whole games under a planner.

    Examples:

        rllib planning reward --json reward.json

        rllib planning reward --executor results/emma/emma --planner plan4mc
    """
    planning_run.measure_reward(settings)


@app.command("planners")
@takes_comparison_settings
def planners(settings: ComparisonSettings) -> None:
    """The scores of several planners with the same executor: scripted, plan4mc, random, and those given.

    Examples:

        rllib planning planners --planner '{"name": "cassette", "cassette": "plans.jsonl"}'
    """
    planning_run.compare_planners(settings)


@app.command("trials")
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
        raise UserError(f"--shares is {text!r} but must be numbers from 0 to 1 with commas between them.")
    return found


@app.command("random-commands")
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


@app.command("objects")
@takes_comparison_settings
def objects(settings: ComparisonSettings) -> None:
    """With and without the things that matter in the prompts.

    The planner has to ask a language model, or to play its recording: rules answer all prompts alike.

    Example:

        rllib planning objects --planner '{"name": "chat", "chat": {"model": "gpt-4o", "cassette": "plans.jsonl"}}'
    """
    planning_run.compare_prompts("objects", settings)


@app.command("examples")
@takes_comparison_settings
def examples(settings: ComparisonSettings) -> None:
    """No, one or three worked examples in the prompts.

    The planner has to ask a language model, or to play its recording: rules answer all prompts alike.

    Example:

        rllib planning examples --planner '{"name": "chat", "chat": {"model": "gpt-4o", "cassette": "plans.jsonl"}}'
    """
    planning_run.compare_prompts("examples", settings)


@app.command("irrelevant-examples")
@takes_comparison_settings
def irrelevant_examples(settings: ComparisonSettings) -> None:
    """Examples of the game, of something else, or none in the prompts.

    The planner has to ask a language model, or to play its recording: rules answer all prompts alike.

    Example:

        rllib planning irrelevant-examples --planner '{"name": "chat", "chat": {"model": "gpt-4o"}}'
    """
    planning_run.compare_prompts("irrelevant-examples", settings)


app.command("rewards")(rewards)
app.command("subgoals")(subgoals)
