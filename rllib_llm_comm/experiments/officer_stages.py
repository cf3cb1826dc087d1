"""Stages of MiniRTS officers that need no Ray: demonstrations, cloning, games under scripted commanders."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.envs.minirts.commanders.officers import SCRIPTED, check_executor, checkpoints_of
from rllib_llm_comm.experiments.console import say
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.experiments.stages import PlainStage, Stage, StageResult
from rllib_llm_comm.experiments.validation import check_type

if TYPE_CHECKING:
    from rllib_llm_comm.baselines.red.officer_cloning import OfficerCloningSettings
    from rllib_llm_comm.baselines.red.officer_demonstrations import DemonstrationSettings
    from rllib_llm_comm.evaluation.officer_scores import OfficerScoreSettings

_DEMONSTRATIONS = "demonstrations"


def _checked(stage: Stage, kind: type, given: Mapping[str, Any]) -> Any:
    """The settings of a `config:`, its keys and types checked.

    Raises:
        UserError: If a key is unknown, or a value of the wrong type or out of its range.
    """
    types = typing.get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]
    for key, value in given.items():
        if key not in known:
            raise UserError(
                f"`{stage.name}.config.{key}` is no setting of {stage.experiment.run}; known are "
                f"{', '.join(known)}.{did_you_mean(key, known)}"
            )
        check_type(f"{stage.name}.config.{key}", value, types[key])
    try:
        return kind(**given)
    except UserError as error:
        raise UserError(f"In `{stage.name}.config`: {error}") from None


def _check_officer(stage: Stage, setting: str, checkpoint: str) -> None:
    """Refuses a checkpoint that is none of an officer.

    Raises:
        UserError: If it is none, or nothing is there.
    """
    from rllib_llm_comm.baselines.red.officer_executor import load_officer

    try:
        load_officer(checkpoint, setting)
    except UserError as error:
        raise UserError(f"In `{stage.name}.config`: {error}") from None


class DemonstrateOfficers(PlainStage):
    """`run: demonstrate_officers`: games of imperfect scripted officers, to learn from."""

    name = "demonstrate_officers"
    stands_in = "demonstrations: scripted officers in the place of people"

    def settings(self, stage: Stage) -> DemonstrationSettings:
        """The checked `config:`."""
        from rllib_llm_comm.baselines.red.officer_demonstrations import DemonstrationSettings

        found: DemonstrationSettings = _checked(stage, DemonstrationSettings, stage.experiment.config)
        return found

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values and the game."""
        self.settings(stage).env()

    def run(self, stage: Stage) -> StageResult:
        """Records the games into `demonstrations/` of the stage's folder."""
        from rllib_llm_comm.baselines.red.officer_demonstrations import idle_share, write_demonstrations

        folder = stage.folder / _DEMONSTRATIONS
        with counting_bar("demonstrating") as progress:
            rows = write_demonstrations(folder, self.settings(stage), progress)
        figures = {"games": len(rows.games), "decisions": len(rows), "idle": round(idle_share(rows), 4)}
        say(f"{figures['games']} games, {figures['decisions']} decisions, nothing ordered at {figures['idle']:.1%}")
        return StageResult([folder], summary=figures)


class CloneOfficer(PlainStage):
    """`run: clone_officer`: behaviour cloning of demonstrated officers."""

    name = "clone_officer"

    def settings(self, stage: Stage) -> tuple[str, OfficerCloningSettings]:
        """Folder of the demonstrations, and the checked rest of `config:`; `network` holds the network's settings."""
        from rllib_llm_comm.baselines.red.officer_cloning import OfficerCloningSettings
        from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings

        given = dict(stage.experiment.config)
        source = given.pop(_DEMONSTRATIONS, None)
        if not isinstance(source, str):
            raise UserError(
                f"`{stage.name}.config.{_DEMONSTRATIONS}` is {source!r} but must be a folder of demonstrations, "
                "usually the `${NAME}` of a stage above."
            )
        if "network" in given:
            check_type(f"{stage.name}.config.network", given["network"], dict[str, Any])
            given["network"] = OfficerSettings.from_mapping(given["network"])
        found: OfficerCloningSettings = _checked(stage, OfficerCloningSettings, given)
        return source, found

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values, and demonstrations and an officer to go on from that should be there by now."""
        from rllib_llm_comm.baselines.red.officer_demonstrations import INDEX

        source, settings = self.settings(stage)
        if source not in unresolved and not (Path(source) / INDEX).is_file():
            raise UserError(f"`{stage.name}.config.{_DEMONSTRATIONS}` is {source!r} but no demonstrations are there.")
        if settings.start is not None and settings.start not in unresolved:
            _check_officer(stage, "start", settings.start)

    def run(self, stage: Stage) -> StageResult:
        """Trains the officer and writes its policy folder, `policy/`."""
        from rllib_llm_comm.baselines.red.officer_cloning import clone_into
        from rllib_llm_comm.policies.policy_folder import POLICY_FOLDER

        source, settings = self.settings(stage)
        folder = stage.folder / POLICY_FOLDER
        with counting_bar("cloning") as progress:
            found = clone_into(folder, source, settings, progress)
        figures = {"decisions": found.decisions[0], "held_out": found.decisions[1], "nll": min(found.nll)}
        say(f"{found.decisions[0]} decisions learned, {len(found.nll)} passes, held-out loss {min(found.nll):.3f} nats")
        return StageResult([folder], summary=figures)


class PlayOfficers(PlainStage):
    """`run: play_officers`: win rates of officers under scripted commanders."""

    name = "play_officers"

    def settings(self, stage: Stage) -> OfficerScoreSettings:
        """The checked `config:`."""
        from rllib_llm_comm.evaluation.officer_scores import OfficerScoreSettings

        found: OfficerScoreSettings = _checked(stage, OfficerScoreSettings, stage.experiment.config)
        return found

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values and the game; officers that are not trained yet are left out."""
        settings = self.settings(stage)
        check_executor(settings.executor)
        for checkpoint in checkpoints_of(settings.executor) or ():
            if not any(path in checkpoint for path in unresolved):
                _check_officer(stage, "executor", checkpoint)
        dataclasses.replace(settings, executor=SCRIPTED).env()

    def run(self, stage: Stage) -> StageResult:
        """Plays the games and writes `officer.json`."""
        from rllib_llm_comm.evaluation.officer_scores import officer_scores

        path = stage.folder / "officer.json"
        with counting_bar("playing") as progress:
            found = officer_scores(self.settings(stage), path, progress)
        for name, one in found["summary"].items():
            low, high = one["won_95"]
            say(f"{name}: {one['won']:.2f} of {one['games']} games won ({low:.2f} to {high:.2f})")
        return StageResult([path], summary=found["summary"])
