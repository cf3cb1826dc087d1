"""`rllib list`, `rllib check`, `rllib example`, `rllib calibrate`: what is looked at before a training."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer import Argument, Option

from rllib_llm_comm.cli.options import Imports, takes_settings
from rllib_llm_comm.core.errors import UserError, one_line, require_choice
from rllib_llm_comm.core.files import disk_error, write_atomically
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.experiments.calibration_run import CalibrationOptions, open_both, read_settings
from rllib_llm_comm.experiments.console import counting_bar, import_modules, out, plain, print_table, say, short_path
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.packaged_examples import SENTENCE_END, description, examples, find_example
from rllib_llm_comm.experiments.ray_session import begin_command
from rllib_llm_comm.language.prompts import PromptTemplates

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.calibration import Calibration

check_app = typer.Typer(no_args_is_help=True, help="Check an environment, or a golden file against our games.")


@check_app.command("env")
def check_env_command(
    env_id: Annotated[str, typer.Argument(metavar="ID", help="Id in PettingZoo's registry of parallel environments.")],
    modules: Imports = None,
    env_config: Annotated[str | None, typer.Option(help="Settings of the environment, as JSON.")] = None,
) -> None:
    """Run the contract tests of a registered environment, ours or your own; exit code 1 if one fails.

    Examples:

        rllib check env rllib_llm_comm/overcooked_text-v0

        rllib check env mine/game-v0 --import my_package.envs
    """
    import_modules(modules)
    from rllib_llm_comm.testing import check_env

    results = check_env(env_id, settings=load_json_option("--env-config", env_config) if env_config else {})
    styles = {"passed": "green", "failed": "red"}
    for result in results:
        detail = f" ({one_line(result.detail)})" if result.detail else ""
        say(f"{result.status:8} {result.name}{detail}", styles.get(result.status, "yellow"))
    failed = sum(not result.ok for result in results)
    say(f"{env_id}: {len(results)} checks, {failed} failed")
    if failed:
        raise typer.Exit(1)


@check_app.command("golden")
def check_golden_command(
    file: Annotated[Path, typer.Argument(help="Recorded episodes of an original game (.jsonl, .jsonl.gz or .json).")],
    show: Annotated[int, typer.Option(min=0, help="Print at most so many mismatches.")] = 20,
    layout: Annotated[
        str | None, typer.Option(help="Name or .layout file, for games that Overcooked-AI saved without it.")
    ] = None,
    dynamics: Annotated[
        str | None, typer.Option(help='"old" or "new", for games that Overcooked-AI saved; new if not told.')
    ] = None,
) -> None:
    """Replay recorded episodes of an original game against ours; exit code 1 at any mismatch.

    Examples:

        rllib check golden tests/data/overcooked_text_golden.jsonl.gz

        rllib check golden saved_by_overcooked_ai.json --layout cramped_room_tomato --dynamics new
    """
    from rllib_llm_comm.envs.golden import check_golden

    told = {"layout": layout, "dynamics": dynamics}
    report = check_golden(file, **{name: value for name, value in told.items() if value is not None})
    say(f"{report.game}: {report.episodes} episodes, {report.steps} steps, {report.mismatch_count} mismatches")
    for mismatch in report.mismatches[:show]:
        say(f"  {mismatch}")
    if report.mismatch_count > len(report.mismatches[:show]):
        say(f"  ... and {report.mismatch_count - len(report.mismatches[:show])} more")
    if not report.ok:
        raise typer.Exit(1)


def _print_names(heading: str, about: str, rows: Iterable[tuple[str, str]]) -> None:
    """A table of names, which can be copied as they stand, and texts."""
    table = Table()
    table.add_column(heading, no_wrap=True)
    table.add_column(about, overflow="fold")
    for name, text in rows:
        table.add_row(plain(name), plain(text))
    out.print(table)


_UNKNOWN_PHRASES = 10.0  # a larger temperature levels scores that tell nothing
_NAMED = {
    "algorithms": "rllib_llm_comm.rl.algorithms:ALGORITHMS",
    "stages": "rllib_llm_comm.experiments.stages_without_tune:STAGE_KINDS",
    "games": "rllib_llm_comm.envs.games:GAMES",
    "teachers": "rllib_llm_comm.verco.teachers.base:TEACHERS",
    "planners": "rllib_llm_comm.sama.planners:PLANNERS",
}
"""Kind of things -> the registry of all of them."""


def list_names_command(
    kind: Annotated[
        str | None, Argument(metavar="|".join(_NAMED), help="Kind of things; all of them if omitted.")
    ] = None,
    modules: Imports = None,
) -> None:
    """List what settings can name: algorithms and stages (`run`), games (`env`), teachers and planners.

    `rllib zoo list` shows trained policies, `rllib example list` examples.

    Examples:

        rllib list planners

        rllib list algorithms --import my_package.algorithms
    """
    begin_command(modules=modules)
    if kind is not None:
        require_choice("KIND", kind, _NAMED)
    for one in _NAMED if kind is None else (kind,):
        _print_names(one, "what it is", ((name, _first_sentence(thing)) for name, thing in _named(one)))
    if kind in (None, "algorithms"):
        from ray.rllib.algorithms.registry import ALGORITHMS

        say(f"RLlib's own algorithms: {', '.join(ALGORITHMS)}")


def _named(kind: str) -> Iterator[tuple[str, Any]]:
    """Names of a kind, with what has a docstring about each."""
    for name, thing in load(_NAMED[kind]).items():
        if kind == "games":
            for env_id in thing.entry_points:
                yield env_id, inspect.getmodule(thing.code("entry_points", env_id))
        else:
            yield name, getattr(thing, "told_by", thing)


def _first_sentence(thing: Any) -> str:
    """Of a docstring, behind its heading, and without what the list says itself."""
    paragraphs = [part for part in (inspect.getdoc(thing) or "").split("\n\n") if not part.startswith("#")]
    text = re.sub(r"^`run: \w+`: |; settings: `\w+`", "", " ".join("".join(paragraphs[:1]).split()))
    return SENTENCE_END.split(text)[0]


example_app = typer.Typer(no_args_is_help=True, help="List, copy or run the examples that come with the package.")


@example_app.command("list")
def list_command() -> None:
    """Show all examples with what they do."""
    _print_names("name", "what it does", ((name, description(path)) for name, path in examples().items()))
    say("rllib example run NAME runs one, rllib example get NAME copies it here.")


@example_app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="Name of the example.")],
    to: Annotated[Path | None, typer.Option("--out", help="File or folder to copy it to.")] = None,
) -> None:
    """Copy an example to the current folder, to be changed and run.

    Example:

        rllib example get verco && rllib train file verco.yaml
    """
    source = find_example(name)
    target = to or Path.cwd()
    if target.is_dir():
        target = target / source.name
    if target.exists():
        raise UserError(f"{short_path(target)} exists already; move it away or choose another place with `--out`.")
    try:
        write_atomically(target, source.read_bytes())
    except OSError as error:
        raise disk_error(error, f"`--out`: nothing can be copied to {str(target)!r}", "give another place") from error
    say(f"Copied to {short_path(target)}")


@example_app.command("defaults")
def defaults_command(
    run: Annotated[str, typer.Argument(help="Algorithm or stage, as `run` names it.")],
    env: Annotated[str | None, Option("--env", "-e", help="Game whose settings are listed, too.")] = None,
    modules: Imports = None,
) -> None:
    """Print an experiment file with all settings of an algorithm or stage: their defaults, meanings and ranges.

    Examples:

        rllib example defaults MAPPO --env rllib_llm_comm/overcooked_text-v0 > mappo.yaml

        rllib example defaults evaluate
    """
    begin_command(modules=modules)
    from rllib_llm_comm.experiments.default_file import default_file

    sys.stdout.write(default_file(run, env))


@example_app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the example.")],
) -> None:
    """Run an example; further options go to `rllib train file`, `rllib study file` or to the script.

    Examples:

        rllib example run verco

        rllib example run verco --seed 1 --experiment-name verco-seed1
    """
    path = find_example(name)
    if path.suffix == ".py":
        code = subprocess.run([sys.executable, str(path), *context.args], check=False, env=dict(os.environ)).returncode
        raise typer.Exit(code)
    from rllib_llm_comm.experiments.study_file import is_study

    context.find_root().command(["study" if is_study(path) else "train", "file", str(path), *context.args])


@takes_settings(CalibrationOptions, joined=["prompts"], env=Option("--env", "-e"), prompts=Option(metavar="NAME,..."))
def calibrate_command(
    settings: CalibrationOptions,
    file: Annotated[Path | None, Argument(help="Experiment file; its language model and game are taken.")] = None,
    json_file: Annotated[Path | None, Option("--json", help="Write all figures to this file.")] = None,
    modules: Imports = None,
) -> None:
    """Find `temperature`, `score_normalization` and `prompts` for a language model in a game, before training.

    The game is played at random. The base model scores the candidates of each decision, in silence; sets of prompts are
    compared in silence and with the messages of the game's scripted player heard.

    Examples:

        rllib calibrate tuned_examples/verco.yaml

        rllib calibrate --base-model smollm2 --env rllib_llm_comm/overcooked_text-v0

        rllib calibrate tuned_examples/twosome.yaml --base-model smollm2 --decisions 50

        rllib calibrate tuned_examples/verco_told.yaml --stage verco --prompts default,twosome,default_options
    """
    begin_command({"--json": json_file}, modules)
    from rllib_llm_comm.evaluation.calibration import DECIDED, calibrate

    subjects = read_settings(file, settings)
    base, game = open_both(subjects)
    templates = {name: PromptTemplates(texts) for name, texts in subjects.prompts.items()}
    aim, seed = settings.entropy, settings.seed
    with counting_bar("scores") as progress:
        found = calibrate(base, game, settings.decisions, aim, seed, subjects.present, progress, templates)
    say(
        f"{subjects.model.base_model} in {subjects.env}: {found.decisions} decisions of random play ({found.distinct} "
        f"different ones), {found.candidates:.1f} candidates each"
    )
    print_table(table(found), f"decided: share of the decisions whose likeliest candidate has {DECIDED:g} or more")
    print_table(prompt_table(found), prompt_caption(found))
    advice = found.advice
    say(f"Write in `config`: score_normalization: {advice.normalization}, temperature: {advice.temperature:g}", "green")
    if advice.temperature > _UNKNOWN_PHRASES:
        say("The model does not know these phrases at all: its messages will stay noise, too.", "yellow")
    if json_file is not None:
        figures = {**subjects.to_json(), "entropy_aim": aim, "seed": seed, **found.to_json()}
        write_atomically(json_file, json.dumps(figures, separators=(",", ":")) + "\n")
        say(f"Written to {json_file}")


def table(found: Calibration) -> list[list[str]]:
    """Rows for the console: temperature 1, the file's setting, and what was found."""
    rows = [["", "normalization", "temperature", "entropy", "likeliest", "decided"]]
    kinds = {"at 1": found.plain, "so far": (found.present,), "found": found.chosen}
    for kind, group in kinds.items():
        for row in filter(None, group):
            figures = [f"{figure:.3f}" for figure in (row.entropy, row.best, row.decided)]
            rows.append([kind, row.normalization, f"{row.temperature:g}", *figures])
    return rows


