"""The comparisons of `rllib planning`: planners, the ablations of SAMA, reward code, data sets of subgoals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.files import read_text, write_atomically
from rllib_llm_comm.core.settings import Seeded, Several
from rllib_llm_comm.evaluation.play_settings import ComparedPlay
from rllib_llm_comm.experiments.console import (
    counting_bar,
    out,
    print_table,
    require_writable,
    say,
    say_stand_ins,
    short_path,
)
from rllib_llm_comm.experiments.experiment_file import OwnModules
from rllib_llm_comm.experiments.ray_session import begin_command
from rllib_llm_comm.experiments.search_space import flat_settings
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.load_policy import Loading
from rllib_llm_comm.policies.planning_settings import ReflectionSettings

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.planner_scores import Executor, PlannerScores

SCRIPTED = "scripted"
WHICH_PLANNER = "which planner brings the most with the same executor"
RULES = ("scripted", "plan4mc", "random")
"""Planners that read no prompts."""
PlannerSettings = str | Mapping[str, Any]
"""A planner's name, or its settings with `name`."""
Variant = tuple[Mapping[str, Any], PlannerSettings, int]
"""Labels, planner and most reflections per round of one row of a comparison."""


class _PlanningCommand(Seeded, OwnModules):
    """What all of `rllib planning` takes."""

    layouts: Several[str] | None = None
    """Kitchens; all five, or those that a checkpoint was trained on. In other games their scenarios, such as
    opponents."""
    markdown_file: Path | None = None
    """Also write the table to this file."""


class _KeptFigures(_PlanningCommand):
    """A table whose figures are kept."""

    json_file: Path | None = None
    """Keep the figures in this file; what it holds already is not done again."""


class ComparisonSettings(_KeptFigures, ComparedPlay, ReflectionSettings):
    """Settings of all comparisons of planners, the options of `rllib planning`."""

    env: str | None = None
    """Environment of the scripted executor, by default the kitchens; a checkpoint plays that of its training."""
    executor: Several[str] | None = None
    """Who carries out subgoals: scripted (rules; by default), or checkpoints, with or without `trained:`."""
    planner: Several[str | dict[str, Any]] | None = None
    """Planners: a name, or settings such as {"name": "cassette", "cassette": "plans.jsonl"}; scripted by default."""
    trials: int = Field(0, ge=0, le=LARGEST)
    """Most reflections per round."""
    replan: Literal["any", "all"] | None = None
    """any: plan when somebody's subgoal has ended; all: in rounds, which `trials` needs. By default in rounds only with
    reflection."""
    patience: int = Field(40, ge=1)
    """Game steps that a subgoal may take."""

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
            raise UserError(f"`--planner` is given {len(found)} times, which only `rllib planning planners` takes.")
        return found[0]

    @cached_property
    def executors(self) -> dict[str, Executor]:
        """The executors by name; checkpoints are loaded once.

        Raises:
            UserError: If a checkpoint cannot be loaded, or the game does not fit.
        """
        from rllib_llm_comm.evaluation.planner_scores import DEFAULT_ENV, PolicyExecutor, ScriptedExecutor
        from rllib_llm_comm.policies.policy_folder import weights_digest

        made: dict[str, Executor] = {}
        for name in self.executor or [SCRIPTED]:
            if name == SCRIPTED:
                made[name] = ScriptedExecutor(self.env or DEFAULT_ENV, self.env_config)
            else:
                path = short_path(find_checkpoint(name.removeprefix("trained:")))
                policy = Loading(trust=self.trust).load(path)
                made[path] = PolicyExecutor(policy, path, self.env_config, self.greedy, weights_digest(path))
        return made


class RewardCodeSettings(_KeptFigures):
    """Settings of the comparison of reward code, the options of `rllib planning rewards`."""

    code: Path | None = None
    """Folder of reward code; what a model writes is kept there. Without it a recording is replayed."""
    planner: str | dict[str, Any] | None = None
    """Planner whose chat model writes the code of subgoals that have none."""
    steps: int = Field(300, ge=1)
    """Steps of disturbed scripted cooks per kitchen."""


