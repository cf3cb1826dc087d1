"""`rllib check`: contract tests of an environment, and golden files against our games."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rllib_llm_comm.cli.options import Imports
from rllib_llm_comm.experiments.console import one_line, say
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.import_modules import import_modules

app = typer.Typer(no_args_is_help=True, help="Check an environment, or a golden file against our games.")


@app.command("env")
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


@app.command("golden")
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
