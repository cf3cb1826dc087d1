"""Stages of MiniRTS officers that need no Ray: demonstrations, cloning, games under scripted commanders."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from rllib_llm_comm.baselines.red.officer_settings import (
    OfficerCloningSettings,
    OfficerDemonstrationSettings,
    OfficerScoreSettings,
)
from rllib_llm_comm.core.errors import UserError, within
from rllib_llm_comm.envs.minirts.commanders.officers import SCRIPTED, check_executor, checkpoints_of
from rllib_llm_comm.experiments.console import counting_bar, say
from rllib_llm_comm.experiments.stages import Stage, StageKind, StageResult

_DEMONSTRATIONS = "demonstrations"


def _check_officer(stage: Stage, setting: str, checkpoint: str) -> None:
    from rllib_llm_comm.baselines.red.officer_policy import load_officer

    with within(f"{stage.name}.config"):
        load_officer(checkpoint, setting)


class DemonstrateOfficers(StageKind):
    """`run: demonstrate_officers`: games of imperfect scripted officers, to learn from."""

    name = "demonstrate_officers"
    settings_class = OfficerDemonstrationSettings
    stands_in = "demonstrations: scripted officers in the place of people"

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values and the game."""
        self.settings(stage).env()

    def run(self, stage: Stage) -> StageResult:
        """Records the games into `demonstrations/` of the stage's folder."""
        from rllib_llm_comm.baselines.red.officer_cloning import idle_share, write_demonstrations

        folder = stage.folder / _DEMONSTRATIONS
        with counting_bar("demonstrating") as progress:
            rows = write_demonstrations(folder, self.settings(stage), progress)
        figures = {"games": len(rows.games), "decisions": len(rows), "idle": round(idle_share(rows), 4)}
        say(f"{figures['games']} games, {figures['decisions']} decisions, nothing ordered at {figures['idle']:.1%}")
        return StageResult([folder], summary=figures)


class CloneOfficerSettings(OfficerCloningSettings):
    """`config:` of `run: clone_officer`."""

    demonstrations: str = Field(examples=["demonstrations: ${demonstrations}"])
    """Folder of the demonstrations."""


class CloneOfficer(StageKind):
    """`run: clone_officer`: behaviour cloning of demonstrated officers."""

    name = "clone_officer"
    settings_class = CloneOfficerSettings

    def settings(self, stage: Stage) -> tuple[str, OfficerCloningSettings]:
        """Folder of the demonstrations, and the checked rest of `config:`."""
        given = super().settings(stage)
        return given.demonstrations, OfficerCloningSettings.from_attributes(given)

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values, and demonstrations and an officer to go on from that should be there by now."""
        from rllib_llm_comm.baselines.red.officer_cloning import INDEX

        source, settings = self.settings(stage)
        if source not in unresolved and not (Path(source) / INDEX).is_file():
            raise UserError(f"`{stage.name}.config.{_DEMONSTRATIONS}` is {source!r} but no demonstrations are there.")
        if settings.start is not None and settings.start not in unresolved:
            _check_officer(stage, "start", settings.start)

    def run(self, stage: Stage) -> StageResult:
        """Trains the officer and writes its policy folder, `policy/`."""
        from rllib_llm_comm.baselines.red.officer_cloning import clone_into
        from rllib_llm_comm.policies.policy_manifest import POLICY_FOLDER

        source, settings = self.settings(stage)
        folder = stage.folder / POLICY_FOLDER
        with counting_bar("cloning") as progress:
            found = clone_into(folder, source, settings, progress)
        figures = {"decisions": found.decisions[0], "held_out": found.decisions[1], "nll": min(found.nll)}
        say(f"{found.decisions[0]} decisions learned, {len(found.nll)} passes, held-out loss {min(found.nll):.3f} nats")
        return StageResult([folder], summary=figures)


class PlayOfficers(StageKind):
    """`run: play_officers`: win rates of officers under scripted commanders."""

    name = "play_officers"
    settings_class = OfficerScoreSettings

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values and the game; officers that are not trained yet are left out."""
        settings = self.settings(stage)
        check_executor(settings.executor)
        for checkpoint in checkpoints_of(settings.executor) or ():
            if not any(path in checkpoint for path in unresolved):
                _check_officer(stage, "executor", checkpoint)
        settings.replace(executor=SCRIPTED).env()

    def run(self, stage: Stage) -> StageResult:
        """Plays the games and writes `officer.json`."""
        from rllib_llm_comm.evaluation.officers import officer_scores

        path = stage.folder / "officer.json"
        with counting_bar("playing") as progress:
            found = officer_scores(self.settings(stage), path, progress)
        for name, one in found["summary"].items():
            low, high = one["won_95"]
            say(f"{name}: {one['won']:.2f} of {one['games']} games won ({low:.2f} to {high:.2f})")
        return StageResult([path], summary=found["summary"])