class SubgoalCollection(_PlanningCommand):
    """Settings of the data sets of subgoals, the options of `rllib planning subgoals`."""

    planner: str | dict[str, Any] = SCRIPTED
    """Who is asked: a name, or settings as for the other commands."""
    states: int = Field(200, ge=1)
    """Different states per kitchen in which it is asked."""
    folder: Path = Path("results/subgoals")
    """Where the data sets go, one file per kitchen; what they hold is not asked for again."""


def _compare(
    name: str, measures: str, variants: Sequence[Variant], settings: ComparisonSettings, rounds: bool = False
) -> PlannerScores:
    """Plays and tells all variants in all scenarios of all executors; with `rounds` all of them in rounds."""
    from rllib_llm_comm.evaluation.planner_scores import SCENARIO, Cell, PlannerScores, PlanningSetup
    from rllib_llm_comm.sama.planners import trusting

    cells = []
    executors, names = settings.executors, settings.layouts
    for who, executor in executors.items():
        known = executor.scenarios
        scenarios = known if names is None else {name: known.get(name, {"layout": name}) for name in names}
        for scenario, config in scenarios.items():
            told = {"executor": who} if len(executors) > 1 else {}
            for labels, planner, trials in variants:
                replan = settings.replan or ("all" if rounds or trials else "any")
                plans = trusting(planner) if settings.trust else planner
                setup = PlanningSetup(plans, replan, trials, settings.recover, settings.patience)
                cells.append(Cell({SCENARIO: scenario, **told, **labels}, executor, config, setup))
    scores = PlannerScores(name, measures, cells, range(settings.seed, settings.seed + settings.episodes))
    play_and_tell(scores, settings.json_file, settings.markdown_file)
    return scores


def _games(settings: ComparisonSettings) -> list[Any]:
    """Of each executor the game of its first scenario."""
    return [executor.env(next(iter(executor.scenarios.values()))) for executor in settings.executors.values()]


def with_settings(planner: PlannerSettings, /, **settings: Any) -> dict[str, Any]:
    """The settings of a planner, given by name or settings, with some of them changed."""
    return {**({"name": planner} if isinstance(planner, str) else planner), **settings}


def require_prompts(planner: PlannerSettings, what: str) -> None:
    """Refuses a planner that reads no prompts in a comparison of prompts; `what` is compared, in words."""
    from rllib_llm_comm.sama.planners import trained_policy

    name = with_settings(planner)["name"]
    if name in RULES or trained_policy(planner) is not None:
        chat, tape = {"name": "chat", "chat": {"model": "gpt-4o"}}, {"name": "cassette", "cassette": "plans.jsonl"}
        raise UserError(
            f"`--planner` is {name!r}, which asks no language model, so that {what} change nothing; give one that "
            f"does, such as '{json.dumps(chat)}', or a recording, '{json.dumps(tape)}'."
        )


def play_and_tell(scores: PlannerScores, json_file: Path | None, markdown_file: Path | None) -> None:
    """Plays the missing episodes of a comparison, prints its table and writes the files.

    Args:
        scores: The comparison.
        json_file: File that keeps the figures; what it holds already is not played again.
        markdown_file: File of the table.

    Raises:
        UserError: If the file of figures holds another comparison, or a game cannot be played.
    """
    from rllib_llm_comm.evaluation.planner_scores import table

    keep = _kept(scores, json_file)
    say(f"Measures {scores.measures}.")
    say_stand_ins(scores.stand_ins())
    with counting_bar("playing") as progress:
        scores.play(keep, progress)
    columns, rows = table(scores.figures())
    labels_and_score = columns.index("95 % interval") + 1 if "95 % interval" in columns else len(columns)
    _tell(columns, rows, scores.stand_ins(), markdown_file, list(reversed(columns[labels_and_score:])))
    if json_file is not None:
        say(f"Figures: {short_path(json_file)}")
    if markdown_file is not None:
        say(f"Table: {short_path(markdown_file)}")


def _kept(scores: Any, file: Path | None) -> Callable[[str], None]:
    """Takes over the figures that a file holds, and gives the function that writes it anew."""
    if file is not None and file.exists():
        scores.take_over(read_text(file))
    return lambda text: None if file is None else write_atomically(file, text)


