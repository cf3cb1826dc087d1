"""Settings of a training run that stand above its experiment file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.experiments.experiment_file import Experiment, ExperimentFile, make_experiment

DEFAULT_STORAGE = "results"


@dataclass(frozen=True)
class TrainSettings:
    """Settings of `run_experiments`, the same as the options of `rllib train`; `None` keeps the file's value.

    Attributes:
        stop: Stop criteria of one stage, such as {"training_iteration": 10}.
        experiment_name: Folder of the results, below the storage path.
        num_samples: Trials per point of the search space, >= 1.
        storage_path: Folder above the results; `results` by default.
        restore: Checkpoint folder from which every trial starts.
        resume: True to skip finished stages and continue unfinished ones; False to do all again, with old results kept
            aside.
        resources_per_trial: Resources of the learner's process, such as {"cpu": 2, "gpu": 1}.
        checkpoint_freq: Training iterations between checkpoints; 0 for none.
        checkpoint_at_end: True to save when a trial ends.
        keep_checkpoints_num: Checkpoints that stay on disk, >= 1.
        checkpoint_score_attr: Result key by which checkpoints are kept; `min-KEY` keeps small ones.
        scheduler: Tune's trial scheduler, such as "asynchyperband".
        scheduler_config: Arguments of the scheduler.
        ray_address: Address of a running Ray cluster to join.
        ray_num_cpus: Logical CPUs of a local Ray, >= 1.
        ray_num_gpus: GPUs of a local Ray, >= 0.
        seed: Seed of all stages, >= 0.
        track: Trackers that every trial's results are written to: tensorboard, mlflow, wandb; none by default.
        modules: Modules that are imported first; they register a user's own environments, algorithms or teachers.
        trust: True to go on from checkpoints and unfinished runs that were not written here, which runs what is pickled
            in them, to use addresses, names of keys and paths that played checkpoints recorded, and to let settings
            name code, readers that unpickle, and keys of any server.
        verbose: 0: results alone; 1: output of Ray's workers, too; 2: all, with tracebacks.
    """

    stop: Mapping[str, Any] | None = None
    experiment_name: str | None = None
    num_samples: int | None = None
    storage_path: str | None = None
    restore: str | None = None
    resume: bool = True
    resources_per_trial: Mapping[str, Any] | None = None
    checkpoint_freq: int | None = None
    checkpoint_at_end: bool | None = None
    keep_checkpoints_num: int | None = None
    checkpoint_score_attr: str | None = None
    scheduler: str | None = None
    scheduler_config: Mapping[str, Any] | None = None
    ray_address: str | None = None
    ray_num_cpus: int | None = None
    ray_num_gpus: int | None = None
    seed: int | None = None
    track: Sequence[str] | None = None
    modules: Sequence[str] | None = None
    trust: bool = False
    verbose: int = 0

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
