"""`rllib planning`: planners judged by whole games, and the ablations of SAMA, one command each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from rllib_llm_comm.cli.check import import_modules
from rllib_llm_comm.cli.options import takes_options
from rllib_llm_comm.cli.planning_material import rewards, subgoals
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.planner_comparison import (
    PlanningOptions,
    play_and_tell,
    require_prompts,
    with_settings,
)
from rllib_llm_comm.experiments.ray_session import quiet_libraries
from rllib_llm_comm.files import write_atomically

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.planning_study import Study

app = typer.Typer(no_args_is_help=True, help="Judge planners by whole games; SAMA's ablations, one command each.")
_PROMPTED_RULES: Mapping[str, Any] = {"name": "chat", "chat": {"local": "rules"}}
Variant = tuple[Mapping[str, Any], str | Mapping[str, Any], int]


@app.callback()
def planning() -> None:
    """Judge planners by whole games; SAMA's ablations, one command each.

    Without options all of it runs without network: the scripted planner, and cooks who do as they are told by rules.
    """


@app.command("reward")
@takes_options(PlanningOptions)
def reward(options: PlanningOptions) -> None:
    """The score of whole games under a planner.

    Examples:

        rllib planning reward --json reward.json

        rllib planning reward --executor results/emma/emma --planner plan4mc
    """
    _begin(options)
    variants: list[Variant] = [({}, options.one_planner(), options.trials)]
    _play("reward", "the score of whole games under a planner", variants, options)


@app.command("planners")
@takes_options(PlanningOptions)
def planners(options: PlanningOptions) -> None:
    """The scores of several planners with the same executor: scripted, plan4mc, random, and those given.

    Examples:

        rllib planning planners --planner '{"name": "cassette", "cassette": "plans.jsonl"}'
    """
    _begin(options)
    given = [] if options.planner is None else options.planners()
    known = ["scripted", "plan4mc", "random"]
    if not options.has_skills():
        known.remove("plan4mc")
        say("plan4mc is left out, as this game has no skill graph.")
    wanted = [*known, *(one for one in given if one not in known)]
    variants: list[Variant] = [({"planner": _short(one)}, one, options.trials) for one in wanted]
    _play("planners", "which planner brings the most with the same executor", variants, options)


@app.command("trials")
@takes_options(PlanningOptions)
def trials(
    options: PlanningOptions,
    most: Annotated[int, Option("--most", min=0, help="Reflections per round: from 0 to this many.")] = 3,
    share: Annotated[
        float,
        Option("--share", min=0, max=1, help="Share of subgoals that are replaced by random ones, so that some fail."),
    ] = 0.5,
) -> None:
    """What self-reflection brings: 0 to 3 times a failed round is put back and planned anew.

    Subgoals of rules hardly ever fail. So half of them are replaced by random possible ones: it is measured what is
    gained by undoing those that fail (a gain in time, as what is put back does not count), not how well a model thinks.
    With a planner that fails by itself give --share 0.

    Examples:

        rllib planning trials --json trials.json
    """
    _begin(options)
    planner = options.one_planner()
    asked = with_settings("disturbed", planner=planner, share=share) if share else planner
    variants: list[Variant] = [({"trials": number}, asked, number) for number in range(most + 1)]
    measures = f"what is gained by undoing failed rounds, with {share:.0%} of the subgoals replaced by random ones"
    _play("trials", measures, variants, options, rounds=True)


@app.command("random-commands")
@takes_options(PlanningOptions)
def random_commands(
    options: PlanningOptions,
    shares: Annotated[str, Option(help="Shares of random subgoals, with commas between them.")] = "0,0.25,0.5,0.75,1",
    figure: Annotated[Path | None, Option(help="Draw score against share as PNG.")] = None,
) -> None:
    """Whether agents do as they are told: the score when a share of the subgoals is replaced by random possible ones.

    The score of agents who follow falls with the share; who does not listen stays where he is (SAMA's Figure 14).

    Examples:

        rllib planning random-commands --json random.json --figure random.png
    """
    _begin(options)
    require_writable({"--figure": figure})
    planner = options.one_planner()
    variants: list[Variant] = [
        ({"random": share}, with_settings("disturbed", planner=planner, share=share), options.trials)
        for share in _shares(shares)
    ]
    draw = None if figure is None else lambda study: _draw(study, figure)
    _play("random-commands", "whether agents do as they are told", variants, options, figure=draw)


@app.command("objects")
@takes_options(PlanningOptions)
def objects(options: PlanningOptions) -> None:
    """With and without the things that matter in the prompts.

    Without a planner that asks a language model the prompts are answered by rules.

    Examples:

        rllib planning objects

        rllib planning objects --planner '{"name": "chat", "chat": {"model": "gpt-4o", "cassette": "plans.jsonl"}}'
    """
    variants = [({"objects": value}, {"objects": value}) for value in (True, False)]
    _compare_prompts("objects", "what it brings to name the things that matter", variants, options)


@app.command("examples")
@takes_options(PlanningOptions)
def examples(options: PlanningOptions) -> None:
    """No, one or three worked examples in the prompts.

    Without a planner that asks a language model the prompts are answered by rules.

    Examples:

        rllib planning examples

        rllib planning examples --planner '{"name": "chat", "chat": {"model": "gpt-4o", "cassette": "plans.jsonl"}}'
    """
    variants = [({"examples": number}, {"examples": number}) for number in (0, 1, 3)]
    _compare_prompts("examples", "what worked examples bring", variants, options)


@app.command("irrelevant-examples")
@takes_options(PlanningOptions)
def irrelevant_examples(options: PlanningOptions) -> None:
    """Examples of the game, of something else, or none in the prompts.

    Without a planner that asks a language model the prompts are answered by rules.

    Examples:

        rllib planning irrelevant-examples

        rllib planning irrelevant-examples --planner '{"name": "chat", "chat": {"model": "gpt-4o"}}'
    """
    variants = [
        ({"examples": told}, {"examples": own, "irrelevant_examples": other})
        for told, own, other in (("of the game", 1, 0), ("of something else", 0, 1), ("none", 0, 0))
    ]
    _compare_prompts("irrelevant-examples", "whether examples have to be of the game", variants, options)


app.command("rewards")(rewards)
app.command("subgoals")(subgoals)


def _begin(options: PlanningOptions) -> None:
    quiet_libraries(0)
    require_writable({"--json": options.json_file, "--markdown": options.markdown_file})
    import_modules(options.modules)


def _compare_prompts(
    name: str, measures: str, variants: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], options: PlanningOptions
) -> None:
    """Compares settings of a planner that asks a language model; without one rules read the prompts."""
    _begin(options)
    planner = _PROMPTED_RULES if options.planner is None else options.one_planner()
    require_prompts(planner, name.replace("-", " "))
    if options.planner is None:
        say(
            "No --planner is given: rules read the prompts and answer them, no language model does. What differs tells "
            "what the prompts do to rules, which need no examples; for a model's sake give --planner."
        )
    played: list[Variant] = [
        (labels, with_settings(planner, **settings), options.trials) for labels, settings in variants
    ]
    options.require_different_prompts([(labels, planner) for labels, planner, _ in played], name)
    _play(name, measures, played, options)


def _play(
    name: str,
    measures: str,
    variants: Sequence[Variant],
    options: PlanningOptions,
    rounds: bool = False,
    figure: Any = None,
) -> None:
    from rllib_llm_comm.evaluation.planning_study import Study

    seeds = range(options.seed, options.seed + options.episodes)
    play_and_tell(Study(name, measures, options.cells(variants, rounds), seeds), options, figure)


def _shares(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= share <= 1 for share in found):
        raise UserError(f"--shares is {text!r} but must be numbers from 0 to 1 with commas between them.")
    return found


def _short(planner: str | Mapping[str, Any]) -> str:
    """A planner as a table names it."""
    if isinstance(planner, str):
        return planner
    chat = planner["chat"] if isinstance(planner.get("chat"), Mapping) else {}
    source = chat.get("model") or planner.get("cassette") or chat.get("cassette") or chat.get("local")
    return f"{planner.get('name')} ({Path(str(source)).name})" if source else str(planner.get("name"))


def _draw(study: Study, path: Path) -> None:
    from rllib_llm_comm.evaluation.figures import draw_shares, to_png

    lines: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for row in study.figures():
        name = " ".join(str(value) for key, value in row["labels"].items() if key != "random")
        lines.setdefault(name, []).append((row["labels"]["random"], row["summary"]))
    with out.status("drawing"):
        picture = to_png(draw_shares(lines))
    write_atomically(path, picture)
    say(f"Figure: {short_path(path)}")
