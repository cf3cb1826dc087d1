"""Options that are made of the fields of settings, which nobody declares twice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import Field
from typer.testing import CliRunner

from rllib_llm_comm.cli.options import check_options, takes_settings
from rllib_llm_comm.core.settings import Settings, Several
from rllib_llm_comm.evaluation.play_settings import EvaluationSettings, PlaySettings, ReplaySettings
from tests.refusal import refused


class Mine(Settings):
    """Fields of all kinds."""

    count: int = Field(3, ge=1, le=9)
    """How `many`."""
    share: float | None = None
    loud: bool = False
    kept: bool | None = None
    kind: Literal["a", "b"] | None = None
    place: Path | None = None
    texts: Several[str] | None = None
    layouts: Several[str] = ()
    who: Several[str | dict[str, Any]] | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    hidden: bool = Field(False, exclude=True)


def run(*arguments):
    app, told = typer.Typer(), []

    @app.command()
    @takes_settings(Mine, ["hidden"], ["layouts"], place=typer.Option("--to", "-t"))
    def command(file: Annotated[str, typer.Argument()], settings: Mine, own: int = 1) -> None:
        told.append((file, own, settings))

    check_options(app)
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return told[0] if told else done


def test_options_have_types_bounds_and_help_of_the_fields():
    assert run("f") == ("f", 1, Mine()) and not run("f")[2].model_fields_set & {"share", "config", "texts"}
    many = ["--who=x", '--who={"name": "y"}', "--texts=a,b", "--texts=c", "--layouts=a, b", "--layouts=c"]
    flags = ["--loud", "--no-kept", "-t", "there", "--config", '{"a": 1}', "--own", "2", "--share", "0.5"]
    given = Mine(
        loud=True, kept=False, place=Path("there"), config={"a": 1}, share=0.5, kind="b", layouts=["a", "b", "c"],
        who=["x", {"name": "y"}], texts=["a,b", "c"],
    )  # fmt: skip
    assert run("f", *many, *flags, "--kind", "b") == ("f", 2, given)
    assert "How many." in run("--help").output and "(1 to 9)" in run("--help").output
    assert "--hidden" not in run("--help").output


def test_what_does_not_fit_is_told():
    for argument, wrong in {
        "--kind=c": ("kind", "choice"),
        "--config=x": ("--config",),
        "--who={x": ("--who",),
        "--count=0": ("count", "range"),
    }.items():
        with refused(*wrong):
            run("f", argument)


def test_an_option_of_one_value_is_given_once():
    for option, twice in {"--count": ["--count=1", "--count=2"], "--to": ["-t", "a", "--to=b"]}.items():
        with refused(option):
            run("f", *twice)
    assert run("f", "--loud", "--loud")[2].loud


def test_a_file_cannot_trust():
    assert PlaySettings(trust=True).trust
    for setting in ("trust", "trust_own"):
        with refused(f"mine.{setting}", "unknown"):
            EvaluationSettings.checked("mine", {setting: True})


def test_settings_of_one_command_are_those_of_another_as_far_as_it_has_them():
    shared = PlaySettings(greedy=True, messages="none", trust=True)
    assert ReplaySettings.like(shared, seed=4) == ReplaySettings(greedy=True, messages="none", trust=True, seed=4)
    assert ReplaySettings.like(EvaluationSettings(num_envs=2, episodes=3)) == ReplaySettings(episodes=3)
    with refused("communication"):
        EvaluationSettings(communication=True, trials=1)