def _tell(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    phrases: Sequence[str],
    markdown_file: Path | None,
    optional: Sequence[str] = (),
) -> None:
    """Prints a table and what stands in, and writes both to a file."""
    from rllib_llm_comm.evaluation.planner_scores import markdown

    print_table([columns, *rows], optional=optional)
    say_stand_ins(phrases)
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(columns, rows, phrases))


PROMPT_ABLATIONS: dict[str, tuple[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]]] = {
    "objects": (
        "what it brings to name the things that matter",
        [({"objects": value}, {"objects": value}) for value in (True, False)],
    ),
    "examples": (
        "what worked examples bring",
        [({"examples": number}, {"examples": number}) for number in (0, 1, 3)],
    ),
    "irrelevant-examples": (
        "whether examples have to be of the game",
        [
            ({"examples": told}, {"examples": own, "irrelevant_examples": other})
            for told, own, other in (("of the game", 1, 0), ("of something else", 0, 1), ("none", 0, 0))
        ],
    ),
}
"""Name -> the measured effect, and per variant its labels and the planner's changed settings."""


def measure_reward(settings: ComparisonSettings) -> None:
    """Plays and tells the score of whole games under one planner."""
    _begin(settings)
    variants: list[Variant] = [({}, settings.one_planner(), settings.trials)]
    _compare("reward", "the score of whole games under a planner", variants, settings)


def compare_planners(settings: ComparisonSettings) -> None:
    """Plays and tells the scores of the scripted, the plan4mc, the random and the given planners."""
    _begin(settings)
    from rllib_llm_comm.sama.planning_game import planning_game

    given = [] if settings.planner is None else settings.planners()
    known: list[PlannerSettings] = ["scripted", "plan4mc", "random"]
    if not all(planning_game(game).has_skills for game in _games(settings)):
        known.remove("plan4mc")
        say("plan4mc is left out, as this game has no skill graph.")
    wanted = [*known, *(one for one in given if one not in known)]
    labelled = planners_by_label(wanted)
    variants: list[Variant] = [({"planner": label}, one, settings.trials) for label, one in labelled.items()]
    _compare("planners", WHICH_PLANNER, variants, settings)


def compare_trials(settings: ComparisonSettings, most: int = 3, share: float = 0.5) -> None:
    """Plays and tells the effect of 0 to `most` reflections per round.

    Args:
        settings: The planner, the executors, the scenarios and the files.
        most: Most reflections per round, >= 0.
        share: Share of subgoals that are replaced by random ones, so that some fail, in [0, 1].
    """
    _begin(settings)
    planner = settings.one_planner()
    asked = with_settings("disturbed", planner=planner, share=share) if share else planner
    variants: list[Variant] = [({"trials": number}, asked, number) for number in range(most + 1)]
    measures = f"what is gained by undoing failed rounds, with {share:.0%} of the subgoals replaced by random ones"
    _compare("trials", measures, variants, settings, rounds=True)


def compare_random_commands(settings: ComparisonSettings, shares: Sequence[float], figure: Path | None = None) -> None:
    """Plays and tells the scores with shares of the subgoals replaced by random possible ones (SAMA's Figure 14).

    Args:
        settings: The planner, the executors, the scenarios and the files.
        shares: Shares in [0, 1].
        figure: File of a picture of score against share (PNG); `None` for none.
    """
    _begin(settings)
    require_writable({"--figure": figure})
    planner = settings.one_planner()
    variants: list[Variant] = [
        ({"random": share}, with_settings("disturbed", planner=planner, share=share), settings.trials)
        for share in shares
    ]
    scores = _compare("random-commands", "whether agents do as they are told", variants, settings)
    if figure is not None:
        _draw(scores, figure)