def prompt_table(found: Calibration) -> list[list[str]]:
    """Rows for the console: the sets of prompts, in silence and with messages heard."""
    rows = [["prompts", "heard", "entropy", "likeliest", "decided", "agrees", "T"]]
    for row in found.compared:
        figures = [row.openness.entropy, row.openness.best, row.openness.decided, row.agreement]
        told = ["-" if figure is None else f"{figure:.3f}" for figure in figures]
        rows.append([row.prompts, "yes" if row.heard else "no", *told, f"{row.temperature:g}"])
    return rows


def prompt_caption(found: Calibration) -> str:
    """What the table of prompts shows."""
    at = found.compared[0].openness
    told = f"at {at.normalization}, {at.temperature:g}; T: temperature of the aimed entropy"
    if found.chance is None:
        return told
    return (
        f"{told}; agrees with the scripted player: by chance {found.chance:.3f}, always one phrase "
        f"{found.one_phrase:.3f}"
    )


def schema_command(
    file: Annotated[Path, typer.Argument(help="JSON file to write.")] = Path("rllib.schema.json"),
    modules: Imports = None,
) -> None:
    """Write a JSON schema of experiment and study files, with which an editor completes and checks them.

    Examples:

        rllib schema

        rllib schema ~/rllib.schema.json --import my_package.algorithms
    """
    begin_command({"FILE": file}, modules)
    with out.status("reading all settings"):
        from rllib_llm_comm.experiments.schema import file_schema, to_text

        text = to_text(file_schema())
    write_atomically(file, text)
    say(f"Written to {short_path(file)}. Begin your YAML files with this line:")
    say(f"# yaml-language-server: $schema={short_path(file)}")
