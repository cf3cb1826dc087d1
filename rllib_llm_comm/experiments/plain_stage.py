"""The base class of stages that need no Ray."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import Experiment
from rllib_llm_comm.experiments.stages import Stage, StageResult

# Experiment keys that mean something to these stages.
_USED = {"run", "env", "config", "storage_path"}


class PlainStage(ABC):
    """One kind of stage, named in `run:`."""

    name: ClassVar[str]
    takes_env: ClassVar[bool] = False
    model_settings: ClassVar[tuple[str, ...]] = ()
    """Settings of the file's `model:` that it takes."""
    stands_in: ClassVar[str] = ""
    """What it is, with a name, if it stands in for what a paper uses."""

    def check(self, stage: Stage, unresolved: tuple[str, ...] = ()) -> None:
        """Checks the stage before anything runs.

        Args:
            stage: The stage, references replaced.
            unresolved: Paths in it at which nothing is yet.

        Raises:
            UserError: At the first unknown key or impossible value.
        """
        for key in stage.experiment.model_fields_set - _USED:
            if getattr(stage.experiment, key) != Experiment.model_fields[key].get_default(call_default_factory=True):
                raise UserError(f"`{stage.name}.{key}` means nothing to `run: {self.name}`; remove it.")
        if stage.experiment.env is not None and not self.takes_env:
            raise UserError(
                f"`{stage.name}.env` means nothing to `run: {self.name}` (the checkpoint has it); remove it."
            )
        self.check_config(stage, unresolved)

    @abstractmethod
    def check_config(self, stage: Stage, unresolved: tuple[str, ...]) -> None:
        """Checks `config:`."""

    def config_identity(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part of `config:` that decides the result; all of it, if a stage knows no better."""
        return config

    def loads(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of what it loads, as of `agents.stand_ins`: `config:`, with defaults that stand in."""
        return config

    @abstractmethod
    def run(self, stage: Stage) -> StageResult:
        """Does the work; what lies in the stage's folder from a killed call is used or overwritten."""
