"""Settings of a training run that stand above its experiment file."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import Field

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.settings import Settings, Several
from rllib_llm_comm.experiments.experiment_file import Experiment, ExperimentFile, make_experiment

DEFAULT_STORAGE = "results"


class TrainSettings(Settings):
    """Settings of `run_experiments`, the options of `rllib train`; what is not given is as the file says."""

    stop: dict[str, Any] | None = None
    """Stop criteria of one stage, such as {"training_iteration": 10}."""
    experiment_name: str | None = None
    """Folder of the results, below the storage path."""
    num_samples: int | None = Field(None, ge=1)
    """Trials per point of the search space."""
    storage_path: str | None = None
    """Folder above the results; ./results by default."""
    restore: str | None = None
    """Checkpoint folder from which every trial starts."""
    resume: bool = True
    """Skip finished stages and continue unfinished ones, or do all again; old results are kept aside."""
    resources_per_trial: dict[str, Any] | None = None
    """Of the learner's process, such as {"cpu": 2, "gpu": 1}."""
    checkpoint_freq: int | None = Field(None, ge=0)
    """Training iterations between checkpoints; 0 for none."""
    checkpoint_at_end: bool | None = None
    """Save when a trial ends, as by default."""
    keep_checkpoints_num: int | None = Field(None, ge=1)
    """Checkpoints that stay on disk."""
    checkpoint_score_attr: str | None = None
    """Result key by which checkpoints are kept; "min-KEY" keeps small ones."""
    scheduler: str | None = None
    """Tune's trial scheduler, such as asynchyperband."""
    scheduler_config: dict[str, Any] | None = None
    """Arguments of the scheduler."""
    ray_address: str | None = None
    """Join a running Ray cluster."""
    ray_num_cpus: int | None = Field(None, ge=1)
    """Logical CPUs of a local Ray."""
    ray_num_gpus: int | None = Field(None, ge=0)
    """GPUs of a local Ray."""
    seed: int | None = Field(None, ge=0)
    """Seed of everything that runs."""
    track: Several[str] | None = None
    """Follow it in tensorboard, mlflow or wandb."""
    modules: Several[str] | None = None
    """Import these modules first; they register your own environments, algorithms or teachers."""
    trust: bool = False
    """Go on from checkpoints and unfinished runs that were not written here, which runs what is pickled in them, take
    the addresses, names of keys and paths that played checkpoints recorded, and let the file name code, readers that
    unpickle, and keys of any server."""
    verbose: int = Field(0, ge=0)
    """0: results alone; 1: output of Ray's workers, too; 2: all, with tracebacks."""

    def experiment_keys(self) -> dict[str, Any]:
        """The given settings of one experiment, as its keys."""
        names = ("num_samples", "restore", "scheduler", "stop", "resources_per_trial", "scheduler_config")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def checkpoint_keys(self) -> dict[str, Any]:
        """The given settings of checkpoints, as keys of `checkpoint_config`."""
        given: dict[str, Any] = {
            "checkpoint_frequency": self.checkpoint_freq,
            "checkpoint_at_end": self.checkpoint_at_end,
            "num_to_keep": self.keep_checkpoints_num,
        }
        if self.checkpoint_score_attr is not None:
            least = self.checkpoint_score_attr.startswith("min-")
            given["checkpoint_score_attribute"] = self.checkpoint_score_attr.removeprefix("min-")
            given["checkpoint_score_order"] = "min" if least else "max"
        return {key: value for key, value in given.items() if value is not None}


def apply_settings(file: ExperimentFile, settings: TrainSettings, stage: str | None = None) -> ExperimentFile:
    """The experiments of a file with settings put above them.

    Args:
        file: The experiments.
        settings: The settings. Those of checkpoints and the seed hold for all experiments.
        stage: The experiment that the others belong to; may be `None` if only one trains an algorithm.

    Raises:
        UserError: If that experiment is unclear or unknown, or a value is impossible.
    """
    from rllib_llm_comm.experiments.stages_without_tune import KINDS

    training = [name for name, experiment in file.experiments.items() if experiment.run not in KINDS]
    listed = ", ".join(training) or "none"
    if stage is not None and stage not in training:
        hint = did_you_mean(stage, training)
        raise UserError(f"`--stage` is {stage!r} but must be a stage that trains ({listed}).{hint}")
    spec = settings.experiment_keys()
    if spec and stage is None and len(training) != 1:
        option = "--" + next(iter(spec)).replace("_", "-")
        raise UserError(f"`{option}` could be about several stages ({listed}); say which with `--stage NAME`.")
    target = stage or (training[0] if training else None)
    changed: dict[str, Experiment] = {}
    for name, experiment in file.experiments.items():
        # Pydantic would turn objects of a Python file's config, such as an RLModuleSpec, into plain values.
        data = {**experiment.model_dump(exclude_unset=True, exclude={"config"}), "config": dict(experiment.config)}
        if name == target:
            data |= spec
        if name in training and settings.checkpoint_keys():
            data["checkpoint_config"] = {**data.get("checkpoint_config", {}), **settings.checkpoint_keys()}
        if settings.seed is not None:
            data["config"] = {**data["config"], "seed": settings.seed}
        changed[name] = make_experiment(name, data)
    return dataclasses.replace(file, experiments=changed)