def compare_prompts(name: str, settings: ComparisonSettings) -> None:
    """Compares prompts of a planner that asks a language model.

    Args:
        name: One of `PROMPT_ABLATIONS`.
        settings: The planner, the executors, the scenarios and the files.

    Raises:
        UserError: If nobody reads the prompts, or all variants have the same.
    """
    _begin(settings)
    from rllib_llm_comm.sama.planners import require_different_prompts
    from rllib_llm_comm.sama.planning_game import planning_game

    measures, variants = PROMPT_ABLATIONS[name]
    planner = settings.one_planner()
    require_prompts(planner, name.replace("-", " "))
    played: list[Variant] = [
        (labels, with_settings(planner, **changes), settings.trials) for labels, changes in variants
    ]
    for env in _games(settings):
        env.reset(seed=settings.seed)
        require_different_prompts([(labels, one) for labels, one, _ in played], planning_game(env), name)
    _compare(name, measures, played, settings)


def _begin(settings: _KeptFigures) -> None:
    begin_command({"--json": settings.json_file, "--markdown": settings.markdown_file}, settings.modules)


def planners_by_label(planners: Sequence[PlannerSettings]) -> dict[str, PlannerSettings]:
    """Planners by their names for a table; those of one name are told apart by the settings in which they differ.

    Raises:
        UserError: If one is there twice.
    """
    flat = [(planner_label(planner), dict(flat_settings(with_settings(planner)))) for planner in planners]
    found: dict[str, PlannerSettings] = {}
    for planner, (name, own) in zip(planners, flat, strict=True):
        others = [other for other_name, other in flat if other_name == name]
        differing = [key for key in own if any(key not in other or other[key] != own[key] for other in others)]
        label = ", ".join([name, *(f"{key}: {own[key]}" for key in differing)])
        if label in found:
            raise UserError(
                f"The planner {json.dumps(planner, default=str)} is given twice; give it once, or other settings."
            )
        found[label] = planner
    return found


def planner_label(planner: PlannerSettings) -> str:
    """A planner in tables and reports: its name, whom it asks or its checkpoint, and what that sees."""
    from rllib_llm_comm.sama.planners import trained_view  # with numpy, which the command line does without

    sees = ", sees truth" if trained_view(planner) == "truth" else ""
    if isinstance(planner, str):
        return f"{planner}{sees}"
    if planner.get("policy"):
        how = " greedy" if planner.get("greedy") else ""
        return f"{planner['name']}:{short_path(Path(str(planner['policy'])))}{how}{sees}"
    chat = planner["chat"] if isinstance(planner.get("chat"), Mapping) else {}
    source = chat.get("model") or planner.get("cassette") or chat.get("cassette") or chat.get("local")
    return f"{planner.get('name')}{f' ({Path(str(source)).name})' if source else ''}{sees}"


def _draw(scores: PlannerScores, path: Path) -> None:
    from rllib_llm_comm.evaluation.figures import draw_shares, to_png

    lines: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for row in scores.figures():
        name = " ".join(str(value) for key, value in row["labels"].items() if key != "random")
        lines.setdefault(name, []).append((row["labels"]["random"], row["summary"]))
    with out.status("drawing"):
        picture = to_png(draw_shares(lines))
    write_atomically(path, picture)
    say(f"Figure: {short_path(path)}")


_RECORDING, _RECORDED_KITCHEN, _RECORDED_CODE = "claude_reward_code", "cramped_room", Path("results/reward_code")


def compare_reward_code(settings: RewardCodeSettings) -> None:
    """Measures and tells the agreement of reward code with the exact tests, for all subgoals of kitchens.

    Raises:
        UserError: If a setting is not allowed.
        ChatError: If a request failed for good.
    """
    _begin(settings)
    from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
    from rllib_llm_comm.evaluation.reward_code_scores import RewardCodeScores
    from rllib_llm_comm.evaluation.stand_ins import stand_ins
    from rllib_llm_comm.sama.planners import planner_model

    code = settings.code
    planner: PlannerSettings | None = settings.planner
    layouts: Sequence[str] | None = settings.layouts
    if code is None:
        code, planner, layouts = _recorded(planner, layouts)
    if planner is not None:
        require_prompts(planner, "written rewards")
    elif not code.is_dir():
        raise UserError(f"`--code` is {str(code)!r}, which is no folder; give one, or a `--planner` that writes it.")
    scores = RewardCodeScores(code, None if planner is None else planner_model(planner), settings.steps, settings.seed)
    keep = _kept(scores, settings.json_file)
    kitchens = layouts or LAYOUT_NAMES
    phrases = stand_ins({"planner": planner})
    say_stand_ins(phrases)
    with counting_bar("comparing") as progress:
        scores.measure(kitchens, keep, progress)
    summary = {layout: found for layout, found in scores.summary().items() if layout in kitchens}
    names = [name.replace("_", " ") for name in ("scenario", *next(iter(summary.values())))]
    rows = [
        [layout, *(f"{value:.4g}" if isinstance(value, float) else str(value) for value in found.values())]
        for layout, found in summary.items()
    ]
    _tell(names, rows, phrases, settings.markdown_file)


