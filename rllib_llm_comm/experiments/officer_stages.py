"""Stages of MiniRTS officers that need no Ray: demonstrations, cloning, games under scripted commanders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from rllib_llm_comm.baselines.red.officer_settings import (
    OfficerCloningSettings,
    OfficerDemonstrationSettings,
    OfficerScoreSettings,
)
from rllib_llm_comm.core.errors import UserError, within
from rllib_llm_comm.envs.minirts.officers import SCRIPTED, check_executor, checkpoints_of
from rllib_llm_comm.experiments.console import counting_bar, print_table, say
from rllib_llm_comm.experiments.stages import FIGURES, OFFICER_GAMES, POLICY, Stage, StageKind, StageResult

_DEMONSTRATIONS = "demonstrations"


def _check_officer(stage: Stage, setting: str, checkpoint: str) -> None:
    from rllib_llm_comm.baselines.red.officer_policy import load_officer

    with within(f"{stage.name}.config"):
        load_officer(checkpoint, setting)


class DemonstrateOfficers(StageKind):
    """`run: demonstrate_officers`: games of imperfect scripted officers, to learn from."""

    name = "demonstrate_officers"
    gives = {"": OFFICER_GAMES}
    settings_class = OfficerDemonstrationSettings
    stands_in = "demonstrations: scripted officers in the place of people"

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values and the game."""
        self.settings(stage).env()

    def run(self, stage: Stage) -> StageResult:
        """Records the games into `demonstrations/` of the stage's folder."""
        folder = stage.folder / _DEMONSTRATIONS
        return StageResult([folder], summary=demonstrate(folder, self.settings(stage)))


def demonstrate(folder: Path, settings: OfficerDemonstrationSettings) -> dict[str, Any]:
    """Records games of scripted officers, and tells and gives the numbers of games and decisions and the idle share."""
    from rllib_llm_comm.baselines.red.officer_cloning import idle_share, write_demonstrations

    with counting_bar("demonstrating") as progress:
        rows = write_demonstrations(folder, settings, progress)
    results = {name: [one["result"] for one in rows.games if one["commander"] == name] for name in settings.commanders}
    told = ", ".join(f"{name} {found.count(1)} of {len(found)}" for name, found in results.items() if found)
    say(f"{len(rows.games)} games, {len(rows)} decisions, nothing ordered at {idle_share(rows):.1%}; won under {told}")
    return {"games": len(rows.games), "decisions": len(rows), "idle": round(idle_share(rows), 4)}


class CloneOfficerSettings(OfficerCloningSettings):
    """`config:` of `run: clone_officer`."""

    demonstrations: str = Field(examples=["demonstrations: ${demonstrations}"])
    """Folder of the demonstrations."""


class CloneOfficer(StageKind):
    """`run: clone_officer`: behaviour cloning of demonstrated officers."""

    name = "clone_officer"
    gives = {"": POLICY}
    wants = {_DEMONSTRATIONS: OFFICER_GAMES}
    settings_class = CloneOfficerSettings

    def settings(self, stage: Stage) -> tuple[str, OfficerCloningSettings]:
        """Folder of the demonstrations, and the checked rest of `config:`."""
        given = super().settings(stage)
        return given.demonstrations, OfficerCloningSettings.from_attributes(given)

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values, and demonstrations and an officer to go on from that should be there by now."""
        from rllib_llm_comm.baselines.red.officer_cloning import INDEX

        source, settings = self.settings(stage)
        if source not in stage.to_come and not (Path(source) / INDEX).is_file():
            raise UserError(f"`{stage.name}.config.{_DEMONSTRATIONS}` is {source!r} but no demonstrations are there.")
        if settings.start is not None and settings.start not in stage.to_come:
            _check_officer(stage, "start", settings.start)

    def run(self, stage: Stage) -> StageResult:
        """Trains the officer and writes its policy folder, `policy/`."""
        from rllib_llm_comm.policies.policy_manifest import POLICY_FOLDER

        source, settings = self.settings(stage)
        folder = stage.folder / POLICY_FOLDER
        return StageResult([folder], summary=clone(folder, source, settings))


def clone(folder: Path, source: str | Path, settings: OfficerCloningSettings) -> dict[str, Any]:
    """Trains an officer on demonstrations, and tells and gives the numbers of decisions and the least held-out loss."""
    from rllib_llm_comm.baselines.red.officer_cloning import clone_into

    with counting_bar("cloning") as progress:
        found = clone_into(folder, source, settings, progress)
    say(
        f"{found.decisions[0]} decisions learned, {found.decisions[1]} held out, {len(found.nll)} passes: "
        f"held-out loss {found.nll[0]:.3f} nats after the first, {min(found.nll):.3f} at best"
    )
    return {"decisions": found.decisions[0], "held_out": found.decisions[1], "nll": min(found.nll)}


class PlayOfficers(StageKind):
    """`run: play_officers`: win rates of officers under scripted commanders."""

    name = "play_officers"
    gives = {"": FIGURES}
    settings_class = OfficerScoreSettings

    def check_config(self, stage: Stage) -> None:
        """Checks keys, values and the game; officers that are not trained yet are left out."""
        settings = self.settings(stage)
        check_executor(settings.executor)
        for checkpoint in checkpoints_of(settings.executor) or ():
            if not stage.awaits(checkpoint):
                _check_officer(stage, "executor", checkpoint)
        settings.replace(executor=SCRIPTED).env()

    def run(self, stage: Stage) -> StageResult:
        """Plays the games and writes `officer.json`."""
        path = stage.folder / "officer.json"
        return StageResult([path], summary=play(self.settings(stage), path))


def play(settings: OfficerScoreSettings, file: Path | None) -> dict[str, Any]:
    """Plays officers under scripted commanders; prints and gives their scores by commander. `file` keeps all games."""
    from rllib_llm_comm.evaluation.officers import officer_scores

    with counting_bar("playing") as progress:
        scores: dict[str, Any] = officer_scores(settings, file, progress)["summary"]
    rows = [["commander", "games", "won", "95 %", "drawn", "lost"]]
    for name in settings.commanders:
        one = scores[name]
        low, high = one["won_95"]
        shares = [f"{one['won']:.2f}", f"{low:.2f} to {high:.2f}", f"{one['drawn']:.2f}", f"{one['lost']:.2f}"]
        rows.append([name, str(one["games"]), *shares])
    print_table(rows, f"officers: {settings.executor}, opponent: {settings.opponent}")
    return scores
