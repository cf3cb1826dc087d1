"""The stage that plays checkpoints with each other and with strangers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from rllib_llm_comm.core.errors import within
from rllib_llm_comm.core.settings import Several
from rllib_llm_comm.evaluation.play_settings import CrossPlaySettings
from rllib_llm_comm.experiments.evaluation_run import (
    CROSS_PLAY,
    SENTENCES,
    ask_players,
    labels_of,
    play_crosswise,
    refuse_code,
)
from rllib_llm_comm.experiments.stages import REFERENCE, Stage, StageKind, StageResult, as_list
from rllib_llm_comm.policies.partner_settings import CHECKPOINT, parse_partners


class CrossPlayStageSettings(CrossPlaySettings):
    """`config:` of `run: crossplay`."""

    players: Several[Any] | str = Field(examples=["players: ${verco}"])
    """Seeds of one method: checkpoints (usually `${stage}`), or mappings with the keys of `PartnerSettings`."""
    partners: dict[str, Several[Any] | str] = Field(default_factory=dict)
    """Group -> partners that none of them was trained with; likewise."""


class CrossPlayStage(StageKind):
    """`run: crossplay`: every player in every seat with every other, with itself and with strangers."""

    name = "crossplay"
    settings_class = CrossPlayStageSettings

    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks keys, values, and checkpoints that should be there by now."""
        from rllib_llm_comm.policies.policy_folder import find_policy

        if not stage.trust:
            refuse_code(f"`{stage.name}.config`", stage.experiment.config)
        given = self.settings(stage)
        groups = {f"partners.{name}": group for name, group in given.partners.items()}
        for place, listed in {"players": given.players, **groups}.items():
            for one in parse_partners(as_list(listed), f"{stage.name}.config.{place}"):
                waits = any(path in one.policy for path in unresolved) or REFERENCE.search(one.policy)
                if one.kind == CHECKPOINT and not waits:
                    with within(f"{stage.name}.config.{place}"):
                        find_policy(one.policy)

    def loads(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its players tell themselves what stands in."""
        return {}

    def run(self, stage: Stage) -> StageResult:
        """Plays all pairs; writes `crossplay.json` and, where somebody talks, `sentences.json`, each with its page."""
        from rllib_llm_comm.evaluation.cross_play import CrossPlay

        given = self.settings(stage)
        settings = CrossPlaySettings.from_attributes(given, trust=stage.trust, trust_own=True)
        partners = {name: as_list(group) for name, group in given.partners.items()}
        json_path, page = stage.folder / CROSS_PLAY, stage.folder / "crossplay.html"
        players = as_list(given.players)
        if len(players) > 1 and all(isinstance(one, str) and Path(one).exists() for one in players):  # trials
            players = [{"policy": one, "name": name} for one, name in zip(players, labels_of(players), strict=True)]
        cross = CrossPlay(players, partners, settings)
        told = play_crosswise(cross, json_path, page)
        sentences = ask_players(cross, settings, stage.folder / SENTENCES)
        groups = {name: group["mean"] for name, group in told["groups"].items()}
        means = {name: told[name]["mean"] for name in ("self_play", "cross_play", "gap")}
        files = {"page": page} | ({} if sentences is None else {"sentences": sentences})
        return StageResult([json_path], files, summary={**means, "with": groups})