def _recorded(
    planner: PlannerSettings | None, layouts: Sequence[str] | None
) -> tuple[Path, dict[str, Any], Sequence[str]]:
    """Folder, planner and kitchen of the reward code that comes with the package.

    Raises:
        UserError: If another planner or kitchen is wanted.
    """
    kitchens = None if layouts is None else ",".join(layouts)
    asked = planner if planner is None or isinstance(planner, str) else json.dumps(planner)
    for option, value, allowed in (("--planner", asked, None), ("--layouts", kitchens, _RECORDED_KITCHEN)):
        if value not in (None, allowed):
            raise UserError(
                f"`{option}` is {value!r} but `--code` is not given, without which only the recording {_RECORDING!r} "
                f"of {_RECORDED_KITCHEN!r} is replayed; give `--code`, a folder of reward code."
            )
    say(
        f"No --code is given: the recording {_RECORDING!r} that comes with the package is replayed for "
        f"{_RECORDED_KITCHEN!r}, and its code kept in {_RECORDED_CODE}."
    )
    return _RECORDED_CODE, {"name": "cassette", "cassette": _RECORDING}, [_RECORDED_KITCHEN]


_COLUMNS = (
    "scenario", "states", "subgoals", "of the library", "goals", "refused", "no answer", "answered by", "assigned by"
)  # fmt: skip


def collect_subgoals(settings: SubgoalCollection) -> None:
    """Asks a planner in different states of kitchens and writes a data set of subgoals per kitchen.

    Raises:
        UserError: If a setting is not allowed.
        ChatError: If a request failed for good.
    """
    begin_command({"--markdown": settings.markdown_file}, settings.modules)
    from rllib_llm_comm.envs.overcooked_ai import ENV_ID
    from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
    from rllib_llm_comm.evaluation.stand_ins import stand_ins
    from rllib_llm_comm.experiments.language_stages import ask_planner
    from rllib_llm_comm.sama.data_set import SubgoalDataset
    from rllib_llm_comm.sama.planners import planner_model
    from rllib_llm_comm.sama.preparation import open_game

    planner = settings.planner
    model = planner_model(planner)
    phrases = stand_ins({"planner": planner})
    say_stand_ins(phrases)
    rows = []
    for kitchen in [get_layout(name).name for name in settings.layouts or LAYOUT_NAMES]:
        game = open_game(ENV_ID, {"layout": kitchen}, settings.seed)
        data = SubgoalDataset(game, planner, settings.seed, model)
        there = ask_planner(data, settings.states, settings.folder / f"{kitchen}.json", kitchen)
        if there < settings.states:
            say(f"{kitchen} has only {there} states that differ to a planner, as far as was drawn.")
        rows.append([kitchen, *_counts(data.summary())])
    _tell(_COLUMNS, rows, phrases, settings.markdown_file)
    say(f"Data sets: {short_path(settings.folder)}")


def _counts(summary: Mapping[str, Any]) -> list[str]:
    """The figures of a data set as cells of the table."""
    of_library = f"{summary['share']:.0%} of {summary['library']}"
    rest = [str(summary[name]) for name in ("goals", "refused", "failed")]
    authors = [
        ", ".join(f"{who} {count}" for who, count in summary[name].items()) for name in ("answered_by", "assigned_by")
    ]
    return [str(summary["states"]), str(summary["subgoals"]), of_library, *rest, *authors]
