"""`rllib planning`: planners judged by whole games, and the ablations of SAMA, one command each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from rllib_llm_comm.cli.check import import_modules
from rllib_llm_comm.cli.console import out, print_table, say, short_path
from rllib_llm_comm.cli.options import Imports, takes_options
from rllib_llm_comm.cli.outputs import require_writable
from rllib_llm_comm.cli.planning_options import (
    SCRIPTED,
    JsonFile,
    Layouts,
    MarkdownFile,
    PlanningOptions,
    play_and_tell,
    read_planner,
    require_prompts,
    with_settings,
)
from rllib_llm_comm.cli.progress import counting_bar
from rllib_llm_comm.cli.ray_session import quiet_libraries
from rllib_llm_comm.cli.stages import write_atomically
from rllib_llm_comm.errors import UserError

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


@app.command("rewards")
def rewards(
    code: Annotated[
        Path | None,
        Option(help="Folder of reward code; what a model writes is kept there. Without it a recording is replayed."),
    ] = None,
    planner: Annotated[
        str | None, Option(metavar="JSON", help="Planner whose chat model writes the code of subgoals that have none.")
    ] = None,
    layouts: Layouts = None,
    steps: Annotated[int, Option(min=1, help="Steps of disturbed scripted cooks per kitchen.")] = 300,
    seed: Annotated[int, Option(min=0, help="Of these steps.")] = 0,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Rewards by hand or by a planner: how far reward code agrees with the exact tests, for all subgoals of a kitchen.

    The code of "put the onion into the pot" lies in CODE/KITCHEN/put_the_onion_into_the_pot.py or in CODE itself.
    Without --code it is what a large model wrote for the cramped room, from the recording that comes with the package.

    Examples:

        rllib planning rewards

        rllib planning rewards --code rewards --layouts cramped_room

        rllib planning rewards --code rewards --planner '{"name": "chat", "chat": {"model": "gpt-4o"}}'
    """
    quiet_libraries(0)
    require_writable({"--json": json_file, "--markdown": markdown_file})
    from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
    from rllib_llm_comm.evaluation.planning_study import markdown
    from rllib_llm_comm.evaluation.reward_study import RewardStudy
    from rllib_llm_comm.planning.planners import planner_model

    asked = None if planner is None else read_planner(planner)
    if code is None:
        code, asked, layouts = _recorded_rewards(planner, layouts)
    if asked is not None:
        require_prompts(asked, "written rewards")
    elif not code.is_dir():
        raise UserError(f"--code is {str(code)!r}, which is no folder; give one, or a --planner that writes the code.")
    study = RewardStudy(code, None if asked is None else planner_model(asked), steps, seed)
    if json_file is not None and json_file.exists():
        study.take_over(json_file.read_text(encoding="utf-8"))
    kitchens = LAYOUT_NAMES if layouts is None else [name.strip() for name in layouts.split(",")]

    def keep(text: str) -> None:
        if json_file is not None:
            write_atomically(json_file, text)

    with counting_bar("comparing") as progress:
        study.measure(kitchens, keep, progress)
    summary = {layout: found for layout, found in study.summary().items() if layout in kitchens}
    columns = ["scenario", *next(iter(summary.values()))]
    rows = [[layout, *map(_figure, found.values())] for layout, found in summary.items()]
    names = [name.replace("_", " ") for name in columns]
    print_table([names, *rows])
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(names, rows))


@app.command("subgoals")
def subgoals(
    layouts: Layouts = None,
    planner: Annotated[
        str, Option(metavar="NAME|JSON", help="Who is asked: a name, or settings as for the other commands.")
    ] = SCRIPTED,
    states: Annotated[int, Option(min=1, help="Different states per kitchen in which it is asked.")] = 200,
    seed: Annotated[int, Option(min=0, help="Of the states.")] = 0,
    folder: Annotated[
        Path, Option(help="Where the data sets go, one file per kitchen; what they hold is not asked for again.")
    ] = Path("results/subgoals"),
    markdown_file: MarkdownFile = None,
    modules: Imports = None,
) -> None:
    """A data set of subgoals: what a planner wants in many different states of a kitchen, without duplicates.

    The file FOLDER/KITCHEN.json is what the setting `subgoal_file` of the kitchens with subgoals takes, for training.

    Examples:

        rllib planning subgoals --layouts cramped_room --states 200

        rllib planning subgoals --planner '{"name": "chat", "chat": {"model": "gpt-4o"}}'
    """
    quiet_libraries(0)
    require_writable({"--markdown": markdown_file})
    import_modules(modules)
    from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
    from rllib_llm_comm.evaluation.planning_study import markdown
    from rllib_llm_comm.planning.planners import planner_model
    from rllib_llm_comm.planning.subgoal_dataset import SubgoalDataset

    asked = read_planner(planner)
    model = planner_model(asked)
    names = LAYOUT_NAMES if layouts is None else [name.strip() for name in layouts.split(",")]
    rows = []
    for kitchen in [get_layout(name).name for name in names]:
        data, path = SubgoalDataset(kitchen, asked, seed, model), folder / f"{kitchen}.json"
        if path.exists():
            data.take_over(path.read_text(encoding="utf-8"))
        with counting_bar(f"asking in {kitchen}") as progress:
            there = data.ask(states, partial(write_atomically, path), progress)
        if there < states:
            say(f"{kitchen} has only {there} states that differ to a planner, as far as was drawn.")
        rows.append([kitchen, *_counts(data.summary())])
    columns = ["scenario", "states", "subgoals", "of the library", "goals", "refused", "no answer"]
    print_table([columns, *rows])
    say(f"Data sets: {short_path(folder)}")
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(columns, rows))


def _counts(summary: Mapping[str, Any]) -> list[str]:
    """The figures of a data set as the table shows them."""
    of_library = f"{summary['share']:.0%} of {summary['library']}"
    rest = [str(summary[name]) for name in ("goals", "refused", "failed")]
    return [str(summary["states"]), str(summary["subgoals"]), of_library, *rest]


def _recorded_rewards(planner: str | None, layouts: str | None) -> tuple[Path, dict[str, Any], str]:
    """Folder, planner and kitchen of the reward code that comes with the package.

    Raises:
        UserError: If another planner or kitchen is wanted.
    """
    recording, kitchen, folder = "claude_reward_code", "cramped_room", Path("results/reward_code")
    for option, value, allowed in (("--planner", planner, None), ("--layouts", layouts, kitchen)):
        if value not in (None, allowed):
            raise UserError(
                f"{option} is {value!r} but --code is not given, without which only the recording {recording!r} of "
                f"{kitchen!r} is replayed; give --code, a folder of reward code."
            )
    say(
        f"No --code is given: the recording {recording!r} that comes with the package is replayed for {kitchen!r}, and "
        f"its code kept in {folder}."
    )
    return folder, {"name": "cassette", "cassette": recording}, kitchen


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


def _figure(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)
    say(f"Figure: {short_path(path)}")
